//! Tests of the engine over a store in memory: data changes, the paths of reads, random histories.
#![allow(clippy::unwrap_used, reason = "tests panic rather than return errors")]

mod changes;
mod harness;
mod histories;
mod paths;
mod reading;
mod tidb_meta;
mod tidb_tables;
mod tidb_views;
