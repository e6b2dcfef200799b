//! All open sessions: who is there, what they run, and how to end it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use types::{Error, Result, Timestamp};

use crate::mysql::errors;

/// What KILL ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kill {
    /// The running statement.
    Query,
    /// The session.
    Connection,
}

/// One session, as others see it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    /// Cancelled by KILL CONNECTION.
    pub(crate) killed: CancellationToken,
    state: Mutex<EntryState>,
}

#[derive(Debug)]
struct EntryState {
    user: String,
    peer: String,
    database: Option<String>,
    statement: Option<String>,
    since: Instant,
    /// The snapshot of the open transaction.
    transaction: Option<Timestamp>,
    /// What the statement whose rows are taken reads at.
    reading: Option<Timestamp>,
    /// Cancelled by KILL QUERY; a new one for each statement.
    interrupt: CancellationToken,
}

/// A row of SHOW PROCESSLIST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) id: u64,
    pub(crate) user: String,
    pub(crate) peer: String,
    pub(crate) database: Option<String>,
    pub(crate) statement: Option<String>,
    pub(crate) seconds: u64,
    pub(crate) transaction: Option<Timestamp>,
    pub(crate) reading: Option<Timestamp>,
}

impl Entry {
    fn state(&self) -> MutexGuard<'_, EntryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A statement begins; the token is cancelled when it is to end.
    pub(crate) fn begin(&self, text: &str) -> CancellationToken {
        let mut state = self.state();
        state.statement = Some(text.to_owned());
        state.since = Instant::now();
        state.interrupt = self.killed.child_token();
        state.interrupt.clone()
    }

    /// The statement is over.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.statement = None;
        state.reading = None;
        state.since = Instant::now();
    }

    /// The statement that runs reads at a timestamp.
    pub(crate) fn reads_at(&self, at: Timestamp) {
        self.state().reading = Some(at);
    }

    /// A transaction has begun, or there is none any more.
    pub(crate) fn set_transaction(&self, start_ts: Option<Timestamp>) {
        self.state().transaction = start_ts;
    }

    pub(crate) fn set_user(&self, user: &str) {
        user.clone_into(&mut self.state().user);
    }

    pub(crate) fn set_database(&self, database: Option<String>) {
        self.state().database = database;
    }
}

/// The sessions of an instance.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    shared: Mutex<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    id_last: u64,
    n_network: usize,
    /// By id; the second says whether it counts against the limit.
    entries: BTreeMap<u64, (Arc<Entry>, bool)>,
}

impl Sessions {
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a session; `None` if there are `network_max` of the network already. Without a limit it
    /// is one of this process.
    pub(crate) fn open(&self, peer: &str, network_max: Option<usize>) -> Option<Arc<Entry>> {
        let mut shared = self.shared();
        if let Some(max) = network_max {
            if shared.n_network >= max {
                return None;
            }
            shared.n_network += 1;
        }
        shared.id_last += 1;
        let killed = CancellationToken::new();
        let state = EntryState {
            user: "unauthenticated user".to_owned(),
            peer: peer.to_owned(),
            database: None,
            statement: None,
            since: Instant::now(),
            transaction: None,
            reading: None,
            interrupt: killed.child_token(),
        };
        let entry = Arc::new(Entry { id: shared.id_last, killed, state: Mutex::new(state) });
        shared.entries.insert(entry.id, (Arc::clone(&entry), network_max.is_some()));
        Some(entry)
    }

    /// Forgets a session.
    pub(crate) fn close(&self, id: u64) {
        let mut shared = self.shared();
        if let Some((_, true)) = shared.entries.remove(&id) {
            shared.n_network -= 1;
        }
    }

    /// Ends a session or its statement.
    ///
    /// # Errors
    /// 1094 if there is no such session.
    pub(crate) fn kill(&self, id: u64, what: Kill) -> Result<()> {
        let entry = self.shared().entries.get(&id).map(|(entry, _)| Arc::clone(entry));
        let entry =
            entry.ok_or_else(|| Error::mysql(errors::NO_SUCH_THREAD, format!("Unknown thread id: {id}")))?;
        match what {
            Kill::Query => entry.state().interrupt.cancel(),
            Kill::Connection => entry.killed.cancel(),
        }
        Ok(())
    }

    /// Ends every session.
    pub(crate) fn kill_all(&self) {
        for (entry, _) in self.shared().entries.values() {
            entry.killed.cancel();
        }
    }

    /// The sessions that run a statement.
    pub(crate) fn n_running(&self) -> usize {
        self.list().iter().filter(|process| process.statement.is_some()).count()
    }

    /// All sessions, by id.
    pub(crate) fn list(&self) -> Vec<Process> {
        let entries: Vec<_> = self.shared().entries.values().map(|(entry, _)| Arc::clone(entry)).collect();
        let process = |entry: &Arc<Entry>| {
            let state = entry.state();
            Process {
                id: entry.id,
                user: state.user.clone(),
                peer: state.peer.clone(),
                database: state.database.clone(),
                statement: state.statement.clone(),
                seconds: state.since.elapsed().as_secs(),
                transaction: state.transaction,
                reading: state.reading,
            }
        };
        entries.iter().map(process).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_limit_counts_network_sessions_only_and_closing_frees_a_place() {
        let sessions = Sessions::default();
        let first = sessions.open("a", Some(1)).unwrap();
        assert!(sessions.open("b", Some(1)).is_none());
        assert!(sessions.open("c", None).is_some());
        sessions.close(first.id);
        assert!(sessions.open("d", Some(1)).is_some());
        sessions.close(999);
        assert_eq!(sessions.list().len(), 2);
    }

    #[tokio::test]
    async fn killing_a_query_spares_the_next_one_and_killing_a_connection_does_not() {
        let sessions = Sessions::default();
        let entry = sessions.open("a", None).unwrap();
        let token = entry.begin("select 1");
        assert_eq!(sessions.n_running(), 1);
        sessions.kill(entry.id, Kill::Query).unwrap();
        assert!(token.is_cancelled());
        entry.end();
        assert!(!entry.begin("select 2").is_cancelled());
        sessions.kill(entry.id, Kill::Connection).unwrap();
        assert!(entry.begin("select 3").is_cancelled());
        assert_eq!(sessions.kill(77, Kill::Query).unwrap_err().mysql_code(), Some(1094));
    }
}
