//! How far back history reaches.
//!
//! Servers answer below the safe point without a word, and with holes. So it is known here, renewed by a
//! task, and asked about before and after every read. It moves minutes ahead of what is dropped; a process
//! that has not heard of it for longer asks before it reads.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use types::{Error, Result, Timestamp};

use crate::cluster::Cluster;

/// How old what is known of the safe point may be.
const KNOWN_FOR: Duration = Duration::from_secs(100);

#[derive(Debug)]
struct Known {
    safe_point: Timestamp,
    at: Option<Instant>,
}

/// What is known of the safe point.
#[derive(Debug)]
pub(crate) struct History {
    known: Mutex<Known>,
}

impl History {
    pub(crate) fn new() -> History {
        History { known: Mutex::new(Known { safe_point: Timestamp::ZERO, at: None }) }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The safe point as last heard; it never goes back.
    pub(crate) fn safe_point(&self) -> Timestamp {
        self.known().safe_point
    }

    /// Takes in where the safe point is now.
    pub(crate) fn learn(&self, safe_point: Timestamp) {
        let mut known = self.known();
        known.safe_point = known.safe_point.max(safe_point);
        known.at = Some(Instant::now());
    }

    fn is_stale(&self) -> bool {
        self.known().at.is_none_or(|at| at.elapsed() > KNOWN_FOR)
    }

    /// Fails below the safe point as last heard.
    ///
    /// # Errors
    /// [`Error::history_gone`] below it.
    pub(crate) fn check(&self, ts: Timestamp) -> Result<()> {
        let safe_point = self.safe_point();
        if ts >= safe_point {
            return Ok(());
        }
        Err(Error::history_gone(format!("{ts} lies below the cluster's safe point {safe_point}")))
    }
}

impl Cluster {
    /// Asks where the safe point is.
    ///
    /// # Errors
    /// `Unavailable` if the placement driver does not answer in time.
    pub(crate) async fn renew_safe_point(&self) -> Result<Timestamp> {
        self.history.learn(self.pd.gc_state().await?.safe_point);
        Ok(self.history.safe_point())
    }

    /// Fails below the safe point; asks for it if it was not heard of for long.
    ///
    /// # Errors
    /// [`Error::history_gone`] below it, `Unavailable` if it is not known.
    pub(crate) async fn check_history(&self, ts: Timestamp) -> Result<()> {
        if self.history.is_stale() {
            self.renew_safe_point().await?;
        }
        self.history.check(ts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_lies_below_is_refused_and_never_comes_back() {
        let history = History::new();
        assert!(history.is_stale());
        history.learn(Timestamp(10));
        history.learn(Timestamp(7));
        assert!(history.check(Timestamp(10)).is_ok() && history.check(Timestamp::MAX).is_ok());
        assert!(history.check(Timestamp(9)).expect_err("it is gone").is_history_gone());
        assert!(!history.is_stale());
        tokio::time::advance(KNOWN_FOR + Duration::from_secs(1)).await;
        assert!(history.is_stale());
    }
}
