//! Tests of the formats, of the conversion into our types and of the cutter; no broker.

#![allow(clippy::unwrap_used, reason = "tests panic rather than return errors")]

mod avro;
mod canal;
mod compression;
mod convert;
mod cut;
mod cut_events;
mod cut_model;
mod debezium;
mod encode;
mod json;
mod maxwell;
mod open;
mod plain;
mod protobuf;
mod simple;
mod support;
