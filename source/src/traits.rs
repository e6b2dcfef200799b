//! The contract of a source.

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use bytes::Bytes;
use types::{Delta, Result, TableId, Timestamp};

/// A row that could not be decoded: it is in no delta, and whatever needs its table cannot be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowFault {
    /// The table.
    pub table: TableId,
    /// The row's key.
    pub key: Bytes,
    /// What is wrong with it.
    pub reason: String,
}

/// A page of a table's rows at a timestamp.
#[derive(Clone, Debug)]
pub struct RowsPage {
    /// The rows, each appearing once.
    pub delta: Delta,
    /// The last key of the page: the next page begins after it. `None` if the page is empty.
    pub last_key: Option<Bytes>,
    /// Whether nothing is left after this page.
    pub done: bool,
    /// The bytes of keys and values that were read.
    pub n_bytes: u64,
    /// Rows of the page that could not be decoded.
    pub faults: Vec<RowFault>,
}

/// Where the next page of changes begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeCursor {
    /// The commit timestamp.
    pub commit_ts: Timestamp,
    /// The key among those of one commit.
    pub key: Bytes,
}

/// The changes of one table.
#[derive(Clone, Debug)]
pub struct TableDelta {
    /// The table.
    pub table: TableId,
    /// Old rows with weight -1 and new rows with +1, the two of an update side by side.
    pub delta: Delta,
}

/// A page of the changes of all tables of a source.
#[derive(Clone, Debug, Default)]
pub struct ChangesPage {
    /// The changes, one delta a table, in ascending order of tables; tables without changes are left out.
    pub deltas: Vec<TableDelta>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<ChangeCursor>,
    /// The number of changed keys that were read.
    pub n_changes: u64,
    /// Those of them that had no row before and have one now.
    pub n_inserted: u64,
    /// Those of them that had a row before and have none now.
    pub n_deleted: u64,
    /// The bytes of keys, old and new values that were read.
    pub n_bytes: u64,
    /// Changes of the page that could not be decoded.
    pub faults: Vec<RowFault>,
}

/// Where deltas come from.
///
/// What an implementor owes: the rows at T, changed by all pages of (T, U], are exactly the rows at U;
/// asking again at the same timestamps answers the same; each change is in exactly one page.
#[async_trait]
pub trait Source: Send + Sync {
    /// The tables, in ascending order.
    fn tables(&self) -> Vec<TableId>;

    /// The schema of a table's deltas; `None` if the source has no such table.
    fn schema(&self, table: TableId) -> Option<SchemaRef>;

    /// A page of at most `limit` of a table's rows at a timestamp, after a key.
    async fn read_rows(
        &self,
        table: TableId,
        at: Timestamp,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<RowsPage>;

    /// A page of at most `limit` changes in (`from`, `to`].
    async fn read_changes(
        &self,
        from: Timestamp,
        to: Timestamp,
        cursor: Option<ChangeCursor>,
        limit: usize,
    ) -> Result<ChangesPage>;

    /// The timestamp up to which everything has been committed and can be read.
    async fn resolved(&self) -> Result<Timestamp>;
}
