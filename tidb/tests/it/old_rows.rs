//! Rows in the format before version 2: bytes by hand, and any bytes at all.

use arrow::array::{Array, AsArray};
use arrow::datatypes::{
    Date32Type, Decimal128Type, Float64Type, Int64Type, TimestampMicrosecondType, UInt64Type,
};
use arrow::record_batch::RecordBatch;
use proptest::collection::vec;
use proptest::prelude::*;
use tidb::{ColumnType, Handle, RowDecoder, TableInfo, record_key};

use crate::arbitrary::{column, table, table_and_rows};

const BIGINT: ColumnType = ColumnType::Int { bits: 64, unsigned: false };

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn decode(table: &TableInfo, value: &str) -> types::Result<RecordBatch> {
    let all: Vec<usize> = (0..table.columns.len()).collect();
    let mut decoder = RowDecoder::new(table, &all)?;
    decoder.append(&record_key(table.id, &Handle::Int(7)), &unhex(value))?;
    decoder.finish()
}

/// Every id is a signed varint: 08, then the id times two.
#[test]
fn values_of_each_kind() {
    let columns = vec![
        column(1, "i", BIGINT),
        column(2, "u", ColumnType::Int { bits: 64, unsigned: true }),
        column(3, "s", ColumnType::Varchar(10)),
        column(4, "f", ColumnType::Double),
        column(5, "n", ColumnType::Decimal { precision: 4, scale: 2 }),
        column(6, "t", ColumnType::Datetime(6)),
        column(7, "d", ColumnType::Date),
        column(8, "b", ColumnType::Varbinary(10)),
        column(9, "z", BIGINT),
    ];
    let value = [
        // -3 is zigzag 2 * 3 - 1 = 5.
        "0802 08 05",
        // 300 is 0b10_0101100: the low seven bits with the top bit set, then 2.
        "0804 09 ac02",
        // Three bytes: a signed length, 6.
        "0806 02 06 616263",
        // 1.0 is 3ff0…, its sign bit flipped.
        "0808 05 bff0000000000000",
        // -1.25 in DECIMAL(4,2) is 01 19, the first bit flipped and all inverted.
        "080a 06 0402 7ee6",
        // (840770 << 17 | 12549) << 24 | 6 = 0x19a8843105000006, seven bits at a time from below:
        // 06 00 00 28 10 06 21 54 19, the top bit set on all but the last.
        "080c 09 868080a89086a1d419",
        // 840770 << 41 = 0x19a8840000000000, as eight bytes.
        "080e 04 19a8840000000000",
        // A group of eight with six bytes of padding.
        "0810 01 ff00000000000000f9",
        "0812 00",
    ];
    let batch = decode(&table(columns, &[]), &value.concat()).unwrap();
    assert_eq!(batch.column(0).as_primitive::<Int64Type>().value(0), -3);
    assert_eq!(batch.column(1).as_primitive::<UInt64Type>().value(0), 300);
    assert_eq!(batch.column(2).as_string::<i32>().value(0), "abc");
    assert_eq!(batch.column(3).as_primitive::<Float64Type>().value(0).to_bits(), 1.0_f64.to_bits());
    assert_eq!(batch.column(4).as_primitive::<Decimal128Type>().value(0), -125);
    // 2021-01-02 03:04:05.000006 and its day.
    assert_eq!(batch.column(5).as_primitive::<TimestampMicrosecondType>().value(0), 1_609_556_645_000_006);
    assert_eq!(batch.column(6).as_primitive::<Date32Type>().value(0), 18_629);
    assert_eq!(batch.column(7).as_binary::<i32>().value(0), [0xff, 0]);
    assert!(batch.column(8).is_null(0));
}

#[test]
fn absent_columns_have_the_handle_or_their_default() {
    let mut columns = vec![column(1, "id", BIGINT), column(2, "a", BIGINT), column(3, "b", BIGINT)];
    columns[2].origin_default = Some("5".into());
    let keyed = table(columns, &[0]);
    // One 00 is a row without columns.
    for (value, a, b) in [("00", None, Some(5)), ("0804 08 02", Some(1), Some(5)), ("0806 00", None, None)] {
        let batch = decode(&keyed, value).unwrap();
        let cell = |at: usize| {
            let array = batch.column(at).as_primitive::<Int64Type>();
            array.iter().next().unwrap()
        };
        assert_eq!((cell(0), cell(1), cell(2)), (Some(7), a, b), "{value}");
    }
    // The value comes before the handle here too.
    let batch = decode(&keyed, "0802 08 12").unwrap();
    assert_eq!(batch.column(0).as_primitive::<Int64Type>().value(0), 9);
}

/// Columns that nobody reads may have types that nothing here reads.
#[test]
fn other_columns_are_stepped_over() {
    let table = table(vec![column(9, "z", BIGINT)], &[]);
    let others = [
        // TIME: nanoseconds.
        "0802 07 8000000000000001",
        // JSON: the string "ab", true, 1 as an integer, a duration, an opaque of three bytes.
        "0802 0a 0c 02 6162",
        "0802 0a 04 01",
        "0802 0a 09 0100000000000000",
        "0802 0a 11 0000000000000000 00000000",
        "0802 0a 0d 0f 03 010203",
        // An array of no elements: count 0, size 8.
        "0802 0a 03 00000000 08000000",
        // An object whose size is 10: two more bytes.
        "0802 0a 01 00000000 0a000000 ffff",
        // A vector of two.
        "0802 14 02000000 0000803f 00000040",
        "0802 03 8000000000000001",
    ];
    for other in others {
        let batch = decode(&table, &format!("{other} 0812 08 54")).unwrap();
        assert_eq!(batch.column(0).as_primitive::<Int64Type>().value(0), 42, "{other}");
    }
}

#[test]
fn what_is_no_row_is_an_error() {
    let table = table(vec![column(1, "a", BIGINT)], &[]);
    let bad = [
        "",
        "0000",
        "7f",
        "08",
        "0802",
        "0802 08",
        "0802 77",
        // A string where an integer belongs, an unsigned integer where a signed one does.
        "0802 02 02 61",
        "0802 09 01",
        // A varint of more than 64 bits.
        "0802 08 ffffffffffffffffff02",
        "0802 08 ffffffffffffffffffff01",
        // Strings longer than the row, or of negative length.
        "0804 02 7f 61",
        "0804 02 01",
        // JSON of less than its own head, of an unknown type, of endless length.
        "0804 0a 01 00000000 07000000",
        "0804 0a 77",
        "0804 0a 0c ffffffffffffffffff01",
        "0804 14 ffffffff",
    ];
    for value in bad {
        let error = decode(&table, value).unwrap_err();
        assert_eq!(error.kind(), types::ErrorKind::Corrupt, "{value}");
    }
}

fn put_varint(out: &mut Vec<u8>, value: i64) {
    let mut zigzag = (value << 1 ^ value >> 63) as u64;
    while zigzag >= 0x80 {
        out.push(zigzag as u8 | 0x80);
        zigzag >>= 7;
    }
    out.push(zigzag as u8);
}

proptest! {
    #![proptest_config(crate::arbitrary::cases(300))]

    #[test]
    fn old_rows_come_back(
        ints in vec(prop::option::of(any::<i64>()), 1..6),
        bytes in vec(any::<u8>(), 0..20),
    ) {
        let mut columns: Vec<_> =
            (0..ints.len()).map(|at| column(at as i64 * 90 + 1, &format!("c{at}"), BIGINT)).collect();
        columns.push(column(1000, "b", ColumnType::Varbinary(20)));
        let table = table(columns, &[]);
        // The order of columns is free.
        let mut value = vec![8];
        put_varint(&mut value, 1000);
        value.push(2);
        put_varint(&mut value, bytes.len() as i64);
        value.extend_from_slice(&bytes);
        for (at, int) in ints.iter().enumerate().rev() {
            value.push(8);
            put_varint(&mut value, at as i64 * 90 + 1);
            match int {
                Some(int) => {
                    value.push(8);
                    put_varint(&mut value, *int);
                }
                None => value.push(0),
            }
        }
        let all: Vec<usize> = (0..table.columns.len()).collect();
        let mut decoder = RowDecoder::new(&table, &all).unwrap();
        let key = record_key(table.id, &Handle::Int(7));
        decoder.append(&key, &value).unwrap();
        prop_assert!(decoder.is_unchanged(&key, &value, &value).unwrap());
        let batch = decoder.finish().unwrap();
        for (at, int) in ints.iter().enumerate() {
            prop_assert_eq!(batch.column(at).as_primitive::<Int64Type>().iter().next().unwrap(), *int);
        }
        prop_assert_eq!(batch.column(ints.len()).as_binary::<i32>().value(0), bytes.as_slice());
    }

    /// Rows of any table, made of plausible datums and then broken.
    #[test]
    fn any_datums_never_panic(
        (table, _) in table_and_rows(),
        datums in vec(
            (1_u8..10, prop_oneof![0_u8..11, Just(20)], vec(any::<u8>(), 0..24)),
            0..6,
        ),
    ) {
        let mut value = Vec::new();
        for (id, found, body) in &datums {
            value.extend_from_slice(&[8, id * 2, *found]);
            value.extend_from_slice(body);
        }
        let mut decoder = RowDecoder::new(&table, &(0..table.columns.len()).collect::<Vec<_>>()).unwrap();
        let key = record_key(table.id, &Handle::Int(7));
        let appended = decoder.append(&key, &value).is_ok();
        prop_assert_eq!(decoder.finish().unwrap().num_rows(), usize::from(appended));
    }
}
