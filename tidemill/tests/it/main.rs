//! The server as its clients see it: a real driver, raw sockets, and the façade.

#![allow(clippy::unwrap_used, reason = "tests panic rather than return errors")]

mod bad_input;
mod deep;
mod facade;
mod holds;
mod identities;
mod limits;
mod maintenance;
mod modes;
mod paths;
mod physical;
mod processes;
mod protocol;
mod refresh;
mod sessions;
mod shell;
mod support;
mod tidb_views;
