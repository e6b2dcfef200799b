//! Floating sums: exact, whatever the order, rounded once.

use operators::accumulate::ExactSum;
use proptest::prelude::*;

fn sum(numbers: &[(f64, i64)]) -> ExactSum {
    let mut sum = ExactSum::default();
    for (number, weight) in numbers {
        sum.add(*number, *weight).unwrap();
    }
    sum
}

fn value(numbers: &[f64]) -> f64 {
    sum(&numbers.iter().map(|number| (*number, 1)).collect::<Vec<_>>()).value().unwrap()
}

fn bytes(sum: &ExactSum) -> Vec<u8> {
    let mut bytes = Vec::new();
    sum.write(&mut bytes);
    bytes
}

#[test]
fn huge_numbers_cancel_and_tiny_ones_stay() {
    assert_eq!(value(&[1e308, 1e308, -1e308]), 1e308);
    assert_eq!(value(&[1e308, 1.0, -1e308]), 1.0);
    assert_eq!(value(&[1e308, f64::from_bits(1), -1e308]), f64::from_bits(1));
    assert_eq!(value(&[0.1; 10]), 1.0);
    assert_eq!(value(&[1e16, 1.0, 1.0]), 1e16 + 2.0);
    assert_eq!(value(&[]), 0.0);
    assert_eq!(value(&[f64::MAX, -f64::MAX]), 0.0);
    assert_eq!(value(&[-0.0]).to_bits(), 0);
}

#[test]
fn a_sum_beyond_all_numbers_is_infinite_until_it_comes_back() {
    let mut total = sum(&[(f64::MAX, 1_000_000)]);
    assert_eq!(total.value().unwrap(), f64::INFINITY);
    assert_eq!(total.mean(1_000_000).unwrap(), f64::MAX);
    total.add(f64::MAX, -999_999).unwrap();
    assert_eq!(total.value().unwrap(), f64::MAX);
    assert_eq!(sum(&[(f64::MAX, i64::MIN), (f64::MIN, i64::MIN)]).value().unwrap(), 0.0);
    assert_eq!(sum(&[(f64::MAX, i64::MIN)]).value().unwrap(), f64::NEG_INFINITY);
}

#[test]
fn infinities_and_nans_arrive_and_leave() {
    let mut total = sum(&[(1.5, 1), (f64::INFINITY, 1)]);
    assert_eq!(total.value().unwrap(), f64::INFINITY);
    total.add(f64::NEG_INFINITY, 1).unwrap();
    assert!(total.value().unwrap().is_nan());
    total.add(f64::INFINITY, -1).unwrap();
    assert_eq!(total.value().unwrap(), f64::NEG_INFINITY);
    total.add(f64::NAN, 1).unwrap();
    assert!(total.value().unwrap().is_nan());
    total.add(f64::NEG_INFINITY, -1).unwrap();
    total.add(f64::NAN, -1).unwrap();
    assert_eq!(total.value().unwrap(), 1.5);
    total.add(f64::NAN, -1).unwrap();
    assert_eq!(total.value().unwrap_err().kind(), types::ErrorKind::Corrupt);
}

#[test]
fn rounding_is_to_nearest_with_ties_to_even() {
    let ulp = f64::EPSILON;
    assert_eq!(value(&[1.0, ulp / 2.0]), 1.0);
    assert_eq!(value(&[1.0 + ulp, ulp / 2.0]), 1.0 + 2.0 * ulp);
    assert_eq!(value(&[1.0, ulp / 2.0, f64::from_bits(1)]), 1.0 + ulp);
    assert_eq!(value(&[-1.0, -ulp / 2.0, -f64::from_bits(1)]), -1.0 - ulp);
    assert_eq!(value(&[2.0 - ulp, ulp / 2.0]), 2.0);
}

#[test]
fn means_are_rounded_once() {
    let third = sum(&[(1.0, 1)]).mean(3).unwrap();
    assert_eq!(third, 1.0 / 3.0);
    assert_eq!(sum(&[(f64::from_bits(1), 1)]).mean(2).unwrap(), 0.0, "half of the least is a tie to even");
    assert_eq!(sum(&[(f64::from_bits(3), 1)]).mean(2).unwrap(), f64::from_bits(2));
    assert_eq!(sum(&[(f64::from_bits(1), 2)]).mean(3).unwrap(), f64::from_bits(1));
    assert_eq!(sum(&[(7.0, 1)]).mean(u64::MAX).unwrap(), 7.0 / 18_446_744_073_709_551_615.0);
}

fn any_float() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>().prop_filter("finite", |number| number.is_finite()),
        (-1000i32..1000).prop_map(f64::from),
        (0u64..1 << 53).prop_map(f64::from_bits),
        Just(f64::MAX),
        Just(f64::MIN_POSITIVE),
        Just(-f64::MIN_POSITIVE),
    ]
}

proptest! {
    #[test]
    fn one_and_two_numbers_add_as_ieee_does(left in any_float(), right in any_float()) {
        prop_assert_eq!(value(&[left]), left);
        prop_assert_eq!(value(&[left, right]), left + right);
        prop_assert_eq!(sum(&[(left, 3)]).mean(3).unwrap(), left);
        prop_assert_eq!(sum(&[(left, 1)]).mean(7).unwrap(), left / 7.0);
    }

    #[test]
    fn whole_numbers_add_as_wide_integers_do(
        numbers in proptest::collection::vec((any::<i32>(), 0i32..60, -5i64..6), 0..20)
    ) {
        let expected: i128 = numbers.iter().map(|(n, shift, w)| (i128::from(*n) << shift) * i128::from(*w)).sum();
        let floats: Vec<(f64, i64)> =
            numbers.iter().map(|(n, shift, w)| (f64::from(*n) * 2f64.powi(*shift - 30), *w)).collect();
        prop_assert_eq!(sum(&floats).value().unwrap(), expected as f64 * 2f64.powi(-30));
    }

    #[test]
    fn order_retraction_and_merging_never_move_a_digit(
        numbers in proptest::collection::vec((any_float(), prop_oneof![-3i64..4, any::<i64>()]), 0..12),
        gone in proptest::collection::vec(any_float(), 0..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let direct = sum(&numbers);
        let mut other = numbers.clone();
        other.reverse();
        other.extend(gone.iter().map(|number| (*number, 1)));
        other.extend(gone.iter().map(|number| (*number, -1)));
        let mut other = sum(&other);
        prop_assert_eq!(bytes(&direct), bytes(&other));
        prop_assert_eq!(direct.value().unwrap().to_bits(), other.value().unwrap().to_bits());
        let at = cut.index(numbers.len() + 1);
        let mut merged = sum(&numbers[..at]);
        merged.add_sum(&ExactSum::read(&mut bytes(&sum(&numbers[at..])).as_slice()).unwrap()).unwrap();
        prop_assert_eq!(bytes(&direct), bytes(&merged));
        for (number, weight) in &numbers {
            other.add(-*number, *weight).unwrap();
        }
        prop_assert!(other.is_zero());
    }

    #[test]
    fn garbage_is_refused_or_read_without_panic(garbage in proptest::collection::vec(any::<u8>(), 0..40)) {
        if let Ok(sum) = ExactSum::read(&mut garbage.as_slice()) {
            let _ = sum.value();
        }
    }
}
