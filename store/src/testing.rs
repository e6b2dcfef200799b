//! Engines and clocks for tests: that fail on purpose, count, or stand still.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use types::{Error, Result};

use crate::Clock;
use crate::engine::{Batch, Durability, Engine, Entries, KeyBounds, MemoryEngine, Space};

/// A clock that moves when it is told, and one millisecond each time it is read.
#[derive(Debug)]
pub struct ManualClock {
    now_ms: AtomicU64,
}

impl ManualClock {
    /// A clock that stands at a time.
    #[must_use]
    pub fn new(now_ms: u64) -> ManualClock {
        ManualClock { now_ms: AtomicU64::new(now_ms) }
    }

    /// Sets the time, forwards or back.
    pub fn set(&self, now_ms: u64) {
        self.now_ms.store(now_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> u64 {
        self.now_ms.fetch_add(1, Ordering::SeqCst)
    }
}

/// A clock that stands: timestamps rise all the same, and nothing is ever due.
#[derive(Clone, Copy, Debug)]
pub struct StillClock(pub u64);

impl Clock for StillClock {
    fn now_ms(&self) -> u64 {
        self.0
    }
}

/// An engine in memory that counts what it is asked for.
#[derive(Default)]
pub struct CountingEngine {
    inner: MemoryEngine,
    gets: [AtomicUsize; Space::ALL.len()],
    ranges: [AtomicUsize; Space::ALL.len()],
    writes: AtomicUsize,
    syncs: AtomicUsize,
}

impl CountingEngine {
    /// How many keys of a keyspace were read.
    pub fn gets(&self, space: Space) -> usize {
        self.gets[space.position()].load(Ordering::SeqCst)
    }

    /// How many ranges of a keyspace were opened.
    pub fn ranges(&self, space: Space) -> usize {
        self.ranges[space.position()].load(Ordering::SeqCst)
    }

    /// How many batches were written.
    pub fn writes(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }

    /// How often somebody waited for the disk.
    pub fn syncs(&self) -> usize {
        self.syncs.load(Ordering::SeqCst)
    }
}

impl Engine for CountingEngine {
    fn commit(&self, batch: Batch, durability: Durability) -> Result<()> {
        self.writes.fetch_add(1, Ordering::SeqCst);
        self.syncs.fetch_add(usize::from(durability == Durability::Synced), Ordering::SeqCst);
        self.inner.commit(batch, durability)
    }

    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        self.gets[space.position()].fetch_add(1, Ordering::SeqCst);
        self.inner.get(space, key)
    }

    fn range(&self, space: Space, bounds: KeyBounds, reverse: bool) -> Entries<'_> {
        self.ranges[space.position()].fetch_add(1, Ordering::SeqCst);
        self.inner.range(space, bounds, reverse)
    }

    fn sync(&self) -> Result<()> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        self.inner.sync()
    }

    fn space_bytes(&self) -> Result<u64> {
        self.inner.space_bytes()
    }
}

/// What goes wrong, and at which write; writes are counted from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process dies before the write reaches the engine: from then on every call fails.
    DiesBefore(usize),
    /// The process dies after the write is as durable as it asked for, and before the answer.
    DiesAfter(usize),
    /// The write fails, and nothing of it is there.
    Refuses(usize),
    /// The sync fails; the write may or may not be there after a crash.
    FailsSync(usize),
    /// The disk takes so many bytes and no more.
    Full(usize),
}

/// An engine in memory that keeps what is durable apart from what is not, and fails as planned.
pub struct FaultEngine {
    live: MemoryEngine,
    durable: MemoryEngine,
    /// Written since the last sync, in order.
    unsynced: Mutex<Vec<Batch>>,
    fault: Mutex<Option<Fault>>,
    writes: AtomicUsize,
    bytes: AtomicUsize,
    dead: AtomicUsize,
}

impl FaultEngine {
    /// An empty engine with a plan.
    #[must_use]
    pub fn new(fault: Option<Fault>) -> FaultEngine {
        FaultEngine {
            live: MemoryEngine::new(),
            durable: MemoryEngine::new(),
            unsynced: Mutex::new(Vec::new()),
            fault: Mutex::new(fault),
            writes: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            dead: AtomicUsize::new(0),
        }
    }

    /// How many writes there were.
    pub fn writes(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }

    /// Replaces the plan.
    pub fn plan(&self, fault: Option<Fault>) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    /// How many writes a crash may lose.
    pub fn unsynced_writes(&self) -> usize {
        self.unsynced().len()
    }

    /// What is on the disk after a crash that lets the first `kept` unsynced writes survive.
    ///
    /// # Errors
    /// Never: the engine is in memory.
    pub fn crash(&self, kept: usize) -> Result<FaultEngine> {
        let after = FaultEngine::new(None);
        for engine in [&after.live, &after.durable] {
            for space in Space::ALL {
                let mut batch = Batch::default();
                for entry in self.durable.range(space, everything(), false) {
                    let (key, value) = entry?;
                    batch.put(space, key, value);
                }
                engine.commit(batch, Durability::Synced)?;
            }
            for batch in self.unsynced().iter().take(kept) {
                engine.commit(batch.clone(), Durability::Synced)?;
            }
        }
        Ok(after)
    }

    fn unsynced(&self) -> MutexGuard<'_, Vec<Batch>> {
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_alive(&self) -> Result<()> {
        if self.dead.load(Ordering::SeqCst) == 0 {
            Ok(())
        } else {
            Err(Error::unavailable("the process is dead"))
        }
    }

    fn die(&self) -> Error {
        self.dead.store(1, Ordering::SeqCst);
        Error::unavailable("the process dies")
    }

    fn make_durable(&self) -> Result<()> {
        for batch in self.unsynced().drain(..) {
            self.durable.commit(batch, Durability::Synced)?;
        }
        Ok(())
    }
}

fn everything() -> KeyBounds {
    (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded)
}

impl Engine for FaultEngine {
    fn commit(&self, batch: Batch, durability: Durability) -> Result<()> {
        self.check_alive()?;
        let number = self.writes.fetch_add(1, Ordering::SeqCst);
        let bytes = self.bytes.fetch_add(batch.bytes(), Ordering::SeqCst) + batch.bytes();
        let fault = *self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        match fault {
            Some(Fault::DiesBefore(at)) if at == number => return Err(self.die()),
            Some(Fault::Refuses(at)) if at == number => return Err(Error::unavailable("the write fails")),
            Some(Fault::Full(limit)) if bytes > limit => {
                return Err(Error::unavailable("No space left on device (os error 28)"));
            }
            _ => {}
        }
        self.unsynced().push(batch.clone());
        if matches!(fault, Some(Fault::FailsSync(at)) if at == number && durability == Durability::Synced) {
            return Err(Error::unavailable("the sync fails"));
        }
        if durability == Durability::Synced {
            self.make_durable()?;
        }
        if matches!(fault, Some(Fault::DiesAfter(at)) if at == number) {
            return Err(self.die());
        }
        self.live.commit(batch, durability)
    }

    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        self.check_alive()?;
        self.live.get(space, key)
    }

    fn range(&self, space: Space, bounds: KeyBounds, reverse: bool) -> Entries<'_> {
        match self.check_alive() {
            Ok(()) => self.live.range(space, bounds, reverse),
            Err(error) => Box::new(std::iter::once(Err(error))),
        }
    }

    fn sync(&self) -> Result<()> {
        self.check_alive()?;
        self.make_durable()
    }

    fn space_bytes(&self) -> Result<u64> {
        self.live.space_bytes()
    }
}
