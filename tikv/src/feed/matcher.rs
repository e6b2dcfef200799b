//! Puts the halves of changes together: the state of one subscription of one region.
//!
//! TiKV sends a transaction's write of a key as a prewrite with the values and a commit without them, in
//! that order only once the subscription's scan has ended; until then what is live and what is scanned
//! arrive interleaved. A version that the scan found comes as one committed row, and may come as a commit
//! too: whoever takes the changes drops repetitions by key and commit timestamp.
//!
//! Values of open transactions are held up to a budget. Beyond it only the keys are: such a write, and one
//! whose prewrites disagree, comes out as [`Matched::Unread`], for the caller to read where it committed.
//! A commit at or below the last resolved timestamp is the one thing that must never be: it is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use store::Change;
use types::{Error, Result, Timestamp};

use crate::proto::cdcpb::{LogType, OpType, Row};

#[cfg(test)]
mod recorded;
#[cfg(test)]
mod tests;

/// What comes out of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Matched {
    /// A committed change, complete.
    Change(Change),
    /// A committed put or delete whose values must be read: the new one at the commit timestamp, the old
    /// one right below.
    Unread {
        /// The key.
        key: Bytes,
        /// The transaction.
        start_ts: Timestamp,
        /// When it committed.
        commit_ts: Timestamp,
    },
}

/// A write of an open transaction: its start, then its key.
type WriteId = (u64, Bytes);

/// What a prewrite said.
#[derive(Debug)]
struct Open {
    op: OpType,
    /// `None` if it was given up for want of room.
    values: Option<(Bytes, Bytes)>,
    generation: u64,
    /// Two prewrites of the write had different values.
    disputed: bool,
    /// Its commit came before the scan's end and has gone out.
    done: bool,
}

impl Open {
    fn n_bytes(&self) -> usize {
        self.values.as_ref().map_or(0, |(value, old)| value.len() + old.len())
    }
}

/// A commit that waits for the scan's end.
#[derive(Debug)]
struct Commit {
    commit_ts: u64,
    op: OpType,
    value: Bytes,
}

/// The bytes that all open values together may take.
#[derive(Debug)]
pub(crate) struct Room {
    n_free: AtomicUsize,
}

impl Room {
    /// Room for so many bytes.
    pub(crate) fn new(n_bytes: usize) -> Arc<Room> {
        Arc::new(Room { n_free: AtomicUsize::new(n_bytes) })
    }

    fn take(&self, n_bytes: usize) -> bool {
        let less = |n_free: usize| n_free.checked_sub(n_bytes);
        self.n_free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    fn give(&self, n_bytes: usize) {
        self.n_free.fetch_add(n_bytes, Ordering::Relaxed);
    }
}

/// The state of one subscription of one region.
#[derive(Debug)]
pub(crate) struct Matcher {
    start: Timestamp,
    resolved: Timestamp,
    initialized: bool,
    open: BTreeMap<WriteId, Open>,
    commits: BTreeMap<WriteId, Commit>,
    rollbacks: BTreeSet<WriteId>,
    room: Arc<Room>,
}

impl Drop for Matcher {
    fn drop(&mut self) {
        self.room.give(self.open.values().map(Open::n_bytes).sum());
    }
}

impl Matcher {
    /// A subscription to what commits after `start`, with room that it shares with others.
    pub(crate) fn new(start: Timestamp, room: Arc<Room>) -> Matcher {
        Matcher {
            start,
            resolved: start,
            initialized: false,
            open: BTreeMap::new(),
            commits: BTreeMap::new(),
            rollbacks: BTreeSet::new(),
            room,
        }
    }

    /// Whether the scan has ended.
    pub(crate) fn is_initialized(&self) -> bool {
        self.initialized
    }

    /// Where the subscription began.
    pub(crate) fn start(&self) -> Timestamp {
        self.start
    }

    /// Takes the next row, in the order of the stream.
    ///
    /// # Errors
    /// `Unavailable` if the server broke the protocol, so that the region must be subscribed anew;
    /// `Corrupt` for a change that should have come before what was said to be resolved.
    pub(crate) fn row(&mut self, row: Row, out: &mut Vec<Matched>) -> Result<()> {
        match row.r#type() {
            LogType::Prewrite => {
                self.prewrite(row);
                Ok(())
            }
            LogType::Commit => self.commit(row, out),
            LogType::Rollback => {
                self.rollback((row.start_ts, Bytes::copy_from_slice(&row.key)));
                Ok(())
            }
            LogType::Committed => {
                let op = row.op_type();
                let values = Some((row.value, row.old_value));
                self.emit((row.start_ts, row.key), row.commit_ts, op, values, out)
            }
            LogType::Initialized => self.initialize(out),
            LogType::LogUnknown => {
                Err(Error::unavailable(format!("the feed sent a row of unknown type {}", row.r#type)))
            }
        }
    }

    /// Takes a resolved timestamp; whether it rose.
    pub(crate) fn resolve(&mut self, ts: Timestamp) -> bool {
        // Before the scan's end it is somebody else's; afterwards it can be repeated or fall back.
        let rises = self.initialized && ts > self.resolved;
        if rises {
            self.resolved = ts;
        }
        rises
    }

    fn prewrite(&mut self, row: Row) {
        let op = row.op_type();
        // A row shares its message's memory; what is held for long must not.
        let id = (row.start_ts, Bytes::copy_from_slice(&row.key));
        let mut values = Some(in_one_piece(&row.value, &row.old_value));
        let mut disputed = false;
        if let Some(held) = self.open.get(&id) {
            if held.done || row.generation < held.generation {
                return;
            }
            if row.generation == held.generation {
                disputed = held.disputed || held.op != op || !agree(held, values.as_ref());
                // What was given up stays so: which one of the two it was cannot be told any more.
                values = if held.values.is_none() { None } else { values };
            }
            self.room.give(held.n_bytes());
        }
        let mut open = Open { op, values, generation: row.generation, disputed, done: false };
        if !self.room.take(open.n_bytes()) {
            open.values = None;
        }
        self.open.insert(id, open);
    }

    fn rollback(&mut self, id: WriteId) {
        if self.initialized {
            self.remove(&id);
        } else {
            self.rollbacks.insert(id);
        }
    }

    fn remove(&mut self, id: &WriteId) -> Option<Open> {
        let open = self.open.remove(id)?;
        self.room.give(open.n_bytes());
        Some(open)
    }

    fn commit(&mut self, row: Row, out: &mut Vec<Matched>) -> Result<()> {
        let (op, value) = (row.op_type(), Bytes::copy_from_slice(&row.value));
        let commit = Commit { commit_ts: row.commit_ts, op, value };
        let id = (row.start_ts, Bytes::copy_from_slice(&row.key));
        if self.initialized {
            return match self.remove(&id) {
                Some(open) => self.finish(id, open, commit, out),
                None if commit.commit_ts <= self.start.0 => Ok(()),
                None => Err(Error::unavailable(format!(
                    "the feed sent a commit at {} without the prewrite of {}",
                    commit.commit_ts, id.0
                ))),
            };
        }
        // A value that is there is what was committed; anything else may yet be told better by the scan.
        let is_complete = |open: &Open| {
            let is_full = open.values.as_ref().is_some_and(|(value, _)| !value.is_empty());
            is_full && !open.done && !open.disputed && open.generation == 0 && open.op == commit.op
        };
        let Some(open) = self.open.get_mut(&id).filter(|open| is_complete(open)) else {
            self.commits.insert(id, commit);
            return Ok(());
        };
        self.room.give(open.n_bytes());
        // The scan may still send its prewrite: the place stays taken until then.
        let taken =
            Open { op: open.op, values: open.values.take(), generation: 0, disputed: false, done: true };
        open.done = true;
        self.finish(id, taken, commit, out)
    }

    /// The scan has ended: what waited for it goes out. A commit without a prewrite was scanned as a
    /// committed row.
    fn initialize(&mut self, out: &mut Vec<Matched>) -> Result<()> {
        if self.initialized {
            return Ok(());
        }
        self.initialized = true;
        for (id, commit) in std::mem::take(&mut self.commits) {
            if let Some(open) = self.remove(&id)
                && !open.done
            {
                self.finish(id, open, commit, out)?;
            }
        }
        for id in std::mem::take(&mut self.rollbacks) {
            self.remove(&id);
        }
        self.open.retain(|_, open| !open.done);
        Ok(())
    }

    fn finish(&self, id: WriteId, open: Open, commit: Commit, out: &mut Vec<Matched>) -> Result<()> {
        let values = match open.values {
            // The record's own value is never wrong; it is there for short ones only.
            Some((_, old)) if commit.op == OpType::Put && !commit.value.is_empty() => {
                Some((commit.value, old))
            }
            Some(values) if !open.disputed && open.op == commit.op => Some(values),
            Some((_, old)) if commit.op == OpType::Delete => Some((Bytes::new(), old)),
            _ => None,
        };
        self.emit(id, commit.commit_ts, commit.op, values, out)
    }

    fn emit(
        &self,
        (start_ts, key): WriteId,
        commit_ts: u64,
        op: OpType,
        values: Option<(Bytes, Bytes)>,
        out: &mut Vec<Matched>,
    ) -> Result<()> {
        let (start_ts, commit_ts) = (Timestamp(start_ts), Timestamp(commit_ts));
        if commit_ts <= self.start {
            return Ok(());
        }
        if commit_ts <= self.resolved {
            return Err(Error::corrupt(format!(
                "the feed sent a commit at {commit_ts} after {} was resolved",
                self.resolved
            )));
        }
        let value = match op {
            OpType::Put => true,
            OpType::Delete => false,
            OpType::OpUnknown => {
                return Err(Error::unavailable("the feed sent a commit that neither puts nor deletes"));
            }
        };
        out.push(match values {
            Some((new, old)) => Matched::Change(Change {
                key,
                start_ts,
                commit_ts,
                value: value.then_some(new),
                // An old value that was there but empty cannot be told from none.
                old_value: Some(old).filter(|old| !old.is_empty()),
            }),
            None => Matched::Unread { key, start_ts, commit_ts },
        });
        Ok(())
    }
}

fn in_one_piece(value: &[u8], old_value: &[u8]) -> (Bytes, Bytes) {
    let mut value_and_old = Bytes::from([value, old_value].concat());
    let old_value = value_and_old.split_off(value.len());
    (value_and_old, old_value)
}

/// Whether a further prewrite says the same as the held one; what was given up is taken to disagree.
fn agree(held: &Open, values: Option<&(Bytes, Bytes)>) -> bool {
    match (&held.values, values) {
        (Some((held, _)), Some((new, _))) => held == new,
        _ => false,
    }
}
