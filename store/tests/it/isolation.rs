//! Snapshots under flushes and compactions: fjall's own are not repeatable then, ours must be.

#![allow(clippy::disallowed_methods, reason = "the test awaits every task that it spawns")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use store::engine::{DiskEngine, DiskOptions, Space};
use store::{EmbeddedStore, Key, KeyRange, Options, Snapshot, Store, Transaction};

const KEYS: usize = 40;

/// Every transaction sets all keys to its number, so that every snapshot has one number only.
async fn write(store: Arc<EmbeddedStore>, done: Arc<AtomicBool>, halves: bool) -> usize {
    let mut number = 0;
    while !done.load(Ordering::SeqCst) {
        let mut transaction = Transaction::begin(store.clone()).await.unwrap();
        let filler = "x".repeat(200);
        for key in 0..KEYS {
            transaction.put(format!("k{key:02}"), format!("{number} {filler}"));
        }
        let committed = if halves && number % 5 == 0 {
            transaction.commit_in_halves().await
        } else {
            transaction.commit().await
        };
        committed.unwrap();
        number += 1;
    }
    number
}

async fn read(store: Arc<EmbeddedStore>, done: Arc<AtomicBool>, reads: Arc<AtomicUsize>) {
    while !done.load(Ordering::SeqCst) {
        let snapshot = Snapshot::newest(store.clone()).await.unwrap();
        let first = snapshot.scan_all(&KeyRange::all()).await.unwrap();
        if first.is_empty() {
            continue;
        }
        assert_eq!(first.len(), KEYS, "at {}", snapshot.ts());
        assert!(first.iter().all(|(_, value)| *value == first[0].1), "a torn snapshot at {}", snapshot.ts());
        tokio::task::yield_now().await;
        let mut again = snapshot.scan_reverse(&KeyRange::all(), KEYS).await.unwrap();
        again.reverse();
        assert_eq!(first, again, "a snapshot that changed at {}", snapshot.ts());
        let one = snapshot.get(b"k17").await.unwrap();
        assert_eq!(one.as_ref(), Some(&first[17].1), "a get that differs from the scan at {}", snapshot.ts());
        let keys: Vec<Key> = first.iter().map(|(key, _)| key.clone()).collect();
        let all = snapshot.batch_get(&keys).await.unwrap();
        assert!(all.iter().all(|value| *value == one));
        reads.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn snapshots_are_repeatable_under_flushes_and_compactions() {
    let directory = tempfile::tempdir().unwrap();
    let disk = DiskOptions { memtable_bytes: 256 << 10, cache_bytes: 4 << 20, ..DiskOptions::default() };
    let engine = Arc::new(DiskEngine::open(directory.path(), &disk).unwrap());
    let store = EmbeddedStore::over(engine.clone(), Options::default()).unwrap();
    let (done, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let writer = tokio::spawn(write(store.clone(), done.clone(), true));
    let readers: Vec<_> =
        (0..3).map(|_| tokio::spawn(read(store.clone(), done.clone(), reads.clone()))).collect();
    let flushes = tokio::task::spawn_blocking({
        let (done, engine) = (done.clone(), engine.clone());
        move || {
            let mut flushes = 0;
            while !done.load(Ordering::SeqCst) {
                engine.flush(Space::Main).unwrap();
                engine.flush(Space::History).unwrap();
                if flushes % 4 == 3 {
                    engine.compact(Space::Main).unwrap();
                }
                flushes += 1;
            }
            flushes
        }
    });
    let collector = tokio::spawn({
        let (done, store) = (done.clone(), store.clone());
        async move {
            while !done.load(Ordering::SeqCst) {
                let now = store.read_timestamp().await.unwrap();
                tokio::time::sleep(Duration::from_millis(500)).await;
                // Half a second of history stays, more than a reader above needs.
                store.collect_garbage(now).await.unwrap();
            }
        }
    });
    tokio::time::sleep(Duration::from_secs(10)).await;
    done.store(true, Ordering::SeqCst);
    let written = writer.await.unwrap();
    for reader in readers {
        reader.await.unwrap();
    }
    collector.await.unwrap();
    let flushes = flushes.await.unwrap();
    let reads = reads.load(Ordering::SeqCst);
    println!("{written} transactions, {reads} snapshots, {flushes} flushes");
    assert!(
        written > 50 && reads > 50 && flushes > 5,
        "{written} transactions, {reads} snapshots, {flushes} flushes"
    );
}
