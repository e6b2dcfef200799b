//! Table definitions, in the JSON of TiDB's meta keys as far as Tidemill uses it.

use serde::{Deserialize, Serialize};

/// The type of a column: what SQL declares and rows encode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ColumnType {
    /// TINYINT (8), SMALLINT (16), MEDIUMINT (24), INT (32), BIGINT (64); BOOLEAN is TINYINT.
    Int {
        /// 8, 16, 24, 32 or 64.
        bits: u8,
        /// Whether it has no sign.
        unsigned: bool,
    },
    /// FLOAT.
    Float,
    /// DOUBLE.
    Double,
    /// DECIMAL(precision, scale), up to (65, 30).
    Decimal {
        /// Digits in all.
        precision: u8,
        /// Digits after the point.
        scale: u8,
    },
    /// CHAR(n) in characters: trailing spaces are removed on write.
    Char(u32),
    /// VARCHAR(n) in characters.
    Varchar(u32),
    /// TEXT of at most so many bytes.
    Text(u32),
    /// BINARY(n): zero-padded.
    Binary(u32),
    /// VARBINARY(n).
    Varbinary(u32),
    /// BLOB of at most so many bytes.
    Blob(u32),
    /// DATE.
    Date,
    /// DATETIME(fsp), without a zone.
    Datetime(u8),
    /// TIMESTAMP(fsp), an instant.
    Timestamp(u8),
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnInfo {
    /// The id in row values; never used again after a drop.
    pub id: i64,
    /// The name as declared.
    pub name: String,
    /// The type.
    pub column_type: ColumnType,
    /// Whether NULL is refused.
    pub not_null: bool,
    /// The default as SQL text (a literal, or CURRENT_TIMESTAMP); `None` without a DEFAULT clause.
    pub default: Option<String>,
    /// The value of rows written before the column was added.
    pub origin_default: Option<String>,
    /// The comment.
    #[serde(default)]
    pub comment: String,
}

/// A column of an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexColumn {
    /// Position in `TableInfo::columns`.
    pub offset: usize,
}

/// An index; only the primary key so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexInfo {
    /// The id.
    pub id: i64,
    /// The name.
    pub name: String,
    /// Its columns.
    pub columns: Vec<IndexColumn>,
    /// Whether it is the primary key.
    pub primary: bool,
    /// Whether it is unique.
    pub unique: bool,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableInfo {
    /// The physical id: the number in record keys.
    pub id: i64,
    /// The name as declared.
    pub name: String,
    /// The public columns, in order.
    pub columns: Vec<ColumnInfo>,
    /// The primary key's columns (positions), empty if there is none. A declared key is always clustered.
    pub primary_key: Vec<usize>,
    /// Whether the primary key is one integer column, so that it is the handle itself.
    pub pk_is_handle: bool,
    /// Further indexes.
    #[serde(default)]
    pub indexes: Vec<IndexInfo>,
    /// The comment.
    #[serde(default)]
    pub comment: String,
}
