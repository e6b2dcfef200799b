//! How a cluster is started.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What a cluster is made of.
#[derive(Clone)]
pub struct Options {
    /// How many stores there are; their ids begin at 1.
    pub n_stores: u64,
    /// How many regions there are at first: cut evenly by the first byte of keys, unless cuts are given.
    pub n_regions: u16,
    /// Raw keys at which regions are cut at first.
    pub cuts: Vec<Vec<u8>>,
    /// How many members PD has; the first one leads.
    pub n_members: u64,
    /// Decides which stores lead which regions at first.
    pub seed: u64,
    /// Where data is kept; in memory if `None`.
    pub data_dir: Option<PathBuf>,
    /// How often stores send resolved timestamps.
    pub min_ts_interval: Duration,
    /// PD's first port, then one each for further members; any free ones if zero.
    pub pd_port: u16,
    /// The first store's port, then one each for further stores; any free ones if zero.
    pub store_port: u16,
    /// The id of the cluster.
    pub cluster_id: u64,
    /// The version that stores claim.
    pub version: String,
    /// How many bytes a stream of the feed may have waiting before its subscriptions are ended.
    pub feed_bytes_max: usize,
    /// Whether the newer calls for garbage collection and regions are there.
    pub old_pd: bool,
    /// Whether stores know only the older call of the feed.
    pub old_feed: bool,
    /// Where physical time comes from.
    pub clock: Arc<dyn store::Clock>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            n_stores: 1,
            n_regions: 1,
            cuts: Vec::new(),
            n_members: 1,
            seed: 0,
            data_dir: None,
            min_ts_interval: Duration::from_secs(1),
            pd_port: 0,
            store_port: 0,
            cluster_id: 7_000_000_001,
            version: "9.0.0-beta.2".to_owned(),
            feed_bytes_max: 64 << 20,
            old_pd: false,
            old_feed: false,
            clock: Arc::new(store::SystemClock),
        }
    }
}
