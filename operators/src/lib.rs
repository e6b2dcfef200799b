//! Incremental operators: deltas in, deltas out, state as of an epoch underneath.
//!
//! Plain, synchronous, deterministic code. A [`Plan`] is compiled once from a view's query; a
//! [`Dataflow`] runs it over manifests of runs, in an overlay that never changes what it reads, so the
//! same code serves the continuous driver, fills and refreshes, and the read fix of a query. This crate
//! knows no async runtime, no network, no store and no SQL engine; expressions come behind a trait.

mod expression;
mod plan;
mod state;

pub use expression::Expression;
pub use plan::{AggregateCall, AggregateFunction, JoinKind, Node, NodeId, Operator, Plan};
pub use state::{Manifest, RunMeta, RunSource, SealedRun};
