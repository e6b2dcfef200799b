//! The broker of tests, by itself.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use kafka_broker::{Broker, BrokerOptions};

/// Asks which requests the broker knows, and returns the error code of the answer: 0 is none.
fn asks_for_versions(broker: &Broker) -> i16 {
    let mut stream = TcpStream::connect(broker.address()).expect("the broker listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket has a timeout");
    // Length, then: request 18 (ApiVersions) in version 0, correlation id 7, no client id.
    let request = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 0xff, 0xff];
    stream.write_all(&request).expect("the broker reads");
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).expect("the broker answers");
    assert_eq!(answer[4..8], [0, 0, 0, 7], "it is the answer to this request");
    i16::from_be_bytes([answer[8], answer[9]])
}

#[test]
fn a_broker_starts_dies_comes_back_and_ends_with_its_owner() {
    let mut broker = Broker::start(&BrokerOptions::default());
    assert_eq!(asks_for_versions(&broker), 0);
    let (address, first) = (broker.address(), broker.process_id());
    broker.kill();
    assert!(TcpStream::connect(&address).is_err(), "it is gone");
    broker.resume();
    assert_eq!(broker.address(), address);
    assert_eq!(asks_for_versions(&broker), 0);
    let second = Path::new("/proc").join(broker.process_id().to_string());
    assert!(second.exists() && broker.process_id() != first);
    drop(broker);
    assert!(!second.exists() || !is_running(&second), "it ended with its owner");
}

/// A process that has ended may still be listed until its parent has looked at it.
fn is_running(process: &Path) -> bool {
    let status = std::fs::read_to_string(process.join("status")).unwrap_or_default();
    let state = status.lines().find(|line| line.starts_with("State:"));
    state.is_some_and(|state| !state.contains('Z') && !state.contains('X'))
}
