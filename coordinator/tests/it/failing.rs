//! Every fail point once: what it loses is recovered from, and `abort` ends a real process there.
//!
//! Runs with `--features failpoints`. Fail points belong to the process, so one test goes through them.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use coordinator::failpoints::{POINTS, setup_from_environment};
use coordinator::{
    CommitTimestamps, Coordinator, LocalCoordinator, LocalOptions, MachineOptions, TakeOverRequest,
};
use store::{EmbeddedStore, Store};
use types::{ErrorKind, JobId};

use crate::world::{Worker, World};

/// Makes a child process of this test binary run one epoch.
const CHILD: &str = "COORDINATOR_FAILING_CHILD";

/// Two runs of three epochs each; returns the world and the store.
async fn runs(commit_timestamps: CommitTimestamps) -> (Arc<World>, Arc<dyn Store>) {
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
            let done = tokio::time::timeout(Duration::from_secs(60), runs(commit_timestamps)).await;
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
        setup_from_environment().unwrap();
        runs(CommitTimestamps::Oracle).await;
        println!("the child is done");
    }
}

#[test]
fn each_fail_point_of_the_environment_ends_the_process() {
    if std::env::var(CHILD).is_ok() {
        return;
    }
    let child = |points: &str| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["failing::the_child_runs_until_its_fail_point", "--exact", "--nocapture"]);
        command.env(CHILD, "1").env("FAILPOINTS", points).output().unwrap()
    };
    let output = child("");
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("the child is done"));
    for point in POINTS {
        // Reached only when something else goes wrong, or late.
        let cause = match *point {
            "coordinator::before_ask" | "coordinator::after_ask" => {
                "coordinator::before_commit_primary=1*return(lose)->off;"
            }
            "coordinator::before_heartbeat" => "coordinator::before_reply_vote=1*sleep(800)->off;",
            _ => "",
        };
        let output = child(&format!("{cause}{point}=return(abort)"));
        assert!(!output.status.success(), "{point}: {output:?}");
        assert!(!String::from_utf8_lossy(&output.stdout).contains("the child is done"), "{point}");
    }
    assert!(!child("coordinator::before_cut=nonsense").status.success());
}
