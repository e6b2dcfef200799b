//! What a worker says to its coordinator, and what it is answered.
//!
//! ```text
//! worker                         coordinator
//! take_over ------------------>  new generation; the old run's open epoch is decided
//! open ----------------------->  epoch k, cut S_k
//!   (apply, seal, write runs, fold)
//! sealed --------------------->  start_k; record at start_k is {k-1, my generation}?; prewrite primary
//!   (prewrite rows, manifests, positions)
//! vote ----------------------->  after the last vote: commit the primary == decided
//! decision ------------------->  C_k
//!   (commit secondaries)
//! ```
//!
//! A run may have further workers in other processes, which help: a helper *offers* itself, the leading
//! worker (number 0) finds it among the *helpers* and, with a run of as many workers, *shares* the run with
//! them. A helper learns its share from its offer, *awaits* each epoch, and seals and votes like the leader.
//!
//! Every call but `take_over` is idempotent under the same arguments: a worker that lost an answer repeats
//! the call. Dropping the future of a call is safe; what was asked for still happens. Errors say what to do:
//! `Unavailable`: repeat the call; `Fenced`: a newer run exists, stop; `Conflict`: the run is over (aborted, or the
//! coordinator was restarted and knows nothing of it), take over and resume from the frontier.

use async_trait::async_trait;
use bytes::Bytes;
use types::records::EpochRecord;
use types::{Epoch, Generation, JobId, Result, TableId, Timestamp};

/// Starts a new run of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakeOverRequest {
    /// The job. Its epoch record must exist (DDL and the server's first start create it).
    pub job: JobId,
    /// How many workers will seal and vote in each epoch.
    pub n_workers: u32,
}

/// The run that was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenOver {
    /// The new generation; all older ones can decide nothing any more.
    pub generation: Generation,
    /// The frontier: the newest decided epoch, with this generation.
    pub frontier: EpochRecord,
    /// The timestamp at which the record with the new generation committed: read manifests at or after it.
    pub commit_ts: Timestamp,
}

/// A process that offers its work; drawn at random when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HelperId(pub u64);

/// Says who the further workers of a run are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareRequest {
    /// The job.
    pub job: JobId,
    /// The run, as it was taken over, with one worker more than there are helpers.
    pub taken: TakenOver,
    /// Workers 1, 2, ... of the run.
    pub helpers: Vec<HelperId>,
}

/// What a helper has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The job.
    pub job: JobId,
    /// Its run.
    pub taken: TakenOver,
    /// Which of its workers the helper is.
    pub worker: u32,
    /// How many there are.
    pub n_workers: u32,
}

/// Offers a process's work, and says that it is alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferRequest {
    /// Who.
    pub helper: HelperId,
    /// The runs that it knows to have a share in, by job: only others are news.
    pub known: Vec<(JobId, Generation)>,
    /// Whether it goes away: then the runs that it has a share in end at once.
    pub leaves: bool,
}

/// Begins the next epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRequest {
    /// The job.
    pub job: JobId,
    /// The worker's run.
    pub generation: Generation,
    /// The cut to use: the pieces of a fill name it. `None`: the coordinator takes the store's read timestamp.
    pub cut: Option<Timestamp>,
}

/// The epoch that was begun. Opening again before it is decided answers the same epoch with a cut as
/// requested (an epoch may be cut again as long as nobody has sealed it).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The epoch.
    pub epoch: Epoch,
    /// Its cut.
    pub cut: Timestamp,
}

/// A view that a worker could not maintain in an epoch: data, not a crash (G10).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// The view.
    pub view: TableId,
    /// Why, for people.
    pub reason: String,
    /// The key of the row, in words, if one is known.
    pub key: Option<String>,
    /// If a base table was changed under the view: a timestamp at which the catalog was as the view has it.
    pub changed_since: Option<Timestamp>,
}

/// A worker has sealed its part of the epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedRequest {
    /// The job.
    pub job: JobId,
    /// The worker's run.
    pub generation: Generation,
    /// The epoch.
    pub epoch: Epoch,
    /// Which worker, from 0.
    pub worker: u32,
    /// The definitions that the worker has loaded.
    pub definitions: u64,
    /// The start that was answered `Retry`, if the epoch was tried before: tells a repeated call from a new try.
    pub retry_of: Option<Timestamp>,
    /// The views that this worker has faulted in this epoch.
    pub faults: Vec<Fault>,
}

/// What a worker does after sealing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prepared {
    /// The primary is prewritten: prewrite your keys under this transaction, then vote.
    Prewrite {
        /// The transaction.
        start_ts: Timestamp,
        /// The epoch record's key.
        primary: Bytes,
        /// Time to live for the locks, from the start timestamp.
        ttl_ms: u64,
        /// The least commit timestamp for the locks; zero (after too many refusals) makes them unpushable.
        min_commit_ts: Timestamp,
        /// The faults of all workers, sorted: nothing of these views is prewritten but that they are faulted.
        faults: Vec<Fault>,
    },
    /// The job's definitions are newer than the worker's: load them at this timestamp, drop what belongs
    /// to views that are gone, and report sealed again.
    DefinitionsChanged {
        /// The definitions in force.
        definitions: u64,
        /// A timestamp at which they can be read.
        at: Timestamp,
    },
}

/// A worker has done, or given up, its prewrites; it has no request in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VoteRequest {
    /// The job.
    pub job: JobId,
    /// The worker's run.
    pub generation: Generation,
    /// The epoch.
    pub epoch: Epoch,
    /// Which worker.
    pub worker: u32,
    /// The transaction under which it prewrote.
    pub start_ts: Timestamp,
    /// Whether every key is prewritten; otherwise the epoch is tried again under a new start.
    pub done: bool,
}

/// What became of an epoch's transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Decided: commit your secondaries.
    Committed {
        /// C_k.
        commit_ts: Timestamp,
    },
    /// Known to be rolled back under this start: roll your own locks back, then report sealed again
    /// with the same mutations and cut.
    Retry,
}

/// What is known about a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobStatus {
    /// The record in force.
    pub record: EpochRecord,
    /// When it committed.
    pub commit_ts: Timestamp,
    /// The epoch under way, if one is.
    pub open: Option<Opened>,
    /// Who holds it, in words, for operators: `waiting for worker 1 to vote`.
    pub waiting_for: String,
}

/// The coordinator of jobs, in this process or behind gRPC.
#[async_trait]
pub trait Coordinator: Send + Sync {
    /// Starts a new run of a job: decides the open epoch of the old run at its primary, then commits the
    /// record with a new generation.
    async fn take_over(&self, request: TakeOverRequest) -> Result<TakenOver>;

    /// Begins the next epoch.
    async fn open(&self, request: OpenRequest) -> Result<Opened>;

    /// Reports sealed; returns when all workers have, and the primary is prewritten.
    async fn sealed(&self, request: SealedRequest) -> Result<Prepared>;

    /// Votes.
    async fn vote(&self, request: VoteRequest) -> Result<()>;

    /// Waits for the decision of the transaction that began at `start_ts`.
    async fn decision(
        &self,
        job: JobId,
        generation: Generation,
        epoch: Epoch,
        start_ts: Timestamp,
    ) -> Result<Decision>;

    /// Gives an epoch up: its transaction is rolled back at the primary.
    async fn abort(&self, job: JobId, generation: Generation, epoch: Epoch) -> Result<()>;

    /// Ends a run in which a worker cannot go on: what is undecided is decided by the next take-over.
    async fn give_up(&self, job: JobId, generation: Generation, reason: &str) -> Result<()>;

    /// Waits until an epoch, the run's next, is open. From then on its cut stands.
    async fn await_epoch(&self, job: JobId, generation: Generation, epoch: Epoch) -> Result<Opened>;

    /// Offers a process's work; returns its shares once they are others than it knows, or after a while. A
    /// helper that does not repeat it soon is dead: the runs it has a share in end.
    async fn offer(&self, request: OfferRequest) -> Result<Vec<Share>>;

    /// Who offers work, in a fixed order.
    async fn helpers(&self) -> Result<Vec<HelperId>>;

    /// Shares a run; `Conflict` if a helper is not there any more, and then the run must be taken over again.
    async fn share(&self, request: ShareRequest) -> Result<()>;

    /// What is known about a job.
    async fn status(&self, job: JobId) -> Result<JobStatus>;

    /// Forgets a job that is over (a fill that was adopted or dropped).
    async fn forget(&self, job: JobId) -> Result<()>;
}
