//! The engine: what a session calls.

use std::sync::Arc;
use std::time::Duration;

use operators::RunSource;
use sql::catalog::{Catalog, CatalogCache};
use sql::{Literal, bind, bind_nulls};
use sqlparser::ast;
use store::{KeyError, Mutation, Snapshot, Store};
use tokio_util::sync::CancellationToken;
use types::records::{dropped_key, dropped_prefix};
use types::{Error, ErrorKind, Result, TableId, Timestamp};

use crate::counts::Counts;
use crate::dml::RowIds;
use crate::fix::ViewPlans;
use crate::names::Names;
use crate::select::result_column;
use crate::{
    DmlResult, NoVirtualTables, NoWaiter, QueryResult, ReadSettings, ResultColumn, Transaction,
    VirtualTables, Waiter,
};

/// Limits and sizes.
#[derive(Clone, Debug)]
pub struct Options {
    /// Shards and threads of a read fix, and target partitions of the batch engine.
    pub parallelism: usize,
    /// Rows a batch.
    pub batch_rows: usize,
    /// Beyond so many changes since the checkpoint a read goes Live instead of Hybrid.
    pub hybrid_changes_max: usize,
    /// How often an autocommit statement is tried when it conflicts.
    pub autocommit_attempts: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options { parallelism: 1, batch_rows: 8192, hybrid_changes_max: 100_000, autocommit_attempts: 16 }
    }
}

/// Answers queries and runs data changes; shared by all sessions.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

#[derive(Clone)]
struct Shared {
    store: Arc<dyn Store>,
    runs: Arc<dyn RunSource>,
    options: Options,
    virtual_tables: Arc<dyn VirtualTables>,
    waiter: Arc<dyn Waiter>,
    catalogs: Arc<CatalogCache>,
    row_ids: Arc<RowIds>,
    view_plans: Arc<ViewPlans>,
    counts: Arc<Counts>,
}

impl Engine {
    /// An engine over a store and the cache of its runs.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, runs: Arc<dyn RunSource>, options: Options) -> Engine {
        let shared = Shared {
            store,
            runs,
            options,
            virtual_tables: Arc::new(NoVirtualTables),
            waiter: Arc::new(NoWaiter),
            catalogs: Arc::new(CatalogCache::new()),
            row_ids: Arc::default(),
            view_plans: Arc::default(),
            counts: Arc::default(),
        };
        Engine { shared: Arc::new(shared) }
    }

    /// Sets who computes system tables.
    #[must_use]
    pub fn with_virtual_tables(mut self, virtual_tables: Arc<dyn VirtualTables>) -> Engine {
        Arc::make_mut(&mut self.shared).virtual_tables = virtual_tables;
        self
    }

    /// Sets who knows the cuts of running jobs.
    #[must_use]
    pub fn with_waiter(mut self, waiter: Arc<dyn Waiter>) -> Engine {
        Arc::make_mut(&mut self.shared).waiter = waiter;
        self
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    pub(crate) fn runs(&self) -> &Arc<dyn RunSource> {
        &self.shared.runs
    }

    pub(crate) fn options(&self) -> &Options {
        &self.shared.options
    }

    pub(crate) fn virtual_tables(&self) -> &Arc<dyn VirtualTables> {
        &self.shared.virtual_tables
    }

    pub(crate) fn waiter(&self) -> &Arc<dyn Waiter> {
        &self.shared.waiter
    }

    pub(crate) fn view_plans(&self) -> &ViewPlans {
        &self.shared.view_plans
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.shared.counts
    }

    pub(crate) fn row_ids(&self) -> &RowIds {
        &self.shared.row_ids
    }

    /// The catalog at a timestamp, cached by the catalog's version.
    ///
    /// # Errors
    /// If the store is away or a definition is broken.
    pub async fn catalog(&self, at: Timestamp) -> Result<Arc<Catalog>> {
        let snapshot = Snapshot::new(Arc::clone(self.store()), at);
        self.shared.catalogs.load_at(&snapshot).await
    }

    /// Begins a transaction: a snapshot at a new start timestamp.
    ///
    /// # Errors
    /// If the store is away.
    pub async fn begin(&self) -> Result<Transaction> {
        let start_ts = self.store().timestamp().await?;
        Ok(Transaction::begin(start_ts, self.store().begun(start_ts)))
    }

    /// Commits a transaction; answers its commit timestamp, or its start if it wrote nothing.
    ///
    /// # Errors
    /// `Conflict` with 9007 if another transaction has written one of its keys since it began, with 8028 if
    /// one of its tables was dropped.
    pub async fn commit(&self, transaction: Transaction) -> Result<Timestamp> {
        match self.try_commit(&transaction).await {
            Ok(commit_ts) => Ok(commit_ts),
            Err(failed) => Err(self.told(&transaction, failed).await),
        }
    }

    async fn try_commit(&self, transaction: &Transaction) -> std::result::Result<Timestamp, KeyError> {
        if transaction.is_read_only() {
            return Ok(transaction.start_ts());
        }
        let mut mutations = transaction.mutations();
        // In the one step that decides the conflicts: no table goes between a look and the commit.
        mutations.extend(transaction.tables().map(still_there));
        self.store().commit_transaction(transaction.start_ts(), mutations).await
    }

    /// Answers a query at one timestamp.
    ///
    /// # Errors
    /// What MySQL would refuse, with its number; a faulted view in stale mode (1105); an unavailable store.
    pub async fn select(
        &self,
        settings: &ReadSettings,
        query: &ast::Query,
        transaction: Option<&Transaction>,
        parameters: &[Literal],
    ) -> Result<QueryResult> {
        let query = bind(query, parameters)?;
        let scope = self.scope(settings, transaction).await?;
        if let Some(result) = self.point_select(&scope, &query).await? {
            return Ok(result);
        }
        let planned = Box::pin(self.plan(scope, &query, transaction.is_some())).await?;
        crate::select::run(planned)
    }

    /// The columns that a query would answer, without running it; parameters are taken as NULL.
    ///
    /// # Errors
    /// As [`Engine::select`].
    pub async fn describe(
        &self,
        settings: &ReadSettings,
        query: &ast::Query,
        transaction: Option<&Transaction>,
    ) -> Result<Vec<ResultColumn>> {
        let query = bind_nulls(query);
        let scope = self.scope(settings, transaction).await?;
        let planned = sql::plan_query(&query, &Names::undecided(&scope), &scope.settings)?;
        Ok(planned.columns.iter().map(result_column).collect())
    }

    /// Explains a query: its plan, and a line `ReadPath: …` for each view.
    ///
    /// # Errors
    /// As [`Engine::select`].
    pub async fn explain(
        &self,
        settings: &ReadSettings,
        query: &ast::Query,
        transaction: Option<&Transaction>,
        parameters: &[Literal],
    ) -> Result<QueryResult> {
        let query = bind(query, parameters)?;
        let scope = self.scope(settings, transaction).await?;
        let planned = Box::pin(self.plan(scope, &query, transaction.is_some())).await?;
        Engine::explain_planned(planned)
    }

    /// Compares a view's rows with its query at one timestamp, by bytes, both ways: the rows that differ,
    /// after a column `difference` (`extra` in the view, `missing` from it) and a column `count`.
    ///
    /// # Errors
    /// 1146 if there is no such view; 1105 if it is being filled or faulted.
    pub async fn verify(&self, settings: &ReadSettings, database: &str, view: &str) -> Result<QueryResult> {
        Box::pin(self.verify_view(settings, database, view)).await
    }

    /// Runs an INSERT, REPLACE, UPDATE or DELETE: inside the transaction, or in one of its own, which is
    /// tried again when it conflicts. It may be interrupted until a commit begins: what is being committed
    /// must not be reported as not done.
    ///
    /// # Errors
    /// What MySQL's strict mode refuses, with its number, and 1317 for an interrupt; then nothing of the
    /// statement is done.
    pub async fn execute(
        &self,
        settings: &ReadSettings,
        statement: &ast::Statement,
        transaction: Option<&mut Transaction>,
        parameters: &[Literal],
        interrupt: &CancellationToken,
    ) -> Result<DmlResult> {
        let statement = bind(statement, parameters)?;
        if settings.snapshot.is_some() {
            return Err(Error::mysql(1105, "can not write while 'tidemill_snapshot' is set"));
        }
        if let Some(transaction) = transaction {
            return or_interrupted(interrupt, self.change(settings, &statement, transaction)).await;
        }
        let mut attempt = 1;
        loop {
            let mut own = self.begin().await?;
            let mut result = or_interrupted(interrupt, self.change(settings, &statement, &mut own)).await?;
            match self.try_commit(&own).await {
                Ok(commit_ts) => {
                    result.commit_ts = Some(commit_ts);
                    return Ok(result);
                }
                Err(failed)
                    if commit_error(failed.clone()).kind() == ErrorKind::Conflict
                        && attempt < self.options().autocommit_attempts =>
                {
                    let pause_ms = rand::random_range(0..=u64::from(attempt));
                    tokio::time::sleep(Duration::from_millis(pause_ms)).await;
                    attempt += 1;
                }
                Err(failed) => return Err(self.told(&own, failed).await),
            }
        }
    }
}

/// Waits for work that may be given up halfway.
///
/// # Errors
/// 1317 once it is interrupted; what the work says.
pub async fn or_interrupted<T>(
    interrupt: &CancellationToken,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::select! {
        biased;
        () = interrupt.cancelled() => Err(Error::mysql(1317, "Query execution was interrupted")),
        result = work => result,
    }
}

/// The check that a table which is there at the start has not been dropped since.
pub(crate) fn still_there(table: TableId) -> Mutation {
    Mutation::check_not_exists(dropped_key(table))
}

/// What a commit's error is to a client.
pub(crate) fn commit_error(error: KeyError) -> Error {
    let met = match &error {
        KeyError::WriteConflict { key, .. } | KeyError::AlreadyExists(key) => Some(key),
        _ => None,
    };
    if met.is_some_and(|key| key.starts_with(&dropped_prefix())) {
        return table_gone();
    }
    match Error::from(error) {
        error if error.kind() == ErrorKind::Conflict => error.with_mysql_code(9007),
        error => error,
    }
}

/// A table was dropped under a transaction that writes it.
pub(crate) fn table_gone() -> Error {
    let text = "Information schema is changed during the execution of the statement";
    Error::conflict(text).with_mysql_code(8028)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_send<T: Send>(_: &T) {}

    /// Sessions are tasks of a runtime with many threads.
    #[allow(dead_code, reason = "compiling it is the test")]
    fn futures_can_move_between_threads(
        engine: Engine,
        settings: ReadSettings,
        query: ast::Query,
        statement: ast::Statement,
        mut transaction: Transaction,
        interrupt: CancellationToken,
    ) {
        is_send(&engine.select(&settings, &query, None, &[]));
        is_send(&engine.describe(&settings, &query, None));
        is_send(&engine.explain(&settings, &query, None, &[]));
        is_send(&engine.verify(&settings, "a", "b"));
        is_send(&engine.execute(&settings, &statement, Some(&mut transaction), &[], &interrupt));
    }
}
