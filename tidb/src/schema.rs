//! Table definitions, in the JSON of TiDB's meta keys as far as Tidemill uses it.

use std::sync::Arc;

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Field, Schema, SchemaRef, TimeUnit};
use serde::{Deserialize, Serialize};
use types::{Error, Result, TableId};

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

impl ColumnType {
    /// The Arrow type of the column's values.
    #[must_use]
    pub fn arrow_type(&self) -> DataType {
        match *self {
            ColumnType::Int { bits: 8, unsigned: false } => DataType::Int8,
            ColumnType::Int { bits: 16, unsigned: false } => DataType::Int16,
            ColumnType::Int { bits: 24 | 32, unsigned: false } => DataType::Int32,
            ColumnType::Int { unsigned: false, .. } => DataType::Int64,
            ColumnType::Int { bits: 8, unsigned: true } => DataType::UInt8,
            ColumnType::Int { bits: 16, unsigned: true } => DataType::UInt16,
            ColumnType::Int { bits: 24 | 32, unsigned: true } => DataType::UInt32,
            ColumnType::Int { unsigned: true, .. } => DataType::UInt64,
            ColumnType::Float => DataType::Float32,
            ColumnType::Double => DataType::Float64,
            ColumnType::Decimal { precision, scale } if precision <= DECIMAL128_MAX_PRECISION => {
                DataType::Decimal128(precision, scale as i8)
            }
            ColumnType::Decimal { precision, scale } => DataType::Decimal256(precision, scale as i8),
            ColumnType::Char(_) | ColumnType::Varchar(_) | ColumnType::Text(_) => DataType::Utf8,
            ColumnType::Binary(_) | ColumnType::Varbinary(_) | ColumnType::Blob(_) => DataType::Binary,
            ColumnType::Date => DataType::Date32,
            ColumnType::Datetime(_) => DataType::Timestamp(TimeUnit::Microsecond, None),
            ColumnType::Timestamp(_) => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        }
    }

    /// Whether it is a text under utf8mb4_bin.
    #[must_use]
    pub fn is_text(&self) -> bool {
        matches!(self, ColumnType::Char(_) | ColumnType::Varchar(_) | ColumnType::Text(_))
    }

    /// Whether it is a text, or a string of bytes.
    pub(crate) fn is_string(&self) -> bool {
        let bytes = matches!(self, ColumnType::Binary(_) | ColumnType::Varbinary(_) | ColumnType::Blob(_));
        bytes || self.is_text()
    }

    /// Whether a value in a key is not the value itself, so that the row must store it as well: the key
    /// holds a sort key. CHAR has no trailing spaces to lose.
    #[must_use]
    pub fn needs_restored_data(&self) -> bool {
        matches!(self, ColumnType::Varchar(_) | ColumnType::Text(_))
    }

    /// Whether values may stand in the clustered primary key of a table.
    #[must_use]
    pub fn allowed_in_key(&self) -> bool {
        self.key_bytes().is_some()
    }

    /// The most bytes that a value takes of a key's limit, four for a character; `None` for a type that no
    /// key may have.
    #[must_use]
    pub fn key_bytes(&self) -> Option<u64> {
        match *self {
            ColumnType::Int { bits, .. } => Some(u64::from(bits / 8)),
            ColumnType::Float => Some(4),
            ColumnType::Double | ColumnType::Datetime(_) => Some(8),
            ColumnType::Decimal { precision, .. } => Some(u64::from(precision) / 2 + 1),
            ColumnType::Char(characters) | ColumnType::Varchar(characters) => Some(u64::from(characters) * 4),
            ColumnType::Binary(bytes) | ColumnType::Varbinary(bytes) => Some(u64::from(bytes)),
            ColumnType::Date => Some(3),
            ColumnType::Timestamp(_) => Some(7),
            ColumnType::Text(_) | ColumnType::Blob(_) => None,
        }
    }
}

/// The most bytes of a declared key, as in MySQL.
pub const KEY_BYTES_MAX: u64 = 3072;

/// Whether columns of these types may be a key together: each may be in one, and together they stay within
/// [`KEY_BYTES_MAX`].
pub fn is_possible_key<'a>(types: impl IntoIterator<Item = &'a ColumnType>) -> bool {
    let mut bytes = types.into_iter().map(ColumnType::key_bytes);
    bytes.try_fold(0, |sum: u64, bytes| Some(sum + bytes?)).is_some_and(|sum| sum <= KEY_BYTES_MAX)
}

impl ColumnInfo {
    /// The Arrow field of the column.
    #[must_use]
    pub fn arrow_field(&self) -> Field {
        Field::new(&self.name, self.column_type.arrow_type(), !self.not_null)
    }
}

impl TableInfo {
    /// The Arrow schema of the table's rows.
    #[must_use]
    pub fn arrow_schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.columns.iter().map(ColumnInfo::arrow_field).collect::<Vec<_>>()))
    }

    /// The id as the rest of Tidemill writes it.
    ///
    /// # Panics
    /// If the id is negative: no allocator gives such ones.
    #[must_use]
    pub fn table_id(&self) -> TableId {
        TableId(u64::try_from(self.id).expect("ids of tables are not negative"))
    }

    /// Checks that the parts of the definition fit together.
    ///
    /// # Errors
    /// `Invalid` if not: a key column that is not there, twice, nullable or of a type that no key may have;
    /// `pk_is_handle` over anything but one integer; a column id twice or out of range.
    pub fn validate(&self) -> Result<()> {
        let bad = |what: &str| Err(Error::invalid(format!("table `{}`: {what}", self.name)));
        for (at, key_column) in self.primary_key.iter().enumerate() {
            let Some(column) = self.columns.get(*key_column) else {
                return bad(&format!("key column {key_column} is not there"));
            };
            if self.primary_key[..at].contains(key_column) {
                return bad(&format!("column `{}` is twice in the primary key", column.name));
            }
            if !column.not_null {
                return bad(&format!("key column `{}` may be NULL", column.name));
            }
            if !column.column_type.allowed_in_key() {
                return bad(&format!("column `{}` has a type that no key may have", column.name));
            }
        }
        let one_integer = match self.primary_key.as_slice() {
            [one] => matches!(self.columns[*one].column_type, ColumnType::Int { .. }),
            _ => false,
        };
        if self.pk_is_handle && !one_integer {
            return bad("the handle is a primary key of one integer column only");
        }
        let mut ids: Vec<i64> = self.columns.iter().map(|column| column.id).collect();
        ids.sort_unstable();
        if ids.windows(2).any(|pair| pair[0] == pair[1]) {
            return bad("a column id is used twice");
        }
        if ids.iter().any(|id| !(1..=i64::from(u32::MAX)).contains(id)) || ids.len() > 4096 {
            return bad("a column id is out of range, or there are too many columns");
        }
        Ok(())
    }

    /// Whether the row's handle is a hidden row id, because there is no primary key.
    #[must_use]
    pub fn has_hidden_handle(&self) -> bool {
        self.primary_key.is_empty()
    }

    /// The position of a column by name, compared in lower case.
    #[must_use]
    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name.eq_ignore_ascii_case(name))
    }
}
