//! The server as its clients see it: a real driver, raw sockets, and the façade.

mod bad_input;
mod facade;
mod protocol;
mod sessions;
mod support;
