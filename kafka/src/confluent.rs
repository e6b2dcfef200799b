//! Confluent's framing: which schema a message was written with, before the message itself.
//!
//! ```text
//! 0, schema id (u32, big-endian), then Avro's bytes; Protobuf's after the way to the message's type
//! ```
//!
//! Schemas come by id and never change; where they come from is [`SchemaSource`]'s business.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::avro::{AvroSchema, read_record};
use crate::event::{BadMessage, Cell};

/// Where schemas are found.
pub trait SchemaSource: Send {
    /// The text of the schema with an id.
    ///
    /// # Errors
    /// `Invalid` if there is none: the message is bad. `Unavailable`: ask again, and lose no message.
    fn schema(&mut self, id: u32) -> types::Result<String>;
}

/// Schemas that are known beforehand: local files.
#[derive(Clone, Debug, Default)]
pub struct KnownSchemas {
    /// By id.
    pub by_id: BTreeMap<u32, String>,
}

impl SchemaSource for KnownSchemas {
    fn schema(&mut self, id: u32) -> types::Result<String> {
        self.by_id.get(&id).cloned().ok_or_else(|| types::Error::invalid(format!("there is no schema {id}")))
    }
}

/// The schema's id, and what follows it.
///
/// # Errors
/// If the bytes have no such frame.
pub fn unframed(bytes: &[u8]) -> Result<(u32, &[u8]), BadMessage> {
    let bad = |what: &str| BadMessage::new(format!("no frame with a schema's id: {what}"));
    let (frame, rest) = bytes.split_first_chunk::<5>().ok_or_else(|| bad("it is too short"))?;
    let [magic, id @ ..] = *frame;
    if magic != 0 {
        return Err(bad(&format!("it begins with {magic:#04x}")));
    }
    Ok((u32::from_be_bytes(id), rest))
}

/// The way to a message's type within its file, in Protobuf's frames, and what follows it.
///
/// # Errors
/// If the bytes have no such way.
pub fn message_indexes(mut bytes: &[u8]) -> Result<(Vec<usize>, &[u8]), BadMessage> {
    let count = zigzag(&mut bytes)?;
    // The first message of the file is so common that it is a single zero.
    if count == 0 {
        return Ok((vec![0], bytes));
    }
    let mut indexes = Vec::new();
    for _ in 0..count {
        indexes.push(zigzag(&mut bytes)?);
    }
    Ok((indexes, bytes))
}

fn zigzag(input: &mut &[u8]) -> Result<usize, BadMessage> {
    let bad = || BadMessage::new("no way to a message's type");
    let mut number = 0_u32;
    for shift in [0, 7, 14, 21] {
        let (byte, rest) = input.split_first().ok_or_else(bad)?;
        *input = rest;
        number |= u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            let is_negative = number & 1 == 1;
            return if is_negative { Err(bad()) } else { Ok((number >> 1) as usize) };
        }
    }
    Err(bad())
}

/// Reads Avro in frames, with each message's own schema.
pub struct FramedAvro<S> {
    source: S,
    known: BTreeMap<u32, Arc<AvroSchema>>,
}

impl<S: SchemaSource> FramedAvro<S> {
    /// A reader that asks for schemas where it needs them.
    #[must_use]
    pub fn new(source: S) -> FramedAvro<S> {
        FramedAvro { source, known: BTreeMap::new() }
    }

    /// The fields of a message's record.
    ///
    /// # Errors
    /// Of kind `Unavailable` if the schema could not be asked for: the message must be read again. Else
    /// `Invalid`: the message is bad.
    pub fn read(&mut self, bytes: &[u8]) -> types::Result<Vec<Cell>> {
        let invalid = |bad: BadMessage| types::Error::invalid(bad.reason);
        let (id, rest) = unframed(bytes).map_err(invalid)?;
        let schema = match self.known.get(&id) {
            Some(schema) => Arc::clone(schema),
            None => {
                let schema = Arc::new(AvroSchema::parse(&self.source.schema(id)?)?);
                self.known.insert(id, Arc::clone(&schema));
                schema
            }
        };
        read_record(&schema, rest).map_err(invalid)
    }
}
