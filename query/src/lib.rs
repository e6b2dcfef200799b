//! Answers queries: tables and views at one timestamp, by the cheapest exact path.
//!
//! [`Engine`] answers a SELECT in each read mode, explains which path it took, verifies views against
//! their queries, and runs the INSERT, UPDATE and DELETE that need a query, inside a [`Transaction`].
//! The read fix (Hybrid) runs the same dataflow as the continuous driver, over a private overlay that is
//! thrown away. What this crate does not know (system tables, running jobs) comes through hooks.

mod conflict;
mod counts;
mod dml;
mod engine;
mod explain;
mod fix;
mod hooks;
mod hybrid;
mod live;
mod names;
mod paths;
mod point;
mod pushdown;
mod reads;
mod result;
mod select;
mod settings;
mod snapshot;
mod table;
mod transaction;
mod verify;
mod virtual_table;
mod wanted;

pub use dml::DmlResult;
pub use engine::{Engine, Options, or_interrupted};
pub use hooks::{NoVirtualTables, NoWaiter, VirtualRequest, VirtualTables, Waited, Waiter};
pub use result::{QueryResult, ReadPath, ResultColumn, RowStream, ViewPath};
pub use settings::{PathChoice, ReadMode, ReadSettings, WAIT_TIMEOUT_MS};
pub use transaction::Transaction;
