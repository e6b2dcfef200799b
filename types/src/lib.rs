//! The vocabulary of Tidemill: timestamps, epochs, deltas, own records and the error.
//!
//! Every other crate depends on this one and on nothing else in common. It knows Arrow and the
//! names of things; it does no I/O, knows no async runtime, no SQL and no store.

mod delta;
mod error;
mod ids;
pub mod records;
mod timestamp;

pub use delta::Delta;
pub use error::{Error, ErrorKind, Result};
pub use ids::{Epoch, Generation, JobId, RunName, StateId, TableId, VNODES, VNode};
pub use timestamp::Timestamp;
