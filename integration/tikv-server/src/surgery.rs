//! Changes of regions: splits, merges, leaders, peers. Each is seen by requests and by the feed at once.

use std::collections::BTreeSet;

use bytes::Bytes;
use tonic::Status;

use crate::check::Refusal;
use crate::mvcc::{Mvcc, Side};
use crate::regions::RegionState;

impl Mvcc {
    /// Cuts a region at encoded keys; its subscriptions end.
    pub(crate) async fn split(
        &self,
        side: &mut Side,
        region_id: u64,
        cuts: &BTreeSet<Bytes>,
    ) -> Result<Vec<RegionState>, Refusal> {
        let parts = side.regions.split(region_id, cuts);
        let parts = parts.ok_or_else(|| Status::invalid_argument("no key is inside the region"))?;
        side.save_regions(&self.store).await?;
        Ok(parts)
    }
}
