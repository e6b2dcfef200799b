//! Tables as a source, over the store in memory.

#![allow(clippy::unwrap_used, reason = "tests panic rather than return errors")]

mod changes;
mod fixture;
mod projection;
mod rows;
