//! View outputs as the mutations of an epoch's transaction, and runs as values of the store.
//!
//! A [`ViewSink`] folds the deltas of one epoch into a [`Fold`], and the fold into at most one mutation a
//! key, each asserting what it found before. What cannot be (two rows of one key, a row that goes but
//! never came) is a [`Fault`] of the view, with its key. A [`RunCache`] keeps operators' runs as blobs of
//! the store; manifests say which of them count. This crate decides nothing: the caller prewrites the
//! mutations under the epoch's transaction.

mod fault;
mod fold;
mod handles;
mod lru;
mod manifests;
mod runs;
mod view_sink;

pub use fault::{Fault, SinkError};
pub use fold::Fold;
pub use manifests::{load_manifests, manifest_mutation};
pub use runs::{RunCache, run_blobs};
pub use view_sink::{Prepared, SINK_STATE, ViewSink};
