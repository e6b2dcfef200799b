//! APPROX_COUNT_DISTINCT: near the exact count at any size, and the same to the bit whichever way its rows
//! came: in any order and split, at any parallelism, with others that came and went, merged or not.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, Decimal128Array, Float64Array, Int64Array, StringArray,
};
use arrow::datatypes::{DataType, Int64Type};
use operators::AggregateFunction::ApproxCountDistinct;
use operators::accumulate::{Accumulator, Weights};
use operators::{DataflowOptions, Operator, StateKind};
use proptest::prelude::*;

use crate::harness::{After, EpochInput, Harness};
use crate::model::{Row, Value};
use crate::plans::{LEFT, aggregate_plan, call, schemas};
use crate::properties::cases;

/// 1.04 / sqrt(4096).
const STANDARD_ERROR: f64 = 0.016_25;

fn sketch(data_type: &DataType, weights: Weights) -> Accumulator {
    let mut accumulator =
        Accumulator::new(ApproxCountDistinct, std::slice::from_ref(data_type), false, weights).unwrap();
    accumulator.grow(1);
    accumulator
}

fn update(accumulator: &mut Accumulator, column: &ArrayRef, weight: i64) {
    let weights = vec![weight; column.len()];
    accumulator.update(&[Arc::clone(column)], Some(&weights), &vec![0; column.len()], None).unwrap();
}

fn estimate(accumulator: &Accumulator) -> i64 {
    accumulator.evaluate().unwrap().as_primitive::<Int64Type>().value(0)
}

fn estimate_of(column: &ArrayRef) -> i64 {
    let estimates = [Weights::Positive, Weights::Any].map(|weights| {
        let mut accumulator = sketch(column.data_type(), weights);
        update(&mut accumulator, column, 1);
        estimate(&accumulator)
    });
    assert_eq!(estimates[0], estimates[1], "with and without retractions");
    estimates[0]
}

/// Within 4 standard errors; one more for two values of few that share a register.
#[track_caller]
fn check_near(estimate: i64, exact: usize) {
    let exact = exact as f64;
    let allowed = 4.0 * STANDARD_ERROR * exact + 1.0;
    assert!((estimate as f64 - exact).abs() <= allowed, "{estimate} for {exact} different values");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(60), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn estimates_are_near_the_exact_count(
        n_values in prop_oneof![0_usize..100, 0_usize..5_000, 0_usize..50_000],
        first in any::<i32>(),
        step in 1_i64..1_000,
    ) {
        let numbers: Vec<i64> = (0..n_values as i64).map(|index| i64::from(first) + index * step).collect();
        let column: ArrayRef = Arc::new(Int64Array::from(numbers.clone()));
        check_near(estimate_of(&column), n_values);
        let texts: ArrayRef =
            Arc::new(StringArray::from_iter_values(numbers.iter().map(|number| format!("user {number}"))));
        check_near(estimate_of(&texts), n_values);
    }

    #[test]
    fn what_came_and_went_leaves_no_trace(
        kept in proptest::collection::vec(-500_i64..500, 0..300),
        gone in proptest::collection::vec(-800_i64..800, 0..300),
        cut in any::<prop::sample::Index>(),
    ) {
        let column = |numbers: &[i64]| -> ArrayRef { Arc::new(Int64Array::from(numbers.to_vec())) };
        let mut expected = sketch(&DataType::Int64, Weights::Any);
        update(&mut expected, &column(&kept), 1);
        check_near(estimate(&expected), kept.iter().collect::<BTreeSet<_>>().len());
        // In two parts, in the other order, with others between, retractions first.
        let at = cut.index(kept.len() + 1);
        let (mut one, mut two) = (sketch(&DataType::Int64, Weights::Any), sketch(&DataType::Int64, Weights::Any));
        update(&mut one, &column(&gone), -1);
        update(&mut one, &column(&kept[at..]), 1);
        update(&mut two, &column(&kept[..at]), 1);
        update(&mut two, &column(&gone), 1);
        let (mut forth, mut back) = (one.clone(), two.clone());
        forth.merge(&two.states(), &[0]).unwrap();
        back.merge(&one.states(), &[0]).unwrap();
        for merged in [&forth, &back] {
            prop_assert_eq!(estimate(merged), estimate(&expected));
            prop_assert_eq!(merged.states(), expected.states());
        }
        update(&mut forth, &column(&kept), -1);
        prop_assert_eq!(estimate(&forth), 0);
        prop_assert_eq!(forth.states(), sketch(&DataType::Int64, Weights::Any).states());
    }
}

#[test]
fn a_merge_of_growing_sketches_is_the_sketch_of_all() {
    let column = |range: std::ops::Range<i64>| -> ArrayRef { Arc::new(Int64Array::from_iter_values(range)) };
    let mut whole = sketch(&DataType::Int64, Weights::Positive);
    update(&mut whole, &column(0..30_000), 1);
    let mut parts = [column(0..100), column(50..20_000), column(19_000..30_000)].map(|part| {
        let mut accumulator = sketch(&DataType::Int64, Weights::Positive);
        update(&mut accumulator, &part, 1);
        accumulator
    });
    for order in [[0, 1, 2], [2, 0, 1]] {
        let mut merged = sketch(&DataType::Int64, Weights::Positive);
        for index in order {
            merged.merge(&parts[index].states(), &[0]).unwrap();
        }
        assert_eq!(merged.states(), whole.states());
        assert_eq!(estimate(&merged), estimate(&whole));
    }
    let rest = parts[0].split_first(1);
    assert_eq!((rest.n_groups(), parts[0].n_groups()), (1, 0));
}

#[test]
fn equal_values_are_one() {
    let check = |column: ArrayRef, expected: i64| assert_eq!(estimate_of(&column), expected);
    check(Arc::new(StringArray::from(vec![Some("a"), Some("a "), Some("a   "), None, Some("a\t")])), 2);
    check(Arc::new(Float64Array::from(vec![0.0, -0.0, 1.0, 1.0, f64::NAN, -f64::NAN])), 3);
    let decimals = Decimal128Array::from(vec![150, 150, 0, 0]).with_precision_and_scale(10, 2).unwrap();
    check(Arc::new(decimals), 2);
    check(Arc::new(Int64Array::from(vec![None, None])), 0);
    check(Arc::new(Int64Array::from(vec![Some(i64::MIN), Some(i64::MAX), None])), 2);
}

#[test]
fn states_that_are_none_are_refused() {
    for (weights, bytes) in [
        (Weights::Positive, vec![1, 0]),
        (Weights::Positive, vec![1, 0, 0]),
        (Weights::Positive, vec![1, 0, 54]),
        (Weights::Positive, vec![1, 0x80, 0x20, 1]),
        (Weights::Any, vec![1, 0, 1]),
        (Weights::Any, vec![1, 0, 1, 2, 0]),
    ] {
        let state = BinaryArray::from_vec(vec![&bytes]);
        let error = sketch(&DataType::Int64, weights).merge(&state, &[0]).unwrap_err();
        assert_eq!(error.kind(), types::ErrorKind::Corrupt, "{bytes:?}");
    }
}

/// Groups of very different sizes, filled, changed and emptied; every way gives the same output to the bit.
#[test]
fn the_incremental_estimate_is_that_of_the_batch_at_any_parallelism() {
    let rows = |range: std::ops::Range<i64>, group: i64| -> Vec<Row> {
        let row =
            |v| vec![Value::Int(group), Value::Int(v), Value::Null, Value::Null, Value::Null, Value::Null];
        range.map(row).collect()
    };
    let change = |rows: Vec<Row>, weight: i64| rows.into_iter().map(move |row| (LEFT, row, weight));
    let epochs = [
        vec![change(rows(0..3_000, 1), 1), change(rows(0..10, 2), 1), change(rows(5..6, 3), 1)],
        vec![change(rows(1_000..2_000, 1), -1), change(rows(2_500..4_000, 1), 1), change(rows(10..12, 2), 1)],
        vec![change(rows(0..1_000, 1), -1), change(rows(5..6, 3), -1)],
        vec![
            change(rows(2_000..3_000, 1), -1),
            change(rows(2_500..4_000, 1), -1),
            change(rows(0..12, 2), -1),
        ],
    ];
    // Groups with the values that they hold then, from and up to.
    type Estimates = &'static [(i64, &'static [(i64, i64)])];
    let expected: [Estimates; 4] = [
        &[(1, &[(0, 3_000)]), (2, &[(0, 10)]), (3, &[(5, 6)])],
        &[(1, &[(0, 1_000), (2_000, 4_000)]), (2, &[(0, 12)]), (3, &[(5, 6)])],
        &[(1, &[(2_000, 4_000)]), (2, &[(0, 12)])],
        &[],
    ];
    let of_group = |(group, spans): &(i64, &[(i64, i64)])| {
        let numbers = spans.iter().flat_map(|(from, to)| *from..*to);
        let estimate = estimate_of(&(Arc::new(Int64Array::from_iter_values(numbers)) as ArrayRef));
        vec![Value::Int(*group), Value::Int(estimate)]
    };
    for (parallelism, memory_bytes_max) in [(1, 1 << 30), (2, 64), (7, 1 << 30)] {
        let plan = aggregate_plan(&[0], &[call(ApproxCountDistinct, &[1])]);
        let mut harness = Harness::new(plan, schemas(), DataflowOptions { parallelism, memory_bytes_max });
        for (epoch, expected) in epochs.iter().zip(expected) {
            let all: Vec<_> = epoch.iter().cloned().flatten().collect();
            harness.push(&all).unwrap();
            harness.barrier().unwrap();
            harness.seal();
            harness.dataflow = harness.open();
            let found: Vec<Row> = harness.view.keys().cloned().collect();
            assert_eq!(
                found,
                expected.iter().map(of_group).collect::<Vec<Row>>(),
                "parallelism {parallelism}"
            );
        }
        assert!(
            harness.dataflow.statistics().iter().all(|one| one.name != "aggregate" || one.state_rows == 0)
        );
    }
}

#[test]
fn a_value_that_is_not_there_cannot_be_taken_away() {
    let plan = aggregate_plan(&[0], &[call(ApproxCountDistinct, &[1])]);
    let options = DataflowOptions { parallelism: 1, memory_bytes_max: 1 << 30 };
    let mut harness = Harness::new(plan, schemas(), options);
    let row = |v: i64| vec![Value::Int(1), Value::Int(v), Value::Null, Value::Null, Value::Null, Value::Null];
    harness.push(&[(LEFT, row(1), 1), (LEFT, row(2), 1)]).unwrap();
    harness.barrier().unwrap();
    harness.push(&[(LEFT, row(3), -1)]).unwrap();
    let error = harness.barrier().unwrap_err();
    assert!(error.message().contains("is taken away"), "{error}");
}

#[test]
fn the_plan_names_the_sketch_and_what_it_keeps() {
    let plan = aggregate_plan(&[0], &[call(ApproxCountDistinct, &[1]), call(ApproxCountDistinct, &[1])]);
    assert!(plan.describe().contains("approx_count_distinct(#1)"), "{}", plan.describe());
    let node = plan.output();
    assert!(matches!(node.operator, Operator::Aggregate { .. }));
    // Calls over the same values share the cells.
    assert_eq!(node.state_kinds(), [StateKind::Map, StateKind::Multiset]);
    assert!(node.states()[1].what.contains("4096 registers"), "{:?}", node.states());
}

/// Histories of few values with everything else that a harness does (forks, reopened states, splits).
#[test]
fn rows_come_and_go_in_any_split() {
    let plan = aggregate_plan(&[], &[call(ApproxCountDistinct, &[1]), call(ApproxCountDistinct, &[2])]);
    let row = |v: i64, s: &str| {
        let text = Value::Text(s.to_owned());
        vec![Value::Null, Value::Int(v), text, Value::Null, Value::Null, Value::Null]
    };
    let input = |changes: &[(Row, i64)]| EpochInput {
        batches: changes.iter().map(|(row, weight)| vec![(LEFT, row.clone(), *weight)]).collect(),
        after: After::Reopen,
    };
    let history = [
        input(&[]),
        input(&[(row(1, "a"), 1), (row(1, "a "), 1), (row(2, "b"), 2)]),
        input(&[(row(1, "a"), -1), (row(2, "b"), -1)]),
        input(&[(row(1, "a "), -1), (row(2, "b"), -1), (row(3, ""), 1)]),
        input(&[(row(3, ""), -1)]),
    ];
    crate::harness::check_history(&plan, &schemas(), &history);
}
