//! What the committer and the readers share: engine, oracle, lock table, barrier, holds.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use tokio::sync::watch;
use types::{Error, Result, Timestamp};

use super::format::{
    FORMAT_VERSION, Record, StoredLock, Version, history_key, open_bytes, open_number, seal_number, show,
};
use super::locks::{LockTable, stored};
use super::oracle::{Oracle, check_bound};
use super::recent::Recent;
use super::spans::Spans;
use super::stretches::Stretches;
use super::taken::Taken;
use super::{CommitCounts, Options, stored_wrongly};
use crate::engine::{Batch, Durability, Engine, Space};
use crate::readers::Readers;
use crate::traits::Key;

pub(crate) const META_FORMAT: &[u8] = b"format";
pub(crate) const META_BOUND: &[u8] = b"oracle";
pub(crate) const META_BARRIER: &[u8] = b"barrier";
pub(crate) const META_COMMIT: &[u8] = b"commit";
pub(crate) const META_HOLD: &[u8] = b"hold/";

/// How much of the oracle's future is on disk at a time, in milliseconds.
pub(crate) const WINDOW_MS: u64 = 3_000;

/// The shared state of a store.
pub(crate) struct Core {
    engine: RwLock<Option<Arc<dyn Engine>>>,
    pub oracle: Oracle,
    pub options: Options,
    locks: RwLock<LockTable>,
    /// Hashes of keys that may have records, so that most writes need not look.
    recorded: RwLock<HashSet<u64>>,
    barrier: AtomicU64,
    /// Up to where this process has swept the index.
    swept: AtomicU64,
    pub holds: Mutex<BTreeMap<String, Timestamp>>,
    pub readers: Arc<Readers>,
    /// Why the store takes no more calls.
    closed: RwLock<Option<Error>>,
    /// Held while a keyspace is rewritten, which nobody can end before.
    pub reclaiming: Arc<tokio::sync::Mutex<()>>,
    /// Counts the groups that are over; whoever waits for a change waits for it.
    progress: watch::Sender<u64>,
    newest_commit: AtomicU64,
    /// Where large commits lie.
    pub spans: Spans,
    /// Where the newest commits lie.
    pub stretches: Stretches,
    /// What the newest commits wrote.
    pub recent: Recent,
    /// What committed with its primary.
    pub taken: Taken,
    syncs: AtomicU64,
    transactions: AtomicU64,
}

/// What became of a transaction, by the records of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Committed(Timestamp),
    RolledBack,
}

impl Core {
    /// Reads the store's facts from an engine, or writes the first ones; also returns how many synced
    /// groups the engine knows of.
    pub(crate) fn open(engine: Arc<dyn Engine>, options: Options) -> Result<(Core, u64)> {
        let number = |key: &[u8]| -> Result<Option<u64>> {
            engine.get(Space::Meta, key)?.map(|bytes| open_number(key, &bytes)).transpose()
        };
        match number(META_FORMAT)? {
            Some(FORMAT_VERSION) => {}
            Some(version) => {
                return Err(Error::invalid(format!(
                    "the store has format {version}, this program knows format {FORMAT_VERSION}"
                )));
            }
            None => initialise(engine.as_ref())?,
        }
        let bound_ms = number(META_BOUND)?.ok_or_else(|| stored_wrongly("the oracle's bound"))?;
        if !options.force {
            check_bound(bound_ms, options.clock.now_ms())?;
        }
        let barrier = number(META_BARRIER)?.ok_or_else(|| stored_wrongly("the barrier"))?;
        let commit =
            engine.get(Space::Meta, META_COMMIT)?.ok_or_else(|| stored_wrongly("the commit record"))?;
        let commit = CommitRecord::decode(&commit)?;
        let mut locks = LockTable::default();
        locks.barrier = Timestamp(barrier);
        for entry in engine.range(Space::Locks, (Bound::Unbounded, Bound::Unbounded), false) {
            let (key, bytes) = entry?;
            locks.insert(stored(&StoredLock::decode(&key, &bytes)?));
        }
        let core = Core {
            oracle: Oracle::new(Arc::clone(&options.clock), bound_ms, commit.newest),
            locks: RwLock::new(locks),
            recorded: RwLock::new(read_recorded(engine.as_ref())?),
            barrier: AtomicU64::new(barrier),
            swept: AtomicU64::new(0),
            holds: Mutex::new(read_holds(engine.as_ref())?),
            readers: Arc::default(),
            closed: RwLock::new(None),
            reclaiming: Arc::default(),
            progress: watch::Sender::new(0),
            spans: Spans::default(),
            stretches: Stretches::since(commit.newest),
            recent: Recent::default(),
            taken: Taken::default(),
            newest_commit: AtomicU64::new(commit.newest.0),
            syncs: AtomicU64::new(0),
            transactions: AtomicU64::new(0),
            engine: RwLock::new(Some(engine)),
            options,
        };
        Ok((core, commit.sequence))
    }

    /// The engine, unless the store is closed.
    pub(crate) fn engine(&self) -> Result<Arc<dyn Engine>> {
        self.check_open()?;
        let engine = self.engine.read().unwrap_or_else(PoisonError::into_inner);
        engine.as_ref().map(Arc::clone).ok_or_else(|| Error::closed("the store is closed"))
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        match self.closed.read().unwrap_or_else(PoisonError::into_inner).as_ref() {
            None => Ok(()),
            Some(cause) => Err(cause.clone()),
        }
    }

    /// Takes no more calls; the first cause stays.
    pub(crate) fn shut(&self, cause: Error) {
        {
            let mut closed = self.closed.write().unwrap_or_else(PoisonError::into_inner);
            if closed.is_none() {
                *closed = Some(cause);
            }
        }
        self.announce();
    }

    /// Closes the handle after a failed write.
    pub(crate) fn poison(&self, cause: &Error) -> Error {
        tracing::error!(%cause, "a write failed, the store is closed until it is opened again");
        let error = Error::closed(format!("the store is closed after a failed write: {cause}"));
        self.shut(error.clone());
        error
    }

    /// Lets go of the engine.
    pub(crate) fn drop_engine(&self) {
        let engine = self.engine.write().unwrap_or_else(PoisonError::into_inner).take();
        drop(engine);
    }

    pub(crate) fn locks(&self) -> RwLockReadGuard<'_, LockTable> {
        self.locks.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn locks_mut(&self) -> RwLockWriteGuard<'_, LockTable> {
        self.locks.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn holds(&self) -> MutexGuard<'_, BTreeMap<String, Timestamp>> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn barrier(&self) -> Timestamp {
        Timestamp(self.barrier.load(Ordering::SeqCst))
    }

    pub(crate) fn raise_barrier(&self, barrier: Timestamp) {
        self.barrier.fetch_max(barrier.0, Ordering::SeqCst);
    }

    pub(crate) fn swept(&self) -> Timestamp {
        Timestamp(self.swept.load(Ordering::SeqCst))
    }

    pub(crate) fn note_swept(&self, barrier: Timestamp) {
        self.swept.fetch_max(barrier.0, Ordering::SeqCst);
    }

    /// Fails if history at a timestamp may be gone.
    pub(crate) fn check_history(&self, ts: Timestamp) -> Result<()> {
        let barrier = self.barrier();
        if ts < barrier {
            return Err(Error::history_gone(format!("{ts} is below the barrier {barrier}")));
        }
        Ok(())
    }

    /// Wakes everybody who waits for a change.
    pub(crate) fn announce(&self) {
        self.progress.send_modify(|count| *count += 1);
    }

    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.progress.subscribe()
    }

    pub(crate) fn newest_commit(&self) -> Timestamp {
        Timestamp(self.newest_commit.load(Ordering::SeqCst))
    }

    pub(crate) fn note_commits(&self, newest: Timestamp, transactions: u64, synced: bool) {
        self.newest_commit.fetch_max(newest.0, Ordering::SeqCst);
        self.transactions.fetch_add(transactions, Ordering::Relaxed);
        self.syncs.fetch_add(u64::from(synced), Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> CommitCounts {
        CommitCounts {
            syncs: self.syncs.load(Ordering::Relaxed),
            transactions: self.transactions.load(Ordering::Relaxed),
        }
    }

    /// The newest version of a key with its raw bytes.
    pub(crate) fn newest(&self, engine: &dyn Engine, key: &[u8]) -> Result<Option<(Bytes, Version)>> {
        let Some(bytes) = engine.get(Space::Main, key)? else { return Ok(None) };
        let version = Version::decode(key, &bytes)?;
        Ok(Some((bytes, version)))
    }

    /// The version of a key that a reader at a timestamp sees.
    pub(crate) fn version_at(
        &self,
        engine: &dyn Engine,
        key: &[u8],
        ts: Timestamp,
    ) -> Result<Option<Version>> {
        match self.newest(engine, key)? {
            None => Ok(None),
            Some((_, version)) => self.not_after(engine, key, version, ts),
        }
    }

    /// The newest version at or below a timestamp, beginning with a version that may be newer.
    pub(crate) fn not_after(
        &self,
        engine: &dyn Engine,
        key: &[u8],
        newer: Version,
        ts: Timestamp,
    ) -> Result<Option<Version>> {
        if newer.commit_ts <= ts {
            return Ok(Some(newer));
        }
        if newer.previous == Timestamp::ZERO {
            return Ok(None);
        }
        // Mostly the reader is behind by one version only, and a get is cheaper than a seek.
        let before = self.history(engine, key, newer.previous)?;
        let before = before.ok_or_else(|| self.missing(key, newer.previous, ts))?;
        if before.commit_ts <= ts {
            return Ok(Some(before));
        }
        if before.previous == Timestamp::ZERO {
            return Ok(None);
        }
        let start = Bound::Included(history_key(key, ts));
        let end = Bound::Included(history_key(key, Timestamp::ZERO));
        match engine.range(Space::History, (start, end), false).next() {
            Some(entry) => Ok(Some(Version::decode(key, &entry?.1)?)),
            None if self.barrier() > ts => Err(self.missing(key, before.previous, ts)),
            None => Ok(None),
        }
    }

    /// A replaced version by its commit timestamp.
    pub(crate) fn history(
        &self,
        engine: &dyn Engine,
        key: &[u8],
        commit_ts: Timestamp,
    ) -> Result<Option<Version>> {
        let bytes = engine.get(Space::History, &history_key(key, commit_ts))?;
        bytes.map(|bytes| Version::decode(key, &bytes)).transpose()
    }

    /// Why a version is not there: collected meanwhile, or lost.
    pub(crate) fn missing(&self, key: &[u8], commit_ts: Timestamp, ts: Timestamp) -> Error {
        match self.check_history(ts) {
            Err(gone) => gone,
            Ok(()) => Error::corrupt(format!("version {commit_ts} of key {} is missing", show(key))),
        }
    }

    /// Notes that a key has records from now on.
    pub(crate) fn note_recorded(&self, key: &[u8]) {
        let mut recorded = self.recorded.write().unwrap_or_else(PoisonError::into_inner);
        recorded.insert(key_hash(key));
    }

    pub(crate) fn forget_recorded(&self, keys: &[Key]) {
        let mut recorded = self.recorded.write().unwrap_or_else(PoisonError::into_inner);
        for key in keys {
            recorded.remove(&key_hash(key));
        }
    }

    /// The lock and rollback records of a key, newest first.
    pub(crate) fn records(&self, engine: &dyn Engine, key: &[u8]) -> Result<Vec<Record>> {
        {
            let recorded = self.recorded.read().unwrap_or_else(PoisonError::into_inner);
            if !recorded.contains(&key_hash(key)) {
                return Ok(Vec::new());
            }
        }
        let bytes = engine.get(Space::Records, key)?;
        bytes.map_or(Ok(Vec::new()), |bytes| Record::decode_list(key, &bytes))
    }

    /// What a key says about a transaction.
    pub(crate) fn decision(
        &self,
        engine: &dyn Engine,
        key: &[u8],
        start_ts: Timestamp,
    ) -> Result<Option<Decision>> {
        use super::format::RecordKind;
        let mut next = self.newest(engine, key)?.map(|(_, version)| version);
        while let Some(version) = next {
            if version.start_ts == start_ts {
                return Ok(Some(Decision::Committed(version.commit_ts)));
            }
            // A version at or below the start is older than anything that the transaction committed.
            next = if version.previous <= start_ts {
                None
            } else {
                self.history(engine, key, version.previous)?
            };
        }
        let records = self.records(engine, key)?;
        let record = records.iter().find(|record| record.start_ts == start_ts);
        Ok(record.map(|record| match record.kind {
            RecordKind::Rollback => Decision::RolledBack,
            RecordKind::Lock | RecordKind::WholeLock => Decision::Committed(record.commit_ts),
        }))
    }
}

fn key_hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// Writes the facts of a new store; refuses to do so over data.
fn initialise(engine: &dyn Engine) -> Result<()> {
    for space in Space::ALL {
        if engine.range(space, (Bound::Unbounded, Bound::Unbounded), false).next().transpose()?.is_some() {
            return Err(stored_wrongly("the format version"));
        }
    }
    let mut batch = Batch::default();
    batch.put(Space::Meta, META_FORMAT, seal_number(META_FORMAT, FORMAT_VERSION));
    batch.put(Space::Meta, META_BOUND, seal_number(META_BOUND, 0));
    batch.put(Space::Meta, META_BARRIER, seal_number(META_BARRIER, 0));
    batch.put(Space::Meta, META_COMMIT, CommitRecord::default().encode());
    engine.commit(batch, Durability::Synced)
}

fn read_recorded(engine: &dyn Engine) -> Result<HashSet<u64>> {
    let entries = engine.range(Space::Records, (Bound::Unbounded, Bound::Unbounded), false);
    entries.map(|entry| entry.map(|(key, _)| key_hash(&key))).collect()
}

fn read_holds(engine: &dyn Engine) -> Result<BTreeMap<String, Timestamp>> {
    let bounds = (
        Bound::Included(Bytes::from_static(META_HOLD)),
        Bound::Excluded(Bytes::from(types::records::prefix_end(META_HOLD))),
    );
    let mut holds = BTreeMap::new();
    for entry in engine.range(Space::Meta, bounds, false) {
        let (key, bytes) = entry?;
        let name = std::str::from_utf8(&key[META_HOLD.len()..])
            .map_err(|_| Error::corrupt(format!("the name of hold {} is no text", show(&key))))?;
        holds.insert(name.to_owned(), Timestamp(open_number(&key, &bytes)?));
    }
    Ok(holds)
}

/// Written with every synced group: how far the journal must reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommitRecord {
    /// Counts synced groups.
    pub sequence: u64,
    /// The newest commit timestamp so far.
    pub newest: Timestamp,
}

impl CommitRecord {
    pub(crate) fn encode(self) -> Bytes {
        let mut bytes = self.sequence.to_be_bytes().to_vec();
        bytes.extend_from_slice(&self.newest.0.to_be_bytes());
        super::format::seal_bytes(META_COMMIT, &bytes)
    }

    /// The number of a group by one write of its batch, if it is this record.
    pub(crate) fn group_of(key: &[u8], value: &[u8]) -> Option<u64> {
        if key != META_COMMIT {
            return None;
        }
        CommitRecord::decode(&Bytes::copy_from_slice(value)).ok().map(|record| record.sequence)
    }

    fn decode(bytes: &Bytes) -> Result<CommitRecord> {
        let bytes = open_bytes(META_COMMIT, bytes)?;
        let parts = <[u8; 16]>::try_from(bytes.as_ref())
            .map_err(|_| Error::corrupt("the commit record is broken"))?;
        let number = u128::from_be_bytes(parts);
        Ok(CommitRecord { sequence: (number >> 64) as u64, newest: Timestamp(number as u64) })
    }
}

impl Core {
    /// Whether a version or record of the key committed at exactly a timestamp.
    pub(crate) fn has_commit_at(&self, engine: &dyn Engine, key: &[u8], ts: Timestamp) -> Result<bool> {
        if self.newest(engine, key)?.is_some_and(|(_, version)| version.commit_ts == ts) {
            return Ok(true);
        }
        if self.history(engine, key, ts)?.is_some() {
            return Ok(true);
        }
        Ok(self.records(engine, key)?.iter().any(|record| record.commit_ts == ts))
    }
}
