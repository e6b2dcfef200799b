//! The table of a new view: made through TiDB's SQL, read back, compared.
//!
//! An intent lies in the store from before the table is made until the transaction that writes the view's
//! definition. Whoever finds the intent old takes it away, and the table after it: the transaction then finds
//! that it is gone, and the view gets another table. So no table is left over, whenever a process dies.

use std::sync::Arc;
use std::time::Duration;

use sql::catalog::{TableDefinition, TidbTable};
use store::{Mutation, Snapshot};
use tidb::{TableInfo, adopt_view_table, check_clustered_key, fill_table_name, quoted, view_table_ddl};
use types::records::tidb_intent_key;
use types::{Error, Result};

use super::{TidbOptions, ask_checksums};
use crate::records::encode;
use crate::shared::Shared;

/// How long a table that TiDB says it has made is looked for.
const FOUND_WITHIN_MS: u64 = 10_000;
const LOOK_EVERY_MS: u64 = 20;

/// A table that was made for a view.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    /// What it was made for: database, columns and key.
    database: String,
    expected: TableInfo,
    /// The view's table by the ids that TiDB gave.
    pub(crate) info: TableInfo,
    pub(crate) tidb: TidbTable,
}

impl Placed {
    /// Whether the table is what a view needs.
    pub(crate) fn fits(&self, created: &TableDefinition) -> bool {
        let expected = expected_info(created, self.tidb.number);
        self.database == created.database && expected.is_ok_and(|expected| expected == self.expected)
    }

    /// Whether the intent is still there, so that the table may become a view's.
    pub(crate) async fn is_intended(&self, snapshot: &Snapshot) -> Result<bool> {
        Ok(snapshot.get(&tidb_intent_key(self.tidb.number)).await?.is_some())
    }

    /// What ends the intent, with the transaction that gives the table to the view.
    pub(crate) fn end_intent(&self) -> Mutation {
        Mutation::delete(tidb_intent_key(self.tidb.number))
    }

    /// Gives the table up: it is dropped in its time.
    pub(crate) async fn give_up(&self, shared: &Shared) {
        end_intent(shared, self.tidb.number).await;
    }
}

/// Makes a table for a view.
///
/// # Errors
/// `Unavailable` if TiDB cannot be reached; `Invalid` if the view cannot be a table of TiDB, or TiDB refuses
/// it.
pub(crate) async fn place(shared: &Shared, tidb: &TidbOptions, created: &TableDefinition) -> Result<Placed> {
    let checksums = ask_checksums(shared, tidb).await?;
    let start_ts = shared.store.timestamp().await?;
    let number = start_ts.0;
    let expected = expected_info(created, number)?;
    let ddl = view_table_ddl(&created.database, &expected)?;
    let intent = serde_json::json!({"database": created.database, "view": created.info.name});
    let intent = Mutation::put(tidb_intent_key(number), encode(&intent)?);
    shared.store.commit_transaction(start_ts, vec![intent]).await?;
    match make(shared, tidb, (created, &expected), &ddl).await {
        Ok(info) => Ok(Placed {
            database: created.database.clone(),
            expected,
            info,
            tidb: TidbTable { number, was: Vec::new(), checksums },
        }),
        Err(error) => {
            end_intent(shared, number).await;
            Err(error.context(format!("the table of view '{}' in TiDB", created.full_name())))
        }
    }
}

async fn make(
    shared: &Shared,
    tidb: &TidbOptions,
    (created, expected): (&TableDefinition, &TableInfo),
    ddl: &str,
) -> Result<TableInfo> {
    let now = shared.store.read_timestamp().await?;
    if !shared.catalog_at(now).await?.foreign.has_database(&created.database) {
        let database = format!("CREATE DATABASE IF NOT EXISTS {}", quoted(&created.database));
        tidb.sql.execute(&database).await?;
    }
    tidb.sql.execute(ddl).await?;
    let mut left_ms = FOUND_WITHIN_MS;
    loop {
        let now = shared.store.read_timestamp().await?;
        let foreign = Arc::clone(&shared.catalog_at(now).await?.foreign);
        let found = foreign.id_of(&created.database, &expected.name).and_then(|id| foreign.meta(id));
        if let Some(meta) = found {
            return adopt_view_table(expected, meta, foreign.collations).map_err(|differences| {
                let texts: Vec<String> = differences.iter().map(ToString::to_string).collect();
                Error::mysql(1105, format!("TiDB made another table than asked for: {}", texts.join("; ")))
            });
        }
        if left_ms < LOOK_EVERY_MS {
            let text = "TiDB says that it made the table, and its definition is not in the cluster: is \
                        it the same cluster?";
            return Err(Error::mysql(1105, text));
        }
        left_ms -= LOOK_EVERY_MS;
        tokio::time::sleep(Duration::from_millis(LOOK_EVERY_MS)).await;
    }
}

/// The table that a view needs: with the view's key where TiDB allows it, else without any.
fn expected_info(created: &TableDefinition, number: u64) -> Result<TableInfo> {
    let mut expected = TableInfo { name: fill_table_name(number), ..created.info.clone() };
    if let Err(refusal) = check_clustered_key(&expected.columns, &expected.primary_key) {
        if created.view.as_ref().is_some_and(|view| !view.cluster_by.is_empty()) {
            return Err(Error::mysql(1235, format!("CLUSTER BY cannot be had in TiDB: {refusal}")));
        }
        expected.primary_key.clear();
        expected.pk_is_handle = false;
    }
    for (column, id) in expected.columns.iter_mut().zip(1..) {
        // What the view's own definition would count is TiDB's to give.
        column.id = id;
    }
    expected.id = 0;
    Ok(expected)
}

/// Takes an intent away. If that fails it is found old later.
async fn end_intent(shared: &Shared, number: u64) {
    let ended = async {
        let start_ts = shared.store.timestamp().await?;
        let end = vec![Mutation::delete(tidb_intent_key(number))];
        shared.store.commit_transaction(start_ts, end).await.map_err(Error::from)
    };
    match ended.await {
        Ok(_) => shared.catalog_changed(),
        Err(error) => tracing::warn!(%error, number, "cannot take back the intent to make a table in TiDB"),
    }
}
