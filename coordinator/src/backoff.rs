//! Waiting between tries: doubling, bounded, jittered by a seeded generator.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long to wait before a further try.
#[derive(Debug)]
pub(crate) struct Backoff {
    first_ms: u64,
    most_ms: u64,
    state: AtomicU64,
}

impl Backoff {
    pub(crate) fn new(first_ms: u64, most_ms: u64, seed: u64) -> Backoff {
        assert!(first_ms > 0 && first_ms <= most_ms, "waits of {first_ms} to {most_ms} ms");
        Backoff { first_ms, most_ms, state: AtomicU64::new(seed) }
    }

    /// The wait before try number `attempt` (from 1): between half of and the whole doubled time.
    pub(crate) fn wait(&self, attempt: u32) -> Duration {
        let doubled = self.first_ms.saturating_mul(1 << attempt.saturating_sub(1).min(20)).min(self.most_ms);
        Duration::from_millis(doubled - self.random() % (doubled / 2 + 1))
    }

    /// SplitMix64: enough to keep two coordinators from marching in step.
    fn random(&self) -> u64 {
        let step = 0x9e37_79b9_7f4a_7c15_u64;
        let mut bits = self.state.fetch_add(step, Ordering::Relaxed).wrapping_add(step);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}
