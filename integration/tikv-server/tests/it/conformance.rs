//! The conformance suite over gRPC: the client of the crate `tikv` against the test server.
//!
//! Every topic runs on one region, on regions that are cut inside the suite's keys and lie on three stores, and
//! with an older placement driver. A client that does what it must not makes the shutdown fail.

use std::sync::Arc;

use store::Store;
use store::conformance::TOPICS;
use tikv::TikvStore;
use tikv_server::{Cluster, Options};

/// Connects a client to a cluster; Tidemill drives its garbage collection.
pub(crate) async fn connect(cluster: &Cluster) -> TikvStore {
    let mut options = tikv::Options::new(cluster.pd_endpoints());
    options.drives_gc = true;
    TikvStore::connect(options).await.expect("the cluster is there")
}

/// Keys at which the suite's ranges fall into several regions.
fn cuts() -> Vec<Vec<u8>> {
    let keys = [
        "bank/5",
        "gc/k",
        "halves/3",
        "held/k",
        "list/b",
        "mix/300",
        "old/b",
        "order/4",
        "own/4",
        "push/b",
        "rows/05",
        "rows/08",
        "scan/25",
        "scan/3",
        "~tm/b/run/0050",
    ];
    keys.iter().map(|key| key.as_bytes().to_vec()).collect()
}

async fn run(topic: &str, options: Options) {
    let cluster = Cluster::start(options).await.expect("a cluster starts");
    let client = connect(&cluster).await;
    let (_, run) = TOPICS.iter().find(|(name, _)| *name == topic).expect("the topic is in the suite");
    let store: Arc<dyn Store> = Arc::new(client.clone());
    run(store).await;
    client.close().await.expect("the client closes");
    if topic == "traces" {
        // The recordings themselves begin transactions between two drawn timestamps.
        let violations = cluster.take_violations();
        let recorded = |text: &&String| text.contains("start timestamp") && text.contains("never handed out");
        assert!(violations.iter().all(|text| recorded(&text)), "{violations:?}");
    }
    cluster.shutdown().await.expect("the client did nothing that it must not");
}

macro_rules! topics {
    ($($topic:ident),+ $(,)?) => {
        $(mod $topic {
            use super::*;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn in_one_region() {
                run(stringify!($topic), Options::default()).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn over_regions_and_stores() {
                let options = Options { n_stores: 3, n_members: 3, cuts: cuts(), ..Options::default() };
                run(stringify!($topic), options).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn with_an_older_driver() {
                run(stringify!($topic), Options { old_pd: true, ..Options::default() }).await;
            }
        })+

        /// The topics that run here; the suite may not have others.
        const RUN: &[&str] = &[$(stringify!($topic)),+];
    };
}

topics!(traces, reads, locks, transactions, staged, feed, garbage, blobs, visibility);

#[test]
fn every_topic_runs() {
    let topics: Vec<&str> = TOPICS.iter().map(|(name, _)| *name).collect();
    assert_eq!(topics, RUN);
}
