//! What the services of a cluster share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tikv::proto::metapb;

use tokio::sync::Semaphore;

use crate::faults::Faults;
use crate::feed::Pace;
use crate::listen::Gate;
use crate::mvcc::Mvcc;
use crate::options::Options;
use crate::pd::Driver;
use crate::tasks::Tasks;

/// How many scans of feeds go on at a time, as in a real store.
const SCANS_MAX: usize = 6;

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
    pub pace: Pace,
    pub scans: Semaphore,
    stores: Mutex<BTreeMap<u64, StoreState>>,
    connections: AtomicU64,
}

impl Shared {
    pub(crate) fn new(options: Options, mvcc: Mvcc, driver: Driver, tasks: Tasks) -> Shared {
        Shared {
            pace: Pace::new(options.min_ts_interval),
            scans: Semaphore::new(SCANS_MAX),
            options,
            mvcc,
            faults: Faults::default(),
            tasks,
            driver,
            stores: Mutex::default(),
            connections: AtomicU64::new(0),
        }
    }

    /// A number for a connection of the feed.
    pub(crate) fn next_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed)
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
