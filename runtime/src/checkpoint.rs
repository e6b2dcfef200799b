//! Which checkpoint of a view a reader at T sees.
//!
//! The epoch record at T names the cut; the view's manifests at T belong to the same checkpoint, because
//! both changed at one instant (G2). A fill's view has the record of its fill job.

use std::collections::BTreeMap;

use operators::Manifest;
use store::Store;
use types::records::{EpochRecord, epoch_record_key, manifest_prefix};
use types::{Error, JobId, Result, TableId, Timestamp};

/// A view's newest checkpoint at or below a timestamp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The epoch record in force.
    pub record: EpochRecord,
    /// When the record in force committed: C_k, or later if DDL rewrote it since.
    pub commit_ts: Timestamp,
    /// The view's manifests by state number.
    pub manifests: BTreeMap<u32, Manifest>,
}

/// Reads the checkpoint of a view of a job that a reader at T sees; `None` if the job has no record then.
///
/// # Errors
/// `Corrupt` if a record does not decode; what the store says.
pub async fn checkpoint_at(
    store: &dyn Store,
    job: JobId,
    view: TableId,
    at: Timestamp,
) -> Result<Option<Checkpoint>> {
    let _ = (store, job, view, at, epoch_record_key(job), manifest_prefix(view));
    Err(Error::unavailable("the runtime does not run yet"))
}
