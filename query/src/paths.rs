//! Which path each view of a statement is read on.
//!
//! ```text
//! filling or faulted   stale: an error          else: Live
//! stale                the stored rows at T, which are Q at S_k
//! wait                 nothing changed in (S_k, T]: stored rows at T; else a later cut: rows at C_k, tables at S_k
//! fresh                nothing changed: Fresh; else Hybrid; if the scan finds too many changes, or the read fix
//!                      cannot run: Live, and the statement is planned again
//! ```
//! Whatever the path, the answer is the same: that of the view's query at one timestamp.

use std::collections::BTreeSet;
use std::sync::Arc;

use source::TableSource;
use sql::catalog::{Catalog, TableDefinition, ViewDefinition, ViewState};
use store::{KeyRange, Store};
use types::records::{EpochRecord, epoch_record_key};
use types::{Error, ErrorKind, JobId, Result, Timestamp};

use crate::hooks::Waited;
use crate::hybrid::HybridView;
use crate::names::{Route, Scope};
use crate::transaction::{Writes, writes_in};
use crate::{Engine, PathChoice, ReadMode, ReadPath, ViewPath};

/// As many changes are looked at to see whether there are any, and to say how many there are if these are all.
const PEEKED_CHANGES: u64 = 64;

/// A view on its path.
pub(crate) struct Decided {
    pub(crate) definition: Arc<TableDefinition>,
    pub(crate) path: ViewPath,
    pub(crate) route: Route,
}

/// The changes of a view's base tables since its checkpoint.
enum Changed {
    Nothing,
    /// So many, or at least so many.
    Some {
        n_changes: u64,
        and_more: bool,
    },
    Gone(String),
}

/// Whether TiDB's tables are what they were at a view's cut.
enum AsOfCut {
    /// They are: the scope, with their definitions as of the cut.
    Same(Box<Scope>),
    /// What happened to them.
    Changed(String),
}

impl Engine {
    /// Decides for all views of a statement, which are read at one timestamp (G6).
    pub(crate) async fn decide_all(
        &self,
        scope: Scope,
        views: Vec<Arc<TableDefinition>>,
        in_transaction: bool,
    ) -> Result<(Scope, Vec<Decided>)> {
        if scope.session.mode == ReadMode::Wait
            && !in_transaction
            && scope.session.snapshot.is_none()
            && let Some(job) = one_ready_job(&views)
            && let Some(waited) = self.wait(&scope, &views, job).await?
        {
            return self.decide_waited(scope, views, waited).await;
        }
        let mut decided = Vec::with_capacity(views.len());
        for definition in views {
            let (path, route) = self.decide(&scope, &definition).await?;
            decided.push(Decided { definition, path, route });
        }
        let scope = self.with_known_names(scope, &decided).await?;
        Ok((scope, decided))
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
                self.decide_ready(scope, definition, record.cut).await
            }
        }
    }

    async fn decide_ready(
        &self,
        scope: &Scope,
        definition: &Arc<TableDefinition>,
        cut: Timestamp,
    ) -> Result<(ViewPath, Route)> {
        let name = definition.full_name();
        if scope.session.mode == ReadMode::Stale && cut >= scope.session.oldest_cut(scope.at) {
            return Ok(stored(scope, name, ReadPath::Stale, cut, cut, "rows of the checkpoint"));
        }
        if scope.session.mode == ReadMode::Live || scope.session.path == PathChoice::Live {
            return Ok(live(scope, name, Some(cut), "it was asked for"));
        }
        let then = match self.as_of_cut(scope, definition, cut).await? {
            AsOfCut::Same(scope) => *scope,
            AsOfCut::Changed(reason) => return Ok(live(scope, name, Some(cut), reason)),
        };
        let ranges = then.catalog.base_ranges(view_of(definition)?)?;
        let own = ranges.iter().any(|range| writes_in(&scope.writes, range).next().is_some());
        let pending = match self.changed(scope, &ranges, cut).await? {
            Changed::Gone(reason) => return Ok(live(scope, name, Some(cut), reason)),
            Changed::Nothing if !own && scope.session.path != PathChoice::Hybrid => {
                let reason = "nothing changed since the cut";
                return Ok(stored(scope, name, ReadPath::Fresh, cut, scope.at, reason));
            }
            Changed::Nothing => "no changes".to_owned(),
            Changed::Some { n_changes: 1, and_more: false } => "1 change".to_owned(),
            Changed::Some { n_changes, and_more: false } => format!("{n_changes} changes"),
            Changed::Some { n_changes, and_more: true } => format!("more than {n_changes} changes"),
        };
        let with = if own { " and the transaction's own writes" } else { "" };
        let reason = format!("{pending} since the cut{with}");
        let (path, _) = stored(scope, name, ReadPath::Hybrid, cut, scope.at, reason);
        let view = HybridView::new(self.clone(), then, Arc::clone(definition), cut);
        Ok((path, Route::Hybrid(Arc::new(view))))
    }

    /// Whether there are changes of the base tables in (S_k, T].
    async fn changed(&self, scope: &Scope, ranges: &[KeyRange], cut: Timestamp) -> Result<Changed> {
        if scope.at <= cut {
            return Ok(Changed::Nothing);
        }
        match self.store().count_changes(ranges, cut, scope.at, PEEKED_CHANGES).await {
            Ok(0) => Ok(Changed::Nothing),
            Ok(n_changes) => Ok(Changed::Some {
                n_changes: n_changes.min(PEEKED_CHANGES),
                and_more: n_changes > PEEKED_CHANGES,
            }),
            Err(error) if error.is_history_gone() => Ok(Changed::Gone(error.to_string())),
            Err(error) => Err(error),
        }
    }

    /// What a view's read fix reads by: TiDB's definitions are those of the cut, by which the rows up to T mean
    /// what they meant. Or what TiDB changed in (S_k, T], so that nothing may be read across it.
    async fn as_of_cut(
        &self,
        scope: &Scope,
        definition: &Arc<TableDefinition>,
        cut: Timestamp,
    ) -> Result<AsOfCut> {
        let view = view_of(definition)?;
        if !scope.catalog.reads_foreign(&view.base_tables) || scope.at <= cut {
            return Ok(AsOfCut::Same(Box::new(scope.clone())));
        }
        let before = match self.catalog(cut).await {
            Ok(before) => before,
            Err(error) if error.is_history_gone() => return Ok(AsOfCut::Changed(error.to_string())),
            Err(error) => return Err(error),
        };
        let catalog = scope.catalog.with_foreign_of(&before)?;
        let plan = match self.view_plan(&catalog, definition) {
            Ok(plan) => plan,
            Err(error) if error.kind() == ErrorKind::Invalid => {
                return Ok(AsOfCut::Changed(format!("the read fix cannot run: {error}")));
            }
            Err(error) => return Err(error),
        };
        let used = sql::used_columns(&plan);
        Ok(match scope.catalog.changes_since(&before, &view.base_tables, &used) {
            Some(reason) => AsOfCut::Changed(reason),
            None => AsOfCut::Same(Box::new(Scope { catalog, ..scope.clone() })),
        })
    }

    /// The scope in which views that are read by their queries know the names of what is gone of TiDB's tables.
    async fn with_known_names(&self, mut scope: Scope, decided: &[Decided]) -> Result<Scope> {
        for view in decided.iter().filter(|view| matches!(view.route, Route::Live)) {
            let base_tables = &view_of(&view.definition)?.base_tables;
            if scope.catalog.reads_foreign(base_tables) && view.path.cut != Timestamp::ZERO {
                match self.catalog(view.path.cut).await {
                    Ok(before) => scope.catalog = scope.catalog.remembering(&before),
                    Err(error) if error.is_history_gone() => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(scope)
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
            match self.as_of_cut(scope, definition, record.cut).await? {
                AsOfCut::Same(then) => ranges.extend(then.catalog.base_ranges(view_of(definition)?)?),
                // Its job finds that too.
                AsOfCut::Changed(_) => {
                    return self.waiter().wait_cut(job, scope.at, scope.session.wait_timeout_ms).await;
                }
            }
        }
        ranges.sort_by(|left, right| left.start.cmp(&right.start));
        ranges.dedup();
        let idle = scope.at <= record.cut
            || match self.store().count_changes(&ranges, record.cut, scope.at, 0).await {
                Ok(n_changes) => n_changes == 0,
                Err(error) if error.is_history_gone() => false,
                Err(error) => return Err(error),
            };
        if idle {
            return Ok(Some(Waited::Idle));
        }
        self.waiter().wait_cut(job, scope.at, scope.session.wait_timeout_ms).await
    }

    async fn decide_waited(
        &self,
        scope: Scope,
        views: Vec<Arc<TableDefinition>>,
        waited: Waited,
    ) -> Result<(Scope, Vec<Decided>)> {
        let (cut, commit, reason) = match waited {
            Waited::Epoch { cut, commit } => (cut, commit, "the checkpoint was waited for"),
            Waited::Idle => (scope.at, scope.at, "nothing changed since the cut"),
        };
        assert!(cut >= scope.at, "a wait for {} ended at the cut {cut}", scope.at);
        self.store().wait_visible(commit).await?;
        let scope = self.scope_at(&scope.session, cut, Writes::default()).await?;
        let published = self.catalog(commit).await?;
        let mut scope = scope;
        scope.catalog = scope.catalog.knowing_names_of(&published);
        let mut decided = Vec::new();
        for definition in views {
            let name = definition.full_name();
            let same = published.tables.get(&definition.id());
            let ready = same.and_then(|same| same.view.as_ref()).map(|view| &view.state);
            let (path, route) = if ready == Some(&ViewState::Ready) {
                let (path, _) = stored(&scope, name, ReadPath::Fresh, cut, cut, reason);
                (path, Route::Stored(commit))
            } else {
                live(&scope, name, None, "the view was dropped, replaced or faulted while it was waited for")
            };
            decided.push(Decided { definition, path, route });
        }
        Ok((scope, decided))
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

/// A view's base tables.
pub(crate) fn base_tables(catalog: &Catalog, view: &ViewDefinition) -> Result<Vec<Arc<TableDefinition>>> {
    let table = |id| {
        let table = catalog.tables.get(id).cloned();
        table.ok_or_else(|| Error::corrupt(format!("no base table {id}")))
    };
    view.base_tables.iter().map(table).collect()
}

/// Tables as a source, with all their columns.
pub(crate) fn table_source(store: &Arc<dyn Store>, tables: &[Arc<TableDefinition>]) -> Result<TableSource> {
    let all = |table: &Arc<TableDefinition>| {
        (Arc::new(table.info.clone()), (0..table.info.columns.len()).collect())
    };
    let mut source = TableSource::new(Arc::clone(store), tables.iter().map(all))?;
    for table in tables {
        source = source.partitioned(table.id(), table.physical_ids());
    }
    Ok(source)
}

/// A path to a view's query over the base tables.
pub(crate) fn live(
    scope: &Scope,
    view: String,
    cut: Option<Timestamp>,
    reason: impl Into<String>,
) -> (ViewPath, Route) {
    let cut = cut.unwrap_or(Timestamp::ZERO);
    (ViewPath { view, path: ReadPath::Live, cut, read: scope.at, reason: reason.into() }, Route::Live)
}

fn stored(
    scope: &Scope,
    view: String,
    path: ReadPath,
    cut: Timestamp,
    read: Timestamp,
    reason: impl Into<String>,
) -> (ViewPath, Route) {
    (ViewPath { view, path, cut, read, reason: reason.into() }, Route::Stored(scope.at))
}
