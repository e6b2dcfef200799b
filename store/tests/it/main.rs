//! Tests of the embedded store on both engines.

mod basics;
mod suite;
