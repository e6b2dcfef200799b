//! Rows at a timestamp, in pages.

use source::Source;
use types::TableId;

use crate::fixture::{commit, delete, put, rows_at, source, store, table};

#[tokio::test]
async fn pages_of_any_size_hold_every_row_once() {
    let (store, table) = (store(), table(7));
    let rows = (0..25).map(|id| put(&table, &(id - 10, Some(id), None)));
    let at = commit(&store, rows.collect()).await;
    commit(&store, (0..25).map(|id| delete(&table, id - 10)).collect()).await;
    let source = source(&store, &[&table], &[0, 1]);
    for limit in [1, 2, 7, 24, 25, 26, 100] {
        let rows = rows_at(&source, TableId(7), at, limit).await;
        assert_eq!(rows.len(), 25, "limit {limit}");
        assert!(rows.values().all(|weight| *weight == 1));
    }
}

#[tokio::test]
async fn other_tables_rows_are_not_read() {
    let (store, table, other) = (store(), table(7), table(8));
    let at = commit(&store, vec![put(&table, &(1, None, None)), put(&other, &(2, None, None))]).await;
    let source = source(&store, &[&table, &other], &[0]);
    assert_eq!(rows_at(&source, TableId(7), at, 10).await, [(vec!["1".to_owned()], 1)].into());
    assert_eq!(rows_at(&source, TableId(8), at, 10).await, [(vec!["2".to_owned()], 1)].into());
    assert!(source.read_rows(TableId(9), at, None, 10).await.is_err());
    assert_eq!(source.tables(), vec![TableId(7), TableId(8)]);
    assert_eq!(source.schema(TableId(7)).unwrap().fields().len(), 1);
    assert!(source.schema(TableId(9)).is_none());
}

#[tokio::test]
async fn a_row_that_cannot_be_decoded_is_named_and_the_others_stay() {
    let (store, table) = (store(), table(7));
    let mut broken = put(&table, &(2, Some(2), None));
    broken.value = vec![128, 0, 9, 9].into();
    let rows = vec![put(&table, &(1, Some(1), None)), broken, put(&table, &(3, Some(3), None))];
    let at = commit(&store, rows).await;
    let source = source(&store, &[&table], &[0]);
    let page = source.read_rows(TableId(7), at, None, 10).await.unwrap();
    assert_eq!(page.delta.n_rows(), 2);
    assert_eq!(page.faults.len(), 1);
    assert_eq!(page.faults[0].table, TableId(7));
    assert!(page.faults[0].reason.starts_with("row t7_r2: "), "{}", page.faults[0].reason);
}
