//! The coordinator's side of the wire.

use std::sync::Arc;
use std::time::Duration;

use tonic::{Request, Response, Status};
use types::{Epoch, Generation, JobId, Result, Timestamp};

use super::coordinator_wire::{
    faults_from_wire, faults_to_wire, opened_to_wire, record_to_wire, share_to_wire, taken_from_wire,
    taken_to_wire,
};
use super::errors::to_status;
use super::proto::coordinator_service_server::CoordinatorService;
use super::{missing, proto};
use crate::protocol::{
    Coordinator, Decision, HelperId, OfferRequest, OpenRequest, Prepared, SealedRequest, ShareRequest,
    TakeOverRequest, VoteRequest,
};

/// Serves a coordinator.
pub(super) struct CoordinatorRpc {
    coordinator: Arc<dyn Coordinator>,
    /// How long a call that waits is held before the worker is told to repeat it.
    poll: Duration,
}

impl CoordinatorRpc {
    pub(super) fn new(coordinator: Arc<dyn Coordinator>, poll: Duration) -> CoordinatorRpc {
        CoordinatorRpc { coordinator, poll }
    }
}

fn answered<T>(result: Result<T>) -> Result<Response<T>, Status> {
    result.map(Response::new).map_err(|error| to_status(&error))
}

#[tonic::async_trait]
impl CoordinatorService for CoordinatorRpc {
    async fn take_over(
        &self,
        request: Request<proto::TakeOverRequest>,
    ) -> Result<Response<proto::TakeOverResponse>, Status> {
        let request = request.into_inner();
        let request = TakeOverRequest { job: JobId(request.job), n_workers: request.n_workers };
        answered(self.coordinator.take_over(request).await.map(|taken| taken_to_wire(&taken)))
    }

    async fn open(
        &self,
        request: Request<proto::OpenRequest>,
    ) -> Result<Response<proto::OpenResponse>, Status> {
        let request = request.into_inner();
        let request = OpenRequest {
            job: JobId(request.job),
            generation: Generation(request.generation),
            cut: request.cut.map(Timestamp),
        };
        answered(self.coordinator.open(request).await.map(|opened| opened_to_wire(&opened)))
    }

    async fn sealed(
        &self,
        request: Request<proto::SealedRequest>,
    ) -> Result<Response<proto::SealedResponse>, Status> {
        use proto::sealed_response::Answer;
        let request = request.into_inner();
        let request = SealedRequest {
            job: JobId(request.job),
            generation: Generation(request.generation),
            epoch: Epoch(request.epoch),
            worker: request.worker,
            definitions: request.definitions,
            retry_of: request.retry_of.map(Timestamp),
            faults: faults_from_wire(request.faults),
        };
        let answer = match tokio::time::timeout(self.poll, self.coordinator.sealed(request)).await {
            Err(_) => Answer::Pending(proto::Pending {}),
            Ok(Err(error)) => return Err(to_status(&error)),
            Ok(Ok(Prepared::Prewrite { start_ts, primary, ttl_ms, min_commit_ts, faults })) => {
                Answer::Prewrite(proto::Prewrite {
                    start_ts: start_ts.0,
                    primary,
                    ttl_ms,
                    min_commit_ts: min_commit_ts.0,
                    faults: faults_to_wire(&faults),
                })
            }
            Ok(Ok(Prepared::DefinitionsChanged { definitions, at })) => {
                Answer::DefinitionsChanged(proto::DefinitionsChanged { definitions, at: at.0 })
            }
        };
        Ok(Response::new(proto::SealedResponse { answer: Some(answer) }))
    }

    async fn vote(
        &self,
        request: Request<proto::VoteRequest>,
    ) -> Result<Response<proto::VoteResponse>, Status> {
        let request = request.into_inner();
        let request = VoteRequest {
            job: JobId(request.job),
            generation: Generation(request.generation),
            epoch: Epoch(request.epoch),
            worker: request.worker,
            start_ts: Timestamp(request.start_ts),
            done: request.done,
        };
        answered(self.coordinator.vote(request).await.map(|()| proto::VoteResponse {}))
    }

    async fn decision(
        &self,
        request: Request<proto::DecisionRequest>,
    ) -> Result<Response<proto::DecisionResponse>, Status> {
        use proto::decision_response::Answer;
        let request = request.into_inner();
        let decision = self.coordinator.decision(
            JobId(request.job),
            Generation(request.generation),
            Epoch(request.epoch),
            Timestamp(request.start_ts),
        );
        let answer = match tokio::time::timeout(self.poll, decision).await {
            Err(_) => Answer::Pending(proto::Pending {}),
            Ok(Err(error)) => return Err(to_status(&error)),
            Ok(Ok(Decision::Committed { commit_ts })) => Answer::Committed(commit_ts.0),
            Ok(Ok(Decision::Retry)) => Answer::Retry(proto::Retry {}),
        };
        Ok(Response::new(proto::DecisionResponse { answer: Some(answer) }))
    }

    async fn abort(
        &self,
        request: Request<proto::AbortRequest>,
    ) -> Result<Response<proto::AbortResponse>, Status> {
        let request = request.into_inner();
        let (job, generation) = (JobId(request.job), Generation(request.generation));
        let aborted = self.coordinator.abort(job, generation, Epoch(request.epoch)).await;
        answered(aborted.map(|()| proto::AbortResponse {}))
    }

    async fn give_up(
        &self,
        request: Request<proto::GiveUpRequest>,
    ) -> Result<Response<proto::GiveUpResponse>, Status> {
        let request = request.into_inner();
        let (job, generation) = (JobId(request.job), Generation(request.generation));
        let given_up = self.coordinator.give_up(job, generation, &request.reason).await;
        answered(given_up.map(|()| proto::GiveUpResponse {}))
    }

    async fn await_epoch(
        &self,
        request: Request<proto::AwaitEpochRequest>,
    ) -> Result<Response<proto::AwaitEpochResponse>, Status> {
        let request = request.into_inner();
        let (job, generation) = (JobId(request.job), Generation(request.generation));
        let epoch = self.coordinator.await_epoch(job, generation, Epoch(request.epoch));
        let opened = match tokio::time::timeout(self.poll, epoch).await {
            Err(_) => None,
            Ok(opened) => Some(opened_to_wire(&opened.map_err(|error| to_status(&error))?)),
        };
        Ok(Response::new(proto::AwaitEpochResponse { opened }))
    }

    async fn offer(
        &self,
        request: Request<proto::OfferRequest>,
    ) -> Result<Response<proto::OfferResponse>, Status> {
        let request = request.into_inner();
        let known = request.known.iter().map(|run| (JobId(run.job), Generation(run.generation))).collect();
        let (helper, leaves) = (HelperId(request.helper), request.leaves);
        let request = OfferRequest { helper, known, leaves };
        let shares = self.coordinator.offer(request).await;
        answered(
            shares.map(|shares| proto::OfferResponse { shares: shares.iter().map(share_to_wire).collect() }),
        )
    }

    async fn helpers(
        &self,
        _request: Request<proto::HelpersRequest>,
    ) -> Result<Response<proto::HelpersResponse>, Status> {
        let helpers = self.coordinator.helpers().await;
        answered(helpers.map(|helpers| proto::HelpersResponse {
            helpers: helpers.iter().map(|helper| helper.0).collect(),
        }))
    }

    async fn share(
        &self,
        request: Request<proto::ShareRequest>,
    ) -> Result<Response<proto::ShareResponse>, Status> {
        let request = request.into_inner();
        let taken = request.taken.as_ref().ok_or_else(|| missing("a run"));
        let taken = taken.and_then(taken_from_wire).map_err(|error| to_status(&error))?;
        let helpers = request.helpers.into_iter().map(HelperId).collect();
        let request = ShareRequest { job: JobId(request.job), taken, helpers };
        answered(self.coordinator.share(request).await.map(|()| proto::ShareResponse {}))
    }

    async fn status(
        &self,
        request: Request<proto::StatusRequest>,
    ) -> Result<Response<proto::StatusResponse>, Status> {
        let status = self.coordinator.status(JobId(request.into_inner().job)).await;
        answered(status.map(|status| proto::StatusResponse {
            record: Some(record_to_wire(&status.record)),
            commit_ts: status.commit_ts.0,
            open: status.open.as_ref().map(opened_to_wire),
            waiting_for: status.waiting_for,
        }))
    }

    async fn forget(
        &self,
        request: Request<proto::ForgetRequest>,
    ) -> Result<Response<proto::ForgetResponse>, Status> {
        let forgotten = self.coordinator.forget(JobId(request.into_inner().job)).await;
        answered(forgotten.map(|()| proto::ForgetResponse {}))
    }
}
