//! Runs jobs: epochs, fills, adoption, faults, recovery, sweeping and supervision.
//!
//! A [`Runtime`] owns every continuous job of a store: it reads the base tables' changes, pushes them
//! through each view's dataflow, and turns every barrier into one transaction together with the
//! coordinator. DDL on views goes through it, because each is a transaction over the epoch record of a
//! job. Logic that can be synchronous is (`schedule`, `views`, `sweep`'s ledger); async code only moves it.
//! This crate reads no SQL: definitions arrive planned, and plans are derived again by `sql`.

mod checkpoint;
mod failpoints;
mod options;
mod records;
mod runtime;
mod schedule;
mod status;
mod supervisor;

pub use checkpoint::{Checkpoint, checkpoint_at};
pub use failpoints::FailPoints;
pub use options::{CreateViewOptions, DropOptions, RuntimeOptions};
pub use records::{FillPhase, FillPosition, ViewStats};
pub use runtime::{Created, Runtime, Waited};
pub use status::{EpochStatus, JobKind, JobStatus, OperatorStatus, ViewStatus};
pub use supervisor::Supervisor;
