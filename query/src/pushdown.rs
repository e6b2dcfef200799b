//! Which ranges of keys can hold rows that satisfy predicates on the primary key.
//!
//! The answer may be too wide, never too narrow: the predicates are evaluated again above the scan. Text
//! compares by `pad_key`, which is what stands in keys.

use std::ops::Bound;
use std::sync::Arc;

use arrow::array::ArrayRef;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, TableProviderFilterPushDown};
use store::{KeyRange, next_key};
use tidb::{ColumnType, TableInfo};
use types::Result;

/// The most point ranges that an IN list makes.
const POINTS_MAX: usize = 1000;

/// The column that a predicate compares with literals, if it does nothing else. Such a predicate is not true
/// for NULL, and means the same for all values of one sort key.
pub(crate) fn column_of(info: &TableInfo, filter: &Expr) -> Option<usize> {
    match points(info, filter) {
        Some((column, _)) => Some(column),
        None => comparison(info, filter).map(|found| found.column),
    }
}

/// What a table says of filters: those that it takes narrow what is read, and are evaluated again above.
pub(crate) fn support(filters: &[&Expr], takes: impl Fn(&Expr) -> bool) -> Vec<TableProviderFilterPushDown> {
    let kind = |filter: &&Expr| match takes(filter) {
        true => TableProviderFilterPushDown::Inexact,
        false => TableProviderFilterPushDown::Unsupported,
    };
    filters.iter().map(kind).collect()
}

/// Whether a predicate narrows a scan.
pub(crate) fn is_useful(info: &TableInfo, filter: &Expr) -> bool {
    column_of(info, filter).is_some_and(|column| info.primary_key.contains(&column))
}

/// The ranges to scan, in key order; the rows live under some ids, which are in ascending order.
pub(crate) fn ranges(info: &TableInfo, physical_ids: &[i64], filters: &[Expr]) -> Result<Vec<KeyRange>> {
    if let [one] = physical_ids
        && *one == info.id
    {
        return ranges_of_one(info, filters);
    }
    let mut all = Vec::new();
    for id in physical_ids {
        all.extend(ranges_of_one(&TableInfo { id: *id, ..info.clone() }, filters)?);
    }
    Ok(all)
}

fn ranges_of_one(info: &TableInfo, filters: &[Expr]) -> Result<Vec<KeyRange>> {
    let filters: Vec<&Expr> = filters.iter().flat_map(conjuncts).collect();
    if let [column] = info.primary_key.as_slice()
        && let Some(values) = filters
            .iter()
            .find_map(|filter| points(info, filter).filter(|(at, _)| at == column).map(|(_, values)| values))
    {
        return point_ranges(info, &values);
    }
    let comparisons: Vec<Comparison> = filters.iter().filter_map(|filter| comparison(info, filter)).collect();
    let of = |column: usize, wanted: fn(Operator) -> bool| {
        comparisons.iter().find(move |found| found.column == column && wanted(found.operator))
    };
    let mut equal: Vec<ArrayRef> = Vec::new();
    let (mut lower, mut upper) = (Bound::Unbounded, Bound::Unbounded);
    for column in &info.primary_key {
        if let Some(found) = of(*column, |operator| operator == Operator::Eq) {
            equal.push(Arc::clone(&found.value));
            continue;
        }
        lower = match of(*column, |operator| matches!(operator, Operator::Gt | Operator::GtEq)) {
            Some(found) if found.operator == Operator::Gt => Bound::Excluded(&found.value),
            Some(found) => Bound::Included(&found.value),
            None => Bound::Unbounded,
        };
        upper = match of(*column, |operator| matches!(operator, Operator::Lt | Operator::LtEq)) {
            Some(found) if found.operator == Operator::Lt => Bound::Excluded(&found.value),
            Some(found) => Bound::Included(&found.value),
            None => Bound::Unbounded,
        };
        break;
    }
    let spans = tidb::scan_spans(info, &equal, lower, upper)?;
    Ok(spans.into_iter().map(|span| KeyRange::new(span.start, span.end)).collect())
}

fn point_ranges(info: &TableInfo, values: &[ArrayRef]) -> Result<Vec<KeyRange>> {
    let mut keys = Vec::with_capacity(values.len());
    for value in values {
        keys.extend(tidb::point_key(info, std::slice::from_ref(value))?);
    }
    keys.sort_unstable();
    keys.dedup();
    let range = |key: Vec<u8>| {
        let end = next_key(&key);
        KeyRange::new(key, end)
    };
    Ok(keys.into_iter().map(range).collect())
}

/// The parts of a conjunction.
pub(crate) fn conjuncts(filter: &Expr) -> Vec<&Expr> {
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            let mut parts = conjuncts(left);
            parts.extend(conjuncts(right));
            parts
        }
        other => vec![other],
    }
}

struct Comparison {
    column: usize,
    operator: Operator,
    value: ArrayRef,
}

/// `column operator literal`, the literal as a value of the column's type.
fn comparison(info: &TableInfo, filter: &Expr) -> Option<Comparison> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = filter else { return None };
    if !matches!(op, Operator::Eq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq) {
        return None;
    }
    let (column, operator, literal) = match (ordered_column(info, left), ordered_column(info, right)) {
        (Some(column), None) => (column, *op, right),
        (None, Some(column)) => (column, op.swap()?, left),
        _ => return None,
    };
    Some(Comparison { column, operator, value: literal_of(info, column, literal)? })
}

/// `column IN (literals)`, or its other form `column = literal OR …`, which the engine gives short lists.
fn points(info: &TableInfo, filter: &Expr) -> Option<(usize, Vec<ArrayRef>)> {
    match filter {
        Expr::InList(list) if !list.negated && list.list.len() <= POINTS_MAX => {
            let column = ordered_column(info, &list.expr)?;
            let values = list.list.iter().map(|item| literal_of(info, column, item));
            Some((column, values.collect::<Option<Vec<_>>>()?))
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            let (column, mut values) = alternatives(info, left)?;
            let (other, more) = alternatives(info, right)?;
            values.extend(more);
            (column == other && values.len() <= POINTS_MAX).then_some((column, values))
        }
        _ => None,
    }
}

/// The values of one column that satisfy a part of an OR.
fn alternatives(info: &TableInfo, filter: &Expr) -> Option<(usize, Vec<ArrayRef>)> {
    match comparison(info, filter) {
        Some(found) if found.operator == Operator::Eq => Some((found.column, vec![found.value])),
        Some(_) => None,
        None => points(info, filter),
    }
}

/// The column that an expression stands for, in the order that its values have in keys.
fn ordered_column(info: &TableInfo, expression: &Expr) -> Option<usize> {
    let (name, is_padded) = match expression {
        Expr::Column(column) => (&column.name, false),
        Expr::ScalarFunction(call) if call.func.name() == "pad_key" => match call.args.as_slice() {
            [Expr::Column(column)] => (&column.name, true),
            _ => return None,
        },
        _ => return None,
    };
    let column = info.columns.iter().position(|column| column.name == *name)?;
    let in_order = match info.columns[column].column_type {
        // Without pad_key, bytes would compare in another order than keys do.
        ColumnType::Char(_) | ColumnType::Varchar(_) | ColumnType::Text(_) => is_padded,
        // Signed zeros and NaN compare in other ways than their keys.
        ColumnType::Float | ColumnType::Double => false,
        // BINARY compares with its padding.
        _ => !is_padded,
    };
    in_order.then_some(column)
}

/// A literal as an array of one value of the column's type, if that loses nothing.
fn literal_of(info: &TableInfo, column: usize, expression: &Expr) -> Option<ArrayRef> {
    let Expr::Literal(value, _) = expression else { return None };
    let column_type = &info.columns[column].column_type;
    let target = column_type.arrow_type();
    let converted = if value.data_type() == target {
        value.clone()
    } else {
        let converted = value.cast_to(&target).ok()?;
        (converted.cast_to(&value.data_type()).ok()? == *value).then_some(converted)?
    };
    if let ScalarValue::Utf8(Some(text)) = &converted
        && column_type.is_text()
        && tidb::pad_key(text) != text
    {
        return None;
    }
    converted.to_array().ok()
}

#[cfg(test)]
mod tests;
