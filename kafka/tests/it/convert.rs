//! Values of events into our column types.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use kafka::{Cell, ConvertOptions, Image, Missing, RowConverter, SourceType, Value, ZeroDates};
use tidb::{ColumnInfo, ColumnType, Decimal};

use crate::support::{number, text};

/// A column that may be NULL.
pub(crate) fn column(name: &str, column_type: ColumnType) -> ColumnInfo {
    ColumnInfo {
        id: 1,
        name: name.to_owned(),
        column_type,
        not_null: false,
        default: None,
        origin_default: None,
        comment: String::new(),
    }
}

fn image(value: Value, source_type: &str) -> Image {
    let source_type = (!source_type.is_empty()).then(|| Arc::new(SourceType::parse(source_type)));
    Image::whole(vec![Cell { name: "c".to_owned(), value, source_type }])
}

fn shown(array: &ArrayRef, row: usize) -> String {
    if array.is_null(row) {
        return "NULL".to_owned();
    }
    let options = FormatOptions::default();
    ArrayFormatter::try_new(array, &options).unwrap().value(row).to_string()
}

/// What a value becomes in a column, or why it does not.
fn converted(to: &ColumnType, value: Value, source_type: &str, options: &ConvertOptions) -> String {
    let converter = RowConverter::new(vec![column("c", to.clone())], options.clone());
    let done = converter.convert(&[&image(value, source_type)]).unwrap();
    match done.errors.first() {
        Some((0, error)) => format!("error: {error}"),
        _ => shown(done.batch.column(0), 0),
    }
}

fn check(to: ColumnType, value: Value, source_type: &str, expected: &str) {
    let found = converted(&to, value.clone(), source_type, &ConvertOptions::default());
    let matches = match expected.strip_prefix("error: ") {
        Some(reason) => found.starts_with("error: column `c`") && found.contains(reason),
        None => found == expected,
    };
    assert!(matches, "{value:?} of {source_type} in {to:?} is {found}, not {expected}");
}

const INT: ColumnType = ColumnType::Int { bits: 32, unsigned: false };
const ULONG: ColumnType = ColumnType::Int { bits: 64, unsigned: true };
const TEXT: ColumnType = ColumnType::Varchar(40);

#[test]
fn numbers_keep_all_their_digits() {
    check(ULONG, number("18446744073709551615"), "bigint unsigned", "18446744073709551615");
    check(INT, number("2147483648"), "int", "error: Out of range");
    check(ULONG, number("-1"), "bigint", "error: Out of range");
    let decimal = ColumnType::Decimal { precision: 65, scale: 30 };
    let digits = "12345678901234567890123456789012345.123456789012345678901234567890";
    check(decimal, number(digits), "decimal(65,30)", digits);
    let money = ColumnType::Decimal { precision: 10, scale: 2 };
    check(money.clone(), number("1e3"), "", "1000.00");
    check(money.clone(), Value::Bool(true), "", "1.00");
    let exact = Decimal { unscaled: arrow::datatypes::i256::from_i128(-1234), scale: 3 };
    check(money, Value::Decimal(exact), "", "-1.23");
    // A FLOAT widens from its own 32 bits, as in MySQL.
    check(ColumnType::Double, Value::Single(0.1), "float", "0.10000000149011612");
    check(ColumnType::Float, Value::Single(0.1), "float", "0.1");
    check(ColumnType::Double, text("abc"), "", "error: Data truncated");
}

#[test]
fn bits_go_into_integers_and_into_bytes_of_their_width() {
    check(ULONG, Value::Bits(u64::MAX), "bit", "18446744073709551615");
    check(ColumnType::Binary(2), Value::Bits(0x0102), "bit", "0102");
    check(ColumnType::Varbinary(8), Value::Bits(0x0102), "bit(17)", "000102");
    check(ColumnType::Varbinary(8), Value::Bits(1), "bit", "error: number of bits is not known");
    check(ColumnType::Binary(1), Value::Bits(0x0102), "bit", "error: more bits than 1 bytes");
    check(TEXT, Value::Bits(1), "bit", "error: a BIT goes into");
}

#[test]
fn enums_and_sets_by_number_and_by_name() {
    let choice = "enum('red','green')";
    check(INT, Value::Index(2), "enum", "2");
    check(TEXT, Value::Index(2), choice, "green");
    check(TEXT, Value::Index(0), choice, "");
    check(TEXT, Value::Index(3), choice, "error: has 2 labels");
    check(TEXT, Value::Index(1), "enum", "error: labels are not known");
    check(INT, text("GREEN"), choice, "2");
    check(INT, text("blue"), choice, "error: 'blue' is none");
    let flags = "set('a','b','c')";
    check(TEXT, Value::Members(5), flags, "a,c");
    check(TEXT, Value::Members(0), "set", "");
    check(TEXT, Value::Members(8), flags, "error: has 3 labels");
    check(INT, text("c,a"), flags, "5");
    let labels = BTreeMap::from([("c".to_owned(), vec!["x".to_owned(), "y".to_owned()])]);
    let options = ConvertOptions { labels, ..ConvertOptions::default() };
    assert_eq!(converted(&TEXT, Value::Index(2), "enum", &options), "y");
}

#[test]
fn dates_and_times() {
    check(ColumnType::Date, text("2000-02-29"), "date", "2000-02-29");
    check(ColumnType::Date, text("0000-00-00"), "date", "error: Incorrect date value: '0000-00-00'");
    check(ColumnType::Date, text("2000-00-10"), "date", "error: '2000-00-10'");
    check(ColumnType::Date, Value::Days(11_016), "", "2000-02-29");
    check(ColumnType::Date, Value::Days(i64::MAX), "", "error: no such date");
    check(ColumnType::Datetime(3), text("2015-12-20 23:58:58.123"), "datetime", "2015-12-20T23:58:58.123");
    check(ColumnType::Datetime(6), Value::Local(1_500_000), "", "1970-01-01T00:00:01.500");
    check(ColumnType::Timestamp(0), Value::Instant(1_000_000), "", "1970-01-01T00:00:01Z");
    let zoned = |zone: &str, text: &str| Value::Zoned { zone: zone.to_owned(), text: text.to_owned() };
    check(
        ColumnType::Timestamp(0),
        zoned("Asia/Shanghai", "2020-01-01 08:00:00"),
        "timestamp",
        "2020-01-01T00:00:00Z",
    );
    check(ColumnType::Timestamp(0), zoned("Nowhere", "2020-01-01 08:00:00"), "", "error: time zone");
    let far = ConvertOptions { zone: "+08:00".parse().unwrap(), ..ConvertOptions::default() };
    let found = converted(&ColumnType::Timestamp(0), text("2020-01-01 08:00:00"), "timestamp", &far);
    assert_eq!(found, "2020-01-01T00:00:00Z");
    let dropped = ConvertOptions { zero_dates: ZeroDates::Null, ..ConvertOptions::default() };
    assert_eq!(converted(&ColumnType::Date, text("0000-00-00"), "date", &dropped), "NULL");
    assert_eq!(converted(&TEXT, text("0000-00-00"), "date", &dropped), "0000-00-00");
}

#[test]
fn times_of_day_are_texts_or_the_number_that_mysql_makes_of_them() {
    check(TEXT, text("-838:59:59"), "time", "-838:59:59");
    check(INT, text("-838:59:59"), "time", "-8385959");
    check(TEXT, Value::Duration(3_723_000_000), "", "01:02:03");
    check(TEXT, Value::Duration(-3_723_500_000), "time(3)", "-01:02:03.500");
    check(INT, Value::Duration(3_723_000_000), "", "10203");
    check(ColumnType::Datetime(0), Value::Duration(1), "", "error: a TIME has no date");
}

#[test]
fn texts_bytes_and_json() {
    check(TEXT, Value::Json("{\"a\":1}".to_owned()), "json", "{\"a\":1}");
    check(TEXT, Value::Bytes(b"ab".to_vec()), "blob", "ab");
    check(TEXT, Value::Bytes(vec![0xff]), "blob", "error: Incorrect string value");
    check(ColumnType::Binary(4), Value::Bytes(vec![1, 2]), "binary", "01020000");
    check(ColumnType::Varchar(2), text("abc"), "varchar", "error: too long");
    check(TEXT, Value::Unavailable, "", "error: did not change");
    check(TEXT, Value::Null, "", "NULL");
}

#[test]
fn rows_that_cannot_be_converted_leave_their_neighbours_alone() {
    let not_null = ColumnInfo { not_null: true, ..column("k", INT) };
    let columns = vec![not_null, column("c", INT)];
    let row = |k: Value, c: Option<Value>| {
        let mut cells = vec![Cell { name: "K".to_owned(), value: k, source_type: None }];
        cells.extend(c.map(|value| Cell { name: "c".to_owned(), value, source_type: None }));
        Image::whole(cells)
    };
    let images = [
        row(number("1"), Some(number("10"))),
        row(Value::Null, Some(number("20"))),
        row(number("3"), Some(text("x"))),
        row(number("4"), None),
        row(number("5"), Some(Value::Double(50.0))),
    ];
    let images: Vec<&Image> = images.iter().collect();
    let done = RowConverter::new(columns.clone(), ConvertOptions::default()).convert(&images).unwrap();
    let shown_rows: Vec<String> = (0..done.batch.num_rows())
        .map(|row| format!("{} {}", shown(done.batch.column(0), row), shown(done.batch.column(1), row)))
        .collect();
    assert_eq!(shown_rows, ["1 10", "5 50"]);
    let errors: Vec<String> = done.errors.iter().map(|(row, error)| format!("{row} {error}")).collect();
    assert!(errors[0].starts_with("1 column `k`, value NULL"), "{errors:?}");
    assert!(errors[1].starts_with("2 column `c`, value 'x'"), "{errors:?}");
    assert!(errors[2].starts_with("3 column `c`, value none"), "{errors:?}");
    let lenient = ConvertOptions { missing: Missing::Null, ..ConvertOptions::default() };
    let done = RowConverter::new(columns, lenient).convert(&images).unwrap();
    assert_eq!((done.batch.num_rows(), done.errors.len()), (3, 2));
}
