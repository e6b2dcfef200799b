//! A SQL transaction: a snapshot, and the writes that only it sees.
//!
//! Writes are kept in key order with one final value a key, and are committed all at once. A statement
//! writes into a savepoint and is merged in when it succeeds, so a failing one undoes only itself.

use std::collections::BTreeMap;

use bytes::Bytes;
use types::Timestamp;

/// A transaction that has begun.
#[derive(Clone, Debug)]
pub struct Transaction {
    start_ts: Timestamp,
    writes: BTreeMap<Bytes, Option<Bytes>>,
}

impl Transaction {
    /// Begins at a start timestamp of the store; everything is read as of it.
    #[must_use]
    pub fn begin(start_ts: Timestamp) -> Transaction {
        Transaction { start_ts, writes: BTreeMap::new() }
    }

    /// The snapshot's timestamp.
    #[must_use]
    pub fn start_ts(&self) -> Timestamp {
        self.start_ts
    }

    /// Whether it has written nothing.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.writes.is_empty()
    }
}
