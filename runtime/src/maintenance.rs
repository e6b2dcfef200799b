//! Maintenance: tasks that change how a view is stored and never what it holds.
//!
//! A compaction merges the runs of each state of a view into one tier, at barriers of the view's own job and
//! in the epochs' transactions: a part of one state an epoch, so that epochs stay short, or all in one. Then
//! history goes that nobody may read any more, and the store may rewrite what is left. A task is nothing but
//! its progress: what a barrier has merged stays merged, so a task that was killed is simply gone, and asked
//! for again it goes on where it was. Another order of the rows (CLUSTER BY) is a fill and a swap.

mod automatic;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use operators::Manifest;
use sink::load_manifests;
use sql::catalog::{TableDefinition, ViewState};
use store::Snapshot;
use tokio::sync::OwnedMutexGuard;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use types::{Error, ErrorKind, Result, TableId};

use crate::board::Merged;
use crate::refresh::{Copying, copying};
use crate::worker::view_of;
use crate::{Runtime, collect};

pub(crate) use automatic::automatic;

/// Tasks that are remembered when they are over.
const TASKS_MAX: usize = 256;
/// The pause before a job that did not answer is asked again.
const ASK_AGAIN_MS: u64 = 20;
/// How many idle intervals a merge that nobody asked for waits for its barrier.
const AUTOMATIC_IDLE_INTERVALS: u64 = 4;

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaintenanceKind {
    /// OPTIMIZE TABLE: merges runs and drops dead versions.
    Compact,
    /// RECLUSTER: the same of a view with a cluster key, whose rows are always in its order.
    Recluster {
        /// FINAL: all states at one barrier, and the space is reclaimed.
        at_once: bool,
    },
    /// CLUSTER BY: gives the rows another order.
    Cluster,
}

impl MaintenanceKind {
    /// Its name in `tidemill.maintenance`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            MaintenanceKind::Compact => "compact",
            MaintenanceKind::Recluster { .. } => "recluster",
            MaintenanceKind::Cluster => "cluster",
        }
    }
}

/// A row of `tidemill.maintenance`.
#[derive(Clone, Debug, PartialEq)]
pub struct MaintenanceStatus {
    /// Counts the tasks since the start of the process.
    pub task: u64,
    /// The table or view as it was when the task began.
    pub table: TableId,
    /// Its database.
    pub database: String,
    /// Its name.
    pub name: String,
    /// What is done.
    pub kind: MaintenanceKind,
    /// Whether a threshold began it.
    pub automatic: bool,
    /// `running`, `done`, `cancelled` or `failed`.
    pub state: &'static str,
    /// When it began, in milliseconds of the store's clock.
    pub began_ms: u64,
    /// When it ended.
    pub ended_ms: Option<u64>,
    /// How much of it is done.
    pub percent: f64,
    /// Runs of the view's states before and after.
    pub runs: (u64, Option<u64>),
    /// Their bytes before and after.
    pub bytes: (u64, Option<u64>),
    /// Why it failed.
    pub error: Option<String>,
}

/// What a task has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Maintained {
    /// States that were merged.
    pub n_states: usize,
    /// Whether the store has rewritten what it keeps; it may only do so by itself.
    pub reclaimed: bool,
}

/// The tasks of this process: the ones under way, and the newest that are over.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    tasks: Mutex<VecDeque<Task>>,
}

#[derive(Debug)]
struct Task {
    status: MaintenanceStatus,
    cancel: CancellationToken,
    /// The view that CLUSTER BY builds.
    copy: Option<TableId>,
}

impl Maintenance {
    fn tasks(&self) -> MutexGuard<'_, VecDeque<Task>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, status: MaintenanceStatus, copy: Option<TableId>) -> (u64, CancellationToken) {
        let mut tasks = self.tasks();
        let number = tasks.back().map_or(1, |last| last.status.task + 1);
        let cancel = CancellationToken::new();
        let status = MaintenanceStatus { task: number, ..status };
        tasks.push_back(Task { status, cancel: cancel.clone(), copy });
        while tasks.len() > TASKS_MAX {
            let over = tasks.iter().position(|task| task.status.state != "running");
            let Some(over) = over else { break };
            tasks.remove(over);
        }
        (number, cancel)
    }

    fn edit(&self, number: u64, edit: impl FnOnce(&mut MaintenanceStatus)) {
        if let Some(task) = self.tasks().iter_mut().find(|task| task.status.task == number) {
            edit(&mut task.status);
        }
    }

    /// Cancels what runs for a table or view; `false` if nothing does.
    pub(crate) fn cancel(&self, table: TableId) -> bool {
        let tasks = self.tasks();
        let running =
            tasks.iter().filter(|task| task.status.table == table && task.status.state == "running");
        running.map(|task| task.cancel.cancel()).count() > 0
    }
}

/// Refuses what has no storage to work on: a view that is being filled, or is faulted.
pub(crate) fn check_stored(definition: &TableDefinition) -> Result<()> {
    let name = definition.full_name();
    let text = match definition.view.as_ref().map(|view| &view.state) {
        Some(ViewState::Filling) => format!("view '{name}' is still being filled"),
        Some(ViewState::Faulted { reason, .. }) => {
            format!("view '{name}' is faulted ({reason}): ALTER MATERIALIZED VIEW {name} RESUME rebuilds it")
        }
        Some(ViewState::Ready | ViewState::Unfilled) | None => return Ok(()),
    };
    Err(Error::mysql(1105, text))
}

impl Runtime {
    /// OPTIMIZE TABLE of a table or view, and RECLUSTER of a view: the task, which goes on if nobody waits
    /// for it.
    ///
    /// # Errors
    /// MySQL 1146; 1105 for a view that is being filled or is faulted; RECLUSTER: 1347 for a table, 1105 for a
    /// view without a cluster key.
    pub async fn maintain(
        &self,
        database: &str,
        name: &str,
        kind: MaintenanceKind,
    ) -> Result<JoinHandle<Result<Maintained>>> {
        let now = self.shared.store.read_timestamp().await?;
        let catalog = self.shared.catalog_at(now).await?;
        let definition = Arc::clone(catalog.require(database, name)?);
        if kind != MaintenanceKind::Compact {
            crate::ddl::require_view(&catalog, database, name)?;
            let name = definition.full_name();
            if view_of(&definition)?.cluster_by.is_empty() {
                let text = format!(
                    "view '{name}' has no cluster key: ALTER MATERIALIZED VIEW {name} CLUSTER BY (...) gives it one"
                );
                return Err(Error::mysql(1105, text));
            }
        }
        check_stored(&definition)?;
        let manifests = load_manifests(&self.shared.store, definition.id(), now).await?;
        let states = manifests.iter().filter(|(_, manifest)| manifest.n_tiers() > 1);
        let states = states.map(|(number, _)| *number).collect();
        Ok(self.spawn_compaction(definition, kind, false, &manifests, states, now.physical_ms()))
    }

    fn spawn_compaction(
        &self,
        definition: Arc<TableDefinition>,
        kind: MaintenanceKind,
        automatic: bool,
        manifests: &BTreeMap<u32, Manifest>,
        states: BTreeSet<u32>,
        now_ms: u64,
    ) -> JoinHandle<Result<Maintained>> {
        let status = begun(&definition, kind, automatic, manifests, now_ms);
        let (number, cancel) = self.shared.maintenance.begin(status, None);
        let runtime = self.clone();
        let task = async move {
            let stopped = runtime.shared.supervisor.token();
            let outcome = tokio::select! {
                biased;
                () = stopped.cancelled() => Err(Error::closed("the server shuts down")),
                () = cancel.cancelled() => Err(Error::mysql(1105, "it was cancelled")),
                outcome = runtime.compact(&definition, kind, automatic, states, number) => outcome,
            };
            let (stored, error) = (definition.id(), outcome.as_ref().err());
            runtime.end(number, &definition, stored, cancel.is_cancelled(), error).await;
            outcome
        };
        self.shared.supervisor.spawn(format!("maintenance task {number}"), task)
    }

    /// One compaction, step by step. Dropped anywhere it leaves the view as it is.
    async fn compact(
        &self,
        definition: &TableDefinition,
        kind: MaintenanceKind,
        automatic: bool,
        states: BTreeSet<u32>,
        number: u64,
    ) -> Result<Maintained> {
        let shared = &self.shared;
        shared.pass("runtime::maintenance_begun")?;
        let n_states = states.len();
        let at_once = matches!(kind, MaintenanceKind::Recluster { at_once: true });
        let steps: Vec<BTreeSet<u32>> = if at_once && n_states > 0 {
            vec![states]
        } else {
            states.into_iter().map(|state| BTreeSet::from([state])).collect()
        };
        // What follows the merges counts as one step.
        let n_steps = steps.len() as f64 + 1.0;
        let n_bytes_max = if at_once { usize::MAX } else { shared.options.compact_step_bytes };
        for (done, states) in steps.into_iter().enumerate() {
            let mut merged = Merged::Part;
            while merged == Merged::Part {
                let merging = self.merge_states(definition.id(), &states, n_bytes_max);
                if automatic {
                    // It is found again; other views need not wait for a job that does not get on.
                    let limit_ms = shared.options.idle_interval_ms.saturating_mul(AUTOMATIC_IDLE_INTERVALS);
                    let outcome = tokio::time::timeout(Duration::from_millis(limit_ms), merging).await;
                    let late = |_| Err(Error::unavailable("the view's job decided no epoch in time"));
                    merged = outcome.unwrap_or_else(late)?;
                } else {
                    merged = merging.await?;
                }
            }
            let percent = 100.0 * (done as f64 + 1.0) / n_steps;
            shared.maintenance.edit(number, |status| status.percent = percent);
        }
        shared.pass("runtime::maintenance_merged")?;
        let mut reclaimed = false;
        if !automatic {
            // The regular passes do so too, a little later.
            collect::pass(shared).await?;
            if at_once {
                reclaimed = shared.store.compact().await?;
            }
        }
        shared.pass("runtime::maintenance_collected")?;
        Ok(Maintained { n_states, reclaimed })
    }

    /// Has states of a view merged a step further at the next barrier of its job; asks again while that comes
    /// to nothing.
    async fn merge_states(
        &self,
        view: TableId,
        states: &BTreeSet<u32>,
        n_bytes_max: usize,
    ) -> Result<Merged> {
        loop {
            let now = self.shared.store.read_timestamp().await?;
            let catalog = self.shared.catalog_at(now).await?;
            let definition = catalog.tables.get(&view);
            let definition = definition.ok_or_else(|| {
                Error::mysql(1105, "the view was dropped, or built anew, before its runs were merged")
            })?;
            check_stored(definition)?;
            // Only the receiver is kept: a job that ends drops its door, and what was asked at it.
            let door = self.door_of(view_of(definition)?.job).await?;
            let merging = door.map(|door| door.compact(view, states.clone(), n_bytes_max));
            if let Some(merging) = merging
                && let Ok(merged @ (Merged::Part | Merged::All)) = merging.await
            {
                return Ok(merged);
            }
            tokio::time::sleep(Duration::from_millis(ASK_AGAIN_MS)).await;
        }
    }

    /// Has the store rewrite what it keeps when tasks are over, whatever became of them: whether it did. Goes
    /// on if nobody waits for it.
    #[must_use]
    pub fn reclaim(&self, after: Vec<JoinHandle<Result<Maintained>>>) -> JoinHandle<Result<bool>> {
        let shared = Arc::clone(&self.shared);
        let task = async move {
            let stopped = shared.supervisor.token();
            let work = async {
                for task in after {
                    // It has a row of its own that says how it ended.
                    drop(task.await);
                }
                shared.store.compact().await
            };
            tokio::select! {
                biased;
                () = stopped.cancelled() => Err(Error::closed("the server shuts down")),
                reclaimed = work => reclaimed,
            }
        };
        self.shared.supervisor.spawn("reclaim of space".to_owned(), task)
    }

    /// Notes that a task is over, and what it leaves stored under an id.
    async fn end(
        &self,
        number: u64,
        definition: &TableDefinition,
        stored: TableId,
        cancelled: bool,
        error: Option<&Error>,
    ) {
        let now = self.shared.store.read_timestamp().await;
        let (now_ms, after) = match (now, error) {
            (Ok(now), None) => {
                // The task is over even if it cannot be measured.
                let manifests = load_manifests(&self.shared.store, stored, now).await.ok();
                (Some(now.physical_ms()), manifests.as_ref().map(sizes))
            }
            (now, _) => (now.ok().map(types::Timestamp::physical_ms), None),
        };
        if let Some(error) = error.filter(|error| error.kind() != ErrorKind::Closed) {
            tracing::warn!(task = number, view = definition.full_name(), %error, "maintenance ended early");
        }
        self.shared.maintenance.edit(number, |status| {
            status.state = match error {
                None => "done",
                Some(_) if cancelled => "cancelled",
                Some(_) => "failed",
            };
            if error.is_none() {
                status.percent = 100.0;
            }
            status.ended_ms = now_ms.or(Some(status.began_ms));
            status.runs.1 = after.map(|(runs, _)| runs);
            status.bytes.1 = after.map(|(_, bytes)| bytes);
            status.error = error.map(ToString::to_string);
        });
    }

    /// Follows the fill of a view that gets another order until it is swapped in. No refresh has its turn
    /// meanwhile.
    pub(crate) fn watch_clustering(
        &self,
        definition: &Arc<TableDefinition>,
        copy: TableId,
        status: MaintenanceStatus,
        turn: Option<OwnedMutexGuard<()>>,
    ) -> JoinHandle<Result<()>> {
        let (runtime, definition) = (self.clone(), Arc::clone(definition));
        let (number, cancel) = self.shared.maintenance.begin(status, Some(copy));
        let task = async move {
            let outcome = runtime.wait_published(copy).await;
            drop(turn);
            let error = outcome.as_ref().err();
            runtime.end(number, &definition, copy, cancel.is_cancelled(), error).await;
            outcome
        };
        self.shared.supervisor.spawn(format!("maintenance task {number}"), task)
    }

    /// The rows of `tidemill.maintenance`: what runs, and the newest that is over since the server's start.
    ///
    /// # Errors
    /// What the store says.
    pub async fn maintenance(&self) -> Result<Vec<MaintenanceStatus>> {
        let snapshot = Snapshot::newest(Arc::clone(&self.shared.store)).await?;
        let catalog = self.shared.catalog_at(snapshot.ts()).await?;
        let mut rows: Vec<MaintenanceStatus> = Vec::new();
        let mut followed = BTreeSet::new();
        for task in self.shared.maintenance.tasks().iter() {
            followed.extend(task.copy);
            rows.push(task.status.clone());
        }
        // A fill outlives the process that began it.
        for (id, definition, view) in catalog.views() {
            let old = view.replaces.and_then(|old| catalog.tables.get(&old)?.view.as_ref());
            let clusters = old.is_some_and(|old| copying(old, definition) == Some(Copying::Cluster));
            if clusters && !followed.contains(&id) {
                let began_ms = view.created_ts.physical_ms();
                rows.push(begun(definition, MaintenanceKind::Cluster, false, &BTreeMap::new(), began_ms));
            }
        }
        Ok(rows)
    }
}

/// The row of a task that begins.
pub(crate) fn begun(
    definition: &TableDefinition,
    kind: MaintenanceKind,
    automatic: bool,
    manifests: &BTreeMap<u32, Manifest>,
    began_ms: u64,
) -> MaintenanceStatus {
    let (runs, bytes) = sizes(manifests);
    MaintenanceStatus {
        task: 0,
        table: definition.id(),
        database: definition.database.clone(),
        name: definition.info.name.clone(),
        kind,
        automatic,
        state: "running",
        began_ms,
        ended_ms: None,
        percent: 0.0,
        runs: (runs, None),
        bytes: (bytes, None),
        error: None,
    }
}

/// Runs and bytes of states.
fn sizes(manifests: &BTreeMap<u32, Manifest>) -> (u64, u64) {
    let runs = manifests.values().map(|manifest| manifest.runs.len() as u64).sum();
    (runs, manifests.values().map(|manifest| manifest.n_bytes().0).sum())
}
