//! Messages that are rows: appended one by one, or the newest of each key.
//!
//! The value, and the key if it is asked for, are JSON, CSV, Avro, Protobuf or raw bytes. A row of JSON is an
//! object whose members are columns; a path brings what lies deeper (`address.city`, `tags[0]`) into a column
//! of its own. What a path does not find is NULL.

use std::collections::BTreeMap;

use super::fields::object;
use crate::avro::{AvroSchema, read_record};
use crate::confluent::unframed;
use crate::event::{BadMessage, Cell, Decoder, Event, EventKind, Extent, Image, Message, TableName};
use crate::json::Json;
use crate::protobuf::ProtobufSchema;
use crate::value::Value;

/// How a key or a value is encoded.
#[derive(Clone, Debug)]
pub enum Encoding {
    /// An object of JSON: its members, and by paths what lies deeper.
    Json {
        /// Columns with the path to their values.
        paths: Vec<(String, JsonPath)>,
    },
    /// A line of comma-separated values.
    Csv(CsvOptions),
    /// A record of Avro, without a frame around it.
    Avro(AvroSchema),
    /// A record of Avro in Confluent's frame, whose schemas are known by their ids.
    FramedAvro(BTreeMap<u32, AvroSchema>),
    /// A message of Protobuf, without a frame around it.
    Protobuf(ProtobufSchema),
    /// The bytes themselves, as one column of that name.
    Bytes {
        /// The column.
        column: String,
    },
    /// UTF-8 text, as one column of that name.
    Text {
        /// The column.
        column: String,
    },
}

/// How a line of CSV is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvOptions {
    /// The columns, in their order.
    pub columns: Vec<String>,
    /// What stands between fields.
    pub delimiter: u8,
    /// The text that is NULL; it is NULL only without quotes around it where it is empty.
    pub null: String,
}

/// Whether messages are rows to append or the newest of their key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlainMode {
    /// Each message is a row; one without a value says nothing.
    Append,
    /// A message is the row of its key from now on; one without a value removes it.
    Upsert,
}

/// Reads messages that are rows.
#[derive(Clone, Debug)]
pub struct PlainDecoder {
    mode: PlainMode,
    value: Encoding,
    key: Option<Encoding>,
    table: TableName,
}

impl PlainDecoder {
    /// A decoder of one topic's rows. Columns of the key stand beside those of the value.
    ///
    /// # Errors
    /// If rows are known by a key and none is read.
    pub fn new(
        mode: PlainMode,
        value: Encoding,
        key: Option<Encoding>,
        table: TableName,
    ) -> types::Result<PlainDecoder> {
        if mode == PlainMode::Upsert && key.is_none() {
            return Err(types::Error::invalid("rows that replace others need the encoding of their keys"));
        }
        Ok(PlainDecoder { mode, value, key, table })
    }
}

impl Decoder for PlainDecoder {
    fn decode(&mut self, message: Message<'_>) -> Result<Vec<Event>, BadMessage> {
        let key = match (&self.key, message.key) {
            (None, _) => None,
            (Some(encoding), Some(bytes)) => {
                let cells = encoding.cells(bytes).map_err(|bad| BadMessage::new(format!("key: {bad}")))?;
                Some(Image { cells, extent: Extent::Key })
            }
            (Some(_), None) if self.mode == PlainMode::Upsert => {
                return Err(BadMessage::new("a message without a key replaces no row"));
            }
            (Some(_), None) => None,
        };
        let Some(bytes) = message.value else {
            return Ok(match self.mode {
                PlainMode::Append => Vec::new(),
                PlainMode::Upsert => vec![self.event(EventKind::Tombstone, key, None)],
            });
        };
        let mut cells = self.value.cells(bytes)?;
        if let Some(key) = &key {
            // A value may repeat the key; what the message's key says is what the row is known by.
            cells.retain(|cell| key.get(&cell.name).is_none());
            cells.splice(0..0, key.cells.iter().cloned());
        }
        let kind = if self.mode == PlainMode::Append { EventKind::Insert } else { EventKind::Upsert };
        Ok(vec![self.event(kind, key, Some(Image::whole(cells)))])
    }
}

impl PlainDecoder {
    fn event(&self, kind: EventKind, key: Option<Image>, after: Option<Image>) -> Event {
        let mut event = Event::new(kind, self.table.clone());
        if self.mode == PlainMode::Upsert {
            let columns = key.iter().flat_map(|key| &key.cells).map(|cell| cell.name.clone());
            event.key_columns = columns.collect();
        }
        (event.key, event.after) = (key, after);
        event
    }
}

impl Encoding {
    /// An object of JSON, its members as they are.
    #[must_use]
    pub fn json() -> Encoding {
        Encoding::Json { paths: Vec::new() }
    }

    fn cells(&self, bytes: &[u8]) -> Result<Vec<Cell>, BadMessage> {
        let cell = |name: &str, value| Cell { name: name.to_owned(), value, source_type: None };
        Ok(match self {
            Encoding::Bytes { column } => vec![cell(column, Value::Bytes(bytes.to_vec()))],
            Encoding::Text { column } => {
                let text =
                    std::str::from_utf8(bytes).map_err(|_| BadMessage::new("text that is not UTF-8"))?;
                vec![cell(column, Value::Text(text.to_owned()))]
            }
            Encoding::Json { paths } => {
                let json = object(bytes, "a row")?;
                let mut cells: Vec<Cell> = Vec::new();
                for (name, found) in json.members().unwrap_or_default() {
                    // Of members with the same name the last one counts.
                    cells.retain(|known| known.name != *name);
                    cells.push(cell(name, value_of(found)));
                }
                for (column, path) in paths {
                    cells.retain(|known| known.name != *column);
                    cells.push(cell(column, path.find(&json).map_or(Value::Null, value_of)));
                }
                cells
            }
            Encoding::Csv(options) => options.cells(bytes)?,
            Encoding::Avro(schema) => read_record(schema, bytes)?,
            Encoding::FramedAvro(schemas) => {
                let (id, rest) = unframed(bytes)?;
                let schema = schemas.get(&id);
                let schema = schema.ok_or_else(|| BadMessage::new(format!("there is no schema {id}")))?;
                read_record(schema, rest)?
            }
            Encoding::Protobuf(schema) => schema.read(bytes)?,
        })
    }
}

/// A value of JSON by itself: what is deeper stays JSON.
fn value_of(found: &Json<'_>) -> Value {
    match found {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(digits) => Value::Number((*digits).to_owned()),
        Json::Text(text) => Value::Text(text.to_string()),
        Json::Array(_) | Json::Object(_) => Value::Json(found.to_string()),
    }
}

impl CsvOptions {
    fn cells(&self, bytes: &[u8]) -> Result<Vec<Cell>, BadMessage> {
        let mut reader = csv::ReaderBuilder::new();
        let mut reader =
            reader.has_headers(false).delimiter(self.delimiter).flexible(true).from_reader(bytes);
        let mut record = csv::StringRecord::new();
        let more =
            reader.read_record(&mut record).map_err(|error| BadMessage::new(format!("CSV: {error}")))?;
        if !more {
            return Err(BadMessage::new("CSV: there is no line"));
        }
        if record.len() != self.columns.len() {
            let reason = format!("CSV: {} fields for {} columns", record.len(), self.columns.len());
            return Err(BadMessage::new(reason));
        }
        let fields = self.columns.iter().zip(&record).map(|(name, field)| {
            let value = if field == self.null { Value::Null } else { Value::Text(field.to_owned()) };
            Cell { name: name.clone(), value, source_type: None }
        });
        let cells = fields.collect();
        let mut rest = csv::StringRecord::new();
        match reader.read_record(&mut rest) {
            Ok(false) => Ok(cells),
            _ => Err(BadMessage::new("CSV: more than one line")),
        }
    }
}

/// The way to a value within JSON: `a.b[0].c`; a name with other characters stands in double quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPath {
    steps: Vec<PathStep>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PathStep {
    Member(String),
    Element(usize),
}

impl JsonPath {
    fn find<'a, 'b>(&self, json: &'a Json<'b>) -> Option<&'a Json<'b>> {
        self.steps.iter().try_fold(json, |found, step| match step {
            PathStep::Member(name) => found.get(name),
            PathStep::Element(at) => found.elements()?.get(*at),
        })
    }
}

impl std::str::FromStr for JsonPath {
    type Err = types::Error;

    fn from_str(text: &str) -> types::Result<JsonPath> {
        let bad = || types::Error::invalid(format!("'{text}' is no path to a value: a.b[0].\"c d\""));
        let mut steps = Vec::new();
        // A leading `$` is the whole row, as in SQL's JSON paths.
        let mut rest = text.strip_prefix('$').map_or(text, |rest| rest.strip_prefix('.').unwrap_or(rest));
        while !rest.is_empty() {
            if let Some(index) = rest.strip_prefix('[') {
                let (number, after) = index.split_once(']').ok_or_else(bad)?;
                steps.push(PathStep::Element(number.parse().map_err(|_| bad())?));
                rest = after;
            } else {
                let (name, after) = match rest.strip_prefix('"') {
                    Some(quoted) => quoted.split_once('"').ok_or_else(bad)?,
                    None => rest.split_at(rest.find(['.', '[']).unwrap_or(rest.len())),
                };
                steps.push(PathStep::Member(
                    Some(name).filter(|name| !name.is_empty()).ok_or_else(bad)?.to_owned(),
                ));
                rest = after;
            }
            if let Some(after) = rest.strip_prefix('.') {
                rest = Some(after).filter(|after| !after.is_empty()).ok_or_else(bad)?;
            } else if !rest.is_empty() && !rest.starts_with('[') {
                return Err(bad());
            }
        }
        if steps.is_empty() { Err(bad()) } else { Ok(JsonPath { steps }) }
    }
}
