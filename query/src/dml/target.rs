//! The table that a statement changes.

use std::sync::Arc;

use sql::catalog::TableDefinition;
use sqlparser::ast::{ObjectName, TableFactor, TableWithJoins};
use types::{Error, Result};

use super::unsupported;
use crate::names::Scope;
use crate::point::NamedTable;

/// Finds the base table of a name, or refuses it by name.
pub(super) fn target(scope: &Scope, name: &ObjectName, verb: &str) -> Result<Arc<TableDefinition>> {
    let parts: Vec<String> = name
        .0
        .iter()
        .map(|part| part.as_ident().map_or_else(|| part.to_string(), |ident| ident.value.clone()))
        .collect();
    let (database, table) = match parts.as_slice() {
        [table] => {
            let database = scope.settings.database.clone();
            (database.ok_or_else(|| Error::mysql(1046, "No database selected"))?, table.clone())
        }
        [database, table] => (database.clone(), table.clone()),
        _ => return Err(Error::mysql(1146, format!("Table '{name}' doesn't exist"))),
    };
    if scope.virtual_tables.has_database(&database.to_lowercase()) {
        let text = format!("{verb} command denied to table '{database}.{table}', which is computed");
        return Err(Error::mysql(1142, text));
    }
    let definition = scope.catalog.require(&database, &table)?;
    if definition.view.is_some() {
        let (code, what) = match verb {
            "INSERT" | "REPLACE" => (1471, "insertable-into"),
            _ => (1288, "updatable"),
        };
        let full = definition.full_name();
        let text = format!("The target table {full} of the {verb} is not {what}: it is a materialized view");
        return Err(Error::mysql(code, text));
    }
    if definition.foreign.is_some() {
        let (code, what) = match verb {
            "INSERT" | "REPLACE" => (1471, "insertable-into"),
            _ => (1288, "updatable"),
        };
        let full = definition.full_name();
        let text = format!(
            "The target table {full} of the {verb} is not {what}: it belongs to TiDB, whose indexes of it would \
             go stale; change it through TiDB"
        );
        return Err(Error::mysql(code, text));
    }
    Ok(Arc::clone(definition))
}

/// The one base table of a FROM item, with the name that its columns go by.
pub(super) fn single_table(scope: &Scope, from: &TableWithJoins, verb: &str) -> Result<NamedTable> {
    let TableFactor::Table { name, alias, .. } = &from.relation else {
        return Err(unsupported(&format!("{verb} of a derived table")));
    };
    if !from.joins.is_empty() {
        return Err(unsupported(&format!("multi-table {verb}")));
    }
    let definition = target(scope, name, verb)?;
    let shown = alias.as_ref().map_or_else(
        || name.0.last().and_then(|part| part.as_ident()).map(|ident| ident.value.clone()),
        |alias| Some(alias.name.value.clone()),
    );
    let shown = shown.unwrap_or_else(|| definition.info.name.clone());
    Ok(NamedTable { definition, shown })
}
