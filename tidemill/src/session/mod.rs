//! A session: what one client has set, its transaction, and the dispatch of its statements.
//!
//! Sessions of the network and of this process are the same thing. A statement runs to its end before the
//! next begins; KILL ends what it waits for. DDL commits the open transaction first, as in MySQL.

mod dispatch;
mod errands;
mod refresh;
mod set;
mod show;
mod tables;
mod token;
mod variables;
mod views;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use query::{PathChoice, ReadMode, ReadSettings, Transaction};
use sql::catalog::Catalog;
use sql::stack::Roomy;
use sql::{Literal, ParsedStatement, Settings, TableName};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use types::{Error, Result, Timestamp};

pub(crate) use errands::serve as serve_errands;
pub(crate) use tables::{bootstrap, store_identity};
pub(crate) use variables::{CHARSETS, COLLATIONS, Variables};

use crate::answer::Answer;
use crate::instance::Instance;
use crate::mysql::errors;
use crate::result::{Column, Outcome, Rows};
use crate::sessions::Entry;
use tidb::Zone;

/// A line of SHOW WARNINGS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Warning {
    pub(crate) level: &'static str,
    pub(crate) code: u16,
    pub(crate) message: String,
}

/// One client's session.
pub struct Session {
    instance: Arc<Instance>,
    entry: Arc<Entry>,
    variables: Variables,
    database: Option<String>,
    user: String,
    /// Whether UPDATE counts matched rows instead of changed ones.
    found_rows: bool,
    transaction: Option<Transaction>,
    /// Whether the open transaction is READ ONLY.
    transaction_read_only: bool,
    warnings: Vec<Warning>,
    /// `tidemill_snapshot`, understood.
    snapshot: Option<Timestamp>,
    /// What `tidemill_wait_for` asks for.
    wait_for: Option<Timestamp>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.instance.sessions.close(self.entry.id);
    }
}

impl Session {
    /// Opens a session; `None` if there are too many of the network.
    pub(crate) fn open(instance: &Arc<Instance>, peer: &str, network: bool) -> Option<Session> {
        let max = network.then_some(instance.config.connections_max);
        let entry = instance.sessions.open(peer, max)?;
        let session = Session {
            instance: Arc::clone(instance),
            entry,
            variables: instance.global_variables(),
            database: None,
            user: "root@localhost".to_owned(),
            found_rows: false,
            transaction: None,
            transaction_read_only: false,
            warnings: Vec::new(),
            snapshot: None,
            wait_for: None,
        };
        Some(session)
    }

    /// A session of this process, logged in, in the database `test` if there is one.
    ///
    /// # Errors
    /// `Closed` after shutdown began.
    pub(crate) fn of_process(instance: &Arc<Instance>) -> Result<Session> {
        let open = if instance.stopping().is_cancelled() { None } else { Session::open(instance, "", false) };
        let mut session = open.ok_or_else(|| Error::closed("the instance is shutting down"))?;
        session.entry.set_user("root");
        session.entry.set_database(Some("test".to_owned()));
        session.database = Some("test".to_owned());
        Ok(session)
    }

    /// Runs statements, separated by semicolons, and takes all of each answer; the last one's is returned.
    ///
    /// # Errors
    /// The first statement's error; nothing after it is run.
    pub async fn execute(&mut self, sql: &str) -> Result<Answer> {
        let statements = self.parse(sql).inspect_err(|error| self.failed(error))?;
        let mut last = Answer::default();
        for statement in &statements {
            let answer = match Roomy::new(self.run(statement, &[])).await {
                Ok(outcome) => Answer::of_outcome(outcome, self.zone()).await,
                Err(error) => Err(error),
            };
            last = answer.inspect_err(|error| self.failed(error))?;
        }
        Ok(last)
    }

    /// The number that KILL takes.
    pub(crate) fn connection_id(&self) -> u32 {
        u32::try_from(self.entry.id & u64::from(u32::MAX)).unwrap_or_default()
    }

    pub(crate) fn log_in(&mut self, user: &str, peer: IpAddr, found_rows: bool) {
        self.user =
            format!("{user}@{}", if peer.is_loopback() { "localhost".to_owned() } else { peer.to_string() });
        self.found_rows = found_rows;
        self.entry.set_user(user);
    }

    /// Back to how it was after login; an open transaction is rolled back.
    pub(crate) fn reset(&mut self) {
        self.set_transaction(None);
        self.variables = self.instance.global_variables();
        self.snapshot = None;
        self.wait_for = None;
        self.warnings.clear();
    }

    pub(crate) fn max_allowed_packet(&self) -> usize {
        usize::try_from(self.variables.int("max_allowed_packet")).unwrap_or(64 << 20)
    }

    pub(crate) fn wait_timeout(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.variables.int("wait_timeout")).unwrap_or(28_800))
    }

    pub(crate) fn killed(&self) -> CancellationToken {
        self.entry.killed.clone()
    }

    pub(crate) fn in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    pub(crate) fn autocommit(&self) -> bool {
        self.variables.int("autocommit") != 0
    }

    pub(crate) fn n_warnings(&self) -> u16 {
        u16::try_from(self.warnings.len()).unwrap_or(u16::MAX)
    }

    /// The zone that TIMESTAMP values are shown in.
    pub(crate) fn zone(&self) -> Zone {
        // Checked when it was set.
        self.variables.text("time_zone").parse().unwrap_or_default()
    }

    /// Remembers a statement's error for SHOW WARNINGS.
    pub(crate) fn failed(&mut self, error: &Error) {
        let message = error.message().to_owned();
        self.warnings = vec![Warning { level: "Error", code: errors::code(error), message }];
    }

    /// Parses statements under the session's settings.
    ///
    /// # Errors
    /// 1064.
    pub fn parse(&self, text: &str) -> Result<Vec<ParsedStatement>> {
        sql::parse(text, &self.settings(Timestamp::ZERO))
    }

    /// Runs a statement. Its rows are computed as they are taken.
    ///
    /// # Errors
    /// What MySQL or Tidemill refuses, with its number; 1317 if it was killed.
    pub async fn run(&mut self, statement: &ParsedStatement, parameters: &[Literal]) -> Result<Outcome> {
        if parameters.len() != statement.n_parameters {
            return Err(Error::mysql(1210, "Incorrect arguments to EXECUTE"));
        }
        let interrupt = self.entry.begin(&statement.text);
        let running = Running { entry: Arc::clone(&self.entry) };
        if !dispatch::keeps_warnings(&statement.statement) {
            self.warnings.clear();
        }
        let deadline = self.deadline(statement);
        let dispatched = self.dispatch(statement, parameters, &interrupt).boxed();
        let outcome = tokio::select! {
            biased;
            () = passed(deadline) => return Err(out_of_time()),
            outcome = dispatched => outcome?,
        };
        Ok(match outcome {
            Outcome::Done(done) => Outcome::Done(done),
            Outcome::Rows(rows) => {
                Outcome::Rows(watched(rows, Watch { interrupt, deadline, _running: running }))
            }
        })
    }

    /// When `max_execution_time` ends a statement; it bounds SELECT only.
    fn deadline(&self, statement: &ParsedStatement) -> Option<Instant> {
        let limit_ms = u64::try_from(self.variables.int("max_execution_time")).unwrap_or_default();
        let bounded = limit_ms > 0 && matches!(statement.statement, sql::Statement::Query(_));
        // Beyond what the clock can tell is never.
        bounded.then(|| Instant::now().checked_add(Duration::from_millis(limit_ms))).flatten()
    }

    /// The columns that a statement will answer; empty if it answers none, or none that are known before.
    ///
    /// # Errors
    /// What planning the statement refuses.
    pub(crate) async fn describe(&mut self, statement: &ParsedStatement) -> Result<Vec<Column>> {
        let sql::Statement::Query(query) = &statement.statement else { return Ok(Vec::new()) };
        let settings = self.read_settings();
        let engine = &self.instance.engine;
        let columns = engine.describe(&settings, &query.query, self.transaction.as_ref()).await?;
        Ok(columns.iter().map(Column::of_description).collect())
    }

    /// The statement settings that a query's text is understood under.
    fn settings(&self, now: Timestamp) -> Settings {
        Settings {
            database: self.database.clone(),
            time_zone: self.variables.text("time_zone").to_owned(),
            sql_mode: self.variables.text("sql_mode").to_owned(),
            division_by_zero: sql::DivisionByZero::default(),
            collation: self.variables.text("collation_connection").to_owned(),
            now,
            user: self.user.clone(),
            connection_id: self.entry.id,
            variables: self.variables.shared(),
        }
    }

    /// The settings that a read's answer depends on.
    fn read_settings(&self) -> ReadSettings {
        let mode = match self.variables.text("tidemill_read_mode") {
            "stale" => ReadMode::Stale,
            "wait" => ReadMode::Wait,
            "live" => ReadMode::Live,
            _ => ReadMode::Fresh,
        };
        let path = match self.variables.text("tidemill_read_path") {
            "hybrid" => PathChoice::Hybrid,
            "live" => PathChoice::Live,
            _ => PathChoice::Auto,
        };
        ReadSettings {
            mode,
            path,
            snapshot: self.snapshot,
            max_staleness_ms: u64::try_from(self.variables.int("tidemill_max_staleness"))
                .ok()
                .filter(|ms| *ms > 0),
            wait_for: self.wait_for,
            wait_timeout_ms: self.variables.int("tidemill_wait_timeout").unsigned_abs(),
            database: self.database.clone(),
            time_zone: self.variables.text("time_zone").to_owned(),
            sql_mode: self.variables.text("sql_mode").to_owned(),
            division_by_zero: sql::DivisionByZero::default(),
            collation: self.variables.text("collation_connection").to_owned(),
            user: self.user.clone(),
            connection_id: self.entry.id,
            variables: self.variables.shared(),
        }
    }

    /// The timestamp that a statement of this session reads at now.
    async fn read_ts(&self) -> Result<Timestamp> {
        match (self.snapshot, &self.transaction) {
            (Some(snapshot), _) => Ok(snapshot),
            (None, Some(transaction)) => Ok(transaction.start_ts()),
            (None, None) => self.instance.store.read_timestamp().await,
        }
    }

    /// The catalog that a statement of this session sees now.
    async fn catalog(&self) -> Result<Arc<Catalog>> {
        self.instance.engine.catalog(self.read_ts().await?).await
    }

    /// The database of a name.
    fn database_of(&self, name: &TableName) -> Result<String> {
        let database = name.database.clone().or_else(|| self.database.clone());
        database.ok_or_else(|| Error::mysql(errors::NO_DATABASE, "No database selected"))
    }

    /// USE.
    ///
    /// # Errors
    /// 1049 if there is no such database.
    pub(crate) async fn use_database(&mut self, name: &str) -> Result<()> {
        let wanted = name.to_lowercase();
        let known = self.instance.has_system_database(&wanted)
            || self.catalog().await?.databases.iter().any(|database| database.to_lowercase() == wanted);
        if !known {
            return Err(Error::mysql(errors::UNKNOWN_DATABASE, format!("Unknown database '{name}'")));
        }
        self.entry.set_database(Some(wanted.clone()));
        self.database = Some(wanted);
        Ok(())
    }

    /// Takes note of a commit: its token is what TIDEMILL_TOKEN() answers from now on.
    fn committed(&mut self, commit_ts: Timestamp) {
        let token = token::of(self.instance.store_identity, commit_ts);
        self.variables.put("tidemill_token", Literal::String(token));
    }

    /// Begins or ends the transaction, as others see it too.
    fn set_transaction(&mut self, transaction: Option<Transaction>) {
        self.entry.set_transaction(transaction.as_ref().map(Transaction::start_ts));
        self.transaction = transaction;
    }

    fn last_read(&mut self, at: Timestamp) {
        self.entry.reads_at(at);
        self.variables.put("tidemill_last_read_ts", Literal::UInt(at.0));
    }
}

/// Shows a statement as running until its rows are taken.
struct Running {
    entry: Arc<Entry>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.entry.end();
    }
}

/// What may end a statement while its rows are taken.
struct Watch {
    interrupt: CancellationToken,
    deadline: Option<Instant>,
    _running: Running,
}

/// Rows that end with 1317 when the statement is killed, with 3024 when its time is over.
fn watched(rows: Rows, watch: Watch) -> Rows {
    let state = Some((rows.batches, watch));
    let batches = futures::stream::unfold(state, |state| async move {
        let (mut batches, watch) = state?;
        tokio::select! {
            biased;
            () = watch.interrupt.cancelled() => Some((Err(interrupted()), None)),
            () = passed(watch.deadline) => Some((Err(out_of_time()), None)),
            batch = batches.next() => batch.map(|batch| (batch, Some((batches, watch)))),
        }
    });
    Rows { columns: rows.columns, batches: batches.boxed() }
}

/// Waits for a point in time, for ever if there is none.
async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

fn out_of_time() -> Error {
    let text = "Query execution was interrupted, maximum statement execution time exceeded";
    Error::mysql(errors::OUT_OF_TIME, text)
}

fn interrupted() -> Error {
    Error::mysql(errors::QUERY_INTERRUPTED, "Query execution was interrupted")
}
