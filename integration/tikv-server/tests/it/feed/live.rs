//! Live feeds lose nothing, repeat nothing, and never say too early that all has been sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt;
use store::traits::{FeedEvent, FeedStream};
use store::{Change, Store};
use tikv::proto::cdcpb;
use types::Timestamp;

use super::world::{World, as_told, assert_same, key, operate, quick, range, spread, write};

/// How long writers write at most.
const WRITING_MAX: Duration = Duration::from_secs(15);

/// Reads a feed until everything at or below a timestamp has come.
async fn read_to(feed: &mut FeedStream, from: Timestamp, to: Timestamp) -> Vec<Change> {
    let (mut changes, mut resolved) = (Vec::<Change>::new(), from);
    while resolved < to {
        let next = tokio::time::timeout(Duration::from_secs(60), feed.next()).await;
        match next
            .expect("the feed comes on")
            .expect("the feed does not end")
            .expect("the feed does not fail")
        {
            FeedEvent::Change(change) => {
                assert!(change.commit_ts > resolved, "a change comes before its resolved timestamp");
                let last = changes.last().map(|last| (last.commit_ts, last.key.clone()));
                assert!(last < Some((change.commit_ts, change.key.clone())), "in order, each once");
                changes.push(change);
            }
            FeedEvent::Resolved(ts) => {
                assert!(ts > resolved, "resolved timestamps rise");
                resolved = ts;
            }
        }
    }
    changes.retain(|change| change.commit_ts <= to);
    changes
}

async fn a_feed_is_exact(world: World, n_transactions: usize) {
    let seed: u64 = rand::random();
    eprintln!("SEED={seed}");
    let from = world.now().await;
    let mut feed = world.client.subscribe(vec![range()], from).await.expect("a feed begins");
    let stop = Arc::new(AtomicBool::new(false));
    let surgeon = tokio::task::spawn(operate(Arc::clone(&world.cluster), seed, 3, Arc::clone(&stop)));
    // So many transactions, or as many as there is time for.
    let enough = Arc::new(AtomicBool::new(false));
    let writers =
        futures::future::join_all((0..2).map(|writer| {
            write(world.store(), seed.wrapping_add(writer), n_transactions, Arc::clone(&enough))
        }));
    let timer = async {
        tokio::time::sleep(WRITING_MAX).await;
        enough.store(true, Ordering::SeqCst);
        std::future::pending::<()>().await;
    };
    let n_committed: usize = tokio::select! {
        committed = writers => committed.into_iter().sum(),
        () = timer => 0,
    };
    assert!(n_committed > 0, "something was written");
    // The feed did not know where it would end.
    let to = world.now().await;
    let got = read_to(&mut feed, from, to).await;
    stop.store(true, Ordering::SeqCst);
    assert!(surgeon.await.expect("the surgeon ends") > 0, "regions changed");
    assert_same(&got, &as_told(world.known(&[range()], from, to).await), &format!("seed {seed}"));
    drop(feed);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_feed_while_regions_change() {
    a_feed_is_exact(World::start(spread()).await, 150).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_feed_of_stores_that_do_not_multiplex() {
    a_feed_is_exact(World::start(tikv_server::Options { old_feed: true, ..spread() }).await, 100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_feed_that_must_spill_and_pause() {
    let world = World::with(spread(), |feed| {
        feed.memory_bytes_max = 1_000;
        feed.disk_bytes_max = 20_000;
        feed.open_bytes_max = 50;
    });
    a_feed_is_exact(world.await, 150).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_complains_of_slow_readers() {
    let options = tikv_server::Options { feed_bytes_max: 2_000, ..spread() };
    a_feed_is_exact(World::start(options).await, 100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_feed_ends_when_the_store_closes() {
    let world = World::start(quick()).await;
    let mut feed = world.client.subscribe(vec![range()], world.now().await).await.expect("a feed begins");
    let waiting = world.client.clone();
    let now = world.now().await;
    let waiter = tokio::task::spawn(async move { waiting.wait_change(now, 60_000).await });
    world.client.close().await.expect("the client closes");
    let error = loop {
        match feed.next().await.expect("it says why it ends") {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), types::ErrorKind::Closed, "{error}");
    assert!(feed.next().await.is_none());
    assert!(waiter.await.expect("the waiter ends").is_err());
    assert!(world.client.subscribe(vec![range()], now).await.is_err());
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_ends_with_a_change_that_a_tail_shows() {
    let world = World::start(quick()).await;
    let from = world.now().await;
    let to = world.put(key(1), "v").await;
    world.seen(&[range()], from, to, 1_000).await;
    let now = world.now().await;
    let (woken, commit_ts) = futures::join!(world.client.wait_change(now, 60_000), world.put(key(2), "v"));
    assert!(woken.expect("waiting ends") >= commit_ts);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_region_that_is_behind_goes_on_from_where_it_was() {
    let world = World::start(spread()).await;
    let from = world.now().await;
    let mut feed = world.client.subscribe(vec![range()], from).await.expect("a feed begins");
    let behind = world.cluster.region_of(&key(50)).await.id();
    world.cluster.pace().stick_region(behind, true);
    let mut last = from;
    for number in [50, 10, 51, 90, 50, 11] {
        last = world.put(key(number), number.to_string()).await;
    }
    // Its subscription fails while the others are far ahead of it.
    let congested = Some(cdcpb::Congested { region_id: behind });
    world.cluster.end_subscriptions(behind, &cdcpb::Error { congested, ..Default::default() }).await;
    world.cluster.pace().stick_region(behind, false);
    let got = read_to(&mut feed, from, last).await;
    assert_same(&got, &as_told(world.known(&[range()], from, last).await), "nothing is lost");
    drop(feed);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_try_mends_ends_a_feed_and_says_why() {
    let world = World::start(quick()).await;
    let region_id = world.cluster.region_of(&key(1)).await.id();
    let compatibility = cdcpb::Compatibility { required_version: "99.0.0".to_owned() };
    let mismatch = cdcpb::ClusterIdMismatch { current: 1, request: 2 };
    let duplicate = cdcpb::DuplicateRequest { region_id };
    let fatal = [
        (cdcpb::Error { compatibility: Some(compatibility), ..Default::default() }, "99.0.0"),
        (cdcpb::Error { cluster_id_mismatch: Some(mismatch), ..Default::default() }, "cluster"),
        (cdcpb::Error { duplicate_request: Some(duplicate), ..Default::default() }, "twice"),
    ];
    for (error, text) in fatal {
        let mut feed = world.client.subscribe(vec![range()], world.now().await).await.expect("a feed begins");
        // It is subscribed once it says something.
        feed.next().await.expect("it speaks").expect("all is well");
        world.cluster.end_subscriptions(region_id, &error).await;
        let said = loop {
            match feed.next().await.expect("it says why it ends") {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert!(said.to_string().contains(text), "{said}");
        assert!(feed.next().await.is_none());
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_dies_is_left_for_the_others() {
    let world = World::start(spread()).await;
    let from = world.now().await;
    let mut feed = world.client.subscribe(vec![range()], from).await.expect("a feed begins");
    world.put(key(10), "before").await;
    world.cluster.store_down(1).await.expect("the store goes");
    world.cluster.elect().await.expect("others lead");
    for number in [10, 50, 90] {
        world.put(key(number), "without it").await;
    }
    world.cluster.store_up(1);
    let last = world.put(key(10), "with it").await;
    let got = read_to(&mut feed, from, last).await;
    assert_same(&got, &as_told(world.known(&[range()], from, last).await), "nothing is lost");
    drop(feed);
    world.end().await;
}
