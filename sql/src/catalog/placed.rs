//! Views whose rows lie in tables of TiDB: under which names TiDB has such a table, and whether it still is
//! what was made.
//!
//! The view has the id that TiDB gave its table, so its rows are the table's. A table is made under a name of
//! its own, gets the view's when the view is published, and another when the view is replaced or dropped. The
//! definition says which name it is to have; what TiDB's definitions say is what it has. TiDB's side of the
//! catalog never shows these tables: they are the views.

use serde::{Deserialize, Serialize};
use store::Mutation;
use tidb::{TableInfo, fill_table_name, is_reserved_table_name, old_table_name, verify_view_table};
use types::{Error, Result, TableId, records};

use super::change::put;
use super::{Catalog, CatalogChange, ForeignSchema, TableDefinition, ViewState};

/// The table of a view in TiDB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TidbTable {
    /// The number in its names before it is published and after it is replaced.
    pub number: u64,
    /// The names that the view had before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub was: Vec<String>,
    /// Whether the cluster's rows had checksums when it was made.
    #[serde(default)]
    pub checksums: bool,
}

/// What the note that a table or view was dropped says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedTable {
    /// The table.
    pub table: TableId,
    /// Its name, for the log.
    pub name: String,
    /// Its table in TiDB, which is to go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tidb: Option<DroppedTidbTable>,
}

/// The table in TiDB of a view that was dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedTidbTable {
    /// Its database.
    pub database: String,
    /// The names that it may have had.
    pub names: Vec<String>,
    /// Its number.
    pub number: u64,
}

impl DroppedTable {
    /// The note of a definition that goes.
    #[must_use]
    pub fn of(gone: &TableDefinition) -> DroppedTable {
        let tidb = gone.tidb().map(|tidb| DroppedTidbTable {
            database: gone.database.clone(),
            names: gone.tidb_names(),
            number: tidb.number,
        });
        DroppedTable { table: gone.id(), name: gone.full_name(), tidb }
    }
}

impl DroppedTidbTable {
    /// Whether TiDB has the table still under a name that was given to it: one that somebody else gave it
    /// made it theirs.
    #[must_use]
    pub fn is_there(&self, table: TableId, foreign: &ForeignSchema) -> bool {
        let reserved = [fill_table_name(self.number), old_table_name(self.number)];
        foreign.name_of(table).is_some_and(|(database, name)| {
            database.eq_ignore_ascii_case(&self.database)
                && self.names.iter().chain(&reserved).any(|known| is_same(known, name))
        })
    }
}

impl TableDefinition {
    /// The table in TiDB, if it is a view that lies in one.
    #[must_use]
    pub fn tidb(&self) -> Option<&TidbTable> {
        self.view.as_ref()?.tidb.as_ref()
    }

    /// The name that its table in TiDB is to have now; `None` if it has none, or one that is to go.
    #[must_use]
    pub fn wanted_tidb_name(&self) -> Option<String> {
        let view = self.view.as_ref()?;
        let tidb = view.tidb.as_ref()?;
        match (&view.fill_job, &view.state) {
            (None, _) => Some(self.info.name.clone()),
            (Some(_), ViewState::Faulted { .. }) => None,
            (Some(_), _) => Some(fill_table_name(tidb.number)),
        }
    }

    /// The names that its table in TiDB has, or had since and may have until it is renamed.
    #[must_use]
    pub fn tidb_names(&self) -> Vec<String> {
        let Some(tidb) = self.tidb() else { return Vec::new() };
        let mut names = vec![fill_table_name(tidb.number)];
        if self.view.as_ref().is_some_and(|view| view.fill_job.is_none()) {
            names.push(self.info.name.clone());
            names.extend(tidb.was.iter().cloned());
        }
        names
    }

    /// What somebody did to the view's table in TiDB, so that its rows cannot be written any more; `None` if
    /// it is as it was made, and for views that lie in no such table.
    #[must_use]
    pub fn altered_in(&self, foreign: &ForeignSchema) -> Option<String> {
        self.tidb()?;
        let name = self.full_name();
        let id = self.id();
        let (Some((database, found)), Some(meta)) = (foreign.name_of(id), foreign.meta(id)) else {
            return Some(format!("the table of view {name} was dropped or truncated in TiDB"));
        };
        let is_known = self.tidb_names().iter().any(|known| is_same(known, found));
        if !database.eq_ignore_ascii_case(&self.database) || !is_known {
            return Some(format!("the table of view {name} was renamed to {database}.{found} in TiDB"));
        }
        if let Err(differences) = verify_view_table(&self.info, meta, foreign.collations) {
            let texts: Vec<String> = differences.iter().map(ToString::to_string).collect();
            return Some(format!("the table of view {name} was altered in TiDB: {}", texts.join("; ")));
        }
        let ids = meta.public_columns().into_iter().map(|column| column.id);
        let is_same_columns = ids.eq(self.info.columns.iter().map(|column| column.id));
        (!is_same_columns)
            .then(|| format!("the table of view {name} was altered in TiDB: a column was made anew"))
    }
}

impl CatalogChange {
    /// Has the view that comes into being lie in a table of TiDB: `info` is the view's table by the ids that
    /// TiDB gave.
    ///
    /// # Errors
    /// `Corrupt` if no view comes into being.
    pub fn place(&mut self, info: TableInfo, tidb: TidbTable) -> Result<()> {
        let created = self.created.take().ok_or_else(|| Error::corrupt("no view comes into being"))?;
        let mut definition = TableDefinition::clone(&created);
        let old_key = records::table_key(created.id());
        self.mutations.retain(|mutation: &Mutation| mutation.key != old_key);
        definition.info = TableInfo { name: created.info.name.clone(), ..info };
        let view = definition.view.as_mut().ok_or_else(|| Error::corrupt("no view comes into being"))?;
        view.tidb = Some(tidb);
        put(self, &definition)?;
        self.created = Some(definition.into());
        Ok(())
    }
}

impl Catalog {
    /// Whether a table of TiDB is none to a user of Tidemill: a view's, one of a view that was dropped, or
    /// one under a name that only such tables have.
    #[must_use]
    pub fn hides(&self, table: TableId, name: &str) -> bool {
        let is_views = self.tables.get(&table).is_some_and(|definition| definition.tidb().is_some());
        is_views || self.gone.contains_key(&table) || is_reserved_table_name(name)
    }
}

/// Whether two names are one, as TiDB compares them.
fn is_same(left: &str, right: &str) -> bool {
    left.to_lowercase() == right.to_lowercase()
}
