//! Changes between two timestamps.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use source::Source;
use types::{TableId, Timestamp};

use crate::fixture::{Row, ZSet, add, commit, delete, pages, put, rows_at, source, store, table};

#[tokio::test]
async fn an_update_is_old_and_new_side_by_side() {
    let (store, table) = (store(), table(7));
    let from = commit(&store, vec![put(&table, &(1, Some(1), None))]).await;
    let to = commit(&store, vec![put(&table, &(1, Some(2), None))]).await;
    let source = source(&store, &[&table], &[0, 1]);
    let page = source.read_changes(from, to, None, 10).await.unwrap();
    assert_eq!(page.n_changes, 1);
    let delta = &page.deltas[0].delta;
    assert_eq!(delta.weights().values().as_ref(), &[-1, 1]);
    assert!(page.n_bytes > 0);
}

#[tokio::test]
async fn an_update_of_other_columns_is_no_change() {
    let (store, table) = (store(), table(7));
    let from = commit(&store, vec![put(&table, &(1, Some(1), None))]).await;
    let to = commit(&store, vec![put(&table, &(1, Some(1), Some("x".into())))]).await;
    let narrow = source(&store, &[&table], &[0, 1]);
    let page = narrow.read_changes(from, to, None, 10).await.unwrap();
    assert!(page.deltas.is_empty());
    assert_eq!(page.n_changes, 1);
    let wide = source(&store, &[&table], &[2]);
    assert_eq!(wide.read_changes(from, to, None, 10).await.unwrap().deltas[0].delta.n_rows(), 2);
}

#[tokio::test]
async fn an_empty_interval_has_no_changes() {
    let (store, table) = (store(), table(7));
    let at = commit(&store, vec![put(&table, &(1, Some(1), None))]).await;
    let source = source(&store, &[&table], &[0]);
    let page = source.read_changes(at, at, None, 10).await.unwrap();
    assert!(page.deltas.is_empty() && page.next.is_none());
    assert!(source.resolved().await.unwrap() >= at);
}

#[tokio::test]
async fn a_delete_of_what_was_not_there_is_in_no_delta() {
    let (store, table) = (store(), table(7));
    let from = commit(&store, vec![put(&table, &(1, Some(1), None))]).await;
    let to = commit(&store, vec![delete(&table, 2)]).await;
    let source = source(&store, &[&table], &[0, 1]);
    let page = source.read_changes(from, to, None, 10).await.unwrap();
    assert!(page.deltas.is_empty() && page.faults.is_empty());
    assert_eq!(page.n_changes, 1, "it was read");
}

#[tokio::test]
async fn a_change_that_cannot_be_decoded_is_in_no_delta() {
    let (store, table) = (store(), table(7));
    let from = commit(&store, vec![put(&table, &(1, Some(1), None)), put(&table, &(2, Some(2), None))]).await;
    let mut broken = put(&table, &(1, Some(9), None));
    broken.value = vec![128, 0, 9, 9].into();
    let to = commit(&store, vec![broken, put(&table, &(2, Some(3), None))]).await;
    let source = source(&store, &[&table], &[0, 1]);
    let page = source.read_changes(from, to, None, 10).await.unwrap();
    assert_eq!(page.faults.len(), 1);
    assert!(page.faults[0].reason.starts_with("row t7_r1: "), "{}", page.faults[0].reason);
    let mut sum = ZSet::new();
    add(&mut sum, &page.deltas[0].delta);
    let row = |a: &str| vec!["2".to_owned(), a.to_owned()];
    assert_eq!(sum, [(row("2"), -1), (row("3"), 1)].into(), "the other change stays whole");
}

/// What one transaction does: table 7 or 8, a row to put, or a key to delete.
#[derive(Clone, Debug)]
enum Step {
    Put(bool, Row),
    Delete(bool, i64),
}

fn step() -> impl Strategy<Value = Step> {
    let row = (0_i64..6, prop::option::of(0_i64..3), prop::option::of("[ab]{0,2}"));
    prop_oneof![
        3 => (any::<bool>(), row).prop_map(|(table, row)| Step::Put(table, row)),
        1 => (any::<bool>(), 0_i64..6).prop_map(|(table, id)| Step::Delete(table, id)),
    ]
}

proptest! {
    #![proptest_config(crate::fixture::cases(60))]

    /// Rows at S and the changes of (S, T] are the rows at T, whatever the page size and columns.
    #[test]
    fn rows_and_changes_add_up(
        history in vec(vec(step(), 1..6), 1..10),
        limit in 1_usize..8,
        columns in prop::sample::select(vec![vec![0, 1, 2], vec![1], vec![2, 0], vec![]]),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (store, first, second) = (store(), table(7), table(8));
            let mut commits = vec![store.read_timestamp().await.unwrap()];
            for transaction in &history {
                // One mutation a key: the last one counts.
                let mut mutations = BTreeMap::new();
                for step in transaction {
                    let mutation = match step {
                        Step::Put(is_first, row) => put(if *is_first { &first } else { &second }, row),
                        Step::Delete(is_first, id) => delete(if *is_first { &first } else { &second }, *id),
                    };
                    mutations.insert(mutation.key.clone(), mutation);
                }
                commits.push(commit(&store, mutations.into_values().collect()).await);
            }
            let source = source(&store, &[&first, &second], &columns);
            for (at, from) in commits.iter().enumerate() {
                for to in &commits[at..] {
                    check_interval(&source, *from, *to, limit).await;
                }
            }
        });
    }
}

async fn check_interval(source: &source::TableSource, from: Timestamp, to: Timestamp, limit: usize) {
    let mut sums: BTreeMap<TableId, ZSet> = BTreeMap::new();
    for table in source.tables() {
        sums.insert(table, rows_at(source, table, from, limit).await);
    }
    for page in pages(source, from, to, limit).await {
        assert!(page.faults.is_empty());
        assert!(page.n_changes as usize <= limit);
        for changed in page.deltas {
            add(sums.get_mut(&changed.table).unwrap(), &changed.delta);
        }
    }
    for (table, sum) in sums {
        assert_eq!(sum, rows_at(source, table, to, 100).await, "{table} in ({from}, {to}]");
    }
}
