//! Views: created, rebuilt, published, faulted.

use std::collections::BTreeMap;
use std::sync::Arc;

use store::Mutation;
use tidb::TableInfo;
use types::{Error, JobId, Result, TableId, Timestamp, records};

use super::drops::{drop_one, needed};
use super::tables::{check_key_bytes, is_handle};
use super::{CatalogChange, Refresh, check_name, noted, put, signed};
use crate::ViewPlan;
use crate::catalog::{Catalog, TableDefinition, ViewDefinition, ViewSettings, ViewState};

/// What CREATE MATERIALIZED VIEW knows beside the plan.
#[derive(Clone, Debug)]
pub struct NewView {
    /// The database.
    pub database: String,
    /// The name.
    pub name: String,
    /// OR REPLACE.
    pub or_replace: bool,
    /// IF NOT EXISTS.
    pub if_not_exists: bool,
    /// The column list of CREATE.
    pub columns: Vec<String>,
    /// CLUSTER BY.
    pub cluster_by: Vec<String>,
    /// WITH options.
    pub options: BTreeMap<String, String>,
    /// The settings of CREATE.
    pub settings: ViewSettings,
    /// When it is brought up to date.
    pub refresh: Refresh,
    /// The job; a view by refresh gets one of its own instead.
    pub job: JobId,
    /// When.
    pub created_ts: Timestamp,
}

impl Catalog {
    /// CREATE MATERIALIZED VIEW: the definition in state Filling, with ids for the view (and for the fill
    /// that builds it). If OR REPLACE finds a view, the new one is kept beside it until adoption.
    ///
    /// # Errors
    /// MySQL 1050 if the name is taken, 3730 if other views depend on the view to replace, 1105 if a view
    /// that the query names is being replaced by another query.
    pub fn create_view(&self, mut new: NewView, plan: &ViewPlan) -> Result<CatalogChange> {
        self.check_database(&new.database)?;
        check_name(&new.name)?;
        let mut replaces = None;
        if let Some(existing) = self.find(&new.database, &new.name) {
            let text = format!("table '{}' already exists", new.name);
            if new.if_not_exists {
                return Ok(noted(text));
            }
            if !new.or_replace || existing.view.is_none() {
                return Err(Error::mysql(1050, text));
            }
            if let Some(view) = self.dependents(existing.id()).first() {
                return Err(needed(existing, view));
            }
            if plan.depends_on.contains(&existing.id()) {
                return Err(Error::mysql(1462, format!("view '{}' would contain itself", new.name)));
            }
            self.check_not_replaced(existing)?;
            new.job = self.job_of_replacement(existing, &new)?;
            replaces = Some(existing.id());
        } else if self.is_taken(&new.database, &new.name) {
            return Err(Error::mysql(1050, format!("table '{}' already exists", new.name)));
        }
        for source in &plan.depends_on {
            self.check_source_stays(*source)?;
        }
        self.begin_view(new, plan, replaces)
    }

    /// Adoption: a filled view becomes Ready, and the one it replaces goes; views that depend on the
    /// replaced one (RESUME) depend on the new one from then on. Part of the adopting epoch's transaction.
    ///
    /// # Errors
    /// If there is no such view.
    pub fn publish_view(&self, id: TableId) -> Result<CatalogChange> {
        let mut change = CatalogChange::default();
        let mut replaced = None;
        self.edit_view(&mut change, id, |view| {
            view.state = ViewState::Ready;
            view.rebuild = false;
            view.fill_job = None;
            replaced = view.replaces.take();
        })?;
        if let Some(old) = replaced.and_then(|old| self.tables.get(&old)) {
            for dependent in self.dependents(old.id()) {
                self.edit_view(&mut change, dependent.id(), |view| {
                    for named in &mut view.depends_on {
                        if *named == old.id() {
                            *named = id;
                        }
                    }
                })?;
            }
            drop_one(&mut change, old);
            let (job, new_job) = (old.view.as_ref().map(|view| view.job), self.tables[&id].view.as_ref());
            if let Some(job) = job.filter(|job| new_job.is_some_and(|view| view.job != *job)) {
                // The old view had that job to itself.
                change.jobs.remove(&job);
                change.mutations.push(Mutation::delete(records::epoch_record_key(job)));
            }
        }
        self.finish(&mut change, 0);
        Ok(change)
    }

    /// A change of a view's state (a fault).
    ///
    /// # Errors
    /// If there is no such view.
    pub fn set_view_state(&self, id: TableId, state: ViewState) -> Result<CatalogChange> {
        let mut change = CatalogChange::default();
        self.edit_view(&mut change, id, |view| view.state = state)?;
        self.finish(&mut change, 0);
        Ok(change)
    }

    /// A fault because TiDB changed a table that the view reads: remembers under which names the table and its
    /// columns were last known, and that the view is to be built anew.
    ///
    /// # Errors
    /// If there is no such view.
    pub fn fault_by_change(&self, id: TableId, state: ViewState, before: &Catalog) -> Result<CatalogChange> {
        let mut change = CatalogChange::default();
        self.edit_view(&mut change, id, |view| {
            view.state = state;
            view.rebuild = true;
            for table in &mut view.bound {
                table.note_known(&before.foreign);
            }
        })?;
        self.finish(&mut change, 0);
        Ok(change)
    }

    /// Writes the definition of a view that a fill is to build, unless its query reads one that is out of date.
    pub(super) fn begin_view(
        &self,
        new: NewView,
        plan: &ViewPlan,
        replaces: Option<TableId>,
    ) -> Result<CatalogChange> {
        for source in &plan.depends_on {
            let known = self.tables.get(source);
            if let Some(known) = known.filter(|known| known.view.as_ref().is_some_and(|view| view.rebuild)) {
                // Its columns may be others then.
                let text = format!(
                    "view '{}', which is read, is to be built anew first: TiDB changed a table of it",
                    known.full_name()
                );
                return Err(Error::mysql(1105, text));
            }
        }
        let database = self.database_name(&new.database);
        let definition = view_definition(database, new, plan, self.next_id(), replaces)?;
        let mut change = CatalogChange::default();
        put(&mut change, &definition)?;
        change.created = Some(Arc::new(definition));
        self.finish(&mut change, 2);
        Ok(change)
    }

    /// Refuses a view that is being filled, or beside which a copy is built that will replace it.
    ///
    /// # Errors
    /// MySQL 1105 for these.
    pub fn check_not_replaced(&self, existing: &TableDefinition) -> Result<()> {
        let id = existing.id();
        if existing.view.as_ref().is_some_and(|view| view.state == ViewState::Filling) {
            let text = format!("view '{}' is still being filled", existing.full_name());
            return Err(Error::mysql(1105, text));
        }
        if self.replacement_of(id).is_some() {
            let text = format!(
                "view '{}' is already being replaced: wait until the new one is ready",
                existing.full_name()
            );
            return Err(Error::mysql(1105, text));
        }
        Ok(())
    }

    /// Refuses a source that another query is about to replace: adoption binds the views over it to the new
    /// view, which would not be what their dataflows were built from. A rebuild keeps the query.
    fn check_source_stays(&self, source: TableId) -> Result<()> {
        let Some(known) = self.tables.get(&source) else { return Ok(()) };
        let Some(old) = &known.view else { return Ok(()) };
        let replaced = self.views().any(|(_, _, new)| {
            new.replaces == Some(source)
                && (&new.query, &new.columns, &new.settings) != (&old.query, &old.columns, &old.settings)
        });
        if replaced {
            let text = format!(
                "view '{}' is being replaced by another query: wait until it is ready",
                known.full_name()
            );
            return Err(Error::mysql(1105, text));
        }
        Ok(())
    }

    /// The job of what OR REPLACE makes: an epoch of one job publishes the one and drops the other.
    fn job_of_replacement(&self, existing: &TableDefinition, new: &NewView) -> Result<JobId> {
        let Some(old) = &existing.view else { return Ok(new.job) };
        let apart = old.has_own_job();
        if apart == new.refresh.is_by_refresh() && (apart || old.job == new.job) {
            return Ok(old.job);
        }
        let name = existing.full_name();
        Err(Error::mysql(
            1235,
            format!(
                "OR REPLACE cannot move view '{name}' to another job or way of refreshing: use ALTER \
                 MATERIALIZED VIEW {name} SET (refresh = '...'), or drop it first"
            ),
        ))
    }

    pub(super) fn edit_view(
        &self,
        change: &mut CatalogChange,
        id: TableId,
        edit: impl FnOnce(&mut ViewDefinition),
    ) -> Result<()> {
        let known = self.tables.get(&id).filter(|definition| definition.view.is_some());
        let known = known.ok_or_else(|| Error::invalid(format!("no view has the id {id}")))?;
        let mut definition = TableDefinition::clone(known);
        if let Some(view) = &mut definition.view {
            edit(view);
            change.jobs.insert(view.job);
        }
        put(change, &definition)
    }
}

/// The definition of a new view, under an id and with the next one for its fill (or its own job).
fn view_definition(
    database: String,
    new: NewView,
    plan: &ViewPlan,
    id: u64,
    replaces: Option<TableId>,
) -> Result<TableDefinition> {
    let primary_key = primary_key(&new, plan)?;
    let info = TableInfo {
        id: signed(id)?,
        name: new.name,
        pk_is_handle: is_handle(&plan.columns, &primary_key),
        columns: plan.columns.clone(),
        primary_key,
        indexes: Vec::new(),
        comment: String::new(),
    };
    // What is refreshed on demand is published empty; its first refresh builds it.
    let unfilled = new.refresh.is_by_refresh() && replaces.is_none();
    let view = ViewDefinition {
        refresh: new.refresh,
        suspended: false,
        query: plan.query.clone(),
        columns: new.columns,
        settings: new.settings,
        options: new.options,
        cluster_by: new.cluster_by,
        job: if unfilled { JobId(id + 1) } else { new.job },
        state: if unfilled { ViewState::Unfilled } else { ViewState::Filling },
        fill_job: (!unfilled).then_some(JobId(id + 1)),
        replaces,
        base_tables: plan.base_tables.clone(),
        depends_on: plan.depends_on.clone(),
        fingerprint: plan.fingerprint.clone(),
        created_ts: new.created_ts,
        bound: plan.bound.clone(),
        rebuild: false,
        tidb: None,
    };
    Ok(TableDefinition { database, info, view: Some(view), foreign: None })
}

/// CLUSTER BY columns, then the stream key; none if the rows have no such key.
fn primary_key(new: &NewView, plan: &ViewPlan) -> Result<Vec<usize>> {
    let mut primary_key = Vec::new();
    for (at, name) in new.cluster_by.iter().enumerate() {
        if new.cluster_by[..at].iter().any(|known| known.eq_ignore_ascii_case(name)) {
            return Err(Error::mysql(1060, format!("Duplicate column name '{name}' in CLUSTER BY")));
        }
        let position = plan.columns.iter().position(|column| column.name.eq_ignore_ascii_case(name));
        let position = position.ok_or_else(|| {
            Error::mysql(1072, format!("CLUSTER BY column '{name}' doesn't exist in the view"))
        })?;
        let column = &plan.columns[position];
        if !column.not_null {
            return Err(Error::mysql(1171, format!("CLUSTER BY column '{name}' may be NULL")));
        }
        if !column.column_type.allowed_in_key() {
            return Err(Error::mysql(1170, format!("CLUSTER BY column '{name}' is not allowed in a key")));
        }
        primary_key.push(position);
    }
    check_key_bytes(&plan.columns, &primary_key)?;
    let Some(stream_key) = &plan.key else {
        let Some(name) = new.cluster_by.first() else { return Ok(Vec::new()) };
        let text = format!(
            "CLUSTER BY column '{name}': no columns that are selected, never NULL and allowed in a key \
             identify the view's rows; select such columns (the keys of its tables, or what it groups by), \
             or leave out CLUSTER BY"
        );
        return Err(Error::mysql(1235, text));
    };
    for position in stream_key {
        if !primary_key.contains(position) {
            primary_key.push(*position);
        }
    }
    check_key_bytes(&plan.columns, &primary_key)?;
    Ok(primary_key)
}
