//! A TiKV cluster behind the traits of `store`.
//!
//! [`TikvStore`] speaks to the placement driver and to the stores by stubs of its own, made from minimal
//! protocol files with kvproto's field numbers ([`proto`]). It is a client and nothing else: timestamps are
//! the cluster's oracle's, transactions are Percolator's, changes come from the stores' change feeds.
//!
//! What this crate keeps in the cluster lies under Tidemill's private prefix (`types::records`):
//! unversioned values under `~tm/b/`, and where the placement driver is too old to list holds their records
//! under `~tm/h/`. No record of Tidemill's begins with these letters.

pub mod proto;

mod options;

mod backoff;
mod connect;
mod key;
mod tasks;

mod pd;
mod region;
mod stores;

mod call;
mod cluster;
mod key_error;

mod batches;
mod walk;

mod history;
mod status;

mod commit;
mod fence;
mod locks;
mod prewrite;
mod reads;
mod whole;

mod holds;
mod own_keys;
mod own_values;

mod feed;

mod store;

pub use feed::FeedOptions;
pub use options::{Options, Tls};
pub use store::TikvStore;
