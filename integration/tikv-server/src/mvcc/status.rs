//! Questions about a transaction: to its primary, to its secondaries, and a sign of life.
//!
//! A primary of an async commit is never rolled back here, however old it is, and never pushed: the asker
//! must look at its secondaries.

use bytes::Bytes;
use store::{LockInfo, Store, TxnStatus, TxnStatusRequest};
use tikv::proto::kvrpcpb::{self, Action};
use types::Timestamp;

use super::answer::{Wording, changes, short};
use super::decide::Missing;
use super::{Fate, Mvcc, Side};
use crate::check::Refusal;
use crate::feed::rows;

impl Mvcc {
    pub(crate) async fn check_txn_status(
        &self,
        store_id: u64,
        request: kvrpcpb::CheckTxnStatusRequest,
    ) -> Result<kvrpcpb::CheckTxnStatusResponse, Refusal> {
        let mut side = self.exclusive_over([&request.primary_key]).await;
        let region = self.region(&side, store_id, request.context.as_ref())?;
        self.check_known("KvCheckTxnStatus", "caller_start_ts", Timestamp(request.caller_start_ts))?;
        self.check_known("KvCheckTxnStatus", "current_ts", Timestamp(request.current_ts))?;
        let key = request.primary_key.clone();
        if let Some(error) = Mvcc::outside(&region, [&key]) {
            return Ok(failed(error));
        }
        self.bump_max_ts(store_id, Timestamp(request.caller_start_ts));
        self.bump_max_ts(store_id, Timestamp(request.current_ts));
        if let Some(answer) = self.pessimistic_status(&mut side, &request).await? {
            return Ok(answer);
        }
        let start_ts = Timestamp(request.lock_ts);
        let before = self.story(&key).await?;
        let own = before.own_lock(start_ts);
        if let Some(lock) = own
            && !request.force_sync_commit
            && side.extra(&key, start_ts).use_async_commit
            && (!request.verify_is_primary || lock.primary == key)
        {
            return Ok(alive(&side, lock, Action::NoAction));
        }
        let asked = TxnStatusRequest {
            primary: key.clone(),
            start_ts,
            caller_start_ts: Timestamp(request.caller_start_ts),
            current_ts: Timestamp(request.current_ts),
            rollback_if_not_exist: request.rollback_if_not_exist,
            verify_is_primary: request.verify_is_primary,
        };
        side.note_keys(&self.store, [&key]).await?;
        match self.store.check_txn_status(&asked).await {
            Err(error) => {
                let wording = Wording { side: &side, start_ts, primary: &key, commit_ts: Timestamp::ZERO };
                Ok(failed(wording.word(&error)?))
            }
            Ok(TxnStatus::Committed(commit_ts)) => Ok(kvrpcpb::CheckTxnStatusResponse {
                commit_version: commit_ts.0,
                ..kvrpcpb::CheckTxnStatusResponse::default()
            }),
            Ok(TxnStatus::RolledBack) => {
                let action = match (own, before.fate(start_ts)) {
                    (Some(_), _) => Action::TtlExpireRollback,
                    (None, Some(Fate::RolledBack)) => Action::NoAction,
                    (None, _) => Action::LockNotExistRollback,
                };
                if action != Action::NoAction {
                    let protected =
                        own.is_none_or(|lock| lock.primary == key) && !before.has_commit_at(start_ts);
                    side.settle(&self.store, &key, start_ts, protected).await?;
                    side.publish(&self.ledger, vec![rows::rolled_back(&key, start_ts, protected)]);
                }
                let mut answer = kvrpcpb::CheckTxnStatusResponse::default();
                answer.set_action(action);
                Ok(answer)
            }
            Ok(TxnStatus::Alive { lock, pushed }) => {
                if own.is_some_and(|own| own.min_commit_ts != lock.min_commit_ts) {
                    self.show_again(&side, &key, start_ts).await?;
                }
                let action = if pushed { Action::MinCommitTsPushed } else { Action::NoAction };
                Ok(alive(&side, &lock, action))
            }
        }
    }

    /// A lock that is written again is shown again, if its value is in it.
    async fn show_again(&self, side: &Side, key: &Bytes, start_ts: Timestamp) -> Result<(), Refusal> {
        let story = self.story(key).await?;
        let Some(lock) = story.own_lock(start_ts).filter(|lock| changes(lock)) else { return Ok(()) };
        let value = self.locked_value(lock).await?;
        if short(&value).is_some() {
            let source = side.extra(key, start_ts).txn_source;
            side.publish(&self.ledger, vec![rows::locked(lock, value, story.value_at(start_ts), source)]);
        }
        Ok(())
    }

    pub(crate) async fn check_secondary_locks(
        &self,
        store_id: u64,
        request: kvrpcpb::CheckSecondaryLocksRequest,
    ) -> Result<kvrpcpb::CheckSecondaryLocksResponse, Refusal> {
        let mut side = self.exclusive_over(&request.keys).await;
        let region = self.region(&side, store_id, request.context.as_ref())?;
        let start_ts = Timestamp(request.start_version);
        self.check_known("KvCheckSecondaryLocks", "start_version", start_ts)?;
        let mut answer = kvrpcpb::CheckSecondaryLocksResponse::default();
        if let Some(error) = Mvcc::outside(&region, &request.keys) {
            answer.error = Some(error);
            return Ok(answer);
        }
        self.bump_max_ts(store_id, start_ts);
        for key in &request.keys {
            let story = self.story(key).await?;
            if let Some(lock) = story.own_lock(start_ts) {
                answer.locks.push(side.show_lock(lock));
                continue;
            }
            answer.locks.clear();
            if let Some(Fate::Committed(commit_ts)) = story.fate(start_ts) {
                answer.commit_ts = commit_ts.0;
            } else {
                let keys = std::slice::from_ref(key);
                answer.error = self.roll_back(&mut side, start_ts, keys, Missing::Protected).await?;
            }
            break;
        }
        Ok(answer)
    }

    pub(crate) async fn heartbeat(
        &self,
        store_id: u64,
        request: kvrpcpb::TxnHeartBeatRequest,
    ) -> Result<kvrpcpb::TxnHeartBeatResponse, Refusal> {
        let mut side = self.exclusive_over([&request.primary_lock]).await;
        let region = self.region(&side, store_id, request.context.as_ref())?;
        let key = request.primary_lock.clone();
        let mut answer = kvrpcpb::TxnHeartBeatResponse::default();
        if let Some(error) = Mvcc::outside(&region, [&key]) {
            answer.error = Some(error);
            return Ok(answer);
        }
        let start_ts = Timestamp(request.start_version);
        if side.pessimistic_of(&key, start_ts).is_some()
            && let Some(lock) = side.pessimistic.get_mut(&key)
        {
            lock.lock_ttl = lock.lock_ttl.max(request.advise_lock_ttl);
            answer.lock_ttl = lock.lock_ttl;
            return Ok(answer);
        }
        let before = self.story(&key).await?.own_lock(start_ts).map(|lock| lock.ttl_ms);
        match self.store.heartbeat(&key, start_ts, request.advise_lock_ttl).await {
            Err(error) => {
                let wording = Wording { side: &side, start_ts, primary: &key, commit_ts: Timestamp::ZERO };
                answer.error = Some(wording.word(&error)?);
            }
            Ok(ttl_ms) => {
                if before.is_some_and(|before| before != ttl_ms) {
                    self.show_again(&side, &key, start_ts).await?;
                }
                answer.lock_ttl = ttl_ms;
            }
        }
        Ok(answer)
    }

    /// Ends a transaction at its primary, as older clients do: only if its time is over, or if the current
    /// timestamp is zero.
    pub(crate) async fn cleanup(
        &self,
        store_id: u64,
        request: kvrpcpb::CleanupRequest,
    ) -> Result<kvrpcpb::CleanupResponse, Refusal> {
        let mut side = self.exclusive_over([&request.key]).await;
        let region = self.region(&side, store_id, request.context.as_ref())?;
        self.check_known("KvCleanup", "current_ts", Timestamp(request.current_ts))?;
        let mut answer = kvrpcpb::CleanupResponse::default();
        if let Some(error) = Mvcc::outside(&region, [&request.key]) {
            answer.error = Some(error);
            return Ok(answer);
        }
        let (start_ts, current_ts) = (Timestamp(request.start_version), Timestamp(request.current_ts));
        let story = self.story(&request.key).await?;
        if let Some(lock) = story.own_lock(start_ts) {
            let ends_ms = start_ts.physical_ms().saturating_add(lock.ttl_ms);
            if current_ts != Timestamp::ZERO && ends_ms >= current_ts.physical_ms() {
                let locked = Some(side.show_lock(lock));
                answer.error = Some(kvrpcpb::KeyError { locked, ..kvrpcpb::KeyError::default() });
                return Ok(answer);
            }
        }
        if let Some(Fate::Committed(commit_ts)) = story.fate(start_ts) {
            answer.commit_version = commit_ts.0;
            return Ok(answer);
        }
        answer.error = self.roll_back(&mut side, start_ts, &[request.key], Missing::Protected).await?;
        Ok(answer)
    }
}

fn failed(error: kvrpcpb::KeyError) -> kvrpcpb::CheckTxnStatusResponse {
    kvrpcpb::CheckTxnStatusResponse { error: Some(error), ..kvrpcpb::CheckTxnStatusResponse::default() }
}

fn alive(side: &Side, lock: &LockInfo, action: Action) -> kvrpcpb::CheckTxnStatusResponse {
    let mut answer = kvrpcpb::CheckTxnStatusResponse {
        lock_ttl: lock.ttl_ms,
        lock_info: Some(side.show_lock(lock)),
        ..kvrpcpb::CheckTxnStatusResponse::default()
    };
    answer.set_action(action);
    answer
}
