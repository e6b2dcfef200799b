//! The engine on disk: fjall.
//!
//! Its snapshots are not repeatable (a flush may expose a batch that is still being applied), so none is
//! used: reads ask for the newest state, and timestamps in the entries tell what a reader may see. All
//! writes come from one thread, the store's committer. Values of runs live apart from their keys.

use std::ops::Bound;
use std::path::Path;

use bytes::Bytes;
use fjall::config::{BlockSizePolicy, HashRatioPolicy};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode};
use types::{Error, Result};

use super::memory::is_empty;
use super::{Batch, Durability, Engine, Entries, KEY_BYTES_MAX, KeyBounds, Keys, Space, Write, can_be_key};

/// Sizes of the engine on disk.
#[derive(Clone, Debug)]
pub struct DiskOptions {
    /// The cache of blocks, in bytes.
    pub cache_bytes: u64,
    /// The size at which a keyspace's memory is written out, in bytes.
    pub memtable_bytes: u64,
    /// The most bytes of journals before keyspaces are written out to free them.
    pub journal_bytes_max: u64,
}

impl Default for DiskOptions {
    fn default() -> DiskOptions {
        DiskOptions { cache_bytes: 256 << 20, memtable_bytes: 32 << 20, journal_bytes_max: 512 << 20 }
    }
}

/// The engine on disk.
pub struct DiskEngine {
    database: Database,
    spaces: Vec<Keyspace>,
}

impl DiskEngine {
    /// Opens or creates the engine in a directory.
    ///
    /// # Errors
    /// If the directory cannot be used or its content is broken.
    pub fn open(directory: &Path, options: &DiskOptions) -> Result<DiskEngine> {
        let failed =
            |error: fjall::Error| engine_error(&error).context(format!("engine in {}", directory.display()));
        let database = Database::builder(directory)
            .cache_size(options.cache_bytes)
            .max_journaling_size(options.journal_bytes_max)
            .manual_journal_persist(true)
            .worker_threads(2)
            .open()
            .map_err(failed)?;
        let open = |space: Space| database.keyspace(space.name(), || space_options(space, options));
        let spaces = Space::ALL.into_iter().map(open).collect::<fjall::Result<Vec<_>>>().map_err(failed)?;
        Ok(DiskEngine { database, spaces })
    }

    fn space(&self, space: Space) -> &Keyspace {
        &self.spaces[space.position()]
    }

    /// Writes a keyspace's memory out to a table.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn flush(&self, space: Space) -> Result<()> {
        self.space(space).rotate_memtable_and_wait().map_err(|error| engine_error(&error))
    }

    /// Merges all tables of a keyspace.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn compact(&self, space: Space) -> Result<()> {
        self.space(space).major_compact().map_err(|error| engine_error(&error))
    }
}

fn space_options(space: Space, options: &DiskOptions) -> KeyspaceCreateOptions {
    let base = KeyspaceCreateOptions::default().max_memtable_size(options.memtable_bytes);
    match space {
        Space::Main | Space::History | Space::Records => base
            .data_block_size_policy(BlockSizePolicy::all(4 << 10))
            .data_block_hash_ratio_policy(HashRatioPolicy::all(8.0))
            .expect_point_read_hits(space == Space::History),
        Space::Blobs => base.with_kv_separation(Some(KvSeparationOptions::default())),
        Space::Locks | Space::Index | Space::Meta => base,
    }
}

fn engine_error(error: &fjall::Error) -> Error {
    use fjall::Error as Fjall;
    let text = format!("engine: {error}");
    match error {
        Fjall::Locked => Error::invalid("engine: the directory is in use by another process"),
        Fjall::Poisoned => Error::closed(
            "engine: stopped after a write in the background failed (is the disk full or broken? the log has the cause)",
        ),
        Fjall::Io(_) => Error::unavailable(text),
        _ => Error::corrupt(text),
    }
}

/// The same bounds without keys that fjall refuses. No key is longer than what is left of a long bound, so
/// those above the bound are those above its beginning.
fn possible((start, end): KeyBounds) -> KeyBounds {
    let beginning = |key: &Bytes| key.slice(..KEY_BYTES_MAX);
    let start = match &start {
        Bound::Included(key) | Bound::Excluded(key) if key.is_empty() => Bound::Unbounded,
        Bound::Included(key) | Bound::Excluded(key) if key.len() > KEY_BYTES_MAX => {
            Bound::Excluded(beginning(key))
        }
        _ => start,
    };
    let end = match &end {
        Bound::Included(key) | Bound::Excluded(key) if key.len() > KEY_BYTES_MAX => {
            Bound::Included(beginning(key))
        }
        _ => end,
    };
    (start, end)
}

impl Engine for DiskEngine {
    fn commit(&self, batch: Batch, durability: Durability) -> Result<()> {
        batch.check_keys()?;
        let mut writes = fjall::OwnedWriteBatch::with_capacity(self.database.clone(), batch.writes.len());
        for write in &batch.writes {
            match write {
                Write::Put { space, key, value } => {
                    writes.insert(self.space(*space), key.as_ref(), value.as_ref());
                }
                Write::Delete { space, key } => writes.remove(self.space(*space), key.as_ref()),
            }
        }
        let mode = match durability {
            Durability::Buffered => PersistMode::Buffer,
            Durability::Synced => PersistMode::SyncData,
        };
        writes.durability(Some(mode)).commit().map_err(|error| engine_error(&error))
    }

    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        if !can_be_key(key) {
            return Ok(None);
        }
        let value = self.space(space).get(key).map_err(|error| engine_error(&error))?;
        Ok(value.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn range(&self, space: Space, bounds: KeyBounds, reverse: bool) -> Entries<'_> {
        let bounds = possible(bounds);
        if is_empty(&bounds) {
            return Box::new(std::iter::empty());
        }
        let iterator = self.space(space).range::<Bytes, _>(bounds);
        let entry = |guard: fjall::Guard| {
            let (key, value) = guard.into_inner().map_err(|error| engine_error(&error))?;
            Ok((Bytes::copy_from_slice(&key), Bytes::copy_from_slice(&value)))
        };
        if reverse { Box::new(iterator.rev().map(entry)) } else { Box::new(iterator.map(entry)) }
    }

    fn keys(&self, space: Space, bounds: KeyBounds) -> Keys<'_> {
        let bounds = possible(bounds);
        if is_empty(&bounds) {
            return Box::new(std::iter::empty());
        }
        let key = |guard: fjall::Guard| {
            let key = guard.key().map_err(|error| engine_error(&error))?;
            Ok(Bytes::copy_from_slice(&key))
        };
        Box::new(self.space(space).range::<Bytes, _>(bounds).map(key))
    }

    fn sync(&self) -> Result<()> {
        self.database.persist(PersistMode::SyncAll).map_err(|error| engine_error(&error))
    }

    fn reclaim(&self, space: Space) -> Result<bool> {
        // Fjall compacts a keyspace as a whole: it knows no ranges.
        self.flush(space)?;
        self.compact(space)?;
        Ok(true)
    }

    fn space_bytes(&self) -> Result<u64> {
        self.database.disk_space().map_err(|error| engine_error(&error))
    }
}
