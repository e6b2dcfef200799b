//! The embedded store against the bare engine, in one run and as ratios.
//!
//! `cargo bench -p store` takes about a minute; `STORE_BENCH_ROWS=10000000` is the large form (default one
//! million). Every line says what the budget is; nothing is asserted, since machines differ.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and stops at the first error"
)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fjall::{Database, KeyspaceCreateOptions, PersistMode};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use store::{
    AssertionLevel, CommitRequest, EmbeddedStore, Key, KeyRange, Mutation, Options, PrewriteRequest,
    Snapshot, Store,
};
use tokio::runtime::Runtime;

const READ_ROWS: u64 = 200_000;
const CHANGED: u64 = 10_000;
const CLIENTS: usize = 64;

#[allow(clippy::disallowed_methods, reason = "the one clock of the benchmark")]
fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = std::time::Instant::now();
    let value = work();
    (start.elapsed(), value)
}

fn key(row: u64) -> Key {
    let mut key = b"t\x80\x00\x00\x00\x00\x00\x00\x2a_r".to_vec();
    key.extend_from_slice(&(row | 1 << 63).to_be_bytes());
    key.into()
}

fn value(row: u64, random: &mut StdRng) -> Vec<u8> {
    let mut value = format!("row {row} ").repeat(5).into_bytes();
    value.resize_with(100, || random.random());
    value
}

fn per_second(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}

/// Loads rows in large transactions, in random order.
async fn load(store: &Arc<EmbeddedStore>, rows: u64) {
    let mut random = StdRng::seed_from_u64(1);
    let mut order: Vec<u64> = (0..rows).collect();
    order.shuffle(&mut random);
    for piece in order.chunks(10_000) {
        let mutations = piece.iter().map(|row| Mutation::put(key(*row), value(*row, &mut random))).collect();
        let start_ts = store.timestamp().await.unwrap();
        store.commit_transaction(start_ts, mutations).await.unwrap();
    }
}

fn load_bare(directory: &Path, rows: u64) -> (Database, fjall::Keyspace) {
    let database = Database::builder(directory).cache_size(256 << 20).open().unwrap();
    let keyspace = database.keyspace("rows", KeyspaceCreateOptions::default).unwrap();
    let mut random = StdRng::seed_from_u64(1);
    let mut order: Vec<u64> = (0..rows).collect();
    order.shuffle(&mut random);
    for piece in order.chunks(10_000) {
        let mut batch = database.batch().durability(Some(PersistMode::SyncData));
        for row in piece {
            batch.insert(&keyspace, key(*row).as_ref(), value(*row, &mut random));
        }
        batch.commit().unwrap();
    }
    (database, keyspace)
}

fn reads(runtime: &Runtime) {
    let (ours_home, bare_home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = EmbeddedStore::open(ours_home.path(), Options::default()).unwrap();
    let (ours_load, ()) = timed(|| runtime.block_on(load(&store, READ_ROWS)));
    let (bare_load, (_database, keyspace)) = timed(|| load_bare(bare_home.path(), READ_ROWS));
    println!(
        "load in transactions of 10,000: {:.0} rows/s, bare {:.0} rows/s, ratio {:.2} (budget: at least 0.5)",
        per_second(READ_ROWS, ours_load),
        per_second(READ_ROWS, bare_load),
        bare_load.as_secs_f64() / ours_load.as_secs_f64()
    );
    let mut random = StdRng::seed_from_u64(2);
    let wanted: Vec<Key> = (0..READ_ROWS).map(|_| key(random.random_range(0..READ_ROWS))).collect();
    for pass in ["cold", "warm"] {
        let (bare, found) =
            timed(|| wanted.iter().filter(|key| keyspace.get(key).unwrap().is_some()).count());
        assert_eq!(found, wanted.len());
        let (ours, found) = timed(|| {
            runtime.block_on(async {
                let snapshot = Snapshot::newest(Arc::clone(&store) as Arc<dyn Store>).await.unwrap();
                let mut found = 0;
                for key in &wanted {
                    found += usize::from(snapshot.get(key).await.unwrap().is_some());
                }
                found
            })
        });
        assert_eq!(found, wanted.len());
        println!(
            "point gets at a snapshot, {pass}: {:.0}/s, bare {:.0}/s, {:.2} times the bare time (budget: 2)",
            per_second(READ_ROWS, ours),
            per_second(READ_ROWS, bare),
            ours.as_secs_f64() / bare.as_secs_f64()
        );
    }
    let (bare, bytes) = timed(|| {
        keyspace
            .iter()
            .map(|guard| guard.into_inner().unwrap())
            .map(|(key, value)| key.len() + value.len())
            .sum::<usize>()
    });
    let (ours, ours_bytes) = timed(|| {
        runtime.block_on(async {
            let snapshot = Snapshot::newest(Arc::clone(&store) as Arc<dyn Store>).await.unwrap();
            let mut pages = snapshot.pages(KeyRange::all(), 4096);
            let mut bytes = 0;
            while let Some(page) = pages.next().await.unwrap() {
                bytes += page.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
            }
            bytes
        })
    });
    assert_eq!(bytes, ours_bytes);
    println!(
        "scan at a snapshot: {:.0} rows/s, bare {:.0} rows/s, {:.2} times the bare time (budget: 2)",
        per_second(READ_ROWS, ours),
        per_second(READ_ROWS, bare),
        ours.as_secs_f64() / bare.as_secs_f64()
    );
}

fn group_commit(runtime: &Runtime) {
    let home = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(home.path(), Options::default()).unwrap();
    let client = async |client: usize| {
        for number in 0..200u64 {
            let start_ts = store.timestamp().await.unwrap();
            let row = key(client as u64 * 1_000_000 + number);
            store.commit_transaction(start_ts, vec![Mutation::put(row, vec![7; 100])]).await.unwrap();
        }
    };
    let (time, _) = timed(|| runtime.block_on(futures::future::join_all((0..CLIENTS).map(client))));
    let counts = store.commit_counts();
    println!(
        "group commit, {CLIENTS} clients: {:.0} commits/s, {:.1} commits a sync (budget: at least 10)",
        per_second(counts.transactions, time),
        counts.transactions as f64 / counts.syncs as f64
    );
}

/// One epoch: rows staged in pieces, committed with their primary.
async fn epoch(store: &Arc<EmbeddedStore>, rows: &[u64], random: &mut StdRng) {
    let start_ts = store.timestamp().await.unwrap();
    let primary = Key::from_static(b"~epoch");
    let mut mutations = vec![Mutation::put(primary.clone(), "record")];
    mutations.extend(rows.iter().map(|row| Mutation::put(key(*row), value(*row, random))));
    for piece in mutations.chunks(4096) {
        let request = PrewriteRequest {
            mutations: piece.to_vec(),
            primary: primary.clone(),
            start_ts,
            ttl_ms: 60_000,
            txn_size: rows.len() as u64,
            min_commit_ts: start_ts.next().unwrap(),
            assertion_level: AssertionLevel::Off,
            staged: true,
        };
        store.prewrite(request).await.unwrap();
    }
    store
        .commit(CommitRequest { start_ts, keys: vec![primary.clone()], primary, commit_ts: None })
        .await
        .unwrap();
}

fn changes(runtime: &Runtime) {
    let large: u64 = std::env::var("STORE_BENCH_ROWS").map_or(1_000_000, |rows| rows.parse().unwrap());
    let mut times = Vec::new();
    for rows in [100_000, large] {
        let home = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(home.path(), Options::default()).unwrap();
        runtime.block_on(load(&store, rows));
        let mut random = StdRng::seed_from_u64(3);
        let from = runtime.block_on(store.read_timestamp()).unwrap();
        let mut chosen: Vec<u64> = (0..CHANGED).map(|number| number * (rows / CHANGED)).collect();
        chosen.shuffle(&mut random);
        let (staged, ()) = timed(|| {
            runtime.block_on(async {
                for piece in chosen.chunks(1000) {
                    epoch(&store, piece, &mut random).await;
                }
            })
        });
        let to = runtime.block_on(store.read_timestamp()).unwrap();
        let ranges = [KeyRange::prefix(b"t")];
        let (time, found) = timed(|| {
            runtime.block_on(async {
                let (mut found, mut next) = (0, None);
                loop {
                    let page = store.changes(&ranges, from, to, next, 2048).await.unwrap();
                    found += page.changes.len() as u64;
                    next = page.next;
                    if next.is_none() {
                        break found;
                    }
                }
            })
        });
        assert_eq!(found, CHANGED);
        println!(
            "{rows} rows: {CHANGED} changes in ten epochs written in {staged:.1?}, read in {time:.1?} ({:.0}/s)",
            per_second(CHANGED, time)
        );
        times.push(time.as_secs_f64());
    }
    println!("changes in {large} rows take {:.2} times those in 100000 (budget: 2.5)", times[1] / times[0]);
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    reads(&runtime);
    group_commit(&runtime);
    changes(&runtime);
}
