//! Pessimistic locks, as transactions of TiDB take them before they know what they will write.
//!
//! They are in the store's memory only, beside the engine: no reader meets them, no resolved timestamp waits
//! for them, no feed shows them. Writers and lists of locks do meet them. A prewrite turns them into locks of
//! the engine; a rollback without a record, or one with it, ends them.

use bytes::Bytes;
use store::{AssertionLevel, Key, KeyRange, Mutation, MutationOp, PrewriteRequest, WriteKind};
use tikv::proto::kvrpcpb::{self, Action, prewrite_request::PessimisticAction, write_conflict::Reason};
use tonic::Status;
use types::Timestamp;

use super::decide::Missing;
use super::{Fate, Mvcc, Side, Story};
use crate::check::Refusal;

impl Side {
    /// The pessimistic lock that a transaction has on a key.
    pub(crate) fn pessimistic_of(&self, key: &[u8], start_ts: Timestamp) -> Option<&kvrpcpb::LockInfo> {
        self.pessimistic.get(key).filter(|lock| lock.lock_version == start_ts.0)
    }

    /// The pessimistic lock of another transaction on a key, as an error.
    pub(crate) fn in_the_way(&self, key: &[u8], start_ts: Timestamp) -> Option<kvrpcpb::KeyError> {
        let lock = self.pessimistic.get(key).filter(|lock| lock.lock_version != start_ts.0)?;
        Some(kvrpcpb::KeyError { locked: Some(lock.clone()), ..kvrpcpb::KeyError::default() })
    }

    /// Forgets the pessimistic lock that a transaction has on a key.
    pub(crate) fn forget_pessimistic(
        &mut self,
        key: &[u8],
        start_ts: Timestamp,
    ) -> Option<kvrpcpb::LockInfo> {
        self.pessimistic_of(key, start_ts)?;
        self.pessimistic.remove(key)
    }

    /// The pessimistic locks in a range with a start up to a timestamp.
    pub(crate) fn pessimistic_in(
        &self,
        range: &KeyRange,
        max_ts: Timestamp,
    ) -> impl Iterator<Item = &kvrpcpb::LockInfo> {
        let (range, max_ts) = (range.clone(), max_ts.0);
        self.pessimistic.values().filter(move |lock| range.contains(&lock.key) && lock.lock_version <= max_ts)
    }
}

fn abort(text: String) -> kvrpcpb::KeyError {
    kvrpcpb::KeyError { abort: text, ..kvrpcpb::KeyError::default() }
}

impl Mvcc {
    /// Locks keys for a transaction that has seen what committed up to `for_update_ts`; all or none. Who is
    /// in the way is reported at once, however long the caller would wait.
    pub(crate) async fn pessimistic_lock(
        &self,
        store_id: u64,
        request: kvrpcpb::PessimisticLockRequest,
    ) -> Result<kvrpcpb::PessimisticLockResponse, Refusal> {
        let keys: Vec<Key> = request.mutations.iter().map(|mutation| mutation.key.clone()).collect();
        let mut side = self.exclusive_over(&keys).await;
        let region = self.region(&side, store_id, request.context.as_ref())?;
        self.note_unissued("KvPessimisticLock", "start timestamp", Timestamp(request.start_version));
        self.note_unissued("KvPessimisticLock", "for_update_ts", Timestamp(request.for_update_ts));
        let mut answer = kvrpcpb::PessimisticLockResponse::default();
        if let Some(error) = Mvcc::outside(&region, &keys) {
            answer.errors.push(error);
            return Ok(answer);
        }
        for key in &keys {
            let story = self.story(key).await?;
            if let Some(error) = refusal(&side, &story, key, &request) {
                answer.errors.push(error);
                answer.values.clear();
                answer.not_founds.clear();
                return Ok(answer);
            }
            let newest = story.version_at(Timestamp::MAX).and_then(|write| write.value.clone());
            if request.return_values || request.check_existence {
                answer.not_founds.push(newest.is_none());
            }
            if request.return_values {
                answer.values.push(newest.unwrap_or_default());
            }
        }
        for key in keys {
            let own = side.pessimistic_of(&key, Timestamp(request.start_version));
            let for_update_ts = own.map_or(0, |lock| lock.lock_for_update_ts).max(request.for_update_ts);
            let lock = kvrpcpb::LockInfo {
                primary_lock: request.primary_lock.clone(),
                lock_version: request.start_version,
                key: key.clone(),
                lock_ttl: request.lock_ttl,
                lock_type: kvrpcpb::Op::PessimisticLock.into(),
                lock_for_update_ts: for_update_ts,
                min_commit_ts: request.min_commit_ts,
                ..kvrpcpb::LockInfo::default()
            };
            side.pessimistic.insert(key, lock);
        }
        Ok(answer)
    }

    /// Takes pessimistic locks back and leaves no record.
    pub(crate) async fn pessimistic_rollback(
        &self,
        store_id: u64,
        request: kvrpcpb::PessimisticRollbackRequest,
    ) -> Result<kvrpcpb::PessimisticRollbackResponse, Refusal> {
        let mut side = self.exclusive_over(&request.keys).await;
        let region = self.region(&side, store_id, request.context.as_ref())?;
        let mut answer = kvrpcpb::PessimisticRollbackResponse::default();
        if let Some(error) = Mvcc::outside(&region, &request.keys) {
            answer.errors.push(error);
            return Ok(answer);
        }
        let start_ts = Timestamp(request.start_version);
        for key in &request.keys {
            let own = side.pessimistic_of(key, start_ts);
            if own.is_some_and(|lock| lock.lock_for_update_ts <= request.for_update_ts) {
                side.forget_pessimistic(key, start_ts);
            }
        }
        Ok(answer)
    }

    /// What pessimistic locks say against a prewrite: another transaction's, or one that is missing.
    pub(crate) async fn pessimistic_refusals(
        &self,
        side: &Side,
        request: &kvrpcpb::PrewriteRequest,
    ) -> Result<Vec<kvrpcpb::KeyError>, Refusal> {
        let start_ts = Timestamp(request.start_version);
        let keys = || request.mutations.iter().map(|mutation| &mutation.key);
        let met: Vec<kvrpcpb::KeyError> = keys().filter_map(|key| side.in_the_way(key, start_ts)).collect();
        if !met.is_empty() {
            return Ok(met);
        }
        for (key, action) in keys().zip(&request.pessimistic_actions) {
            match PessimisticAction::try_from(*action) {
                Ok(PessimisticAction::SkipPessimisticCheck) => {}
                Ok(PessimisticAction::DoPessimisticCheck) => {
                    let story = self.story(key).await?;
                    let committed = matches!(story.fate(start_ts), Some(Fate::Committed(_)));
                    let is_locked =
                        side.pessimistic_of(key, start_ts).is_some() || story.own_lock(start_ts).is_some();
                    if !is_locked && !committed {
                        let text = format!(
                            "Error(Txn(Error(Mvcc(Error(PessimisticLockNotFound {{ start_ts: TimeStamp({start_ts}), \
                             key: {:?} }})))))",
                            key.as_ref()
                        );
                        return Ok(vec![abort(text)]);
                    }
                }
                Ok(PessimisticAction::DoConstraintCheck) | Err(_) => {
                    let text = format!("this server has no pessimistic action {action}");
                    return Err(Status::unimplemented(text).into());
                }
            }
        }
        Ok(Vec::new())
    }

    /// A transaction's status where its primary has a pessimistic lock; `None` if it has none.
    pub(crate) async fn pessimistic_status(
        &self,
        side: &mut Side,
        request: &kvrpcpb::CheckTxnStatusRequest,
    ) -> Result<Option<kvrpcpb::CheckTxnStatusResponse>, Refusal> {
        let (key, start_ts) = (&request.primary_key, Timestamp(request.lock_ts));
        let mut answer = kvrpcpb::CheckTxnStatusResponse::default();
        let Some(lock) = side.pessimistic_of(key, start_ts).cloned() else {
            let story = self.story(key).await?;
            let nothing = story.own_lock(start_ts).is_none() && story.fate(start_ts).is_none();
            if nothing && request.rollback_if_not_exist && request.resolving_pessimistic_lock {
                answer.set_action(Action::LockNotExistDoNothing);
                return Ok(Some(answer));
            }
            return Ok(None);
        };
        if request.verify_is_primary && lock.primary_lock != *key {
            let mismatch = kvrpcpb::PrimaryMismatch { lock_info: Some(lock) };
            answer.error =
                Some(kvrpcpb::KeyError { primary_mismatch: Some(mismatch), ..kvrpcpb::KeyError::default() });
            return Ok(Some(answer));
        }
        let current = Timestamp(request.current_ts);
        let ends_ms = start_ts.physical_ms().saturating_add(lock.lock_ttl);
        if current != Timestamp::MAX && ends_ms >= current.physical_ms() {
            answer.lock_ttl = lock.lock_ttl;
            answer.lock_info = Some(lock);
            return Ok(Some(answer));
        }
        if request.resolving_pessimistic_lock {
            side.forget_pessimistic(key, start_ts);
            answer.set_action(Action::TtlExpirePessimisticRollback);
        } else {
            answer.error =
                self.roll_back(side, start_ts, std::slice::from_ref(key), Missing::Protected).await?;
            answer.set_action(Action::TtlExpireRollback);
        }
        Ok(Some(answer))
    }

    /// A pessimistic lock of a transaction that has committed becomes a lock that guards and writes nothing,
    /// so that it can be committed too.
    pub(crate) async fn settle_pessimistic(
        &self,
        side: &mut Side,
        start_ts: Timestamp,
        keys: &[Key],
    ) -> Result<(), Refusal> {
        for key in keys {
            let Some(lock) = side.forget_pessimistic(key, start_ts) else { continue };
            side.note_keys(&self.store, [key]).await?;
            let request = guard(&lock, start_ts);
            if let Err(errors) = self.store.prewrite_having_seen(request, Timestamp::MAX).await {
                return Err(Status::internal(format!("{errors:?}")).into());
            }
        }
        Ok(())
    }
}

/// Why a key cannot be locked.
fn refusal(
    side: &Side,
    story: &Story,
    key: &Bytes,
    request: &kvrpcpb::PessimisticLockRequest,
) -> Option<kvrpcpb::KeyError> {
    let (start_ts, seen) = (Timestamp(request.start_version), Timestamp(request.for_update_ts));
    if let Some(error) = side.in_the_way(key, start_ts) {
        return Some(error);
    }
    if let Some(lock) = &story.0.lock {
        if lock.start_ts != start_ts {
            let locked = Some(side.show_lock(lock));
            return Some(kvrpcpb::KeyError { locked, ..kvrpcpb::KeyError::default() });
        }
        return Some(abort(format!(
            "Error(Txn(Error(Mvcc(Error(LockTypeNotMatch {{ start_ts: {start_ts} }})))))"
        )));
    }
    if story.fate(start_ts) == Some(Fate::RolledBack) {
        let text =
            format!("Error(Txn(Error(Mvcc(Error(PessimisticLockRolledBack {{ start_ts: {start_ts} }})))))");
        return Some(abort(text));
    }
    let newer =
        story.0.writes.iter().find(|write| write.kind != WriteKind::Rollback && write.commit_ts > seen)?;
    let conflict = kvrpcpb::WriteConflict {
        start_ts: start_ts.0,
        conflict_ts: newer.start_ts.0,
        key: key.clone(),
        primary: request.primary_lock.clone(),
        conflict_commit_ts: newer.commit_ts.0,
        reason: Reason::PessimisticRetry.into(),
    };
    Some(kvrpcpb::KeyError {
        retryable: format!("Error(Txn(Error(Mvcc(Error(WriteConflict {{ start_ts: {start_ts} }})))))"),
        conflict: Some(conflict),
        ..kvrpcpb::KeyError::default()
    })
}

fn guard(lock: &kvrpcpb::LockInfo, start_ts: Timestamp) -> PrewriteRequest {
    let mutation = Mutation {
        op: MutationOp::Lock,
        key: lock.key.clone(),
        value: Bytes::new(),
        assertion: store::Assertion::None,
    };
    PrewriteRequest {
        mutations: vec![mutation],
        primary: lock.primary_lock.clone(),
        start_ts,
        ttl_ms: lock.lock_ttl,
        txn_size: 1,
        min_commit_ts: Timestamp::ZERO,
        assertion_level: AssertionLevel::Off,
        staged: false,
    }
}
