//! The store's types on the wire: there and back they are the same.

use store::{
    Assertion, AssertionLevel, Change, FeedEvent, Key, KeyError, KeyRange, KvPair, LockInfo, LockKind,
    Mutation, MutationOp, MvccInfo, MvccWrite, ReadContext, TxnStatus, Value, WriteKind,
};
use types::{Error, Result, Timestamp};

use super::{errors, missing, proto};

pub(super) fn range_to_wire(range: &KeyRange) -> proto::KeyRange {
    proto::KeyRange { start: range.start.clone(), end: range.end.clone() }
}

pub(super) fn range_from_wire(range: proto::KeyRange) -> KeyRange {
    KeyRange { start: range.start, end: range.end }
}

pub(super) fn context_to_wire(context: &ReadContext) -> proto::ReadContext {
    let numbers = |timestamps: &[Timestamp]| timestamps.iter().map(|ts| ts.0).collect();
    proto::ReadContext {
        ts: context.ts.0,
        resolved_locks: numbers(&context.resolved_locks),
        committed_locks: numbers(&context.committed_locks),
    }
}

pub(super) fn context_from_wire(context: proto::ReadContext) -> ReadContext {
    let timestamps = |numbers: Vec<u64>| numbers.into_iter().map(Timestamp).collect();
    ReadContext {
        ts: Timestamp(context.ts),
        resolved_locks: timestamps(context.resolved_locks),
        committed_locks: timestamps(context.committed_locks),
    }
}

pub(super) fn lock_to_wire(lock: &LockInfo) -> proto::LockInfo {
    let kind = match lock.kind {
        LockKind::Put => proto::LockKind::Put,
        LockKind::Delete => proto::LockKind::Delete,
        LockKind::Lock => proto::LockKind::Lock,
    };
    proto::LockInfo {
        key: lock.key.clone(),
        primary: lock.primary.clone(),
        start_ts: lock.start_ts.0,
        ttl_ms: lock.ttl_ms,
        txn_size: lock.txn_size,
        kind: kind.into(),
        min_commit_ts: lock.min_commit_ts.0,
    }
}

pub(super) fn lock_from_wire(lock: proto::LockInfo) -> Result<LockInfo> {
    let kind = match lock.kind() {
        proto::LockKind::Put => LockKind::Put,
        proto::LockKind::Delete => LockKind::Delete,
        proto::LockKind::Lock => LockKind::Lock,
        proto::LockKind::Unspecified => return Err(missing("the kind of a lock")),
    };
    Ok(LockInfo {
        key: lock.key,
        primary: lock.primary,
        start_ts: Timestamp(lock.start_ts),
        ttl_ms: lock.ttl_ms,
        txn_size: lock.txn_size,
        kind,
        min_commit_ts: Timestamp(lock.min_commit_ts),
    })
}

fn assertion_to_wire(assertion: Assertion) -> proto::Assertion {
    match assertion {
        Assertion::None => proto::Assertion::None,
        Assertion::Exist => proto::Assertion::Exist,
        Assertion::NotExist => proto::Assertion::NotExist,
    }
}

fn assertion_from_wire(assertion: proto::Assertion) -> Assertion {
    match assertion {
        proto::Assertion::None => Assertion::None,
        proto::Assertion::Exist => Assertion::Exist,
        proto::Assertion::NotExist => Assertion::NotExist,
    }
}

pub(super) fn level_to_wire(level: AssertionLevel) -> proto::AssertionLevel {
    match level {
        AssertionLevel::Off => proto::AssertionLevel::Off,
        AssertionLevel::Fast => proto::AssertionLevel::Fast,
        AssertionLevel::Strict => proto::AssertionLevel::Strict,
    }
}

pub(super) fn level_from_wire(level: proto::AssertionLevel) -> AssertionLevel {
    match level {
        proto::AssertionLevel::Off => AssertionLevel::Off,
        proto::AssertionLevel::Fast => AssertionLevel::Fast,
        proto::AssertionLevel::Strict => AssertionLevel::Strict,
    }
}

pub(super) fn error_to_wire(error: &KeyError) -> proto::KeyError {
    use proto::key_error::Kind;
    let kind = match error {
        KeyError::Locked(lock) => Kind::Locked(lock_to_wire(lock)),
        KeyError::WriteConflict {
            key,
            start_ts,
            conflict_start_ts,
            conflict_commit_ts,
            self_rolled_back,
        } => Kind::WriteConflict(proto::WriteConflict {
            key: key.clone(),
            start_ts: start_ts.0,
            conflict_start_ts: conflict_start_ts.0,
            conflict_commit_ts: conflict_commit_ts.0,
            self_rolled_back: *self_rolled_back,
        }),
        KeyError::AlreadyExists(key) => Kind::AlreadyExists(key.clone()),
        KeyError::CommitTsExpired { attempted, min_commit_ts } => {
            Kind::CommitTsExpired(proto::CommitTsExpired {
                attempted: attempted.0,
                min_commit_ts: min_commit_ts.0,
            })
        }
        KeyError::TxnNotFound { start_ts, primary } => {
            Kind::TxnNotFound(proto::TxnNotFound { start_ts: start_ts.0, primary: primary.clone() })
        }
        KeyError::TxnLockNotFound(key) => Kind::TxnLockNotFound(key.clone()),
        KeyError::AssertionFailed { key, assertion } => Kind::AssertionFailed(proto::AssertionFailed {
            key: key.clone(),
            assertion: assertion_to_wire(*assertion).into(),
        }),
        KeyError::PrimaryMismatch(lock) => Kind::PrimaryMismatch(lock_to_wire(lock)),
        KeyError::Abort(text) => Kind::Abort(text.clone()),
        KeyError::Store(error) => Kind::Store(errors::to_wire(error)),
    };
    proto::KeyError { kind: Some(kind) }
}

pub(super) fn error_from_wire(error: proto::KeyError) -> KeyError {
    use proto::key_error::Kind;
    let Some(kind) = error.kind else { return KeyError::Store(missing("the kind of a key's error")) };
    match kind {
        Kind::Locked(lock) => match lock_from_wire(lock) {
            Ok(lock) => KeyError::Locked(Box::new(lock)),
            Err(error) => KeyError::Store(error),
        },
        Kind::WriteConflict(conflict) => KeyError::WriteConflict {
            key: conflict.key,
            start_ts: Timestamp(conflict.start_ts),
            conflict_start_ts: Timestamp(conflict.conflict_start_ts),
            conflict_commit_ts: Timestamp(conflict.conflict_commit_ts),
            self_rolled_back: conflict.self_rolled_back,
        },
        Kind::AlreadyExists(key) => KeyError::AlreadyExists(key),
        Kind::CommitTsExpired(expired) => KeyError::CommitTsExpired {
            attempted: Timestamp(expired.attempted),
            min_commit_ts: Timestamp(expired.min_commit_ts),
        },
        Kind::TxnNotFound(unknown) => {
            KeyError::TxnNotFound { start_ts: Timestamp(unknown.start_ts), primary: unknown.primary }
        }
        Kind::TxnLockNotFound(key) => KeyError::TxnLockNotFound(key),
        Kind::AssertionFailed(failed) => {
            let assertion = assertion_from_wire(failed.assertion());
            KeyError::AssertionFailed { key: failed.key, assertion }
        }
        Kind::PrimaryMismatch(lock) => match lock_from_wire(lock) {
            Ok(lock) => KeyError::PrimaryMismatch(Box::new(lock)),
            Err(error) => KeyError::Store(error),
        },
        Kind::Abort(text) => KeyError::Abort(text),
        Kind::Store(error) => KeyError::Store(errors::from_wire(&error)),
    }
}

pub(super) fn mutation_to_wire(mutation: Mutation) -> proto::Mutation {
    let op = match mutation.op {
        MutationOp::Put => proto::MutationOp::Put,
        MutationOp::Delete => proto::MutationOp::Delete,
        MutationOp::Lock => proto::MutationOp::Lock,
        MutationOp::Insert => proto::MutationOp::Insert,
        MutationOp::CheckNotExists => proto::MutationOp::CheckNotExists,
    };
    let assertion = assertion_to_wire(mutation.assertion).into();
    proto::Mutation { op: op.into(), key: mutation.key, value: mutation.value, assertion }
}

pub(super) fn mutation_from_wire(mutation: proto::Mutation) -> Result<Mutation> {
    let op = match mutation.op() {
        proto::MutationOp::Put => MutationOp::Put,
        proto::MutationOp::Delete => MutationOp::Delete,
        proto::MutationOp::Lock => MutationOp::Lock,
        proto::MutationOp::Insert => MutationOp::Insert,
        proto::MutationOp::CheckNotExists => MutationOp::CheckNotExists,
        proto::MutationOp::Unspecified => return Err(Error::invalid("mutation without an operation")),
    };
    let assertion = assertion_from_wire(mutation.assertion());
    Ok(Mutation { op, key: mutation.key, value: mutation.value, assertion })
}

pub(super) fn pair_to_wire(pair: KvPair) -> proto::Pair {
    match pair.value {
        Ok(value) => proto::Pair { key: pair.key, value, error: None },
        Err(error) => proto::Pair { key: pair.key, value: Value::new(), error: Some(error_to_wire(&error)) },
    }
}

pub(super) fn pair_from_wire(pair: proto::Pair) -> KvPair {
    let value = match pair.error {
        None => Ok(pair.value),
        Some(error) => Err(error_from_wire(error)),
    };
    KvPair { key: pair.key, value }
}

pub(super) fn status_to_wire(status: &TxnStatus) -> proto::check_txn_status_response::Answer {
    use proto::check_txn_status_response::Answer;
    match status {
        TxnStatus::Committed(commit_ts) => Answer::Committed(commit_ts.0),
        TxnStatus::RolledBack => Answer::RolledBack(proto::RolledBack {}),
        TxnStatus::Alive { lock, pushed } => {
            Answer::Alive(proto::Alive { lock: Some(lock_to_wire(lock)), pushed: *pushed })
        }
    }
}

fn write_kind_to_wire(kind: WriteKind) -> proto::WriteKind {
    match kind {
        WriteKind::Put => proto::WriteKind::Put,
        WriteKind::Delete => proto::WriteKind::Delete,
        WriteKind::Lock => proto::WriteKind::Lock,
        WriteKind::Rollback => proto::WriteKind::Rollback,
    }
}

fn write_kind_from_wire(kind: proto::WriteKind) -> Result<WriteKind> {
    match kind {
        proto::WriteKind::Put => Ok(WriteKind::Put),
        proto::WriteKind::Delete => Ok(WriteKind::Delete),
        proto::WriteKind::Lock => Ok(WriteKind::Lock),
        proto::WriteKind::Rollback => Ok(WriteKind::Rollback),
        proto::WriteKind::Unspecified => Err(missing("the kind of a write")),
    }
}

pub(super) fn mvcc_to_wire(info: MvccInfo) -> proto::MvccGetResponse {
    let writes = info.writes.into_iter().map(|write| proto::MvccWrite {
        kind: write_kind_to_wire(write.kind).into(),
        start_ts: write.start_ts.0,
        commit_ts: write.commit_ts.0,
        value: write.value,
    });
    proto::MvccGetResponse {
        lock: info.lock.as_ref().map(lock_to_wire),
        writes: writes.collect(),
        error: None,
    }
}

pub(super) fn mvcc_from_wire(info: proto::MvccGetResponse) -> Result<MvccInfo> {
    let writes = info.writes.into_iter().map(|write| {
        Ok(MvccWrite {
            kind: write_kind_from_wire(write.kind())?,
            start_ts: Timestamp(write.start_ts),
            commit_ts: Timestamp(write.commit_ts),
            value: write.value,
        })
    });
    Ok(MvccInfo { writes: writes.collect::<Result<_>>()?, lock: info.lock.map(lock_from_wire).transpose()? })
}

pub(super) fn change_to_wire(change: Change) -> proto::Change {
    proto::Change {
        key: change.key,
        start_ts: change.start_ts.0,
        commit_ts: change.commit_ts.0,
        value: change.value,
        old_value: change.old_value,
    }
}

pub(super) fn change_from_wire(change: proto::Change) -> Change {
    Change {
        key: change.key,
        start_ts: Timestamp(change.start_ts),
        commit_ts: Timestamp(change.commit_ts),
        value: change.value,
        old_value: change.old_value,
    }
}

pub(super) fn cursor_to_wire(cursor: (Timestamp, Key)) -> proto::Cursor {
    proto::Cursor { commit_ts: cursor.0.0, key: cursor.1 }
}

pub(super) fn cursor_from_wire(cursor: proto::Cursor) -> (Timestamp, Key) {
    (Timestamp(cursor.commit_ts), cursor.key)
}

pub(super) fn event_to_wire(event: FeedEvent) -> proto::FeedEvent {
    use proto::feed_event::Event;
    let event = match event {
        FeedEvent::Change(change) => Event::Change(change_to_wire(change)),
        FeedEvent::Resolved(ts) => Event::Resolved(ts.0),
    };
    proto::FeedEvent { event: Some(event) }
}

pub(super) fn event_from_wire(event: proto::FeedEvent) -> Result<FeedEvent> {
    use proto::feed_event::Event;
    match event.event.ok_or_else(|| missing("an event"))? {
        Event::Change(change) => Ok(FeedEvent::Change(change_from_wire(change))),
        Event::Resolved(ts) => Ok(FeedEvent::Resolved(Timestamp(ts))),
    }
}
