//! What each job last reported, and where others wait for it: shared state behind synchronous methods.
//!
//! Jobs write, system tables and waiters read. Nothing here is needed to recover; a restart begins empty.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot, watch};
use tokio_util::sync::CancellationToken;
use types::records::EpochRecord;
use types::{Epoch, Generation, JobId, TableId, Timestamp};

use crate::{EpochStatus, JobKind, JobStatus, OperatorStatus, RefreshPath};

/// The newest decided epoch of a job, as waiters see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frontier {
    /// The epoch.
    pub(crate) epoch: Epoch,
    /// S_k.
    pub(crate) cut: Timestamp,
    /// C_k.
    pub(crate) commit_ts: Timestamp,
}

/// How others reach a job.
#[derive(Debug)]
pub(crate) struct JobDoor {
    /// Asks for an epoch at once.
    pub(crate) poke: Notify,
    /// The refresh that the job is asked for, if it works by refreshes.
    pub(crate) request: Mutex<Option<Request>>,
    /// What is to be merged at the next barriers, one a barrier.
    compactions: Mutex<VecDeque<Compaction>>,
    /// Moves with every decided epoch; `None` until the job has taken over.
    pub(crate) frontier: watch::Sender<Option<Frontier>>,
}

/// A refresh that is to be done.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The cut to reach.
    pub(crate) to: Timestamp,
    /// How, and why, as far as it is known before the changes are read.
    pub(crate) path: RefreshPath,
    pub(crate) reason: String,
    /// When it was begun, in milliseconds of the store's clock.
    pub(crate) began_ms: u64,
    /// Rows of the base tables before it.
    pub(crate) source_rows: u64,
    /// Gives it up.
    pub(crate) cancel: CancellationToken,
}

/// States of a view that are to be merged at one barrier.
#[derive(Debug)]
pub(crate) struct Compaction {
    /// The view.
    pub(crate) view: TableId,
    /// The numbers of the states.
    pub(crate) states: BTreeSet<u32>,
    /// Bytes of each state that one barrier merges.
    pub(crate) n_bytes_max: usize,
    done: oneshot::Sender<Merged>,
}

/// What an epoch has made of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Merged {
    /// The view had no part in it.
    Nothing,
    /// A step; there are more.
    Part,
    /// What there was.
    All,
}

impl Compaction {
    /// Tells who asked that an epoch is decided, and what became of the merge. Dropped untold it came to
    /// nothing.
    pub(crate) fn tell(self, merged: Merged) {
        // Who asked may have gone away.
        let _ = self.done.send(merged);
    }
}

impl JobDoor {
    fn new() -> JobDoor {
        JobDoor {
            poke: Notify::new(),
            request: Mutex::default(),
            compactions: Mutex::default(),
            frontier: watch::Sender::new(None),
        }
    }

    /// Asks for states of a view to be merged at a barrier.
    pub(crate) fn compact(
        &self,
        view: TableId,
        states: BTreeSet<u32>,
        n_bytes_max: usize,
    ) -> oneshot::Receiver<Merged> {
        let (done, outcome) = oneshot::channel();
        self.compactions().push_back(Compaction { view, states, n_bytes_max, done });
        self.poke.notify_one();
        outcome
    }

    /// What is to be merged at this barrier, of views that are `here`.
    pub(crate) fn take_compaction(&self, here: impl Fn(TableId) -> bool) -> Option<Compaction> {
        let mut compactions = self.compactions();
        compactions.retain(|compaction| !compaction.done.is_closed());
        let at = compactions.iter().position(|compaction| here(compaction.view))?;
        compactions.remove(at)
    }

    /// Whether somebody waits for states to be merged, of views that are `here`.
    pub(crate) fn wants_compaction(&self, here: impl Fn(TableId) -> bool) -> bool {
        self.compactions().iter().any(|compaction| !compaction.done.is_closed() && here(compaction.view))
    }

    fn compactions(&self) -> MutexGuard<'_, VecDeque<Compaction>> {
        self.compactions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The job's newest epoch, once it has taken over.
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        self.frontier.borrow().map(|frontier| frontier.epoch)
    }

    /// The refresh that is asked for.
    pub(crate) fn requested(&self) -> Option<Request> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks for a refresh.
    pub(crate) fn ask(&self, request: Request) {
        *self.request.lock().unwrap_or_else(PoisonError::into_inner) = Some(request);
        self.poke.notify_one();
    }

    /// The refresh up to a timestamp is over; one that is asked for meanwhile stays.
    pub(crate) fn finish(&self, to: Timestamp) {
        let mut request = self.request.lock().unwrap_or_else(PoisonError::into_inner);
        if request.as_ref().is_some_and(|request| request.to == to) {
            *request = None;
        }
    }
}

/// How far a fill is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FillProgress {
    /// Percent of the snapshot, by position in the key ranges.
    pub(crate) percent: f64,
    /// Source rows taken in.
    pub(crate) rows_done: u64,
}

/// Everything that jobs report.
#[derive(Debug, Default)]
pub(crate) struct Board {
    jobs: Mutex<BTreeMap<JobId, Entry>>,
}

#[derive(Debug)]
struct Entry {
    status: JobStatus,
    door: Arc<JobDoor>,
    epochs: VecDeque<EpochStatus>,
    operators: Vec<OperatorStatus>,
    rows: BTreeMap<TableId, u64>,
    fill: Option<FillProgress>,
}

impl Board {
    fn jobs(&self) -> MutexGuard<'_, BTreeMap<JobId, Entry>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new door of a job. One that an earlier keeper of the job has, who is still about to end, is not its
    /// door any more.
    pub(crate) fn enter(&self, job: JobId, kind: JobKind) -> Arc<JobDoor> {
        let entry = Entry::new(job, kind);
        let door = Arc::clone(&entry.door);
        self.jobs().insert(job, entry);
        door
    }

    /// The door of a job that runs here.
    pub(crate) fn door(&self, job: JobId) -> Option<Arc<JobDoor>> {
        self.jobs().get(&job).map(|entry| Arc::clone(&entry.door))
    }

    /// Whether a job runs here and follows its sources continuously.
    pub(crate) fn is_continuous(&self, job: JobId) -> bool {
        self.jobs().get(&job).is_some_and(|entry| entry.status.kind == JobKind::Continuous)
    }

    /// Forgets a job that is over, unless it has another door by now.
    pub(crate) fn leave(&self, job: JobId, door: &Arc<JobDoor>) {
        let mut jobs = self.jobs();
        if jobs.get(&job).is_some_and(|entry| Arc::ptr_eq(&entry.door, door)) {
            jobs.remove(&job);
        }
    }

    fn edit(&self, job: JobId, edit: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.jobs().get_mut(&job) {
            edit(entry);
        }
    }

    /// A job has taken over.
    pub(crate) fn started(&self, job: JobId, record: &EpochRecord, commit_ts: Timestamp) {
        self.edit(job, |entry| {
            entry.status.state = "running";
            entry.status.generation = record.generation;
            entry.decided(Frontier { epoch: record.epoch, cut: record.cut, commit_ts });
        });
    }

    /// An epoch is decided and its keys are committed.
    pub(crate) fn decided(&self, epoch: EpochStatus, remembered: usize) {
        self.edit(epoch.job, |entry| {
            entry.decided(Frontier { epoch: epoch.epoch, cut: epoch.cut, commit_ts: epoch.commit_ts });
            entry.epochs.push_back(epoch);
            while entry.epochs.len() > remembered {
                entry.epochs.pop_front();
            }
        });
    }

    /// A job failed and will be started again.
    pub(crate) fn failed(&self, job: JobId, error: &str) {
        self.edit(job, |entry| {
            entry.status.state = "restarting";
            entry.status.n_restarts += 1;
            entry.status.last_error = Some(error.to_owned());
            entry.status.waiting_for = "its next start".to_owned();
        });
    }

    /// Who holds the barrier now.
    pub(crate) fn waiting_for(&self, job: JobId, text: impl Into<String>) {
        let text = text.into();
        self.edit(job, |entry| entry.status.waiting_for = text);
    }

    /// The job's views, their stored rows and operators.
    pub(crate) fn report_views(
        &self,
        job: JobId,
        rows: BTreeMap<TableId, u64>,
        operators: Vec<OperatorStatus>,
    ) {
        self.edit(job, |entry| {
            entry.status.views = rows.keys().copied().collect();
            entry.rows = rows;
            entry.operators = operators;
        });
    }

    /// How far a fill is.
    pub(crate) fn report_fill(&self, job: JobId, progress: FillProgress) {
        self.edit(job, |entry| entry.fill = Some(progress));
    }

    /// The status of every job.
    pub(crate) fn statuses(&self) -> Vec<JobStatus> {
        self.jobs().values().map(|entry| entry.status.clone()).collect()
    }

    /// The remembered epochs of every job, oldest first within a job.
    pub(crate) fn epochs(&self) -> Vec<EpochStatus> {
        self.jobs().values().flat_map(|entry| entry.epochs.iter().cloned()).collect()
    }

    /// The operators of every job.
    pub(crate) fn operators(&self) -> Vec<OperatorStatus> {
        self.jobs().values().flat_map(|entry| entry.operators.iter().cloned()).collect()
    }

    /// What is known about one view in one job: frontier, rows, fill, what is waited for.
    pub(crate) fn view(&self, job: JobId, view: TableId) -> Option<ViewOnBoard> {
        let jobs = self.jobs();
        let entry = jobs.get(&job)?;
        Some(ViewOnBoard {
            frontier: *entry.door.frontier.borrow(),
            n_rows: entry.rows.get(&view).copied(),
            fill: entry.fill,
            last_error: entry.status.last_error.clone(),
        })
    }
}

/// What the board knows about a view.
#[derive(Clone, Debug)]
pub(crate) struct ViewOnBoard {
    /// The job's newest epoch.
    pub(crate) frontier: Option<Frontier>,
    /// Stored rows.
    pub(crate) n_rows: Option<u64>,
    /// How far its fill is.
    pub(crate) fill: Option<FillProgress>,
    /// Why the job last failed.
    pub(crate) last_error: Option<String>,
}

impl Entry {
    fn new(job: JobId, kind: JobKind) -> Entry {
        Entry {
            status: starting(job, kind),
            door: Arc::new(JobDoor::new()),
            epochs: VecDeque::new(),
            operators: Vec::new(),
            rows: BTreeMap::new(),
            fill: None,
        }
    }

    fn decided(&mut self, frontier: Frontier) {
        self.status.epoch = frontier.epoch;
        self.status.cut = frontier.cut;
        self.status.commit_ts = frontier.commit_ts;
        self.door.frontier.send_replace(Some(frontier));
    }
}

/// The status of a job that has not taken over yet.
pub(crate) fn starting(job: JobId, kind: JobKind) -> JobStatus {
    JobStatus {
        job,
        kind,
        state: "starting",
        generation: Generation(0),
        epoch: Epoch(0),
        cut: Timestamp::ZERO,
        commit_ts: Timestamp::ZERO,
        views: Vec::new(),
        waiting_for: "take-over".to_owned(),
        n_restarts: 0,
        last_error: None,
    }
}
