//! Runs jobs: epochs, fills, adoption, faults, recovery, sweeping and supervision.
//!
//! A [`Runtime`] owns every continuous job of a store: it reads the base tables' changes, pushes them
//! through each view's dataflow, and turns every barrier into one transaction together with the
//! coordinator. DDL on views goes through it, because each is a transaction over the epoch record of a
//! job. Logic that can be synchronous is (`schedule`, `views`, the sweep's ledger); async code moves it.
//! SQL is planned by `sql`, when a view is created and again whenever its run starts.

mod runtime;

mod director;
mod helper;
mod lease;

mod adoption;
mod fill;
mod job;
mod maintenance;
mod rebuild;
mod refresh;

mod schedule;
mod transaction;
mod views;
mod worker;

mod collect;
mod sweep;

mod create;
mod ddl;
mod tidb_views;

mod board;
mod checkpoint;
mod failpoints;
mod options;
mod planner;
mod records;
mod shared;
mod status;
mod supervisor;

pub use checkpoint::{Checkpoint, checkpoint_at};
pub use failpoints::{FailPoints, LOSES_ROWS, POINTS};
pub use helper::Helper;
pub use lease::LeaseStatus;
pub use maintenance::{Maintained, MaintenanceKind, MaintenanceStatus};
pub use options::{LeaseOptions, RuntimeOptions};
pub use planner::{Planner, SqlPlanner};
pub use records::{
    FillPhase, FillPosition, RefreshPath, RefreshRecord, ViewStats, refresh_key, view_stats_key,
};
pub use refresh::{RefreshPlan, RefreshStatus, Refreshed};
pub use runtime::{HeldHistory, Runtime, Waited};
pub use status::{EpochStatus, JobKind, JobStatus, OperatorStatus, ViewStatus};
pub use supervisor::Supervisor;
pub use tidb_views::{TidbOptions, TidbSql};
