//! Several instances over one cluster: each answers, one runs the jobs, and statements for those may be asked
//! of any.

use std::sync::Arc;
use std::time::Duration;

use store::{KeyRange, Snapshot};
use tidemill::{Cluster, Config, Tidemill};
use types::records::errand_prefix;

async fn open(cluster: &tikv_server::Cluster, name: &str) -> Tidemill {
    let mut place = Cluster::at(cluster.pd_endpoints());
    place.name = Some(name.to_owned());
    Tidemill::open(Config::on_cluster(place)).await.unwrap()
}

/// Waits until an instance is the one that runs the jobs.
async fn runs_jobs(instance: &Tidemill, name: &str) {
    let holds = format!("SELECT count(*) FROM tidemill.lease WHERE holder = '{name}' AND is_here = 'yes'");
    let waited = tokio::time::timeout(Duration::from_secs(60), async {
        while instance.execute(&holds).await.unwrap().first() != Some("1") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    waited.await.expect("the lease is taken in time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_process_may_be_asked_for_what_the_jobs_do() {
    let cluster = tikv_server::suite::cluster().await;
    let first = open(&cluster, "first").await;
    runs_jobs(&first, "first").await;
    let second = open(&cluster, "second").await;
    second
        .execute(
            "CREATE TABLE t (id INT PRIMARY KEY, g INT NOT NULL); INSERT INTO t VALUES (1, 1), (2, 1), (3, 2); \
             CREATE MATERIALIZED VIEW v WITH (refresh = 'on demand') AS SELECT g, count(*) AS n FROM t GROUP BY g",
        )
        .await
        .unwrap();
    let refresh = "REFRESH MATERIALIZED VIEW v";
    assert!(second.execute(refresh).await.unwrap().info.starts_with("path: full"));
    second.execute("DELETE FROM t WHERE id = 2").await.unwrap();
    assert!(second.execute(refresh).await.unwrap().info.starts_with("path: incremental"));
    assert!(first.execute(refresh).await.unwrap().info.starts_with("path: none"));

    // Rows and errors come as from the process that does it.
    for statement in ["OPTIMIZE TABLE v COMPACT", "OPTIMIZE TABLE nothing"] {
        let there = first.execute(statement).await.unwrap().texts();
        assert_eq!(second.execute(statement).await.unwrap().texts(), there, "{statement}");
    }
    for statement in ["REFRESH MATERIALIZED VIEW nothing", "ALTER MATERIALIZED VIEW v CANCEL"] {
        let there = first.execute(statement).await.unwrap_err();
        let here = second.execute(statement).await.unwrap_err();
        assert_eq!((here.mysql_code(), here.message()), (there.mysql_code(), there.message()), "{statement}");
    }
    second.execute("ALTER MATERIALIZED VIEW v SUSPEND").await.unwrap();
    assert!(first.execute(refresh).await.is_err(), "it is suspended");
    second.execute("ALTER MATERIALIZED VIEW v RESUME").await.unwrap();
    assert!(first.execute(refresh).await.is_ok());

    let store = tikv::TikvStore::connect(tikv::Options::new(cluster.pd_endpoints())).await.unwrap();
    let errands = Snapshot::newest(Arc::new(store)).await.unwrap();
    let errands = errands.scan_all(&KeyRange::prefix(&errand_prefix())).await.unwrap();
    assert!(errands.is_empty(), "answers are taken back: {errands:?}");

    first.shutdown().await.unwrap();
    runs_jobs(&second, "second").await;
    second.execute("INSERT INTO t VALUES (4, 2)").await.unwrap();
    assert!(second.execute(refresh).await.unwrap().info.starts_with("path: insert-only"));
    assert!(second.execute("VERIFY MATERIALIZED VIEW v").await.unwrap().rows.is_empty());
    second.shutdown().await.unwrap();
}
