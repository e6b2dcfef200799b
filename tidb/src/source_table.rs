//! A table of TiDB as Tidemill reads it.
//!
//! The definition here has the columns that can be read, and the clustered primary key if there is one; a
//! table without one has its hidden row id as handle. Columns that cannot be read stand beside it with the
//! reason, so that whoever names one, or all columns (`*`), is refused by name.

use crate::bounds::KeySpan;
use crate::decode::encoded_default;
use crate::field_type::NewCollations;
use crate::key::record_range;
use crate::meta_table::{MetaColumn, MetaTable, STATE_PUBLIC};
use crate::refusal::{ColumnRefusal, TableRefusal};
use crate::schema::{ColumnInfo, ColumnType, TableInfo};

/// The names of columns that stand in for a column whose type is being changed.
const CHANGING_PREFIX: &str = "_Col$_";

/// A table of TiDB as Tidemill reads it.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceTable {
    /// The columns that can be read. The id is that of the whole table: in keys stand [`Self::physical_ids`].
    pub info: TableInfo,
    /// The ids in record keys, one a partition; just the table's own if it is not partitioned.
    pub physical_ids: Vec<i64>,
    /// The columns that cannot be read.
    pub refused: Vec<RefusedColumn>,
    /// Names of columns of which the type is being changed. They are read as they are until the change is
    /// there, which rebuilds what reads them; whoever begins something new may refuse them
    /// ([`ColumnRefusal::Changing`]).
    pub changing: Vec<String>,
}

/// A public column that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedColumn {
    /// The name as declared.
    pub name: String,
    /// The position among all public columns, those that can be read included.
    pub position: usize,
    /// Why not.
    pub refusal: ColumnRefusal,
}

impl SourceTable {
    /// What Tidemill makes of a definition.
    ///
    /// # Errors
    /// Why the table cannot be read at all.
    pub fn from_meta(table: &MetaTable, collations: NewCollations) -> Result<SourceTable, TableRefusal> {
        refuse_table(table)?;
        if table.is_exchanging {
            return Err(TableRefusal::Exchanging);
        }
        let mut columns = Vec::new();
        let mut refused = Vec::new();
        let mut changing = Vec::new();
        for (position, column) in table.public_columns().into_iter().enumerate() {
            if is_changing(table, column) {
                changing.push(column.name.clone());
            }
            match read_column(table, column, collations) {
                Ok(column) => columns.push(column),
                Err(refusal) => {
                    refused.push(RefusedColumn { name: column.name.clone(), position, refusal });
                }
            }
        }
        let primary_key = primary_key(table, &columns, &refused)?;
        if table.is_partitioned() && primary_key.is_empty() {
            return Err(TableRefusal::PartitionedWithoutKey);
        }
        let info = TableInfo {
            id: table.id,
            name: table.name.clone(),
            columns,
            primary_key,
            pk_is_handle: table.pk_is_handle,
            indexes: Vec::new(),
            comment: table.comment.clone(),
        };
        info.validate().map_err(|error| TableRefusal::Contradiction(error.message().to_owned()))?;
        let physical_ids = table.physical_ids();
        if info.id < 0 || physical_ids.iter().any(|id| *id < 0) {
            return Err(TableRefusal::Contradiction("an id is negative".into()));
        }
        Ok(SourceTable { info, physical_ids, refused, changing })
    }

    /// The ranges of the rows' keys, in ascending order.
    #[must_use]
    pub fn record_ranges(&self) -> Vec<KeySpan> {
        let mut ids = self.physical_ids.clone();
        ids.sort_unstable();
        let span = |id: &i64| {
            let (start, end) = record_range(*id);
            KeySpan { start, end }
        };
        ids.iter().map(span).collect()
    }

    /// Why a column cannot be read, if there is such a column and it cannot.
    #[must_use]
    pub fn refusal_of(&self, name: &str) -> Option<&RefusedColumn> {
        self.refused.iter().find(|column| column.name.eq_ignore_ascii_case(name))
    }
}

/// Refuses what cannot be read at all, now or later; an exchange that is going on is no reason.
pub(crate) fn refuse_table(table: &MetaTable) -> Result<(), TableRefusal> {
    if table.is_view {
        return Err(TableRefusal::View);
    }
    if table.is_sequence {
        return Err(TableRefusal::Sequence);
    }
    if table.temp_table_type != 0 {
        return Err(TableRefusal::Temporary);
    }
    if table.cache_table_status != 0 {
        return Err(TableRefusal::Cached);
    }
    if table.state != STATE_PUBLIC {
        return Err(TableRefusal::NotPublic(table.state));
    }
    if table.mode != 0 {
        return Err(TableRefusal::Importing);
    }
    Ok(())
}

/// The positions of the clustered key's columns among those that can be read.
fn primary_key(
    table: &MetaTable,
    columns: &[ColumnInfo],
    refused: &[RefusedColumn],
) -> Result<Vec<usize>, TableRefusal> {
    let contradiction = TableRefusal::Contradiction;
    let Some(key) = table.clustered_key() else {
        return Err(contradiction("its clustered primary key is not there".into()));
    };
    let mut positions = Vec::with_capacity(key.len());
    for (column, length) in key {
        let name = || column.name.clone();
        if let Some(found) = refused.iter().find(|refused| refused.name == column.name) {
            return Err(TableRefusal::KeyColumn { column: name(), refusal: found.refusal.clone() });
        }
        if length >= 0 {
            return Err(TableRefusal::PrefixKey { column: name() });
        }
        match columns.iter().position(|read| read.id == column.id) {
            Some(position) => positions.push(position),
            None => return Err(contradiction(format!("key column `{}` is not public", column.name))),
        }
    }
    Ok(positions)
}

fn read_column(
    table: &MetaTable,
    column: &MetaColumn,
    collations: NewCollations,
) -> Result<ColumnInfo, ColumnRefusal> {
    if column.is_virtual() {
        return Err(ColumnRefusal::Virtual);
    }
    let column_type = column.field_type.column_type(table, collations)?;
    let read = ColumnInfo {
        id: column.id,
        name: column.name.clone(),
        not_null: column.field_type.is_not_null(),
        default: default_text(&column.default),
        origin_default: origin_default(column, &column_type)?,
        column_type,
        comment: String::new(),
    };
    if encoded_default(&read).is_err() {
        let text = read.origin_default.unwrap_or_default();
        return Err(ColumnRefusal::OriginDefault(format!("'{text}'")));
    }
    Ok(read)
}

/// Whether another type is being prepared for a column: in place, or in a column that will replace it.
fn is_changing(table: &MetaTable, column: &MetaColumn) -> bool {
    let stands_in = |other: &MetaColumn| {
        let rest = other.name.strip_prefix(CHANGING_PREFIX).and_then(|rest| rest.rsplit_once('_'));
        rest.is_some_and(|(name, _)| name == column.name)
    };
    column.is_changing || table.columns.iter().any(stands_in)
}

/// The value of rows older than the column, as text.
fn origin_default(column: &MetaColumn, column_type: &ColumnType) -> Result<Option<String>, ColumnRefusal> {
    let Some(text) = default_text(&column.origin_default) else { return Ok(None) };
    if matches!(column_type, ColumnType::Timestamp(_)) && column.version == 0 {
        return Err(ColumnRefusal::OriginZone);
    }
    // JSON has no bytes: TiDB writes this character for those that are no text.
    let is_binary =
        matches!(column_type, ColumnType::Binary(_) | ColumnType::Varbinary(_) | ColumnType::Blob(_));
    if is_binary && text.contains(char::REPLACEMENT_CHARACTER) {
        return Err(ColumnRefusal::OriginDefault(format!("'{text}'")));
    }
    Ok(Some(text))
}

/// A default of the JSON as text; numbers are from old clusters.
fn default_text(value: &serde_json::Value) -> Option<String> {
    match value {
        serde_json::Value::Null => None,
        serde_json::Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}
