//! The multi-version layer: the engine's transactions with what a real store has beside them.
//!
//! Every write holds the guard exclusively from its check to the events it causes, reads hold it shared:
//! a subscriber sees changes in the order in which readers do, and nothing is half done in between. Beside
//! the engine stands a side table: which locks are of an async commit and with which secondaries, where a
//! transaction came from, which keys there are. A store's `max_ts` is the newest timestamp read through it.

mod answer;
mod decide;
mod inspect;
mod pessimistic;
mod prewrite;
mod reads;
mod side;
mod status;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use store::{EmbeddedStore, Key, LockInfo, MvccInfo, MvccWrite, Store, WriteKind};
use tikv::proto::kvrpcpb;
use tokio::sync::{Notify, RwLock, RwLockReadGuard, RwLockWriteGuard, watch};
use tonic::Status;
use types::Timestamp;

use crate::check::{self, Refusal};
use crate::oracle::Oracle;
use crate::regions::{RegionState, Regions};
use crate::violations::Ledger;

pub(crate) use answer::{SHORT_VALUE_BYTES_MAX, Unary};
pub(crate) use side::{Extra, Side};

/// How far beyond the newest timestamp a plain read may be, in milliseconds.
const READ_AHEAD_MS_MAX: u64 = 60_000;

/// The layer.
pub(crate) struct Mvcc {
    pub store: Arc<EmbeddedStore>,
    pub oracle: Arc<Oracle>,
    pub ledger: Arc<Ledger>,
    pub cluster_id: u64,
    side: RwLock<Side>,
    /// The newest timestamp read through each store, and whether it was made sure of after the last election.
    max_ts: Vec<(u64, AtomicU64)>,
    /// History at or below it is collected, as far as readers can tell.
    pub gc_passed: AtomicU64,
    /// Locks of async commits stay in memory for the time being.
    memory_held: watch::Sender<bool>,
    memory_released: Notify,
}

/// What became of a transaction on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Committed(Timestamp),
    RolledBack,
}

/// Everything about one key, with the questions that are asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Story(pub MvccInfo);

impl Story {
    pub(crate) fn own_lock(&self, start_ts: Timestamp) -> Option<&LockInfo> {
        self.0.lock.as_ref().filter(|lock| lock.start_ts == start_ts)
    }

    pub(crate) fn fate(&self, start_ts: Timestamp) -> Option<Fate> {
        let own = |write: &&MvccWrite| write.start_ts == start_ts;
        let committed = self.0.writes.iter().filter(own).find(|write| write.kind != WriteKind::Rollback);
        committed
            .map(|write| Fate::Committed(write.commit_ts))
            .or_else(|| self.0.writes.iter().find(own).map(|_| Fate::RolledBack))
    }

    /// The write of a transaction, if it committed here.
    pub(crate) fn write_of(&self, start_ts: Timestamp) -> Option<&MvccWrite> {
        self.0.writes.iter().find(|write| write.start_ts == start_ts && write.kind != WriteKind::Rollback)
    }

    /// Whether another transaction committed at a start: a rollback is then a mark on its record.
    pub(crate) fn has_commit_at(&self, ts: Timestamp) -> bool {
        self.0.writes.iter().any(|write| write.commit_ts == ts && write.kind != WriteKind::Rollback)
    }

    /// What garbage collection has left: of what is below it only the newest version, unless that deletes.
    pub(crate) fn after_collection(mut self, passed: Timestamp) -> Story {
        let newest = self.version_at(passed).cloned();
        self.0.writes.retain(|write| {
            write.commit_ts > passed
                || newest.as_ref().is_some_and(|newest| newest == write && write.value.is_some())
        });
        self
    }

    /// The newest version at a timestamp.
    pub(crate) fn version_at(&self, ts: Timestamp) -> Option<&MvccWrite> {
        let data = |write: &&MvccWrite| matches!(write.kind, WriteKind::Put | WriteKind::Delete);
        self.0.writes.iter().filter(data).find(|write| write.commit_ts <= ts)
    }

    /// The value at a timestamp; empty for none, as rows have it.
    pub(crate) fn value_at(&self, ts: Timestamp) -> bytes::Bytes {
        self.version_at(ts).and_then(|write| write.value.clone()).unwrap_or_default()
    }
}

impl Mvcc {
    pub(crate) async fn new(
        store: Arc<EmbeddedStore>,
        oracle: Arc<Oracle>,
        ledger: Arc<Ledger>,
        cluster_id: u64,
        stores: &BTreeSet<u64>,
        regions: Regions,
        durable: bool,
    ) -> types::Result<Mvcc> {
        let now = oracle.now().await?.0;
        let side = Side::open(&store, regions, stores, durable).await?;
        Ok(Mvcc {
            store,
            oracle,
            ledger,
            cluster_id,
            side: RwLock::new(side),
            max_ts: stores.iter().map(|store_id| (*store_id, AtomicU64::new(now))).collect(),
            gc_passed: AtomicU64::new(0),
            memory_held: watch::Sender::new(false),
            memory_released: Notify::new(),
        })
    }

    /// Shared: nothing changes meanwhile.
    pub(crate) async fn shared(&self) -> RwLockReadGuard<'_, Side> {
        self.side.read().await
    }

    /// Exclusive: for whoever changes anything.
    pub(crate) async fn exclusive(&self) -> RwLockWriteGuard<'_, Side> {
        self.side.write().await
    }

    /// Exclusive, once no prewrite under way holds any of the keys in memory.
    pub(crate) async fn exclusive_over<'a, K>(&self, keys: K) -> RwLockWriteGuard<'_, Side>
    where
        K: IntoIterator<Item = &'a Key> + Clone,
    {
        loop {
            let released = self.memory_released.notified();
            let side = self.exclusive().await;
            if !keys.clone().into_iter().any(|key| side.memory_locks.contains_key(key)) {
                return side;
            }
            drop(side);
            released.await;
        }
    }

    /// Lets async commits and one-phase commits stay in memory from now on, or lets them go.
    pub(crate) fn hold_in_memory(&self, held: bool) {
        self.memory_held.send_replace(held);
    }

    /// Everything about a key.
    pub(crate) async fn story(&self, key: &[u8]) -> Result<Story, Refusal> {
        let info = self.store.mvcc_get(key).await.map_err(|error| Status::internal(format!("{error:?}")))?;
        Ok(Story(info))
    }

    /// The value that a lock will write; empty unless it writes one.
    pub(crate) async fn locked_value(&self, lock: &LockInfo) -> Result<bytes::Bytes, Refusal> {
        let context = store::ReadContext {
            ts: lock.start_ts.max(lock.min_commit_ts),
            resolved_locks: Vec::new(),
            committed_locks: vec![lock.start_ts],
        };
        if lock.kind != store::LockKind::Put {
            return Ok(bytes::Bytes::new());
        }
        let value = self.store.kv_get(&lock.key, &context).await;
        Ok(value.map_err(|error| Status::internal(format!("{error:?}")))?.unwrap_or_default())
    }

    fn max_ts_of(&self, store_id: u64) -> &AtomicU64 {
        let found = self.max_ts.iter().find(|(id, _)| *id == store_id);
        &found.expect("requests come from stores of the cluster").1
    }

    /// The newest timestamp read through a store.
    pub(crate) fn max_ts(&self, store_id: u64) -> Timestamp {
        Timestamp(self.max_ts_of(store_id).load(Ordering::SeqCst))
    }

    /// Takes note of a read.
    pub(crate) fn bump_max_ts(&self, store_id: u64, ts: Timestamp) {
        if ts != Timestamp::MAX {
            self.max_ts_of(store_id).fetch_max(ts.0, Ordering::SeqCst);
        }
    }

    /// Refuses a plain read far beyond the newest timestamp.
    pub(crate) fn check_read(&self, rpc: &str, ts: Timestamp) -> Result<(), Refusal> {
        let newest = self.oracle.newest();
        if ts != Timestamp::MAX && ts.physical_ms() > newest.physical_ms() + READ_AHEAD_MS_MAX {
            let text = format!("{rpc} at {ts}, more than a minute beyond the newest timestamp {newest}");
            return Err(self.ledger.refuse(text).into());
        }
        Ok(())
    }

    /// Refuses a timestamp that was not handed out yet, where a real store looks.
    pub(crate) fn check_known(&self, rpc: &str, what: &str, ts: Timestamp) -> Result<(), Refusal> {
        let newest = self.oracle.newest();
        if ts != Timestamp::MAX && ts > newest {
            let text = format!("{rpc} with {what} {ts}, beyond the newest timestamp {newest}");
            return Err(self.ledger.refuse(text).into());
        }
        Ok(())
    }

    /// Notes a timestamp that never came from PD, where a real store does not look.
    pub(crate) fn note_unissued(&self, rpc: &str, what: &str, ts: Timestamp) {
        if ts != Timestamp::ZERO && !self.oracle.has_issued(ts) {
            self.ledger.violation(format!("{rpc} with {what} {ts}, which PD never handed out"));
        }
    }

    pub(crate) fn region(
        &self,
        side: &Side,
        store_id: u64,
        context: Option<&kvrpcpb::Context>,
    ) -> Result<RegionState, Refusal> {
        check::check(&side.regions, store_id, self.cluster_id, context)
    }

    /// The first key of a request that is outside its region, as an error.
    pub(crate) fn outside<'a>(
        region: &RegionState,
        keys: impl IntoIterator<Item = &'a Key>,
    ) -> Option<kvrpcpb::KeyError> {
        keys.into_iter().find_map(|key| check::outside(region, key))
    }
}
