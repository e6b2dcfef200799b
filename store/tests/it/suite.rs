//! The conformance suite over both engines, with the committer inline and in its thread.

use std::sync::Arc;

use store::conformance::TOPICS;
use store::engine::MemoryEngine;
use store::{EmbeddedStore, Options, Store};

async fn run(topic: &str) {
    let (name, run) = TOPICS.iter().find(|(name, _)| *name == topic).expect("the topic exists");
    let inline = EmbeddedStore::memory();
    run(inline).await;
    let threaded = EmbeddedStore::over(Arc::new(MemoryEngine::new()), Options::default()).unwrap();
    run(threaded).await;
    let directory = tempfile::tempdir().unwrap();
    let disk = EmbeddedStore::open(directory.path(), Options::default()).unwrap();
    run(disk.clone()).await;
    disk.close().await.unwrap();
    drop(
        EmbeddedStore::open(directory.path(), Options::default())
            .unwrap_or_else(|error| panic!("{name}: {error}")),
    );
}

macro_rules! topics {
    ($($topic:ident),*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $topic() {
                run(stringify!($topic)).await;
            }
        )*

        #[test]
        fn every_topic_runs() {
            let listed: Vec<&str> = TOPICS.iter().map(|(name, _)| *name).collect();
            assert_eq!(listed, [$(stringify!($topic)),*]);
        }
    };
}

topics!(traces, reads, locks, transactions, staged, feed, garbage, blobs, visibility);
