//! What stands beside the engine: extras of locks and writes, the keys there are, regions, subscriptions.
//!
//! With a data directory it is written into the engine's place for unversioned values before the write
//! that it belongs to, whose sync covers it, and is read back at the start. Entries of locks that never
//! came to be are harmless: whoever looks has found the lock first.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use store::{EmbeddedStore, Key, LockInfo, Store};
use tikv::proto::kvrpcpb;
use types::Timestamp;

use crate::feed::Hub;
use crate::keys;
use crate::regions::Regions;

const EXTRA_PREFIX: &[u8] = b"server/extra/";
const KEY_PREFIX: &[u8] = b"server/key/";
const REGIONS_KEY: &[u8] = b"server/regions";
const PAGE: usize = 10_000;

/// What the engine does not know of a lock or write.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Extra {
    /// Of an async commit: its fate follows from all its locks.
    #[prost(bool, tag = "1")]
    pub use_async_commit: bool,
    /// The other keys, on the primary's lock.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub secondaries: Vec<Bytes>,
    /// Where the transaction came from.
    #[prost(uint64, tag = "3")]
    pub txn_source: u64,
    /// A rollback that nothing may fold away.
    #[prost(bool, tag = "4")]
    pub protected: bool,
}

/// What is guarded.
pub(crate) struct Side {
    /// The regions.
    pub regions: Regions,
    /// Who listens.
    pub hub: Hub,
    extras: BTreeMap<(Key, u64), Extra>,
    keys: BTreeSet<Key>,
    /// Locks that are only in a store's memory: their prewrites are under way.
    pub memory_locks: BTreeMap<Key, kvrpcpb::LockInfo>,
    /// Pessimistic locks, which are nowhere else.
    pub pessimistic: BTreeMap<Key, kvrpcpb::LockInfo>,
    durable: bool,
}

impl Side {
    pub(crate) async fn open(
        store: &EmbeddedStore,
        regions: Regions,
        stores: &BTreeSet<u64>,
        durable: bool,
    ) -> types::Result<Side> {
        let mut side = Side {
            regions,
            hub: Hub::default(),
            extras: BTreeMap::new(),
            keys: BTreeSet::new(),
            memory_locks: BTreeMap::new(),
            pessimistic: BTreeMap::new(),
            durable,
        };
        if !durable {
            return Ok(side);
        }
        for name in list(store, KEY_PREFIX).await? {
            side.keys.insert(name.slice(KEY_PREFIX.len()..));
        }
        for name in list(store, EXTRA_PREFIX).await? {
            let bytes = store.get_blob(&name).await?.unwrap_or_default();
            let extra = Extra::decode(bytes).map_err(|error| types::Error::corrupt(error.to_string()))?;
            let broken = || types::Error::corrupt("a name in the side table is broken");
            side.extras.insert(split_name(&name).ok_or_else(broken)?, extra);
        }
        if let Some(bytes) = store.get_blob(REGIONS_KEY).await?
            && let Some(regions) = Regions::decoded(&bytes, stores)
        {
            side.regions = regions;
        }
        Ok(side)
    }

    /// The extra of a lock or write; the default if there is none.
    pub(crate) fn extra(&self, key: &[u8], start_ts: Timestamp) -> Extra {
        self.extras.get(&(Key::copy_from_slice(key), start_ts.0)).cloned().unwrap_or_default()
    }

    /// Sets extras; must come before the engine's write.
    pub(crate) async fn put_extras(
        &mut self,
        store: &EmbeddedStore,
        start_ts: Timestamp,
        extras: Vec<(Key, Extra)>,
    ) -> types::Result<()> {
        let mut blobs = Vec::new();
        for (key, extra) in extras {
            if self.durable {
                blobs.push((name(&key, start_ts), Bytes::from(extra.encode_to_vec())));
            }
            self.extras.insert((key, start_ts.0), extra);
        }
        if blobs.is_empty() { Ok(()) } else { store.put_blobs(blobs).await }
    }

    /// Changes the extra of a lock that is decided: the lock is gone, what the write has stays.
    pub(crate) async fn settle(
        &mut self,
        store: &EmbeddedStore,
        key: &Key,
        start_ts: Timestamp,
        protected: bool,
    ) -> types::Result<()> {
        let old = self.extra(key, start_ts);
        let extra = Extra { txn_source: old.txn_source, protected, ..Extra::default() };
        if extra == old {
            return Ok(());
        }
        if extra != Extra::default() {
            return self.put_extras(store, start_ts, vec![(key.clone(), extra)]).await;
        }
        self.extras.remove(&(key.clone(), start_ts.0));
        if self.durable { store.delete_blobs(vec![name(key, start_ts)]).await } else { Ok(()) }
    }

    /// Takes note of keys that are about to be written for the first time.
    pub(crate) async fn note_keys<'a>(
        &mut self,
        store: &EmbeddedStore,
        keys: impl IntoIterator<Item = &'a Key>,
    ) -> types::Result<()> {
        let mut blobs = Vec::new();
        for key in keys {
            if self.keys.insert(key.clone()) && self.durable {
                blobs.push((Bytes::from([KEY_PREFIX, key].concat()), Bytes::new()));
            }
        }
        if blobs.is_empty() { Ok(()) } else { store.put_blobs(blobs).await }
    }

    /// The keys of a range that were ever written, in order.
    pub(crate) fn keys_in(&self, range: &store::KeyRange) -> impl Iterator<Item = &Key> {
        let within = |key: &&Key| range.end.is_empty() || **key < range.end;
        self.keys.range(range.start.clone()..).take_while(within)
    }

    /// Writes the regions down after a change of them.
    pub(crate) async fn save_regions(&self, store: &EmbeddedStore) -> types::Result<()> {
        if !self.durable {
            return Ok(());
        }
        store.put_blobs(vec![(Bytes::from_static(REGIONS_KEY), self.regions.encoded())]).await
    }

    /// A lock as a real store shows it.
    pub(crate) fn show_lock(&self, lock: &LockInfo) -> kvrpcpb::LockInfo {
        let extra = self.extra(&lock.key, lock.start_ts);
        let kind = match lock.kind {
            store::LockKind::Put => kvrpcpb::Op::Put,
            store::LockKind::Delete => kvrpcpb::Op::Del,
            store::LockKind::Lock => kvrpcpb::Op::Lock,
        };
        kvrpcpb::LockInfo {
            primary_lock: lock.primary.clone(),
            lock_version: lock.start_ts.0,
            key: lock.key.clone(),
            lock_ttl: lock.ttl_ms,
            txn_size: lock.txn_size,
            lock_type: kind.into(),
            use_async_commit: extra.use_async_commit,
            min_commit_ts: lock.min_commit_ts.0,
            secondaries: extra.secondaries,
            ..kvrpcpb::LockInfo::default()
        }
    }
}

fn name(key: &[u8], start_ts: Timestamp) -> Bytes {
    let mut name = BytesMut::from(EXTRA_PREFIX);
    name.put_slice(&keys::encode(key));
    name.put_u64(start_ts.0);
    name.freeze()
}

fn split_name(name: &Bytes) -> Option<(Key, u64)> {
    let rest = name.get(EXTRA_PREFIX.len()..)?;
    let (key, start_ts) = rest.split_at_checked(rest.len().checked_sub(8)?)?;
    Some((keys::decode(key)?, u64::from_be_bytes(start_ts.try_into().ok()?)))
}

async fn list(store: &EmbeddedStore, prefix: &[u8]) -> types::Result<Vec<Key>> {
    let mut names: Vec<Key> = Vec::new();
    loop {
        let page = store.list_blobs(prefix, names.last().cloned(), PAGE).await?;
        let full = page.len() == PAGE;
        names.extend(page);
        if !full {
            return Ok(names);
        }
    }
}
