//! Tests of the coordinator: the machine by transcripts and by simulation, the runtime over a store that
//! loses and delays, and both ends of the wire on loopback.

#![allow(unreachable_pub, reason = "the modules of a test binary share what they need")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests panic, and print their seeds")]

mod fights;
mod flaky;
mod helpers;
mod simulation;
mod stories;
mod transcript;
mod wire;
mod world;
