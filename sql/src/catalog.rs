//! The catalog: databases, tables and views, as they are at one timestamp.
//!
//! Definitions are JSON records under Tidemill's private prefix (`types::records`); a change of any of
//! them also rewrites the catalog's version key, which is how a cached catalog is known to be right at a
//! timestamp. Names are compared in lower case, as MySQL does where table names are case-insensitive.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use types::{JobId, TableId, Timestamp};

/// The definition of a table or view.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableDefinition {
    /// The database it is in.
    pub database: String,
    /// Columns, keys and ids, as TiDB keeps them.
    pub info: tidb::TableInfo,
    /// What makes it a view; `None` for a base table.
    pub view: Option<ViewDefinition>,
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
    /// The continuous job that maintains it.
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
    /// Database names.
    pub databases: Vec<String>,
    /// Definitions by id.
    pub tables: BTreeMap<TableId, Arc<TableDefinition>>,
    /// Ids by database and name, in lower case. A view under construction that replaces another is not here.
    pub names: BTreeMap<(String, String), TableId>,
}

impl Catalog {
    /// Finds a table or view by name.
    #[must_use]
    pub fn find(&self, database: &str, name: &str) -> Option<&Arc<TableDefinition>> {
        let id = self.names.get(&(database.to_lowercase(), name.to_lowercase()))?;
        self.tables.get(id)
    }
}
