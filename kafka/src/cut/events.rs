//! Events as what a cutter holds: halves of rows, known by table and key.

use std::collections::BTreeMap;

use types::Timestamp;

use super::{Content, Cutter, DdlAt, Entry, Half, Side};
use crate::event::{BadMessage, Event, EventKind, Extent, Image, TableName};
use crate::value::Value;

/// A cutter of events.
pub type EventCutter = Cutter<RowKey, Image>;

/// A row of a table, known by the values of its key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowKey {
    /// The table.
    pub table: TableName,
    /// The values of the key, in a form that compares only as equal or not.
    pub bytes: Vec<u8>,
}

/// The key columns of tables whose messages do not say them.
#[derive(Clone, Debug, Default)]
pub struct KeyColumns {
    /// By table.
    pub by_table: BTreeMap<TableName, Vec<String>>,
}

impl KeyColumns {
    /// What the events of a message have for the cut, and why some of them have nothing. What was deferred
    /// and turned out to be bad is resolved all the same, so that it holds the cut no longer.
    #[must_use]
    pub fn all(&self, events: Vec<Event>) -> (Vec<Entry<RowKey, Image>>, Vec<BadMessage>) {
        let (mut entries, mut bad) = (Vec::new(), Vec::new());
        for event in events {
            let resolves = event.resolves;
            match self.entries(event) {
                Ok(found) => entries.extend(found),
                Err(reason) => {
                    bad.push(reason);
                    entries.extend(resolves.map(|ticket| Entry::Resolved { ticket, halves: Vec::new() }));
                }
            }
        }
        (entries, bad)
    }

    /// What an event has for the cut.
    ///
    /// # Errors
    /// If it has no commit timestamp, or nothing that identifies its row.
    pub fn entries(&self, event: Event) -> Result<Vec<Entry<RowKey, Image>>, BadMessage> {
        let at = event.commit_ts;
        let timed = || at.ok_or_else(|| BadMessage::new("the event has no commit timestamp to cut at"));
        if let Some(ticket) = event.resolves {
            return self.resolved(ticket, event);
        }
        match &event.kind {
            EventKind::Watermark(at) => Ok(vec![Entry::Watermark(*at)]),
            EventKind::Ddl(ddl) => {
                Ok(vec![Entry::Ddl(DdlAt { at: timed()?, table: event.table, ddl: ddl.clone() })])
            }
            EventKind::Deferred(ticket) => Ok(vec![Entry::Deferred { ticket: *ticket, at: timed()? }]),
            EventKind::Bad(reason) => Err(BadMessage::new(reason)),
            EventKind::Heartbeat | EventKind::Transaction(_) => Ok(Vec::new()),
            EventKind::Truncate => Err(BadMessage::new("a truncation without a place in time")),
            _ => {
                let halves = self.halves(event, timed()?)?;
                Ok(halves.into_iter().map(Entry::Row).collect())
            }
        }
    }

    fn resolved(&self, ticket: u64, event: Event) -> Result<Vec<Entry<RowKey, Image>>, BadMessage> {
        if let EventKind::Bad(reason) = event.kind {
            return Err(BadMessage::new(reason));
        }
        let at = event.commit_ts.ok_or_else(|| BadMessage::new("a deferred row has no timestamp"))?;
        Ok(vec![Entry::Resolved { ticket, halves: self.halves(event, at)? }])
    }

    fn halves(&self, event: Event, at: Timestamp) -> Result<Vec<Half<RowKey, Image>>, BadMessage> {
        let given = self.by_table.get(&event.table);
        let columns = given.unwrap_or(&event.key_columns);
        let mut halves = Vec::with_capacity(2);
        let sides = [(Side::Old, event.before), (Side::New, event.after)];
        for (side, image) in sides {
            let Some(row) = image else { continue };
            let bytes = match &event.row_key {
                Some(bytes) if given.is_none() && columns.is_empty() => bytes.clone(),
                _ => key_bytes(&event.table, columns, &row)?,
            };
            let key = RowKey { table: event.table.clone(), bytes };
            halves.push(Half { key, side, at, row });
        }
        Ok(halves)
    }
}

fn key_bytes(table: &TableName, columns: &[String], row: &Image) -> Result<Vec<u8>, BadMessage> {
    if columns.is_empty() {
        return Err(BadMessage::new(format!("table {table} has no key by which a repetition is known")));
    }
    let mut bytes = Vec::new();
    for column in columns {
        let value = row.get(column);
        let value = value.ok_or_else(|| BadMessage::column(column, "a column of the key is missing"))?;
        if value.is_null() {
            return Err(BadMessage::column(column, "a column of the key is NULL"));
        }
        put_value(&mut bytes, value);
    }
    Ok(bytes)
}

/// Appends a value so that different lists of values give different bytes.
fn put_value(out: &mut Vec<u8>, value: &Value) {
    let content = match value {
        Value::Text(text) => text.clone().into_bytes(),
        Value::Bytes(bytes) => bytes.clone(),
        other => format!("{other:?}").into_bytes(),
    };
    out.extend_from_slice(&(content.len() as u64).to_be_bytes());
    out.extend_from_slice(&content);
}

impl Content for Image {
    fn merge(&mut self, other: Image) -> bool {
        let agree = self.agrees(&other);
        if agree && self.extent != Extent::Whole && other.extent == Extent::Whole {
            *self = other;
        }
        agree
    }

    /// Whether the columns that both have are equal.
    fn agrees(&self, other: &Image) -> bool {
        self.cells.iter().all(|cell| other.get(&cell.name).is_none_or(|value| *value == cell.value))
    }
}
