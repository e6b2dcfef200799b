//! Whether a table in TiDB is still the table of a view: exactly its columns and its key, and nothing that
//! writing rows alone would leave wrong.
//!
//! Asked after the table was created and whenever its definition changes: someone may have altered it by
//! hand. Comments, statistics, replicas and placement do not matter, nor does the order in which TiDB
//! numbered the columns: rows are written by the ids that TiDB gave.

use thiserror::Error;

use crate::field_type::NewCollations;
use crate::meta_table::{MetaColumn, MetaTable, STATE_PUBLIC};
use crate::refusal::{ColumnRefusal, TableRefusal};
use crate::schema::{ColumnInfo, ColumnType, TableInfo};
use crate::source_table::refuse_table;
use crate::view_table::created_type;

/// What is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ViewDifference {
    /// It is no ordinary table.
    #[error("the table {0}")]
    Table(TableRefusal),
    /// A column is not there.
    #[error("column `{0}` is not there")]
    Missing(String),
    /// A column is there that is not the view's, or not public.
    #[error("column `{0}` is not the view's")]
    Extra(String),
    /// The columns stand in another order.
    #[error("the columns stand in another order")]
    Order,
    /// A column has another type.
    #[error("column `{column}` is {found:?}, not {expected:?}")]
    Type {
        /// The column.
        column: String,
        /// What it must be.
        expected: ColumnType,
        /// What it is.
        found: ColumnType,
    },
    /// A column has a type, a collation or a default that cannot be written.
    #[error("column `{column}` {refusal}")]
    Refused {
        /// The column.
        column: String,
        /// Why not.
        refusal: ColumnRefusal,
    },
    /// A text column has another collation than utf8mb4_bin.
    #[error("column `{column}` has the collation {found}, not utf8mb4_bin")]
    Collation {
        /// The column.
        column: String,
        /// What it has.
        found: String,
    },
    /// A column may be NULL and must not be, or the other way round.
    #[error("column `{0}` is NOT NULL and should not be, or the other way round")]
    Nullability(String),
    /// TiDB computes or numbers a column.
    #[error("column `{0}` is generated, AUTO_INCREMENT, AUTO_RANDOM or ON UPDATE")]
    Computed(String),
    /// A column has a default: TiDB would read it where a row says nothing.
    #[error("column `{0}` has a default")]
    Default(String),
    /// The type of a column is being changed.
    #[error("column `{0}` is being changed")]
    Changing(String),
    /// The clustered primary key is another one.
    #[error("the clustered primary key is ({}), not ({})", found.join(", "), expected.join(", "))]
    Key {
        /// What it must be; empty for none.
        expected: Vec<String>,
        /// What it is; empty for none, or one that is not clustered.
        found: Vec<String>,
    },
    /// There is an index, or one is being made: its records would not be written.
    #[error("there is an index `{0}`")]
    Index(String),
    /// There are foreign keys.
    #[error("there are foreign keys")]
    ForeignKeys,
    /// There are CHECK constraints.
    #[error("there are CHECK constraints")]
    Constraints,
    /// The table is partitioned.
    #[error("the table is partitioned")]
    Partitioned,
    /// Rows are deleted when they get old.
    #[error("rows have a time to live")]
    TimeToLive,
}

/// Compares a view's table with its definition in TiDB.
///
/// # Errors
/// All differences.
pub fn verify_view_table(
    expected: &TableInfo,
    actual: &MetaTable,
    collations: NewCollations,
) -> Result<(), Vec<ViewDifference>> {
    let mut differences = Vec::new();
    if let Err(refusal) = refuse_table(actual) {
        differences.push(ViewDifference::Table(refusal));
    }
    if actual.is_exchanging {
        differences.push(ViewDifference::Table(TableRefusal::Exchanging));
    }
    compare_columns(expected, actual, collations, &mut differences);
    compare_key(expected, actual, &mut differences);
    let rules = [
        (actual.n_foreign_keys > 0, ViewDifference::ForeignKeys),
        (actual.n_constraints > 0, ViewDifference::Constraints),
        (actual.partition.is_some(), ViewDifference::Partitioned),
        (actual.has_ttl, ViewDifference::TimeToLive),
    ];
    differences.extend(rules.into_iter().filter_map(|(broken, difference)| broken.then_some(difference)));
    if differences.is_empty() { Ok(()) } else { Err(differences) }
}

/// The view's table with the ids that TiDB gave: what rows must be encoded with.
///
/// # Errors
/// All differences, as [`verify_view_table`].
pub fn adopt_view_table(
    expected: &TableInfo,
    actual: &MetaTable,
    collations: NewCollations,
) -> Result<TableInfo, Vec<ViewDifference>> {
    verify_view_table(expected, actual, collations)?;
    let mut adopted = TableInfo { id: actual.id, name: actual.name.clone(), ..expected.clone() };
    for (column, found) in adopted.columns.iter_mut().zip(actual.public_columns()) {
        column.id = found.id;
        column.name.clone_from(&found.name);
        column.default = None;
        column.origin_default = None;
    }
    Ok(adopted)
}

fn compare_columns(
    expected: &TableInfo,
    actual: &MetaTable,
    collations: NewCollations,
    differences: &mut Vec<ViewDifference>,
) {
    let public = actual.public_columns();
    let same = |a: &str, b: &str| a.to_lowercase() == b.to_lowercase();
    for column in &expected.columns {
        match public.iter().find(|found| same(&found.name, &column.name)) {
            Some(found) => compare_column(column, (actual, found), collations, differences),
            None => differences.push(ViewDifference::Missing(column.name.clone())),
        }
    }
    for found in &actual.columns {
        let is_public = found.state == STATE_PUBLIC && !found.hidden;
        if !is_public || !expected.columns.iter().any(|column| same(&column.name, &found.name)) {
            differences.push(ViewDifference::Extra(found.name.clone()));
        }
    }
    let in_order = expected.columns.iter().zip(&public).all(|(a, b)| same(&a.name, &b.name));
    if !in_order && public.len() == expected.columns.len() {
        differences.push(ViewDifference::Order);
    }
}

fn compare_column(
    expected: &ColumnInfo,
    (table, found): (&MetaTable, &MetaColumn),
    collations: NewCollations,
    differences: &mut Vec<ViewDifference>,
) {
    let column = || expected.name.clone();
    let field_type = &found.field_type;
    match field_type.column_type(table, collations) {
        Ok(found) if found == created_type(&expected.column_type) => {}
        Ok(found) => {
            let expected = created_type(&expected.column_type);
            differences.push(ViewDifference::Type { column: column(), expected, found });
        }
        Err(refusal) => differences.push(ViewDifference::Refused { column: column(), refusal }),
    }
    if let Some(found) = field_type.text_collation(table).filter(|name| name != "utf8mb4_bin") {
        differences.push(ViewDifference::Collation { column: column(), found });
    }
    let is_computed = !found.generated.is_empty()
        || field_type.is_auto_increment()
        || field_type.is_on_update_now()
        || (table.auto_random_bits > 0 && field_type.is_primary());
    let rules = [
        (field_type.is_not_null() != expected.not_null, ViewDifference::Nullability(column())),
        (is_computed, ViewDifference::Computed(column())),
        (!found.default.is_null() || !found.origin_default.is_null(), ViewDifference::Default(column())),
        (found.is_changing, ViewDifference::Changing(column())),
    ];
    differences.extend(rules.into_iter().filter_map(|(broken, difference)| broken.then_some(difference)));
}

fn compare_key(expected: &TableInfo, actual: &MetaTable, differences: &mut Vec<ViewDifference>) {
    let expected_key: Vec<String> =
        expected.primary_key.iter().map(|at| expected.columns[*at].name.to_lowercase()).collect();
    let clustered = actual.clustered_key().unwrap_or_default();
    let mut found: Vec<String> = clustered.iter().map(|(column, _)| column.name.to_lowercase()).collect();
    for ((_, length), name) in clustered.iter().zip(&mut found) {
        if *length >= 0 {
            *name = format!("{name}({length})");
        }
    }
    if found != expected_key || actual.pk_is_handle != expected.pk_is_handle {
        differences.push(ViewDifference::Key { expected: expected_key, found });
    }
    let allowed = |primary: bool| primary && actual.is_common_handle;
    let others = actual.indexes.iter().filter(|index| !allowed(index.primary));
    differences.extend(others.map(|index| ViewDifference::Index(index.name.clone())));
}
