//! The placement driver: elections, an oracle that falls back, lists with holes, what keeps history.

use std::time::Duration;

use store::{KeyRange, ReadContext, Store};
use tikv::TikvStore;
use tikv_server::{Cluster, Fault, Options, Target};
use types::{ErrorKind, Timestamp};

use super::Pair;

async fn now(client: &TikvStore) -> Timestamp {
    client.timestamp().await.expect("the oracle answers")
}

/// Waits for something that a task brings about.
async fn until(mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..2_000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it does not come about");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timestamps_rise_over_elections() {
    let pair = Pair::start(Options { n_members: 3, ..Options::default() }).await;
    let mut last = now(&pair.client).await;
    for leader in [1, 2, 0, 1] {
        pair.cluster.pd_depose();
        let (drawn, ()) = futures::join!(now(&pair.client), async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            pair.cluster.pd_lead(leader);
        });
        assert!(drawn > last, "{drawn} after {last}");
        last = drawn;
    }
    pair.cluster.pd_member_down(0, true);
    pair.cluster.pd_lead(2);
    assert!(now(&pair.client).await > last);
    pair.put(&[("k", "v")]).await;
    pair.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_oracle_that_falls_back_ends_it_all() {
    let pair = Pair::start(Options::default()).await;
    now(&pair.client).await;
    pair.cluster.timestamps_fall_back(true);
    let error = pair.client.timestamp().await.expect_err("it fell back");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    pair.cluster.timestamps_fall_back(false);
    let error = pair.client.timestamp().await.expect_err("and cannot be trusted again");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    pair.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_share_a_request_but_never_one_that_is_sent() {
    let pair = Pair::start(Options::default()).await;
    let before = now(&pair.client).await;
    let requests = || pair.cluster.counts()["Tso"].requests;
    let n_before = requests();
    pair.cluster.stall_timestamps(true);
    let early = now(&pair.client);
    let late = async {
        // The first one's request is on its way by then.
        until(async || requests() > n_before).await;
        let drawn = futures::future::join_all((0..1_000).map(|_| now(&pair.client)));
        let (drawn, ()) = futures::join!(drawn, async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            pair.cluster.stall_timestamps(false);
        });
        drawn
    };
    let (early, mut late) = futures::join!(early, late);
    assert!(before < early && late.iter().all(|ts| *ts > early));
    late.sort();
    late.dedup();
    assert_eq!(late.len(), 1_000, "each is unique");
    assert_eq!(requests() - n_before, 2, "one for the first, one for all the others");
    pair.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_of_two_clusters_are_refused() {
    let first = Cluster::start(Options::default()).await.expect("a cluster starts");
    let other = Options { cluster_id: 8, ..Options::default() };
    let second = Cluster::start(other).await.expect("a cluster starts");
    let endpoints = [first.pd_endpoints(), second.pd_endpoints()].concat();
    let error = TikvStore::connect(tikv::Options::new(endpoints)).await.err().expect("they differ");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let away = [vec!["127.0.0.1:1".to_owned()], first.pd_endpoints()].concat();
    let client = TikvStore::connect(tikv::Options::new(away)).await.expect("one endpoint is enough");
    client.close().await.expect("the client closes");
    let refused = client.timestamp().await.expect_err("it is closed");
    assert_eq!(refused.kind(), ErrorKind::Closed);
    first.shutdown().await.expect("nothing was wrong");
    second.shutdown().await.expect("nothing was wrong");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holes_and_old_lists_are_waited_out() {
    let cuts = vec![b"k/1".to_vec(), b"k/2".to_vec(), b"k/3".to_vec()];
    let pair = Pair::start(Options { n_stores: 2, cuts, ..Options::default() }).await;
    let keys = [("k/0", "v"), ("k/1", "v"), ("k/2", "v"), ("k/3", "v")];
    let commit_ts = pair.put(&keys).await;
    let hole = pair.cluster.region_of(b"k/2").await.id();
    pair.cluster.set_pd_holes(&[hole]);
    let fresh = crate::conformance::connect(&pair.cluster).await;
    let snapshot = store::Snapshot::new(std::sync::Arc::new(fresh.clone()), commit_ts);
    let range = KeyRange::prefix(b"k/");
    let (found, ()) = futures::join!(snapshot.scan_all(&range), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        pair.cluster.set_pd_holes(&[]);
    });
    assert_eq!(found.expect("the hole closes").len(), 4);
    fresh.close().await.expect("the client closes");

    pair.cluster.freeze_pd_regions(true).await;
    pair.cluster.split_at(b"k/2x").await.expect("the key is inside a region");
    let commit_ts = pair.put(&keys).await;
    assert_eq!(pair.scan("k/", commit_ts).await.len(), 4, "stores know better than an old list");
    pair.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_down_is_passed_by() {
    let cuts = vec![b"k/2".to_vec()];
    let pair = Pair::start(Options { n_stores: 3, cuts, ..Options::default() }).await;
    let keys = [("k/1", "v"), ("k/2", "v"), ("k/3", "v")];
    pair.put(&keys).await;
    for store_id in [1, 2, 3] {
        pair.cluster.store_down(store_id).await.expect("it is there");
        let writing = pair.put(&keys);
        let (commit_ts, elected) = futures::join!(writing, async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            pair.cluster.elect().await
        });
        elected.expect("the others are up");
        assert_eq!(pair.scan("k/", commit_ts).await.len(), 3, "without store {store_id}");
        pair.cluster.store_up(store_id);
        pair.cluster.reset_connections(store_id % 3 + 1).await;
        pair.put(&keys).await;
    }
    pair.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_future_is_asked_of_nobody() {
    let pair = Pair::start(Options::default()).await;
    let ts = Timestamp::from_parts(now(&pair.client).await.physical_ms() + 3_600_000, 0);
    assert!(pair.client.kv_get(b"k", &ReadContext::at(ts)).await.is_err());
    assert!(pair.client.scan_lock(&KeyRange::all(), ts, 0).await.is_err());
    let request = store::TxnStatusRequest {
        primary: store::Key::from("p"),
        start_ts: now(&pair.client).await,
        caller_start_ts: ts,
        current_ts: ts,
        rollback_if_not_exist: true,
        verify_is_primary: true,
    };
    assert!(pair.client.check_txn_status(&request).await.is_err());
    // Had a store been asked, the shutdown would fail.
    pair.end().await;
}

/// A client that renews at once.
async fn hasty(cluster: &Cluster) -> TikvStore {
    let mut options = tikv::Options::new(cluster.pd_endpoints());
    options.hold_refresh = Duration::from_millis(10);
    TikvStore::connect(options).await.expect("the cluster is there")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_and_readings_stop_the_collection_of_others() {
    for old_pd in [false, true] {
        let cluster = Cluster::start(Options { old_pd, ..Options::default() }).await.expect("it starts");
        let client = hasty(&cluster).await;
        let held = now(&client).await;
        client.hold("view", held).await.expect("nothing is collected yet");
        let later = now(&client).await;
        let safe_point = cluster.collect_garbage(later.0).await.expect("garbage is collected");
        assert_eq!(Timestamp(safe_point), held, "the hold stops it");
        client.release("view").await.expect("it is there");
        assert!(client.holds().await.expect("holds are listed").is_empty());

        let reading = client.reading(later);
        until(async || cluster.barriers().await.is_ok_and(|barriers| !barriers.is_empty())).await;
        let latest = now(&client).await;
        let safe_point = cluster.collect_garbage(latest.0).await.expect("garbage is collected");
        assert_eq!(Timestamp(safe_point), later, "what is read stops it");
        drop(reading);
        until(async || cluster.barriers().await.is_ok_and(|barriers| barriers.is_empty())).await;
        let safe_point = cluster.collect_garbage(latest.0).await.expect("garbage is collected");
        assert_eq!(Timestamp(safe_point), latest);

        let late = client.hold("late", later).await.expect_err("it is gone");
        assert!(late.is_history_gone(), "{late}");
        until(async || {
            let read = client.kv_get(b"k", &ReadContext::at(later)).await;
            matches!(read, Err(store::KeyError::Store(error)) if error.is_history_gone())
        })
        .await;
        client.close().await.expect("the client closes");
        cluster.shutdown().await.expect("the client did nothing that it must not");
    }
}

/// Renewals are lost for longer than the hold lives, and the cluster collects what it held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_could_not_be_renewed_ends_in_an_error_and_not_in_a_hole() {
    for (old_pd, renewal) in [(false, "SetGCBarrier"), (true, "UpdateServiceGCSafePoint")] {
        let cluster = Cluster::start(Options { old_pd, ..Options::default() }).await.expect("it starts");
        let mut options = tikv::Options::new(cluster.pd_endpoints());
        options.hold_ttl = Duration::from_secs(1);
        options.hold_refresh = Duration::from_millis(20);
        options.pd_budget = Duration::from_millis(100);
        let client = TikvStore::connect(options).await.expect("the cluster is there");
        cluster.write(&[(b"k".to_vec(), Some(b"0".to_vec()))]).await.expect("nobody is in the way");
        let held = now(&client).await;
        client.hold("view", held).await.expect("nothing is collected yet");
        let lost = Fault::Status(tonic::Code::Unavailable, "lost on purpose".to_owned());
        cluster.plan_fault(Target::rpc(renewal), lost, None);
        cluster.write(&[(b"k".to_vec(), Some(b"1".to_vec()))]).await.expect("nobody is in the way");
        // The cluster collects as far as it may, again and again, until it may pass the hold.
        until(async || {
            let wanted = now(&client).await;
            cluster.collect_garbage(wanted.0).await.is_ok_and(|safe_point| safe_point > held.0)
        })
        .await;
        cluster.clear_faults();
        let error = client.changes(&[KeyRange::all()], held, now(&client).await, None, 100).await;
        let error = error.expect_err("the first change is gone");
        assert!(error.is_history_gone(), "{error}");
        until(async || {
            let read = client.kv_get(b"k", &ReadContext::at(held)).await;
            matches!(read, Err(store::KeyError::Store(error)) if error.is_history_gone())
        })
        .await;
        let renewed = client.hold("view", held).await.expect_err("what is gone cannot be held");
        assert!(renewed.is_history_gone(), "{renewed}");
        client.close().await.expect("the client closes");
        cluster.shutdown().await.expect("the client did nothing that it must not");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_outlive_who_took_them_and_are_renewed_by_others() {
    for old_pd in [false, true] {
        let cluster = Cluster::start(Options { old_pd, ..Options::default() }).await.expect("it starts");
        let mut options = tikv::Options::new(cluster.pd_endpoints());
        options.hold_ttl = Duration::from_secs(2);
        let client = TikvStore::connect(options.clone()).await.expect("the cluster is there");
        let held = now(&client).await;
        client.hold("view", held).await.expect("nothing is collected yet");
        client.close().await.expect("the client closes");
        options.hold_refresh = Duration::from_millis(20);
        let other = TikvStore::connect(options).await.expect("the cluster is there");
        let begun = now(&other).await.physical_ms();
        until(async || now(&other).await.physical_ms() > begun + 2_500).await;
        assert_eq!(other.holds().await.expect("holds are listed"), [("view".to_owned(), held)]);
        assert_eq!(cluster.barriers().await.expect("it answers").len(), 1, "it is still in force");
        other.release("view").await.expect("anybody may release it");
        assert!(cluster.barriers().await.expect("it answers").is_empty());
        other.close().await.expect("the client closes");
        cluster.shutdown().await.expect("the client did nothing that it must not");
    }
}
