//! Change feeds of a cluster.

use std::sync::Arc;

use store::traits::{ChangePage, FeedStream};
use store::{Key, KeyRange};
use types::{Error, Result, Timestamp};

use crate::cluster::Cluster;

/// The change feeds of one connection.
pub(crate) struct Feeds {
    cluster: Arc<Cluster>,
}

impl Feeds {
    pub(crate) fn new(cluster: Arc<Cluster>) -> Feeds {
        Feeds { cluster }
    }

    fn missing(&self) -> Error {
        Error::unavailable(format!("cluster {} has no change feed here", self.cluster.pd.cluster_id()))
    }

    /// See [`store::Store::changes`].
    pub(crate) async fn changes(
        &self,
        _ranges: &[KeyRange],
        _from: Timestamp,
        _to: Timestamp,
        _next: Option<(Timestamp, Key)>,
        _limit: usize,
    ) -> Result<ChangePage> {
        Err(self.missing())
    }

    /// See [`store::Store::resolved`].
    pub(crate) async fn resolved(&self, _ranges: &[KeyRange]) -> Result<Timestamp> {
        Err(self.missing())
    }

    /// See [`store::Store::subscribe`].
    pub(crate) async fn subscribe(&self, _ranges: Vec<KeyRange>, _from: Timestamp) -> Result<FeedStream> {
        Err(self.missing())
    }

    /// See [`store::Store::wait_change`].
    pub(crate) async fn wait_change(&self, _ts: Timestamp, _timeout_ms: u64) -> Result<Timestamp> {
        Err(self.missing())
    }
}
