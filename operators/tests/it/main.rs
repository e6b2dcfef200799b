//! Operators against recomputation, at every prefix of random input.
//!
//! `model` recomputes any plan row by row from the tables; `harness` runs the dataflow in many ways
//! (batch splits, orders, parallelism, memory, seals, re-openings, overlays) and compares after every
//! barrier.

#![allow(clippy::unwrap_used, reason = "tests panic rather than return errors")]

mod harness;
mod model;
mod plans;
mod properties;
