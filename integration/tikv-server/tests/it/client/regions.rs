//! Regions that split, merge and move while the client believes otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use store::conformance::TOPICS;
use store::{Key, KeyRange, Mutation, Store};
use tikv_server::Options;

use super::Pair;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn splits_merges_and_new_leaders_are_noticed() {
    let pair = Pair::start(Options { n_stores: 3, n_members: 3, ..Options::default() }).await;
    let pairs: Vec<(String, String)> = (0..60).map(|n| (format!("r/{n:02}"), format!("v{n}"))).collect();
    let borrowed: Vec<(&str, &str)> = pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let mut commit_ts = pair.put(&borrowed).await;
    for cut in ["r/10", "r/20", "r/30", "r/30a", "r/50"] {
        pair.cluster.split_at(cut.as_bytes()).await.expect("the key is inside a region");
        assert_eq!(pair.scan("r/", commit_ts).await.len(), 60, "after the cut at {cut}");
        commit_ts = pair.put(&borrowed).await;
    }
    assert_eq!(pair.cluster.regions().await.len(), 6);
    for store_id in [2, 3, 1] {
        for region in pair.cluster.regions().await {
            if region.leader_peer().is_none_or(|peer| peer.store_id != store_id) {
                pair.cluster.transfer_leader(region.id(), store_id).await.expect("the store has a peer");
            }
        }
        assert_eq!(pair.scan("r/", commit_ts).await.len(), 60, "led by {store_id}");
        commit_ts = pair.put(&borrowed).await;
    }
    while let [left, right, ..] = pair.cluster.regions().await.as_slice() {
        pair.cluster.merge(left.id(), right.id()).await.expect("neighbours merge");
        assert_eq!(pair.scan("r/", commit_ts).await.len(), 60);
        commit_ts = pair.put(&borrowed).await;
    }
    let range = KeyRange::prefix(b"r/");
    assert!(pair.client.scan_lock(&range, commit_ts, 0).await.expect("locks are listed").is_empty());
    pair.end().await;
}

/// The part of the suite that watches concurrent transactions, over regions that never rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sums_never_waver_while_regions_move() {
    let pair = Arc::new(Pair::start(Options { n_stores: 3, ..Options::default() }).await);
    let done = Arc::new(AtomicBool::new(false));
    let moving = async {
        let mut round = 0u64;
        while !done.load(Ordering::SeqCst) {
            let cut = format!("{}/{}", ["bank", "order"][round as usize % 2], round % 9 + 1);
            // The cut may be there already.
            let _ = pair.cluster.split_at(cut.as_bytes()).await;
            let regions = pair.cluster.regions().await;
            let region = &regions[round as usize % regions.len()];
            let _ = pair.cluster.transfer_leader(region.id(), round % 3 + 1).await;
            if round % 5 == 4
                && let [left, right, ..] = regions.as_slice()
            {
                let _ = pair.cluster.merge(left.id(), right.id()).await;
            }
            round += 1;
            // Stores need a moment between two changes, as they do in life.
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let (_, run) = TOPICS.iter().find(|(name, _)| *name == "visibility").expect("it is in the suite");
    let working = async {
        run(pair.store()).await;
        done.store(true, Ordering::SeqCst);
    };
    futures::join!(moving, working);
    let Ok(pair) = Arc::try_unwrap(pair) else { panic!("nobody else has it") };
    pair.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_transaction_is_cut_by_region_and_size() {
    let cuts = [b"big/0300".to_vec(), b"big/0700".to_vec()].to_vec();
    let pair = Pair::start(Options { n_stores: 2, cuts, ..Options::default() }).await;
    let value = vec![7u8; 2 << 10];
    let start_ts = pair.client.timestamp().await.expect("the oracle answers");
    let mutations = (0..1000).map(|n| Mutation::put(format!("big/{n:04}"), value.clone())).collect();
    let commit_ts = pair.client.commit_transaction(start_ts, mutations).await.expect("nobody is in the way");
    let rows = pair.scan("big/", commit_ts).await;
    assert_eq!(rows.len(), 1000);
    assert!(rows.iter().all(|(_, found)| found.len() == value.len()));
    assert!(pair.scan("big/", commit_ts.prev()).await.is_empty(), "all at once");
    let counts = pair.cluster.counts();
    let prewrites = counts.get("KvPrewrite").expect("keys were locked").requests;
    assert!((8..=14).contains(&prewrites), "2 MB in {prewrites} requests");
    let locks = pair.client.scan_lock(&KeyRange::all(), commit_ts, 0).await.expect("locks are listed");
    assert!(locks.is_empty(), "secondaries are committed when the call returns");
    pair.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_of_locks_reach_over_regions() {
    let cuts = [b"l/2".to_vec(), b"l/4".to_vec()].to_vec();
    let pair = Pair::start(Options { cuts, ..Options::default() }).await;
    let start_ts = pair.client.timestamp().await.expect("the oracle answers");
    let request = store::PrewriteRequest {
        mutations: (0..6).map(|n| Mutation::put(format!("l/{n}"), "v")).collect(),
        primary: Key::from("l/3"),
        start_ts,
        ttl_ms: 20_000,
        txn_size: 6,
        min_commit_ts: start_ts.next().expect("far from the end"),
        assertion_level: store::AssertionLevel::Strict,
        staged: false,
    };
    pair.client.prewrite(request).await.expect("free keys are locked");
    let keys = async |limit: usize| {
        let range = KeyRange::new("l/1", "");
        let locks = pair.client.scan_lock(&range, start_ts, limit).await.expect("locks are listed");
        locks.into_iter().map(|lock| lock.key).collect::<Vec<Key>>()
    };
    assert_eq!(keys(0).await, ["l/1", "l/2", "l/3", "l/4", "l/5"]);
    assert_eq!(keys(3).await, ["l/1", "l/2", "l/3"]);
    pair.client.resolve_lock(start_ts, None, &[]).await.expect("they are rolled back in every region");
    assert!(keys(0).await.is_empty());
    pair.end().await;
}
