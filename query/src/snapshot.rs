//! Snapshot reads of the store.

use std::sync::Arc;

use store::{Key, KeyRange, ReadContext, ScanRequest, Store, Value};
use types::{Result, Timestamp};

/// Reads one key.
pub(crate) async fn get(store: &Arc<dyn Store>, at: Timestamp, key: &[u8]) -> Result<Option<Value>> {
    Ok(store.kv_get(key, &ReadContext::at(at)).await?)
}

/// Reads many keys; absent ones are left out.
pub(crate) async fn batch_get(
    store: &Arc<dyn Store>,
    at: Timestamp,
    keys: &[Key],
) -> Result<Vec<(Key, Value)>> {
    let pairs = store.kv_batch_get(keys, &ReadContext::at(at)).await?;
    pairs.into_iter().map(|pair| Ok((pair.key, pair.value?))).collect()
}

/// Reads at most `limit` pairs of a range, in key order.
pub(crate) async fn scan(
    store: &Arc<dyn Store>,
    at: Timestamp,
    range: &KeyRange,
    limit: usize,
) -> Result<Vec<(Key, Value)>> {
    let request = ScanRequest { range: range.clone(), limit, key_only: false, reverse: false };
    let pairs = store.kv_scan(&request, &ReadContext::at(at)).await?;
    pairs.into_iter().map(|pair| Ok((pair.key, pair.value?))).collect()
}
