//! Debezium's JSON, with and without schemas, and what TiCDC writes in its manner.
//!
//! What Debezium does not say is not invented: an update without a row before has none, and whoever keeps
//! state completes it. TiCDC's variant carries commit timestamps and, in newer versions, watermarks and DDL;
//! it also loses digits of decimals and writes a default in place of a NULL, which no reader can undo.

use types::Timestamp;

use super::connect::{ConnectHints, StructSchema, image};
use super::fields::{object, text, text_or_empty, unsigned, unsigned_if_any};
use crate::event::{
    BadMessage, Ddl, DdlEffect, Decoder, Event, EventKind, Extent, Image, Message, SourcePosition, TableName,
    TransactionMark,
};
use crate::json::Json;

/// How much a row before has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BeforeImages {
    /// All columns (MySQL's full row images, PostgreSQL's REPLICA IDENTITY FULL).
    #[default]
    Whole,
    /// Those of the key; the others are NULL whatever they were (REPLICA IDENTITY DEFAULT).
    KeyOnly,
}

/// What the sender was told that its messages do not say.
#[derive(Clone, Debug, Default)]
pub struct DebeziumOptions {
    /// What stands in for schemas.
    pub hints: ConnectHints,
    /// How much a row before has.
    pub before_images: BeforeImages,
}

/// Reads Debezium's JSON.
#[derive(Clone, Debug, Default)]
pub struct DebeziumDecoder {
    options: DebeziumOptions,
}

impl DebeziumDecoder {
    /// A decoder.
    #[must_use]
    pub fn new(options: DebeziumOptions) -> DebeziumDecoder {
        DebeziumDecoder { options }
    }
}

/// A message's content and the schema that may stand beside it.
struct Envelope<'a, 'b> {
    schema: Option<&'a Json<'b>>,
    payload: &'a Json<'b>,
}

impl<'a, 'b> Envelope<'a, 'b> {
    fn of(json: &'a Json<'b>) -> Envelope<'a, 'b> {
        let members = json.members().unwrap_or_default();
        let is_wrapped = members.len() == 2 && json.get("schema").is_some();
        match json.get("payload") {
            Some(payload) if is_wrapped => Envelope { schema: json.member("schema"), payload },
            _ => Envelope { schema: None, payload: json },
        }
    }
}

impl Decoder for DebeziumDecoder {
    fn decode(&mut self, message: Message<'_>) -> Result<Vec<Event>, BadMessage> {
        // After a delete comes a message without a value, for compaction: it says nothing new.
        let Some(value) = message.value else { return Ok(Vec::new()) };
        let value = object(value, "a Debezium message")?;
        let envelope = Envelope::of(&value);
        if *envelope.payload == Json::Null {
            return Ok(Vec::new());
        }
        let payload = envelope.payload;
        if payload.get("op").is_none() {
            return Ok(vec![without_operation(payload)?]);
        }
        let key = match message.key {
            None => None,
            Some(bytes) => self.key(bytes)?,
        };
        Ok(self.change(&envelope, key)?.into_iter().collect())
    }
}

impl DebeziumDecoder {
    fn key(&self, bytes: &[u8]) -> Result<Option<Image>, BadMessage> {
        let json = object(bytes, "a Debezium key")?;
        let envelope = Envelope::of(&json);
        if envelope.payload.members().is_none() {
            return Ok(None);
        }
        let schema = envelope.schema.map(StructSchema::of).transpose()?;
        let mut key = image(envelope.payload, schema.as_ref(), &self.options.hints)?;
        key.extent = Extent::Key;
        Ok(Some(key))
    }

    fn change(&self, envelope: &Envelope<'_, '_>, key: Option<Image>) -> Result<Option<Event>, BadMessage> {
        let payload = envelope.payload;
        let source = payload.member("source").unwrap_or(&Json::Null);
        let commit_ts = unsigned_if_any(source, "commit_ts")?.map(Timestamp);
        let operation = text(payload, "op")?;
        if operation == "m" {
            // TiCDC's watermark; from anyone else a message of the database's users.
            let is_watermark = text_or_empty(source, "connector")? == "TiCDC";
            return Ok(commit_ts.filter(|_| is_watermark).map(Event::watermark));
        }
        let row = |name: &str| self.row(envelope, name);
        let mut event = Event::new(EventKind::Truncate, table_name(source)?);
        match operation {
            "c" => (event.kind, event.after) = (EventKind::Insert, row("after")?),
            "r" => (event.kind, event.after) = (EventKind::Upsert, row("after")?),
            "u" => {
                event.kind = EventKind::Update;
                (event.before, event.after) = (row("before")?, row("after")?);
            }
            "d" => (event.kind, event.before) = (EventKind::Delete, row("before")?),
            "t" => {}
            other => return Err(BadMessage::new(format!("`op` is '{other}'"))),
        }
        if matches!(operation, "c" | "r" | "u") && event.after.is_none() {
            return Err(BadMessage::new("`after` is missing"));
        }
        if operation == "d" && event.before.is_none() && key.is_none() {
            return Err(BadMessage::new("a delete has neither a row before nor a key"));
        }
        if let Some(key) = &key {
            event.key_columns = key.cells.iter().map(|cell| cell.name.clone()).collect();
            if let Some(before) = event.before.as_mut()
                && self.options.before_images == BeforeImages::KeyOnly
            {
                before.cells.retain(|cell| event.key_columns.contains(&cell.name));
                before.extent = Extent::Key;
            }
        }
        event.is_snapshot = operation == "r" || is_snapshot(source);
        event.position = position(payload, source)?;
        (event.key, event.commit_ts) = (key, commit_ts);
        Ok(Some(event))
    }

    fn row(&self, envelope: &Envelope<'_, '_>, name: &str) -> Result<Option<Image>, BadMessage> {
        let Some(row) = envelope.payload.member(name) else { return Ok(None) };
        let outer = envelope.schema.map(StructSchema::of).transpose()?;
        let schema = match outer {
            None => None,
            Some(outer) => {
                let field = outer.field(name);
                let field = field.ok_or_else(|| BadMessage::new(format!("the schema has no `{name}`")))?;
                Some(StructSchema::of(field)?)
            }
        };
        image(row, schema.as_ref(), &self.options.hints).map(Some)
    }
}

/// Databases of PostgreSQL have schemas, and these are what MySQL calls databases.
fn table_name(source: &Json<'_>) -> Result<TableName, BadMessage> {
    let schema = text_or_empty(source, "schema")?;
    let database = if schema.is_empty() { text_or_empty(source, "db")? } else { schema };
    Ok(TableName::new(database, text_or_empty(source, "table")?))
}

fn is_snapshot(source: &Json<'_>) -> bool {
    match source.get("snapshot") {
        Some(Json::Text(text)) => text != "false",
        Some(Json::Bool(value)) => *value,
        _ => false,
    }
}

fn position(payload: &Json<'_>, source: &Json<'_>) -> Result<SourcePosition, BadMessage> {
    let mut position = SourcePosition::default();
    for name in ["file", "pos", "row", "gtid", "lsn", "txId", "sequence", "ts_ms"] {
        match source.member(name) {
            Some(Json::Text(text)) if text.is_empty() => {}
            Some(Json::Text(text)) => position.parts.push((name.to_owned(), text.to_string())),
            Some(other) => position.parts.push((name.to_owned(), other.to_string())),
            None => {}
        }
    }
    if let Some(transaction) = payload.member("transaction") {
        position.transaction = Some(text(transaction, "id")?.to_owned());
        if let Some(order) = unsigned_if_any(transaction, "total_order")? {
            position.parts.push(("total_order".to_owned(), order.to_string()));
        }
    }
    Ok(position)
}

/// What is no change of a row: a transaction's begin or end, a heartbeat, a change of definitions.
fn without_operation(payload: &Json<'_>) -> Result<Event, BadMessage> {
    if payload.get("ddl").is_some() || payload.get("tableChanges").is_some() {
        return definition(payload);
    }
    if payload.get("status").is_some() {
        let ends = match text(payload, "status")? {
            "BEGIN" => false,
            "END" => true,
            other => return Err(BadMessage::new(format!("`status` is '{other}'"))),
        };
        let mut by_table = Vec::new();
        for collection in payload.member("data_collections").and_then(Json::elements).unwrap_or_default() {
            let name = text(collection, "data_collection")?.to_owned();
            by_table.push((name, unsigned(collection, "event_count")?));
        }
        let n_events = unsigned_if_any(payload, "event_count")?;
        let id = text(payload, "id")?.to_owned();
        let mark = TransactionMark { id, ends, n_events, by_table };
        return Ok(Event::new(EventKind::Transaction(mark), TableName::default()));
    }
    let is_heartbeat = payload.members().is_some_and(|members| {
        !members.is_empty() && members.iter().all(|(name, _)| name.starts_with("ts_"))
    });
    if is_heartbeat {
        return Ok(Event::new(EventKind::Heartbeat, TableName::default()));
    }
    Err(BadMessage::new("neither a change (`op`) nor anything else that Debezium writes"))
}

fn definition(payload: &Json<'_>) -> Result<Event, BadMessage> {
    let source = payload.member("source").unwrap_or(&Json::Null);
    let sql = text_or_empty(payload, "ddl")?.to_owned();
    let changes = payload.member("tableChanges").and_then(Json::elements).unwrap_or_default();
    let kind = changes.first().and_then(|change| change.get("type")).and_then(Json::text);
    let is_truncate = sql.trim_start().get(..8).is_some_and(|word| word.eq_ignore_ascii_case("truncate"));
    let effect = match kind {
        _ if is_truncate => DdlEffect::Truncates,
        Some("CREATE") => DdlEffect::Creates,
        Some("DROP") => DdlEffect::Drops,
        _ => DdlEffect::Alters,
    };
    let database = text_or_empty(payload, "databaseName")?;
    let table = TableName::new(database, text_or_empty(source, "table")?);
    let commit_ts = unsigned_if_any(source, "commit_ts")?.map(Timestamp);
    Ok(Event { commit_ts, ..Event::new(EventKind::Ddl(Ddl { sql, effect }), table) })
}
