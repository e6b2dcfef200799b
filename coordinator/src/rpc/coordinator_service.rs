//! The coordinator's side of the wire.

use std::sync::Arc;
use std::time::Duration;

use tonic::{Request, Response, Status};
use types::records::EpochRecord;
use types::{Epoch, Generation, JobId, Result, TableId, Timestamp};

use super::errors::to_status;
use super::proto;
use super::proto::coordinator_service_server::CoordinatorService;
use crate::protocol::{
    Coordinator, Decision, Fault, OpenRequest, Opened, Prepared, SealedRequest, TakeOverRequest, VoteRequest,
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

pub(super) fn record_to_wire(record: &EpochRecord) -> proto::EpochRecord {
    proto::EpochRecord {
        epoch: record.epoch.0,
        cut: record.cut.0,
        generation: record.generation.0,
        definitions: record.definitions,
    }
}

pub(super) fn record_from_wire(record: &proto::EpochRecord) -> EpochRecord {
    EpochRecord {
        epoch: Epoch(record.epoch),
        cut: Timestamp(record.cut),
        generation: Generation(record.generation),
        definitions: record.definitions,
    }
}

pub(super) fn faults_to_wire(faults: &[Fault]) -> Vec<proto::Fault> {
    faults.iter().map(|fault| proto::Fault { view: fault.view.0, reason: fault.reason.clone() }).collect()
}

pub(super) fn faults_from_wire(faults: Vec<proto::Fault>) -> Vec<Fault> {
    faults.into_iter().map(|fault| Fault { view: TableId(fault.view), reason: fault.reason }).collect()
}

fn opened_to_wire(opened: &Opened) -> proto::OpenResponse {
    proto::OpenResponse { epoch: opened.epoch.0, cut: opened.cut.0 }
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
        answered(self.coordinator.take_over(request).await.map(|taken| proto::TakeOverResponse {
            generation: taken.generation.0,
            frontier: Some(record_to_wire(&taken.frontier)),
            commit_ts: taken.commit_ts.0,
        }))
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
