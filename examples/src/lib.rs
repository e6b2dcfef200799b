//! Small programs that a stranger can run: `cargo run -p examples --bin hello`.
//!
//! Each opens an embedded Tidemill in memory, shows one thing, and asserts what it shows; the tests of
//! this crate run them all.
