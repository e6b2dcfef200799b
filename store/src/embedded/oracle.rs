//! Timestamps: unique, rising, never back over restarts and clock jumps; and what is visible.
//!
//! A timestamp is only given out below a bound on disk, so a restart that begins at the bound is above
//! everything given out before. While commits are under way, `visible` stays just below the first of
//! them; else it follows the clock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use types::{Error, Result, Timestamp};

/// How far a caller's timestamp may be ahead of the clock.
const AHEAD_MS_MAX: u64 = 3_600_000;

/// Where physical time comes from.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since the Unix epoch; may jump either way.
    fn now_ms(&self) -> u64;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "the oracle is where wall-clock time enters the system")]
    fn now_ms(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

#[derive(Debug)]
struct State {
    /// The newest timestamp given out or seen.
    last: u64,
    /// Physical milliseconds below which timestamps may be given out; on disk.
    bound_ms: u64,
    /// What stays visible while commits are under way.
    floor: Option<u64>,
    /// The bound stays where it is: the store closes.
    stopped: bool,
}

/// The source of timestamps.
pub(crate) struct Oracle {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

impl Oracle {
    /// Begins at a bound read from disk: every new timestamp is at or above it.
    pub(crate) fn new(clock: Arc<dyn Clock>, bound_ms: u64, newest_commit: Timestamp) -> Oracle {
        let start = Timestamp::from_parts(bound_ms, 0).0.saturating_sub(1).max(newest_commit.0);
        Oracle { clock, state: Mutex::new(State { last: start, bound_ms, floor: None, stopped: false }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// The next timestamp, or `None` if the bound must be raised first.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        let clock = self.clock_ts();
        let mut state = self.state();
        let next = Timestamp(state.last.checked_add(1)?.max(clock.0));
        if next.physical_ms() >= state.bound_ms {
            return None;
        }
        state.last = next.0;
        Some(next)
    }

    /// The next timestamp, at least `least`, as a commit that is under way from now on.
    pub(crate) fn next_commit(&self, least: Timestamp) -> Option<Timestamp> {
        let clock = self.clock_ts();
        let mut state = self.state();
        let next = Timestamp(state.last.checked_add(1)?.max(clock.0).max(least.0));
        if next.physical_ms() >= state.bound_ms {
            return None;
        }
        // What was given out as visible so far may be read while this commit is under way.
        state.floor = Some(state.floor.unwrap_or(state.last));
        state.last = next.0;
        Some(next)
    }

    /// All commits under way are applied; says whether there were any.
    pub(crate) fn settle(&self) -> bool {
        self.state().floor.take().is_some()
    }

    /// The timestamp up to which everything is applied; nothing will be given out at or below it.
    pub(crate) fn visible(&self) -> Timestamp {
        let clock = self.clock_ts();
        let mut state = self.state();
        if let Some(floor) = state.floor {
            return Timestamp(floor);
        }
        let bound = Timestamp::from_parts(state.bound_ms, 0).0.saturating_sub(1);
        state.last = state.last.max(clock.0.min(bound));
        Timestamp(state.last)
    }

    /// Whether the clock has come so close to the bound that it must be raised.
    pub(crate) fn wants_bound(&self, margin_ms: u64) -> bool {
        let clock_ms = self.clock.now_ms();
        let state = self.state();
        clock_ms.max(Timestamp(state.last).physical_ms()) + margin_ms >= state.bound_ms
    }

    /// A bound to write down: `window_ms` after now, and never below the last, whatever the clock says:
    /// timestamps up to that may have been given out.
    pub(crate) fn later_bound(&self, window_ms: u64, least: Timestamp) -> u64 {
        let state = self.state();
        let physical = self.clock.now_ms().max(Timestamp(state.last).physical_ms()).max(least.physical_ms());
        physical.saturating_add(window_ms).max(state.bound_ms)
    }

    /// A bound that is on disk now.
    pub(crate) fn raise_bound(&self, bound_ms: u64) {
        let mut state = self.state();
        if !state.stopped {
            state.bound_ms = state.bound_ms.max(bound_ms);
        }
    }

    /// Ends at a bound just above what was given out, and returns it.
    pub(crate) fn stop(&self) -> u64 {
        let mut state = self.state();
        if !state.stopped {
            state.stopped = true;
            state.bound_ms = Timestamp(state.last).physical_ms().saturating_add(1);
        }
        state.bound_ms
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.state().stopped
    }

    pub(crate) fn bound_ms(&self) -> u64 {
        self.state().bound_ms
    }

    /// Takes note of a timestamp that a caller named; later ones will be above it.
    pub(crate) fn observe(&self, named: Timestamp) {
        let mut state = self.state();
        state.last = state.last.max(named.0);
    }

    /// Refuses timestamps that are far ahead of the clock.
    pub(crate) fn check_named(&self, named: Timestamp) -> Result<()> {
        let last = Timestamp(self.state().last).physical_ms();
        if named.physical_ms() > self.clock.now_ms().max(last).saturating_add(AHEAD_MS_MAX) {
            return Err(Error::invalid(format!("timestamp {named} is more than an hour ahead of the clock")));
        }
        Ok(())
    }

    fn clock_ts(&self) -> Timestamp {
        Timestamp(self.clock.now_ms() << Timestamp::LOGICAL_BITS)
    }
}

/// Refuses a bound that lies more than an hour ahead of the clock: the clock was wrong then or is now.
pub(crate) fn check_bound(bound_ms: u64, now_ms: u64) -> Result<()> {
    if bound_ms > now_ms.saturating_add(AHEAD_MS_MAX) {
        return Err(Error::invalid(format!(
            "the store has given out timestamps up to {bound_ms} ms, but the clock says {now_ms} ms, \
             more than an hour less; set the clock, or force the store open"
        )));
    }
    Ok(())
}
