//! TiCDC's open protocol: binary frames around JSON, up to 16 rows in a message.
//!
//! ```text
//! key:    version 1 as i64, then for each event: length as i64, {"ts","scm","tbl","t"}
//! value:                         for each event: length as i64, {"u","p"} or {"d"} or {"q"}
//! ```
//!
//! All integers are big-endian. VARCHAR and its like are plain text, TEXT and BLOB are base64, and binary
//! strings are what Go writes between quotes. Keys are never compressed, each event's value may be.

use std::borrow::Cow;
use std::sync::Arc;

use types::Timestamp;

use super::fields::{members, object, text, text_or_empty, unsigned};
use crate::compression::Compression;
use crate::event::{
    BadMessage, Cell, Ddl, DdlEffect, Decoder, Event, EventKind, Extent, Image, Message, Oversize, TableName,
};
use crate::json::Json;
use crate::value::{SourceType, Value};

/// What the changefeed was told that its messages do not say.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// How the events' values are compressed.
    pub compression: Compression,
    /// `open.output-old-value = false`: updates look like inserts.
    pub no_old_values: bool,
}

/// Reads TiCDC's open protocol.
#[derive(Clone, Debug, Default)]
pub struct OpenDecoder {
    options: OpenOptions,
}

impl OpenDecoder {
    /// A decoder.
    #[must_use]
    pub fn new(options: OpenOptions) -> OpenDecoder {
        OpenDecoder { options }
    }
}

impl Decoder for OpenDecoder {
    fn decode(&mut self, message: Message<'_>) -> Result<Vec<Event>, BadMessage> {
        let mut key =
            message.key.ok_or_else(|| BadMessage::new("a message of the open protocol has no key"))?;
        let mut value = message.value.unwrap_or_default();
        let version = take_i64(&mut key)?;
        if version != 1 {
            return Err(BadMessage::new(format!("version {version} of the open protocol")));
        }
        let mut events = Vec::new();
        while !key.is_empty() {
            let key = take_frame(&mut key)?;
            let value = take_frame(&mut value)?;
            events.push(self.event(&object(key, "an event's key")?, value)?);
        }
        if !value.is_empty() {
            return Err(BadMessage::new("a message has more values than keys"));
        }
        Ok(events)
    }
}

impl OpenDecoder {
    fn event(&self, key: &Json<'_>, value: &[u8]) -> Result<Event, BadMessage> {
        let at = Timestamp(unsigned(key, "ts")?);
        let table = TableName::new(text_or_empty(key, "scm")?, text_or_empty(key, "tbl")?);
        let kind = unsigned(key, "t")?;
        if kind == 3 {
            return Ok(Event::watermark(at));
        }
        let value = if value.is_empty() {
            Cow::Borrowed(value)
        } else {
            self.options.compression.decompress(value)?
        };
        let value = object(&value, "an event's value")?;
        let mut event = match kind {
            1 => self.row(&value, table)?,
            2 => ddl(&value, table)?,
            other => return Err(BadMessage::new(format!("an event of type {other}"))),
        };
        event.commit_ts = Some(at);
        event.oversize = match text_or_empty(key, "ccl")? {
            "" => key.get("ohk").is_some_and(Json::is_true).then_some(Oversize::KeyOnly),
            location => Some(Oversize::ClaimCheck(location.to_owned())),
        };
        if event.oversize.is_some() {
            let images = [event.before.as_mut(), event.after.as_mut()];
            images.into_iter().flatten().for_each(|image| image.extent = Extent::Key);
        }
        Ok(event)
    }

    fn row(&self, value: &Json<'_>, table: TableName) -> Result<Event, BadMessage> {
        let mut event = Event::new(EventKind::Delete, table);
        let image = |name: &str| value.member(name).map(|found| image(found, name)).transpose();
        if let Some((after, keys)) = image("u")? {
            event.key_columns = keys;
            event.before = image("p")?.map(|(before, _)| after.overlaid(before));
            event.kind = match (&event.before, self.options.no_old_values) {
                (Some(_), _) => EventKind::Update,
                (None, false) => EventKind::Insert,
                (None, true) => EventKind::Upsert,
            };
            event.after = Some(after);
        } else if let Some((before, keys)) = image("d")? {
            (event.before, event.key_columns) = (Some(before), keys);
        } else {
            return Err(BadMessage::new("a row has neither `u` nor `d`"));
        }
        Ok(event)
    }
}

fn ddl(value: &Json<'_>, table: TableName) -> Result<Event, BadMessage> {
    let effect = match unsigned(value, "t")? {
        3 => DdlEffect::Creates,
        4 => DdlEffect::Drops,
        5 | 6 | 12 => DdlEffect::Alters,
        11 => DdlEffect::Truncates,
        14 => DdlEffect::Renames,
        20 | 23 => DdlEffect::DropsPartitions,
        _ => DdlEffect::Nothing,
    };
    let sql = text(value, "q")?.to_owned();
    Ok(Event::new(EventKind::Ddl(Ddl { sql, effect }), table))
}

/// A row, and the names of the columns of its handle key.
fn image(row: &Json<'_>, member: &str) -> Result<(Image, Vec<String>), BadMessage> {
    let (mut cells, mut keys) = (Vec::new(), Vec::new());
    for (name, column) in members(row, member)? {
        members(column, name)?;
        let flags = Flags(unsigned(column, "f").map_err(|error| BadMessage::column(name, error))?);
        let kind = unsigned(column, "t").map_err(|error| BadMessage::column(name, error))?;
        let found = column.get("v").unwrap_or(&Json::Null);
        let (value, type_name) =
            value(kind, flags, found).map_err(|error| BadMessage::column(name, error))?;
        if flags.has(Flags::HANDLE_KEY) || column.get("h").is_some_and(Json::is_true) {
            keys.push(name.to_string());
        }
        let source_type = SourceType { unsigned: flags.has(Flags::UNSIGNED), ..SourceType::named(type_name) };
        cells.push(Cell { name: name.to_string(), value, source_type: Some(Arc::new(source_type)) });
    }
    Ok((Image::whole(cells), keys))
}

/// What is said of a column beside its type.
#[derive(Clone, Copy)]
struct Flags(u64);

impl Flags {
    const BINARY: u64 = 1;
    const HANDLE_KEY: u64 = 2;
    const UNSIGNED: u64 = 128;

    fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }
}

fn value(kind: u64, flags: Flags, found: &Json<'_>) -> Result<(Value, &'static str), BadMessage> {
    let is_binary = flags.has(Flags::BINARY);
    let name = type_name(kind, is_binary)?;
    if *found == Json::Null {
        return Ok((Value::Null, name));
    }
    let wrong = || BadMessage::new(format!("{} is no {name}", found.kind()));
    let text = || found.text().ok_or_else(wrong);
    let digits = || if let Json::Number(digits) = found { Ok(*digits) } else { Err(wrong()) };
    let number = || found.unsigned().ok_or_else(wrong);
    let value = match kind {
        1 | 2 | 3 | 8 | 9 | 13 => Value::Number(digits()?.to_owned()),
        4 => Value::Single(digits()?.parse().map_err(|_| wrong())?),
        5 => Value::Double(digits()?.parse().map_err(|_| wrong())?),
        16 => Value::Bits(number()?),
        245 => Value::Json(text()?.to_owned()),
        246 => {
            let digits = text()?;
            if !super::mysql_text::is_number(digits) {
                return Err(wrong());
            }
            Value::Number(digits.to_owned())
        }
        247 => Value::Index(number()?),
        248 => Value::Members(number()?),
        249..=252 => {
            let bytes = super::base64_bytes_only(text()?)?;
            if is_binary {
                Value::Bytes(bytes)
            } else {
                Value::Text(String::from_utf8(bytes).map_err(|_| BadMessage::new("text that is not UTF-8"))?)
            }
        }
        15 | 253 | 254 if is_binary => Value::Bytes(unquoted(text()?)?),
        _ => Value::Text(text()?.to_owned()),
    };
    Ok((value, name))
}

fn type_name(kind: u64, is_binary: bool) -> Result<&'static str, BadMessage> {
    Ok(match kind {
        1 => "tinyint",
        2 => "smallint",
        3 => "int",
        4 => "float",
        5 => "double",
        6 => "null",
        7 => "timestamp",
        8 => "bigint",
        9 => "mediumint",
        10 | 14 => "date",
        11 => "time",
        12 => "datetime",
        13 => "year",
        15 | 253 if is_binary => "varbinary",
        15 | 253 => "varchar",
        16 => "bit",
        225 => "vector",
        245 => "json",
        246 => "decimal",
        247 => "enum",
        248 => "set",
        249..=252 if is_binary => "blob",
        249..=252 => "text",
        254 if is_binary => "binary",
        254 => "char",
        other => return Err(BadMessage::new(format!("a column of type {other}"))),
    })
}

/// The bytes of what Go's `strconv.Quote` writes between the quotes.
fn unquoted(text: &str) -> Result<Vec<u8>, BadMessage> {
    let bad = || BadMessage::new("an escape that Go does not write");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        rest = &rest[first.len_utf8()..];
        if first != '\\' {
            bytes.extend_from_slice(first.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        let letter = rest.bytes().next().ok_or_else(bad)?;
        let n_digits = match letter {
            b'x' => 2,
            b'u' => 4,
            b'U' => 8,
            _ => 0,
        };
        if n_digits > 0 {
            let digits = rest.get(1..1 + n_digits).ok_or_else(bad)?;
            if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(bad());
            }
            let code = u32::from_str_radix(digits, 16).map_err(|_| bad())?;
            match u8::try_from(code) {
                Ok(byte) if letter == b'x' => bytes.push(byte),
                _ => {
                    let char = char::from_u32(code).ok_or_else(bad)?;
                    bytes.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
                }
            }
            rest = &rest[1 + n_digits..];
            continue;
        }
        bytes.push(match letter {
            b'a' => 7,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 11,
            b'\\' | b'"' | b'\'' => letter,
            _ => return Err(bad()),
        });
        rest = &rest[1..];
    }
    Ok(bytes)
}

fn take_i64(input: &mut &[u8]) -> Result<i64, BadMessage> {
    let (number, rest) =
        input.split_first_chunk::<8>().ok_or_else(|| BadMessage::new("a length is cut off"))?;
    *input = rest;
    Ok(i64::from_be_bytes(*number))
}

fn take_frame<'a>(input: &mut &'a [u8]) -> Result<&'a [u8], BadMessage> {
    let length = take_i64(input)?;
    let taken = usize::try_from(length).ok().and_then(|length| input.split_at_checked(length));
    let (frame, rest) = taken.ok_or_else(|| {
        BadMessage::new(format!("an event of {length} bytes where {} are left", input.len()))
    })?;
    *input = rest;
    Ok(frame)
}
