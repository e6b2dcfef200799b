//! The store that a suite of tests runs over: one in memory, or the same tests over a cluster.
//!
//! `TIDEMILL_TEST_STORE=cluster` gives every test a cluster of its own, with three stores and about fifty
//! regions at the tests' keys that split, merge and move all the time. A request that would end a real store
//! ends the test's process.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use store::{EmbeddedStore, Store};
use tikv::TikvStore;

use crate::{Cluster, Options};

/// The variable that chooses.
const VARIABLE: &str = "TIDEMILL_TEST_STORE";

/// Whether the suite runs over a cluster.
///
/// # Panics
/// If the variable says something that there is not.
#[must_use]
pub fn is_on_cluster() -> bool {
    match std::env::var(VARIABLE).as_deref() {
        Err(_) | Ok("memory") => false,
        Ok("cluster") => true,
        Ok(other) => panic!("{VARIABLE}={other}: there are memory and cluster"),
    }
}

/// Starts a cluster as suites have it; it ends with the test's runtime.
///
/// # Panics
/// If it cannot be started.
pub async fn cluster() -> Arc<Cluster> {
    let options = Options {
        n_stores: 3,
        cuts: cuts(),
        min_ts_interval: Duration::from_millis(20),
        ..Options::default()
    };
    let cluster = Arc::new(Cluster::start(options).await.expect("a cluster starts on free ports"));
    let watched = Arc::clone(&cluster);
    let churn = cluster.churn(1, Duration::from_millis(50));
    #[allow(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
    drop(tokio::spawn(async move {
        let _churn = churn;
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let violations = watched.violations();
            if !violations.is_empty() {
                // A panic of a task would be overheard.
                let text = format!("a client did what would end a real store: {violations:?}\n");
                let _said = std::io::stderr().write_all(text.as_bytes());
                std::process::abort();
            }
        }
    }));
    cluster
}

/// Fifty regions where the tests' keys are: tables of small ids, private ones, and each kind of record.
fn cuts() -> Vec<Vec<u8>> {
    let tables = (1..=20).map(|id| tidb::table_range(id).0);
    let private = (0..20).map(|id| tidb::table_range(tidb::PRIVATE_TABLES_FROM + 64 + id).0);
    let records = ["~tm/", "~tm/b", "~tm/c/t", "~tm/d", "~tm/j", "~tm/m", "~tm/p", "~tm/r", "~tm/s"];
    tables.chain(private).chain(records.map(|key| key.as_bytes().to_vec())).collect()
}

/// The store of a test: in memory, or a cluster.
///
/// # Panics
/// If the cluster cannot be started or connected to.
pub async fn store() -> Arc<dyn Store> {
    if !is_on_cluster() {
        return EmbeddedStore::memory();
    }
    connect(&*cluster().await).await
}

/// The store of a test, as two processes have it: in memory it is one, of a cluster there are two
/// connections.
///
/// # Panics
/// As [`store`].
pub async fn store_of_two() -> [Arc<dyn Store>; 2] {
    if !is_on_cluster() {
        let store: Arc<dyn Store> = EmbeddedStore::memory();
        return [Arc::clone(&store), store];
    }
    let cluster = cluster().await;
    [connect(&cluster).await, connect(&cluster).await]
}

async fn connect(cluster: &Cluster) -> Arc<dyn Store> {
    let options = tikv::Options { drives_gc: true, ..tikv::Options::new(cluster.pd_endpoints()) };
    Arc::new(TikvStore::connect(options).await.expect("the cluster answers"))
}
