//! What a test does to a running cluster.

use std::collections::BTreeMap;

use crate::check::Refusal;
use crate::cluster::Cluster;
use crate::faults::{Fault, Target};
use crate::keys;
use crate::regions::RegionState;
use crate::violations::Count;

/// What a change of the cluster says when it cannot be.
fn failed(refusal: Refusal) -> anyhow::Error {
    match refusal {
        Refusal::Status(status) => anyhow::anyhow!("{}", status.message()),
        Refusal::Region(error) => anyhow::anyhow!("{}", error.message),
    }
}

impl Cluster {
    /// The regions in key order.
    pub async fn regions(&self) -> Vec<RegionState> {
        self.shared.mvcc.shared().await.regions.all()
    }

    /// The region of a raw key.
    pub async fn region_of(&self, key: &[u8]) -> RegionState {
        self.shared.mvcc.shared().await.regions.of_key(&keys::encode(key)).clone()
    }

    /// Draws a timestamp, as a client would.
    ///
    /// # Errors
    /// If the engine is closed.
    pub async fn timestamp(&self) -> anyhow::Result<u64> {
        Ok(self.shared.mvcc.oracle.now().await?.0)
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
        let mvcc = &self.shared.mvcc;
        let mut side = mvcc.exclusive().await;
        mvcc.lead(&mut side, region_id, Some(store_id)).await.map_err(failed)
    }

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

    /// How often each call came and how many bytes it had.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<&'static str, Count> {
        self.shared.mvcc.ledger.counts()
    }
}
