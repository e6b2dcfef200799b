//! The runtime over a store in memory: epochs, fills, adoption, faults, restarts, sweeping.

#![allow(
    clippy::unwrap_used,
    clippy::type_complexity,
    clippy::unused_async,
    clippy::disallowed_methods,
    reason = "tests panic rather than return errors"
)]

mod epochs;
mod faults;
mod fills;
mod helpers;
mod interplay;
mod leases;
mod maintenance;
mod plans;
mod recovery;
mod refreshes;
mod simulation;
mod sweeping;
#[allow(dead_code, reason = "tests of queries use all of it")]
#[path = "../../../query/tests/it/tidb_meta.rs"]
mod tidb_meta;
mod tidb_tables;
mod world;
