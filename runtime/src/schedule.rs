//! When a job opens its next epoch: a pure decision over times and flags.
//!
//! An epoch is due at once when a waiter asks, a fill is to be adopted or memory runs out; an interval
//! after the last when something changed or a timer fell due; and after the idle interval in any case
//! (G8).

/// What the decision depends on. Times are milliseconds of one clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// The least time between two epochs while something changes.
    pub(crate) epoch_interval_ms: u64,
    /// The longest time without an epoch.
    pub(crate) idle_interval_ms: u64,
    /// When the last epoch was opened.
    pub(crate) last_opened_ms: u64,
}

/// What has happened since the last epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pending {
    /// A source change was taken in.
    pub(crate) changed: bool,
    /// Somebody waits for a cut, or a fill for its adoption.
    pub(crate) asked: bool,
    /// The memory limit is reached.
    pub(crate) full: bool,
    /// When a view's next timer falls due.
    pub(crate) timer_ms: Option<u64>,
}

impl Schedule {
    /// How long to wait before the next epoch is opened; 0 is now.
    pub(crate) fn wait_ms(&self, now_ms: u64, pending: Pending) -> u64 {
        if pending.asked || pending.full {
            return 0;
        }
        let earliest = self.last_opened_ms.saturating_add(self.epoch_interval_ms);
        let idle = self.last_opened_ms.saturating_add(self.idle_interval_ms);
        let mut due = idle;
        if pending.changed {
            due = due.min(earliest);
        }
        if let Some(timer_ms) = pending.timer_ms {
            due = due.min(timer_ms.max(earliest));
        }
        due.saturating_sub(now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(now_ms: u64, pending: Pending, expected: u64) {
        let schedule = Schedule { epoch_interval_ms: 100, idle_interval_ms: 10_000, last_opened_ms: 1_000 };
        assert_eq!(schedule.wait_ms(now_ms, pending), expected, "{pending:?} at {now_ms}");
    }

    #[test]
    fn idle_job_commits_a_bare_record() {
        check(1_000, Pending::default(), 10_000);
        check(10_999, Pending::default(), 1);
        check(11_000, Pending::default(), 0);
        check(99_000, Pending::default(), 0);
    }

    #[test]
    fn change_waits_for_the_interval() {
        let changed = Pending { changed: true, ..Pending::default() };
        check(1_000, changed, 100);
        check(1_060, changed, 40);
        check(1_100, changed, 0);
        check(5_000, changed, 0);
    }

    #[test]
    fn waiter_and_full_memory_do_not_wait() {
        check(1_001, Pending { asked: true, ..Pending::default() }, 0);
        check(1_001, Pending { full: true, ..Pending::default() }, 0);
    }

    #[test]
    fn timer_falls_due() {
        check(1_000, Pending { timer_ms: Some(4_000), ..Pending::default() }, 3_000);
        check(4_000, Pending { timer_ms: Some(4_000), ..Pending::default() }, 0);
        check(1_000, Pending { timer_ms: Some(1_001), ..Pending::default() }, 100);
        check(1_000, Pending { timer_ms: Some(50_000), ..Pending::default() }, 10_000);
    }
}
