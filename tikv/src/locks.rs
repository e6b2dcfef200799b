//! Lists of locks, the end of all locks of a transaction, and heartbeats.

use store::{Fate, Key, KeyRange, KvResult, LockInfo};
use types::{Result, Timestamp};

use crate::backoff::{Backoff, Pause};
use crate::cluster::Cluster;
use crate::key_error::key_error;
use crate::proto::kvrpcpb;
use crate::status::by_transaction;
use crate::walk::{Direction, after_part, whole};

/// Locks of one page of a list without a limit.
const PAGE_LOCKS: usize = 1024;

impl Cluster {
    /// Lists locks; see [`store::Store::scan_lock`].
    ///
    /// # Errors
    /// [`store::KeyError::Locked`] if a lock in memory stays.
    pub(crate) async fn scan_lock(
        &self,
        range: &KeyRange,
        max_ts: Timestamp,
        limit: usize,
    ) -> KvResult<Vec<LockInfo>> {
        let max_ts = self.passed(max_ts).await?;
        let most = if limit == 0 { usize::MAX } else { limit };
        let mut found = Vec::new();
        let mut rest = whole(range);
        let mut waits = Backoff::new(self.options.lock_wait);
        while let Some(range) = rest.take().filter(|_| found.len() < most) {
            let page = (most - found.len()).min(PAGE_LOCKS);
            let (locks, after) = self.lock_page(&range, max_ts, page as u32, &mut waits).await?;
            found.extend(locks);
            rest = after;
        }
        Ok(found)
    }

    /// Finishes every lock of a decided transaction, in every region.
    ///
    /// # Errors
    /// What a store says about the keys.
    pub(crate) async fn resolve_everywhere(
        &self,
        start_ts: Timestamp,
        commit_ts: Option<Timestamp>,
    ) -> KvResult<()> {
        let mut rest = Some(KeyRange::all());
        while let Some(range) = rest {
            let make = |_: &KeyRange| kvrpcpb::ResolveLockRequest {
                start_version: start_ts.0,
                commit_version: commit_ts.unwrap_or_default().0,
                ..Default::default()
            };
            let (part, answer) = self.at_edge(&range, Direction::Up, &mut self.backoff(), make).await?;
            if let Some(error) = answer.error {
                return Err(key_error(error));
            }
            rest = after_part(&range, &part, Direction::Up);
        }
        Ok(())
    }

    /// Raises a primary's time to live; see [`store::Store::heartbeat`].
    ///
    /// # Errors
    /// [`store::KeyError::TxnNotFound`] if the transaction is decided.
    pub(crate) async fn heartbeat(&self, primary: &[u8], start_ts: Timestamp, ttl_ms: u64) -> KvResult<u64> {
        let call = kvrpcpb::TxnHeartBeatRequest {
            primary_lock: Key::copy_from_slice(primary),
            start_version: start_ts.0,
            advise_lock_ttl: ttl_ms,
            ..Default::default()
        };
        let answer = self.at_key(primary, &call, &mut self.backoff()).await?;
        match answer.error {
            Some(error) => Err(key_error(error)),
            None => Ok(answer.lock_ttl),
        }
    }

    /// Makes way for a writer: finishes what is decided, waits for what lives.
    ///
    /// # Errors
    /// [`store::KeyError::Locked`] if a lock stays for longer than the writer waits.
    pub(crate) async fn make_way(&self, locks: Vec<LockInfo>, waits: &mut Backoff) -> KvResult<()> {
        let mut living = None;
        for (start_ts, locks) in by_transaction(locks) {
            let keys = || locks.iter().map(|lock| lock.key.clone()).collect();
            match self.fate(&locks[0], Timestamp::ZERO).await? {
                Fate::Committed(commit_ts) => self.finish(start_ts, Some(commit_ts), keys()).await?,
                Fate::RolledBack => self.finish(start_ts, None, keys()).await?,
                Fate::Pushed | Fate::Alive => living = Some(locks[0].clone()),
            }
        }
        match living {
            Some(lock) if !waits.wait(Pause::Lock).await => Err(store::KeyError::Locked(Box::new(lock))),
            _ => Ok(()),
        }
    }

    /// Finishes all locks of decided transactions with a start at or below a barrier, everywhere; returns the
    /// barrier, lowered below the transactions that live.
    ///
    /// # Errors
    /// `Unavailable` if a region does not answer.
    pub(crate) async fn finish_decided(&self, barrier: Timestamp) -> Result<Timestamp> {
        let max_ts = self.passed(barrier).await?;
        let mut lowered = barrier;
        let mut rest = Some(KeyRange::all());
        let mut waits = Backoff::new(self.options.lock_wait);
        while let Some(range) = rest {
            let (locks, after) = self.lock_page(&range, max_ts, PAGE_LOCKS as u32, &mut waits).await?;
            for (start_ts, locks) in by_transaction(locks) {
                let keys = locks.iter().map(|lock| lock.key.clone()).collect();
                match self.fate(&locks[0], Timestamp::ZERO).await? {
                    Fate::Committed(commit_ts) => self.finish(start_ts, Some(commit_ts), keys).await?,
                    Fate::RolledBack => self.finish(start_ts, None, keys).await?,
                    Fate::Pushed | Fate::Alive => lowered = lowered.min(start_ts.prev()),
                }
            }
            rest = after;
        }
        Ok(lowered)
    }
}
