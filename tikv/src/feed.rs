//! The change feed of a cluster.

mod buffer;
mod matcher;
mod range_lock;
