//! Manifests: one record a state, in the transaction of the epoch that changes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use operators::Manifest;
use store::{KeyRange, Mutation, Snapshot, Store};
use types::records::{manifest_key, manifest_prefix};
use types::{Error, Result, StateId, TableId, Timestamp};

/// The manifests of a view as they are at a timestamp, by state number.
///
/// # Errors
/// `Corrupt` if one cannot be read, otherwise what the store answers.
pub async fn load_manifests(
    store: &Arc<dyn Store>,
    view: TableId,
    ts: Timestamp,
) -> Result<BTreeMap<u32, Manifest>> {
    let prefix = manifest_prefix(view);
    let snapshot = Snapshot::new(Arc::clone(store), ts);
    let mut manifests = BTreeMap::new();
    for (key, value) in snapshot.scan_all(&KeyRange::prefix(&prefix)).await? {
        let bad = |what: &str| Error::corrupt(format!("manifest of view {view}: {what}"));
        let number = key.strip_prefix(prefix.as_slice()).and_then(|rest| rest.try_into().ok());
        let number = u32::from_be_bytes(number.ok_or_else(|| bad("its key has no state number"))?);
        let manifest =
            serde_json::from_slice(&value).map_err(|error| bad(&format!("state {number}: {error}")))?;
        manifests.insert(number, manifest);
    }
    Ok(manifests)
}

/// The mutation that writes a state's manifest.
///
/// # Errors
/// `Corrupt` if it does not serialise, which no manifest brings about.
pub fn manifest_mutation(state: StateId, manifest: &Manifest) -> Result<Mutation> {
    let value = serde_json::to_vec(manifest)
        .map_err(|error| Error::corrupt(format!("a manifest does not serialise: {error}")))?;
    Ok(Mutation::put(manifest_key(state), value))
}
