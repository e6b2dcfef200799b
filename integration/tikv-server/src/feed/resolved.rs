//! Resolved timestamps: every interval each store tells how far everything has been sent.
//!
//! A fresh timestamp first becomes the store's newest read, so that no async commit computes one below it;
//! the start of a lock that may still change something holds it back. Regions of a request go out in
//! groups of 8, then 32, each with its smallest; so one locked region holds back its group.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tikv::proto::cdcpb::{self, event};
use tokio::sync::watch;
use types::Timestamp;

use super::{Connection, Hub, Out, Subscription};
use crate::check::Refusal;
use crate::mvcc::Side;
use crate::shared::Shared;

/// From this version on a client gets groups of regions.
const GROUPS_SINCE: (u64, u64, u64) = (4, 0, 8);
const FIRST_GROUP: usize = 8;
const GROUP_GROWTH: usize = 4;

/// How fast feeds go, and what stands still.
#[derive(Debug)]
pub struct Pace {
    interval_ms: AtomicU64,
    scan_pause_ms: AtomicU64,
    scans_held: watch::Sender<bool>,
    silent: Mutex<BTreeSet<u64>>,
    stuck: Mutex<BTreeSet<u64>>,
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Pace {
    pub(crate) fn new(interval: Duration) -> Pace {
        Pace {
            interval_ms: AtomicU64::new(milliseconds(interval).max(1)),
            scan_pause_ms: AtomicU64::new(0),
            scans_held: watch::Sender::new(false),
            silent: Mutex::default(),
            stuck: Mutex::default(),
        }
    }

    fn set(set: &Mutex<BTreeSet<u64>>) -> MutexGuard<'_, BTreeSet<u64>> {
        set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often stores send resolved timestamps from now on.
    pub fn set_interval(&self, interval: Duration) {
        self.interval_ms.store(milliseconds(interval).max(1), Ordering::SeqCst);
    }

    fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms.load(Ordering::SeqCst))
    }

    /// How long scans wait before each piece.
    pub fn set_scan_pause(&self, pause: Duration) {
        self.scan_pause_ms.store(milliseconds(pause), Ordering::SeqCst);
    }

    pub(super) fn scan_pause(&self) -> Duration {
        Duration::from_millis(self.scan_pause_ms.load(Ordering::SeqCst))
    }

    /// Lets scans stand still, or go on.
    pub fn hold_scans(&self, held: bool) {
        self.scans_held.send_replace(held);
    }

    pub(super) async fn scans_flowing(&self) {
        // The sender lives as long as this does.
        let _ = self.scans_held.subscribe().wait_for(|held| !held).await;
    }

    /// Lets a store send no resolved timestamps, or send them again.
    pub fn silence_store(&self, store_id: u64, silent: bool) {
        let mut set = Pace::set(&self.silent);
        if silent {
            set.insert(store_id)
        } else {
            set.remove(&store_id)
        };
    }

    /// Lets a region's resolved timestamp stay where it is, or move again.
    pub fn stick_region(&self, region_id: u64, stuck: bool) {
        let mut set = Pace::set(&self.stuck);
        if stuck {
            set.insert(region_id)
        } else {
            set.remove(&region_id)
        };
    }

    fn is_silent(&self, store_id: u64) -> bool {
        Pace::set(&self.silent).contains(&store_id)
    }

    fn is_stuck(&self, region_id: u64) -> bool {
        Pace::set(&self.stuck).contains(&region_id)
    }
}

impl Shared {
    /// Sends a store's resolved timestamps until the cluster ends.
    pub(crate) async fn send_resolved(&self, store_id: u64) {
        loop {
            tokio::time::sleep(self.pace.interval()).await;
            if self.pace.is_silent(store_id) {
                continue;
            }
            if let Err(refusal) = self.resolve_once(store_id).await {
                tracing::warn!(?refusal, store_id, "no resolved timestamps this time");
            }
        }
    }

    async fn resolve_once(&self, store_id: u64) -> Result<(), Refusal> {
        if self.mvcc.shared().await.hub.subscriptions.is_empty() {
            return Ok(());
        }
        // Without PD the old values come again.
        let now = if self.mvcc.oracle.is_away() { None } else { Some(self.mvcc.oracle.now().await?) };
        let mut side = self.mvcc.exclusive().await;
        side.hub.purge();
        if let Some(now) = now {
            self.mvcc.bump_max_ts(store_id, now);
        }
        let mut requests: BTreeMap<(u64, u64), Vec<(u64, u64)>> = BTreeMap::new();
        let mut connections: BTreeMap<u64, Arc<Connection>> = BTreeMap::new();
        for ((connection, request, region), subscription) in &side.hub.subscriptions {
            let initialized = subscription.initialized.load(Ordering::SeqCst);
            if subscription.connection.store_id != store_id || !initialized || subscription.is_ended() {
                continue;
            }
            let resolved = match now {
                Some(now) if !self.pace.is_stuck(*region) => self.resolve(&side, subscription, now).await?,
                _ => subscription.resolved.load(Ordering::SeqCst),
            };
            connections.insert(*connection, Arc::clone(&subscription.connection));
            let request = if subscription.connection.multiplexing { *request } else { 0 };
            requests.entry((*connection, request)).or_default().push((resolved, *region));
        }
        for ((connection, request), mut regions) in requests {
            let Some(connection) = connections.get(&connection) else { continue };
            regions.sort_unstable();
            regions.dedup_by_key(|(_, region)| *region);
            send(&side.hub, connection, request, &regions);
        }
        Ok(())
    }

    /// How far a subscription is resolved at a fresh timestamp; never goes back.
    async fn resolve(
        &self,
        side: &Side,
        subscription: &Subscription,
        now: Timestamp,
    ) -> Result<u64, Refusal> {
        let mut least = now.0;
        if let Some(range) = &subscription.range {
            let locks = self.mvcc.locks_in(range, Timestamp::MAX).await?;
            let changing = locks.iter().filter(|lock| lock.kind != store::LockKind::Lock);
            least = changing.map(|lock| lock.start_ts.0).fold(least, u64::min);
            let in_memory = side.memory_locks.values().filter(|lock| range.contains(&lock.key));
            least = in_memory.map(|lock| lock.lock_version).fold(least, u64::min);
        }
        Ok(subscription.resolved.fetch_max(least, Ordering::SeqCst).max(least))
    }
}

fn send(hub: &Hub, connection: &Connection, request_id: u64, regions: &[(u64, u64)]) {
    if connection.version() < GROUPS_SINCE {
        if connection.multiplexing {
            return;
        }
        for ((_, request_id, region_id), subscription) in
            hub.subscriptions.range((connection.id, 0, 0)..=(connection.id, u64::MAX, u64::MAX))
        {
            let Some((resolved, _)) = regions.iter().find(|(_, region)| region == region_id) else {
                continue;
            };
            if !subscription.is_ended() {
                connection.push(Out::Event(cdcpb::Event {
                    region_id: *region_id,
                    request_id: *request_id,
                    event: Some(event::Event::ResolvedTs(*resolved)),
                    ..cdcpb::Event::default()
                }));
            }
        }
        return;
    }
    let mut rest = regions;
    let mut size = FIRST_GROUP;
    while !rest.is_empty() {
        let (group, after) = rest.split_at(rest.len().min(size));
        connection.push(Out::Resolved(cdcpb::ResolvedTs {
            regions: group.iter().map(|(_, region)| *region).collect(),
            ts: group[0].0,
            request_id,
        }));
        rest = after;
        size *= GROUP_GROWTH;
    }
}
