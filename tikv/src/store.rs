//! A cluster as a [`Store`].
//!
//! Each call is a few lines; what it does stands in the file of its subject.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use store::traits::{ChangePage, FeedStream};
use store::{
    CommitRequest, Key, KeyRange, KvPair, KvResult, LockInfo, Mutation, MvccInfo, PrewriteRequest,
    ReadContext, Reading, ScanRequest, Store, TxnStatus, TxnStatusRequest, Value,
};
use types::{Error, Result, Timestamp};

use crate::cluster::Cluster;
use crate::feed::Feeds;
use crate::holds::Holds;
use crate::options::Options;
use crate::own_keys;

/// How far ahead of the oracle a wait goes rather than fail, in milliseconds.
const FUTURE_MS_MAX: u64 = 5_000;

/// What all handles of one connection share.
struct Connection {
    cluster: Arc<Cluster>,
    feeds: Feeds,
    holds: Arc<Holds>,
    closed: AtomicBool,
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Nobody waits for the tasks, but they end; the cluster is shared with those that are at work.
        self.cluster.tasks.cancel();
    }
}

/// A connection to a cluster of TiKV; clones share it.
#[derive(Clone)]
pub struct TikvStore {
    connection: Arc<Connection>,
}

impl TikvStore {
    /// Finds a cluster and connects to it.
    ///
    /// # Errors
    /// `Unavailable` if nobody answers in time, `Invalid` if the endpoints are of several clusters.
    pub async fn connect(options: Options) -> Result<TikvStore> {
        let cluster = Arc::new(Cluster::connect(options).await?);
        cluster.renew_safe_point().await?;
        let stores = cluster.pd.stores().await?;
        tracing::info!(cluster_id = cluster.pd.cluster_id(), n_stores = stores.len(), "connected");
        let holds = Holds::new(Arc::clone(&cluster));
        holds.start();
        let feeds = Feeds::new(Arc::clone(&cluster));
        let connection = Connection { cluster, feeds, holds, closed: AtomicBool::new(false) };
        Ok(TikvStore { connection: Arc::new(connection) })
    }

    /// The cluster, unless the connection is closed.
    fn cluster(&self) -> Result<&Arc<Cluster>> {
        if self.connection.closed.load(Ordering::Acquire) {
            return Err(Error::closed("the connection to the cluster is closed"));
        }
        Ok(&self.connection.cluster)
    }

    fn held(&self) -> Result<&Holds> {
        self.cluster().map(|_| self.connection.holds.as_ref())
    }

    fn feeds(&self) -> Result<&Feeds> {
        self.cluster().map(|_| &self.connection.feeds)
    }
}

#[async_trait]
impl Store for TikvStore {
    async fn timestamp(&self) -> Result<Timestamp> {
        self.cluster()?.timestamp().await
    }

    async fn read_timestamp(&self) -> Result<Timestamp> {
        self.cluster()?.timestamp().await
    }

    async fn wait_visible(&self, ts: Timestamp) -> Result<()> {
        let cluster = self.cluster()?;
        if ts <= cluster.pd.oracle().newest() {
            return Ok(());
        }
        loop {
            let now = cluster.timestamp().await?;
            let ahead_ms = ts.physical_ms().saturating_sub(now.physical_ms());
            if now >= ts {
                return Ok(());
            }
            if ahead_ms > FUTURE_MS_MAX {
                return Err(Error::invalid(format!("timestamp {ts} is in the future")));
            }
            tokio::time::sleep(Duration::from_millis(ahead_ms.max(1))).await;
        }
    }

    async fn kv_get(&self, key: &[u8], context: &ReadContext) -> KvResult<Option<Value>> {
        self.cluster()?.get(key, context).await
    }

    async fn kv_batch_get(&self, keys: &[Key], context: &ReadContext) -> KvResult<Vec<KvPair>> {
        self.cluster()?.batch_get(keys, context).await
    }

    async fn kv_scan(&self, request: &ScanRequest, context: &ReadContext) -> KvResult<Vec<KvPair>> {
        self.cluster()?.scan(request, context).await
    }

    async fn prewrite(&self, request: PrewriteRequest) -> std::result::Result<(), Vec<store::KeyError>> {
        let cluster = self.cluster().map_err(|error| vec![error.into()])?;
        cluster.prewrite(request).await
    }

    async fn commit(&self, request: CommitRequest) -> KvResult<Timestamp> {
        self.cluster()?.commit(request).await
    }

    async fn batch_rollback(&self, start_ts: Timestamp, keys: &[Key]) -> KvResult<()> {
        self.cluster()?.rollback(start_ts, keys.to_vec()).await
    }

    async fn check_txn_status(&self, request: &TxnStatusRequest) -> KvResult<TxnStatus> {
        store::check_key_length(&request.primary)?;
        self.cluster()?.check_status(request).await
    }

    async fn heartbeat(&self, primary: &[u8], start_ts: Timestamp, ttl_ms: u64) -> KvResult<u64> {
        self.cluster()?.heartbeat(primary, start_ts, ttl_ms).await
    }

    async fn resolve_lock(
        &self,
        start_ts: Timestamp,
        commit_ts: Option<Timestamp>,
        keys: &[Key],
    ) -> KvResult<()> {
        let cluster = self.cluster()?;
        match keys {
            [] => cluster.resolve_everywhere(start_ts, commit_ts).await,
            keys => cluster.resolve(start_ts, commit_ts, keys.to_vec()).await,
        }
    }

    async fn scan_lock(&self, range: &KeyRange, max_ts: Timestamp, limit: usize) -> KvResult<Vec<LockInfo>> {
        self.cluster()?.scan_lock(range, max_ts, limit).await
    }

    async fn mvcc_get(&self, key: &[u8]) -> KvResult<MvccInfo> {
        self.cluster()?.story(key).await
    }

    async fn commit_transaction(&self, start_ts: Timestamp, mutations: Vec<Mutation>) -> KvResult<Timestamp> {
        self.cluster()?.commit_whole(start_ts, mutations).await
    }

    async fn changes(
        &self,
        ranges: &[KeyRange],
        from: Timestamp,
        to: Timestamp,
        next: Option<(Timestamp, Key)>,
        limit: usize,
    ) -> Result<ChangePage> {
        self.feeds()?.changes(ranges, from, to, next, limit).await
    }

    async fn resolved(&self, ranges: &[KeyRange]) -> Result<Timestamp> {
        self.feeds()?.resolved(ranges).await
    }

    async fn subscribe(&self, ranges: Vec<KeyRange>, from: Timestamp) -> Result<FeedStream> {
        self.feeds()?.subscribe(ranges, from).await
    }

    async fn wait_change(&self, ts: Timestamp, timeout_ms: u64) -> Result<Timestamp> {
        self.feeds()?.wait_change(ts, timeout_ms).await
    }

    async fn cut(&self, ranges: &[KeyRange], after: Timestamp, timeout_ms: u64) -> Result<Timestamp> {
        self.feeds()?.cut(ranges, after, timeout_ms).await
    }

    async fn hold(&self, name: &str, ts: Timestamp) -> Result<()> {
        self.held()?.hold(name, ts).await
    }

    async fn release(&self, name: &str) -> Result<()> {
        self.held()?.release(name).await
    }

    async fn holds(&self) -> Result<Vec<(String, Timestamp)>> {
        self.held()?.list().await
    }

    fn reading(&self, ts: Timestamp) -> Reading {
        self.connection.holds.readers.begin(ts)
    }

    async fn collect_garbage(&self, barrier: Timestamp) -> Result<Timestamp> {
        self.held()?.collect(barrier).await
    }

    async fn gc_barrier(&self) -> Result<Timestamp> {
        self.cluster()?.renew_safe_point().await
    }

    async fn put_blobs(&self, blobs: Vec<(Key, Value)>) -> Result<()> {
        let put = |(key, value): (Key, Value)| {
            store::check_key_length(&key)?;
            Ok(Mutation::put(own_keys::blob(&key), value))
        };
        self.cluster()?.write_own(blobs.into_iter().map(put).collect::<Result<_>>()?).await
    }

    async fn get_blob(&self, key: &[u8]) -> Result<Option<Value>> {
        self.cluster()?.blob(key).await
    }

    async fn list_blobs(&self, prefix: &[u8], after: Option<Key>, limit: usize) -> Result<Vec<Key>> {
        self.cluster()?.blob_keys(prefix, after.as_ref(), limit).await
    }

    async fn delete_blobs(&self, mut keys: Vec<Key>) -> Result<()> {
        keys.retain(|key| store::check_key_length(&own_keys::blob(key)).is_ok());
        let deletes = keys.iter().map(|key| Mutation::delete(own_keys::blob(key))).collect();
        self.cluster()?.write_own(deletes).await
    }

    async fn close(&self) -> Result<()> {
        let cluster = &self.connection.cluster;
        self.connection.closed.store(true, Ordering::Release);
        // What is being committed needs the oracle to the end.
        cluster.work.finish().await;
        cluster.tasks.shutdown().await;
        Ok(())
    }
}
