//! Accumulators as the batch engine uses them: types, limits, rounding, merging, splitting.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, Decimal256Array, Int32Array, Int64Array, StringArray,
    UInt64Array,
};
use arrow::datatypes::{DataType, i256};
use operators::AggregateFunction::{self, ApproxCountDistinct, Avg, Count, Max, Min, Sum};
use operators::accumulate::{Accumulator, Weights};
use proptest::prelude::*;

fn text(array: &dyn Array) -> String {
    arrow::util::display::array_value_to_string(array, 0).unwrap()
}

/// One group over all rows, with both kinds of accumulator where weights allow.
fn evaluate(function: AggregateFunction, column: ArrayRef, weights: &[i64]) -> types::Result<ArrayRef> {
    let mut accumulator =
        Accumulator::new(function, &[column.data_type().clone()], false, Weights::Any).unwrap();
    accumulator.grow(1);
    accumulator.update(&[column], Some(weights), &vec![0; weights.len()], None)?;
    let result = accumulator.evaluate()?;
    assert_eq!(result.data_type(), accumulator.output_type());
    Ok(result)
}

fn check(function: AggregateFunction, column: ArrayRef, expected: &str) {
    let weights = vec![1; column.len()];
    assert_eq!(text(&evaluate(function, column, &weights).unwrap()), expected);
}

#[test]
fn output_types_are_those_of_mysql() {
    let check = |function: AggregateFunction, argument: DataType, expected: DataType| {
        assert_eq!(function.output_type(&argument, false).unwrap(), expected, "{function:?} {argument}");
    };
    check(Sum, DataType::Int64, DataType::Decimal256(42, 0));
    check(Sum, DataType::Int32, DataType::Decimal128(32, 0));
    check(Sum, DataType::Int8, DataType::Decimal128(25, 0));
    check(Sum, DataType::Decimal128(10, 2), DataType::Decimal128(32, 2));
    check(Sum, DataType::Decimal128(38, 2), DataType::Decimal256(60, 2));
    check(Sum, DataType::Decimal256(65, 30), DataType::Decimal256(65, 30));
    check(Sum, DataType::Float32, DataType::Float64);
    check(Avg, DataType::Int64, DataType::Decimal128(24, 4));
    check(Avg, DataType::Int32, DataType::Decimal128(14, 4));
    check(Avg, DataType::Decimal128(10, 2), DataType::Decimal128(14, 6));
    check(Avg, DataType::Decimal256(65, 30), DataType::Decimal256(65, 30));
    check(Avg, DataType::Decimal128(30, 28), DataType::Decimal128(34, 30));
    check(Count, DataType::Utf8, DataType::Int64);
    check(Max, DataType::Utf8, DataType::Utf8);
    check(ApproxCountDistinct, DataType::Decimal128(10, 2), DataType::Int64);
    for refused in [DataType::Utf8, DataType::Date32, DataType::Binary] {
        assert!(Sum.output_type(&refused, false).unwrap_err().message().contains("sum"));
    }
}

#[test]
fn integers_sum_beyond_their_own_width() {
    check(Sum, Arc::new(Int64Array::from(vec![i64::MAX; 3])), "27670116110564327421");
    check(Sum, Arc::new(Int64Array::from(vec![i64::MIN; 2])), "-18446744073709551616");
    check(Sum, Arc::new(UInt64Array::from(vec![u64::MAX; 2])), "36893488147419103230");
    check(Avg, Arc::new(Int64Array::from(vec![i64::MAX, i64::MAX - 1])), "9223372036854775806.5000");
}

#[test]
fn means_round_half_away_from_zero() {
    check(Avg, Arc::new(Int32Array::from(vec![1, 0, 0])), "0.3333");
    check(Avg, Arc::new(Int32Array::from(vec![2, 0, 0])), "0.6667");
    check(Avg, Arc::new(Int32Array::from(vec![-2, 0, 0])), "-0.6667");
    let half = |value: i32| {
        let mut values = vec![0; 20_000];
        values[0] = value;
        Arc::new(Int32Array::from(values))
    };
    check(Avg, half(1), "0.0001"); // 0.00005
    check(Avg, half(-1), "-0.0001");
    let decimals = Decimal128Array::from(vec![1, 1, 0]).with_precision_and_scale(5, 2).unwrap();
    check(Avg, Arc::new(decimals), "0.006667");
}

#[test]
fn decimals_keep_their_scale_and_overflow_with_an_error_at_output_only() {
    let greatest = i256::from_i128(10).pow_checked_for_tests(65) - i256::from_i128(1);
    let column = |values: Vec<i256>| -> ArrayRef {
        Arc::new(Decimal256Array::from(values).with_precision_and_scale(65, 30).unwrap())
    };
    let error = evaluate(Sum, column(vec![greatest, greatest]), &[1, 1]).unwrap_err();
    assert_eq!((error.kind(), error.mysql_code()), (types::ErrorKind::Invalid, Some(1690)));
    let fits = evaluate(Sum, column(vec![greatest, greatest, greatest]), &[1, 1, -1]).unwrap();
    assert_eq!(text(&fits), "9".repeat(35) + "." + &"9".repeat(30));
    let fits = evaluate(Avg, column(vec![greatest, greatest]), &[1, 1]).unwrap();
    assert_eq!(text(&fits), "9".repeat(35) + "." + &"9".repeat(30));
    let small = Decimal128Array::from(vec![100i128]).with_precision_and_scale(10, 2).unwrap();
    check(Sum, Arc::new(small), "1.00");
}

trait PowForTests {
    fn pow_checked_for_tests(self, exponent: u32) -> Self;
}

impl PowForTests for i256 {
    fn pow_checked_for_tests(self, exponent: u32) -> i256 {
        (0..exponent).fold(i256::from_i128(1), |power, _| power.checked_mul(self).unwrap())
    }
}

#[test]
fn an_aggregate_over_nothing_is_null_and_a_count_zero() {
    for function in [Sum, Avg, Min, Max] {
        let result = evaluate(function, Arc::new(Int64Array::from(vec![None, Some(3)])), &[1, 0]).unwrap();
        assert!(result.is_null(0), "{function:?}");
    }
    check(Count, Arc::new(Int64Array::from(vec![None::<i64>])), "0");
    check(ApproxCountDistinct, Arc::new(Int64Array::from(vec![None::<i64>])), "0");
}

#[test]
fn more_taken_away_than_there_was_is_corrupt() {
    for function in [Count, Sum, Avg, Min, Max, ApproxCountDistinct] {
        let error = evaluate(function, Arc::new(Int64Array::from(vec![3])), &[-1]).unwrap_err();
        assert_eq!(error.kind(), types::ErrorKind::Corrupt, "{function:?}");
    }
}

#[test]
fn text_extremes_compare_without_trailing_spaces() {
    let column = |texts: &[&str]| -> ArrayRef { Arc::new(StringArray::from(texts.to_vec())) };
    check(Max, column(&["b  ", "a", "b ", "b  "]), "b ");
    check(Min, column(&["b", "a  ", "a "]), "a ");
    check(Min, column(&["a\t", "a "]), "a ");
    check(Max, column(&["", " "]), "");
    let weights = [1, 1, 1, 1, -1];
    let result = evaluate(Max, column(&["b  ", "b ", "b  ", "a", "b "]), &weights).unwrap();
    assert_eq!(result.as_string::<i32>().value(0), "b  ");
}

#[test]
fn distinct_counts_each_value_once_and_again_after_its_last_goes() {
    let arguments = [DataType::Utf8, DataType::Int64];
    let mut accumulator = Accumulator::new(Count, &arguments, true, Weights::Any).unwrap();
    accumulator.grow(1);
    let mut update = |texts: Vec<Option<&str>>, numbers: Vec<Option<i64>>, weights: &[i64]| {
        let columns: [ArrayRef; 2] =
            [Arc::new(StringArray::from(texts)), Arc::new(Int64Array::from(numbers))];
        accumulator.update(&columns, Some(weights), &vec![0; weights.len()], None).unwrap();
        text(&accumulator.evaluate().unwrap())
    };
    let rows = vec![Some("a"), Some("a "), Some("a"), None];
    assert_eq!(update(rows, vec![Some(1), Some(1), Some(2), Some(3)], &[1, 1, 1, 1]), "2");
    assert_eq!(update(vec![Some("a")], vec![Some(1)], &[-1]), "2");
    assert_eq!(update(vec![Some("a  ")], vec![Some(1)], &[-1]), "1");
}

/// All accumulators over a nullable BIGINT.
fn accumulators(weights: Weights) -> Vec<Accumulator> {
    let mut all = Vec::new();
    for function in [Count, Sum, Avg, Min, Max, ApproxCountDistinct] {
        for distinct in [false, true] {
            all.push(Accumulator::new(function, &[DataType::Int64], distinct, weights).unwrap());
        }
    }
    all
}

proptest! {
    #[test]
    fn splits_merges_and_retractions_end_in_the_same_states(
        rows in proptest::collection::vec((proptest::option::of(-4i64..5), 0u32..4), 0..30),
        extra in proptest::collection::vec((-4i64..5, 0u32..4), 0..10),
        cut in any::<prop::sample::Index>(),
    ) {
        let update = |accumulator: &mut Accumulator, rows: &[(Option<i64>, u32)], weight: i64| {
            accumulator.grow(4);
            let column: ArrayRef = Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.0)));
            let groups: Vec<u32> = rows.iter().map(|row| row.1).collect();
            accumulator.update(&[column], Some(&vec![weight; rows.len()]), &groups, None).unwrap();
        };
        let at = cut.index(rows.len() + 1);
        let extra: Vec<(Option<i64>, u32)> = extra.into_iter().map(|(value, group)| (Some(value), group)).collect();
        let variants = accumulators(Weights::Any).into_iter().zip(accumulators(Weights::Positive));
        for (any, positive) in variants {
            let mut whole = any.clone();
            update(&mut whole, &rows, 1);
            let expected = whole.evaluate().unwrap();
            let mut inserts = positive;
            update(&mut inserts, &rows, 1);
            prop_assert_eq!(&inserts.evaluate().unwrap(), &expected);
            let (mut first, mut second) = (any.clone(), any.clone());
            update(&mut first, &extra, 1);
            update(&mut first, &rows[..at], 1);
            update(&mut second, &rows[at..], 1);
            update(&mut second, &extra, -1);
            first.merge(&second.states(), &[0, 1, 2, 3]).unwrap();
            prop_assert_eq!(&first.evaluate().unwrap(), &expected);
            prop_assert_eq!(first.states(), whole.states());
            let head = whole.split_first(1);
            prop_assert_eq!(&head.evaluate().unwrap(), &expected.slice(0, 1));
            prop_assert_eq!(&whole.evaluate().unwrap(), &expected.slice(1, 3));
        }
    }
}
