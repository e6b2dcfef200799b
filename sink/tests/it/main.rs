//! Deltas as mutations, and runs as blobs, over the store in memory.

#![allow(clippy::unwrap_used, reason = "tests panic rather than return errors")]

mod faults;
mod fixture;
mod folding;
mod runs;
