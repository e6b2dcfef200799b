//! The client against what clusters do: answers get lost, regions split and move, others leave locks behind.
//!
//! Whatever happens on the way, what the client says at its end must be what the engine below the server holds.

mod driver;
mod faults;
mod foreign;
mod pessimistic;
mod regions;

use std::sync::Arc;

use store::{Key, KeyRange, Mutation, ReadContext, Snapshot, Store};
use tikv::TikvStore;
use tikv_server::{Cluster, Options};
use types::Timestamp;

use crate::conformance::connect;

/// A cluster and a client of it.
pub(crate) struct Pair {
    pub(crate) cluster: Cluster,
    pub(crate) client: TikvStore,
}

impl Pair {
    pub(crate) async fn start(options: Options) -> Pair {
        let cluster = Cluster::start(options).await.expect("a cluster starts");
        let client = connect(&cluster).await;
        Pair { cluster, client }
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.client.clone())
    }

    pub(crate) async fn end(self) {
        assert_eq!(self.cluster.faults_left(), 0, "every planned fault came");
        self.client.close().await.expect("the client closes");
        self.cluster.shutdown().await.expect("the client did nothing that it must not");
    }

    /// Commits puts as one transaction.
    pub(crate) async fn put(&self, pairs: &[(&str, &str)]) -> Timestamp {
        let put = |(key, value): &(&str, &str)| Mutation::put((*key).to_owned(), (*value).to_owned());
        let start_ts = self.client.timestamp().await.expect("the oracle answers");
        let committed = self.client.commit_transaction(start_ts, pairs.iter().map(put).collect()).await;
        committed.expect("nobody is in the way")
    }

    /// Reads a key at a timestamp.
    pub(crate) async fn read(&self, key: &str, ts: Timestamp) -> Option<String> {
        let snapshot = Snapshot::new(self.store(), ts);
        let value = snapshot.get(key.as_bytes()).await.expect("a read succeeds");
        value.map(|value| String::from_utf8_lossy(&value).into_owned())
    }

    /// Reads a range at a timestamp, in both directions.
    pub(crate) async fn scan(&self, prefix: &str, ts: Timestamp) -> Vec<(Key, Key)> {
        let snapshot = Snapshot::new(self.store(), ts);
        let range = KeyRange::prefix(prefix.as_bytes());
        let up = snapshot.scan_all(&range).await.expect("a scan succeeds");
        let mut down = snapshot.scan_reverse(&range, up.len() + 1).await.expect("a scan succeeds");
        down.reverse();
        assert_eq!(up, down, "both directions have the same pairs");
        up
    }

    /// When a key was last written, as the engine has it.
    pub(crate) async fn written(&self, key: &str) -> Timestamp {
        let info = self.cluster.store().mvcc_get(key.as_bytes()).await.expect("the engine answers");
        info.writes.first().expect("the key was written").commit_ts
    }
}

/// Reads the newest value as it stands, locks or not.
pub(crate) fn newest() -> ReadContext {
    ReadContext::at(Timestamp::MAX)
}
