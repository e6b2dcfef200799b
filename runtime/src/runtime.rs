//! The façade: starts everything, runs DDL on views, answers waits and system tables, shuts down.

use std::sync::Arc;
use std::time::Duration;

use coordinator::Coordinator;
use operators::RunSource;
use sql::catalog::{Catalog, CatalogChange, DropKind, DropOptions, TableDefinition, ViewState};
use sql::{CreateMaterializedView, Settings, TableName};
use store::{Mutation, Snapshot, Store};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use types::records::{self, EpochRecord, MAIN_JOB};
use types::{Epoch, Error, ErrorKind, Generation, JobId, Result, TableId, Timestamp};

use crate::board::{Frontier, starting};
use crate::create::make_view;
use crate::ddl::{commit_asked, commit_ddl, fill_of};
use crate::maintenance;
use crate::records::ViewStats;
use crate::refresh;
use crate::shared::Shared;
use crate::sweep::Swept;
use crate::tidb_views;
use crate::worker::view_of;
use crate::{
    Checkpoint, EpochStatus, JobKind, JobStatus, LeaseStatus, OperatorStatus, RuntimeOptions, Supervisor,
    ViewStatus, collect, director, lease, rebuild,
};

/// The longest pause of a waiter between two looks at the catalog: changes made here wake it at once.
const LOOK_EVERY_MS: u64 = 500;

/// Runs every continuous job and fill of a store.
#[derive(Clone)]
pub struct Runtime {
    pub(crate) shared: Arc<Shared>,
}

/// What keeps history from being collected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldHistory {
    /// The store's time.
    pub now: Timestamp,
    /// The holds in force, by name.
    pub holds: Vec<(String, Timestamp)>,
    /// Timestamps that are read at in this process, each with the number of its readers.
    pub readings: Vec<(Timestamp, usize)>,
}

/// The answer of wait mode: view rows are read at `commit_ts`, tables at `cut`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waited {
    /// S_k; or the asked T itself if nothing of the job changed in (S_k, T].
    pub cut: Timestamp,
    /// C_k; or T.
    pub commit_ts: Timestamp,
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
        create_main_job(&store).await?;
        let shared = Shared::new(store, coordinator, options, supervisor).await?;
        let runtime = Runtime { shared };
        let supervisor = &runtime.shared.supervisor;
        if runtime.shared.options.lease.is_some() {
            drop(supervisor.spawn("lease of the jobs", lease::keep(runtime.clone())));
        } else {
            // Before anybody can ask for a refresh.
            runtime.take_turns_again().await?;
            drop(runtime.start_work(&supervisor.token()));
        }
        Ok(runtime)
    }

    /// Starts what one process of a store does: jobs, garbage collection, schedules, maintenance. All of it
    /// ends with the token.
    pub(crate) fn start_work(&self, token: &CancellationToken) -> Vec<JoinHandle<Result<()>>> {
        let tasks = &self.shared.supervisor;
        let (shared, runtime) = (|| Arc::clone(&self.shared), || self.clone());
        vec![
            tasks.spawn("director of jobs", director::direct(shared(), token.clone())),
            tasks.spawn("garbage collection", collect::collect(shared(), token.clone())),
            tasks.spawn("schedules of refreshes", refresh::schedule(runtime(), token.clone())),
            tasks.spawn("automatic maintenance", maintenance::automatic(runtime(), token.clone())),
            tasks.spawn("views as tables of TiDB", tidb_views::follow(shared(), token.clone())),
            tasks.spawn("rebuilds after changes of TiDB", rebuild::rebuild_changed(runtime(), token.clone())),
        ]
    }

    /// Whether jobs run in another process, or, for a moment, in none.
    #[must_use]
    pub fn runs_elsewhere(&self) -> bool {
        self.shared.options.lease.is_some() && self.shared.lease.term().is_none()
    }

    /// Which process runs the jobs, if several share the store; `None` before anyone does, or if this is the
    /// only one.
    ///
    /// # Errors
    /// What the store says.
    pub async fn lease(&self) -> Result<Option<LeaseStatus>> {
        lease::status(&self.shared).await
    }

    /// The cache of runs, for queries over the same state.
    #[must_use]
    pub fn run_source(&self) -> Arc<dyn RunSource> {
        Arc::clone(&self.shared.runs) as Arc<dyn RunSource>
    }

    /// Commits any change of the catalog, with everything in the store that belongs to it: the epoch
    /// records of the jobs it touches, fills of new views, what the sweep must know of dropped ones. `make`
    /// may be called several times, each time on a newer snapshot.
    ///
    /// # Errors
    /// What `make` refuses; `Conflict` if it could not be committed in time; what the store says.
    pub async fn change_catalog(
        &self,
        make: impl Fn(&Catalog, Timestamp) -> Result<CatalogChange> + Send + Sync,
    ) -> Result<CatalogChange> {
        commit_asked(&self.shared, &make).await
    }

    /// Creates a view: its definition, binding, hold and fill in one transaction. The option `job` names
    /// the job that will maintain it. Returns once that is committed when `background` is asked; else when
    /// the view is published. A foreground fill that faults drops the view and is the error.
    ///
    /// # Errors
    /// `Invalid` (with MySQL numbers) for refused queries, taken names, faults of the fill.
    pub async fn create_view(
        &self,
        statement: &CreateMaterializedView,
        settings: &Settings,
        background: bool,
    ) -> Result<CatalogChange> {
        let planner = &self.shared.options.planner;
        let make = |catalog: &Catalog, now: Timestamp| {
            make_view(planner.as_ref(), catalog, now, statement, settings)
        };
        let change = commit_ddl(&self.shared, &make).await?;
        if let (false, Some(created)) = (background, &change.created) {
            self.wait_created(created).await?;
        }
        Ok(change)
    }

    /// Waits until a view that was created in the background is published; drops it if its fill faults.
    ///
    /// Cancel safe: the fill goes on.
    ///
    /// # Errors
    /// As [`Runtime::create_view`].
    pub async fn wait_created(&self, created: &TableDefinition) -> Result<()> {
        let id = created.id();
        if view_of(created)?.state == ViewState::Unfilled {
            return Ok(());
        }
        let Err(error) = self.wait_published(id).await else { return Ok(()) };
        if error.kind() == ErrorKind::Invalid {
            self.abandon(id).await?;
        }
        Err(error)
    }

    /// Gives a view up that has not been published: it is dropped, unless it is published by now, or views
    /// over it need it.
    ///
    /// # Errors
    /// What the store says.
    pub async fn abandon(&self, view: TableId) -> Result<()> {
        let drop_it = |catalog: &Catalog, _: Timestamp| match catalog.tables.get(&view) {
            Some(known)
                if view_of(known)?.state != ViewState::Ready && catalog.dependents(view).is_empty() =>
            {
                catalog.abandon_view(view)
            }
            _ => Ok(CatalogChange::default()),
        };
        commit_ddl(&self.shared, &drop_it).await.map(drop)
    }

    /// Drops base tables or views; their rows, state and runs go once holds pass.
    ///
    /// # Errors
    /// `Invalid` if there is no such table or view, or views that stay depend on it.
    pub async fn drop_named(
        &self,
        kind: DropKind,
        names: &[TableName],
        default_database: Option<&str>,
        options: DropOptions,
    ) -> Result<CatalogChange> {
        let make =
            |catalog: &Catalog, _: Timestamp| catalog.drop_named(kind, names, default_database, options);
        let mut change = commit_asked(&self.shared, &make).await?;
        if change.dropped.iter().any(|gone| gone.tidb().is_some()) {
            change.notes.extend(self.wait_shown(None).await?);
        }
        Ok(change)
    }

    /// Waits until a view is published.
    ///
    /// # Errors
    /// `Invalid` if it faults or is dropped meanwhile; `Closed` at shutdown.
    pub async fn wait_published(&self, view: TableId) -> Result<()> {
        let mut changes = self.shared.catalog_changes.subscribe();
        let token = self.shared.supervisor.token();
        loop {
            changes.mark_unchanged();
            let now = self.shared.store.read_timestamp().await?;
            let catalog = self.shared.catalog_at(now).await?;
            match catalog.tables.get(&view).map(|definition| view_of(definition)).transpose()? {
                None => return Err(Error::invalid(self.why_gone(view))),
                Some(known) => match &known.state {
                    ViewState::Ready => {
                        if let Some(hanging) = self.wait_shown(Some(view)).await? {
                            tracing::warn!(hanging, "a view is published, and TiDB lags behind");
                        }
                        return Ok(());
                    }
                    ViewState::Faulted { reason, key, .. } => {
                        let at = key.as_ref().map(|key| format!(" at {key}")).unwrap_or_default();
                        return Err(Error::mysql(1105, format!("the view faulted: {reason}{at}")));
                    }
                    ViewState::Filling | ViewState::Unfilled => {}
                },
            }
            tokio::select! {
                () = token.cancelled() => return Err(Error::closed("the server shuts down")),
                changed = changes.changed() => drop(changed),
                () = tokio::time::sleep(Duration::from_millis(LOOK_EVERY_MS)) => {}
            }
        }
    }

    fn why_gone(&self, view: TableId) -> String {
        let failed = self.shared.fill_failures.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match failed.get(&view) {
            Some(reason) => reason.clone(),
            None => "the view was dropped while it was being filled".to_owned(),
        }
    }

    /// Wait mode: returns when the job's cut has reached T, or when nothing of it changed up to T. `None`
    /// if the job does not run here.
    ///
    /// Cancel safe: it only waits.
    ///
    /// # Errors
    /// `Unavailable`, with MySQL 1205, if no epoch is decided within `timeout_ms`.
    pub async fn wait_cut(&self, job: JobId, at: Timestamp, timeout_ms: u64) -> Result<Option<Waited>> {
        let Some(door) = self.shared.board.door(job) else { return Ok(None) };
        if !self.shared.board.is_continuous(job) {
            return Ok(None);
        }
        let mut frontier = door.frontier.subscribe();
        let deadline = Instant::now() + Duration::from_millis(timeout_ms);
        let now_known = *frontier.borrow();
        if let Some(known) = now_known
            && known.cut < at
            && self.is_idle(job, known, at).await?
        {
            return Ok(Some(Waited { cut: at, commit_ts: at }));
        }
        loop {
            let known = *frontier.borrow_and_update();
            if let Some(Frontier { cut, commit_ts, .. }) = known.filter(|known| known.cut >= at) {
                return Ok(Some(Waited { cut, commit_ts }));
            }
            door.poke.notify_one();
            match tokio::time::timeout_at(deadline, frontier.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Ok(None),
                Err(_) => {
                    let text = format!("no checkpoint of job {job} has reached {at} within {timeout_ms} ms");
                    return Err(Error::unavailable(text).with_mysql_code(1205));
                }
            }
        }
    }

    /// Whether nothing that the job's views read changed in (S_k, T], with epoch k visible at T.
    async fn is_idle(&self, job: JobId, known: Frontier, at: Timestamp) -> Result<bool> {
        if known.commit_ts > at {
            return Ok(false);
        }
        let store = &self.shared.store;
        store.wait_visible(at).await?;
        let catalog = self.shared.catalog_at(at).await?;
        let mut ranges = Vec::new();
        for (_, _, view) in catalog.views().filter(|(_, _, view)| view.job == job) {
            if view.state == ViewState::Filling {
                // It may be published in between; the job's next epoch knows.
                return Ok(false);
            }
            if matches!(view.state, ViewState::Faulted { .. }) {
                continue;
            }
            if catalog.reads_foreign(&view.base_tables) && !self.is_foreign_same(&catalog, known.cut).await? {
                // TiDB may have changed what it reads; the job's next epoch knows.
                return Ok(false);
            }
            ranges.extend(catalog.base_ranges(view)?);
        }
        ranges.sort_by(|left, right| left.start.cmp(&right.start));
        ranges.dedup();
        if ranges.is_empty() {
            return Ok(true);
        }
        match store.changes(&ranges, known.cut, at, None, 1).await {
            Ok(page) => Ok(page.changes.is_empty() && page.next.is_none()),
            Err(error) if error.is_history_gone() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether TiDB's schema at a timestamp is that of a catalog.
    async fn is_foreign_same(&self, catalog: &Catalog, at: Timestamp) -> Result<bool> {
        match self.shared.catalog_at(at).await {
            Ok(then) => Ok(then.foreign.stamp == catalog.foreign.stamp),
            Err(error) if error.is_history_gone() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes a job commit an epoch at once.
    pub fn poke(&self, job: JobId) {
        if let Some(door) = self.shared.board.door(job) {
            door.poke.notify_one();
        }
    }

    /// The rows of `tidemill.views`.
    ///
    /// # Errors
    /// What the store says.
    pub async fn views(&self) -> Result<Vec<ViewStatus>> {
        let snapshot = Snapshot::newest(Arc::clone(&self.shared.store)).await?;
        let catalog = self.shared.catalog.load_at(&snapshot).await?;
        let mut statuses = Vec::new();
        for (_, definition, view) in catalog.views() {
            // A copy that is built to replace a view is told by that view's row.
            if view.replaces.is_some_and(|replaced| catalog.tables.contains_key(&replaced)) {
                continue;
            }
            let mut status = self.view_status(&snapshot, definition).await?;
            if let Some(copy) = catalog.replacement_of(definition.id()) {
                let copy = self.view_status(&snapshot, copy).await?;
                status.progress_percent = copy.progress_percent;
                status.fill_rows_done = copy.fill_rows_done;
                status.reason = status.reason.or(copy.reason);
            }
            let published = matches!(view.state, ViewState::Ready);
            if published && status.reason.is_none() {
                status.reason = tidb_views::hint(&self.shared, &catalog, definition.id());
            }
            statuses.push(status);
        }
        Ok(statuses)
    }

    async fn view_status(&self, snapshot: &Snapshot, definition: &TableDefinition) -> Result<ViewStatus> {
        let id = definition.id();
        let view = view_of(definition)?;
        let runner = match view.state {
            ViewState::Filling => fill_of(definition).unwrap_or(view.job),
            ViewState::Ready | ViewState::Unfilled | ViewState::Faulted { .. } => view.job,
        };
        let known = self.shared.board.view(runner, id);
        let known_frontier = if view.has_own_job() && view.state == ViewState::Ready {
            // Its job sleeps between refreshes.
            let found = crate::checkpoint_at(&self.shared.store, view.job, id, snapshot.ts()).await?;
            found.map(|found| Frontier {
                epoch: found.record.epoch,
                cut: found.record.cut,
                commit_ts: found.commit_ts,
            })
        } else {
            known.as_ref().and_then(|known| known.frontier)
        };
        let frontier =
            known_frontier.filter(|_| !matches!(view.state, ViewState::Faulted { .. } | ViewState::Unfilled));
        let n_rows = match known.as_ref().and_then(|known| known.n_rows) {
            Some(n_rows) => n_rows,
            None => ViewStats::read(snapshot, id).await?.n_rows,
        };
        let (state, reason) = match &view.state {
            ViewState::Filling => ("filling", known.as_ref().and_then(|known| known.last_error.clone())),
            ViewState::Ready if view.suspended => ("suspended", None),
            ViewState::Ready => ("ready", None),
            ViewState::Unfilled => ("unfilled", None),
            ViewState::Faulted { reason, key, at } => {
                let key = key.as_ref().map(|key| format!(", {key}")).unwrap_or_default();
                ("faulted", Some(format!("{reason}{key} (at {at})")))
            }
        };
        let fill = known.and_then(|known| known.fill).filter(|_| view.state == ViewState::Filling);
        Ok(ViewStatus {
            view: id,
            database: definition.database.clone(),
            name: definition.info.name.clone(),
            state,
            job: view.job,
            cut: frontier.map(|frontier| frontier.cut),
            commit_ts: frontier.map(|frontier| frontier.commit_ts),
            n_rows: Some(n_rows),
            lag_ms: frontier
                .map(|frontier| snapshot.ts().physical_ms().saturating_sub(frontier.cut.physical_ms())),
            progress_percent: fill.map(|fill| fill.percent),
            fill_rows_done: fill.map(|fill| fill.rows_done),
            reason,
        })
    }

    /// What the jobs that run here last reported. A job that has not taken over yet has reported no epoch.
    #[must_use]
    pub fn jobs(&self) -> Vec<JobStatus> {
        self.shared.board.statuses()
    }

    /// The rows of `tidemill.jobs`: a job that has not taken over since the start of the process, as one that
    /// sleeps until its next refresh, is shown by its record and by the catalog.
    ///
    /// # Errors
    /// What the store says.
    pub async fn recorded_jobs(&self) -> Result<Vec<JobStatus>> {
        let mut statuses = self.jobs();
        let snapshot = Snapshot::newest(Arc::clone(&self.shared.store)).await?;
        let catalog = self.shared.catalog.load_at(&snapshot).await?;
        for (_, _, view) in catalog.views() {
            if !statuses.iter().any(|status| status.job == view.job) {
                let kind = if view.has_own_job() { JobKind::Refreshed } else { JobKind::Continuous };
                statuses.push(starting(view.job, kind));
            }
        }
        statuses.sort_by_key(|status| status.job);
        for status in statuses.iter_mut().filter(|status| status.commit_ts == Timestamp::ZERO) {
            let at = crate::checkpoint::epoch_at(&self.shared.store, status.job, snapshot.ts()).await?;
            let Some((record, commit_ts)) = at else { continue };
            status.generation = record.generation;
            status.epoch = record.epoch;
            status.cut = record.cut;
            status.commit_ts = commit_ts;
            let own =
                catalog.views().filter(|(_, _, view)| view.job == status.job && view.replaces.is_none());
            status.views = own.map(|(id, _, _)| id).collect();
        }
        Ok(statuses)
    }

    /// The rows of `tidemill.epochs`, oldest first within a job; only the newest are remembered.
    #[must_use]
    pub fn epochs(&self) -> Vec<EpochStatus> {
        self.shared.board.epochs()
    }

    /// The rows of `tidemill.operators`.
    #[must_use]
    pub fn operators(&self) -> Vec<OperatorStatus> {
        self.shared.board.operators()
    }

    /// What keeps history from being collected: holds, and what is read in this process.
    ///
    /// # Errors
    /// What the store says.
    pub async fn held_history(&self) -> Result<HeldHistory> {
        let store = &self.shared.store;
        Ok(HeldHistory {
            now: store.read_timestamp().await?,
            holds: store.holds().await?,
            readings: store.readings(),
        })
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
        crate::checkpoint_at(&self.shared.store, job, view, at).await
    }

    /// Collects garbage and sweeps once, beside the regular passes; for tests and operators.
    ///
    /// # Errors
    /// What the store says.
    pub async fn sweep_now(&self) -> Result<(usize, usize)> {
        let Swept { run_parts, keys } = collect::pass(&self.shared).await?;
        Ok((run_parts, keys))
    }

    /// Stops every task and waits for it; the store stays open.
    pub async fn shutdown(&self) {
        self.shared.supervisor.shutdown().await;
    }
}

/// The main job's epoch record, if the store has none.
async fn create_main_job(store: &Arc<dyn Store>) -> Result<()> {
    let key = records::epoch_record_key(MAIN_JOB);
    loop {
        // A read passes by the lock of an epoch that an earlier process left open; a write would wait for it.
        let snapshot = Snapshot::newest(Arc::clone(store)).await?;
        if snapshot.get(&key).await?.is_some() {
            return Ok(());
        }
        let start_ts = store.timestamp().await?;
        let first =
            EpochRecord { epoch: Epoch(0), cut: snapshot.ts(), generation: Generation(0), definitions: 0 };
        let create = vec![Mutation::insert(key.clone(), first.encode())];
        match store.commit_transaction(start_ts, create).await {
            Ok(_) | Err(store::KeyError::AlreadyExists(_)) => return Ok(()),
            Err(store::KeyError::WriteConflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
