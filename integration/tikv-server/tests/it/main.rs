//! Tests of the test server: recordings of a real one, and clients that do not know which it is.

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
