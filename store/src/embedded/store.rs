//! The embedded store as a [`Store`].

use std::ops::Bound;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use types::{Error, Result, Timestamp};

use super::committer::Step;
use super::format::{open_bytes, seal_bytes};
use super::{EmbeddedStore, Inner};
use crate::engine::{Space, can_be_key};
use crate::readers::Reading;
use crate::traits::{
    ChangePage, CommitRequest, FeedStream, Key, KeyError, KeyRange, KvPair, KvResult, LockInfo, Mutation,
    MvccInfo, PrewriteRequest, ReadContext, ScanRequest, Store, TxnStatus, TxnStatusRequest, Value,
};

#[async_trait]
impl Store for EmbeddedStore {
    async fn timestamp(&self) -> Result<Timestamp> {
        self.inner.timestamp().await
    }

    async fn read_timestamp(&self) -> Result<Timestamp> {
        self.inner.read_timestamp().await
    }

    async fn wait_visible(&self, ts: Timestamp) -> Result<()> {
        self.inner.wait_visible(ts).await
    }

    async fn kv_get(&self, key: &[u8], context: &ReadContext) -> KvResult<Option<Value>> {
        self.inner.get(key, context).await
    }

    async fn kv_batch_get(&self, keys: &[Key], context: &ReadContext) -> KvResult<Vec<KvPair>> {
        self.inner.batch_get(keys, context).await
    }

    async fn kv_scan(&self, request: &ScanRequest, context: &ReadContext) -> KvResult<Vec<KvPair>> {
        self.inner.scan(request, context).await
    }

    async fn prewrite(&self, request: PrewriteRequest) -> std::result::Result<(), Vec<KeyError>> {
        let seen = request.start_ts;
        self.inner.prewrite(request, seen).await
    }

    async fn commit(&self, request: CommitRequest) -> KvResult<Timestamp> {
        self.inner.commit(request).await
    }

    async fn batch_rollback(&self, start_ts: Timestamp, keys: &[Key]) -> KvResult<()> {
        self.inner.rollback(start_ts, keys).await
    }

    async fn check_txn_status(&self, request: &TxnStatusRequest) -> KvResult<TxnStatus> {
        self.inner.status(request).await
    }

    async fn heartbeat(&self, primary: &[u8], start_ts: Timestamp, ttl_ms: u64) -> KvResult<u64> {
        self.inner.heartbeat(primary, start_ts, ttl_ms).await
    }

    async fn resolve_lock(
        &self,
        start_ts: Timestamp,
        commit_ts: Option<Timestamp>,
        keys: &[Key],
    ) -> KvResult<()> {
        self.inner.resolve(start_ts, commit_ts, keys).await
    }

    async fn scan_lock(&self, range: &KeyRange, max_ts: Timestamp, limit: usize) -> KvResult<Vec<LockInfo>> {
        Ok(self.inner.scan_lock(range, max_ts, limit)?)
    }

    async fn mvcc_get(&self, key: &[u8]) -> KvResult<MvccInfo> {
        self.inner.mvcc(key)
    }

    async fn commit_transaction(&self, start_ts: Timestamp, mutations: Vec<Mutation>) -> KvResult<Timestamp> {
        self.inner.commit_whole(start_ts, mutations).await
    }

    async fn changes(
        &self,
        ranges: &[KeyRange],
        from: Timestamp,
        to: Timestamp,
        next: Option<(Timestamp, Key)>,
        limit: usize,
    ) -> Result<ChangePage> {
        self.inner.changes(ranges, from, to, next, limit).await
    }

    async fn count_changes(
        &self,
        ranges: &[KeyRange],
        from: Timestamp,
        to: Timestamp,
        most: u64,
    ) -> Result<u64> {
        self.inner.count_changes(ranges, from, to, most).await
    }

    async fn resolved(&self, ranges: &[KeyRange]) -> Result<Timestamp> {
        self.inner.resolved(ranges).await
    }

    async fn subscribe(&self, ranges: Vec<KeyRange>, from: Timestamp) -> Result<FeedStream> {
        self.inner.subscribe(&ranges, from)
    }

    async fn wait_change(&self, ts: Timestamp, timeout_ms: u64) -> Result<Timestamp> {
        self.inner.wait_change(ts, timeout_ms).await
    }

    async fn hold(&self, name: &str, ts: Timestamp) -> Result<()> {
        self.inner.hold(name, ts).await
    }

    async fn release(&self, name: &str) -> Result<()> {
        self.inner.release(name).await
    }

    async fn holds(&self) -> Result<Vec<(String, Timestamp)>> {
        self.inner.holds()
    }

    fn reading(&self, ts: Timestamp) -> Reading {
        self.inner.core.readers.begin(ts)
    }

    fn readings(&self) -> Vec<(Timestamp, usize)> {
        self.inner.core.readers.all()
    }

    async fn collect_garbage(&self, barrier: Timestamp) -> Result<Timestamp> {
        self.inner.collect(barrier).await
    }

    async fn compact(&self) -> Result<bool> {
        self.inner.compact().await
    }

    async fn gc_barrier(&self) -> Result<Timestamp> {
        self.inner.core.check_open()?;
        Ok(self.inner.core.barrier())
    }

    async fn put_blobs(&self, blobs: Vec<(Key, Value)>) -> Result<()> {
        self.inner.put_blobs(blobs).await
    }

    async fn get_blob(&self, key: &[u8]) -> Result<Option<Value>> {
        let bytes = self.inner.core.engine()?.get(Space::Blobs, key)?;
        bytes.map(|bytes| open_bytes(key, &bytes)).transpose()
    }

    async fn list_blobs(&self, prefix: &[u8], after: Option<Key>, limit: usize) -> Result<Vec<Key>> {
        self.inner.list_blobs(prefix, after, limit)
    }

    async fn delete_blobs(&self, keys: Vec<Key>) -> Result<()> {
        self.inner.delete_blobs(keys).await
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}

impl Inner {
    async fn put_blobs(&self, blobs: Vec<(Key, Value)>) -> Result<()> {
        // Sealed here, so that the committer only copies.
        let mut blobs: Vec<(Key, Bytes)> =
            blobs.into_iter().map(|(key, value)| (key.clone(), seal_bytes(&key, &value))).collect();
        if let Some((key, _)) = blobs.iter().find(|(key, _)| !can_be_key(key)) {
            return Err(Error::invalid(format!("no value can have a key of {} bytes", key.len())));
        }
        self.submit(move |group| {
            for (key, bytes) in blobs.drain(..) {
                group.batch.put(Space::Blobs, key, bytes);
            }
            Step::Done(())
        })
        .await
    }

    async fn delete_blobs(&self, mut keys: Vec<Key>) -> Result<()> {
        keys.retain(|key| can_be_key(key));
        self.submit(move |group| {
            for key in keys.drain(..) {
                group.batch.delete(Space::Blobs, key);
            }
            Step::Done(())
        })
        .await
    }

    fn list_blobs(&self, prefix: &[u8], after: Option<Key>, limit: usize) -> Result<Vec<Key>> {
        let engine = self.core.engine()?;
        let start = match after {
            Some(after) if after.as_ref() >= prefix => Bound::Excluded(after),
            _ => Bound::Included(Key::copy_from_slice(prefix)),
        };
        let end = types::records::prefix_end(prefix);
        let end = if end.is_empty() { Bound::Unbounded } else { Bound::Excluded(Key::from(end)) };
        let entries = engine.keys(Space::Blobs, (start, end));
        entries.take(limit).collect()
    }

    async fn close(self: &Arc<Self>) -> Result<()> {
        // The exact bound, so that a clean restart does not run ahead of the clock; nothing is given out
        // above it from here on.
        let closing = self.submit(|group| {
            let bound_ms = group.core.oracle.stop();
            group.put_bound(bound_ms);
            group.then(|core| core.shut(Error::closed("the store is closed")));
            Step::Done(())
        });
        let closed = closing.await;
        self.driver.stop();
        // What is being rewritten still has the files open; nothing begins from here on.
        drop(self.core.reclaiming.lock().await);
        match closed {
            Err(error) if error.message() != "the store is closed" => Err(error),
            _ => Ok(()),
        }
    }
}
