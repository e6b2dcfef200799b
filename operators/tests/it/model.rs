//! The reference: rows as values, and a plan recomputed row by row.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Float64Array, Int64Array, RecordBatch,
    RecordBatchOptions, StringArray,
};
use arrow::datatypes::{
    DataType, Decimal128Type, Decimal256Type, Float64Type, Int64Type, SchemaRef, UInt32Type,
};
use operators::{AggregateCall, AggregateFunction, Expression, JoinKind, Operator, Plan};
use types::TableId;

/// A value of a row.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Text(String),
    Float(f64),
    /// Unscaled, and the scale.
    Decimal(i128, i8),
    /// What an expression yields that fails; never in a row.
    Failed,
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Value {}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Value) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Value) -> Ordering {
        let rank = |value: &Value| match value {
            Value::Null => 0,
            Value::Bool(_) => 1,
            Value::Int(_) => 2,
            Value::Text(_) => 3,
            Value::Float(_) => 4,
            Value::Decimal(_, _) => 5,
            Value::Failed => 6,
        };
        match (self, other) {
            (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
            (Value::Int(left), Value::Int(right)) => left.cmp(right),
            (Value::Text(left), Value::Text(right)) => left.cmp(right),
            (Value::Float(left), Value::Float(right)) => {
                left.partial_cmp(right).unwrap_or_else(|| left.is_nan().cmp(&right.is_nan()))
            }
            (Value::Decimal(left, _), Value::Decimal(right, _)) => left.cmp(right),
            _ => rank(self).cmp(&rank(other)),
        }
    }
}

/// A row.
pub(crate) type Row = Vec<Value>;

/// Rows with their weights, none 0.
pub(crate) type Rows = BTreeMap<Row, i64>;

/// Adds a row as often as its weight says.
pub(crate) fn add(rows: &mut Rows, row: Row, weight: i64) {
    let entry = rows.entry(row.clone()).or_insert(0);
    *entry += weight;
    if *entry == 0 {
        rows.remove(&row);
    }
}

/// The values of a batch.
pub(crate) fn rows_of(batch: &RecordBatch) -> Vec<Row> {
    (0..batch.num_rows())
        .map(|row| batch.columns().iter().map(|column| value_of(column, row)).collect())
        .collect()
}

fn value_of(column: &ArrayRef, row: usize) -> Value {
    if column.is_null(row) || *column.data_type() == DataType::Null {
        return Value::Null;
    }
    match column.data_type() {
        DataType::Boolean => Value::Bool(column.as_boolean().value(row)),
        DataType::Int64 => Value::Int(column.as_primitive::<Int64Type>().value(row)),
        DataType::UInt32 => Value::Int(i64::from(column.as_primitive::<UInt32Type>().value(row))),
        DataType::Utf8 => Value::Text(column.as_string::<i32>().value(row).to_owned()),
        DataType::Float64 => Value::Float(column.as_primitive::<Float64Type>().value(row)),
        DataType::Decimal128(_, scale) => {
            Value::Decimal(column.as_primitive::<Decimal128Type>().value(row), *scale)
        }
        DataType::Decimal256(_, scale) => {
            let value = column.as_primitive::<Decimal256Type>().value(row);
            Value::Decimal(value.to_i128().expect("tests stay below 38 digits"), *scale)
        }
        other => panic!("no value of {other}"),
    }
}

/// A column of values.
pub(crate) fn column_of(data_type: &DataType, values: Vec<Value>) -> ArrayRef {
    match data_type {
        DataType::Boolean => Arc::new(BooleanArray::from_iter(values.into_iter().map(|value| match value {
            Value::Bool(value) => Some(value),
            _ => None,
        }))),
        DataType::Int64 => Arc::new(Int64Array::from_iter(values.into_iter().map(|value| match value {
            Value::Int(value) => Some(value),
            _ => None,
        }))),
        DataType::Utf8 => Arc::new(StringArray::from_iter(values.into_iter().map(|value| match value {
            Value::Text(value) => Some(value),
            _ => None,
        }))),
        DataType::Float64 => Arc::new(Float64Array::from_iter(values.into_iter().map(|value| match value {
            Value::Float(value) => Some(value),
            _ => None,
        }))),
        DataType::Decimal128(precision, scale) => Arc::new(
            Decimal128Array::from_iter(values.into_iter().map(|value| match value {
                Value::Decimal(value, _) => Some(value),
                _ => None,
            }))
            .with_precision_and_scale(*precision, *scale)
            .unwrap(),
        ),
        other => panic!("no column of {other}"),
    }
}

/// A batch of rows.
pub(crate) fn batch_of(schema: &SchemaRef, rows: &[Row]) -> RecordBatch {
    let columns = schema.fields().iter().enumerate().map(|(index, field)| {
        column_of(field.data_type(), rows.iter().map(|row| row[index].clone()).collect())
    });
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns.collect(), &options).unwrap()
}

/// An expression by a function over a row, so that both sides of a test evaluate the same.
#[derive(Clone)]
pub(crate) struct RowExpression {
    pub(crate) name: &'static str,
    pub(crate) data_type: DataType,
    pub(crate) evaluate: fn(&[Value]) -> Value,
}

impl std::fmt::Debug for RowExpression {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name)
    }
}

impl Expression for RowExpression {
    fn evaluate(&self, batch: &RecordBatch) -> types::Result<ArrayRef> {
        let values: Vec<Value> = rows_of(batch).iter().map(|row| (self.evaluate)(row)).collect();
        if values.contains(&Value::Failed) {
            return Err(types::Error::mysql(1690, format!("value is out of range in {}", self.name)));
        }
        Ok(column_of(&self.data_type, values))
    }

    fn data_type(&self) -> DataType {
        self.data_type.clone()
    }

    fn describe(&self) -> String {
        self.name.to_owned()
    }
}

/// A column as it is.
#[derive(Debug)]
pub(crate) struct Passed {
    pub(crate) column: usize,
    pub(crate) data_type: DataType,
}

impl Expression for Passed {
    fn evaluate(&self, batch: &RecordBatch) -> types::Result<ArrayRef> {
        Ok(Arc::clone(batch.column(self.column)))
    }

    fn data_type(&self) -> DataType {
        self.data_type.clone()
    }

    fn describe(&self) -> String {
        format!("c{}", self.column)
    }

    fn passes(&self) -> Option<usize> {
        Some(self.column)
    }
}

/// The sort key of a text column.
#[derive(Debug)]
pub(crate) struct SortKey {
    pub(crate) column: usize,
}

impl Expression for SortKey {
    fn evaluate(&self, batch: &RecordBatch) -> types::Result<ArrayRef> {
        let trimmed = |row: Row| match &row[self.column] {
            Value::Text(text) => Value::Text(operators::trim_padding(text).to_owned()),
            other => other.clone(),
        };
        Ok(column_of(&DataType::Utf8, rows_of(batch).into_iter().map(trimmed).collect()))
    }

    fn data_type(&self) -> DataType {
        DataType::Utf8
    }

    fn describe(&self) -> String {
        format!("sort key of c{}", self.column)
    }

    fn passes(&self) -> Option<usize> {
        Some(self.column)
    }
}

fn evaluate_row(expression: &Arc<dyn Expression>, types: &[DataType], row: &Row) -> Option<Value> {
    let fields: Vec<_> =
        types.iter().map(|data_type| arrow::datatypes::Field::new("c", data_type.clone(), true)).collect();
    let schema = Arc::new(arrow::datatypes::Schema::new(fields));
    let array = expression.evaluate(&batch_of(&schema, std::slice::from_ref(row))).ok()?;
    Some(value_of(&array, 0))
}

/// Recomputes a plan from its tables; none if an expression fails, or if a scalar subquery has two rows.
pub(crate) fn recompute(plan: &Plan, tables: &BTreeMap<TableId, Rows>) -> Option<Rows> {
    let mut outputs: Vec<Vec<Row>> = Vec::new();
    for node in &plan.nodes {
        let types = |input: usize| -> Vec<DataType> {
            let schema = &plan.nodes[node.inputs[input].0].schema;
            schema.fields().iter().map(|field| field.data_type().clone()).collect()
        };
        let input = |port: usize| &outputs[node.inputs[port].0];
        let rows: Vec<Row> = match &node.operator {
            Operator::Source { table, columns } => tables
                .get(table)
                .into_iter()
                .flatten()
                .flat_map(|(row, weight)| {
                    assert!(*weight > 0, "tests keep tables sound");
                    let row: Row = columns.iter().map(|column| row[*column].clone()).collect();
                    std::iter::repeat_n(row, *weight as usize)
                })
                .collect(),
            Operator::Values { rows } => rows_of(rows),
            Operator::Filter { predicate } => {
                let mut kept = Vec::new();
                for row in input(0) {
                    if evaluate_row(predicate, &types(0), row)? == Value::Bool(true) {
                        kept.push(row.clone());
                    }
                }
                kept
            }
            Operator::Project { expressions } => input(0)
                .iter()
                .map(|row| expressions.iter().map(|one| evaluate_row(one, &types(0), row)).collect())
                .collect::<Option<_>>()?,
            Operator::Union => (0..node.inputs.len()).flat_map(|port| input(port).clone()).collect(),
            Operator::Join { .. } => {
                let all = [types(0), types(1)].concat();
                join(&node.operator, input(0), input(1), &all, types(1).len())?
            }
            Operator::Aggregate { group, calls } => aggregate(group, calls, input(0)),
            Operator::Distinct => {
                let mut rows = input(0).clone();
                rows.sort();
                rows.dedup();
                rows
            }
            Operator::AtMostOneRow => match input(0).as_slice() {
                [] => vec![vec![Value::Null; node.schema.fields().len()]],
                [row] => vec![row.clone()],
                _ => return None,
            },
        };
        outputs.push(rows);
    }
    let mut rows = Rows::new();
    for row in outputs.pop().unwrap() {
        add(&mut rows, row, 1);
    }
    Some(rows)
}

/// Equality of SQL: none if unknown.
fn keys_equal(left: &Row, right: &Row, keys: &[(usize, usize)], null_equal: bool) -> Option<bool> {
    let mut result = Some(true);
    for (left_key, right_key) in keys {
        let (left_value, right_value) = (&left[*left_key], &right[*right_key]);
        let equal = if null_equal || (*left_value != Value::Null && *right_value != Value::Null) {
            Some(left_value == right_value)
        } else {
            None
        };
        result = match (result, equal) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (None, _) | (_, None) => None,
            _ => Some(true),
        };
    }
    result
}

fn join(
    operator: &Operator,
    left: &[Row],
    right: &[Row],
    types: &[DataType],
    n_right: usize,
) -> Option<Vec<Row>> {
    let Operator::Join { kind, left_keys, right_keys, null_equal, residual } = operator else {
        unreachable!()
    };
    let keys: Vec<(usize, usize)> = left_keys.iter().copied().zip(right_keys.iter().copied()).collect();
    let mut rows = Vec::new();
    for left_row in left {
        let mut matches = Vec::new();
        for right_row in right {
            let equal = keys_equal(left_row, right_row, &keys, *null_equal);
            let is_candidate =
                if *kind == JoinKind::LeftAntiNullAware { equal != Some(false) } else { equal == Some(true) };
            let joined: Row = left_row.iter().chain(right_row).cloned().collect();
            let holds = match residual {
                Some(residual) if is_candidate => {
                    evaluate_row(residual, types, &joined)? == Value::Bool(true)
                }
                _ => is_candidate,
            };
            if holds {
                matches.push(joined);
            }
        }
        match kind {
            JoinKind::Inner => rows.extend(matches),
            JoinKind::Left if matches.is_empty() => {
                rows.push(left_row.iter().cloned().chain(vec![Value::Null; n_right]).collect());
            }
            JoinKind::Left => rows.extend(matches),
            JoinKind::LeftSemi if !matches.is_empty() => rows.push(left_row.clone()),
            JoinKind::LeftAnti | JoinKind::LeftAntiNullAware if matches.is_empty() => {
                rows.push(left_row.clone())
            }
            _ => {}
        }
    }
    Some(rows)
}

fn aggregate(group: &[usize], calls: &[AggregateCall], input: &[Row]) -> Vec<Row> {
    let mut groups: BTreeMap<Row, Vec<&Row>> = BTreeMap::new();
    if group.is_empty() {
        groups.insert(vec![], vec![]);
    }
    for row in input {
        groups.entry(group.iter().map(|column| row[*column].clone()).collect()).or_default().push(row);
    }
    groups
        .into_iter()
        .map(|(key, rows)| {
            key.into_iter().chain(calls.iter().map(|call| evaluate_call(call, &rows))).collect()
        })
        .collect()
}

fn trimmed(value: &Value) -> Value {
    match value {
        Value::Text(text) => Value::Text(text.trim_end_matches(' ').to_owned()),
        other => other.clone(),
    }
}

fn evaluate_call(call: &AggregateCall, rows: &[&Row]) -> Value {
    let counts = |row: &&&Row| call.filter.is_none_or(|filter| row[filter] == Value::Bool(true));
    let mut values: Vec<Row> = rows
        .iter()
        .filter(counts)
        .map(|row| call.arguments.iter().map(|argument| row[*argument].clone()).collect::<Row>())
        .filter(|row| !row.contains(&Value::Null))
        .collect();
    // Tests sketch few values, of which no two share a register.
    let is_sketch = call.function == AggregateFunction::ApproxCountDistinct;
    let is_extreme = matches!(call.function, AggregateFunction::Min | AggregateFunction::Max);
    if is_sketch || (call.distinct && !is_extreme) {
        values = values.into_iter().map(|row| row.iter().map(trimmed).collect()).collect();
        values.sort();
        values.dedup();
    }
    let count = values.len() as i64;
    if call.function.is_count() {
        return Value::Int(count);
    }
    let values: Vec<Value> = values.into_iter().map(|mut row| row.remove(0)).collect();
    if values.is_empty() {
        return Value::Null;
    }
    match call.function {
        AggregateFunction::Min => {
            values.into_iter().min_by_key(|value| (trimmed(value), value.clone())).unwrap()
        }
        AggregateFunction::Max => {
            let greatest = values.iter().map(trimmed).max().unwrap();
            values.into_iter().filter(|value| trimmed(value) == greatest).min().unwrap()
        }
        function => sum_or_mean(function, &values, count),
    }
}

/// Test data keeps floating numbers at multiples of 1/8, so that whole numbers add them exactly.
fn sum_or_mean(function: AggregateFunction, values: &[Value], count: i64) -> Value {
    let is_mean = function == AggregateFunction::Avg;
    if let Value::Float(_) = values[0] {
        let eighths: i128 =
            values.iter().map(|value| if let Value::Float(f) = value { (f * 8.0) as i128 } else { 0 }).sum();
        let sum = eighths as f64 / 8.0;
        return Value::Float(if is_mean { sum / count as f64 } else { sum });
    }
    let (mut sum, mut scale) = (0i128, 0i8);
    for value in values {
        match value {
            Value::Int(value) => sum += i128::from(*value),
            Value::Decimal(value, value_scale) => {
                sum += value;
                scale = *value_scale;
            }
            other => panic!("no sum of {other:?}"),
        }
    }
    if !is_mean {
        return Value::Decimal(sum, scale);
    }
    let (numerator, count) = (sum * 10_000, i128::from(count));
    let half = if numerator < 0 { -count } else { count };
    Value::Decimal((2 * numerator + half) / (2 * count), scale + 4)
}
