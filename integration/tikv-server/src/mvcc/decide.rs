//! The second half of transactions: commit, rollback, and the resolving of locks that were left behind.

use bytes::Bytes;
use store::{CommitRequest, Key, KeyRange, LockInfo, Store};
use tikv::proto::{cdcpb, kvrpcpb};
use types::Timestamp;

use super::answer::{Wording, changes, committed_text};
use super::{Fate, Mvcc, Side, Story};
use crate::check::Refusal;
use crate::feed::rows;
use crate::regions::RegionState;
use crate::violations::Ledger;

/// An error of a key, or nothing.
pub(crate) type Outcome = Option<kvrpcpb::KeyError>;

impl Mvcc {
    pub(crate) async fn commit(
        &self,
        store_id: u64,
        request: kvrpcpb::CommitRequest,
    ) -> Result<kvrpcpb::CommitResponse, Refusal> {
        let mut side = self.exclusive_over(&request.keys).await;
        let region = self.region(&side, store_id, request.context.as_ref())?;
        let (start_ts, commit_ts) = (Timestamp(request.start_version), Timestamp(request.commit_version));
        if let Some(error) = Mvcc::outside(&region, &request.keys) {
            return Ok(kvrpcpb::CommitResponse { error: Some(error), ..kvrpcpb::CommitResponse::default() });
        }
        if commit_ts <= start_ts {
            let text = format!(
                "Error(Txn(Error(InvalidTxnTso {{ start_ts: TimeStamp({start_ts}), \
                 commit_ts: TimeStamp({commit_ts}) }})))"
            );
            let error = kvrpcpb::KeyError { abort: text, ..kvrpcpb::KeyError::default() };
            return Ok(kvrpcpb::CommitResponse { error: Some(error), ..kvrpcpb::CommitResponse::default() });
        }
        if commit_ts > self.newest_known() {
            self.note_unissued("KvCommit", "commit timestamp", commit_ts);
        }
        let error = self.commit_keys(&mut side, start_ts, commit_ts, &request.keys).await?;
        let commit_version = if error.is_none() { commit_ts.0 } else { 0 };
        Ok(kvrpcpb::CommitResponse { error, commit_version, ..kvrpcpb::CommitResponse::default() })
    }

    /// The newest timestamp that an async commit may have computed.
    fn newest_known(&self) -> Timestamp {
        let read = self.max_ts.iter().map(|(_, ts)| ts.load(std::sync::atomic::Ordering::SeqCst)).max();
        Timestamp(self.oracle.newest().0.max(read.unwrap_or(0)).saturating_add(1))
    }

    /// Commits keys, whoever asks, and shows the rows.
    pub(crate) async fn commit_keys(
        &self,
        side: &mut Side,
        start_ts: Timestamp,
        commit_ts: Timestamp,
        keys: &[Key],
    ) -> Result<Outcome, Refusal> {
        self.settle_pessimistic(side, start_ts, keys).await?;
        let mut locks: Vec<LockInfo> = Vec::new();
        for key in keys {
            locks.extend(self.story(key).await?.own_lock(start_ts).cloned());
        }
        let primary = locks.first().map(|lock| lock.primary.clone()).unwrap_or_default();
        let request = CommitRequest {
            start_ts,
            keys: keys.to_vec(),
            primary: primary.clone(),
            commit_ts: Some(commit_ts),
        };
        if let Err(error) = self.store.commit(request).await {
            let expired = locks.iter().find(|lock| commit_ts < lock.min_commit_ts);
            let named = expired.map_or(&primary, |lock| &lock.key);
            let wording = Wording { side, start_ts, primary: named, commit_ts };
            return wording.word(&error).map(Some);
        }
        let mut published = Vec::new();
        for lock in locks.iter().filter(|lock| changes(lock)) {
            let story = self.story(&lock.key).await?;
            let Some(write) = story.write_of(start_ts) else { continue };
            let source = side.extra(&lock.key, start_ts).txn_source;
            published.push(rows::committed_later(&lock.key, write, source));
        }
        for lock in &locks {
            side.settle(&self.store, &lock.key, start_ts, false).await?;
        }
        side.publish(&self.ledger, published);
        Ok(None)
    }

    pub(crate) async fn batch_rollback(
        &self,
        store_id: u64,
        request: kvrpcpb::BatchRollbackRequest,
    ) -> Result<kvrpcpb::BatchRollbackResponse, Refusal> {
        let mut side = self.exclusive_over(&request.keys).await;
        let region = self.region(&side, store_id, request.context.as_ref())?;
        let error = match Mvcc::outside(&region, &request.keys) {
            Some(error) => Some(error),
            None => {
                let start_ts = Timestamp(request.start_version);
                self.roll_back(&mut side, start_ts, &request.keys, Missing::Unprotected).await?
            }
        };
        Ok(kvrpcpb::BatchRollbackResponse { error, ..kvrpcpb::BatchRollbackResponse::default() })
    }

    /// Rolls keys back, whoever asks, and shows the rows.
    pub(crate) async fn roll_back(
        &self,
        side: &mut Side,
        start_ts: Timestamp,
        keys: &[Key],
        missing: Missing,
    ) -> Result<Outcome, Refusal> {
        let mut before: Vec<(&Key, Story)> = Vec::with_capacity(keys.len());
        for key in keys {
            let story = self.story(key).await?;
            if let Some(Fate::Committed(commit_ts)) = story.fate(start_ts) {
                let text = committed_text(start_ts, commit_ts, key);
                let abort = format!("Error(Txn(Error(Mvcc(Error({text})))))");
                return Ok(Some(kvrpcpb::KeyError { abort, ..kvrpcpb::KeyError::default() }));
            }
            before.push((key, story));
        }
        side.note_keys(&self.store, keys).await?;
        if let Err(error) = self.store.batch_rollback(start_ts, keys).await {
            let primary = Bytes::new();
            let wording = Wording { side, start_ts, primary: &primary, commit_ts: Timestamp::ZERO };
            return wording.word(&error).map(Some);
        }
        let mut published = Vec::new();
        for (key, old) in before {
            let pessimistic = side.forget_pessimistic(key, start_ts).map(|lock| lock.primary_lock);
            if old.fate(start_ts).is_some() || self.story(key).await?.fate(start_ts).is_none() {
                continue;
            }
            let primary = old.own_lock(start_ts).map(|lock| lock.primary.clone()).or(pessimistic);
            let protected = primary.map_or(missing == Missing::Protected, |primary| primary == *key)
                && !old.has_commit_at(start_ts);
            side.settle(&self.store, key, start_ts, protected).await?;
            published.push(rows::rolled_back(key, start_ts, protected));
        }
        side.publish(&self.ledger, published);
        Ok(None)
    }

    pub(crate) async fn resolve_lock(
        &self,
        store_id: u64,
        request: kvrpcpb::ResolveLockRequest,
    ) -> Result<kvrpcpb::ResolveLockResponse, Refusal> {
        let mut side = self.exclusive_over(&request.keys).await;
        let region = self.region(&side, store_id, request.context.as_ref())?;
        if let Some(error) = Mvcc::outside(&region, &request.keys) {
            return Ok(resolved(Some(error)));
        }
        let mut decided: Vec<(u64, u64)> =
            request.txn_infos.iter().map(|info| (info.txn, info.status)).collect();
        if decided.is_empty() {
            decided.push((request.start_version, request.commit_version));
        }
        for (start, commit) in decided {
            let (start_ts, commit_ts) = (Timestamp(start), Timestamp(commit));
            let keys = if request.keys.is_empty() {
                self.locked_keys(&side, &region, start_ts).await?
            } else {
                request.keys.clone()
            };
            let error = if keys.is_empty() {
                None
            } else if commit == 0 {
                self.roll_back(&mut side, start_ts, &keys, Missing::Unprotected).await?
            } else {
                self.commit_keys(&mut side, start_ts, commit_ts, &keys).await?
            };
            if error.is_some() {
                return Ok(resolved(error));
            }
        }
        Ok(resolved(None))
    }

    /// The keys that a transaction has locked in a region.
    async fn locked_keys(
        &self,
        side: &Side,
        region: &RegionState,
        start_ts: Timestamp,
    ) -> Result<Vec<Key>, Refusal> {
        let range = region.raw_range();
        let locks = self.locks_in(&range, start_ts).await?;
        let own = locks.into_iter().filter(|lock| lock.start_ts == start_ts).map(|lock| lock.key);
        let pessimistic = side.pessimistic_in(&range, start_ts);
        let pessimistic = pessimistic.filter(|lock| lock.lock_version == start_ts.0);
        Ok(own.chain(pessimistic.map(|lock| lock.key.clone())).collect())
    }

    /// The locks of a range up to a start.
    pub(crate) async fn locks_in(
        &self,
        range: &KeyRange,
        max_ts: Timestamp,
    ) -> Result<Vec<LockInfo>, Refusal> {
        let locks = self.store.scan_lock(range, max_ts, 0).await;
        Ok(locks.map_err(|error| tonic::Status::internal(format!("{error:?}")))?)
    }
}

/// What a rollback leaves where no lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// A record that a later one may fold away.
    Unprotected,
    /// A record that stays.
    Protected,
}

fn resolved(error: Outcome) -> kvrpcpb::ResolveLockResponse {
    kvrpcpb::ResolveLockResponse { error, ..kvrpcpb::ResolveLockResponse::default() }
}

impl Side {
    /// Sends rows to whoever listens.
    pub(crate) fn publish(&self, ledger: &Ledger, rows: Vec<cdcpb::Row>) {
        self.hub.publish(&self.regions, rows);
        for late in self.hub.take_late() {
            ledger.violation(late);
        }
    }
}

impl Mvcc {
    /// Collects garbage up to a safe point: ends what began before, then readers see what would be left.
    pub(crate) async fn collect(&self, safe_point: u64) -> Result<(), Refusal> {
        let mut side = self.exclusive().await;
        self.roll_back_before(&mut side, Timestamp(safe_point)).await?;
        side.pessimistic.retain(|_, lock| lock.lock_version > safe_point);
        self.gc_passed.fetch_max(safe_point, std::sync::atomic::Ordering::SeqCst);
        Ok(())
    }

    /// Ends every transaction that began before a timestamp, as garbage collection does: by its primary, or
    /// by all its locks if it is of an async commit; however long it wants to live.
    async fn roll_back_before(&self, side: &mut Side, safe_point: Timestamp) -> Result<(), Refusal> {
        for lock in self.locks_in(&KeyRange::all(), safe_point).await? {
            let (start_ts, key) = (lock.start_ts, lock.key.clone());
            let primary = self.story(&lock.primary).await?;
            let fate = primary.fate(start_ts);
            let whole =
                side.extra(&lock.primary, start_ts).use_async_commit && primary.own_lock(start_ts).is_some();
            let decided = match (fate, whole) {
                (Some(Fate::Committed(commit_ts)), _) => Some(commit_ts),
                (_, true) => self.computed_commit(side, &primary, start_ts).await?,
                _ => None,
            };
            match decided {
                Some(commit_ts) => self.commit_keys(side, start_ts, commit_ts, &[key]).await?,
                None => {
                    let keys = [lock.primary.clone(), key];
                    let distinct = if keys[0] == keys[1] { &keys[..1] } else { &keys[..] };
                    self.roll_back(side, start_ts, distinct, Missing::Protected).await?
                }
            };
        }
        Ok(())
    }

    /// When an async commit whose locks are all there has committed.
    async fn computed_commit(
        &self,
        side: &Side,
        primary: &Story,
        start_ts: Timestamp,
    ) -> Result<Option<Timestamp>, Refusal> {
        let Some(lock) = primary.own_lock(start_ts) else { return Ok(None) };
        let mut commit_ts = lock.min_commit_ts;
        for key in &side.extra(&lock.key, start_ts).secondaries {
            let story = self.story(key).await?;
            match (story.own_lock(start_ts), story.fate(start_ts)) {
                (Some(lock), _) => commit_ts = commit_ts.max(lock.min_commit_ts),
                (None, Some(Fate::Committed(decided))) => return Ok(Some(decided)),
                (None, _) => return Ok(None),
            }
        }
        Ok(Some(commit_ts))
    }
}
