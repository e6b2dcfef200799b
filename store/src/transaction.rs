//! A whole transaction: reads at its start, writes kept until the commit, own writes visible.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use types::{Result, Timestamp};

use crate::resolve::{Backoff, next_key, settle_for_writer};
use crate::snapshot::Snapshot;
use crate::traits::{
    AssertionLevel, CommitRequest, Key, KeyError, KeyRange, KvResult, Mutation, MutationOp, PrewriteRequest,
    Store, Value,
};

/// Time to live of the locks of a transaction in halves, in milliseconds.
const TTL_MS: u64 = 20_000;
/// Keys of one prewrite of a transaction in halves.
const PREWRITE_KEYS_MAX: usize = 1024;
/// How long a transaction in halves waits for somebody else's lock, in milliseconds.
const LOCK_WAIT_MS_MAX: u64 = 10_000;

/// A transaction under snapshot isolation.
///
/// Dropping it without a commit forgets its writes; nothing is in the store before.
pub struct Transaction {
    snapshot: Snapshot,
    writes: BTreeMap<Key, Mutation>,
}

impl Transaction {
    /// Begins a transaction at a fresh start timestamp.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn begin(store: Arc<dyn Store>) -> Result<Transaction> {
        let start_ts = store.timestamp().await?;
        Ok(Transaction::at(store, start_ts))
    }

    /// A transaction with a start timestamp that was drawn for it.
    #[must_use]
    pub fn at(store: Arc<dyn Store>, start_ts: Timestamp) -> Transaction {
        Transaction { snapshot: Snapshot::new(store, start_ts), writes: BTreeMap::new() }
    }

    /// The start timestamp: its snapshot and its identity.
    #[must_use]
    pub fn start_ts(&self) -> Timestamp {
        self.snapshot.ts()
    }

    /// What the transaction reads, without its own writes.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The writes so far, by key.
    #[must_use]
    pub fn writes(&self) -> &BTreeMap<Key, Mutation> {
        &self.writes
    }

    /// Whether it has nothing to commit.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.writes.is_empty()
    }

    /// Reads a key, own writes included.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub async fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        match self.writes.get(key).and_then(own_value) {
            Some(value) => Ok(value),
            None => self.snapshot.get(key).await,
        }
    }

    /// Reads many keys, own writes included; one element for each key, in the keys' order.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub async fn batch_get(&self, keys: &[Key]) -> Result<Vec<Option<Value>>> {
        let own: Vec<Option<Option<Value>>> =
            keys.iter().map(|key| self.writes.get(key).and_then(own_value)).collect();
        let wanted: Vec<Key> =
            keys.iter().zip(&own).filter(|(_, own)| own.is_none()).map(|(key, _)| key.clone()).collect();
        let mut read = self.snapshot.batch_get(&wanted).await?.into_iter();
        Ok(own.into_iter().map(|own| own.unwrap_or_else(|| read.next().flatten())).collect())
    }

    /// Reads at most `limit` pairs of a range in key order, own writes included. Fewer than `limit`
    /// pairs mean that the range has no more.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub async fn scan(&self, range: &KeyRange, limit: usize) -> Result<Vec<(Key, Value)>> {
        let mut merged: Vec<(Key, Value)> = Vec::new();
        let mut rest = range.clone();
        while merged.len() < limit {
            let wanted = limit - merged.len();
            let page = self.snapshot.scan(&rest, wanted).await?;
            let next =
                if page.len() < wanted { None } else { page.last().map(|(key, _)| Key::from(next_key(key))) };
            let end = next.clone().unwrap_or_else(|| rest.end.clone());
            let covered = KeyRange { start: rest.start.clone(), end };
            merged.extend(self.merge(page, &covered));
            let Some(next) = next else { break };
            rest.start = next;
        }
        merged.truncate(limit);
        Ok(merged)
    }

    /// Puts own writes into what the snapshot has in a range.
    fn merge(&self, page: Vec<(Key, Value)>, covered: &KeyRange) -> BTreeMap<Key, Value> {
        let mut merged: BTreeMap<Key, Value> = page.into_iter().collect();
        for (key, mutation) in self.writes_in(covered) {
            match own_value(mutation) {
                None => {}
                Some(Some(value)) => drop(merged.insert(key.clone(), value)),
                Some(None) => drop(merged.remove(key)),
            }
        }
        merged
    }

    /// The own writes in a range, in key order.
    pub fn writes_in(&self, range: &KeyRange) -> impl Iterator<Item = (&Key, &Mutation)> {
        let none = !range.end.is_empty() && range.start >= range.end;
        let end = if range.end.is_empty() { Bound::Unbounded } else { Bound::Excluded(range.end.clone()) };
        let bounds = if none {
            (Bound::Included(Key::new()), Bound::Excluded(Key::new()))
        } else {
            (Bound::Included(range.start.clone()), end)
        };
        self.writes.range::<Key, _>(bounds)
    }

    /// Writes a value.
    pub fn put(&mut self, key: impl Into<Key>, value: impl Into<Value>) {
        let mutation = Mutation::put(key, value);
        let inserts = self.writes.get(&mutation.key).is_some_and(|old| old.op == MutationOp::Insert);
        let op = if inserts { MutationOp::Insert } else { MutationOp::Put };
        self.writes.insert(mutation.key.clone(), Mutation { op, ..mutation });
    }

    /// Writes a value where the commit must find none.
    pub fn insert(&mut self, key: impl Into<Key>, value: impl Into<Value>) {
        let mutation = Mutation::insert(key, value);
        // What the transaction itself deleted before is known to exist; only conflicts matter then.
        let known = self.writes.get(&mutation.key).is_some_and(|old| old.op == MutationOp::Delete);
        let op = if known { MutationOp::Put } else { MutationOp::Insert };
        self.writes.insert(mutation.key.clone(), Mutation { op, ..mutation });
    }

    /// Deletes a key.
    pub fn delete(&mut self, key: impl Into<Key>) {
        let mutation = Mutation::delete(key);
        self.writes.insert(mutation.key.clone(), mutation);
    }

    /// Guards a key: the commit conflicts with whoever writes or guards it meanwhile. A write stays.
    pub fn lock(&mut self, key: impl Into<Key>) {
        let mutation = Mutation::lock(key);
        self.writes.entry(mutation.key.clone()).or_insert(mutation);
    }

    /// Adds any mutation, replacing an earlier one on its key.
    pub fn mutate(&mut self, mutation: Mutation) {
        self.writes.insert(mutation.key.clone(), mutation);
    }

    /// Forgets the write of a key, or puts an earlier one back; for statements that are undone.
    pub fn restore(&mut self, key: Key, before: Option<Mutation>) {
        match before {
            Some(mutation) => drop(self.writes.insert(key, mutation)),
            None => drop(self.writes.remove(&key)),
        }
    }

    /// Commits in one call and returns the commit timestamp; the start if there is nothing to commit.
    ///
    /// # Errors
    /// `WriteConflict` if somebody wrote a key since the start, `AlreadyExists` for an insert; an error
    /// of kind `Closed` or `Unavailable` leaves the outcome unknown.
    pub async fn commit(self) -> KvResult<Timestamp> {
        if self.writes.is_empty() {
            return Ok(self.start_ts());
        }
        let mutations = self.writes.into_values().collect();
        self.snapshot.store().commit_transaction(self.snapshot.ts(), mutations).await
    }

    /// Commits by the two halves, as a client of many workers does: the first key is the primary.
    ///
    /// # Errors
    /// As [`Transaction::commit`]; after a refusal everything is rolled back.
    pub async fn commit_in_halves(self) -> KvResult<Timestamp> {
        let store = Arc::clone(self.snapshot.store());
        let start_ts = self.snapshot.ts();
        let mut mutations: Vec<Mutation> = self.writes.into_values().collect();
        let locking = mutations.iter().position(|mutation| mutation.op != MutationOp::CheckNotExists);
        let Some(first) = locking else {
            return store.commit_transaction(start_ts, mutations).await;
        };
        mutations.swap(0, first);
        let primary = mutations[0].key.clone();
        let checks = |mutation: &Mutation| mutation.op == MutationOp::CheckNotExists;
        let keys: Vec<Key> =
            mutations.iter().filter(|mutation| !checks(mutation)).map(|one| one.key.clone()).collect();
        if let Err(error) = prewrite_all(store.as_ref(), start_ts, &primary, mutations).await {
            store.batch_rollback(start_ts, &keys).await?;
            return Err(error);
        }
        let request = CommitRequest {
            start_ts,
            keys: vec![primary.clone()],
            primary: primary.clone(),
            commit_ts: None,
        };
        let commit_ts = store.commit(request).await?;
        let secondaries: Vec<Key> = keys.into_iter().filter(|key| *key != primary).collect();
        for keys in secondaries.chunks(PREWRITE_KEYS_MAX) {
            let request = CommitRequest {
                start_ts,
                keys: keys.to_vec(),
                primary: primary.clone(),
                commit_ts: Some(commit_ts),
            };
            store.commit(request).await?;
        }
        Ok(commit_ts)
    }
}

/// Prewrites the primary alone, then the rest in pieces, getting past locks that are in the way.
async fn prewrite_all(
    store: &dyn Store,
    start_ts: Timestamp,
    primary: &Key,
    mutations: Vec<Mutation>,
) -> KvResult<()> {
    let min_commit_ts = start_ts.next()?;
    let txn_size = mutations.len() as u64;
    let (first, rest) = mutations.split_at(1);
    let pieces = std::iter::once(first).chain(rest.chunks(PREWRITE_KEYS_MAX));
    let mut backoff = Backoff::new(LOCK_WAIT_MS_MAX);
    for piece in pieces {
        let request = PrewriteRequest {
            mutations: piece.to_vec(),
            primary: primary.clone(),
            start_ts,
            ttl_ms: TTL_MS,
            txn_size,
            min_commit_ts,
            assertion_level: AssertionLevel::Strict,
            staged: false,
        };
        while let Err(errors) = store.prewrite(request.clone()).await {
            for error in errors {
                match error {
                    KeyError::Locked(lock) => settle_for_writer(store, &lock, &mut backoff).await?,
                    error => return Err(error),
                }
            }
        }
    }
    Ok(())
}

/// What a transaction sees of its own mutation; `None` if the snapshot decides.
fn own_value(mutation: &Mutation) -> Option<Option<Value>> {
    match mutation.op {
        MutationOp::Put | MutationOp::Insert => Some(Some(mutation.value.clone())),
        MutationOp::Delete => Some(None),
        MutationOp::Lock | MutationOp::CheckNotExists => None,
    }
}
