//! The change feed: who listens to what, the scan at the beginning, live rows, resolved timestamps.
//!
//! A subscription is a connection's request for a region. Rows come to it while the layer's guard is held,
//! so in the order of the writes; its scan is a snapshot taken when it is entered, sent in pieces after, so
//! that live rows overtake it. Only after the scan does it get resolved timestamps.

mod connection;
mod register;
mod resolved;
pub(crate) mod rows;
mod scan;
mod service;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use store::KeyRange;
use tikv::proto::cdcpb::{self, event};
use types::Timestamp;

use crate::keys;
use crate::regions::Regions;

pub(crate) use connection::{Connection, Out};
pub use resolved::Pace;

/// Names a subscription: connection, request, region.
pub(crate) type SubscriptionId = (u64, u64, u64);

/// Where a lossy reorganisation or a physical import is marked in a transaction's source.
const DROPPED_SOURCES: u64 = 0x1_ff00;
/// Where replication is marked.
const LOOP_SOURCES: u64 = 0xff;

/// One request for one region.
pub(crate) struct Subscription {
    pub connection: Arc<Connection>,
    pub request_id: u64,
    pub region_id: u64,
    /// What of the region is asked for; `None` if that is nothing.
    pub range: Option<KeyRange>,
    pub filter_loop: bool,
    pub checkpoint_ts: Timestamp,
    /// The scan has been sent.
    initialized: AtomicBool,
    /// An error has been sent; nothing more comes.
    ended: AtomicBool,
    /// The newest resolved timestamp sent.
    resolved: AtomicU64,
}

impl Subscription {
    fn wants(&self, row: &cdcpb::Row) -> bool {
        self.range.as_ref().is_some_and(|range| range.contains(&row.key))
            && row.txn_source & DROPPED_SOURCES == 0
            && !(self.filter_loop && row.txn_source & LOOP_SOURCES != 0)
    }

    fn is_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst) || self.connection.is_closed()
    }

    fn event(&self, event: event::Event) -> Out {
        Out::Event(cdcpb::Event {
            region_id: self.region_id,
            request_id: self.request_id,
            event: Some(event),
            ..cdcpb::Event::default()
        })
    }

    fn send_rows(&self, entries: Vec<cdcpb::Row>) {
        if !entries.is_empty() && !self.is_ended() {
            self.connection.push(self.event(event::Event::Entries(cdcpb::Entries { entries })));
        }
    }

    fn end(&self, error: cdcpb::Error) {
        if !self.ended.swap(true, Ordering::SeqCst) {
            self.connection.push(self.event(event::Event::Error(error)));
        }
    }
}

/// Who listens.
#[derive(Default)]
pub(crate) struct Hub {
    subscriptions: BTreeMap<SubscriptionId, Arc<Subscription>>,
    /// Commits that came at or below a resolved timestamp: what may not be.
    late: std::sync::Mutex<Vec<String>>,
}

impl Hub {
    fn enter(&mut self, id: SubscriptionId, subscription: Arc<Subscription>) {
        self.subscriptions.insert(id, subscription);
    }

    fn living(&self, id: SubscriptionId) -> Option<&Arc<Subscription>> {
        self.subscriptions.get(&id).filter(|subscription| !subscription.is_ended())
    }

    /// Forgets whoever went away.
    fn purge(&mut self) {
        self.subscriptions.retain(|_, subscription| !subscription.is_ended());
    }

    /// Sends rows to whoever listens. The order inside an event is none, as on a real store.
    pub(crate) fn publish(&self, regions: &Regions, mut rows: Vec<cdcpb::Row>) {
        if self.subscriptions.is_empty() {
            return;
        }
        rows.sort_by_key(|row| scattered(&row.key));
        let mut by_region: BTreeMap<u64, Vec<cdcpb::Row>> = BTreeMap::new();
        for row in rows {
            by_region.entry(regions.of_key(&keys::encode(&row.key)).id()).or_default().push(row);
        }
        for subscription in self.subscriptions.values().filter(|subscription| !subscription.is_ended()) {
            let Some(rows) = by_region.get(&subscription.region_id) else { continue };
            let wanted: Vec<cdcpb::Row> =
                rows.iter().filter(|row| subscription.wants(row)).cloned().collect();
            self.watch(subscription, &wanted);
            if subscription.connection.is_full() && !wanted.is_empty() {
                let congested = Some(cdcpb::Congested { region_id: subscription.region_id });
                subscription.end(cdcpb::Error { congested, ..cdcpb::Error::default() });
                continue;
            }
            subscription.send_rows(wanted);
        }
    }

    /// Notes commits that a resolved timestamp has denied.
    fn watch(&self, subscription: &Subscription, rows: &[cdcpb::Row]) {
        let resolved = subscription.resolved.load(Ordering::SeqCst);
        let is_commit = |row: &&cdcpb::Row| {
            matches!(row.r#type(), cdcpb::LogType::Commit | cdcpb::LogType::Committed)
                && row.commit_ts <= resolved
        };
        if let Some(row) = rows.iter().find(is_commit) {
            let text = format!(
                "transaction {} committed {} at {}, though {resolved} is resolved in region {}",
                row.start_ts,
                row.key.escape_ascii(),
                row.commit_ts,
                subscription.region_id
            );
            self.late.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(text);
        }
    }

    /// Takes out what [`Hub::publish`] noted.
    pub(crate) fn take_late(&self) -> Vec<String> {
        std::mem::take(&mut *self.late.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Ends every subscription of a region.
    pub(crate) fn end_region(&self, region_id: u64, error: &cdcpb::Error) {
        for subscription in self.subscriptions.values().filter(|one| one.region_id == region_id) {
            subscription.end(error.clone());
        }
    }

    /// Ends every connection to a store.
    pub(crate) fn end_store(&self, store_id: u64, status: &tonic::Status) {
        for subscription in self.subscriptions.values().filter(|one| one.connection.store_id == store_id) {
            subscription.connection.close(Some(status.clone()));
        }
    }

    /// How many subscriptions live.
    pub(crate) fn n_living(&self) -> usize {
        self.subscriptions.values().filter(|subscription| !subscription.is_ended()).count()
    }
}

/// An order that nobody should rely on, the same each time.
fn scattered(key: &[u8]) -> u64 {
    key.iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
