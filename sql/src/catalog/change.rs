//! DDL as mutations: what a change of the catalog writes.
//!
//! Each function looks at one snapshot of the catalog and returns the mutations of the change; the caller
//! commits them in a transaction that started at that snapshot. Every change rewrites the version key,
//! so two changes on one snapshot conflict and the later one is tried again on a newer catalog.

mod drops;
mod refresh;
mod tables;
mod views;

use std::collections::BTreeSet;
use std::sync::Arc;

use store::Mutation;
use types::{Error, JobId, Result, Timestamp, records};

use super::{Catalog, TableDefinition};

pub use drops::{DropKind, DropOptions};
pub use refresh::Refresh;
pub(super) use refresh::note_refresh;
pub use views::NewView;

/// Databases that the server makes up: they are there, and nobody changes them.
pub const SYSTEM_DATABASES: [&str; 2] = ["information_schema", "tidemill"];

/// Databases that MySQL makes up and this server does not: not there, and nobody creates them.
const RESERVED_DATABASES: [&str; 3] = ["mysql", "performance_schema", "sys"];

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
    /// A job that comes into being with a view of another one: its epoch record begins with the cut of
    /// the other's, as it is at the start of the transaction. The other is among `jobs`.
    pub detached: Option<(JobId, JobId)>,
    /// What the fill of the created view is a snapshot of, if it is not to be the newest.
    pub fill_at: Option<Timestamp>,
    /// Things to warn of: unknown names under IF EXISTS, known ones under IF NOT EXISTS, parts of a statement
    /// that were left out.
    pub notes: Vec<String>,
}

impl CatalogChange {
    /// Whether two changes on one snapshot write different values to one key, so that they cannot be
    /// merged: the later one must be made anew on a newer catalog.
    #[must_use]
    pub fn collides_with(&self, other: &CatalogChange) -> bool {
        let differs =
            |one: &Mutation| self.mutations.iter().any(|known| known.key == one.key && known != one);
        other.mutations.iter().any(differs)
    }
}

impl Catalog {
    /// Makes the first database, `test`, in an empty store, and says from where on ids are given out; no
    /// mutations if there is a catalog.
    #[must_use]
    pub fn bootstrap(&self, ids_from: u64) -> CatalogChange {
        let mut change = CatalogChange::default();
        if self.version == 0 {
            if ids_from > self.next_id {
                let next = ids_from.to_string().into_bytes();
                change.mutations.push(Mutation::put(records::id_allocator_key(), next));
            }
            change.mutations.push(Mutation::put(records::database_key("test"), b"test".to_vec()));
            self.finish(&mut change, 0);
        }
        change
    }

    /// CREATE DATABASE.
    ///
    /// # Errors
    /// MySQL 1007 if it exists, 1044 if its name is MySQL's own.
    pub fn create_database(&self, name: &str, if_not_exists: bool) -> Result<CatalogChange> {
        let mut change = CatalogChange::default();
        check_name(name)?;
        if RESERVED_DATABASES.iter().any(|reserved| reserved.eq_ignore_ascii_case(name)) {
            return Err(Error::mysql(1044, format!("access denied to database '{name}'")));
        }
        if self.has_database(name) || is_system(name) {
            let text = format!("can't create database '{name}'; database exists");
            return if if_not_exists { Ok(noted(text)) } else { Err(Error::mysql(1007, text)) };
        }
        let key = records::database_key(&name.to_lowercase());
        change.mutations.push(Mutation::put(key, name.as_bytes().to_vec()));
        self.finish(&mut change, 0);
        Ok(change)
    }

    /// Several changes on one snapshot as one: the version is written once.
    ///
    /// # Panics
    /// If two changes collide ([`CatalogChange::collides_with`]): a bug of the caller.
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
            merged.detached = merged.detached.or(change.detached);
            merged.fill_at = merged.fill_at.or(change.fill_at);
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
        if is_system(database) {
            return Err(Error::mysql(1044, format!("access denied to database '{database}'")));
        }
        if !self.has_database(database) {
            return Err(Error::mysql(1049, format!("Unknown database '{database}'")));
        }
        Ok(())
    }
}

pub(super) fn put(change: &mut CatalogChange, definition: &TableDefinition) -> Result<()> {
    let json = serde_json::to_vec(definition)
        .map_err(|error| Error::corrupt(format!("definition of '{}': {error}", definition.full_name())))?;
    if let Some(view) = &definition.view {
        change.jobs.insert(view.job);
    }
    change.mutations.push(Mutation::put(records::table_key(definition.id()), json));
    Ok(())
}

fn noted(text: String) -> CatalogChange {
    CatalogChange { notes: vec![text], ..CatalogChange::default() }
}

pub(super) fn is_system(database: &str) -> bool {
    SYSTEM_DATABASES.iter().any(|name| name.eq_ignore_ascii_case(database))
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
