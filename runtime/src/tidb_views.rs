//! Views as tables of TiDB: tables are made, renamed and dropped through TiDB's SQL, and rows are written by
//! the views' own epochs.
//!
//! ```text
//! intent --> CREATE TABLE _tidemill_fill_n --> read back, verified --> the view's definition, intent gone
//!   --> fill --> deciding epoch: published in the catalog --> RENAME TABLE to the view's name
//! ```
//!
//! What is to be done in TiDB is never written down as a list: the catalog says which name each view's table
//! is to have and which tables are to go, TiDB's definitions say what is there, and the process that runs the
//! jobs makes the second follow the first ([`follow`]). So a step that was cut off is simply done again.

mod follow;
mod place;

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use sql::catalog::{Catalog, CatalogChange, TableDefinition, ViewDefinition};
use tokio::time::Instant;
use types::{Error, Result, TableId};

pub(crate) use follow::follow;
pub(crate) use place::{Placed, place};

use crate::Runtime;
use crate::shared::Shared;

/// How long a statement waits for TiDB to show what it did.
const SHOWN_WITHIN_MS: u64 = 10_000;
/// How often it looks.
const LOOK_EVERY_MS: u64 = 20;
/// The variable of TiDB that says whether rows have checksums.
const CHECKSUMS: &str = "tidb_enable_row_level_checksum";

/// SQL over a connection to TiDB.
#[async_trait]
pub trait TidbSql: Send + Sync + Debug {
    /// Runs a statement that answers no rows.
    ///
    /// # Errors
    /// `Unavailable` if TiDB cannot be reached or it is not known what became of the statement; `Invalid`,
    /// with TiDB's number, if it was refused. Neither has a password in it.
    async fn execute(&self, statement: &str) -> Result<()>;

    /// The value of a global variable; `None` if there is none of that name.
    ///
    /// # Errors
    /// As [`TidbSql::execute`].
    async fn variable(&self, name: &str) -> Result<Option<String>>;
}

/// Where views are tables of TiDB.
#[derive(Clone, Debug)]
pub struct TidbOptions {
    /// The connection.
    pub sql: Arc<dyn TidbSql>,
    /// After so long a table that was to be a view's, and is not, is taken away. A CREATE that is slower
    /// makes another.
    pub intent_ms: u64,
}

impl TidbOptions {
    /// TiDB makes a table within seconds.
    pub const INTENT_MS: u64 = 120_000;
}

/// What is known of TiDB beside its definitions.
#[derive(Debug, Default)]
pub(crate) struct TidbState {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Why the tables do not follow the catalog now.
    problem: Option<String>,
    /// How often they could not, since the process began.
    n_failures: u64,
    /// Whether rows have checksums, as TiDB last said.
    checksums: Option<bool>,
}

impl TidbState {
    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_problem(&self, problem: Option<String>) {
        let mut known = self.known();
        known.n_failures += u64::from(problem.is_some());
        known.problem = problem;
    }

    fn n_failures(&self) -> u64 {
        self.known().n_failures
    }

    /// Why the tables do not follow the catalog now.
    pub(crate) fn problem(&self) -> Option<String> {
        self.known().problem.clone()
    }

    /// Whether rows get checksums, as far as TiDB has said since this process began.
    pub(crate) fn checksums(&self) -> Option<bool> {
        self.known().checksums
    }
}

/// Asks whether rows have checksums.
async fn ask_checksums(shared: &Shared, tidb: &TidbOptions) -> Result<bool> {
    let value = tidb.sql.variable(CHECKSUMS).await?;
    let on = value.is_some_and(|value| value == "1" || value.eq_ignore_ascii_case("on"));
    shared.tidb.known().checksums = Some(on);
    Ok(on)
}

/// Refuses a change that TiDB must carry out too while TiDB does not answer.
///
/// # Errors
/// `Unavailable` if a view's table in TiDB is to be made, renamed or dropped, and TiDB cannot be reached.
pub(crate) async fn check_reachable(shared: &Shared, change: &CatalogChange) -> Result<()> {
    let gone = change.dropped.iter().find(|gone| gone.tidb().is_some());
    match gone {
        Some(gone) => check_answers(shared, &gone.full_name()).await,
        None => Ok(()),
    }
}

/// Refuses a change of a view that is a table of TiDB while TiDB does not answer.
///
/// # Errors
/// `Unavailable` if TiDB cannot be reached.
pub(crate) async fn check_answers(shared: &Shared, name: &str) -> Result<()> {
    let Some(tidb) = &shared.options.tidb else { return Err(no_tidb(name)) };
    let answer = tidb.sql.variable(CHECKSUMS).await;
    answer.map(drop).map_err(|error| error.context(format!("view '{name}' is a table of TiDB")))
}

/// The error that TiDB is needed and no connection is configured.
pub(crate) fn no_tidb(name: &str) -> Error {
    let text =
        format!("view '{name}' is a table of TiDB, and this server knows no TiDB: start it with --tidb");
    Error::mysql(1105, text)
}

/// Whether no view's table waits for its name, so that the notes of what was replaced may go.
pub(crate) fn are_all_shown(catalog: &Catalog) -> bool {
    let waits = |(view, definition, _): (TableId, &Arc<TableDefinition>, &ViewDefinition)| {
        let known = definition.tidb_names();
        let is_known = |(_, name): (&str, &str)| known.iter().any(|known| known.eq_ignore_ascii_case(name));
        catalog.foreign.name_of(view).is_some_and(is_known) && not_shown(catalog, view).is_some()
    };
    !catalog.views().any(waits)
}

/// What TiDB does not show yet of a view: `None` if everything.
fn not_shown(catalog: &Catalog, view: TableId) -> Option<String> {
    let known = catalog.tables.get(&view)?;
    let wanted = known.wanted_tidb_name()?;
    let shown = catalog.foreign.name_of(view).is_some_and(|(_, name)| name.eq_ignore_ascii_case(&wanted));
    (!shown).then(|| format!("TiDB does not show view '{}' yet", known.full_name()))
}

impl Runtime {
    /// Waits, for a bounded time, until TiDB shows a view under its name, or none of what was dropped; says
    /// what it does not show then, and why, if that is known.
    ///
    /// Cancel safe: it only reads.
    ///
    /// # Errors
    /// What the store says; `Closed` at shutdown.
    pub async fn wait_shown(&self, view: Option<TableId>) -> Result<Option<String>> {
        if self.shared.options.tidb.is_none() {
            return Ok(None);
        }
        let token = self.shared.supervisor.token();
        let deadline = Instant::now() + Duration::from_millis(SHOWN_WITHIN_MS);
        // The first one may have begun before.
        let n_failures_max = self.shared.tidb.n_failures() + 1;
        loop {
            let now = self.shared.store.read_timestamp().await?;
            let catalog = self.shared.catalog_at(now).await?;
            let hanging = match view {
                Some(view) => not_shown(&catalog, view),
                None => {
                    let mut gone = catalog.gone.iter();
                    let there = gone.find(|(table, note)| note.is_there(**table, &catalog.foreign));
                    there.map(|(_, note)| {
                        let name = note.names.get(1).or(note.names.first());
                        let name = name.map_or("", String::as_str);
                        format!("TiDB has the table of '{}.{name}' still", note.database)
                    })
                }
            };
            let Some(hanging) = hanging else { return Ok(None) };
            let failed = self.shared.tidb.n_failures() > n_failures_max;
            if failed || Instant::now() >= deadline {
                let problem = self.shared.tidb.problem();
                let why = problem.map(|problem| format!(": {problem}")).unwrap_or_default();
                return Ok(Some(format!("{hanging}; it is tried again{why}")));
            }
            tokio::select! {
                () = token.cancelled() => return Err(Error::closed("the server shuts down")),
                () = tokio::time::sleep(Duration::from_millis(LOOK_EVERY_MS)) => {}
            }
        }
    }
}

impl Runtime {
    /// What a user is to know about a published view that TiDB does not show under its name.
    ///
    /// # Errors
    /// What the store says.
    pub async fn tidb_hint(&self, view: TableId) -> Result<Option<String>> {
        let now = self.shared.store.read_timestamp().await?;
        let catalog = self.shared.catalog_at(now).await?;
        Ok(hint(&self.shared, &catalog, view))
    }
}

/// What a user is to know about a published view that TiDB does not show under its name.
pub(crate) fn hint(shared: &Shared, catalog: &Catalog, view: TableId) -> Option<String> {
    let hanging = not_shown(catalog, view)?;
    let why = match (&shared.options.tidb, shared.tidb.problem()) {
        (None, _) => ": this server knows no TiDB".to_owned(),
        (Some(_), Some(problem)) => format!(": {problem}"),
        (Some(_), None) => String::new(),
    };
    Some(format!("{hanging}{why}"))
}
