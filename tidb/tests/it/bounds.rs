//! Keys of points and ranges: a row is in a span exactly if its values are within the bounds.

use std::ops::Bound;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int8Array, Int32Array, Int64Array, StringArray, UInt64Array};
use proptest::collection::vec;
use proptest::prelude::*;
use tidb::{ColumnType, KeySpan, RowEncoder, TableInfo, point_key, scan_spans};

use crate::arbitrary::{batch, column, table};

fn composite() -> TableInfo {
    let columns = vec![
        column(1, "a", ColumnType::Int { bits: 32, unsigned: false }),
        column(2, "s", ColumnType::Varchar(10)),
        column(3, "v", ColumnType::Int { bits: 64, unsigned: false }),
    ];
    table(columns, &[0, 1])
}

fn int(value: i32) -> ArrayRef {
    Arc::new(Int32Array::from(vec![value]))
}

fn text(value: &str) -> ArrayRef {
    Arc::new(StringArray::from(vec![value]))
}

fn within(spans: &[KeySpan], key: &[u8]) -> bool {
    spans.iter().filter(|span| span.start.as_slice() <= key && key < span.end.as_slice()).count() == 1
}

fn in_bounds<T: PartialOrd>(value: &T, lower: &Bound<T>, upper: &Bound<T>) -> bool {
    let above = match lower {
        Bound::Included(bound) => value >= bound,
        Bound::Excluded(bound) => value > bound,
        Bound::Unbounded => true,
    };
    let below = match upper {
        Bound::Included(bound) => value <= bound,
        Bound::Excluded(bound) => value < bound,
        Bound::Unbounded => true,
    };
    above && below
}

fn bound<T: Clone + std::fmt::Debug + 'static>(
    value: impl Strategy<Value = T> + 'static,
) -> BoxedStrategy<Bound<T>> {
    (value, 0..3)
        .prop_map(|(value, kind)| match kind {
            0 => Bound::Included(value),
            1 => Bound::Excluded(value),
            _ => Bound::Unbounded,
        })
        .boxed()
}

fn mapped<T>(bound: &Bound<T>, make: impl Fn(&T) -> ArrayRef) -> Bound<ArrayRef> {
    match bound {
        Bound::Included(value) => Bound::Included(make(value)),
        Bound::Excluded(value) => Bound::Excluded(make(value)),
        Bound::Unbounded => Bound::Unbounded,
    }
}

proptest! {
    #![proptest_config(crate::arbitrary::cases(300))]

    #[test]
    fn spans_of_an_unsigned_handle(
        values in vec(prop_oneof![0_u64..5, (1_u64 << 63) - 3..(1 << 63) + 3, u64::MAX - 3..=u64::MAX], 1..8),
        lower in bound(prop_oneof![0_u64..5, (1_u64 << 63) - 3..(1 << 63) + 3, Just(u64::MAX)]),
        upper in bound(prop_oneof![0_u64..5, (1_u64 << 63) - 3..(1 << 63) + 3, Just(u64::MAX)]),
    ) {
        let table = table(vec![column(1, "id", ColumnType::Int { bits: 64, unsigned: true })], &[0]);
        let make = |value: &u64| Arc::new(UInt64Array::from(vec![*value])) as ArrayRef;
        let (low, high) = (mapped(&lower, make), mapped(&upper, make));
        let spans = scan_spans(&table, &[], low.as_ref(), high.as_ref()).unwrap();
        prop_assert!(spans.windows(2).all(|pair| pair[0].end <= pair[1].start));
        let rows = batch(&table, vec![Arc::new(UInt64Array::from(values.clone()))]);
        let rows = RowEncoder::new(&table).unwrap().encode_batch(&rows, None).unwrap();
        for (value, (key, _)) in values.iter().zip(rows) {
            prop_assert_eq!(within(&spans, &key), in_bounds(value, &lower, &upper));
        }
    }

    #[test]
    fn spans_of_a_signed_handle(
        values in vec(any::<i64>().prop_map(|v| v % 5), 1..8),
        lower in bound(prop_oneof![-5_i64..5, Just(i64::MIN), Just(i64::MAX)]),
        upper in bound(prop_oneof![-5_i64..5, Just(i64::MIN), Just(i64::MAX)]),
    ) {
        let table = table(vec![column(1, "id", ColumnType::Int { bits: 64, unsigned: false })], &[0]);
        let make = |value: &i64| Arc::new(Int64Array::from(vec![*value])) as ArrayRef;
        let (low, high) = (mapped(&lower, make), mapped(&upper, make));
        let spans = scan_spans(&table, &[], low.as_ref(), high.as_ref()).unwrap();
        let rows = batch(&table, vec![Arc::new(Int64Array::from(values.clone()))]);
        let rows = RowEncoder::new(&table).unwrap().encode_batch(&rows, None).unwrap();
        for (value, (key, _)) in values.iter().zip(rows) {
            prop_assert_eq!(within(&spans, &key), in_bounds(value, &lower, &upper));
        }
    }

    #[test]
    fn spans_of_a_composite_key(
        rows in vec((-2_i32..2, "[ab ]{0,3}"), 1..10),
        equal in prop::option::of(-2_i32..2),
        lower in bound("[ab ]{0,3}"),
        upper in bound("[ab ]{0,3}"),
    ) {
        let table = composite();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(rows.iter().map(|row| Some(row.0)).collect::<Int32Array>()),
            Arc::new(rows.iter().map(|row| Some(row.1.as_str())).collect::<StringArray>()),
            Arc::new(Int64Array::from(vec![0; rows.len()])),
        ];
        let encoded = RowEncoder::new(&table).unwrap().encode_batch(&batch(&table, columns), None).unwrap();
        let trimmed = |bound: &Bound<String>| bound.clone().map(|text| text.trim_end_matches(' ').to_owned());
        let (spans, expected): (_, Vec<bool>) = match equal {
            Some(equal) => {
                let (low, high) = (mapped(&lower, |t| text(t)), mapped(&upper, |t| text(t)));
                let spans = scan_spans(&table, &[int(equal)], low.as_ref(), high.as_ref()).unwrap();
                let inside = |row: &(i32, String)| {
                    let padded = row.1.trim_end_matches(' ').to_owned();
                    row.0 == equal && in_bounds(&padded, &trimmed(&lower), &trimmed(&upper))
                };
                (spans, rows.iter().map(inside).collect())
            }
            None => {
                let spans = scan_spans(&table, &[], Bound::Excluded(&int(-2)), Bound::Included(&int(0))).unwrap();
                (spans, rows.iter().map(|row| row.0 > -2 && row.0 <= 0).collect())
            }
        };
        for ((key, _), expected) in encoded.iter().zip(expected) {
            prop_assert_eq!(within(&spans, key), expected);
        }
    }
}

#[test]
fn a_null_finds_nothing() {
    let table = composite();
    let null: ArrayRef = Arc::new(Int32Array::from(vec![None]));
    assert_eq!(point_key(&table, &[Arc::clone(&null), text("a")]).unwrap(), None);
    assert_eq!(scan_spans(&table, &[null], Bound::Unbounded, Bound::Unbounded).unwrap(), vec![]);
    let null: ArrayRef = Arc::new(StringArray::from(vec![None::<&str>]));
    let spans = scan_spans(&table, &[int(1)], Bound::Included(&null), Bound::Unbounded).unwrap();
    assert_eq!(spans, vec![]);
}

#[test]
fn padded_text_finds_its_row() {
    let table = composite();
    assert_eq!(
        point_key(&table, &[int(1), text("a")]).unwrap(),
        point_key(&table, &[int(1), text("a  ")]).unwrap()
    );
}

#[test]
fn misuse_is_refused() {
    let table = composite();
    let wrong: ArrayRef = Arc::new(Int8Array::from(vec![1]));
    assert!(point_key(&table, &[wrong, text("a")]).is_err());
    assert!(point_key(&table, &[int(1)]).is_err());
    assert!(scan_spans(&table, &[int(1), text("a"), int(3)], Bound::Unbounded, Bound::Unbounded).is_err());
    let bound = text("b");
    assert!(scan_spans(&table, &[int(1), text("a")], Bound::Included(&bound), Bound::Unbounded).is_err());
    let hidden = crate::arbitrary::table(vec![column(1, "a", ColumnType::Date)], &[]);
    assert!(point_key(&hidden, &[]).is_err());
    assert_eq!(scan_spans(&hidden, &[], Bound::Unbounded, Bound::Unbounded).unwrap().len(), 1);
}
