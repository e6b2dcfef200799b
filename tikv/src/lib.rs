//! A TiKV cluster behind the traits of `store`.
//!
//! Stubs of its own, from minimal protocol files with kvproto's field numbers ([`proto`]).

pub mod proto;

mod options;

mod backoff;
mod connect;
mod key;
mod tasks;

mod pd;
mod region;
mod stores;

mod call;
mod cluster;
mod key_error;

mod batches;
mod fence;
mod status;
mod walk;

mod feed;

pub use feed::FeedOptions;
pub use options::{Options, Tls};
