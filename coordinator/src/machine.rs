//! The protocol of an epoch as a pure machine: events in, commands out.
//!
//! One [`Machine`] holds one job in one coordinator. It does no I/O, never waits and has no clock: what it
//! wants done it returns as [`Command`]s, and what came of them it is told as [`Event`]s. Of the commands
//! that touch the store at most one is outstanding; an answer to an older one is ignored, because the
//! machine has since asked the primary what became of it. So every interleaving of lost requests, lost
//! answers, zombies and crashes can be written down as a transcript and replayed exactly.
//!
//! What must hold (docs/architecture.md, G2 and G4): only {k-1, own generation} read *at* the start
//! leads to a prewrite; one prewrite of the primary a start; a commit is sent after the last vote only; a
//! lost answer is asked after, never guessed; a new start is drawn only when the primary is known to be
//! rolled back and every worker has said that nothing of the old start is in flight.

mod epoch;
mod primary;

use std::collections::BTreeMap;

use types::records::EpochRecord;
use types::{Epoch, Error, Generation, JobId, Result, Timestamp};

use crate::protocol::{
    Decision, OpenRequest, Opened, Prepared, SealedRequest, TakeOverRequest, TakenOver, VoteRequest,
};
use epoch::OpenEpoch;
use primary::{Primary, Turn};

/// How many decisions of a run are remembered, for calls that are repeated late.
const DECISIONS_MAX: usize = 64;

/// Names a call that waits for its reply; the runtime hands them out.
pub type Ticket = u64;

/// Names a piece of work, so that the answer to an older one can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkId(pub u64);

/// Who draws the commit timestamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommitTimestamps {
    /// The store, inside its group commit (the embedded engine): no refusals.
    #[default]
    Store,
    /// The coordinator, from the oracle, after the last vote (a cluster).
    Oracle,
}

/// What a machine is told once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineOptions {
    /// Who draws commit timestamps.
    pub commit_timestamps: CommitTimestamps,
    /// Refused commit timestamps after which the epoch is tried under a new, unpushable start.
    pub refusals_max: u32,
    /// Time to live of an epoch's locks, in milliseconds; heartbeats prolong the primary's.
    pub ttl_ms: u64,
}

impl Default for MachineOptions {
    fn default() -> MachineOptions {
        MachineOptions { commit_timestamps: CommitTimestamps::Store, refusals_max: 8, ttl_ms: 10_000 }
    }
}

/// A worker's call.
#[derive(Clone, Debug)]
pub enum Call {
    /// Starts a new run.
    TakeOver(TakeOverRequest),
    /// Begins the next epoch.
    Open(OpenRequest),
    /// Reports sealed.
    Sealed(SealedRequest),
    /// Votes.
    Vote(VoteRequest),
    /// Waits for a decision.
    Decision {
        /// The worker's run.
        generation: Generation,
        /// The epoch.
        epoch: Epoch,
        /// The transaction.
        start_ts: Timestamp,
    },
    /// Gives an epoch up.
    Abort {
        /// The worker's run.
        generation: Generation,
        /// The epoch.
        epoch: Epoch,
    },
    /// Waits for the next epoch to be open.
    Await {
        /// The worker's run.
        generation: Generation,
        /// The epoch.
        epoch: Epoch,
    },
    /// Ends a run that a worker is missing from.
    GiveUp {
        /// The run.
        generation: Generation,
        /// Why.
        reason: String,
    },
}

/// The reply to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To `TakeOver`.
    TakenOver(TakenOver),
    /// To `Open` and `Await`.
    Opened(Opened),
    /// To `Sealed`.
    Prepared(Prepared),
    /// To `Vote`.
    Voted,
    /// To `Decision`.
    Decision(Decision),
    /// To `Abort`.
    Aborted,
    /// To `GiveUp`.
    GivenUp,
}

/// What became of the transaction, as its primary says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Committed at the timestamp.
    Committed(Timestamp),
    /// Rolled back for good.
    RolledBack,
    /// The primary's lock is there.
    Alive,
    /// There is no trace of it: not yet there, or lost in a crash. Never the answer to an ending question.
    NoTrace,
}

/// What came of a piece of work.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A timestamp was drawn.
    Timestamp(Timestamp),
    /// The epoch record at the asked timestamp.
    Record(Option<EpochRecord>),
    /// The primary is prewritten.
    Prewritten,
    /// The primary could not be locked: a newer record or somebody's lock is there.
    Conflict,
    /// The primary is committed; the timestamp counts only if no commit was sent before.
    Committed(Timestamp),
    /// The commit timestamp is below what readers pushed the transaction to.
    Expired,
    /// The primary's lock is not there.
    LockGone,
    /// The primary's word on the transaction.
    Fate(Fate),
    /// The request or its answer was lost: it may have been done, or not, or may still be.
    Unknown(Error),
    /// The store refused for good.
    Failed(Error),
}

/// What happens to a machine.
#[derive(Clone, Debug)]
pub enum Event {
    /// A worker calls.
    Call {
        /// Where the reply goes.
        ticket: Ticket,
        /// The call.
        call: Call,
    },
    /// A piece of work is over.
    Done {
        /// Which.
        id: WorkId,
        /// What came of it.
        answer: Answer,
    },
    /// A heartbeat found no lock (`known`), or did not reach the store.
    HeartbeatLost {
        /// The transaction.
        start_ts: Timestamp,
        /// Whether the store said so, rather than being away.
        known: bool,
    },
}

/// A piece of work on the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Take the store's read timestamp: everything at or below it is applied.
    ReadTimestamp,
    /// Draw a start; before a further attempt wait a little.
    Start {
        /// Counts the attempts, from 0.
        attempt: u32,
    },
    /// Read the epoch record at a timestamp.
    ReadRecord {
        /// The timestamp.
        at: Timestamp,
        /// Whether a living lock in the way is ended for good (take-over) rather than waited for.
        end_locks: bool,
    },
    /// Prewrite the primary, once, without repeating.
    Prewrite {
        /// The transaction.
        start_ts: Timestamp,
        /// The record, complete.
        record: EpochRecord,
        /// The least commit timestamp; zero is unpushable.
        min_commit_ts: Timestamp,
        /// The locks' time to live.
        ttl_ms: u64,
    },
    /// Draw a commit timestamp.
    DrawCommit,
    /// Commit the primary, without repeating.
    Commit {
        /// The transaction.
        start_ts: Timestamp,
        /// The commit timestamp, or the store's own.
        commit_ts: Option<Timestamp>,
    },
    /// Ask the primary what became of the transaction, until it answers.
    Ask {
        /// The transaction.
        start_ts: Timestamp,
        /// Whether a transaction that is not committed is ended for good by the question.
        end: bool,
    },
}

/// What the machine wants done.
#[derive(Clone, Debug)]
pub enum Command {
    /// Work on the store; its answer comes back as [`Event::Done`]. Older work may be given up.
    Work {
        /// Names it.
        id: WorkId,
        /// What to do.
        work: Work,
    },
    /// Keep the primary's lock alive from now on.
    StartHeartbeat {
        /// The transaction.
        start_ts: Timestamp,
    },
    /// Stop doing so.
    StopHeartbeat,
    /// Move the job's hold on history to its frontier's cut; need not be done at once.
    Hold {
        /// The cut.
        cut: Timestamp,
    },
    /// Reply to a call.
    Reply {
        /// Which call.
        ticket: Ticket,
        /// The reply.
        reply: Result<Reply>,
    },
}

/// A run of the job, taken over here.
#[derive(Debug)]
struct Run {
    generation: Generation,
    n_workers: u32,
    /// The newest decided epoch; its definitions are the newest that were read.
    frontier: EpochRecord,
    /// When the frontier's record committed.
    commit_ts: Timestamp,
    /// A timestamp at which the frontier's definitions can be read.
    definitions_at: Timestamp,
    /// The decisions of this run's transactions, by start.
    decisions: BTreeMap<Timestamp, Decision>,
}

/// What the job is about.
#[derive(Debug)]
enum Phase {
    /// Between epochs, or before any run.
    Idle,
    /// A new run is being started.
    TakingOver(TakingOver),
    /// An epoch is being given its cut.
    Cutting { requested: Option<Timestamp>, tickets: Vec<Ticket> },
    /// An epoch is open.
    Epoch(Box<OpenEpoch>),
    /// The run is over; only a take-over helps.
    Over { error: Error, aborted: Option<Epoch> },
}

#[derive(Debug)]
struct TakingOver {
    ticket: Ticket,
    n_workers: u32,
    primary: Primary,
    attempt: u32,
    record: Option<EpochRecord>,
}

/// One job in one coordinator.
#[derive(Debug)]
pub struct Machine {
    job: JobId,
    options: MachineOptions,
    next_id: u64,
    outstanding: Option<WorkId>,
    run: Option<Run>,
    phase: Phase,
    /// Workers that wait for the run's next epoch.
    awaiting: Vec<Ticket>,
    out: Vec<Command>,
}

impl Machine {
    /// A machine that knows of no run yet.
    #[must_use]
    pub fn new(job: JobId, options: MachineOptions) -> Machine {
        Machine {
            job,
            options,
            next_id: 0,
            outstanding: None,
            run: None,
            phase: Phase::Idle,
            awaiting: Vec::new(),
            out: Vec::new(),
        }
    }

    /// Takes an event and returns what is to be done, in order.
    pub fn handle(&mut self, event: Event) -> Vec<Command> {
        match event {
            Event::Call { ticket, call } => self.call(ticket, call),
            Event::Done { id, answer } => {
                // An answer to work that was given up says nothing that has not been asked since.
                if self.outstanding == Some(id) {
                    self.outstanding = None;
                    self.done(answer);
                }
            }
            Event::HeartbeatLost { start_ts, known } => self.heartbeat_lost(start_ts, known),
        }
        std::mem::take(&mut self.out)
    }

    /// Whose epochs it decides.
    #[must_use]
    pub fn job(&self) -> JobId {
        self.job
    }

    /// Why the run is over, if it is.
    #[must_use]
    pub fn over(&self) -> Option<&Error> {
        match &self.phase {
            Phase::Over { error, .. } => Some(error),
            _ => None,
        }
    }

    /// The piece of work whose answer the machine waits for.
    #[must_use]
    pub fn outstanding(&self) -> Option<WorkId> {
        self.outstanding
    }

    /// The epoch under way, if one is.
    #[must_use]
    pub fn open_epoch(&self) -> Option<Opened> {
        match &self.phase {
            Phase::Epoch(open) => Some(Opened { epoch: open.epoch, cut: open.cut }),
            _ => None,
        }
    }

    /// What the job waits for, in words.
    #[must_use]
    pub fn waiting_for(&self) -> String {
        match &self.phase {
            Phase::Idle if self.run.is_none() => "waiting for a take-over".to_owned(),
            Phase::Idle => "waiting for a worker to open the next epoch".to_owned(),
            Phase::TakingOver(taking) => format!("taking over: {}", taking.primary.waiting_for()),
            Phase::Cutting { .. } => "waiting for the store's read timestamp".to_owned(),
            Phase::Epoch(open) => open.waiting_for(),
            Phase::Over { error, .. } => format!("waiting for a take-over: {error}"),
        }
    }

    /// Ends the run, with an error for everybody who waits: the job is forgotten or the coordinator stops.
    pub fn stop(&mut self, error: Error) -> Vec<Command> {
        self.end_run(error, None);
        std::mem::take(&mut self.out)
    }

    fn work(&mut self, work: Work) {
        self.next_id += 1;
        let id = WorkId(self.next_id);
        self.outstanding = Some(id);
        self.out.push(Command::Work { id, work });
    }

    fn reply(&mut self, ticket: Ticket, reply: Result<Reply>) {
        self.out.push(Command::Reply { ticket, reply });
    }

    fn reply_all(&mut self, tickets: Vec<Ticket>, reply: &Result<Reply>) {
        for ticket in tickets {
            self.reply(ticket, reply.clone());
        }
    }

    /// The error of a call by a run that is not the one in force here, or `None`.
    fn stranger(&self, generation: Generation) -> Option<Error> {
        let job = self.job;
        if matches!(self.phase, Phase::TakingOver(_)) {
            return Some(Error::fenced(format!(
                "job {job}: a newer run than generation {generation} starts"
            )));
        }
        match &self.run {
            Some(run) if generation < run.generation => Some(Error::fenced(format!(
                "job {job}: generation {generation} was deposed by generation {}",
                run.generation
            ))),
            Some(run) if generation == run.generation => match &self.phase {
                Phase::Over { error, .. } => Some(error.clone()),
                _ => None,
            },
            _ => Some(Error::conflict(format!(
                "job {job}: this coordinator knows no run of generation {generation}: take over"
            ))),
        }
    }

    fn call(&mut self, ticket: Ticket, call: Call) {
        let generation = match &call {
            Call::TakeOver(request) => return self.take_over(ticket, request),
            Call::Open(request) => request.generation,
            Call::Sealed(request) => request.generation,
            Call::Vote(request) => request.generation,
            Call::Decision { generation, .. }
            | Call::Abort { generation, .. }
            | Call::Await { generation, .. }
            | Call::GiveUp { generation, .. } => *generation,
        };
        if let Some(error) = self.stranger(generation) {
            let aborted = match (&call, &self.phase) {
                (Call::Abort { epoch, .. }, Phase::Over { aborted, .. }) => *aborted == Some(*epoch),
                _ => false,
            };
            let known = match (&call, &self.run) {
                // A decision never changes, so it is told even when its run is over.
                (Call::Decision { start_ts, .. }, Some(run)) => run.decisions.get(start_ts).copied(),
                _ => None,
            };
            let reply = match known {
                Some(decision @ Decision::Committed { .. }) => Ok(Reply::Decision(decision)),
                _ if aborted => Ok(Reply::Aborted),
                _ => Err(error),
            };
            return self.reply(ticket, reply);
        }
        match call {
            Call::TakeOver(_) => unreachable!("answered above"),
            Call::Open(request) => self.open(ticket, &request),
            Call::Sealed(request) => self.sealed(ticket, request),
            Call::Vote(request) => self.vote(ticket, &request),
            Call::Decision { epoch, start_ts, .. } => self.decision(ticket, epoch, start_ts),
            Call::Abort { epoch, .. } => self.abort(ticket, epoch),
            Call::Await { epoch, .. } => self.await_epoch(ticket, epoch),
            Call::GiveUp { reason, .. } => {
                self.end_run(Error::conflict(format!("job {}: {reason}: take over", self.job)), None);
                self.reply(ticket, Ok(Reply::GivenUp));
            }
        }
    }

    fn done(&mut self, answer: Answer) {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::TakingOver(taking) => self.taking_over_done(taking, answer),
            Phase::Cutting { requested, tickets } => self.cut_done(requested, tickets, answer),
            Phase::Epoch(open) => self.epoch_done(open, answer),
            // Nothing is outstanding in these phases.
            phase @ (Phase::Idle | Phase::Over { .. }) => self.phase = phase,
        }
    }

    fn take_over(&mut self, ticket: Ticket, request: &TakeOverRequest) {
        if request.n_workers == 0 {
            return self.reply(ticket, Err(Error::invalid("a run needs at least one worker")));
        }
        if request.job != self.job {
            return self
                .reply(ticket, Err(Error::invalid(format!("not the coordinator of job {}", request.job))));
        }
        let error = Error::fenced(format!("job {}: a newer run starts", self.job));
        self.end_run(error, None);
        let primary = Primary::new(self.options, Timestamp::ZERO, true);
        let n_workers = request.n_workers;
        self.phase = Phase::TakingOver(TakingOver { ticket, n_workers, primary, attempt: 0, record: None });
        self.work(Work::Start { attempt: 0 });
    }

    fn taking_over_done(&mut self, mut taking: TakingOver, answer: Answer) {
        let turn = match taking.primary.answer(answer) {
            Turn::Record(None) => {
                let error = Error::invalid(format!("job {} has no epoch record", self.job));
                Turn::Broken(error)
            }
            Turn::Record(Some(record)) => {
                let record = EpochRecord { generation: record.generation.next(), ..record };
                taking.record = Some(record.clone());
                Turn::Work(taking.primary.prewrite(record))
            }
            // A take-over has no other key: nobody votes.
            Turn::Prewritten | Turn::StillAlive => Turn::Work(taking.primary.commit()),
            turn => turn,
        };
        match turn {
            Turn::Work(work) => {
                self.phase = Phase::TakingOver(taking);
                self.work(work);
            }
            Turn::RolledBack { .. } => {
                taking.attempt = taking.attempt.saturating_add(1);
                taking.primary = Primary::new(self.options, Timestamp::ZERO, true);
                let attempt = taking.attempt;
                self.phase = Phase::TakingOver(taking);
                self.work(Work::Start { attempt });
            }
            Turn::Decided(commit_ts) => self.taken_over(taking, commit_ts),
            Turn::Later(error) | Turn::Broken(error) => {
                let ticket = taking.ticket;
                self.phase = Phase::Over { error: error.clone(), aborted: None };
                self.reply(ticket, Err(error));
            }
            Turn::Record(_) | Turn::Prewritten | Turn::StillAlive => unreachable!("turned into work above"),
        }
    }

    fn taken_over(&mut self, taking: TakingOver, commit_ts: Timestamp) {
        let frontier = taking.record.expect("only a prewritten record commits");
        let generation = frontier.generation;
        self.out.push(Command::Hold { cut: frontier.cut });
        self.run = Some(Run {
            generation,
            n_workers: taking.n_workers,
            frontier: frontier.clone(),
            commit_ts,
            definitions_at: commit_ts,
            decisions: BTreeMap::new(),
        });
        self.phase = Phase::Idle;
        self.reply(taking.ticket, Ok(Reply::TakenOver(TakenOver { generation, frontier, commit_ts })));
    }

    /// Ends the run: everybody who waits gets the error, and later calls of the run too.
    fn end_run(&mut self, error: Error, aborted: Option<Epoch>) {
        self.outstanding = None;
        let phase = std::mem::replace(&mut self.phase, Phase::Over { error: error.clone(), aborted });
        let tickets = match phase {
            Phase::TakingOver(taking) => vec![taking.ticket],
            Phase::Cutting { tickets, .. } => tickets,
            Phase::Epoch(open) => {
                self.out.push(Command::StopHeartbeat);
                open.into_tickets()
            }
            Phase::Idle | Phase::Over { .. } => Vec::new(),
        };
        let awaiting = std::mem::take(&mut self.awaiting);
        self.reply_all(tickets.into_iter().chain(awaiting).collect(), &Err(error));
    }
}
