//! A worker beside the server, killed with SIGKILL at every step of an epoch in which it has a share, under load.
//!
//! The server goes on without it from the frontier, and shares its work with the next one.

use integration::soak;

use super::load::Load;
use super::processes::{Place, check_healed, prepare};

/// The steps of an epoch that a worker comes by.
const POINTS: [&str; 11] = [
    "runtime::taken_over",
    "runtime::loaded",
    "runtime::opened",
    "runtime::absorbed",
    "runtime::sealed",
    "runtime::runs_written",
    "runtime::prepared",
    "runtime::prewritten",
    "runtime::voted",
    "runtime::decided",
    "runtime::committed",
];

async fn at_each_step(place: Place, points: &[&str]) {
    let load = Load::default();
    let coordinator = place.is_of_two().then(|| place.start_coordinator(""));
    let server = place.start_server();
    prepare(&load, &server).await;
    for point in points {
        for round in 0..(if soak() { 4 } else { 1 }) {
            let at_once = ["runtime::taken_over", "runtime::loaded"].contains(point);
            let passes = if at_once { String::new() } else { format!("{}*off->", 1 + round) };
            let mut dying = place.start_worker(&format!("{point}={passes}return(kill)"));
            let n_written = load.n_written();
            let dies = async {
                let death = dying.wait_exit().await;
                assert!(death.is_by_fail_point(point), "{point}: {death:?}");
                // The server finds out that it is alone, and goes on.
                load.written(10).await;
                load.stop();
            };
            futures::join!(load.run(server.address()), dies);
            println!("died at {point}; {} transactions", load.n_written() - n_written);
            load.check(server.address()).await;
        }
    }
    // One that lives, and ends in order.
    let mut worker = place.start_worker("");
    let shares = async {
        worker.said(&["worker 1 of 2 of job 1"]).await;
        load.written(10).await;
        load.stop();
    };
    futures::join!(load.run(server.address()), shares);
    load.check(server.address()).await;
    assert!(worker.terminate().success());
    check_healed(&load, &server).await;
    assert!(server.terminate().success());
    if let Some(coordinator) = coordinator {
        assert!(coordinator.terminate().success());
    }
}

#[tokio::test]
async fn a_worker_killed_at_each_step_loses_nothing() {
    at_each_step(Place::of_one_process(), &POINTS).await;
}

#[tokio::test]
async fn a_worker_beside_a_coordinator_of_its_own_killed_loses_nothing() {
    at_each_step(Place::of_two_processes(), &["runtime::prewritten", "runtime::voted"]).await;
}
