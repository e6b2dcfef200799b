//! What is asked of a cluster: requests, bytes and round trips, counted by the test server.
//!
//! `cargo bench -p tikv-server`. Counts depend neither on the machine nor on the profile; the two ratios at
//! the end depend on both, and each has its two sides in this run. An epoch here makes the calls that a
//! coordinator and one worker make of a store, in their order and sizes. `CLUSTER_BENCH_ROWS` is the size of
//! the table for the changes of a span (default one million). Nothing is asserted but answers.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and stops at the first error"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use store::traits::FeedEvent;
use store::{
    AssertionLevel, CommitRequest, EmbeddedStore, Key, KeyRange, Mutation, PrewriteRequest, ReadContext,
    Snapshot, Store,
};
use tikv::TikvStore;
use tikv_server::{Cluster, Fault, Options, Target};
use types::Timestamp;

/// Keys of one call of a worker.
const KEYS_PER_CALL: usize = 1024;
/// Calls of a worker under way at once.
const CALLS_AT_ONCE: usize = 8;
/// What a row of a view is like, beside its key of 27 bytes.
const VALUE_BYTES: usize = 60;
/// Changes in the span that is asked for.
const CHANGED: u64 = 1_000;

#[allow(clippy::disallowed_methods, reason = "the one clock of the benchmark")]
async fn timed<T>(work: impl Future<Output = T>) -> (Duration, T) {
    let start = std::time::Instant::now();
    let value = work.await;
    (start.elapsed(), value)
}

fn key(row: u64) -> Key {
    format!("~tm/t/view/{row:016}").into()
}

fn row(number: u64, version: u64) -> Mutation {
    let mut value = format!("{version} ").into_bytes();
    value.resize(VALUE_BYTES, b'x');
    Mutation::put(key(number), value)
}

fn rows() -> KeyRange {
    KeyRange::prefix(b"~tm/t/view/")
}

/// A cluster of three stores whose regions cut so many rows evenly, and a client.
async fn cluster(n_rows: u64, n_regions: u64, data_dir: Option<&Path>) -> (Cluster, TikvStore) {
    let cuts = (1..n_regions).map(|region| key(n_rows * region / n_regions).to_vec()).collect();
    let options = Options {
        n_stores: 3,
        cuts,
        data_dir: data_dir.map(Path::to_owned),
        min_ts_interval: Duration::from_millis(200),
        ..Options::default()
    };
    let cluster = Cluster::start(options).await.unwrap();
    let client = TikvStore::connect(tikv::Options::new(cluster.pd_endpoints())).await.unwrap();
    (cluster, client)
}

async fn end(cluster: Cluster, client: TikvStore) {
    client.close().await.unwrap();
    cluster.shutdown().await.unwrap();
}

/// What came to the servers since a moment.
struct Counted {
    requests: BTreeMap<&'static str, tikv_server::Count>,
    /// The round trips until then, where they are counted.
    rounds: Option<u64>,
}

impl Counted {
    fn now(cluster: &Cluster) -> Counted {
        Counted { requests: cluster.counts(), rounds: None }
    }

    /// With round trips: answers are held back so long that what was sent together is seen together.
    fn slowly(cluster: &Cluster) -> Counted {
        cluster.plan_fault(Target::default(), Fault::DelayAnswer(Duration::from_millis(30)), None);
        Counted { requests: cluster.counts(), rounds: Some(cluster.rounds()) }
    }

    /// In words, since then.
    fn since(&self, cluster: &Cluster) -> String {
        let now = Counted::now(cluster);
        cluster.clear_faults();
        let rounds = self.rounds.map(|before| format!("{} round trips, ", cluster.rounds() - before));
        let (mut calls, mut n_requests, mut sent, mut answered) = (Vec::new(), 0, 0, 0);
        for (name, count) in &now.requests {
            let before = self.requests.get(name).copied().unwrap_or_default();
            let n = count.requests - before.requests;
            if n > 0 {
                calls.push(format!("{name} {n}"));
            }
            n_requests += n;
            sent += count.request_bytes - before.request_bytes;
            answered += count.answer_bytes - before.answer_bytes;
        }
        format!(
            "{n_requests} requests, {}{sent} bytes sent, {answered} answered ({})",
            rounds.unwrap_or_default(),
            calls.join(", ")
        )
    }
}

/// One epoch that changes so many rows of a view.
async fn epoch(store: &dyn Store, number: u64, n_rows: u64) {
    let primary = Key::from_static(b"~tm/j/epoch-record");
    // The cut; then the start, and the record as it is there.
    store.read_timestamp().await.unwrap();
    let start_ts = store.timestamp().await.unwrap();
    store.wait_visible(start_ts).await.unwrap();
    store.kv_get(&primary, &ReadContext::at(start_ts)).await.unwrap();
    let prewrite = |mutations: Vec<Mutation>, assertion_level| PrewriteRequest {
        mutations,
        primary: primary.clone(),
        start_ts,
        ttl_ms: 20_000,
        txn_size: n_rows + 1,
        min_commit_ts: start_ts.next().unwrap(),
        assertion_level,
        staged: true,
    };
    let record = vec![Mutation::put(primary.clone(), format!("epoch {number}"))];
    store.prewrite(prewrite(record, AssertionLevel::Off)).await.unwrap();
    let rows: Vec<Mutation> = (0..n_rows).map(|at| row(at, number)).collect();
    let batches: Vec<&[Mutation]> = rows.chunks(KEYS_PER_CALL).collect();
    for together in batches.chunks(CALLS_AT_ONCE) {
        let calls =
            together.iter().map(|batch| store.prewrite(prewrite(batch.to_vec(), AssertionLevel::Strict)));
        join_all(calls).await.into_iter().for_each(|done| done.unwrap());
    }
    let commit_ts = store.timestamp().await.unwrap();
    let commit = |keys: Vec<Key>| CommitRequest {
        start_ts,
        keys,
        primary: primary.clone(),
        commit_ts: Some(commit_ts),
    };
    store.commit(commit(vec![primary.clone()])).await.unwrap();
    for together in batches.chunks(CALLS_AT_ONCE) {
        let keys = together.iter().map(|batch| batch.iter().map(|row| row.key.clone()).collect());
        let calls = keys.map(|keys| store.commit(commit(keys)));
        join_all(calls).await.into_iter().for_each(|done| assert!(done.unwrap() > start_ts));
    }
}

async fn epochs() {
    println!("an epoch, by the rows of a view that it changes:");
    for n_regions in [1, 100] {
        for n_rows in [1, 1_000, 100_000] {
            let (cluster, client) = cluster(n_rows.max(n_regions), n_regions, None).await;
            // The second one: the first has learnt where regions are.
            epoch(&client, 1, n_rows).await;
            let before = Counted::slowly(&cluster);
            epoch(&client, 2, n_rows).await;
            println!("  {n_rows} rows, {n_regions} regions: {}", before.since(&cluster));
            end(cluster, client).await;
        }
    }
    let (cluster, client) = cluster(1, 1, None).await;
    for (what, n_bytes) in [("1 KiB", 1 << 10), ("1 MiB", 1 << 20)] {
        let before = Counted::slowly(&cluster);
        client.put_blobs(vec![(Key::from_static(b"run/1"), vec![7u8; n_bytes].into())]).await.unwrap();
        println!("  a run of an operator's state of {what}: {}", before.since(&cluster));
    }
    end(cluster, client).await;
}

/// Reads and waits that a process does whether or not anything changes.
async fn idle() {
    let (cluster, client) = cluster(100, 100, None).await;
    let from = client.timestamp().await.unwrap();
    client.commit_transaction(from, vec![row(1, 1)]).await.unwrap();
    let mut cut = client.timestamp().await.unwrap();
    client.changes(&[rows()], from, cut, None, 10_000).await.unwrap();
    // Until every region is followed.
    loop {
        let before = cluster.counts()["EventFeed"].requests;
        let next = client.read_timestamp().await.unwrap();
        client.changes(&[rows()], cut, next, None, 10_000).await.unwrap();
        cut = next;
        tokio::time::sleep(Duration::from_millis(500)).await;
        if cluster.counts()["EventFeed"].requests == before {
            break;
        }
    }
    println!("looking for changes over 100 regions, once the range is followed:");
    for (what, version) in [("nothing changed", None), ("one row changed", Some(2))] {
        if let Some(version) = version {
            let start_ts = client.timestamp().await.unwrap();
            client.commit_transaction(start_ts, vec![row(1, version)]).await.unwrap();
        }
        let before = Counted::slowly(&cluster);
        let next = client.read_timestamp().await.unwrap();
        client.changes(&[rows()], cut, next, None, 10_000).await.unwrap();
        println!("  {what}: {}", before.since(&cluster));
        cut = next;
    }
    let before = Counted::slowly(&cluster);
    client.resolved(&[rows()]).await.unwrap();
    println!("  how far it is resolved: {}", before.since(&cluster));
    end(cluster, client).await;
}

async fn live_feed() {
    const ROWS: u64 = 100_000;
    let (cluster, client) = cluster(ROWS, 100, None).await;
    let from = client.timestamp().await.unwrap();
    let before = Counted::now(&cluster);
    let mut feed = client.subscribe(vec![rows()], from).await.unwrap();
    let writing = async {
        // Rows of all regions in each transaction.
        for first in 0..100 {
            let mutations = (0..ROWS / 100).map(|at| row(at * 100 + first, 1)).collect();
            let start_ts = client.timestamp().await.unwrap();
            client.commit_transaction(start_ts, mutations).await.unwrap();
        }
        client.timestamp().await.unwrap()
    };
    let (write_time, to) = timed(writing).await;
    let reading = async {
        let mut n_changes = 0;
        loop {
            match feed.next().await.unwrap().unwrap() {
                FeedEvent::Change(_) => n_changes += 1,
                FeedEvent::Resolved(resolved) if resolved >= to => return n_changes,
                FeedEvent::Resolved(_) => {}
            }
        }
    };
    let (read_time, n_changes) = timed(reading).await;
    assert_eq!(n_changes, ROWS);
    println!(
        "a live feed over 100 regions, {ROWS} changes in transactions of 1,000: {}",
        before.since(&cluster)
    );
    println!(
        "  {:.0} changes/s from the first write to the last change read; {:.2} times the time of writing them",
        ROWS as f64 / (write_time + read_time).as_secs_f64(),
        (write_time + read_time).as_secs_f64() / write_time.as_secs_f64()
    );
    drop(feed);
    end(cluster, client).await;
}

async fn load(store: &dyn Store, n_rows: u64) {
    let mut first = 0;
    while first < n_rows {
        let piece = first..(first + 10_000).min(n_rows);
        first = piece.end;
        let start_ts = store.timestamp().await.unwrap();
        store.commit_transaction(start_ts, piece.map(|at| row(at, 1)).collect()).await.unwrap();
    }
}

async fn bounded_feed() {
    let n_rows = std::env::var("CLUSTER_BENCH_ROWS").ok().map_or(1_000_000, |text| text.parse().unwrap());
    let (cluster, client) = cluster(n_rows, 100, None).await;
    load(&client, n_rows).await;
    let from = client.timestamp().await.unwrap();
    let changed = (0..CHANGED).map(|at| row(at * (n_rows / CHANGED), 2)).collect();
    let start_ts = client.timestamp().await.unwrap();
    client.commit_transaction(start_ts, changed).await.unwrap();
    let to = client.timestamp().await.unwrap();
    println!("{CHANGED} changes of a span in {n_rows} rows, 100 regions:");
    for what in ["by a scan", "from the followed range"] {
        let before = Counted::now(&cluster);
        let page = client.changes(&[rows()], from, to, None, 10_000).await.unwrap();
        assert_eq!(page.changes.len() as u64, CHANGED);
        println!("  {what}: {}", before.since(&cluster));
    }
    let before = Counted::now(&cluster);
    let snapshot = Snapshot::new(Arc::new(client.clone()), to);
    let mut pages = snapshot.pages(rows(), 4096);
    let mut n_found = 0;
    while let Some(page) = pages.next().await.unwrap() {
        n_found += page.len() as u64;
    }
    assert_eq!(n_found, n_rows);
    println!("  all rows, for comparison: {}", before.since(&cluster));
    drop(pages);
    drop(snapshot);
    end(cluster, client).await;
}

/// The median time of a transaction of so many rows.
async fn commits(store: &dyn Store, n_rows: u64, n_transactions: u64) -> Duration {
    let mut times = Vec::new();
    for number in 0..n_transactions {
        let mutations: Vec<Mutation> = (0..n_rows).map(|at| row(at, number)).collect();
        let (time, committed) = timed(async {
            let start_ts: Timestamp = store.timestamp().await.unwrap();
            store.commit_transaction(start_ts, mutations).await
        })
        .await;
        committed.unwrap();
        times.push(time);
    }
    times.sort();
    times[times.len() / 2]
}

async fn latency() {
    println!("a transaction against the embedded store, both on disk, the cluster over loopback:");
    for (n_rows, n_transactions) in [(1, 200), (1_000, 20)] {
        let (home, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let embedded = EmbeddedStore::open(home.path(), store::Options::default()).unwrap();
        let ours = commits(embedded.as_ref(), n_rows, n_transactions).await;
        embedded.close().await.unwrap();
        let (cluster, client) = cluster(n_rows, 1, Some(other.path())).await;
        let theirs = commits(&client, n_rows, n_transactions).await;
        let before = Counted::slowly(&cluster);
        commits(&client, n_rows, 1).await;
        println!(
            "  {n_rows} rows: {:.1} times ({theirs:.2?}, {ours:.2?}); {}",
            theirs.as_secs_f64() / ours.as_secs_f64(),
            before.since(&cluster)
        );
        end(cluster, client).await;
    }
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        epochs().await;
        idle().await;
        bounded_feed().await;
        live_feed().await;
        latency().await;
    });
}
