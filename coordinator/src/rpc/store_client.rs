//! A store that another process owns.
//!
//! Every call is one request; the other side's errors come out as they were, those of the transport as
//! `Unavailable`. Snapshot rules are the owner's: this is a wire, not a cache.

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use futures::StreamExt;
use store::{
    ChangePage, CommitRequest, FeedStream, Key, KeyError, KeyRange, KvPair, KvResult, LockInfo, Mutation,
    MvccInfo, PrewriteRequest, ReadContext, ScanRequest, Store, TxnStatus, TxnStatusRequest, Value,
};
use tonic::transport::Channel;
use types::{Error, Result, Timestamp};

use super::errors::from_status;
use super::proto::store_service_client::StoreServiceClient;
use super::store_wire as wire;
use super::{MESSAGE_BYTES_MAX, RemoteOptions, away_if_closed, bounded, channel, missing, proto};

/// Blobs are sent in requests of about this size, so that one request cannot block the connection.
const BLOBS_BYTES_MAX: usize = 16 << 20;

/// The store of the process at an address.
///
/// It connects when it is first used and again whenever it has to. Collecting garbage is the owner's own
/// business and is refused here; closing ends this client only.
#[derive(Debug)]
pub struct RemoteStore {
    client: StoreServiceClient<Channel>,
    call_ms_max: u64,
    closed: AtomicBool,
}

impl RemoteStore {
    /// A client of the store at `host:port`; must be called inside a tokio runtime.
    ///
    /// # Errors
    /// `Invalid` if that is no address.
    pub fn new(address: &str, options: RemoteOptions) -> Result<RemoteStore> {
        let client = StoreServiceClient::new(channel(address, options)?)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        Ok(RemoteStore { client, call_ms_max: options.call_ms_max, closed: AtomicBool::new(false) })
    }

    fn client(&self) -> Result<StoreServiceClient<Channel>> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::closed("this client of the store is closed"));
        }
        Ok(self.client.clone())
    }
}

/// Refuses a message that the other side would not take: it would only cut the connection.
fn fitting<M: prost::Message>(what: &str, message: M) -> Result<M> {
    let bytes = message.encoded_len();
    if bytes > MESSAGE_BYTES_MAX {
        return Err(Error::invalid(format!(
            "{what}: {bytes} bytes, at most {MESSAGE_BYTES_MAX} fit a message"
        )));
    }
    Ok(message)
}

fn ranges_to_wire(ranges: &[KeyRange]) -> Vec<proto::KeyRange> {
    ranges.iter().map(wire::range_to_wire).collect()
}

/// An error about keys as it was; the owner's closing means waiting for the next one.
fn key_error(what: &'static str, error: proto::KeyError) -> KeyError {
    match wire::error_from_wire(error) {
        KeyError::Store(error) => KeyError::Store(away_if_closed(what, error)),
        error => error,
    }
}

fn number(what: &'static str, response: proto::NumberResponse) -> KvResult<u64> {
    match response.error {
        None => Ok(response.number),
        Some(error) => Err(key_error(what, error)),
    }
}

fn keys(what: &'static str, response: proto::KeysResponse) -> KvResult<()> {
    match response.error {
        None => Ok(()),
        Some(error) => Err(key_error(what, error)),
    }
}

fn pairs(what: &'static str, response: proto::PairsResponse) -> KvResult<Vec<KvPair>> {
    match response.error {
        None => Ok(response.pairs.into_iter().map(wire::pair_from_wire).collect()),
        Some(error) => Err(key_error(what, error)),
    }
}

#[async_trait]
impl Store for RemoteStore {
    async fn timestamp(&self) -> Result<Timestamp> {
        let request = proto::TimestampRequest { read: false };
        let response = bounded("timestamp", self.call_ms_max, self.client()?.timestamp(request)).await?;
        Ok(Timestamp(response.ts))
    }

    async fn read_timestamp(&self) -> Result<Timestamp> {
        let request = proto::TimestampRequest { read: true };
        let response = bounded("read timestamp", self.call_ms_max, self.client()?.timestamp(request)).await?;
        Ok(Timestamp(response.ts))
    }

    async fn wait_visible(&self, ts: Timestamp) -> Result<()> {
        let request = proto::WaitVisibleRequest { ts: ts.0 };
        bounded("wait visible", self.call_ms_max, self.client()?.wait_visible(request)).await?;
        Ok(())
    }

    async fn kv_get(&self, key: &[u8], context: &ReadContext) -> KvResult<Option<Value>> {
        let context = Some(wire::context_to_wire(context));
        let request = proto::GetRequest { key: Key::copy_from_slice(key), context };
        let response = bounded("get", self.call_ms_max, self.client()?.get(request)).await?;
        match response.error {
            None => Ok(response.value),
            Some(error) => Err(key_error("get", error)),
        }
    }

    async fn kv_batch_get(&self, keys: &[Key], context: &ReadContext) -> KvResult<Vec<KvPair>> {
        let context = Some(wire::context_to_wire(context));
        let request = proto::BatchGetRequest { keys: keys.to_vec(), context };
        pairs("batch get", bounded("batch get", self.call_ms_max, self.client()?.batch_get(request)).await?)
    }

    async fn kv_scan(&self, request: &ScanRequest, context: &ReadContext) -> KvResult<Vec<KvPair>> {
        let request = proto::ScanRequest {
            range: Some(wire::range_to_wire(&request.range)),
            limit: request.limit as u64,
            key_only: request.key_only,
            reverse: request.reverse,
            context: Some(wire::context_to_wire(context)),
        };
        pairs("scan", bounded("scan", self.call_ms_max, self.client()?.scan(request)).await?)
    }

    async fn prewrite(&self, request: PrewriteRequest) -> std::result::Result<(), Vec<KeyError>> {
        let request = proto::PrewriteRequest {
            mutations: request.mutations.into_iter().map(wire::mutation_to_wire).collect(),
            primary: request.primary,
            start_ts: request.start_ts.0,
            ttl_ms: request.ttl_ms,
            txn_size: request.txn_size,
            min_commit_ts: request.min_commit_ts.0,
            assertion_level: wire::level_to_wire(request.assertion_level).into(),
            staged: request.staged,
        };
        let store = |error: Error| vec![KeyError::Store(error)];
        let mut client = self.client().map_err(store)?;
        let response =
            bounded("prewrite", self.call_ms_max, client.prewrite(request)).await.map_err(store)?;
        if response.errors.is_empty() {
            return Ok(());
        }
        Err(response.errors.into_iter().map(|error| key_error("prewrite", error)).collect())
    }

    async fn commit(&self, request: CommitRequest) -> KvResult<Timestamp> {
        let request = proto::CommitRequest {
            start_ts: request.start_ts.0,
            keys: request.keys,
            primary: request.primary,
            commit_ts: request.commit_ts.map(|commit_ts| commit_ts.0),
        };
        let response = bounded("commit", self.call_ms_max, self.client()?.commit(request)).await?;
        number("commit", response).map(Timestamp)
    }

    async fn batch_rollback(&self, start_ts: Timestamp, keys: &[Key]) -> KvResult<()> {
        let request = proto::BatchRollbackRequest { start_ts: start_ts.0, keys: keys.to_vec() };
        let response = bounded("rollback", self.call_ms_max, self.client()?.batch_rollback(request)).await?;
        self::keys("rollback", response)
    }

    async fn check_txn_status(&self, request: &TxnStatusRequest) -> KvResult<TxnStatus> {
        use proto::check_txn_status_response::Answer;
        let request = proto::CheckTxnStatusRequest {
            primary: request.primary.clone(),
            start_ts: request.start_ts.0,
            caller_start_ts: request.caller_start_ts.0,
            current_ts: request.current_ts.0,
            rollback_if_not_exist: request.rollback_if_not_exist,
            verify_is_primary: request.verify_is_primary,
        };
        let what = "check transaction";
        let response = bounded(what, self.call_ms_max, self.client()?.check_txn_status(request)).await?;
        match response.answer.ok_or_else(|| missing("a transaction's status"))? {
            Answer::Committed(commit_ts) => Ok(TxnStatus::Committed(Timestamp(commit_ts))),
            Answer::RolledBack(_) => Ok(TxnStatus::RolledBack),
            Answer::Alive(alive) => {
                let lock = wire::lock_from_wire(alive.lock.ok_or_else(|| missing("a lock"))?)?;
                Ok(TxnStatus::Alive { lock: Box::new(lock), pushed: alive.pushed })
            }
            Answer::Error(error) => Err(key_error(what, error)),
        }
    }

    async fn heartbeat(&self, primary: &[u8], start_ts: Timestamp, ttl_ms: u64) -> KvResult<u64> {
        let primary = Key::copy_from_slice(primary);
        let request = proto::HeartbeatRequest { primary, start_ts: start_ts.0, ttl_ms };
        let response = bounded("heartbeat", self.call_ms_max, self.client()?.heartbeat(request)).await?;
        number("heartbeat", response)
    }

    async fn resolve_lock(
        &self,
        start_ts: Timestamp,
        commit_ts: Option<Timestamp>,
        keys: &[Key],
    ) -> KvResult<()> {
        let request = proto::ResolveLockRequest {
            start_ts: start_ts.0,
            commit_ts: commit_ts.map(|commit_ts| commit_ts.0),
            keys: keys.to_vec(),
        };
        let response =
            bounded("resolve lock", self.call_ms_max, self.client()?.resolve_lock(request)).await?;
        self::keys("resolve lock", response)
    }

    async fn scan_lock(&self, range: &KeyRange, max_ts: Timestamp, limit: usize) -> KvResult<Vec<LockInfo>> {
        let request = proto::ScanLockRequest {
            range: Some(wire::range_to_wire(range)),
            max_ts: max_ts.0,
            limit: limit as u64,
        };
        let response = bounded("scan lock", self.call_ms_max, self.client()?.scan_lock(request)).await?;
        match response.error {
            None => {
                let locks: Result<Vec<_>> = response.locks.into_iter().map(wire::lock_from_wire).collect();
                Ok(locks?)
            }
            Some(error) => Err(key_error("scan lock", error)),
        }
    }

    async fn mvcc_get(&self, key: &[u8]) -> KvResult<MvccInfo> {
        let request = proto::MvccGetRequest { key: Key::copy_from_slice(key) };
        let mut response = bounded("mvcc get", self.call_ms_max, self.client()?.mvcc_get(request)).await?;
        match response.error.take() {
            None => Ok(wire::mvcc_from_wire(response)?),
            Some(error) => Err(key_error("mvcc get", error)),
        }
    }

    async fn commit_transaction(&self, start_ts: Timestamp, mutations: Vec<Mutation>) -> KvResult<Timestamp> {
        let mutations = mutations.into_iter().map(wire::mutation_to_wire).collect();
        let request = proto::CommitTransactionRequest { start_ts: start_ts.0, mutations };
        let what = "commit transaction";
        let request = fitting(what, request)?;
        let response = bounded(what, self.call_ms_max, self.client()?.commit_transaction(request)).await?;
        number(what, response).map(Timestamp)
    }

    async fn changes(
        &self,
        ranges: &[KeyRange],
        from: Timestamp,
        to: Timestamp,
        next: Option<(Timestamp, Key)>,
        limit: usize,
    ) -> Result<ChangePage> {
        let request = proto::ChangesRequest {
            ranges: ranges_to_wire(ranges),
            from: from.0,
            to: to.0,
            next: next.map(wire::cursor_to_wire),
            limit: limit as u64,
        };
        let page = bounded("changes", self.call_ms_max, self.client()?.changes(request)).await?;
        Ok(ChangePage {
            changes: page.changes.into_iter().map(wire::change_from_wire).collect(),
            next: page.next.map(wire::cursor_from_wire),
        })
    }

    async fn resolved(&self, ranges: &[KeyRange]) -> Result<Timestamp> {
        let request = proto::ResolvedRequest { ranges: ranges_to_wire(ranges) };
        let response = bounded("resolved", self.call_ms_max, self.client()?.resolved(request)).await?;
        Ok(Timestamp(response.ts))
    }

    async fn subscribe(&self, ranges: Vec<KeyRange>, from: Timestamp) -> Result<FeedStream> {
        let request = proto::SubscribeRequest { ranges: ranges_to_wire(&ranges), from: from.0 };
        let feed = bounded("subscribe", self.call_ms_max, self.client()?.subscribe(request)).await?;
        let events = feed.map(|event| match event {
            Ok(event) => wire::event_from_wire(event),
            Err(status) => Err(away_if_closed("subscribe", from_status(&status))),
        });
        Ok(events.boxed())
    }

    async fn wait_change(&self, ts: Timestamp, timeout_ms: u64) -> Result<Timestamp> {
        let request = proto::WaitChangeRequest { ts: ts.0, timeout_ms };
        let ms_max = self.call_ms_max.saturating_add(timeout_ms);
        let response = bounded("wait change", ms_max, self.client()?.wait_change(request)).await?;
        Ok(Timestamp(response.ts))
    }

    async fn hold(&self, name: &str, ts: Timestamp) -> Result<()> {
        let request = proto::HoldRequest { name: name.to_owned(), ts: ts.0 };
        bounded("hold", self.call_ms_max, self.client()?.hold(request)).await?;
        Ok(())
    }

    async fn release(&self, name: &str) -> Result<()> {
        let request = proto::ReleaseRequest { name: name.to_owned() };
        bounded("release", self.call_ms_max, self.client()?.release(request)).await?;
        Ok(())
    }

    async fn holds(&self) -> Result<Vec<(String, Timestamp)>> {
        let response =
            bounded("holds", self.call_ms_max, self.client()?.holds(proto::HoldsRequest {})).await?;
        Ok(response.holds.into_iter().map(|hold| (hold.name, Timestamp(hold.ts))).collect())
    }

    async fn collect_garbage(&self, _barrier: Timestamp) -> Result<Timestamp> {
        Err(Error::invalid("garbage is collected by the process that owns the store"))
    }

    async fn gc_barrier(&self) -> Result<Timestamp> {
        let request = proto::GcBarrierRequest {};
        let response = bounded("gc barrier", self.call_ms_max, self.client()?.gc_barrier(request)).await?;
        Ok(Timestamp(response.ts))
    }

    async fn put_blobs(&self, blobs: Vec<(Key, Value)>) -> Result<()> {
        let mut client = self.client()?;
        let mut batch = proto::PutBlobsRequest::default();
        let mut bytes = 0;
        for (key, value) in blobs {
            bytes += key.len() + value.len();
            batch.blobs.push(proto::Blob { key, value });
            if bytes >= BLOBS_BYTES_MAX {
                bytes = 0;
                let batch = fitting("put blobs", std::mem::take(&mut batch))?;
                bounded("put blobs", self.call_ms_max, client.put_blobs(batch)).await?;
            }
        }
        if !batch.blobs.is_empty() {
            bounded("put blobs", self.call_ms_max, client.put_blobs(batch)).await?;
        }
        Ok(())
    }

    async fn get_blob(&self, key: &[u8]) -> Result<Option<Value>> {
        let request = proto::GetBlobRequest { key: Key::copy_from_slice(key) };
        Ok(bounded("get blob", self.call_ms_max, self.client()?.get_blob(request)).await?.value)
    }

    async fn list_blobs(&self, prefix: &[u8], after: Option<Key>, limit: usize) -> Result<Vec<Key>> {
        let prefix = Key::copy_from_slice(prefix);
        let request = proto::ListBlobsRequest { prefix, after, limit: limit as u64 };
        Ok(bounded("list blobs", self.call_ms_max, self.client()?.list_blobs(request)).await?.keys)
    }

    async fn delete_blobs(&self, keys: Vec<Key>) -> Result<()> {
        let request = proto::DeleteBlobsRequest { keys };
        bounded("delete blobs", self.call_ms_max, self.client()?.delete_blobs(request)).await?;
        Ok(())
    }

    async fn close(&self) -> Result<()> {
        self.closed.store(true, Ordering::Relaxed);
        Ok(())
    }
}
