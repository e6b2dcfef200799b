//! Transactions of other clients: async commits that were left behind, in each of their states.

use std::time::Duration;

use store::{Key, Store};
use tikv::proto::kvrpcpb;
use tikv::proto::tikvpb::tikv_client::TikvClient;
use tikv_server::Options;
use tonic::transport::Channel;
use types::Timestamp;

use super::Pair;

/// A client without any sense.
pub(super) struct Raw<'a> {
    pair: &'a Pair,
    pub(super) client: TikvClient<Channel>,
    /// What an async commit must not exceed; zero for no bound.
    max_commit_ts: u64,
}

impl Raw<'_> {
    pub(super) async fn new(pair: &Pair) -> Raw<'_> {
        let (_, address) = pair.cluster.store_addresses().into_iter().next().expect("there is a store");
        let client = TikvClient::connect(format!("http://{address}")).await.expect("the store answers");
        Raw { pair, client, max_commit_ts: 0 }
    }

    pub(super) async fn context(&self) -> Option<kvrpcpb::Context> {
        let region = self.pair.cluster.regions().await.remove(0);
        Some(kvrpcpb::Context {
            region_id: region.id(),
            region_epoch: region.meta.region_epoch,
            peer: region.leader_peer(),
            ..kvrpcpb::Context::default()
        })
    }

    /// Locks keys for an async commit; the first is the primary, and all others are its secondaries.
    async fn prewrite(&mut self, start_ts: Timestamp, all: &[&str], keys: &[&str], ttl_ms: u64) -> u64 {
        let put = |key: &&str| kvrpcpb::Mutation {
            key: Key::from((*key).to_owned()),
            value: Key::from("foreign"),
            ..kvrpcpb::Mutation::default()
        };
        let request = kvrpcpb::PrewriteRequest {
            context: self.context().await,
            mutations: keys.iter().map(put).collect(),
            primary_lock: Key::from(all[0].to_owned()),
            start_version: start_ts.0,
            lock_ttl: ttl_ms,
            txn_size: all.len() as u64,
            use_async_commit: true,
            max_commit_ts: self.max_commit_ts,
            secondaries: all[1..].iter().map(|key| Key::from((*key).to_owned())).collect(),
            ..kvrpcpb::PrewriteRequest::default()
        };
        let answer = self.client.kv_prewrite(request).await.expect("the store answers").into_inner();
        assert!(answer.errors.is_empty() && answer.region_error.is_none(), "{answer:?}");
        answer.min_commit_ts
    }
}

/// Waits until a transaction's time is over by the oracle.
pub(super) async fn outlive(pair: &Pair, start_ts: Timestamp, ttl_ms: u64) -> Timestamp {
    loop {
        let now = pair.client.timestamp().await.expect("the oracle answers");
        if now.physical_ms() > start_ts.physical_ms() + ttl_ms {
            return now;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_async_commit_with_all_its_locks_is_carried_out() {
    let pair = Pair::start(Options::default()).await;
    let mut raw = Raw::new(&pair).await;
    let start_ts = pair.client.timestamp().await.expect("the oracle answers");
    let all = ["a/1", "a/2", "a/3"];
    let least = raw.prewrite(start_ts, &all, &all, 20).await;
    let now = outlive(&pair, start_ts, 20).await;
    assert_eq!(pair.read("a/3", now).await.as_deref(), Some("foreign"));
    for key in all {
        assert_eq!(pair.written(key).await, Timestamp(least), "all its keys at the one timestamp");
    }
    pair.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_async_commit_that_misses_a_lock_is_rolled_back() {
    let pair = Pair::start(Options::default()).await;
    let mut raw = Raw::new(&pair).await;
    let start_ts = pair.client.timestamp().await.expect("the oracle answers");
    raw.prewrite(start_ts, &["b/1", "b/2", "b/3"], &["b/1", "b/3"], 20).await;
    let now = outlive(&pair, start_ts, 20).await;
    assert_eq!(pair.read("b/3", now).await, None);
    assert_eq!(pair.read("b/1", now).await, None);
    assert_eq!(pair.put(&[("b/1", "mine"), ("b/2", "mine")]).await, pair.written("b/2").await);
    pair.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_async_commit_that_fell_back_is_left_to_its_primary() {
    let pair = Pair::start(Options::default()).await;
    let mut raw = Raw::new(&pair).await;
    let start_ts = pair.client.timestamp().await.expect("the oracle answers");
    raw.prewrite(start_ts, &["f/1", "f/2"], &["f/1"], 20).await;
    // A reader in between, and a bound below it: the secondary gets an ordinary lock.
    let reader = pair.client.timestamp().await.expect("the oracle answers");
    assert_eq!(pair.read("f/2", reader).await, None);
    raw.max_commit_ts = reader.0;
    assert_eq!(raw.prewrite(start_ts, &["f/1", "f/2"], &["f/2"], 20).await, 0, "it fell back");
    let now = outlive(&pair, start_ts, 20).await;
    assert_eq!(pair.read("f/2", now).await, None, "the primary's time is over, so it is rolled back");
    assert_eq!(pair.read("f/1", now).await, None);
    pair.put(&[("f/1", "mine"), ("f/2", "mine")]).await;
    pair.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_living_async_commit_is_waited_for_by_writers() {
    let pair = Pair::start(Options::default()).await;
    let mut raw = Raw::new(&pair).await;
    let start_ts = pair.client.timestamp().await.expect("the oracle answers");
    let least = raw.prewrite(start_ts, &["c/1", "c/2"], &["c/1", "c/2"], 600).await;
    // Below the least timestamp of its commit it is in nobody's way.
    assert_eq!(pair.read("c/1", Timestamp(least).prev()).await, None);
    let commit_ts = pair.put(&[("c/1", "mine"), ("d", "mine")]).await;
    assert!(commit_ts > Timestamp(least));
    let info = pair.cluster.store().mvcc_get(b"c/1").await.expect("the engine answers");
    let commits: Vec<Timestamp> = info.writes.iter().map(|write| write.commit_ts).collect();
    assert_eq!(commits, [commit_ts, Timestamp(least)], "it was carried out first");
    pair.end().await;
}
