//! Reads at one timestamp, through writes that are laid over the stored keys.
//!
//! The overlay is a transaction's own uncommitted writes, or the rows that a read fix changes: either is a
//! map from key to final value, so every scan and point read sees one merged table.

use std::sync::Arc;

use store::{Key, KeyRange, Reading, Store, Value, next_key};
use types::{Result, Timestamp};

use crate::transaction::{Writes, writes_in};

/// Keys a page of a scan, at first; a page grows to [`PAGE_KEYS_MAX`] when more is asked for.
const PAGE_KEYS_MIN: usize = 256;
/// The most keys a page.
const PAGE_KEYS_MAX: usize = 4096;

/// Where and as of when to read.
#[derive(Clone)]
pub(crate) struct Reads {
    store: Arc<dyn Store>,
    at: Timestamp,
    overlay: Writes,
    /// Keeps the snapshot for as long as anything reads it.
    _reading: Arc<Reading>,
}

impl std::fmt::Debug for Reads {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Reads").field("at", &self.at).field("overlay", &self.overlay.len()).finish()
    }
}

impl Reads {
    pub(crate) fn new(store: Arc<dyn Store>, at: Timestamp, overlay: Writes) -> Reads {
        let reading = Arc::new(store.reading(at));
        Reads { store, at, overlay, _reading: reading }
    }

    /// The timestamp.
    pub(crate) fn at(&self) -> Timestamp {
        self.at
    }

    /// The store's value, past the overlay.
    pub(crate) async fn stored(&self, keys: &[Key]) -> Result<Vec<(Key, Value)>> {
        crate::snapshot::batch_get(&self.store, self.at, keys).await
    }

    /// Reads one key.
    pub(crate) async fn get(&self, key: &Key) -> Result<Option<Value>> {
        match self.overlay.get(key) {
            Some(write) => Ok(write.value.clone()),
            None => crate::snapshot::get(&self.store, self.at, key).await,
        }
    }

    /// A cursor over a range.
    pub(crate) fn scan(&self, range: KeyRange) -> Cursor {
        Cursor { reads: self.clone(), range, page_keys: PAGE_KEYS_MIN, is_done: false }
    }
}

/// A scan that is under way.
#[derive(Debug)]
pub(crate) struct Cursor {
    reads: Reads,
    range: KeyRange,
    page_keys: usize,
    is_done: bool,
}

impl Cursor {
    /// The next pairs in key order; `None` after the last. A page may be empty.
    pub(crate) async fn next_page(&mut self, limit: Option<usize>) -> Result<Option<Vec<(Key, Value)>>> {
        if self.is_done {
            return Ok(None);
        }
        // A limit below the page's size saves work; overlaid deletes may make a further page necessary.
        let page_keys = limit.map_or(self.page_keys, |limit| limit.clamp(16, self.page_keys));
        let Reads { store, at, overlay, .. } = &self.reads;
        let stored = crate::snapshot::scan(store, *at, &self.range, page_keys).await?;
        let mut covered = self.range.clone();
        match stored.last() {
            Some((last, _)) if stored.len() >= page_keys => {
                covered.end = next_key(last).into();
                self.range.start = covered.end.clone();
            }
            _ => self.is_done = true,
        }
        self.page_keys = (self.page_keys * 2).min(PAGE_KEYS_MAX);
        let mut writes = writes_in(overlay, &covered).peekable();
        if writes.peek().is_none() {
            return Ok(Some(stored));
        }
        let mut merged = Vec::with_capacity(stored.len());
        for (key, value) in stored {
            while let Some((written, write)) = writes.next_if(|(written, _)| **written < key) {
                merged.extend(write.value.clone().map(|value| (written.clone(), value)));
            }
            match writes.next_if(|(written, _)| **written == key) {
                Some((_, write)) => merged.extend(write.value.clone().map(|value| (key, value))),
                None => merged.push((key, value)),
            }
        }
        for (written, write) in writes {
            merged.extend(write.value.clone().map(|value| (written.clone(), value)));
        }
        Ok(Some(merged))
    }
}
