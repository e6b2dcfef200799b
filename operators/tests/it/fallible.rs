//! Random plans with expressions that fail for some rows: a dataflow fails if and only if the query does.
//!
//! Epochs come in one part or in several, as under memory pressure. After a fault the view is filled anew
//! in pieces, sealed and opened again between any two, as a fill is; it too may fail only if the query
//! over the whole tables does.

use std::collections::BTreeMap;

use arrow::datatypes::DataType;
use operators::AggregateFunction::{Count, Max};
use operators::{DataflowOptions, JoinKind, NodeId, Operator, Plan, Rest};
use proptest::prelude::*;

use crate::harness::{After, Change, EpochInput, Harness};
use crate::model::{RowExpression, Value, recompute};
use crate::plans::{LEFT, PlanBuilder, RIGHT, call, schemas};
use crate::properties::{cases, history};

/// A relation of two columns, k and v.
#[derive(Clone, Debug)]
enum Shape {
    Table(bool),
    Filter(Box<Shape>),
    Project(Box<Shape>),
    Distinct(Box<Shape>),
    Greatest(Box<Shape>),
    Count(Box<Shape>),
    Union(Box<Shape>, Box<Shape>),
    /// A join on k, or of all pairs; with a residual that fails for some pairs, or none. Of joined rows v
    /// becomes the difference, which fails for some.
    Join(JoinKind, bool, bool, Box<Shape>, Box<Shape>),
    /// Rows beside a scalar subquery.
    Beside(Box<Shape>, Box<Shape>),
}

fn shape() -> impl Strategy<Value = Shape> {
    let kind = || {
        prop_oneof![
            3 => Just(JoinKind::Inner),
            2 => Just(JoinKind::Left),
            1 => Just(JoinKind::LeftSemi),
            1 => Just(JoinKind::LeftAnti),
            1 => Just(JoinKind::LeftAntiNullAware),
        ]
    };
    any::<bool>().prop_map(Shape::Table).prop_recursive(4, 12, 2, move |inner| {
        let one = || inner.clone().prop_map(Box::new);
        prop_oneof![
            2 => one().prop_map(Shape::Filter),
            2 => one().prop_map(Shape::Project),
            1 => one().prop_map(Shape::Distinct),
            1 => one().prop_map(Shape::Greatest),
            1 => one().prop_map(Shape::Count),
            1 => (one(), one()).prop_map(|(left, right)| Shape::Union(left, right)),
            5 => (kind(), any::<bool>(), any::<bool>(), one(), one())
                .prop_map(|(kind, keyed, residual, left, right)| Shape::Join(kind, keyed, residual, left, right)),
            1 => (one(), one()).prop_map(|(left, scalar)| Shape::Beside(left, scalar)),
        ]
    })
}

fn expression(name: &'static str, data_type: DataType, evaluate: fn(&[Value]) -> Value) -> RowExpression {
    RowExpression { name, data_type, evaluate }
}

fn k() -> RowExpression {
    expression("k", DataType::Int64, |row| row[0].clone())
}

fn v_or_failed() -> RowExpression {
    expression("fail(v, 2)", DataType::Int64, |row| match row[1] {
        Value::Int(2) => Value::Failed,
        ref other => other.clone(),
    })
}

fn positive_or_failed() -> RowExpression {
    expression("fail(v, -2) > 0", DataType::Boolean, |row| match row[1] {
        Value::Int(-2) => Value::Failed,
        Value::Int(v) => Value::Bool(v > 0),
        _ => Value::Null,
    })
}

/// Of joined rows: l.v - r.v, kept small.
fn difference(row: &[Value]) -> Option<i64> {
    match (&row[1], &row[3]) {
        (Value::Int(left), Value::Int(right)) => Some((left - right) % 4),
        _ => None,
    }
}

fn difference_or_failed() -> RowExpression {
    expression("fail(l.v - r.v, -2)", DataType::Int64, |row| match difference(row) {
        Some(-2) => Value::Failed,
        Some(difference) => Value::Int(difference),
        None => Value::Null,
    })
}

fn even_or_failed() -> RowExpression {
    expression("fail(l.v - r.v, 3) % 2 = 0", DataType::Boolean, |row| match difference(row) {
        Some(3) => Value::Failed,
        Some(difference) => Value::Bool(difference % 2 == 0),
        None => Value::Null,
    })
}

impl Shape {
    fn add_to(&self, plan: &mut PlanBuilder) -> NodeId {
        match self {
            Shape::Table(is_left) => plan.source(if *is_left { LEFT } else { RIGHT }, &[0, 1]),
            Shape::Filter(input) => {
                let input = input.add_to(plan);
                plan.filter(input, positive_or_failed())
            }
            Shape::Project(input) => {
                let input = input.add_to(plan);
                plan.project(input, &[k(), v_or_failed()])
            }
            Shape::Distinct(input) => {
                let input = input.add_to(plan);
                let schema = plan.schema(input);
                plan.add(Operator::Distinct, &[input], schema)
            }
            Shape::Greatest(input) => {
                let input = input.add_to(plan);
                plan.aggregate(input, &[0], &[call(Max, &[1])])
            }
            Shape::Count(input) => {
                let input = input.add_to(plan);
                plan.aggregate(input, &[0], &[call(Count, &[])])
            }
            Shape::Union(left, right) => {
                let inputs = [left.add_to(plan), right.add_to(plan)];
                let schema = plan.schema(inputs[0]);
                plan.add(Operator::Union, &inputs, schema)
            }
            Shape::Join(kind, is_keyed, has_residual, left, right) => {
                let (left, right) = (left.add_to(plan), right.add_to(plan));
                let keys: &[usize] = if *is_keyed { &[0] } else { &[] };
                let residual = has_residual.then(even_or_failed);
                let joined = plan.join(*kind, (left, keys), (right, keys), false, residual);
                if matches!(kind, JoinKind::Inner | JoinKind::Left) {
                    plan.project(joined, &[k(), difference_or_failed()])
                } else {
                    joined
                }
            }
            Shape::Beside(left, scalar) => {
                let (left, scalar) = (left.add_to(plan), scalar.add_to(plan));
                let schema = plan.schema(scalar);
                let scalar = plan.add(Operator::AtMostOneRow, &[scalar], schema);
                let joined = plan.join(JoinKind::Left, (left, &[]), (scalar, &[]), false, None);
                plan.project(joined, &[k(), difference_or_failed()])
            }
        }
    }

    fn plan(&self) -> Plan {
        let mut plan = PlanBuilder::default();
        self.add_to(&mut plan);
        plan.build()
    }
}

/// The harness goes on over an epoch, or says that the dataflow failed.
fn run_epoch(harness: &mut Harness, epoch: &EpochInput, is_parted: bool) -> types::Result<()> {
    for part in epoch.batches.concat().chunks(if is_parted { 2 } else { usize::MAX }) {
        harness.push(part)?;
        // Sources deliver in the order of commits: no part deletes what only a later one inserts.
        let is_sound = harness.tables.values().flat_map(|rows| rows.values()).all(|weight| *weight > 0);
        if is_parted && is_sound {
            harness.early_barrier(Rest::Changes)?;
        }
    }
    harness.barrier()?;
    match epoch.after {
        After::Nothing => {}
        After::Seal => harness.seal(),
        After::Reopen => {
            harness.seal();
            harness.dataflow = harness.open();
        }
    }
    Ok(())
}

/// Fills a new harness with what tables hold, a few rows an epoch.
fn fill(harness: &mut Harness, rows: &[Change], piece_rows: usize) -> types::Result<()> {
    for piece in rows.chunks(piece_rows) {
        harness.push(piece)?;
        harness.early_barrier(Rest::Inserts)?;
        harness.seal();
        harness.dataflow = harness.open();
    }
    harness.barrier()?;
    harness.seal();
    let failed = harness.manifests.last().unwrap();
    assert!(failed.runs.is_empty(), "nothing that failed is left behind");
    Ok(())
}

fn check(plan: &Plan, history: &[EpochInput], options: DataflowOptions, is_parted: bool) {
    let new = || Harness::new(plan.clone(), schemas(), options);
    let mut harness = Some(new());
    let mut tables = BTreeMap::new();
    for epoch in history {
        for (table, row, weight) in epoch.batches.iter().flatten() {
            crate::model::add(tables.entry(*table).or_default(), row.clone(), *weight);
        }
        let expected = recompute(plan, &tables);
        let mut working = harness.take();
        let outcome = match &mut working {
            Some(working) => run_epoch(working, epoch, is_parted),
            None => {
                let rows: Vec<Change> = tables
                    .iter()
                    .flat_map(|(table, rows)| rows.iter().map(|(row, weight)| (*table, row.clone(), *weight)))
                    .collect();
                fill(working.insert(new()), &rows, 3)
            }
        };
        assert_eq!(outcome.is_err(), expected.is_none(), "{outcome:?}; tables {tables:#?}");
        harness = working.filter(|_| outcome.is_ok());
        if let Some(harness) = &harness {
            assert_eq!(harness.view, expected.unwrap_or_default(), "tables {tables:#?}");
        }
    }
}

#[test]
fn a_dataflow_fails_if_and_only_if_its_query_does() {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: cases(600),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    });
    let result = runner.run(&(shape(), history(), any::<bool>()), |(shape, history, is_parted)| {
        let plan = shape.plan();
        for (parallelism, memory_bytes_max) in [(1, 1 << 30), (7, 64)] {
            let options = DataflowOptions { parallelism, memory_bytes_max };
            check(&plan, &history, options, is_parted);
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}
