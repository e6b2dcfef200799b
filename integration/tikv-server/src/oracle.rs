//! The timestamps of PD, drawn from the engine's oracle, and the memory of which were handed out.
//!
//! A batch is a run of neighbours, of which the answer names the last. What was never handed out must not
//! come back as a start or a commit; after a restart everything below its first timestamp counts as
//! handed out.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use store::{EmbeddedStore, Store};
use tokio::sync::watch;
use types::{Result, Timestamp};

/// The most runs of handed-out timestamps that are kept; older ones count as handed out.
const RUNS_MAX: usize = 1 << 20;

#[derive(Debug)]
struct Issued {
    /// Everything at or below counts as handed out.
    floor: u64,
    /// Runs by their first timestamp, with their last.
    runs: BTreeMap<u64, u64>,
    newest: u64,
}

/// The source of timestamps.
pub(crate) struct Oracle {
    store: Arc<EmbeddedStore>,
    issued: Mutex<Issued>,
    stalled: watch::Sender<bool>,
    /// Whether stores can reach PD for timestamps.
    away: AtomicBool,
}

impl Oracle {
    pub(crate) async fn new(store: Arc<EmbeddedStore>) -> Result<Oracle> {
        let first = store.timestamp().await?.0;
        let issued = Issued { floor: first, runs: BTreeMap::new(), newest: first };
        Ok(Oracle {
            store,
            issued: Mutex::new(issued),
            stalled: watch::Sender::new(false),
            away: AtomicBool::new(false),
        })
    }

    fn issued(&self) -> MutexGuard<'_, Issued> {
        self.issued.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Draws a run of timestamps with one physical part and returns the last.
    pub(crate) async fn draw(&self, count: u32) -> Result<Timestamp> {
        assert!(count > 0, "a run of timestamps has at least one");
        let mut run = (0u64, 0u64);
        while run.1 == 0 || run.1 - run.0 + 1 < u64::from(count) {
            let next = self.store.timestamp().await?;
            let follows = next.0 == run.1 + 1 && next.physical_ms() == Timestamp(run.1).physical_ms();
            run = if follows { (run.0, next.0) } else { (next.0, next.0) };
        }
        self.note(run);
        Ok(Timestamp(run.1))
    }

    /// A timestamp for the stores' own use.
    pub(crate) async fn now(&self) -> Result<Timestamp> {
        self.draw(1).await
    }

    fn note(&self, (first, last): (u64, u64)) {
        let mut issued = self.issued();
        issued.newest = issued.newest.max(last);
        let before = issued.runs.range(..first).next_back().map(|(first, last)| (*first, *last));
        match before {
            Some((start, end)) if end + 1 == first => issued.runs.insert(start, last),
            _ => issued.runs.insert(first, last),
        };
        if issued.runs.len() > RUNS_MAX
            && let Some((_, last)) = issued.runs.pop_first()
        {
            issued.floor = issued.floor.max(last);
        }
    }

    /// The newest timestamp handed out.
    pub(crate) fn newest(&self) -> Timestamp {
        Timestamp(self.issued().newest)
    }

    /// Whether a timestamp was handed out.
    pub(crate) fn has_issued(&self, ts: Timestamp) -> bool {
        let issued = self.issued();
        ts.0 <= issued.floor || issued.runs.range(..=ts.0).next_back().is_some_and(|(_, last)| ts.0 <= *last)
    }

    /// Lets clients wait for timestamps, or no longer.
    pub(crate) fn stall(&self, stalled: bool) {
        self.stalled.send_replace(stalled);
    }

    /// Waits while timestamps are held back.
    pub(crate) async fn flowing(&self) {
        // The sender lives as long as this does.
        let _ = self.stalled.subscribe().wait_for(|stalled| !stalled).await;
    }

    /// Takes timestamps away from the stores, or gives them back.
    pub(crate) fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::SeqCst);
    }

    /// Whether stores get timestamps now.
    pub(crate) fn is_away(&self) -> bool {
        self.away.load(Ordering::SeqCst) || *self.stalled.borrow()
    }
}
