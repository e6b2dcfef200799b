//! An open epoch: its cut, who has sealed, who has voted, and the tries of its transaction.
//!
//! These are the machine's transitions from `open` to the decision. The transaction itself is
//! [`super::primary`]'s; here is what the workers have to do with it.

use std::collections::{BTreeMap, BTreeSet};

use types::records::{EpochRecord, epoch_record_key};
use types::{Epoch, Error, Timestamp};

use super::{Answer, Command, DECISIONS_MAX, Machine, Phase, Primary, Reply, Ticket, Turn, Work};
use crate::protocol::{Decision, Fault, OpenRequest, Opened, Prepared, SealedRequest, VoteRequest};

/// What one worker has said about the epoch.
#[derive(Debug, Default)]
struct Worker {
    /// Its newest report, until the transaction it led to is rolled back.
    sealed: Option<SealedRequest>,
    /// Calls that wait for the primary's prewrite.
    tickets: Vec<Ticket>,
    /// The transaction under which it may have requests in flight: it was told to go and has not voted.
    in_flight: Option<Timestamp>,
    /// Its vote in the transaction under way.
    vote: Option<bool>,
}

/// The epoch under way.
#[derive(Debug)]
pub(super) struct OpenEpoch {
    pub(super) epoch: Epoch,
    pub(super) cut: Timestamp,
    workers: Vec<Worker>,
    /// Whether any worker has sealed, or one that did not open it was told of it: from then on the cut
    /// stands.
    touched: bool,
    /// The transaction under way.
    primary: Option<Primary>,
    /// Counts the tries since the last one that went through to the votes.
    attempt: u32,
    /// Counts the tries that were rolled back after that: each waits a little longer.
    n_retries: u32,
    /// The start that was rolled back last, after its primary had been prewritten.
    retry_of: Option<Timestamp>,
    /// Whether the next locks are not to be pushed, after too many refusals.
    unpushable: bool,
    /// Whether the workers were told to go under the transaction under way.
    gone: bool,
    /// Calls that wait for a decision, by start.
    deciding: BTreeMap<Timestamp, Vec<Ticket>>,
    /// Calls that give the epoch up.
    aborting: Vec<Ticket>,
}

impl OpenEpoch {
    fn new(epoch: Epoch, cut: Timestamp, n_workers: u32) -> OpenEpoch {
        OpenEpoch {
            epoch,
            cut,
            workers: (0..n_workers).map(|_| Worker::default()).collect(),
            touched: false,
            primary: None,
            attempt: 0,
            n_retries: 0,
            retry_of: None,
            unpushable: false,
            gone: false,
            deciding: BTreeMap::new(),
            aborting: Vec::new(),
        }
    }

    /// Everybody who waits.
    pub(super) fn into_tickets(self) -> Vec<Ticket> {
        let waiting = self.workers.into_iter().flat_map(|worker| worker.tickets);
        waiting.chain(self.deciding.into_values().flatten()).chain(self.aborting).collect()
    }

    pub(super) fn waiting_for(&self) -> String {
        let names = |silent: &dyn Fn(&Worker) -> bool| {
            let names: Vec<String> = (0..)
                .zip(&self.workers)
                .filter(|(_, worker)| silent(worker))
                .map(|(index, _): (u32, _)| index.to_string())
                .collect();
            names.join(", ")
        };
        match &self.primary {
            None if self.retry_of.is_some()
                && self.workers.iter().any(|worker| worker.in_flight.is_some()) =>
            {
                format!(
                    "waiting for worker {} to end its requests",
                    names(&|worker| worker.in_flight.is_some())
                )
            }
            None => format!("waiting for worker {} to seal", names(&|worker| worker.sealed.is_none())),
            Some(primary) if primary.is_locked() => {
                format!("waiting for worker {} to vote", names(&|worker| worker.vote.is_none()))
            }
            Some(primary) => primary.waiting_for().to_owned(),
        }
    }

    fn faults(&self) -> Vec<Fault> {
        let sealed = self.workers.iter().filter_map(|worker| worker.sealed.as_ref());
        let faults: BTreeSet<Fault> = sealed.flat_map(|sealed| sealed.faults.iter().cloned()).collect();
        faults.into_iter().collect()
    }

    /// What workers are told once the primary is prewritten.
    fn go(&self, primary: &Primary, key: Vec<u8>, ttl_ms: u64) -> Prepared {
        Prepared::Prewrite {
            start_ts: primary.start_ts(),
            primary: key.into(),
            ttl_ms,
            min_commit_ts: primary.min_commit_ts(),
            faults: self.faults(),
        }
    }

    fn take_sealed_tickets(&mut self) -> Vec<Ticket> {
        self.workers.iter_mut().flat_map(|worker| std::mem::take(&mut worker.tickets)).collect()
    }

    fn all_sealed(&self) -> bool {
        self.workers.iter().all(|worker| worker.sealed.is_some() && worker.in_flight.is_none())
    }
}

/// Opening.
impl Machine {
    pub(super) fn open(&mut self, ticket: Ticket, request: &OpenRequest) {
        match &mut self.phase {
            Phase::Idle => {
                self.phase = Phase::Cutting { requested: request.cut, tickets: vec![ticket] };
                self.work(Work::ReadTimestamp);
            }
            Phase::Cutting { requested, tickets } => {
                // Until the cut is taken the newest wish counts; nobody has been told another one.
                *requested = request.cut.or(*requested);
                tickets.push(ticket);
            }
            Phase::Epoch(open) if request.cut.is_none_or(|cut| cut == open.cut) => {
                let opened = Opened { epoch: open.epoch, cut: open.cut };
                self.reply(ticket, Ok(Reply::Opened(opened)));
            }
            Phase::Epoch(open) if open.touched => {
                let (epoch, cut) = (open.epoch, open.cut);
                let error = Error::invalid(format!(
                    "epoch {epoch} is known to its workers with cut {cut} and cannot be cut again"
                ));
                self.reply(ticket, Err(error));
            }
            Phase::Epoch(_) => {
                self.phase = Phase::Cutting { requested: request.cut, tickets: vec![ticket] };
                self.work(Work::ReadTimestamp);
            }
            Phase::TakingOver(_) | Phase::Over { .. } => unreachable!("strangers were refused"),
        }
    }

    pub(super) fn cut_done(&mut self, requested: Option<Timestamp>, tickets: Vec<Ticket>, answer: Answer) {
        let run = self.run.as_ref().expect("epochs are opened by a run");
        let frontier = run.frontier.cut;
        let opened = match answer {
            Answer::Timestamp(read_ts) => match requested {
                Some(cut) if cut > read_ts => {
                    Err(Error::invalid(format!("cut {cut} is in the future: the store is at {read_ts}")))
                }
                Some(cut) if cut < frontier => {
                    Err(Error::invalid(format!("cut {cut} is before the frontier's cut {frontier}")))
                }
                Some(cut) => Ok(cut),
                None if read_ts < frontier => Err(Error::corrupt(format!(
                    "the store's read timestamp {read_ts} went back before the frontier's cut {frontier}"
                ))),
                None => Ok(read_ts),
            },
            Answer::Unknown(error) | Answer::Failed(error) => Err(error),
            other => Err(Error::corrupt(format!("answer {other:?} to a question for a timestamp"))),
        };
        let reply = opened.map(|cut| {
            let mut open = OpenEpoch::new(run.frontier.epoch.next(), cut, run.n_workers);
            open.touched = !self.awaiting.is_empty();
            let opened = Opened { epoch: open.epoch, cut };
            self.phase = Phase::Epoch(Box::new(open));
            Reply::Opened(opened)
        });
        let awaiting = if reply.is_ok() { std::mem::take(&mut self.awaiting) } else { Vec::new() };
        self.reply_all(tickets.into_iter().chain(awaiting).collect(), &reply);
    }

    /// Tells a worker of the run's next epoch, at once or when it is open.
    pub(super) fn await_epoch(&mut self, ticket: Ticket, epoch: Epoch) {
        let frontier = self.run.as_ref().expect("strangers were refused").frontier.epoch;
        if epoch != frontier.next() {
            let error = Error::invalid(format!("epoch {epoch} is not the next: the frontier is {frontier}"));
            return self.reply(ticket, Err(error));
        }
        match &mut self.phase {
            Phase::Epoch(open) => {
                open.touched = true;
                let opened = Opened { epoch: open.epoch, cut: open.cut };
                self.reply(ticket, Ok(Reply::Opened(opened)));
            }
            _ => self.awaiting.push(ticket),
        }
    }

    /// The error of a call about an epoch that is not open, or `None`.
    fn not_open(&self, epoch: Epoch) -> Option<Error> {
        let run = self.run.as_ref().expect("strangers were refused");
        let open = match &self.phase {
            Phase::Epoch(open) => Some(open.epoch),
            _ => None,
        };
        if open == Some(epoch) {
            None
        } else if epoch <= run.frontier.epoch {
            Some(Error::invalid(format!("epoch {epoch} is over: the frontier is {}", run.frontier.epoch)))
        } else {
            Some(Error::invalid(format!("epoch {epoch} is not open")))
        }
    }
}

/// Sealing, and the start.
impl Machine {
    pub(super) fn sealed(&mut self, ticket: Ticket, request: SealedRequest) {
        if let Some(error) = self.not_open(request.epoch) {
            return self.reply(ticket, Err(error));
        }
        match self.sealed_checked(ticket, request) {
            Ok(Some(prepared)) => self.reply(ticket, Ok(Reply::Prepared(prepared))),
            Ok(None) => self.begin_if_all_sealed(),
            Err(error) => self.reply(ticket, Err(error)),
        }
    }

    /// Notes the report; an answer if there is one already, `None` if the call waits.
    fn sealed_checked(&mut self, ticket: Ticket, request: SealedRequest) -> types::Result<Option<Prepared>> {
        let ttl_ms = self.options.ttl_ms;
        let (Phase::Epoch(open), Some(run)) = (&mut self.phase, &self.run) else {
            unreachable!("the epoch is open")
        };
        let (epoch, index) = (open.epoch, request.worker);
        if !open.aborting.is_empty() {
            return Err(Error::conflict(format!("epoch {epoch} is being aborted")));
        }
        let retry_of = open.retry_of;
        let Some(worker) = open.workers.get_mut(index as usize) else {
            return Err(Error::invalid(format!("worker {index} of {} workers", run.n_workers)));
        };
        if request.retry_of != retry_of {
            return Err(Error::invalid(format!(
                "epoch {epoch}: sealed after start {:?}, but the last try began at {retry_of:?}",
                request.retry_of
            )));
        }
        if let (Some(primary), true) = (&open.primary, open.gone) {
            if worker.sealed.as_ref() != Some(&request) {
                return Err(Error::invalid(format!(
                    "epoch {epoch}: worker {index} has sealed otherwise before"
                )));
            }
            return Ok(Some(open.go(primary, epoch_record_key(self.job), ttl_ms)));
        }
        if let Some(start_ts) = worker.in_flight {
            return Err(Error::invalid(format!(
                "epoch {epoch}: worker {index} has not voted under {start_ts}"
            )));
        }
        if request.definitions < run.frontier.definitions {
            let (definitions, at) = (run.frontier.definitions, run.definitions_at);
            return Ok(Some(Prepared::DefinitionsChanged { definitions, at }));
        }
        worker.sealed = Some(request);
        worker.tickets.push(ticket);
        open.touched = true;
        Ok(None)
    }

    /// Draws a start once every worker has sealed and nothing of an older start is in flight.
    fn begin_if_all_sealed(&mut self) {
        let (Phase::Epoch(open), Some(run)) = (&mut self.phase, &self.run) else {
            unreachable!("the epoch is open")
        };
        if open.primary.is_some() || !open.all_sealed() {
            return;
        }
        // S_k <= start_k and C_(k-1) < start_k.
        let above = run.commit_ts.max(open.cut.prev());
        open.primary = Some(Primary::new(self.options, above, false));
        open.gone = false;
        let attempt = open.attempt.saturating_add(open.n_retries);
        self.work(Work::Start { attempt });
    }

    pub(super) fn epoch_done(&mut self, mut open: Box<OpenEpoch>, answer: Answer) {
        let primary = open.primary.as_mut().expect("only the transaction has work outstanding");
        let turn = primary.answer(answer);
        self.phase = Phase::Epoch(open);
        self.turn(turn);
    }

    fn open_mut(&mut self) -> &mut OpenEpoch {
        match &mut self.phase {
            Phase::Epoch(open) => open,
            _ => unreachable!("the epoch is open"),
        }
    }

    /// Follows what the transaction's answer means for the epoch.
    fn turn(&mut self, turn: Turn) {
        match turn {
            Turn::Work(work) => self.work(work),
            Turn::Record(record) => self.record_read(record),
            Turn::Prewritten => self.prewritten(),
            Turn::StillAlive => self.commit_if_all_voted(),
            Turn::Decided(commit_ts) => self.decided(commit_ts),
            Turn::RolledBack { refused } => self.rolled_back(refused),
            Turn::Later(error) => {
                // Nothing is at stake: whoever repeats the call starts it again.
                let open = self.open_mut();
                open.primary = None;
                let tickets = open.take_sealed_tickets();
                self.reply_all(tickets, &Err(error));
            }
            Turn::Broken(error) => self.end_run(error, None),
        }
    }

    /// Decides on the record as it was at the start: fenced, newer definitions, or go on.
    fn record_read(&mut self, record: Option<EpochRecord>) {
        let job = self.job;
        let (Phase::Epoch(open), Some(run)) = (&mut self.phase, &mut self.run) else {
            unreachable!("the epoch is open")
        };
        let Some(record) = record else {
            return self.end_run(Error::fenced(format!("job {job}: its epoch record is gone")), None);
        };
        let expected = &run.frontier;
        if (record.epoch, record.generation, record.cut)
            != (expected.epoch, expected.generation, expected.cut)
        {
            let error = Error::fenced(format!(
                "job {job}: the record is epoch {} of generation {}, not epoch {} of generation {}",
                record.epoch, record.generation, expected.epoch, expected.generation
            ));
            return self.end_run(error, None);
        }
        let primary = open.primary.as_mut().expect("the record was read for it");
        let loaded = || {
            open.workers.iter().filter_map(|worker| worker.sealed.as_ref().map(|sealed| sealed.definitions))
        };
        let (oldest, newest) = (loaded().min().unwrap_or(0), loaded().max().unwrap_or(0));
        if newest > record.definitions {
            let error = Error::corrupt(format!(
                "job {job}: a worker has loaded definitions {newest}, but the record says {}",
                record.definitions
            ));
            return self.end_run(error, None);
        }
        let definitions = record.definitions;
        if oldest < definitions {
            run.frontier = record;
            run.definitions_at = primary.start_ts();
            let prepared = Prepared::DefinitionsChanged { definitions, at: run.definitions_at };
            open.primary = None;
            let tickets = open.take_sealed_tickets();
            for worker in &mut open.workers {
                worker.sealed = None;
            }
            return self.reply_all(tickets, &Ok(Reply::Prepared(prepared)));
        }
        run.frontier.definitions = definitions;
        run.definitions_at = primary.start_ts();
        let record =
            EpochRecord { epoch: open.epoch, cut: open.cut, generation: run.generation, definitions };
        let work =
            if open.unpushable { primary.prewrite_unpushable(record) } else { primary.prewrite(record) };
        self.work(work);
    }

    fn prewritten(&mut self) {
        let (ttl_ms, key) = (self.options.ttl_ms, epoch_record_key(self.job));
        let open = self.open_mut();
        let primary = open.primary.as_ref().expect("it was prewritten");
        let start_ts = primary.start_ts();
        let prepared = open.go(primary, key, ttl_ms);
        open.gone = true;
        open.attempt = 0;
        for worker in &mut open.workers {
            worker.in_flight = Some(start_ts);
            worker.vote = None;
        }
        let tickets = open.take_sealed_tickets();
        self.out.push(Command::StartHeartbeat { start_ts });
        self.reply_all(tickets, &Ok(Reply::Prepared(prepared)));
    }
}

/// Votes, and the decision.
impl Machine {
    pub(super) fn vote(&mut self, ticket: Ticket, request: &VoteRequest) {
        let reply = self.vote_checked(request).map(|()| Reply::Voted);
        let counts = reply.is_ok() && self.not_open(request.epoch).is_none();
        self.reply(ticket, reply);
        if counts {
            self.votes_changed();
        }
    }

    fn vote_checked(&mut self, request: &VoteRequest) -> types::Result<()> {
        let run = self.run.as_ref().expect("strangers were refused");
        let (epoch, index, start_ts) = (request.epoch, request.worker, request.start_ts);
        let decided = run.decisions.contains_key(&start_ts);
        if index >= run.n_workers {
            return Err(Error::invalid(format!("worker {index} of {} workers", run.n_workers)));
        }
        let Phase::Epoch(open) = &mut self.phase else {
            return if decided { Ok(()) } else { Err(unknown_start(epoch, start_ts)) };
        };
        let current =
            open.primary.as_ref().filter(|_| open.gone).is_some_and(|primary| primary.start_ts() == start_ts);
        if !decided && !current {
            return Err(unknown_start(epoch, start_ts));
        }
        let worker = &mut open.workers[index as usize];
        if worker.in_flight == Some(start_ts) {
            worker.in_flight = None;
        }
        if current {
            if worker.vote.is_some_and(|vote| vote != request.done) {
                return Err(Error::invalid(format!(
                    "epoch {epoch}: worker {index} has voted otherwise before"
                )));
            }
            worker.vote = Some(request.done);
        }
        Ok(())
    }

    fn votes_changed(&mut self) {
        let open = self.open_mut();
        let given_up = open.workers.iter().any(|worker| worker.vote == Some(false));
        let locked = open.primary.as_ref().is_some_and(Primary::is_locked);
        if given_up && locked {
            // Rolled back now, tried again when the others have voted too.
            let work = open.primary.as_mut().and_then(Primary::end);
            self.work(work.expect("a locked primary is ended by asking"));
        } else {
            self.commit_if_all_voted();
        }
    }

    fn commit_if_all_voted(&mut self) {
        let open = self.open_mut();
        let given_up = open.workers.iter().any(|worker| worker.vote == Some(false));
        let all_done = open.workers.iter().all(|worker| worker.vote == Some(true));
        let Some(primary) = open.primary.as_mut().filter(|primary| primary.is_locked()) else { return };
        if given_up {
            let work = primary.end().expect("a locked primary is ended by asking");
            self.work(work);
        } else if all_done {
            let nothing_in_flight = open.workers.iter().all(|worker| worker.in_flight.is_none());
            assert!(nothing_in_flight, "epoch {}: a worker has voted with requests in flight", open.epoch);
            let work = primary.commit();
            self.work(work);
        }
    }

    pub(super) fn decision(&mut self, ticket: Ticket, epoch: Epoch, start_ts: Timestamp) {
        let run = self.run.as_ref().expect("strangers were refused");
        if let Some(decision) = run.decisions.get(&start_ts).copied() {
            return self.reply(ticket, Ok(Reply::Decision(decision)));
        }
        match &mut self.phase {
            Phase::Epoch(open)
                if open.gone
                    && open.primary.as_ref().is_some_and(|primary| primary.start_ts() == start_ts) =>
            {
                open.deciding.entry(start_ts).or_default().push(ticket);
            }
            _ => self.reply(ticket, Err(unknown_start(epoch, start_ts))),
        }
    }

    fn remember(&mut self, start_ts: Timestamp, decision: Decision) {
        let run = self.run.as_mut().expect("a run decides");
        let before = run.decisions.insert(start_ts, decision);
        assert!(before.is_none_or(|before| before == decision), "the decision of {start_ts} changed");
        while run.decisions.len() > DECISIONS_MAX {
            run.decisions.pop_first();
        }
    }

    fn decided(&mut self, commit_ts: Timestamp) {
        let Phase::Epoch(mut open) = std::mem::replace(&mut self.phase, Phase::Idle) else {
            unreachable!("the epoch is open")
        };
        let start_ts = open.primary.as_ref().expect("it was committed").start_ts();
        let decision = Decision::Committed { commit_ts };
        self.remember(start_ts, decision);
        let run = self.run.as_mut().expect("a run decides");
        assert!(commit_ts > run.commit_ts, "epoch {} commits before its predecessor", open.epoch);
        run.frontier = EpochRecord { epoch: open.epoch, cut: open.cut, ..run.frontier.clone() };
        run.commit_ts = commit_ts;
        self.out.push(Command::StopHeartbeat);
        self.out.push(Command::Hold { cut: open.cut });
        let tickets = open.deciding.remove(&start_ts).unwrap_or_default();
        self.reply_all(tickets, &Ok(Reply::Decision(decision)));
        let late = Error::conflict(format!("epoch {} is decided, at {commit_ts}", open.epoch));
        self.reply_all(open.into_tickets(), &Err(late));
    }

    /// The transaction is known to be rolled back: the epoch is tried again, or is over.
    fn rolled_back(&mut self, refused: bool) {
        let job = self.job;
        let open = self.open_mut();
        let epoch = open.epoch;
        if !open.aborting.is_empty() {
            let tickets = std::mem::take(&mut open.aborting);
            self.end_run(aborted(job, epoch), Some(epoch));
            return self.reply_all(tickets, &Ok(Reply::Aborted));
        }
        open.unpushable |= refused;
        let primary = open.primary.take().expect("it was rolled back");
        let start_ts = primary.start_ts();
        if !open.gone {
            // No worker was told to go under it: their reports stand, and the record is read again.
            open.attempt = open.attempt.saturating_add(1);
            return self.begin_if_all_sealed();
        }
        open.gone = false;
        open.n_retries = open.n_retries.saturating_add(1);
        open.retry_of = Some(start_ts);
        for worker in &mut open.workers {
            worker.sealed = None;
            worker.vote = None;
        }
        let tickets = open.deciding.remove(&start_ts).unwrap_or_default();
        self.remember(start_ts, Decision::Retry);
        self.out.push(Command::StopHeartbeat);
        self.reply_all(tickets, &Ok(Reply::Decision(Decision::Retry)));
    }

    pub(super) fn heartbeat_lost(&mut self, start_ts: Timestamp, known: bool) {
        let Phase::Epoch(open) = &mut self.phase else { return };
        let primary = open.primary.as_mut().filter(|primary| primary.start_ts() == start_ts);
        if let Some(work) = primary.and_then(|primary| primary.heartbeat_lost(known)) {
            self.work(work);
        }
    }

    pub(super) fn abort(&mut self, ticket: Ticket, epoch: Epoch) {
        let job = self.job;
        let next = self.run.as_ref().expect("strangers were refused").frontier.epoch.next();
        if epoch < next {
            let error = Error::conflict(format!("epoch {epoch} is decided and cannot be aborted"));
            return self.reply(ticket, Err(error));
        }
        if epoch > next {
            return self.reply(ticket, Err(Error::invalid(format!("epoch {epoch} is not open"))));
        }
        let tickets = match &mut self.phase {
            Phase::Epoch(open) if open.touched => {
                if let Some(work) = open.primary.as_mut().and_then(Primary::end) {
                    open.aborting.push(ticket);
                    return self.work(work);
                }
                // What was sealed may be on its way as runs of this name: only a new generation goes on.
                self.end_run(aborted(job, epoch), Some(epoch));
                return self.reply(ticket, Ok(Reply::Aborted));
            }
            Phase::Cutting { tickets, .. } => std::mem::take(tickets),
            _ => Vec::new(),
        };
        self.phase = Phase::Idle;
        self.outstanding = None;
        self.reply_all(tickets, &Err(aborted(job, epoch)));
        self.reply(ticket, Ok(Reply::Aborted));
    }
}

fn aborted(job: types::JobId, epoch: Epoch) -> Error {
    Error::conflict(format!("job {job}: epoch {epoch} was aborted: take over"))
}

fn unknown_start(epoch: Epoch, start_ts: Timestamp) -> Error {
    Error::invalid(format!("epoch {epoch}: no transaction began at {start_ts}"))
}
