//! Values that a format writes as text in MySQL's manner: Canal-JSON, and with other rules for bytes the
//! simple protocol. The type that the message names decides what a text stands for; without one it stays
//! a text, and the column that it goes to decides.

use crate::event::{BadMessage, DdlEffect};
use crate::value::{SourceType, Value};

/// How bytes stand in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BytesAs {
    /// Each byte is the character of that number.
    Latin1,
    /// Base64.
    Base64,
}

/// The code of `java.sql.Types` for binary values.
pub(crate) const SQL_TYPE_BLOB: i64 = 2004;

/// A value from its text. Without a type the text stays a text, which fits every column but a binary one.
pub(crate) fn value(
    name: &str,
    text: &str,
    source_type: Option<&SourceType>,
    bytes_as: BytesAs,
) -> Result<Value, BadMessage> {
    let Some(source_type) = source_type else { return Ok(Value::Text(text.to_owned())) };
    if source_type.is_binary() {
        return bytes(name, text, bytes_as).map(Value::Bytes);
    }
    let no_value = || BadMessage::column(name, format!("'{}' is no {}", shortened(text), source_type.name));
    let whole = || text.parse::<u64>().map_err(|_| no_value());
    Ok(match source_type.name.as_str() {
        "tinyint" | "smallint" | "mediumint" | "int" | "integer" | "bigint" | "decimal" | "numeric"
        | "year" => {
            if !is_number(text) {
                return Err(no_value());
            }
            Value::Number(text.to_owned())
        }
        "float" => Value::Single(text.parse().map_err(|_| no_value())?),
        "double" => Value::Double(text.parse().map_err(|_| no_value())?),
        "bit" => Value::Bits(whole()?),
        // A label is never all digits where the source writes indexes.
        "enum" => text.parse().map_or_else(|_| Value::Text(text.to_owned()), Value::Index),
        "set" => text.parse().map_or_else(|_| Value::Text(text.to_owned()), Value::Members),
        "json" => Value::Json(text.to_owned()),
        _ => Value::Text(text.to_owned()),
    })
}

/// The bytes that a text stands for.
pub(crate) fn bytes(name: &str, text: &str, bytes_as: BytesAs) -> Result<Vec<u8>, BadMessage> {
    match bytes_as {
        BytesAs::Latin1 => {
            let bytes: Option<Vec<u8>> =
                text.chars().map(|char| u8::try_from(u32::from(char)).ok()).collect();
            bytes.ok_or_else(|| {
                BadMessage::column(name, "a binary value has a character beyond U+00FF, which is no byte")
            })
        }
        BytesAs::Base64 => super::base64_bytes_only(text).map_err(|bad| BadMessage::column(name, bad)),
    }
}

/// Whether a text is a number: `[-]digits[.digits][e[+-]digits]`.
pub(crate) fn is_number(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    unsigned.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        && unsigned.parse::<f64>().is_ok_and(f64::is_finite)
}

/// A text cut to what fits in a message.
pub(crate) fn shortened(text: &str) -> String {
    const CHARS_MAX: usize = 64;
    let cut: String = text.chars().take(CHARS_MAX).collect();
    if cut.len() < text.len() { format!("{cut}…") } else { cut }
}

/// What a DDL does, by the type that Canal and the simple protocol give it and by its statement.
pub(crate) fn ddl_effect(kind: &str, sql: &str) -> Option<DdlEffect> {
    Some(match kind {
        "CREATE" => DdlEffect::Creates,
        "ERASE" => DdlEffect::Drops,
        "TRUNCATE" => DdlEffect::Truncates,
        "RENAME" => DdlEffect::Renames,
        "CINDEX" | "DINDEX" => DdlEffect::Nothing,
        "ALTER" if drops_partitions(sql) => DdlEffect::DropsPartitions,
        "ALTER" | "QUERY" => DdlEffect::Alters,
        _ => return None,
    })
}

fn drops_partitions(sql: &str) -> bool {
    let words: Vec<String> = sql.split_ascii_whitespace().map(str::to_ascii_uppercase).collect();
    words
        .windows(2)
        .any(|pair| matches!(pair[0].as_str(), "DROP" | "TRUNCATE" | "EXCHANGE") && pair[1] == "PARTITION")
}
