//! The lock table: which keys are locked by which transaction, and which are being written right now.
//!
//! Locks are entered by prewrites in their own thread, everything else happens in the committer. A
//! prewrite enters its locks first, as *pending*, and checks for conflicts after; whoever writes without
//! having a lock (a whole transaction, a rollback) looks for locks and marks its keys *busy* in one step,
//! reads what it needs after that, and leaves them busy until the group is applied. So of two that meet one
//! always sees the other.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;

use bytes::Bytes;
use types::Timestamp;

use super::format::StoredLock;
use crate::traits::{Key, KeyRange, LockInfo, LockKind, ReadContext, Value};

/// Where a lock's value is.
#[derive(Clone, Debug)]
pub(crate) enum LockValue {
    /// In memory only, with the raw version that it will replace.
    Staged {
        /// The value to write.
        value: Value,
        /// The bytes of the newest version when the lock was taken; nobody else changes them.
        replaces: Option<Bytes>,
    },
    /// In the engine.
    Stored,
}

/// Tells one prewrite request from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestId(u64);

/// A lock on one key.
#[derive(Clone, Debug)]
pub(crate) struct Lock {
    pub info: LockInfo,
    pub value: LockValue,
    /// The request that has entered it, as long as it is not checked for conflicts (or not durable) and
    /// that request not answered.
    pub pending: Option<RequestId>,
}

impl Lock {
    /// Whether a reader must not pass.
    pub(crate) fn blocks(&self, context: &ReadContext) -> bool {
        let info = &self.info;
        if info.kind == LockKind::Lock || info.start_ts > context.ts {
            return false;
        }
        if context.ts == Timestamp::MAX && info.key == info.primary {
            return false;
        }
        info.min_commit_ts <= context.ts && !context.resolved_locks.contains(&info.start_ts)
    }
}

/// Who wrote a busy key, for the error that a later one gets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer {
    pub start_ts: Timestamp,
    pub commit_ts: Timestamp,
}

/// All locks and busy keys.
#[derive(Debug, Default)]
pub(crate) struct LockTable {
    locks: BTreeMap<Key, Lock>,
    by_transaction: HashMap<Timestamp, BTreeSet<Key>>,
    /// Keys that the group under way writes.
    busy: HashMap<Key, Writer>,
    /// Transactions that the group under way changes.
    busy_transactions: HashSet<Timestamp>,
    /// Counts prewrite requests.
    requests: u64,
    /// No transaction may begin at or below it any more.
    pub barrier: Timestamp,
}

impl LockTable {
    pub(crate) fn get(&self, key: &[u8]) -> Option<&Lock> {
        self.locks.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: &[u8]) -> Option<&mut Lock> {
        self.locks.get_mut(key)
    }

    /// A name for a request, unlike all before.
    pub(crate) fn next_request(&mut self) -> RequestId {
        self.requests += 1;
        RequestId(self.requests)
    }

    /// Whether a key has the pending lock that a request has entered.
    pub(crate) fn is_pending(&self, key: &[u8], request: RequestId) -> bool {
        self.locks.get(key).is_some_and(|lock| lock.pending == Some(request))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }

    pub(crate) fn insert(&mut self, lock: Lock) {
        let (key, start_ts) = (lock.info.key.clone(), lock.info.start_ts);
        self.by_transaction.entry(start_ts).or_default().insert(key.clone());
        self.locks.insert(key, lock);
    }

    /// Removes a transaction's lock; another's stays.
    pub(crate) fn remove(&mut self, key: &[u8], start_ts: Timestamp) {
        if self.locks.get(key).is_none_or(|lock| lock.info.start_ts != start_ts) {
            return;
        }
        self.locks.remove(key);
        if let Some(keys) = self.by_transaction.get_mut(&start_ts) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_transaction.remove(&start_ts);
            }
        }
    }

    /// The keys that a transaction has locked.
    pub(crate) fn keys_of(&self, start_ts: Timestamp) -> Vec<Key> {
        self.by_transaction.get(&start_ts).map(|keys| keys.iter().cloned().collect()).unwrap_or_default()
    }

    /// The locks of a range, in key order.
    pub(crate) fn in_range<'a>(
        &'a self,
        range: &KeyRange,
    ) -> impl DoubleEndedIterator<Item = &'a Lock> + use<'a> {
        let end = if range.end.is_empty() { Bound::Unbounded } else { Bound::Excluded(range.end.clone()) };
        let none = !range.end.is_empty() && range.start >= range.end;
        let bounds = if none {
            (Bound::Included(Key::new()), Bound::Excluded(Key::new()))
        } else {
            (Bound::Included(range.start.clone()), end)
        };
        self.locks.range::<Key, _>(bounds).map(|(_, lock)| lock)
    }

    pub(crate) fn writer(&self, key: &[u8]) -> Option<Writer> {
        self.busy.get(key).copied()
    }

    /// Whether the group under way writes a key, as itself or through its lock.
    pub(crate) fn is_busy(&self, key: &[u8]) -> bool {
        let changing = |lock: &Lock| self.busy_transactions.contains(&lock.info.start_ts);
        self.busy.contains_key(key)
            || (!self.busy_transactions.is_empty() && self.locks.get(key).is_some_and(changing))
    }

    pub(crate) fn is_busy_transaction(&self, start_ts: Timestamp) -> bool {
        self.busy_transactions.contains(&start_ts)
    }

    pub(crate) fn mark_busy(&mut self, key: Key, writer: Writer) {
        self.busy.insert(key, writer);
    }

    /// The group does not write a key after all.
    pub(crate) fn unmark_busy(&mut self, key: &[u8]) {
        self.busy.remove(key);
    }

    pub(crate) fn mark_busy_transaction(&mut self, start_ts: Timestamp) {
        self.busy_transactions.insert(start_ts);
    }

    /// The group under way is over.
    pub(crate) fn clear_busy(&mut self) {
        self.busy.clear();
        self.busy_transactions.clear();
    }

    /// The smallest start of all locks.
    pub(crate) fn oldest_of_all(&self) -> Option<Timestamp> {
        self.locks.values().map(|lock| lock.info.start_ts).min()
    }

    /// The smallest start of the locks in ranges that may still change a value there.
    pub(crate) fn oldest_start(&self, ranges: &[KeyRange]) -> Option<Timestamp> {
        if self.locks.is_empty() {
            return None;
        }
        let changing = |lock: &&Lock| lock.info.kind != LockKind::Lock;
        ranges
            .iter()
            .flat_map(|range| self.in_range(range))
            .filter(changing)
            .map(|lock| lock.info.start_ts)
            .min()
    }
}

/// A lock as it is read back from the engine.
pub(crate) fn stored(lock: &StoredLock) -> Lock {
    Lock { info: lock.info.clone(), value: LockValue::Stored, pending: None }
}
