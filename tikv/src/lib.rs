//! A TiKV cluster behind the traits of `store`.
//!
//! Stubs of its own, from minimal protocol files with kvproto's field numbers ([`proto`]).

pub mod proto;

mod feed;
