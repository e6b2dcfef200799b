//! A real Kafka broker for tests: Apache Kafka in KRaft mode, as a child process on loopback.
//!
//! Its jars come from Maven once, into the user's cache; Java 17 or newer runs them. A broker has its own
//! directory and free ports, can be killed and started again on both, and ends with the test whatever
//! becomes of that: its pipe is its life line.

mod broker;
mod jars;
mod ports;
mod process;

pub use broker::{Broker, BrokerOptions};
pub use jars::jars;
