//! What the system tables show: views, jobs, epochs, operators.
//!
//! Plain data, put together on demand from the catalog and from what each job last reported.

use types::{Epoch, Generation, JobId, TableId, Timestamp};

/// A row of `tidemill.views`.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewStatus {
    /// The view.
    pub view: TableId,
    /// Its database.
    pub database: String,
    /// Its name.
    pub name: String,
    /// `filling`, `ready` or `faulted`.
    pub state: &'static str,
    /// The job that maintains it, or will.
    pub job: JobId,
    /// S_k of its job's (or fill's) frontier; for a faulted view that of its last good epoch.
    pub cut: Option<Timestamp>,
    /// C_k of that epoch.
    pub commit_ts: Option<Timestamp>,
    /// Stored rows.
    pub n_rows: Option<u64>,
    /// How far the cut is behind now.
    pub lag_ms: Option<u64>,
    /// Percent of the fill; `None` when it is not being filled.
    pub progress_percent: Option<f64>,
    /// Source rows that the fill has taken in.
    pub fill_rows_done: Option<u64>,
    /// Why it is faulted, or what its fill waits for.
    pub reason: Option<String>,
}

/// Whether a job maintains views or builds one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKind {
    /// Maintains published views.
    Continuous,
    /// Brings one view up to date when asked.
    Refreshed,
    /// Builds one view.
    Fill,
}

/// A row of `tidemill.jobs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobStatus {
    /// The job.
    pub job: JobId,
    /// What it is for.
    pub kind: JobKind,
    /// `starting`, `running`, `restarting` or `stopped`.
    pub state: &'static str,
    /// The run's generation.
    pub generation: Generation,
    /// The newest decided epoch.
    pub epoch: Epoch,
    /// Its cut.
    pub cut: Timestamp,
    /// Its commit timestamp.
    pub commit_ts: Timestamp,
    /// Its views, by id.
    pub views: Vec<TableId>,
    /// Who holds the barrier of the epoch under way: a step, a view, an operator.
    pub waiting_for: String,
    /// How often it was started again since the process started.
    pub n_restarts: u64,
    /// The last failure.
    pub last_error: Option<String>,
}

/// A row of `tidemill.epochs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochStatus {
    /// The job.
    pub job: JobId,
    /// The epoch.
    pub epoch: Epoch,
    /// S_k.
    pub cut: Timestamp,
    /// C_k.
    pub commit_ts: Timestamp,
    /// The generation that decided it.
    pub generation: Generation,
    /// Source changes it took in.
    pub n_changes: u64,
    /// Keys of its transaction.
    pub n_keys: u64,
    /// Bytes of the runs it wrote.
    pub run_bytes: u64,
    /// From opening it to its decision.
    pub duration_ms: u64,
}

/// A row of `tidemill.operators`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorStatus {
    /// The view.
    pub view: TableId,
    /// The job that runs it.
    pub job: JobId,
    /// The operator's position in the view's plan.
    pub node: usize,
    /// What it is.
    pub operator: String,
    /// Rows that went in since the job's start.
    pub rows_in: u64,
    /// Rows that came out since the job's start.
    pub rows_out: u64,
    /// Rows of its state.
    pub state_rows: u64,
    /// Bytes of its state.
    pub state_bytes: u64,
}
