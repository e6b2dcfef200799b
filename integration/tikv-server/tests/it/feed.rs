//! The client's change feed against the server's, while regions change, streams break and writers write.
//!
//! The judge is the engine below the server: it knows every version, and answers the same question itself.

mod bounded;
mod live;
mod orphans;
mod world;
