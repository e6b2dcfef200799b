//! The narrow trait between the embedded store and a storage crate, and the two engines behind it.
//!
//! An engine keeps ordered bytes in a few keyspaces and applies a batch of writes atomically and in
//! order. It owes no isolation: readers tell old from new by timestamps in the entries alone, so an
//! iterator may see writes that came after it was opened, but never misses one that came before. Writes
//! of one batch must become readable in the batch's order. A batch is durable in one piece or not at
//! all, and no batch outlives a crash that an earlier one did not.

mod disk;
pub(crate) mod journal;
mod memory;

use std::ops::Bound;

use bytes::Bytes;
use types::{Error, Result};

pub use disk::{DiskEngine, DiskOptions};
pub use memory::MemoryEngine;

/// The longest key that an engine takes; none is empty.
pub const KEY_BYTES_MAX: usize = u16::MAX as usize;

/// A keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    /// The newest version of each key.
    Main,
    /// Replaced versions.
    History,
    /// Lock and rollback records, by key.
    Records,
    /// Locks that outlive a crash.
    Locks,
    /// What each commit changed, by commit timestamp.
    Index,
    /// The store's own facts: format, oracle bound, holds, barrier.
    Meta,
    /// Unversioned values.
    Blobs,
}

impl Space {
    /// All keyspaces.
    pub const ALL: [Space; 7] =
        [Space::Main, Space::History, Space::Records, Space::Locks, Space::Index, Space::Meta, Space::Blobs];

    /// The keyspace's name on disk.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Space::Main => "main",
            Space::History => "history",
            Space::Records => "records",
            Space::Locks => "locks",
            Space::Index => "index",
            Space::Meta => "meta",
            Space::Blobs => "blobs",
        }
    }

    pub(crate) fn position(self) -> usize {
        self as usize
    }
}

/// One write of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Sets a key.
    Put {
        /// Where.
        space: Space,
        /// The key.
        key: Bytes,
        /// Its value.
        value: Bytes,
    },
    /// Removes a key.
    Delete {
        /// Where.
        space: Space,
        /// The key.
        key: Bytes,
    },
}

/// Writes that become durable together.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The writes, in the order in which they become readable.
    pub writes: Vec<Write>,
    bytes: usize,
}

impl Batch {
    /// Adds a put.
    pub fn put(&mut self, space: Space, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        let (key, value) = (key.into(), value.into());
        self.bytes += key.len() + value.len() + 16;
        self.writes.push(Write::Put { space, key, value });
    }

    /// Adds a removal.
    pub fn delete(&mut self, space: Space, key: impl Into<Bytes>) {
        let key = key.into();
        self.bytes += key.len() + 16;
        self.writes.push(Write::Delete { space, key });
    }

    /// Refuses keys that no engine takes, before anything is written.
    ///
    /// # Errors
    /// `Invalid` if a key is empty or longer than [`KEY_BYTES_MAX`].
    pub fn check_keys(&self) -> Result<()> {
        for write in &self.writes {
            let (Write::Put { key, .. } | Write::Delete { key, .. }) = write;
            if !can_be_key(key) {
                return Err(Error::invalid(format!(
                    "engine: a key has {} bytes, one to {KEY_BYTES_MAX} are possible",
                    key.len()
                )));
            }
        }
        Ok(())
    }

    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// About how many bytes the batch has.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Whether a batch waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// It does not; a later synced batch makes it durable too.
    Buffered,
    /// It is on the disk when the call returns.
    Synced,
}

/// A range of keys of an engine.
pub type KeyBounds = (Bound<Bytes>, Bound<Bytes>);

/// Whether an engine may hold a key of this length.
pub(crate) fn can_be_key(key: &[u8]) -> bool {
    !key.is_empty() && key.len() <= KEY_BYTES_MAX
}

/// Entries of a range.
pub type Entries<'a> = Box<dyn Iterator<Item = Result<(Bytes, Bytes)>> + Send + 'a>;

/// Keys of a range.
pub type Keys<'a> = Box<dyn Iterator<Item = Result<Bytes>> + Send + 'a>;

/// An ordered, crash-safe map with a few keyspaces.
pub trait Engine: Send + Sync + 'static {
    /// Applies a batch atomically. After an error nothing is known about the batch, and the engine
    /// must not be written again.
    ///
    /// # Errors
    /// If the write or the sync failed; `Invalid`, and nothing is written, for a key that no engine
    /// takes ([`Batch::check_keys`]).
    fn commit(&self, batch: Batch, durability: Durability) -> Result<()>;

    /// Reads one key, of any length.
    ///
    /// # Errors
    /// If the disk fails or its bytes are broken.
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>>;

    /// Reads a range in key order, or against it; bounds may have any length.
    fn range(&self, space: Space, bounds: KeyBounds, reverse: bool) -> Entries<'_>;

    /// Reads the keys of a range in order.
    fn keys(&self, space: Space, bounds: KeyBounds) -> Keys<'_> {
        Box::new(self.range(space, bounds, false).map(|entry| entry.map(|(key, _)| key)))
    }

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// If the disk fails; the engine must not be written again.
    fn sync(&self) -> Result<()>;

    /// Rewrites a keyspace, so that what was removed gives its space back; `false` if it has none to give.
    /// May take long; reads and writes go on.
    ///
    /// # Errors
    /// If the disk fails.
    fn reclaim(&self, _space: Space) -> Result<bool> {
        Ok(false)
    }

    /// The bytes used on disk (or in memory).
    ///
    /// # Errors
    /// If the disk fails.
    fn space_bytes(&self) -> Result<u64>;
}
