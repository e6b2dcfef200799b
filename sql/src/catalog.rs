//! The catalog: databases, tables and views, as they are at one timestamp.
//!
//! Definitions are JSON records under Tidemill's private prefix (`types::records`); a change of any of
//! them also rewrites the catalog's version key, which is how a cached catalog is known to be right at a
//! timestamp. Names are compared in lower case, as MySQL does where table names are case-insensitive.

mod binding;
mod change;
mod foreign;
mod foreign_load;
mod load;
mod placed;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use binding::{BoundColumn, BoundTable, KnownTable};
pub use change::{CatalogChange, DropKind, DropOptions, NewView, Refresh, SYSTEM_DATABASES};
pub use foreign::{ForeignSchema, ForeignTable, Refusal, RefusedName, SchemaStamp};
pub use load::CatalogCache;
pub use placed::{DroppedTable, DroppedTidbTable, TidbTable};

use serde::{Deserialize, Serialize};
use store::KeyRange;
use types::{Error, JobId, Result, TableId, Timestamp};

/// The definition of a table or view.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableDefinition {
    /// The database it is in.
    pub database: String,
    /// Columns, keys and ids, as TiDB keeps them.
    pub info: tidb::TableInfo,
    /// What makes it a view; `None` for a base table.
    pub view: Option<ViewDefinition>,
    /// What makes it a table of TiDB, which Tidemill only reads. Never in a record: TiDB's own say it.
    #[serde(skip)]
    pub foreign: Option<Arc<ForeignTable>>,
}

impl TableDefinition {
    /// The id of the table or view.
    ///
    /// # Panics
    /// If the id is negative, which no allocator hands out.
    #[must_use]
    pub fn id(&self) -> TableId {
        TableId(u64::try_from(self.info.id).expect("table ids are positive"))
    }

    /// `database.name`, for messages.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.database, self.info.name)
    }
}

/// What makes a table a materialized view.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ViewDefinition {
    /// The defining query, as SQL text with every name qualified by its database.
    pub query: String,
    /// The column list of CREATE, empty if the query names the columns.
    pub columns: Vec<String>,
    /// The settings of CREATE, under which the query always means the same.
    pub settings: ViewSettings,
    /// Options of WITH, as given.
    pub options: BTreeMap<String, String>,
    /// `CLUSTER BY` columns.
    pub cluster_by: Vec<String>,
    /// When it is brought up to date.
    #[serde(default)]
    pub refresh: Refresh,
    /// Not brought up to date until RESUME.
    #[serde(default)]
    pub suspended: bool,
    /// The job that maintains it.
    pub job: JobId,
    /// Where it is in its life.
    pub state: ViewState,
    /// The fill that builds or rebuilds it, while one does.
    pub fill_job: Option<JobId>,
    /// While it is filled by OR REPLACE or RESUME: the view it will replace at adoption.
    pub replaces: Option<TableId>,
    /// Base tables the query reads, through other views too.
    pub base_tables: Vec<TableId>,
    /// Views and tables that the query names directly.
    pub depends_on: Vec<TableId>,
    /// A fingerprint of the operator plan; a plan with another one must not run over this view's state.
    pub fingerprint: String,
    /// When the definition was created.
    pub created_ts: Timestamp,
    /// Tables of TiDB that the query names, and what its names for them and their columns stand for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bound: Vec<BoundTable>,
    /// Faulted because TiDB changed a table: it is built anew as soon as its query can be planned.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rebuild: bool,
    /// Its table in TiDB, whose id it has; without one its rows lie under Tidemill's private prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tidb: Option<TidbTable>,
}

impl ViewDefinition {
    /// Whether the view has a job to itself, which works by refreshes: no job follows its sources.
    #[must_use]
    pub fn has_own_job(&self) -> bool {
        self.refresh.is_by_refresh() || self.suspended
    }
}

/// Session settings that a query's meaning depends on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewSettings {
    /// The session's time zone.
    pub time_zone: String,
    /// The session's SQL mode.
    pub sql_mode: String,
    /// The connection's collation.
    pub collation: String,
}

/// Where a view is in its life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ViewState {
    /// A fill builds it; not published: fresh, live and wait reads go Live.
    Filling,
    /// Published, and never refreshed: fresh, live and wait reads go Live.
    Unfilled,
    /// Maintained by its job.
    Ready,
    /// Cut off at an epoch; fresh, live and wait reads go Live, stale ones fail with the reason.
    Faulted {
        /// What happened.
        reason: String,
        /// The key of the row, if one is known.
        key: Option<String>,
        /// The cut of the epoch that left it out.
        at: Timestamp,
    },
}

/// All definitions at one timestamp.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// The value of the catalog's version key.
    pub version: u64,
    /// The next id for a table, a view or a job.
    pub next_id: u64,
    /// Database names, as declared; TiDB's after the own ones.
    pub databases: Vec<String>,
    /// How many of them are own ones.
    pub n_own_databases: usize,
    /// Definitions by id.
    pub tables: BTreeMap<TableId, Arc<TableDefinition>>,
    /// Ids by database and name, in lower case. A view under construction that replaces another is not here.
    pub names: BTreeMap<(String, String), TableId>,
    /// Tables in TiDB of views that were dropped or replaced, until they are gone there too.
    pub gone: BTreeMap<TableId, DroppedTidbTable>,
    /// TiDB's side, whose tables and databases are among the others; empty without a TiDB.
    pub foreign: Arc<ForeignSchema>,
    /// What names stand for in the text of the view that is being planned, in lower case.
    pub bound: BTreeMap<(String, String), Result<Arc<TableDefinition>>>,
}

impl Catalog {
    /// Finds a table or view that can be read by name.
    #[must_use]
    pub fn find(&self, database: &str, name: &str) -> Option<&Arc<TableDefinition>> {
        let key = (database.to_lowercase(), name.to_lowercase());
        if let Some(bound) = self.bound.get(&key) {
            return bound.as_ref().ok();
        }
        self.tables.get(self.names.get(&key)?).filter(|definition| definition.refusal().is_none())
    }

    /// Whether there is a database of that name.
    #[must_use]
    pub fn has_database(&self, name: &str) -> bool {
        self.databases.iter().any(|database| database.eq_ignore_ascii_case(name))
    }

    /// Finds a table or view by name, or says why not.
    ///
    /// # Errors
    /// MySQL 1049 or 1146; 1235 for a table of TiDB that cannot be read.
    pub fn require(&self, database: &str, name: &str) -> Result<&Arc<TableDefinition>> {
        if let Some(definition) = self.find(database, name) {
            return Ok(definition);
        }
        if let Some(refusal) = self.refusal(database, name) {
            return Err(refusal);
        }
        if !self.has_database(database) && !change::is_system(database) {
            return Err(Error::mysql(1049, format!("Unknown database '{database}'")));
        }
        Err(Error::mysql(1146, format!("Table '{database}.{name}' doesn't exist")))
    }

    /// The ranges of the rows' keys of a view's base tables.
    ///
    /// # Errors
    /// `Corrupt` if a table is not there.
    pub fn base_ranges(&self, view: &ViewDefinition) -> Result<Vec<KeyRange>> {
        let mut ranges = Vec::new();
        for id in &view.base_tables {
            let table = self.tables.get(id).ok_or_else(|| Error::corrupt(format!("no base table {id}")))?;
            ranges.extend(table.record_ranges());
        }
        ranges.sort_by(|left, right| left.start.cmp(&right.start));
        ranges.dedup();
        Ok(ranges)
    }

    /// The views that name a table or view directly, those under construction too.
    #[must_use]
    pub fn dependents(&self, id: TableId) -> Vec<Arc<TableDefinition>> {
        let names_it = |definition: &&Arc<TableDefinition>| {
            definition.view.as_ref().is_some_and(|view| view.depends_on.contains(&id))
        };
        self.tables.values().filter(names_it).cloned().collect()
    }

    /// All views, by id.
    pub fn views(&self) -> impl Iterator<Item = (TableId, &Arc<TableDefinition>, &ViewDefinition)> {
        self.tables.iter().filter_map(|(id, definition)| Some((*id, definition, definition.view.as_ref()?)))
    }
}
