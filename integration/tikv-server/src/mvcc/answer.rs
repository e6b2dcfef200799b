//! The engine's errors as a real store words them, and what all answers have in common.
//!
//! A KeyError is no choice of one field: a conflict comes with a text in `retryable`, and so does a lock
//! that is not there. Clients must test the fields in the right order, which these answers let tests see.

use bytes::Bytes;
use store::{Assertion, KeyError, LockInfo, MutationOp};
use tikv::proto::kvrpcpb::{self, write_conflict::Reason};
use tikv::proto::{errorpb, kvrpcpb::Context};
use tonic::Status;
use types::Timestamp;

use super::{Side, Story};
use crate::check::Refusal;

/// Values up to this length are kept in locks and write records.
pub(crate) const SHORT_VALUE_BYTES_MAX: usize = 255;

/// A value as records keep it.
pub(crate) fn short(value: &Bytes) -> Option<Bytes> {
    (value.len() <= SHORT_VALUE_BYTES_MAX).then(|| value.clone())
}

/// A request and its answer, as far as every call has the same fields.
pub(crate) trait Unary: prost::Message + Default + 'static {
    type Answer: prost::Message + Default + 'static;
    const RPC: &'static str;

    fn context(&self) -> Option<&Context>;

    fn refused(error: errorpb::Error) -> Self::Answer;
}

macro_rules! unary {
    ($($rpc:literal: $request:ident -> $answer:ident;)*) => {$(
        impl Unary for kvrpcpb::$request {
            type Answer = kvrpcpb::$answer;
            const RPC: &'static str = $rpc;

            fn context(&self) -> Option<&Context> {
                self.context.as_ref()
            }

            fn refused(error: errorpb::Error) -> kvrpcpb::$answer {
                kvrpcpb::$answer { region_error: Some(error), ..kvrpcpb::$answer::default() }
            }
        }
    )*};
}

unary! {
    "KvGet": GetRequest -> GetResponse;
    "KvBatchGet": BatchGetRequest -> BatchGetResponse;
    "KvScan": ScanRequest -> ScanResponse;
    "KvPrewrite": PrewriteRequest -> PrewriteResponse;
    "KvPessimisticLock": PessimisticLockRequest -> PessimisticLockResponse;
    "KVPessimisticRollback": PessimisticRollbackRequest -> PessimisticRollbackResponse;
    "KvCommit": CommitRequest -> CommitResponse;
    "KvBatchRollback": BatchRollbackRequest -> BatchRollbackResponse;
    "KvCheckTxnStatus": CheckTxnStatusRequest -> CheckTxnStatusResponse;
    "KvCheckSecondaryLocks": CheckSecondaryLocksRequest -> CheckSecondaryLocksResponse;
    "KvResolveLock": ResolveLockRequest -> ResolveLockResponse;
    "KvTxnHeartBeat": TxnHeartBeatRequest -> TxnHeartBeatResponse;
    "KvScanLock": ScanLockRequest -> ScanLockResponse;
    "MvccGetByKey": MvccGetByKeyRequest -> MvccGetByKeyResponse;
    "KvCleanup": CleanupRequest -> CleanupResponse;
    "SplitRegion": SplitRegionRequest -> SplitRegionResponse;
}

/// What the wording of an error needs beside the error.
pub(crate) struct Wording<'a> {
    pub side: &'a Side,
    pub start_ts: Timestamp,
    pub primary: &'a Bytes,
    /// The commit timestamp of the request, if it has one.
    pub commit_ts: Timestamp,
}

impl Wording<'_> {
    /// Words an error; the engine's own failures are not errors of a key.
    pub(crate) fn word(&self, error: &KeyError) -> Result<kvrpcpb::KeyError, Refusal> {
        let mut worded = kvrpcpb::KeyError::default();
        match error {
            KeyError::Locked(lock) => worded.locked = Some(self.side.show_lock(lock)),
            KeyError::WriteConflict { .. } => self.word_conflict(error, &mut worded),
            KeyError::AlreadyExists(key) => {
                worded.already_exist = Some(kvrpcpb::AlreadyExist { key: key.clone() });
            }
            KeyError::CommitTsExpired { attempted, min_commit_ts } => {
                worded.commit_ts_expired = Some(kvrpcpb::CommitTsExpired {
                    start_ts: self.start_ts.0,
                    attempted_commit_ts: attempted.0,
                    key: self.primary.clone(),
                    min_commit_ts: min_commit_ts.0,
                });
            }
            KeyError::TxnNotFound { start_ts, primary } => {
                worded.txn_not_found =
                    Some(kvrpcpb::TxnNotFound { start_ts: start_ts.0, primary_key: primary.clone() });
            }
            KeyError::TxnLockNotFound(key) => {
                worded.txn_lock_not_found = Some(kvrpcpb::TxnLockNotFound { key: key.clone() });
                worded.retryable = format!(
                    "Error(Txn(Error(Mvcc(Error(TxnLockNotFound {{ start_ts: TimeStamp({}), \
                     commit_ts: TimeStamp({}), key: {:?} }})))))",
                    self.start_ts,
                    self.commit_ts,
                    key.as_ref()
                );
            }
            KeyError::AssertionFailed { key, assertion } => {
                worded.assertion_failed = Some(kvrpcpb::AssertionFailed {
                    start_ts: self.start_ts.0,
                    key: key.clone(),
                    assertion: assertion_number(*assertion),
                    ..kvrpcpb::AssertionFailed::default()
                });
            }
            KeyError::PrimaryMismatch(lock) => {
                worded.primary_mismatch =
                    Some(kvrpcpb::PrimaryMismatch { lock_info: Some(self.side.show_lock(lock)) });
            }
            KeyError::Abort(text) => worded.abort = format!("Error(Txn(Error(Mvcc(Error({text})))))"),
            KeyError::Store(error) => return Err(Status::internal(error.to_string()).into()),
        }
        Ok(worded)
    }

    fn word_conflict(&self, error: &KeyError, worded: &mut kvrpcpb::KeyError) {
        let KeyError::WriteConflict {
            key,
            start_ts,
            conflict_start_ts,
            conflict_commit_ts,
            self_rolled_back,
        } = error
        else {
            return;
        };
        let reason = if *self_rolled_back { Reason::SelfRolledBack } else { Reason::Optimistic };
        worded.retryable = format!(
            "Error(Txn(Error(Mvcc(Error(WriteConflict {{ start_ts: TimeStamp({start_ts}), \
             conflict_start_ts: TimeStamp({conflict_start_ts}), \
             conflict_commit_ts: TimeStamp({conflict_commit_ts}), key: {:?}, primary: {:?}, \
             reason: {reason:?} }})))))",
            key.as_ref(),
            self.primary.as_ref()
        );
        worded.conflict = Some(kvrpcpb::WriteConflict {
            start_ts: start_ts.0,
            conflict_ts: conflict_start_ts.0,
            key: key.clone(),
            primary: self.primary.clone(),
            conflict_commit_ts: conflict_commit_ts.0,
            reason: reason.into(),
        });
    }
}

fn assertion_number(assertion: Assertion) -> i32 {
    match assertion {
        Assertion::None => kvrpcpb::Assertion::None,
        Assertion::Exist => kvrpcpb::Assertion::Exist,
        Assertion::NotExist => kvrpcpb::Assertion::NotExist,
    }
    .into()
}

/// Adds what the previous write was to a failed assertion.
pub(crate) fn explain_assertion(worded: &mut kvrpcpb::KeyError, story: &Story) {
    let Some(failed) = &mut worded.assertion_failed else { return };
    if let Some(previous) = story.version_at(Timestamp::MAX) {
        failed.existing_start_ts = previous.start_ts.0;
        failed.existing_commit_ts = previous.commit_ts.0;
    }
}

/// A lock that was committed before the caller came, in words.
pub(crate) fn committed_text(start_ts: Timestamp, commit_ts: Timestamp, key: &[u8]) -> String {
    format!(
        "Committed {{ start_ts: TimeStamp({start_ts}), commit_ts: TimeStamp({commit_ts}), key: {key:?} }}"
    )
}

/// A mutation of the engine for one of a request.
pub(crate) fn mutation(asked: &kvrpcpb::Mutation) -> Result<store::Mutation, Status> {
    let op = match asked.op() {
        kvrpcpb::Op::Put => MutationOp::Put,
        kvrpcpb::Op::Del => MutationOp::Delete,
        kvrpcpb::Op::Lock => MutationOp::Lock,
        kvrpcpb::Op::Insert => MutationOp::Insert,
        kvrpcpb::Op::CheckNotExists => MutationOp::CheckNotExists,
        other => return Err(Status::unimplemented(format!("this server has no mutation {other:?}"))),
    };
    let assertion = match asked.assertion() {
        kvrpcpb::Assertion::None => Assertion::None,
        kvrpcpb::Assertion::Exist => Assertion::Exist,
        kvrpcpb::Assertion::NotExist => Assertion::NotExist,
    };
    let value =
        if matches!(op, MutationOp::Put | MutationOp::Insert) { asked.value.clone() } else { Bytes::new() };
    Ok(store::Mutation { op, key: asked.key.clone(), value, assertion })
}

/// Whether a lock's value may be in the way of the feed and of readers.
pub(crate) fn changes(lock: &LockInfo) -> bool {
    lock.kind != store::LockKind::Lock
}
