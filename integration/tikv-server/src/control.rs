//! What a test does to a running cluster: regions, stores, PD, history.

use std::collections::{BTreeMap, BTreeSet};

use tikv::proto::cdcpb;
use tonic::Status;

use crate::check::Refusal;
use crate::cluster::Cluster;
use crate::faults::{Fault, Target};
use crate::feed::Pace;
use crate::keys;
use crate::regions::RegionState;
use crate::violations::Count;

/// What a change of the cluster says when it cannot be.
pub(crate) fn failed(refusal: Refusal) -> anyhow::Error {
    match refusal {
        Refusal::Status(status) => anyhow::anyhow!("{}", status.message()),
        Refusal::Region(error) => anyhow::anyhow!("{}", error.message),
    }
}

/// Regions.
impl Cluster {
    /// The regions in key order.
    pub async fn regions(&self) -> Vec<RegionState> {
        self.shared.mvcc.shared().await.regions.all()
    }

    /// The region of a raw key.
    pub async fn region_of(&self, key: &[u8]) -> RegionState {
        self.shared.mvcc.shared().await.regions.of_key(&keys::encode(key)).clone()
    }

    /// Cuts a region at raw keys; returns the parts.
    ///
    /// # Errors
    /// If there is no such region or no key is inside it.
    pub async fn split(&self, region_id: u64, at: &[Vec<u8>]) -> anyhow::Result<Vec<RegionState>> {
        let cuts = at.iter().map(|key| keys::encode(key)).collect();
        let mvcc = &self.shared.mvcc;
        let mut side = mvcc.exclusive().await;
        mvcc.split(&mut side, region_id, &cuts).await.map_err(failed)
    }

    /// Cuts the region of a raw key there.
    ///
    /// # Errors
    /// If a region begins at the key already.
    pub async fn split_at(&self, key: &[u8]) -> anyhow::Result<Vec<RegionState>> {
        let region_id = self.region_of(key).await.id();
        self.split(region_id, &[key.to_vec()]).await
    }

    /// Merges a region into its neighbour; returns that.
    ///
    /// # Errors
    /// If they are no neighbours.
    pub async fn merge(&self, source: u64, target: u64) -> anyhow::Result<RegionState> {
        let mvcc = &self.shared.mvcc;
        let mut side = mvcc.exclusive().await;
        mvcc.merge(&mut side, source, target).await.map_err(failed)
    }

    /// Gives a region another leader.
    ///
    /// # Errors
    /// If the region is not there, the store has no peer of it or leads it already.
    pub async fn transfer_leader(&self, region_id: u64, store_id: u64) -> anyhow::Result<()> {
        self.lead(region_id, Some(store_id)).await
    }

    /// Takes a region's leader away, until another is given.
    ///
    /// # Errors
    /// If the region is not there or has none.
    pub async fn depose_leader(&self, region_id: u64) -> anyhow::Result<()> {
        self.lead(region_id, None).await
    }

    async fn lead(&self, region_id: u64, leader: Option<u64>) -> anyhow::Result<()> {
        let mvcc = &self.shared.mvcc;
        let mut side = mvcc.exclusive().await;
        mvcc.lead(&mut side, region_id, leader).await.map_err(failed)
    }

    /// Moves a peer that does not lead to another store.
    ///
    /// # Errors
    /// If that cannot be.
    pub async fn move_peer(&self, region_id: u64, from: u64, to: u64) -> anyhow::Result<()> {
        let mvcc = &self.shared.mvcc;
        let mut side = mvcc.exclusive().await;
        anyhow::ensure!(side.regions.move_peer(region_id, from, to), "the peer cannot move");
        Ok(side.save_regions(&mvcc.store).await?)
    }

    /// Ends every subscription of a region with an error.
    pub async fn end_subscriptions(&self, region_id: u64, error: &cdcpb::Error) {
        self.shared.mvcc.shared().await.hub.end_region(region_id, error);
    }

    /// How many subscriptions there are.
    pub async fn n_subscriptions(&self) -> usize {
        self.shared.mvcc.shared().await.hub.n_living()
    }
}

/// Stores.
impl Cluster {
    /// Takes a store down: connections break, its regions get no leader until [`Cluster::elect`].
    ///
    /// # Errors
    /// If there is no such store, or the regions cannot be written down.
    pub async fn store_down(&self, store_id: u64) -> anyhow::Result<()> {
        let gate = self.shared.stores().get(&store_id).map(|store| store.gate.clone());
        let gate = gate.ok_or_else(|| anyhow::anyhow!("there is no store {store_id}"))?;
        let mvcc = &self.shared.mvcc;
        let mut side = mvcc.exclusive().await;
        gate.down();
        side.hub.end_store(store_id, &Status::unavailable("the store is down"));
        for region_id in side.regions.led_by(store_id) {
            side.regions.lead(region_id, None);
        }
        Ok(side.save_regions(&mvcc.store).await?)
    }

    /// Brings a store back under its address.
    pub fn store_up(&self, store_id: u64) {
        if let Some(store) = self.shared.stores().get(&store_id) {
            store.gate.up();
        }
    }

    /// Breaks a store's connections; it takes new ones at once and keeps its regions.
    pub async fn reset_connections(&self, store_id: u64) {
        if let Some(store) = self.shared.stores().get(&store_id) {
            store.gate.reset();
        }
        let side = self.shared.mvcc.shared().await;
        side.hub.end_store(store_id, &Status::unavailable("the connection was cut on purpose"));
    }

    /// Gives every region without a leader one of its stores that are up.
    ///
    /// # Errors
    /// If the regions cannot be written down.
    pub async fn elect(&self) -> anyhow::Result<()> {
        let up: BTreeSet<u64> =
            self.shared.stores().iter().filter(|(_, store)| store.gate.is_up()).map(|(id, _)| *id).collect();
        let mvcc = &self.shared.mvcc;
        let mut side = mvcc.exclusive().await;
        for region in side.regions.all().into_iter().filter(|region| region.leader.is_none()) {
            let next = region.meta.peers.iter().find(|peer| up.contains(&peer.store_id));
            if let Some(next) = next {
                side.regions.lead(region.id(), Some(next.store_id));
            }
        }
        Ok(side.save_regions(&mvcc.store).await?)
    }

    /// How fast the feeds go.
    #[must_use]
    pub fn pace(&self) -> &Pace {
        &self.shared.pace
    }
}

/// PD.
impl Cluster {
    /// Draws a timestamp, as a client would.
    ///
    /// # Errors
    /// If the engine is closed.
    pub async fn timestamp(&self) -> anyhow::Result<u64> {
        Ok(self.shared.mvcc.oracle.now().await?.0)
    }

    /// Makes another member lead, counted from 0.
    pub fn pd_lead(&self, member: u64) {
        self.shared.driver.set_leader(member);
    }

    /// Leaves PD without a leader, until [`Cluster::pd_lead`].
    pub fn pd_depose(&self) {
        self.shared.driver.set_leader(u64::MAX);
    }

    /// Takes a member down, or brings it back under its address.
    pub fn pd_member_down(&self, member: usize, down: bool) {
        if let Some(member) = self.shared.driver.members().get(member) {
            if down { member.gate.down() } else { member.gate.up() }
        }
    }

    /// Holds timestamps back, from clients and stores, or lets them flow.
    pub fn stall_timestamps(&self, stalled: bool) {
        self.shared.mvcc.oracle.stall(stalled);
    }

    /// Keeps the stores from PD's timestamps, or lets them have them again.
    pub fn part_stores_from_pd(&self, away: bool) {
        self.shared.mvcc.oracle.set_away(away);
    }

    /// Lets timestamps fall back by a minute, which no client may take, or no longer.
    pub fn timestamps_fall_back(&self, fall_back: bool) {
        self.shared.driver.set_falls_back(fall_back);
    }

    /// Lets PD tell the regions of now whatever becomes of them, or the truth again.
    pub async fn freeze_pd_regions(&self, frozen: bool) {
        let regions = if frozen { Some(self.regions().await) } else { None };
        self.shared.driver.freeze(regions);
    }

    /// Lets PD leave regions out of its answers.
    pub fn set_pd_holes(&self, region_ids: &[u64]) {
        self.shared.driver.set_holes(region_ids.iter().copied().collect());
    }

    /// The barriers that keep history, by name.
    ///
    /// # Errors
    /// If the engine is closed.
    pub async fn barriers(&self) -> anyhow::Result<BTreeMap<String, u64>> {
        let now_ms = self.shared.mvcc.oracle.now().await?.physical_ms();
        Ok(self.shared.driver.barriers.in_force(now_ms))
    }

    /// Moves the safe point as far towards a timestamp as barriers allow, and collects up to it: rolls back
    /// what began before, then forgets versions. Returns the safe point.
    ///
    /// # Errors
    /// If the engine is closed.
    pub async fn collect_garbage(&self, wanted: u64) -> anyhow::Result<u64> {
        let now_ms = self.shared.mvcc.oracle.now().await?.physical_ms();
        let safe_point = self.shared.driver.barriers.advance(wanted, now_ms);
        self.shared.mvcc.collect(safe_point).await.map_err(failed)?;
        self.shared.save_barriers().await?;
        Ok(safe_point)
    }

    /// Collects up to a timestamp whatever barriers say, as if they had run out.
    ///
    /// # Errors
    /// If the engine is closed.
    pub async fn pass_garbage_collection(&self, safe_point: u64) -> anyhow::Result<()> {
        self.shared.driver.barriers.raise_safe_point(safe_point);
        self.shared.mvcc.collect(safe_point).await.map_err(failed)?;
        Ok(self.shared.save_barriers().await?)
    }
}

/// Requests.
impl Cluster {
    /// Plans a fault for so many matching requests, or for all from now on.
    pub fn plan_fault(&self, target: Target, fault: Fault, count: Option<u64>) {
        self.shared.faults.plan(target, fault, count);
    }

    /// Takes every planned fault back.
    pub fn clear_faults(&self) {
        self.shared.faults.clear();
    }

    /// How many counted faults have not come yet.
    #[must_use]
    pub fn faults_left(&self) -> u64 {
        self.shared.faults.left()
    }

    /// Lets go of every request and answer that is held.
    pub fn release_held(&self) {
        self.shared.faults.release();
    }

    /// Lets async commits and one-phase commits stay in their store's memory, where readers meet their locks
    /// and other writers wait, or lets all go on.
    pub fn hold_in_memory(&self, held: bool) {
        self.shared.mvcc.hold_in_memory(held);
    }

    /// What clients did that they must not.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.shared.mvcc.ledger.violations()
    }

    /// Takes the violations out, so that shutdown does not fail because of them.
    #[must_use]
    pub fn take_violations(&self) -> Vec<String> {
        self.shared.mvcc.ledger.forget_violations()
    }

    /// How many round trips there were: the longest chain of calls of which each began here after the one
    /// before it had ended here. It counts on; what one caller needs is the difference, while nobody else
    /// calls and answers are slow ([`Fault::DelayAnswer`]), so that calls sent together meet.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        self.shared.mvcc.ledger.rounds()
    }

    /// How often each call came and how many bytes it had.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<&'static str, Count> {
        self.shared.mvcc.ledger.counts()
    }
}
