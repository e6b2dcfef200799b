//! The public client, which does not know that this is no TiKV.

use tikv_client::{BoundRange, CheckLevel, Key, Snapshot, Timestamp, TimestampExt, TransactionClient};
use tikv_client::{TransactionOptions, Value};
use tikv_server::{Cluster, Options, Protocol, Stop};

async fn cluster() -> (Cluster, TransactionClient) {
    let cuts = [b"k1".to_vec(), b"k2".to_vec(), b"k3".to_vec()].to_vec();
    let options = Options { n_stores: 3, cuts, ..Options::default() };
    let cluster = Cluster::start(options).await.unwrap();
    let client = TransactionClient::new(cluster.pd_endpoints()).await.unwrap();
    (cluster, client)
}

fn options() -> TransactionOptions {
    TransactionOptions::new_optimistic().drop_check(CheckLevel::Warn)
}

async fn write(
    client: &TransactionClient,
    options: TransactionOptions,
    keys: &[String],
    value: &str,
) -> bool {
    let mut transaction = client.begin_with_options(options).await.unwrap();
    for key in keys {
        transaction.put(key.clone(), value.to_owned()).await.unwrap();
    }
    transaction.commit().await.is_ok()
}

async fn snapshot(client: &TransactionClient) -> Snapshot {
    let now = client.current_timestamp().await.unwrap();
    client.snapshot(now, options())
}

async fn scan(snapshot: &mut Snapshot) -> Vec<(Key, Value)> {
    let all: BoundRange = ("k".to_owned().."l".to_owned()).into();
    let pairs = snapshot.scan(all, 1000).await.unwrap();
    pairs.map(|pair| pair.into()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_of_every_protocol_are_read_back() {
    let (cluster, client) = cluster().await;
    let keys: Vec<String> = (0..40).map(|at| format!("k{:02}", at)).collect();
    assert!(write(&client, options(), &keys, "two phases").await);
    let old = client.current_timestamp().await.unwrap();
    assert!(write(&client, options().use_async_commit(), &keys[..10], "async").await);
    assert!(write(&client, options().try_one_pc(), &keys[..1], "at once").await);
    let rows = scan(&mut snapshot(&client).await).await;
    assert_eq!(rows.len(), keys.len());
    assert_eq!(rows[0].1, b"at once");
    assert_eq!(rows[9].1, b"async");
    assert_eq!(rows[10].1, b"two phases");
    let mut before = client.snapshot(old, options());
    assert_eq!(before.get(keys[0].clone()).await.unwrap().unwrap(), b"two phases");
    assert_eq!(before.batch_get(keys.clone()).await.unwrap().count(), keys.len());
    drop((before, client));
    cluster.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_writers_of_a_key_the_second_fails() {
    let (cluster, client) = cluster().await;
    let mut first = client.begin_with_options(options()).await.unwrap();
    let mut second = client.begin_with_options(options()).await.unwrap();
    first.put("k15".to_owned(), "first").await.unwrap();
    second.put("k15".to_owned(), "second").await.unwrap();
    second.delete("k25".to_owned()).await.unwrap();
    first.commit().await.unwrap();
    assert!(second.commit().await.is_err());
    assert_eq!(snapshot(&client).await.get("k15".to_owned()).await.unwrap().unwrap(), b"first");
    drop((first, second, client));
    cluster.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_that_were_left_are_resolved() {
    let (cluster, client) = cluster().await;
    let writes = |value: &str| {
        ["k05", "k15", "k25"].map(|key| (key.as_bytes().to_vec(), Some(value.as_bytes().to_vec())))
    };
    cluster.write(&writes("old")).await.unwrap();
    cluster.leave(Protocol::TwoPhase, Stop::PrimaryCommitted, 1, &writes("new")).await.unwrap();
    let rows = scan(&mut snapshot(&client).await).await;
    assert_eq!(rows.iter().map(|row| row.1.as_slice()).collect::<Vec<_>>(), [b"new"; 3]);
    cluster.leave(Protocol::TwoPhase, Stop::PrimaryRolledBack, 1, &writes("never")).await.unwrap();
    let rows = scan(&mut snapshot(&client).await).await;
    assert_eq!(rows.iter().map(|row| row.1.as_slice()).collect::<Vec<_>>(), [b"new"; 3]);
    let left = Timestamp::from_version(cluster.timestamp().await.unwrap());
    assert!(left.version() > 0);
    drop(client);
    cluster.shutdown().await.unwrap();
}
