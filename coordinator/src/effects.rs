//! Carries out the machine's work against a store.
//!
//! Draws, reads and questions are repeated while the store is away; the prewrite and the commit of the
//! primary are sent once, and whatever does not come back is `Unknown`: the machine asks. Locks in the way
//! of the epoch record are resolved through their primaries, as any reader does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use store::{
    AssertionLevel, CommitRequest, KeyError, KvResult, LockInfo, Mutation, PrewriteRequest, ReadContext,
    Store, TxnStatus, TxnStatusRequest,
};
use types::records::{EpochRecord, epoch_record_key};
use types::{Error, ErrorKind, JobId, Result, Timestamp};

use crate::backoff::Backoff;
use crate::failpoints::lost;
use crate::machine::{Answer, Fate, Work, WorkId};

/// Tries of a draw or a read before the caller is told that the store is away: about a second.
const TRIES_MAX: u32 = 6;

/// A refusal this far above the attempt is not a reader's push but a broken clock.
const PUSH_MS_MAX: u64 = 3_600_000;

/// The store as one job's machine sees it.
#[derive(Clone)]
pub(crate) struct Effects {
    store: Arc<dyn Store>,
    job: JobId,
    key: Bytes,
    backoff: Arc<Backoff>,
    /// The newest work asked for: older work gives up its repetitions.
    newest: Arc<AtomicU64>,
}

/// Which timestamp to draw.
#[derive(Clone, Copy, Debug)]
enum Oracle {
    Fresh,
    Read,
}

/// What a heartbeat found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beat {
    Alive,
    /// The store says that the lock is not there.
    Gone,
    /// The store is away.
    Unknown,
}

impl Effects {
    pub(crate) fn new(store: Arc<dyn Store>, job: JobId, backoff: Backoff) -> Effects {
        Effects {
            store,
            job,
            key: epoch_record_key(job).into(),
            backoff: Arc::new(backoff),
            newest: Arc::default(),
        }
    }

    /// Says which work the machine waits for; 0 for none.
    pub(crate) fn set_newest(&self, id: Option<WorkId>) {
        self.newest.store(id.map_or(0, |id| id.0), Ordering::Relaxed);
    }

    pub(crate) async fn carry_out(&self, id: WorkId, work: Work) -> Answer {
        match work {
            Work::ReadTimestamp => {
                if lost("coordinator::before_cut") {
                    return lost_answer();
                }
                let answer = self.drawn(id, Oracle::Read).await;
                if lost("coordinator::after_cut") { lost_answer() } else { answer }
            }
            Work::Start { attempt } => self.start(id, attempt).await,
            Work::ReadRecord { at, end_locks } => self.read_record(id, at, end_locks).await,
            Work::Prewrite { start_ts, record, min_commit_ts, ttl_ms } => {
                self.prewrite(start_ts, &record, min_commit_ts, ttl_ms).await
            }
            Work::DrawCommit => {
                if lost("coordinator::before_draw_commit") {
                    return lost_answer();
                }
                self.drawn(id, Oracle::Fresh).await
            }
            Work::Commit { start_ts, commit_ts } => self.commit(start_ts, commit_ts).await,
            Work::Ask { start_ts, end } => self.ask(id, start_ts, end).await,
        }
    }

    async fn drawn(&self, id: WorkId, oracle: Oracle) -> Answer {
        let mut attempt = 0;
        loop {
            let drawn = match oracle {
                Oracle::Fresh => self.store.timestamp().await,
                Oracle::Read => self.store.read_timestamp().await,
            };
            match drawn {
                Ok(timestamp) => return Answer::Timestamp(timestamp),
                Err(error) => {
                    if let Err(error) = self.again(id, &mut attempt, Some(TRIES_MAX), error).await {
                        return unknown_or_failed(error);
                    }
                }
            }
        }
    }

    async fn start(&self, id: WorkId, attempt: u32) -> Answer {
        if attempt > 0 {
            tokio::time::sleep(self.backoff.wait(attempt)).await;
        }
        if lost("coordinator::before_start") {
            return lost_answer();
        }
        let answer = self.drawn(id, Oracle::Fresh).await;
        if lost("coordinator::after_start") { lost_answer() } else { answer }
    }

    /// Waits before a further try after an error; gives the error back if there is to be none.
    ///
    /// Only an absent store is tried again, while the work is still wanted and tries are left.
    async fn again(&self, id: WorkId, attempt: &mut u32, tries_max: Option<u32>, error: Error) -> Result<()> {
        *attempt += 1;
        let wanted = self.newest.load(Ordering::Relaxed) == id.0;
        if !is_away(&error) || !wanted || tries_max.is_some_and(|most| *attempt >= most) {
            return Err(error);
        }
        tracing::debug!(job = self.job.0, attempt, %error, "the store is away, trying again");
        tokio::time::sleep(self.backoff.wait(*attempt)).await;
        Ok(())
    }

    async fn read_record(&self, id: WorkId, at: Timestamp, end_locks: bool) -> Answer {
        if lost("coordinator::before_read_record") {
            return lost_answer();
        }
        let mut attempt = 0;
        let answer = loop {
            match self.read_resolving(at, end_locks).await {
                Ok(record) => break Answer::Record(record),
                Err(error) => {
                    if let Err(error) = self.again(id, &mut attempt, Some(TRIES_MAX), error).await {
                        break unknown_or_failed(error);
                    }
                }
            }
        };
        if lost("coordinator::after_read_record") { lost_answer() } else { answer }
    }

    /// Reads the record; a lock in the way is resolved and then `Unavailable` makes the caller read again.
    async fn read_resolving(&self, at: Timestamp, end_locks: bool) -> Result<Option<EpochRecord>> {
        self.store.wait_visible(at).await?;
        let mut context = ReadContext::at(at);
        loop {
            let lock = match self.store.kv_get(&self.key, &context).await {
                Ok(value) => return value.map(|value| EpochRecord::decode(&value)).transpose(),
                Err(KeyError::Locked(lock)) => lock,
                Err(error) => return Err(Error::from(error)),
            };
            let passed = context.resolved_locks.contains(&lock.start_ts);
            match self.resolve(&lock, at, end_locks).await? {
                Resolved::Gone => {}
                Resolved::Pushed if !passed => context.resolved_locks.push(lock.start_ts),
                Resolved::Pushed | Resolved::Alive => {
                    return Err(Error::unavailable(format!(
                        "job {}: the epoch record is locked by transaction {}",
                        self.job, lock.start_ts
                    )));
                }
            }
        }
    }

    /// Resolves a lock on the epoch record through its primary.
    async fn resolve(&self, lock: &LockInfo, caller: Timestamp, end: bool) -> Result<Resolved> {
        let now = self.store.timestamp().await?;
        // Only a transaction of this very record is ended: an adopting epoch of another job is waited for.
        let end = end && lock.primary == self.key;
        let expired = now.physical_ms() > lock.start_ts.physical_ms().saturating_add(lock.ttl_ms);
        let request = TxnStatusRequest {
            primary: lock.primary.clone(),
            start_ts: lock.start_ts,
            caller_start_ts: caller,
            current_ts: if end { Timestamp::MAX } else { now },
            rollback_if_not_exist: end || expired,
            verify_is_primary: true,
        };
        let commit_ts = match self.store.check_txn_status(&request).await {
            Ok(TxnStatus::Committed(commit_ts)) => Some(commit_ts),
            Ok(TxnStatus::RolledBack) => None,
            Ok(TxnStatus::Alive { pushed: true, .. }) => return Ok(Resolved::Pushed),
            // Not pushed, or a primary that is not there yet while its secondary has time to live.
            Ok(TxnStatus::Alive { .. }) | Err(KeyError::TxnNotFound { .. }) => return Ok(Resolved::Alive),
            // The lock was replaced in between: whoever reads again meets the new one.
            Err(KeyError::PrimaryMismatch(_)) => return Ok(Resolved::Gone),
            Err(error) => return Err(Error::from(error)),
        };
        match self.store.resolve_lock(lock.start_ts, commit_ts, std::slice::from_ref(&lock.key)).await {
            // Somebody else has resolved it in the meantime.
            Ok(()) | Err(KeyError::TxnLockNotFound(_)) => Ok(Resolved::Gone),
            Err(error) => Err(Error::from(error)),
        }
    }

    async fn prewrite(
        &self,
        start_ts: Timestamp,
        record: &EpochRecord,
        min_commit_ts: Timestamp,
        ttl_ms: u64,
    ) -> Answer {
        if lost("coordinator::before_primary_prewrite") {
            return lost_answer();
        }
        let request = PrewriteRequest {
            mutations: vec![Mutation::put(self.key.clone(), record.encode())],
            primary: self.key.clone(),
            start_ts,
            ttl_ms,
            txn_size: 1,
            min_commit_ts,
            assertion_level: AssertionLevel::Off,
            staged: true,
        };
        let answer = match self.store.prewrite(request).await {
            Ok(()) => Answer::Prewritten,
            Err(errors) => self.refused_prewrite(start_ts, errors).await,
        };
        if lost("coordinator::after_primary_prewrite") { lost_answer() } else { answer }
    }

    async fn refused_prewrite(&self, start_ts: Timestamp, errors: Vec<KeyError>) -> Answer {
        let Some(error) = errors.into_iter().next() else {
            return Answer::Failed(Error::corrupt("a prewrite was refused without a reason"));
        };
        match error {
            KeyError::Locked(lock) => {
                tracing::info!(
                    job = self.job.0,
                    start_ts = start_ts.0,
                    holder = lock.start_ts.0,
                    "the primary's prewrite was refused: the epoch record is locked"
                );
                // Locks that readers pass by are met here only; a dead owner's must not stay for ever.
                match self.resolve(&lock, Timestamp::ZERO, false).await {
                    Err(error) if !is_away(&error) => Answer::Failed(error),
                    Ok(_) | Err(_) => Answer::Conflict,
                }
            }
            KeyError::WriteConflict { .. } => {
                tracing::info!(
                    job = self.job.0,
                    start_ts = start_ts.0,
                    "the primary's prewrite was refused: the epoch record is newer than the start"
                );
                Answer::Conflict
            }
            error => unknown_or_failed(Error::from(error)),
        }
    }

    async fn commit(&self, start_ts: Timestamp, commit_ts: Option<Timestamp>) -> Answer {
        if lost("coordinator::before_commit_primary") {
            return lost_answer();
        }
        let keys = vec![self.key.clone()];
        let request = CommitRequest { start_ts, keys, primary: self.key.clone(), commit_ts };
        let answer = match self.store.commit(request).await {
            Ok(commit_ts) => Answer::Committed(commit_ts),
            Err(KeyError::CommitTsExpired { attempted, min_commit_ts })
                if min_commit_ts.physical_ms() > attempted.physical_ms().saturating_add(PUSH_MS_MAX) =>
            {
                Answer::Failed(Error::corrupt(format!(
                    "transaction {start_ts} was pushed from {attempted} to {min_commit_ts}, over an hour"
                )))
            }
            Err(KeyError::CommitTsExpired { .. }) => Answer::Expired,
            Err(KeyError::TxnLockNotFound(_) | KeyError::TxnNotFound { .. }) => {
                tracing::warn!(
                    job = self.job.0,
                    start_ts = start_ts.0,
                    "the primary's commit was refused: its lock is gone"
                );
                Answer::LockGone
            }
            Err(error) => unknown_or_failed(Error::from(error)),
        };
        if lost("coordinator::after_commit_primary") { lost_answer() } else { answer }
    }

    async fn ask(&self, id: WorkId, start_ts: Timestamp, end: bool) -> Answer {
        if lost("coordinator::before_ask") {
            return lost_answer();
        }
        let request = TxnStatusRequest {
            primary: self.key.clone(),
            start_ts,
            caller_start_ts: Timestamp::ZERO,
            current_ts: if end { Timestamp::MAX } else { Timestamp::ZERO },
            rollback_if_not_exist: end,
            verify_is_primary: true,
        };
        let mut attempt = 0;
        let answer = loop {
            match fate(self.store.check_txn_status(&request).await) {
                Ok(fate) => {
                    if fate == Fate::RolledBack {
                        tracing::info!(
                            job = self.job.0,
                            start_ts = start_ts.0,
                            "the primary was rolled back"
                        );
                    }
                    break Answer::Fate(fate);
                }
                Err(error) => {
                    if let Err(error) = self.again(id, &mut attempt, None, error).await {
                        break unknown_or_failed(error);
                    }
                }
            }
        };
        if lost("coordinator::after_ask") { lost_answer() } else { answer }
    }

    /// Prolongs the primary's lock by its time to live from now on.
    pub(crate) async fn heartbeat(&self, start_ts: Timestamp, ttl_ms: u64) -> Beat {
        if lost("coordinator::before_heartbeat") {
            return Beat::Unknown;
        }
        let Ok(now) = self.store.timestamp().await else { return Beat::Unknown };
        let age_ms = now.physical_ms().saturating_sub(start_ts.physical_ms());
        match self.store.heartbeat(&self.key, start_ts, age_ms.saturating_add(ttl_ms)).await {
            Ok(_) => Beat::Alive,
            Err(KeyError::TxnLockNotFound(_) | KeyError::TxnNotFound { .. }) => {
                tracing::info!(
                    job = self.job.0,
                    start_ts = start_ts.0,
                    "a heartbeat was refused: the primary has no lock"
                );
                Beat::Gone
            }
            // The primary is asked; whatever is wrong shows there, with its reason.
            Err(error) => {
                tracing::warn!(job = self.job.0, start_ts = start_ts.0, ?error, "heartbeat failed");
                Beat::Unknown
            }
        }
    }

    /// Moves the job's hold on history; whether it could.
    pub(crate) async fn hold(&self, cut: Timestamp) -> bool {
        match self.store.hold(&hold_name(self.job), cut).await {
            Ok(()) => true,
            Err(error) => {
                // Whoever then finds that history gone rebuilds (G7).
                tracing::warn!(job = self.job.0, cut = cut.0, %error, "cannot hold history at the frontier");
                false
            }
        }
    }
}

/// What became of a lock in the way.
enum Resolved {
    Gone,
    /// Its transaction commits above the caller.
    Pushed,
    Alive,
}

/// The name of a job's hold on history.
#[must_use]
pub fn hold_name(job: JobId) -> String {
    format!("job/{job}")
}

fn fate(status: KvResult<TxnStatus>) -> Result<Fate> {
    match status {
        Ok(TxnStatus::Committed(commit_ts)) => Ok(Fate::Committed(commit_ts)),
        Ok(TxnStatus::RolledBack) => Ok(Fate::RolledBack),
        Ok(TxnStatus::Alive { .. }) => Ok(Fate::Alive),
        Err(KeyError::TxnNotFound { .. }) => Ok(Fate::NoTrace),
        Err(error) => Err(Error::from(error)),
    }
}

fn is_away(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable)
}

fn unknown_or_failed(error: Error) -> Answer {
    if is_away(&error) { Answer::Unknown(error) } else { Answer::Failed(error) }
}

fn lost_answer() -> Answer {
    Answer::Unknown(Error::unavailable("lost at a fail point"))
}
