//! Deltas as mutations, and runs as blobs, over the store in memory.

mod faults;
mod fixture;
mod folding;
mod runs;
