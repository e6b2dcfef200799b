//! Keys that the engine cannot take are refused by the store, and reads of them find nothing.

use std::sync::Arc;

use store::engine::{Batch, DiskEngine, DiskOptions, Durability, Engine, MemoryEngine, Space};
use store::{
    AssertionLevel, CommitRequest, EmbeddedStore, Key, KeyError, KeyRange, Mutation, Options,
    PrewriteRequest, ReadContext, ScanRequest, Store, TxnStatusRequest,
};
use types::{ErrorKind, Timestamp};

/// The longest key: ten bytes less than the engine takes, if none is zero.
const LONGEST: usize = 65_525;

fn key(length: usize) -> Key {
    vec![b'k'; length].into()
}

fn bad_keys() -> Vec<Key> {
    // Zero bytes count twice.
    vec![Key::new(), key(LONGEST + 1), key(70_000), vec![0; 40_000].into()]
}

fn stores() -> Vec<(Arc<EmbeddedStore>, Option<tempfile::TempDir>)> {
    let directory = tempfile::tempdir().unwrap();
    let disk = EmbeddedStore::open(directory.path(), Options::default()).unwrap();
    vec![(EmbeddedStore::memory(), None), (disk, Some(directory))]
}

fn prewrite(start_ts: Timestamp, mutations: Vec<Mutation>, primary: Key) -> PrewriteRequest {
    PrewriteRequest {
        mutations,
        primary,
        start_ts,
        ttl_ms: 20_000,
        txn_size: 1,
        min_commit_ts: Timestamp::ZERO,
        assertion_level: AssertionLevel::Off,
        staged: false,
    }
}

fn is_invalid(error: &KeyError) -> bool {
    matches!(error, KeyError::Store(error) if error.kind() == ErrorKind::Invalid)
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_of_a_key_that_no_engine_takes_are_refused() {
    for (store, _directory) in stores() {
        for bad in bad_keys() {
            let start_ts = store.timestamp().await.unwrap();
            let mutations = vec![Mutation::put("fine", "value"), Mutation::put(bad.clone(), "value")];
            let error = store.commit_transaction(start_ts, mutations.clone()).await.err().unwrap();
            assert!(is_invalid(&error), "{error:?}");
            for staged in [false, true] {
                let request = prewrite(start_ts, mutations.clone(), Key::from("fine"));
                let errors = store.prewrite(PrewriteRequest { staged, ..request }).await.err().unwrap();
                assert!(is_invalid(&errors[0]), "{errors:?}");
            }
            let request = prewrite(start_ts, vec![Mutation::put("fine", "value")], bad.clone());
            let errors = store.prewrite(request).await.err().unwrap();
            assert!(is_invalid(&errors[0]), "{errors:?}");
            let error = store.batch_rollback(start_ts, std::slice::from_ref(&bad)).await.err().unwrap();
            assert!(is_invalid(&error), "{error:?}");
            let error = store.resolve_lock(start_ts, None, std::slice::from_ref(&bad)).await.err().unwrap();
            assert!(is_invalid(&error), "{error:?}");
            let request = TxnStatusRequest {
                primary: bad.clone(),
                start_ts,
                caller_start_ts: Timestamp::ZERO,
                current_ts: start_ts,
                rollback_if_not_exist: true,
                verify_is_primary: false,
            };
            let error = store.check_txn_status(&request).await.err().unwrap();
            assert!(is_invalid(&error), "{error:?}");
            assert!(store.heartbeat(&bad, start_ts, 1).await.is_err());
            let request =
                CommitRequest { start_ts, keys: vec![bad.clone()], primary: bad.clone(), commit_ts: None };
            assert!(store.commit(request).await.is_err());
            if bad.is_empty() || bad.len() > 65_535 {
                let error = store.put_blobs(vec![(bad.clone(), Key::from("run"))]).await.err().unwrap();
                assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            }
        }
        let name = "h".repeat(70_000);
        let error = store.hold(&name, store.read_timestamp().await.unwrap()).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        store.release(&name).await.unwrap();
        // Nothing was marked or locked by what was refused, and the store is open.
        assert!(store.scan_lock(&KeyRange::all(), Timestamp::MAX, 0).await.unwrap().is_empty());
        let start_ts = store.timestamp().await.unwrap();
        store.commit_transaction(start_ts, vec![Mutation::put("fine", "value")]).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_of_a_key_that_no_engine_takes_find_nothing() {
    for (store, _directory) in stores() {
        let start_ts = store.timestamp().await.unwrap();
        let longest = key(LONGEST);
        let mutations = vec![Mutation::put(longest.clone(), "longest"), Mutation::put("z", "last")];
        let from = store.commit_transaction(start_ts, mutations).await.unwrap();
        for bad in bad_keys() {
            let context = ReadContext::at(store.read_timestamp().await.unwrap());
            assert_eq!(store.kv_get(&bad, &context).await.unwrap(), None);
            assert!(store.kv_batch_get(std::slice::from_ref(&bad), &context).await.unwrap().is_empty());
            assert!(store.mvcc_get(&bad).await.unwrap().writes.is_empty());
            assert_eq!(store.get_blob(&bad).await.unwrap(), None);
            store.delete_blobs(vec![bad.clone()]).await.unwrap();
            for (range, expected) in [
                (KeyRange::new(bad.clone(), Key::new()), if bad.len() > LONGEST { 1 } else { 2 }),
                (KeyRange::new("a", bad.clone()), if bad.len() > LONGEST { 1 } else { 0 }),
            ] {
                let expected = if bad.is_empty() { 2 } else { expected };
                for reverse in [false, true] {
                    let request = ScanRequest { range: range.clone(), limit: 10, key_only: false, reverse };
                    let found = store.kv_scan(&request, &context).await.unwrap();
                    assert_eq!(found.len(), expected, "{} bytes, reverse {reverse}", bad.len());
                }
                store.changes(std::slice::from_ref(&range), from, context.ts, None, 10).await.unwrap();
                store.resolved(&[range]).await.unwrap();
            }
            let page = store.changes(&[KeyRange::all()], from.prev(), from, Some((from, bad)), 10).await;
            assert!(page.is_ok(), "{page:?}");
            assert!(store.list_blobs(&vec![b'k'; 70_000], None, 10).await.unwrap().is_empty());
            assert!(store.list_blobs(b"k", Some(key(70_000)), 10).await.unwrap().is_empty());
        }
    }
}

/// Longest keys live through everything that derives a key from them: history, index, records, locks.
#[tokio::test(flavor = "multi_thread")]
async fn the_longest_key_is_written_replaced_read_and_collected() {
    for (store, _directory) in stores() {
        for longest in [key(LONGEST), vec![0; 32_762].into()] {
            for round in 0..3 {
                let start_ts = store.timestamp().await.unwrap();
                let value = format!("{round}");
                if round == 1 {
                    let mutations = vec![Mutation::put(longest.clone(), value)];
                    store.prewrite(prewrite(start_ts, mutations, longest.clone())).await.unwrap();
                    let (keys, primary) = (vec![longest.clone()], longest.clone());
                    store.commit(CommitRequest { start_ts, keys, primary, commit_ts: None }).await.unwrap();
                } else {
                    let mutations = vec![Mutation::put(longest.clone(), value)];
                    store.commit_transaction(start_ts, mutations).await.unwrap();
                }
                let undone = store.timestamp().await.unwrap();
                store.batch_rollback(undone, std::slice::from_ref(&longest)).await.unwrap();
            }
            assert_eq!(store.mvcc_get(&longest).await.unwrap().writes.len(), 6);
            let barrier = store.read_timestamp().await.unwrap();
            store.collect_garbage(barrier).await.unwrap();
            assert_eq!(store.mvcc_get(&longest).await.unwrap().writes.len(), 1);
        }
    }
}

#[test]
fn both_engines_refuse_the_same_keys() {
    let directory = tempfile::tempdir().unwrap();
    let disk = DiskEngine::open(directory.path(), &DiskOptions::default()).unwrap();
    let engines: [&dyn Engine; 2] = [&MemoryEngine::new(), &disk];
    for engine in engines {
        for bad in [Key::new(), key(65_536)] {
            let mut batch = Batch::default();
            batch.put(Space::Main, "fine", "value");
            batch.put(Space::Main, bad.clone(), "value");
            assert_eq!(engine.commit(batch, Durability::Synced).err().unwrap().kind(), ErrorKind::Invalid);
            let mut batch = Batch::default();
            batch.delete(Space::Main, bad.clone());
            assert_eq!(engine.commit(batch, Durability::Synced).err().unwrap().kind(), ErrorKind::Invalid);
            assert_eq!(engine.get(Space::Main, &bad).unwrap(), None);
        }
        assert_eq!(engine.get(Space::Main, b"fine").unwrap(), None, "a refused batch leaves nothing");
        let mut batch = Batch::default();
        batch.put(Space::Main, key(65_535), "value");
        engine.commit(batch, Durability::Synced).unwrap();
    }
}
