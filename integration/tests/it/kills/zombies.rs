//! Zombies: a coordinator that is stopped at a step while another takes over, and then goes on.
//!
//! The server reaches its coordinator through a proxy of the test, as it would through a virtual address.
//! The zombie is stopped with SIGSTOP at a fail point, the proxy leads to another coordinator, which takes
//! over and decides epochs; then the zombie goes on, with whatever it was about to do: draw a start that is
//! newer than everything the other has decided, prewrite, commit. It changes nothing, says so, and is good
//! enough to take over again.

use std::net::SocketAddr;

use integration::{Proxy, Server};

use super::load::{Load, frontier, taken_over};
use super::processes::{Place, prepare};

/// Where the zombie is stopped, and whether it is refused when it goes on.
const STEPS: &[(&str, bool)] = &[
    // It draws a newer start than all that the other one has decided, and reads the record.
    ("coordinator::before_start", true),
    ("coordinator::after_start", true),
    // It has read the record as it was before the other one.
    ("coordinator::after_read_record", true),
    ("coordinator::before_primary_prewrite", true),
    // Its primary was locked, and is not any more.
    ("coordinator::before_commit_primary", true),
    // It has decided before it was stopped, and nobody heard of it.
    ("coordinator::after_commit_primary", false),
];

/// How it says that it was refused: by the store, by the record that it has read, or by what it was told when
/// it asked, as its connection to the store may have ended while it was stopped.
const REFUSALS: &[&str] = &["was refused", "the run is over", "the primary was rolled back"];

#[tokio::test]
async fn a_zombie_coordinator_that_goes_on_changes_nothing() {
    let proxy = Proxy::listen();
    let (place, load) = (Place::with_coordinator_at(proxy.address().to_string()), Load::default());
    let mut newest = place.start_coordinator_at("127.0.0.1:0", "");
    proxy.lead_to(newest.address_of("coordinator"));
    let server = place.start_server();
    prepare(&load, &server).await;
    for (point, is_refused) in STEPS {
        println!("stopped at {point}");
        let address = server.address();
        let risen = rise(&proxy, &place, &load, address, (point, *is_refused));
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
    (point, is_refused): (&str, bool),
) -> Server {
    let mut zombie =
        place.start_coordinator_at("127.0.0.1:0", &format!("{point}=3*off->1*return(stop)->off"));
    proxy.lead_to(zombie.address_of("coordinator"));
    // Without fills, it is the job of the views that it is stopped in, after its take-over.
    zombie.said(&[&format!("fail point {point}: the process is stopped")]).await;
    let (_, zombie) = futures::join!(
        load.run_makers(server),
        go_on(proxy, place, load, server, (point, is_refused), zombie)
    );
    zombie
}

/// Has another coordinator take over, then lets the stopped one go on, and leads the server back to it.
async fn go_on(
    proxy: &Proxy,
    place: &Place,
    load: &Load,
    server: SocketAddr,
    (point, is_refused): (&str, bool),
    mut zombie: Server,
) -> Server {
    let stopped = frontier(server).await;
    let other = place.start_coordinator_at("127.0.0.1:0", "");
    proxy.lead_to(other.address_of("coordinator"));
    load.written(10).await;
    taken_over(server, stopped).await;
    zombie.signal("-CONT");
    zombie.said(&[&format!("fail point {point}: the process goes on")]).await;
    if is_refused {
        zombie.said(REFUSALS).await;
    }
    load.written(10).await;
    let deposed = frontier(server).await;
    proxy.lead_to(zombie.address_of("coordinator"));
    load.written(10).await;
    taken_over(server, deposed).await;
    load.stop();
    drop(other);
    zombie
}
