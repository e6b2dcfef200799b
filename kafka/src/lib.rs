//! Kafka as a source of change events and as a place to publish to.
//!
//! Bytes become events ([`Decoder`], one for each format), events become rows of our types
//! ([`RowConverter`]), and [`Cutter`] cuts the topics of a TiCDC changefeed at a timestamp, so that no
//! transaction is ever split. All of that is synchronous and needs no broker. [`Reader`] and [`Publisher`]
//! speak to brokers.

mod avro;
mod client;
mod compression;
mod confluent;
mod convert;
mod cut;
mod duration;
mod encode;
mod event;
mod formats;
mod infer;
mod json;
mod protobuf;
mod value;

pub use avro::{AvroSchema, read_record};
pub use client::{
    Connection, Lost, Outgoing, PublishError, Publisher, PublisherOptions, ReadError, Reader, Record,
    partition_of_key,
};
pub use compression::{Compression, Decompressing, claim_check_content};
pub use confluent::{FramedAvro, KnownSchemas, SchemaSource, message_indexes, unframed};
pub use convert::{ColumnError, ConvertOptions, Converted, Missing, RowConverter, ZeroDates};
pub use cut::{
    Change, Close, Content, Cut, CutCounts, CutFault, CutOptions, Cutter, DdlAt, Entry, EventCutter, Half,
    KeyColumns, Position, Positions, Reset, RowKey, Side, Step, TopicPartition,
};
pub use encode::{ChangeEncoder, EncodedMessage, RowChange, RowOf, SinkFormat};
pub use event::{
    BadMessage, Cell, Ddl, DdlEffect, Decoder, Event, EventKind, Extent, Header, Image, Message, Oversize,
    SourcePosition, TableName, TransactionMark,
};
pub use formats::{
    BeforeImages, CanalDecoder, CanalDialect, ConnectHints, CsvOptions, DebeziumDecoder, DebeziumOptions,
    DecimalsAs, Encoding, JsonPath, MaxwellDecoder, OpenDecoder, OpenOptions, PlainDecoder, PlainMode,
    SimpleDecoder, TimesAs,
};
pub use infer::Inference;
pub use json::{Json, JsonError, Quoted};
pub use protobuf::ProtobufSchema;
pub use value::{SourceType, Value};
