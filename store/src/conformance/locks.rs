//! Locks of others: readers ask the primary, push, finish what is decided, wait for what is not.

use std::sync::Arc;

use super::{at, commit_keys, now, prefix, prewrite, put, put_of, read, visible};
use crate::traits::{Key, KeyError, Mutation, Store, TxnStatus, TxnStatusRequest};

pub(super) async fn run(store: Arc<dyn Store>) {
    readers_push_a_living_transaction(&store).await;
    readers_roll_a_committed_transaction_forward(&store).await;
    readers_roll_an_expired_transaction_back(&store).await;
    a_missing_primary_is_waited_for_then_rolled_back(&store).await;
    rollback_records_block_late_prewrites(&store).await;
    unpushable_locks_are_waited_for(&store).await;
    locks_are_listed(&store).await;
}

async fn readers_push_a_living_transaction(store: &Arc<dyn Store>) {
    put(store, "push/a", "old").await;
    put(store, "push/b", "old").await;
    let start = now(store).await;
    let request = prewrite(start, "push/a", vec![put_of("push/a", "new"), put_of("push/b", "new")]);
    store.prewrite(request).await.expect("free keys are locked");
    let early = now(store).await;
    let reader = now(store).await;
    assert_eq!(read(store, "push/b", reader).await.as_deref(), Some("old"));
    let found = at(store, reader).scan(&prefix("push/"), 10).await.expect("a scan passes pushed locks");
    assert!(found.iter().all(|(_, value)| value == "old"), "{found:?}");
    let refused = commit_keys(store, start, "push/a", &["push/a"], Some(early)).await;
    let Err(KeyError::CommitTsExpired { min_commit_ts, .. }) = refused else { panic!("{refused:?}") };
    assert!(min_commit_ts > reader, "the reader pushed the commit above itself");
    let commit_ts =
        commit_keys(store, start, "push/a", &["push/a"], None).await.expect("the primary commits");
    assert!(commit_ts >= min_commit_ts);
    commit_keys(store, start, "push/a", &["push/b"], Some(commit_ts)).await.expect("the secondary commits");
    assert_eq!(read(store, "push/b", reader).await.as_deref(), Some("old"), "a read at T never changes");
    assert_eq!(read(store, "push/b", commit_ts).await.as_deref(), Some("new"));
}

async fn readers_roll_a_committed_transaction_forward(store: &Arc<dyn Store>) {
    let start = now(store).await;
    let keys = ["forward/a", "forward/b", "forward/c"];
    let mutations = keys.iter().map(|key| put_of(key, "v")).collect();
    store.prewrite(prewrite(start, "forward/a", mutations)).await.expect("free keys are locked");
    let before = visible(store).await;
    let commit_ts =
        commit_keys(store, start, "forward/a", &["forward/a"], None).await.expect("the primary commits");
    let after = visible(store).await;
    assert!(after >= commit_ts);
    let found = at(store, after).scan(&prefix("forward/"), 10).await.expect("a scan resolves locks");
    assert_eq!(found.len(), 3, "no transaction is ever seen in part");
    assert!(at(store, before).scan(&prefix("forward/"), 10).await.expect("a scan succeeds").is_empty());
    assert!(store.scan_lock(&prefix("forward/"), after, 0).await.expect("locks are listed").is_empty());
    let repeated = commit_keys(store, start, "forward/a", &["forward/c"], Some(commit_ts)).await;
    assert_eq!(repeated.expect("a finished key commits again"), commit_ts);
}

async fn readers_roll_an_expired_transaction_back(store: &Arc<dyn Store>) {
    let start = now(store).await;
    let mutations = vec![put_of("expired/a", "v"), put_of("expired/b", "v")];
    let mut request = prewrite(start, "expired/a", mutations);
    request.ttl_ms = 1;
    store.prewrite(request).await.expect("free keys are locked");
    let mut ts = now(store).await;
    while ts.physical_ms() <= start.physical_ms() + 1 {
        ts = now(store).await;
    }
    assert_eq!(read(store, "expired/b", ts).await, None);
    let late = commit_keys(store, start, "expired/a", &["expired/a"], None).await;
    assert!(matches!(late, Err(KeyError::TxnLockNotFound(_))), "{late:?}");
    put(store, "expired/b", "by another").await;
}

async fn a_missing_primary_is_waited_for_then_rolled_back(store: &Arc<dyn Store>) {
    let start = now(store).await;
    let mut request = prewrite(start, "orphan/primary", vec![put_of("orphan/secondary", "v")]);
    request.ttl_ms = 300;
    store.prewrite(request).await.expect("a free key is locked");
    let reader = now(store).await;
    assert_eq!(read(store, "orphan/secondary", reader).await, None);
    let after = now(store).await;
    assert!(after.physical_ms() >= start.physical_ms() + 300, "the primary may come until the lock expires");
    let late = store.prewrite(prewrite(start, "orphan/primary", vec![put_of("orphan/primary", "v")])).await;
    assert!(is_self_rolled_back(&late), "{late:?}");
}

fn is_self_rolled_back(result: &Result<(), Vec<KeyError>>) -> bool {
    matches!(result, Err(errors) if matches!(errors[..], [KeyError::WriteConflict { self_rolled_back: true, .. }]))
}

async fn rollback_records_block_late_prewrites(store: &Arc<dyn Store>) {
    let start = now(store).await;
    let key = Key::from("late/k");
    store
        .batch_rollback(start, std::slice::from_ref(&key))
        .await
        .expect("a key without a lock is rolled back");
    let late = store.prewrite(prewrite(start, "late/k", vec![put_of("late/k", "v")])).await;
    assert!(is_self_rolled_back(&late), "{late:?}");
    let status = TxnStatusRequest {
        primary: key.clone(),
        start_ts: start,
        caller_start_ts: types::Timestamp::ZERO,
        current_ts: now(store).await,
        rollback_if_not_exist: false,
        verify_is_primary: true,
    };
    assert_eq!(store.check_txn_status(&status).await.expect("the record tells"), TxnStatus::RolledBack);
    let commit_ts = put(store, "late/k", "by another").await;
    assert_eq!(read(store, "late/k", commit_ts).await.as_deref(), Some("by another"));
}

async fn unpushable_locks_are_waited_for(store: &Arc<dyn Store>) {
    put(store, "wait/k", "old").await;
    let start = now(store).await;
    let mut request = prewrite(start, "wait/k", vec![put_of("wait/k", "new")]);
    request.min_commit_ts = types::Timestamp::ZERO;
    store.prewrite(request).await.expect("a free key is locked");
    let commit_ts = now(store).await;
    let reader = now(store).await;
    let reading = read(store, "wait/k", reader);
    let committing = commit_keys(store, start, "wait/k", &["wait/k"], Some(commit_ts));
    let (found, committed) = futures::join!(reading, committing);
    assert_eq!(committed.expect("nobody pushed it"), commit_ts);
    assert_eq!(found.as_deref(), Some("new"), "the commit is below the reader, which waited for it");
}

async fn locks_are_listed(store: &Arc<dyn Store>) {
    let start = now(store).await;
    let mutations = vec![put_of("list/a", "v"), Mutation::delete("list/b"), Mutation::lock("list/c")];
    store.prewrite(prewrite(start, "list/a", mutations)).await.expect("free keys are locked");
    let range = prefix("list/");
    let list = |limit| store.scan_lock(&range, start, limit);
    assert_eq!(list(0).await.expect("locks are listed").len(), 3);
    assert_eq!(list(2).await.expect("locks are listed").len(), 2);
    assert!(store.scan_lock(&prefix("list/"), start.prev(), 0).await.expect("locks are listed").is_empty());
    let raised = store.heartbeat(b"list/a", start, 60_000).await.expect("a living lock is raised");
    assert_eq!(raised, 60_000);
    let kept = store.heartbeat(b"list/a", start, 5).await.expect("a living lock is asked");
    assert_eq!(kept, 60_000, "a time to live is never lowered");
    store.resolve_lock(start, None, &[]).await.expect("all locks of a transaction are rolled back");
    assert!(list(0).await.expect("locks are listed").is_empty());
    let gone = store.heartbeat(b"list/a", start, 60_000).await;
    assert!(matches!(gone, Err(KeyError::TxnNotFound { .. })), "{gone:?}");
}
