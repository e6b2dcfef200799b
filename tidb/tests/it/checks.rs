//! What MySQL accepts into a column in strict mode, and the numbers of its errors.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float64Array,
    Int64Array, NullArray, StringArray, StringViewArray, TimestampMicrosecondArray, UInt64Array,
};
use arrow::datatypes::{DataType, TimestampMicrosecondType};
use arrow::util::display::array_value_to_string;
use tidb::{Cast, ColumnInfo, ColumnType, Zone, check_column, convert_column};

use crate::arbitrary::column;

fn target(column_type: ColumnType) -> ColumnInfo {
    column(1, "x", column_type)
}

const fn int(bits: u8) -> ColumnType {
    ColumnType::Int { bits, unsigned: false }
}

const fn unsigned(bits: u8) -> ColumnType {
    ColumnType::Int { bits, unsigned: true }
}

const fn decimal(precision: u8, scale: u8) -> ColumnType {
    ColumnType::Decimal { precision, scale }
}

fn text(value: &str) -> ArrayRef {
    Arc::new(StringArray::from(vec![value]))
}

fn number(value: i64) -> ArrayRef {
    Arc::new(Int64Array::from(vec![value]))
}

fn float(value: f64) -> ArrayRef {
    Arc::new(Float64Array::from(vec![value]))
}

fn bytes(value: &[u8]) -> ArrayRef {
    Arc::new(BinaryArray::from(vec![value]))
}

/// A value as Arrow shows it; an instant with a Z (zones have no names in Arrow without its feature).
fn shown(array: &ArrayRef) -> String {
    match array.data_type() {
        DataType::Timestamp(unit, Some(_)) => {
            let local = array.as_primitive::<TimestampMicrosecondType>().clone();
            let local: ArrayRef = Arc::new(local.with_data_type(DataType::Timestamp(*unit, None)));
            shown(&local) + "Z"
        }
        _ => array_value_to_string(array, 0).unwrap(),
    }
}

/// The value that is kept.
fn kept(column_type: ColumnType, value: &ArrayRef) -> String {
    let array = convert_column(&target(column_type), value, &Cast::default()).unwrap();
    shown(&array)
}

fn refused(column_type: ColumnType, value: &ArrayRef) -> (u16, String) {
    let error = convert_column(&target(column_type), value, &Cast::default()).unwrap_err();
    (error.mysql_code().unwrap_or(0), error.message().to_owned())
}

fn code(column_type: ColumnType, value: &ArrayRef) -> u16 {
    refused(column_type, value).0
}

#[test]
fn integers_are_within_their_width() {
    assert_eq!(kept(int(8), &number(127)), "127");
    assert_eq!(kept(int(8), &number(-128)), "-128");
    let (code_of, message) = refused(int(8), &number(128));
    assert_eq!((code_of, message.as_str()), (1264, "Out of range value for column 'x' at row 1"));
    assert_eq!(code(int(16), &number(40_000)), 1264);
    assert_eq!(kept(int(24), &number(8_388_607)), "8388607");
    assert_eq!(code(int(24), &number(8_388_608)), 1264);
    assert_eq!(code(int(24), &number(-8_388_609)), 1264);
    assert_eq!(kept(unsigned(24), &number(16_777_215)), "16777215");
    assert_eq!(code(unsigned(24), &number(16_777_216)), 1264);
    assert_eq!(code(unsigned(64), &number(-1)), 1264);
    let large: ArrayRef = Arc::new(UInt64Array::from(vec![u64::MAX]));
    assert_eq!(kept(unsigned(64), &large), "18446744073709551615");
    assert_eq!(code(int(64), &large), 1264);
    assert_eq!(kept(int(8), &(Arc::new(BooleanArray::from(vec![true])) as ArrayRef)), "1");
}

#[test]
fn integers_come_from_text_and_fractions() {
    assert_eq!(kept(int(32), &text(" 12 ")), "12");
    assert_eq!(kept(int(32), &text("1.5")), "2");
    assert_eq!(kept(int(32), &text("-1.5")), "-2");
    assert_eq!(kept(int(32), &text("1e3")), "1000");
    assert_eq!(kept(int(32), &float(2.5)), "2");
    assert_eq!(kept(int(32), &float(3.5)), "4");
    let tenths: ArrayRef = Arc::new(Decimal128Array::from(vec![25]).with_precision_and_scale(3, 1).unwrap());
    assert_eq!(kept(int(32), &tenths), "3");
    let (code_of, message) = refused(int(32), &text("abc"));
    assert_eq!((code_of, message.as_str()), (1366, "Incorrect integer value: 'abc' for column 'x' at row 1"));
    assert_eq!(code(int(32), &text("")), 1366);
    assert_eq!(code(int(32), &text("12abc")), 1265);
    assert_eq!(code(int(32), &text("1e400")), 1264);
    assert_eq!(code(int(32), &float(1e20)), 1264);
    assert_eq!(code(int(32), &float(f64::NAN)), 1264);
    assert_eq!(kept(int(64), &(Arc::new(Date32Array::from(vec![18_629])) as ArrayRef)), "20210102");
}

#[test]
fn decimals_round_and_have_limits() {
    assert_eq!(kept(decimal(5, 2), &text("123.455")), "123.46");
    assert_eq!(kept(decimal(5, 2), &text("-123.455")), "-123.46");
    assert_eq!(kept(decimal(5, 2), &number(999)), "999.00");
    assert_eq!(kept(decimal(5, 2), &float(0.1)), "0.10");
    assert_eq!(code(decimal(5, 2), &number(1000)), 1264);
    assert_eq!(code(decimal(5, 2), &text("999.995")), 1264);
    assert_eq!(code(decimal(5, 2), &text("x")), 1366);
    assert_eq!(code(decimal(5, 2), &float(f64::INFINITY)), 1264);
    let widest = "12345678901234567890123456789012345.123456789012345678901234567891";
    assert_eq!(kept(decimal(65, 30), &text(widest)), widest);
    assert_eq!(code(decimal(65, 30), &text(&format!("9{widest}"))), 1264);
    let too_wide: ArrayRef =
        Arc::new(Decimal128Array::from(vec![100_000]).with_precision_and_scale(38, 2).unwrap());
    assert_eq!(code(decimal(5, 2), &too_wide), 1264);
}

#[test]
fn floats_are_finite() {
    assert_eq!(kept(ColumnType::Double, &text("1.5e3")), "1500.0");
    assert_eq!(kept(ColumnType::Float, &number(3)), "3.0");
    assert_eq!(code(ColumnType::Float, &float(1e300)), 1264);
    assert_eq!(code(ColumnType::Double, &text("1e400")), 1264);
    assert_eq!(code(ColumnType::Double, &float(f64::NAN)), 1264);
    for word in ["nan", "inf", "", "1x", "0x10"] {
        assert_eq!(code(ColumnType::Double, &text(word)), 1265, "{word}");
    }
}

#[test]
fn texts_have_lengths_in_characters() {
    assert_eq!(kept(ColumnType::Varchar(3), &text("äöü")), "äöü");
    assert_eq!(kept(ColumnType::Varchar(3), &text("𝄞𝄞𝄞")), "𝄞𝄞𝄞");
    let (code_of, message) = refused(ColumnType::Varchar(3), &text("abcd"));
    assert_eq!((code_of, message.as_str()), (1406, "Data too long for column 'x' at row 1"));
    assert_eq!(kept(ColumnType::Varchar(3), &text("abc  ")), "abc");
    assert_eq!(kept(ColumnType::Varchar(3), &text("a  ")), "a  ");
    assert_eq!(kept(ColumnType::Char(3), &text("a  ")), "a");
    assert_eq!(kept(ColumnType::Char(3), &text("abc   ")), "abc");
    assert_eq!(code(ColumnType::Char(3), &text("abcd")), 1406);
    assert_eq!(code(ColumnType::Text(5), &text("ääx!!")), 1406);
    assert_eq!(kept(ColumnType::Text(5), &text("ääx")), "ääx");
    assert_eq!(kept(ColumnType::Varchar(0), &text("")), "");
}

#[test]
fn numbers_and_times_become_text() {
    assert_eq!(kept(ColumnType::Varchar(30), &number(-5)), "-5");
    assert_eq!(kept(ColumnType::Varchar(30), &float(0.25)), "0.25");
    assert_eq!(
        kept(ColumnType::Varchar(30), &(Arc::new(Date32Array::from(vec![18_629])) as ArrayRef)),
        "2021-01-02"
    );
    let time: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![1_609_556_645_000_000]));
    assert_eq!(kept(ColumnType::Varchar(30), &time), "2021-01-02 03:04:05");
    assert_eq!(kept(ColumnType::Varchar(30), &bytes(b"ab")), "ab");
    let (code_of, message) = refused(ColumnType::Varchar(30), &bytes(b"a\xff\xfe"));
    assert_eq!(code_of, 1366);
    assert!(message.contains("\\xFF\\xFE"), "{message}");
    let view: ArrayRef = Arc::new(StringViewArray::from(vec!["a view"]));
    assert_eq!(kept(ColumnType::Varchar(30), &view), "a view");
}

#[test]
fn binary_is_padded_with_zeros() {
    assert_eq!(kept(ColumnType::Binary(4), &bytes(b"ab")), "61620000");
    assert_eq!(kept(ColumnType::Varbinary(4), &bytes(b"ab")), "6162");
    assert_eq!(kept(ColumnType::Blob(4), &text("ab")), "6162");
    assert_eq!(code(ColumnType::Binary(1), &bytes(b"ab")), 1406);
    assert_eq!(code(ColumnType::Varbinary(1), &bytes(b"ab")), 1406);
}

#[test]
fn dates_and_times_are_checked() {
    assert_eq!(kept(ColumnType::Date, &text("2021-01-02 03:04:05")), "2021-01-02");
    assert_eq!(kept(ColumnType::Date, &number(20_210_102)), "2021-01-02");
    assert_eq!(kept(ColumnType::Datetime(0), &text("2021-01-02 03:04:05.5")), "2021-01-02T03:04:06");
    assert_eq!(kept(ColumnType::Datetime(2), &text("2021-01-02 03:04:05.125")), "2021-01-02T03:04:05.130");
    assert_eq!(kept(ColumnType::Datetime(6), &text("0000-01-01")), "0000-01-01T00:00:00");
    let (code_of, message) = refused(ColumnType::Date, &text("2021-02-30"));
    assert_eq!(
        (code_of, message.as_str()),
        (1292, "Incorrect date value: '2021-02-30' for column 'x' at row 1")
    );
    assert_eq!(code(ColumnType::Datetime(0), &text("x")), 1292);
    assert_eq!(code(ColumnType::Datetime(0), &text("0000-00-00 00:00:00")), 1292);
    assert_eq!(code(ColumnType::Datetime(0), &text("9999-12-31 23:59:59.9")), 1292);
    assert_eq!(code(ColumnType::Datetime(0), &number(0)), 1292);
    assert_eq!(code(ColumnType::Timestamp(0), &text("1970-01-01 00:00:00")), 1292);
    assert_eq!(code(ColumnType::Timestamp(0), &text("2038-01-19 03:14:08")), 1292);
    assert_eq!(kept(ColumnType::Timestamp(0), &text("2038-01-19 03:14:07")), "2038-01-19T03:14:07Z");
    let beyond: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![i64::MAX]));
    assert_eq!(code(ColumnType::Datetime(6), &beyond), 1292);
    assert_eq!(code(ColumnType::Date, &(Arc::new(Date32Array::from(vec![i32::MAX])) as ArrayRef)), 1292);
}

#[test]
fn timestamps_are_instants_in_the_sessions_zone() {
    let cast = Cast { zone: "Europe/Berlin".parse::<Zone>().unwrap() };
    let timestamp = target(ColumnType::Timestamp(0));
    let kept = |column: &ColumnInfo, value: &ArrayRef| shown(&convert_column(column, value, &cast).unwrap());
    assert_eq!(kept(&timestamp, &text("2021-07-01 12:00:00")), "2021-07-01T10:00:00Z");
    assert_eq!(kept(&timestamp, &text("2021-07-01 12:00:00+00:00")), "2021-07-01T12:00:00Z");
    let instant: ArrayRef =
        Arc::new(TimestampMicrosecondArray::from(vec![1_609_556_645_000_000]).with_timezone("UTC"));
    assert_eq!(kept(&target(ColumnType::Datetime(0)), &instant), "2021-01-02T04:04:05");
    assert_eq!(kept(&target(ColumnType::Date), &instant), "2021-01-02");
    assert_eq!(kept(&target(ColumnType::Varchar(30)), &instant), "2021-01-02 04:04:05");
    let gap = convert_column(&timestamp, &text("2021-03-28 02:30:00"), &cast).unwrap_err();
    assert_eq!(gap.mysql_code(), Some(1292));
}

#[test]
fn nulls_are_refused_where_they_may_not_be() {
    let mut column = target(int(32));
    let nulls: ArrayRef = Arc::new(NullArray::new(2));
    assert_eq!(convert_column(&column, &nulls, &Cast::default()).unwrap().null_count(), 2);
    column.not_null = true;
    let error = convert_column(&column, &nulls, &Cast::default()).unwrap_err();
    assert_eq!((error.mysql_code(), error.message()), (Some(1048), "Column 'x' cannot be null"));
}

#[test]
fn errors_name_the_row() {
    let values: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(1000)]));
    let (_, message) = refused(int(8), &values);
    assert_eq!(message, "Out of range value for column 'x' at row 3");
    let values: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("abc")]));
    let (_, message) = refused(ColumnType::Varchar(2), &values);
    assert_eq!(message, "Data too long for column 'x' at row 3");
}

#[test]
fn nulls_stay_beside_changed_values() {
    let values: ArrayRef = Arc::new(StringArray::from(vec![Some("a "), None]));
    let kept = check_column(&target(ColumnType::Char(2)), &values).unwrap();
    let kept = kept.as_string::<i32>();
    assert_eq!((kept.value(0), kept.is_null(1)), ("a", true));
    let values: ArrayRef = Arc::new(BinaryArray::from(vec![Some(&b"a"[..]), None]));
    let kept = check_column(&target(ColumnType::Binary(2)), &values).unwrap();
    assert_eq!((kept.as_binary::<i32>().value(0), kept.is_null(1)), (&b"a\0"[..], true));
}

#[test]
fn another_type_is_not_checked_but_refused() {
    assert!(check_column(&target(int(32)), &number(1)).is_err());
    let unsupported: ArrayRef = Arc::new(arrow::array::Time64MicrosecondArray::from(vec![1]));
    assert_eq!(code(int(32), &unsupported), 1366);
}
