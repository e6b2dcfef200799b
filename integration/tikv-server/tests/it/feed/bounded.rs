//! Bounded feeds are exact: whoever answers, however it is cut into pages, whatever happens to regions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use store::{AssertionLevel, CommitRequest, KeyRange, Mutation, PrewriteRequest, Store, Transaction};
use tikv_server::{Fault, Options, Target};
use types::Timestamp;

use super::world::{World, as_told, assert_same, key, operate, quick, range, spread, write};

/// Asks for random spans while writers write and regions change, and compares each answer.
async fn spans_are_exact(world: World, n_stores: u64, n_rounds: usize, operated: bool) {
    let seed: u64 =
        std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random);
    eprintln!("SEED={seed}");
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..2)
        .map(|writer| tokio::task::spawn(write(world.store(), seed + writer, 1_000_000, Arc::clone(&stop))))
        .collect();
    let surgeon = operated
        .then(|| tokio::task::spawn(operate(Arc::clone(&world.cluster), seed, n_stores, Arc::clone(&stop))));
    let mut random = StdRng::seed_from_u64(seed);
    let mut ends = vec![world.now().await];
    for round in 0..n_rounds {
        let to = world.now().await;
        let from = ends[random.random_range(ends.len().saturating_sub(4)..ends.len())];
        let ranges = match random.random_range(0..3) {
            0 => vec![range()],
            1 => vec![KeyRange::new(key(10), key(35)), KeyRange::new(key(55), key(90))],
            _ => vec![KeyRange::new(key(30), key(70))],
        };
        let limit = [1, 7, 100, 10_000][random.random_range(0..4)];
        let got = world.seen(&ranges, from, to, limit).await;
        let expected = as_told(world.known(&ranges, from, to).await);
        assert_same(&got, &expected, &format!("round {round}, seed {seed}: ({from}, {to}] by {limit}"));
        ends.push(to);
    }
    stop.store(true, Ordering::SeqCst);
    for writer in writers {
        assert!(writer.await.expect("a writer ends") > 0, "something was written");
    }
    if let Some(surgeon) = surgeon {
        assert!(surgeon.await.expect("the surgeon ends") > 0, "regions changed");
    }
    let to = world.now().await;
    let got = world.seen(&[range()], ends[0], to, 1_000).await;
    assert_same(&got, &as_told(world.known(&[range()], ends[0], to).await), "in the end");
    assert!(!got.is_empty());
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_while_regions_stand_still() {
    spans_are_exact(World::start(spread()).await, 3, 30, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_while_regions_change() {
    spans_are_exact(World::start(spread()).await, 3, 30, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_by_scans_alone() {
    let world = World::with(spread(), |feed| feed.tails_max = 0).await;
    spans_are_exact(world, 3, 20, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_with_hardly_any_memory() {
    let world = World::with(spread(), |feed| {
        feed.memory_bytes_max = 2_000;
        feed.open_bytes_max = 100;
    });
    spans_are_exact(world.await, 3, 15, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_of_a_store_that_does_not_multiplex() {
    let world = World::start(Options { old_feed: true, ..spread() }).await;
    spans_are_exact(world, 3, 15, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_span_asks_nobody() {
    let world = World::start(quick()).await;
    let ts = world.put(key(1), "v").await;
    let before = world.cluster.counts();
    assert!(world.seen(&[range()], ts, ts, 10).await.is_empty());
    assert!(world.seen(&[KeyRange::new("b", "b")], Timestamp::ZERO, ts, 10).await.is_empty());
    let after = world.cluster.counts();
    let feeds = |counts: &std::collections::BTreeMap<&'static str, tikv_server::Count>| {
        format!("{:?} {:?}", counts.get("EventFeed"), counts.get("KvScanLock"))
    };
    assert_eq!(feeds(&before), feeds(&after));
    world.end().await;
}

/// Regions are asked beside each other, not one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn how_far_many_regions_are_resolved_takes_few_round_trips() {
    let cuts = (1..60).map(|number| key(number).to_vec()).collect();
    let world = World::start(Options { n_stores: 3, cuts, ..quick() }).await;
    world.put(key(5), "v").await;
    world.client.resolved(&[range()]).await.expect("it answers");
    let (requests, rounds) = (lock_lists(&world), world.cluster.rounds());
    // Long enough that what was sent together is seen together.
    let slow = Fault::DelayAnswer(Duration::from_millis(50));
    world.cluster.plan_fault(Target::rpc("KvScanLock"), slow, None);
    world.client.resolved(&[range()]).await.expect("it answers");
    assert_eq!(lock_lists(&world) - requests, 60, "each region says which locks it has");
    world.cluster.clear_faults();
    let rounds = world.cluster.rounds() - rounds;
    assert!(rounds < 30, "{rounds} round trips for 60 regions");
    world.end().await;
}

fn lock_lists(world: &World) -> u64 {
    world.cluster.counts().get("KvScanLock").map_or(0, |count| count.requests)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peek_says_whether_there_is_something() {
    let world = World::start(spread()).await;
    let from = world.now().await;
    let quiet = world.now().await;
    let page = world.client.changes(&[range()], from, quiet, None, 1).await.expect("it answers");
    assert!(page.changes.is_empty() && page.next.is_none(), "nothing changed");
    let commit_ts = world.put(key(50), "v").await;
    let page = world.client.changes(&[range()], from, commit_ts, None, 1).await.expect("it answers");
    assert!(!page.changes.is_empty() || page.next.is_some(), "something changed");
    let got = world.seen(&[range()], from, commit_ts, 1).await;
    assert_eq!(got.len(), 1);
    // Now that the range is followed, the first page has the change.
    world.seen(&[range()], from, commit_ts, 1_000).await;
    let page = world.client.changes(&[range()], from, commit_ts, None, 1).await.expect("it answers");
    assert_eq!(page.changes.len(), 1);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn collected_history_is_refused() {
    let world = World::start(quick()).await;
    let from = world.now().await;
    let first = world.put(key(1), "1").await;
    world.put(key(1), "2").await;
    world.seen(&[range()], from, first, 1_000).await;
    let barrier = world.client.collect_garbage(world.now().await).await.expect("garbage is collected");
    assert!(barrier > first);
    let to = world.now().await;
    for limit in [1, 1_000] {
        let error = world.client.changes(&[range()], from, to, None, limit).await.expect_err("it is gone");
        assert!(error.is_history_gone(), "{error}");
    }
    let error = world.client.subscribe(vec![range()], from).await.err().expect("it is gone");
    assert!(error.is_history_gone(), "{error}");
    assert!(world.seen(&[range()], barrier, to, 10).await.is_empty());
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_of_eight_megabytes_comes_through() {
    let world = World::start(quick()).await;
    let from = world.now().await;
    let row = vec![7; 7 << 20];
    world.put(key(1), row.clone()).await;
    let to = world.put(key(1), vec![8; 7 << 20]).await;
    for limit in [2, 1_000] {
        let got = world.seen(&[range()], from, to, limit).await;
        assert_eq!(got.len(), 2);
        assert!(got[1].old_value.as_ref().is_some_and(|old| *old == row), "with what was there before");
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_transaction_is_whole() {
    let world = World::start(spread()).await;
    let from = world.now().await;
    let mut transaction = Transaction::begin(world.store()).await.expect("a transaction begins");
    for number in 0..5_000 {
        transaction.put(format!("feed/{:04}.{number}", number % 100), "v");
    }
    let to = transaction.commit().await.expect("it commits");
    let got = world.seen(&[range()], from, to, 997).await;
    assert_eq!(got.len(), 5_000);
    assert!(got.iter().all(|change| change.commit_ts == to));
    world.end().await;
}

/// Commits of one phase and asynchronous ones draw no timestamp, so several may have the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_that_commit_at_one_timestamp_are_all_read() {
    let world = World::start(spread()).await;
    let from = world.now().await;
    let mut begun = Vec::new();
    for number in [10, 30, 70] {
        let start_ts = world.now().await;
        let request = PrewriteRequest {
            mutations: vec![Mutation::put(key(number), "v")],
            primary: key(number),
            start_ts,
            ttl_ms: 20_000,
            txn_size: 1,
            min_commit_ts: start_ts.next().expect("it is no end of time"),
            assertion_level: AssertionLevel::Off,
            staged: false,
        };
        world.client.prewrite(request).await.expect("nobody is in the way");
        begun.push((start_ts, key(number)));
    }
    let at = world.now().await;
    for (start_ts, key) in &begun {
        let (keys, primary) = (vec![key.clone()], key.clone());
        let request = CommitRequest { start_ts: *start_ts, keys, primary, commit_ts: Some(at) };
        world.client.commit(request).await.expect("it is locked");
    }
    for limit in [1_000, 1] {
        let told = world.seen(&[range()], from, at, limit).await;
        let told: Vec<_> =
            told.into_iter().map(|change| (change.commit_ts, change.start_ts, change.key)).collect();
        let expected: Vec<_> = begun.iter().map(|(start_ts, key)| (at, *start_ts, key.clone())).collect();
        assert_eq!(told, expected, "pages of {limit}");
    }
    assert!(world.seen(&[range()], at, world.now().await, 1_000).await.is_empty(), "none is read twice");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_followed_range_is_scanned_once() {
    let world = World::with(spread(), |feed| feed.tail_patience = Duration::from_secs(60)).await;
    let mut from = world.now().await;
    for round in 0..10 {
        let to = world.put(key(50 + round), "v").await;
        assert_eq!(world.seen(&[range()], from, to, 1_000).await.len(), 1);
        from = to;
    }
    // One scan and one tail per region, and as many ends of scans, however often somebody asks.
    let n_regions = world.cluster.regions().await.len() as u64;
    let count = world.cluster.counts().get("EventFeed").copied().expect("the feed was asked");
    assert!(count.requests <= 4 * n_regions, "{count:?} for {n_regions} regions");
    world.end().await;
}

/// That history is still there is asked for once, when all regions are scanned, and not by each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_of_many_regions_looks_at_history_once() {
    let cuts = (1..60).map(|number| key(number).to_vec()).collect();
    let world = World::with(Options { n_stores: 3, cuts, ..quick() }, |feed| feed.tails_max = 0).await;
    let asked = || world.cluster.counts().get("GetGCState").map_or(0, |count| count.requests);
    let from = world.now().await;
    for number in 0..60 {
        world.put(key(number), "v").await;
    }
    let to = world.now().await;
    let before = asked();
    assert_eq!(world.seen(&[range()], from, to, 1_000).await.len(), 60);
    // Before and after the scan; and the safe point is renewed now and then.
    assert!(asked() - before <= 4, "{} requests for 60 regions", asked() - before);
    world.end().await;
}

/// What is followed is at hand, and stays right whatever is collected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_a_followed_range_are_asked_of_nobody() {
    let world = World::with(spread(), |feed| feed.tail_patience = Duration::from_secs(60)).await;
    let asked = || {
        let counts = world.cluster.counts();
        let of = |name: &str| counts.get(name).map_or(0, |count| count.requests);
        of("GetGCState") + of("GetGCSafePoint") + of("KvScanLock") + of("EventFeed")
    };
    let mut from = world.now().await;
    let mut before = 0;
    for round in 0..20 {
        let to = world.put(key(50 + round), "v").await;
        assert_eq!(world.seen(&[range()], from, to, 1_000).await.len(), 1);
        let page = world.client.changes(&[range()], from, to, None, 1).await.expect("it answers");
        assert_eq!(page.changes.len(), 1);
        from = to;
        // By then the tail has begun everywhere.
        if round == 9 {
            before = asked();
        }
    }
    // The safe point is renewed now and then.
    assert!(asked() - before <= 2, "{} requests for ten spans", asked() - before);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holes_in_the_map_of_regions_are_waited_out() {
    let world = World::start(spread()).await;
    let from = world.now().await;
    let hidden = world.cluster.region_of(&key(50)).await.id();
    let to = world.put(key(50), "v").await;
    world.cluster.split_at(&key(45)).await.expect("a region is cut");
    let asked = || world.cluster.counts().get("ScanRegions").map_or(0, |count| count.requests);
    let before = asked();
    world.cluster.set_pd_holes(&[hidden]);
    let ranges = [range()];
    let got = {
        let seeing = world.seen(&ranges, from, to, 1_000);
        tokio::pin!(seeing);
        loop {
            tokio::select! {
                got = &mut seeing => break got,
                // Until the hole has been met, and met again.
                () = tokio::time::sleep(Duration::from_millis(5)) => {
                    if asked() >= before + 2 {
                        world.cluster.set_pd_holes(&[]);
                    }
                }
            }
        }
    };
    assert_eq!(got.len(), 1);
    world.end().await;
}
