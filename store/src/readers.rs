//! Reads that go on in this process, so that garbage collection leaves what they need.
//!
//! A hold is durable and has a name; a reading lasts as long as its guard and costs nothing but memory. It is
//! honoured as long as its timestamp is not older than a limit, so that a forgotten one cannot fill the disk.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use types::Timestamp;

/// The timestamps that are read at, each with the number of its readers.
#[derive(Debug, Default)]
pub struct Readers {
    readings: Mutex<BTreeMap<Timestamp, usize>>,
}

impl Readers {
    fn readings(&self) -> MutexGuard<'_, BTreeMap<Timestamp, usize>> {
        self.readings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to read at a timestamp.
    pub fn begin(self: &Arc<Self>, ts: Timestamp) -> Reading {
        *self.readings().entry(ts).or_default() += 1;
        Reading { readers: Some(Arc::clone(self)), ts }
    }

    /// Every timestamp that is read at, with the number of its readers, the oldest first.
    #[must_use]
    pub fn all(&self) -> Vec<(Timestamp, usize)> {
        self.readings().iter().map(|(ts, n_readers)| (*ts, *n_readers)).collect()
    }

    /// The oldest timestamp at or after `limit` that is read at.
    #[must_use]
    pub fn oldest(&self, limit: Timestamp) -> Option<Timestamp> {
        self.readings().range(limit..).next().map(|(ts, _)| *ts)
    }
}

/// A read that goes on until this is dropped.
#[derive(Debug)]
#[must_use = "what is read is left alone for as long as this lives"]
pub struct Reading {
    readers: Option<Arc<Readers>>,
    ts: Timestamp,
}

impl Reading {
    /// A read that nobody is told of.
    pub fn unknown(ts: Timestamp) -> Reading {
        Reading { readers: None, ts }
    }

    /// The timestamp.
    #[must_use]
    pub fn at(&self) -> Timestamp {
        self.ts
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let Some(readers) = &self.readers else { return };
        let mut readings = readers.readings();
        if let Some(n_readers) = readings.get_mut(&self.ts) {
            *n_readers -= 1;
            if *n_readers == 0 {
                readings.remove(&self.ts);
            }
        }
    }
}
