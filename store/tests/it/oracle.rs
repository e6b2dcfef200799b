//! Timestamps never go back: over clocks that are set back, and over ends that others race with.

use std::sync::Arc;

use futures::poll;
use store::engine::Engine;
use store::testing::ManualClock;
use store::{AssertionLevel, CommitRequest, EmbeddedStore, Key, Mutation, Options, PrewriteRequest, Store};
use types::ErrorKind;

use crate::stopping::{self, KEY};

const NOW_MS: u64 = 1_700_000_000_000;

fn options(clock: &Arc<ManualClock>) -> Options {
    Options { clock: clock.clone(), ..Options::default() }
}

fn open_again(engine: &Arc<stopping::Stopping>) -> Arc<EmbeddedStore> {
    let over: Arc<dyn Engine> = engine.clone();
    EmbeddedStore::over(over, options(&Arc::new(ManualClock::new(NOW_MS)))).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bound_on_disk_never_falls_below_what_may_be_given_out() {
    let clock = Arc::new(ManualClock::new(NOW_MS));
    let (store, engine) = stopping::open(options(&clock));
    store.timestamp().await.unwrap();
    // Two callers find the clock beyond the bound; it is set back before the second one is served.
    clock.set(NOW_MS + 10_000);
    let stopped = engine.stop_commit();
    let mut first = store.timestamp();
    assert!(poll!(&mut first).is_pending());
    tokio::task::block_in_place(|| stopped.wait());
    let mut second = store.read_timestamp();
    assert!(poll!(&mut second).is_pending());
    clock.set(NOW_MS);
    stopped.go();
    second.await.unwrap();
    first.await.unwrap();
    clock.set(NOW_MS + 12_000);
    let newest = store.timestamp().await.unwrap();
    drop(store);
    let store = open_again(&engine);
    let after = store.timestamp().await.unwrap();
    assert!(after > newest, "{after} after {newest}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_given_out_above_the_bound_of_a_clean_end() {
    let clock = Arc::new(ManualClock::new(NOW_MS));
    let (store, engine) = stopping::open(options(&clock));
    let mut newest = store.timestamp().await.unwrap();
    let stopped = engine.stop_commit();
    let mut close = store.close();
    let ending = async {
        tokio::task::block_in_place(|| stopped.wait());
        clock.set(NOW_MS + 1_000);
        for _ in 0..2 {
            let mut late = store.timestamp();
            if let std::task::Poll::Ready(Ok(late)) = poll!(&mut late) {
                newest = newest.max(late);
            }
            let mut late = store.read_timestamp();
            if let std::task::Poll::Ready(Ok(late)) = poll!(&mut late) {
                newest = newest.max(late);
            }
        }
        stopped.go();
    };
    assert!(poll!(&mut close).is_pending());
    ending.await;
    // A call that came in between is answered, one way or the other.
    close.await.unwrap();
    assert_eq!(store.timestamp().await.err().unwrap().kind(), ErrorKind::Closed);
    let store = open_again(&engine);
    let after = store.timestamp().await.unwrap();
    assert!(after > newest, "{after} after {newest}");
}

/// A caller may name a start ahead of the oracle; its commit is above it all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_drawn_commit_is_above_its_start() {
    let clock = Arc::new(ManualClock::new(NOW_MS));
    for halves in [false, true] {
        let (store, _engine) = stopping::open(options(&clock));
        let ahead = types::Timestamp::from_parts(NOW_MS + 60_000, 7);
        let commit_ts = if halves {
            let key = Key::from_static(KEY);
            let request = PrewriteRequest {
                mutations: vec![Mutation::put(KEY, "value")],
                primary: key.clone(),
                start_ts: ahead,
                ttl_ms: 20_000,
                txn_size: 1,
                min_commit_ts: types::Timestamp::ZERO,
                assertion_level: AssertionLevel::Strict,
                staged: false,
            };
            store.prewrite(request).await.unwrap();
            let request =
                CommitRequest { start_ts: ahead, keys: vec![key.clone()], primary: key, commit_ts: None };
            store.commit(request).await.unwrap()
        } else {
            store.commit_transaction(ahead, vec![Mutation::put(KEY, "value")]).await.unwrap()
        };
        assert!(commit_ts > ahead, "{commit_ts} for a start at {ahead}");
        let later = store.timestamp().await.unwrap();
        assert!(later > commit_ts);
    }
}
