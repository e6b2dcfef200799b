//! Errands: statements that only the process that runs the jobs can do, handed over through the store.
//!
//! Where several processes share a store, each answers queries, and one runs the jobs. REFRESH, OPTIMIZE
//! and most of ALTER MATERIALIZED VIEW talk to a running job; asked elsewhere, they are written as a
//! record, done by the process that has the lease, and answered in the same record. Processes need no way
//! to each other but the store. A process that dies over an errand leaves it to its successor, which does
//! it anew.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sql::{AlterView, Literal, Statement};
use store::{Key, KeyRange, Mutation, Snapshot, Store};
use tokio_util::sync::CancellationToken;
use types::records::{errand_key, errand_prefix};
use types::{Error, ErrorKind, Result, Timestamp};

use super::{Session, interrupted};
use crate::answer::Answer;
use crate::instance::Instance;
use crate::mysql::errors;
use crate::result::{Done, Outcome, Rows};

/// How often errands and answers are looked for.
const LOOK_EVERY_MS: u64 = 100;
/// An errand that nobody took back for so long has lost its asker.
const FORGOTTEN_MS: u64 = 60 * 60 * 1000;
/// Texts and switches of the session that go with the statement.
const TEXTS: [&str; 2] = ["time_zone", "sql_mode"];
const SWITCH: &str = "tidemill_background_ddl";

/// A record: what is asked, and in the end its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Errand {
    sql: String,
    database: Option<String>,
    texts: Vec<(String, String)>,
    background: bool,
    asked: Timestamp,
    answer: Option<Answered>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Answered {
    Done { affected_rows: u64, info: String },
    Rows { names: Vec<String>, rows: Vec<Vec<Option<String>>> },
    Failed { code: u16, message: String },
}

impl Errand {
    fn decode(bytes: &[u8]) -> Result<Errand> {
        serde_json::from_slice(bytes).map_err(|error| Error::corrupt(format!("errand: {error}")))
    }

    fn mutation(&self, key: Key) -> Result<Mutation> {
        let json = serde_json::to_vec(self).map_err(|error| Error::corrupt(format!("errand: {error}")))?;
        Ok(Mutation::put(key, json))
    }
}

/// Whether a statement needs the process that runs the jobs.
pub(super) fn needs_jobs(statement: &Statement) -> bool {
    match statement {
        Statement::RefreshMaterializedView(_) | Statement::OptimizeTable { .. } => true,
        Statement::AlterMaterializedView { action, .. } => !matches!(action, AlterView::Rename(_)),
        _ => false,
    }
}

async fn write(store: &Arc<dyn Store>, mutation: Mutation) -> Result<()> {
    let start_ts = store.timestamp().await?;
    store.commit_transaction(start_ts, vec![mutation]).await.map(drop).map_err(Error::from)
}

impl Session {
    /// Has a statement done by the process that runs the jobs. Killed while it waits, it goes on there.
    ///
    /// # Errors
    /// The statement's; what the store says.
    pub(super) async fn send_errand(&mut self, text: &str, interrupt: &CancellationToken) -> Result<Outcome> {
        let store = Arc::clone(&self.instance.store);
        let asked = store.timestamp().await?;
        // Starts are unique.
        let key = Key::from(errand_key(asked));
        let errand = Errand {
            sql: text.to_owned(),
            database: self.database.clone(),
            texts: TEXTS.map(|name| (name.to_owned(), self.variables.text(name).to_owned())).to_vec(),
            background: self.variables.int(SWITCH) != 0,
            asked,
            answer: None,
        };
        write(&store, errand.mutation(key.clone())?).await?;
        loop {
            tokio::select! {
                () = interrupt.cancelled() => return Err(interrupted()),
                () = tokio::time::sleep(Duration::from_millis(LOOK_EVERY_MS)) => {}
            }
            let Some(bytes) = Snapshot::newest(Arc::clone(&store)).await?.get(&key).await? else {
                return Err(Error::unavailable(
                    "the statement was forgotten by the process that runs the jobs",
                ));
            };
            if let Some(answer) = Errand::decode(&bytes)?.answer {
                write(&store, Mutation::delete(key)).await?;
                return outcome(answer);
            }
        }
    }
}

fn outcome(answer: Answered) -> Result<Outcome> {
    match answer {
        Answered::Done { affected_rows, info } => Ok(Outcome::Done(Done { affected_rows, info })),
        Answered::Rows { names, rows } => {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            if rows.iter().any(|row| row.len() != names.len()) {
                return Err(Error::corrupt(
                    "errand: a row has another number of values than there are names",
                ));
            }
            Ok(Outcome::Rows(Rows::of_texts(&names, &rows)))
        }
        Answered::Failed { code, message } => Err(Error::mysql(code, message)),
    }
}

/// Does the errands of other processes while this one runs the jobs, until shutdown.
///
/// # Errors
/// `Closed` when the store is closed.
pub(crate) async fn serve(instance: Arc<Instance>) -> Result<()> {
    let stopping = instance.stopping();
    let under_way = Arc::new(Mutex::new(BTreeSet::new()));
    loop {
        tokio::select! {
            () = stopping.cancelled() => return Ok(()),
            () = tokio::time::sleep(Duration::from_millis(LOOK_EVERY_MS)) => {}
        }
        if instance.runtime.runs_elsewhere() {
            continue;
        }
        match look(&instance, &under_way).await {
            Err(error) if error.kind() == ErrorKind::Closed => return Err(error),
            Err(error) => tracing::warn!(%error, "cannot read other processes' statements"),
            Ok(()) => {}
        }
    }
}

/// Keys of errands that are being done.
type UnderWay = Arc<Mutex<BTreeSet<Key>>>;

async fn look(instance: &Arc<Instance>, under_way: &UnderWay) -> Result<()> {
    let snapshot = Snapshot::newest(Arc::clone(&instance.store)).await?;
    let now_ms = snapshot.ts().physical_ms();
    for (key, bytes) in snapshot.scan_all(&KeyRange::prefix(&errand_prefix())).await? {
        let errand = Errand::decode(&bytes)?;
        if errand.answer.is_some() {
            if errand.asked.physical_ms().saturating_add(FORGOTTEN_MS) < now_ms {
                write(&instance.store, Mutation::delete(key)).await?;
            }
            continue;
        }
        if under_way.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone()) {
            let (instance, under_way) = (Arc::clone(instance), Arc::clone(under_way));
            let supervisor = instance.supervisor.clone();
            drop(supervisor.spawn("errand", async move {
                let done = do_errand(&instance, key.clone()).await;
                under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
                done.inspect_err(|error| tracing::warn!(%error, "another process's statement has no answer"))
            }));
        }
    }
    Ok(())
}

async fn do_errand(instance: &Arc<Instance>, key: Key) -> Result<()> {
    // Read again: whoever looked may have looked before it was answered, here or by an earlier holder.
    let snapshot = Snapshot::newest(Arc::clone(&instance.store)).await?;
    let Some(bytes) = snapshot.get(&key).await? else { return Ok(()) };
    let mut errand = Errand::decode(&bytes)?;
    if errand.answer.is_some() {
        return Ok(());
    }
    let answer = run(instance, &errand).await;
    if instance.stopping().is_cancelled() && answer.is_err() {
        // The next process does it.
        return Ok(());
    }
    errand.answer = Some(match answer {
        Ok(answer) if answer.columns.is_empty() => {
            Answered::Done { affected_rows: answer.affected_rows, info: answer.info }
        }
        Ok(answer) => {
            let names = answer.columns.iter().map(|column| column.name.clone()).collect();
            Answered::Rows { names, rows: answer.rows }
        }
        Err(error) => Answered::Failed { code: errors::code(&error), message: error.message().to_owned() },
    });
    write(&instance.store, errand.mutation(key)?).await
}

async fn run(instance: &Arc<Instance>, errand: &Errand) -> Result<Answer> {
    let mut session = Session::of_process(instance)?;
    session.database.clone_from(&errand.database);
    session.entry.set_database(errand.database.clone());
    for (name, text) in &errand.texts {
        session.variables.set(name, Some(&Literal::String(text.clone())), None)?;
    }
    session.variables.put(SWITCH, Literal::Int(i64::from(errand.background)));
    session.execute(&errand.sql).await
}
