//! Predicates narrow scans, and never leave out a row that satisfies them.

use arrow::array::{ArrayRef, Int32Array, StringArray};
use datafusion::logical_expr::{Expr, col, lit};
use tidb::{ColumnInfo, RowEncoder};

use super::*;

fn column(id: i64, name: &str, column_type: ColumnType) -> ColumnInfo {
    ColumnInfo {
        id,
        name: name.to_owned(),
        column_type,
        not_null: true,
        default: None,
        origin_default: None,
        comment: String::new(),
    }
}

fn table(columns: Vec<ColumnInfo>, primary_key: Vec<usize>, pk_is_handle: bool) -> TableInfo {
    TableInfo {
        id: 7,
        name: "t".to_owned(),
        columns,
        primary_key,
        pk_is_handle,
        indexes: Vec::new(),
        comment: String::new(),
    }
}

fn numbers() -> TableInfo {
    table(vec![column(1, "id", ColumnType::Int { bits: 32, unsigned: false })], vec![0], true)
}

fn pairs() -> TableInfo {
    let columns = vec![
        column(1, "a", ColumnType::Varchar(10)),
        column(2, "b", ColumnType::Int { bits: 32, unsigned: false }),
    ];
    table(columns, vec![0, 1], false)
}

/// The rows of a batch whose keys are in the ranges of the filters.
fn kept(info: &TableInfo, columns: Vec<ArrayRef>, filters: &[Expr]) -> Vec<usize> {
    let batch = arrow::array::RecordBatch::try_new(info.arrow_schema(), columns).unwrap();
    let rows = RowEncoder::new(info).unwrap().encode_batch(&batch, None).unwrap();
    let ranges = ranges(info, &[info.id], filters).unwrap();
    let inside = |key: &Vec<u8>| ranges.iter().any(|range| range.contains(key));
    rows.iter().enumerate().filter(|(_, (key, _))| inside(key)).map(|(row, _)| row).collect()
}

#[test]
fn comparisons_with_an_integer_key_become_ranges() {
    let check = |filters: &[Expr], expected: &[usize]| {
        let ids: ArrayRef = Arc::new(Int32Array::from(vec![-1, 0, 1, 2, 3]));
        assert_eq!(kept(&numbers(), vec![ids], filters), expected, "{filters:?}");
    };
    check(&[], &[0, 1, 2, 3, 4]);
    check(&[col("id").eq(lit(1_i32))], &[2]);
    check(&[lit(1_i64).eq(col("id"))], &[2]);
    check(&[col("id").gt(lit(0_i32)), col("id").lt_eq(lit(2_i32))], &[2, 3]);
    check(&[col("id").gt(lit(0_i32)).and(lit(2_i32).gt(col("id")))], &[2]);
    check(&[col("id").in_list(vec![lit(3_i32), lit(-1_i32), lit(3_i32), lit(9_i32)], false)], &[0, 4]);
    check(&[col("id").in_list(vec![lit(3_i32)], true)], &[0, 1, 2, 3, 4]);
    check(&[col("id").eq(lit(1_i32)).or(col("id").eq(lit(2_i32)))], &[2, 3]);
    check(&[col("id").eq(lit(1_i32)).or(col("id").gt(lit(2_i32)))], &[0, 1, 2, 3, 4]);
    check(&[col("id").eq(lit(1_i32)).or(col("other").eq(lit(2_i32)))], &[0, 1, 2, 3, 4]);
    check(&[col("id").eq(lit(i64::MAX))], &[0, 1, 2, 3, 4]);
    check(&[col("id").eq(lit(ScalarValue::Int32(None)))], &[]);
}

#[test]
fn a_leading_part_of_the_key_is_enough() {
    let check = |filters: &[Expr], expected: &[usize]| {
        let a: ArrayRef = Arc::new(StringArray::from(vec!["", "x", "x ", "x", "x\u{1}", "y"]));
        let b: ArrayRef = Arc::new(Int32Array::from(vec![1, 1, 2, 3, 1, 1]));
        assert_eq!(kept(&pairs(), vec![a, b], filters), expected, "{filters:?}");
    };
    let padded = || {
        let call = datafusion::logical_expr::create_udf(
            "pad_key",
            vec![arrow::datatypes::DataType::Utf8],
            arrow::datatypes::DataType::Utf8,
            datafusion::logical_expr::Volatility::Immutable,
            Arc::new(|arguments| Ok(arguments[0].clone())),
        );
        call.call(vec![col("a")])
    };
    check(&[padded().eq(lit("x"))], &[1, 2, 3]);
    check(&[padded().eq(lit("x")), col("b").gt_eq(lit(2_i32))], &[2, 3]);
    check(&[padded().eq(lit("x")), col("b").eq(lit(1_i32))], &[1]);
    check(&[padded().gt(lit("x"))], &[4, 5]);
    // Bytes compare in another order than keys do: 'x\u{1}' is below 'x ', but its key is above.
    check(&[col("a").lt(lit("x "))], &[0, 1, 2, 3, 4, 5]);
    check(&[padded().lt(lit("x "))], &[0, 1, 2, 3, 4, 5]);
    check(&[col("b").eq(lit(1_i32))], &[0, 1, 2, 3, 4, 5]);
}
