//! What ends a real store is refused and remembered, and makes the shutdown fail.

use tikv::proto::kvrpcpb as kv;
use tikv_server::{Cluster, Options};

use crate::raw::{connect, context, prewrite, region};

#[tokio::test]
async fn a_key_twice_in_a_prewrite_is_refused() {
    let cluster = Cluster::start(Options::default()).await.unwrap();
    let mut client = connect(&cluster, 1).await;
    let home = region(&cluster, "k").await;
    let mut request = prewrite(&home, "k", "one", cluster.timestamp().await.unwrap());
    request.mutations.push(request.mutations[0].clone());
    assert_eq!(client.kv.kv_prewrite(request).await.unwrap_err().code(), tonic::Code::Internal);
    assert_eq!(cluster.violations().len(), 1);
    assert!(cluster.shutdown().await.is_err(), "a violation is no success");
}

#[tokio::test]
async fn timestamps_beyond_the_newest_are_refused_where_a_store_looks() {
    let cluster = Cluster::start(Options::default()).await.unwrap();
    let mut client = connect(&cluster, 1).await;
    let home = region(&cluster, "k").await;
    let far = cluster.timestamp().await.unwrap() + (3600 << 28);
    let get = kv::GetRequest { context: context(&home), key: "k".into(), version: far, ..Default::default() };
    assert!(client.kv.kv_get(get).await.is_err());
    let locks = kv::ScanLockRequest { context: context(&home), max_version: far, ..Default::default() };
    assert!(client.kv.kv_scan_lock(locks).await.is_err());
    let status = kv::CheckTxnStatusRequest {
        context: context(&home),
        primary_key: "k".into(),
        lock_ts: 1,
        current_ts: far,
        ..Default::default()
    };
    assert!(client.kv.kv_check_txn_status(status).await.is_err());
    assert_eq!(cluster.take_violations().len(), 3);
    // A plain read may be a minute ahead.
    let soon = cluster.timestamp().await.unwrap() + (50_000 << 18);
    assert!(client.get(&home, "k", soon).await.not_found);
    cluster.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_start_that_was_never_handed_out_is_taken_and_noted() {
    let cluster = Cluster::start(Options::default()).await.unwrap();
    let mut client = connect(&cluster, 1).await;
    let home = region(&cluster, "k").await;
    let invented = cluster.timestamp().await.unwrap() + (1000 << 18);
    let answer = client.kv.kv_prewrite(prewrite(&home, "k", "v", invented)).await.unwrap().into_inner();
    assert!(answer.errors.is_empty());
    let violations = cluster.take_violations();
    assert!(violations.iter().any(|one| one.contains("never handed out")), "{violations:?}");
    cluster.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_notification_of_transactions_ends_the_stream() {
    let cluster = Cluster::start(Options::default()).await.unwrap();
    let mut feed = connect(&cluster, 1).await.feed().await;
    feed.notify().await;
    assert_eq!(feed.hear().await.unwrap_err().code(), tonic::Code::Internal);
    assert_eq!(cluster.take_violations().len(), 1);
    cluster.shutdown().await.unwrap();
}
