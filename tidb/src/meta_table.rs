//! Databases and tables as TiDB writes them: the JSON under the meta keys.
//!
//! Only what is needed is read; fields that nobody here knows are passed over, missing ones and `null` are
//! empty, and a name is `{"O": as declared, "L": in lower case}` or, in old clusters, a plain string. What
//! the definitions mean for Tidemill says [`crate::SourceTable`].

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use types::{Error, Result};

/// The state of what everybody sees; all others are steps of a change of the schema.
pub const STATE_PUBLIC: u8 = 5;

/// A database.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct MetaDatabase {
    /// The id.
    pub id: i64,
    /// The name as declared.
    #[serde(rename = "db_name", deserialize_with = "name")]
    pub name: String,
    /// The character set of tables that name none.
    #[serde(default, deserialize_with = "or_default")]
    pub charset: String,
    /// The collation of tables that name none.
    #[serde(default, deserialize_with = "or_default")]
    pub collate: String,
    /// [`STATE_PUBLIC`], or a step of being created or dropped.
    #[serde(default)]
    pub state: u8,
}

/// A table, view or sequence.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct MetaTable {
    /// The id; that of the rows as well if the table is not partitioned.
    pub id: i64,
    /// The name as declared.
    #[serde(deserialize_with = "name")]
    pub name: String,
    /// The character set of columns that name none.
    #[serde(default, deserialize_with = "or_default")]
    pub charset: String,
    /// The collation of columns that name none.
    #[serde(default, deserialize_with = "or_default")]
    pub collate: String,
    /// All columns, those in the middle of a change too.
    #[serde(default, rename = "cols", deserialize_with = "or_default")]
    pub columns: Vec<MetaColumn>,
    /// All indexes, those in the middle of a change too; none stands here for a key that is one integer.
    #[serde(default, rename = "index_info", deserialize_with = "or_default")]
    pub indexes: Vec<MetaIndex>,
    /// How many foreign keys it has.
    #[serde(default, rename = "fk_info", deserialize_with = "count")]
    pub n_foreign_keys: usize,
    /// How many CHECK constraints it has.
    #[serde(default, rename = "constraint_info", deserialize_with = "count")]
    pub n_constraints: usize,
    /// [`STATE_PUBLIC`], or a step of being created or dropped.
    #[serde(default)]
    pub state: u8,
    /// Whether the primary key is one integer column, and the handle itself.
    #[serde(default)]
    pub pk_is_handle: bool,
    /// Whether the primary key's datums are the handle.
    #[serde(default)]
    pub is_common_handle: bool,
    /// The comment.
    #[serde(default, deserialize_with = "or_default")]
    pub comment: String,
    /// More than 0 if the primary key is filled with random numbers.
    #[serde(default)]
    pub auto_random_bits: u64,
    /// Its partitions, if it was declared with some.
    #[serde(default)]
    pub partition: Option<MetaPartitioning>,
    /// Whether it is a view.
    #[serde(default, rename = "view", deserialize_with = "is_there")]
    pub is_view: bool,
    /// Whether it is a sequence.
    #[serde(default, rename = "sequence", deserialize_with = "is_there")]
    pub is_sequence: bool,
    /// More than 0 for a temporary table.
    #[serde(default)]
    pub temp_table_type: u8,
    /// More than 0 if TiDB servers cache the table, or are changing whether they do.
    #[serde(default)]
    pub cache_table_status: u8,
    /// Whether an exchange of a partition with this table, or of one of its own, is going on.
    #[serde(default, rename = "exchange_partition_info", deserialize_with = "is_there")]
    pub is_exchanging: bool,
    /// Whether rows are deleted when they get old.
    #[serde(default, rename = "ttl_info", deserialize_with = "is_there")]
    pub has_ttl: bool,
    /// 0, or 1 while IMPORT INTO and 2 while a restore writes behind the transactions' back.
    #[serde(default)]
    pub mode: u8,
    /// The number of changes of the definition.
    #[serde(default)]
    pub revision: u64,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct MetaColumn {
    /// The id in row values.
    pub id: i64,
    /// The name as declared.
    #[serde(deserialize_with = "name")]
    pub name: String,
    /// The position.
    pub offset: usize,
    /// The value of rows written before the column was added.
    #[serde(default)]
    pub origin_default: Value,
    /// The default of the DEFAULT clause.
    #[serde(default)]
    pub default: Value,
    /// The expression of a generated column, or nothing.
    #[serde(default, rename = "generated_expr_string", deserialize_with = "or_default")]
    pub generated: String,
    /// Whether a generated column stands in the rows.
    #[serde(default)]
    pub generated_stored: bool,
    /// The type.
    #[serde(rename = "type")]
    pub field_type: MetaFieldType,
    /// Whether the type is being changed in place.
    #[serde(default, rename = "changing_type", deserialize_with = "is_there")]
    pub is_changing: bool,
    /// [`STATE_PUBLIC`], or a step of a change.
    #[serde(default)]
    pub state: u8,
    /// Whether it belongs to an index over an expression and is nobody's to see.
    #[serde(default)]
    pub hidden: bool,
    /// From 1 on, defaults of TIMESTAMP columns are in UTC.
    #[serde(default)]
    pub version: u64,
}

/// A column's type, in MySQL's numbers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct MetaFieldType {
    /// The code of the type.
    pub tp: u8,
    /// Bits: 1 NOT NULL, 2 primary key, 32 unsigned, 512 AUTO_INCREMENT, 8192 ON UPDATE.
    #[serde(default)]
    pub flag: u64,
    /// The length, or the digits in all.
    #[serde(default)]
    pub flen: i64,
    /// Digits after the point.
    #[serde(default)]
    pub decimal: i64,
    /// The character set.
    #[serde(default, deserialize_with = "or_default")]
    pub charset: String,
    /// The collation.
    #[serde(default, deserialize_with = "or_default")]
    pub collate: String,
    /// The names of an ENUM or SET.
    #[serde(default, deserialize_with = "or_default")]
    pub elems: Vec<String>,
}

/// An index.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct MetaIndex {
    /// The id.
    pub id: i64,
    /// The name as declared.
    #[serde(rename = "idx_name", deserialize_with = "name")]
    pub name: String,
    /// Its columns, in order.
    #[serde(default, rename = "idx_cols", deserialize_with = "or_default")]
    pub columns: Vec<MetaIndexColumn>,
    /// [`STATE_PUBLIC`], or a step of a change.
    #[serde(default)]
    pub state: u8,
    /// Whether it is the primary key.
    #[serde(default, rename = "is_primary")]
    pub primary: bool,
    /// Whether it is unique.
    #[serde(default, rename = "is_unique")]
    pub unique: bool,
}

/// A column of an index.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct MetaIndexColumn {
    /// The position in `MetaTable::columns`.
    pub offset: usize,
    /// How many characters or bytes of it count; -1 for all.
    pub length: i64,
}

/// How a table is partitioned.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct MetaPartitioning {
    /// Whether rows live in the partitions at all; tables of old clusters may say no.
    #[serde(default)]
    pub enable: bool,
    /// The partitions.
    #[serde(default, deserialize_with = "or_default")]
    pub definitions: Vec<MetaPartition>,
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct MetaPartition {
    /// The id of its rows.
    pub id: i64,
    /// The name as declared.
    #[serde(deserialize_with = "name")]
    pub name: String,
}

/// What a schema version changed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct MetaDiff {
    /// The version.
    pub version: i64,
    /// The number of the action.
    #[serde(rename = "type")]
    pub action: u8,
    /// The database.
    #[serde(default)]
    pub schema_id: i64,
    /// The table, after the change.
    #[serde(default)]
    pub table_id: i64,
    /// The table before the change, where the id changed.
    #[serde(default)]
    pub old_table_id: i64,
    /// The database before the change, where the table moved.
    #[serde(default)]
    pub old_schema_id: i64,
}

impl MetaDatabase {
    /// Reads the value of a [`crate::MetaKey::Database`].
    ///
    /// # Errors
    /// `Corrupt` if it is not such a JSON.
    pub fn parse(value: &[u8]) -> Result<MetaDatabase> {
        parse("database", value)
    }
}

impl MetaTable {
    /// Reads the value of a [`crate::MetaKey::Table`].
    ///
    /// # Errors
    /// `Corrupt` if it is not such a JSON.
    pub fn parse(value: &[u8]) -> Result<MetaTable> {
        parse("table", value)
    }

    /// The columns that everybody sees, in order.
    #[must_use]
    pub fn public_columns(&self) -> Vec<&MetaColumn> {
        let seen = |column: &&MetaColumn| column.state == STATE_PUBLIC && !column.hidden;
        let mut columns: Vec<&MetaColumn> = self.columns.iter().filter(seen).collect();
        columns.sort_by_key(|column| column.offset);
        columns
    }

    /// The ids under which the rows live: the partitions', or the table's own.
    #[must_use]
    pub fn physical_ids(&self) -> Vec<i64> {
        match &self.partition {
            Some(partitioning) if partitioning.enable => {
                partitioning.definitions.iter().map(|partition| partition.id).collect()
            }
            _ => vec![self.id],
        }
    }

    /// Whether rows live in partitions.
    #[must_use]
    pub fn is_partitioned(&self) -> bool {
        self.partition.as_ref().is_some_and(|partitioning| partitioning.enable)
    }

    /// The columns of the clustered primary key, in order, each with the length that counts (-1: all);
    /// empty if the handle is a hidden row id. `None` if the definition contradicts itself.
    #[must_use]
    pub fn clustered_key(&self) -> Option<Vec<(&MetaColumn, i64)>> {
        if self.pk_is_handle {
            let is_key =
                |column: &&MetaColumn| column.state == STATE_PUBLIC && column.field_type.is_primary();
            let mut keys = self.columns.iter().filter(is_key);
            return match (keys.next(), keys.next()) {
                (Some(column), None) => Some(vec![(column, -1)]),
                _ => None,
            };
        }
        if !self.is_common_handle {
            return Some(Vec::new());
        }
        let primary = self.indexes.iter().find(|index| index.primary)?;
        let column = |key: &MetaIndexColumn| Some((self.columns.get(key.offset)?, key.length));
        primary.columns.iter().map(column).collect::<Option<Vec<_>>>().filter(|key| !key.is_empty())
    }
}

impl MetaColumn {
    /// Whether the column is computed when it is read and stands in no row.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        !self.generated.is_empty() && !self.generated_stored
    }
}

impl MetaFieldType {
    /// Whether NULL is refused.
    #[must_use]
    pub fn is_not_null(&self) -> bool {
        self.flag & 1 != 0
    }

    /// Whether the column is of the primary key.
    #[must_use]
    pub fn is_primary(&self) -> bool {
        self.flag & 2 != 0
    }

    /// Whether the numbers have no sign.
    #[must_use]
    pub fn is_unsigned(&self) -> bool {
        self.flag & 32 != 0
    }

    /// Whether TiDB numbers the rows by the column.
    #[must_use]
    pub fn is_auto_increment(&self) -> bool {
        self.flag & 512 != 0
    }

    /// Whether TiDB sets the column to the time of each update.
    #[must_use]
    pub fn is_on_update_now(&self) -> bool {
        self.flag & 8192 != 0
    }
}

impl MetaDiff {
    /// Reads the value of a [`crate::MetaKey::Diff`].
    ///
    /// # Errors
    /// `Corrupt` if it is not such a JSON.
    pub fn parse(value: &[u8]) -> Result<MetaDiff> {
        parse("schema diff", value)
    }
}

fn parse<T: DeserializeOwned>(what: &str, value: &[u8]) -> Result<T> {
    serde_json::from_slice(value).map_err(|error| Error::corrupt(format!("definition of a {what}: {error}")))
}

fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Pair {
            #[serde(rename = "O")]
            original: String,
        },
        Plain(String),
    }
    Form::deserialize(deserializer).map(|form| match form {
        Form::Pair { original } | Form::Plain(original) => original,
    })
}

fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

fn is_there<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Option::<IgnoredAny>::deserialize(deserializer).map(|found| found.is_some())
}

fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    or_default::<D, Vec<IgnoredAny>>(deserializer).map(|found| found.len())
}
