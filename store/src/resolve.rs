//! What a reader or a writer does about somebody else's lock: it asks the primary, and acts on that.
//!
//! Everything goes through the trait, so it is the same for every store.

use std::time::Duration;

use types::{Error, Result, Timestamp};

use crate::traits::{Key, KeyError, KvResult, LockInfo, Store, TxnStatus, TxnStatusRequest};

const WAIT_MS_FIRST: u64 = 1;
const WAIT_MS_MAX: u64 = 200;

/// A bounded, growing wait.
#[derive(Debug)]
pub(crate) struct Backoff {
    left_ms: u64,
    next_ms: u64,
}

impl Backoff {
    pub(crate) fn new(limit_ms: u64) -> Backoff {
        Backoff { left_ms: limit_ms, next_ms: WAIT_MS_FIRST }
    }

    /// Waits a little; `false` if there is no time left.
    pub(crate) async fn wait(&mut self) -> bool {
        if self.left_ms == 0 {
            return false;
        }
        let wait_ms = self.next_ms.min(self.left_ms);
        self.left_ms -= wait_ms;
        self.next_ms = (self.next_ms * 2).min(WAIT_MS_MAX);
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        true
    }
}

/// What a lock is to whoever met it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its transaction has committed.
    Committed(Timestamp),
    /// Its transaction is rolled back.
    RolledBack,
    /// Its transaction lives, and will commit above the caller if at all.
    Pushed,
    /// Its transaction lives and may commit anywhere.
    Alive,
}

impl Fate {
    /// What to ask a lock's primary now; `caller` is the reader's timestamp, zero for a writer.
    #[must_use]
    pub fn question(lock: &LockInfo, caller: Timestamp, now: Timestamp) -> TxnStatusRequest {
        TxnStatusRequest {
            primary: lock.primary.clone(),
            start_ts: lock.start_ts,
            caller_start_ts: caller,
            current_ts: now,
            // The primary may only be on its way, unless the lock is too old for that.
            rollback_if_not_exist: lock.start_ts.physical_ms().saturating_add(lock.ttl_ms)
                < now.physical_ms(),
            verify_is_primary: true,
        }
    }

    /// What the primary's answer to [`Fate::question`] means for the lock.
    ///
    /// # Errors
    /// What the store says about the primary.
    pub fn of(answer: KvResult<TxnStatus>) -> KvResult<Fate> {
        match answer {
            Ok(TxnStatus::Committed(commit_ts)) => Ok(Fate::Committed(commit_ts)),
            Ok(TxnStatus::RolledBack) => Ok(Fate::RolledBack),
            Ok(TxnStatus::Alive { pushed: true, .. }) => Ok(Fate::Pushed),
            // Not prewritten yet, or the key belongs to another transaction's primary by now: look again.
            Ok(TxnStatus::Alive { pushed: false, .. })
            | Err(KeyError::TxnNotFound { .. } | KeyError::PrimaryMismatch(_)) => Ok(Fate::Alive),
            Err(error) => Err(error),
        }
    }
}

/// Asks a lock's primary what became of its transaction; `caller` is the reader's timestamp, zero for a
/// writer.
pub(crate) async fn ask(store: &dyn Store, lock: &LockInfo, caller: Timestamp) -> KvResult<Fate> {
    let question = Fate::question(lock, caller, store.timestamp().await?);
    Fate::of(store.check_txn_status(&question).await)
}

/// Finishes locks of one transaction that is decided.
pub(crate) async fn finish(
    store: &dyn Store,
    locks: &[&LockInfo],
    commit_ts: Option<Timestamp>,
) -> KvResult<()> {
    let Some(start_ts) = locks.first().map(|lock| lock.start_ts) else { return Ok(()) };
    let keys: Vec<Key> = locks.iter().map(|lock| lock.key.clone()).collect();
    match store.resolve_lock(start_ts, commit_ts, &keys).await {
        // Somebody else was faster.
        Err(KeyError::TxnLockNotFound(_)) => Ok(()),
        other => other,
    }
}

/// Finishes a lock in a writer's way if its transaction is decided; `false` if that is alive.
///
/// # Errors
/// What the store says.
pub async fn settle(store: &dyn Store, lock: &LockInfo) -> KvResult<bool> {
    let commit_ts = match ask(store, lock, Timestamp::ZERO).await? {
        Fate::Committed(commit_ts) => Some(commit_ts),
        Fate::RolledBack => None,
        Fate::Pushed | Fate::Alive => return Ok(false),
    };
    finish(store, &[lock], commit_ts).await?;
    Ok(true)
}

/// Makes way for a writer: finishes the lock if it is decided, else waits a little.
pub(crate) async fn settle_for_writer(
    store: &dyn Store,
    lock: &LockInfo,
    backoff: &mut Backoff,
) -> KvResult<()> {
    if settle(store, lock).await? || backoff.wait().await {
        return Ok(());
    }
    Err(KeyError::Locked(Box::new(lock.clone())))
}

/// Makes the locks harmless for everything at or below `ts`: afterwards each is finished, or will
/// commit above it if at all.
pub(crate) async fn settle_below(
    store: &dyn Store,
    locks: Vec<LockInfo>,
    ts: Timestamp,
    backoff: &mut Backoff,
) -> Result<()> {
    for lock in locks {
        loop {
            match ask(store, &lock, ts).await? {
                Fate::Committed(commit_ts) => finish(store, &[&lock], Some(commit_ts)).await?,
                Fate::RolledBack => finish(store, &[&lock], None).await?,
                Fate::Pushed => {}
                Fate::Alive if backoff.wait().await => {
                    let range = crate::traits::KeyRange::new(lock.key.clone(), next_key(&lock.key));
                    let still = store.scan_lock(&range, lock.start_ts, 0).await?;
                    if still.iter().any(|other| other.start_ts == lock.start_ts) {
                        continue;
                    }
                }
                Fate::Alive => {
                    return Err(Error::unavailable(format!(
                        "a lock of transaction {} stays in the way of {ts}",
                        lock.start_ts
                    )));
                }
            }
            break;
        }
    }
    Ok(())
}

/// The key that follows a key at once.
pub fn next_key(key: &[u8]) -> Vec<u8> {
    let mut next = key.to_vec();
    next.push(0);
    next
}
