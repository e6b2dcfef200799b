//! Reads at one timestamp that get past the locks they meet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use types::{Result, Timestamp};

use crate::resolve::{Backoff, Fate, ask, finish};
use crate::traits::{
    Key, KeyError, KeyRange, KvPair, KvResult, LockInfo, ReadContext, ScanRequest, Store, Value,
};

/// How long a read waits for locks that may yet commit at or below its timestamp, in milliseconds.
const WAIT_MS_MAX: u64 = 30_000;
/// Pairs of one request of a stepwise scan.
const PAGE_PAIRS: usize = 1024;

/// What is known about transactions whose locks were met.
#[derive(Debug, Default)]
struct Known {
    /// They commit above the snapshot or not at all.
    harmless: BTreeSet<Timestamp>,
    /// They committed at or below the snapshot.
    committed: BTreeSet<Timestamp>,
}

/// A store at one timestamp.
///
/// What it answers never changes. It may be shared between threads.
pub struct Snapshot {
    store: Arc<dyn Store>,
    ts: Timestamp,
    known: Mutex<Known>,
}

impl Snapshot {
    /// The snapshot at a timestamp.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, ts: Timestamp) -> Snapshot {
        Snapshot { store, ts, known: Mutex::new(Known::default()) }
    }

    /// The newest snapshot that waits for nothing.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn newest(store: Arc<dyn Store>) -> Result<Snapshot> {
        let ts = store.read_timestamp().await?;
        Ok(Snapshot::new(store, ts))
    }

    /// The timestamp.
    #[must_use]
    pub fn ts(&self) -> Timestamp {
        self.ts
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Reads a key.
    ///
    /// # Errors
    /// `Unavailable` if a lock stays in the way; `Invalid` if history at the timestamp is gone.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        let mut backoff = Backoff::new(WAIT_MS_MAX);
        loop {
            match self.store.kv_get(key, &self.context()).await {
                Ok(value) => return Ok(value),
                Err(KeyError::Locked(lock)) => self.pass(&[*lock], &mut backoff).await?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads many keys; the answer has one element for each key, in the keys' order.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub async fn batch_get(&self, keys: &[Key]) -> Result<Vec<Option<Value>>> {
        let mut found = std::collections::HashMap::with_capacity(keys.len());
        let mut wanted = keys.to_vec();
        let mut backoff = Backoff::new(WAIT_MS_MAX);
        while !wanted.is_empty() {
            let mut locks = Vec::new();
            for pair in self.store.kv_batch_get(&wanted, &self.context()).await.map_err(types::Error::from)? {
                match pair.value {
                    Ok(value) => drop(found.insert(pair.key, value)),
                    Err(KeyError::Locked(lock)) => locks.push(*lock),
                    Err(error) => return Err(error.into()),
                }
            }
            wanted = locks.iter().map(|lock| lock.key.clone()).collect();
            self.pass(&locks, &mut backoff).await?;
        }
        Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
    }

    /// Reads at most `limit` pairs of a range in key order. Fewer than `limit` pairs mean that the range
    /// has no more.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub async fn scan(&self, range: &KeyRange, limit: usize) -> Result<Vec<(Key, Value)>> {
        let request = ScanRequest { range: range.clone(), limit, key_only: false, reverse: false };
        self.scan_request(&request).await
    }

    /// As [`Snapshot::scan`], from the end of the range downwards.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub async fn scan_reverse(&self, range: &KeyRange, limit: usize) -> Result<Vec<(Key, Value)>> {
        let request = ScanRequest { range: range.clone(), limit, key_only: false, reverse: true };
        self.scan_request(&request).await
    }

    /// As [`Snapshot::scan`], without the values.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub async fn scan_keys(&self, range: &KeyRange, limit: usize) -> Result<Vec<Key>> {
        let request = ScanRequest { range: range.clone(), limit, key_only: true, reverse: false };
        Ok(self.scan_request(&request).await?.into_iter().map(|(key, _)| key).collect())
    }

    /// Reads a whole range; only for ranges that are known to be small.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub async fn scan_all(&self, range: &KeyRange) -> Result<Vec<(Key, Value)>> {
        let mut pages = self.pages(range.clone(), PAGE_PAIRS);
        let mut pairs = Vec::new();
        while let Some(page) = pages.next().await? {
            pairs.extend(page);
        }
        Ok(pairs)
    }

    /// Reads a range page by page.
    #[must_use]
    pub fn pages(&self, range: KeyRange, page_pairs: usize) -> Pages<'_> {
        Pages { snapshot: self, rest: Some(range), page_pairs: page_pairs.max(1) }
    }

    async fn scan_request(&self, request: &ScanRequest) -> Result<Vec<(Key, Value)>> {
        let mut pairs: Vec<(Key, Value)> = Vec::new();
        let mut request = request.clone();
        let limit = request.limit;
        let mut backoff = Backoff::new(WAIT_MS_MAX);
        while pairs.len() < limit {
            request.limit = limit - pairs.len();
            let page = self.store.kv_scan(&request, &self.context()).await.map_err(types::Error::from)?;
            let full = page.len() >= request.limit;
            // Pairs before the first lock are good; from the lock on the scan is repeated.
            let mut locks = Vec::new();
            for KvPair { key, value } in page {
                match value {
                    Ok(value) if locks.is_empty() => pairs.push((key, value)),
                    Ok(_) => {}
                    Err(KeyError::Locked(lock)) => locks.push(*lock),
                    Err(error) => return Err(error.into()),
                }
            }
            if locks.is_empty() {
                if !full {
                    break;
                }
            } else {
                self.pass(&locks, &mut backoff).await?;
            }
            if let Some((last, _)) = pairs.last() {
                if request.reverse {
                    request.range.end = last.clone();
                } else {
                    request.range.start = crate::resolve::next_key(last).into();
                }
            }
            if !request.range.end.is_empty() && request.range.start >= request.range.end {
                break;
            }
        }
        Ok(pairs)
    }

    fn context(&self) -> ReadContext {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        ReadContext {
            ts: self.ts,
            resolved_locks: known.harmless.iter().copied().collect(),
            committed_locks: known.committed.iter().copied().collect(),
        }
    }

    /// Learns what the locks mean for this snapshot, or waits a little.
    async fn pass(&self, locks: &[LockInfo], backoff: &mut Backoff) -> KvResult<()> {
        let mut waits = None;
        let mut transactions: BTreeMap<Timestamp, Vec<&LockInfo>> = BTreeMap::new();
        for lock in locks {
            transactions.entry(lock.start_ts).or_default().push(lock);
        }
        for (start_ts, locks) in transactions {
            if self.knows(start_ts) {
                continue;
            }
            match ask(self.store.as_ref(), locks[0], self.ts).await? {
                Fate::Committed(commit_ts) if commit_ts <= self.ts => {
                    self.known().committed.insert(start_ts);
                    finish(self.store.as_ref(), &locks, Some(commit_ts)).await?;
                }
                Fate::Committed(_) | Fate::Pushed => drop(self.known().harmless.insert(start_ts)),
                Fate::RolledBack => {
                    self.known().harmless.insert(start_ts);
                    finish(self.store.as_ref(), &locks, None).await?;
                }
                Fate::Alive => waits = Some(locks[0]),
            }
        }
        match waits {
            Some(lock) if !backoff.wait().await => Err(KeyError::Locked(Box::new(lock.clone()))),
            _ => Ok(()),
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn knows(&self, start_ts: Timestamp) -> bool {
        let known = self.known();
        known.harmless.contains(&start_ts) || known.committed.contains(&start_ts)
    }
}

/// A range read page by page.
pub struct Pages<'a> {
    snapshot: &'a Snapshot,
    rest: Option<KeyRange>,
    page_pairs: usize,
}

impl Pages<'_> {
    /// The next page; `None` after the last. No page is empty.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub async fn next(&mut self) -> Result<Option<Vec<(Key, Value)>>> {
        let Some(range) = self.rest.take() else { return Ok(None) };
        let page = self.snapshot.scan(&range, self.page_pairs).await?;
        if page.len() == self.page_pairs {
            let start = page.last().map(|(key, _)| crate::resolve::next_key(key)).unwrap_or_default();
            self.rest = Some(KeyRange { start: start.into(), end: range.end });
        }
        Ok((!page.is_empty()).then_some(page))
    }
}
