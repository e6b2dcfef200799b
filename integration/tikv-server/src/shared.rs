//! What the services of a cluster share.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tikv::proto::metapb;

use crate::faults::Faults;
use crate::listen::Gate;
use crate::mvcc::Mvcc;
use crate::options::Options;
use crate::pd::Driver;
use crate::tasks::Tasks;

/// A store as others see it.
#[derive(Clone, Debug)]
pub(crate) struct StoreState {
    pub address: String,
    pub gate: Gate,
}

/// The whole of a cluster.
pub(crate) struct Shared {
    pub options: Options,
    pub mvcc: Mvcc,
    pub faults: Faults,
    pub tasks: Tasks,
    pub driver: Driver,
    stores: Mutex<BTreeMap<u64, StoreState>>,
}

impl Shared {
    pub(crate) fn new(options: Options, mvcc: Mvcc, driver: Driver, tasks: Tasks) -> Shared {
        Shared { options, mvcc, faults: Faults::default(), tasks, driver, stores: Mutex::default() }
    }

    pub(crate) fn stores(&self) -> MutexGuard<'_, BTreeMap<u64, StoreState>> {
        self.stores.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stores as PD lists them.
    pub(crate) fn listed_stores(&self) -> Vec<metapb::Store> {
        let stores = self.stores();
        let listed = stores.iter().map(|(id, store)| metapb::Store {
            id: *id,
            address: store.address.clone(),
            state: metapb::StoreState::Up.into(),
            labels: Vec::new(),
            version: self.options.version.clone(),
        });
        listed.collect()
    }
}
