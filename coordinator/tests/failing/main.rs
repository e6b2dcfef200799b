//! Every fail point once: what it loses is recovered from, and `abort` ends a real process there.
//!
//! Fail points belong to the process, so these tests have a process of their own, and one test goes
//! through them. Needs the feature `failpoints`, which the workspace's tests turn on.

#![allow(unreachable_pub, dead_code, reason = "the modules of a test binary share what they need")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests panic, and say what they have seen")]

#[path = "../it/flaky.rs"]
mod flaky;
#[path = "../it/world.rs"]
mod world;

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use coordinator::failpoints::POINTS;
use coordinator::{
    CommitTimestamps, Coordinator, LocalCoordinator, LocalOptions, MachineOptions, TakeOverRequest,
};
use store::{EmbeddedStore, Store};
use types::{ErrorKind, JobId};

use crate::world::{Worker, World};

/// Makes a child process of this test binary run one epoch.
const CHILD: &str = "COORDINATOR_FAILING_CHILD";
/// How long the child's workers wait before each vote, in milliseconds.
const VOTE_DELAY_MS: &str = "COORDINATOR_FAILING_VOTE_DELAY_MS";

/// Two runs of three epochs each; returns the world and the store.
async fn runs(commit_timestamps: CommitTimestamps, vote_delay: Duration) -> (Arc<World>, Arc<dyn Store>) {
    let store: Arc<dyn Store> = EmbeddedStore::memory();
    let world = World::create(store.as_ref(), JobId(1)).await;
    let machine = MachineOptions { commit_timestamps, ttl_ms: 300, ..MachineOptions::default() };
    let options = LocalOptions { machine, ..LocalOptions::default() };
    let coordinator = Arc::new(LocalCoordinator::new(Arc::clone(&store), options));
    for run in 0..2 {
        let taken = loop {
            match coordinator.take_over(TakeOverRequest { job: JobId(1), n_workers: 2 }).await {
                Ok(taken) => break taken,
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
            }
        };
        let shared: Arc<dyn Coordinator> = Arc::clone(&coordinator) as _;
        let mut workers = Worker::of_run(&world, &shared, &store, &taken, 2, run);
        for worker in &mut workers {
            worker.vote_delay = vote_delay;
        }
        for _ in 0..3 {
            let epochs = futures::future::join_all(workers.iter_mut().map(Worker::epoch)).await;
            assert!(epochs.iter().all(Result::is_ok), "{epochs:?}");
        }
    }
    coordinator.shutdown().await;
    (world, store)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_fail_point_loses_is_recovered_from() {
    if std::env::var(CHILD).is_ok() {
        return;
    }
    for commit_timestamps in [CommitTimestamps::Store, CommitTimestamps::Oracle] {
        for point in POINTS {
            // The first passes, the third and fourth are lost.
            fail::cfg(*point, "1*off->1*return(lose)->1*off->2*return(lose)->off").unwrap();
            let done =
                tokio::time::timeout(Duration::from_secs(60), runs(commit_timestamps, Duration::ZERO)).await;
            let (world, store) = done.unwrap_or_else(|_| panic!("{point}: no progress"));
            fail::remove(*point);
            let (n_epochs, n_take_overs, _) = world.audit_history(store).await;
            assert_eq!(n_epochs, 6, "{point}");
            assert!(n_take_overs >= 2, "{point}");
        }
    }
}

#[tokio::test]
async fn the_child_runs_until_its_fail_point() {
    if std::env::var(CHILD).is_ok() {
        store::failpoints::setup_from_environment(POINTS).unwrap();
        let delay_ms = std::env::var(VOTE_DELAY_MS).map_or(0, |text| text.parse().unwrap());
        runs(CommitTimestamps::Oracle, Duration::from_millis(delay_ms)).await;
        println!("the child is done");
    }
}

#[test]
fn each_fail_point_of_the_environment_ends_the_process() {
    if std::env::var(CHILD).is_ok() {
        return;
    }
    let child = |points: &str, delay_ms: u64| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["the_child_runs_until_its_fail_point", "--exact", "--nocapture"]);
        command.env(CHILD, "1").env("FAILPOINTS", points);
        command.env(VOTE_DELAY_MS, delay_ms.to_string()).output().unwrap()
    };
    let output = child("", 0);
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("the child is done"));
    for point in POINTS {
        // Reached only when something else goes wrong, or late.
        let cause = match *point {
            "coordinator::before_ask" | "coordinator::after_ask" => {
                "coordinator::before_commit_primary=1*return(lose)->off;"
            }
            _ => "",
        };
        // A heartbeat is due after a third of the time to live.
        let delay_ms = if *point == "coordinator::before_heartbeat" { 800 } else { 0 };
        let output = child(&format!("{cause}{point}=return(abort)"), delay_ms);
        assert!(!output.status.success(), "{point}: {output:?}");
        assert!(!String::from_utf8_lossy(&output.stdout).contains("the child is done"), "{point}");
    }
    assert!(!child("coordinator::before_cut=nonsense", 0).status.success());
}
