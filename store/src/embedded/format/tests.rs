//! Bytes round-trip, keep their order, and are refused when broken.

use proptest::prelude::*;

use super::*;

fn ts() -> impl Strategy<Value = Timestamp> {
    any::<u64>().prop_map(Timestamp)
}

fn bytes() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(prop_oneof![Just(0u8), Just(0xff), any::<u8>()], 0..20).prop_map(Bytes::from)
}

proptest! {
    #[test]
    fn versions_round_trip(key in bytes(), commit_ts in ts(), start_ts in ts(), previous in ts(), value in prop::option::of(bytes())) {
        let version = Version { commit_ts, start_ts, previous, value };
        prop_assert_eq!(Version::decode(&key, &version.encode(&key)).unwrap(), version);
    }

    #[test]
    fn locks_round_trip(key in bytes(), primary in bytes(), value in bytes(), start_ts in ts(), min_commit_ts in ts(), ttl_ms: u64, txn_size: u64) {
        let info = LockInfo { key: key.clone(), primary, start_ts, ttl_ms, txn_size, kind: LockKind::Delete, min_commit_ts };
        let lock = StoredLock { info, value };
        prop_assert_eq!(StoredLock::decode(&key, &lock.encode()).unwrap(), lock);
    }

    #[test]
    fn pieces_round_trip(keys in prop::collection::btree_set(bytes(), 1..40), start_ts in ts(), commit_ts in ts()) {
        let entry = |(number, key): (usize, Bytes)| IndexEntry {
            key,
            deleted: number % 3 == 0,
            previous: Timestamp(number as u64),
        };
        let entries: Vec<IndexEntry> = keys.into_iter().enumerate().map(entry).collect();
        let index_key = index_key(commit_ts, PieceKind::Drawn, &entries[0].key);
        let piece = IndexPiece { start_ts, entries };
        prop_assert_eq!(IndexPiece::decode(&index_key, &piece.encode(&index_key)).unwrap(), piece);
        prop_assert_eq!(split_index_key(&index_key).unwrap(), (commit_ts, PieceKind::Drawn));
    }

    #[test]
    fn history_stands_by_key_then_newest_first(left in bytes(), right in bytes(), older in ts(), newer in ts()) {
        let order = history_key(&left, older).cmp(&history_key(&right, newer));
        prop_assert_eq!(order, left.cmp(&right).then(newer.cmp(&older)));
    }

    #[test]
    fn a_broken_byte_or_another_key_is_noticed(key in bytes(), other in bytes(), at: prop::sample::Index, bit in 0u8..8) {
        let version = Version { commit_ts: Timestamp(7), start_ts: Timestamp(6), previous: Timestamp(0), value: Some(key.clone()) };
        let good = version.encode(&key);
        let mut broken = good.to_vec();
        let at = at.index(broken.len());
        broken[at] ^= 1 << bit;
        prop_assert!(Version::decode(&key, &broken.into()).is_err());
        prop_assert_eq!(Version::decode(&other, &good).is_err(), other != key);
    }

    #[test]
    fn garbage_is_refused_not_trusted(garbage in prop::collection::vec(any::<u8>(), 0..80)) {
        // With a right checksum, so that the decoders behind it are reached.
        let sealed = seal_bytes(b"k", &garbage);
        let key = Bytes::from_static(b"k");
        let _ = Version::decode(&key, &sealed);
        let _ = Record::decode_list(&key, &sealed);
        let _ = StoredLock::decode(&key, &sealed);
        let _ = IndexPiece::decode(&key, &sealed);
        prop_assert!(Version::decode(&key, &Bytes::from(garbage)).is_err());
    }
}

#[test]
fn records_keep_the_newest_guard_of_whole_transactions_only() {
    let record = |kind, ts| Record { kind, start_ts: Timestamp(ts), commit_ts: Timestamp(ts) };
    let mut records = Vec::new();
    add_record(&mut records, record(RecordKind::WholeLock, 5));
    add_record(&mut records, record(RecordKind::Rollback, 3));
    add_record(&mut records, record(RecordKind::Lock, 7));
    add_record(&mut records, record(RecordKind::WholeLock, 9));
    let commits: Vec<u64> = records.iter().map(|record| record.commit_ts.0).collect();
    assert_eq!(commits, [9, 7, 3]);
    assert_eq!(Record::decode_list(b"k", &Record::encode_list(b"k", &records)).unwrap(), records);
}
