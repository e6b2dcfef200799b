//! What a message says happened, whatever its format.
//!
//! A decoder turns one message into events or into one reason why not. It knows nothing of our tables:
//! columns go by name, values keep what the format says of them. What a consumer does with an event
//! (`cut` for sources with commit timestamps) does not depend on the format any more.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;
use types::Timestamp;

use crate::value::{SourceType, Value};

/// A message as Kafka gives it to a decoder.
#[derive(Clone, Copy, Debug, Default)]
pub struct Message<'a> {
    /// The key.
    pub key: Option<&'a [u8]>,
    /// The value; `None` is a tombstone.
    pub value: Option<&'a [u8]>,
    /// The headers.
    pub headers: &'a [Header<'a>],
}

/// A header of a message.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a> {
    /// The name.
    pub name: &'a str,
    /// The value.
    pub value: Option<&'a [u8]>,
}

impl Message<'_> {
    /// The value of the last header with a name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().rev().find(|header| header.name == name).and_then(|header| header.value)
    }
}

/// Why a message is no event. It says nothing of the messages beside it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{reason}")]
pub struct BadMessage {
    /// What is wrong, naming the field, the column and the value.
    pub reason: String,
}

impl BadMessage {
    /// A bad message.
    #[must_use]
    pub fn new(reason: impl fmt::Display) -> BadMessage {
        BadMessage { reason: reason.to_string() }
    }

    /// A bad message whose column is named.
    #[must_use]
    pub fn column(name: &str, reason: impl fmt::Display) -> BadMessage {
        BadMessage::new(format!("column `{name}`: {reason}"))
    }
}

impl From<crate::json::JsonError> for BadMessage {
    fn from(error: crate::json::JsonError) -> BadMessage {
        BadMessage::new(error)
    }
}

/// A table of the source; both names are empty where an event has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableName {
    /// The database.
    pub database: String,
    /// The table.
    pub table: String,
}

impl TableName {
    /// A name.
    #[must_use]
    pub fn new(database: &str, table: &str) -> TableName {
        TableName { database: database.to_owned(), table: table.to_owned() }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "`{}`.`{}`", self.database, self.table)
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum EventKind {
    /// A row appeared: `after`.
    Insert,
    /// A row changed: `after`, and `before` as far as the format has it.
    Update,
    /// A row disappeared: `before`, or only `key`.
    Delete,
    /// A row is there now, whether or not it was before: `after`.
    Upsert,
    /// The row with this key is not there any more, whether or not it was before: `key`.
    Tombstone,
    /// All rows of the table disappeared.
    Truncate,
    /// A definition changed.
    Ddl(Ddl),
    /// Every row up to this timestamp has been written, to every partition, before this message.
    Watermark(Timestamp),
    /// A transaction began or ended.
    Transaction(TransactionMark),
    /// The source lives and has nothing to say.
    Heartbeat,
    /// A row whose table has not been described yet. It comes again, as an event that `resolves` this number.
    Deferred(u64),
    /// A deferred row that turned out to be no row, and why.
    Bad(String),
}

/// A change of definitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ddl {
    /// The statement, as the source has it.
    pub sql: String,
    /// What it does to the rows of the table.
    pub effect: DdlEffect,
}

/// What a change of definitions does to rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DdlEffect {
    /// Columns or names may have changed.
    #[default]
    Alters,
    /// A table is new.
    Creates,
    /// All rows are gone.
    Truncates,
    /// The table is gone.
    Drops,
    /// The table has another name.
    Renames,
    /// Some partitions' rows are gone.
    DropsPartitions,
    /// No row changes: indexes, comments.
    Nothing,
}

/// The beginning or the end of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionMark {
    /// The transaction.
    pub id: String,
    /// Whether it ends here.
    pub ends: bool,
    /// The number of its events, in all and for each table; only at the end, and only if it is said.
    pub n_events: Option<u64>,
    /// The number of its events by table.
    pub by_table: Vec<(String, u64)>,
}

/// A column of an image.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The column's name.
    pub name: String,
    /// Its value.
    pub value: Value,
    /// Its type at the source, if the format says it.
    pub source_type: Option<Arc<SourceType>>,
}

/// How much of a row an image has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// All columns that the source sends.
    #[default]
    Whole,
    /// Only the columns of the key.
    Key,
    /// Only some columns: those of the key and those that changed.
    Partial,
}

/// A row, or a part of one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Image {
    /// The columns, in the order of the message.
    pub cells: Vec<Cell>,
    /// How much of the row they are.
    pub extent: Extent,
}

impl Image {
    /// A whole row.
    #[must_use]
    pub fn whole(cells: Vec<Cell>) -> Image {
        Image { cells, extent: Extent::Whole }
    }

    /// The value of a column; names compare without case, as in MySQL.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.cell(name).map(|cell| &cell.value)
    }

    /// The image with other values put over its own: an old row from the new one and what changed.
    #[must_use]
    pub(crate) fn overlaid(&self, over: Image) -> Image {
        let mut cells = self.cells.clone();
        for cell in over.cells {
            match cells.iter_mut().find(|found| found.name == cell.name) {
                Some(found) => *found = cell,
                None => cells.push(cell),
            }
        }
        Image { cells, extent: self.extent }
    }

    /// A column; names compare without case, as in MySQL.
    #[must_use]
    pub fn cell(&self, name: &str) -> Option<&Cell> {
        let exact = self.cells.iter().find(|cell| cell.name == name);
        exact.or_else(|| self.cells.iter().find(|cell| cell.name.eq_ignore_ascii_case(name)))
    }
}

/// Where in the source's own log an event stands, as far as the format says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourcePosition {
    /// What orders events of one source: names and numbers as the source has them (`binlog.000003`, `lsn`).
    pub parts: Vec<(String, String)>,
    /// The transaction.
    pub transaction: Option<String>,
    /// Whether this is the last event of its transaction.
    pub is_last: bool,
}

/// Why an event has not all that its row has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Oversize {
    /// Only the key's columns are there; the rest must be read at the source.
    KeyOnly,
    /// The whole message lies in a file of this name.
    ClaimCheck(String),
}

/// Something that happened at the source.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The table.
    pub table: TableName,
    /// The key, where the format has one apart from the row.
    pub key: Option<Image>,
    /// The names of the columns of the primary key, where the format says them.
    pub key_columns: Vec<String>,
    /// The row before.
    pub before: Option<Image>,
    /// The row after.
    pub after: Option<Image>,
    /// When it was committed, on the source's clock.
    pub commit_ts: Option<Timestamp>,
    /// What identifies a row of a table without a key.
    pub row_key: Option<Vec<u8>>,
    /// Where in the source's log it stands.
    pub position: SourcePosition,
    /// Why parts are missing.
    pub oversize: Option<Oversize>,
    /// The row may come again as another event: a snapshot's, a bootstrap's.
    pub is_snapshot: bool,
    /// The number of the [`EventKind::Deferred`] event that this is in full.
    pub resolves: Option<u64>,
}

impl Event {
    /// An event with nothing but a kind and a table.
    #[must_use]
    pub fn new(kind: EventKind, table: TableName) -> Event {
        Event {
            kind,
            table,
            key: None,
            key_columns: Vec::new(),
            before: None,
            after: None,
            commit_ts: None,
            row_key: None,
            position: SourcePosition::default(),
            oversize: None,
            is_snapshot: false,
            resolves: None,
        }
    }

    /// A watermark.
    #[must_use]
    pub fn watermark(at: Timestamp) -> Event {
        Event { commit_ts: Some(at), ..Event::new(EventKind::Watermark(at), TableName::default()) }
    }
}

/// Turns messages of one format into events.
///
/// What an implementor owes: no panic on any bytes; the same events for the same messages in the same order;
/// a message is either all of its events or one [`BadMessage`], and neither depends on bad ones before it.
pub trait Decoder: Send {
    /// The events of a message, in their order. Formats that describe tables in messages of their own may
    /// hold rows back and return them with the description.
    ///
    /// # Errors
    /// What is wrong with the message.
    fn decode(&mut self, message: Message<'_>) -> Result<Vec<Event>, BadMessage>;

    /// How many messages are held back until another one describes them.
    fn n_held(&self) -> usize {
        0
    }
}
