//! What an operator remembers: manifests of immutable runs.
//!
//! A run's bytes are the same in memory, on disk and in the store. This module names the contract with
//! the outside: where runs come from, and what sealing hands over.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use types::{Result, RunName};

/// Where sealed runs are read from (a cache over the store's blobs). Called from blocking threads.
pub trait RunSource: Send + Sync {
    /// The whole bytes of a run.
    ///
    /// # Errors
    /// `Corrupt` if the run is not there, `Unavailable` if the store is away.
    fn read_run(&self, name: RunName) -> Result<Bytes>;
}

/// What a manifest knows about one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunMeta {
    /// The run.
    pub name: RunName,
    /// Its rows.
    pub n_rows: u64,
    /// Its encoded size.
    pub n_bytes: u64,
}

/// The runs of one operator's state at an epoch, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The runs.
    pub runs: Vec<RunMeta>,
}

/// A run that was sealed at a barrier and must be written before the epoch's vote.
#[derive(Clone, Debug)]
pub struct SealedRun {
    /// Its name.
    pub name: RunName,
    /// Its bytes.
    pub bytes: Bytes,
}
