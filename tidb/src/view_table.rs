//! The table of a view on a TiDB cluster: which key it may have, and the DDL that creates it.
//!
//! The table is made through TiDB's SQL, so that ids, schema versions and all servers' caches are right. It
//! has the view's columns and a clustered primary key, or no key at all and the hidden row id as handle;
//! never anything that would need records beside the rows': no index, no NONCLUSTERED key. What TiDB then
//! made of it is compared by [`crate::verify_view_table`].

use std::fmt::Write;

use thiserror::Error;
use types::{Error, Result};

use crate::schema::{ColumnInfo, ColumnType, KEY_BYTES_MAX, TableInfo};

/// The most columns of a key.
pub const KEY_COLUMNS_MAX: usize = 16;
/// The most characters of a name.
const NAME_CHARACTERS_MAX: usize = 64;
/// The most columns of a table in TiDB, as it comes (`table-column-count-limit`).
const COLUMNS_MAX: usize = 1017;
/// Names of columns that TiDB keeps for itself.
const RESERVED: [&str; 3] = ["_tidb_rowid", "_tidb_tid", "_tidb_commit_ts"];

/// How the names begin of tables that are no view's yet.
pub const FILL_TABLE_PREFIX: &str = "_tidemill_fill_";
/// How the names begin of tables that are no view's any more.
const OLD_TABLE_PREFIX: &str = "_tidemill_old_";

/// The name of a view's table until the view is published.
#[must_use]
pub fn fill_table_name(number: u64) -> String {
    format!("{FILL_TABLE_PREFIX}{number}")
}

/// The name of a view's table when the view is replaced or dropped, until it is dropped too.
#[must_use]
pub fn old_table_name(number: u64) -> String {
    format!("{OLD_TABLE_PREFIX}{number}")
}

/// Whether a name is one that only tables of views have, before and after they are a view's.
#[must_use]
pub fn is_reserved_table_name(name: &str) -> bool {
    let name = name.to_lowercase();
    name.starts_with(FILL_TABLE_PREFIX) || name.starts_with(OLD_TABLE_PREFIX)
}

/// Why columns cannot be a clustered primary key in TiDB.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeyRefusal {
    /// There is no such column.
    #[error("key column {0} is not there")]
    NoColumn(usize),
    /// A column stands in the key twice.
    #[error("column `{0}` is twice in the key")]
    Twice(String),
    /// A column may be NULL.
    #[error("column `{0}` may be NULL")]
    Nullable(String),
    /// A TEXT or BLOB.
    #[error("column `{0}` has a type that no key may have")]
    Type(String),
    /// More than 16 columns.
    #[error("a key of {0} columns, at most {max} are allowed", max = KEY_COLUMNS_MAX)]
    TooManyColumns(usize),
    /// Values may be longer in all than a key may.
    #[error("a key of {0} bytes, at most {max} are allowed", max = KEY_BYTES_MAX)]
    TooLong(u64),
}

/// Whether TiDB allows a clustered primary key over columns, by their positions.
///
/// # Errors
/// The first rule that the key breaks.
pub fn check_clustered_key(columns: &[ColumnInfo], key: &[usize]) -> Result<(), KeyRefusal> {
    let mut n_bytes = 0;
    for (at, position) in key.iter().enumerate() {
        let column = columns.get(*position).ok_or(KeyRefusal::NoColumn(*position))?;
        let name = || column.name.clone();
        if key[..at].contains(position) {
            return Err(KeyRefusal::Twice(name()));
        }
        if !column.not_null {
            return Err(KeyRefusal::Nullable(name()));
        }
        n_bytes += column.column_type.key_bytes().ok_or_else(|| KeyRefusal::Type(name()))?;
    }
    if key.len() > KEY_COLUMNS_MAX {
        return Err(KeyRefusal::TooManyColumns(key.len()));
    }
    if n_bytes > KEY_BYTES_MAX {
        return Err(KeyRefusal::TooLong(n_bytes));
    }
    Ok(())
}

/// The statement that creates a view's table in TiDB.
///
/// # Errors
/// `Invalid` if TiDB would refuse it: a name, a type, the number of columns, the key.
pub fn view_table_ddl(database: &str, table: &TableInfo) -> Result<String> {
    for name in [database, table.name.as_str()] {
        check_name(name)?;
    }
    let bad = |what: String| Err(Error::invalid(format!("table `{}` in TiDB: {what}", table.name)));
    if table.columns.is_empty() || table.columns.len() > COLUMNS_MAX {
        return bad(format!("{} columns, 1 to {COLUMNS_MAX} are allowed", table.columns.len()));
    }
    if let Err(refusal) = check_clustered_key(&table.columns, &table.primary_key) {
        return bad(refusal.to_string());
    }
    let mut ddl = format!("CREATE TABLE {}.{} (", quoted(database), quoted(&table.name));
    for (at, column) in table.columns.iter().enumerate() {
        check_name(&column.name)?;
        if RESERVED.iter().any(|reserved| column.name.eq_ignore_ascii_case(reserved)) {
            return bad(format!("the column name `{}` is TiDB's own", column.name));
        }
        let separator = if at == 0 { "" } else { ", " };
        let null = if column.not_null { "NOT NULL" } else { "NULL" };
        let declared = declared_type(&column.column_type).or_else(bad)?;
        // Writing to a string cannot fail.
        let _ = write!(ddl, "{separator}{} {declared} {null}", quoted(&column.name));
    }
    if !table.primary_key.is_empty() {
        let names: Vec<String> =
            table.primary_key.iter().map(|at| quoted(&table.columns[*at].name)).collect();
        let _ = write!(ddl, ", PRIMARY KEY ({}) /*T![clustered_index] CLUSTERED */", names.join(", "));
    }
    ddl.push_str(") DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin");
    Ok(ddl)
}

/// A name as SQL writes it: between backquotes, which are doubled inside.
#[must_use]
pub fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// The type that a column has once its table is there: TEXT and BLOB come in four sizes only.
pub(crate) fn created_type(column_type: &ColumnType) -> ColumnType {
    let size = |bytes: u32| match bytes {
        0..=255 => 255,
        256..=65_535 => 65_535,
        65_536..=16_777_215 => 16_777_215,
        _ => u32::MAX,
    };
    match column_type {
        ColumnType::Text(bytes) => ColumnType::Text(size(*bytes)),
        ColumnType::Blob(bytes) => ColumnType::Blob(size(*bytes)),
        other => other.clone(),
    }
}

fn check_name(name: &str) -> Result<()> {
    let good = !name.is_empty()
        && name.chars().count() <= NAME_CHARACTERS_MAX
        && !name.ends_with(' ')
        && name.chars().all(|character| character != '\0' && u32::from(character) <= 0xffff);
    if good { Ok(()) } else { Err(Error::invalid(format!("{} is no name in TiDB", quoted(name)))) }
}

fn declared_type(column_type: &ColumnType) -> std::result::Result<String, String> {
    let limited = |name: &str, n: u32, max: u32| match n {
        n if n <= max => Ok(format!("{name}({n})")),
        n => Err(format!("{name}({n}) is too long, {max} is the most")),
    };
    let text = |declared: String| format!("{declared} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin");
    Ok(match *column_type {
        ColumnType::Char(n) => text(limited("CHAR", n, 255)?),
        ColumnType::Varchar(n) => text(limited("VARCHAR", n, 16_383)?),
        ColumnType::Text(_) => text(column_type.to_string().to_uppercase()),
        ColumnType::Binary(n) => limited("BINARY", n, 255)?,
        ColumnType::Varbinary(n) => limited("VARBINARY", n, 65_535)?,
        ColumnType::Datetime(fsp) => format!("DATETIME({fsp})"),
        ColumnType::Timestamp(fsp) => format!("TIMESTAMP({fsp})"),
        _ => column_type.to_string().to_uppercase(),
    })
}
