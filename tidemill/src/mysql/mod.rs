//! The MySQL protocol: packets, login, commands, and rows on the wire.
//!
//! An own command loop, because every command must be answered, an unknown one too. Nothing here knows
//! SQL: statements go to the session as text and come back as Arrow batches. Bytes from the network are
//! read by [`wire::Reader`] and [`packet::PacketStream`] only.

mod column;
mod connection;
pub(crate) mod errors;
pub(crate) mod handshake;
mod literals;
mod packet;
mod params;
mod reply;
mod rows;
mod server;
mod wire;

pub(crate) use rows::{text_or_hex, text_rows};
pub(crate) use server::serve;
