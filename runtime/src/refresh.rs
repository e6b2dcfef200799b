//! Refreshes: which way a view is brought up to date, who asks its job for it, and the schedules.
//!
//! A refresh up to T is one epoch of the view's own job with the cut T. What it does is chosen by what
//! changed in (S, T]: nothing, only insertions, anything, or so much (or history that is gone) that the view
//! is rather built anew beside the old one, which the job then adopts.

mod alter;
mod changed;
mod schedule;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use sql::catalog::{Catalog, CatalogChange, Refresh, TableDefinition, ViewDefinition, ViewState};
use sql::{RefreshKind, Settings};
use store::{KeyRange, Snapshot};
use tokio_util::sync::CancellationToken;
use types::{Error, ErrorKind, JobId, Result, TableId, Timestamp};

use crate::board::Request;
use crate::ddl::{commit_ddl, require_view};
use crate::rebuild::Past;
use crate::records::{RefreshRecord, read_epoch_record};
use crate::worker::view_of;
use crate::{RefreshPath, Runtime};
use changed::{Looks, changed};

/// A change costs about as much as so many rows of a full refresh.
const CHANGE_COST_ROWS: u64 = 3;
/// Up to so many changes no estimate is needed.
const CHANGES_FEW: u64 = 10_000;
/// How often somebody who needs a job that is about to start looks for it.
const DOOR_EVERY_MS: u64 = 2;
/// How often a waiter looks whether the refresh that it waits for was given up.
const WAIT_EVERY_MS: u64 = 100;

pub(crate) use changed::Changed;
pub(crate) use schedule::schedule;
pub(crate) use turns::{Copying, Refreshing, copying};

/// What a refresh would do, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefreshPlan {
    /// How.
    pub path: RefreshPath,
    /// Why so.
    pub reason: String,
    /// Where the view is now; `None` if it was never refreshed.
    pub cut: Option<Timestamp>,
    /// Where the refresh takes it.
    pub to: Timestamp,
    /// Changes of the base tables in between; a lower bound if they were too many to count.
    pub n_changes: u64,
    /// Rows of the base tables after it, as far as they are known.
    pub source_rows: u64,
}

/// What a refresh did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refreshed {
    /// The view, which is a new one after a full refresh.
    pub view: TableId,
    /// What was recorded with it.
    pub record: RefreshRecord,
}

/// A row of `tidemill.refreshes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefreshStatus {
    /// The view.
    pub view: TableId,
    /// When it is refreshed.
    pub refresh: Refresh,
    /// Whether it is suspended.
    pub suspended: bool,
    /// `idle`, `running` or `suspended`.
    pub state: &'static str,
    /// The last refresh.
    pub last: Option<RefreshRecord>,
    /// When its schedule is due, in milliseconds of the store's clock.
    pub next_ms: Option<u64>,
    /// Why the last attempt failed.
    pub error: Option<String>,
}

/// Where a view's base tables are between two timestamps.
enum Sources {
    /// In these ranges.
    Same(Vec<KeyRange>),
    /// TiDB changed one: what happened.
    Changed(String),
}

impl Runtime {
    /// Brings a view that works by refreshes up to a timestamp (now without one), and returns when that is
    /// committed. Refreshes of one view wait for each other.
    ///
    /// Cancel safe: what has begun goes on.
    ///
    /// # Errors
    /// MySQL 1146, 1347; 1105 for views that are continuous, suspended, faulted or being filled, for a
    /// timestamp that is not in (cut, now], and for a refresh that was cancelled or whose data is wrong.
    pub async fn refresh_view(
        &self,
        database: &str,
        name: &str,
        kind: RefreshKind,
        as_of: Option<Timestamp>,
    ) -> Result<Refreshed> {
        let began_ms = self.shared.store.read_timestamp().await?.physical_ms();
        let turn = {
            let (_, definition) = self.view_now(database, name).await?;
            self.shared.refreshing.turn(view_of(&definition)?.job)
        };
        let turn = turn.lock_owned().await;
        // A task of its own has the turn, whoever waits for it: what has begun must not lose it.
        let (runtime, database, name) = (self.clone(), database.to_owned(), name.to_owned());
        let task_name = format!("refresh of {database}.{name}");
        let task = async move {
            let _turn = turn;
            let (now, definition) = runtime.view_now(&database, &name).await?;
            let plan = runtime.plan_of(&definition, kind, as_of, now, Looks::Keys).await?;
            let outcome = if is_cure(view_of(&definition)?, kind, as_of) {
                runtime.cure(&database, &name).await
            } else {
                runtime.carry_out(&definition, &plan, began_ms).await
            };
            if let Err(error) = &outcome {
                runtime.shared.refreshing.note(definition.id(), Some(error.to_string()));
            }
            outcome
        };
        let refreshed = self.shared.supervisor.spawn(task_name, task).await;
        refreshed.unwrap_or_else(|error| Err(Error::unavailable(format!("cancelled: {error}"))))
    }

    /// What a refresh would do now.
    ///
    /// # Errors
    /// As [`Runtime::refresh_view`].
    pub async fn plan_refresh(
        &self,
        database: &str,
        name: &str,
        kind: RefreshKind,
        as_of: Option<Timestamp>,
    ) -> Result<RefreshPlan> {
        let (now, definition) = self.view_now(database, name).await?;
        self.plan_of(&definition, kind, as_of, now, Looks::Values).await
    }

    async fn view_now(&self, database: &str, name: &str) -> Result<(Timestamp, Arc<TableDefinition>)> {
        let now = self.shared.store.read_timestamp().await?;
        let catalog = self.shared.catalog_at(now).await?;
        Ok((now, Arc::clone(require_view(&catalog, database, name)?)))
    }

    async fn plan_of(
        &self,
        definition: &TableDefinition,
        kind: RefreshKind,
        as_of: Option<Timestamp>,
        now: Timestamp,
        looks: Looks,
    ) -> Result<RefreshPlan> {
        let view = view_of(definition)?;
        let to = as_of.unwrap_or(now);
        if is_cure(view, kind, as_of) {
            let (path, reason) = (RefreshPath::Full, "the view is faulted".to_owned());
            return Ok(RefreshPlan { path, reason, cut: None, to, n_changes: 0, source_rows: 0 });
        }
        check_refreshable(definition, view)?;
        let unfilled = view.state == ViewState::Unfilled;
        let snapshot = Snapshot::new(Arc::clone(&self.shared.store), now);
        let record = read_epoch_record(&snapshot, view.job).await?;
        let record = record.ok_or_else(|| Error::corrupt(format!("job {} has no epoch record", view.job)))?;
        let cut = record.cut;
        if to > now || to < cut || (as_of.is_some() && to == cut) {
            let name = definition.full_name();
            return Err(Error::mysql(
                1105,
                format!("view '{name}' can be refreshed to a timestamp in ({cut}, {now}], not to {to}"),
            ));
        }
        let plan = RefreshPlan {
            path: RefreshPath::Full,
            reason: String::new(),
            cut: (!unfilled).then_some(cut),
            to,
            n_changes: 0,
            source_rows: 0,
        };
        if unfilled {
            return Ok(RefreshPlan { reason: "it is the first refresh".to_owned(), ..plan });
        }
        let last = RefreshRecord::read(&snapshot, definition.id()).await?;
        let source_rows = last.map(|last| last.source_rows);
        match self.sources_between(view, cut, to).await? {
            Sources::Same(ranges) => self.choose(&ranges, kind, plan, source_rows, looks).await,
            Sources::Changed(reason) if kind == RefreshKind::Incremental => {
                Err(Error::mysql(1105, format!("{reason}: REFRESH ... FULL")))
            }
            Sources::Changed(reason) => {
                Ok(RefreshPlan { reason, source_rows: source_rows.unwrap_or(0), ..plan })
            }
        }
    }

    /// Where a view's base tables are from one timestamp to another, unless TiDB changed one in between.
    async fn sources_between(
        &self,
        view: &ViewDefinition,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Sources> {
        let after = self.shared.catalog_at(to).await?;
        if !after.reads_foreign(&view.base_tables) {
            return Ok(Sources::Same(after.base_ranges(view)?));
        }
        let before = match self.shared.catalog_at(from).await {
            Ok(before) => before,
            Err(error) if error.is_history_gone() => {
                return Ok(Sources::Changed("the history since the view's cut is gone".to_owned()));
            }
            Err(error) => return Err(error),
        };
        let settings = Settings { database: None, ..Settings::default() }.with_view(&view.settings);
        let planned = after.with_foreign_of(&before)?;
        let bound = planned.bound_to(view);
        let used = self.shared.options.planner.plan_view(&bound, &view.query, &view.columns, &settings);
        let used = match used {
            Ok(plan) if plan.fingerprint == view.fingerprint => plan.used_columns(),
            Ok(_) => return Ok(Sources::Changed("a view that it reads has other columns".to_owned())),
            Err(error) if error.kind() == ErrorKind::Invalid => {
                return Ok(Sources::Changed(error.message().to_owned()));
            }
            Err(error) => return Err(error),
        };
        Ok(match after.changes_since(&before, &view.base_tables, &used) {
            Some(reason) => Sources::Changed(reason),
            None => Sources::Same(planned.base_ranges(view)?),
        })
    }

    /// Chooses by what changed. Of values that are not looked at nothing is known: such changes may be any.
    async fn choose(
        &self,
        ranges: &[KeyRange],
        kind: RefreshKind,
        plan: RefreshPlan,
        source_rows: Option<u64>,
        looks: Looks,
    ) -> Result<RefreshPlan> {
        let known_rows = source_rows.unwrap_or(0);
        let most = match (kind, source_rows) {
            (RefreshKind::Incremental, _) | (_, None) => u64::MAX,
            (_, Some(rows)) => (rows / CHANGE_COST_ROWS).max(CHANGES_FEW),
        };
        let from = plan.cut.unwrap_or_default();
        let changed = match changed(&self.shared.store, ranges, from, plan.to, most, looks).await? {
            Some(changed) => changed,
            None if kind == RefreshKind::Incremental => {
                return Err(Error::mysql(1105, "the history since the view's cut is gone: REFRESH ... FULL"));
            }
            None => {
                let reason = "the history since the view's cut is gone".to_owned();
                return Ok(RefreshPlan { reason, source_rows: known_rows, ..plan });
            }
        };
        let n_changes = changed.n_changes;
        let plan = RefreshPlan { n_changes, source_rows: changed.rows_after(known_rows), ..plan };
        if kind == RefreshKind::Full {
            return Ok(RefreshPlan { reason: "it was asked for".to_owned(), ..plan });
        }
        if n_changes > most {
            let reason =
                format!("more than {most} changes cost more than reading {known_rows} rows of the tables");
            return Ok(RefreshPlan { reason, ..plan });
        }
        let (path, reason) = changed.path();
        Ok(RefreshPlan { path, reason, ..plan })
    }

    async fn carry_out(
        &self,
        definition: &Arc<TableDefinition>,
        plan: &RefreshPlan,
        began_ms: u64,
    ) -> Result<Refreshed> {
        let id = definition.id();
        let job = view_of(definition)?.job;
        let door = self
            .door_of(job)
            .await?
            .ok_or_else(|| Error::mysql(1105, "the view was dropped, or is maintained in another way now"))?;
        let request = Request {
            to: plan.to,
            path: plan.path,
            reason: plan.reason.clone(),
            began_ms,
            source_rows: plan.source_rows,
            cancel: CancellationToken::new(),
        };
        door.ask(request.clone());
        let view = if plan.path == RefreshPath::Full {
            let outcome = self.rebuild(definition, plan.to, &request.cancel).await;
            door.finish(plan.to);
            outcome?
        } else {
            self.wait_refreshed(id, job, &request).await?
        };
        let snapshot = Snapshot::newest(Arc::clone(&self.shared.store)).await?;
        let record = RefreshRecord::read(&snapshot, view).await?;
        let record =
            record.ok_or_else(|| Error::corrupt(format!("refresh of view {view} left no record")))?;
        self.shared.refreshing.note(id, None);
        Ok(Refreshed { view, record })
    }

    /// A full refresh of a view that stopped at a fault: what RESUME does.
    async fn cure(&self, database: &str, name: &str) -> Result<Refreshed> {
        let change = self.resume_view(database, name, false).await?;
        let created = change.created.ok_or_else(|| Error::corrupt("a rebuild creates a view"))?;
        let view = created.id();
        let snapshot = Snapshot::newest(Arc::clone(&self.shared.store)).await?;
        let record = RefreshRecord::read(&snapshot, view).await?;
        let record =
            record.ok_or_else(|| Error::corrupt(format!("refresh of view {view} left no record")))?;
        Ok(Refreshed { view, record })
    }

    /// The door of a job that the director starts, or has started; `None` if it maintains no view any more.
    ///
    /// # Errors
    /// `Closed` at shutdown; what the store says.
    pub(crate) async fn door_of(&self, job: JobId) -> Result<Option<Arc<crate::board::JobDoor>>> {
        let token = self.shared.supervisor.token();
        loop {
            if let Some(door) = self.shared.board.door(job) {
                return Ok(Some(door));
            }
            let now = self.shared.store.read_timestamp().await?;
            let catalog = self.shared.catalog_at(now).await?;
            if !catalog.views().any(|(_, _, view)| view.job == job) {
                return Ok(None);
            }
            self.shared.catalog_changed();
            tokio::select! {
                () = token.cancelled() => return Err(Error::closed("the server shuts down")),
                () = tokio::time::sleep(Duration::from_millis(DOOR_EVERY_MS)) => {}
            }
        }
    }

    /// A full refresh: the copy that is adopted.
    async fn rebuild(
        &self,
        definition: &TableDefinition,
        to: Timestamp,
        cancel: &CancellationToken,
    ) -> Result<TableId> {
        let past = self.past_of(definition, Some(to)).await?;
        let make = |catalog: &Catalog, now: Timestamp| {
            let mut change = self.rebuilt(catalog, definition.id(), now, &past, |_| ())?;
            change.fill_at = Some(to);
            Ok(change)
        };
        let change = commit_ddl(&self.shared, &make).await?;
        let created = change.created.ok_or_else(|| Error::corrupt("a rebuild creates a view"))?;
        let id = created.id();
        let published = tokio::select! {
            published = self.wait_published(id) => Some(published),
            // CANCEL came before the copy was there, or it would have given it up itself.
            () = cancel.cancelled() => None,
        };
        match published {
            Some(published) => published?,
            None => {
                self.shared.fill_failed(id, "the fill was cancelled".to_owned());
                self.abandon(id).await?;
                self.wait_published(id).await?;
            }
        }
        Ok(id)
    }

    /// The change of the catalog that begins to build a view anew.
    pub(crate) fn rebuilt(
        &self,
        catalog: &Catalog,
        id: TableId,
        now: Timestamp,
        past: &Past,
        change: impl FnOnce(&mut sql::catalog::NewView),
    ) -> Result<CatalogChange> {
        let planned = past.of(catalog)?;
        let definition = planned.tables.get(&id).ok_or_else(|| Error::mysql(1146, "the view was dropped"))?;
        let view = view_of(definition)?;
        let bound = planned.bound_to(view);
        let settings = Settings { database: None, now, ..Settings::default() }.with_view(&view.settings);
        let plan = self.shared.options.planner.plan_view(&bound, &view.query, &view.columns, &settings)?;
        catalog.rebuild_view(id, &plan, now, change)
    }

    /// Waits for a refresh: the view that it refreshed, which is a new one if the rows got another order.
    async fn wait_refreshed(&self, id: TableId, job: JobId, request: &Request) -> Result<TableId> {
        let token = self.shared.supervisor.token();
        loop {
            // Looked at first: what is decided until it is seen to be over is seen below, and what is decided
            // after it is read ends the wait.
            let door = self.shared.board.door(job);
            let frontier = door.as_ref().map(|door| door.frontier.subscribe());
            let is_over = door
                .as_ref()
                .is_none_or(|door| door.requested().is_none_or(|pending| pending.to != request.to));
            let now = self.shared.store.read_timestamp().await?;
            let catalog = self.shared.catalog_at(now).await?;
            let swapped_in = || {
                let mut views = catalog.views();
                let found = views.find(|(_, _, view)| view.job == job && view.replaces.is_none());
                found.map(|(_, definition, _)| definition)
            };
            let Some(definition) = catalog.tables.get(&id).or_else(swapped_in) else {
                return Err(Error::mysql(1105, "the view was dropped while it was refreshed"));
            };
            if let ViewState::Faulted { reason, .. } = &view_of(definition)?.state {
                return Err(Error::mysql(1105, format!("the view faulted: {reason}")));
            }
            let snapshot = Snapshot::new(Arc::clone(&self.shared.store), now);
            let record = read_epoch_record(&snapshot, job).await?;
            if record.is_some_and(|record| record.cut >= request.to) {
                return Ok(definition.id());
            }
            let Some(mut frontier) = frontier.filter(|_| !is_over) else {
                let error = self.shared.board.view(job, id).and_then(|known| known.last_error);
                let why = error.filter(|_| !request.cancel.is_cancelled());
                let why = why.unwrap_or_else(|| "it was cancelled".to_owned());
                return Err(Error::mysql(1105, format!("the refresh came to nothing: {why}")));
            };
            tokio::select! {
                () = token.cancelled() => return Err(Error::closed("the server shuts down")),
                changed = frontier.changed() => drop(changed),
                () = tokio::time::sleep(Duration::from_millis(WAIT_EVERY_MS)) => {}
            }
        }
    }

    /// The rows of `tidemill.refreshes`: views that work by refreshes, and suspended ones.
    ///
    /// # Errors
    /// What the store says.
    pub async fn refreshes(&self) -> Result<Vec<RefreshStatus>> {
        let snapshot = Snapshot::newest(Arc::clone(&self.shared.store)).await?;
        let catalog = self.shared.catalog_at(snapshot.ts()).await?;
        let mut rows = Vec::new();
        for (id, _, view) in catalog.views() {
            if view.replaces.is_some() || !view.has_own_job() {
                continue;
            }
            let last = RefreshRecord::read(&snapshot, id).await?;
            let asked = self.shared.board.door(view.job).is_some_and(|door| door.requested().is_some());
            // A full one outlives the process that was asked for it.
            let running = asked || catalog.replacement_of(id).is_some_and(|copy| is_refresh_of(view, copy));
            rows.push(RefreshStatus {
                view: id,
                refresh: view.refresh,
                suspended: view.suspended,
                state: match (running, view.suspended) {
                    (true, _) => "running",
                    (false, true) => "suspended",
                    (false, false) => "idle",
                },
                next_ms: due_ms(view, last.as_ref()),
                last,
                error: self.shared.refreshing.error(id),
            });
        }
        Ok(rows)
    }
}

/// Whether a copy is what a full refresh of a view builds.
fn is_refresh_of(view: &ViewDefinition, copy: &TableDefinition) -> bool {
    view.refresh.is_by_refresh() && copying(view, copy) == Some(Copying::Rebuild)
}

/// When a view's schedule is due: an interval after the last refresh began, at once without one.
fn due_ms(view: &ViewDefinition, last: Option<&RefreshRecord>) -> Option<u64> {
    match view.refresh {
        Refresh::Every(interval_ms) if !view.suspended => {
            Some(last.map_or(view.created_ts.physical_ms(), |last| last.began_ms.saturating_add(interval_ms)))
        }
        _ => None,
    }
}

/// Whether a refresh is to build a view anew that stopped at a fault.
fn is_cure(view: &ViewDefinition, kind: RefreshKind, as_of: Option<Timestamp>) -> bool {
    let is_faulted = matches!(view.state, ViewState::Faulted { .. });
    is_faulted
        && kind == RefreshKind::Full
        && as_of.is_none()
        && view.refresh.is_by_refresh()
        && !view.suspended
}

fn check_refreshable(definition: &TableDefinition, view: &ViewDefinition) -> Result<()> {
    let name = definition.full_name();
    let refused = |text: String| Err(Error::mysql(1105, text));
    if view.suspended {
        return refused(format!("view '{name}' is suspended: ALTER MATERIALIZED VIEW {name} RESUME first"));
    }
    if !view.refresh.is_by_refresh() {
        return refused(format!("view '{name}' is continuous: its job keeps it up to date"));
    }
    match &view.state {
        ViewState::Ready | ViewState::Unfilled => Ok(()),
        ViewState::Filling => refused(format!("view '{name}' is still being filled")),
        ViewState::Faulted { reason, .. } => {
            let cure =
                format!("ALTER MATERIALIZED VIEW {name} RESUME rebuilds it, and REFRESH ... FULL does");
            refused(format!("view '{name}' is faulted ({reason}): {cure}"))
        }
    }
}
