//! Tests of the test server: recordings of a real one, and clients that do not know which it is.

mod client;
mod conformance;
mod feed;
mod recording;
mod replay;
mod wire;
