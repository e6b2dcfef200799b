//! Runs as blobs of the store, behind a cache of bounded size.
//!
//! A run is cut into parts of at most 1 MiB; the last is shorter than that (it may be empty), so an end
//! is known without a length. A run's own checksum says that all of it is there. Names are never used for
//! two contents, so what is in the cache is right for ever.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use operators::{Run, RunSource, SealedRun};
use store::{Key, Store, Value};
use tokio::runtime::{Handle, RuntimeFlavor};
use types::records::{RUN_PART_BYTES_MAX, run_part_key, run_prefix};
use types::{Error, Result, RunName};

use crate::lru::Lru;

/// About how many bytes are written in one call: well below what a store behind gRPC takes.
const N_BYTES_PER_CALL: usize = 8 << 20;
/// Keys of blobs that are listed and deleted in one call.
const N_KEYS_PER_CALL: usize = 256;

/// Reads and writes runs.
pub struct RunCache {
    store: Arc<dyn Store>,
    /// Where the store's calls are driven when a blocking thread asks for a run.
    runtime: Handle,
    cache: Mutex<Lru>,
}

impl RunCache {
    /// A cache of at most so many bytes over a store. Calls of [`RunSource::read_run`] block: they come from
    /// blocking threads, at worst from a worker of a multi-threaded runtime, never from a task of a
    /// single-threaded one.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, runtime: Handle, n_bytes_max: usize) -> Arc<RunCache> {
        Arc::new(RunCache { store, runtime, cache: Mutex::new(Lru::new(n_bytes_max)) })
    }

    /// Writes sealed runs, ahead of the epoch that names them; the next commit's sync makes them durable.
    ///
    /// # Errors
    /// `Corrupt` if one is no run; otherwise what the store answers.
    pub async fn write_runs(&self, sealed: &[SealedRun]) -> Result<()> {
        let mut blobs: Vec<(Key, Value)> = Vec::new();
        let mut n_bytes = 0;
        let mut parsed = Vec::with_capacity(sealed.len());
        for run in sealed {
            parsed.push((run.name, Run::from_bytes(run.bytes.clone())?));
            for (key, value) in run_blobs(run) {
                n_bytes += key.len() + value.len();
                blobs.push((key, value));
                if n_bytes >= N_BYTES_PER_CALL {
                    n_bytes = 0;
                    self.store.put_blobs(std::mem::take(&mut blobs)).await?;
                }
            }
        }
        if !blobs.is_empty() {
            self.store.put_blobs(blobs).await?;
        }
        let mut cache = self.cache();
        for (name, run) in parsed {
            cache.put(name, run);
        }
        Ok(())
    }

    /// Reads a run, from the cache or the store.
    ///
    /// # Errors
    /// `Corrupt` if the run is not there or broken, otherwise what the store answers.
    pub async fn fetch(&self, name: RunName) -> Result<Run> {
        if let Some(run) = self.cache().get(name) {
            return Ok(run);
        }
        let bytes = self.read_parts(name).await?;
        let run = Run::from_bytes(bytes).map_err(|error| error.context(format!("run {name:?}")))?;
        self.cache().put(name, run.clone());
        Ok(run)
    }

    /// Deletes runs that nobody will name again.
    ///
    /// # Errors
    /// What the store answers.
    pub async fn delete_runs(&self, names: &[RunName]) -> Result<()> {
        for name in names {
            self.cache().remove(*name);
            let mut after = None;
            loop {
                let keys = self.store.list_blobs(&run_prefix(*name), after, N_KEYS_PER_CALL).await?;
                let Some(last) = keys.last() else { break };
                after = Some(last.clone());
                self.store.delete_blobs(keys).await?;
            }
        }
        Ok(())
    }

    /// Bytes in the cache.
    #[must_use]
    pub fn n_bytes(&self) -> usize {
        self.cache().n_bytes()
    }

    async fn read_parts(&self, name: RunName) -> Result<Bytes> {
        let mut whole = BytesMut::new();
        for number in 0.. {
            let part = self.store.get_blob(&run_part_key(name, number)).await?;
            let part =
                part.ok_or_else(|| Error::corrupt(format!("part {number} of run {name:?} is not there")))?;
            if number == 0 && part.len() < RUN_PART_BYTES_MAX {
                return Ok(part);
            }
            whole.extend_from_slice(&part);
            if part.len() < RUN_PART_BYTES_MAX {
                break;
            }
        }
        Ok(whole.freeze())
    }

    /// No code that holds the lock can leave the cache half changed, so a poisoned lock is taken.
    fn cache(&self) -> MutexGuard<'_, Lru> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunSource for RunCache {
    fn read_run(&self, name: RunName) -> Result<Run> {
        if let Some(run) = self.cache().get(name) {
            return Ok(run);
        }
        let fetch = || self.runtime.block_on(self.fetch(name));
        match Handle::try_current() {
            // A worker thread hands its other tasks over first; a blocking thread has none.
            Ok(current) if current.runtime_flavor() == RuntimeFlavor::MultiThread => {
                tokio::task::block_in_place(fetch)
            }
            _ => fetch(),
        }
    }
}

/// The blobs of a run: its parts under their keys.
#[must_use]
pub fn run_blobs(run: &SealedRun) -> Vec<(Key, Value)> {
    let n_full = run.bytes.len() / RUN_PART_BYTES_MAX;
    (0..=n_full)
        .map(|part| {
            let start = part * RUN_PART_BYTES_MAX;
            let end = (start + RUN_PART_BYTES_MAX).min(run.bytes.len());
            (Key::from(run_part_key(run.name, part as u32)), run.bytes.slice(start..end))
        })
        .collect()
}
