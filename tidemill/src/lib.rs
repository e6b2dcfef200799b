//! Tidemill: strongly consistent, incrementally maintained SQL views over a transactional store.
//!
//! This crate is the façade and the binary. [`Tidemill::open`] starts everything over a data directory or
//! in memory: the store, the coordinator, the jobs that keep views up to date, and, where the
//! configuration says so, the MySQL server, gRPC and HTTP. It wires the other crates together and holds
//! no logic of theirs: what is here is sessions, statements' dispatch, protocols and the shell.

mod answer;
mod config;
mod describe;
mod grpc;
mod http;
mod instance;
mod mysql;
mod physical;
mod result;
mod session;
mod sessions;
mod system;
mod tidb_sql;
mod tidemill;

pub mod cli;
pub mod demo;
pub mod shell;

pub use answer::Answer;
pub use config::{Cluster, Config, DEFAULT_LISTEN};
pub use grpc::{run_coordinator, run_worker};
pub use mysql::errors::sql_state;
pub use result::{BatchStream, Column, Done, Outcome, Rows};
pub use session::Session;
pub use sql::Literal;
pub use tidb_sql::TidbUrl;
pub use tidemill::Tidemill;

/// What the server calls itself; clients expect a number of MySQL's in front.
pub const VERSION: &str = concat!("8.0.11-Tidemill-", env!("CARGO_PKG_VERSION"));

/// The fail points of every crate, by which tests end, stop or fail a process that is built with the
/// feature `failpoints`.
#[must_use]
pub fn fail_points() -> Vec<&'static str> {
    [store::failpoints::POINTS, coordinator::failpoints::POINTS, runtime::POINTS].concat()
}
