//! The lease of the jobs: where several processes share a store, one of them runs the jobs.
//!
//! The lease is a record in the store, renewed three times in its life time on the store's clock; whoever
//! finds it expired takes it. It keeps two processes from fencing each other in turns, and no more: that
//! one of two runs of a job changes nothing is the generations' business (G4), so a holder that sleeps too
//! long does no harm.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use store::{KeyError, Mutation, Snapshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use types::records::lease_key;
use types::{Error, ErrorKind, Result, Timestamp};

use crate::Runtime;
use crate::options::LeaseOptions;
use crate::shared::Shared;

/// The longest pause between two looks at somebody else's lease.
const LOOK_EVERY_MS: u64 = 500;

/// Who runs the jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseStatus {
    /// What the process is called.
    pub holder: String,
    /// How often the lease has changed hands.
    pub term: u64,
    /// The last sign of life.
    pub renewed: Timestamp,
    /// Whether it is this process.
    pub is_here: bool,
}

/// The record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LeaseRecord {
    holder: String,
    /// A random number of the process, since names may repeat.
    process: u64,
    term: u64,
    renewed: Timestamp,
    ttl_ms: u64,
}

impl LeaseRecord {
    fn decode(bytes: &[u8]) -> Result<LeaseRecord> {
        serde_json::from_slice(bytes).map_err(|error| Error::corrupt(format!("lease of the jobs: {error}")))
    }

    fn left_ms(&self, now: Timestamp) -> u64 {
        self.renewed.physical_ms().saturating_add(self.ttl_ms).saturating_sub(now.physical_ms())
    }
}

/// What this process knows of its own lease.
#[derive(Debug)]
pub(crate) struct Holding {
    process: u64,
    term: Mutex<Option<u64>>,
}

impl Default for Holding {
    fn default() -> Holding {
        Holding { process: rand::random(), term: Mutex::default() }
    }
}

impl Holding {
    fn set(&self, term: Option<u64>) {
        *self.term.lock().unwrap_or_else(PoisonError::into_inner) = term;
    }

    pub(crate) fn term(&self) -> Option<u64> {
        *self.term.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the lease when it is free and works while it is held, until shutdown.
///
/// # Errors
/// `Closed` when the store is closed.
pub(crate) async fn keep(runtime: Runtime) -> Result<()> {
    let shared = Arc::clone(&runtime.shared);
    let token = shared.supervisor.token();
    let options = shared.options.lease.clone().ok_or_else(|| Error::invalid("no lease is wanted"))?;
    while !token.is_cancelled() {
        let pause_ms = match renew(&shared, &options).await {
            Ok(Renewed::Held(term)) => {
                work(&runtime, &options, term).await?;
                0
            }
            Ok(Renewed::Elsewhere { left_ms }) => left_ms.clamp(1, LOOK_EVERY_MS),
            Err(error) if error.kind() == ErrorKind::Closed => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "cannot take the lease of the jobs");
                LOOK_EVERY_MS
            }
        };
        tokio::select! {
            () = token.cancelled() => {}
            () = tokio::time::sleep(Duration::from_millis(pause_ms)) => {}
        }
    }
    Ok(())
}

/// What an attempt to take or to renew the lease came to.
#[derive(Debug, PartialEq, Eq)]
enum Renewed {
    /// It is ours, in this term.
    Held(u64),
    /// Somebody else has it, for so long without a sign of life.
    Elsewhere { left_ms: u64 },
}

/// Writes a sign of life, if the lease is ours or free.
async fn renew(shared: &Shared, options: &LeaseOptions) -> Result<Renewed> {
    let start_ts = shared.store.timestamp().await?;
    let snapshot = Snapshot::new(Arc::clone(&shared.store), start_ts);
    let known = snapshot.get(&lease_key()).await?.map(|bytes| LeaseRecord::decode(&bytes)).transpose()?;
    let process = shared.lease.process;
    let term = match &known {
        Some(lease) if lease.process == process => lease.term,
        Some(lease) if lease.left_ms(start_ts) > 0 => {
            return Ok(Renewed::Elsewhere { left_ms: lease.left_ms(start_ts) });
        }
        Some(lease) => lease.term + 1,
        None => 1,
    };
    let lease = LeaseRecord {
        holder: options.holder.clone(),
        process,
        term,
        renewed: start_ts,
        ttl_ms: options.ttl_ms,
    };
    match write(shared, start_ts, &lease).await {
        Ok(()) => Ok(Renewed::Held(term)),
        // Somebody was faster; look again.
        Err(error) if error.kind() == ErrorKind::Conflict => Ok(Renewed::Elsewhere { left_ms: 1 }),
        Err(error) => Err(error),
    }
}

async fn write(shared: &Shared, start_ts: Timestamp, lease: &LeaseRecord) -> Result<()> {
    let json = serde_json::to_vec(lease).map_err(|error| Error::corrupt(format!("a lease: {error}")))?;
    let written = shared.store.commit_transaction(start_ts, vec![Mutation::put(lease_key(), json)]).await;
    written.map(drop).map_err(KeyError::into)
}

/// Works until the lease is lost or the process shuts down, and returns when all of the work has ended.
async fn work(runtime: &Runtime, options: &LeaseOptions, term: u64) -> Result<()> {
    let shared = &runtime.shared;
    tracing::info!(holder = options.holder, term, "this process runs the jobs");
    shared.lease.set(Some(term));
    let token = shared.supervisor.token().child_token();
    let tasks = runtime.start_work(&token);
    // Beside the work: where an earlier term left a turn taken, only its work can end that.
    let turns = runtime.clone();
    drop(
        shared.supervisor.spawn("turns of an earlier process", async move { turns.take_turns_again().await }),
    );
    let outcome = hold(shared, options, &token).await;
    shared.lease.set(None);
    end(&token, tasks).await;
    if shared.supervisor.token().is_cancelled() {
        give_up(shared, options).await;
    } else {
        tracing::warn!(holder = options.holder, term, "this process runs the jobs no longer");
    }
    outcome
}

async fn end(token: &CancellationToken, tasks: Vec<JoinHandle<Result<()>>>) {
    token.cancel();
    for task in tasks {
        // What failed in it was reported where it happened.
        drop(task.await);
    }
}

/// Renews until somebody else has the lease, or it may have expired.
async fn hold(shared: &Shared, options: &LeaseOptions, token: &CancellationToken) -> Result<()> {
    let every = Duration::from_millis(options.ttl_ms / 3);
    let mut alive_at = Instant::now();
    loop {
        tokio::select! {
            () = token.cancelled() => return Ok(()),
            () = tokio::time::sleep(every) => {}
        }
        let asked_at = Instant::now();
        match tokio::time::timeout(every, renew(shared, options)).await {
            Ok(Ok(Renewed::Held(_))) => alive_at = asked_at,
            Ok(Ok(Renewed::Elsewhere { left_ms })) if left_ms > 1 => return Ok(()),
            Ok(Err(error)) if error.kind() == ErrorKind::Closed => return Err(error),
            Ok(Ok(Renewed::Elsewhere { .. }) | Err(_)) | Err(_) => {
                tracing::warn!("the lease of the jobs could not be renewed, it is tried again");
            }
        }
        if alive_at.elapsed() >= Duration::from_millis(options.ttl_ms) {
            return Ok(());
        }
    }
}

/// At shutdown: lets another process take over at once.
async fn give_up(shared: &Shared, options: &LeaseOptions) {
    let given = async {
        let start_ts = shared.store.timestamp().await?;
        let snapshot = Snapshot::new(Arc::clone(&shared.store), start_ts);
        let Some(bytes) = snapshot.get(&lease_key()).await? else { return Ok(()) };
        let lease = LeaseRecord::decode(&bytes)?;
        if lease.process != shared.lease.process {
            return Ok(());
        }
        write(shared, start_ts, &LeaseRecord { ttl_ms: 0, ..lease }).await
    };
    match tokio::time::timeout(Duration::from_millis(options.ttl_ms), given).await {
        Ok(Ok(())) => {}
        // Others wait until it expires.
        Ok(Err(error)) => tracing::info!(%error, "the lease of the jobs could not be given up"),
        Err(_) => tracing::info!("the lease of the jobs could not be given up in time"),
    }
}

/// The lease as the store has it.
pub(crate) async fn status(shared: &Shared) -> Result<Option<LeaseStatus>> {
    let snapshot = Snapshot::newest(Arc::clone(&shared.store)).await?;
    let Some(bytes) = snapshot.get(&lease_key()).await? else { return Ok(None) };
    let lease = LeaseRecord::decode(&bytes)?;
    Ok(Some(LeaseStatus {
        is_here: lease.process == shared.lease.process && shared.lease.term() == Some(lease.term),
        holder: lease.holder,
        term: lease.term,
        renewed: lease.renewed,
    }))
}
