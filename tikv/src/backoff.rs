//! Waiting between tries: doubling by the kind of trouble, jittered, and bounded by one budget.
//!
//! Times are those of the runtime's clock (`tokio::time`), which tests may hold. The waits between two tries
//! of different kinds do not add to each other: a leader that moves is asked again at once however long
//! another region was busy.

use std::time::Duration;

use tokio::time::Instant;

/// What kind of trouble is waited out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// The other side said whom to ask instead.
    None,
    /// Nobody knows yet who serves the region.
    Region,
    /// The region is busy; it may have said for how long.
    Busy {
        /// The least wait it asked for, in milliseconds; zero if it did not say.
        hint_ms: u64,
    },
    /// A call failed on its way.
    Call,
    /// Somebody else's lock is alive.
    Lock,
}

/// Kinds with a wait of their own.
const N_KINDS: usize = 4;

impl Pause {
    fn kind(self) -> Option<usize> {
        match self {
            Pause::None => None,
            Pause::Region => Some(0),
            Pause::Busy { .. } => Some(1),
            Pause::Call => Some(2),
            Pause::Lock => Some(3),
        }
    }

    /// The first and the longest wait, in milliseconds.
    fn bounds_ms(self) -> (u64, u64) {
        match self {
            Pause::None => (0, 0),
            Pause::Region => (2, 500),
            Pause::Busy { .. } => (10, 3_000),
            Pause::Call => (20, 2_000),
            Pause::Lock => (2, 200),
        }
    }

    /// The wait of a try, before jitter.
    fn wait_ms(self, tries: u32) -> u64 {
        let (first, most) = self.bounds_ms();
        let doubled = first.saturating_mul(1 << tries.min(20)).min(most);
        match self {
            Pause::Busy { hint_ms } => doubled.max(hint_ms.min(most)),
            _ => doubled,
        }
    }
}

/// Tries without a wait after which one is made, so that two peers that name each other do not spin.
const FREE_TRIES: u32 = 8;

/// How often what was tried, and until when more may be.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    deadline: Instant,
    tries: [u32; N_KINDS],
    free_tries: u32,
}

impl Backoff {
    /// Tries until a budget is used up.
    pub(crate) fn new(budget: Duration) -> Backoff {
        Backoff { deadline: Instant::now() + budget, tries: [0; N_KINDS], free_tries: 0 }
    }

    /// Whether there is no time left.
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// The time that is left.
    pub(crate) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// The wait before the next try, with jitter: between half of and the whole doubled time.
    fn next_wait(&mut self, pause: Pause) -> Duration {
        let (pause, tries) = match pause.kind() {
            Some(kind) => (pause, &mut self.tries[kind]),
            None => {
                self.free_tries += 1;
                if self.free_tries <= FREE_TRIES {
                    return Duration::ZERO;
                }
                (Pause::Region, &mut self.tries[0])
            }
        };
        let whole_ms = pause.wait_ms(*tries);
        *tries += 1;
        Duration::from_millis(whole_ms - rand::random_range(0..=whole_ms / 2))
    }

    /// Waits before the next try; `false` if there is no time left for one.
    pub(crate) async fn wait(&mut self, pause: Pause) -> bool {
        if self.is_over() {
            return false;
        }
        let wait = self.next_wait(pause).min(self.left());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_their_bound() {
        let waits: Vec<u64> = (0..12).map(|tries| Pause::Region.wait_ms(tries)).collect();
        assert_eq!(waits[..5], [2, 4, 8, 16, 32]);
        assert_eq!(waits[11], 500);
        assert_eq!(Pause::Call.wait_ms(u32::MAX), 2_000);
    }

    #[test]
    fn a_busy_region_says_how_long_within_bounds() {
        assert_eq!(Pause::Busy { hint_ms: 700 }.wait_ms(0), 700);
        assert_eq!(Pause::Busy { hint_ms: 1 }.wait_ms(2), 40);
        assert_eq!(Pause::Busy { hint_ms: 1_000_000 }.wait_ms(0), 3_000);
    }

    #[tokio::test(start_paused = true)]
    async fn jitter_keeps_at_least_half() {
        for tries in 0..10 {
            let mut backoff = Backoff::new(Duration::from_secs(1));
            backoff.tries[0] = tries;
            let whole = Pause::Region.wait_ms(tries);
            let wait = backoff.next_wait(Pause::Region).as_millis() as u64;
            assert!(wait >= whole / 2 && wait <= whole, "{wait} of {whole}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_budget_ends_it() {
        let mut backoff = Backoff::new(Duration::from_secs(3));
        let mut tries = 0;
        while backoff.wait(Pause::Call).await {
            tries += 1;
        }
        assert!((5..20).contains(&tries), "{tries} tries in 3 s");
    }

    #[tokio::test(start_paused = true)]
    async fn peers_that_name_each_other_do_not_spin() {
        let mut backoff = Backoff::new(Duration::from_secs(3));
        let mut tries = 0;
        while backoff.wait(Pause::None).await {
            tries += 1;
        }
        assert!(tries < 60, "{tries} tries in 3 s");
    }
}
