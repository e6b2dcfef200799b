//! Which path each view of a statement is read on.
//!
//! ```text
//! filling or faulted   stale: an error          else: Live
//! stale                the stored rows at T, which are Q at S_k
//! wait                 nothing changed in (S_k, T]: stored rows at T; else a later cut: rows at C_k, tables at S_k
//! fresh                nothing changed: Fresh; few changes: Hybrid; else, or if the read fix cannot run: Live
//! ```
//! Whatever the path, the answer is the same: that of the view's query at one timestamp.

use std::collections::BTreeSet;
use std::sync::Arc;

use source::{Source, TableDelta, TableSource};
use sql::catalog::{TableDefinition, ViewDefinition, ViewState};
use store::KeyRange;
use types::records::{EpochRecord, epoch_record_key};
use types::{Error, ErrorKind, JobId, Result, Timestamp};

use crate::hooks::Waited;
use crate::names::{Route, Scope, StoredRows};
use crate::table::table_range;
use crate::transaction::{Writes, writes_in};
use crate::{Engine, PathChoice, ReadMode, ReadPath, ViewPath};

/// Changes a page.
const PAGE_CHANGES: usize = 4096;

/// A view with its route.
type Routed = (Arc<TableDefinition>, Route);

/// What is known about a view before its path is chosen.
pub(crate) struct Candidate<'a> {
    pub(crate) definition: &'a Arc<TableDefinition>,
    pub(crate) view: &'a ViewDefinition,
    pub(crate) record: EpochRecord,
    /// The base tables' records.
    pub(crate) ranges: Vec<KeyRange>,
}

/// The changes of a view's base tables since its checkpoint.
enum Changed {
    Nothing,
    Few(Vec<TableDelta>, u64),
    Many,
    Gone(String),
}

impl Engine {
    /// Decides for all views of a statement, which are read at one timestamp (G6).
    pub(crate) async fn decide_all(
        &self,
        scope: Scope,
        views: Vec<Arc<TableDefinition>>,
        in_transaction: bool,
    ) -> Result<(Scope, Vec<Routed>, Vec<ViewPath>)> {
        if scope.session.mode == ReadMode::Wait
            && !in_transaction
            && scope.session.snapshot.is_none()
            && let Some(job) = one_ready_job(&views)
            && let Some(waited) = self.wait(&scope, &views, job).await?
        {
            return self.decide_waited(scope, views, waited).await;
        }
        let mut routes = Vec::with_capacity(views.len());
        let mut paths = Vec::with_capacity(views.len());
        for definition in views {
            let (path, route) = self.decide(&scope, &definition).await?;
            paths.push(path);
            routes.push((definition, route));
        }
        Ok((scope, routes, paths))
    }

    async fn decide(&self, scope: &Scope, definition: &Arc<TableDefinition>) -> Result<(ViewPath, Route)> {
        let name = definition.full_name();
        let view = view_of(definition)?;
        let stale = scope.session.mode == ReadMode::Stale;
        match &view.state {
            ViewState::Filling if stale => {
                Err(Error::mysql(1105, format!("view '{name}' is being filled and has no stale answer yet")))
            }
            ViewState::Unfilled if stale => Err(Error::mysql(
                1105,
                format!("view '{name}' has never been refreshed and has no stale answer yet"),
            )),
            ViewState::Faulted { reason, .. } if stale => {
                Err(Error::mysql(1105, format!("view '{name}' is faulted: {reason}")))
            }
            ViewState::Filling => Ok(live(scope, name, None, "the view is being filled")),
            ViewState::Unfilled => Ok(live(scope, name, None, "the view has never been refreshed")),
            ViewState::Faulted { reason, .. } => {
                Ok(live(scope, name, None, format!("the view is faulted: {reason}")))
            }
            ViewState::Ready => {
                let Some(record) = self.epoch_record(view.job, scope.at).await? else {
                    return if stale {
                        Err(Error::corrupt(format!("view '{name}' has no checkpoint")))
                    } else {
                        Ok(live(scope, name, None, "the view's job has no checkpoint"))
                    };
                };
                let ranges = base_ranges(scope, view)?;
                self.decide_ready(scope, Candidate { definition, view, record, ranges }).await
            }
        }
    }

    async fn decide_ready(&self, scope: &Scope, candidate: Candidate<'_>) -> Result<(ViewPath, Route)> {
        let name = candidate.definition.full_name();
        let cut = candidate.record.cut;
        if scope.session.mode == ReadMode::Stale && cut >= scope.session.oldest_cut(scope.at) {
            return Ok(stored(scope, name, ReadPath::Stale, cut, cut, "rows of the checkpoint"));
        }
        if scope.session.mode == ReadMode::Live || scope.session.path == PathChoice::Live {
            return Ok(live(scope, name, Some(cut), "it was asked for"));
        }
        let own = candidate.ranges.iter().any(|range| writes_in(&scope.writes, range).next().is_some());
        let (changes, n_changes) = match self.changed(scope, &candidate).await? {
            Changed::Gone(reason) => return Ok(live(scope, name, Some(cut), reason)),
            Changed::Many => {
                let max = self.options().hybrid_changes_max;
                return Ok(live(scope, name, Some(cut), format!("more than {max} changes since the cut")));
            }
            Changed::Nothing if !own && scope.session.path != PathChoice::Hybrid => {
                return Ok(stored(
                    scope,
                    name,
                    ReadPath::Fresh,
                    cut,
                    scope.at,
                    "nothing changed since the cut",
                ));
            }
            Changed::Nothing => (Vec::new(), 0),
            Changed::Few(changes, n_changes) => (changes, n_changes),
        };
        match self.read_fix(scope, &candidate, changes).await {
            Ok(rows) => {
                let with = if own { " and the transaction's own writes" } else { "" };
                let reason = format!("{n_changes} changes since the cut{with}");
                let (path, _) = stored(scope, name, ReadPath::Hybrid, cut, scope.at, reason);
                Ok((path, Some(rows)))
            }
            // What the read fix cannot do the query over the base tables can, or fails for the same reason.
            Err(error) if error.kind() == ErrorKind::Invalid => {
                Ok(live(scope, name, Some(cut), format!("the read fix cannot run: {error}")))
            }
            Err(error) => Err(error.context(format!("read fix of view '{name}'"))),
        }
    }

    /// The changes of the base tables in (S_k, T].
    async fn changed(&self, scope: &Scope, candidate: &Candidate<'_>) -> Result<Changed> {
        if scope.at <= candidate.record.cut {
            return Ok(Changed::Nothing);
        }
        let max = self.options().hybrid_changes_max as u64;
        let source = self.source(scope, candidate.view)?;
        let mut changes = Vec::new();
        let (mut n_changes, mut cursor) = (0, None);
        // The first page is small: mostly there is nothing, or it costs one change to know better.
        let mut limit = 64;
        loop {
            let page = match source.read_changes(candidate.record.cut, scope.at, cursor, limit).await {
                Ok(page) => page,
                Err(error) if error.is_history_gone() => {
                    return Ok(Changed::Gone(error.to_string()));
                }
                Err(error) => return Err(error),
            };
            if let Some(fault) = page.faults.first() {
                return Ok(Changed::Gone(format!("a change cannot be decoded: {}", fault.reason)));
            }
            n_changes += page.n_changes;
            changes.extend(page.deltas);
            if n_changes > max && scope.session.path != PathChoice::Hybrid {
                return Ok(Changed::Many);
            }
            cursor = page.next;
            limit = PAGE_CHANGES;
            if cursor.is_none() {
                break;
            }
        }
        Ok(if n_changes == 0 { Changed::Nothing } else { Changed::Few(changes, n_changes) })
    }

    /// The view's base tables as a source, with all their columns.
    fn source(&self, scope: &Scope, view: &ViewDefinition) -> Result<TableSource> {
        let table = |id| {
            let table = scope.catalog.tables.get(id);
            let table = table.ok_or_else(|| Error::corrupt(format!("no base table {id}")))?;
            let columns = (0..table.info.columns.len()).collect();
            Ok((Arc::new(table.info.clone()), columns))
        };
        let tables = view.base_tables.iter().map(table).collect::<Result<Vec<_>>>()?;
        TableSource::new(Arc::clone(self.store()), tables)
    }

    /// The epoch record of a job at a timestamp.
    pub(crate) async fn epoch_record(&self, job: JobId, at: Timestamp) -> Result<Option<EpochRecord>> {
        let bytes = crate::snapshot::get(self.store(), at, &epoch_record_key(job)).await?;
        bytes.map(|bytes| EpochRecord::decode(&bytes)).transpose()
    }

    /// Waits for the job, unless nothing of the views changed up to T; `None`: read fresh.
    async fn wait(
        &self,
        scope: &Scope,
        views: &[Arc<TableDefinition>],
        job: JobId,
    ) -> Result<Option<Waited>> {
        let Some(record) = self.epoch_record(job, scope.at).await? else { return Ok(None) };
        let mut ranges = Vec::new();
        for definition in views {
            ranges.extend(base_ranges(scope, view_of(definition)?)?);
        }
        let idle = scope.at <= record.cut
            || match self.store().changes(&ranges, record.cut, scope.at, None, 1).await {
                Ok(page) => page.changes.is_empty() && page.next.is_none(),
                Err(error) if error.is_history_gone() => false,
                Err(error) => return Err(error),
            };
        if idle {
            return Ok(Some(Waited::Idle));
        }
        self.waiter().wait_cut(job, scope.at).await
    }

    async fn decide_waited(
        &self,
        scope: Scope,
        views: Vec<Arc<TableDefinition>>,
        waited: Waited,
    ) -> Result<(Scope, Vec<Routed>, Vec<ViewPath>)> {
        let (cut, commit, reason) = match waited {
            Waited::Epoch { cut, commit } => (cut, commit, "the checkpoint was waited for"),
            Waited::Idle => (scope.at, scope.at, "nothing changed since the cut"),
        };
        assert!(cut >= scope.at, "a wait for {} ended at the cut {cut}", scope.at);
        self.store().wait_visible(commit).await?;
        let scope = self.scope_at(&scope.session, cut, Writes::default()).await?;
        let published = self.catalog(commit).await?;
        let mut routes = Vec::new();
        let mut paths = Vec::new();
        for definition in views {
            let name = definition.full_name();
            let same = published.tables.get(&definition.id());
            let ready = same.and_then(|same| same.view.as_ref()).map(|view| &view.state);
            let (path, route) = if ready == Some(&ViewState::Ready) {
                let (path, _) = stored(&scope, name, ReadPath::Fresh, cut, cut, reason);
                (path, Some(StoredRows { at: commit, overlay: Writes::default(), content: None }))
            } else {
                live(&scope, name, None, "the view was dropped, replaced or faulted while it was waited for")
            };
            paths.push(path);
            routes.push((definition, route));
        }
        Ok((scope, routes, paths))
    }
}

/// The job of the views, if all are ready and of one continuous job.
fn one_ready_job(views: &[Arc<TableDefinition>]) -> Option<JobId> {
    let jobs = views.iter().map(|definition| {
        let view = definition.view.as_ref()?;
        (view.state == ViewState::Ready && !view.has_own_job()).then_some(view.job)
    });
    let jobs: BTreeSet<Option<JobId>> = jobs.collect();
    match (jobs.len(), jobs.first()) {
        (1, Some(job)) => *job,
        _ => None,
    }
}

pub(crate) fn view_of(definition: &TableDefinition) -> Result<&ViewDefinition> {
    let name = definition.full_name();
    definition.view.as_ref().ok_or_else(|| Error::mysql(1347, format!("'{name}' is not a materialized view")))
}

/// The records of a view's base tables.
pub(crate) fn base_ranges(scope: &Scope, view: &ViewDefinition) -> Result<Vec<KeyRange>> {
    let range = |id| {
        let table = scope.catalog.tables.get(id);
        table
            .map(|table| table_range(&table.info))
            .ok_or_else(|| Error::corrupt(format!("no base table {id}")))
    };
    view.base_tables.iter().map(range).collect()
}

fn live(scope: &Scope, view: String, cut: Option<Timestamp>, reason: impl Into<String>) -> (ViewPath, Route) {
    let cut = cut.unwrap_or(Timestamp::ZERO);
    (ViewPath { view, path: ReadPath::Live, cut, read: scope.at, reason: reason.into() }, None)
}

fn stored(
    scope: &Scope,
    view: String,
    path: ReadPath,
    cut: Timestamp,
    read: Timestamp,
    reason: impl Into<String>,
) -> (ViewPath, Route) {
    let rows = StoredRows { at: scope.at, overlay: Writes::default(), content: None };
    (ViewPath { view, path, cut, read, reason: reason.into() }, Some(rows))
}
