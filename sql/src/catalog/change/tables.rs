//! CREATE TABLE: what a base table's definition says.

use std::sync::Arc;

use tidb::{ColumnInfo, ColumnType, TableInfo};
use types::{Error, Result};

use super::{CatalogChange, check_name, noted, put, signed};
use crate::catalog::{Catalog, TableDefinition};
use crate::{ColumnDefinition, CreateTable};

impl Catalog {
    /// CREATE TABLE.
    ///
    /// # Errors
    /// MySQL 1050 if the name is taken, 1049, 1060, 1072 and others for what is wrong in the definition.
    pub fn create_table(&self, statement: &CreateTable, database: &str) -> Result<CatalogChange> {
        self.check_database(database)?;
        let name = &statement.name.name;
        check_name(name)?;
        if self.is_taken(database, name) {
            let text = format!("table '{name}' already exists");
            return if statement.if_not_exists { Ok(noted(text)) } else { Err(Error::mysql(1050, text)) };
        }
        let mut info = table_info(statement)?;
        info.id = signed(self.next_id())?;
        let definition =
            TableDefinition { database: self.database_name(database), info, view: None, foreign: None };
        let mut change = CatalogChange { notes: statement.notes.clone(), ..CatalogChange::default() };
        put(&mut change, &definition)?;
        change.created = Some(Arc::new(definition));
        self.finish(&mut change, 1);
        Ok(change)
    }
}

/// Whether a primary key is one integer, which is then the handle itself.
pub(super) fn is_handle(columns: &[ColumnInfo], primary_key: &[usize]) -> bool {
    matches!(primary_key, [one] if matches!(columns[*one].column_type, ColumnType::Int { .. }))
}

fn table_info(statement: &CreateTable) -> Result<TableInfo> {
    if statement.columns.is_empty() {
        return Err(Error::mysql(1113, "a table must have at least 1 column"));
    }
    let mut columns: Vec<ColumnInfo> = Vec::with_capacity(statement.columns.len());
    for (index, column) in statement.columns.iter().enumerate() {
        check_name(&column.name)?;
        if columns.iter().any(|known| known.name.eq_ignore_ascii_case(&column.name)) {
            return Err(Error::mysql(1060, format!("Duplicate column name '{}'", column.name)));
        }
        columns.push(column_info(index, column));
    }
    let mut primary_key = Vec::new();
    for name in &statement.primary_key {
        let position = columns.iter().position(|column| column.name.eq_ignore_ascii_case(name));
        let position = position
            .ok_or_else(|| Error::mysql(1072, format!("key column '{name}' doesn't exist in table")))?;
        if primary_key.contains(&position) {
            return Err(Error::mysql(1060, format!("Duplicate column name '{name}'")));
        }
        if !columns[position].column_type.allowed_in_key() {
            let text = format!("column '{name}' is a text, a blob or too long to be in a key");
            return Err(Error::mysql(1170, text));
        }
        columns[position].not_null = true;
        primary_key.push(position);
    }
    check_key_bytes(&columns, &primary_key)?;
    Ok(TableInfo {
        id: 0,
        name: statement.name.name.clone(),
        pk_is_handle: is_handle(&columns, &primary_key),
        columns,
        primary_key,
        indexes: Vec::new(),
        comment: statement.comment.clone(),
    })
}

/// Refuses a key that MySQL has no room for.
pub(super) fn check_key_bytes(columns: &[ColumnInfo], key: &[usize]) -> Result<()> {
    if tidb::is_possible_key(key.iter().map(|at| &columns[*at].column_type)) {
        return Ok(());
    }
    let bytes = tidb::KEY_BYTES_MAX;
    Err(Error::mysql(1071, format!("specified key was too long; max key length is {bytes} bytes")))
}

fn column_info(index: usize, column: &ColumnDefinition) -> ColumnInfo {
    ColumnInfo {
        id: i64::try_from(index).map_or(i64::MAX, |index| index + 1),
        name: column.name.clone(),
        column_type: column.column_type.clone(),
        not_null: column.not_null,
        default: column.default.clone(),
        origin_default: None,
        comment: column.comment.clone(),
    }
}
