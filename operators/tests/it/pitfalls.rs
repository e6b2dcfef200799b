//! The cases where systems of this kind go wrong, one test each.

use operators::AggregateFunction::{Avg, Count, Max, Min, Sum};
use operators::{AggregateCall, DataflowOptions, JoinKind, Operator, Plan};

use crate::harness::{Change, Harness};
use crate::model::{Row, RowExpression, Value};
use crate::plans::{
    LEFT, PlanBuilder, RIGHT, aggregate_plan, call, distinct, filtered, join_plan, left_v_at_most_right_v,
    schemas,
};
use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use std::sync::Arc;

fn full(k: Option<i64>, v: Option<i64>, f: Option<f64>, b: Option<bool>) -> Row {
    vec![
        k.map_or(Value::Null, Value::Int),
        v.map_or(Value::Null, Value::Int),
        Value::Null,
        f.map_or(Value::Null, Value::Float),
        Value::Null,
        b.map_or(Value::Null, Value::Bool),
    ]
}

fn row(k: i64, v: i64) -> Row {
    full(Some(k), Some(v), None, None)
}

fn left(row: Row, weight: i64) -> Change {
    (LEFT, row, weight)
}

fn right(row: Row, weight: i64) -> Change {
    (RIGHT, row, weight)
}

/// Runs epochs at parallelism 1, 2 and 7 and compares with recomputation after each.
fn check(plan: Plan, epochs: &[&[Change]]) {
    for parallelism in [1, 2, 7] {
        let options = DataflowOptions { parallelism, ..DataflowOptions::default() };
        let mut harness = Harness::new(plan.clone(), schemas(), options);
        harness.barrier().unwrap();
        harness.check();
        for changes in epochs {
            harness.push(changes).unwrap();
            harness.barrier().unwrap();
            harness.check();
            harness.seal();
            harness.dataflow = harness.open();
        }
    }
}

/// Runs epochs over an aggregate and compares the last answer with what a person expects.
fn check_aggregate(group: &[usize], calls: &[AggregateCall], epochs: &[&[Change]], expected: &[Row]) {
    let plan = aggregate_plan(group, calls);
    check(plan.clone(), epochs);
    let mut harness = Harness::new(plan, schemas(), DataflowOptions::default());
    for changes in epochs {
        harness.push(changes).unwrap();
        harness.barrier().unwrap();
    }
    if epochs.is_empty() {
        harness.barrier().unwrap();
    }
    assert_eq!(harness.view.keys().cloned().collect::<Vec<_>>(), expected);
}

#[test]
fn a_group_whose_remaining_values_are_all_null_has_null_aggregates() {
    let null = full(Some(1), None, None, None);
    check_aggregate(
        &[0],
        &[
            call(Sum, &[1]),
            call(Avg, &[1]),
            call(Min, &[1]),
            call(Max, &[1]),
            call(Count, &[1]),
            call(Count, &[]),
        ],
        &[&[left(row(1, 5), 1), left(null.clone(), 1)], &[left(row(1, 5), -1)]],
        &[vec![
            Value::Int(1),
            Value::Null,
            Value::Null,
            Value::Null,
            Value::Null,
            Value::Int(0),
            Value::Int(1),
        ]],
    );
}

#[test]
fn a_group_whose_last_row_goes_disappears() {
    let epochs: [&[Change]; 2] = [&[left(row(1, 5), 1)], &[left(row(1, 5), -1)]];
    check_aggregate(&[0], &[call(Count, &[]), call(Max, &[1])], &epochs, &[]);
}

#[test]
fn a_global_aggregate_over_nothing_is_one_row_before_the_first_insert_and_after_the_last_delete() {
    let calls = [call(Count, &[]), call(Count, &[1]), call(Sum, &[1]), call(Avg, &[1]), call(Min, &[1])];
    let nothing = [vec![Value::Int(0), Value::Int(0), Value::Null, Value::Null, Value::Null]];
    check_aggregate(&[], &calls, &[], &nothing);
    check_aggregate(&[], &calls, &[&[left(row(1, 5), 1)], &[left(row(1, 5), -1)]], &nothing);
}

#[test]
fn a_global_aggregate_speaks_once_even_after_reopening_without_input() {
    let mut harness =
        Harness::new(aggregate_plan(&[], &[call(Count, &[])]), schemas(), DataflowOptions::default());
    assert_eq!(harness.barrier().unwrap().len(), 1);
    harness.seal();
    harness.dataflow = harness.open();
    assert!(harness.barrier().unwrap().is_empty());
    assert!(harness.open().barrier().unwrap().is_empty());
}

#[test]
fn min_and_max_lose_their_extreme_and_one_of_several_ties() {
    let calls = [call(Min, &[1]), call(Max, &[1])];
    let epochs: [&[Change]; 4] = [
        &[left(row(1, 5), 1), left(row(1, 5), 1), left(row(1, 7), 1), left(row(1, 9), 2)],
        &[left(row(1, 5), -1), left(row(1, 9), -1)],
        &[left(row(1, 5), -1), left(row(1, 9), -1)],
        &[left(row(1, 3), 1), left(row(1, 3), -1), left(row(1, 8), 1)],
    ];
    check_aggregate(&[0], &calls, &epochs, &[vec![Value::Int(1), Value::Int(7), Value::Int(8)]]);
}

#[test]
fn a_new_extreme_that_comes_and_goes_in_one_epoch_leaves_no_trace() {
    // The deletion arrives before the insertion that it belongs to.
    let epochs: [&[Change]; 2] = [
        &[left(row(1, 5), 1)],
        &[left(row(1, 3), -1), left(row(1, 3), 1), left(row(1, 9), -1), left(row(1, 9), 1)],
    ];
    check_aggregate(
        &[0],
        &[call(Min, &[1]), call(Max, &[1])],
        &epochs,
        &[vec![Value::Int(1), Value::Int(5), Value::Int(5)]],
    );
}

#[test]
fn extremes_of_the_group_column_itself() {
    let epochs: [&[Change]; 2] = [&[left(row(1, 5), 1), left(row(2, 6), 1)], &[left(row(2, 6), -1)]];
    check_aggregate(&[], &[call(Max, &[0]), call(Min, &[0])], &epochs, &[vec![Value::Int(1), Value::Int(1)]]);
    check_aggregate(&[0], &[call(Max, &[0])], &epochs, &[vec![Value::Int(1), Value::Int(1)]]);
}

#[test]
fn count_distinct_when_one_of_two_equal_values_is_deleted() {
    let calls = [distinct(Count, &[1]), distinct(Sum, &[1]), distinct(Count, &[0]), distinct(Count, &[0, 1])];
    let epochs: [&[Change]; 3] = [
        &[left(row(1, 5), 1), left(row(1, 5), 1), left(row(1, 6), 1)],
        &[left(row(1, 5), -1)],
        &[left(row(1, 6), -1)],
    ];
    check_aggregate(
        &[],
        &calls,
        &epochs,
        &[vec![Value::Int(1), Value::Decimal(5, 0), Value::Int(1), Value::Int(1)]],
    );
}

#[test]
fn distinct_with_filter_counts_only_rows_that_pass() {
    let with = |v: i64, b: Option<bool>| full(Some(1), Some(v), None, b);
    let calls = [filtered(distinct(Count, &[1]), 5), distinct(Count, &[1]), filtered(call(Max, &[1]), 5)];
    let epochs: [&[Change]; 3] = [
        &[left(with(5, Some(true)), 1), left(with(5, Some(false)), 1), left(with(6, None), 1)],
        &[left(with(7, Some(true)), 1)],
        &[left(with(5, Some(true)), -1)],
    ];
    check_aggregate(
        &[0],
        &calls,
        &epochs,
        &[vec![Value::Int(1), Value::Int(1), Value::Int(3), Value::Int(7)]],
    );
}

#[test]
fn sums_of_bigint_go_beyond_64_bits() {
    let epochs: [&[Change]; 1] = [&[left(row(1, i64::MAX), 3)]];
    check_aggregate(&[], &[call(Sum, &[1])], &epochs, &[vec![Value::Decimal(3 * i128::from(i64::MAX), 0)]]);
}

#[test]
fn floating_sums_forget_what_left() {
    let float = |f: f64| full(Some(1), None, Some(f), None);
    let calls = [call(Sum, &[3]), call(Avg, &[3]), call(Min, &[3]), call(Max, &[3])];
    let plan = aggregate_plan(&[0], &calls);
    for order in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 4, 1, 3]] {
        let mut harness = Harness::new(plan.clone(), schemas(), DataflowOptions::default());
        let passing = [1e308, 1e308, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
        harness.push(&[left(float(0.1), 1), left(float(1e-300), 1)]).unwrap();
        harness.barrier().unwrap();
        let before = harness.view.clone();
        for index in order {
            harness.push(&[left(float(passing[index]), 1)]).unwrap();
            harness.barrier().unwrap();
            harness.seal();
            harness.dataflow = harness.open();
        }
        for index in order {
            harness.push(&[left(float(passing[index]), -1)]).unwrap();
            harness.barrier().unwrap();
        }
        assert_eq!(harness.view, before);
        assert_eq!(before.keys().next().unwrap()[1], Value::Float(0.1));
    }
}

#[test]
fn negative_zero_is_zero() {
    let float = |f: f64| full(None, None, Some(f), None);
    let epochs: [&[Change]; 2] = [&[left(float(-0.0), 1), left(float(0.0), 1)], &[left(float(0.0), -1)]];
    check_aggregate(&[3], &[call(Count, &[])], &epochs, &[vec![Value::Float(0.0), Value::Int(1)]]);
}

#[test]
fn having_that_a_group_crosses_both_ways_in_one_epoch() {
    let mut plan = PlanBuilder::default();
    let source = plan.source(LEFT, &[0, 1]);
    let grouped = plan.aggregate(source, &[0], &[call(Count, &[])]);
    plan.filter(
        grouped,
        RowExpression {
            name: "count > 1",
            data_type: DataType::Boolean,
            evaluate: |row| Value::Bool(row[1] > Value::Int(1)),
        },
    );
    check(
        plan.build(),
        &[
            &[left(row(1, 1), 1)],
            &[left(row(1, 2), 1), left(row(1, 2), -1), left(row(1, 3), 1)],
            &[left(row(1, 3), -1), left(row(1, 4), 1), left(row(1, 4), -1)],
        ],
    );
}

#[test]
fn null_keys_never_match_but_appear_null_extended() {
    let null = |v: i64| full(None, Some(v), None, None);
    for kind in [JoinKind::Inner, JoinKind::Left, JoinKind::LeftSemi, JoinKind::LeftAnti] {
        for residual in [None, Some(left_v_at_most_right_v())] {
            check(
                join_plan(kind, &[0], false, residual),
                &[
                    &[left(null(1), 2), right(null(1), 2), left(row(1, 1), 1)],
                    &[left(null(1), -1), right(null(1), -1), right(row(1, 2), 2)],
                    &[left(null(1), -1), right(row(1, 2), -1)],
                ],
            );
        }
    }
}

#[test]
fn the_last_match_goes_and_a_new_one_comes_in_one_epoch() {
    for kind in [JoinKind::Left, JoinKind::LeftSemi, JoinKind::LeftAnti, JoinKind::LeftAntiNullAware] {
        for residual in [None, Some(left_v_at_most_right_v())] {
            check(
                join_plan(kind, &[0], false, residual),
                &[
                    &[left(row(1, 1), 2), right(row(1, 5), 1)],
                    &[right(row(1, 5), -1), right(row(1, 6), 1)],
                    &[right(row(1, 6), -1), left(row(1, 1), -1), right(row(1, 7), 1), left(row(1, 2), 1)],
                    &[right(row(1, 7), -1)],
                ],
            );
        }
    }
}

#[test]
fn inserts_and_deletes_on_the_right_around_an_insert_on_the_left() {
    for kind in [JoinKind::Left, JoinKind::LeftSemi, JoinKind::LeftAnti] {
        check(
            join_plan(kind, &[0], false, None),
            &[
                &[right(row(1, 5), 1)],
                &[right(row(1, 5), -1)],
                &[left(row(1, 1), 1)],
                &[right(row(1, 5), 3)],
                &[right(row(1, 5), -2)],
            ],
        );
    }
}

#[test]
fn both_sides_are_global_aggregates_of_one_row() {
    let mut plan = PlanBuilder::default();
    let left_rows = plan.source(LEFT, &[0, 1]);
    let left_count = plan.aggregate(left_rows, &[], &[call(Count, &[])]);
    let right_rows = plan.source(RIGHT, &[0, 1]);
    let right_count = plan.aggregate(right_rows, &[], &[call(Count, &[])]);
    plan.join(JoinKind::Left, (left_count, &[0]), (right_count, &[0]), false, None);
    check(
        plan.build(),
        &[&[left(row(1, 1), 1)], &[right(row(1, 1), 1)], &[right(row(1, 1), -1), left(row(1, 1), -1)]],
    );
}

#[test]
fn not_in_with_a_null_appearing_and_leaving_on_the_inner_side() {
    let null = full(None, Some(0), None, None);
    check(
        join_plan(JoinKind::LeftAntiNullAware, &[0], false, None),
        &[
            &[left(row(1, 1), 1), left(row(2, 1), 2), left(null.clone(), 1)],
            &[right(row(1, 0), 1)],
            &[right(null.clone(), 2)],
            &[right(null.clone(), -1), left(row(3, 1), 1)],
            &[right(null.clone(), -1), left(row(3, 1), -1)],
            &[right(row(1, 0), -1)],
            &[right(null.clone(), 1), left(null.clone(), 1)],
            &[right(null.clone(), -1)],
        ],
    );
}

#[test]
fn exists_correlated_by_a_null_safe_comparison() {
    let null = |v: i64| full(None, Some(v), None, None);
    check(
        join_plan(JoinKind::LeftSemi, &[0], true, None),
        &[
            &[left(null(1), 1), left(row(1, 1), 1)],
            &[right(null(9), 1)],
            &[right(null(9), -1), right(row(1, 9), 1)],
        ],
    );
}

#[test]
fn a_scalar_subquery_whose_result_arrives_before_with_or_after_the_rows() {
    let build = || {
        let mut plan = PlanBuilder::default();
        let rows = plan.source(LEFT, &[0, 1]);
        let inner = plan.source(RIGHT, &[0, 1]);
        let greatest = plan.aggregate(inner, &[], &[call(Max, &[1])]);
        let schema = plan.schema(greatest);
        let scalar = plan.add(Operator::AtMostOneRow, &[greatest], schema);
        let joined = plan.join(JoinKind::Left, (rows, &[]), (scalar, &[]), false, None);
        plan.filter(
            joined,
            RowExpression {
                name: "v > scalar",
                data_type: DataType::Boolean,
                evaluate: |row| {
                    if row[2] == Value::Null { Value::Null } else { Value::Bool(row[1] > row[2]) }
                },
            },
        );
        plan.build()
    };
    let (rows, scalar) = (left(row(1, 5), 1), right(row(1, 3), 1));
    check(build(), &[std::slice::from_ref(&rows), std::slice::from_ref(&scalar)]);
    check(build(), &[std::slice::from_ref(&scalar), std::slice::from_ref(&rows)]);
    check(build(), &[&[rows.clone(), scalar.clone()]]);
    check(build(), &[&[scalar, rows], &[right(row(1, 9), 1)], &[right(row(1, 9), -1)]]);
}

#[test]
fn a_self_join_whose_key_is_updated_and_moved_away_and_back() {
    let mut plan = PlanBuilder::default();
    let one = plan.source(LEFT, &[0, 1]);
    let other = plan.source(LEFT, &[1, 0]);
    plan.join(JoinKind::Inner, (one, &[0]), (other, &[0]), false, None);
    check(
        plan.build(),
        &[
            &[left(row(1, 2), 1), left(row(2, 1), 1), left(row(1, 1), 1)],
            &[left(row(1, 2), -1), left(row(2, 2), 1)],
            &[left(row(2, 2), -1), left(row(1, 2), 1), left(row(1, 2), -1), left(row(2, 2), 1)],
            &[left(row(1, 1), -1), left(row(2, 2), -1)],
        ],
    );
}

#[test]
fn both_sides_are_changed_by_one_transaction() {
    for kind in [JoinKind::Inner, JoinKind::Left, JoinKind::LeftSemi, JoinKind::LeftAnti] {
        for residual in [None, Some(left_v_at_most_right_v())] {
            check(
                join_plan(kind, &[0], false, residual),
                &[
                    &[left(row(1, 1), 1), right(row(1, 1), 1)],
                    &[left(row(1, 1), -1), right(row(1, 1), -1), left(row(1, 2), 1), right(row(1, 3), 2)],
                    &[left(row(1, 2), -1), left(row(2, 2), 1), right(row(1, 3), -1), right(row(2, 3), 1)],
                ],
            );
        }
    }
}

#[test]
fn an_update_that_changes_nothing_puts_out_nothing() {
    let mut harness = Harness::new(
        aggregate_plan(&[0], &[call(Sum, &[1]), call(Max, &[1])]),
        schemas(),
        DataflowOptions::default(),
    );
    harness.push(&[left(row(1, 5), 1)]).unwrap();
    harness.barrier().unwrap();
    harness.seal();
    harness.push(&[left(row(1, 5), -1), left(row(1, 5), 1)]).unwrap();
    assert!(harness.barrier().unwrap().is_empty());
    let before = harness.manifests.clone();
    harness.seal();
    assert_eq!(harness.manifests, before, "no state changed");
}

#[test]
fn an_update_that_changes_group_filtered_column_and_value_at_once() {
    let with = |k: i64, v: i64, b: bool| full(Some(k), Some(v), None, Some(b));
    let calls = [filtered(call(Sum, &[1]), 5), call(Min, &[1]), filtered(distinct(Count, &[1]), 5)];
    check(
        aggregate_plan(&[0], &calls),
        &[
            &[left(with(1, 5, true), 1), left(with(2, 6, false), 1)],
            &[left(with(1, 5, true), -1), left(with(2, 7, false), 1)],
            &[left(with(2, 6, false), -1), left(with(1, 6, true), 1)],
        ],
    );
}

#[test]
fn padded_spellings_in_extremes_show_the_smallest_by_bytes() {
    let text = |s: &str| {
        vec![Value::Int(1), Value::Null, Value::Text(s.to_owned()), Value::Null, Value::Null, Value::Null]
    };
    let epochs: [&[Change]; 3] = [
        &[left(text("b  "), 1), left(text("b "), 1), left(text("a "), 1), left(text("a"), 1)],
        &[left(text("b "), -1), left(text("a"), -1)],
        &[left(text("b   "), 1)],
    ];
    let calls = [call(Min, &[2]), call(Max, &[2]), distinct(Count, &[2])];
    check_aggregate(
        &[0],
        &calls,
        &epochs,
        &[vec![Value::Int(1), Value::Text("a ".to_owned()), Value::Text("b  ".to_owned()), Value::Int(2)]],
    );
}

#[test]
fn a_large_group_at_any_parallelism_and_batch_size() {
    let rows: Vec<Change> = (0..40_000).map(|number| left(row(number % 3, number), 1)).collect();
    let gone: Vec<Change> =
        (0..40_000).filter(|number| number % 7 > 0).map(|number| left(row(number % 3, number), -1)).collect();
    let calls = [call(Count, &[]), call(Sum, &[1]), call(Min, &[1]), call(Max, &[1]), distinct(Count, &[1])];
    check(aggregate_plan(&[0], &calls), &[&rows, &gone]);
}

#[test]
fn a_large_epoch_is_worked_off_in_turns() {
    let rows = |table, shift: i64, weight| -> Vec<Change> {
        (0..20_000i64).map(|number| (table, row((number + shift) % 15_000, number), weight)).collect()
    };
    let both = [rows(LEFT, 0, 1), rows(RIGHT, 9_000, 1)].concat();
    for kind in [JoinKind::Left, JoinKind::LeftSemi, JoinKind::LeftAntiNullAware] {
        let run = |parallelism: usize, n_batches: usize| {
            let options = DataflowOptions { parallelism, ..DataflowOptions::default() };
            let mut harness = Harness::new(join_plan(kind, &[0], false, None), schemas(), options);
            both.chunks(both.len() / n_batches).for_each(|batch| harness.push(batch).unwrap());
            harness.barrier().unwrap();
            harness.seal();
            harness.push(&rows(RIGHT, 9_000, -1)[5_000..]).unwrap();
            harness.barrier().unwrap();
            harness.view
        };
        let expected = run(1, 1);
        assert!(!expected.is_empty());
        assert_eq!(run(3, 17), expected);
    }
}

#[test]
fn plans_have_fingerprints_of_their_meaning() {
    let plan = |residual: Option<RowExpression>| join_plan(JoinKind::Inner, &[0], false, residual);
    assert_eq!(plan(None).fingerprint(), plan(None).fingerprint());
    assert_ne!(plan(None).fingerprint(), plan(Some(left_v_at_most_right_v())).fingerprint());
    assert_ne!(plan(None).fingerprint(), join_plan(JoinKind::Left, &[0], false, None).fingerprint());
    assert_eq!(plan(None).tables(), [LEFT, RIGHT]);
    // Left rows, right rows, failed rows; with a residual matches too.
    assert_eq!(plan(None).states_count(), 3);
    assert_eq!(join_plan(JoinKind::Left, &[0], false, Some(left_v_at_most_right_v())).states_count(), 4);
    let text = plan(Some(left_v_at_most_right_v())).describe();
    assert!(text.contains("inner join [0] = [0] null_equal=false on [l.v <= r.v]"), "{text}");
}

/// Arrow's own text of a long array leaves out what stands in its middle.
#[test]
fn fingerprints_depend_on_every_row_and_call() {
    let values_plan = |changed: usize| {
        let numbers: Vec<i64> = (0..100).map(|row| if row == changed { -1 } else { row as i64 }).collect();
        let schema = Arc::new(Schema::new(vec![Field::new("x", DataType::Int64, true)]));
        let column: ArrayRef = Arc::new(Int64Array::from(numbers));
        let rows = RecordBatch::try_new(Arc::clone(&schema), vec![column]).unwrap();
        let mut plan = PlanBuilder::default();
        plan.add(Operator::Values { rows }, &[], schema);
        plan.build().fingerprint()
    };
    assert_eq!(values_plan(50), values_plan(50));
    assert_ne!(values_plan(50), values_plan(51));
    let aggregate = |function, distinct, filter| {
        let call = AggregateCall { function, arguments: vec![0], distinct, filter };
        Operator::Aggregate { group: vec![1], calls: vec![call] }.describe()
    };
    assert_eq!(aggregate(Sum, true, Some(2)), "aggregate by [1] [sum(distinct #0) where #2]");
    assert_eq!(aggregate(Min, false, None), "aggregate by [1] [min(#0)]");
}

#[test]
fn statistics_count_rows_and_state() {
    let mut harness =
        Harness::new(join_plan(JoinKind::Inner, &[0], false, None), schemas(), DataflowOptions::default());
    harness.push(&[left(row(1, 1), 1), right(row(1, 2), 1), right(row(2, 2), 1)]).unwrap();
    harness.barrier().unwrap();
    let statistics = harness.dataflow.statistics();
    assert_eq!(statistics.len(), 3);
    assert_eq!((statistics[0].name, statistics[0].rows_out), ("source", 1));
    let join = &statistics[2];
    assert_eq!((join.name, join.rows_in, join.rows_out, join.state_rows), ("inner join", 3, 1, 3));
    assert!(join.state_bytes > 0);
}
