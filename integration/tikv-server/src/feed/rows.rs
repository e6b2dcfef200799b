//! The rows of the feed.

use bytes::Bytes;
use store::{Key, LockInfo, LockKind, Mutation, MutationOp, MvccWrite, WriteKind};
use tikv::proto::cdcpb::{LogType, OpType, Row};
use types::Timestamp;

use crate::mvcc::SHORT_VALUE_BYTES_MAX;

/// Whether the feed shows locks of a mutation.
pub(crate) fn is_shown(op: MutationOp) -> bool {
    matches!(op, MutationOp::Put | MutationOp::Insert | MutationOp::Delete)
}

/// A lock that a mutation has just made.
pub(crate) fn prewritten(start_ts: Timestamp, mutation: &Mutation, old_value: Bytes) -> Row {
    let op = if mutation.op == MutationOp::Delete { OpType::Delete } else { OpType::Put };
    Row {
        start_ts: start_ts.0,
        r#type: LogType::Prewrite.into(),
        op_type: op.into(),
        key: mutation.key.clone(),
        value: mutation.value.clone(),
        old_value,
        ..Row::default()
    }
}

/// A lock that is there.
pub(crate) fn locked(lock: &LockInfo, value: Bytes, old_value: Bytes, txn_source: u64) -> Row {
    let op = if lock.kind == LockKind::Delete { OpType::Delete } else { OpType::Put };
    Row {
        start_ts: lock.start_ts.0,
        r#type: LogType::Prewrite.into(),
        op_type: op.into(),
        key: lock.key.clone(),
        value,
        old_value,
        txn_source,
        ..Row::default()
    }
}

fn written(key: &Key, write: &MvccWrite, txn_source: u64) -> Row {
    let op = if write.kind == WriteKind::Delete { OpType::Delete } else { OpType::Put };
    Row {
        start_ts: write.start_ts.0,
        commit_ts: write.commit_ts.0,
        op_type: op.into(),
        key: key.clone(),
        txn_source,
        ..Row::default()
    }
}

/// A commit of what was shown as a lock: with a value only if the record has it.
pub(crate) fn committed_later(key: &Key, write: &MvccWrite, txn_source: u64) -> Row {
    let value = write.value.clone().filter(|value| value.len() <= SHORT_VALUE_BYTES_MAX);
    Row {
        r#type: LogType::Commit.into(),
        value: value.unwrap_or_default(),
        ..written(key, write, txn_source)
    }
}

/// A committed version, complete.
pub(crate) fn committed(key: &Key, write: &MvccWrite, old_value: Bytes, txn_source: u64) -> Row {
    Row {
        r#type: LogType::Committed.into(),
        value: write.value.clone().unwrap_or_default(),
        old_value,
        ..written(key, write, txn_source)
    }
}

/// A rollback.
pub(crate) fn rolled_back(key: &Key, start_ts: Timestamp, protected: bool) -> Row {
    Row {
        start_ts: start_ts.0,
        r#type: LogType::Rollback.into(),
        key: key.clone(),
        value: if protected { Bytes::from_static(b"p") } else { Bytes::new() },
        ..Row::default()
    }
}

/// The end of a scan.
pub(crate) fn initialized() -> Row {
    Row { r#type: LogType::Initialized.into(), ..Row::default() }
}
