//! The coordinator in this process: one task for each job, over any store.
//!
//! It keeps nothing of its own on disk. The epoch record and the lock on it are the durable intent, so a
//! coordinator that was killed is replaced by a new one and a take-over.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use store::{Store, WriteKind};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use types::records::{EpochRecord, epoch_record_key};
use types::{Epoch, Error, Generation, JobId, Result, Timestamp};

use crate::backoff::Backoff;
use crate::driver::{Driver, Message};
use crate::effects::{Effects, hold_name};
use crate::helpers::{Bereft, Helpers};
use crate::machine::{Call, Machine, MachineOptions, Reply};
use crate::protocol::{
    Coordinator, Decision, HelperId, JobStatus, OfferRequest, OpenRequest, Opened, Prepared, SealedRequest,
    Share, ShareRequest, TakeOverRequest, TakenOver, VoteRequest,
};
use crate::tasks::Tasks;

/// Calls that wait in front of one job's task. A worker has one call under way at a time, so this is
/// hundreds of workers; beyond it callers wait.
const INBOX_MAX: usize = 256;

/// How a coordinator works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalOptions {
    /// The protocol's own numbers.
    pub machine: MachineOptions,
    /// The first wait before a further try, in milliseconds; it doubles.
    pub backoff_first_ms: u64,
    /// The longest wait before a further try, in milliseconds.
    pub backoff_most_ms: u64,
    /// Seeds the jitter.
    pub seed: u64,
    /// How far the frontier may run ahead of the job's hold on history, in milliseconds.
    pub hold_interval_ms: u64,
    /// After so long without a word from a helper the runs that it has a share in end.
    pub helper_ttl_ms: u64,
}

impl Default for LocalOptions {
    fn default() -> LocalOptions {
        LocalOptions {
            machine: MachineOptions::default(),
            backoff_first_ms: 5,
            backoff_most_ms: 1_000,
            seed: 0,
            hold_interval_ms: 10_000,
            helper_ttl_ms: 3_000,
        }
    }
}

/// The coordinator of any number of jobs over one store.
pub struct LocalCoordinator {
    store: Arc<dyn Store>,
    options: LocalOptions,
    /// The jobs with a run here; their tasks hold the other ends. The watch over the helpers has it too.
    jobs: Arc<Jobs>,
    helpers: Arc<Helpers>,
    tasks: Tasks,
}

type Jobs = Mutex<BTreeMap<JobId, mpsc::Sender<Message>>>;

impl LocalCoordinator {
    /// A coordinator over a store; it has no run until a worker takes over.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, options: LocalOptions) -> LocalCoordinator {
        LocalCoordinator {
            store,
            options,
            jobs: Arc::default(),
            helpers: Arc::new(Helpers::new(Duration::from_millis(options.helper_ttl_ms))),
            tasks: Tasks::default(),
        }
    }

    /// Stops every job's task and waits for them; whoever waits gets `Closed`.
    ///
    /// What is undecided stays so in the store, and is decided by the next take-over.
    pub async fn shutdown(&self) {
        self.tasks.shutdown().await;
    }

    fn job(&self, job: JobId) -> Option<mpsc::Sender<Message>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).get(&job).cloned()
    }

    /// The task of a job, started if there is none.
    fn job_or_new(&self, job: JobId) -> Result<mpsc::Sender<Message>> {
        let stop = self.tasks.stop_token();
        if stop.is_cancelled() {
            return Err(Error::closed("the coordinator stops"));
        }
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = jobs.get(&job).filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        let (sender, inbox) = mpsc::channel(INBOX_MAX);
        let options = &self.options;
        let seed = options.seed ^ job.0.rotate_left(32);
        let backoff = Backoff::new(options.backoff_first_ms, options.backoff_most_ms, seed);
        let effects = Effects::new(Arc::clone(&self.store), job, backoff);
        let machine = Machine::new(job, options.machine);
        let driver = Driver::new(machine, effects, options.machine.ttl_ms, options.hold_interval_ms);
        self.tasks.spawn("coordinator job", driver.run(inbox, stop));
        jobs.insert(job, sender.clone());
        Ok(sender)
    }

    async fn call(&self, job: JobId, call: Call) -> Result<Reply> {
        if self.tasks.stop_token().is_cancelled() {
            return Err(Error::closed("the coordinator stops"));
        }
        let Some(sender) = self.job(job) else {
            return Err(Error::conflict(format!("this coordinator has no run of job {job}: take over")));
        };
        ask(&sender, call).await
    }

    async fn record(&self, job: JobId) -> Result<(EpochRecord, Timestamp)> {
        let info = self.store.mvcc_get(&epoch_record_key(job)).await.map_err(Error::from)?;
        let newest =
            info.writes.iter().find(|write| matches!(write.kind, WriteKind::Put | WriteKind::Delete));
        let missing = || Error::invalid(format!("job {job} has no epoch record"));
        let write = newest.ok_or_else(missing)?;
        let value = write.value.as_ref().filter(|_| write.kind == WriteKind::Put).ok_or_else(missing)?;
        Ok((EpochRecord::decode(value)?, write.commit_ts))
    }
}

/// Ends the runs of helpers that are silent for too long, until it is told to stop.
async fn watch_helpers(helpers: Arc<Helpers>, jobs: Arc<Jobs>, stop: CancellationToken) {
    while let Some(bereft) = helpers.next_dead(&stop).await {
        end_runs(&jobs, bereft).await;
    }
}

/// Ends runs that have lost a helper.
async fn end_runs(jobs: &Jobs, bereft: Vec<Bereft>) {
    for Bereft { job, generation, helper } in bereft {
        let sender = jobs.lock().unwrap_or_else(PoisonError::into_inner).get(&job).cloned();
        let reason = format!("helper {:016x} is gone", helper.0);
        if let Some(sender) = sender
            && let Err(error) = ask(&sender, Call::GiveUp { generation, reason }).await
        {
            tracing::debug!(job = job.0, %error, "the run of a helper that is gone was over before");
        }
    }
}

async fn ask(sender: &mpsc::Sender<Message>, call: Call) -> Result<Reply> {
    let (reply, answer) = oneshot::channel();
    let gone = || Error::conflict("the job's run is over: take over");
    sender.send(Message::Call { call, reply }).await.map_err(|_| gone())?;
    answer.await.map_err(|_| gone())?
}

fn wrong(reply: &Reply) -> Error {
    Error::corrupt(format!("reply {reply:?} to another call"))
}

#[async_trait]
impl Coordinator for LocalCoordinator {
    async fn take_over(&self, request: TakeOverRequest) -> Result<TakenOver> {
        let sender = self.job_or_new(request.job)?;
        match ask(&sender, Call::TakeOver(request)).await? {
            Reply::TakenOver(taken) => Ok(taken),
            other => Err(wrong(&other)),
        }
    }

    async fn open(&self, request: OpenRequest) -> Result<Opened> {
        match self.call(request.job, Call::Open(request)).await? {
            Reply::Opened(opened) => Ok(opened),
            other => Err(wrong(&other)),
        }
    }

    async fn sealed(&self, request: SealedRequest) -> Result<Prepared> {
        match self.call(request.job, Call::Sealed(request)).await? {
            Reply::Prepared(prepared) => Ok(prepared),
            other => Err(wrong(&other)),
        }
    }

    async fn vote(&self, request: VoteRequest) -> Result<()> {
        match self.call(request.job, Call::Vote(request)).await? {
            Reply::Voted => Ok(()),
            other => Err(wrong(&other)),
        }
    }

    async fn decision(
        &self,
        job: JobId,
        generation: Generation,
        epoch: Epoch,
        start_ts: Timestamp,
    ) -> Result<Decision> {
        match self.call(job, Call::Decision { generation, epoch, start_ts }).await? {
            Reply::Decision(decision) => Ok(decision),
            other => Err(wrong(&other)),
        }
    }

    async fn abort(&self, job: JobId, generation: Generation, epoch: Epoch) -> Result<()> {
        match self.call(job, Call::Abort { generation, epoch }).await? {
            Reply::Aborted => Ok(()),
            other => Err(wrong(&other)),
        }
    }

    async fn give_up(&self, job: JobId, generation: Generation, reason: &str) -> Result<()> {
        match self.call(job, Call::GiveUp { generation, reason: reason.to_owned() }).await? {
            Reply::GivenUp => Ok(()),
            other => Err(wrong(&other)),
        }
    }

    async fn await_epoch(&self, job: JobId, generation: Generation, epoch: Epoch) -> Result<Opened> {
        match self.call(job, Call::Await { generation, epoch }).await? {
            Reply::Opened(opened) => Ok(opened),
            other => Err(wrong(&other)),
        }
    }

    async fn offer(&self, request: OfferRequest) -> Result<Vec<Share>> {
        let stop = self.tasks.stop_token();
        if stop.is_cancelled() {
            return Err(Error::closed("the coordinator stops"));
        }
        if request.leaves {
            let bereft = self.helpers.leave(request.helper);
            end_runs(&self.jobs, bereft).await;
            return Ok(Vec::new());
        }
        if self.helpers.heard(request.helper) {
            let watch = watch_helpers(Arc::clone(&self.helpers), Arc::clone(&self.jobs), stop.clone());
            self.tasks.spawn("watch over helpers", watch);
        }
        tokio::select! {
            () = stop.cancelled() => Err(Error::closed("the coordinator stops")),
            shares = self.helpers.shares(&request) => Ok(shares),
        }
    }

    async fn helpers(&self) -> Result<Vec<HelperId>> {
        Ok(self.helpers.alive())
    }

    async fn share(&self, request: ShareRequest) -> Result<()> {
        self.helpers.share(request)
    }

    async fn status(&self, job: JobId) -> Result<JobStatus> {
        let (record, commit_ts) = self.record(job).await?;
        let (reply, answer) = oneshot::channel();
        let asked = match self.job(job) {
            Some(sender) => sender.send(Message::Status { reply }).await.is_ok(),
            None => false,
        };
        let told = if asked { answer.await.ok() } else { None };
        let (open, waiting_for) = told.unwrap_or_else(|| (None, "waiting for a take-over".to_owned()));
        Ok(JobStatus { record, commit_ts, open, waiting_for })
    }

    async fn forget(&self, job: JobId) -> Result<()> {
        let sender = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).remove(&job);
        if let Some(sender) = sender {
            let (reply, stopped) = oneshot::channel();
            let error = Error::conflict(format!("job {job} was forgotten"));
            if sender.send(Message::Stop { error, reply }).await.is_ok() {
                // An error means that the task has ended already.
                let _ = stopped.await;
            }
        }
        self.store.release(&hold_name(job)).await
    }
}
