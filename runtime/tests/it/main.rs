//! The runtime over a store in memory: epochs, fills, adoption, faults, restarts, sweeping.

#![allow(
    clippy::unwrap_used,
    clippy::type_complexity,
    clippy::unused_async,
    reason = "tests panic rather than return errors"
)]

mod epochs;
mod faults;
mod fills;
mod interplay;
mod leases;
mod maintenance;
mod plans;
mod recovery;
mod refreshes;
mod simulation;
mod sweeping;
mod world;
