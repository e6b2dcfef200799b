//! The feed where recordings say nothing, or where their order cannot be had again.

use std::time::Duration;

use tikv::proto::cdcpb::LogType;
use tikv_server::{Cluster, Options, Protocol, Stop, Write};

use crate::raw::{connect, region};

fn quick() -> Options {
    Options { min_ts_interval: Duration::from_millis(20), ..Options::default() }
}

fn put(key: &str, value: &str) -> Write {
    (key.as_bytes().to_vec(), Some(value.as_bytes().to_vec()))
}

#[tokio::test]
async fn live_rows_overtake_a_scan() {
    let cluster = Cluster::start(quick()).await.unwrap();
    cluster.write(&[put("c", "c0"), put("w", "w0")]).await.unwrap();
    let open = cluster.leave(Protocol::TwoPhase, Stop::Prewritten, 60_000, &[put("c", "c1")]).await.unwrap();
    let home = region(&cluster, "c").await;
    let mut feed = connect(&cluster, 1).await.feed().await;
    cluster.pace().hold_scans(true);
    feed.register(&home, 7, 0).await;
    while cluster.n_subscriptions().await == 0 {
        tokio::task::yield_now().await;
    }
    cluster.write(&[put("w", "w1")]).await.unwrap();
    let live = feed.rows_until(LogType::Commit).await;
    assert_eq!(live.len(), 2, "{live:?}");
    cluster.pace().hold_scans(false);
    let scanned = feed.rows_until(LogType::Initialized).await;
    let shown: Vec<(LogType, &[u8])> = scanned.iter().map(|row| (row.r#type(), row.value.as_ref())).collect();
    let expected = [
        (LogType::Prewrite, b"c1".as_slice()),
        (LogType::Committed, b"c0"),
        (LogType::Committed, b"w0"),
        (LogType::Initialized, b""),
    ];
    assert_eq!(shown, expected);
    // The open lock holds what is resolved.
    assert!(feed.resolved_from(1).await <= open.start_ts);
    cluster.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_client_that_does_not_read_is_told_so() {
    let options = Options { feed_bytes_max: 200_000, ..quick() };
    let cluster = Cluster::start(options).await.unwrap();
    let home = region(&cluster, "big").await;
    let mut feed = connect(&cluster, 1).await.feed().await;
    feed.register(&home, 1, 0).await;
    feed.rows_until(LogType::Initialized).await;
    let large = "v".repeat(1 << 20);
    let mut written = 0;
    while cluster.n_subscriptions().await > 0 {
        cluster.write(&[put("big", &large)]).await.unwrap();
        written += 1;
        assert!(written < 200, "the window of the connection must fill up some time");
    }
    assert_eq!(feed.error().await.congested.unwrap().region_id, home.id());
    cluster.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_event_may_be_larger_than_any_limit_of_messages() {
    let cluster = Cluster::start(quick()).await.unwrap();
    let home = region(&cluster, "big").await;
    let mut feed = connect(&cluster, 1).await.feed().await;
    feed.register(&home, 1, 0).await;
    feed.rows_until(LogType::Initialized).await;
    let large = "v".repeat(5 << 20);
    cluster.write(&[put("big", &large)]).await.unwrap();
    cluster.write_as(Protocol::OnePhase, &[put("big", &large)]).await.unwrap();
    let rows = feed.rows_until(LogType::Committed).await;
    let last = rows.last().unwrap();
    assert_eq!((last.value.len(), last.old_value.len()), (5 << 20, 5 << 20));
    cluster.shutdown().await.unwrap();
}

#[tokio::test]
async fn regions_in_motion_lose_nothing() {
    let options = Options { n_stores: 3, n_regions: 4, ..quick() };
    let cluster = Cluster::start(options).await.unwrap();
    let keys: Vec<String> = (0..40).map(|at| format!("{}{at:02}", char::from(b'a' + at % 20))).collect();
    let churn = cluster.churn(11, Duration::from_millis(1));
    for round in 0..10 {
        for key in &keys {
            cluster.write(&[put(key, &round.to_string())]).await.unwrap();
        }
    }
    assert!(churn.stop().await > 0);
    cluster.elect().await.unwrap();
    let now = cluster.timestamp().await.unwrap();
    for key in &keys {
        let home = region(&cluster, key).await;
        let mut client = connect(&cluster, home.leader.unwrap()).await;
        assert_eq!(client.get(&home, key, now).await.value.as_ref(), b"9");
    }
    cluster.shutdown().await.unwrap();
}
