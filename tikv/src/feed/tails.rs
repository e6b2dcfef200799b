//! Tails: ranges that are followed because somebody keeps asking for their changes.
//!
//! A tail begins with the result of a scan and goes on from where that ended. It holds what was committed
//! since its start, so it serves every span that begins at or after it and ends at or below its frontier. Beyond
//! its memory it forgets what nobody has asked for lately; who asks for older history has it scanned.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use store::KeyRange;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use types::Timestamp;

use super::buffer::SharedBuffer;
use super::options::FeedOptions;
use super::puller::{Goal, Progress, Puller};
use super::{Shared, encoded};
use crate::key;

/// For so long after a question the history it was about is not forgotten.
const RECENT: Duration = Duration::from_secs(60);
/// For so long nobody waits for a tail that did not come in time.
const SLOW: Duration = Duration::from_secs(5);

/// One followed range.
pub(crate) struct Tail {
    range: KeyRange,
    buffer: SharedBuffer,
    progress: watch::Receiver<Progress>,
    state: Mutex<State>,
    /// Ends the puller with the tail.
    _stop: DropGuard,
}

struct State {
    /// Everything after it is held.
    start: Timestamp,
    used_at: Instant,
    /// The spans asked for lately: when, and where they began.
    asked: Vec<(Instant, Timestamp)>,
    slow_until: Option<Instant>,
}

impl Tail {
    /// The changes it holds.
    pub(crate) fn buffer(&self) -> SharedBuffer {
        self.buffer.clone()
    }

    /// Everything at or below it is there.
    pub(crate) fn frontier(&self) -> Timestamp {
        self.progress.borrow().frontier
    }

    /// Waits a little until everything at or below a timestamp is there; whether it is.
    pub(crate) async fn reaches(&self, to: Timestamp, patience: Duration) -> bool {
        let is_slow = self.state().slow_until.is_some_and(|until| Instant::now() < until);
        let patience = if is_slow { Duration::ZERO } else { patience };
        let mut progress = self.progress.clone();
        let reached = progress.wait_for(|progress| progress.failed.is_some() || progress.frontier >= to);
        let reached = match tokio::time::timeout(patience, reached).await {
            Ok(Ok(progress)) => progress.frontier >= to,
            Ok(Err(_)) | Err(_) => false,
        };
        if !is_slow {
            self.state().slow_until = (!reached).then(|| Instant::now() + SLOW);
        }
        reached
    }

    fn has_failed(&self) -> bool {
        self.progress.borrow().failed.is_some() || self.progress.has_changed().is_err()
    }

    fn covers(&self, range: &KeyRange) -> bool {
        self.range.start <= range.start && key::end_reaches(&self.range.end, &range.end)
    }

    /// Notes a question; `false` if its span begins before the start.
    fn serve(&self, from: Timestamp) -> bool {
        let mut state = self.state();
        let now = Instant::now();
        state.used_at = now;
        if from < state.start {
            return false;
        }
        // One note per span and page would grow: the least of each short while is enough.
        match state.asked.last_mut() {
            Some((at, least)) if at.elapsed() < Duration::from_secs(1) => *least = (*least).min(from),
            _ => state.asked.push((now, from)),
        }
        true
    }

    /// Forgets what nobody has asked for lately, if memory is not enough for it.
    fn forget_old(&self) {
        let mut state = self.state();
        state.asked.retain(|(at, _)| at.elapsed() < RECENT);
        let mut buffer = self.buffer.lock();
        if buffer.n_disk_bytes() == 0 {
            return;
        }
        if let Some(least) = state.asked.iter().map(|(_, from)| *from).min() {
            buffer.trim(least);
            state.start = state.start.max(least);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tails of a connection.
#[derive(Default)]
pub(crate) struct Tails {
    tails: Mutex<Vec<Arc<Tail>>>,
}

impl Tails {
    /// A tail that holds what changed in a range after a timestamp.
    pub(crate) fn find(&self, range: &KeyRange, from: Timestamp) -> Option<Arc<Tail>> {
        let mut tails = self.tails();
        tails.retain(|tail| !tail.has_failed());
        tails.iter().find(|tail| tail.covers(range) && tail.serve(from)).map(Arc::clone)
    }

    /// Follows a range from now on, beginning with what was found in a span; `false` if it is followed.
    pub(crate) fn begin(
        &self,
        shared: &Arc<Shared>,
        range: &KeyRange,
        from: Timestamp,
        to: Timestamp,
        buffer: &SharedBuffer,
    ) -> bool {
        let mut tails = self.tails();
        if shared.options.tails_max == 0 || tails.iter().any(|tail| tail.covers(range) && !tail.has_failed())
        {
            return false;
        }
        while tails.len() >= shared.options.tails_max {
            let oldest = (0..tails.len()).min_by_key(|at| tails[*at].state().used_at);
            tails.swap_remove(oldest.expect("there are tails"));
        }
        let parts = encoded(std::slice::from_ref(range));
        let (puller, progress) = Puller::new(shared, parts, to, Goal::Follow, buffer.clone());
        let stop: CancellationToken = shared.stop.child_token();
        let token = stop.clone();
        drop(shared.cluster.tasks.spawn("tail", async move {
            if let Err(error) = puller.run(token).await
                && error.kind() != types::ErrorKind::Closed
            {
                tracing::error!(%error, "a followed range is given up");
            }
        }));
        let now = Instant::now();
        let state = State { start: from, used_at: now, asked: vec![(now, from)], slow_until: None };
        tails.push(Arc::new(Tail {
            range: range.clone(),
            buffer: buffer.clone(),
            progress,
            state: Mutex::new(state),
            _stop: stop.drop_guard(),
        }));
        true
    }

    /// Whether nothing is followed.
    pub(crate) fn is_empty(&self) -> bool {
        self.tails().is_empty()
    }

    /// Ends tails that nobody uses, and keeps the others small.
    pub(crate) fn look_after(&self, options: &FeedOptions) {
        let mut tails = self.tails();
        tails.retain(|tail| !tail.has_failed() && tail.state().used_at.elapsed() < options.tail_idle);
        for tail in tails.iter() {
            tail.forget_old();
        }
    }

    fn tails(&self) -> MutexGuard<'_, Vec<Arc<Tail>>> {
        self.tails.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
