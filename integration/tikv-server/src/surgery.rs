//! Changes of regions: splits, merges, leaders, peers. Each is seen by requests and by the feed at once.

use std::collections::BTreeSet;

use bytes::Bytes;
use tikv::proto::{cdcpb, errorpb, metapb};
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
        let current_regions = parts.iter().map(|part| part.meta.clone()).collect();
        side.hub.end_region(region_id, &epoch_not_match(current_regions));
        Ok(parts)
    }

    /// Merges a region into its neighbour; the subscriptions of both end.
    pub(crate) async fn merge(
        &self,
        side: &mut Side,
        source: u64,
        target: u64,
    ) -> Result<RegionState, Refusal> {
        let grown = side.regions.merge(source, target);
        let grown = grown.ok_or_else(|| Status::invalid_argument("the regions are no neighbours"))?;
        side.save_regions(&self.store).await?;
        for region_id in [source, target] {
            side.hub.end_region(region_id, &epoch_not_match(Vec::new()));
        }
        Ok(grown)
    }

    /// Gives a region another leader, or none; its subscriptions end.
    pub(crate) async fn lead(
        &self,
        side: &mut Side,
        region_id: u64,
        leader: Option<u64>,
    ) -> Result<(), Refusal> {
        if !side.regions.lead(region_id, leader) {
            return Err(Status::invalid_argument("the region or the store's peer of it is missing").into());
        }
        side.save_regions(&self.store).await?;
        let leader = side.regions.by_id(region_id).and_then(RegionState::leader_peer);
        let not_leader = Some(errorpb::NotLeader { region_id, leader });
        side.hub.end_region(region_id, &cdcpb::Error { not_leader, ..cdcpb::Error::default() });
        Ok(())
    }
}

fn epoch_not_match(current_regions: Vec<metapb::Region>) -> cdcpb::Error {
    let epoch_not_match = Some(errorpb::EpochNotMatch { current_regions });
    cdcpb::Error { epoch_not_match, ..cdcpb::Error::default() }
}
