//! The embedded store: multi-version transactions with Percolator's meaning over an [`Engine`].
//!
//! One directory, one owner. Reads run in their caller's thread; prewrites check there too; everything
//! that decides or writes goes through one committer, which commits in groups: it draws the commit
//! timestamps, writes one batch, syncs once, publishes what is visible, then answers. Isolation comes
//! from timestamps in the entries alone. After a failed write the handle is closed for good: what
//! reached the disk is then only known after opening again.
//!
//! ```text
//! prewrite --> lock table (pending) --> checks --> staged: locked | else: committer writes locks
//! commit   --> committer: [checks] [draw C] [history, main, index] -- one batch, one sync --> visible
//! read T   --> lock table, then main; history if main is newer than T
//! ```

mod collect;
mod committer;
mod core;
mod decide;
mod directory;
mod feed;
mod format;
mod locks;
mod oracle;
mod prewrite;
mod reads;
mod recent;
mod spans;
mod store;
mod stretches;
mod taken;
mod whole;

use std::path::Path;
use std::sync::Arc;

use types::{Error, Result, Timestamp};

use crate::engine::journal;
use crate::engine::{DiskEngine, DiskOptions, Engine, MemoryEngine};
use crate::traits::{KeyError, PrewriteRequest};
use committer::{Committer, Driver};
use directory::Directory;

use self::core::CommitRecord;
pub(crate) use self::core::Core;
pub use format::check_key_length;
pub use oracle::{Clock, SystemClock};

/// How an embedded store is opened.
#[derive(Clone)]
pub struct Options {
    /// Where physical time comes from.
    pub clock: Arc<dyn Clock>,
    /// Open although the clock is more than an hour behind the store's timestamps, or although acknowledged
    /// commits are missing at the end of the journal or broken inside it.
    pub force: bool,
    /// Run commits in the caller instead of a thread of their own: no group commit, but deterministic.
    pub inline: bool,
    /// How long a call waits for somebody else's lock, in milliseconds.
    pub lock_wait_ms_max: u64,
    /// After how long without progress of the committer a waiting call gives up and closes the handle.
    pub stall_ms_max: u64,
    /// How old the timestamp of a read may be, in milliseconds, for garbage collection to wait for its end.
    pub reading_ms_max: u64,
    /// Sizes of the engine on disk.
    pub disk: DiskOptions,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            clock: Arc::new(SystemClock),
            force: false,
            inline: false,
            lock_wait_ms_max: 10_000,
            stall_ms_max: 60_000,
            reading_ms_max: 24 * 60 * 60 * 1000,
            disk: DiskOptions::default(),
        }
    }
}

/// What the store's methods share; feeds keep a weak handle to it.
pub(crate) struct Inner {
    pub core: Arc<Core>,
    pub driver: Driver,
}

/// A store in this process.
pub struct EmbeddedStore {
    inner: Arc<Inner>,
}

impl EmbeddedStore {
    /// Whether there is a store in a directory, sound or broken.
    #[must_use]
    pub fn exists(directory: &Path) -> bool {
        Directory::is_one(directory)
    }

    /// Opens or creates the store in a directory.
    ///
    /// # Errors
    /// `Invalid` if another process has it, if it is of another format, or if the clock is more than an
    /// hour behind its timestamps; `Corrupt` if its bytes are broken or acknowledged commits are missing.
    pub fn open(directory: impl AsRef<Path>, options: Options) -> Result<Arc<EmbeddedStore>> {
        let path = directory.as_ref();
        let directory = Directory::open(path, options.force)?;
        let (engine, acknowledged) = (directory.engine_path(), directory.acknowledged());
        journal::mend(&engine, acknowledged, &CommitRecord::group_of, options.force)?;
        let engine = DiskEngine::open(&engine, &options.disk)?;
        EmbeddedStore::start(Arc::new(engine), options, Some(directory))
            .map_err(|error| error.context(format!("store in {}", path.display())))
    }

    /// A store in memory, whose commits run in their callers.
    ///
    /// # Panics
    /// Never: an engine in memory does not fail.
    #[must_use]
    pub fn memory() -> Arc<EmbeddedStore> {
        let options = Options { inline: true, ..Options::default() };
        EmbeddedStore::over(Arc::new(MemoryEngine::new()), options).expect("an empty memory engine opens")
    }

    /// Opens a store over an engine that the caller keeps, without a directory.
    ///
    /// # Errors
    /// As [`EmbeddedStore::open`].
    pub fn over(engine: Arc<dyn Engine>, options: Options) -> Result<Arc<EmbeddedStore>> {
        EmbeddedStore::start(engine, options, None)
    }

    fn start(
        engine: Arc<dyn Engine>,
        options: Options,
        directory: Option<Directory>,
    ) -> Result<Arc<EmbeddedStore>> {
        let inline = options.inline;
        let (core, sequence) = Core::open(engine, options)?;
        if let Some(directory) = &directory {
            directory.check(sequence, core.options.force)?;
        }
        let core = Arc::new(core);
        let committer = Committer::new(Arc::clone(&core), sequence, directory);
        let driver = if inline { Driver::inline(committer) } else { Driver::thread(committer)? };
        Ok(Arc::new(EmbeddedStore { inner: Arc::new(Inner { core, driver }) }))
    }

    /// As [`Store::prewrite`](crate::Store::prewrite), for a transaction that has seen, under locks of its
    /// own, what committed up to a timestamp after its start, as TiDB's pessimistic ones do: only what is
    /// newer conflicts.
    ///
    /// # Errors
    /// As [`Store::prewrite`](crate::Store::prewrite).
    pub async fn prewrite_having_seen(
        &self,
        request: PrewriteRequest,
        seen: Timestamp,
    ) -> std::result::Result<(), Vec<KeyError>> {
        self.inner.prewrite(request, seen).await
    }

    /// About how many bytes the store uses.
    ///
    /// # Errors
    /// If the store is closed or the disk fails.
    pub fn space_bytes(&self) -> Result<u64> {
        self.inner.core.engine()?.space_bytes()
    }

    /// How many groups of commits were synced, and how many transactions they had.
    #[must_use]
    pub fn commit_counts(&self) -> CommitCounts {
        self.inner.core.counts()
    }
}

/// How well group commit works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitCounts {
    /// Batches that waited for the disk.
    pub syncs: u64,
    /// Transactions that committed.
    pub transactions: u64,
}

fn stored_wrongly(what: &str) -> Error {
    Error::corrupt(format!("{what} of the store is missing"))
}
