//! Tests of the whole, with real processes, clients and files.

mod clients;
mod histories;
mod kills;
