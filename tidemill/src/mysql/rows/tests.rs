//! Values of every type in both protocols, against bytes written by hand.

use std::sync::Arc;

use arrow::array::StringArray;
use arrow::datatypes::{Field, Schema, i256};
use tidb::ColumnType;

use super::*;

fn batch(array: ArrayRef) -> RecordBatch {
    let field = Field::new("c", array.data_type().clone(), true);
    RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![array]).unwrap()
}

fn wire(array: &ArrayRef, declared: Option<ColumnType>) -> WireColumn {
    let mut column = Column::expression("c", array.data_type().clone());
    column.declared = declared;
    WireColumn::of(&column)
}

/// Text and binary form of the first row.
fn check(array: ArrayRef, declared: Option<ColumnType>, zone: &str, text: &str, binary: &[u8]) {
    let columns = [wire(&array, declared)];
    let batch = batch(array);
    let mut rows = BatchRows::new(&batch, &columns, zone.parse().unwrap()).unwrap();
    let mut out = Vec::new();
    rows.text(0, &mut out).unwrap();
    assert_eq!(usize::from(out[0]), text.len());
    assert_eq!(String::from_utf8_lossy(&out[1..]), text);
    out.clear();
    rows.binary(0, &mut out).unwrap();
    assert_eq!(out[..2], [0, 0], "header and bitmap");
    assert_eq!(&out[2..], binary, "binary form of {text}");
}

#[test]
fn integers_take_the_width_of_their_type() {
    check(Arc::new(Int8Array::from(vec![-1])), None, "UTC", "-1", &[0xff]);
    check(Arc::new(Int16Array::from(vec![-2])), None, "UTC", "-2", &[0xfe, 0xff]);
    let medium = Some(ColumnType::Int { bits: 24, unsigned: false });
    check(Arc::new(Int32Array::from(vec![-3])), medium, "UTC", "-3", &[0xfd, 0xff, 0xff, 0xff]);
    check(Arc::new(UInt64Array::from(vec![u64::MAX])), None, "UTC", "18446744073709551615", &[0xff; 8]);
    check(Arc::new(BooleanArray::from(vec![true])), None, "UTC", "1", &[1, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn decimals_keep_their_scale() {
    let small = Decimal128Array::from(vec![-150]).with_precision_and_scale(10, 2).unwrap();
    check(Arc::new(small), None, "UTC", "-1.50", b"\x05-1.50");
    let large = Decimal256Array::from(vec![i256::from_i128(5)]).with_precision_and_scale(65, 30).unwrap();
    let text = "0.000000000000000000000000000005";
    check(Arc::new(large), None, "UTC", text, format!("\x20{text}").as_bytes());
}

#[test]
fn floats_are_the_shortest_that_read_back() {
    check(Arc::new(Float64Array::from(vec![0.1])), None, "UTC", "0.1", &0.1_f64.to_le_bytes());
    check(Arc::new(Float64Array::from(vec![1e20])), None, "UTC", "1e20", &1e20_f64.to_le_bytes());
    check(Arc::new(Float32Array::from(vec![0.1])), None, "UTC", "0.1", &0.1_f32.to_le_bytes());
}

#[test]
fn times_are_shown_in_the_sessions_zone_if_they_are_instants() {
    let us = 1_719_835_200_123_456;
    let instant: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![us]).with_timezone("UTC"));
    let declared = Some(ColumnType::Timestamp(3));
    let bytes = [11, 0xe8, 7, 7, 1, 14, 0, 0, 0x40, 0xe2, 1, 0];
    check(Arc::clone(&instant), declared, "Europe/Berlin", "2024-07-01 14:00:00.123", &bytes);
    let local: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![us / 1_000_000 * 1_000_000]));
    let declared = Some(ColumnType::Datetime(0));
    check(local, declared, "Europe/Berlin", "2024-07-01 12:00:00", &[7, 0xe8, 7, 7, 1, 12, 0, 0]);
    check(Arc::new(Date32Array::from(vec![0])), None, "UTC", "1970-01-01", &[4, 0xb2, 7, 1, 1]);
    let duration: ArrayRef = Arc::new(Time64MicrosecondArray::from(vec![-90_061_000_000_i64]));
    check(duration, None, "UTC", "-25:01:01.000000", &[8, 1, 1, 0, 0, 0, 1, 1, 1]);
}

#[test]
fn nulls_are_marked_in_both_forms() {
    let array: ArrayRef = Arc::new(StringArray::from(vec![None, Some("ü")]));
    let columns = [wire(&array, None)];
    let batch = batch(array);
    let mut rows = BatchRows::new(&batch, &columns, Zone::UTC).unwrap();
    let (mut text, mut binary) = (Vec::new(), Vec::new());
    rows.text(0, &mut text).unwrap();
    rows.text(1, &mut text).unwrap();
    rows.binary(0, &mut binary).unwrap();
    assert_eq!(text, b"\xfb\x02\xc3\xbc");
    assert_eq!(binary, [0, 0b100]);
}

#[test]
fn a_batch_of_other_columns_is_an_error() {
    let batch = batch(Arc::new(Int8Array::from(vec![1])));
    assert!(BatchRows::new(&batch, &[], Zone::UTC).is_err());
}
