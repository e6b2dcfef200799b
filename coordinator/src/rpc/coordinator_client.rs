//! A worker's side of the wire.

use async_trait::async_trait;
use tonic::transport::Channel;
use types::{Epoch, Generation, JobId, Result, Timestamp};

use super::coordinator_wire::{
    faults_from_wire, faults_to_wire, opened_from_wire, record_from_wire, share_from_wire, taken_from_wire,
    taken_to_wire,
};
use super::proto::coordinator_service_client::CoordinatorServiceClient;
use super::{MESSAGE_BYTES_MAX, RemoteOptions, bounded, channel, missing, proto};
use crate::protocol::{
    Coordinator, Decision, HelperId, JobStatus, OfferRequest, OpenRequest, Opened, Prepared, SealedRequest,
    Share, ShareRequest, TakeOverRequest, TakenOver, VoteRequest,
};

/// A coordinator in another process.
///
/// It connects when it is first used and again whenever it has to. An error of the transport is
/// `Unavailable`: repeat the call.
#[derive(Clone, Debug)]
pub struct RemoteCoordinator {
    client: CoordinatorServiceClient<Channel>,
    call_ms_max: u64,
}

impl RemoteCoordinator {
    /// A client of the coordinator at `host:port`; must be called inside a tokio runtime.
    ///
    /// # Errors
    /// `Invalid` if that is no address.
    pub fn new(address: &str, options: RemoteOptions) -> Result<RemoteCoordinator> {
        let client = CoordinatorServiceClient::new(channel(address, options)?)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        Ok(RemoteCoordinator { client, call_ms_max: options.call_ms_max })
    }

    fn client(&self) -> CoordinatorServiceClient<Channel> {
        self.client.clone()
    }
}

#[async_trait]
impl Coordinator for RemoteCoordinator {
    async fn take_over(&self, request: TakeOverRequest) -> Result<TakenOver> {
        let request = proto::TakeOverRequest { job: request.job.0, n_workers: request.n_workers };
        let taken = bounded("take over", self.call_ms_max, self.client().take_over(request)).await?;
        taken_from_wire(&taken)
    }

    async fn open(&self, request: OpenRequest) -> Result<Opened> {
        let request = proto::OpenRequest {
            job: request.job.0,
            generation: request.generation.0,
            cut: request.cut.map(|cut| cut.0),
        };
        let opened = bounded("open", self.call_ms_max, self.client().open(request)).await?;
        Ok(opened_from_wire(opened))
    }

    async fn sealed(&self, request: SealedRequest) -> Result<Prepared> {
        use proto::sealed_response::Answer;
        let request = proto::SealedRequest {
            job: request.job.0,
            generation: request.generation.0,
            epoch: request.epoch.0,
            worker: request.worker,
            definitions: request.definitions,
            retry_of: request.retry_of.map(|start_ts| start_ts.0),
            faults: faults_to_wire(&request.faults),
        };
        loop {
            let sealed = bounded("sealed", self.call_ms_max, self.client().sealed(request.clone())).await?;
            return match sealed.answer.ok_or_else(|| missing("an answer to sealed"))? {
                Answer::Pending(_) => continue,
                Answer::Prewrite(go) => Ok(Prepared::Prewrite {
                    start_ts: Timestamp(go.start_ts),
                    primary: go.primary,
                    ttl_ms: go.ttl_ms,
                    min_commit_ts: Timestamp(go.min_commit_ts),
                    faults: faults_from_wire(go.faults),
                }),
                Answer::DefinitionsChanged(changed) => Ok(Prepared::DefinitionsChanged {
                    definitions: changed.definitions,
                    at: Timestamp(changed.at),
                }),
            };
        }
    }

    async fn vote(&self, request: VoteRequest) -> Result<()> {
        let request = proto::VoteRequest {
            job: request.job.0,
            generation: request.generation.0,
            epoch: request.epoch.0,
            worker: request.worker,
            start_ts: request.start_ts.0,
            done: request.done,
        };
        bounded("vote", self.call_ms_max, self.client().vote(request)).await?;
        Ok(())
    }

    async fn decision(
        &self,
        job: JobId,
        generation: Generation,
        epoch: Epoch,
        start_ts: Timestamp,
    ) -> Result<Decision> {
        use proto::decision_response::Answer;
        let request = proto::DecisionRequest {
            job: job.0,
            generation: generation.0,
            epoch: epoch.0,
            start_ts: start_ts.0,
        };
        loop {
            let decision = bounded("decision", self.call_ms_max, self.client().decision(request)).await?;
            return match decision.answer.ok_or_else(|| missing("a decision"))? {
                Answer::Pending(_) => continue,
                Answer::Committed(commit_ts) => Ok(Decision::Committed { commit_ts: Timestamp(commit_ts) }),
                Answer::Retry(_) => Ok(Decision::Retry),
            };
        }
    }

    async fn abort(&self, job: JobId, generation: Generation, epoch: Epoch) -> Result<()> {
        let request = proto::AbortRequest { job: job.0, generation: generation.0, epoch: epoch.0 };
        bounded("abort", self.call_ms_max, self.client().abort(request)).await?;
        Ok(())
    }

    async fn give_up(&self, job: JobId, generation: Generation, reason: &str) -> Result<()> {
        let request =
            proto::GiveUpRequest { job: job.0, generation: generation.0, reason: reason.to_owned() };
        bounded("give up", self.call_ms_max, self.client().give_up(request)).await?;
        Ok(())
    }

    async fn await_epoch(&self, job: JobId, generation: Generation, epoch: Epoch) -> Result<Opened> {
        let request = proto::AwaitEpochRequest { job: job.0, generation: generation.0, epoch: epoch.0 };
        loop {
            let answer = bounded("await epoch", self.call_ms_max, self.client().await_epoch(request)).await?;
            if let Some(opened) = answer.opened {
                return Ok(opened_from_wire(opened));
            }
        }
    }

    async fn offer(&self, request: OfferRequest) -> Result<Vec<Share>> {
        let run =
            |(job, generation): (JobId, Generation)| proto::Run { job: job.0, generation: generation.0 };
        let known = request.known.into_iter().map(run).collect();
        let request = proto::OfferRequest { helper: request.helper.0, known, leaves: request.leaves };
        let answer = bounded("offer", self.call_ms_max, self.client().offer(request)).await?;
        answer.shares.iter().map(share_from_wire).collect()
    }

    async fn helpers(&self) -> Result<Vec<HelperId>> {
        let answer =
            bounded("helpers", self.call_ms_max, self.client().helpers(proto::HelpersRequest {})).await?;
        Ok(answer.helpers.into_iter().map(HelperId).collect())
    }

    async fn share(&self, request: ShareRequest) -> Result<()> {
        let request = proto::ShareRequest {
            job: request.job.0,
            taken: Some(taken_to_wire(&request.taken)),
            helpers: request.helpers.iter().map(|helper| helper.0).collect(),
        };
        bounded("share", self.call_ms_max, self.client().share(request)).await?;
        Ok(())
    }

    async fn status(&self, job: JobId) -> Result<JobStatus> {
        let request = proto::StatusRequest { job: job.0 };
        let status = bounded("status", self.call_ms_max, self.client().status(request)).await?;
        let record = status.record.as_ref().ok_or_else(|| missing("an epoch record"))?;
        Ok(JobStatus {
            record: record_from_wire(record),
            commit_ts: Timestamp(status.commit_ts),
            open: status.open.map(opened_from_wire),
            waiting_for: status.waiting_for,
        })
    }

    async fn forget(&self, job: JobId) -> Result<()> {
        bounded("forget", self.call_ms_max, self.client().forget(proto::ForgetRequest { job: job.0 }))
            .await?;
        Ok(())
    }
}
