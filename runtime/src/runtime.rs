//! The façade: starts everything, runs DDL on views, answers waits and system tables, shuts down.

use std::sync::Arc;

use coordinator::Coordinator;
use sql::catalog::TableDefinition;
use store::Store;
use types::{Error, JobId, Result, TableId, Timestamp};

use crate::{
    Checkpoint, CreateViewOptions, DropOptions, EpochStatus, JobStatus, OperatorStatus, RuntimeOptions,
    Supervisor, ViewStatus,
};

/// Runs every continuous job and fill of a store.
#[derive(Clone)]
pub struct Runtime {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<dyn Store>,
    coordinator: Arc<dyn Coordinator>,
    options: RuntimeOptions,
    supervisor: Supervisor,
}

/// What CREATE MATERIALIZED VIEW did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// The view's definition is committed; it is being filled (`background`), or filled and published.
    View(TableId),
    /// It existed already, and `if_not_exists` was asked.
    Exists(TableId),
}

/// The answer of wait mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// An epoch with a cut at or after T: read view rows at `commit_ts`, tables at `cut`.
    Epoch {
        /// S_k.
        cut: Timestamp,
        /// C_k, or a later timestamp at which epoch k is still the newest.
        commit_ts: Timestamp,
    },
    /// Nothing of the job changed in (S_k, T]: read everything at T.
    Idle {
        /// S_k.
        cut: Timestamp,
    },
}

impl Runtime {
    /// Starts the runtime: creates the main job's epoch record on the first start, then starts a task for
    /// every job and unfinished fill, garbage collection and sweeping.
    ///
    /// # Errors
    /// `Invalid` for an option, or what the store says.
    pub async fn start(
        store: Arc<dyn Store>,
        coordinator: Arc<dyn Coordinator>,
        options: RuntimeOptions,
        supervisor: Supervisor,
    ) -> Result<Runtime> {
        options.validate()?;
        store.read_timestamp().await?;
        Ok(Runtime { shared: Arc::new(Shared { store, coordinator, options, supervisor }) })
    }

    /// Creates a view: its definition, binding, hold and fill job in one transaction; then waits until it
    /// is published, unless `background` is asked. The definition comes planned from `sql`; ids, job,
    /// state and timestamps in it are set here (the option `job` names the job). A foreground fill that
    /// faults drops the view and is the error.
    ///
    /// # Errors
    /// `Invalid` (with MySQL numbers) for names that exist, dependencies that are gone, faults of the fill.
    pub async fn create_view(
        &self,
        definition: TableDefinition,
        options: CreateViewOptions,
    ) -> Result<Created> {
        let _ = (definition, options, &self.shared.coordinator);
        Err(Error::unavailable("the runtime does not run yet"))
    }

    /// Drops a view and forgets its rows, state and runs once holds pass.
    ///
    /// # Errors
    /// `Invalid` if there is no such view or others depend on it.
    pub async fn drop_view(&self, database: &str, name: &str, options: DropOptions) -> Result<()> {
        let _ = (database, name, options);
        Err(Error::unavailable("the runtime does not run yet"))
    }

    /// Drops a base table; refused while views need it, unless `cascade` drops them too.
    ///
    /// # Errors
    /// `Invalid` if there is no such table or views depend on it.
    pub async fn drop_table(&self, database: &str, name: &str, options: DropOptions) -> Result<()> {
        let _ = (database, name, options);
        Err(Error::unavailable("the runtime does not run yet"))
    }

    /// Rebuilds a faulted view by a fill that replaces it. Returns the new view's id; waits for its
    /// publication unless `background` is asked.
    ///
    /// # Errors
    /// `Invalid` if there is no such view or it is not faulted.
    pub async fn resume_view(&self, database: &str, name: &str, background: bool) -> Result<TableId> {
        let _ = (database, name, background);
        Err(Error::unavailable("the runtime does not run yet"))
    }

    /// Waits until a view is published.
    ///
    /// # Errors
    /// `Invalid` if it faults or is dropped meanwhile.
    pub async fn wait_published(&self, view: TableId) -> Result<()> {
        let _ = view;
        Err(Error::unavailable("the runtime does not run yet"))
    }

    /// Wait mode: returns when the job's cut has reached T, or nothing of it changed up to T.
    ///
    /// # Errors
    /// `Unavailable` if no epoch is decided within `timeout_ms`.
    pub async fn wait_cut(&self, job: JobId, at: Timestamp, timeout_ms: u64) -> Result<Waited> {
        let _ = (job, at, timeout_ms);
        Err(Error::unavailable("the runtime does not run yet"))
    }

    /// Makes a job commit an epoch at once.
    pub fn poke(&self, job: JobId) {
        let _ = job;
    }

    /// The rows of `tidemill.views`.
    ///
    /// # Errors
    /// What the store says.
    pub async fn views(&self) -> Result<Vec<ViewStatus>> {
        Err(Error::unavailable("the runtime does not run yet"))
    }

    /// The rows of `tidemill.jobs`.
    #[must_use]
    pub fn jobs(&self) -> Vec<JobStatus> {
        Vec::new()
    }

    /// The rows of `tidemill.epochs`, oldest first.
    #[must_use]
    pub fn epochs(&self) -> Vec<EpochStatus> {
        Vec::new()
    }

    /// The rows of `tidemill.operators`.
    #[must_use]
    pub fn operators(&self) -> Vec<OperatorStatus> {
        Vec::new()
    }

    /// The checkpoint of a view of a job that a reader at T sees; `None` before its first epoch.
    ///
    /// # Errors
    /// What the store says.
    pub async fn checkpoint_at(
        &self,
        job: JobId,
        view: TableId,
        at: Timestamp,
    ) -> Result<Option<Checkpoint>> {
        crate::checkpoint_at(self.shared.store.as_ref(), job, view, at).await
    }

    /// Stops every task and waits for it; the store stays open.
    pub async fn shutdown(&self) {
        let _ = &self.shared.options;
        self.shared.supervisor.shutdown().await;
    }
}
