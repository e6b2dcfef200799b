//! What the query crate asks of those who know more: system tables of the server, cuts of running jobs.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use sql::catalog::Catalog;
use types::{Error, JobId, Result, Timestamp};

use crate::ReadSettings;

/// A read of a virtual table.
#[derive(Clone, Debug)]
pub struct VirtualRequest {
    /// The database, in lower case.
    pub database: String,
    /// The table, in lower case.
    pub table: String,
    /// The statement's timestamp.
    pub at: Timestamp,
    /// The catalog at that timestamp.
    pub catalog: Arc<Catalog>,
    /// The session's settings.
    pub settings: ReadSettings,
}

/// Tables that are computed instead of stored: `information_schema`, `tidemill`, `mysql`.
#[async_trait]
pub trait VirtualTables: Send + Sync + 'static {
    /// The columns of a virtual table; `None` if there is no such table. Names are in lower case.
    fn schema(&self, database: &str, table: &str) -> Option<SchemaRef>;

    /// Whether a database consists of virtual tables (writing to it is refused).
    fn has_database(&self, database: &str) -> bool;

    /// The rows, in the schema of `schema`.
    async fn scan(&self, request: VirtualRequest) -> Result<Vec<RecordBatch>>;
}

/// No virtual tables.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoVirtualTables;

#[async_trait]
impl VirtualTables for NoVirtualTables {
    fn schema(&self, _database: &str, _table: &str) -> Option<SchemaRef> {
        None
    }

    fn has_database(&self, _database: &str) -> bool {
        false
    }

    async fn scan(&self, request: VirtualRequest) -> Result<Vec<RecordBatch>> {
        let VirtualRequest { database, table, .. } = request;
        Err(Error::mysql(1146, format!("Table '{database}.{table}' doesn't exist")))
    }
}

/// What a wait has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// A checkpoint whose cut has reached the asked timestamp.
    Epoch {
        /// S_k: at or above the asked timestamp. Tables are read at it.
        cut: Timestamp,
        /// C_k, or a later timestamp at which epoch k is still the newest. View rows are read at it.
        commit: Timestamp,
    },
    /// Nothing of the job changed in (S_k, T]: everything is read at T.
    Idle,
}

/// Whoever runs continuous jobs in this process.
#[async_trait]
pub trait Waiter: Send + Sync + 'static {
    /// Waits for a checkpoint of the job with a cut at or above `at`, asking an idle job for one.
    ///
    /// Fails as unavailable, with 1205, after `timeout_ms`.
    ///
    /// `Ok(None)` says that the job is not continuous or not run here: the read goes fresh.
    /// Cancel safe: nothing is lost when the future is dropped.
    async fn wait_cut(&self, job: JobId, at: Timestamp, timeout_ms: u64) -> Result<Option<Waited>>;
}

/// Nobody runs jobs: wait mode reads fresh.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoWaiter;

#[async_trait]
impl Waiter for NoWaiter {
    async fn wait_cut(&self, _job: JobId, _at: Timestamp, _timeout_ms: u64) -> Result<Option<Waited>> {
        Ok(None)
    }
}
