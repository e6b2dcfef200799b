//! Zombies: a coordinator that is stopped at a step while another takes over, and then goes on.
//!
//! The server reaches its coordinator through a proxy of the test, as it would through a virtual address.
//! The zombie is stopped with SIGSTOP at a fail point, the proxy leads to another coordinator, which takes
//! over and decides epochs; then the zombie goes on, with whatever it was about to do: draw a start that is
//! newer than everything the other has decided, prewrite, commit. It changes nothing, says so, and is good
//! enough to take over again.

use std::net::SocketAddr;

use integration::{Proxy, Server};

use super::load::Load;
use super::processes::{Place, prepare};

/// Where the zombie is stopped, and what it says when it has gone on: that it was refused.
const STEPS: &[(&str, Option<&str>)] = &[
    // It draws a newer start than all that the other one has decided, and reads the record.
    ("coordinator::before_start", Some("the run is over")),
    ("coordinator::after_start", Some("the run is over")),
    // It has read the record as it was before the other one.
    ("coordinator::after_read_record", Some("the primary's prewrite was refused")),
    ("coordinator::before_primary_prewrite", Some("the primary's prewrite was refused")),
    // Its primary was locked, and is not any more.
    ("coordinator::before_commit_primary", Some("the primary's commit was refused")),
    // It has decided before it was stopped, and nobody heard of it.
    ("coordinator::after_commit_primary", None),
];

#[tokio::test]
async fn a_zombie_coordinator_that_goes_on_changes_nothing() {
    let proxy = Proxy::listen();
    let (place, load) = (Place::with_coordinator_at(proxy.address().to_string()), Load::default());
    let mut newest = place.start_coordinator_at("127.0.0.1:0", "");
    proxy.lead_to(newest.address_of("coordinator"));
    let server = place.start_server();
    prepare(&load, &server).await;
    for (point, refusal) in STEPS {
        println!("stopped at {point}");
        let address = server.address();
        let risen = rise(&proxy, &place, &load, address, (point, *refusal));
        (_, newest) = futures::join!(load.run_writers(address), risen);
        load.check(address).await;
    }
    assert!(server.terminate().success());
    assert!(newest.terminate().success());
}

/// Under load: stops a coordinator at a step, has another take over, and lets the first one go on; then
/// leads the server back to it. Returns the one that rose.
async fn rise(
    proxy: &Proxy,
    place: &Place,
    load: &Load,
    server: SocketAddr,
    (point, refusal): (&str, Option<&str>),
) -> Server {
    let mut zombie =
        place.start_coordinator_at("127.0.0.1:0", &format!("{point}=3*off->1*return(stop)->off"));
    proxy.lead_to(zombie.address_of("coordinator"));
    // Without fills, it is the job of the views that it is stopped in, after its take-over.
    zombie.said(&format!("fail point {point}: the process is stopped")).await;
    let (_, zombie) =
        futures::join!(load.run_makers(server), go_on(proxy, place, load, server, (point, refusal), zombie));
    zombie
}

/// Has another coordinator take over, then lets the stopped one go on, and leads the server back to it.
async fn go_on(
    proxy: &Proxy,
    place: &Place,
    load: &Load,
    server: SocketAddr,
    (point, refusal): (&str, Option<&str>),
    mut zombie: Server,
) -> Server {
    let other = place.start_coordinator_at("127.0.0.1:0", "");
    proxy.lead_to(other.address_of("coordinator"));
    load.written(10).await;
    load.caught_up(server).await;
    zombie.signal("-CONT");
    zombie.said(&format!("fail point {point}: the process goes on")).await;
    if let Some(refusal) = refusal {
        zombie.said(refusal).await;
    }
    load.written(10).await;
    load.caught_up(server).await;
    proxy.lead_to(zombie.address_of("coordinator"));
    load.written(10).await;
    load.caught_up(server).await;
    load.stop();
    drop(other);
    zombie
}
