//! An engine in memory that stands still, or fails, where a test says.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use store::engine::{Batch, Durability, Engine, Entries, KeyBounds, MemoryEngine, Space};
use store::{EmbeddedStore, Options};
use types::{Error, Result};

/// The key at whose read threads stand still.
pub(crate) const KEY: &[u8] = b"account";
/// The committer's thread.
pub(crate) const COMMITTER: &str = "store-committer";

/// Where a thread stands still once.
struct Stop {
    reached: Sender<()>,
    go: Receiver<()>,
}

impl Stop {
    fn new() -> (Stop, Stopped) {
        let ((reached, stands), (sender, go)) = (channel(), channel());
        (Stop { reached, go }, Stopped { stands, go: sender })
    }

    fn stand(self) {
        self.reached.send(()).unwrap();
        self.go.recv().unwrap();
    }
}

/// The other end of a stop.
pub(crate) struct Stopped {
    stands: Receiver<()>,
    go: Sender<()>,
}

impl Stopped {
    /// Waits until the thread stands.
    pub(crate) fn wait(&self) {
        self.stands.recv().unwrap();
    }

    /// Lets it go on.
    pub(crate) fn go(self) {
        self.go.send(()).unwrap();
    }
}

/// The engine.
#[derive(Default)]
pub(crate) struct Stopping {
    inner: MemoryEngine,
    /// By the thread that stops at its next read of [`KEY`].
    reads: Mutex<HashMap<String, Stop>>,
    commit: Mutex<Option<Stop>>,
    failing: AtomicBool,
    commits: AtomicUsize,
}

impl Stopping {
    /// A named thread stands still after its next read of [`KEY`].
    pub(crate) fn stop_read(&self, thread: &str) -> Stopped {
        let (stop, stopped) = Stop::new();
        self.reads.lock().unwrap().insert(thread.to_owned(), stop);
        stopped
    }

    /// The next write stands still before it is applied.
    pub(crate) fn stop_commit(&self) -> Stopped {
        let (stop, stopped) = Stop::new();
        *self.commit.lock().unwrap() = Some(stop);
        stopped
    }

    /// The next write fails.
    pub(crate) fn fail_once(&self) {
        self.failing.store(true, Ordering::SeqCst);
    }

    /// How often it was written, failed writes included.
    pub(crate) fn commits(&self) -> usize {
        self.commits.load(Ordering::SeqCst)
    }
}

impl Engine for Stopping {
    fn commit(&self, batch: Batch, durability: Durability) -> Result<()> {
        self.commits.fetch_add(1, Ordering::SeqCst);
        let stop = self.commit.lock().unwrap().take();
        if let Some(stop) = stop {
            stop.stand();
        }
        if self.failing.swap(false, Ordering::SeqCst) {
            return Err(Error::unavailable("the write fails"));
        }
        self.inner.commit(batch, durability)
    }

    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        let value = self.inner.get(space, key);
        if space == Space::Main && key == KEY {
            let thread = std::thread::current();
            let stop = self.reads.lock().unwrap().remove(thread.name().unwrap_or_default());
            if let Some(stop) = stop {
                stop.stand();
            }
        }
        value
    }

    fn range(&self, space: Space, bounds: KeyBounds, reverse: bool) -> Entries<'_> {
        self.inner.range(space, bounds, reverse)
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    fn space_bytes(&self) -> Result<u64> {
        self.inner.space_bytes()
    }
}

/// A store over a new engine, with its committer in a thread.
pub(crate) fn open(options: Options) -> (Arc<EmbeddedStore>, Arc<Stopping>) {
    let engine = Arc::new(Stopping::default());
    let over: Arc<dyn Engine> = engine.clone();
    (EmbeddedStore::over(over, options).unwrap(), engine)
}
