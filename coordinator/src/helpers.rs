//! Processes that offer their work, and the runs they have a share in.
//!
//! Synchronous state behind a lock, and two waits on it. A helper that has not been heard of for its time to
//! live is forgotten, and the runs it has a share in are named, so that they end: nobody else can seal
//! and vote for it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use types::{Error, Generation, JobId, Result};

use crate::protocol::{HelperId, OfferRequest, Share, ShareRequest};

/// So many times in its time to live a helper is answered and calls again.
const CALLS_PER_TTL: u32 = 4;

/// Who offers work, and what each is to do.
#[derive(Debug)]
pub(crate) struct Helpers {
    ttl: Duration,
    state: Mutex<State>,
    /// Counts the changes of shares.
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    /// When each was last heard of.
    heard: BTreeMap<HelperId, Instant>,
    /// The newest shared run of each job.
    runs: BTreeMap<JobId, ShareRequest>,
    /// Whether somebody looks for dead ones.
    is_watched: bool,
}

/// A run that has lost a helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bereft {
    /// The job.
    pub(crate) job: JobId,
    /// Its run.
    pub(crate) generation: Generation,
    /// Whom it has lost.
    pub(crate) helper: HelperId,
}

impl Helpers {
    /// Nobody yet.
    pub(crate) fn new(ttl: Duration) -> Helpers {
        Helpers { ttl, state: Mutex::default(), changes: watch::Sender::new(0) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A helper is alive. Whether the caller is to begin to look for dead ones.
    pub(crate) fn heard(&self, helper: HelperId) -> bool {
        let mut state = self.state();
        state.heard.insert(helper, Instant::now());
        !std::mem::replace(&mut state.is_watched, true)
    }

    /// Who is alive, in order.
    pub(crate) fn alive(&self) -> Vec<HelperId> {
        self.state().heard.keys().copied().collect()
    }

    /// Notes whose a run is; of an older run than is known nothing is noted.
    pub(crate) fn share(&self, request: ShareRequest) -> Result<()> {
        let mut state = self.state();
        let known = state.runs.get(&request.job).map(|run| run.taken.generation);
        if known.is_some_and(|known| known > request.taken.generation) {
            return Err(Error::fenced(format!("job {}: a newer run is shared", request.job)));
        }
        if let Some(gone) = request.helpers.iter().find(|helper| !state.heard.contains_key(helper)) {
            let text = format!("job {}: helper {:016x} is gone: take over", request.job, gone.0);
            return Err(Error::conflict(text));
        }
        state.runs.insert(request.job, request);
        drop(state);
        self.changes.send_modify(|count| *count += 1);
        Ok(())
    }

    fn shares_of(&self, helper: HelperId) -> Vec<Share> {
        let state = self.state();
        let share = |run: &ShareRequest| {
            let index = run.helpers.iter().position(|known| *known == helper)?;
            let number = |count: usize| u32::try_from(count).ok();
            let (worker, n_workers) = (number(index + 1)?, number(run.helpers.len() + 1)?);
            Some(Share { job: run.job, taken: run.taken.clone(), worker, n_workers })
        };
        state.runs.values().filter_map(share).collect()
    }

    /// The shares of a helper, once they are others than it knows, or after a part of its time to live.
    ///
    /// Cancel safe: it only waits.
    pub(crate) async fn shares(&self, request: &OfferRequest) -> Vec<Share> {
        let deadline = Instant::now() + self.ttl / CALLS_PER_TTL;
        let mut changes = self.changes.subscribe();
        loop {
            changes.mark_unchanged();
            let shares = self.shares_of(request.helper);
            let runs = shares.iter().map(|share| (share.job, share.taken.generation));
            if !runs.eq(request.known.iter().copied()) {
                return shares;
            }
            if tokio::time::timeout_at(deadline, changes.changed()).await.is_err() {
                return shares;
            }
        }
    }

    /// Waits until a helper is dead, and returns the runs that it had a share in; `None` when it is to stop.
    pub(crate) async fn next_dead(&self, stop: &CancellationToken) -> Option<Vec<Bereft>> {
        loop {
            tokio::select! {
                () = stop.cancelled() => return None,
                () = tokio::time::sleep(self.ttl / CALLS_PER_TTL) => {}
            }
            let bereft = self.bury(Instant::now());
            if !bereft.is_empty() {
                return Some(bereft);
            }
        }
    }

    /// A helper goes away; returns the runs that it had a share in.
    pub(crate) fn leave(&self, helper: HelperId) -> Vec<Bereft> {
        let mut state = self.state();
        state.heard.remove(&helper);
        state.bereft()
    }

    fn bury(&self, now: Instant) -> Vec<Bereft> {
        let mut state = self.state();
        let ttl = self.ttl;
        state.heard.retain(|_, heard| now.saturating_duration_since(*heard) < ttl);
        state.bereft()
    }
}

impl State {
    /// Forgets the runs with a helper that is gone, and returns them.
    fn bereft(&mut self) -> Vec<Bereft> {
        let State { heard, runs, .. } = self;
        let mut bereft = Vec::new();
        runs.retain(|job, run| {
            let gone = run.helpers.iter().find(|helper| !heard.contains_key(helper)).copied();
            let generation = run.taken.generation;
            bereft.extend(gone.map(|helper| Bereft { job: *job, generation, helper }));
            gone.is_none()
        });
        bereft
    }
}
