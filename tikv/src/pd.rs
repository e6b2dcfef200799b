//! The placement driver: the oracle, where regions and stores are, how far garbage collection has come.
//!
//! Every call goes to the leader and is tried again until a budget is used up, because an election takes
//! seconds. Refusals come as a field of the answer or as a status; both are looked at.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tonic::transport::Channel;
use tonic::{Code, Response, Status};
use types::{Error, Result};

use crate::backoff::{Backoff, Pause};
use crate::options::Options;
use crate::proto::pdpb::{self, pd_client::PdClient};
use crate::tasks::Tasks;

mod barriers;
mod members;
mod regions;
mod tso;

pub(crate) use barriers::Barrier;
use members::{Members, describe, says_not_leader};
pub(crate) use regions::{Located, holds_rows};
pub(crate) use tso::{Oracle, Passed};

/// How often the members are asked whether the leader is still the same.
const REFRESH_EVERY: Duration = Duration::from_secs(60);

/// Why the placement driver did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PdError {
    /// It is too old for the call.
    #[error("the placement driver does not know the call {0}")]
    Unimplemented(&'static str),
    /// It leads and refuses.
    #[error("the placement driver refuses {call}: {text}")]
    Refused {
        /// What was asked for.
        call: &'static str,
        /// Why not.
        text: String,
    },
    /// No answer.
    #[error("{0}")]
    Failed(Error),
}

impl From<PdError> for Error {
    fn from(error: PdError) -> Error {
        match error {
            PdError::Failed(error) => error,
            other => Error::unavailable(other.to_string()),
        }
    }
}

/// An answer with a head.
pub(crate) trait Answer {
    fn header(&self) -> Option<&pdpb::ResponseHeader>;
}

macro_rules! answers {
    ($($name:ident),+ $(,)?) => {
        $(impl Answer for pdpb::$name {
            fn header(&self) -> Option<&pdpb::ResponseHeader> {
                self.header.as_ref()
            }
        })+
    };
}

answers!(
    GetRegionResponse,
    ScanRegionsResponse,
    BatchScanRegionsResponse,
    GetStoreResponse,
    GetAllStoresResponse,
    GetGcSafePointResponse,
    UpdateGcSafePointResponse,
    UpdateServiceGcSafePointResponse,
    SetGcBarrierResponse,
    DeleteGcBarrierResponse,
    GetGcStateResponse,
);

/// The placement driver of one cluster.
pub(crate) struct Pd {
    options: Arc<Options>,
    members: Arc<Members>,
    oracle: Oracle,
    /// Whether it is known not to have the call of the name.
    no_batch_scan: AtomicBool,
    no_barriers: AtomicBool,
}

/// What an attempt says about the next.
enum Attempt {
    Refused(PdError),
    /// The leader is gone, or was none.
    Elsewhere(Error),
    /// It leads, and cannot answer yet.
    Later(Error),
}

fn judge(call: &'static str, status: &Status) -> Attempt {
    let failed = || Error::unavailable(format!("{call}: {}", describe(status)));
    if says_not_leader(status.message()) {
        return Attempt::Elsewhere(failed());
    }
    match status.code() {
        Code::Unimplemented => Attempt::Refused(PdError::Unimplemented(call)),
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Internal => {
            Attempt::Elsewhere(failed())
        }
        // A broken connection has a cause; a server's own error is only text.
        Code::Unknown if std::error::Error::source(status).is_some() => Attempt::Elsewhere(failed()),
        _ => Attempt::Refused(PdError::Refused { call, text: describe(status) }),
    }
}

/// What the head of an answer says; `None` if all is well.
fn judge_header(
    call: &'static str,
    header: Option<&pdpb::ResponseHeader>,
    cluster_id: u64,
) -> Option<Attempt> {
    let header = header?;
    if header.cluster_id != 0 && header.cluster_id != cluster_id {
        let text = format!("the answer is of cluster {}, not of {cluster_id}", header.cluster_id);
        return Some(Attempt::Refused(PdError::Failed(Error::invalid(text))));
    }
    let error = header.error.as_ref()?;
    let failed = || Error::unavailable(format!("{call}: {:?}: {}", error.r#type(), error.message));
    match error.r#type() {
        pdpb::ErrorType::Ok => None,
        _ if says_not_leader(&error.message) => Some(Attempt::Elsewhere(failed())),
        pdpb::ErrorType::NotBootstrapped => Some(Attempt::Later(failed())),
        _ => Some(Attempt::Refused(PdError::Refused { call, text: error.message.clone() })),
    }
}

impl Pd {
    /// Finds the cluster and starts its oracle.
    ///
    /// # Errors
    /// `Unavailable` if nobody answers in time, `Invalid` if the endpoints are of several clusters.
    pub(crate) async fn connect(options: Arc<Options>, tasks: &Tasks) -> Result<Pd> {
        let members = Arc::new(Members::find(Arc::clone(&options)).await?);
        let oracle = Oracle::start(Arc::clone(&members), options.pd_budget, tasks);
        let (watched, stop) = (Arc::clone(&members), tasks.stop_token());
        tasks.spawn("members", async move {
            while stop.run_until_cancelled(tokio::time::sleep(REFRESH_EVERY)).await.is_some() {
                watched.refresh().await;
            }
        });
        let (no_batch_scan, no_barriers) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Pd { options, members, oracle, no_batch_scan, no_barriers })
    }

    /// The cluster's identity.
    pub(crate) fn cluster_id(&self) -> u64 {
        self.members.cluster_id()
    }

    /// The oracle.
    pub(crate) fn oracle(&self) -> &Oracle {
        &self.oracle
    }

    /// Asks the leader, whoever that is, until it answers or the budget is used up.
    pub(crate) async fn call<A, F, Sending>(&self, name: &'static str, send: F) -> Result<A, PdError>
    where
        A: Answer,
        F: Fn(PdClient<Channel>, Option<pdpb::RequestHeader>) -> Sending,
        Sending: Future<Output = Result<Response<A>, Status>>,
    {
        let mut backoff = Backoff::new(self.options.pd_budget);
        loop {
            let failure = match self.members.leader().await {
                Err(error) if error.kind() != types::ErrorKind::Unavailable => {
                    return Err(PdError::Failed(error));
                }
                Err(error) => error,
                Ok(leader) => {
                    let sending = send(leader.client, Some(self.members.header()));
                    let answer = tokio::time::timeout(self.options.call_timeout, sending).await;
                    let answer = answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer")));
                    let attempt = match answer {
                        Err(status) => judge(name, &status),
                        Ok(answer) => {
                            let answer = answer.into_inner();
                            match judge_header(name, answer.header(), self.cluster_id()) {
                                None => return Ok(answer),
                                Some(attempt) => attempt,
                            }
                        }
                    };
                    match attempt {
                        Attempt::Refused(error) => return Err(error),
                        Attempt::Later(error) => error,
                        Attempt::Elsewhere(error) => {
                            self.members.forget(leader.generation).await;
                            error
                        }
                    }
                }
            };
            if !backoff.wait(Pause::Call).await {
                return Err(PdError::Failed(failure));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(kind: pdpb::ErrorType, message: &str) -> pdpb::ResponseHeader {
        let error = Some(pdpb::Error { r#type: kind.into(), message: message.to_owned() });
        pdpb::ResponseHeader { cluster_id: 7, error }
    }

    #[test]
    fn errors_come_in_the_head_or_as_a_status() {
        let head = header(pdpb::ErrorType::Unknown, "server is not leader");
        assert!(matches!(judge_header("Tso", Some(&head), 7), Some(Attempt::Elsewhere(_))));
        let head = header(pdpb::ErrorType::NotBootstrapped, "cluster is not bootstrapped");
        assert!(matches!(judge_header("GetRegion", Some(&head), 7), Some(Attempt::Later(_))));
        assert!(judge_header("GetRegion", Some(&header(pdpb::ErrorType::Ok, "")), 7).is_none());
        let status = Status::unknown("rpc error: not leader");
        assert!(matches!(judge("Tso", &status), Attempt::Elsewhere(_)));
        let status = Status::unknown("barrier ts is behind the txn safe point");
        assert!(matches!(judge("SetGCBarrier", &status), Attempt::Refused(PdError::Refused { .. })));
        let status = Status::unimplemented("unknown method");
        assert!(matches!(judge("SetGCBarrier", &status), Attempt::Refused(PdError::Unimplemented(_))));
    }

    #[test]
    fn an_answer_of_another_cluster_is_refused() {
        let head = header(pdpb::ErrorType::Ok, "");
        let refused = judge_header("GetRegion", Some(&head), 8);
        assert!(matches!(refused, Some(Attempt::Refused(PdError::Failed(_)))));
    }
}
