//! DDL as mutations: what a change of the catalog writes.
//!
//! Each function looks at one snapshot of the catalog and returns the mutations of the change; the caller
//! commits them in a transaction that started at that snapshot. Every change rewrites the version key,
//! so two changes on one snapshot conflict and the later one is tried again on a newer catalog.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use store::Mutation;
use tidb::{ColumnInfo, ColumnType, TableInfo};
use types::{Error, JobId, Result, TableId, Timestamp, records};

use super::{Catalog, TableDefinition, ViewDefinition, ViewSettings, ViewState};
use crate::{ColumnDefinition, CreateTable, TableName};

/// Databases that the server makes up.
const VIRTUAL_DATABASES: [&str; 5] = ["tidemill", "information_schema", "mysql", "performance_schema", "sys"];

/// The least id that is handed out; job 1 is the shared continuous job.
const FIRST_ID: u64 = 100;

/// A change of the catalog, to be committed on the snapshot it was made from.
#[derive(Clone, Debug, Default)]
pub struct CatalogChange {
    /// What to write; empty if nothing changes (IF EXISTS, IF NOT EXISTS).
    pub mutations: Vec<Mutation>,
    /// The table or view that comes into being.
    pub created: Option<Arc<TableDefinition>>,
    /// The tables and views that go, sources after the views over them.
    pub dropped: Vec<Arc<TableDefinition>>,
    /// Jobs whose views change: their epoch records are rewritten with `definitions` + 1 in the same
    /// transaction.
    pub jobs: BTreeSet<JobId>,
    /// Things to warn of: unknown names under IF EXISTS, known ones under IF NOT EXISTS.
    pub notes: Vec<String>,
}

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
    /// The continuous job.
    pub job: JobId,
    /// When.
    pub created_ts: Timestamp,
}

impl Catalog {
    /// Makes the first database, `test`, in an empty store; no mutations if there is a catalog.
    #[must_use]
    pub fn bootstrap(&self) -> CatalogChange {
        let mut change = CatalogChange::default();
        if self.version == 0 {
            change.mutations.push(Mutation::put(records::database_key("test"), b"test".to_vec()));
            self.finish(&mut change, 0);
        }
        change
    }

    /// CREATE DATABASE.
    ///
    /// # Errors
    /// MySQL 1007 if it exists.
    pub fn create_database(&self, name: &str, if_not_exists: bool) -> Result<CatalogChange> {
        let mut change = CatalogChange::default();
        check_name(name)?;
        if self.has_database(name) || is_virtual(name) {
            let text = format!("can't create database '{name}'; database exists");
            return if if_not_exists { Ok(noted(text)) } else { Err(Error::mysql(1007, text)) };
        }
        let key = records::database_key(&name.to_lowercase());
        change.mutations.push(Mutation::put(key, name.as_bytes().to_vec()));
        self.finish(&mut change, 0);
        Ok(change)
    }

    /// DROP DATABASE with everything in it.
    ///
    /// # Errors
    /// MySQL 1008 if it does not exist; refused while views of other databases need something in it.
    pub fn drop_database(&self, name: &str, if_exists: bool) -> Result<CatalogChange> {
        if is_virtual(name) {
            return Err(Error::mysql(1044, format!("access denied to database '{name}'")));
        }
        if !self.has_database(name) {
            let text = format!("can't drop database '{name}'; database doesn't exist");
            return if if_exists { Ok(noted(text)) } else { Err(Error::mysql(1008, text)) };
        }
        let inside = |definition: &TableDefinition| definition.database.eq_ignore_ascii_case(name);
        let mut ids = BTreeSet::new();
        for (id, definition) in &self.tables {
            if !inside(definition) {
                continue;
            }
            ids.insert(*id);
            if let Some(view) = self.dependents(*id).iter().find(|view| !inside(view)) {
                return Err(needed(definition, view));
            }
        }
        let mut change = self.drop_ids(&ids);
        change.mutations.push(Mutation::delete(records::database_key(&name.to_lowercase())));
        self.finish(&mut change, 0);
        Ok(change)
    }

    /// CREATE TABLE.
    ///
    /// # Errors
    /// MySQL 1050 if the name is taken, 1049, 1060, 1072 and others for what is wrong in the definition.
    pub fn create_table(&self, statement: &CreateTable, database: &str) -> Result<CatalogChange> {
        self.check_database(database)?;
        let name = &statement.name.name;
        check_name(name)?;
        if self.find(database, name).is_some() {
            let text = format!("table '{name}' already exists");
            return if statement.if_not_exists { Ok(noted(text)) } else { Err(Error::mysql(1050, text)) };
        }
        let mut info = table_info(statement)?;
        info.id = signed(self.next_id())?;
        let definition = TableDefinition { database: self.database_name(database), info, view: None };
        let mut change = CatalogChange::default();
        put(&mut change, &definition)?;
        change.created = Some(Arc::new(definition));
        self.finish(&mut change, 1);
        Ok(change)
    }

    /// DROP TABLE of base tables.
    ///
    /// # Errors
    /// MySQL 1051 for unknown names, 1347 for views, 3730 while a view needs one of them (without CASCADE).
    pub fn drop_tables(
        &self,
        names: &[TableName],
        default_database: Option<&str>,
        if_exists: bool,
        cascade: bool,
    ) -> Result<CatalogChange> {
        self.drop_named(names, default_database, if_exists, cascade, DropKind::Table)
    }

    /// DROP MATERIALIZED VIEW.
    ///
    /// # Errors
    /// As `drop_tables`.
    pub fn drop_views(
        &self,
        names: &[TableName],
        default_database: Option<&str>,
        if_exists: bool,
        cascade: bool,
    ) -> Result<CatalogChange> {
        self.drop_named(names, default_database, if_exists, cascade, DropKind::View)
    }

    /// CREATE MATERIALIZED VIEW: the definition in state Filling, with ids for the view (and for the fill
    /// that builds it). If OR REPLACE finds a view, the new one is kept beside it until adoption.
    ///
    /// # Errors
    /// MySQL 1050 if the name is taken, 3730 if other views depend on the view to replace.
    pub fn create_view(&self, new: NewView, plan: &crate::ViewPlan) -> Result<CatalogChange> {
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
            replaces = Some(existing.id());
        }
        let id = self.next_id();
        let definition = view_definition(self, new, plan, id, replaces)?;
        let mut change = CatalogChange::default();
        put(&mut change, &definition)?;
        change.created = Some(Arc::new(definition));
        self.finish(&mut change, 2);
        Ok(change)
    }

    /// ALTER MATERIALIZED VIEW ... RESUME: a copy of the view's definition under a new id, in state
    /// Filling, that replaces the old one at adoption.
    ///
    /// # Errors
    /// If the view is not faulted, or is being rebuilt already.
    pub fn resume_view(&self, id: TableId, plan: &crate::ViewPlan, now: Timestamp) -> Result<CatalogChange> {
        let old = self.tables.get(&id).ok_or_else(|| Error::invalid(format!("no view has the id {id}")))?;
        let Some(view) = &old.view else {
            return Err(Error::mysql(1347, format!("'{}' is not a materialized view", old.full_name())));
        };
        if !matches!(view.state, ViewState::Faulted { .. }) {
            return Err(Error::invalid(format!("view '{}' is not faulted", old.full_name())));
        }
        self.check_not_replaced(old)?;
        let new = NewView {
            database: old.database.clone(),
            name: old.info.name.clone(),
            or_replace: true,
            if_not_exists: false,
            columns: view.columns.clone(),
            cluster_by: view.cluster_by.clone(),
            options: view.options.clone(),
            settings: view.settings.clone(),
            job: view.job,
            created_ts: now,
        };
        let definition = view_definition(self, new, plan, self.next_id(), Some(id))?;
        let mut change = CatalogChange::default();
        put(&mut change, &definition)?;
        change.created = Some(Arc::new(definition));
        self.finish(&mut change, 2);
        Ok(change)
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

    /// Drops a view by its id, because its fill came to nothing; one that was to replace another has no
    /// name to drop it by.
    ///
    /// # Errors
    /// If there is no such view, or others depend on it.
    pub fn abandon_view(&self, id: TableId) -> Result<CatalogChange> {
        let known = self.tables.get(&id).filter(|definition| definition.view.is_some());
        let known = known.ok_or_else(|| Error::invalid(format!("no view has the id {id}")))?;
        if let Some(view) = self.dependents(id).first() {
            return Err(needed(known, view));
        }
        let mut change = self.drop_ids(&BTreeSet::from([id]));
        self.finish(&mut change, 0);
        Ok(change)
    }

    /// Several changes on one snapshot as one: the version is written once.
    ///
    /// # Panics
    /// If two changes write different values to one key other than the version's: a bug of the caller.
    #[must_use]
    pub fn merge(&self, changes: Vec<CatalogChange>) -> CatalogChange {
        let mut merged = CatalogChange::default();
        for change in changes {
            for mutation in change.mutations {
                let same = merged.mutations.iter().find(|known| known.key == mutation.key);
                match same {
                    Some(known) => assert!(*known == mutation, "two changes of one definition in one merge"),
                    None => merged.mutations.push(mutation),
                }
            }
            merged.created = merged.created.or(change.created);
            merged.dropped.extend(change.dropped);
            merged.jobs.extend(change.jobs);
            merged.notes.extend(change.notes);
        }
        merged
    }

    fn next_id(&self) -> u64 {
        self.next_id.max(FIRST_ID)
    }

    /// Writes the version key and, if ids were taken, the allocator.
    fn finish(&self, change: &mut CatalogChange, ids_taken: u64) {
        let version = (self.version + 1).to_string().into_bytes();
        change.mutations.push(Mutation::put(records::catalog_version_key(), version));
        if ids_taken > 0 {
            let next = (self.next_id() + ids_taken).to_string().into_bytes();
            change.mutations.push(Mutation::put(records::id_allocator_key(), next));
        }
    }

    fn database_name(&self, name: &str) -> String {
        let known = self.databases.iter().find(|database| database.eq_ignore_ascii_case(name));
        known.map_or_else(|| name.to_owned(), Clone::clone)
    }

    fn check_database(&self, database: &str) -> Result<()> {
        if is_virtual(database) {
            return Err(Error::mysql(1044, format!("access denied to database '{database}'")));
        }
        if !self.has_database(database) {
            return Err(Error::mysql(1049, format!("unknown database '{database}'")));
        }
        Ok(())
    }

    fn check_not_replaced(&self, existing: &TableDefinition) -> Result<()> {
        let id = existing.id();
        if existing.view.as_ref().is_some_and(|view| view.state == ViewState::Filling) {
            let text = format!("view '{}' is still being filled", existing.full_name());
            return Err(Error::mysql(1105, text));
        }
        if self.views().any(|(_, _, view)| view.replaces == Some(id)) {
            let text = format!("view '{}' is being replaced already", existing.full_name());
            return Err(Error::mysql(1105, text));
        }
        Ok(())
    }

    fn edit_view(
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

    fn drop_named(
        &self,
        names: &[TableName],
        default_database: Option<&str>,
        if_exists: bool,
        cascade: bool,
        kind: DropKind,
    ) -> Result<CatalogChange> {
        let mut ids = BTreeSet::new();
        let mut unknown = Vec::new();
        for name in names {
            let database = name.database.as_deref().or(default_database);
            let database = database.ok_or_else(|| Error::mysql(1046, "no database selected"))?;
            match self.find(database, &name.name) {
                Some(definition) => {
                    kind.check(definition)?;
                    ids.insert(definition.id());
                }
                None => unknown.push(format!("{database}.{}", name.name)),
            }
        }
        if !unknown.is_empty() && !if_exists {
            return Err(Error::mysql(1051, format!("unknown table '{}'", unknown.join(","))));
        }
        self.add_dependents(&mut ids, cascade)?;
        let mut change = self.drop_ids(&ids);
        change.notes.extend(unknown.iter().map(|name| format!("unknown table '{name}'")));
        if !ids.is_empty() {
            self.finish(&mut change, 0);
        }
        Ok(change)
    }

    /// Adds the views over what is dropped, or refuses because of them; a view that is built to replace
    /// a dropped one goes with it.
    fn add_dependents(&self, ids: &mut BTreeSet<TableId>, cascade: bool) -> Result<()> {
        let mut queue: Vec<TableId> = ids.iter().copied().collect();
        while let Some(id) = queue.pop() {
            for (view_id, _, view) in self.views() {
                if view.replaces == Some(id) && ids.insert(view_id) {
                    queue.push(view_id);
                }
            }
            for dependent in self.dependents(id) {
                if ids.contains(&dependent.id()) {
                    continue;
                }
                if !cascade {
                    return Err(needed(&self.tables[&id], &dependent));
                }
                ids.insert(dependent.id());
                queue.push(dependent.id());
            }
        }
        Ok(())
    }

    fn drop_ids(&self, ids: &BTreeSet<TableId>) -> CatalogChange {
        let mut change = CatalogChange::default();
        // Newer ids first: a view is younger than what it reads.
        for definition in ids.iter().rev().filter_map(|id| self.tables.get(id)) {
            drop_one(&mut change, definition);
        }
        change
    }
}

#[derive(Clone, Copy)]
enum DropKind {
    Table,
    View,
}

impl DropKind {
    fn check(self, definition: &TableDefinition) -> Result<()> {
        match (self, &definition.view) {
            (DropKind::Table, Some(_)) => Err(Error::mysql(
                1347,
                format!("'{}' is a materialized view: use DROP MATERIALIZED VIEW", definition.full_name()),
            )),
            (DropKind::View, None) => {
                Err(Error::mysql(1347, format!("'{}' is not a materialized view", definition.full_name())))
            }
            _ => Ok(()),
        }
    }
}

fn drop_one(change: &mut CatalogChange, definition: &Arc<TableDefinition>) {
    change.mutations.push(Mutation::delete(records::table_key(definition.id())));
    if let Some(view) = &definition.view {
        change.jobs.insert(view.job);
        change.jobs.extend(view.fill_job);
    }
    change.dropped.push(Arc::clone(definition));
}

fn put(change: &mut CatalogChange, definition: &TableDefinition) -> Result<()> {
    let json = serde_json::to_vec(definition)
        .map_err(|error| Error::corrupt(format!("definition of '{}': {error}", definition.full_name())))?;
    if let Some(view) = &definition.view {
        change.jobs.insert(view.job);
    }
    change.mutations.push(Mutation::put(records::table_key(definition.id()), json));
    Ok(())
}

fn needed(source: &TableDefinition, view: &TableDefinition) -> Error {
    let text = format!("cannot drop '{}': it is needed by view '{}'", source.full_name(), view.full_name());
    Error::mysql(3730, text)
}

fn noted(text: String) -> CatalogChange {
    CatalogChange { notes: vec![text], ..CatalogChange::default() }
}

fn is_virtual(database: &str) -> bool {
    VIRTUAL_DATABASES.iter().any(|name| name.eq_ignore_ascii_case(database))
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.ends_with(' ') || name.chars().count() > 64 {
        return Err(Error::mysql(
            1059,
            format!("identifier name '{name}' is empty, too long or ends in a space"),
        ));
    }
    Ok(())
}

fn signed(id: u64) -> Result<i64> {
    i64::try_from(id).map_err(|_| Error::corrupt("ids have run out"))
}

fn view_definition(
    catalog: &Catalog,
    new: NewView,
    plan: &crate::ViewPlan,
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
    let view = ViewDefinition {
        query: plan.query.clone(),
        columns: new.columns,
        settings: new.settings,
        options: new.options,
        cluster_by: new.cluster_by,
        job: new.job,
        state: ViewState::Filling,
        fill_job: Some(JobId(id + 1)),
        replaces,
        base_tables: plan.base_tables.clone(),
        depends_on: plan.depends_on.clone(),
        fingerprint: plan.fingerprint.clone(),
        created_ts: new.created_ts,
    };
    Ok(TableDefinition { database: catalog.database_name(&new.database), info, view: Some(view) })
}

/// CLUSTER BY columns, then the stream key; none if the rows have no such key.
fn primary_key(new: &NewView, plan: &crate::ViewPlan) -> Result<Vec<usize>> {
    let mut primary_key = Vec::new();
    for name in &new.cluster_by {
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
        if !primary_key.contains(&position) {
            primary_key.push(position);
        }
    }
    let Some(stream_key) = &plan.key else {
        return Ok(Vec::new());
    };
    for position in stream_key {
        if !primary_key.contains(position) {
            primary_key.push(*position);
        }
    }
    Ok(primary_key)
}

fn is_handle(columns: &[ColumnInfo], primary_key: &[usize]) -> bool {
    matches!(primary_key, [one] if matches!(columns[*one].column_type, ColumnType::Int { .. }))
}

fn table_info(statement: &CreateTable) -> Result<TableInfo> {
    if statement.columns.is_empty() {
        return Err(Error::mysql(1113, "a table must have at least 1 column"));
    }
    let mut columns: Vec<ColumnInfo> = Vec::with_capacity(statement.columns.len());
    for (index, column) in statement.columns.iter().enumerate() {
        check_name(&column.name)?;
        if columns.iter().any(|known| known.name.eq_ignore_ascii_case(&column.name)) {
            return Err(Error::mysql(1060, format!("duplicate column name '{}'", column.name)));
        }
        columns.push(column_info(index, column));
    }
    let mut primary_key = Vec::new();
    for name in &statement.primary_key {
        let position = columns.iter().position(|column| column.name.eq_ignore_ascii_case(name));
        let position = position
            .ok_or_else(|| Error::mysql(1072, format!("key column '{name}' doesn't exist in table")))?;
        if primary_key.contains(&position) {
            return Err(Error::mysql(1060, format!("duplicate column name '{name}'")));
        }
        if !columns[position].column_type.allowed_in_key() {
            let text = format!("column '{name}' is a text, a blob or too long to be in a key");
            return Err(Error::mysql(1170, text));
        }
        columns[position].not_null = true;
        primary_key.push(position);
    }
    Ok(TableInfo {
        id: 0,
        name: statement.name.name.clone(),
        pk_is_handle: is_handle(&columns, &primary_key),
        columns,
        primary_key,
        indexes: Vec::new(),
        comment: statement.comment.clone(),
    })
}

fn column_info(index: usize, column: &ColumnDefinition) -> ColumnInfo {
    ColumnInfo {
        id: i64::try_from(index).map_or(i64::MAX, |index| index + 1),
        name: column.name.clone(),
        column_type: column.column_type.clone(),
        not_null: column.not_null,
        default: column.default.clone(),
        origin_default: None,
        comment: column.comment.clone(),
    }
}
