//! The answer of a query: columns, a stream of rows, and how it was read.

use std::fmt;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::stream::BoxStream;
use tidb::ColumnType;
use types::{Result, Timestamp};

/// Batches of an answer, in the schema of its columns.
pub type RowStream = BoxStream<'static, Result<RecordBatch>>;

/// A column of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultColumn {
    /// The name, as the client sees it.
    pub name: String,
    /// The type; `None` for a bare NULL.
    pub column_type: Option<ColumnType>,
    /// Whether the column may be NULL.
    pub nullable: bool,
    /// The table it comes from, if it is a table's column.
    pub table: Option<String>,
    /// The database of that table.
    pub database: Option<String>,
}

/// The answer of a query.
pub struct QueryResult {
    /// The columns.
    pub columns: Vec<ResultColumn>,
    /// The Arrow schema of the batches, one field a column.
    pub schema: SchemaRef,
    /// The rows.
    pub batches: RowStream,
    /// The one timestamp that everything was read at (`@@tidemill_last_read_ts`).
    pub read_ts: Timestamp,
    /// How each view of the statement was read.
    pub paths: Vec<ViewPath>,
}

impl fmt::Debug for QueryResult {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("QueryResult")
            .field("columns", &self.columns)
            .field("read_ts", &self.read_ts)
            .field("paths", &self.paths)
            .finish_non_exhaustive()
    }
}

/// How a view was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPath {
    /// Stored rows: nothing changed since the cut.
    Fresh,
    /// Stored rows merged with the read fix.
    Hybrid,
    /// The view's query over the base tables.
    Live,
    /// Stored rows as of the cut.
    Stale,
}

impl fmt::Display for ReadPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            ReadPath::Fresh => "Fresh",
            ReadPath::Hybrid => "Hybrid",
            ReadPath::Live => "Live",
            ReadPath::Stale => "Stale",
        })
    }
}

/// How one view of a statement was read, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewPath {
    /// The view, qualified by its database.
    pub view: String,
    /// The path.
    pub path: ReadPath,
    /// S_k of the checkpoint that the path builds on; zero if there is none.
    pub cut: Timestamp,
    /// The timestamp whose answer it is.
    pub read: Timestamp,
    /// Why this path.
    pub reason: String,
}

impl fmt::Display for ViewPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ViewPath { view, path, cut, read, reason } = self;
        write!(formatter, "ReadPath: {view}={path} cut={cut} read={read} ({reason})")
    }
}
