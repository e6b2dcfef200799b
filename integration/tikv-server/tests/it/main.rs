//! Tests of the test server: recordings of a real one, and clients that do not know which it is.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::too_many_lines,
    clippy::large_futures,
    clippy::clone_on_ref_ptr,
    clippy::unused_async,
    reason = "tests panic rather than return errors, and own their tasks"
)]

mod client;
mod conformance;
mod feed;
mod raw;
mod recording;
mod refusals;
mod replay;
mod restart;
mod stores;
mod subscriptions;
mod tikv_client;
mod wire;
