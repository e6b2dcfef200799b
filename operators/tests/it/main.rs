//! Operators against recomputation, at every prefix of random input.
//!
//! `model` recomputes any plan row by row from the tables; `harness` runs the dataflow in many ways
//! (batch splits, orders, parallelism, memory, seals, re-openings, overlays) and compares after every
//! barrier. `fallible` does so for random plans whose expressions fail for some rows.

#![allow(clippy::unwrap_used, reason = "tests panic rather than return errors")]

mod accumulators;
mod exact_sums;
mod fallible;
mod faults;
mod harness;
mod model;
mod pitfalls;
mod plans;
mod properties;
mod sketches;
mod states;
