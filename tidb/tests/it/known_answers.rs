//! Bytes computed by hand from the rules, and well-known ones of TiKV, TiDB and MySQL.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, Float64Array, Int8Array, Int32Array, Int64Array, StringArray,
    TimestampMicrosecondArray, UInt64Array,
};
use tidb::comparable::{comparable_f64, put_bytes, put_f64, put_i64, put_u64};
use tidb::{
    ColumnType, Decimal, Handle, RowEncoder, TableInfo, pack_date, pack_time, record_key, record_range,
    table_range,
};

use crate::arbitrary::{batch, column, table};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn put(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    hex(&out)
}

fn decimal(text: &str, precision: u8, scale: u8) -> String {
    put(|out| text.parse::<Decimal>().unwrap().put_binary(out, precision, scale).unwrap())
}

fn row(table: &TableInfo, columns: Vec<ArrayRef>, handle: Option<i64>) -> (String, String) {
    let encoder = RowEncoder::new(table).unwrap();
    let (key, value) = encoder.encode(&batch(table, columns), 0, handle).unwrap();
    (hex(&key), hex(&value))
}

const INT: ColumnType = ColumnType::Int { bits: 32, unsigned: false };
const BIGINT: ColumnType = ColumnType::Int { bits: 64, unsigned: false };

#[test]
fn integers_compare_as_bytes() {
    assert_eq!(put(|out| put_i64(out, 0)), "8000000000000000");
    assert_eq!(put(|out| put_i64(out, 1)), "8000000000000001");
    assert_eq!(put(|out| put_i64(out, -1)), "7fffffffffffffff");
    assert_eq!(put(|out| put_i64(out, i64::MIN)), "0000000000000000");
    assert_eq!(put(|out| put_u64(out, 258)), "0000000000000102");
}

#[test]
fn doubles_compare_as_bytes() {
    assert_eq!(put(|out| put_f64(out, 1.0)), "bff0000000000000");
    assert_eq!(put(|out| put_f64(out, -1.0)), "400fffffffffffff");
    assert_eq!(put(|out| put_f64(out, 0.0)), "8000000000000000");
    assert!(comparable_f64(f64::NEG_INFINITY) < comparable_f64(f64::MIN));
}

#[test]
fn bytes_are_cut_into_groups_of_eight() {
    assert_eq!(put(|out| put_bytes(out, b"")), "0000000000000000f7");
    assert_eq!(put(|out| put_bytes(out, &[1, 2, 3])), "0102030000000000fa");
    assert_eq!(put(|out| put_bytes(out, &[1, 2, 3, 0])), "0102030000000000fb");
    assert_eq!(put(|out| put_bytes(out, &[1, 2, 3, 4, 5, 6, 7])), "01020304050607 00fe".replace(' ', ""));
    assert_eq!(
        put(|out| put_bytes(out, &[1, 2, 3, 4, 5, 6, 7, 8])),
        "0102030405060708ff 0000000000000000f7".replace(' ', "")
    );
    assert_eq!(
        put(|out| put_bytes(out, &[1, 2, 3, 4, 5, 6, 7, 8, 9])),
        "0102030405060708ff 0900000000000000f8".replace(' ', "")
    );
}

/// The example of MySQL's manual, and edges of the groups.
#[test]
fn decimals_are_mysqls_binary_form() {
    assert_eq!(decimal("1234567890.1234", 14, 4), "810dfb38d204d2");
    assert_eq!(decimal("-1234567890.1234", 14, 4), "7ef204c72dfb2d");
    assert_eq!(decimal("0", 1, 0), "80");
    assert_eq!(decimal("-1", 1, 0), "7e");
    assert_eq!(decimal("0.5", 2, 1), "8005");
    assert_eq!(decimal("0.25", 2, 2), "99");
    assert_eq!(decimal("-0.25", 2, 2), "66");
    assert_eq!(decimal("999999999", 9, 0), "bb9ac9ff");
    assert_eq!(decimal("1000000000", 10, 0), "8100000000");
    assert_eq!(decimal("12.5", 11, 9), "8c1dcd6500");
    // DECIMAL(65,30): 35 digits before the point are 8 + 27, 30 after it are 27 + 3.
    let widest = decimal("1.000000000000000000000000000001", 65, 30);
    assert_eq!(widest, format!("80000000{}00000001{}0001", "00000000".repeat(2), "00000000".repeat(3)));
}

#[test]
fn times_are_packed() {
    // (2021 * 13 + 1) << 5 | 2 = 840770; 3 << 12 | 4 << 6 | 5 = 12549.
    let packed = (840_770_u64 << 17 | 12_549) << 24 | 6;
    assert_eq!(pack_time(1_609_556_645_000_006).unwrap(), packed);
    assert_eq!(pack_date(18_629).unwrap(), 840_770 << 41);
    // 0000-01-01 is month 1, day 1 of year 0.
    assert_eq!(pack_date(-719_528).unwrap(), (1 << 5 | 1) << 41);
    assert_eq!(pack_date(2_932_896).unwrap(), ((9999 * 13 + 12) << 5 | 31) << 41);
}

#[test]
fn record_keys_hold_table_and_handle() {
    let key = record_key(1, &Handle::Int(1));
    assert_eq!(hex(&key), "7480000000000000015f728000000000000001");
    assert_eq!(key.len(), 19);
    let (start, end) = record_range(1);
    assert_eq!((hex(&start), hex(&end)), ("7480000000000000015f72".into(), "7480000000000000015f73".into()));
    let (start, end) = table_range(1);
    assert_eq!((hex(&start), hex(&end)), ("748000000000000001".into(), "748000000000000002".into()));
}

#[test]
fn an_integer_key_is_the_handle_and_not_in_the_value() {
    let table = table(vec![column(1, "id", INT), column(2, "a", BIGINT), column(3, "b", BIGINT)], &[0]);
    let (key, value) = row(
        &table,
        vec![
            Arc::new(Int32Array::from(vec![7])),
            Arc::new(Int64Array::from(vec![300])),
            Arc::new(Int64Array::from(vec![Some(-1)])),
        ],
        None,
    );
    assert_eq!(key, "74800000000000002a5f728000000000000007");
    // Version, flags, 2 not null, 0 null; ids 2 and 3; ends 2 and 3; 300 in two bytes, -1 in one.
    assert_eq!(value, "80 00 0200 0000 02 03 0200 0300 2c01 ff".replace(' ', ""));
}

#[test]
fn nulls_are_listed_only_where_a_default_could_be_mistaken_for_them() {
    let mut columns = vec![column(1, "id", INT), column(2, "a", BIGINT), column(3, "b", BIGINT)];
    columns[2].default = Some("5".into());
    let table = table(columns, &[0]);
    let (_, value) = row(
        &table,
        vec![
            Arc::new(Int32Array::from(vec![7])),
            Arc::new(Int64Array::from(vec![None])),
            Arc::new(Int64Array::from(vec![None])),
        ],
        None,
    );
    assert_eq!(value, "80 00 0000 0100 03".replace(' ', ""));
}

#[test]
fn a_row_without_values_is_six_bytes() {
    let table = table(vec![column(1, "id", INT)], &[0]);
    let (_, value) = row(&table, vec![Arc::new(Int32Array::from(vec![7]))], None);
    assert_eq!(value, "800000000000");
}

#[test]
fn unsigned_keys_keep_their_bits() {
    let table = table(vec![column(1, "id", ColumnType::Int { bits: 64, unsigned: true })], &[0]);
    let (key, _) = row(&table, vec![Arc::new(UInt64Array::from(vec![u64::MAX]))], None);
    assert!(key.ends_with("5f727fffffffffffffff"), "{key}");
}

#[test]
fn common_handles_are_datums() {
    let columns = vec![
        column(1, "v", ColumnType::Varchar(10)),
        column(2, "d", ColumnType::Date),
        column(3, "n", ColumnType::Decimal { precision: 4, scale: 2 }),
        column(4, "x", ColumnType::Int { bits: 8, unsigned: false }),
    ];
    let table = table(columns, &[0, 1, 2]);
    let numbers = Decimal128Array::from(vec![-125]).with_precision_and_scale(4, 2).unwrap();
    let (key, value) = row(
        &table,
        vec![
            Arc::new(StringArray::from(vec!["ab  "])),
            Arc::new(Date32Array::from(vec![18_629])),
            Arc::new(numbers),
            Arc::new(Int8Array::from(vec![1])),
        ],
        None,
    );
    let date = format!("{:016x}", 840_770_u64 << 41);
    let handle = format!("01 6162000000000000f9 04 {date} 06 0402 7ee6").replace(' ', "");
    assert_eq!(key, format!("74800000000000002a5f72{handle}"));
    // The text itself is restored data, the other key columns are in the key alone.
    assert_eq!(value, "80 00 0200 0000 01 04 0400 0500 61622020 01".replace(' ', ""));
}

#[test]
fn a_short_common_handle_is_padded_to_nine_bytes() {
    let table = table(vec![column(1, "n", ColumnType::Decimal { precision: 2, scale: 0 })], &[0]);
    let numbers = Decimal128Array::from(vec![5]).with_precision_and_scale(2, 0).unwrap();
    let (key, _) = row(&table, vec![Arc::new(numbers)], None);
    assert!(key.ends_with("5f72 06 0200 85 0000000000".replace(' ', "").as_str()), "{key}");
}

#[test]
fn a_value_of_each_kind() {
    let columns = vec![
        column(1, "f", ColumnType::Double),
        column(2, "d", ColumnType::Decimal { precision: 4, scale: 2 }),
        column(3, "s", ColumnType::Text(100)),
        column(4, "t", ColumnType::Datetime(6)),
        column(5, "u", ColumnType::Int { bits: 64, unsigned: true }),
    ];
    let table = table(columns, &[]);
    let numbers = Decimal128Array::from(vec![125]).with_precision_and_scale(4, 2).unwrap();
    let (key, value) = row(
        &table,
        vec![
            Arc::new(Float64Array::from(vec![1.0])),
            Arc::new(numbers),
            Arc::new(StringArray::from(vec!["é"])),
            Arc::new(TimestampMicrosecondArray::from(vec![1_609_556_645_000_006])),
            Arc::new(UInt64Array::from(vec![200])),
        ],
        Some(3),
    );
    assert_eq!(key, "74800000000000002a5f728000000000000003");
    let packed: u64 = (840_770 << 17 | 12_549) << 24 | 6;
    let time = hex(&packed.to_le_bytes());
    let data = format!("bff0000000000000 0402 8119 c3a9 {time} c8");
    let head = "80 00 0500 0000 0102030405 0800 0c00 0e00 1600 1700";
    assert_eq!(value, format!("{head}{data}").replace(' ', ""));
}

#[test]
fn rows_grow_large_by_ids_and_by_size() {
    let table = table(vec![column(256, "a", BIGINT)], &[]);
    let (_, value) = row(&table, vec![Arc::new(Int64Array::from(vec![1]))], Some(1));
    assert_eq!(value, "80 01 0100 0000 00010000 01000000 01".replace(' ', ""));

    let table = crate::arbitrary::table(vec![column(1, "a", ColumnType::Text(100_000))], &[]);
    let text = "x".repeat(65_536);
    let (_, value) = row(&table, vec![Arc::new(StringArray::from(vec![text]))], Some(1));
    assert!(value.starts_with(&"80 01 0100 0000 01000000 00000100 78".replace(' ', "")), "{}", &value[..40]);
}
