//! What a change feed needs of a cluster besides its event streams.
//!
//! One small trait, so that the feed's own logic does not care how regions are cached or locks resolved.

use async_trait::async_trait;
use bytes::Bytes;
use store::KeyRange;
use tonic::transport::Channel;
use types::{Result, Timestamp};

use super::range_lock::Part;
use crate::pd::Located;
use crate::proto::metapb;

/// A cluster, as a feed sees it.
#[async_trait]
pub(crate) trait Backing: Send + Sync + 'static {
    /// The cluster's identity.
    fn cluster_id(&self) -> u64;

    /// Regions of an encoded part from its start on, without a hole; never none, perhaps not all.
    async fn regions(&self, part: &Part) -> Result<Vec<Located>>;

    /// A connection to a store.
    async fn channel(&self, store_id: u64) -> Result<Channel>;

    /// A region is led by another peer, if one was named, or nobody knows by whom.
    fn leader_moved(&self, region: &metapb::Region, leader: Option<&metapb::Peer>);

    /// A region is not what it was; some of its successors may have been named.
    fn region_changed(&self, region: &metapb::Region, successors: &[metapb::Region]);

    /// A store's connection broke: its address and its leaders may be others.
    fn store_lost(&self, store_id: u64);

    /// Below it history may be gone.
    async fn safe_point(&self) -> Result<Timestamp>;

    /// A fresh timestamp.
    async fn timestamp(&self) -> Result<Timestamp>;

    /// Returns when every transaction that commits at or below a timestamp is applied in a raw range.
    async fn fence(&self, range: &KeyRange, ts: Timestamp) -> Result<()>;

    /// Finishes locks of dead transactions in a raw range with starts at or below a timestamp, and leaves
    /// living ones alone.
    async fn finish_orphans(&self, range: &KeyRange, ts: Timestamp) -> Result<()>;

    /// The least start of the locks in raw ranges that write, with starts at or below a timestamp. What is
    /// not locked by then commits above the timestamp, or is applied.
    async fn oldest_lock(&self, ranges: &[KeyRange], ts: Timestamp) -> Result<Option<Timestamp>>;

    /// Reads a key.
    async fn get(&self, key: &Bytes, ts: Timestamp) -> Result<Option<Bytes>>;
}
