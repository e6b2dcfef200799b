//! Where a column's value comes from, and what an undecodable row says.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int32Array, Int64Array, StringArray};
use arrow::datatypes::{Int32Type, Int64Type};
use tidb::{
    ColumnType, Handle, ROW_ID_COLUMN, RowDecoder, RowEncoder, RowView, Stored, TableInfo, record_key,
};
use types::ErrorKind;

use crate::arbitrary::{batch, column, table};

const INT: ColumnType = ColumnType::Int { bits: 32, unsigned: false };
const TINYINT: ColumnType = ColumnType::Int { bits: 8, unsigned: false };

fn keyed() -> TableInfo {
    table(vec![column(1, "id", INT), column(2, "a", INT)], &[0])
}

fn encode(table: &TableInfo, columns: Vec<ArrayRef>, handle: Option<i64>) -> (Vec<u8>, Vec<u8>) {
    RowEncoder::new(table).unwrap().encode(&batch(table, columns), 0, handle).unwrap()
}

fn ints(values: Vec<Option<i32>>) -> ArrayRef {
    Arc::new(Int32Array::from(values))
}

#[test]
fn rows_older_than_a_column_have_its_default() {
    let old = table(vec![column(1, "id", INT), column(2, "a", INT)], &[0]);
    let (key, value) = encode(&old, vec![ints(vec![Some(1)]), ints(vec![Some(2)])], None);
    let mut new = old.clone();
    new.columns.push(column(3, "b", INT));
    new.columns[2].origin_default = Some("7".into());
    new.columns.push(column(4, "c", ColumnType::Varchar(5)));
    let mut decoder = RowDecoder::new(&new, &[2, 3, 1]).unwrap();
    decoder.append(&key, &value).unwrap();
    let decoded = decoder.finish().unwrap();
    assert_eq!(decoded.column(0).as_primitive::<Int32Type>().value(0), 7);
    assert!(decoded.column(1).is_null(0));
    assert_eq!(decoded.column(2).as_primitive::<Int32Type>().value(0), 2);
}

#[test]
fn an_explicit_null_is_not_the_default() {
    let mut table = keyed();
    table.columns[1].default = Some("7".into());
    table.columns[1].origin_default = Some("7".into());
    let (key, value) = encode(&table, vec![ints(vec![Some(1)]), ints(vec![None])], None);
    let mut decoder = RowDecoder::new(&table, &[1]).unwrap();
    decoder.append(&key, &value).unwrap();
    assert!(decoder.finish().unwrap().column(0).is_null(0));
}

#[test]
fn the_value_comes_before_the_handle() {
    // A value that stores its integer key as well, as a writer may.
    let value = [128, 0, 1, 0, 0, 0, 1, 1, 0, 9];
    let mut decoder = RowDecoder::new(&keyed(), &[0]).unwrap();
    decoder.append(&record_key(42, &Handle::Int(1)), &value).unwrap();
    assert_eq!(decoder.finish().unwrap().column(0).as_primitive::<Int32Type>().value(0), 9);
}

#[test]
fn hidden_row_ids_can_be_read() {
    let table = table(vec![column(1, "a", INT)], &[]);
    let (key, value) = encode(&table, vec![ints(vec![Some(5)])], Some(-8));
    let mut decoder = RowDecoder::new(&table, &[0, ROW_ID_COLUMN]).unwrap();
    decoder.append(&key, &value).unwrap();
    let decoded = decoder.finish().unwrap();
    assert_eq!(decoded.column(1).as_primitive::<Int64Type>().value(0), -8);
    assert!(RowDecoder::new(&keyed(), &[ROW_ID_COLUMN]).is_err());
}

#[test]
fn rows_without_columns_are_counted() {
    let table = keyed();
    let (key, value) = encode(&table, vec![ints(vec![Some(1)]), ints(vec![None])], None);
    let mut decoder = RowDecoder::new(&table, &[]).unwrap();
    decoder.append(&key, &value).unwrap();
    decoder.append(&key, &value).unwrap();
    assert_eq!(decoder.finish().unwrap().num_rows(), 2);
    assert_eq!(decoder.finish().unwrap().num_rows(), 0);
}

#[test]
fn an_undecodable_row_names_key_and_column() {
    let mut narrow = keyed();
    let (key, value) = encode(&narrow, vec![ints(vec![Some(1)]), ints(vec![Some(1000)])], None);
    narrow.columns[1].column_type = TINYINT;
    let mut decoder = RowDecoder::new(&narrow, &[0, 1]).unwrap();
    let row_error = decoder.append(&key, &value).unwrap_err();
    assert_eq!(row_error.key, key);
    let error = types::Error::from(row_error);
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_eq!(error.message(), "row t42_r1: column `a`: integer 1000 is out of its column's range");
    assert_eq!(decoder.finish().unwrap().num_rows(), 0);
}

#[test]
fn nulls_of_not_null_columns_are_errors() {
    let mut table = keyed();
    let (key, value) = encode(&table, vec![ints(vec![Some(1)]), ints(vec![None])], None);
    table.columns[1].not_null = true;
    let mut decoder = RowDecoder::new(&table, &[1]).unwrap();
    assert!(decoder.append(&key, &value).is_err());
    let error = RowEncoder::new(&table).unwrap();
    let nullable = keyed();
    let error =
        error.encode(&batch(&nullable, vec![ints(vec![Some(1)]), ints(vec![None])]), 0, None).unwrap_err();
    assert_eq!(error.mysql_code(), Some(1048));
}

#[test]
fn text_keys_need_their_restored_data() {
    let table =
        table(vec![column(1, "s", ColumnType::Varchar(9)), column(2, "c", ColumnType::Char(9))], &[0, 1]);
    let columns: Vec<ArrayRef> =
        vec![Arc::new(StringArray::from(vec!["a "])), Arc::new(StringArray::from(vec!["b"]))];
    let (key, value) = encode(&table, columns, None);
    let mut decoder = RowDecoder::new(&table, &[0, 1]).unwrap();
    decoder.append(&key, &value).unwrap();
    let decoded = decoder.finish().unwrap();
    assert_eq!(decoded.column(0).as_string::<i32>().value(0), "a ");
    assert_eq!(decoded.column(1).as_string::<i32>().value(0), "b");
    assert!(decoder.append(&key, &[128, 0, 0, 0, 0, 0]).is_err(), "the key alone does not hold the text");
}

#[test]
fn rows_of_other_tables_and_formats_are_errors() {
    let table = keyed();
    let (key, value) = encode(&table, vec![ints(vec![Some(1)]), ints(vec![Some(2)])], None);
    let mut decoder = RowDecoder::new(&table, &[0, 1]).unwrap();
    assert!(decoder.append(&record_key(43, &Handle::Int(1)), &value).is_err());
    assert!(decoder.append(b"t", &value).is_err());
    assert!(decoder.append(&key, &[]).is_err());
    assert!(decoder.append(&key, &[127, 0, 0, 0, 0, 0]).is_err(), "no format begins so");
    let mut longer = value.clone();
    longer.push(0);
    assert!(decoder.append(&key, &longer).is_err());
    assert_eq!(decoder.n_rows(), 0);
}

#[test]
fn checksums_are_verified() {
    let table = keyed();
    let (key, mut row) = encode(&table, vec![ints(vec![Some(1)]), ints(vec![Some(2)])], None);
    row[1] |= 2;
    for (header, identity) in [(1_u8, key.as_slice()), (2, &key[11..]), (0b1010, &key[11..])] {
        let crc = crc32fast::hash(&[row.as_slice(), &[header], identity].concat());
        let mut value = [row.as_slice(), &[header], &crc.to_le_bytes()].concat();
        if header & 8 != 0 {
            value.extend_from_slice(&[1, 2, 3, 4]);
        }
        let mut decoder = RowDecoder::new(&table, &[0, 1]).unwrap();
        decoder.append(&key, &value).unwrap();
        assert_eq!(decoder.finish().unwrap().column(1).as_primitive::<Int32Type>().value(0), 2);
        // A value one bit off still decodes, but for its checksum.
        let data = row.len() - 1;
        value[data] ^= 1;
        let error = types::Error::from(decoder.append(&key, &value).unwrap_err());
        assert!(error.message().contains("checksum"), "{error}");
    }
    let legacy = [row.as_slice(), &[0], &[0; 4]].concat();
    RowView::parse(&key, &legacy).unwrap();
    let unknown = [row.as_slice(), &[3], &[0; 4]].concat();
    assert!(RowView::parse(&key, &unknown).is_err());
}

#[test]
fn a_row_view_finds_values_nulls_and_nothing() {
    let mut table = keyed();
    table.columns.push(column(300, "b", INT));
    table.columns[2].default = Some("1".into());
    let (key, value) = encode(&table, vec![ints(vec![Some(1)]), ints(vec![Some(2)]), ints(vec![None])], None);
    let view = RowView::parse(&key, &value).unwrap();
    let mut hint = 0;
    assert_eq!(view.find(2, &mut hint), Stored::Value(&[2]));
    assert_eq!(view.find(300, &mut hint), Stored::Null);
    assert_eq!(view.find(1, &mut hint), Stored::Absent);
    assert_eq!(view.values().collect::<Vec<_>>(), vec![(2, &[2_u8][..])]);
}

#[test]
fn changes_are_seen_in_the_read_columns_only() {
    let mut table = keyed();
    table.columns.push(column(3, "b", INT));
    let row = |a, b| encode(&table, vec![ints(vec![Some(1)]), ints(vec![a]), ints(vec![b])], None);
    let (key, old) = row(Some(1), Some(1));
    let (_, new) = row(Some(1), Some(2));
    let (_, null) = row(None, Some(1));
    let unchanged = |columns: &[usize], new: &[u8]| {
        RowDecoder::new(&table, columns).unwrap().is_unchanged(&key, &old, new).unwrap()
    };
    assert!(unchanged(&[0, 1], &new));
    assert!(unchanged(&[], &new));
    assert!(!unchanged(&[2], &new));
    assert!(!unchanged(&[1], &null));
    assert!(unchanged(&[0, 2], &null));
}

#[test]
fn contradicting_definitions_are_refused() {
    let good = keyed();
    type Change = Box<dyn Fn(&mut TableInfo)>;
    let broken: Vec<Change> = vec![
        Box::new(|table| table.primary_key = vec![9]),
        Box::new(|table| table.primary_key = vec![0, 0]),
        Box::new(|table| table.columns[0].not_null = false),
        Box::new(|table| table.primary_key = vec![]),
        Box::new(|table| table.columns[0].column_type = ColumnType::Date),
        Box::new(|table| table.columns[0].column_type = ColumnType::Text(9)),
        Box::new(|table| table.columns[1].id = 1),
        Box::new(|table| table.columns[1].id = 0),
    ];
    for change in broken {
        let mut table = good.clone();
        change(&mut table);
        assert!(RowEncoder::new(&table).is_err(), "{table:?}");
        assert!(RowDecoder::new(&table, &[]).is_err());
    }
    assert!(RowDecoder::new(&good, &[2]).is_err());
}

#[test]
fn handles_go_with_hidden_handles_only() {
    let keyed = keyed();
    let rows = batch(&keyed, vec![ints(vec![Some(1)]), ints(vec![None])]);
    let encoder = RowEncoder::new(&keyed).unwrap();
    assert!(encoder.encode(&rows, 0, Some(1)).is_err());
    let hidden = table(vec![column(1, "a", ColumnType::Int { bits: 64, unsigned: false })], &[]);
    let encoder = RowEncoder::new(&hidden).unwrap();
    let rows = batch(&hidden, vec![Arc::new(Int64Array::from(vec![1]))]);
    assert!(encoder.encode(&rows, 0, None).is_err());
    assert!(encoder.encode_batch(&rows, Some(&[])).is_err());
}
