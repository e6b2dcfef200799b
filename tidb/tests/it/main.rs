//! The encodings from outside: known bytes, round trips, order, garbage, and what MySQL accepts.

#![allow(clippy::unwrap_used, reason = "tests panic rather than return errors")]

mod arbitrary;
mod bounds;
mod checks;
mod decoding;
mod garbage;
mod golden_rows;
mod known_answers;
mod meta_json;
mod meta_keys;
mod old_rows;
mod properties;
mod reactions;
mod source_tables;
mod times;
mod view_tables;
