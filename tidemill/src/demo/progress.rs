//! Progress in plain lines, for where no bar can be drawn: a pipe, a log.
//!
//! One line each few seconds, and none at the end, which the report tells.

use std::time::Duration;

use tokio::time::Instant;

/// Between two lines.
const EVERY: Duration = Duration::from_secs(2);

/// Says when another line is due.
pub(super) struct Lines {
    n_events: u64,
    began: Instant,
    last: Instant,
}

impl Lines {
    pub(super) fn new(n_events: u64, now: Instant) -> Lines {
        Lines { n_events, began: now, last: now }
    }

    /// The line for so many events done, if one is due.
    pub(super) fn line(&mut self, n_done: u64, now: Instant) -> Option<String> {
        if now.duration_since(self.last) < EVERY || n_done >= self.n_events {
            return None;
        }
        self.last = now;
        let seconds = now.duration_since(self.began).as_secs();
        Some(format!("  {n_done} of {} events after {seconds} s", self.n_events))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_due_each_few_seconds() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let mut lines = Lines::new(100, began);
        assert_eq!(lines.line(1, at(100)), None);
        assert_eq!(lines.line(20, at(2100)).as_deref(), Some("  20 of 100 events after 2 s"));
        assert_eq!(lines.line(21, at(2200)), None);
        assert_eq!(lines.line(60, at(9000)).as_deref(), Some("  60 of 100 events after 9 s"));
        assert_eq!(lines.line(100, at(20_000)), None);
    }
}
