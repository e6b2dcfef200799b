//! Keys and values computed by hand for each type of column, for handles of each length, and with checksums.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, Date32Array, Decimal128Array, Float32Array, Int8Array, Int16Array, Int32Array,
    Int64Array, StringArray, TimestampMicrosecondArray, UInt8Array, UInt64Array,
};
use tidb::{
    Collation, ColumnType, Comparison, RowDecoder, RowEncoder, RowView, TableInfo, append_checksum,
    record_key,
};

use crate::arbitrary::{batch, column, table};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Encodes one row of a table and decodes it again; the bytes in hexadecimal.
fn encode(table: &TableInfo, columns: Vec<ArrayRef>, handle: Option<i64>) -> (String, String) {
    let batch = batch(table, columns);
    let (key, value) = RowEncoder::new(table).unwrap().encode(&batch, 0, handle).unwrap();
    let all: Vec<usize> = (0..table.columns.len()).collect();
    let mut decoder = RowDecoder::new(table, &all).unwrap();
    decoder.append(&key, &value).unwrap();
    assert_eq!(decoder.finish().unwrap(), batch);
    (hex(&key), hex(&value))
}

fn check_value(column_type: ColumnType, array: ArrayRef, expected: &str) {
    let table = table(vec![column(1, "c", column_type.clone())], &[]);
    let (_, value) = encode(&table, vec![array], Some(1));
    let expected = expected.replace(' ', "");
    // One column that is not NULL: its id and where its bytes end.
    let head = format!("80000100000001{:02x}00", expected.len() / 2);
    assert_eq!(value, format!("{head}{expected}"), "{column_type:?}");
}

fn times(array: TimestampMicrosecondArray, column_type: &ColumnType) -> ArrayRef {
    Arc::new(array.with_data_type(column_type.arrow_type()))
}

#[test]
fn integers_take_the_fewest_bytes() {
    let int = |bits, unsigned| ColumnType::Int { bits, unsigned };
    check_value(int(8, false), Arc::new(Int8Array::from(vec![-128])), "80");
    check_value(int(16, false), Arc::new(Int16Array::from(vec![127])), "7f");
    // -129 = 0xff7f, the low byte first.
    check_value(int(16, false), Arc::new(Int16Array::from(vec![-129])), "7fff");
    check_value(int(24, false), Arc::new(Int32Array::from(vec![-8_388_608])), "000080ff");
    check_value(int(32, false), Arc::new(Int32Array::from(vec![32_768])), "00800000");
    check_value(int(64, false), Arc::new(Int64Array::from(vec![2_147_483_648_i64])), "0000008000000000");
    check_value(int(64, false), Arc::new(Int64Array::from(vec![i64::MIN])), "0000000000000080");
    // Unsigned numbers need no bit for a sign: 128 to 255 are one byte.
    check_value(int(8, true), Arc::new(UInt8Array::from(vec![255])), "ff");
    check_value(int(64, true), Arc::new(UInt64Array::from(vec![65_535])), "ffff");
    check_value(int(64, true), Arc::new(UInt64Array::from(vec![u64::MAX])), "ffffffffffffffff");
}

#[test]
fn numbers_strings_and_times() {
    // FLOAT is widened: 1.5 = 0x3ff8000000000000 with the sign bit flipped; -1.5 all bits inverted.
    check_value(ColumnType::Float, Arc::new(Float32Array::from(vec![1.5])), "bff8000000000000");
    check_value(ColumnType::Float, Arc::new(Float32Array::from(vec![-1.5])), "4007ffffffffffff");
    // DECIMAL(10,2): 8 digits of whole in 4 bytes, 2 of fraction in 1. 12345678 = 0x00bc614e, 90 = 0x5a.
    let decimal = |unscaled: i128| -> ArrayRef {
        Arc::new(Decimal128Array::from(vec![unscaled]).with_precision_and_scale(10, 2).unwrap())
    };
    let column_type = ColumnType::Decimal { precision: 10, scale: 2 };
    check_value(column_type.clone(), decimal(1_234_567_890), "0a02 80bc614e 5a");
    check_value(column_type, decimal(-1_234_567_890), "0a02 7f439eb1 a5");
    check_value(ColumnType::Char(4), Arc::new(StringArray::from(vec!["ab"])), "6162");
    check_value(ColumnType::Varchar(4), Arc::new(StringArray::from(vec!["ab  "])), "61622020");
    check_value(ColumnType::Text(255), Arc::new(StringArray::from(vec!["𝄞"])), "f09d849e");
    check_value(ColumnType::Binary(3), Arc::new(BinaryArray::from_vec(vec![b"a\0\0"])), "610000");
    check_value(ColumnType::Varbinary(3), Arc::new(BinaryArray::from_vec(vec![b"\xff"])), "ff");
    check_value(ColumnType::Blob(255), Arc::new(BinaryArray::from_vec(vec![b""])), "");
    // 2021-01-02: (2021 * 13 + 1) << 5 | 2 = 26274 * 32 + 2 = 840770 = 0xcd442; << 41 = 0x19a8840000000000.
    check_value(ColumnType::Date, Arc::new(Date32Array::from(vec![18_629])), "000000000084a819");
    // 03:04:05 is 3 << 12 | 4 << 6 | 5 = 12549 = 0x3105: below the date's 0xcd442 << 17, then 24 bits.
    let datetime = ColumnType::Datetime(6);
    check_value(
        datetime.clone(),
        times(TimestampMicrosecondArray::from(vec![1_609_556_645_000_006]), &datetime),
        "060000053184a819",
    );
    // 0000-01-01 00:00:00 is (0 * 13 + 1) << 5 | 1 = 33; 33 << 41 = 0x420000000000.
    check_value(
        datetime.clone(),
        times(TimestampMicrosecondArray::from(vec![-62_167_219_200_000_000]), &datetime),
        "0000000000420000",
    );
    // A TIMESTAMP is its time in UTC.
    let timestamp = ColumnType::Timestamp(0);
    check_value(
        timestamp.clone(),
        times(TimestampMicrosecondArray::from(vec![1_609_556_645_000_000]), &timestamp),
        "000000053184a819",
    );
}

/// Integer handles: the sign bit is flipped, so negative ones come first.
#[test]
fn integer_handles() {
    let int = |unsigned| table(vec![column(1, "id", ColumnType::Int { bits: 64, unsigned })], &[0]);
    let signed = |value: i64| encode(&int(false), vec![Arc::new(Int64Array::from(vec![value]))], None).0;
    assert_eq!(signed(-1), "74800000000000002a5f727fffffffffffffff");
    assert_eq!(signed(i64::MIN), "74800000000000002a5f720000000000000000");
    // Unsigned ones are the same 64 bits read as signed: 2^63 is the least.
    let unsigned = |value: u64| encode(&int(true), vec![Arc::new(UInt64Array::from(vec![value]))], None).0;
    assert_eq!(unsigned(1), "74800000000000002a5f728000000000000001");
    assert_eq!(unsigned(1 << 63), "74800000000000002a5f720000000000000000");
    let hidden = table(vec![column(1, "a", ColumnType::Int { bits: 8, unsigned: false })], &[]);
    let key = encode(&hidden, vec![Arc::new(Int8Array::from(vec![1]))], Some(-5)).0;
    assert_eq!(key, "74800000000000002a5f727ffffffffffffffb");
}

/// Flag 06, precision and scale, and as many bytes as the digits need: DECIMAL(9,0) has 4, (10,0) 1 + 4,
/// (12,0) 2 + 4. A handle of 8 bytes would look like an integer.
#[test]
fn common_handles_of_seven_eight_and_nine_bytes() {
    let handle = |precision: u8, unscaled: i128| {
        let table = table(vec![column(1, "n", ColumnType::Decimal { precision, scale: 0 })], &[0]);
        let array = Decimal128Array::from(vec![unscaled]).with_precision_and_scale(precision, 0).unwrap();
        let (key, value) = encode(&table, vec![Arc::new(array)], None);
        assert_eq!(value, "800000000000");
        key.strip_prefix("74800000000000002a5f72").unwrap().to_owned()
    };
    assert_eq!(handle(9, 7), "060900 80000007 0000".replace(' ', ""));
    assert_eq!(handle(10, 7), "060a00 8000000007 00".replace(' ', ""));
    assert_eq!(handle(12, 7), "060c00 800000000007".replace(' ', ""));
    assert_eq!(handle(9, -7), "060900 7ffffff8 0000".replace(' ', ""));
}

#[test]
fn common_handles_of_strings_hold_sort_keys() {
    let text = |column_type: ColumnType, text: &str| {
        let table = table(vec![column(1, "k", column_type)], &[0]);
        let (key, value) = encode(&table, vec![Arc::new(StringArray::from(vec![text]))], None);
        (key.strip_prefix("74800000000000002a5f72").unwrap().to_owned(), value)
    };
    // VARCHAR: the text without trailing spaces in the key, all of it in the value.
    let (key, value) = text(ColumnType::Varchar(10), "a ");
    assert_eq!(key, "01 6100000000000000f8".replace(' ', ""));
    assert_eq!(value, "80 00 0100 0000 01 0200 6120".replace(' ', ""));
    // CHAR has no trailing spaces to lose: the key is enough.
    let (key, value) = text(ColumnType::Char(10), "a");
    assert_eq!(key, "01 6100000000000000f8".replace(' ', ""));
    assert_eq!(value, "800000000000");
    let (key, _) = text(ColumnType::Varchar(10), "12345678");
    assert_eq!(key, "01 3132333435363738ff 0000000000000000f7".replace(' ', ""));
}

/// Ids above 255: four bytes for ids and for ends, NULLs after the others.
#[test]
fn the_large_form() {
    let int = ColumnType::Int { bits: 64, unsigned: false };
    let mut columns =
        vec![column(2, "a", int.clone()), column(300, "b", int.clone()), column(70_000, "c", int)];
    columns[0].default = Some("1".into());
    let table = table(columns, &[]);
    let arrays: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![None])),
        Arc::new(Int64Array::from(vec![1])),
        Arc::new(Int64Array::from(vec![256])),
    ];
    let (_, value) = encode(&table, arrays, Some(1));
    // 300 = 0x12c, 70000 = 0x11170; ends 1 and 3.
    let head = "80 01 0200 0100 2c010000 70110100 02000000 01000000 03000000";
    assert_eq!(value, format!("{head} 01 0001").replace(' ', ""));
}

/// The CRC-32 of IEEE over the row with its flags, the header and the handle; of version 1 over the key.
#[test]
fn checksums_are_written_and_verified() {
    let key = record_key(42, &tidb::Handle::Int(7));
    let mut value = unhex("80 00 0100 0000 02 0100 05");
    append_checksum(&key, &mut value).unwrap();
    // crc32(80 02 0100 0000 02 0100 05 | 02 | 8000000000000007) = 0x3c12bb60.
    assert_eq!(hex(&value), "80 02 0100 0000 02 0100 05 02 60bb123c".replace(' ', ""));
    assert!(RowView::parse(&key, &value).is_ok());
    assert!(append_checksum(&key, &mut value).is_err(), "it has one");
    assert!(append_checksum(b"m", &mut unhex("80 00 0000 0000")).is_err());
    assert!(append_checksum(&key, &mut vec![0]).is_err());

    let of_version = |header: &str, rest: &str| {
        RowView::parse(&key, &unhex(&format!("80 02 0100 0000 02 0100 05 {header} {rest}"))).is_ok()
    };
    // crc32(row | 01 | the 19 bytes of the key) = 0x5cdabc23.
    assert!(of_version("01", "23bcda5c"));
    // With a second one: the header is 2 | 8, which is covered.
    assert!(of_version("0a", "7819ca87 00000000"));
    // Version 0 covers values: stepped over.
    assert!(of_version("00", "00000000"));
    assert!(of_version("08", "00000000 00000000"));
    assert!(!of_version("02", "61bb123c"));
    assert!(!of_version("01", "60bb123c"));
    assert!(!of_version("03", "60bb123c"));
    assert!(!of_version("02", "60bb12"));
    assert!(!of_version("02", "60bb123c 00"));
    assert!(!of_version("0a", "7819ca87"));
    // Another row's checksum.
    let other = record_key(42, &tidb::Handle::Int(8));
    assert!(RowView::parse(&other, &unhex("80 02 0100 0000 02 0100 05 02 60bb123c")).is_err());
}

#[test]
fn collations_have_mysqls_numbers_and_sort_keys() {
    let known = [
        (46, "utf8mb4_bin", Some("a")),
        (47, "latin1_bin", Some("a")),
        (63, "binary", Some("a  ")),
        (65, "ascii_bin", Some("a")),
        (83, "utf8_bin", Some("a")),
        (309, "utf8mb4_0900_bin", Some("a  ")),
        (45, "utf8mb4_general_ci", None),
        (224, "utf8mb4_unicode_ci", None),
        (255, "utf8mb4_0900_ai_ci", None),
    ];
    for (id, name, key) in known {
        let collation = Collation::by_name(&name.to_uppercase()).unwrap();
        assert_eq!((i32::from(collation.id), collation.name), (id, name));
        assert_eq!(Collation::by_id(id), Some(collation));
        assert_eq!(Collation::by_id(-id), Some(collation));
        assert_eq!(collation.sort_key(b"a  "), key.map(str::as_bytes), "{name}");
        assert_eq!(collation.is_supported(), collation.comparison == Comparison::Padded);
    }
    // Only U+0020 pads.
    assert_eq!(Collation::by_id(46).unwrap().sort_key(b"a\t \0"), Some(&b"a\t \0"[..]));
    assert_eq!(Collation::by_name("utf8mb4_klingon_ci"), None);
    assert_eq!(Collation::by_id(0), None);
}
