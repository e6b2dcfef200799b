//! What the store asks of its engine: what need not be looked up is not.

use std::sync::Arc;

use store::engine::Space;
use store::testing::CountingEngine;
use store::{
    AssertionLevel, CommitRequest, EmbeddedStore, Key, KeyError, KeyRange, Mutation, Options,
    PrewriteRequest, Store,
};
use types::Timestamp;

fn counted() -> (Arc<CountingEngine>, Arc<EmbeddedStore>) {
    let engine = Arc::new(CountingEngine::default());
    let options = Options { inline: true, ..Options::default() };
    let store = EmbeddedStore::over(Arc::<CountingEngine>::clone(&engine), options).unwrap();
    (engine, store)
}

fn rows(table: &str, n_rows: usize, value: &str) -> Vec<Mutation> {
    (0..n_rows).map(|row| Mutation::put(format!("{table}/{row:06}"), value.to_owned())).collect()
}

fn looked_up(engine: &CountingEngine) -> usize {
    Space::ALL.into_iter().map(|space| engine.gets(space)).sum()
}

async fn put(store: &EmbeddedStore, mutations: Vec<Mutation>) -> Timestamp {
    let start_ts = store.timestamp().await.unwrap();
    store.commit_transaction(start_ts, mutations).await.unwrap()
}

#[tokio::test]
async fn changes_are_counted_without_their_values() {
    let (engine, store) = counted();
    let from = put(&store, rows("table---1", 700, "old")).await;
    put(&store, rows("table---1", 500, "new")).await;
    let to = put(&store, rows("table---1", 30, "newer")).await;
    let before = looked_up(&engine);
    let ranges = [KeyRange::prefix(b"table---1")];
    assert_eq!(store.count_changes(&ranges, from, to, u64::MAX).await.unwrap(), 530);
    assert_eq!(looked_up(&engine), before);
}

#[tokio::test]
async fn the_values_of_the_newest_changes_are_not_looked_up() {
    let (engine, store) = counted();
    let from = put(&store, rows("table---1", 200, "old")).await;
    put(&store, rows("table---1", 100, "new")).await;
    put(&store, vec![Mutation::delete(rows("table---1", 1, "")[0].key.clone())]).await;
    put(&store, rows("table---1", 2, "again")).await;
    let to = store.read_timestamp().await.unwrap();
    let ranges = [KeyRange::prefix(b"table---1")];
    let before = looked_up(&engine);
    let remembered = store.changes(&ranges, from, to, None, 1_000).await.unwrap().changes;
    assert_eq!((remembered.len(), looked_up(&engine)), (103, before));
    // Another process remembers nothing, and answers the same.
    store.close().await.unwrap();
    let options = Options { inline: true, ..Options::default() };
    let store = EmbeddedStore::over(Arc::<CountingEngine>::clone(&engine), options).unwrap();
    let before = looked_up(&engine);
    assert_eq!(store.changes(&ranges, from, to, None, 1_000).await.unwrap().changes, remembered);
    assert!(looked_up(&engine) > before);
}

#[tokio::test]
async fn commits_of_other_tables_are_passed_by_at_once() {
    let (engine, store) = counted();
    let from = put(&store, rows("table---1", 10, "old")).await;
    let mut passed = Vec::new();
    for n_others in [10, 100] {
        for other in 0..n_others {
            put(&store, rows("table---2", 300, &other.to_string())).await;
        }
        put(&store, rows("table---1", 1, &n_others.to_string())).await;
        let to = store.read_timestamp().await.unwrap();
        let before = engine.ranges(Space::Index) + looked_up(&engine);
        let page = store.changes(&[KeyRange::prefix(b"table---1")], from, to, None, 100).await.unwrap();
        passed.push((page.changes.len(), engine.ranges(Space::Index) + looked_up(&engine) - before));
    }
    let (n_first, first) = passed[0];
    let (n_second, second) = passed[1];
    assert_eq!((n_first, n_second), (1, 2));
    assert!(
        second <= 2 * first,
        "{first} looks for one change, {second} for two among ten times the commits"
    );
}

#[tokio::test]
async fn what_committed_with_its_primary_is_not_looked_up_again() {
    let (engine, store) = counted();
    let start_ts = store.timestamp().await.unwrap();
    let primary = Key::from_static(b"table---1/primary");
    let mut mutations = rows("table---1", 200, "value");
    let keys: Vec<Key> = mutations.iter().map(|mutation| mutation.key.clone()).collect();
    mutations.push(Mutation::put(primary.clone(), "value"));
    let request = PrewriteRequest {
        mutations,
        primary: primary.clone(),
        start_ts,
        ttl_ms: 60_000,
        txn_size: 201,
        min_commit_ts: Timestamp::ZERO,
        assertion_level: AssertionLevel::Strict,
        staged: true,
    };
    store.prewrite(request).await.unwrap();
    let commit = |keys: Vec<Key>, commit_ts| {
        let request = CommitRequest { start_ts, keys, primary: primary.clone(), commit_ts };
        store.commit(request)
    };
    let commit_ts = commit(vec![primary.clone()], None).await.unwrap();
    let before = (looked_up(&engine), engine.writes());
    assert_eq!(commit(keys, Some(commit_ts)).await.unwrap(), commit_ts);
    assert_eq!((looked_up(&engine), engine.writes()), before);
    let stranger = Key::from_static(b"table---1/stranger");
    let refused = commit(vec![primary.clone(), stranger.clone()], Some(commit_ts)).await;
    assert!(matches!(&refused, Err(KeyError::TxnLockNotFound(key)) if *key == stranger), "{refused:?}");
}
