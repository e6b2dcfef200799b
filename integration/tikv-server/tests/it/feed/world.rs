//! A cluster, a client, writers and a surgeon.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use store::{Change, KeyRange, Store, Transaction, WriteKind};
use tikv::TikvStore;
use tikv::proto::{cdcpb, errorpb};
use tikv_server::{Cluster, Options};
use types::Timestamp;

/// A writer whose answer is lost may leave locks, for which the others wait until they have expired.
const RESETS_MAX: usize = 4;

/// Every key of these tests begins with it.
pub(crate) const PREFIX: &str = "feed/";

/// Keys that writers write.
const N_KEYS: u32 = 100;

pub(crate) fn range() -> KeyRange {
    KeyRange::prefix(PREFIX.as_bytes())
}

pub(crate) fn key(number: u32) -> Bytes {
    Bytes::from(format!("{PREFIX}{number:04}"))
}

/// A cluster that says often how far it is.
pub(crate) fn quick() -> Options {
    Options { min_ts_interval: Duration::from_millis(50), ..Options::default() }
}

/// Three stores and a few regions.
pub(crate) fn spread() -> Options {
    let cuts = [20, 40, 60, 80].map(|number| key(number).to_vec()).to_vec();
    Options { n_stores: 3, cuts, ..quick() }
}

/// A cluster and a client.
pub(crate) struct World {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) client: TikvStore,
}

impl World {
    pub(crate) async fn start(options: Options) -> World {
        World::with(options, |_| ()).await
    }

    /// With other limits of the feed.
    pub(crate) async fn with(options: Options, change: impl FnOnce(&mut tikv::FeedOptions)) -> World {
        let cluster = Arc::new(Cluster::start(options).await.expect("a cluster starts"));
        let mut options = tikv::Options::new(cluster.pd_endpoints());
        options.drives_gc = true;
        change(&mut options.feed);
        let client = TikvStore::connect(options).await.expect("the cluster is there");
        World { cluster, client }
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.client.clone())
    }

    pub(crate) async fn now(&self) -> Timestamp {
        self.client.timestamp().await.expect("the oracle answers")
    }

    pub(crate) async fn put(&self, key: Bytes, value: impl Into<Bytes>) -> Timestamp {
        let mut transaction = Transaction::begin(self.store()).await.expect("a transaction begins");
        transaction.put(key, value.into());
        transaction.commit().await.expect("a put without rivals commits")
    }

    /// The changes that there are, by the records of every key in the engine below. Asking it for changes
    /// instead would finish locks there, of which the server's feed would not hear.
    pub(crate) async fn known(&self, ranges: &[KeyRange], from: Timestamp, to: Timestamp) -> Vec<Change> {
        let mut changes = Vec::new();
        for key in (0..N_KEYS).map(key).filter(|key| ranges.iter().any(|range| range.contains(key))) {
            let mut writes = self.cluster.store().mvcc_get(&key).await.expect("the engine answers").writes;
            writes.retain(|write| matches!(write.kind, WriteKind::Put | WriteKind::Delete));
            let mut old_value = None;
            for write in writes.into_iter().rev() {
                if from < write.commit_ts && write.commit_ts <= to {
                    changes.push(Change {
                        key: key.clone(),
                        start_ts: write.start_ts,
                        commit_ts: write.commit_ts,
                        value: write.value.clone(),
                        old_value,
                    });
                }
                old_value = write.value;
            }
        }
        changes.sort_by(|left, right| (left.commit_ts, &left.key).cmp(&(right.commit_ts, &right.key)));
        changes
    }

    /// The changes that the client sees.
    pub(crate) async fn seen(
        &self,
        ranges: &[KeyRange],
        from: Timestamp,
        to: Timestamp,
        limit: usize,
    ) -> Vec<Change> {
        all(&self.client, ranges, from, to, limit).await
    }

    pub(crate) async fn end(self) {
        let closing = tokio::time::timeout(Duration::from_secs(60), self.client.close());
        closing.await.expect("the client's tasks end").expect("the client closes");
        let cluster = Arc::into_inner(self.cluster).expect("nobody else is at the cluster");
        cluster.shutdown().await.expect("the client did nothing that it must not");
    }
}

/// Reads all changes of a span in pages.
pub(crate) async fn all(
    store: &dyn Store,
    ranges: &[KeyRange],
    from: Timestamp,
    to: Timestamp,
    limit: usize,
) -> Vec<Change> {
    let (mut changes, mut next) = (Vec::new(), None);
    loop {
        let page = store.changes(ranges, from, to, next, limit).await.expect("changes are there");
        assert!(page.changes.len() <= limit, "a page is no longer than asked");
        changes.extend(page.changes);
        next = page.next;
        if next.is_none() {
            return changes;
        }
    }
}

/// An old value that was there but empty cannot be told from none by a feed.
pub(crate) fn as_told(changes: Vec<Change>) -> Vec<Change> {
    let told =
        |change: Change| Change { old_value: change.old_value.filter(|old| !old.is_empty()), ..change };
    changes.into_iter().map(told).collect()
}

#[track_caller]
pub(crate) fn assert_same(got: &[Change], expected: &[Change], doing: &str) {
    let place = |change: &Change| (change.commit_ts, change.key.clone());
    for (got, expected) in got.iter().zip(expected) {
        assert_eq!(got, expected, "{doing}");
    }
    let (n_got, n_expected) = (got.len(), expected.len());
    let more = got.get(n_expected).or(expected.get(n_got)).map(place);
    assert_eq!(n_got, n_expected, "{doing}: the first that only one has is {more:?}");
}

/// Writes transactions of random shape until told to stop, or so many; returns how many committed.
pub(crate) async fn write(store: Arc<dyn Store>, seed: u64, n_most: usize, stop: Arc<AtomicBool>) -> usize {
    let mut random = StdRng::seed_from_u64(seed);
    let mut n_committed = 0;
    for number in 0..n_most {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let mut transaction = Transaction::begin(Arc::clone(&store)).await.expect("a transaction begins");
        for _ in 0..random.random_range(1..6) {
            let key = key(random.random_range(0..N_KEYS));
            match random.random_range(0..10) {
                0..3 => transaction.delete(key),
                3 => transaction.put(key, format!("{seed}.{number}").repeat(100)),
                _ => transaction.put(key, format!("{seed}.{number}")),
            }
        }
        let committed = if random.random_bool(0.3) {
            transaction.commit_in_halves().await
        } else {
            transaction.commit().await
        };
        // Writers meet each other; who loses goes on.
        n_committed += usize::from(committed.is_ok());
        // Others have a turn: two cores run everything.
        tokio::task::yield_now().await;
    }
    n_committed
}

/// An error that ends a subscription and that a further try may mend.
fn passing_error(random: &mut StdRng, region_id: u64) -> cdcpb::Error {
    let mut error = cdcpb::Error::default();
    match random.random_range(0..4) {
        0 => error.region_not_found = Some(errorpb::RegionNotFound { region_id }),
        1 => {
            let backoff_ms = random.random_range(0..30);
            error.server_is_busy = Some(errorpb::ServerIsBusy { backoff_ms, ..Default::default() });
        }
        2 => error.congested = Some(cdcpb::Congested { region_id }),
        // One that no client knows.
        _ => {}
    }
    error
}

/// Splits and merges regions, moves leaders, breaks streams and ends subscriptions until told to stop.
pub(crate) async fn operate(cluster: Arc<Cluster>, seed: u64, n_stores: u64, stop: Arc<AtomicBool>) -> usize {
    let mut random = StdRng::seed_from_u64(seed);
    let (mut n_done, mut n_resets) = (0, 0);
    while !stop.load(Ordering::SeqCst) {
        let regions = cluster.regions().await;
        let at = random.random_range(0..regions.len());
        let done = match random.random_range(0..8) {
            0..2 => cluster.split_at(&key(random.random_range(0..N_KEYS))).await.is_ok(),
            2..4 if regions.len() > 2 => {
                let (source, target) = (at, if at + 1 < regions.len() { at + 1 } else { at - 1 });
                cluster.merge(regions[source].id(), regions[target].id()).await.is_ok()
            }
            4 if n_resets < RESETS_MAX => {
                n_resets += 1;
                cluster.reset_connections(random.random_range(1..=n_stores)).await;
                true
            }
            5..7 => {
                let error = passing_error(&mut random, regions[at].id());
                cluster.end_subscriptions(regions[at].id(), &error).await;
                true
            }
            _ => cluster.transfer_leader(regions[at].id(), random.random_range(1..=n_stores)).await.is_ok(),
        };
        n_done += usize::from(done);
        tokio::time::sleep(Duration::from_millis(random.random_range(5..60))).await;
    }
    n_done
}
