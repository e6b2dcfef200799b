//! What a transactional store is, and the embedded store.
//!
//! The traits in [`traits`] are the whole contract between Tidemill and a store: an oracle, snapshot
//! reads, the halves of a Percolator transaction as idempotent calls, a change feed, holds and garbage
//! collection, and a place for runs. The conformance suite proves an implementation of them; the
//! embedded engine is the first. This crate knows no SQL, no Arrow rows and no epochs.

pub mod failpoints;
pub mod traits;

mod key_range;
mod mutation;
mod readers;
mod snapshot;
mod transaction;

#[cfg(feature = "test-util")]
pub mod conformance;
#[cfg(feature = "test-util")]
pub mod testing;

mod embedded;
pub mod engine;
mod resolve;

pub use embedded::{Clock, CommitCounts, EmbeddedStore, Options, SystemClock, check_key_length};
pub use readers::{Readers, Reading};
pub use resolve::{Fate, next_key, settle};
pub use snapshot::{Pages, Snapshot};
pub use transaction::Transaction;

pub use traits::{
    Assertion, AssertionLevel, Change, ChangePage, CommitRequest, FeedEvent, FeedStream, Key, KeyError,
    KeyRange, KvPair, KvResult, LockInfo, LockKind, Mutation, MutationOp, MvccInfo, MvccWrite,
    PrewriteRequest, ReadContext, ScanRequest, Store, TxnStatus, TxnStatusRequest, Value, WriteKind,
};
