//! The encodings from outside: known bytes, round trips, order, garbage, and what MySQL accepts.

#![allow(clippy::unwrap_used, reason = "tests panic rather than return errors")]

mod arbitrary;
mod bounds;
mod checks;
mod decoding;
mod garbage;
mod known_answers;
mod properties;
mod times;
