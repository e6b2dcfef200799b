//! What a cluster is reached by, and the limits of waiting for it.
//!
//! Limits are durations, never points in time: every timestamp comes from the placement driver.

use std::path::PathBuf;
use std::time::Duration;

use crate::feed::FeedOptions;

/// How a cluster is reached.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where members of the placement driver are, as `host:port` or as URLs; all of one cluster.
    pub endpoints: Vec<String>,
    /// Certificates, where the cluster wants TLS.
    pub tls: Option<Tls>,
    /// How long one call may take.
    pub call_timeout: Duration,
    /// How long a call that must go to the placement driver is tried again: an election takes 3 to 5 s.
    pub pd_budget: Duration,
    /// How long a call that must go to a region is tried again.
    pub region_budget: Duration,
    /// How long a writer waits for somebody else's living lock.
    pub lock_wait: Duration,
    /// How long a commit whose answer was lost is asked for.
    pub commit_budget: Duration,
    /// How long the placement driver keeps a hold that nobody renews.
    pub hold_ttl: Duration,
    /// How often holds and readings are renewed, and the safe point is read.
    pub hold_refresh: Duration,
    /// How old a reading may be and still keep history.
    pub reading_age_max: Duration,
    /// Whether Tidemill moves the cluster's safe point; only for a cluster without TiDB, whose own
    /// garbage collection does it.
    pub drives_gc: bool,
    /// What requests say they come from; only shown by the cluster.
    pub request_source: String,
    /// The limits of change feeds.
    pub feed: FeedOptions,
}

/// Certificate files in PEM, read anew with each connection because they rotate on disk.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The authority that signed the servers' certificates.
    pub ca: PathBuf,
    /// Our own certificate and its key, where servers ask for them.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name that servers' certificates have, if it is not the host's of their URL.
    pub domain: Option<String>,
}

impl Options {
    /// The usual limits.
    #[must_use]
    pub fn new(endpoints: Vec<String>) -> Options {
        Options {
            endpoints,
            tls: None,
            call_timeout: Duration::from_secs(10),
            pd_budget: Duration::from_secs(20),
            region_budget: Duration::from_secs(40),
            lock_wait: Duration::from_secs(10),
            commit_budget: Duration::from_secs(60),
            hold_ttl: Duration::from_secs(24 * 60 * 60),
            hold_refresh: Duration::from_secs(10),
            reading_age_max: Duration::from_secs(60 * 60),
            drives_gc: false,
            request_source: "tidemill".to_owned(),
            feed: FeedOptions::default(),
        }
    }
}
