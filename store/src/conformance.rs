//! The conformance suite: what every [`Store`] must do, as tests that anybody can run.
//!
//! Each topic is one file and one function over a fresh, empty store. [`TOPICS`] lists them all, so that
//! a new implementation needs one loop. Topics panic at the first thing that is wrong. Recorded
//! exchanges of a real TiKV server ([`traces`]) are the judge where they say something.

use std::sync::Arc;

use futures::future::BoxFuture;
use types::Timestamp;

use crate::traits::{
    AssertionLevel, CommitRequest, Key, KeyRange, KvResult, Mutation, PrewriteRequest, Store, Value,
};
use crate::{Snapshot, Transaction};

mod blobs;
mod feed;
mod garbage;
mod locks;
mod reads;
mod staged;
pub mod traces;
mod transactions;
mod visibility;

/// A topic: its name and what it does with a fresh store.
pub type Topic = (&'static str, fn(Arc<dyn Store>) -> BoxFuture<'static, ()>);

/// Every topic of the suite.
pub const TOPICS: &[Topic] = &[
    ("traces", |store| Box::pin(traces::replay_all(store))),
    ("reads", |store| Box::pin(reads::run(store))),
    ("locks", |store| Box::pin(locks::run(store))),
    ("transactions", |store| Box::pin(transactions::run(store))),
    ("staged", |store| Box::pin(staged::run(store))),
    ("feed", |store| Box::pin(feed::run(store))),
    ("garbage", |store| Box::pin(garbage::run(store))),
    ("blobs", |store| Box::pin(blobs::run(store))),
    ("visibility", |store| Box::pin(visibility::run(store))),
];

/// Commits one put as a whole transaction.
pub(crate) async fn put(store: &Arc<dyn Store>, key: &str, value: &str) -> Timestamp {
    let mut transaction = begin(store).await;
    transaction.put(key.to_owned(), value.to_owned());
    transaction.commit().await.expect("a put without rivals commits")
}

/// Commits one delete as a whole transaction.
pub(crate) async fn delete(store: &Arc<dyn Store>, key: &str) -> Timestamp {
    let mut transaction = begin(store).await;
    transaction.delete(key.to_owned());
    transaction.commit().await.expect("a delete without rivals commits")
}

pub(crate) async fn begin(store: &Arc<dyn Store>) -> Transaction {
    Transaction::begin(Arc::clone(store)).await.expect("a transaction begins")
}

pub(crate) async fn newest(store: &Arc<dyn Store>) -> Snapshot {
    Snapshot::newest(Arc::clone(store)).await.expect("the newest snapshot is there")
}

pub(crate) fn at(store: &Arc<dyn Store>, ts: Timestamp) -> Snapshot {
    Snapshot::new(Arc::clone(store), ts)
}

/// Reads a key at a timestamp as text.
pub(crate) async fn read(store: &Arc<dyn Store>, key: &str, ts: Timestamp) -> Option<String> {
    let value = at(store, ts).get(key.as_bytes()).await.expect("a read succeeds");
    value.map(|value| String::from_utf8(value.to_vec()).expect("the suite writes text"))
}

/// A prewrite with everything usual.
pub(crate) fn prewrite(start_ts: Timestamp, primary: &str, mutations: Vec<Mutation>) -> PrewriteRequest {
    PrewriteRequest {
        txn_size: mutations.len() as u64,
        mutations,
        primary: Key::copy_from_slice(primary.as_bytes()),
        start_ts,
        ttl_ms: 20_000,
        min_commit_ts: start_ts.next().expect("starts are far from the maximum"),
        assertion_level: AssertionLevel::Strict,
        staged: false,
    }
}

pub(crate) fn put_of(key: &str, value: &str) -> Mutation {
    Mutation::put(key.to_owned(), value.to_owned())
}

pub(crate) async fn commit_keys(
    store: &Arc<dyn Store>,
    start_ts: Timestamp,
    primary: &str,
    keys: &[&str],
    commit_ts: Option<Timestamp>,
) -> KvResult<Timestamp> {
    let keys = keys.iter().map(|key| Key::copy_from_slice(key.as_bytes())).collect();
    let primary = Key::copy_from_slice(primary.as_bytes());
    store.commit(CommitRequest { start_ts, keys, primary, commit_ts }).await
}

pub(crate) fn text(value: &Value) -> &str {
    std::str::from_utf8(value).expect("the suite writes text")
}

pub(crate) fn prefix(prefix: &str) -> KeyRange {
    KeyRange::prefix(prefix.as_bytes())
}

pub(crate) async fn now(store: &Arc<dyn Store>) -> Timestamp {
    store.timestamp().await.expect("the oracle answers")
}

pub(crate) async fn visible(store: &Arc<dyn Store>) -> Timestamp {
    store.read_timestamp().await.expect("the oracle answers")
}
