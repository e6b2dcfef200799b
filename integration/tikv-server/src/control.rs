//! What a test does to a running cluster.

use std::collections::BTreeMap;

use crate::cluster::Cluster;
use crate::faults::{Fault, Target};
use crate::regions::RegionState;
use crate::violations::Count;

impl Cluster {
    /// The regions in key order.
    pub async fn regions(&self) -> Vec<RegionState> {
        self.shared.mvcc.shared().await.regions.all()
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
