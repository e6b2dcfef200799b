//! DELETE.

use std::collections::BTreeMap;

use sqlparser::ast::{Delete, FromTable};
use store::Key;
use tidb::RowEncoder;
use types::Result;

use super::buffer::Buffer;
use super::target::single_table;
use super::update::Selection;
use super::{DmlResult, unsupported};
use crate::Engine;
use crate::names::Scope;
use crate::point::NamedTable;
use crate::transaction::Write;

impl Engine {
    pub(super) async fn delete(
        &self,
        scope: Scope,
        delete: &Delete,
    ) -> Result<(BTreeMap<Key, Write>, DmlResult)> {
        let (table, selection) = deleted(&scope, delete)?;
        let matched = self.matched(&scope, &table, selection).await?;
        let encoder = RowEncoder::new(&table.definition.info)?;
        let mut buffer = Buffer::new(&scope);
        let mut n_rows = 0;
        for batch in matched {
            for (key, value) in encoder.encode_batch(&batch.rows, batch.handles.as_deref())? {
                let key = Key::from(key);
                buffer.was_read(&key, &value.into());
                buffer.delete(key);
                n_rows += 1;
            }
        }
        let result =
            DmlResult { affected_rows: n_rows, matched_rows: n_rows, info: String::new(), commit_ts: None };
        Ok((buffer.into_writes(), result))
    }
}

/// The table, and which rows a DELETE takes.
pub(super) fn deleted<'d>(scope: &Scope, delete: &'d Delete) -> Result<(NamedTable, Selection<'d>)> {
    let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
    let [from] = from.as_slice() else { return Err(unsupported("multi-table DELETE")) };
    if !delete.tables.is_empty() || delete.using.is_some() || delete.returning.is_some() {
        return Err(unsupported("multi-table DELETE"));
    }
    let table = single_table(scope, from, "DELETE")?;
    let selection = Selection {
        from,
        condition: delete.selection.as_ref(),
        order_by: &delete.order_by,
        limit: delete.limit.as_ref(),
        further: Vec::new(),
    };
    Ok((table, selection))
}
