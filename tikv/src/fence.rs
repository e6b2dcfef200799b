//! The fence: afterwards everything at or below a timestamp is applied in a range.
//!
//! Listing the locks of a region at T makes the region's store commit whatever it has not seen yet above T,
//! and shows what was locked before. What is shown is finished if it is decided, pushed above T if its
//! writer lets readers do so, and waited for if not. Locks in memory, of commits that draw no timestamp,
//! are reported as errors and gone in a moment. Lists are clipped to a region without a word, so regions
//! are walked one by one; one that changes is asked anew.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use store::{Fate, KeyError, KeyRange, KvResult, LockInfo, LockKind};
use types::{Error, Result, Timestamp};

use crate::backoff::{Backoff, Pause};
use crate::cluster::Cluster;
use crate::key_error::{key_error, lock_infos};
use crate::pd::Passed;
use crate::proto::kvrpcpb;
use crate::status::by_transaction;
use crate::walk::{Direction, after_key, after_part, whole};

/// Locks of one page.
const PAGE_LOCKS: u32 = 1024;
/// Regions that are asked at once.
pub(crate) const REGIONS_AT_ONCE: usize = 16;

impl Cluster {
    /// Returns when every transaction that commits at or below `ts` in a range is applied there; later ones
    /// commit above.
    ///
    /// # Errors
    /// `Unavailable` if a lock stays in the way for longer than `budget`, or a region does not answer.
    pub(crate) async fn fence(&self, range: &KeyRange, ts: Timestamp, budget: Duration) -> Result<()> {
        let ts = self.passed(ts).await?;
        let backoff = Backoff::new(budget);
        let parts = futures::stream::iter(self.parts_of(range).await?);
        let fenced = parts.map(|part| self.fence_part(part, ts, backoff.clone()));
        fenced.buffer_unordered(REGIONS_AT_ONCE).try_collect::<()>().await
    }

    async fn fence_part(&self, part: KeyRange, ts: Passed, mut backoff: Backoff) -> Result<()> {
        let mut rest = whole(&part);
        while let Some(range) = rest {
            let (locks, after) = self.lock_page(&range, ts, PAGE_LOCKS, &mut backoff).await?;
            let blocks = |lock: &LockInfo| lock.kind != LockKind::Lock && lock.min_commit_ts <= ts.ts();
            let blocking: Vec<LockInfo> = locks.into_iter().filter(blocks).collect();
            let settled = self.settle_below(blocking, ts.ts(), &mut backoff).await?;
            rest = if settled { after } else { Some(range) };
        }
        Ok(())
    }

    /// A page of the locks with a start at or below `ts`, and what is left of the range behind it. Waits for
    /// locks in memory.
    ///
    /// # Errors
    /// [`KeyError::Locked`] if a lock in memory stays.
    pub(crate) async fn lock_page(
        &self,
        range: &KeyRange,
        ts: Passed,
        limit: u32,
        backoff: &mut Backoff,
    ) -> KvResult<(Vec<LockInfo>, Option<KeyRange>)> {
        loop {
            let make = |part: &KeyRange| kvrpcpb::ScanLockRequest {
                max_version: ts.raw(),
                start_key: part.start.clone(),
                end_key: part.end.clone(),
                limit,
                ..Default::default()
            };
            let mut trouble = self.backoff();
            let (part, answer) = self.at_edge(range, Direction::Up, &mut trouble, make).await?;
            match answer.error.map(key_error) {
                None => {}
                Some(KeyError::Locked(_)) if backoff.wait(Pause::Lock).await => continue,
                Some(error) => return Err(error),
            }
            let full = limit > 0 && answer.locks.len() >= limit as usize;
            let after = match answer.locks.last() {
                Some(last) if full => after_key(range, &last_key(last), Direction::Up),
                _ => after_part(range, &part, Direction::Up),
            };
            return Ok((lock_infos(&answer.locks), after));
        }
    }

    /// Makes locks harmless at or below `ts`. `false` after a wait for one that lives: look again.
    ///
    /// # Errors
    /// `Unavailable` if the time is over.
    pub(crate) async fn settle_below(
        &self,
        locks: Vec<LockInfo>,
        ts: Timestamp,
        backoff: &mut Backoff,
    ) -> Result<bool> {
        let mut living = None;
        for (start_ts, locks) in by_transaction(locks) {
            let keys = || locks.iter().map(|lock| lock.key.clone()).collect();
            match self.fate(&locks[0], ts).await? {
                Fate::Committed(commit_ts) => self.finish(start_ts, Some(commit_ts), keys()).await?,
                Fate::RolledBack => self.finish(start_ts, None, keys()).await?,
                Fate::Pushed => {}
                Fate::Alive => living = Some(start_ts),
            }
        }
        match living {
            None => Ok(true),
            Some(_) if backoff.wait(Pause::Lock).await => Ok(false),
            Some(start_ts) => {
                Err(Error::unavailable(format!("a lock of transaction {start_ts} stays in the way of {ts}")))
            }
        }
    }
}

/// The key of a lock, in whatever form it is listed.
fn last_key(lock: &kvrpcpb::LockInfo) -> store::Key {
    match lock.shared_lock_infos.first() {
        Some(shared) if lock.key.is_empty() => shared.key.clone(),
        _ => lock.key.clone(),
    }
}
