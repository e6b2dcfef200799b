//! Snapshot reads of the store, which get past the locks they meet.

use std::sync::Arc;

use store::{Key, KeyRange, Snapshot, Store, Value};
use types::{Result, Timestamp};

/// Reads one key.
pub(crate) async fn get(store: &Arc<dyn Store>, at: Timestamp, key: &[u8]) -> Result<Option<Value>> {
    Snapshot::new(Arc::clone(store), at).get(key).await
}

/// Reads many keys; absent ones are left out.
pub(crate) async fn batch_get(
    store: &Arc<dyn Store>,
    at: Timestamp,
    keys: &[Key],
) -> Result<Vec<(Key, Value)>> {
    let values = Snapshot::new(Arc::clone(store), at).batch_get(keys).await?;
    Ok(keys.iter().cloned().zip(values).filter_map(|(key, value)| Some((key, value?))).collect())
}

/// Reads at most `limit` pairs of a range, in key order.
pub(crate) async fn scan(
    store: &Arc<dyn Store>,
    at: Timestamp,
    range: &KeyRange,
    limit: usize,
) -> Result<Vec<(Key, Value)>> {
    Snapshot::new(Arc::clone(store), at).scan(range, limit).await
}
