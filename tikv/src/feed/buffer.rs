//! Holds committed changes until they are resolved and read, in the order of commit timestamp and key.
//!
//! What does not fit in memory goes to temporary files, sorted, and is merged back on reading; nothing is
//! ever dropped but what [`Buffer::trim`] says nobody wants. A change that comes twice is held or at least
//! read once. The files have no name and are gone with the process: nothing here outlives it.
//!
//! Reading does file input in the caller's thread, a page at a time; a buffer that fits in memory does none.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use store::{Change, KeyRange};
use types::{Error, Result, Timestamp};

use run::{Run, RunReader, RunWriter};

mod run;
#[cfg(test)]
mod tests;

/// Where a change stands in the order of changes.
pub(crate) type Position = (Timestamp, Bytes);

/// A page of a buffer and where the next one begins.
pub(crate) type Page = (Vec<Change>, Option<Position>);

/// Above so many files they are merged into one.
const RUNS_MAX: usize = 16;
/// What a change takes in memory besides its bytes, roughly.
const CHANGE_BYTES: usize = 160;
/// A page ends after so many bytes, whatever its limit.
const PAGE_BYTES: usize = 8 << 20;

/// How much a buffer may hold, and where.
#[derive(Clone, Debug)]
pub(crate) struct BufferOptions {
    /// The most bytes in memory; more goes to a file.
    pub(crate) memory_bytes_max: usize,
    /// The most bytes in files; above it the buffer says that it is full, and takes more all the same.
    pub(crate) disk_bytes_max: u64,
    /// Where the files are made; the system's place for temporary files if `None`.
    pub(crate) directory: Option<PathBuf>,
}

/// A change without its place.
#[derive(Clone, Debug)]
struct Held {
    start_ts: Timestamp,
    value: Option<Bytes>,
    old_value: Option<Bytes>,
}

/// Committed changes, ordered.
#[derive(Debug)]
pub(crate) struct Buffer {
    options: BufferOptions,
    memory: BTreeMap<Position, Held>,
    n_memory_bytes: usize,
    runs: Vec<Run>,
    /// Nothing at or below it is held any more.
    floor: Timestamp,
}

impl Buffer {
    /// An empty buffer for what commits after a timestamp.
    pub(crate) fn new(options: BufferOptions, floor: Timestamp) -> Buffer {
        Buffer { options, memory: BTreeMap::new(), n_memory_bytes: 0, runs: Vec::new(), floor }
    }

    /// Takes a change; one that is held already, or below what was trimmed, changes nothing.
    ///
    /// # Errors
    /// `Unavailable` if a temporary file cannot be written.
    pub(crate) fn push(&mut self, change: Change) -> Result<()> {
        if change.commit_ts <= self.floor {
            return Ok(());
        }
        // A change shares its message's memory: a short key would keep megabytes.
        let change = copied(&change);
        let n_bytes = n_bytes(&change);
        let held = Held { start_ts: change.start_ts, value: change.value, old_value: change.old_value };
        if let Entry::Vacant(place) = self.memory.entry((change.commit_ts, change.key)) {
            place.insert(held);
            self.n_memory_bytes += n_bytes;
        }
        if self.n_memory_bytes > self.options.memory_bytes_max {
            self.spill()?;
        }
        Ok(())
    }

    /// Reads what is at or after a position, up to a timestamp and within a range, at most `limit` changes.
    ///
    /// # Errors
    /// `Unavailable` if a temporary file cannot be read.
    pub(crate) fn read(
        &self,
        from: &Position,
        to: Timestamp,
        range: &KeyRange,
        limit: usize,
    ) -> Result<Page> {
        let mut merged = Merged::open(self, from)?;
        let mut page = Vec::new();
        let mut n_page_bytes = 0;
        while let Some(change) = merged.next()? {
            if change.commit_ts > to {
                break;
            }
            if !range.contains(&change.key) {
                continue;
            }
            if page.len() >= limit || (n_page_bytes >= PAGE_BYTES && !page.is_empty()) {
                return Ok((page, Some((change.commit_ts, change.key))));
            }
            n_page_bytes += n_bytes(&change);
            page.push(change);
        }
        Ok((page, None))
    }

    /// Forgets what is at or below a timestamp.
    pub(crate) fn trim(&mut self, ts: Timestamp) {
        self.floor = self.floor.max(ts);
        self.runs.retain(|run| run.last() > ts);
        let Ok(above) = ts.next() else {
            self.memory.clear();
            self.n_memory_bytes = 0;
            return;
        };
        if self.memory.first_key_value().is_some_and(|(position, _)| position.0 <= ts) {
            self.memory = self.memory.split_off(&(above, Bytes::new()));
            let held = self.memory.iter().map(|(position, held)| held_bytes(position, held));
            self.n_memory_bytes = held.sum();
        }
    }

    /// The least commit timestamp that is held.
    ///
    /// # Errors
    /// `Unavailable` if a temporary file cannot be read.
    pub(crate) fn least(&self) -> Result<Option<Timestamp>> {
        let Ok(above) = self.floor.next() else { return Ok(None) };
        Ok(Merged::open(self, &(above, Bytes::new()))?.next()?.map(|change| change.commit_ts))
    }

    /// Bytes in files.
    pub(crate) fn n_disk_bytes(&self) -> u64 {
        self.runs.iter().map(Run::n_bytes).sum()
    }

    /// Whether there is more in files than there should be.
    pub(crate) fn is_full(&self) -> bool {
        self.n_disk_bytes() > self.options.disk_bytes_max
    }

    /// Whether so little is left that a full buffer may be filled again.
    pub(crate) fn has_room(&self) -> bool {
        self.n_disk_bytes() <= self.options.disk_bytes_max / 2
    }

    /// Moves everything in memory to a file.
    fn spill(&mut self) -> Result<()> {
        let mut writer = RunWriter::create(self.options.directory.as_deref())?;
        for ((commit_ts, key), held) in std::mem::take(&mut self.memory) {
            writer.write(&with_place(commit_ts, key, held))?;
        }
        self.n_memory_bytes = 0;
        self.runs.extend(writer.finish()?);
        if self.runs.len() > RUNS_MAX {
            self.merge_runs()?;
        }
        Ok(())
    }

    fn merge_runs(&mut self) -> Result<()> {
        let mut writer = RunWriter::create(self.options.directory.as_deref())?;
        let floor =
            (self.floor.next().map_err(|_| Error::corrupt("a feed at the end of time"))?, Bytes::new());
        let mut merged = Merged::open(self, &floor)?;
        while let Some(change) = merged.next()? {
            writer.write(&change)?;
        }
        self.runs = writer.finish()?.into_iter().collect();
        Ok(())
    }
}

/// A buffer that a puller fills and others read.
#[derive(Clone, Debug)]
pub(crate) struct SharedBuffer(Arc<Mutex<Buffer>>);

impl SharedBuffer {
    /// Shares a buffer.
    pub(crate) fn new(buffer: Buffer) -> SharedBuffer {
        SharedBuffer(Arc::new(Mutex::new(buffer)))
    }

    /// The buffer, for a moment.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Buffer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn with_place(commit_ts: Timestamp, key: Bytes, held: Held) -> Change {
    Change { key, start_ts: held.start_ts, commit_ts, value: held.value, old_value: held.old_value }
}

fn held_bytes(position: &Position, held: &Held) -> usize {
    let len = |value: &Option<Bytes>| value.as_ref().map_or(0, Bytes::len);
    CHANGE_BYTES + position.1.len() + len(&held.value) + len(&held.old_value)
}

fn n_bytes(change: &Change) -> usize {
    let len = |value: &Option<Bytes>| value.as_ref().map_or(0, Bytes::len);
    CHANGE_BYTES + change.key.len() + len(&change.value) + len(&change.old_value)
}

/// A change in memory of its own, in one piece.
fn copied(change: &Change) -> Change {
    let empty = Bytes::new();
    let value = change.value.as_ref().unwrap_or(&empty);
    let old_value = change.old_value.as_ref().unwrap_or(&empty);
    let whole = Bytes::from([change.key.as_ref(), value, old_value].concat());
    let (key_end, value_end) = (change.key.len(), change.key.len() + value.len());
    Change {
        key: whole.slice(..key_end),
        value: change.value.is_some().then(|| whole.slice(key_end..value_end)),
        old_value: change.old_value.is_some().then(|| whole.slice(value_end..)),
        ..*change
    }
}

/// Memory and files in one order, each change once.
struct Merged<'a> {
    memory: std::collections::btree_map::Range<'a, Position, Held>,
    /// The next of memory, then of each file.
    heads: Vec<Option<Change>>,
    readers: Vec<RunReader<'a>>,
}

impl<'a> Merged<'a> {
    fn open(buffer: &'a Buffer, from: &Position) -> Result<Merged<'a>> {
        let memory = buffer.memory.range((Bound::Included(from.clone()), Bound::Unbounded));
        let readers =
            buffer.runs.iter().map(|run| run.read_from(from)).collect::<Result<Vec<RunReader<'a>>>>()?;
        let mut merged = Merged { memory, heads: vec![None; readers.len() + 1], readers };
        for source in 0..merged.heads.len() {
            merged.fill(source)?;
        }
        Ok(merged)
    }

    fn fill(&mut self, source: usize) -> Result<()> {
        self.heads[source] = match source.checked_sub(1) {
            None => self
                .memory
                .next()
                .map(|(position, held)| with_place(position.0, position.1.clone(), held.clone())),
            Some(reader) => self.readers[reader].next()?,
        };
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Change>> {
        let place = |change: &Change| (change.commit_ts, change.key.clone());
        let least = self.heads.iter().flatten().map(place).min();
        let Some(least) = least else { return Ok(None) };
        let mut found = None;
        for source in 0..self.heads.len() {
            let is_least = |head: &Change| head.commit_ts == least.0 && head.key == least.1;
            if self.heads[source].as_ref().is_some_and(is_least) {
                found = self.heads[source].take();
                self.fill(source)?;
            }
        }
        Ok(found)
    }
}
