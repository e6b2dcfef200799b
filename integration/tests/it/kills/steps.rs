//! SIGKILL at every step: each fail point of every crate, in the process that has it, under load.
//!
//! The points come from the crates' own lists, so a new one is tested at once. A point that writers and
//! makers of views do not reach by themselves needs a cause, which [`cause`] knows.

use integration::{Server, soak};

use super::load::Load;
use super::processes::{Place, check_healed, prepare};

/// Steps that no process comes by over the embedded store, which draws commit timestamps itself. Armed in
/// every coordinator here, so that this list is wrong if one of them is reached.
const NEVER_REACHED: &[&str] = &["coordinator::before_draw_commit"];

const ROLLED_BACK: &str = "runtime::rolled_back";

/// Words of points that lie beside the epochs.
const OF_FILLS: &[&str] = &["fill", "ddl", "sweep", "collected", "adopted", "maintenance"];

fn points() -> impl Iterator<Item = &'static str> {
    tidemill::fail_points().into_iter().filter(|point| !NEVER_REACHED.contains(point))
}

fn is_of_coordinator(point: &str) -> bool {
    point.starts_with("coordinator::")
}

/// What makes a process come by a point, as fail points of the server and of the coordinator.
fn cause(point: &str) -> (&'static str, &'static str) {
    match point {
        // A heartbeat is due when an epoch has taken a third of its time to live.
        "coordinator::before_heartbeat" => ("runtime::prewritten=3*off->1*sleep(4500)->off", ""),
        // The primary is asked only when an answer was lost.
        "coordinator::before_ask" | "coordinator::after_ask" => {
            ("", "coordinator::before_commit_primary=3*off->1*return(lose)->off")
        }
        // An epoch that publishes a view meets another change of the catalog.
        ROLLED_BACK => ("runtime::prepared=sleep(30)", ""),
        _ => ("", ""),
    }
}

/// Statements that are run beside the load, again and again, to make a server come by a point.
fn beside(point: &str) -> &'static [&'static str] {
    match point {
        ROLLED_BACK => &["CREATE TABLE IF NOT EXISTS made (id INT PRIMARY KEY)", "DROP TABLE made"],
        _ if point.contains("maintenance") => &["OPTIMIZE TABLE totals, named"],
        _ => &[],
    }
}

/// How often a process passes a point before it dies there.
fn n_passes(point: &str, round: u64) -> u64 {
    match point {
        // At the start of a process only, or rare.
        "runtime::loaded"
        | "coordinator::before_heartbeat"
        | "coordinator::before_ask"
        | "coordinator::after_ask"
        | "runtime::definitions_loaded"
        | ROLLED_BACK => 0,
        _ if point.contains("maintenance") => 0,
        _ if point.starts_with("store::") => 40 + 17 * round,
        _ => 3 + round,
    }
}

fn armed(before: &str, point: &str, round: u64) -> String {
    let passes = match n_passes(point, round) {
        0 => String::new(),
        n_passes => format!("{n_passes}*off->"),
    };
    format!("{before};{point}={passes}return(kill)")
}

fn never() -> String {
    NEVER_REACHED.iter().map(|point| format!("{point}=return(kill)")).collect::<Vec<String>>().join(";")
}

/// Runs the load until the server dies at the point.
async fn server_dies(load: &Load, mut server: Server, point: &str) {
    // It may not get ready: some points lie before.
    let death = if server.get_ready() {
        let address = server.address();
        let beside = load.repeat(address, beside(point));
        let (_, (), death) = futures::join!(load.run(address), beside, server.wait_exit());
        death
    } else {
        server.wait_exit().await
    };
    assert!(death.is_by_fail_point(point), "{point}: {death:?}");
}

/// Runs the load until the coordinator dies at the point, and on with the next one.
async fn coordinator_dies(
    load: &Load,
    place: &Place,
    server: &Server,
    mut dying: Server,
    point: &str,
) -> Server {
    let dies = async {
        let death = dying.wait_exit().await;
        assert!(death.is_by_fail_point(point), "{point}: {death:?}");
        let next = place.start_coordinator(&never());
        load.written(10).await;
        load.stop();
        next
    };
    let (_, next) = futures::join!(load.run(server.address()), dies);
    next
}

/// Every step that makes the server die, and what it leaves behind.
async fn each_step_of_the_server(place: &Place, load: &Load, points: &[&str]) {
    for point in points {
        for round in 0..(if soak() { 4 } else { 1 }) {
            let n_written = load.n_written();
            let (of_server, _) = cause(point);
            server_dies(load, place.begin_server(&armed(of_server, point, round)), point).await;
            println!("died at {point} after {} transactions", load.n_written() - n_written);
            let server = place.start_server();
            check_healed(load, &server).await;
            assert!(load.n_written() > n_written, "{point}: acknowledged transactions grow");
            assert!(server.terminate().success());
        }
    }
}

/// A server and a coordinator that are killed apart, and the steps of the server.
async fn apart(points: Vec<&'static str>) {
    let (place, load) = (Place::of_two_processes(), Load::default());
    let coordinator = place.start_coordinator(&never());
    let server = place.start_server();
    prepare(&load, &server).await;
    assert!(server.terminate().success());
    each_step_of_the_server(&place, &load, &points).await;
    assert!(coordinator.terminate().success());
}

#[tokio::test]
async fn a_server_killed_at_each_step_of_the_store_and_of_an_epoch_loses_nothing() {
    let points = points().filter(|point| !is_of_coordinator(point));
    apart(points.filter(|point| !OF_FILLS.iter().any(|word| point.contains(word))).collect()).await;
}

#[tokio::test]
async fn a_server_killed_at_each_step_of_fills_ddl_and_upkeep_loses_nothing() {
    let points = points().filter(|point| !is_of_coordinator(point));
    apart(points.filter(|point| OF_FILLS.iter().any(|word| point.contains(word))).collect()).await;
}

#[tokio::test]
async fn a_coordinator_killed_at_each_step_is_replaced_and_nothing_is_lost() {
    let (place, load) = (Place::of_two_processes(), Load::default());
    let mut coordinator = place.start_coordinator(&never());
    let mut server = place.start_server();
    prepare(&load, &server).await;
    for point in points().filter(|point| is_of_coordinator(point)) {
        for round in 0..(if soak() { 4 } else { 1 }) {
            let n_written = load.n_written();
            let (of_server, of_coordinator) = cause(point);
            coordinator.kill();
            let dying = place.start_coordinator(&armed(of_coordinator, point, round));
            if !of_server.is_empty() {
                assert!(server.terminate().success());
                server = place.begin_server(of_server);
                assert!(server.get_ready(), "{point}");
            }
            coordinator = coordinator_dies(&load, &place, &server, dying, point).await;
            println!("died at {point}; {} transactions", load.n_written() - n_written);
            load.check(server.address()).await;
        }
    }
    assert!(server.terminate().success());
    assert!(coordinator.terminate().success());
}

#[tokio::test]
async fn a_server_with_its_coordinator_inside_killed_at_each_step_loses_nothing() {
    let (place, load) = (Place::of_one_process(), Load::default());
    let server = place.start_server();
    prepare(&load, &server).await;
    assert!(server.terminate().success());
    // What the coordinator's own process dies of elsewhere; the long version has every step.
    let decisive = ["coordinator::after_primary_prewrite", "coordinator::after_commit_primary"];
    let points: Vec<&str> = points().filter(|point| soak() || decisive.contains(point)).collect();
    each_step_of_the_server(&place, &load, &points).await;
}
