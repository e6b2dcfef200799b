//! Epochs: who may decide one, when, and what becomes of it after a crash.
//!
//! The protocol of an epoch is a pure machine (events in, commands out), a runtime carries its
//! commands out against a store, and a gRPC service with its client puts it between processes. A worker
//! speaks to [`Coordinator`] and cannot tell whether it runs in the same process. This crate knows epoch
//! records and transactions; it knows no SQL, no operators and no rows.

pub mod failpoints;
pub mod machine;

mod backoff;
mod driver;
mod effects;
mod helpers;
mod local;
mod protocol;
mod rpc;
mod tasks;

pub use effects::hold_name;
pub use local::{LocalCoordinator, LocalOptions};
pub use machine::{CommitTimestamps, MachineOptions};
pub use protocol::{
    Coordinator, Decision, Fault, HelperId, JobStatus, OfferRequest, OpenRequest, Opened, Prepared,
    SealedRequest, Share, ShareRequest, TakeOverRequest, TakenOver, VoteRequest,
};
pub use rpc::{RemoteCoordinator, RemoteOptions, RemoteStore, RpcServer, Services};
