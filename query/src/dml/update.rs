//! UPDATE.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::Int64Type;
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::TableSource;
use futures::StreamExt;
use sql::{Resolver, Settings, Statement};
use sqlparser::ast::{
    Assignment, AssignmentTarget, Expr, Ident, LimitClause, OrderBy, OrderByExpr, OrderByKind, Query,
    SelectItem, SetExpr, TableWithJoins, Update,
};
use store::Key;
use tidb::{ColumnInfo, ColumnType, ROW_ID_NAME, RowDecoder, RowEncoder};
use types::{Error, Result};

use super::buffer::{Buffer, duplicate_entry};
use super::evaluate::{Evaluator, has_subquery, is_default};
use super::insert::last_part;
use super::target::single_table;
use super::{DmlResult, unsupported};
use crate::Engine;
use crate::names::{Names, Scope};
use crate::point::{NamedTable, point_key};
use crate::select::Planned;
use crate::transaction::Write;

/// Which rows a statement changes.
pub(super) struct Selection<'a> {
    pub(super) from: &'a TableWithJoins,
    pub(super) condition: Option<&'a Expr>,
    pub(super) order_by: &'a [OrderByExpr],
    pub(super) limit: Option<&'a Expr>,
    /// Expressions to evaluate with the rows.
    pub(super) further: Vec<Expr>,
}

/// Columns by position, and what they are set to.
pub(super) type Assignments<'u> = Vec<(usize, &'u Expr)>;

impl Selection<'_> {
    /// If it names one row by its full primary key: the key, `None` if no row can have it.
    pub(super) fn point(&self, table: &NamedTable) -> Option<Option<Key>> {
        let condition = self.condition?;
        if !self.further.is_empty() || !self.order_by.is_empty() || self.limit.is_some() {
            return None;
        }
        point_key(table, condition)
    }
}

/// Rows that a statement changes.
pub(super) struct Matched {
    /// The table's columns.
    pub(super) rows: RecordBatch,
    /// The hidden row ids, if the table has them.
    pub(super) handles: Option<Vec<i64>>,
    /// The further expressions.
    pub(super) further: Vec<ArrayRef>,
}

impl Engine {
    pub(super) async fn update(
        &self,
        scope: Scope,
        update: &Update,
    ) -> Result<(BTreeMap<Key, Write>, DmlResult)> {
        let (table, assignments, selection) = updated(&scope, update)?;
        let matched = self.matched(&scope, &table, selection).await?;
        let mut buffer = Buffer::new(&scope);
        let (mut n_matched, mut n_changed) = (0, 0);
        for batch in matched {
            n_matched += batch.rows.num_rows() as u64;
            n_changed += self.update_rows(&scope, &table, &assignments, batch, &mut buffer).await?;
        }
        let result = DmlResult {
            affected_rows: n_changed,
            matched_rows: n_matched,
            info: format!("Rows matched: {n_matched}  Changed: {n_changed}  Warnings: 0"),
            commit_ts: None,
        };
        Ok((buffer.into_writes(), result))
    }

    async fn update_rows(
        &self,
        scope: &Scope,
        table: &NamedTable,
        assignments: &[(usize, &Expr)],
        batch: Matched,
        buffer: &mut Buffer<'_>,
    ) -> Result<u64> {
        let info = &table.definition.info;
        let evaluator = Evaluator::new(self, scope)?;
        let changed = assign(&evaluator, table, assignments, &batch)?;
        let encoder = RowEncoder::new(info)?;
        let old = encoder.encode_batch(&batch.rows, batch.handles.as_deref())?;
        let new = encoder.encode_batch(&changed, batch.handles.as_deref())?;
        let keys: Vec<Key> = new.iter().map(|(key, _)| Key::from(key.clone())).collect();
        let pairs = old.into_iter().zip(new);
        let pairs: Vec<_> = pairs
            .map(|(old, new)| ((Key::from(old.0), Key::from(old.1)), (Key::from(new.0), Key::from(new.1))))
            .collect();
        for ((key, value), _) in &pairs {
            buffer.was_read(key, value);
        }
        buffer.load(&keys).await?;
        let mut n_changed = 0;
        for (row, ((old_key, old_value), (key, value))) in pairs.into_iter().enumerate() {
            if old_key == key && old_value == value {
                continue;
            }
            if old_key != key {
                if buffer.get(&key).is_some() {
                    return Err(duplicate_entry(info, &changed, row, evaluator.zone));
                }
                buffer.delete(old_key);
            }
            buffer.put(key, value);
            n_changed += 1;
        }
        Ok(n_changed)
    }

    /// The rows that a statement changes, in its order.
    pub(super) async fn matched(
        &self,
        scope: &Scope,
        table: &NamedTable,
        selection: Selection<'_>,
    ) -> Result<Vec<Matched>> {
        if let Some(matched) = self.matched_point(scope, table, &selection).await? {
            return Ok(vec![matched]);
        }
        let info = &table.definition.info;
        let planned = self.plan_rows(scope, table, &selection).await?;
        let mut batches = crate::select::stream(&planned)?;
        let n_columns = info.columns.len();
        let schema = info.arrow_schema();
        let mut matched = Vec::new();
        while let Some(batch) = batches.next().await {
            let batch = batch?;
            if batch.num_rows() == 0 {
                continue;
            }
            let columns: Vec<usize> = (0..n_columns).collect();
            let rows = crate::select::renamed(&batch.project(&columns)?, &schema)?;
            let mut rest = batch.columns()[n_columns..].iter().cloned();
            let handles = match info.has_hidden_handle() {
                true => rest.next().map(|ids| ids.as_primitive::<Int64Type>().values().to_vec()),
                false => None,
            };
            matched.push(Matched { rows, handles, further: rest.collect() });
        }
        Ok(matched)
    }

    /// Plans the query for the rows that a statement changes.
    pub(super) async fn plan_rows(
        &self,
        scope: &Scope,
        table: &NamedTable,
        selection: &Selection<'_>,
    ) -> Result<Planned> {
        let query = row_query(scope, table, selection)?;
        let views = {
            let names = Names::undecided(scope);
            sql::plan_query(&query, &DmlNames::new(&names, scope, table), &scope.settings)?;
            names.views()
        };
        let own = self.scope_at(&scope.session, scope.at, Arc::clone(&scope.writes)).await?;
        let (own, decided) = self.decide_all(own, views, true).await?;
        let plan = |names: &Names<'_>| {
            crate::live::plan_query(&query, &DmlNames::new(names, &own, table), &own.settings)
        };
        self.plan_decided(&own, decided, plan).await
    }

    /// The one row of a condition on the full primary key.
    async fn matched_point(
        &self,
        scope: &Scope,
        table: &NamedTable,
        selection: &Selection<'_>,
    ) -> Result<Option<Matched>> {
        let Some(key) = selection.point(table) else { return Ok(None) };
        let info = &table.definition.info;
        let columns: Vec<usize> = (0..info.columns.len()).collect();
        let mut decoder = RowDecoder::new(info, &columns)?;
        if let Some(key) = key
            && let Some(value) = scope.reads().get(&key).await?
        {
            decoder.append(&key, &value)?;
        }
        let rows = decoder.finish()?.with_schema(info.arrow_schema())?;
        Ok(Some(Matched { rows, handles: None, further: Vec::new() }))
    }
}

/// The table, the assignments, and which rows an UPDATE changes.
pub(super) fn updated<'u>(
    scope: &Scope,
    update: &'u Update,
) -> Result<(NamedTable, Assignments<'u>, Selection<'u>)> {
    if update.from.is_some() || update.returning.is_some() || update.or.is_some() {
        return Err(unsupported("UPDATE with FROM, RETURNING or OR"));
    }
    let table = single_table(scope, &update.table, "UPDATE")?;
    let assignments = assigned_columns(&table, &update.assignments)?;
    // Subqueries are evaluated by the batch engine, with the rows.
    let further: Vec<Expr> = assignments
        .iter()
        .filter(|(_, value)| has_subquery(value))
        .map(|(_, value)| (*value).clone())
        .collect();
    let selection = Selection {
        from: &update.table,
        condition: update.selection.as_ref(),
        order_by: &update.order_by,
        limit: update.limit.as_ref(),
        further,
    };
    Ok((table, assignments, selection))
}

/// Assigns from left to right: a later expression sees what earlier ones have assigned, as in MySQL.
fn assign(
    evaluator: &Evaluator<'_>,
    table: &NamedTable,
    assignments: &[(usize, &Expr)],
    batch: &Matched,
) -> Result<RecordBatch> {
    let info = &table.definition.info;
    let mut rows = batch.rows.clone();
    let mut further = batch.further.iter();
    for (at, value) in assignments {
        let column = &info.columns[*at];
        let array = if is_default(value) {
            let one = evaluator.default(column)?;
            take(&one, &UInt32Array::from(vec![0; rows.num_rows()]), None)?
        } else if has_subquery(value) {
            let evaluated = further.next();
            evaluated.cloned().ok_or_else(|| Error::corrupt("a subquery of an assignment is missing"))?
        } else {
            evaluator.over_rows(value, &table.shown, &rows)?
        };
        let mut columns = rows.columns().to_vec();
        columns[*at] = evaluator.convert(column, &array)?;
        rows = RecordBatch::try_new(rows.schema(), columns)?;
    }
    Ok(rows)
}

fn assigned_columns<'a>(table: &NamedTable, assignments: &'a [Assignment]) -> Result<Vec<(usize, &'a Expr)>> {
    let column = |assignment: &'a Assignment| {
        let AssignmentTarget::ColumnName(name) = &assignment.target else {
            return Err(unsupported("assignment to a row"));
        };
        let name = last_part(name);
        let at = table.definition.info.column_index(&name);
        let at = at.ok_or_else(|| Error::mysql(1054, format!("Unknown column '{name}' in 'field list'")))?;
        Ok((at, &assignment.value))
    };
    let assigned: Vec<(usize, &Expr)> = assignments.iter().map(column).collect::<Result<_>>()?;
    for (place, (at, value)) in assigned.iter().enumerate() {
        // Such a subquery would have to see values that are assigned before it.
        if has_subquery(value) && place > 0 {
            let earlier: Vec<&str> = assigned[..place]
                .iter()
                .map(|(at, _)| table.definition.info.columns[*at].name.as_str())
                .collect();
            let text = value.to_string().to_lowercase();
            if earlier.iter().any(|name| text.contains(&name.to_lowercase())) {
                let name = &table.definition.info.columns[*at].name;
                return Err(unsupported(&format!("a subquery for '{name}' that may read assigned columns")));
            }
        }
    }
    Ok(assigned)
}

/// `SELECT columns [, row id] [, further] FROM table WHERE … ORDER BY … LIMIT …`.
fn row_query(scope: &Scope, table: &NamedTable, selection: &Selection<'_>) -> Result<Query> {
    let info = &table.definition.info;
    let qualified = |name: &str| {
        Expr::CompoundIdentifier(vec![
            Ident::with_quote('`', table.shown.clone()),
            Ident::with_quote('`', name),
        ])
    };
    let mut list: Vec<Expr> = info.columns.iter().map(|column| qualified(&column.name)).collect();
    if info.has_hidden_handle() {
        list.push(qualified(ROW_ID_NAME));
    }
    list.extend(selection.further.iter().cloned());
    let mut query = select_of(&scope.settings, list)?;
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.from = vec![selection.from.clone()];
        select.selection = selection.condition.cloned();
    }
    if !selection.order_by.is_empty() {
        let kind = OrderByKind::Expressions(selection.order_by.to_vec());
        query.order_by = Some(OrderBy { kind, interpolate: None });
    }
    if let Some(limit) = selection.limit {
        let limit = Some(limit.clone());
        query.limit_clause = Some(LimitClause::LimitOffset { limit, offset: None, limit_by: Vec::new() });
    }
    Ok(query)
}

/// `SELECT list`.
pub(super) fn select_of(settings: &Settings, list: Vec<Expr>) -> Result<Query> {
    let template = sql::parse("SELECT 1", settings)?.pop().map(|parsed| parsed.statement);
    let Some(Statement::Query(template)) = template else {
        return Err(Error::corrupt("'SELECT 1' is not parsed as a query"));
    };
    let mut query = template.query;
    if let SetExpr::Select(select) = query.body.as_mut() {
        // Names that no column has keep equal expressions apart.
        let item = |(at, expr)| SelectItem::ExprWithAlias {
            expr,
            alias: Ident::with_quote('`', format!("__column_{at}")),
        };
        select.projection = list.into_iter().enumerate().map(item).collect();
    }
    Ok(query)
}

/// The statement's names, where the changed table shows its hidden row id.
struct DmlNames<'a> {
    names: &'a Names<'a>,
    scope: &'a Scope,
    table: &'a NamedTable,
}

impl<'a> DmlNames<'a> {
    fn new(names: &'a Names<'a>, scope: &'a Scope, table: &'a NamedTable) -> DmlNames<'a> {
        DmlNames { names, scope, table }
    }
}

impl Resolver for DmlNames<'_> {
    fn table(&self, database: &str, name: &str) -> Result<Arc<dyn TableSource>> {
        let definition = &self.table.definition;
        if definition.database.eq_ignore_ascii_case(database)
            && definition.info.name.eq_ignore_ascii_case(name)
        {
            return Ok(provider_as_source(Arc::new(self.scope.table(definition).with_row_id())));
        }
        self.names.table(database, name)
    }

    fn columns(&self, database: &str, name: &str) -> Option<Vec<ColumnInfo>> {
        let mut columns = self.names.columns(database, name)?;
        let info = &self.table.definition.info;
        let is_changed = self.table.definition.database.eq_ignore_ascii_case(database)
            && info.name.eq_ignore_ascii_case(name);
        if is_changed && info.has_hidden_handle() {
            columns.push(ColumnInfo {
                id: 0,
                name: ROW_ID_NAME.to_owned(),
                column_type: ColumnType::Int { bits: 64, unsigned: false },
                not_null: true,
                default: None,
                origin_default: None,
                comment: String::new(),
            });
        }
        Some(columns)
    }
}
