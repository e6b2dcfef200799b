//! The engine: what a session calls.

use std::sync::Arc;

use operators::RunSource;
use sql::catalog::Catalog;
use sqlparser::ast;
use store::traits::Store;
use types::{Error, Result, Timestamp};

use crate::{
    DmlResult, NoVirtualTables, NoWaiter, Parameter, QueryResult, ReadSettings, ResultColumn, Transaction,
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
    store: Arc<dyn Store>,
    runs: Arc<dyn RunSource>,
    options: Options,
    virtual_tables: Arc<dyn VirtualTables>,
    waiter: Arc<dyn Waiter>,
}

impl Engine {
    /// An engine over a store and the cache of its runs.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, runs: Arc<dyn RunSource>, options: Options) -> Engine {
        Engine { store, runs, options, virtual_tables: Arc::new(NoVirtualTables), waiter: Arc::new(NoWaiter) }
    }

    /// Sets who computes system tables.
    #[must_use]
    pub fn with_virtual_tables(mut self, virtual_tables: Arc<dyn VirtualTables>) -> Engine {
        self.virtual_tables = virtual_tables;
        self
    }

    /// Sets who knows the cuts of running jobs.
    #[must_use]
    pub fn with_waiter(mut self, waiter: Arc<dyn Waiter>) -> Engine {
        self.waiter = waiter;
        self
    }

    /// The catalog at a timestamp, cached by the catalog's version.
    ///
    /// # Errors
    /// If the store is away or a definition is broken.
    pub async fn catalog(&self, at: Timestamp) -> Result<Arc<Catalog>> {
        Err(Error::invalid(format!("not built yet: {at}")))
    }

    /// Begins a transaction: a snapshot at a new start timestamp.
    ///
    /// # Errors
    /// If the store is away.
    pub async fn begin(&self) -> Result<Transaction> {
        Ok(Transaction::begin(self.store.timestamp().await?))
    }

    /// Commits a transaction; answers its commit timestamp, or its start if it wrote nothing.
    ///
    /// # Errors
    /// `Conflict` with 9007 if another transaction has written one of its keys since it began.
    pub async fn commit(&self, transaction: Transaction) -> Result<Timestamp> {
        Ok(transaction.start_ts())
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
        parameters: &[Parameter],
    ) -> Result<QueryResult> {
        let _ = (settings, query, transaction, parameters, &self.runs, &self.options);
        let _ = (&self.virtual_tables, &self.waiter);
        Err(Error::invalid("not built yet"))
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
        let _ = (settings, query, transaction);
        Err(Error::invalid("not built yet"))
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
        parameters: &[Parameter],
    ) -> Result<QueryResult> {
        let _ = (settings, query, transaction, parameters);
        Err(Error::invalid("not built yet"))
    }

    /// Compares a view's rows with its query at one timestamp, by bytes, both ways: the rows that differ,
    /// after a column `difference` (`extra` in the view, `missing` from it) and a column `count`.
    ///
    /// # Errors
    /// 1146 if there is no such view; 1105 if it is being filled or faulted.
    pub async fn verify(&self, settings: &ReadSettings, database: &str, view: &str) -> Result<QueryResult> {
        let _ = (settings, database, view);
        Err(Error::invalid("not built yet"))
    }

    /// Runs an INSERT, REPLACE, UPDATE or DELETE: inside the transaction, or in one of its own, which is
    /// tried again when it conflicts.
    ///
    /// # Errors
    /// What MySQL's strict mode refuses, with its number; then nothing of the statement is done.
    pub async fn execute(
        &self,
        settings: &ReadSettings,
        statement: &ast::Statement,
        transaction: Option<&mut Transaction>,
        parameters: &[Parameter],
    ) -> Result<DmlResult> {
        let _ = (settings, statement, transaction, parameters);
        Err(Error::invalid("not built yet"))
    }
}
