//! Round trips and order over random tables and rows.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float32Array, Float64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Float32Type, Float64Type, i256};
use arrow::row::{RowConverter, SortField};
use proptest::prelude::*;
use tidb::comparable::{
    put_bytes, put_f64, put_i64, put_u64, skip_bytes, take_bytes, take_f64, take_i64, take_u64,
};
use tidb::{
    Cast, Decimal, Handle, RowDecoder, RowEncoder, TableInfo, convert_column, decode_record_key, pack_date,
    pack_time, pad_key, point_key, unpack_date, unpack_time,
};

use crate::arbitrary::{DAYS, MICROS, table_and_rows};

fn handles(table: &TableInfo, n: usize) -> Option<Vec<i64>> {
    table.primary_key.is_empty().then(|| (0..n as i64).map(|row| row * 7 - 3).collect())
}

/// Sort keys of the primary key columns, as rows that compare.
fn key_order(table: &TableInfo, batch: &RecordBatch) -> arrow::row::Rows {
    let columns: Vec<ArrayRef> = table.primary_key.iter().map(|at| normalised(batch.column(*at))).collect();
    let fields = columns.iter().map(|array| SortField::new(array.data_type().clone())).collect();
    RowConverter::new(fields).unwrap().convert_columns(&columns).unwrap()
}

/// Text without trailing spaces, no negative zeros.
fn normalised(array: &ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Utf8 => {
            let texts = array.as_string::<i32>();
            Arc::new(texts.iter().map(|text| text.map(pad_key)).collect::<StringArray>())
        }
        DataType::Float32 => {
            Arc::new(array.as_primitive::<Float32Type>().unary::<_, Float32Type>(|v| v + 0.0) as Float32Array)
        }
        DataType::Float64 => {
            Arc::new(array.as_primitive::<Float64Type>().unary::<_, Float64Type>(|v| v + 0.0) as Float64Array)
        }
        _ => Arc::clone(array),
    }
}

fn bits(array: &ArrayRef) -> ArrayRef {
    // Floats compare by bits here: -0.0 and NaNs must come back as they went.
    match array.data_type() {
        DataType::Float32 => {
            let bits = array.as_primitive::<Float32Type>().iter().map(|v| v.map(|v| (v + 0.0).to_bits()));
            Arc::new(bits.collect::<arrow::array::UInt32Array>())
        }
        DataType::Float64 => {
            let bits = array.as_primitive::<Float64Type>().iter().map(|v| v.map(|v| (v + 0.0).to_bits()));
            Arc::new(bits.collect::<arrow::array::UInt64Array>())
        }
        _ => Arc::clone(array),
    }
}

proptest! {
    #![proptest_config(crate::arbitrary::cases(200))]

    #[test]
    fn rows_come_back((table, batch) in table_and_rows()) {
        let encoder = RowEncoder::new(&table).unwrap();
        let handles = handles(&table, batch.num_rows());
        let rows = encoder.encode_batch(&batch, handles.as_deref()).unwrap();
        let all: Vec<usize> = (0..table.columns.len()).collect();
        let mut decoder = RowDecoder::new(&table, &all).unwrap();
        for (key, value) in &rows {
            decoder.append(key, value).unwrap();
        }
        let decoded = decoder.finish().unwrap();
        prop_assert_eq!(decoded.num_rows(), batch.num_rows());
        for (before, after) in batch.columns().iter().zip(decoded.columns()) {
            prop_assert_eq!(&bits(before), &bits(after));
        }
    }

    #[test]
    fn any_columns_come_back_alone((table, batch) in table_and_rows(), at in any::<prop::sample::Index>()) {
        let encoder = RowEncoder::new(&table).unwrap();
        let handles = handles(&table, batch.num_rows());
        let rows = encoder.encode_batch(&batch, handles.as_deref()).unwrap();
        let at = at.index(table.columns.len());
        let mut decoder = RowDecoder::new(&table, &[at]).unwrap();
        for (key, value) in &rows {
            decoder.append(key, value).unwrap();
        }
        let decoded = decoder.finish().unwrap();
        prop_assert_eq!(&bits(decoded.column(0)), &bits(batch.column(at)));
    }

    #[test]
    fn keys_order_as_their_values((table, batch) in table_and_rows()) {
        prop_assume!(!table.primary_key.is_empty());
        let encoder = RowEncoder::new(&table).unwrap();
        let rows = encoder.encode_batch(&batch, None).unwrap();
        let order = key_order(&table, &batch);
        let unsigned_handle = table.pk_is_handle
            && batch.column(table.primary_key[0]).data_type() == &DataType::UInt64;
        for a in 0..rows.len() {
            for b in 0..rows.len() {
                let by_key = rows[a].0.cmp(&rows[b].0);
                let by_value = order.row(a).cmp(&order.row(b));
                // Large unsigned handles are negative ones: only equality is kept.
                if unsigned_handle {
                    prop_assert_eq!(by_key == Ordering::Equal, by_value == Ordering::Equal);
                } else {
                    prop_assert_eq!(by_key, by_value);
                }
            }
        }
    }

    #[test]
    fn the_point_key_is_the_rows_key((table, batch) in table_and_rows()) {
        prop_assume!(!table.primary_key.is_empty());
        let encoder = RowEncoder::new(&table).unwrap();
        let rows = encoder.encode_batch(&batch, None).unwrap();
        for (row, (key, _)) in rows.iter().enumerate() {
            let values: Vec<ArrayRef> =
                table.primary_key.iter().map(|at| batch.column(*at).slice(row, 1)).collect();
            let found = point_key(&table, &values).unwrap();
            prop_assert_eq!(found.as_ref(), Some(key));
        }
    }

    #[test]
    fn equal_rows_have_equal_bytes((table, batch) in table_and_rows()) {
        let encoder = RowEncoder::new(&table).unwrap();
        let handles = handles(&table, batch.num_rows());
        let once = encoder.encode_batch(&batch, handles.as_deref()).unwrap();
        let mut decoder = RowDecoder::new(&table, &(0..table.columns.len()).collect::<Vec<_>>()).unwrap();
        for (key, value) in &once {
            decoder.append(key, value).unwrap();
        }
        let again = encoder.encode_batch(&decoder.finish().unwrap(), handles.as_deref()).unwrap();
        prop_assert_eq!(once, again);
    }

    #[test]
    fn primitives_round_trip_and_order(a in any::<i64>(), b in any::<i64>(), x in any::<f64>(), y in any::<f64>()) {
        let put = |write: &dyn Fn(&mut Vec<u8>)| { let mut out = Vec::new(); write(&mut out); out };
        let (ea, eb) = (put(&|out| put_i64(out, a)), put(&|out| put_i64(out, b)));
        prop_assert_eq!(ea.cmp(&eb), a.cmp(&b));
        prop_assert_eq!(take_i64(&mut ea.as_slice()).unwrap(), a);
        let (ua, ub) = (put(&|out| put_u64(out, a as u64)), put(&|out| put_u64(out, b as u64)));
        prop_assert_eq!(ua.cmp(&ub), (a as u64).cmp(&(b as u64)));
        prop_assert_eq!(take_u64(&mut ua.as_slice()).unwrap(), a as u64);
        let (ex, ey) = (put(&|out| put_f64(out, x)), put(&|out| put_f64(out, y)));
        prop_assert_eq!(ex.cmp(&ey), x.total_cmp(&y));
        prop_assert_eq!(take_f64(&mut ex.as_slice()).unwrap().to_bits(), x.to_bits());
    }

    #[test]
    fn bytes_round_trip_and_order(a in prop::collection::vec(0_u8..3, 0..20), b in prop::collection::vec(0_u8..3, 0..20)) {
        let (mut ea, mut eb) = (Vec::new(), Vec::new());
        put_bytes(&mut ea, &a);
        put_bytes(&mut eb, &b);
        prop_assert_eq!(ea.cmp(&eb), a.cmp(&b));
        prop_assert_eq!(ea.len(), (a.len() / 8 + 1) * 9);
        ea.extend_from_slice(b"rest");
        let mut input = ea.as_slice();
        let mut back = Vec::new();
        take_bytes(&mut input, &mut back).unwrap();
        prop_assert_eq!(&back, &a);
        prop_assert_eq!(input, b"rest");
        let mut input = ea.as_slice();
        skip_bytes(&mut input).unwrap();
        prop_assert_eq!(input, b"rest");
    }

    #[test]
    fn decimals_round_trip_and_order(
        a in -(10_i128.pow(30))..10_i128.pow(30), b in -(10_i128.pow(30))..10_i128.pow(30), wide in any::<bool>(),
        scale in 0_u8..=30,
    ) {
        let factor = if wide { i256::from_i128(10).wrapping_pow(30) } else { i256::ONE };
        let number = |unscaled: i128| Decimal { unscaled: i256::from_i128(unscaled).wrapping_mul(factor), scale };
        let (a, b) = (number(a), number(b));
        let (mut ea, mut eb) = (Vec::new(), Vec::new());
        a.put_binary(&mut ea, 65, scale).unwrap();
        b.put_binary(&mut eb, 65, scale).unwrap();
        prop_assert_eq!(ea.cmp(&eb), a.unscaled.cmp(&b.unscaled));
        let mut input = ea.as_slice();
        prop_assert_eq!(Decimal::take_binary(&mut input, 65, scale).unwrap(), a);
        prop_assert!(input.is_empty());
        prop_assert_eq!(a.to_string().parse::<Decimal>().unwrap(), a);
    }

    #[test]
    fn times_round_trip_and_order(a in MICROS.0..=MICROS.1, b in MICROS.0..=MICROS.1, d in DAYS.0..=DAYS.1) {
        let (pa, pb) = (pack_time(a).unwrap(), pack_time(b).unwrap());
        prop_assert_eq!(pa.cmp(&pb), a.cmp(&b));
        prop_assert_eq!(unpack_time(pa).unwrap(), a);
        prop_assert_eq!(unpack_date(pack_date(d).unwrap()).unwrap(), d);
    }

    #[test]
    fn times_are_those_of_the_calendar(micros in MICROS.0..=MICROS.1) {
        use chrono::{DateTime, Datelike, Timelike};
        let known = DateTime::from_timestamp_micros(micros).unwrap().naive_utc();
        let civil = tidb::CivilTime::from_micros(micros).unwrap();
        prop_assert_eq!((civil.year, civil.month, civil.day), (known.year(), known.month(), known.day()));
        prop_assert_eq!((civil.hour, civil.minute, civil.second), (known.hour(), known.minute(), known.second()));
    }

    #[test]
    fn handles_round_trip(table in any::<i64>(), int in any::<i64>(), common in prop::collection::vec(any::<u8>(), 9..30)) {
        for handle in [Handle::Int(int), Handle::Common(common)] {
            let key = tidb::record_key(table, &handle);
            prop_assert_eq!(decode_record_key(&key).unwrap(), (table, handle));
        }
    }
}

proptest! {
    #![proptest_config(crate::arbitrary::cases(100))]

    /// Whatever a conversion accepts can be stored, comes back as it is, and converts to itself.
    #[test]
    fn what_is_accepted_can_be_stored((target, source) in (table_and_rows(), table_and_rows())) {
        let (target, source) = (target.0, source.1);
        for wanted in &target.columns {
            // Of the primary key only the type matters here.
            let column = tidb::ColumnInfo { id: 1, not_null: false, default: None, ..wanted.clone() };
            let table = crate::arbitrary::table(vec![column], &[]);
            for array in source.columns() {
                let Ok(kept) = convert_column(&table.columns[0], array, &Cast::default()) else { continue };
                prop_assert_eq!(kept.len(), array.len());
                let again = convert_column(&table.columns[0], &kept, &Cast::default()).unwrap();
                prop_assert_eq!(&bits(&again), &bits(&kept));
                let batch = RecordBatch::try_new(table.arrow_schema(), vec![kept]).unwrap();
                let handles: Vec<i64> = (0..batch.num_rows() as i64).collect();
                let rows = RowEncoder::new(&table).unwrap().encode_batch(&batch, Some(&handles)).unwrap();
                let mut decoder = RowDecoder::new(&table, &[0]).unwrap();
                for (key, value) in &rows {
                    decoder.append(key, value).unwrap();
                }
                prop_assert_eq!(&bits(decoder.finish().unwrap().column(0)), &bits(batch.column(0)));
            }
        }
    }
}
