//! The engine in memory, for simulation and tests.
//!
//! Nothing survives the process, but a store may be closed and opened again over the same engine.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use types::Result;

use super::{Batch, Durability, Engine, Entries, KeyBounds, Space, Write};

/// How many entries an iterator copies at a time.
const PAGE_ENTRIES: usize = 128;

type Map = BTreeMap<Bytes, Bytes>;

/// An engine of ordered maps.
#[derive(Debug, Default)]
pub struct MemoryEngine {
    /// One map a keyspace. Each has its own lock, so that a batch becomes readable step by step as on
    /// disk: tests would not notice a reader that relies on atomic batches otherwise.
    spaces: [RwLock<Map>; Space::ALL.len()],
}

impl MemoryEngine {
    /// An empty engine.
    #[must_use]
    pub fn new() -> MemoryEngine {
        MemoryEngine::default()
    }

    fn read(&self, space: Space) -> RwLockReadGuard<'_, Map> {
        self.spaces[space.position()].read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, space: Space) -> RwLockWriteGuard<'_, Map> {
        self.spaces[space.position()].write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine for MemoryEngine {
    fn commit(&self, batch: Batch, _durability: Durability) -> Result<()> {
        batch.check_keys()?;
        for write in batch.writes {
            match write {
                Write::Put { space, key, value } => {
                    self.write(space).insert(key, value);
                }
                Write::Delete { space, key } => {
                    self.write(space).remove(&key);
                }
            }
        }
        Ok(())
    }

    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.read(space).get(key).cloned())
    }

    fn range(&self, space: Space, bounds: KeyBounds, reverse: bool) -> Entries<'_> {
        Box::new(Pages { engine: self, space, bounds, reverse, page: Vec::new().into_iter(), done: false })
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn space_bytes(&self) -> Result<u64> {
        let bytes =
            |space| self.read(space).iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        Ok(Space::ALL.into_iter().map(bytes).sum::<usize>() as u64)
    }
}

/// Copies a page of entries at a time, so that no lock is held between them.
struct Pages<'a> {
    engine: &'a MemoryEngine,
    space: Space,
    bounds: KeyBounds,
    reverse: bool,
    page: std::vec::IntoIter<(Bytes, Bytes)>,
    done: bool,
}

impl Pages<'_> {
    fn fill(&mut self) {
        if is_empty(&self.bounds) {
            self.done = true;
            return;
        }
        let map = self.engine.read(self.space);
        let range = map.range(self.bounds.clone());
        let copy = |(key, value): (&Bytes, &Bytes)| (key.clone(), value.clone());
        let page: Vec<(Bytes, Bytes)> = if self.reverse {
            range.rev().take(PAGE_ENTRIES).map(copy).collect()
        } else {
            range.take(PAGE_ENTRIES).map(copy).collect()
        };
        self.done = page.len() < PAGE_ENTRIES;
        if let Some((last, _)) = page.last() {
            let rest = Bound::Excluded(last.clone());
            if self.reverse {
                self.bounds.1 = rest;
            } else {
                self.bounds.0 = rest;
            }
        }
        self.page = page.into_iter();
    }
}

impl Iterator for Pages<'_> {
    type Item = Result<(Bytes, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.page.next() {
                return Some(Ok(entry));
            }
            if self.done {
                return None;
            }
            self.fill();
        }
    }
}

/// Whether no key lies between the bounds; `BTreeMap::range` refuses such bounds.
pub(crate) fn is_empty(bounds: &KeyBounds) -> bool {
    match bounds {
        (Bound::Included(start), Bound::Included(end)) => start > end,
        (Bound::Included(start) | Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end)) => {
            start >= end
        }
        _ => false,
    }
}
