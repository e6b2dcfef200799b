//! The contract of a transactional store.
//!
//! [`Store`] is one object-safe trait, so that the embedded engine, a TiKV cluster and a store behind
//! gRPC are interchangeable. The calls mirror TiKV's (kvproto) in meaning and in error precedence,
//! because recorded exchanges of a real server are the judge of every implementation. Reads here may
//! meet locks and then say so; [`crate::Snapshot`] resolves them. All calls are idempotent: a caller
//! that lost an answer repeats the call. Keys and values are raw bytes.

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use types::{Error, Result, Timestamp};

use crate::readers::Reading;

pub use crate::key_range::KeyRange;
pub use crate::mutation::{Assertion, AssertionLevel, Mutation, MutationOp};

/// A raw key. Writes of an empty or a very long one are refused ([`crate::check_key_length`]); reads find
/// nothing under it.
pub type Key = Bytes;
/// A raw value; may be empty, which is not the same as absent.
pub type Value = Bytes;

/// At which timestamp to read, and which locks to look past.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadContext {
    /// The snapshot's timestamp; `Timestamp::MAX` reads the newest and ignores primary locks.
    pub ts: Timestamp,
    /// Start timestamps of transactions known to commit above `ts` or not at all: their locks are ignored.
    pub resolved_locks: Vec<Timestamp>,
    /// Start timestamps of transactions known to have committed at or below `ts`: their locks are read through.
    pub committed_locks: Vec<Timestamp>,
}

impl ReadContext {
    /// Reads at a timestamp and reports every lock.
    #[must_use]
    pub fn at(ts: Timestamp) -> ReadContext {
        ReadContext { ts, ..ReadContext::default() }
    }
}

/// What kind of lock a key carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// The transaction writes a value.
    Put,
    /// The transaction deletes the key.
    Delete,
    /// The transaction only guards the key; never blocks readers.
    Lock,
}

/// A lock that was met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockInfo {
    /// The locked key.
    pub key: Key,
    /// The primary key of the transaction, which decides it.
    pub primary: Key,
    /// The transaction's start timestamp: its identity.
    pub start_ts: Timestamp,
    /// Time to live in milliseconds, counted from the start timestamp's physical part.
    pub ttl_ms: u64,
    /// The number of keys of the transaction, as its writer said.
    pub txn_size: u64,
    /// What the transaction does to the key.
    pub kind: LockKind,
    /// The least commit timestamp; zero means that readers cannot push it.
    pub min_commit_ts: Timestamp,
}

/// Why a key could not be read or written.
///
/// The order of the variants is the order in which a client must test TiKV's answer (TiKV fills
/// several fields at once).
#[derive(Clone, Debug)]
pub enum KeyError {
    /// Another transaction's lock is in the way.
    Locked(Box<LockInfo>),
    /// A newer record exists.
    WriteConflict {
        /// The key.
        key: Key,
        /// The start of the transaction that lost.
        start_ts: Timestamp,
        /// The start of the transaction that won.
        conflict_start_ts: Timestamp,
        /// The commit of the transaction that won (its start for a rollback record).
        conflict_commit_ts: Timestamp,
        /// Whether the record is this very transaction's own rollback.
        self_rolled_back: bool,
    },
    /// An Insert or CheckNotExists found the key.
    AlreadyExists(Key),
    /// The commit timestamp is below what readers have pushed it to.
    CommitTsExpired {
        /// The refused commit timestamp.
        attempted: Timestamp,
        /// The least that would be accepted.
        min_commit_ts: Timestamp,
    },
    /// The primary of the asked transaction is not there.
    TxnNotFound {
        /// The transaction.
        start_ts: Timestamp,
        /// Its primary.
        primary: Key,
    },
    /// The lock to commit or to raise is not there: rolled back, or never prewritten.
    TxnLockNotFound(Key),
    /// The previous state is not what the caller asserted.
    AssertionFailed {
        /// The key.
        key: Key,
        /// What was asserted.
        assertion: Assertion,
    },
    /// The asked key is locked but is not the primary.
    PrimaryMismatch(Box<LockInfo>),
    /// The request cannot be done, for example a rollback of what is committed.
    Abort(String),
    /// The store itself failed.
    Store(Error),
}

/// The result of a call on keys.
pub type KvResult<T> = std::result::Result<T, KeyError>;

impl From<Error> for KeyError {
    fn from(error: Error) -> KeyError {
        KeyError::Store(error)
    }
}

impl From<KeyError> for Error {
    fn from(error: KeyError) -> Error {
        match error {
            KeyError::Store(error) => error,
            KeyError::WriteConflict { key, start_ts, conflict_commit_ts, .. } => {
                let text = format!(
                    "write conflict: {} was written at {conflict_commit_ts} by another transaction, after this \
                     one began at {start_ts}",
                    in_words(&key)
                );
                Error::conflict(text).with_mysql_code(9007)
            }
            KeyError::AlreadyExists(_) => Error::invalid("duplicate entry for key").with_mysql_code(1062),
            KeyError::Locked(lock) => Error::unavailable(format!(
                "{} is locked by the transaction that began at {}",
                in_words(&lock.key),
                lock.start_ts
            )),
            KeyError::CommitTsExpired { attempted, min_commit_ts } => Error::conflict(format!(
                "commit timestamp {attempted} has expired: at least {min_commit_ts} is needed"
            )),
            KeyError::TxnNotFound { start_ts, primary } => Error::conflict(format!(
                "the transaction that began at {start_ts} was rolled back: its primary {} has no lock",
                in_words(&primary)
            )),
            KeyError::TxnLockNotFound(key) => {
                Error::conflict(format!("the transaction was rolled back: {} has no lock", in_words(&key)))
            }
            KeyError::AssertionFailed { key, assertion } => Error::corrupt(format!(
                "store is not in the asserted state: {} was asserted to {}",
                in_words(&key),
                match assertion {
                    Assertion::None => "be",
                    Assertion::Exist => "exist",
                    Assertion::NotExist => "not exist",
                }
            )),
            KeyError::PrimaryMismatch(lock) => Error::corrupt(format!(
                "store is not in the asserted state: {} is no primary, that is {}",
                in_words(&lock.key),
                in_words(&lock.primary)
            )),
            KeyError::Abort(text) => Error::invalid(text),
        }
    }
}

/// A key in a message, in hexadecimal: what it stands for is its writer's to say.
fn in_words(key: &Key) -> String {
    use std::fmt::Write;
    let mut text = "key 0x".to_owned();
    for byte in key {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The first half of a transaction, or a part of it.
///
/// Each key appears once in a request, and in all requests of a transaction with the same mutation:
/// of two requests the first wins, and one request with a key twice is refused (it ends a real store).
#[derive(Clone, Debug)]
pub struct PrewriteRequest {
    /// The keys.
    pub mutations: Vec<Mutation>,
    /// The transaction's primary key.
    pub primary: Key,
    /// The transaction's identity.
    pub start_ts: Timestamp,
    /// Time to live, in milliseconds from the start timestamp.
    pub ttl_ms: u64,
    /// The number of keys of the transaction (a hint).
    pub txn_size: u64,
    /// The least commit timestamp; zero makes the locks unpushable.
    pub min_commit_ts: Timestamp,
    /// Whether assertions are checked.
    pub assertion_level: AssertionLevel,
    /// Whether the locks may be staged: kept in memory until the primary commits, each row then written
    /// once. In a crash staged locks are lost together with their primary's. A store may ignore it.
    pub staged: bool,
}

/// The second half of a transaction, or a part of it. The primary goes first and alone.
#[derive(Clone, Debug)]
pub struct CommitRequest {
    /// The transaction.
    pub start_ts: Timestamp,
    /// The keys to commit.
    pub keys: Vec<Key>,
    /// The transaction's primary key.
    pub primary: Key,
    /// The commit timestamp; `None` (allowed for the primary only) lets the store draw it.
    pub commit_ts: Option<Timestamp>,
}

/// A question about a transaction to its primary.
#[derive(Clone, Debug)]
pub struct TxnStatusRequest {
    /// The primary key.
    pub primary: Key,
    /// The transaction.
    pub start_ts: Timestamp,
    /// The reader's timestamp: a living pushable lock is pushed above it; zero pushes nothing.
    pub caller_start_ts: Timestamp,
    /// Now, by the oracle; `Timestamp::MAX` ends the transaction for good.
    pub current_ts: Timestamp,
    /// Leave a rollback record if there is no trace of the transaction.
    pub rollback_if_not_exist: bool,
    /// Refuse if the key is locked with another primary.
    pub verify_is_primary: bool,
}

/// What has become of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnStatus {
    /// Committed at the timestamp.
    Committed(Timestamp),
    /// Rolled back for good.
    RolledBack,
    /// Alive for so many milliseconds from its start; `pushed` if its commit is known to be above the caller.
    Alive {
        /// The lock on the primary.
        lock: Box<LockInfo>,
        /// Whether the caller may read around its locks.
        pushed: bool,
    },
}

/// A key and its value, or why it has none. A pair with an error counts towards a scan's limit.
#[derive(Clone, Debug)]
pub struct KvPair {
    /// The key; empty in TiKV's pairs with an error, filled here.
    pub key: Key,
    /// The value.
    pub value: KvResult<Value>,
}

/// A scan at a snapshot.
#[derive(Clone, Debug)]
pub struct ScanRequest {
    /// The keys.
    pub range: KeyRange,
    /// The most pairs to return; a full page may be followed by more.
    pub limit: usize,
    /// Leave the values out.
    pub key_only: bool,
    /// From the end downwards.
    pub reverse: bool,
}

/// What a write record did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteKind {
    /// Wrote a value.
    Put,
    /// Deleted the key.
    Delete,
    /// Guarded the key.
    Lock,
    /// Rolled a transaction back (its commit timestamp is the start).
    Rollback,
}

/// A write record, for diagnosis and for the conformance suite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MvccWrite {
    /// What it did.
    pub kind: WriteKind,
    /// The transaction.
    pub start_ts: Timestamp,
    /// When it committed.
    pub commit_ts: Timestamp,
    /// The value of a Put.
    pub value: Option<Value>,
}

/// Everything known about one key: newest write first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MvccInfo {
    /// The lock, if there is one.
    pub lock: Option<LockInfo>,
    /// The write records, newest first.
    pub writes: Vec<MvccWrite>,
}

/// One committed change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub key: Key,
    /// The transaction.
    pub start_ts: Timestamp,
    /// When it committed.
    pub commit_ts: Timestamp,
    /// The new value; `None` if the key was deleted.
    pub value: Option<Value>,
    /// The value before the transaction; `None` if there was none.
    pub old_value: Option<Value>,
}

/// A page of a bounded feed, ordered by commit timestamp, then key.
#[derive(Clone, Debug, Default)]
pub struct ChangePage {
    /// The changes.
    pub changes: Vec<Change>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<(Timestamp, Key)>,
}

/// An event of a live change feed.
#[derive(Clone, Debug)]
pub enum FeedEvent {
    /// A committed change; its commit timestamp is above every resolved timestamp sent before.
    Change(Change),
    /// Everything in the range that committed at or below the timestamp has been sent.
    Resolved(Timestamp),
}

/// A live change feed; ends with an error when the store closes or history is gone.
pub type FeedStream = BoxStream<'static, Result<FeedEvent>>;

/// Changes that are counted at a time.
pub(crate) const COUNTED_PAGE: usize = 4096;

/// A transactional store: the whole contract.
///
/// Guarantees an implementor owes: a read at T, once answered, never changes, whatever commits later
/// (snapshot); a commit acknowledged before `read_timestamp` is called is visible at its answer; of a
/// key's prewrites under one start timestamp the first wins; a decision at the primary is final.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// A fresh timestamp, above every one handed out or committed before. Every start is unique.
    async fn timestamp(&self) -> Result<Timestamp>;

    /// A timestamp to read at that waits for nothing: all commits at or below it are applied, every
    /// commit acknowledged before the call is included, and later commits are above it.
    async fn read_timestamp(&self) -> Result<Timestamp>;

    /// Waits until everything at or below `ts` is applied, so that a read at it is final.
    async fn wait_visible(&self, ts: Timestamp) -> Result<()>;

    /// Reads a key.
    async fn kv_get(&self, key: &[u8], context: &ReadContext) -> KvResult<Option<Value>>;

    /// Reads many keys; absent keys are left out of the answer.
    async fn kv_batch_get(&self, keys: &[Key], context: &ReadContext) -> KvResult<Vec<KvPair>>;

    /// Reads a range in key order (or against it).
    async fn kv_scan(&self, request: &ScanRequest, context: &ReadContext) -> KvResult<Vec<KvPair>>;

    /// Locks keys. All or nothing within the request; on refusal reports every locked key, or the first
    /// other error. A start at or below garbage collection's barrier is refused.
    async fn prewrite(&self, request: PrewriteRequest) -> std::result::Result<(), Vec<KeyError>>;

    /// Commits locked keys and returns the commit timestamp of a primary (the requested one for others;
    /// for a repeated commit never take it from here: ask `check_txn_status`).
    async fn commit(&self, request: CommitRequest) -> KvResult<Timestamp>;

    /// Rolls keys back and leaves records that block late prewrites.
    async fn batch_rollback(&self, start_ts: Timestamp, keys: &[Key]) -> KvResult<()>;

    /// Asks the primary what became of a transaction, pushing or ending it as the request says.
    async fn check_txn_status(&self, request: &TxnStatusRequest) -> KvResult<TxnStatus>;

    /// Raises the primary lock's time to live (never lowers it) and returns it.
    async fn heartbeat(&self, primary: &[u8], start_ts: Timestamp, ttl_ms: u64) -> KvResult<u64>;

    /// Finishes locks of a decided transaction: commits them at `commit_ts`, or rolls them back if `None`.
    /// Without keys: every lock of the transaction.
    async fn resolve_lock(
        &self,
        start_ts: Timestamp,
        commit_ts: Option<Timestamp>,
        keys: &[Key],
    ) -> KvResult<()>;

    /// Lists locks with a start at or below `max_ts`, in key order; limit 0 is unlimited.
    async fn scan_lock(&self, range: &KeyRange, max_ts: Timestamp, limit: usize) -> KvResult<Vec<LockInfo>>;

    /// Everything about one key.
    async fn mvcc_get(&self, key: &[u8]) -> KvResult<MvccInfo>;

    /// Commits a whole transaction at once: checks every key for conflicts since `start_ts`, draws the
    /// commit timestamp, writes all or nothing, durable when it returns. Meets locks by resolving them.
    async fn commit_transaction(&self, start_ts: Timestamp, mutations: Vec<Mutation>) -> KvResult<Timestamp>;

    /// A page of all changes of the ranges with commit timestamps in (`from`, `to`], old values included.
    /// The first page resolves or pushes every lock in the way; costs what changed, not what exists. A page
    /// with a `next` may hold fewer changes than the limit, or none, after a look at many others.
    /// Fails with [`Error::history_gone`] if `from` is below what garbage collection has dropped.
    async fn changes(
        &self,
        ranges: &[KeyRange],
        from: Timestamp,
        to: Timestamp,
        next: Option<(Timestamp, Key)>,
        limit: usize,
    ) -> Result<ChangePage>;

    /// How many changes [`Store::changes`] has for the ranges in (`from`, `to`]; beyond `most` the count may
    /// end early, with any number above it. A store that knows without reading values does.
    async fn count_changes(
        &self,
        ranges: &[KeyRange],
        from: Timestamp,
        to: Timestamp,
        most: u64,
    ) -> Result<u64> {
        let limit = usize::try_from(most.saturating_add(1)).unwrap_or(usize::MAX).min(COUNTED_PAGE);
        let mut n_changes = 0;
        let mut next = None;
        loop {
            let page = self.changes(ranges, from, to, next, limit).await?;
            n_changes += page.changes.len() as u64;
            next = page.next;
            if most == 0 {
                // Of a page of one, an empty one with a next says that there is something.
                return Ok(n_changes.max(u64::from(next.is_some())));
            }
            if next.is_none() || n_changes > most {
                return Ok(n_changes);
            }
        }
    }

    /// The timestamp up to which everything in the ranges is committed and applied.
    async fn resolved(&self, ranges: &[KeyRange]) -> Result<Timestamp>;

    /// Subscribes to the changes of the ranges after `from`.
    async fn subscribe(&self, ranges: Vec<KeyRange>, from: Timestamp) -> Result<FeedStream>;

    /// Waits until something committed after `ts`, or the time is over; returns `read_timestamp`.
    async fn wait_change(&self, ts: Timestamp, timeout_ms: u64) -> Result<Timestamp>;

    /// Waits until something committed after `after`, or the time is over; returns a timestamp at or after
    /// `after` up to which the changes of the ranges are at hand, so that reading them waits for nothing.
    /// Whoever asks again with the last answer sees every change in time; what commits meanwhile may lie
    /// above.
    async fn cut(&self, ranges: &[KeyRange], after: Timestamp, timeout_ms: u64) -> Result<Timestamp> {
        let _ = ranges;
        self.wait_change(after, timeout_ms).await
    }

    /// Keeps history at and after `ts` under a name, replacing the name's previous hold; durable.
    /// Fails with [`Error::history_gone`] if it is gone already.
    async fn hold(&self, name: &str, ts: Timestamp) -> Result<()>;

    /// Drops a hold; a name without one is fine.
    async fn release(&self, name: &str) -> Result<()>;

    /// The holds in force, by name.
    async fn holds(&self) -> Result<Vec<(String, Timestamp)>>;

    /// Says that something in this process reads at a timestamp until the guard is dropped: garbage
    /// collection leaves what it needs, up to the store's limit of age. A store that is told by nobody (one
    /// behind a connection) leaves only what holds say.
    fn reading(&self, ts: Timestamp) -> Reading {
        Reading::unknown(ts)
    }

    /// As [`Store::reading`], for a transaction that began at `start_ts` and may write: what was decided at
    /// or below the barrier is forgotten, so that prewrites with such a start are refused, and the barrier
    /// has to stay below the start.
    fn begun(&self, start_ts: Timestamp) -> Reading {
        self.reading(start_ts.prev())
    }

    /// What is read at in this process, as far as the store was told: each timestamp with the number of its
    /// readers, the oldest first.
    fn readings(&self) -> Vec<(Timestamp, usize)> {
        Vec::new()
    }

    /// Drops versions that no read at or after the barrier can see (the barrier is lowered to the oldest
    /// hold and the oldest reading) and returns the barrier used. First resolves all locks with a start at or below it.
    async fn collect_garbage(&self, barrier: Timestamp) -> Result<Timestamp>;

    /// The timestamp below which history may be gone.
    async fn gc_barrier(&self) -> Result<Timestamp>;

    /// Writes unversioned values (runs) without waiting for the disk; the next commit's sync covers them.
    async fn put_blobs(&self, blobs: Vec<(Key, Value)>) -> Result<()>;

    /// Reads one unversioned value.
    async fn get_blob(&self, key: &[u8]) -> Result<Option<Value>>;

    /// Lists the keys of unversioned values with a prefix, after a key, at most `limit`.
    async fn list_blobs(&self, prefix: &[u8], after: Option<Key>, limit: usize) -> Result<Vec<Key>>;

    /// Deletes unversioned values.
    async fn delete_blobs(&self, keys: Vec<Key>) -> Result<()>;

    /// Rewrites what is stored, so that what was collected gives its space back at once; `false` if the
    /// store only does so by itself.
    async fn compact(&self) -> Result<bool> {
        Ok(false)
    }

    /// Stops accepting calls, finishes what is under way, syncs.
    async fn close(&self) -> Result<()>;
}
