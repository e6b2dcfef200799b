//! Golden bytes, round trips and order of the row encoding.

use std::cmp::Ordering;

use arrow::array::{
    Decimal128Array, Decimal256Array, Float32Array, Float64Array, Int32Array, Int64Array, UInt64Array,
};
use proptest::prelude::*;

use super::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn encode_one(column: ArrayRef) -> Vec<String> {
    let codec = RowCodec::new(vec![column.data_type().clone()]).unwrap();
    let rows = codec.encode(&[Arc::clone(&column)], column.len()).unwrap();
    let decoded = codec.decode(&mut rows.iter().collect::<Vec<_>>()).unwrap();
    assert_eq!(decoded[0].data_type(), column.data_type());
    for row in rows.iter() {
        assert_eq!(codec.length_of(row).unwrap(), row.len());
    }
    rows.iter().map(hex).collect()
}

#[test]
fn golden_bytes_of_every_type() {
    assert_eq!(
        encode_one(Arc::new(Int64Array::from(vec![Some(-1), None, Some(1)]))),
        ["017fffffffffffffff", "000000000000000000", "018000000000000001"]
    );
    assert_eq!(encode_one(Arc::new(Int32Array::from(vec![i32::MIN, 7]))), ["0100000000", "0180000007"]);
    assert_eq!(encode_one(Arc::new(UInt64Array::from(vec![u64::MAX]))), ["01ffffffffffffffff"]);
    assert_eq!(encode_one(Arc::new(BooleanArray::from(vec![Some(true), None]))), ["0101", "0000"]);
    assert_eq!(
        encode_one(Arc::new(Float64Array::from(vec![-0.0, 0.0, -1.5, f64::NAN, -f64::NAN]))),
        [
            "018000000000000000",
            "018000000000000000",
            "014007ffffffffffff",
            "01fff8000000000000",
            "01fff8000000000000"
        ]
    );
    assert_eq!(encode_one(Arc::new(Float32Array::from(vec![1.0f32]))), ["01bf800000"]);
    assert_eq!(
        encode_one(Arc::new(StringArray::from(vec![Some("a\0b"), Some(""), None]))),
        ["016100ff620000", "010000", "00"]
    );
    assert_eq!(encode_one(Arc::new(BinaryArray::from(vec![&[255u8, 0][..]]))), ["01ff00ff0000"]);
    let decimal = Decimal128Array::from(vec![-1i128]).with_precision_and_scale(10, 2).unwrap();
    assert_eq!(encode_one(Arc::new(decimal)), ["017fffffffffffffffffffffffffffffff"]);
    let decimal = Decimal256Array::from(vec![i256::from_i128(5)]).with_precision_and_scale(65, 30).unwrap();
    assert_eq!(
        encode_one(Arc::new(decimal)),
        ["018000000000000000000000000000000000000000000000000000000000000005"]
    );
    assert_eq!(encode_one(Arc::new(NullArray::new(1))), ["00"]);
}

#[test]
fn golden_hash_of_a_keyed_row() {
    let codec = RowCodec::new(vec![DataType::Int64, DataType::Utf8]).unwrap();
    let columns: Vec<ArrayRef> =
        vec![Arc::new(Int64Array::from(vec![42])), Arc::new(StringArray::from(vec!["x"]))];
    let rows = codec.encode_keyed(&columns, 1, 1).unwrap();
    let key = codec.prefix(1).encode(&columns[..1], 1).unwrap();
    assert_eq!(&rows.row(0)[..13], keyed(key.row(0)).as_slice());
    assert_eq!(hex(rows.row(0)), "5bf76a3801800000000000002a01780000");
    assert_eq!(vnode(key.row(0)), VNode(rows.row(0)[0]));
}

#[test]
fn truncated_and_garbled_rows_are_corrupt() {
    let codec = RowCodec::new(vec![DataType::Utf8, DataType::Int32]).unwrap();
    for bytes in [&[][..], &[1], &[1, 97], &[1, 97, 0], &[1, 97, 0, 7, 0], &[1, 0, 0, 1, 2], &[1, 255, 0, 0]]
    {
        let error = codec.decode(&mut [bytes]).unwrap_err();
        assert_eq!(error.kind(), types::ErrorKind::Corrupt, "{bytes:?}");
    }
}

#[test]
fn other_types_are_refused_by_name() {
    let error = RowCodec::new(vec![DataType::LargeUtf8]).unwrap_err();
    assert!(error.message().contains("LargeUtf8"), "{error}");
}

type Row = (Option<i64>, Option<String>, Option<Vec<u8>>, Option<f64>, Option<i128>);

fn compare_options<T>(left: &Option<T>, right: &Option<T>, compare: impl Fn(&T, &T) -> Ordering) -> Ordering {
    match (left, right) {
        (None, None) => Ordering::Equal,
        (None, _) => Ordering::Less,
        (_, None) => Ordering::Greater,
        (Some(left), Some(right)) => compare(left, right),
    }
}

fn compare_rows(left: &Row, right: &Row) -> Ordering {
    compare_options(&left.0, &right.0, Ord::cmp)
        .then_with(|| compare_options(&left.1, &right.1, |a, b| a.as_bytes().cmp(b.as_bytes())))
        .then_with(|| compare_options(&left.2, &right.2, Ord::cmp))
        .then_with(|| {
            compare_options(&left.3, &right.3, |a, b| {
                a.partial_cmp(b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
            })
        })
        .then_with(|| compare_options(&left.4, &right.4, Ord::cmp))
}

fn row() -> impl Strategy<Value = Row> {
    let float = prop_oneof![any::<f64>(), Just(f64::NAN), Just(-0.0), Just(0.0), Just(f64::INFINITY)];
    (
        proptest::option::of(prop_oneof![-2i64..2, any::<i64>()]),
        proptest::option::of("[a\u{0}\u{1} é😀]{0,3}"),
        proptest::option::of(proptest::collection::vec(prop_oneof![Just(0u8), Just(255), any::<u8>()], 0..4)),
        proptest::option::of(float),
        proptest::option::of(any::<i128>()),
    )
}

proptest! {
    #[test]
    fn rows_survive_and_keep_their_order(rows in proptest::collection::vec(row(), 0..12)) {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.0))),
            Arc::new(StringArray::from_iter(rows.iter().map(|row| row.1.clone()))),
            Arc::new(BinaryArray::from_iter(rows.iter().map(|row| row.2.clone()))),
            Arc::new(Float64Array::from_iter(rows.iter().map(|row| row.3))),
            Arc::new(Decimal128Array::from_iter(rows.iter().map(|row| row.4))),
        ];
        let codec = RowCodec::new(columns.iter().map(|column| column.data_type().clone()).collect()).unwrap();
        let encoded = codec.encode(&columns, rows.len()).unwrap();
        for (left_index, left) in rows.iter().enumerate() {
            for (right_index, right) in rows.iter().enumerate() {
                let order = encoded.row(left_index).cmp(encoded.row(right_index));
                prop_assert_eq!(order, compare_rows(left, right), "{:?} {:?}", left, right);
            }
        }
        let decoded = codec.decode(&mut encoded.iter().collect::<Vec<_>>()).unwrap();
        let again = codec.encode(&decoded, rows.len()).unwrap();
        prop_assert!(encoded.iter().eq(again.iter()));
        for index in [0, 1, 2, 4] {
            prop_assert_eq!(&decoded[index], &columns[index]);
        }
        let keyed_rows = codec.encode_keyed(&columns, rows.len(), 2).unwrap();
        for (keyed_row, plain) in keyed_rows.iter().zip(encoded.iter()) {
            let key = &plain[..codec.prefix(2).length_of(plain).unwrap()];
            prop_assert_eq!(&keyed_row[..HASH_BYTES], &key_hash(key).to_be_bytes());
            prop_assert_eq!(&keyed_row[HASH_BYTES..], plain);
        }
    }
}
