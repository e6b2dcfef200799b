//! Whole transactions: both halves in one call.
//!
//! A call goes on to its end even if nobody waits for it, so that no locks are left behind by a caller that
//! goes away. The same call once more finds that the transaction has committed: between its halves the
//! primary is asked, at the same time as the commit timestamp is drawn. If an earlier call of the same
//! transaction ended without knowing the outcome, the primary goes alone and its record is read before the
//! others follow.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::{Either, select};
use store::{AssertionLevel, Key, KeyError, KvResult, LockInfo, Mutation, TxnStatus};
use types::{Error, ErrorKind, Timestamp};

use crate::backoff::Backoff;
use crate::cluster::Cluster;
use crate::commit::{Decided, Deciding};
use crate::prewrite::{Folded, Locking};
use crate::status::whether_committed;

/// What a lock may live beyond the moment when it is written, in milliseconds.
const TTL_MS: u64 = 20_000;
/// How often the primary of a long transaction is raised.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(5);
/// Transactions of unknown outcome that are remembered.
const DOUBTS_MAX: usize = 4096;

/// Transactions whose commit may have happened, though the call did not learn of it.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    starts: Mutex<BTreeSet<Timestamp>>,
}

impl Doubts {
    fn has(&self, start_ts: Timestamp) -> bool {
        self.starts.lock().unwrap_or_else(PoisonError::into_inner).contains(&start_ts)
    }

    fn note(&self, start_ts: Timestamp, outcome: &KvResult<Decided>) {
        let unknown = |error: &Error| matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Closed);
        let mut starts = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome {
            Err(KeyError::Store(error)) if unknown(error) => {
                starts.insert(start_ts);
                if starts.len() > DOUBTS_MAX {
                    starts.pop_first();
                }
            }
            _ => drop(starts.remove(&start_ts)),
        }
    }
}

impl Cluster {
    /// Commits a whole transaction; see [`store::Store::commit_transaction`].
    ///
    /// # Errors
    /// What keeps it from committing; `Unavailable` leaves the outcome unknown.
    pub(crate) async fn commit_whole(
        self: &Arc<Self>,
        start_ts: Timestamp,
        mutations: Vec<Mutation>,
    ) -> KvResult<Timestamp> {
        let folded = Folded::new(mutations)?;
        let cluster = Arc::clone(self);
        let committing = self.work.spawn("commit", async move { cluster.run_whole(start_ts, folded).await });
        let unknown =
            |error| Error::unavailable(format!("transaction {start_ts} may have committed: {error}"));
        committing.await.unwrap_or_else(|error| Err(unknown(error).into()))
    }

    async fn run_whole(&self, start_ts: Timestamp, folded: Folded) -> KvResult<Timestamp> {
        let keys = folded.locked_keys();
        let primary = match (keys.first(), folded.mutations().first()) {
            (Some(primary), _) => primary.clone(),
            (None, Some(check)) => check.key.clone(),
            (None, None) => return Ok(self.timestamp().await?),
        };
        let locking = Locking {
            primary: primary.clone(),
            start_ts,
            ttl_ms: self.pd.oracle().age_ms(start_ts) + TTL_MS,
            txn_size: keys.len() as u64,
            min_commit_ts: start_ts.next()?,
            assertion_level: AssertionLevel::Strict,
        };
        if let Err(refusal) = self.lock_all(&locking, folded).await {
            return self.give_up(start_ts, keys, refusal).await;
        }
        if keys.is_empty() {
            // Only checks: there is nothing to commit.
            return Ok(self.timestamp().await?);
        }
        let outcome = self.decide_whole(start_ts, &primary, &keys).await;
        self.doubts.note(start_ts, &outcome);
        let Decided { commit_ts, rest } = match outcome {
            Ok(decided) => decided,
            Err(KeyError::Store(error)) => return Err(error.into()),
            // It is not committed, and now never will be.
            Err(refusal) => return self.give_up(start_ts, keys, refusal).await,
        };
        if let Err(error) = self.commit_others(start_ts, commit_ts, &primary, rest).await {
            // Decided all the same: whoever meets the locks finishes them.
            tracing::warn!(%start_ts, %commit_ts, ?error, "secondaries of a committed transaction are left");
        }
        Ok(commit_ts)
    }

    /// Locks all keys, past the locks of others, and keeps the primary alive meanwhile.
    async fn lock_all(&self, locking: &Locking, folded: Folded) -> KvResult<()> {
        let beating = std::pin::pin!(self.beat(locking));
        let locking = std::pin::pin!(self.lock_past_others(locking, folded));
        match select(locking, beating).await {
            Either::Left((locked, _)) => locked,
            Either::Right((never, _)) => match never {},
        }
    }

    async fn lock_past_others(&self, locking: &Locking, folded: Folded) -> KvResult<()> {
        let mut waits = Backoff::new(self.options.lock_wait);
        while let Err(errors) = self.lock_keys(locking, folded.clone()).await {
            let mut locks: Vec<LockInfo> = Vec::new();
            for error in errors {
                match error {
                    KeyError::Locked(lock) => locks.push(*lock),
                    error => return Err(error),
                }
            }
            self.make_way(locks, &mut waits).await?;
        }
        Ok(())
    }

    /// Raises the primary's time to live as long as it is polled.
    async fn beat(&self, locking: &Locking) -> std::convert::Infallible {
        loop {
            tokio::time::sleep(HEARTBEAT_EVERY).await;
            let ttl_ms = self.pd.oracle().age_ms(locking.start_ts) + TTL_MS;
            // Not there yet, or decided by somebody: the commit will tell.
            if let Err(error) = self.heartbeat(&locking.primary, locking.start_ts, ttl_ms).await {
                tracing::debug!(start_ts = %locking.start_ts, ?error, "no heartbeat");
            }
        }
    }

    /// Commits the primary, unless an earlier call has.
    async fn decide_whole(&self, start_ts: Timestamp, primary: &Key, keys: &[Key]) -> KvResult<Decided> {
        let request = whether_committed(start_ts, primary);
        let (status, drawn) = futures::join!(self.check_status(&request), self.timestamp());
        match status? {
            TxnStatus::Committed(commit_ts) => {
                let rest = keys.iter().filter(|key| *key != primary).cloned().collect();
                return Ok(Decided { commit_ts, rest });
            }
            TxnStatus::RolledBack => return Err(KeyError::TxnLockNotFound(primary.clone())),
            TxnStatus::Alive { .. } => {}
        }
        let in_doubt = self.doubts.has(start_ts);
        let first = Deciding { start_ts, primary, keys, commit_ts: Some(drawn?), in_doubt };
        match self.decide(first).await {
            // Readers have pushed it.
            Err(KeyError::CommitTsExpired { .. }) => {
                self.decide(Deciding { start_ts, primary, keys, commit_ts: None, in_doubt: true }).await
            }
            other => other,
        }
    }

    /// Rolls a refused transaction back and says why it was refused; an earlier call may have committed it.
    async fn give_up(&self, start_ts: Timestamp, keys: Vec<Key>, refusal: KeyError) -> KvResult<Timestamp> {
        let Some(primary) = keys.first().cloned() else { return Err(refusal) };
        match self.rollback(start_ts, vec![primary.clone()]).await {
            Ok(()) => {}
            Err(KeyError::Abort(_)) => {
                let request =
                    Deciding { start_ts, primary: &primary, keys: &keys, commit_ts: None, in_doubt: true };
                // It has committed: this only reads the record.
                let Decided { commit_ts, rest } = self.decide(request).await?;
                self.commit_others(start_ts, commit_ts, &primary, rest).await?;
                return Ok(commit_ts);
            }
            Err(error) => {
                tracing::debug!(%start_ts, ?error, "a refused transaction is left to its time to live");
                return Err(refusal);
            }
        }
        if let Err(error) = self.rollback(start_ts, keys).await {
            tracing::debug!(%start_ts, ?error, "locks of a refused transaction are left");
        }
        Err(refusal)
    }
}
