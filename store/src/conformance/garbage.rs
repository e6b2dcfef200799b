//! Holds and garbage collection: what may be read stays, what is gone is refused, never silently short.

use std::sync::Arc;

use super::{at, begin, commit_keys, delete, now, prefix, prewrite, put, put_of, read, visible};
use crate::traits::{Key, KeyError, KeyRange, ReadContext, Store};

pub(super) async fn run(store: Arc<dyn Store>) {
    reads_at_the_barrier_stay(&store).await;
    holds_keep_history(&store).await;
    readings_keep_history(&store).await;
    begun_transactions_keep_their_start(&store).await;
    old_locks_are_finished_first(&store).await;
    living_transactions_keep_their_history(&store).await;
}

async fn reads_at_the_barrier_stay(store: &Arc<dyn Store>) {
    let mut commits = Vec::new();
    for number in 0..10 {
        commits.push(put(store, "gc/k", &number.to_string()).await);
    }
    put(store, "gc/deleted", "v").await;
    let gone = delete(store, "gc/deleted").await;
    put(store, "gc/back", "1").await;
    delete(store, "gc/back").await;
    let back = put(store, "gc/back", "2").await;
    let to = visible(store).await;
    let barrier = store.collect_garbage(commits[6]).await.expect("garbage is collected");
    assert_eq!(barrier, commits[6]);
    assert_eq!(store.gc_barrier().await.expect("the barrier is known"), barrier);
    assert_eq!(read(store, "gc/k", commits[6]).await.as_deref(), Some("6"));
    assert_eq!(read(store, "gc/k", commits[8]).await.as_deref(), Some("8"));
    assert_eq!(
        read(store, "gc/deleted", gone.prev()).await.as_deref(),
        Some("v"),
        "above the barrier all stays"
    );
    let below = store.kv_get(b"gc/k", &ReadContext::at(commits[5])).await;
    assert!(matches!(&below, Err(KeyError::Store(error)) if error.is_history_gone()), "{below:?}");
    let ranges = [prefix("gc/")];
    let refused = store.changes(&ranges, commits[5], to, None, 10).await;
    assert!(refused.is_err_and(|error| error.is_history_gone()));
    let page =
        store.changes(&ranges, commits[6], to, None, 100).await.expect("changes at the barrier are there");
    assert_eq!(page.changes.len(), 8);
    assert_eq!(page.changes[0].old_value.as_deref(), Some(b"6".as_slice()));

    let barrier = store.collect_garbage(to).await.expect("garbage is collected");
    assert_eq!(barrier, to);
    assert_eq!(read(store, "gc/k", to).await.as_deref(), Some("9"));
    assert_eq!(read(store, "gc/deleted", to).await, None);
    assert_eq!(read(store, "gc/back", to).await.as_deref(), Some("2"));
    assert!(back <= to);
    let info = store.mvcc_get(b"gc/k").await.expect("a key has its story");
    assert_eq!(info.writes.len(), 1, "replaced versions are dropped");
    let info = store.mvcc_get(b"gc/deleted").await.expect("a key has its story");
    assert!(info.writes.is_empty(), "nothing is left of a deleted key");
    put(store, "gc/deleted", "again").await;
    let stale = store.commit_transaction(commits[0], vec![put_of("gc/stale", "v")]).await;
    assert!(stale.is_err(), "a transaction from below the barrier cannot be checked for conflicts");
    for start in [commits[0], to] {
        let stale = store.prewrite(prewrite(start, "gc/stale", vec![put_of("gc/stale", "v")])).await;
        assert!(stale.is_err(), "what was decided at or below the barrier is forgotten");
    }
}

async fn holds_keep_history(store: &Arc<dyn Store>) {
    let held = put(store, "held/k", "1").await;
    store.hold("reader", held).await.expect("a hold is taken");
    put(store, "held/k", "2").await;
    let later = visible(store).await;
    let barrier = store.collect_garbage(later).await.expect("garbage is collected");
    assert!(barrier <= held, "a hold lowers the barrier");
    assert_eq!(read(store, "held/k", held).await.as_deref(), Some("1"));
    assert_eq!(store.holds().await.expect("holds are listed"), [("reader".to_owned(), held)]);
    store.hold("reader", later).await.expect("a hold moves");
    let barrier = store.collect_garbage(later).await.expect("garbage is collected");
    assert_eq!(barrier, later);
    assert!(store.hold("late", held).await.is_err(), "what is gone cannot be held");
    store.release("reader").await.expect("a hold is dropped");
    store.release("reader").await.expect("a hold that is not there is dropped");
    assert!(store.holds().await.expect("holds are listed").is_empty());
}

/// What is being read stays until the last reader ends.
async fn readings_keep_history(store: &Arc<dyn Store>) {
    let old = put(store, "gc/read", "old").await;
    let new = put(store, "gc/read", "new").await;
    let newest = put(store, "gc/read", "newest").await;
    let (first, again, later) = (store.reading(old), store.reading(old), store.reading(new));
    let barrier = store.collect_garbage(newest).await.expect("garbage is collected");
    assert!(barrier <= old, "two read at {old}, the barrier is {barrier}");
    assert_eq!(read(store, "gc/read", old).await.as_deref(), Some("old"));
    drop(first);
    let barrier = store.collect_garbage(newest).await.expect("garbage is collected");
    assert!(barrier <= old, "another still reads there");
    drop(again);
    let barrier = store.collect_garbage(newest).await.expect("garbage is collected");
    assert_eq!(barrier, new, "the next reader");
    assert_eq!(read(store, "gc/read", new).await.as_deref(), Some("new"));
    drop(later);
    assert_eq!(store.collect_garbage(newest).await.expect("garbage is collected"), newest);
}

/// A transaction that has begun can write whenever it likes, and reads what it always read.
async fn begun_transactions_keep_their_start(store: &Arc<dyn Store>) {
    put(store, "begun/k", "old").await;
    let start = now(store).await;
    let begun = store.begun(start);
    put(store, "begun/k", "new").await;
    let to = visible(store).await;
    let barrier = store.collect_garbage(to).await.expect("garbage is collected");
    assert!(barrier < start, "the barrier {barrier} stays below the start {start}");
    assert_eq!(read(store, "begun/k", start).await.as_deref(), Some("old"));
    let late = store.prewrite(prewrite(start, "begun/k", vec![put_of("begun/k", "v")])).await;
    let conflict = |errors: &[KeyError]| matches!(errors, [KeyError::WriteConflict { .. }]);
    assert!(late.is_err_and(|errors| conflict(&errors)), "conflicts are still known");
    let mutations = vec![put_of("begun/other", "v")];
    store.commit_transaction(start, mutations).await.expect("it commits");
    drop(begun);
    let to = visible(store).await;
    assert_eq!(store.collect_garbage(to).await.expect("garbage is collected"), to);
}

async fn old_locks_are_finished_first(store: &Arc<dyn Store>) {
    let start = now(store).await;
    let mutations = vec![put_of("old/a", "v"), put_of("old/b", "v")];
    store.prewrite(prewrite(start, "old/a", mutations)).await.expect("keys are locked");
    let commit_ts = commit_keys(store, start, "old/a", &["old/a"], None).await.expect("the primary commits");
    let dead = now(store).await;
    let mut request = prewrite(dead, "old/c", vec![put_of("old/c", "v")]);
    request.ttl_ms = 0;
    store.prewrite(request).await.expect("a key is locked");
    let mut to = visible(store).await;
    while to.physical_ms() <= dead.physical_ms() + 1 {
        to = visible(store).await;
    }
    let barrier = store.collect_garbage(to).await.expect("garbage is collected");
    assert_eq!(barrier, to);
    assert!(store.scan_lock(&prefix("old/"), to, 0).await.expect("locks are listed").is_empty());
    assert_eq!(
        read(store, "old/b", to).await.as_deref(),
        Some("v"),
        "a committed secondary is rolled forward"
    );
    assert_eq!(read(store, "old/c", to).await, None);
    assert!(commit_ts < to);
}

async fn living_transactions_keep_their_history(store: &Arc<dyn Store>) {
    let start = now(store).await;
    store
        .prewrite(prewrite(start, "living/k", vec![put_of("living/k", "v")]))
        .await
        .expect("a key is locked");
    let to = visible(store).await;
    let barrier = store.collect_garbage(to).await.expect("garbage is collected");
    assert!(barrier < start, "the barrier stays below a living transaction");
    commit_keys(store, start, "living/k", &["living/k"], None).await.expect("it still commits");
    let mut transaction = begin(store).await;
    transaction.delete("living/k");
    transaction.commit().await.expect("it commits");
    let to = visible(store).await;
    assert_eq!(store.collect_garbage(to).await.expect("garbage is collected"), to);
    store.batch_rollback(now(store).await, &[Key::from("living/k")]).await.expect("a record is written");
    let to = visible(store).await;
    store.collect_garbage(to).await.expect("garbage is collected");
    let info = store.mvcc_get(b"living/k").await.expect("a key has its story");
    assert!(info.writes.is_empty(), "rollback records go too: {info:?}");
    let left = at(store, to).scan(&KeyRange::new("living/", "living0"), 10).await.expect("a scan succeeds");
    assert!(left.is_empty());
}
