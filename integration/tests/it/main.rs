//! Tests of the whole, with real processes, clients and files.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests panic rather than return errors")]

mod clients;
mod compose;
mod demo;
mod histories;
mod kills;
