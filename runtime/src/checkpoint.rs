//! Which checkpoint of a view a reader at T sees.
//!
//! The epoch record at T names the cut; the view's manifests at T belong to the same checkpoint, because
//! both changed at one instant (G2). The view of a fill has the record of its fill job.

use std::collections::BTreeMap;
use std::sync::Arc;

use operators::Manifest;
use sink::load_manifests;
use store::{Snapshot, Store};
use types::records::{EpochRecord, epoch_record_key};
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
    store: &Arc<dyn Store>,
    job: JobId,
    view: TableId,
    at: Timestamp,
) -> Result<Option<Checkpoint>> {
    let Some((record, commit_ts)) = epoch_at(store, job, at).await? else { return Ok(None) };
    let manifests = load_manifests(store, view, at).await?;
    Ok(Some(Checkpoint { record, commit_ts, manifests }))
}

/// A job's epoch record in force at a timestamp, and when it committed.
pub(crate) async fn epoch_at(
    store: &Arc<dyn Store>,
    job: JobId,
    at: Timestamp,
) -> Result<Option<(EpochRecord, Timestamp)>> {
    let key = epoch_record_key(job);
    let Some(value) = Snapshot::new(Arc::clone(store), at).get(&key).await? else { return Ok(None) };
    let record = EpochRecord::decode(&value)?;
    // The snapshot read above has resolved the key, so its newest write at or below T is known.
    let history = store.mvcc_get(&key).await?;
    let write = history.writes.iter().find(|write| write.commit_ts <= at && write.value.is_some());
    let commit_ts = write
        .map(|write| write.commit_ts)
        .ok_or_else(|| Error::corrupt(format!("job {job} has an epoch record at {at} but no write of it")))?;
    Ok(Some((record, commit_ts)))
}
