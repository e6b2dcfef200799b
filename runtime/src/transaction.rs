//! The worker's half of an epoch's transaction: prewrite, commit, roll back, in bounded batches.
//!
//! Every key goes through here once a start, with one final value. A lock in the way is settled at its
//! primary; a conflict is explained before anything else is done: what is ours alone (a view's rows)
//! was written by somebody else, what is shared (catalog, a fill's record) is tried under a new start.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use store::{AssertionLevel, CommitRequest, Key, KeyError, Mutation, PrewriteRequest, Store, settle};
use types::{Error, ErrorKind, Result, TableId, Timestamp};

/// Keys of one request.
const KEYS_PER_REQUEST: usize = 1024;
/// Bytes of values of one request.
const BYTES_PER_REQUEST: usize = 4 << 20;
/// Requests under way at once: round trips of a large epoch are waited for together.
const REQUESTS_AT_ONCE: usize = 8;
/// How long a lock of somebody else is waited for before the epoch is tried under a new start.
const LOCK_WAIT_MS_MAX: u64 = 5_000;
/// How long an unavailable store is asked again before the run ends.
const UNAVAILABLE_MS_MAX: u64 = 10_000;
/// The longest pause between two tries.
const PAUSE_MS_MAX: u64 = 100;

/// The transaction that the coordinator has begun.
#[derive(Clone)]
pub(crate) struct EpochTransaction {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) start_ts: Timestamp,
    pub(crate) primary: Bytes,
    pub(crate) ttl_ms: u64,
    pub(crate) min_commit_ts: Timestamp,
}

/// How the prewrites ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Prewritten {
    /// Every key is locked.
    Done,
    /// A shared key changed since the start, or is locked for long: try again under a new start.
    Again,
    /// Somebody else wrote a key of a view, or what is stored is not what the view expects.
    Foreign {
        /// The view.
        view: TableId,
        /// The key.
        key: Key,
        /// Which of the two.
        reason: &'static str,
    },
}

impl EpochTransaction {
    /// Prewrites all mutations; a key appears once in them.
    pub(crate) async fn prewrite(&self, mutations: &[Mutation]) -> Result<Prewritten> {
        let txn_size = mutations.len() as u64;
        let batches: Vec<&[Mutation]> = batches(mutations).collect();
        for together in batches.chunks(REQUESTS_AT_ONCE) {
            let prewrites = together.iter().map(|batch| self.prewrite_batch(batch, txn_size));
            // All of them end before anything else is done: no prewrite is on its way when the keys are rolled back.
            for outcome in join_all(prewrites).await {
                match outcome? {
                    Prewritten::Done => {}
                    other => return Ok(other),
                }
            }
        }
        Ok(Prewritten::Done)
    }

    async fn prewrite_batch(&self, batch: &[Mutation], txn_size: u64) -> Result<Prewritten> {
        let mut locked = Pauses::new(LOCK_WAIT_MS_MAX);
        let mut unavailable = Pauses::new(UNAVAILABLE_MS_MAX);
        loop {
            let request = PrewriteRequest {
                mutations: batch.to_vec(),
                primary: self.primary.clone(),
                start_ts: self.start_ts,
                ttl_ms: self.ttl_ms,
                txn_size,
                min_commit_ts: self.min_commit_ts,
                assertion_level: AssertionLevel::Strict,
                staged: true,
            };
            let Err(errors) = self.store.prewrite(request).await else { return Ok(Prewritten::Done) };
            let mut alive = false;
            for error in errors {
                match error {
                    KeyError::Locked(lock) => alive |= !settle(self.store.as_ref(), &lock).await?,
                    KeyError::WriteConflict { self_rolled_back: true, .. } => return Ok(Prewritten::Again),
                    KeyError::WriteConflict { key, .. } => {
                        return Ok(explain(key, "somebody else wrote the view's rows"));
                    }
                    KeyError::AssertionFailed { key, .. } if view_of_key(&key).is_some() => {
                        return Ok(explain(key, "a stored row is not what the view expects"));
                    }
                    KeyError::Store(error) if error.kind() == ErrorKind::Unavailable => {
                        if !unavailable.pause().await {
                            return Err(error);
                        }
                    }
                    other => return Err(other.into()),
                }
            }
            if alive && !locked.pause().await {
                return Ok(Prewritten::Again);
            }
        }
    }

    /// Commits the keys of the decided transaction.
    pub(crate) async fn commit(&self, mutations: &[Mutation], commit_ts: Timestamp) -> Result<()> {
        let batches: Vec<&[Mutation]> = mutations.chunks(KEYS_PER_REQUEST).collect();
        for together in batches.chunks(REQUESTS_AT_ONCE) {
            let commits = together.iter().map(|batch| self.commit_batch(batch, commit_ts));
            join_all(commits).await.into_iter().collect::<Result<()>>()?;
        }
        Ok(())
    }

    async fn commit_batch(&self, batch: &[Mutation], commit_ts: Timestamp) -> Result<()> {
        let keys: Vec<Key> = batch.iter().map(|mutation| mutation.key.clone()).collect();
        let mut unavailable = Pauses::new(UNAVAILABLE_MS_MAX);
        loop {
            let request = CommitRequest {
                start_ts: self.start_ts,
                keys: keys.clone(),
                primary: self.primary.clone(),
                commit_ts: Some(commit_ts),
            };
            match self.store.commit(request).await {
                Ok(_) => return Ok(()),
                Err(KeyError::Store(error)) if error.kind() == ErrorKind::Unavailable => {
                    if !unavailable.pause().await {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Rolls our keys back; the primary is known to be rolled back.
    pub(crate) async fn roll_back(&self, mutations: &[Mutation]) -> Result<()> {
        for batch in mutations.chunks(KEYS_PER_REQUEST) {
            let keys: Vec<Key> = batch.iter().map(|mutation| mutation.key.clone()).collect();
            self.store.batch_rollback(self.start_ts, &keys).await?;
        }
        Ok(())
    }
}

/// A conflict on a view's own key is somebody else's write; on a shared key it is a concurrent change.
fn explain(key: Key, reason: &'static str) -> Prewritten {
    match view_of_key(&key) {
        Some(view) => Prewritten::Foreign { view, key, reason },
        None => Prewritten::Again,
    }
}

fn view_of_key(key: &[u8]) -> Option<TableId> {
    tidb::table_of_key(key).and_then(|id| u64::try_from(id).ok()).map(TableId)
}

fn batches(mutations: &[Mutation]) -> impl Iterator<Item = &[Mutation]> {
    let mut rest = mutations;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut n_bytes = 0;
        let fits = |mutation: &&Mutation| {
            n_bytes += mutation.key.len() + mutation.value.len();
            n_bytes <= BYTES_PER_REQUEST
        };
        let n_keys = rest.iter().take(KEYS_PER_REQUEST).take_while(fits).count().max(1);
        let (batch, after) = rest.split_at(n_keys);
        rest = after;
        Some(batch)
    })
}

/// Growing pauses up to a limit in all.
#[derive(Debug)]
pub(crate) struct Pauses {
    left_ms: u64,
    next_ms: u64,
}

impl Pauses {
    /// Pauses of so many milliseconds together.
    pub(crate) fn new(limit_ms: u64) -> Pauses {
        Pauses { left_ms: limit_ms, next_ms: 1 }
    }

    /// Waits a little; `false` if there is no time left.
    pub(crate) async fn pause(&mut self) -> bool {
        if self.left_ms == 0 {
            return false;
        }
        let pause_ms = self.next_ms.min(self.left_ms);
        self.left_ms -= pause_ms;
        self.next_ms = (self.next_ms * 2).min(PAUSE_MS_MAX);
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        true
    }
}

/// Repeats an idempotent call while the other side is away, for a bounded time.
pub(crate) async fn repeat<T, F, Fut>(mut call: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T>>,
{
    let mut pauses = Pauses::new(UNAVAILABLE_MS_MAX);
    loop {
        match call().await {
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                if !pauses.pause().await {
                    return Err(error);
                }
            }
            outcome => return outcome,
        }
    }
}

/// Checks that no key comes twice: of two mutations of one key a store keeps the first.
pub(crate) fn assert_distinct(mutations: &[Mutation]) -> Result<()> {
    let mut keys: Vec<&Key> = mutations.iter().map(|mutation| &mutation.key).collect();
    keys.sort_unstable();
    match keys.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Error::corrupt(format!("key {} twice in one epoch", pair[0].escape_ascii()))),
        None => Ok(()),
    }
}
