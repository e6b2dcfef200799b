//! Canal's JSON: as TiCDC writes it, and as Canal's own flat messages are.
//!
//! All values are texts or NULL. Bytes are characters U+0000 to U+00FF; ENUM, SET and BIT are numbers;
//! `old` may have only the columns that changed, so the old row is the new one with those put back.
//! TiCDC's extension `_tidb` carries the commit timestamp and the watermarks; without it a message is a plain
//! Canal message and sources cut at offsets only.

use std::sync::Arc;

use types::Timestamp;

use crate::event::{
    BadMessage, Cell, Ddl, Decoder, Event, EventKind, Extent, Image, Message, Oversize, TableName,
};
use crate::formats::fields::{members, object, required, text, text_or_empty, texts, unsigned_if_any};
use crate::formats::mysql_text::{BytesAs, SQL_TYPE_BLOB, ddl_effect, value};
use crate::json::Json;
use crate::value::{SourceType, Value};

/// Who writes the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CanalDialect {
    /// TiCDC with `enable-tidb-extension=true`: each event has a commit timestamp.
    Ticdc,
    /// Canal, or TiCDC without the extension: what the extension says is not required.
    Plain,
}

/// Reads Canal's JSON.
#[derive(Clone, Debug)]
pub struct CanalDecoder {
    dialect: CanalDialect,
}

impl CanalDecoder {
    /// A decoder.
    #[must_use]
    pub fn new(dialect: CanalDialect) -> CanalDecoder {
        CanalDecoder { dialect }
    }
}

impl Decoder for CanalDecoder {
    fn decode(&mut self, message: Message<'_>) -> Result<Vec<Event>, BadMessage> {
        let bytes = message.value.ok_or_else(|| BadMessage::new("a Canal message has no value"))?;
        let json = object(bytes, "a Canal message")?;
        let extension = Extension::read(&json)?;
        let kind = text(&json, "type")?;
        if kind == "TIDB_WATERMARK" {
            let at =
                extension.watermark_ts.ok_or_else(|| BadMessage::new("`_tidb.watermarkTs` is missing"))?;
            return Ok(vec![Event::watermark(at)]);
        }
        if self.dialect == CanalDialect::Ticdc && extension.commit_ts.is_none() {
            return Err(BadMessage::new(
                "`_tidb.commitTs` is missing: the changefeed must have enable-tidb-extension=true",
            ));
        }
        let table = TableName::new(text_or_empty(&json, "database")?, text_or_empty(&json, "table")?);
        if json.get("isDdl").is_some_and(Json::is_true) {
            return Ok(vec![ddl(&json, kind, table, &extension)?]);
        }
        match kind {
            "INSERT" | "UPDATE" | "DELETE" => rows(&json, kind, &table, &extension),
            // A statement that changed no row of ours and no definition.
            "QUERY" => Ok(Vec::new()),
            other => Err(BadMessage::new(format!("`type` is '{other}'"))),
        }
    }
}

/// What stands in `_tidb`.
#[derive(Default)]
struct Extension {
    commit_ts: Option<Timestamp>,
    watermark_ts: Option<Timestamp>,
    oversize: Option<Oversize>,
    row_key: Option<Vec<u8>>,
}

impl Extension {
    fn read(json: &Json<'_>) -> Result<Extension, BadMessage> {
        let Some(found) = json.member("_tidb") else { return Ok(Extension::default()) };
        members(found, "_tidb")?;
        let claim_check = text_or_empty(found, "claimCheckLocation")?;
        let oversize = if !claim_check.is_empty() {
            Some(Oversize::ClaimCheck(claim_check.to_owned()))
        } else if found.get("onlyHandleKey").is_some_and(Json::is_true) {
            Some(Oversize::KeyOnly)
        } else {
            None
        };
        let row_key = match found.member("rowkey").and_then(Json::text) {
            None => None,
            Some(text) => Some(crate::formats::mysql_text::bytes("_tidb.rowkey", text, BytesAs::Base64)?),
        };
        Ok(Extension {
            commit_ts: unsigned_if_any(found, "commitTs")?.map(Timestamp),
            watermark_ts: unsigned_if_any(found, "watermarkTs")?.map(Timestamp),
            oversize,
            row_key,
        })
    }
}

fn ddl(json: &Json<'_>, kind: &str, table: TableName, extension: &Extension) -> Result<Event, BadMessage> {
    let sql = text_or_empty(json, "sql")?;
    let effect =
        ddl_effect(kind, sql).ok_or_else(|| BadMessage::new(format!("a DDL's `type` is '{kind}'")))?;
    let kind = EventKind::Ddl(Ddl { sql: sql.to_owned(), effect });
    Ok(Event { commit_ts: extension.commit_ts, ..Event::new(kind, table) })
}

fn rows(
    json: &Json<'_>,
    kind: &str,
    table: &TableName,
    extension: &Extension,
) -> Result<Vec<Event>, BadMessage> {
    let types = ColumnTypes::read(json)?;
    let key_columns = texts(json, "pkNames")?;
    let data = array(json, "data")?;
    let olds = if kind == "UPDATE" { Some(array(json, "old")?) } else { None };
    if let Some(olds) = olds
        && olds.len() != data.len()
    {
        let reason = format!("`old` has {} rows and `data` has {}", olds.len(), data.len());
        return Err(BadMessage::new(reason));
    }
    let is_key_only = extension.oversize.is_some();
    let mut events = Vec::with_capacity(data.len());
    for (at, row) in data.iter().enumerate() {
        let mut image = types.image(row, "data")?;
        image.extent = if is_key_only { Extent::Key } else { Extent::Whole };
        let before = match olds {
            Some(olds) => Some(image.overlaid(types.image(&olds[at], "old")?)),
            None => None,
        };
        let (event_kind, before, after) = match kind {
            "INSERT" => (EventKind::Insert, None, Some(image)),
            "DELETE" => (EventKind::Delete, Some(image), None),
            _ => (EventKind::Update, before, Some(image)),
        };
        let mut event = Event::new(event_kind, table.clone());
        event.key_columns.clone_from(&key_columns);
        event.commit_ts = extension.commit_ts;
        event.row_key.clone_from(&extension.row_key);
        event.oversize.clone_from(&extension.oversize);
        event.position = position(json)?;
        (event.before, event.after) = (before, after);
        events.push(event);
    }
    Ok(events)
}

/// Canal's own messages say the transaction, and nothing that orders events within it.
fn position(json: &Json<'_>) -> Result<crate::event::SourcePosition, BadMessage> {
    let gtid = text_or_empty(json, "gtid")?;
    let transaction = if gtid.is_empty() { None } else { Some(gtid.to_owned()) };
    Ok(crate::event::SourcePosition { transaction, ..Default::default() })
}

fn array<'a, 'b>(json: &'a Json<'b>, name: &str) -> Result<&'a [Json<'b>], BadMessage> {
    required(json, name)?.elements().ok_or_else(|| BadMessage::new(format!("`{name}` is not an array")))
}

/// The types of the columns of a message.
struct ColumnTypes {
    by_name: Vec<(String, Arc<SourceType>)>,
}

impl ColumnTypes {
    fn read(json: &Json<'_>) -> Result<ColumnTypes, BadMessage> {
        let mut by_name = Vec::new();
        if let Some(types) = json.member("mysqlType") {
            for (name, found) in members(types, "mysqlType")? {
                let text =
                    found.text().ok_or_else(|| BadMessage::column(name, "its `mysqlType` is no text"))?;
                by_name.push((name.to_string(), Arc::new(SourceType::parse(text))));
            }
        } else if let Some(codes) = json.member("sqlType") {
            // Of the codes only this one says more than the text of the value does.
            for (name, code) in members(codes, "sqlType")? {
                if code.signed() == Some(SQL_TYPE_BLOB) {
                    by_name.push((name.to_string(), Arc::new(SourceType::named("blob"))));
                }
            }
        }
        Ok(ColumnTypes { by_name })
    }

    fn image(&self, row: &Json<'_>, member: &str) -> Result<Image, BadMessage> {
        let mut cells = Vec::new();
        for (name, found) in members(row, member)? {
            let source_type = self.by_name.iter().find(|(known, _)| known == name).map(|(_, found)| found);
            let value = match found {
                Json::Null => Value::Null,
                Json::Text(text) => value(name, text, source_type.map(Arc::as_ref), BytesAs::Latin1)?,
                other => {
                    let reason = format!("a value is {}, not a text", other.kind());
                    return Err(BadMessage::column(name, reason));
                }
            };
            cells.push(Cell { name: name.to_string(), value, source_type: source_type.map(Arc::clone) });
        }
        Ok(Image::whole(cells))
    }
}

impl Default for CanalDecoder {
    fn default() -> CanalDecoder {
        CanalDecoder::new(CanalDialect::Ticdc)
    }
}
