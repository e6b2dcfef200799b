//! Prewrites that arrive while the committer is between looking at a key and writing it.
//!
//! The engine is told to stop the committer at its read of a key; meanwhile a prewrite of the key comes in.

#![allow(clippy::disallowed_methods, reason = "each test awaits every task that it spawns")]

use std::sync::Arc;
use std::time::Duration;

use futures::executor::block_on;
use futures::poll;
use store::{
    AssertionLevel, CommitRequest, EmbeddedStore, Key, KeyError, KvResult, Mutation, Options,
    PrewriteRequest, Store, TxnStatus, TxnStatusRequest, WriteKind,
};
use types::Timestamp;

use crate::stopping::{self, COMMITTER, KEY, Stopping};

fn prewrite(start_ts: Timestamp, staged: bool) -> PrewriteRequest {
    PrewriteRequest {
        mutations: vec![Mutation::put(KEY, "late")],
        primary: Key::from_static(KEY),
        start_ts,
        ttl_ms: 20_000,
        txn_size: 1,
        min_commit_ts: start_ts.next().unwrap(),
        assertion_level: AssertionLevel::Strict,
        staged,
    }
}

async fn commit(store: &EmbeddedStore, start_ts: Timestamp) -> KvResult<Timestamp> {
    let key = Key::from_static(KEY);
    store.commit(CommitRequest { start_ts, keys: vec![key.clone()], primary: key, commit_ts: None }).await
}

/// Runs `first` until the committer has read the key, lets a prewrite at `start_ts` come in, and returns
/// what became of both.
async fn meet<T: Send + 'static>(
    store: &Arc<EmbeddedStore>,
    engine: &Stopping,
    start_ts: Timestamp,
    staged: bool,
    first: impl Future<Output = T> + Send + 'static,
) -> (T, Result<(), Vec<KeyError>>) {
    let stopped = engine.stop_read(COMMITTER);
    let first = tokio::spawn(first);
    tokio::task::block_in_place(|| stopped.wait());
    let late = Arc::clone(store);
    let mut late = tokio::spawn(async move { late.prewrite(prewrite(start_ts, staged)).await });
    // Long enough for a prewrite that nothing holds; one that waits goes on when the committer does.
    let early = tokio::time::timeout(Duration::from_millis(100), &mut late).await;
    stopped.go();
    let first = first.await.unwrap();
    let late = match early {
        Ok(answer) => answer.unwrap(),
        Err(_) => late.await.unwrap(),
    };
    (first, late)
}

fn open() -> (Arc<EmbeddedStore>, Arc<Stopping>) {
    stopping::open(Options::default())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_commit_and_a_prewrite_never_both_win() {
    for staged in [false, true] {
        let (store, engine) = open();
        let start_ts = store.timestamp().await.unwrap();
        let whole_ts = store.timestamp().await.unwrap();
        let whole = Arc::clone(&store);
        let whole =
            async move { whole.commit_transaction(whole_ts, vec![Mutation::put(KEY, "whole")]).await };
        let (whole, late) = meet(&store, &engine, start_ts, staged, whole).await;
        assert!(whole.is_ok(), "{whole:?}");
        assert!(
            matches!(late.as_ref().map_err(Vec::as_slice), Err([KeyError::WriteConflict { .. }])),
            "staged {staged}: {late:?}"
        );
        assert!(matches!(commit(&store, start_ts).await, Err(KeyError::TxnLockNotFound(_))));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_is_final_for_a_prewrite_that_comes_meanwhile() {
    for staged in [false, true] {
        let (store, engine) = open();
        let start_ts = store.timestamp().await.unwrap();
        let undo = Arc::clone(&store);
        let undo = async move { undo.batch_rollback(start_ts, &[Key::from_static(KEY)]).await };
        let (undone, _) = meet(&store, &engine, start_ts, staged, undo).await;
        assert!(undone.is_ok(), "{undone:?}");
        let committed = commit(&store, start_ts).await;
        assert!(matches!(committed, Err(KeyError::TxnLockNotFound(_))), "staged {staged}: {committed:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_rolls_back_is_final_for_a_prewrite_that_comes_meanwhile() {
    for staged in [false, true] {
        let (store, engine) = open();
        let start_ts = store.timestamp().await.unwrap();
        let current_ts = store.timestamp().await.unwrap();
        let asked = Arc::clone(&store);
        let asked = async move {
            let request = TxnStatusRequest {
                primary: Key::from_static(KEY),
                start_ts,
                caller_start_ts: Timestamp::ZERO,
                current_ts,
                rollback_if_not_exist: true,
                verify_is_primary: true,
            };
            asked.check_txn_status(&request).await
        };
        let (status, _) = meet(&store, &engine, start_ts, staged, asked).await;
        assert!(matches!(status, Ok(TxnStatus::RolledBack)), "{status:?}");
        let committed = commit(&store, start_ts).await;
        assert!(matches!(committed, Err(KeyError::TxnLockNotFound(_))), "staged {staged}: {committed:?}");
    }
}

/// Two prewrites of one transaction with its rollback in between: the first one's lock is gone, and the
/// second one's pending lock is not the first one's.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_keeps_its_own_pending_locks_only() {
    for staged in [false, true] {
        let (store, engine) = open();
        let start_ts = store.timestamp().await.unwrap();
        let run = |name: &str| {
            let (stopped, store) = (engine.stop_read(name), Arc::clone(&store));
            let prewrites = move || block_on(store.prewrite(prewrite(start_ts, staged)));
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn(prewrites).unwrap();
            stopped.wait();
            (stopped, thread)
        };
        let (first_stopped, first) = run("first prewrite");
        store.batch_rollback(start_ts, &[Key::from_static(KEY)]).await.unwrap();
        let (second_stopped, second) = run("second prewrite");
        first_stopped.go();
        let first = first.join().unwrap();
        assert!(
            matches!(
                first.as_ref().map_err(Vec::as_slice),
                Err([KeyError::WriteConflict { self_rolled_back: true, .. }])
            ),
            "staged {staged}: {first:?}"
        );
        let locks = store.scan_lock(&store::KeyRange::all(), Timestamp::MAX, 0).await.unwrap();
        assert_eq!(locks.len(), 1, "the second one's lock was not taken back by the first");
        second_stopped.go();
        let second = second.join().unwrap();
        assert!(second.is_err(), "staged {staged}: {second:?}");
        let committed = commit(&store, start_ts).await;
        assert!(matches!(committed, Err(KeyError::TxnLockNotFound(_))), "staged {staged}: {committed:?}");
    }
}

/// A commit of the primary takes staged locks along; one of their keys is being written by the group.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_with_staged_locks_waits_for_whoever_writes_their_keys() {
    for resolved in [false, true] {
        let (store, engine) = open();
        let (primary, guarded) = (Key::from("primary"), Key::from("guarded"));
        let other_ts = store.timestamp().await.unwrap();
        let start_ts = store.timestamp().await.unwrap();
        let mutations = vec![Mutation::put(primary.clone(), "decides"), Mutation::lock(guarded.clone())];
        let request = PrewriteRequest { mutations, primary: primary.clone(), ..prewrite(start_ts, true) };
        store.prewrite(request).await.unwrap();
        // The next two calls get into one drain, because the committer stands meanwhile.
        let stopped = engine.stop_read(COMMITTER);
        let whole_ts = store.timestamp().await.unwrap();
        let mut first = store.commit_transaction(whole_ts, vec![Mutation::put(KEY, "first")]);
        assert!(poll!(&mut first).is_pending());
        tokio::task::block_in_place(|| stopped.wait());
        let others = [guarded.clone()];
        let mut undo = store.batch_rollback(other_ts, &others);
        assert!(poll!(&mut undo).is_pending());
        let keys = vec![primary.clone()];
        let named = resolved.then(|| whole_ts.next().unwrap().next().unwrap());
        let request =
            CommitRequest { start_ts, keys: keys.clone(), primary: primary.clone(), commit_ts: named };
        let commit = async {
            match named {
                None => store.commit(request).await.map(|_| ()),
                Some(commit_ts) => store.resolve_lock(start_ts, Some(commit_ts), &keys).await,
            }
        };
        let mut commit = std::pin::pin!(commit);
        assert!(poll!(&mut commit).is_pending());
        stopped.go();
        let (first, undo, commit) = futures::join!(first, undo, commit);
        assert!(first.is_ok() && undo.is_ok() && commit.is_ok(), "{first:?} {undo:?} {commit:?}");
        let writes = store.mvcc_get(&guarded).await.unwrap().writes;
        let kinds: Vec<(WriteKind, Timestamp)> =
            writes.iter().map(|write| (write.kind, write.start_ts)).collect();
        assert_eq!(kinds, [(WriteKind::Lock, start_ts), (WriteKind::Rollback, other_ts)]);
    }
}

/// Of a drain whose first group fails nothing more is written, and nobody is left without an answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_committer_stops_after_a_failed_group() {
    let (store, engine) = open();
    let stopped = engine.stop_read(COMMITTER);
    let whole_ts = store.timestamp().await.unwrap();
    let mut first = store.commit_transaction(whole_ts, vec![Mutation::put(KEY, "first")]);
    assert!(poll!(&mut first).is_pending());
    tokio::task::block_in_place(|| stopped.wait());
    let start_ts = whole_ts.next().unwrap();
    // One that is too large to share its group, so that it fails alone; then one apart, and one that
    // meets its keys.
    let large = vec![7; 40 << 20];
    let mut large = store.commit_transaction(start_ts, vec![Mutation::put("large", large)]);
    assert!(poll!(&mut large).is_pending());
    let mut apart = store.put_blobs(vec![(Key::from("apart"), Key::from("value"))]);
    assert!(poll!(&mut apart).is_pending());
    let keys = [Key::from("large")];
    let mut meets = store.batch_rollback(whole_ts, &keys);
    assert!(poll!(&mut meets).is_pending());
    let group = engine.stop_commit();
    stopped.go();
    tokio::task::block_in_place(|| group.wait());
    let before = engine.commits();
    let next = engine.stop_commit();
    group.go();
    tokio::task::block_in_place(|| next.wait());
    engine.fail_once();
    next.go();
    let (first, large, meets, apart) = futures::join!(first, large, meets, apart);
    assert!(first.is_ok(), "{first:?}");
    let closed = |error: types::Error| assert_eq!(error.kind(), types::ErrorKind::Closed, "{error}");
    closed(large.err().unwrap().into());
    closed(meets.err().unwrap().into());
    closed(apart.err().unwrap());
    assert_eq!(engine.commits(), before + 1, "only the failed one was tried");
}
