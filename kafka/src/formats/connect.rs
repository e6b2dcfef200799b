//! Values of Kafka Connect in JSON: with the schema that says what they are, or with our column in its place.
//!
//! The same bytes mean different things under different settings of the sender: a decimal is base64 whose
//! scale only the schema has, a date is days, a time is milliseconds or microseconds. Where a message has no
//! schema, the column that the value goes to decides, and options say the sender's settings.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::i256;
use tidb::{ColumnInfo, ColumnType, Decimal, Parsed, parse_time};

use super::base64_bytes_only;
use super::fields::text_or_empty;
use crate::event::{BadMessage, Cell, Image};
use crate::json::Json;
use crate::value::{SourceType, Value};

/// What stands for a large value that did not change.
const UNAVAILABLE: &str = "__debezium_unavailable_value";

/// How a sender without schemas writes decimals (`decimal.handling.mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DecimalsAs {
    /// Base64 of an unscaled integer; the scale is that of our column.
    #[default]
    Precise,
    /// Text or numbers.
    Plain,
}

/// How a sender without schemas writes DATETIME (`time.precision.mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimesAs {
    /// Milliseconds for up to three digits after the second, else microseconds.
    #[default]
    Adaptive,
    /// Milliseconds always (`connect`).
    Millis,
    /// Microseconds always.
    Micros,
}

/// What stands in for schemas that messages do not have.
#[derive(Clone, Debug, Default)]
pub struct ConnectHints {
    /// The types of our columns, by their names in lower case.
    columns: BTreeMap<String, ColumnType>,
    /// How decimals are written.
    pub decimals: DecimalsAs,
    /// How local times are written.
    pub times: TimesAs,
}

impl ConnectHints {
    /// Hints from our columns.
    #[must_use]
    pub fn of(columns: &[ColumnInfo]) -> ConnectHints {
        let types = columns.iter().map(|column| (column.name.to_lowercase(), column.column_type.clone()));
        ConnectHints { columns: types.collect(), ..ConnectHints::default() }
    }

    fn column(&self, name: &str) -> Option<&ColumnType> {
        self.columns.get(&name.to_lowercase())
    }
}

/// The fields of a struct's schema, by name.
pub(crate) struct StructSchema<'a, 'b> {
    fields: Vec<(&'a str, &'a Json<'b>)>,
}

impl<'a, 'b> StructSchema<'a, 'b> {
    /// The fields of a schema of type `struct`.
    pub(crate) fn of(schema: &'a Json<'b>) -> Result<StructSchema<'a, 'b>, BadMessage> {
        let fields = schema.member("fields").and_then(Json::elements);
        let fields = fields.ok_or_else(|| BadMessage::new("a schema of a struct has no `fields`"))?;
        let named = fields.iter().map(|field| {
            let name = field.get("field").and_then(Json::text);
            name.map(|name| (name, field)).ok_or_else(|| BadMessage::new("a field of a schema has no name"))
        });
        Ok(StructSchema { fields: named.collect::<Result<_, _>>()? })
    }

    /// The schema of a field.
    pub(crate) fn field(&self, name: &str) -> Option<&'a Json<'b>> {
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, schema)| *schema)
    }
}

/// A row: its values by the schema, where there is one.
pub(crate) fn image(
    row: &Json<'_>,
    schema: Option<&StructSchema<'_, '_>>,
    hints: &ConnectHints,
) -> Result<Image, BadMessage> {
    let members = row.members().ok_or_else(|| BadMessage::new(format!("a row is {}", row.kind())))?;
    let mut cells = Vec::with_capacity(members.len());
    for (name, found) in members {
        let field = schema.map(|schema| {
            schema.field(name).ok_or_else(|| BadMessage::column(name, "the schema has no such field"))
        });
        let (value, source_type) = match field.transpose()? {
            Some(field) => typed(found, field, hints.column(name)),
            None => hinted(found, hints.column(name), hints).map(|value| (value, None)),
        }
        .map_err(|bad| BadMessage::column(name, bad))?;
        cells.push(Cell { name: name.to_string(), value, source_type: source_type.map(Arc::new) });
    }
    Ok(Image::whole(cells))
}

/// A value that its schema describes.
fn typed(
    found: &Json<'_>,
    schema: &Json<'_>,
    column: Option<&ColumnType>,
) -> Result<(Value, Option<SourceType>), BadMessage> {
    let kind = schema.get("type").and_then(Json::text).unwrap_or_default();
    let name = text_or_empty(schema, "name")?;
    let parameter =
        |name: &str| schema.member("parameters").and_then(|found| found.get(name)).and_then(Json::text);
    if *found == Json::Null {
        return Ok((Value::Null, None));
    }
    let wrong =
        || BadMessage::new(format!("{} is no {}", found.kind(), if name.is_empty() { kind } else { name }));
    let whole = || found.signed().ok_or_else(wrong);
    let scaled = |factor: i64| whole()?.checked_mul(factor).ok_or_else(wrong);
    let text = || found.text().ok_or_else(wrong);
    if found.text() == Some(UNAVAILABLE) {
        return Ok((Value::Unavailable, None));
    }
    let value = match name {
        "org.apache.kafka.connect.data.Decimal" => {
            let scale = parameter("scale").map_or(Ok(0), |scale| scale.parse::<u8>().map_err(|_| wrong()))?;
            decimal(found, scale)?
        }
        "io.debezium.data.VariableScaleDecimal" => {
            let scale = found.get("scale").and_then(Json::signed).and_then(|scale| u8::try_from(scale).ok());
            decimal(found.get("value").ok_or_else(wrong)?, scale.ok_or_else(wrong)?)?
        }
        "io.debezium.time.Date" | "org.apache.kafka.connect.data.Date" => Value::Days(whole()?),
        "io.debezium.time.Time" | "org.apache.kafka.connect.data.Time" => Value::Duration(scaled(1_000)?),
        "io.debezium.time.MicroTime" => Value::Duration(whole()?),
        "io.debezium.time.NanoTime" => Value::Duration(whole()?.div_euclid(1_000)),
        "io.debezium.time.Timestamp" | "org.apache.kafka.connect.data.Timestamp" => {
            Value::Local(scaled(1_000)?)
        }
        "io.debezium.time.MicroTimestamp" => Value::Local(whole()?),
        "io.debezium.time.NanoTimestamp" => Value::Local(whole()?.div_euclid(1_000)),
        "io.debezium.time.ZonedTimestamp" => zoned(text()?)?,
        "io.debezium.data.Json" => Value::Json(text()?.to_owned()),
        "io.debezium.data.Bits" => {
            let length = parameter("length").and_then(|length| length.parse().ok());
            let source_type = SourceType { length, ..SourceType::named("bit") };
            return Ok((Value::Bits(little_endian(&base64_bytes_only(text()?)?)?), Some(source_type)));
        }
        "io.debezium.data.Enum" | "io.debezium.data.EnumSet" => {
            let labels = parameter("allowed").map(|all| all.split(',').map(str::to_owned).collect());
            let base = if name.ends_with("Set") { "set" } else { "enum" };
            let source_type = SourceType { labels: labels.unwrap_or_default(), ..SourceType::named(base) };
            return Ok((Value::Text(text()?.to_owned()), Some(source_type)));
        }
        _ => plain(found, kind, column)?,
    };
    Ok((value, None))
}

/// A value of one of Connect's own types.
fn plain(found: &Json<'_>, kind: &str, column: Option<&ColumnType>) -> Result<Value, BadMessage> {
    let wrong = || BadMessage::new(format!("{} is no {kind}", found.kind()));
    Ok(match (kind, found) {
        ("bytes", Json::Text(text)) => {
            let bytes = base64_bytes_only(text)?;
            if bytes == UNAVAILABLE.as_bytes() { Value::Unavailable } else { Value::Bytes(bytes) }
        }
        ("float" | "float32", Json::Number(digits)) => Value::Single(digits.parse().map_err(|_| wrong())?),
        ("double" | "float64", Json::Number(digits))
            if !matches!(column, Some(ColumnType::Decimal { .. })) =>
        {
            Value::Double(digits.parse().map_err(|_| wrong())?)
        }
        ("int64", Json::Number(_)) => unsigned_if_declared(found, column),
        (_, Json::Number(digits)) => Value::Number((*digits).to_owned()),
        (_, Json::Bool(value)) => Value::Bool(*value),
        (_, Json::Text(text)) => Value::Text(text.to_string()),
        (_, Json::Null) => Value::Null,
        (_, Json::Array(_) | Json::Object(_)) => Value::Json(found.to_string()),
    })
}

/// A BIGINT UNSIGNED from 2^63 on arrives as the negative number of the same bits.
fn unsigned_if_declared(found: &Json<'_>, column: Option<&ColumnType>) -> Value {
    let is_unsigned = matches!(column, Some(ColumnType::Int { bits: 64, unsigned: true }));
    match found.signed() {
        Some(value) if value < 0 && is_unsigned => Value::UInt(value.cast_unsigned()),
        _ => Value::Number(found.to_string()),
    }
}

/// A value without a schema, by the column that it goes to.
fn hinted(found: &Json<'_>, column: Option<&ColumnType>, hints: &ConnectHints) -> Result<Value, BadMessage> {
    Ok(match (found, column) {
        (Json::Null, _) => Value::Null,
        (Json::Text(text), _) if text == UNAVAILABLE => Value::Unavailable,
        (Json::Text(_), Some(ColumnType::Decimal { scale, .. })) if hints.decimals == DecimalsAs::Precise => {
            decimal(found, *scale)?
        }
        (Json::Text(text), Some(ColumnType::Binary(_) | ColumnType::Varbinary(_) | ColumnType::Blob(_))) => {
            Value::Bytes(base64_bytes_only(text)?)
        }
        (Json::Text(text), Some(ColumnType::Timestamp(_))) => zoned(text)?,
        (Json::Number(_), Some(ColumnType::Date)) => {
            Value::Days(found.signed().ok_or_else(|| BadMessage::new(format!("{found} is no day")))?)
        }
        (Json::Number(_), Some(ColumnType::Datetime(fsp) | ColumnType::Timestamp(fsp))) => {
            let factor = match hints.times {
                TimesAs::Adaptive if *fsp > 3 => 1,
                TimesAs::Micros => 1,
                TimesAs::Adaptive | TimesAs::Millis => 1_000,
            };
            let micros = found.signed().and_then(|value| value.checked_mul(factor));
            Value::Local(micros.ok_or_else(|| BadMessage::new(format!("{found} is no time")))?)
        }
        (Json::Number(_), _) => unsigned_if_declared(found, column),
        (Json::Bool(value), _) => Value::Bool(*value),
        (Json::Text(text), _) => Value::Text(text.to_string()),
        (Json::Array(_) | Json::Object(_), _) => Value::Json(found.to_string()),
    })
}

/// A decimal: base64 of its unscaled integer, or a number.
fn decimal(found: &Json<'_>, scale: u8) -> Result<Value, BadMessage> {
    match found {
        Json::Number(digits) => Ok(Value::Number((*digits).to_owned())),
        Json::Text(text) => {
            let unscaled = signed_big_endian(&base64_bytes_only(text)?)?;
            Ok(Value::Decimal(Decimal { unscaled, scale }))
        }
        other => Err(BadMessage::new(format!("{} is no decimal", other.kind()))),
    }
}

/// An integer in two's complement.
pub(crate) fn signed_big_endian(bytes: &[u8]) -> Result<i256, BadMessage> {
    let first = *bytes.first().ok_or_else(|| BadMessage::new("a decimal without bytes"))?;
    let mut wide = [if first >= 0x80 { 0xff } else { 0 }; 32];
    let start = wide.len().checked_sub(bytes.len());
    let start = start.ok_or_else(|| BadMessage::new(format!("a decimal of {} bytes", bytes.len())))?;
    wide[start..].copy_from_slice(bytes);
    Ok(i256::from_be_bytes(wide))
}

pub(crate) fn little_endian(bytes: &[u8]) -> Result<u64, BadMessage> {
    let mut wide = [0; 8];
    let fits = bytes.len() <= wide.len();
    if !fits {
        return Err(BadMessage::new(format!("a BIT of {} bytes", bytes.len())));
    }
    wide[..bytes.len()].copy_from_slice(bytes);
    Ok(u64::from_le_bytes(wide))
}

/// A time in ISO 8601; without an offset it is a local one.
pub(crate) fn zoned(text: &str) -> Result<Value, BadMessage> {
    let with_offset = text.strip_suffix('Z').map(|local| format!("{local}+00:00"));
    match parse_time(with_offset.as_deref().unwrap_or(text)) {
        Some(Parsed::Instant(micros)) => Ok(Value::Instant(micros)),
        Some(Parsed::Local(_)) => Ok(Value::Text(text.to_owned())),
        None => Err(BadMessage::new(format!("'{}' is no time", super::mysql_text::shortened(text)))),
    }
}
