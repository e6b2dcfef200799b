//! A stand-in for TiDB over the cluster: MySQL's protocol in front, TiDB's meta keys behind.
//!
//! It carries out the few statements by which views are made tables of TiDB, and some that a user might run
//! on such a table by hand. Definitions are written in the form that TiDB gives them, with schema versions
//! and diffs, through transactions of the cluster. It reads and writes no rows: what TiDB would see of them
//! is in [`TidbServer::seen`]. Tests take it down, make it refuse, or have it lose the answer.

mod definitions;
mod statement;
mod wire;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use store::{KeyRange, Snapshot, Store};
use tidb::{MetaDatabase, MetaKey, MetaTable, databases_range, record_range};
use tikv::TikvStore;
use tokio_stream::StreamExt;

use crate::cluster::Cluster;
use crate::listen::{Gate, listen};

use definitions::Definitions;
use statement::Statement;
use wire::{Answer, Client};

/// What a statement meets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TidbFault {
    /// It is refused with this number.
    Refuse(u16),
    /// The connection breaks before anything is done.
    BreakBefore,
    /// The connection breaks when it is done.
    BreakAfter,
    /// It is done later.
    Delay(Duration),
}

/// What TiDB sees under a name.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The definition.
    pub meta: MetaTable,
    /// The rows' keys and values, in order of the keys.
    pub rows: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The stand-in, until the cluster ends.
pub struct TidbServer {
    address: SocketAddr,
    gate: Gate,
    shared: Arc<TidbShared>,
    reader: Arc<dyn Store>,
}

struct TidbShared {
    cluster: Arc<Cluster>,
    /// One statement at a time, as TiDB's DDL.
    definitions: tokio::sync::Mutex<Definitions>,
    faults: Mutex<Vec<(String, TidbFault, usize)>>,
    /// Statements that changed something, in order.
    done: Mutex<Vec<String>>,
    variables: Mutex<Vec<(String, String)>>,
}

impl TidbServer {
    /// Starts it over a cluster that has no TiDB yet, with the databases `mysql` and `test`.
    ///
    /// # Errors
    /// If it cannot listen, or the cluster does not answer.
    pub async fn start(cluster: &Arc<Cluster>) -> anyhow::Result<TidbServer> {
        let gate = Gate::open();
        let tasks = &cluster.shared.tasks;
        let (address, mut incoming) = listen(0, gate.clone(), tasks).await.context("listening")?;
        let mut definitions = Definitions::default();
        for database in ["mysql", "test"] {
            let writes =
                definitions.create_database(database, false).map_err(|error| anyhow::anyhow!(error.text))?;
            cluster.write(&writes).await?;
        }
        let options = tikv::Options::new(cluster.pd_endpoints());
        let reader = TikvStore::connect(options).await.map_err(|error| anyhow::anyhow!("{error}"))?;
        let shared = Arc::new(TidbShared {
            cluster: Arc::clone(cluster),
            definitions: tokio::sync::Mutex::new(definitions),
            faults: Mutex::default(),
            done: Mutex::default(),
            variables: Mutex::default(),
        });
        let serving = Arc::clone(&shared);
        tasks.spawn_stoppable(async move {
            while let Some(Ok(connection)) = incoming.next().await {
                let shared = Arc::clone(&serving);
                serving.cluster.shared.tasks.spawn_stoppable(async move {
                    if let Err(error) = serve(&shared, Client::new(connection)).await {
                        tracing::debug!(%error, "a connection to the stand-in of TiDB ended");
                    }
                });
            }
        });
        Ok(TidbServer { address, gate, shared, reader: Arc::new(reader) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Breaks every connection and lets none in.
    pub fn down(&self) {
        self.gate.down();
    }

    /// Lets connections in again.
    pub fn up(&self) {
        self.gate.up();
    }

    /// Has the next statements that contain a text meet a fault.
    pub fn inject(&self, containing: &str, fault: TidbFault, times: usize) {
        lock(&self.shared.faults).push((containing.to_owned(), fault, times));
    }

    /// Takes all faults back.
    pub fn heal(&self) {
        lock(&self.shared.faults).clear();
    }

    /// Sets a global variable.
    pub fn set_variable(&self, name: &str, value: &str) {
        lock(&self.shared.variables).push((name.to_owned(), value.to_owned()));
    }

    /// The statements that were carried out, in order.
    #[must_use]
    pub fn done(&self) -> Vec<String> {
        lock(&self.shared.done).clone()
    }

    /// Carries a statement out as a user of TiDB does, past all faults.
    ///
    /// # Errors
    /// If it is refused.
    pub async fn execute(&self, statement: &str) -> anyhow::Result<()> {
        let parsed = Statement::parse(statement).map_err(|error| anyhow::anyhow!(error.text))?;
        carry_out(&self.shared, statement, &parsed)
            .await
            .map_err(|error| anyhow::anyhow!(error.text))
            .map(drop)
    }

    /// What TiDB sees under a name now: the definition and the rows at one timestamp, read from the cluster
    /// as any client reads it.
    ///
    /// # Errors
    /// What the cluster says.
    pub async fn seen(&self, database: &str, table: &str) -> anyhow::Result<Option<Seen>> {
        let snapshot = Snapshot::newest(Arc::clone(&self.reader)).await?;
        let found = definitions(&snapshot).await?.into_iter().find(|(in_database, meta)| {
            in_database.eq_ignore_ascii_case(database) && meta.name.eq_ignore_ascii_case(table)
        });
        let Some((_, meta)) = found else { return Ok(None) };
        let mut rows = Vec::new();
        for id in meta.physical_ids() {
            rows.extend(rows_at(&snapshot, id).await?);
        }
        Ok(Some(Seen { meta, rows }))
    }

    /// The rows under a table's id, whether there is such a table or not.
    ///
    /// # Errors
    /// What the cluster says.
    pub async fn rows_of(&self, table: i64) -> anyhow::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        rows_at(&Snapshot::newest(Arc::clone(&self.reader)).await?, table).await
    }

    /// The names of all tables, `database.table`, as the meta keys have them.
    ///
    /// # Errors
    /// What the cluster says.
    pub async fn tables(&self) -> anyhow::Result<Vec<String>> {
        let snapshot = Snapshot::newest(Arc::clone(&self.reader)).await?;
        let mut names: Vec<String> = definitions(&snapshot)
            .await?
            .into_iter()
            .map(|(database, meta)| format!("{database}.{}", meta.name))
            .collect();
        names.sort();
        Ok(names)
    }
}

async fn rows_at(snapshot: &Snapshot, table: i64) -> anyhow::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let (start, end) = record_range(table);
    let rows = snapshot.scan_all(&KeyRange::new(start, end)).await?;
    Ok(rows.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect())
}

/// All definitions of a snapshot, each with the name of its database.
async fn definitions(snapshot: &Snapshot) -> anyhow::Result<Vec<(String, MetaTable)>> {
    let mut tables = Vec::new();
    let range = |span: tidb::KeySpan| KeyRange::new(span.start, span.end);
    for (key, value) in snapshot.scan_all(&range(databases_range())).await? {
        let MetaKey::Database(id) = MetaKey::decode(&key)? else { continue };
        let database = MetaDatabase::parse(&value)?;
        for (key, value) in snapshot.scan_all(&range(tidb::database_range(id))).await? {
            if let MetaKey::Table { .. } = MetaKey::decode(&key)? {
                tables.push((database.name.clone(), MetaTable::parse(&value)?));
            }
        }
    }
    Ok(tables)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TidbShared {
    /// The fault that a statement meets.
    fn fault_of(&self, text: &str) -> Option<TidbFault> {
        let mut faults = lock(&self.faults);
        let at = faults.iter().position(|(containing, _, _)| text.contains(containing.as_str()))?;
        let (_, fault, times) = &mut faults[at];
        let fault = fault.clone();
        *times = times.saturating_sub(1);
        if *times == 0 {
            faults.remove(at);
        }
        Some(fault)
    }

    fn variable(&self, name: &str) -> Option<String> {
        let set = lock(&self.variables);
        let found = set.iter().rev().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.clone()).or_else(|| match name {
            "tidb_enable_row_level_checksum" => Some("OFF".to_owned()),
            "max_allowed_packet" => Some("67108864".to_owned()),
            "wait_timeout" => Some("28800".to_owned()),
            _ => None,
        })
    }
}

async fn serve(shared: &TidbShared, mut client: Client) -> anyhow::Result<()> {
    client.greet().await?;
    while let Some(text) = client.query().await? {
        let fault = shared.fault_of(&text);
        match &fault {
            Some(TidbFault::BreakBefore) => anyhow::bail!("as was asked"),
            Some(TidbFault::Refuse(code)) => {
                client.answer(Answer::Error(*code, "as was asked".to_owned())).await?;
                continue;
            }
            Some(TidbFault::Delay(time)) => tokio::time::sleep(*time).await,
            Some(TidbFault::BreakAfter) | None => {}
        }
        let answer = match Statement::parse(&text) {
            Ok(parsed) => carry_out(shared, &text, &parsed).await,
            Err(error) => Err(error),
        };
        anyhow::ensure!(fault != Some(TidbFault::BreakAfter), "as was asked");
        let answer = answer.unwrap_or_else(|refused| Answer::Error(refused.code, refused.text));
        client.answer(answer).await?;
    }
    Ok(())
}

/// What a statement is refused with.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    /// MySQL's number.
    pub(crate) code: u16,
    /// The text.
    pub(crate) text: String,
}

impl Refused {
    pub(crate) fn new(code: u16, text: impl Into<String>) -> Refused {
        Refused { code, text: text.into() }
    }
}

async fn carry_out(shared: &TidbShared, text: &str, statement: &Statement) -> Result<Answer, Refused> {
    match statement {
        Statement::Nothing => return Ok(Answer::Done),
        Statement::Variables(names) => {
            let values = names.iter().map(|name| shared.variable(name)).collect();
            return Ok(Answer::Rows(names.clone(), vec![values]));
        }
        Statement::ShowVariable(name) => {
            let row = shared.variable(name).map(|value| vec![Some(name.clone()), Some(value)]);
            let columns = vec!["Variable_name".to_owned(), "Value".to_owned()];
            return Ok(Answer::Rows(columns, row.into_iter().collect()));
        }
        _ => {}
    }
    let mut definitions = shared.definitions.lock().await;
    // Only what is written holds.
    let mut changed = definitions.clone();
    let writes = changed.change(statement)?;
    if !writes.is_empty() {
        let written = shared.cluster.write(&writes).await;
        written.map_err(|error| Refused::new(1105, format!("the cluster: {error:#}")))?;
        lock(&shared.done).push(text.to_owned());
    }
    *definitions = changed;
    Ok(Answer::Done)
}
