//! What Tidemill does not read of TiDB's tables, by name: whole tables, and columns of tables.
//!
//! A refused table cannot be in any query. A refused column only matters to queries that use it: the table
//! is there without it. Refusing is loud; nothing is left out or read as something else.

use thiserror::Error;
use types::Error;

/// Why a table cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TableRefusal {
    /// A view of TiDB: it has no rows.
    #[error("is a view of TiDB")]
    View,
    /// A sequence.
    #[error("is a sequence")]
    Sequence,
    /// A temporary table: its rows are not in TiKV.
    #[error("is a temporary table")]
    Temporary,
    /// A cached table, or one that is becoming one or no longer one.
    #[error("is a cached table")]
    Cached,
    /// It is being created or dropped.
    #[error("is not public: a change of the schema is going on (state {0})")]
    NotPublic(u8),
    /// A partition is being exchanged with it, or one of its own.
    #[error("is in an exchange of partitions")]
    Exchanging,
    /// IMPORT INTO or a restore writes it without transactions.
    #[error("is being imported or restored")]
    Importing,
    /// Rows of several partitions may share a hidden row id, after an exchange.
    #[error("is partitioned and has no clustered primary key, so its rows have no identity")]
    PartitionedWithoutKey,
    /// Only the beginning of a key column is in the key.
    #[error("has a clustered primary key over a prefix of column `{column}`")]
    PrefixKey {
        /// The column.
        column: String,
    },
    /// A column of the clustered key cannot be read.
    #[error("has column `{column}` in its clustered primary key, which {refusal}")]
    KeyColumn {
        /// The column.
        column: String,
        /// Why not.
        refusal: ColumnRefusal,
    },
    /// The definition says two things at once.
    #[error("has a definition that contradicts itself: {0}")]
    Contradiction(String),
}

/// Why a column cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ColumnRefusal {
    /// Tidemill has no such type.
    #[error("has the type {0}, which is not supported")]
    Type(String),
    /// Texts compare in a way that Tidemill does not know.
    #[error("has the collation {0}, which is not supported")]
    Collation(String),
    /// The cluster compares all texts by bytes.
    #[error("is a text in a cluster without the new collations (new_collation_enabled)")]
    OldCollations,
    /// It is computed when it is read and stands in no row.
    #[error("is a virtual generated column")]
    Virtual,
    /// The value of rows older than the column is none of its type (a zero date, bytes that JSON lost).
    #[error("has the value {0} in rows older than itself, which cannot be read")]
    OriginDefault(String),
    /// The value of rows older than the column is a time in a zone that nobody wrote down.
    #[error("has a time of an unknown zone in rows older than itself")]
    OriginZone,
    /// Its type is being changed.
    #[error("is being changed")]
    Changing,
}

impl TableRefusal {
    /// The refusal as an error: MySQL 1235 with the table's name.
    #[must_use]
    pub fn of_table(&self, name: &str) -> Error {
        Error::mysql(1235, format!("table `{name}` {self}"))
    }
}

impl ColumnRefusal {
    /// The refusal as an error: MySQL 1235 with the column's name.
    #[must_use]
    pub fn of_column(&self, table: &str, column: &str) -> Error {
        Error::mysql(1235, format!("column `{column}` of table `{table}` {self}"))
    }
}
