//! What all sessions share: the store, the engine, the runtime, who is there, and what was counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use query::{Engine, Waited, Waiter};
use runtime::{Runtime, Supervisor};
use sql::Literal;
use store::Store;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use types::{JobId, Result, Timestamp};

use crate::config::Config;
use crate::mysql::handshake::Users;
use crate::session::Variables;
use crate::sessions::Sessions;
use crate::system;

/// An open instance, as its sessions see it.
pub(crate) struct Instance {
    pub(crate) config: Config,
    pub(crate) store: Arc<dyn Store>,
    /// Tells the store from others.
    pub(crate) store_identity: u64,
    pub(crate) engine: Engine,
    pub(crate) runtime: Runtime,
    pub(crate) users: Users,
    pub(crate) sessions: Arc<Sessions>,
    /// Values that new sessions begin with; also read by the system tables.
    pub(crate) globals: Arc<Mutex<Variables>>,
    pub(crate) metrics: Metrics,
    /// Tasks of the network; they end before jobs do.
    pub(crate) supervisor: Supervisor,
    pub(crate) started: Instant,
}

/// What is counted.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    n_commands: AtomicU64,
    n_errors: AtomicU64,
}

impl Metrics {
    pub(crate) fn count_command(&self) {
        self.n_commands.fetch_add(1, Ordering::Relaxed);
        metrics::counter!("tidemill_mysql_commands_total").increment(1);
    }

    pub(crate) fn count_error(&self, code: u16) {
        self.n_errors.fetch_add(1, Ordering::Relaxed);
        metrics::counter!("tidemill_mysql_errors_total", "code" => code.to_string()).increment(1);
    }
}

impl Instance {
    /// Cancelled when the instance shuts down.
    pub(crate) fn stopping(&self) -> CancellationToken {
        self.supervisor.token()
    }

    pub(crate) fn global_variables(&self) -> Variables {
        self.globals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// SET GLOBAL: for sessions that begin later.
    ///
    /// # Errors
    /// As `Variables::set`.
    pub(crate) fn set_global(&self, name: &str, value: Option<&Literal>) -> Result<Option<String>> {
        self.globals.lock().unwrap_or_else(PoisonError::into_inner).set(name, value, None)
    }

    pub(crate) fn has_system_database(&self, name: &str) -> bool {
        system::databases().contains(&name)
    }

    pub(crate) fn system_databases(&self) -> Vec<String> {
        system::databases().into_iter().map(str::to_owned).collect()
    }

    pub(crate) fn system_tables(&self, database: &str) -> Vec<String> {
        system::tables(database).into_iter().map(str::to_owned).collect()
    }

    pub(crate) fn system_schema(&self, database: &str, table: &str) -> Option<SchemaRef> {
        system::schema(database, table)
    }

    /// The line of COM_STATISTICS.
    pub(crate) fn statistics(&self) -> String {
        let uptime = self.started.elapsed().as_secs().max(1);
        let questions = self.metrics.n_commands.load(Ordering::Relaxed);
        let threads = self.sessions.list().len();
        // Truncation is what an average of whole questions wants.
        let (whole, thousandths) = (questions / uptime, questions % uptime * 1000 / uptime);
        format!(
            "Uptime: {uptime}  Threads: {threads}  Questions: {questions}  Slow queries: 0  Opens: 0  \
             Flush tables: 0  Open tables: 0  Queries per second avg: {whole}.{thousandths:03}"
        )
    }

    /// What SHOW STATUS lists.
    pub(crate) fn status_values(&self) -> Vec<(&'static str, String)> {
        let sessions = self.sessions.list();
        let running = sessions.iter().filter(|process| process.statement.is_some()).count();
        vec![
            ("Errors", self.metrics.n_errors.load(Ordering::Relaxed).to_string()),
            ("Queries", self.metrics.n_commands.load(Ordering::Relaxed).to_string()),
            ("Questions", self.metrics.n_commands.load(Ordering::Relaxed).to_string()),
            ("Ssl_cipher", String::new()),
            ("Ssl_version", String::new()),
            ("Threads_connected", sessions.len().to_string()),
            ("Threads_running", running.to_string()),
            ("Uptime", self.started.elapsed().as_secs().to_string()),
        ]
    }
}

/// Wait mode over the jobs that run in this process.
pub(crate) struct RuntimeWaiter {
    pub(crate) runtime: Runtime,
}

#[async_trait]
impl Waiter for RuntimeWaiter {
    async fn wait_cut(&self, job: JobId, at: Timestamp, timeout_ms: u64) -> Result<Option<Waited>> {
        let waited = self.runtime.wait_cut(job, at, timeout_ms).await?;
        Ok(waited.map(|waited| Waited::Epoch { cut: waited.cut, commit: waited.commit_ts }))
    }
}
