//! Calls to a region, all of one shape: a head, an answer, a region's error, errors of keys.

use std::future::Future;

use tonic::transport::Channel;
use tonic::{Response, Status};

use crate::connect::MESSAGE_BYTES_MAX;
use crate::proto::kvrpcpb::{self, KeyError};
use crate::proto::{errorpb, tikvpb};

/// The client of a store's calls.
pub(crate) type Client = tikvpb::tikv_client::TikvClient<Channel>;

/// A client over a connection.
pub(crate) fn client(channel: Channel) -> Client {
    Client::new(channel)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}

/// A request to a region.
pub(crate) trait RegionCall: Clone + Send + Sync {
    /// What is answered.
    type Answer: RegionAnswer;
    /// The call's name, for messages.
    const NAME: &'static str;

    /// The head of the request.
    fn context(&mut self) -> &mut kvrpcpb::Context;

    /// Sends it.
    fn send(self, client: Client) -> impl Future<Output = Result<Response<Self::Answer>, Status>> + Send;
}

/// An answer of a region.
pub(crate) trait RegionAnswer: Send {
    /// Takes out why the region did not serve the request.
    fn take_region_error(&mut self) -> Option<errorpb::Error>;

    /// The errors of keys, in every place where the answer may have one.
    fn key_errors(&self) -> Vec<&KeyError>;
}

macro_rules! calls {
    ($($request:ident -> $answer:ident by $method:ident, $errors:expr;)+) => {
        $(
            impl RegionCall for kvrpcpb::$request {
                type Answer = kvrpcpb::$answer;
                const NAME: &'static str = stringify!($request);

                fn context(&mut self) -> &mut kvrpcpb::Context {
                    self.context.get_or_insert_default()
                }

                async fn send(self, mut client: Client) -> Result<Response<Self::Answer>, Status> {
                    client.$method(self).await
                }
            }

            impl RegionAnswer for kvrpcpb::$answer {
                fn take_region_error(&mut self) -> Option<errorpb::Error> {
                    self.region_error.take()
                }

                fn key_errors(&self) -> Vec<&KeyError> {
                    let errors: fn(&kvrpcpb::$answer) -> Vec<&KeyError> = $errors;
                    errors(self)
                }
            }
        )+
    };
}

fn with_pairs<'a>(error: Option<&'a KeyError>, pairs: &'a [kvrpcpb::KvPair]) -> Vec<&'a KeyError> {
    error.into_iter().chain(pairs.iter().filter_map(|pair| pair.error.as_ref())).collect()
}

calls! {
    GetRequest -> GetResponse by kv_get, |answer| answer.error.iter().collect();
    BatchGetRequest -> BatchGetResponse by kv_batch_get,
        |answer| with_pairs(answer.error.as_ref(), &answer.pairs);
    ScanRequest -> ScanResponse by kv_scan, |answer| with_pairs(answer.error.as_ref(), &answer.pairs);
    PrewriteRequest -> PrewriteResponse by kv_prewrite, |answer| answer.errors.iter().collect();
    CommitRequest -> CommitResponse by kv_commit, |answer| answer.error.iter().collect();
    BatchRollbackRequest -> BatchRollbackResponse by kv_batch_rollback,
        |answer| answer.error.iter().collect();
    CheckTxnStatusRequest -> CheckTxnStatusResponse by kv_check_txn_status,
        |answer| answer.error.iter().collect();
    CheckSecondaryLocksRequest -> CheckSecondaryLocksResponse by kv_check_secondary_locks,
        |answer| answer.error.iter().collect();
    TxnHeartBeatRequest -> TxnHeartBeatResponse by kv_txn_heart_beat, |answer| answer.error.iter().collect();
    ResolveLockRequest -> ResolveLockResponse by kv_resolve_lock, |answer| answer.error.iter().collect();
    ScanLockRequest -> ScanLockResponse by kv_scan_lock, |answer| answer.error.iter().collect();
    MvccGetByKeyRequest -> MvccGetByKeyResponse by mvcc_get_by_key, |_| Vec::new();
}
