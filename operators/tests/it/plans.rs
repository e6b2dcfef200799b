//! Plans of every operator over two tables of the same columns.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use operators::{AggregateCall, AggregateFunction, Expression, JoinKind, Node, NodeId, Operator, Plan};
use types::TableId;

use crate::model::{Passed, Row, RowExpression, SortKey, Value, batch_of};

pub(crate) const LEFT: TableId = TableId(1);
pub(crate) const RIGHT: TableId = TableId(2);

/// k and v BIGINT, s VARCHAR, f DOUBLE, d DECIMAL(12,2), b BOOLEAN; all nullable.
pub(crate) fn table_schema() -> SchemaRef {
    schema(&[
        ("k", DataType::Int64),
        ("v", DataType::Int64),
        ("s", DataType::Utf8),
        ("f", DataType::Float64),
        ("d", DataType::Decimal128(12, 2)),
        ("b", DataType::Boolean),
    ])
}

pub(crate) fn schemas() -> BTreeMap<TableId, SchemaRef> {
    BTreeMap::from([(LEFT, table_schema()), (RIGHT, table_schema())])
}

fn schema(fields: &[(&str, DataType)]) -> SchemaRef {
    let fields: Vec<Field> =
        fields.iter().map(|(name, data_type)| Field::new(*name, data_type.clone(), true)).collect();
    Arc::new(Schema::new(fields))
}

/// Builds a plan node by node.
#[derive(Default)]
pub(crate) struct PlanBuilder {
    nodes: Vec<Node>,
}

impl PlanBuilder {
    pub(crate) fn add(&mut self, operator: Operator, inputs: &[NodeId], schema: SchemaRef) -> NodeId {
        let inputs = inputs.to_vec();
        self.nodes.push(Node { operator, inputs, schema, stream_key: None, append_only: false });
        NodeId(self.nodes.len() - 1)
    }

    pub(crate) fn schema(&self, node: NodeId) -> SchemaRef {
        Arc::clone(&self.nodes[node.0].schema)
    }

    /// Some columns of a table.
    pub(crate) fn source(&mut self, table: TableId, columns: &[usize]) -> NodeId {
        let schema = Arc::new(table_schema().project(columns).unwrap());
        self.add(Operator::Source { table, columns: columns.to_vec() }, &[], schema)
    }

    pub(crate) fn filter(&mut self, input: NodeId, predicate: RowExpression) -> NodeId {
        let schema = self.schema(input);
        self.add(Operator::Filter { predicate: Arc::new(predicate) }, &[input], schema)
    }

    /// Some columns as they are, then the sort keys of some texts.
    pub(crate) fn pass(&mut self, input: NodeId, columns: &[usize], sort_keys: &[usize]) -> NodeId {
        let of = self.schema(input);
        let passed = columns.iter().map(|column| {
            let data_type = of.field(*column).data_type().clone();
            Arc::new(Passed { column: *column, data_type }) as Arc<dyn Expression>
        });
        let keys =
            sort_keys.iter().map(|column| Arc::new(SortKey { column: *column }) as Arc<dyn Expression>);
        let expressions: Vec<Arc<dyn Expression>> = passed.chain(keys).collect();
        let fields: Vec<(&str, DataType)> = expressions.iter().map(|one| ("c", one.data_type())).collect();
        self.add(Operator::Project { expressions }, &[input], schema(&fields))
    }

    pub(crate) fn project(&mut self, input: NodeId, expressions: &[RowExpression]) -> NodeId {
        let fields: Vec<(&str, DataType)> =
            expressions.iter().map(|one| (one.name, one.data_type.clone())).collect();
        let expressions =
            expressions.iter().map(|one| Arc::new(one.clone()) as Arc<dyn Expression>).collect();
        self.add(Operator::Project { expressions }, &[input], schema(&fields))
    }

    pub(crate) fn join(
        &mut self,
        kind: JoinKind,
        (left, left_keys): (NodeId, &[usize]),
        (right, right_keys): (NodeId, &[usize]),
        null_equal: bool,
        residual: Option<RowExpression>,
    ) -> NodeId {
        let left_schema = self.schema(left);
        let schema = if matches!(kind, JoinKind::Inner | JoinKind::Left) {
            let right_schema = self.schema(right);
            let fields: Vec<Arc<Field>> =
                left_schema.fields().iter().chain(right_schema.fields()).cloned().collect();
            Arc::new(Schema::new(fields))
        } else {
            left_schema
        };
        let residual = residual.map(|one| Arc::new(one) as Arc<dyn Expression>);
        let (left_keys, right_keys) = (left_keys.to_vec(), right_keys.to_vec());
        self.add(Operator::Join { kind, left_keys, right_keys, null_equal, residual }, &[left, right], schema)
    }

    pub(crate) fn aggregate(&mut self, input: NodeId, group: &[usize], calls: &[AggregateCall]) -> NodeId {
        let input_schema = self.schema(input);
        let mut fields: Vec<Field> = group.iter().map(|column| input_schema.field(*column).clone()).collect();
        for call in calls {
            let argument = call
                .arguments
                .first()
                .map_or(DataType::Null, |one| input_schema.field(*one).data_type().clone());
            let data_type = call.function.output_type(&argument, call.distinct).unwrap();
            fields.push(Field::new(call.function.name(), data_type, true));
        }
        let operator = Operator::Aggregate { group: group.to_vec(), calls: calls.to_vec() };
        self.add(operator, &[input], Arc::new(Schema::new(fields)))
    }

    pub(crate) fn build(self) -> Plan {
        Plan { nodes: self.nodes }
    }
}

pub(crate) fn call(function: AggregateFunction, arguments: &[usize]) -> AggregateCall {
    AggregateCall { function, arguments: arguments.to_vec(), distinct: false, filter: None }
}

pub(crate) fn distinct(function: AggregateFunction, arguments: &[usize]) -> AggregateCall {
    AggregateCall { distinct: true, ..call(function, arguments) }
}

pub(crate) fn filtered(call: AggregateCall, filter: usize) -> AggregateCall {
    AggregateCall { filter: Some(filter), ..call }
}

fn int(value: &Value) -> Option<i64> {
    if let Value::Int(value) = value { Some(*value) } else { None }
}

/// The second column is positive.
pub(crate) fn v_is_positive() -> RowExpression {
    RowExpression {
        name: "v > 0",
        data_type: DataType::Boolean,
        evaluate: |row| int(&row[1]).map_or(Value::Null, |v| Value::Bool(v > 0)),
    }
}

/// For joined rows of two columns each: the left v is at most the right v.
pub(crate) fn left_v_at_most_right_v() -> RowExpression {
    RowExpression {
        name: "l.v <= r.v",
        data_type: DataType::Boolean,
        evaluate: |row| match (int(&row[1]), int(&row[3])) {
            (Some(left), Some(right)) => Value::Bool(left <= right),
            _ => Value::Null,
        },
    }
}

/// The second column is even; fails where it is negative.
pub(crate) fn fails_for_negative_v() -> RowExpression {
    RowExpression {
        name: "v is even",
        data_type: DataType::Boolean,
        evaluate: |row| match int(&row[1]) {
            Some(v) if v < 0 => Value::Failed,
            Some(v) => Value::Bool(v % 2 == 0),
            None => Value::Null,
        },
    }
}

/// For joined rows of two columns each: l.v - r.v, which fails where it is negative.
pub(crate) fn unsigned_difference() -> RowExpression {
    RowExpression {
        name: "l.v - r.v",
        data_type: DataType::Int64,
        evaluate: |row| match (int(&row[1]), int(&row[3])) {
            (Some(left), Some(right)) if left < right => Value::Failed,
            (Some(left), Some(right)) => Value::Int(left - right),
            _ => Value::Null,
        },
    }
}

/// For joined rows of two columns each: whether l.v - r.v is even, which fails where it is negative.
pub(crate) fn difference_is_even() -> RowExpression {
    RowExpression {
        name: "(l.v - r.v) % 2 = 0",
        data_type: DataType::Boolean,
        evaluate: |row| match (unsigned_difference().evaluate)(row) {
            Value::Int(difference) => Value::Bool(difference % 2 == 0),
            other => other,
        },
    }
}

/// All join kinds over (k, v) of both tables.
pub(crate) fn join_plan(
    kind: JoinKind,
    keys: &[usize],
    null_equal: bool,
    residual: Option<RowExpression>,
) -> Plan {
    let mut plan = PlanBuilder::default();
    let left = plan.source(LEFT, &[0, 1]);
    let right = plan.source(RIGHT, &[0, 1]);
    plan.join(kind, (left, keys), (right, keys), null_equal, residual);
    plan.build()
}

/// Every aggregate over each type that it takes.
pub(crate) fn all_calls() -> Vec<AggregateCall> {
    use AggregateFunction::{ApproxCountDistinct, Avg, Count, Max, Min, Sum};
    let mut calls = vec![call(Count, &[]), filtered(call(Count, &[]), 5), call(Count, &[1, 2])];
    for column in 1..5 {
        calls.push(call(Count, &[column]));
        calls.push(distinct(Count, &[column]));
        calls.push(call(Min, &[column]));
        calls.push(call(Max, &[column]));
        calls.push(filtered(call(Max, &[column]), 5));
        if column != 2 {
            calls.push(call(Sum, &[column]));
            calls.push(call(Avg, &[column]));
            calls.push(distinct(Sum, &[column]));
            calls.push(filtered(distinct(Avg, &[column]), 5));
        }
    }
    calls.push(distinct(Count, &[1, 2]));
    // Over few values, of which no two share a register, the estimate is exact.
    calls.push(call(ApproxCountDistinct, &[1]));
    calls.push(filtered(call(ApproxCountDistinct, &[2]), 5));
    calls.push(call(Min, &[5]));
    calls
}

pub(crate) fn aggregate_plan(group: &[usize], calls: &[AggregateCall]) -> Plan {
    let mut plan = PlanBuilder::default();
    let source = plan.source(LEFT, &[0, 1, 2, 3, 4, 5]);
    plan.aggregate(source, group, calls);
    plan.build()
}

/// Fixed rows of one column.
pub(crate) fn values(plan: &mut PlanBuilder, rows: &[Row]) -> NodeId {
    let schema = schema(&[("x", DataType::Int64)]);
    plan.add(Operator::Values { rows: batch_of(&schema, rows) }, &[], schema)
}
