//! SIGKILL of a real process under load: the test binary runs itself as the child.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use store::engine::DiskOptions;
use store::{
    AssertionLevel, CommitRequest, EmbeddedStore, Key, KeyRange, Mutation, Options, PrewriteRequest,
    Snapshot, Store, Transaction, Value,
};
use types::Timestamp;

const CHILD: &str = "STORE_TEST_CHILD_DIRECTORY";
const WRITERS: usize = 4;

fn options() -> Options {
    Options {
        disk: DiskOptions { memtable_bytes: 128 << 10, ..DiskOptions::default() },
        ..Options::default()
    }
}

/// Not a test of its own: the child's life. Does nothing unless it is started as the child.
#[test]
fn child_process_writes_until_it_is_killed() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    store::failpoints::setup_from_environment(store::failpoints::POINTS).unwrap();
    runtime.block_on(async {
        let store = EmbeddedStore::open(directory, options()).unwrap();
        let writers = (0..WRITERS).map(|writer| write_for_ever(store.clone(), writer));
        futures::future::join_all(writers).await;
    });
}

/// Counts up; each transaction writes its number, a row for it, and a large value now and then.
async fn write_for_ever(store: Arc<EmbeddedStore>, writer: usize) {
    let last = Key::from(format!("last/{writer}"));
    let snapshot = Snapshot::newest(store.clone()).await.unwrap();
    let mut number = snapshot.get(&last).await.unwrap().map_or(0, |value| number_in(&value) + 1);
    loop {
        let blob = Key::from(format!("blob/{writer}/{number:06}"));
        store.put_blobs(vec![(blob, Value::from(vec![writer as u8; 5000]))]).await.unwrap();
        let row = format!("row/{writer}/{number:06}");
        let writes = [
            Mutation::put(last.clone(), number.to_string()),
            Mutation::put(row, format!("{number} ").repeat(1 + number % 50)),
            Mutation::put(format!("sum/{writer}"), (number * 2).to_string()),
        ];
        let commit_ts = if writer == 0 {
            staged(&store, &writes).await
        } else {
            let mut transaction = Transaction::begin(store.clone()).await.unwrap();
            writes.into_iter().for_each(|write| transaction.mutate(write));
            let halves = writer == 1;
            let committed =
                if halves { transaction.commit_in_halves().await } else { transaction.commit().await };
            committed.unwrap()
        };
        // One write call, so that the parent never sees half a line.
        let line = format!("acknowledged {writer} {number} {commit_ts}\n");
        std::io::stdout().write_all(line.as_bytes()).unwrap();
        std::io::stdout().flush().unwrap();
        number += 1;
    }
}

async fn staged(store: &Arc<EmbeddedStore>, writes: &[Mutation]) -> Timestamp {
    let start_ts = store.timestamp().await.unwrap();
    let primary = writes[0].key.clone();
    for piece in writes.chunks(2) {
        let request = PrewriteRequest {
            mutations: piece.to_vec(),
            primary: primary.clone(),
            start_ts,
            ttl_ms: 20_000,
            txn_size: 3,
            min_commit_ts: start_ts.next().unwrap(),
            assertion_level: AssertionLevel::Off,
            staged: true,
        };
        store.prewrite(request).await.unwrap();
    }
    store
        .commit(CommitRequest { start_ts, keys: vec![primary.clone()], primary, commit_ts: None })
        .await
        .unwrap()
}

fn number_in(value: &[u8]) -> usize {
    std::str::from_utf8(value).unwrap().parse().unwrap()
}

fn start_child(directory: &Path, fail_points: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::child_process_writes_until_it_is_killed", "--nocapture"])
        .env(CHILD, directory)
        .env("FAILPOINTS", fail_points)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// What a process acknowledged: writer, number, commit.
type Acknowledged = (usize, usize, Timestamp);

/// Kills the child after so many acknowledgements, unless it dies by itself; returns all that it gave.
fn run_and_kill(directory: &Path, after: usize, fail_points: &str) -> Vec<Acknowledged> {
    let mut child = start_child(directory, fail_points);
    let output = BufReader::new(child.stdout.take().unwrap());
    let mut acknowledged = Vec::new();
    let mut killed = false;
    for line in output.lines() {
        let line = line.unwrap();
        // The first one stands behind the name of the test.
        let Some(at) = line.find("acknowledged ") else { continue };
        let numbers: Vec<u64> =
            line[at..].split(' ').skip(1).filter_map(|number| number.parse().ok()).collect();
        let [writer, number, commit_ts] = numbers[..] else { continue };
        acknowledged.push((writer as usize, number as usize, Timestamp(commit_ts)));
        if acknowledged.len() >= after && !killed {
            child.kill().unwrap();
            killed = true;
        }
    }
    let dies_by_itself = !fail_points.is_empty();
    assert_ne!(killed, dies_by_itself, "the child ended after {} acknowledgements", acknowledged.len());
    assert!(!child.wait().unwrap().success());
    acknowledged
}

async fn verify(directory: &Path, acknowledged: &[Acknowledged]) {
    let store = EmbeddedStore::open(directory, options()).unwrap();
    let newest = acknowledged.iter().map(|(_, _, commit_ts)| *commit_ts).max().unwrap();
    assert!(store.timestamp().await.unwrap() > newest);
    let snapshot = Snapshot::newest(store.clone()).await.unwrap();
    let mut last: BTreeMap<usize, usize> = BTreeMap::new();
    for (writer, number, _) in acknowledged {
        let newest = last.entry(*writer).or_default();
        *newest = (*newest).max(*number);
    }
    for writer in 0..WRITERS {
        let Some(value) = snapshot.get(format!("last/{writer}").as_bytes()).await.unwrap() else {
            assert!(!last.contains_key(&writer), "writer {writer} lost everything");
            continue;
        };
        let stored = number_in(&value);
        let known = last.get(&writer).copied().unwrap_or(0);
        assert!(stored >= known, "writer {writer}: {known} was acknowledged, {stored} is there");
        assert!(
            stored <= known + 1 || !last.contains_key(&writer),
            "writer {writer}: {stored} after {known}"
        );
        let sum = snapshot.get(format!("sum/{writer}").as_bytes()).await.unwrap().unwrap();
        assert_eq!(number_in(&sum), stored * 2, "writer {writer}: a transaction in part");
        let rows = snapshot.scan_all(&KeyRange::prefix(format!("row/{writer}/").as_bytes())).await.unwrap();
        assert_eq!(
            rows.len(),
            stored + 1,
            "writer {writer}: every row once, and none of a later transaction"
        );
        for number in 0..=stored {
            let blob = store.get_blob(format!("blob/{writer}/{number:06}").as_bytes()).await.unwrap();
            assert!(blob.is_some(), "writer {writer}: blob {number} was covered by a commit");
        }
    }
    let barrier = store.gc_barrier().await.unwrap();
    let mut changes = 0;
    let mut next = None;
    loop {
        let rows = [KeyRange::prefix(b"row/")];
        let page = store.changes(&rows, barrier, snapshot.ts(), next, 1000).await.unwrap();
        changes += page.changes.len();
        next = page.next;
        if next.is_none() {
            break;
        }
    }
    let rows = snapshot.scan_keys(&KeyRange::prefix(b"row/"), usize::MAX).await.unwrap();
    assert_eq!(changes, rows.len(), "each row was inserted once and has one change");
    store.close().await.unwrap();
}

#[test]
fn acknowledged_commits_survive_sigkill() {
    let seed = 7;
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let directory = tempfile::tempdir().unwrap();
    let mut total = 0;
    for _ in 0..8 {
        let acknowledged = run_and_kill(directory.path(), random.random_range(5..200), "");
        total += acknowledged.len();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(verify(directory.path(), &acknowledged));
    }
    println!("{total} acknowledged commits");
}

/// The committer dies at each step of a durable write. Needs the feature `failpoints`, which the workspace's
/// tests turn on.
#[cfg(feature = "failpoints")]
#[test]
fn acknowledged_commits_survive_a_death_at_every_durable_step() {
    let directory = tempfile::tempdir().unwrap();
    for step in store::failpoints::POINTS {
        for action in ["25*off->panic", "40*off->return", "30*off->return(abort)", "35*off->return(kill)"] {
            let acknowledged = run_and_kill(directory.path(), usize::MAX, &format!("{step}={action}"));
            assert!(!acknowledged.is_empty(), "{step}");
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(verify(directory.path(), &acknowledged));
        }
    }
}
