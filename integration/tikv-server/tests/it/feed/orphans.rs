//! Locks of dead transactions hold nobody for long; those of living ones do.

use std::time::Duration;

use bytes::Bytes;
use store::traits::AssertionLevel;
use store::{Change, CommitRequest, Mutation, PrewriteRequest, Store};
use tikv::proto::kvrpcpb;
use tikv::proto::tikvpb::tikv_client::TikvClient;
use types::Timestamp;

use super::world::{World, key, quick, range};

async fn world() -> World {
    World::with(quick(), |feed| feed.orphan_after = Duration::from_millis(300)).await
}

/// Locks keys, for a moment.
async fn lock(world: &World, keys: &[u32], ttl_ms: u64) -> Timestamp {
    let start_ts = world.now().await;
    let request = PrewriteRequest {
        mutations: keys.iter().map(|number| Mutation::put(key(*number), "orphan")).collect(),
        primary: key(keys[0]),
        start_ts,
        ttl_ms,
        txn_size: keys.len() as u64,
        min_commit_ts: start_ts.next().expect("not the last"),
        assertion_level: AssertionLevel::Off,
        staged: false,
    };
    world.client.prewrite(request).await.expect("the keys are locked");
    start_ts
}

async fn commit_primary(world: &World, start_ts: Timestamp, primary: u32) -> Timestamp {
    let request =
        CommitRequest { start_ts, keys: vec![key(primary)], primary: key(primary), commit_ts: None };
    world.client.commit(request).await.expect("the primary commits")
}

/// Sends a prewrite as other clients do: with a commit timestamp that the store computes.
async fn prewrite_by_hand(world: &World, request: kvrpcpb::PrewriteRequest) -> kvrpcpb::PrewriteResponse {
    let region = world.cluster.region_of(&request.primary_lock).await;
    let peer = region.leader_peer().expect("the region has a leader");
    let addresses = world.cluster.store_addresses();
    let (_, address) = addresses.iter().find(|(id, _)| *id == peer.store_id).expect("the store is there");
    let mut client = TikvClient::connect(format!("http://{address}")).await.expect("it answers");
    let context = kvrpcpb::Context {
        region_id: region.id(),
        region_epoch: region.listed().region.expect("it is a region").region_epoch,
        peer: Some(peer),
        ..Default::default()
    };
    let request = kvrpcpb::PrewriteRequest { context: Some(context), ..request };
    let answer = client.kv_prewrite(request).await.expect("it answers").into_inner();
    assert!(answer.region_error.is_none() && answer.errors.is_empty(), "{answer:?}");
    answer
}

fn puts(keys: &[u32], start_ts: Timestamp) -> kvrpcpb::PrewriteRequest {
    let put = |number: &u32| kvrpcpb::Mutation {
        key: key(*number),
        value: Bytes::from_static(b"by hand"),
        ..Default::default()
    };
    kvrpcpb::PrewriteRequest {
        mutations: keys.iter().map(put).collect(),
        primary_lock: key(keys[0]),
        start_version: start_ts.0,
        lock_ttl: 1,
        txn_size: keys.len() as u64,
        min_commit_ts: start_ts.0 + 1,
        ..Default::default()
    }
}

/// Waits until a live feed has come to a timestamp; what it brought.
async fn follow_to(world: &World, from: Timestamp, to: Timestamp) -> Vec<Change> {
    use futures::StreamExt;
    use store::traits::FeedEvent;
    let mut feed = world.client.subscribe(vec![range()], from).await.expect("a feed begins");
    let mut changes = Vec::new();
    loop {
        let next = tokio::time::timeout(Duration::from_secs(60), feed.next()).await;
        match next.expect("the orphan is finished").expect("it goes on").expect("it does not fail") {
            FeedEvent::Change(change) => changes.push(change),
            FeedEvent::Resolved(ts) if ts >= to => return changes,
            FeedEvent::Resolved(_) => {}
        }
    }
}

/// Both ways of asking, with the keys that must have come.
async fn check(world: World, from: Timestamp, expected: &[u32]) {
    let to = world.now().await;
    let keys: Vec<Bytes> = expected.iter().map(|number| key(*number)).collect();
    let followed = follow_to(&world, from, to).await;
    let scanned = world.seen(&[range()], from, to, 100).await;
    for changes in [followed, scanned] {
        let mut got: Vec<Bytes> = changes.into_iter().map(|change| change.key).collect();
        got.sort();
        assert_eq!(got, keys);
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_transaction_without_a_decision_is_rolled_back() {
    let world = world().await;
    let from = world.now().await;
    lock(&world, &[1, 2], 1).await;
    check(world, from, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_transaction_whose_primary_committed_is_finished() {
    let world = world().await;
    let from = world.now().await;
    let start_ts = lock(&world, &[1, 2], 60_000).await;
    commit_primary(&world, start_ts, 1).await;
    check(world, from, &[1, 2]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_transaction_whose_primary_is_absent_is_rolled_back() {
    let world = world().await;
    let from = world.now().await;
    let start_ts = world.now().await;
    let request = kvrpcpb::PrewriteRequest { primary_lock: key(7), ..puts(&[1], start_ts) };
    prewrite_by_hand(&world, request).await;
    check(world, from, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_async_commit_with_all_its_locks_is_committed() {
    let world = world().await;
    let from = world.now().await;
    let start_ts = world.now().await;
    let secondaries = vec![key(2)];
    let request = kvrpcpb::PrewriteRequest { use_async_commit: true, secondaries, ..puts(&[1, 2], start_ts) };
    let answer = prewrite_by_hand(&world, request).await;
    assert!(answer.min_commit_ts > 0, "it is an async commit");
    check(world, from, &[1, 2]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_async_commit_that_lacks_a_lock_is_rolled_back() {
    let world = world().await;
    let from = world.now().await;
    let start_ts = world.now().await;
    let secondaries = vec![key(2), key(3)];
    let request = kvrpcpb::PrewriteRequest { use_async_commit: true, secondaries, ..puts(&[1, 2], start_ts) };
    prewrite_by_hand(&world, request).await;
    check(world, from, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_in_one_phase_leaves_nothing() {
    let world = world().await;
    let from = world.now().await;
    let start_ts = world.now().await;
    let answer =
        prewrite_by_hand(&world, kvrpcpb::PrewriteRequest { try_one_pc: true, ..puts(&[1, 2], start_ts) });
    assert!(answer.await.one_pc_commit_ts > 0, "it is a commit in one phase");
    check(world, from, &[1, 2]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_living_transaction_holds_a_live_feed_and_is_left_alone() {
    let world = world().await;
    let from = world.now().await;
    let start_ts = lock(&world, &[1, 2], 600_000).await;
    let resolved = world.client.resolved(&[range()]).await.expect("it answers");
    assert!(resolved < start_ts, "{resolved} is held by {start_ts}");
    // A bounded feed pushes it and needs not wait.
    let to = world.now().await;
    assert!(world.seen(&[range()], from, to, 100).await.is_empty());
    let commit_ts = commit_primary(&world, start_ts, 1).await;
    assert!(commit_ts > to, "what lived while the feed was read commits above");
    check(world, from, &[1, 2]).await;
}
