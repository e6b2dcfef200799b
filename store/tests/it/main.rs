//! Tests of the embedded store on its engines: the conformance suite, a model, crashes, broken files.

#![allow(
    clippy::unwrap_used,
    clippy::clone_on_ref_ptr,
    clippy::missing_panics_doc,
    clippy::print_stdout,
    reason = "tests panic rather than return errors, and say what they have seen"
)]

mod basics;
mod broken_files;
mod crash;
mod full_disk;
mod isolation;
mod keys;
mod kill;
mod looks;
mod model;
mod oracle;
mod races;
mod repeats;
mod stopping;
mod suite;
