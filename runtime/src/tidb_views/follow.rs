//! TiDB's tables follow the catalog: renamed to the names that they are to have, dropped when they are to go.
//!
//! One step at a time, chosen by what the catalog and TiDB's definitions say at one timestamp, so a step that
//! another process has done meanwhile fails or does nothing. Only names that a view's table alone can have
//! (`_tidemill_fill_…`, `_tidemill_old_…`) are ever dropped: a name that a user could have is renamed to one
//! of them before.

use std::sync::Arc;
use std::time::Duration;

use sql::catalog::{Catalog, TableDefinition};
use store::{KeyRange, Mutation, Snapshot};
use tidb::{FILL_TABLE_PREFIX, MetaTable, fill_table_name, old_table_name, quoted, verify_view_table};
use tokio_util::sync::CancellationToken;
use types::records::{number_of_tidb_intent_key, tidb_intent_key, tidb_intent_prefix};
use types::{Error, ErrorKind, Result, TableId, Timestamp};

use super::{TidbOptions, ask_checksums};
use crate::records::rows_of;
use crate::shared::Shared;

/// How often it is looked even if nobody said that the catalog changed: another process may have.
const LOOK_EVERY_MS: u64 = 500;
/// The first and the longest pause after a step that failed.
const PAUSE_MS: (u64, u64) = (100, 30_000);

/// Makes TiDB's tables follow the catalog until it is told to stop.
///
/// # Errors
/// `Closed` when the store is closed.
pub(crate) async fn follow(shared: Arc<Shared>, token: CancellationToken) -> Result<()> {
    let Some(tidb) = shared.options.tidb.clone() else { return Ok(()) };
    let mut changes = shared.catalog_changes.subscribe();
    let mut follower = Follower { shared: Arc::clone(&shared), tidb, last: None, asked: false };
    let mut pause_ms = PAUSE_MS.0;
    loop {
        changes.mark_unchanged();
        let wait_ms = match follower.follow_up(&token).await {
            Ok(()) => {
                pause_ms = PAUSE_MS.0;
                LOOK_EVERY_MS
            }
            Err(error) if error.kind() == ErrorKind::Closed => return Err(error),
            Err(error) => {
                tracing::warn!(%error, pause_ms, "TiDB does not follow the views, it is tried again");
                follower.last = None;
                shared.tidb.set_problem(Some(error.message().to_owned()));
                let wait_ms = pause_ms;
                pause_ms = (pause_ms * 2).min(PAUSE_MS.1);
                // Also if something else is to be done by now.
                tokio::time::sleep(Duration::from_millis(PAUSE_MS.0)).await;
                wait_ms - PAUSE_MS.0
            }
        };
        tokio::select! {
            () = token.cancelled() => return Ok(()),
            changed = changes.changed() => drop(changed),
            () = tokio::time::sleep(Duration::from_millis(wait_ms)) => {}
        }
    }
}

struct Follower {
    shared: Arc<Shared>,
    tidb: TidbOptions,
    /// The statement that was carried out last.
    last: Option<String>,
    /// Whether TiDB has said since the start whether rows have checksums.
    asked: bool,
}

impl Follower {
    /// Takes steps until there is none.
    async fn follow_up(&mut self, token: &CancellationToken) -> Result<()> {
        if !self.asked {
            ask_checksums(&self.shared, &self.tidb).await?;
            self.asked = true;
        }
        while !token.is_cancelled() {
            let now = self.shared.store.read_timestamp().await?;
            let catalog = self.shared.catalog_at(now).await?;
            let intents = self.intents(now).await?;
            let statement = match next_step(&catalog, &intents) {
                Some(Step::Statement(statement)) => statement,
                Some(Step::TakeOver { table, statement, taken }) => {
                    if !self.is_empty(table, now).await? {
                        return Err(Error::mysql(1050, taken));
                    }
                    statement
                }
                Some(Step::Taken(text)) => return Err(Error::mysql(1050, text)),
                None => {
                    self.last = None;
                    self.shared.tidb.set_problem(None);
                    return Ok(());
                }
            };
            if self.last.as_ref() == Some(&statement) {
                return Err(Error::unavailable(format!("TiDB did nothing: {statement}")));
            }
            self.tidb.sql.execute(&statement).await?;
            tracing::info!(statement, "TiDB follows the views");
            self.last = Some(statement);
            self.shared.catalog_changed();
        }
        Ok(())
    }

    /// Whether a table of TiDB has no rows.
    async fn is_empty(&self, table: TableId, now: Timestamp) -> Result<bool> {
        let snapshot = Snapshot::new(Arc::clone(&self.shared.store), now);
        Ok(snapshot.scan(&rows_of(table)?, 1).await?.is_empty())
    }

    /// Numbers of tables that were being made at a timestamp; intents that are too old are taken away.
    async fn intents(&self, now: Timestamp) -> Result<Vec<u64>> {
        let snapshot = Snapshot::new(Arc::clone(&self.shared.store), now);
        let mut numbers = Vec::new();
        for (key, _) in snapshot.scan_all(&KeyRange::prefix(&tidb_intent_prefix())).await? {
            let number = number_of_tidb_intent_key(&key)?;
            // One that ends here too: the table may have become a view's since `now`, which the next look sees.
            numbers.push(number);
            let age_ms = now.physical_ms().saturating_sub(Timestamp(number).physical_ms());
            if age_ms <= self.tidb.intent_ms {
                continue;
            }
            let start_ts = self.shared.store.timestamp().await?;
            let end = vec![Mutation::delete(tidb_intent_key(number))];
            self.shared.store.commit_transaction(start_ts, end).await?;
            tracing::warn!(number, "a table in TiDB was made for a view and never became one");
        }
        Ok(numbers)
    }
}

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// A statement for TiDB.
    Statement(String),
    /// The same, if a table has no rows; else it is as [`Step::Taken`].
    TakeOver { table: TableId, statement: String, taken: String },
    /// Nothing can be done: a name that is needed belongs to another table.
    Taken(String),
}

/// The next step that makes TiDB's tables follow the catalog.
fn next_step(catalog: &Catalog, intents: &[u64]) -> Option<Step> {
    let mut taken = None;
    for (id, _, _) in catalog.views() {
        match publish_step(catalog, id) {
            Some(Step::Taken(text)) => taken = taken.or(Some(text)),
            Some(step) => return Some(step),
            None => {}
        }
    }
    gone_step(catalog)
        .or_else(|| left_over_step(catalog, intents))
        .map(Step::Statement)
        .or(taken.map(Step::Taken))
}

/// The rename that gives a view's table its name, in one statement with the one that the view replaces.
fn publish_step(catalog: &Catalog, view: TableId) -> Option<Step> {
    let definition = catalog.tables.get(&view)?;
    let tidb = definition.tidb()?;
    let (database, name) = catalog.foreign.name_of(view)?;
    if !database.eq_ignore_ascii_case(&definition.database) {
        return None;
    }
    let Some(wanted) = definition.wanted_tidb_name() else {
        let fill = fill_table_name(tidb.number);
        return (name == fill).then(|| Step::Statement(drop_table(database, &fill)));
    };
    let is_known = definition.tidb_names().iter().any(|known| known.eq_ignore_ascii_case(name));
    if name.eq_ignore_ascii_case(&wanted) || !is_known {
        // A table under a name that nobody here gave it is not touched: the view's next epoch says so.
        return None;
    }
    let published = rename(database, name, &wanted);
    let Some(there) = catalog.foreign.id_of(database, &wanted) else {
        return Some(Step::Statement(format!("RENAME TABLE {published}")));
    };
    if let Some(gone) = catalog.gone.get(&there) {
        let away = rename(database, &wanted, &old_table_name(gone.number));
        return Some(Step::Statement(format!("RENAME TABLE {away}, {published}")));
    }
    if catalog.tables.get(&there).is_some_and(|other| other.tidb().is_some()) {
        // It gets another name first.
        return None;
    }
    let view = definition.full_name();
    let taken = format!("view '{view}' cannot be shown in TiDB: there is another table of that name");
    if is_truncated(catalog, definition, there) {
        let away = rename(database, &wanted, &fill_table_name(version_number(catalog)));
        let statement = format!("RENAME TABLE {away}, {published}");
        return Some(Step::TakeOver { table: there, statement, taken });
    }
    Some(Step::Taken(taken))
}

/// Whether a table under a view's name is what TRUNCATE made of the table of the view that it replaces: that
/// one is gone, and this one is like it.
fn is_truncated(catalog: &Catalog, definition: &TableDefinition, there: TableId) -> bool {
    let replaced = catalog.gone.iter().any(|(table, note)| {
        let is_of_name = note.names.iter().any(|name| name.eq_ignore_ascii_case(&definition.info.name));
        is_of_name
            && note.database.eq_ignore_ascii_case(&definition.database)
            && catalog.foreign.meta(*table).is_none()
    });
    let collations = catalog.foreign.collations;
    let is_like = |meta: &Arc<MetaTable>| verify_view_table(&definition.info, meta, collations).is_ok();
    replaced && catalog.foreign.meta(there).is_some_and(is_like)
}

/// The next statement that takes the table of a dropped view away.
fn gone_step(catalog: &Catalog) -> Option<String> {
    catalog.gone.iter().filter(|(table, note)| note.is_there(**table, &catalog.foreign)).find_map(
        |(table, note)| {
            let (database, name) = catalog.foreign.name_of(*table)?;
            let (fill, old) = (fill_table_name(note.number), old_table_name(note.number));
            if name == fill || name == old {
                return Some(drop_table(database, name));
            }
            Some(format!("RENAME TABLE {}", rename(database, name, &old)))
        },
    )
}

/// The statement that drops a table which was made for a view, belongs to none, and is not about to.
fn left_over_step(catalog: &Catalog, intents: &[u64]) -> Option<String> {
    let is_left_over = |(id, _, name): &(TableId, &str, &str)| {
        let number = name.strip_prefix(FILL_TABLE_PREFIX).and_then(|number| number.parse().ok());
        let known = catalog.tables.get(id).is_some_and(|definition| definition.tidb().is_some());
        number.is_some_and(|number| !intents.contains(&number)) && !known && !catalog.gone.contains_key(id)
    };
    let (_, database, name) = catalog.foreign.names().find(is_left_over)?;
    Some(drop_table(database, name))
}

/// A number that no table's name has: they are timestamps.
fn version_number(catalog: &Catalog) -> u64 {
    let version = catalog.foreign.stamp.map_or(0, |stamp| stamp.version);
    u64::try_from(version).unwrap_or(0)
}

fn rename(database: &str, from: &str, to: &str) -> String {
    let database = quoted(database);
    format!("{database}.{} TO {database}.{}", quoted(from), quoted(to))
}

fn drop_table(database: &str, name: &str) -> String {
    format!("DROP TABLE IF EXISTS {}.{}", quoted(database), quoted(name))
}
