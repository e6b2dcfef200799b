//! The store's side of the wire: every call is handed to the store of this process.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::BoxStream;
use store::{ChangePage, CommitRequest, KvResult, PrewriteRequest, ScanRequest, Store, TxnStatusRequest};
use tonic::{Request, Response, Status};
use types::{Error, Result, Timestamp};

use super::errors::to_status;
use super::proto::store_service_server::StoreService;
use super::store_wire as wire;
use super::{missing, proto};

/// A page of changes is cut when it is as large as this: below the largest message by more than the
/// largest change.
const PAGE_BYTES_MAX: usize = 32 << 20;

/// The longest a caller may wait for a change in one call; it repeats the call.
const WAIT_CHANGE_MS_MAX: u64 = 60_000;

/// Serves a store.
pub(super) struct StoreRpc {
    store: Arc<dyn Store>,
}

impl StoreRpc {
    pub(super) fn new(store: Arc<dyn Store>) -> StoreRpc {
        StoreRpc { store }
    }
}

type Answer<T> = Result<Response<T>, Status>;

fn answered<T, W>(result: Result<T>, to_wire: impl FnOnce(T) -> W) -> Answer<W> {
    result.map(|value| Response::new(to_wire(value))).map_err(|error| to_status(&error))
}

fn done(result: Result<()>) -> Answer<proto::Done> {
    answered(result, |()| proto::Done {})
}

fn timestamp(result: Result<Timestamp>) -> Answer<proto::TimestampResponse> {
    answered(result, |ts| proto::TimestampResponse { ts: ts.0 })
}

fn number(result: KvResult<u64>) -> Answer<proto::NumberResponse> {
    Ok(Response::new(match result {
        Ok(number) => proto::NumberResponse { number, error: None },
        Err(error) => proto::NumberResponse { number: 0, error: Some(wire::error_to_wire(&error)) },
    }))
}

fn keys(result: KvResult<()>) -> Answer<proto::KeysResponse> {
    let error = result.err().map(|error| wire::error_to_wire(&error));
    Ok(Response::new(proto::KeysResponse { error }))
}

fn pairs(result: KvResult<Vec<store::KvPair>>) -> Answer<proto::PairsResponse> {
    Ok(Response::new(match result {
        Ok(pairs) => {
            proto::PairsResponse { pairs: pairs.into_iter().map(wire::pair_to_wire).collect(), error: None }
        }
        Err(error) => proto::PairsResponse { pairs: Vec::new(), error: Some(wire::error_to_wire(&error)) },
    }))
}

fn needed<T>(field: Option<T>, what: &str) -> Result<T, Status> {
    field.ok_or_else(|| to_status(&Error::invalid(missing(what).message())))
}

fn limit(limit: u64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

fn mutations(mutations: Vec<proto::Mutation>) -> Result<Vec<store::Mutation>, Status> {
    let mutations: Result<Vec<_>> = mutations.into_iter().map(wire::mutation_from_wire).collect();
    mutations.map_err(|error| to_status(&error))
}

/// Cuts a page of changes that is too large for a message; the next page begins where it was cut.
fn cut_page(mut page: ChangePage) -> ChangePage {
    let mut bytes = 0;
    let too_large = page.changes.iter().skip(1).position(|change| {
        let value = |value: &Option<store::Value>| value.as_ref().map_or(0, bytes::Bytes::len);
        bytes += change.key.len() + value(&change.value) + value(&change.old_value);
        bytes > PAGE_BYTES_MAX
    });
    if let Some(position) = too_large {
        let rest = page.changes.split_off(position + 1);
        page.next = rest.first().map(|change| (change.commit_ts, change.key.clone()));
    }
    page
}

#[tonic::async_trait]
impl StoreService for StoreRpc {
    type SubscribeStream = BoxStream<'static, Result<proto::FeedEvent, Status>>;

    async fn timestamp(&self, request: Request<proto::TimestampRequest>) -> Answer<proto::TimestampResponse> {
        let read = request.into_inner().read;
        timestamp(if read { self.store.read_timestamp().await } else { self.store.timestamp().await })
    }

    async fn wait_visible(&self, request: Request<proto::WaitVisibleRequest>) -> Answer<proto::Done> {
        done(self.store.wait_visible(Timestamp(request.into_inner().ts)).await)
    }

    async fn get(&self, request: Request<proto::GetRequest>) -> Answer<proto::GetResponse> {
        let request = request.into_inner();
        let context = wire::context_from_wire(needed(request.context, "a read context")?);
        Ok(Response::new(match self.store.kv_get(&request.key, &context).await {
            Ok(value) => proto::GetResponse { value, error: None },
            Err(error) => proto::GetResponse { value: None, error: Some(wire::error_to_wire(&error)) },
        }))
    }

    async fn batch_get(&self, request: Request<proto::BatchGetRequest>) -> Answer<proto::PairsResponse> {
        let request = request.into_inner();
        let context = wire::context_from_wire(needed(request.context, "a read context")?);
        pairs(self.store.kv_batch_get(&request.keys, &context).await)
    }

    async fn scan(&self, request: Request<proto::ScanRequest>) -> Answer<proto::PairsResponse> {
        let request = request.into_inner();
        let context = wire::context_from_wire(needed(request.context, "a read context")?);
        let scan = ScanRequest {
            range: wire::range_from_wire(needed(request.range, "a range")?),
            limit: limit(request.limit),
            key_only: request.key_only,
            reverse: request.reverse,
        };
        pairs(self.store.kv_scan(&scan, &context).await)
    }

    async fn prewrite(&self, request: Request<proto::PrewriteRequest>) -> Answer<proto::PrewriteResponse> {
        let request = request.into_inner();
        let assertion_level = wire::level_from_wire(request.assertion_level());
        let prewritten = self.store.prewrite(PrewriteRequest {
            mutations: mutations(request.mutations)?,
            primary: request.primary,
            start_ts: Timestamp(request.start_ts),
            ttl_ms: request.ttl_ms,
            txn_size: request.txn_size,
            min_commit_ts: Timestamp(request.min_commit_ts),
            assertion_level,
            staged: request.staged,
        });
        let errors = match prewritten.await {
            Ok(()) => Vec::new(),
            Err(errors) if errors.is_empty() => {
                return Err(to_status(&Error::corrupt("a prewrite was refused without a reason")));
            }
            Err(errors) => errors.iter().map(wire::error_to_wire).collect(),
        };
        Ok(Response::new(proto::PrewriteResponse { errors }))
    }

    async fn commit(&self, request: Request<proto::CommitRequest>) -> Answer<proto::NumberResponse> {
        let request = request.into_inner();
        let request = CommitRequest {
            start_ts: Timestamp(request.start_ts),
            keys: request.keys,
            primary: request.primary,
            commit_ts: request.commit_ts.map(Timestamp),
        };
        number(self.store.commit(request).await.map(|commit_ts| commit_ts.0))
    }

    async fn batch_rollback(
        &self,
        request: Request<proto::BatchRollbackRequest>,
    ) -> Answer<proto::KeysResponse> {
        let request = request.into_inner();
        keys(self.store.batch_rollback(Timestamp(request.start_ts), &request.keys).await)
    }

    async fn check_txn_status(
        &self,
        request: Request<proto::CheckTxnStatusRequest>,
    ) -> Answer<proto::CheckTxnStatusResponse> {
        let request = request.into_inner();
        let request = TxnStatusRequest {
            primary: request.primary,
            start_ts: Timestamp(request.start_ts),
            caller_start_ts: Timestamp(request.caller_start_ts),
            current_ts: Timestamp(request.current_ts),
            rollback_if_not_exist: request.rollback_if_not_exist,
            verify_is_primary: request.verify_is_primary,
        };
        let answer = match self.store.check_txn_status(&request).await {
            Ok(status) => wire::status_to_wire(&status),
            Err(error) => proto::check_txn_status_response::Answer::Error(wire::error_to_wire(&error)),
        };
        Ok(Response::new(proto::CheckTxnStatusResponse { answer: Some(answer) }))
    }

    async fn heartbeat(&self, request: Request<proto::HeartbeatRequest>) -> Answer<proto::NumberResponse> {
        let request = request.into_inner();
        let start_ts = Timestamp(request.start_ts);
        number(self.store.heartbeat(&request.primary, start_ts, request.ttl_ms).await)
    }

    async fn resolve_lock(&self, request: Request<proto::ResolveLockRequest>) -> Answer<proto::KeysResponse> {
        let request = request.into_inner();
        let (start_ts, commit_ts) = (Timestamp(request.start_ts), request.commit_ts.map(Timestamp));
        keys(self.store.resolve_lock(start_ts, commit_ts, &request.keys).await)
    }

    async fn scan_lock(&self, request: Request<proto::ScanLockRequest>) -> Answer<proto::ScanLockResponse> {
        let request = request.into_inner();
        let range = wire::range_from_wire(needed(request.range, "a range")?);
        let locks = self.store.scan_lock(&range, Timestamp(request.max_ts), limit(request.limit)).await;
        Ok(Response::new(match locks {
            Ok(locks) => {
                proto::ScanLockResponse { locks: locks.iter().map(wire::lock_to_wire).collect(), error: None }
            }
            Err(error) => {
                proto::ScanLockResponse { locks: Vec::new(), error: Some(wire::error_to_wire(&error)) }
            }
        }))
    }

    async fn mvcc_get(&self, request: Request<proto::MvccGetRequest>) -> Answer<proto::MvccGetResponse> {
        Ok(Response::new(match self.store.mvcc_get(&request.into_inner().key).await {
            Ok(info) => wire::mvcc_to_wire(info),
            Err(error) => {
                proto::MvccGetResponse { error: Some(wire::error_to_wire(&error)), ..Default::default() }
            }
        }))
    }

    async fn commit_transaction(
        &self,
        request: Request<proto::CommitTransactionRequest>,
    ) -> Answer<proto::NumberResponse> {
        let request = request.into_inner();
        let (start_ts, mutations) = (Timestamp(request.start_ts), mutations(request.mutations)?);
        let committed = self.store.commit_transaction(start_ts, mutations).await;
        number(committed.map(|commit_ts| commit_ts.0))
    }

    async fn changes(&self, request: Request<proto::ChangesRequest>) -> Answer<proto::ChangesResponse> {
        let request = request.into_inner();
        let ranges: Vec<_> = request.ranges.into_iter().map(wire::range_from_wire).collect();
        let (from, to) = (Timestamp(request.from), Timestamp(request.to));
        let next = request.next.map(wire::cursor_from_wire);
        let page = self.store.changes(&ranges, from, to, next, limit(request.limit)).await;
        answered(page.map(cut_page), |page| proto::ChangesResponse {
            changes: page.changes.into_iter().map(wire::change_to_wire).collect(),
            next: page.next.map(wire::cursor_to_wire),
        })
    }

    async fn resolved(&self, request: Request<proto::ResolvedRequest>) -> Answer<proto::TimestampResponse> {
        let ranges: Vec<_> = request.into_inner().ranges.into_iter().map(wire::range_from_wire).collect();
        timestamp(self.store.resolved(&ranges).await)
    }

    async fn subscribe(&self, request: Request<proto::SubscribeRequest>) -> Answer<Self::SubscribeStream> {
        let request = request.into_inner();
        let ranges = request.ranges.into_iter().map(wire::range_from_wire).collect();
        let feed = self.store.subscribe(ranges, Timestamp(request.from)).await;
        answered(feed, |feed| {
            let events = feed.map(|event| match event {
                Ok(event) => Ok(wire::event_to_wire(event)),
                Err(error) => Err(to_status(&error)),
            });
            events.boxed()
        })
    }

    async fn wait_change(
        &self,
        request: Request<proto::WaitChangeRequest>,
    ) -> Answer<proto::TimestampResponse> {
        let request = request.into_inner();
        let timeout_ms = request.timeout_ms.min(WAIT_CHANGE_MS_MAX);
        timestamp(self.store.wait_change(Timestamp(request.ts), timeout_ms).await)
    }

    async fn hold(&self, request: Request<proto::HoldRequest>) -> Answer<proto::Done> {
        let request = request.into_inner();
        done(self.store.hold(&request.name, Timestamp(request.ts)).await)
    }

    async fn release(&self, request: Request<proto::ReleaseRequest>) -> Answer<proto::Done> {
        done(self.store.release(&request.into_inner().name).await)
    }

    async fn holds(&self, _request: Request<proto::HoldsRequest>) -> Answer<proto::HoldsResponse> {
        answered(self.store.holds().await, |holds| {
            let holds = holds.into_iter().map(|(name, ts)| proto::HoldRequest { name, ts: ts.0 });
            proto::HoldsResponse { holds: holds.collect() }
        })
    }

    async fn gc_barrier(
        &self,
        _request: Request<proto::GcBarrierRequest>,
    ) -> Answer<proto::TimestampResponse> {
        timestamp(self.store.gc_barrier().await)
    }

    async fn put_blobs(&self, request: Request<proto::PutBlobsRequest>) -> Answer<proto::Done> {
        let blobs = request.into_inner().blobs.into_iter().map(|blob| (blob.key, blob.value)).collect();
        done(self.store.put_blobs(blobs).await)
    }

    async fn get_blob(&self, request: Request<proto::GetBlobRequest>) -> Answer<proto::GetBlobResponse> {
        let value = self.store.get_blob(&request.into_inner().key).await;
        answered(value, |value| proto::GetBlobResponse { value })
    }

    async fn list_blobs(
        &self,
        request: Request<proto::ListBlobsRequest>,
    ) -> Answer<proto::ListBlobsResponse> {
        let request = request.into_inner();
        let keys = self.store.list_blobs(&request.prefix, request.after, limit(request.limit)).await;
        answered(keys, |keys| proto::ListBlobsResponse { keys })
    }

    async fn delete_blobs(&self, request: Request<proto::DeleteBlobsRequest>) -> Answer<proto::Done> {
        done(self.store.delete_blobs(request.into_inner().keys).await)
    }
}
