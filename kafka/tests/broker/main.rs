//! The client against a real broker (Java and Maven are needed).

#![allow(clippy::unwrap_used, reason = "tests panic rather than return errors")]

mod fixture;
mod publishing;
mod reading;
mod ticdc;
