//! A server that speaks the gRPC of TiKV and PD over the embedded engine, for tests.
//!
//! It follows a real server's rules to the letter where recordings of one say what they are: the fields of
//! its errors, the order of its feed, what it answers to a repeated request. [`Cluster::start`] runs PD and
//! any number of stores in this process, each behind an address of its own; a test then splits regions,
//! moves leaders, loses answers. What would end a real store, or is wrong without a store noticing, is
//! refused or noted, and [`Cluster::shutdown`] fails because of it. It is no database: one lock orders
//! all writes of all stores.

pub mod keys;
pub mod suite;

mod check;
mod churn;
mod cluster;
mod console;
mod control;
mod faults;
mod feed;
mod listen;
mod mvcc;
mod options;
mod oracle;
mod pd;
mod region_errors;
mod regions;
mod service;
mod shared;
mod surgery;
mod tasks;
mod tidb_server;
mod violations;
mod writers;

pub use churn::Churn;
pub use cluster::Cluster;
pub use console::Console;
pub use faults::{Fault, Target};
pub use feed::Pace;
pub use options::Options;
pub use region_errors::{REGION_ERRORS, region_error};
pub use regions::RegionState;
pub use tidb_server::{Seen, TidbFault, TidbServer};
pub use violations::Count;
pub use writers::{Left, Protocol, Stop, Write};
