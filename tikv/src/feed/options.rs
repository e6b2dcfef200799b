//! The limits of change feeds.

use std::path::PathBuf;
use std::time::Duration;

/// The limits of change feeds: what they hold, and how long they wait.
#[derive(Clone, Debug)]
pub struct FeedOptions {
    /// The most bytes of changes that one feed holds in memory; more goes to temporary files.
    pub memory_bytes_max: usize,
    /// The most bytes of changes that one feed holds in files before it pauses.
    pub disk_bytes_max: u64,
    /// Where temporary files are made; the system's place for them if `None`.
    pub directory: Option<PathBuf>,
    /// The most bytes of open transactions' values held by all feeds; beyond it values are read again.
    pub open_bytes_max: usize,
    /// Regions of one store that are scanned for us at a time, of the six that a store scans at once.
    pub scans_per_store_max: usize,
    /// Ranges that are followed, so that asking for their changes costs the cluster nothing.
    pub tails_max: usize,
    /// After how long without a question a range is followed no longer.
    pub tail_idle: Duration,
    /// How long a question waits for the followed range to come so far, before it has it scanned: a little
    /// more than the interval in which stores say how far they are.
    pub tail_patience: Duration,
    /// How long the result of a scan is kept for the next pages.
    pub scan_idle: Duration,
    /// The results of scans that are kept.
    pub scans_kept_max: usize,
    /// How long a scan may stand still.
    pub stall_max: Duration,
    /// After how long a part that stands still is looked at for locks of dead transactions.
    pub orphan_after: Duration,
    /// How long waiting for a change lasts where nothing is followed that would show one.
    pub poll: Duration,
}

impl Default for FeedOptions {
    fn default() -> FeedOptions {
        FeedOptions {
            memory_bytes_max: 8 << 20,
            disk_bytes_max: 16 << 30,
            directory: None,
            open_bytes_max: 256 << 20,
            scans_per_store_max: 4,
            tails_max: 64,
            tail_idle: Duration::from_secs(600),
            tail_patience: Duration::from_millis(1_500),
            scan_idle: Duration::from_secs(60),
            scans_kept_max: 32,
            stall_max: Duration::from_secs(60),
            orphan_after: Duration::from_secs(4),
            poll: Duration::from_secs(1),
        }
    }
}
