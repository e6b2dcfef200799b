//! INSERT and REPLACE.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::take;
use futures::StreamExt;
use sql::catalog::TableDefinition;
use sqlparser::ast::{AssignmentTarget, Expr, Insert, Query, SetExpr, TableObject};
use store::Key;
use tidb::{ColumnInfo, RowEncoder, TableInfo};
use types::{Error, Result};

use super::buffer::{Buffer, duplicate_entry};
use super::evaluate::{Evaluator, concat_arrays, has_subquery, is_default, literal_texts};
use super::on_duplicate::OnDuplicateUpdate;
use super::target::target;
use super::{DmlResult, unsupported};
use crate::Engine;
use crate::names::Scope;
use crate::transaction::Write;

/// What is done about a row whose key is there already.
enum OnDuplicate {
    Fail,
    Replace,
    Ignore,
    Update(OnDuplicateUpdate),
}

/// Where the values of a statement go.
struct Values<'a> {
    info: &'a TableInfo,
    /// The columns that the statement names, by position.
    named: Vec<usize>,
}

impl Engine {
    pub(super) async fn insert(
        &self,
        scope: Scope,
        insert: &Insert,
    ) -> Result<(BTreeMap<Key, Write>, DmlResult)> {
        let (definition, named) = inserted(&scope, insert)?;
        let values = Values { info: &definition.info, named };
        let update = OnDuplicateUpdate::of(insert, &definition.info)?;
        let on_duplicate = match (update, insert.replace_into, insert.ignore) {
            (Some(update), ..) => OnDuplicate::Update(update),
            (None, true, _) => OnDuplicate::Replace,
            (None, false, true) => OnDuplicate::Ignore,
            (None, false, false) => OnDuplicate::Fail,
        };
        let (batches, n_rows_shown) = self.rows_to_insert(&scope, insert, &values).await?;
        let evaluator = Evaluator::new(self, &scope)?;
        let mut buffer = Buffer::new(&scope);
        let (mut affected, mut duplicates, mut records) = (0, 0, 0);
        for batch in batches {
            records += batch.num_rows() as u64;
            let (n_affected, n_duplicates) =
                self.insert_batch(&definition.info, &batch, &on_duplicate, &evaluator, &mut buffer).await?;
            affected += n_affected;
            duplicates += n_duplicates;
        }
        let info = match n_rows_shown {
            true => format!("Records: {records}  Duplicates: {duplicates}  Warnings: 0"),
            false => String::new(),
        };
        let result = DmlResult { affected_rows: affected, matched_rows: affected, info, commit_ts: None };
        Ok((buffer.into_writes(), result))
    }

    /// The rows in the table's columns, checked, and whether MySQL would show how many there were.
    async fn rows_to_insert(
        &self,
        scope: &Scope,
        insert: &Insert,
        values: &Values<'_>,
    ) -> Result<(Vec<RecordBatch>, bool)> {
        let Some(source) = &insert.source else {
            let row: Vec<Expr> = insert.assignments.iter().map(|assigned| assigned.value.clone()).collect();
            let batch = self.constant_rows(scope, values, &[&row]).await?;
            return Ok((vec![batch], false));
        };
        if let Some(rows) = plain_values(source) {
            let batch = self.constant_rows(scope, values, &rows).await?;
            return Ok((vec![batch], rows.len() > 1));
        }
        Ok((self.selected_rows(scope, source, values).await?, true))
    }

    async fn selected_rows(
        &self,
        scope: &Scope,
        source: &Query,
        values: &Values<'_>,
    ) -> Result<Vec<RecordBatch>> {
        let own = self.scope_at(&scope.session, scope.at, Arc::clone(&scope.writes)).await?;
        let planned = self.plan(own, source, true).await?;
        if planned.columns.len() != values.named.len() {
            return Err(column_count(1));
        }
        let evaluator = Evaluator::new(self, scope)?;
        let mut result = crate::select::run(planned)?;
        let mut batches = Vec::new();
        while let Some(batch) = result.batches.next().await {
            let batch = batch?;
            if batch.num_rows() > 0 {
                batches.push(values.batch(&evaluator, batch.columns().to_vec(), batch.num_rows())?);
            }
        }
        Ok(batches)
    }

    async fn constant_rows(
        &self,
        scope: &Scope,
        values: &Values<'_>,
        rows: &[&[Expr]],
    ) -> Result<RecordBatch> {
        let evaluator = Evaluator::new(self, scope)?;
        // `VALUES ()` is a row of defaults.
        let all_default = values.named.len() == values.info.columns.len();
        for (at, row) in rows.iter().enumerate() {
            if row.len() != values.named.len() && !(row.is_empty() && all_default) {
                return Err(column_count(at + 1));
            }
        }
        let is_empty = rows.first().is_some_and(|row| row.is_empty());
        if rows.iter().any(|row| row.is_empty() != is_empty) {
            return Err(column_count(2));
        }
        if is_empty {
            let defaults = Values { info: values.info, named: Vec::new() };
            return defaults.batch(&evaluator, Vec::new(), rows.len());
        }
        let mut arrays = Vec::with_capacity(values.named.len());
        for (place, at) in values.named.iter().enumerate() {
            let column = &values.info.columns[*at];
            arrays.push(match literal_texts(column, rows.iter().map(|row| &row[place])) {
                Some(texts) => texts,
                None => {
                    let cells = rows.iter().map(|row| &row[place]);
                    self.cells(&evaluator, column, cells).await?
                }
            });
        }
        values.batch(&evaluator, arrays, rows.len())
    }

    /// Evaluates the cells of one column, each in a type of its own, and converts them one by one.
    async fn cells<'e>(
        &self,
        evaluator: &Evaluator<'_>,
        column: &ColumnInfo,
        cells: impl Iterator<Item = &'e Expr>,
    ) -> Result<ArrayRef> {
        let mut arrays = Vec::new();
        for cell in cells {
            let array = if is_default(cell) {
                evaluator.default(column)?
            } else if has_subquery(cell) {
                evaluator.convert(column, &self.subquery_value(evaluator.scope, cell).await?)?
            } else {
                evaluator.convert(column, &evaluator.constant(cell)?)?
            };
            arrays.push(array);
        }
        concat_arrays(&arrays)
    }

    /// The value of an expression with subqueries, as `SELECT expression` gives it.
    async fn subquery_value(&self, scope: &Scope, expression: &Expr) -> Result<ArrayRef> {
        let query = super::update::select_of(&scope.settings, vec![expression.clone()])?;
        let own = self.scope_at(&scope.session, scope.at, Arc::clone(&scope.writes)).await?;
        let planned = self.plan(own, &query, true).await?;
        let mut result = crate::select::run(planned)?;
        while let Some(batch) = result.batches.next().await {
            let batch = batch?;
            if batch.num_rows() == 1 {
                return Ok(Arc::clone(batch.column(0)));
            }
        }
        Err(Error::corrupt("a SELECT without FROM has not answered one row"))
    }

    async fn insert_batch(
        &self,
        info: &TableInfo,
        batch: &RecordBatch,
        on_duplicate: &OnDuplicate,
        evaluator: &Evaluator<'_>,
        buffer: &mut Buffer<'_>,
    ) -> Result<(u64, u64)> {
        let handles = match info.has_hidden_handle() {
            true => Some(self.new_row_ids(info.table_id(), batch.num_rows()).await?),
            false => None,
        };
        let encoder = RowEncoder::new(info)?;
        let rows = encoder.encode_batch(batch, handles.as_deref())?;
        let rows: Vec<(Key, Key)> = rows.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        if handles.is_none() {
            let keys: Vec<Key> = rows.iter().map(|(key, _)| key.clone()).collect();
            buffer.load(&keys).await?;
        }
        let (mut affected, mut duplicates) = (0, 0);
        for (row, (key, value)) in rows.into_iter().enumerate() {
            let Some(old) = buffer.get(&key) else {
                affected += 1;
                buffer.put(key, value);
                continue;
            };
            duplicates += 1;
            match on_duplicate {
                OnDuplicate::Fail => return Err(duplicate_entry(info, batch, row, evaluator.zone)),
                OnDuplicate::Ignore => {}
                OnDuplicate::Replace => {
                    // The old row and the new one count; an equal row is only touched.
                    affected += if old == value { 1 } else { 2 };
                    buffer.put(key, value);
                }
                OnDuplicate::Update(update) => {
                    let new = batch.slice(row, 1);
                    affected += update.apply(evaluator, &encoder, (&key, &old), &new, buffer).await?;
                }
            }
        }
        Ok((affected, duplicates))
    }
}

impl Values<'_> {
    /// Puts named columns in their places, and defaults in the others.
    fn batch(&self, evaluator: &Evaluator<'_>, named: Vec<ArrayRef>, n_rows: usize) -> Result<RecordBatch> {
        let mut columns: Vec<Option<ArrayRef>> = vec![None; self.info.columns.len()];
        for (at, array) in self.named.iter().zip(named) {
            columns[*at] = Some(evaluator.convert(&self.info.columns[*at], &array)?);
        }
        let mut arrays = Vec::with_capacity(columns.len());
        for (at, column) in columns.into_iter().enumerate() {
            arrays.push(match column {
                Some(column) => column,
                None => {
                    let one = evaluator.default(&self.info.columns[at])?;
                    take(&one, &UInt32Array::from(vec![0; n_rows]), None)?
                }
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(n_rows));
        Ok(RecordBatch::try_new_with_options(self.info.arrow_schema(), arrays, &options)?)
    }
}

/// The table that an INSERT or REPLACE fills, and the columns that it names, by position.
pub(super) fn inserted(scope: &Scope, insert: &Insert) -> Result<(Arc<TableDefinition>, Vec<usize>)> {
    let verb = if insert.replace_into { "REPLACE" } else { "INSERT" };
    let TableObject::TableName(name) = &insert.table else {
        return Err(unsupported("INSERT into a function"));
    };
    let definition = target(scope, name, verb)?;
    let named = named_columns(&definition, insert)?;
    Ok((definition, named))
}

/// The rows of a source that is VALUES and nothing else.
pub(super) fn plain_values(source: &Query) -> Option<Vec<&[Expr]>> {
    let SetExpr::Values(list) = source.body.as_ref() else { return None };
    let plain = source.with.is_none() && source.order_by.is_none() && source.limit_clause.is_none();
    plain.then(|| list.rows.iter().map(|row| row.content.as_slice()).collect())
}

fn named_columns(definition: &TableDefinition, insert: &Insert) -> Result<Vec<usize>> {
    let info = &definition.info;
    let mut names = Vec::new();
    for column in &insert.columns {
        names.push(last_part(column));
    }
    for assignment in &insert.assignments {
        match &assignment.target {
            AssignmentTarget::ColumnName(name) => names.push(last_part(name)),
            AssignmentTarget::Tuple(_) => return Err(unsupported("assignment to a row")),
        }
    }
    if names.is_empty() {
        return Ok((0..info.columns.len()).collect());
    }
    let mut positions = Vec::with_capacity(names.len());
    for name in names {
        let position = info
            .column_index(&name)
            .ok_or_else(|| Error::mysql(1054, format!("Unknown column '{name}' in 'field list'")))?;
        if positions.contains(&position) {
            return Err(Error::mysql(1110, format!("Column '{name}' specified twice")));
        }
        positions.push(position);
    }
    Ok(positions)
}

pub(super) fn last_part(name: &sqlparser::ast::ObjectName) -> String {
    let last = name.0.last().and_then(|part| part.as_ident());
    last.map_or_else(|| name.to_string(), |ident| ident.value.clone())
}

pub(super) fn column_count(row: usize) -> Error {
    Error::mysql(1136, format!("Column count doesn't match value count at row {row}"))
}
