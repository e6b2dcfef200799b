//! What a caller may choose: how jobs run, and how DDL on views behaves.
//!
//! Every default has its reason beside it; a value out of range is refused at start, never clamped.

use std::sync::Arc;

use types::{Error, Result};

use crate::{FailPoints, Planner, SqlPlanner, TidbOptions};

/// Less would be lost to one slow commit.
const LEASE_MS_MIN: u64 = 300;

/// How processes that share a store agree on the one that runs the jobs.
#[derive(Clone, Debug)]
pub struct LeaseOptions {
    /// What this process is called in system tables and messages.
    pub holder: String,
    /// After so long without a sign of life another process takes over. Fencing does not depend on it.
    pub ttl_ms: u64,
}

/// How jobs run.
#[derive(Clone, Debug)]
pub struct RuntimeOptions {
    /// Shards of every stateful operator.
    pub parallelism: usize,
    /// The least time between two epochs of a job while something changes.
    pub epoch_interval_ms: u64,
    /// The longest time without an epoch, so that an idle job's frontier moves (G8).
    pub idle_interval_ms: u64,
    /// What one job may keep for the open epoch before it commits early; also bounds a fill's pieces.
    pub memory_limit_bytes: usize,
    /// Source rows in a fill's piece, and source changes in one page.
    pub rows_per_piece_max: usize,
    /// How long the past can be read.
    pub history_life_time_ms: u64,
    /// After which lag, while the process runs, a job's hold is released, so that one stuck job cannot fill
    /// the disk.
    pub history_limit_ms: u64,
    /// How often history is collected, orphans are swept, and states over the threshold are looked for.
    pub sweep_interval_ms: u64,
    /// A state is merged by itself when the tiers newer than its oldest have so many percent of the oldest's
    /// bytes. From 50 on never, since barriers merge it before; 0 turns it off.
    pub compact_at_percent: u64,
    /// States with fewer bytes are left alone.
    pub compact_bytes_min: u64,
    /// Bytes of a state that one epoch merges: epochs stay short and memory bounded however large it is.
    pub compact_step_bytes: usize,
    /// How long a main job's epoch waits for a fill that is about to be adopted.
    pub adoption_wait_ms: u64,
    /// The first and the longest pause before a failed job is started again.
    pub restart_backoff_ms: (u64, u64),
    /// Decided epochs that are remembered for `tidemill.epochs`, a job.
    pub epochs_remembered: usize,
    /// Whether processes share the store, so that one of them runs the jobs under a lease; `None` if the
    /// store has one owner.
    pub lease: Option<LeaseOptions>,
    /// The TiDB whose tables views are; without one their rows lie under Tidemill's private prefix.
    pub tidb: Option<TidbOptions>,
    /// How a view's text becomes a plan.
    pub planner: Arc<dyn Planner>,
    /// Where tests make steps fail.
    pub fail_points: FailPoints,
}

impl Default for RuntimeOptions {
    fn default() -> RuntimeOptions {
        RuntimeOptions {
            parallelism: 1,
            epoch_interval_ms: 100,
            idle_interval_ms: 10_000,
            memory_limit_bytes: 256 << 20,
            rows_per_piece_max: 16_384,
            history_life_time_ms: 10 * 60 * 1000,
            history_limit_ms: 24 * 60 * 60 * 1000,
            sweep_interval_ms: 15_000,
            compact_at_percent: 25,
            compact_bytes_min: 8 << 20,
            compact_step_bytes: operators::RUN_BYTES_MAX,
            adoption_wait_ms: 2_000,
            restart_backoff_ms: (50, 5_000),
            epochs_remembered: 128,
            lease: None,
            tidb: None,
            planner: Arc::new(SqlPlanner),
            fail_points: FailPoints::default(),
        }
    }
}

impl RuntimeOptions {
    /// Checks that every value is usable.
    ///
    /// # Errors
    /// `Invalid` with the name of the option.
    pub fn validate(&self) -> Result<()> {
        let positive = [
            ("parallelism", self.parallelism as u64),
            ("epoch_interval_ms", self.epoch_interval_ms),
            ("idle_interval_ms", self.idle_interval_ms),
            ("memory_limit_bytes", self.memory_limit_bytes as u64),
            ("rows_per_piece_max", self.rows_per_piece_max as u64),
            ("sweep_interval_ms", self.sweep_interval_ms),
            ("restart_backoff_ms", self.restart_backoff_ms.0),
            ("epochs_remembered", self.epochs_remembered as u64),
        ];
        for (name, value) in positive {
            if value == 0 {
                return Err(Error::invalid(format!("option {name} must be above 0")));
            }
        }
        if self.lease.as_ref().is_some_and(|lease| lease.ttl_ms < LEASE_MS_MIN) {
            return Err(Error::invalid(format!("option lease_ms must be at least {LEASE_MS_MIN}")));
        }
        if self.parallelism > types::VNODES {
            return Err(Error::invalid(format!("option parallelism must be at most {}", types::VNODES)));
        }
        if self.compact_at_percent > 100 {
            return Err(Error::invalid("option compact_at_percent must be at most 100"));
        }
        if self.history_limit_ms < self.history_life_time_ms {
            return Err(Error::invalid("option history_limit_ms must not be below history_life_time_ms"));
        }
        Ok(())
    }
}
