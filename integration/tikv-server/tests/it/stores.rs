//! Several stores: leaders that move, stores that go down, locks that are only in a store's memory.

use std::time::Duration;

use tikv::proto::cdcpb::LogType;
use tikv::proto::kvrpcpb as kv;
use tikv_server::{Cluster, Fault, Options, Protocol, Stop, Target, region_error};

use crate::raw::{WAIT, connect, context, prewrite, region};

fn three() -> Options {
    Options { n_stores: 3, min_ts_interval: Duration::from_millis(20), ..Options::default() }
}

#[tokio::test]
async fn a_new_leader_is_named_and_scans_what_is_open() {
    let cluster = Cluster::start(three()).await.unwrap();
    cluster.write(&[(b"a".to_vec(), Some(b"a0".to_vec()))]).await.unwrap();
    let home = region(&cluster, "a").await;
    let mut old = connect(&cluster, 1).await;
    let mut feed = old.feed().await;
    let saved = cluster.timestamp().await.unwrap();
    feed.register(&home, 1, saved).await;
    feed.rows_until(LogType::Initialized).await;
    let writes = [(b"o".to_vec(), None)];
    let open = cluster.leave(Protocol::TwoPhase, Stop::Prewritten, 60_000, &writes).await.unwrap();
    cluster.transfer_leader(home.id(), 2).await.unwrap();
    let leader = region(&cluster, "a").await.leader_peer();
    assert_eq!(feed.error().await.not_leader.unwrap().leader, leader);
    let refused = old.get(&home, "a", saved).await.region_error.unwrap();
    assert_eq!(refused.not_leader.unwrap().leader, leader);
    let home = region(&cluster, "a").await;
    let mut new = connect(&cluster, 2).await;
    assert_eq!(new.get(&home, "a", saved).await.value.as_ref(), b"a0");
    let mut feed = new.feed().await;
    feed.register(&home, 1, saved).await;
    let rows = feed.rows_until(LogType::Initialized).await;
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert_eq!((rows[0].r#type(), rows[0].start_ts), (LogType::Prewrite, open.start_ts));
    cluster.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_store_that_is_down_breaks_streams_and_an_election_brings_its_regions_back() {
    let cluster = Cluster::start(three()).await.unwrap();
    cluster.write(&[(b"a".to_vec(), Some(b"a0".to_vec()))]).await.unwrap();
    let home = region(&cluster, "a").await;
    let mut feed = connect(&cluster, 1).await.feed().await;
    feed.register(&home, 1, 0).await;
    feed.rows_until(LogType::Initialized).await;
    cluster.store_down(1).await.unwrap();
    while feed.hear().await.is_ok() {}
    assert_eq!(region(&cluster, "a").await.leader, None);
    cluster.elect().await.unwrap();
    let home = region(&cluster, "a").await;
    let leader = home.leader.unwrap();
    assert_ne!(leader, 1);
    let now = cluster.timestamp().await.unwrap();
    let mut new = connect(&cluster, leader).await;
    assert_eq!(new.get(&home, "a", now).await.value.as_ref(), b"a0");
    cluster.store_up(1);
    let refused = connect(&cluster, 1).await.get(&region(&cluster, "a").await, "a", now).await;
    assert!(refused.region_error.unwrap().store_not_match.is_some(), "the context names the new leader");
    cluster.shutdown().await.unwrap();
}

#[tokio::test]
async fn without_pd_a_new_leader_takes_no_async_commit() {
    let cluster = Cluster::start(three()).await.unwrap();
    let start_ts = cluster.timestamp().await.unwrap();
    cluster.part_stores_from_pd(true);
    let home = region(&cluster, "a").await;
    cluster.transfer_leader(home.id(), 3).await.unwrap();
    let home = region(&cluster, "a").await;
    let mut client = connect(&cluster, 3).await;
    let mut request = prewrite(&home, "a", "v", start_ts);
    request.use_async_commit = true;
    let refused = client.kv.kv_prewrite(request.clone()).await.unwrap().into_inner();
    assert!(refused.region_error.unwrap().max_timestamp_not_synced.is_some());
    cluster.part_stores_from_pd(false);
    let taken = client.kv.kv_prewrite(request).await.unwrap().into_inner();
    assert!(taken.min_commit_ts > start_ts + 1, "the leader has asked for a timestamp since");
    cluster.shutdown().await.unwrap();
}

#[tokio::test]
async fn locks_in_memory_stop_reads_scans_and_fences() {
    let cluster = Cluster::start(Options::default()).await.unwrap();
    let home = region(&cluster, "m").await;
    let mut client = connect(&cluster, 1).await;
    cluster.hold_in_memory(true);
    let mut request = prewrite(&home, "m", "v", cluster.timestamp().await.unwrap());
    request.use_async_commit = true;
    let mut writer = connect(&cluster, 1).await;
    let prewriting = async { writer.kv.kv_prewrite(request).await.unwrap().into_inner() };
    let reading = async {
        let end = tokio::time::Instant::now() + WAIT;
        // The prewrite is on its way; what is read before moves its commit above the reader.
        let (met, now) = loop {
            let version = cluster.timestamp().await.unwrap();
            let scan = kv::ScanRequest { context: context(&home), limit: 10, version, ..Default::default() };
            let scanned = client.kv.kv_scan(scan).await.unwrap().into_inner();
            if scanned.error.is_some() {
                break (scanned, version);
            }
            assert!(tokio::time::Instant::now() < end);
        };
        assert!(met.error.unwrap().locked.unwrap().use_async_commit);
        assert_eq!(met.pairs.len(), 1);
        assert!(met.pairs[0].key.is_empty());
        let locks = kv::ScanLockRequest { context: context(&home), max_version: now, ..Default::default() };
        let locks = client.kv.kv_scan_lock(locks).await.unwrap().into_inner();
        assert!(locks.error.unwrap().locked.is_some());
        assert!(client.get(&home, "m", now).await.error.unwrap().locked.is_some());
        cluster.hold_in_memory(false);
    };
    let (prewritten, ()) = tokio::join!(prewriting, reading);
    assert!(prewritten.min_commit_ts > 0);
    cluster.shutdown().await.unwrap();
}

#[tokio::test]
async fn planned_faults_come_once_each() {
    let cluster = Cluster::start(Options::default()).await.unwrap();
    let home = region(&cluster, "f").await;
    let mut client = connect(&cluster, 1).await;
    let busy = region_error("server_is_busy").unwrap();
    cluster.plan_fault(Target::rpc("KvPrewrite"), Fault::Region(Box::new(busy)), Some(1));
    cluster.plan_fault(Target::rpc("KvPrewrite"), Fault::DropAnswer, Some(1));
    let request = prewrite(&home, "f", "v", cluster.timestamp().await.unwrap());
    let first = client.kv.kv_prewrite(request.clone()).await.unwrap().into_inner();
    assert!(first.region_error.unwrap().server_is_busy.is_some());
    let lost = client.kv.kv_prewrite(request.clone()).await.unwrap_err();
    assert_eq!(lost.code(), tonic::Code::Unavailable);
    let now = cluster.timestamp().await.unwrap();
    let locked = client.get(&home, "f", now).await.error.unwrap().locked.unwrap();
    assert_eq!(locked.lock_version, request.start_version, "what was done has stayed done");
    assert_eq!(cluster.faults_left(), 0);
    assert!(client.kv.kv_prewrite(request).await.unwrap().into_inner().errors.is_empty());
    cluster.shutdown().await.unwrap();
}
