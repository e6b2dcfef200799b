//! INSERT, UPDATE and DELETE over base tables.

use types::Timestamp;

/// What a data change did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DmlResult {
    /// Rows that were inserted, deleted or really changed, as MySQL counts them.
    pub affected_rows: u64,
    /// Rows that the condition matched (`CLIENT_FOUND_ROWS` shows these).
    pub matched_rows: u64,
    /// MySQL's info string (`Records: 3  Duplicates: 0  Warnings: 0`).
    pub info: String,
    /// When it committed; `None` inside a transaction.
    pub commit_ts: Option<Timestamp>,
}
