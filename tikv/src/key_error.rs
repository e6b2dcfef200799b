//! What a store says about keys, as errors of the trait.
//!
//! TiKV fills several fields of one error, so they are tested in a fixed order: a write conflict comes with a
//! text that asks for a retry, and whoever looks at that text first tries for ever.

use store::{Assertion, Key, KeyError, LockInfo, LockKind};
use types::{Error, Timestamp};

use crate::proto::kvrpcpb;

/// A lock that an optimistic transaction left; `None` for locks that block nobody.
pub(crate) fn lock_info(lock: &kvrpcpb::LockInfo) -> Option<LockInfo> {
    let kind = match lock.lock_type() {
        kvrpcpb::Op::Put | kvrpcpb::Op::Insert => LockKind::Put,
        kvrpcpb::Op::Del => LockKind::Delete,
        kvrpcpb::Op::Lock => LockKind::Lock,
        kvrpcpb::Op::PessimisticLock
        | kvrpcpb::Op::SharedLock
        | kvrpcpb::Op::Rollback
        | kvrpcpb::Op::CheckNotExists => return None,
    };
    Some(plain_lock(lock, kind))
}

fn plain_lock(lock: &kvrpcpb::LockInfo, kind: LockKind) -> LockInfo {
    LockInfo {
        key: lock.key.clone(),
        primary: lock.primary_lock.clone(),
        start_ts: Timestamp(lock.lock_version),
        ttl_ms: lock.lock_ttl,
        txn_size: lock.txn_size,
        kind,
        min_commit_ts: Timestamp(lock.min_commit_ts),
    }
}

/// A lock that was met: of whatever kind it is, its transaction is to be asked.
fn met(lock: &kvrpcpb::LockInfo) -> LockInfo {
    // A lock that several share says everything inside.
    let lock = lock.shared_lock_infos.first().unwrap_or(lock);
    lock_info(lock).unwrap_or_else(|| plain_lock(lock, LockKind::Lock))
}

/// The locks of a list, those that several share one by one.
pub(crate) fn lock_infos(locks: &[kvrpcpb::LockInfo]) -> Vec<LockInfo> {
    let each = locks.iter().flat_map(|lock| match lock.shared_lock_infos.as_slice() {
        [] => std::slice::from_ref(lock),
        shared => shared,
    });
    each.filter_map(lock_info).collect()
}

/// Whether an error says that a key is not in the region it was sent to: the texts of reads, writes and
/// scans.
pub(crate) fn is_out_of_region(error: &kvrpcpb::KeyError) -> bool {
    is_abort(error)
        && ((error.abort.contains("is out of") && error.abort.contains("region"))
            || error.abort.contains("InvalidReqRange"))
}

/// Whether nothing but the text is set.
fn is_abort(error: &kvrpcpb::KeyError) -> bool {
    !error.abort.is_empty()
        && error.locked.is_none()
        && error.conflict.is_none()
        && error.already_exist.is_none()
        && error.commit_ts_expired.is_none()
        && error.txn_not_found.is_none()
        && error.txn_lock_not_found.is_none()
        && error.assertion_failed.is_none()
        && error.primary_mismatch.is_none()
}

/// What a store says about a key.
pub(crate) fn key_error(error: kvrpcpb::KeyError) -> KeyError {
    if let Some(lock) = error.locked {
        return KeyError::Locked(Box::new(met(&lock)));
    }
    if let Some(conflict) = error.conflict {
        return KeyError::WriteConflict {
            self_rolled_back: conflict.reason() == kvrpcpb::write_conflict::Reason::SelfRolledBack,
            key: conflict.key,
            start_ts: Timestamp(conflict.start_ts),
            conflict_start_ts: Timestamp(conflict.conflict_ts),
            conflict_commit_ts: Timestamp(conflict.conflict_commit_ts),
        };
    }
    if let Some(exists) = error.already_exist {
        return KeyError::AlreadyExists(exists.key);
    }
    if let Some(expired) = error.commit_ts_expired {
        return KeyError::CommitTsExpired {
            attempted: Timestamp(expired.attempted_commit_ts),
            min_commit_ts: Timestamp(expired.min_commit_ts),
        };
    }
    if let Some(missing) = error.txn_not_found {
        let start_ts = Timestamp(missing.start_ts);
        return KeyError::TxnNotFound { start_ts, primary: missing.primary_key };
    }
    if let Some(missing) = error.txn_lock_not_found {
        return KeyError::TxnLockNotFound(missing.key);
    }
    if let Some(failed) = error.assertion_failed {
        let assertion = match failed.assertion() {
            kvrpcpb::Assertion::None => Assertion::None,
            kvrpcpb::Assertion::Exist => Assertion::Exist,
            kvrpcpb::Assertion::NotExist => Assertion::NotExist,
        };
        return KeyError::AssertionFailed { key: failed.key, assertion };
    }
    if let Some(mismatch) = error.primary_mismatch {
        let lock = mismatch.lock_info.unwrap_or_default();
        return KeyError::PrimaryMismatch(Box::new(met(&lock)));
    }
    if let Some(large) = error.commit_ts_too_large {
        return KeyError::Abort(format!("commit timestamp {} is too large", large.commit_ts));
    }
    if !error.abort.is_empty() {
        return KeyError::Abort(error.abort);
    }
    if let Some(deadlock) = error.deadlock {
        return KeyError::Abort(format!("deadlock with transaction {}", deadlock.lock_ts));
    }
    if !error.retryable.is_empty() {
        return KeyError::Store(Error::unavailable(error.retryable));
    }
    KeyError::Abort("an error without a field that is known".to_owned())
}

/// The key that an error is about, where it says so.
pub(crate) fn key_of(error: &KeyError) -> Key {
    match error {
        KeyError::Locked(lock) | KeyError::PrimaryMismatch(lock) => lock.key.clone(),
        KeyError::WriteConflict { key, .. }
        | KeyError::AlreadyExists(key)
        | KeyError::TxnLockNotFound(key)
        | KeyError::AssertionFailed { key, .. } => key.clone(),
        KeyError::TxnNotFound { primary, .. } => primary.clone(),
        KeyError::CommitTsExpired { .. } | KeyError::Abort(_) | KeyError::Store(_) => Key::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conflict_counts_before_the_text_that_asks_for_a_retry() {
        let error = kvrpcpb::KeyError {
            retryable: "Error(Txn(Error(Mvcc(Error(WriteConflict".to_owned(),
            conflict: Some(kvrpcpb::WriteConflict {
                start_ts: 5,
                conflict_ts: 6,
                conflict_commit_ts: 7,
                key: Key::from("k"),
                reason: kvrpcpb::write_conflict::Reason::Optimistic.into(),
                ..Default::default()
            }),
            ..Default::default()
        };
        let conflict = key_error(error);
        assert!(matches!(conflict, KeyError::WriteConflict { self_rolled_back: false, .. }), "{conflict:?}");
    }

    #[test]
    fn a_missing_lock_counts_before_the_text_that_asks_for_a_retry() {
        let error = kvrpcpb::KeyError {
            retryable: "Error(Txn(Error(Mvcc(Error(TxnLockNotFound".to_owned(),
            txn_lock_not_found: Some(kvrpcpb::TxnLockNotFound { key: Key::from("k") }),
            ..Default::default()
        };
        assert!(matches!(key_error(error), KeyError::TxnLockNotFound(key) if key == "k"));
    }

    #[test]
    fn a_lock_counts_before_everything() {
        let error = kvrpcpb::KeyError {
            locked: Some(kvrpcpb::LockInfo { key: Key::from("k"), lock_version: 3, ..Default::default() }),
            conflict: Some(kvrpcpb::WriteConflict::default()),
            abort: "text".to_owned(),
            ..Default::default()
        };
        assert!(matches!(key_error(error), KeyError::Locked(lock) if lock.start_ts == Timestamp(3)));
    }

    #[test]
    fn keys_out_of_their_region_are_known_by_the_text() {
        let abort = |text: &str| kvrpcpb::KeyError { abort: text.to_owned(), ..Default::default() };
        assert!(is_out_of_region(&abort(
            "Error(Txn(Error(Mvcc(Error(Kv(Error(Other(\"[components/raftstore/src/store/region_snapshot.rs:289]: \
             Key 4230362F6D000000FC is out of [region 4] [, 4230362F68000000FC)\"))))))))"
        )));
        assert!(is_out_of_region(&abort(
            "Error(Txn(Error(InvalidReqRange { start: Some([66]), end: Some([67]), lower_bound: Some([]) })))"
        )));
        assert!(!is_out_of_region(&abort("Error(Txn(Error(Mvcc(Error(Committed { start_ts: 1 })))))")));
        assert!(!is_out_of_region(&kvrpcpb::KeyError::default()));
    }

    #[test]
    fn shared_and_pessimistic_locks_block_nobody() {
        let lock = |kind: kvrpcpb::Op| kvrpcpb::LockInfo { lock_type: kind.into(), ..Default::default() };
        let shared = kvrpcpb::LockInfo {
            shared_lock_infos: vec![lock(kvrpcpb::Op::PessimisticLock), lock(kvrpcpb::Op::Lock)],
            ..lock(kvrpcpb::Op::SharedLock)
        };
        let found = lock_infos(&[lock(kvrpcpb::Op::Put), lock(kvrpcpb::Op::PessimisticLock), shared]);
        let kinds: Vec<LockKind> = found.iter().map(|lock| lock.kind).collect();
        assert_eq!(kinds, [LockKind::Put, LockKind::Lock]);
    }
}
