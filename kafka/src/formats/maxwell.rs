//! Maxwell's JSON: native values, and of an old row only what changed.
//!
//! With `output_nulls=false` a column that is NULL is left out: then the converter must take what is missing
//! as NULL. Bytes are base64, which only our column can tell from text. There is no commit timestamp.

use std::sync::Arc;

use super::connect::{ConnectHints, DecimalsAs};
use super::fields::{members, object, required, text, text_or_empty, texts};
use crate::event::{
    BadMessage, Ddl, DdlEffect, Decoder, Event, EventKind, Image, Message, SourcePosition, TableName,
};
use crate::json::Json;
use crate::value::{SourceType, Value};

/// Reads Maxwell's JSON.
#[derive(Clone, Debug, Default)]
pub struct MaxwellDecoder {
    hints: ConnectHints,
    sets: Vec<String>,
}

impl MaxwellDecoder {
    /// A decoder; the hints tell base64 from text. A SET comes as an array, as JSON may, so its columns must
    /// be named.
    #[must_use]
    pub fn new(mut hints: ConnectHints, sets: Vec<String>) -> MaxwellDecoder {
        // Numbers are numbers here, decimals too.
        hints.decimals = DecimalsAs::Plain;
        MaxwellDecoder { hints, sets }
    }
}

impl Decoder for MaxwellDecoder {
    fn decode(&mut self, message: Message<'_>) -> Result<Vec<Event>, BadMessage> {
        let bytes = message.value.ok_or_else(|| BadMessage::new("a Maxwell message has no value"))?;
        let json = object(bytes, "a Maxwell message")?;
        let table = TableName::new(text_or_empty(&json, "database")?, text_or_empty(&json, "table")?);
        let mut event = Event::new(EventKind::Heartbeat, table);
        match text(&json, "type")? {
            "insert" => (event.kind, event.after) = (EventKind::Insert, Some(self.image(&json, "data")?)),
            "bootstrap-insert" => {
                (event.kind, event.after) = (EventKind::Upsert, Some(self.image(&json, "data")?));
                event.is_snapshot = true;
            }
            "update" => {
                let after = self.image(&json, "data")?;
                event.before = Some(after.overlaid(self.image(&json, "old")?));
                (event.kind, event.after) = (EventKind::Update, Some(after));
            }
            "delete" => (event.kind, event.before) = (EventKind::Delete, Some(self.image(&json, "data")?)),
            "bootstrap-start" | "bootstrap-complete" | "heartbeat" => {}
            kind => event.kind = EventKind::Ddl(ddl(&json, kind)?),
        }
        event.key_columns = texts(&json, "primary_key_columns")?;
        if event.key_columns.is_empty()
            && let Some(key) = message.key
        {
            event.key_columns = key_columns(key)?;
        }
        event.position = position(&json);
        Ok(vec![event])
    }
}

impl MaxwellDecoder {
    fn image(&self, json: &Json<'_>, member: &str) -> Result<Image, BadMessage> {
        let row = required(json, member)?;
        members(row, member)?;
        let mut image = super::connect::image(row, None, &self.hints)?;
        for (cell, (name, found)) in image.cells.iter_mut().zip(members(row, member)?) {
            let Json::Array(elements) = found else { continue };
            if self.sets.iter().any(|set| set.eq_ignore_ascii_case(name)) {
                let labels = elements.iter().map(Json::text).collect::<Option<Vec<_>>>();
                let labels =
                    labels.ok_or_else(|| BadMessage::column(name, "a SET whose members are no texts"))?;
                cell.value = Value::Text(labels.join(","));
                cell.source_type = Some(Arc::new(SourceType::named("set")));
            }
        }
        Ok(image)
    }
}

fn ddl(json: &Json<'_>, kind: &str) -> Result<Ddl, BadMessage> {
    let effect = match kind {
        "table-create" | "database-create" => DdlEffect::Creates,
        "table-alter" | "database-alter" => DdlEffect::Alters,
        "table-drop" | "database-drop" => DdlEffect::Drops,
        other => return Err(BadMessage::new(format!("`type` is '{other}'"))),
    };
    Ok(Ddl { sql: text_or_empty(json, "sql")?.to_owned(), effect })
}

/// The names of the key's columns: `{"pk.id": 1}`, or `["database", "table", [{"id": 1}]]`.
fn key_columns(key: &[u8]) -> Result<Vec<String>, BadMessage> {
    let json = Json::parse(key)?;
    if let Some(members) = json.members() {
        let names = members.iter().filter_map(|(name, _)| name.strip_prefix("pk."));
        return Ok(names.map(str::to_owned).collect());
    }
    let parts = json.elements().and_then(|elements| elements.get(2)).and_then(Json::elements);
    let names = parts.unwrap_or_default().iter().filter_map(Json::members).flatten();
    Ok(names.map(|(name, _)| name.to_string()).collect())
}

fn position(json: &Json<'_>) -> SourcePosition {
    let mut parts = Vec::new();
    for name in ["position", "gtid", "server_id", "xoffset", "ts"] {
        match json.member(name) {
            Some(Json::Text(text)) => parts.push((name.to_owned(), text.to_string())),
            Some(other) => parts.push((name.to_owned(), other.to_string())),
            None => {}
        }
    }
    let transaction = json.member("xid").map(ToString::to_string);
    SourcePosition { parts, transaction, is_last: json.get("commit").is_some_and(Json::is_true) }
}
