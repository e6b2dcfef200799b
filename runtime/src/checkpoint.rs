//! Which checkpoint of a view a reader at T sees.
//!
//! The epoch record at T names the cut; the view's manifests at T belong to the same checkpoint, because
//! both changed at one instant (G2). The view of a fill has the record of its fill job.

use std::collections::BTreeMap;
use std::sync::Arc;

use operators::Manifest;
use store::{KeyRange, Snapshot, Store};
use types::records::{EpochRecord, epoch_record_key, manifest_prefix};
use types::{Error, JobId, Result, TableId, Timestamp};

use crate::records;

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
    let key = epoch_record_key(job);
    let Some(value) = Snapshot::new(Arc::clone(store), at).get(&key).await? else { return Ok(None) };
    let record = EpochRecord::decode(&value)?;
    // The snapshot read above has resolved the key, so its newest write at or below T is known.
    let history = store.mvcc_get(&key).await?;
    let write = history.writes.iter().find(|write| write.commit_ts <= at && write.value.is_some());
    let commit_ts = write
        .map(|write| write.commit_ts)
        .ok_or_else(|| Error::corrupt(format!("job {job} has an epoch record at {at} but no write of it")))?;
    let manifests = manifests_at(store, view, at).await?;
    Ok(Some(Checkpoint { record, commit_ts, manifests }))
}

/// The manifests of a view in force at a timestamp, by state number.
///
/// # Errors
/// `Corrupt` if one does not decode; what the store says.
pub(crate) async fn manifests_at(
    store: &Arc<dyn Store>,
    view: TableId,
    at: Timestamp,
) -> Result<BTreeMap<u32, Manifest>> {
    let prefix = manifest_prefix(view);
    let mut manifests = BTreeMap::new();
    let snapshot = Snapshot::new(Arc::clone(store), at);
    for (key, value) in snapshot.scan_all(&KeyRange::prefix(&prefix)).await? {
        manifests.insert(state_number(&prefix, &key)?, records::decode("manifest", &value)?);
    }
    Ok(manifests)
}

fn state_number(prefix: &[u8], key: &[u8]) -> Result<u32> {
    let bytes = key.strip_prefix(prefix).and_then(|rest| <[u8; 4]>::try_from(rest).ok());
    bytes.map(u32::from_be_bytes).ok_or_else(|| Error::corrupt("not the key of a manifest"))
}
