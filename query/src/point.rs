//! Statements that name one row by its full primary key, without the planner.
//!
//! Only forms whose meaning is certain are taken: columns of one base table, every key column equal to a
//! literal of its own kind. All else goes to the planner, so both ways mean the same.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema};
use futures::StreamExt;
use sql::catalog::TableDefinition;
use sqlparser::ast::{
    BinaryOperator, Expr, Query, Select, SelectItem, SetExpr, TableFactor, UnaryOperator, Value,
};
use store::Key;
use tidb::{ColumnType, RowDecoder, TableInfo};
use types::Result;

use crate::names::Scope;
use crate::{Engine, QueryResult, ResultColumn};

impl Engine {
    /// Answers a query by one point read, if it is one.
    pub(crate) async fn point_select(&self, scope: &Scope, query: &Query) -> Result<Option<QueryResult>> {
        let Some(point) = point_of(scope, query) else { return Ok(None) };
        let info = &point.table.definition.info;
        let positions: Vec<usize> = point.columns.iter().map(|(at, _)| *at).collect();
        let mut decoder = RowDecoder::new(info, &positions)?;
        if let Some(key) = &point.key
            && let Some(value) = scope.reads().get(key).await?
        {
            decoder.append(key, &value)?;
        }
        let batch = decoder.finish()?;
        let result_column = |(at, name): &(usize, String)| ResultColumn {
            name: name.clone(),
            column_type: Some(info.columns[*at].column_type.clone()),
            nullable: !info.columns[*at].not_null,
            table: Some(point.table.shown.clone()),
            database: Some(point.table.definition.database.clone()),
        };
        let columns: Vec<ResultColumn> = point.columns.iter().map(result_column).collect();
        let fields = columns.iter().zip(batch.schema_ref().fields());
        let fields = fields
            .map(|(column, field)| Field::new(&column.name, field.data_type().clone(), column.nullable));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let batch = crate::select::renamed(&batch, &schema)?;
        Ok(Some(QueryResult {
            columns,
            schema,
            batches: futures::stream::iter([Ok(batch)]).boxed(),
            read_ts: scope.at,
            paths: Vec::new(),
        }))
    }
}

/// A base table as a statement names it.
pub(crate) struct NamedTable {
    pub(crate) definition: Arc<TableDefinition>,
    /// The alias, or the name as written.
    pub(crate) shown: String,
}

struct Point {
    table: NamedTable,
    /// Positions and names to show.
    columns: Vec<(usize, String)>,
    /// The row's key; `None` if no row can have it.
    key: Option<Key>,
}

fn point_of(scope: &Scope, query: &Query) -> Option<Point> {
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    let [from] = select.from.as_slice() else { return None };
    let selection = select.selection.as_ref()?;
    if !from.joins.is_empty() || !is_plain(query, select) {
        return None;
    }
    let table = base_table(scope, &from.relation)?;
    if table.definition.physical_ids() != [table.definition.info.id] {
        return None;
    }
    let mut columns = Vec::new();
    for item in &select.projection {
        match item {
            SelectItem::Wildcard(_) if !table.definition.refused_columns().is_empty() => return None,
            SelectItem::Wildcard(_) => {
                let all = table.definition.info.columns.iter().enumerate();
                columns.extend(all.map(|(at, column)| (at, column.name.clone())));
            }
            SelectItem::UnnamedExpr(expression) => columns.push(column_of(&table, expression)?),
            SelectItem::ExprWithAlias { expr, alias } => {
                let (at, _) = column_of(&table, expr)?;
                columns.push((at, alias.value.clone()));
            }
            _ => return None,
        }
    }
    let key = point_key(&table, selection)?;
    Some(Point { table, columns, key })
}

/// Whether a query has nothing but columns, one table and a condition.
fn is_plain(query: &Query, select: &Select) -> bool {
    let list: Vec<String> = select.projection.iter().map(ToString::to_string).collect();
    let (Some(from), Some(selection)) = (select.from.first(), &select.selection) else { return false };
    query.to_string() == format!("SELECT {} FROM {from} WHERE {selection}", list.join(", "))
}

/// The base table that a FROM item names, if it is nothing more than that.
pub(crate) fn base_table(scope: &Scope, relation: &TableFactor) -> Option<NamedTable> {
    let TableFactor::Table {
        name,
        alias,
        args: None,
        version: None,
        with_ordinality: false,
        json_path: None,
        sample: None,
        partitions,
        ..
    } = relation
    else {
        return None;
    };
    let plain = partitions.is_empty() && alias.as_ref().is_none_or(|alias| alias.columns.is_empty());
    let parts: Option<Vec<&str>> =
        name.0.iter().map(|part| part.as_ident().map(|ident| ident.value.as_str())).collect();
    let (database, written) = match parts?.as_slice() {
        [table] => (scope.settings.database.clone()?, (*table).to_owned()),
        [database, table] => ((*database).to_owned(), (*table).to_owned()),
        _ => return None,
    };
    if !plain || scope.virtual_tables.has_database(&database.to_lowercase()) {
        return None;
    }
    let definition = scope.catalog.find(&database, &written)?;
    if definition.view.is_some() {
        return None;
    }
    let shown = alias.as_ref().map_or(written, |alias| alias.name.value.clone());
    Some(NamedTable { definition: Arc::clone(definition), shown })
}

/// A column of the table, by position and as written.
fn column_of(table: &NamedTable, expression: &Expr) -> Option<(usize, String)> {
    let name = match expression {
        Expr::Identifier(name) => name,
        Expr::CompoundIdentifier(parts) => match parts.as_slice() {
            [qualifier, name] if qualifier.value.eq_ignore_ascii_case(&table.shown) => name,
            _ => return None,
        },
        _ => return None,
    };
    Some((table.definition.info.column_index(&name.value)?, name.value.clone()))
}

/// The key of the row that a condition names: every key column equal to a literal, and nothing else.
/// `None` if the condition is not of that form; `Some(None)` if no row can satisfy it.
pub(crate) fn point_key(table: &NamedTable, selection: &Expr) -> Option<Option<Key>> {
    let info = &table.definition.info;
    let mut values: Vec<Option<Literal>> = vec![None; info.primary_key.len()];
    if values.is_empty() || !collect(table, selection, &mut values) {
        return None;
    }
    let values: Option<Vec<Literal>> = values.into_iter().collect();
    let mut arrays = Vec::new();
    for value in values? {
        match value {
            Literal::Value(array) => arrays.push(array),
            Literal::Nothing => return Some(None),
        }
    }
    let key = tidb::point_key(info, &arrays).ok()?;
    Some(key.map(Key::from))
}

#[derive(Clone)]
enum Literal {
    Value(ArrayRef),
    /// No value of the column's type equals it.
    Nothing,
}

fn collect(table: &NamedTable, condition: &Expr, values: &mut [Option<Literal>]) -> bool {
    match condition {
        Expr::Nested(inner) => collect(table, inner, values),
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            collect(table, left, values) && collect(table, right, values)
        }
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
            let (column, literal) = match (column_of(table, left), column_of(table, right)) {
                (Some((column, _)), None) => (column, right),
                (None, Some((column, _))) => (column, left),
                _ => return false,
            };
            let info = &table.definition.info;
            let Some(at) = info.primary_key.iter().position(|key| *key == column) else { return false };
            if values[at].is_some() {
                return false;
            }
            values[at] = literal_of(info, column, literal);
            values[at].is_some()
        }
        _ => false,
    }
}

/// A literal of the column's own kind.
fn literal_of(info: &TableInfo, column: usize, expression: &Expr) -> Option<Literal> {
    match &info.columns[column].column_type {
        column_type @ ColumnType::Int { .. } => integer(expression, &column_type.arrow_type()),
        ColumnType::Char(_) | ColumnType::Varchar(_) => {
            Some(Literal::Value(Arc::new(StringArray::from(vec![text_of(expression)?]))))
        }
        column_type @ ColumnType::Date => moment(expression, "dddd-dd-dd", &column_type.arrow_type()),
        column_type @ ColumnType::Datetime(_) => {
            moment(expression, "dddd-dd-dd dd:dd:dd", &column_type.arrow_type())
        }
        _ => None,
    }
}

fn text_of(expression: &Expr) -> Option<&str> {
    let Expr::Value(value) = expression else { return None };
    match &value.value {
        Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) => Some(text),
        _ => None,
    }
}

/// A date or time written out in full; other forms, and moments that do not exist, are the planner's.
fn moment(expression: &Expr, form: &str, data_type: &DataType) -> Option<Literal> {
    let text = text_of(expression)?;
    let fits = |(byte, form): (u8, u8)| if form == b'd' { byte.is_ascii_digit() } else { byte == form };
    // A leap second is not a time of MySQL's.
    if text.len() != form.len() || !text.bytes().zip(form.bytes()).all(fits) || text.ends_with(":60") {
        return None;
    }
    let value: ArrayRef = Arc::new(StringArray::from(vec![text]));
    let value = cast(&value, data_type).ok()?;
    (!value.is_null(0)).then_some(Literal::Value(value))
}

fn integer(expression: &Expr, data_type: &DataType) -> Option<Literal> {
    let (digits, is_negative) = match expression {
        Expr::Value(value) => (&value.value, false),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match expr.as_ref() {
            Expr::Value(value) => (&value.value, true),
            _ => return None,
        },
        _ => return None,
    };
    let Value::Number(digits, _) = digits else { return None };
    // A fraction, an exponent or a number beyond all integers is the planner's.
    if digits.is_empty() || digits.len() > 30 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let text = if is_negative { format!("-{digits}") } else { digits.clone() };
    let value: ArrayRef = Arc::new(StringArray::from(vec![text]));
    // A cast that fails is NULL: the number is out of the column's range.
    let value = cast(&value, data_type).ok()?;
    Some(if value.is_null(0) { Literal::Nothing } else { Literal::Value(value) })
}
