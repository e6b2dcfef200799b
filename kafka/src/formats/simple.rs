//! TiCDC's simple protocol, in JSON: rows without types, and messages that describe tables.
//!
//! A row names its table's id and the version of its schema; BOOTSTRAP and DDL messages bring schemas. A row
//! that comes before its schema is [`EventKind::Deferred`]: it keeps its place in time, and comes in full
//! with the message that describes it, on whatever partition. One decoder therefore reads all partitions.
//! A RENAME leaves the version as it is, so names are those of the row itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use types::Timestamp;

use super::fields::{members, object, required, text, text_or_empty, texts, unsigned, unsigned_if_any};
use super::mysql_text::{BytesAs, ddl_effect, value};
use crate::event::{
    BadMessage, Cell, Ddl, DdlEffect, Decoder, Event, EventKind, Extent, Image, Message, Oversize, TableName,
};
use crate::json::Json;
use crate::value::{SourceType, Value};

/// The most rows that wait for schemas; beyond them rows are bad messages.
const HELD_MAX: usize = 100_000;

/// A table's id and the version of its schema.
type SchemaId = (u64, u64);

/// A table as a message described it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TableSchema {
    columns: Vec<(String, Arc<SourceType>)>,
    key: Vec<String>,
}

/// A row that waits for its schema.
#[derive(Clone, Debug)]
struct Waiting {
    ticket: u64,
    message: Vec<u8>,
}

/// Reads TiCDC's simple protocol.
#[derive(Clone, Debug, Default)]
pub struct SimpleDecoder {
    schemas: BTreeMap<SchemaId, TableSchema>,
    waiting: BTreeMap<SchemaId, Vec<Waiting>>,
    n_waiting: usize,
    next_ticket: u64,
}

impl Decoder for SimpleDecoder {
    fn decode(&mut self, message: Message<'_>) -> Result<Vec<Event>, BadMessage> {
        let bytes =
            message.value.ok_or_else(|| BadMessage::new("a message of the simple protocol has no value"))?;
        let json = object(bytes, "a message of the simple protocol")?;
        let version = unsigned(&json, "version")?;
        if version != 1 {
            return Err(BadMessage::new(format!("version {version} of the simple protocol")));
        }
        let at = Timestamp(unsigned(&json, "commitTs")?);
        match text(&json, "type")? {
            "WATERMARK" => Ok(vec![Event::watermark(at)]),
            "BOOTSTRAP" => {
                let described = describe(required(&json, "tableSchema")?)?;
                Ok(self.learn([described]))
            }
            kind @ ("INSERT" | "UPDATE" | "DELETE") => self.row(&json, kind, at, bytes),
            kind => self.ddl(&json, kind, at),
        }
    }

    fn n_held(&self) -> usize {
        self.n_waiting
    }
}

impl SimpleDecoder {
    fn row(
        &mut self,
        json: &Json<'_>,
        kind: &str,
        at: Timestamp,
        bytes: &[u8],
    ) -> Result<Vec<Event>, BadMessage> {
        let id = (unsigned(json, "tableID")?, unsigned(json, "schemaVersion")?);
        if let Some(schema) = self.schemas.get(&id) {
            return Ok(vec![event(json, kind, at, schema)?]);
        }
        if self.n_waiting >= HELD_MAX {
            return Err(BadMessage::new(format!(
                "{HELD_MAX} rows wait for the schemas of their tables already"
            )));
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.n_waiting += 1;
        self.waiting.entry(id).or_default().push(Waiting { ticket, message: bytes.to_vec() });
        let table = TableName::new(text_or_empty(json, "database")?, text_or_empty(json, "table")?);
        Ok(vec![Event { commit_ts: Some(at), ..Event::new(EventKind::Deferred(ticket), table) }])
    }

    fn ddl(&mut self, json: &Json<'_>, kind: &str, at: Timestamp) -> Result<Vec<Event>, BadMessage> {
        let sql = text_or_empty(json, "sql")?;
        let effect = ddl_effect(kind, sql).ok_or_else(|| BadMessage::new(format!("`type` is '{kind}'")))?;
        let (before, after) = (json.member("preTableSchema"), json.member("tableSchema"));
        // The name is the old one where there is one: that is the table whose rows came until now.
        let table = before.or(after).map_or_else(|| Ok(TableName::default()), name)?;
        let described = [before, after].into_iter().flatten().map(describe).collect::<Result<Vec<_>, _>>()?;
        let mut events = self.learn(described);
        let kind = EventKind::Ddl(Ddl { sql: sql.to_owned(), effect });
        events.push(Event { commit_ts: Some(at), ..Event::new(kind, table) });
        if effect == DdlEffect::Drops
            && let Some(gone) = before
        {
            let id = unsigned(gone, "tableID")?;
            self.schemas.retain(|(table, _), _| *table != id);
        }
        Ok(events)
    }

    /// Remembers schemas, and returns the rows that waited for them.
    fn learn(&mut self, described: impl IntoIterator<Item = (SchemaId, TableSchema)>) -> Vec<Event> {
        let mut events = Vec::new();
        for (id, schema) in described {
            for waiting in self.waiting.remove(&id).unwrap_or_default() {
                self.n_waiting -= 1;
                let mut event = waited(&waiting.message, &schema)
                    .unwrap_or_else(|bad| Event::new(EventKind::Bad(bad.reason), TableName::default()));
                event.resolves = Some(waiting.ticket);
                events.push(event);
            }
            self.schemas.insert(id, schema);
        }
        events
    }
}

fn waited(message: &[u8], schema: &TableSchema) -> Result<Event, BadMessage> {
    let json = object(message, "a message of the simple protocol")?;
    let at = Timestamp(unsigned(&json, "commitTs")?);
    event(&json, text(&json, "type")?, at, schema)
}

fn event(json: &Json<'_>, kind: &str, at: Timestamp, schema: &TableSchema) -> Result<Event, BadMessage> {
    let table = TableName::new(text(json, "database")?, text(json, "table")?);
    let claim_check = text_or_empty(json, "claimCheckLocation")?;
    let oversize = if !claim_check.is_empty() {
        Some(Oversize::ClaimCheck(claim_check.to_owned()))
    } else {
        json.get("handleKeyOnly").is_some_and(Json::is_true).then_some(Oversize::KeyOnly)
    };
    let image = |member: &str| -> Result<Option<Image>, BadMessage> {
        let mut image = schema.image(required(json, member)?, member)?;
        image.extent = if oversize.is_some() { Extent::Key } else { Extent::Whole };
        Ok(Some(image))
    };
    let (kind, before, after) = match kind {
        "INSERT" => (EventKind::Insert, None, image("data")?),
        "UPDATE" => (EventKind::Update, image("old")?, image("data")?),
        _ => (EventKind::Delete, image("old")?, None),
    };
    let key_columns = schema.key.clone();
    Ok(Event { before, after, key_columns, oversize, commit_ts: Some(at), ..Event::new(kind, table) })
}

fn name(schema: &Json<'_>) -> Result<TableName, BadMessage> {
    Ok(TableName::new(text(schema, "schema")?, text(schema, "table")?))
}

fn describe(schema: &Json<'_>) -> Result<(SchemaId, TableSchema), BadMessage> {
    let list = |name: &str| {
        let list = schema.member(name).map(|found| {
            found.elements().ok_or_else(|| BadMessage::new(format!("`{name}` is not an array")))
        });
        list.transpose().map(Option::unwrap_or_default)
    };
    let mut columns = Vec::new();
    for column in list("columns")? {
        let name = text(column, "name")?;
        let found =
            source_type(required(column, "dataType")?).map_err(|bad| BadMessage::column(name, bad))?;
        columns.push((name.to_owned(), Arc::new(found)));
    }
    let mut key = Vec::new();
    for index in list("indexes")? {
        if index.get("primary").is_some_and(Json::is_true) {
            key = texts(index, "columns")?;
        }
    }
    // Without a primary key rows are known by the first unique index that has no NULLs.
    for index in if key.is_empty() { list("indexes")? } else { &[] } {
        let is_key = index.get("unique").is_some_and(Json::is_true)
            && !index.get("nullable").is_some_and(Json::is_true);
        if is_key {
            key = texts(index, "columns")?;
            break;
        }
    }
    let id = (unsigned(schema, "tableID")?, unsigned(schema, "version")?);
    Ok((id, TableSchema { columns, key }))
}

fn source_type(found: &Json<'_>) -> Result<SourceType, BadMessage> {
    members(found, "dataType")?;
    let number = |name: &str| -> Result<Option<u32>, BadMessage> {
        Ok(unsigned_if_any(found, name)?.and_then(|number| u32::try_from(number).ok()))
    };
    let name = text(found, "mysqlType")?.to_ascii_lowercase();
    let unsigned = found.get("unsigned").is_some_and(Json::is_true);
    Ok(SourceType {
        name,
        unsigned,
        length: number("length")?,
        scale: number("decimal")?,
        labels: texts(found, "elements")?,
    })
}

impl TableSchema {
    fn image(&self, row: &Json<'_>, member: &str) -> Result<Image, BadMessage> {
        let mut cells = Vec::new();
        for (name, found) in members(row, member)? {
            let known = self.columns.iter().find(|(column, _)| column == name).map(|(_, found)| found);
            let source_type = known
                .ok_or_else(|| BadMessage::column(name, "the schema of this version has no such column"))?;
            let value = match found {
                Json::Null => Value::Null,
                Json::Text(text) => value(name, text, Some(source_type), BytesAs::Base64)?,
                Json::Object(_) if source_type.name == "timestamp" => Value::Zoned {
                    zone: text(found, "location")?.to_owned(),
                    text: text(found, "value")?.to_owned(),
                },
                other => return Err(BadMessage::column(name, format!("a value is {}", other.kind()))),
            };
            cells.push(Cell { name: name.to_string(), value, source_type: Some(Arc::clone(source_type)) });
        }
        Ok(Image::whole(cells))
    }
}
