//! What became of a transaction, and the end of its locks.
//!
//! The primary decides, except for an async commit, whose primary alone says nothing: when its time is over
//! all its keys are asked, and what they say together is carried out, so that callers never see the
//! difference. "Rolled back" is told by no time to live and no commit; the action in an answer is no safe
//! test.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use store::{Fate, Key, KeyError, KvResult, LockInfo, LockKind, TxnStatus, TxnStatusRequest};
use types::Timestamp;

use crate::cluster::Cluster;
use crate::key_error::{key_error, lock_info};
use crate::pd::Passed;
use crate::proto::kvrpcpb;

/// What the keys of an async commit say together.
#[derive(Debug, PartialEq, Eq)]
enum Together {
    Decided(Option<Timestamp>),
    /// One of them was locked as in an ordinary transaction: its primary decides after all.
    Fallback,
}

/// Puts the answers of an async commit's keys together, each with the number of keys that it is for.
fn together(primary_least: Timestamp, answers: &[(usize, kvrpcpb::CheckSecondaryLocksResponse)]) -> Together {
    let mut least = primary_least;
    for (n_keys, answer) in answers {
        if answer.locks.len() < *n_keys {
            let commit_ts = Timestamp(answer.commit_ts);
            return Together::Decided((commit_ts > Timestamp::ZERO).then_some(commit_ts));
        }
        if answer.locks.iter().any(|lock| !lock.use_async_commit) {
            return Together::Fallback;
        }
        let most = answer.locks.iter().map(|lock| Timestamp(lock.min_commit_ts)).max();
        least = least.max(most.unwrap_or_default());
    }
    Together::Decided(Some(least))
}

/// Whether a transaction's time is over.
fn is_over(start_ts: Timestamp, ttl_ms: u64, now: Timestamp) -> bool {
    now == Timestamp::MAX || start_ts.physical_ms().saturating_add(ttl_ms) < now.physical_ms()
}

/// A question whether a transaction has committed, which pushes and ends nothing.
pub(crate) fn whether_committed(start_ts: Timestamp, primary: &Key) -> TxnStatusRequest {
    TxnStatusRequest {
        primary: primary.clone(),
        start_ts,
        caller_start_ts: Timestamp::ZERO,
        // Never too late for a lock.
        current_ts: start_ts,
        rollback_if_not_exist: false,
        verify_is_primary: true,
    }
}

impl Cluster {
    /// Asks a primary; see [`store::Store::check_txn_status`].
    ///
    /// # Errors
    /// What the store says about the key.
    pub(crate) async fn check_status(&self, request: &TxnStatusRequest) -> KvResult<TxnStatus> {
        let caller = self.passed(request.caller_start_ts).await?;
        let current = self.passed(request.current_ts).await?;
        let answer = self.ask_primary(request, caller, current, false).await?;
        let asynchronous = answer.lock_info.as_ref().is_some_and(|lock| lock.use_async_commit);
        if answer.lock_ttl == 0 || answer.commit_version > 0 || !asynchronous {
            return Ok(status(request, &answer));
        }
        if !is_over(request.start_ts, answer.lock_ttl, current.ts()) {
            return Ok(status(request, &answer));
        }
        let lock = answer.lock_info.unwrap_or_default();
        match self.ask_secondaries(request.start_ts, &lock).await? {
            Together::Decided(commit_ts) => {
                let mut keys = lock.secondaries;
                keys.push(request.primary.clone());
                self.finish(request.start_ts, commit_ts, keys).await?;
                Ok(commit_ts.map_or(TxnStatus::RolledBack, TxnStatus::Committed))
            }
            Together::Fallback => {
                let answer = self.ask_primary(request, caller, current, true).await?;
                Ok(status(request, &answer))
            }
        }
    }

    async fn ask_primary(
        &self,
        request: &TxnStatusRequest,
        caller: Passed,
        current: Passed,
        force_sync_commit: bool,
    ) -> KvResult<kvrpcpb::CheckTxnStatusResponse> {
        let call = kvrpcpb::CheckTxnStatusRequest {
            primary_key: request.primary.clone(),
            lock_ts: request.start_ts.0,
            caller_start_ts: caller.raw(),
            current_ts: current.raw(),
            rollback_if_not_exist: request.rollback_if_not_exist,
            verify_is_primary: request.verify_is_primary,
            force_sync_commit,
            ..Default::default()
        };
        let mut answer = self.at_key(&request.primary, &call, &mut self.backoff()).await?;
        answer.error.take().map_or(Ok(answer), |error| Err(key_error(error)))
    }

    async fn ask_secondaries(&self, start_ts: Timestamp, lock: &kvrpcpb::LockInfo) -> KvResult<Together> {
        let mut answers = Vec::new();
        let mut refusal = None;
        let make = |keys: &[Key]| kvrpcpb::CheckSecondaryLocksRequest {
            keys: keys.to_vec(),
            start_version: start_ts.0,
            ..Default::default()
        };
        let hand_on = |keys: Vec<Key>, mut answer: kvrpcpb::CheckSecondaryLocksResponse| {
            if let Some(error) = answer.error.take() {
                refusal.get_or_insert(key_error(error));
                return ControlFlow::Break(());
            }
            answers.push((keys.len(), answer));
            ControlFlow::Continue(())
        };
        self.in_batches(lock.secondaries.clone(), &self.backoff(), make, hand_on).await?;
        match refusal {
            Some(error) => Err(error),
            None => Ok(together(Timestamp(lock.min_commit_ts), &answers)),
        }
    }

    /// What a lock is to a reader at `caller`, or to a writer (zero).
    ///
    /// # Errors
    /// What the store says about the primary.
    pub(crate) async fn fate(&self, lock: &LockInfo, caller: Timestamp) -> KvResult<Fate> {
        let question = Fate::question(lock, caller, self.timestamp().await?);
        Fate::of(self.check_status(&question).await)
    }

    /// Finishes locks of a decided transaction; those that somebody else finished are fine.
    ///
    /// # Errors
    /// What the store says about the keys.
    pub(crate) async fn finish(
        &self,
        start_ts: Timestamp,
        commit_ts: Option<Timestamp>,
        keys: Vec<Key>,
    ) -> KvResult<()> {
        match self.resolve(start_ts, commit_ts, keys).await {
            Err(KeyError::TxnLockNotFound(_)) => Ok(()),
            other => other,
        }
    }

    /// Commits or rolls back locked keys of a decided transaction.
    ///
    /// # Errors
    /// What the store says about the keys.
    pub(crate) async fn resolve(
        &self,
        start_ts: Timestamp,
        commit_ts: Option<Timestamp>,
        keys: Vec<Key>,
    ) -> KvResult<()> {
        let make = |keys: &[Key]| kvrpcpb::ResolveLockRequest {
            start_version: start_ts.0,
            commit_version: commit_ts.unwrap_or_default().0,
            keys: keys.to_vec(),
            ..Default::default()
        };
        let mut refusal = None;
        let hand_on = |_: Vec<Key>, answer: kvrpcpb::ResolveLockResponse| {
            if let Some(error) = answer.error {
                refusal.get_or_insert(key_error(error));
            }
            ControlFlow::Continue(())
        };
        self.in_batches(keys, &self.backoff(), make, hand_on).await?;
        refusal.map_or(Ok(()), Err)
    }
}

/// A primary's answer that needs no other.
fn status(request: &TxnStatusRequest, answer: &kvrpcpb::CheckTxnStatusResponse) -> TxnStatus {
    if answer.commit_version > 0 {
        return TxnStatus::Committed(Timestamp(answer.commit_version));
    }
    if answer.lock_ttl == 0 {
        return TxnStatus::RolledBack;
    }
    // Old servers leave the lock out.
    let lock = answer.lock_info.as_ref().and_then(lock_info).unwrap_or_else(|| LockInfo {
        key: request.primary.clone(),
        primary: request.primary.clone(),
        start_ts: request.start_ts,
        ttl_ms: answer.lock_ttl,
        txn_size: 0,
        kind: LockKind::Lock,
        min_commit_ts: Timestamp::ZERO,
    });
    let asynchronous = answer.lock_info.as_ref().is_some_and(|lock| lock.use_async_commit);
    let caller = request.caller_start_ts;
    // A living async commit is not pushed, but may lie above the caller already.
    let above = asynchronous && caller > Timestamp::ZERO && caller < lock.min_commit_ts;
    let pushed = answer.action() == kvrpcpb::Action::MinCommitTsPushed || above;
    TxnStatus::Alive { lock: Box::new(lock), pushed }
}

/// Groups locks by their transactions, in the order of starts.
pub(crate) fn by_transaction(locks: Vec<LockInfo>) -> BTreeMap<Timestamp, Vec<LockInfo>> {
    let mut transactions: BTreeMap<Timestamp, Vec<LockInfo>> = BTreeMap::new();
    for lock in locks {
        transactions.entry(lock.start_ts).or_default().push(lock);
    }
    transactions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(least: &[u64], commit_ts: u64, asynchronous: bool) -> kvrpcpb::CheckSecondaryLocksResponse {
        let lock = |least: &u64| kvrpcpb::LockInfo {
            min_commit_ts: *least,
            use_async_commit: asynchronous,
            ..Default::default()
        };
        kvrpcpb::CheckSecondaryLocksResponse {
            locks: least.iter().map(lock).collect(),
            commit_ts,
            ..Default::default()
        }
    }

    #[test]
    fn an_async_commit_with_all_locks_commits_at_the_largest() {
        let answers = [(2, answer(&[7, 9], 0, true)), (1, answer(&[8], 0, true))];
        assert_eq!(together(Timestamp(5), &answers), Together::Decided(Some(Timestamp(9))));
        assert_eq!(together(Timestamp(11), &answers), Together::Decided(Some(Timestamp(11))));
        assert_eq!(together(Timestamp(5), &[]), Together::Decided(Some(Timestamp(5))), "only the primary");
    }

    #[test]
    fn a_missing_lock_decides_an_async_commit() {
        assert_eq!(together(Timestamp(5), &[(2, answer(&[7], 0, true))]), Together::Decided(None));
        let committed = [(2, answer(&[7], 12, true))];
        assert_eq!(together(Timestamp(5), &committed), Together::Decided(Some(Timestamp(12))));
    }

    #[test]
    fn an_ordinary_lock_leaves_it_to_the_primary() {
        assert_eq!(together(Timestamp(5), &[(1, answer(&[7], 0, false))]), Together::Fallback);
    }

    #[test]
    fn rolled_back_is_no_time_and_no_commit_whatever_the_action() {
        let request = TxnStatusRequest {
            primary: Key::from("p"),
            start_ts: Timestamp(3),
            caller_start_ts: Timestamp(10),
            current_ts: Timestamp(11),
            rollback_if_not_exist: false,
            verify_is_primary: true,
        };
        let mut answer = kvrpcpb::CheckTxnStatusResponse::default();
        assert_eq!(status(&request, &answer), TxnStatus::RolledBack);
        answer.lock_ttl = 500;
        assert!(matches!(status(&request, &answer), TxnStatus::Alive { pushed: false, .. }));
        answer.set_action(kvrpcpb::Action::MinCommitTsPushed);
        assert!(matches!(status(&request, &answer), TxnStatus::Alive { pushed: true, .. }));
        answer.commit_version = 12;
        assert_eq!(status(&request, &answer), TxnStatus::Committed(Timestamp(12)));
    }

    #[test]
    fn a_living_async_commit_above_its_reader_is_out_of_the_way() {
        let mut request = TxnStatusRequest {
            primary: Key::from("p"),
            start_ts: Timestamp(3),
            caller_start_ts: Timestamp(10),
            current_ts: Timestamp(11),
            rollback_if_not_exist: false,
            verify_is_primary: true,
        };
        let lock = kvrpcpb::LockInfo { use_async_commit: true, min_commit_ts: 11, ..Default::default() };
        let answer =
            kvrpcpb::CheckTxnStatusResponse { lock_ttl: 500, lock_info: Some(lock), ..Default::default() };
        assert!(matches!(status(&request, &answer), TxnStatus::Alive { pushed: true, .. }));
        request.caller_start_ts = Timestamp(11);
        assert!(matches!(status(&request, &answer), TxnStatus::Alive { pushed: false, .. }));
    }
}
