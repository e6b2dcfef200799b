//! Incremental operators: deltas in, deltas out, state as of an epoch underneath.
//!
//! Plain, synchronous, deterministic code. A [`Plan`] is compiled once from a view's query; a
//! [`Dataflow`] runs it over manifests of runs, in an overlay that never changes what it reads, so the
//! same code serves the continuous driver, fills and refreshes, and the read fix of a query. This crate
//! knows no async runtime, no network, no store and no SQL engine; expressions come behind a trait.

pub mod accumulate;
mod arrange;
mod dataflow;
mod encoding;
mod expression;
mod failures;
mod lineage;
mod merge;
mod operator;
mod origin;
mod plan;
mod run;
mod state;

pub use dataflow::{Dataflow, DataflowOptions, OperatorStatistics, Rest, Sealed};
pub use encoding::{EncodedRows, HASH_BYTES, RowCodec, key_hash, keyed, trim_padding, vnode};
pub use expression::Expression;
pub use lineage::{Lineage, LineageKind, StateUse};
pub use merge::{Merge, Merged};
pub use origin::Origins;
pub use plan::{AggregateCall, AggregateFunction, JoinKind, Node, NodeId, Operator, Plan};
pub use run::{Run, RunBuilder, StateKind, consolidate_rows};
pub use state::{Manifest, RUN_BYTES_MAX, RunMeta, RunNamer, RunSource, Scan, SealedRun, State};
