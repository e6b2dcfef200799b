//! One decoder for each format: bytes in, events out.
//!
//! Decoders know nothing of each other, of our tables or of a broker; what they share is how members of JSON
//! are taken out, what Kafka Connect means by its types, and what MySQL means by a text.

mod canal;
pub(crate) mod connect;
mod debezium;
pub(crate) mod fields;
mod maxwell;
mod mysql_text;
mod open;
mod plain;
mod simple;

pub use canal::{CanalDecoder, CanalDialect};
pub use connect::{ConnectHints, DecimalsAs, TimesAs};
pub use debezium::{BeforeImages, DebeziumDecoder, DebeziumOptions};
pub use maxwell::MaxwellDecoder;
pub use open::{OpenDecoder, OpenOptions};
pub use plain::{CsvOptions, Encoding, JsonPath, PlainDecoder, PlainMode};
pub use simple::SimpleDecoder;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::event::BadMessage;

/// The bytes of a member in base64.
pub(crate) fn base64_bytes(name: &str, text: &str) -> Result<Vec<u8>, BadMessage> {
    base64_bytes_only(text).map_err(|bad| BadMessage::new(format!("`{name}`: {bad}")))
}

/// Bytes in base64.
pub(crate) fn base64_bytes_only(text: &str) -> Result<Vec<u8>, BadMessage> {
    STANDARD.decode(text).map_err(|error| BadMessage::new(format!("no base64: {error}")))
}
