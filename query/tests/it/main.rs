//! Tests of the engine over a store in memory: data changes, the paths of reads, random histories.

mod changes;
mod harness;
mod histories;
mod paths;
mod reading;
