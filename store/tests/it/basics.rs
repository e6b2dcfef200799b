//! The first things that must hold, on both engines.

use std::sync::Arc;

use futures::StreamExt;
use store::{EmbeddedStore, FeedEvent, KeyError, KeyRange, Options, Snapshot, Store, Transaction};

fn stores() -> Vec<(Arc<EmbeddedStore>, Option<tempfile::TempDir>)> {
    let directory = tempfile::tempdir().unwrap();
    let disk = EmbeddedStore::open(directory.path(), Options::default()).unwrap();
    vec![(EmbeddedStore::memory(), None), (disk, Some(directory))]
}

async fn put(store: &Arc<EmbeddedStore>, key: &str, value: &str) -> types::Timestamp {
    let mut transaction = Transaction::begin(store.clone()).await.unwrap();
    transaction.put(key.to_owned(), value.to_owned());
    transaction.commit().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn committed_values_are_read_and_old_snapshots_stay() {
    for (store, _directory) in stores() {
        let first = put(&store, "a", "one").await;
        let old = Snapshot::newest(store.clone()).await.unwrap();
        assert!(old.ts() >= first);
        let second = put(&store, "a", "two").await;
        put(&store, "b", "three").await;
        assert_eq!(old.get(b"a").await.unwrap().unwrap(), "one");
        assert_eq!(old.get(b"b").await.unwrap(), None);
        let new = Snapshot::newest(store.clone()).await.unwrap();
        assert_eq!(new.get(b"a").await.unwrap().unwrap(), "two");
        assert_eq!(new.scan(&KeyRange::all(), 10).await.unwrap().len(), 2);
        assert_eq!(new.scan_reverse(&KeyRange::all(), 1).await.unwrap()[0].0, "b");
        let page = store.changes(&[KeyRange::all()], first, new.ts(), None, 10).await.unwrap();
        assert_eq!(page.changes.len(), 2);
        assert_eq!(page.changes[0].commit_ts, second);
        assert_eq!(page.changes[0].old_value.as_deref(), Some(b"one".as_slice()));
        store.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_writers_of_a_key_conflict() {
    for (store, _directory) in stores() {
        let mut left = Transaction::begin(store.clone()).await.unwrap();
        let mut right = Transaction::begin(store.clone()).await.unwrap();
        left.put("k", "left");
        right.put("k", "right");
        left.commit().await.unwrap();
        assert!(matches!(right.commit().await, Err(KeyError::WriteConflict { .. })));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn halves_commit_and_the_feed_delivers() {
    for (store, _directory) in stores() {
        let from = store.read_timestamp().await.unwrap();
        let mut feed = store.subscribe(vec![KeyRange::prefix(b"k")], from).await.unwrap();
        let mut transaction = Transaction::begin(store.clone()).await.unwrap();
        for number in 0..10 {
            transaction.put(format!("k{number}"), "v");
        }
        let commit_ts = transaction.commit_in_halves().await.unwrap();
        let mut seen = 0;
        loop {
            match feed.next().await.unwrap().unwrap() {
                FeedEvent::Change(change) => {
                    assert_eq!(change.commit_ts, commit_ts);
                    seen += 1;
                }
                FeedEvent::Resolved(ts) if ts >= commit_ts => break,
                FeedEvent::Resolved(_) => assert_eq!(seen, 0),
            }
        }
        assert_eq!(seen, 10);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_opens_again_with_its_data() {
    let directory = tempfile::tempdir().unwrap();
    let mut last = types::Timestamp::ZERO;
    for round in 0..3 {
        let store = EmbeddedStore::open(directory.path(), Options::default()).unwrap();
        let snapshot = Snapshot::newest(store.clone()).await.unwrap();
        assert_eq!(snapshot.scan_all(&KeyRange::all()).await.unwrap().len(), round);
        let commit_ts = put(&store, &format!("k{round}"), "v").await;
        assert!(commit_ts > last);
        last = commit_ts;
        let second = EmbeddedStore::open(directory.path(), Options::default()).err().unwrap();
        assert!(second.message().contains("in use by another process"), "{second}");
        if round == 1 {
            drop(snapshot);
            drop(store);
        } else {
            store.close().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn compaction_gives_back_what_was_collected_and_changes_no_answer() {
    for (store, directory) in stores() {
        let mut seed = 7_u64;
        // Text that does not compress.
        let mut text = || {
            let digits = (0..2_000).map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                char::from(b'!' + (seed >> 58) as u8)
            });
            digits.collect::<String>()
        };
        let mut newest = String::new();
        for _ in 0..10 {
            for key in 0..50 {
                newest = text();
                put(&store, &format!("k{key:02}"), &newest).await;
            }
        }
        let reclaims = directory.is_some();
        assert_eq!(store.compact().await.unwrap(), reclaims, "memory has nothing to give back");
        let full = store.space_bytes().unwrap();
        let barrier = store.collect_garbage(store.read_timestamp().await.unwrap()).await.unwrap();
        assert_eq!(store.compact().await.unwrap(), reclaims);
        let left = store.space_bytes().unwrap();
        // Of a megabyte a tenth is in force; the journal has a size of its own.
        assert!(!reclaims || full - left > 800_000, "{left} of {full} bytes are left");
        let old = Snapshot::new(store.clone(), barrier);
        assert_eq!(old.get(b"k49").await.unwrap().unwrap(), newest);
        assert_eq!(old.scan(&KeyRange::all(), 100).await.unwrap().len(), 50);
        put(&store, "k00", "after").await;
        assert_eq!(
            Snapshot::newest(store.clone()).await.unwrap().get(b"k00").await.unwrap().unwrap(),
            "after"
        );
        store.close().await.unwrap();
        assert!(store.compact().await.is_err(), "a closed store");
    }
}
