//! DROP: what goes, in which order, and what stands in the way.

use std::collections::BTreeSet;
use std::sync::Arc;

use store::Mutation;
use types::{Error, Result, TableId, records};

use super::{CatalogChange, is_system, noted};
use crate::TableName;
use crate::catalog::{Catalog, TableDefinition, foreign};

impl Catalog {
    /// DROP DATABASE with everything in it.
    ///
    /// # Errors
    /// MySQL 1008 if it does not exist; refused while views of other databases need something in it.
    pub fn drop_database(&self, name: &str, if_exists: bool) -> Result<CatalogChange> {
        if is_system(name) {
            return Err(Error::mysql(1044, format!("access denied to database '{name}'")));
        }
        if !self.has_database(name) {
            let text = format!("can't drop database '{name}'; database doesn't exist");
            return if if_exists { Ok(noted(text)) } else { Err(Error::mysql(1008, text)) };
        }
        if self.foreign.has_database(name) {
            return Err(foreign::denied("DROP", &format!("database '{name}'")));
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

    /// DROP TABLE and DROP MATERIALIZED VIEW.
    ///
    /// # Errors
    /// MySQL 1051 for unknown names, 1347 for names of the other kind, 3730 while a view that stays needs
    /// one of them.
    pub fn drop_named(
        &self,
        kind: DropKind,
        names: &[TableName],
        default_database: Option<&str>,
        options: DropOptions,
    ) -> Result<CatalogChange> {
        let mut ids = BTreeSet::new();
        let mut unknown = Vec::new();
        for name in names {
            let database = name.database.as_deref().or(default_database);
            let database = database.ok_or_else(|| Error::mysql(1046, "no database selected"))?;
            match self.find(database, &name.name) {
                Some(definition) if definition.foreign.is_some() => {
                    return Err(foreign::denied("DROP", &format!("table '{}'", definition.full_name())));
                }
                None if self.refusal(database, &name.name).is_some() => {
                    let full_name = format!("{database}.{}", name.name);
                    return Err(foreign::denied("DROP", &format!("table '{full_name}'")));
                }
                Some(definition) => {
                    kind.check(definition)?;
                    ids.insert(definition.id());
                }
                None => unknown.push(format!("{database}.{}", name.name)),
            }
        }
        if !unknown.is_empty() && !options.if_exists {
            return Err(Error::mysql(1051, format!("unknown table '{}'", unknown.join(","))));
        }
        self.add_dependents(&mut ids, options.cascade)?;
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

    /// Drops definitions, each view before what it reads. Ids do not tell the order: a view that RESUME
    /// rebuilt is younger than the views over it.
    fn drop_ids(&self, ids: &BTreeSet<TableId>) -> CatalogChange {
        let mut change = CatalogChange::default();
        let mut visited = BTreeSet::new();
        for id in ids.iter().rev() {
            self.drop_after_dependents(*id, ids, &mut visited, &mut change);
        }
        self.end_own_jobs(ids, &mut change);
        change
    }

    /// A job that a dropped view had to itself goes with it.
    fn end_own_jobs(&self, ids: &BTreeSet<TableId>, change: &mut CatalogChange) {
        for job in std::mem::take(&mut change.jobs) {
            let mut views = self.views().filter(|(_, _, view)| view.job == job).peekable();
            let apart = views.peek().is_some_and(|(_, _, view)| view.has_own_job());
            if apart && views.all(|(id, ..)| ids.contains(&id)) {
                change.mutations.push(Mutation::delete(records::epoch_record_key(job)));
            } else {
                change.jobs.insert(job);
            }
        }
    }

    /// Drops a definition once everything that names it and goes too is dropped.
    fn drop_after_dependents(
        &self,
        id: TableId,
        ids: &BTreeSet<TableId>,
        visited: &mut BTreeSet<TableId>,
        change: &mut CatalogChange,
    ) {
        if !visited.insert(id) {
            return;
        }
        for dependent in self.dependents(id).iter().rev().filter(|view| ids.contains(&view.id())) {
            self.drop_after_dependents(dependent.id(), ids, visited, change);
        }
        if let Some(definition) = self.tables.get(&id) {
            drop_one(change, definition);
        }
    }
}

/// What a DROP names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropKind {
    /// Base tables.
    Table,
    /// Materialized views.
    View,
}

/// How a DROP goes about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropOptions {
    /// Do not complain about unknown names.
    pub if_exists: bool,
    /// Drop the views over it too.
    pub cascade: bool,
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

/// Drops one definition; what depends on it is the caller's care.
pub(super) fn drop_one(change: &mut CatalogChange, definition: &Arc<TableDefinition>) {
    change.mutations.push(Mutation::delete(records::table_key(definition.id())));
    if let Some(view) = &definition.view {
        change.jobs.insert(view.job);
        change.jobs.extend(view.fill_job);
    }
    change.dropped.push(Arc::clone(definition));
}

/// MySQL 3730: a view stands in the way.
pub(super) fn needed(source: &TableDefinition, view: &TableDefinition) -> Error {
    let text = format!("cannot drop '{}': it is needed by view '{}'", source.full_name(), view.full_name());
    Error::mysql(3730, text)
}
