//! A store's calls: faults first, then the work in a task of its own, then faults of the answer.

use std::future::Future;
use std::sync::Arc;

use prost::Message;
use tikv::proto::kvrpcpb as kv;
use tikv::proto::tikvpb::tikv_server::Tikv;
use tonic::{Request, Response, Status};

use crate::check::Refusal;
use crate::faults::Fault;
use crate::mvcc::Unary;
use crate::shared::Shared;

/// One store.
#[derive(Clone)]
pub(crate) struct StoreService {
    pub store_id: u64,
    pub shared: Arc<Shared>,
}

impl StoreService {
    async fn serve<Q, F, W>(&self, request: Request<Q>, work: W) -> Result<Response<Q::Answer>, Status>
    where
        Q: Unary,
        F: Future<Output = Result<Q::Answer, Refusal>> + Send + 'static,
        W: FnOnce(Arc<Shared>, u64, Q) -> F + Send + 'static,
    {
        let _round = self.shared.mvcc.ledger.round();
        let request = request.into_inner();
        let region_id = request.context().map_or(0, |context| context.region_id);
        let fault = self.shared.faults.take(Q::RPC, self.store_id, region_id);
        let lost = || Status::unavailable("the connection was cut on purpose");
        match &fault {
            Some(Fault::DropRequest) => return Err(lost()),
            Some(Fault::Status(code, text)) => return Err(Status::new(*code, text.clone())),
            Some(Fault::Region(error)) => return Ok(Response::new(Q::refused((**error).clone()))),
            Some(Fault::DelayRequest(delay)) => tokio::time::sleep(*delay).await,
            Some(Fault::HoldRequest) => self.shared.faults.hold().await,
            _ => {}
        }
        let bytes = request.encoded_len();
        // A client that goes away leaves no write half done.
        let done = self.shared.tasks.spawn(work(Arc::clone(&self.shared), self.store_id, request));
        let answer = done.await.map_err(|error| Status::internal(format!("the work failed: {error}")))?;
        let answer = match answer {
            Ok(answer) => answer,
            Err(Refusal::Region(error)) => Q::refused(*error),
            Err(Refusal::Status(status)) => return Err(*status),
        };
        match fault {
            Some(Fault::DropAnswer) => return Err(lost()),
            Some(Fault::DelayAnswer(delay)) => tokio::time::sleep(delay).await,
            Some(Fault::HoldAnswer) => self.shared.faults.hold().await,
            _ => {}
        }
        self.shared.mvcc.ledger.count(Q::RPC, bytes, answer.encoded_len());
        Ok(Response::new(answer))
    }
}

macro_rules! calls {
    ($($name:ident: $request:ident -> $answer:ident = $method:ident;)*) => {
        #[tonic::async_trait]
        impl Tikv for StoreService {
            $(
                async fn $name(
                    &self,
                    request: Request<kv::$request>,
                ) -> Result<Response<kv::$answer>, Status> {
                    self.serve(request, |shared, store_id, request| async move {
                        shared.mvcc.$method(store_id, request).await
                    })
                    .await
                }
            )*
        }
    };
}

calls! {
    kv_get: GetRequest -> GetResponse = get;
    kv_scan: ScanRequest -> ScanResponse = scan;
    kv_prewrite: PrewriteRequest -> PrewriteResponse = prewrite;
    kv_pessimistic_lock: PessimisticLockRequest -> PessimisticLockResponse = pessimistic_lock;
    kv_pessimistic_rollback: PessimisticRollbackRequest -> PessimisticRollbackResponse
        = pessimistic_rollback;
    kv_txn_heart_beat: TxnHeartBeatRequest -> TxnHeartBeatResponse = heartbeat;
    kv_check_txn_status: CheckTxnStatusRequest -> CheckTxnStatusResponse = check_txn_status;
    kv_check_secondary_locks: CheckSecondaryLocksRequest -> CheckSecondaryLocksResponse
        = check_secondary_locks;
    kv_commit: CommitRequest -> CommitResponse = commit;
    kv_batch_get: BatchGetRequest -> BatchGetResponse = batch_get;
    kv_batch_rollback: BatchRollbackRequest -> BatchRollbackResponse = batch_rollback;
    kv_scan_lock: ScanLockRequest -> ScanLockResponse = scan_lock;
    kv_resolve_lock: ResolveLockRequest -> ResolveLockResponse = resolve_lock;
    mvcc_get_by_key: MvccGetByKeyRequest -> MvccGetByKeyResponse = mvcc_get;
    kv_cleanup: CleanupRequest -> CleanupResponse = cleanup;
    split_region: SplitRegionRequest -> SplitRegionResponse = split_region;
}
