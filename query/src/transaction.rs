//! A SQL transaction: a snapshot, and the writes that only it sees.
//!
//! Writes are kept in key order with one final value a key, and are committed all at once. A statement
//! collects its writes apart and hands them over when it succeeds, so a failing one undoes only itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use store::{Key, KeyRange, Mutation, Reading, Value};
use types::{TableId, Timestamp};

/// What a transaction does to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    /// The new value; `None` deletes.
    pub(crate) value: Option<Value>,
    /// Whether the key exists in the transaction's snapshot.
    pub(crate) existed: bool,
}

/// Writes in key order. Shared with the streams that read through them.
pub(crate) type Writes = Arc<BTreeMap<Key, Write>>;

/// A transaction that has begun.
#[derive(Clone, Debug)]
pub struct Transaction {
    start_ts: Timestamp,
    /// Keeps its snapshot, and what its conflicts are found by.
    _begun: Arc<Reading>,
    writes: Writes,
}

impl Transaction {
    /// Begins at a start timestamp of the store; everything is read as of it.
    pub(crate) fn begin(start_ts: Timestamp, begun: Reading) -> Transaction {
        Transaction { start_ts, _begun: Arc::new(begun), writes: Writes::default() }
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

    /// The writes so far.
    pub(crate) fn writes(&self) -> &Writes {
        &self.writes
    }

    /// Takes a successful statement's writes over. A key that is not there before and not after is
    /// forgotten: nothing happened to it.
    pub(crate) fn add(&mut self, statement: BTreeMap<Key, Write>) {
        let writes = Arc::make_mut(&mut self.writes);
        for (key, write) in statement {
            if write.value.is_none() && !write.existed {
                writes.remove(&key);
            } else {
                writes.insert(key, write);
            }
        }
    }

    /// The tables that it writes, each once.
    pub(crate) fn tables(&self) -> impl Iterator<Item = TableId> {
        let of_key = |key: &Key| tidb::table_of_key(key).and_then(|id| u64::try_from(id).ok());
        let tables: BTreeSet<u64> = self.writes.keys().filter_map(of_key).collect();
        tables.into_iter().map(TableId)
    }

    /// The mutations to commit.
    pub(crate) fn mutations(&self) -> Vec<Mutation> {
        let mutation = |(key, write): (&Key, &Write)| match &write.value {
            Some(value) => Mutation::put(Bytes::clone(key), Bytes::clone(value)),
            None => Mutation::delete(Bytes::clone(key)),
        };
        self.writes.iter().map(mutation).collect()
    }
}

/// The writes in a range, in key order.
pub(crate) fn writes_in<'a>(
    writes: &'a BTreeMap<Key, Write>,
    range: &KeyRange,
) -> impl Iterator<Item = (&'a Key, &'a Write)> + use<'a> {
    let end = range.end.clone();
    writes
        .range::<[u8], _>((std::ops::Bound::Included(range.start.as_ref()), std::ops::Bound::Unbounded))
        .take_while(move |(key, _)| end.is_empty() || key.as_ref() < end.as_ref())
}
