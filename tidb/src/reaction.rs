//! What a changed definition of a table means for a job that reads it.
//!
//! Rows are decoded by the ids of their columns, so most changes do not touch what a job reads. A change of
//! the rows' ids, of the handle, or of a used column does, and TiDB writes no row changes for it: the job
//! finishes what came before and begins anew. What happens to a column that no job uses does not matter.

use std::collections::BTreeSet;

use thiserror::Error;

use crate::field_type::NewCollations;
use crate::meta_table::{MetaColumn, MetaTable, STATE_PUBLIC};
use crate::refusal::{ColumnRefusal, TableRefusal};
use crate::schema::ColumnType;
use crate::source_table::refuse_table;

/// What a running job must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Nothing: the rows it reads mean what they meant.
    Keep,
    /// Stop just before the change and begin anew from what is there then.
    Rebuild(Vec<RebuildReason>),
    /// Stop for good: what it reads is no longer there.
    Gone(Gone),
    /// Stop for now, loudly: the table is no longer one that can be read.
    Refused(TableRefusal),
}

/// Why a job must begin anew.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RebuildReason {
    /// The table has another id: it was truncated, exchanged, or dropped and created.
    #[error("the table was replaced: its id was {old} and is {new}")]
    TableId {
        /// The id before.
        old: i64,
        /// The id now.
        new: i64,
    },
    /// Rows live under other ids: partitions came, went or were emptied.
    #[error("partitions changed: {} gone, {} new", removed.len(), added.len())]
    PhysicalIds {
        /// Ids that are new.
        added: Vec<i64>,
        /// Ids that are gone.
        removed: Vec<i64>,
    },
    /// Keys of rows are made in another way.
    #[error("the clustered primary key changed")]
    Key,
    /// A used column was replaced by one of the same name.
    #[error("column `{name}` was replaced")]
    ColumnReplaced {
        /// The name.
        name: String,
        /// The id before.
        old: i64,
        /// The id now.
        new: i64,
    },
    /// A used column has another type.
    #[error("column `{name}` has another type")]
    ColumnType {
        /// The name.
        name: String,
        /// What it was.
        old: Result<ColumnType, ColumnRefusal>,
        /// What it is.
        new: Result<ColumnType, ColumnRefusal>,
    },
    /// A used column began or ceased to allow NULL.
    #[error("column `{name}` began or ceased to be NOT NULL")]
    Nullability {
        /// The name.
        name: String,
    },
    /// A used text column compares in another way.
    #[error("column `{name}` has the collation {new}, it had {old}")]
    Collation {
        /// The name.
        name: String,
        /// What it was.
        old: String,
        /// What it is.
        new: String,
    },
    /// The value of rows older than a used column is another one.
    #[error("column `{name}` has another value in rows older than itself")]
    OriginDefault {
        /// The name.
        name: String,
    },
    /// Rows were written without transactions.
    #[error("the table was imported or restored")]
    Imported,
}

/// What is no longer there.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Gone {
    /// The table was dropped, or is being dropped.
    #[error("the table was dropped")]
    Table,
    /// A used column was dropped.
    #[error("column `{0}` was dropped")]
    Column(String),
}

/// What a job that reads the columns of the given ids must do when a table's definition changes.
///
/// `new` is what the table's name stands for after the change, or what its id does if it was renamed; `None`
/// if neither is there. Columns of the clustered primary key count as used.
#[must_use]
pub fn react(old: &MetaTable, new: Option<&MetaTable>, used: &[i64], collations: NewCollations) -> Reaction {
    let Some(new) = new.filter(|new| new.state == STATE_PUBLIC) else { return Reaction::Gone(Gone::Table) };
    if let Err(refusal) = refuse_table(new) {
        return Reaction::Refused(refusal);
    }
    let mut reasons = Vec::new();
    if old.id != new.id {
        reasons.push(RebuildReason::TableId { old: old.id, new: new.id });
    } else if let Some(reason) = physical_reason(old, new) {
        reasons.push(reason);
    }
    if old.mode != 0 {
        reasons.push(RebuildReason::Imported);
    }
    let (old_key, new_key) = (key_columns(old), key_columns(new));
    // A truncated table keeps its columns' ids; one that was dropped and created need not.
    if old.id == new.id && (old_key != new_key || handle_form(old) != handle_form(new)) {
        reasons.push(RebuildReason::Key);
    }
    let used: BTreeSet<i64> = used.iter().copied().chain(old_key.iter().map(|(id, _)| *id)).collect();
    let public = new.public_columns();
    let by_name = |name: &str| public.iter().copied().find(|other| other.name.eq_ignore_ascii_case(name));
    for column in old.public_columns().into_iter().filter(|column| used.contains(&column.id)) {
        if let Some(same) = public.iter().copied().find(|other| other.id == column.id && old.id == new.id) {
            reasons.extend(column_reasons((old, column), (new, same), collations));
        } else if let Some(same) = by_name(&column.name) {
            if same.id != column.id {
                let name = column.name.clone();
                reasons.push(RebuildReason::ColumnReplaced { name, old: column.id, new: same.id });
            }
            reasons.extend(column_reasons((old, column), (new, same), collations));
        } else {
            return Reaction::Gone(Gone::Column(column.name.clone()));
        }
    }
    if reasons.is_empty() { Reaction::Keep } else { Reaction::Rebuild(reasons) }
}

fn physical_reason(old: &MetaTable, new: &MetaTable) -> Option<RebuildReason> {
    let old: BTreeSet<i64> = old.physical_ids().into_iter().collect();
    let new: BTreeSet<i64> = new.physical_ids().into_iter().collect();
    (old != new).then(|| RebuildReason::PhysicalIds {
        added: new.difference(&old).copied().collect(),
        removed: old.difference(&new).copied().collect(),
    })
}

/// Which of the three kinds of handle a table has.
fn handle_form(table: &MetaTable) -> (bool, bool) {
    (table.pk_is_handle, table.is_common_handle)
}

/// The clustered key's columns, by id, with the lengths that count.
fn key_columns(table: &MetaTable) -> Vec<(i64, i64)> {
    let key = table.clustered_key().unwrap_or_default();
    key.into_iter().map(|(column, length)| (column.id, length)).collect()
}

fn column_reasons(
    (old_table, old): (&MetaTable, &MetaColumn),
    (new_table, new): (&MetaTable, &MetaColumn),
    collations: NewCollations,
) -> Vec<RebuildReason> {
    let name = || new.name.clone();
    let mut reasons = Vec::new();
    let old_type = old.field_type.column_type(old_table, collations);
    let new_type = new.field_type.column_type(new_table, collations);
    let collation = |table, column: &MetaColumn| column.field_type.text_collation(table);
    match (collation(old_table, old), collation(new_table, new)) {
        (Some(old), Some(new)) if old != new => {
            reasons.push(RebuildReason::Collation { name: name(), old, new });
        }
        _ => {}
    }
    if old_type != new_type && reasons.is_empty() {
        reasons.push(RebuildReason::ColumnType { name: name(), old: old_type, new: new_type });
    }
    if old.field_type.is_not_null() != new.field_type.is_not_null() {
        reasons.push(RebuildReason::Nullability { name: name() });
    }
    if old.origin_default != new.origin_default {
        reasons.push(RebuildReason::OriginDefault { name: name() });
    }
    reasons
}
