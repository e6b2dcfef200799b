//! The transaction at its primary: from the start to the decision, whatever gets lost on the way.
//!
//! ```text
//! Starting -> Reading -> Prewriting -> Locked -> (Drawing ->) Committing -> decided
//!                            |            |               |
//!                            +--lost------+-----lost------+-> Asking -> decided, rolled back, or back
//! ```
//!
//! Epochs and take-overs share it. It knows nothing of workers and votes; its owner says when to commit.
//! Of one start a single prewrite is ever sent: a second one, delayed over a crash of the store, could set
//! the primary's lock again after the others' locks were lost with it.

use types::records::EpochRecord;
use types::{Error, Timestamp};

use super::{Answer, CommitTimestamps, Fate, MachineOptions, Work};

/// Where the transaction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Starting,
    Reading,
    Prewriting,
    Locked,
    Drawing,
    Committing,
    /// Waits for the primary's word; `from` is where it goes on if the transaction lives.
    Asking {
        end: bool,
        from: From,
    },
}

/// What was going on when the primary had to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Prewrite,
    Locked,
    Commit,
}

/// What follows from an answer.
#[derive(Debug)]
pub(super) enum Turn {
    /// More work.
    Work(Work),
    /// The record at the start: its owner prewrites, or gives up without a trace.
    Record(Option<EpochRecord>),
    /// The primary is locked for the first time.
    Prewritten,
    /// The primary is still locked; its owner goes on where it was.
    StillAlive,
    /// Committed.
    Decided(Timestamp),
    /// Known to be rolled back.
    RolledBack {
        /// Because too many commit timestamps were refused.
        refused: bool,
    },
    /// The store was away before anything was at stake.
    Later(Error),
    /// The run cannot go on.
    Broken(Error),
}

/// One transaction.
#[derive(Debug)]
pub(super) struct Primary {
    options: MachineOptions,
    step: Step,
    start_ts: Timestamp,
    /// The start must be above it.
    above: Timestamp,
    /// Whether this is a take-over, which ends locks in its way.
    end_locks: bool,
    min_commit_ts: Timestamp,
    refusals: u32,
    /// Commits sent: after more than one, the answer's timestamp says nothing.
    n_commits: u32,
    /// The commit timestamp drawn last.
    commit_ts: Option<Timestamp>,
}

impl Primary {
    pub(super) fn new(options: MachineOptions, above: Timestamp, end_locks: bool) -> Primary {
        Primary {
            options,
            step: Step::Starting,
            start_ts: Timestamp::ZERO,
            above,
            end_locks,
            min_commit_ts: Timestamp::ZERO,
            refusals: 0,
            n_commits: 0,
            commit_ts: None,
        }
    }

    pub(super) fn start_ts(&self) -> Timestamp {
        self.start_ts
    }

    pub(super) fn min_commit_ts(&self) -> Timestamp {
        self.min_commit_ts
    }

    /// Whether a decision to commit may still be made.
    pub(super) fn is_locked(&self) -> bool {
        self.step == Step::Locked
    }

    pub(super) fn waiting_for(&self) -> &'static str {
        match self.step {
            Step::Starting => "waiting for a start timestamp",
            Step::Reading => "waiting for the epoch record at the start",
            Step::Prewriting => "waiting for the primary's prewrite",
            Step::Locked => "waiting for votes",
            Step::Drawing => "waiting for a commit timestamp",
            Step::Committing => "waiting for the primary's commit",
            Step::Asking { end: false, .. } => "asking the primary what became of the transaction",
            Step::Asking { end: true, .. } => "waiting for the primary's rollback",
        }
    }

    /// Prewrites after the record was found in order.
    pub(super) fn prewrite(&mut self, record: EpochRecord) -> Work {
        self.prewrite_with(record, Timestamp(self.start_ts.0.saturating_add(1)))
    }

    /// Prewrites with locks that readers cannot push.
    pub(super) fn prewrite_unpushable(&mut self, record: EpochRecord) -> Work {
        self.prewrite_with(record, Timestamp::ZERO)
    }

    fn prewrite_with(&mut self, record: EpochRecord, min_commit_ts: Timestamp) -> Work {
        assert_eq!(self.step, Step::Reading, "a prewrite follows the read of the record");
        self.step = Step::Prewriting;
        self.min_commit_ts = min_commit_ts;
        let ttl_ms = self.options.ttl_ms;
        Work::Prewrite { start_ts: self.start_ts, record, min_commit_ts, ttl_ms }
    }

    /// Commits after the last vote.
    pub(super) fn commit(&mut self) -> Work {
        assert_eq!(self.step, Step::Locked, "only a locked primary commits");
        self.draw_or_send()
    }

    /// Ends the transaction; `None` if it has left no trace and needs no ending.
    pub(super) fn end(&mut self) -> Option<Work> {
        match self.step {
            Step::Starting | Step::Reading => None,
            Step::Prewriting => Some(self.ask(true, From::Prewrite)),
            Step::Locked => Some(self.ask(true, From::Locked)),
            Step::Drawing | Step::Committing => Some(self.ask(true, From::Commit)),
            Step::Asking { from, .. } => Some(self.ask(true, from)),
        }
    }

    /// A heartbeat failed; `None` if the primary is being asked or committed anyway.
    pub(super) fn heartbeat_lost(&mut self, known: bool) -> Option<Work> {
        (self.step == Step::Locked).then(|| self.ask(known, From::Locked))
    }

    fn ask(&mut self, end: bool, from: From) -> Work {
        self.step = Step::Asking { end, from };
        Work::Ask { start_ts: self.start_ts, end }
    }

    fn draw_or_send(&mut self) -> Work {
        match self.options.commit_timestamps {
            CommitTimestamps::Store => self.send(None),
            CommitTimestamps::Oracle => {
                self.step = Step::Drawing;
                Work::DrawCommit
            }
        }
    }

    fn send(&mut self, commit_ts: Option<Timestamp>) -> Work {
        self.step = Step::Committing;
        self.n_commits += 1;
        self.commit_ts = commit_ts;
        Work::Commit { start_ts: self.start_ts, commit_ts }
    }

    fn broken(&self, what: &str) -> Turn {
        Turn::Broken(Error::corrupt(format!("transaction {}: {what}", self.start_ts)))
    }

    /// Takes the answer to the last work.
    pub(super) fn answer(&mut self, answer: Answer) -> Turn {
        match (self.step, answer) {
            (_, Answer::Failed(error)) => Turn::Broken(error),
            (Step::Starting, Answer::Timestamp(start_ts)) => self.started(start_ts),
            (Step::Reading, Answer::Record(record)) => Turn::Record(record),
            (Step::Starting | Step::Reading, Answer::Unknown(error)) => Turn::Later(error),
            (Step::Prewriting, Answer::Prewritten) => self.locked(),
            (Step::Prewriting, Answer::Conflict) => Turn::Work(self.ask(true, From::Prewrite)),
            (Step::Prewriting, Answer::Unknown(_)) => Turn::Work(self.ask(false, From::Prewrite)),
            (Step::Drawing, Answer::Timestamp(commit_ts)) => {
                if commit_ts <= self.start_ts {
                    return self.broken("the oracle went back below its start");
                }
                Turn::Work(self.send(Some(commit_ts)))
            }
            (Step::Drawing | Step::Committing, Answer::Unknown(_)) => {
                Turn::Work(self.ask(false, From::Commit))
            }
            (Step::Committing, Answer::Committed(commit_ts)) => self.committed(commit_ts),
            (Step::Committing, Answer::Expired) => self.expired(),
            (Step::Committing, Answer::LockGone) => Turn::Work(self.ask(true, From::Commit)),
            (Step::Asking { end, from }, Answer::Fate(fate)) => self.told(fate, end, from),
            // The question is repeated until it is answered; a runtime that gives up asks again.
            (Step::Asking { end, from }, Answer::Unknown(_)) => Turn::Work(self.ask(end, from)),
            (step, answer) => self.broken(&format!("answer {answer:?} in step {step:?}")),
        }
    }

    fn started(&mut self, start_ts: Timestamp) -> Turn {
        if start_ts <= self.above {
            let above = self.above;
            return Turn::Broken(Error::corrupt(format!("start {start_ts} is not above {above}")));
        }
        self.start_ts = start_ts;
        self.step = Step::Reading;
        Turn::Work(Work::ReadRecord { at: start_ts, end_locks: self.end_locks })
    }

    fn locked(&mut self) -> Turn {
        self.step = Step::Locked;
        Turn::Prewritten
    }

    fn committed(&mut self, commit_ts: Timestamp) -> Turn {
        if self.n_commits > 1 {
            // A repeated commit answers success with any timestamp; the record keeps the first.
            return Turn::Work(self.ask(false, From::Commit));
        }
        self.decided(commit_ts)
    }

    fn decided(&mut self, commit_ts: Timestamp) -> Turn {
        if commit_ts <= self.start_ts {
            return self.broken(&format!("committed at {commit_ts}, not above its start"));
        }
        Turn::Decided(commit_ts)
    }

    fn expired(&mut self) -> Turn {
        self.refusals += 1;
        if self.refusals >= self.options.refusals_max {
            return Turn::Work(self.ask(true, From::Commit));
        }
        Turn::Work(self.draw_or_send())
    }

    fn told(&mut self, fate: Fate, end: bool, from: From) -> Turn {
        match fate {
            Fate::RolledBack => Turn::RolledBack { refused: self.refusals >= self.options.refusals_max },
            Fate::Committed(commit_ts) if self.n_commits > 0 => self.decided(commit_ts),
            Fate::Committed(commit_ts) => {
                self.broken(&format!("committed at {commit_ts} though nobody asked for it"))
            }
            Fate::Alive | Fate::NoTrace if end => self.broken("the store did not end it"),
            // Not there, so nobody can commit it; ending it keeps a late request from bringing it back.
            Fate::NoTrace => Turn::Work(self.ask(true, from)),
            Fate::Alive => match from {
                From::Prewrite => self.locked(),
                From::Locked => {
                    self.step = Step::Locked;
                    Turn::StillAlive
                }
                From::Commit => match self.commit_ts {
                    Some(commit_ts) => Turn::Work(self.send(Some(commit_ts))),
                    None => Turn::Work(self.draw_or_send()),
                },
            },
        }
    }
}
