//! What cannot be is a fault of the view, with its key, and leaves the sink as it was.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use sink::{Fault, RunCache, SinkError, ViewSink};
use types::Delta;

use crate::fixture::{Epochs, Row, delta, view};

fn fault(run: &mut Epochs, rows: &[(Row, i64)]) -> Fault {
    match run.run(&[delta(rows)]) {
        Err(SinkError::Fault(fault)) => fault,
        other => panic!("{other:?}"),
    }
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn two_rows_of_one_key() {
    let mut run = Epochs::new(true);
    let expected = Fault { reason: "two rows have one key".into(), key: Some("t9_r1".into()) };
    assert_eq!(fault(&mut run, &[((1, text("a")), 1), ((1, text("b")), 1)]), expected);
    assert_eq!(fault(&mut run, &[((1, text("a")), 2)]), expected);
    assert!(run.stored().is_empty());
}

#[test]
fn rows_of_one_key_taken_back_too_often() {
    let mut run = Epochs::new(true);
    run.run(&[delta(&[((1, text("a")), 1)])]).unwrap();
    let found = fault(&mut run, &[((1, text("a")), -1), ((1, text("b")), -1)]);
    assert_eq!(found.reason, "two rows of one key are taken back");
    let found = fault(&mut run, &[((1, text("a")), -2)]);
    assert_eq!(found.reason, "a row is taken back more often than it was there");
    assert_eq!(run.stored(), [((1, text("a")), 1)].into());
}

#[test]
fn a_row_that_is_not_there_taken_back() {
    let mut run = Epochs::new(false);
    run.run(&[delta(&[((1, text("a")), 2), ((2, None), 1)])]).unwrap();
    let found = fault(&mut run, &[((2, None), -1), ((3, text("c")), 1), ((1, text("a")), -3)]);
    assert_eq!(found.reason, "3 rows are taken back where 2 are stored");
    assert_eq!(found.key.as_deref(), Some("row (1, a)"));
    assert_eq!(found.to_string(), "3 rows are taken back where 2 are stored (row (1, a))");
    let found = fault(&mut run, &[((7, None), -1)]);
    assert_eq!(found.reason, "1 rows are taken back where 0 are stored");
    // The sink is as it was: the same rows can go in right numbers.
    run.run(&[delta(&[((2, None), -1), ((1, text("a")), -2)])]).unwrap();
    assert!(run.stored().is_empty());
}

#[test]
fn a_null_where_none_may_be() {
    for keyed in [true, false] {
        let mut run = Epochs::new(keyed);
        let schema =
            Schema::new(vec![Field::new("k", DataType::Int64, true), Field::new("v", DataType::Utf8, true)]);
        let columns: Vec<ArrayRef> =
            vec![Arc::new(Int64Array::from(vec![None])), Arc::new(StringArray::from(vec!["a"]))];
        let batch = RecordBatch::try_new(Arc::new(schema), columns).unwrap();
        match run.run(&[Delta::inserts(batch)]) {
            Err(SinkError::Fault(fault)) => {
                assert_eq!(fault.reason, "Column 'k' cannot be null");
                assert_eq!(fault.key.as_deref(), Some("row (NULL, a)"));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Such a table is not declared any more, but may have been once.
#[test]
fn a_key_that_no_store_takes() {
    let mut run = Epochs::new(false);
    let mut table = view(false);
    table.columns[1].column_type = tidb::ColumnType::Varchar(16_383);
    table.columns[1].not_null = true;
    table.primary_key = vec![1];
    run.sink = ViewSink::open(&table, None, Arc::<RunCache>::clone(&run.cache)).unwrap();
    let found = fault(&mut run, &[((1, Some("x".repeat(60_000))), 1)]);
    assert!(found.reason.contains("too long"), "{found}");
    assert!(
        found.key.as_ref().is_some_and(|key| key.starts_with("row (1, xxx") && key.len() < 200),
        "{found}"
    );
    run.run(&[delta(&[((2, Some("x".repeat(50_000))), 1)])]).unwrap();
}

#[test]
fn columns_of_other_types_are_not_the_views_fault() {
    let mut run = Epochs::new(true);
    let schema = Schema::new(vec![Field::new("k", DataType::Int64, true)]);
    let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(Int64Array::from(vec![1]))]).unwrap();
    assert!(matches!(run.run(&[Delta::inserts(batch)]), Err(SinkError::Other(_))));
}
