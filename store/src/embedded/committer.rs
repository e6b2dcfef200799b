//! The committer: one owner of all writes, and group commit.
//!
//! Jobs are drained from a bounded queue into a group: each looks at the state, then adds its writes
//! and its answer. A job that touches what the group already changes ends the group first. A group is
//! one batch with at most one sync; after it locks are released, `visible` moves, answers go out.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use types::{Error, Result, Timestamp};

use super::Inner;
use super::core::{CommitRecord, Core, META_BOUND, META_COMMIT, WINDOW_MS};
use super::directory::Directory;
use super::format::seal_number;
use crate::engine::{Batch, Durability, Engine, Space};
use crate::failpoints;
use crate::traits::Key;

/// The most jobs that wait; more wait in their callers.
const QUEUE_JOBS_MAX: usize = 1024;
/// A group is ended when its batch has grown to so many bytes.
const GROUP_BYTES_MAX: usize = 32 << 20;

/// What a job says after it has looked at the group.
pub(crate) enum Step<T> {
    /// Its writes are in the group; the answer goes out after the group.
    Done(T),
    /// It needs what the group is changing; end the group and ask again.
    Busy,
}

/// Returns whether the job is in the group; else the group must end first.
type Job = Box<dyn FnMut(&mut Group) -> bool + Send>;
type Answer = Box<dyn FnOnce(Result<()>) + Send>;
type Effect = Box<dyn FnOnce(&Core) + Send>;

/// Work that is committed together.
pub(crate) struct Group {
    pub core: Arc<Core>,
    pub engine: Arc<dyn Engine>,
    pub batch: Batch,
    synced: bool,
    bound_ms: Option<u64>,
    newest: Timestamp,
    transactions: u64,
    /// Locks that go when the group is over.
    pub released: Vec<(Key, Timestamp)>,
    effects: Vec<Effect>,
    answers: Vec<Answer>,
}

impl Group {
    fn new(core: Arc<Core>, engine: Arc<dyn Engine>) -> Group {
        Group {
            core,
            engine,
            batch: Batch::default(),
            synced: false,
            bound_ms: None,
            newest: Timestamp::ZERO,
            transactions: 0,
            released: Vec::new(),
            effects: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// The group must be on disk before its answers go out.
    pub(crate) fn must_sync(&mut self) {
        self.synced = true;
    }

    /// Something to do to the shared state once the group is durable and before it is visible.
    pub(crate) fn then(&mut self, effect: impl FnOnce(&Core) + Send + 'static) {
        self.effects.push(Box::new(effect));
    }

    /// Counts a transaction.
    pub(crate) fn note_commit(&mut self, commit_ts: Timestamp) {
        self.newest = self.newest.max(commit_ts);
        self.transactions += 1;
    }

    /// Draws a commit timestamp, raising the oracle's bound first if need be.
    pub(crate) fn draw(&mut self, least: Timestamp) -> Result<Timestamp> {
        for _ in 0..3 {
            if let Some(commit_ts) = self.core.oracle.next_commit(least) {
                return Ok(commit_ts);
            }
            if self.core.oracle.is_stopped() {
                return Err(Error::closed("the store is closed"));
            }
            let bound_ms = self.core.oracle.later_bound(WINDOW_MS, least);
            let mut batch = Batch::default();
            batch.put(Space::Meta, META_BOUND, seal_number(META_BOUND, bound_ms));
            self.engine.commit(batch, Durability::Synced).map_err(|error| self.core.poison(&error))?;
            self.core.oracle.raise_bound(bound_ms);
        }
        Err(Error::unavailable("the clock runs away from the oracle"))
    }

    /// Writes down a later bound of the oracle, unless that has stopped.
    pub(crate) fn extend_bound(&mut self, least: Timestamp) {
        if self.core.oracle.is_stopped() {
            return;
        }
        let bound_ms = self.core.oracle.later_bound(WINDOW_MS, least);
        self.put_bound(bound_ms);
    }

    pub(crate) fn put_bound(&mut self, bound_ms: u64) {
        self.batch.put(Space::Meta, META_BOUND, seal_number(META_BOUND, bound_ms));
        self.bound_ms = Some(bound_ms);
        self.synced = true;
    }
}

/// The owner of all writes.
pub(crate) struct Committer {
    core: Arc<Core>,
    /// Synced groups so far.
    sequence: u64,
    directory: Option<Directory>,
}

impl Committer {
    pub(crate) fn new(core: Arc<Core>, sequence: u64, directory: Option<Directory>) -> Committer {
        Committer { core, sequence, directory }
    }

    /// Runs jobs in their order, in as few groups as possible. After a failed group the rest go: their
    /// callers learn from the store why it is closed.
    fn run(&mut self, jobs: impl IntoIterator<Item = Job>) {
        let Ok(engine) = self.core.engine() else { return };
        let mut group = Group::new(Arc::clone(&self.core), Arc::clone(&engine));
        for mut job in jobs {
            if !job(&mut group) {
                if !self.finish_and_renew(&mut group) {
                    return;
                }
                assert!(job(&mut group), "a job is not busy when nothing is under way");
            }
            if group.batch.bytes() > GROUP_BYTES_MAX && !self.finish_and_renew(&mut group) {
                return;
            }
        }
        self.finish(group);
    }

    /// Finishes a group and begins another; says whether the store is still open.
    fn finish_and_renew(&mut self, group: &mut Group) -> bool {
        let next = Group::new(Arc::clone(&group.core), Arc::clone(&group.engine));
        self.finish(std::mem::replace(group, next))
    }

    /// Writes a group, applies it and answers; says whether the store is still open.
    fn finish(&mut self, mut group: Group) -> bool {
        let changed = !group.batch.is_empty() || !group.effects.is_empty() || !group.released.is_empty();
        // A write of a job in the group may have failed already, or a caller has waited too long.
        let mut result = self.core.check_open();
        if result.is_ok() && !group.batch.is_empty() {
            result = self.write(&mut group).map_err(|error| self.core.poison(&error));
        }
        if result.is_ok() {
            // A caller that gave up meanwhile has been told that the store is closed; so are the others.
            result = self.core.check_open();
        }
        if result.is_ok() {
            for effect in group.effects.drain(..) {
                effect(&self.core);
            }
            if let Some(bound_ms) = group.bound_ms {
                self.core.oracle.raise_bound(bound_ms);
            }
            if changed {
                let mut table = self.core.locks_mut();
                for (key, start_ts) in group.released.drain(..) {
                    table.remove(&key, start_ts);
                }
                table.clear_busy();
                drop(table);
                self.core.note_commits(group.newest, group.transactions, group.synced);
                // Commits at named timestamps are below what comes later, too.
                self.core.oracle.observe(group.newest);
            }
            if self.core.oracle.settle() || changed {
                self.core.announce();
            }
        }
        for answer in group.answers {
            answer(result.clone());
        }
        self.core.check_open().is_ok()
    }

    fn write(&mut self, group: &mut Group) -> Result<()> {
        let mut batch = std::mem::take(&mut group.batch);
        if !group.synced {
            return group.engine.commit(batch, Durability::Buffered);
        }
        let stopped = self.core.oracle.is_stopped();
        if group.bound_ms.is_none() && !stopped && self.core.oracle.wants_bound(WINDOW_MS / 2) {
            let bound_ms = self.core.oracle.later_bound(WINDOW_MS, Timestamp::ZERO);
            batch.put(Space::Meta, META_BOUND, seal_number(META_BOUND, bound_ms));
            group.bound_ms = Some(bound_ms);
        }
        let sequence = self.sequence + 1;
        let newest = self.core.newest_commit().max(group.newest);
        batch.put(Space::Meta, META_COMMIT, CommitRecord { sequence, newest }.encode());
        failpoints::pass("store::before_sync")?;
        group.engine.commit(batch, Durability::Synced)?;
        failpoints::pass("store::after_sync")?;
        self.sequence = sequence;
        if let Some(directory) = &mut self.directory {
            directory.reached(sequence)?;
        }
        failpoints::pass("store::before_acknowledge")?;
        Ok(())
    }
}

/// Ends in order: `CURRENT` on disk, the engine closed, the directory released. After a panic too.
impl Drop for Committer {
    fn drop(&mut self) {
        let synced = self.directory.as_mut().map_or(Ok(()), Directory::sync);
        if let Err(error) = synced {
            tracing::warn!(%error, "the store was closed, but CURRENT may be behind");
        }
        self.core.shut(Error::closed("the store is closed"));
        self.core.drop_engine();
    }
}

/// Who runs the committer.
pub(crate) enum Driver {
    /// A thread of its own.
    Thread {
        /// Emptied when the store closes.
        queue: Mutex<Option<mpsc::Sender<Job>>>,
        thread: Mutex<Option<JoinHandle<()>>>,
    },
    /// The callers, one after the other.
    Inline(Mutex<Option<Committer>>),
}

impl Driver {
    pub(crate) fn inline(committer: Committer) -> Driver {
        Driver::Inline(Mutex::new(Some(committer)))
    }

    pub(crate) fn thread(mut committer: Committer) -> Result<Driver> {
        let (queue, mut jobs) = mpsc::channel::<Job>(QUEUE_JOBS_MAX);
        let run = move || {
            let mut drained = Vec::with_capacity(QUEUE_JOBS_MAX);
            while jobs.blocking_recv_many(&mut drained, QUEUE_JOBS_MAX) > 0 {
                committer.run(drained.drain(..));
            }
            drop(committer);
        };
        let thread = std::thread::Builder::new().name("store-committer".to_owned()).spawn(run);
        let thread =
            thread.map_err(|error| Error::unavailable(format!("no thread for the committer: {error}")))?;
        Ok(Driver::Thread { queue: Mutex::new(Some(queue)), thread: Mutex::new(Some(thread)) })
    }

    /// Lets the committer finish what is queued and end.
    pub(crate) fn stop(&self) {
        match self {
            Driver::Thread { queue, thread } => {
                drop(queue.lock().unwrap_or_else(PoisonError::into_inner).take());
                let thread = thread.lock().unwrap_or_else(PoisonError::into_inner).take();
                if thread.is_some_and(|thread| thread.join().is_err()) {
                    tracing::error!("the committer panicked");
                }
            }
            Driver::Inline(committer) => {
                let committer = committer.lock().unwrap_or_else(PoisonError::into_inner).take();
                drop(committer);
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Inner {
    /// Runs a step in the committer and returns its value once the group is as durable as it asked for.
    pub(crate) async fn submit<T: Send + 'static>(
        &self,
        mut step: impl FnMut(&mut Group) -> Step<T> + Send + 'static,
    ) -> Result<T> {
        self.core.check_open()?;
        let (sender, receiver) = oneshot::channel::<Result<T>>();
        let mut sender = Some(sender);
        let job: Job = Box::new(move |group| match step(group) {
            Step::Busy => false,
            Step::Done(value) => {
                if let Some(sender) = sender.take() {
                    // A caller that went away does not want the answer.
                    group.answers.push(Box::new(move |result| drop(sender.send(result.map(|()| value)))));
                }
                true
            }
        });
        match &self.driver {
            Driver::Inline(committer) => {
                let mut committer = committer.lock().unwrap_or_else(PoisonError::into_inner);
                let committer = committer.as_mut().ok_or_else(|| Error::closed("the store is closed"))?;
                committer.run([job]);
            }
            Driver::Thread { queue, .. } => {
                let queue = queue.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let queue = queue.ok_or_else(|| Error::closed("the store is closed"))?;
                queue.send(job).await.map_err(|_| self.gone())?;
                drop(queue);
                return self.answer(receiver).await;
            }
        }
        receiver.await.map_err(|_| self.gone())?
    }

    async fn answer<T>(&self, receiver: oneshot::Receiver<Result<T>>) -> Result<T> {
        let limit = Duration::from_millis(self.core.options.stall_ms_max);
        match tokio::time::timeout(limit, receiver).await {
            Ok(answer) => answer.map_err(|_| self.gone())?,
            Err(_) => {
                // The engine is known to hang after some crashes until it is opened again.
                let cause =
                    Error::unavailable(format!("the engine made no progress for {} ms", limit.as_millis()));
                Err(self.core.poison(&cause))
            }
        }
    }

    fn gone(&self) -> Error {
        self.core.check_open().err().unwrap_or_else(|| Error::closed("the committer is gone"))
    }
}
