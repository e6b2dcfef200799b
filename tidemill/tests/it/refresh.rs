//! REFRESH and its kin over the protocol: paths, refusals, system tables; staleness and tokens.

use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use tidemill::{Config, Tidemill};

use crate::support::{code, connect, open, rows};

async fn message(conn: &mut Conn, statement: &str) -> String {
    conn.query_drop(statement).await.unwrap_err().to_string()
}

async fn explain(conn: &mut Conn, statement: &str) -> String {
    rows(conn, statement).await.concat().concat()
}

#[tokio::test]
async fn a_view_on_demand_lags_and_is_never_wrong() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    conn.query_drop("CREATE TABLE t (id INT PRIMARY KEY, v INT)").await.unwrap();
    conn.query_drop("INSERT INTO t VALUES (1, 10), (2, 20)").await.unwrap();
    let create = "CREATE MATERIALIZED VIEW s WITH (refresh = 'on demand') AS SELECT sum(v) AS v FROM t";
    conn.query_drop(create).await.unwrap();
    assert_eq!(rows(&mut conn, "SELECT v FROM s").await, [["30"]], "live until the first refresh");
    assert!(explain(&mut conn, "EXPLAIN SELECT v FROM s").await.contains("s=Live"));
    conn.query_drop("SET tidemill_read_mode = 'stale'").await.unwrap();
    assert!(message(&mut conn, "SELECT v FROM s").await.contains("never been refreshed"));
    assert!(explain(&mut conn, "EXPLAIN REFRESH MATERIALIZED VIEW s").await.contains("s=full"));
    conn.query_drop("REFRESH MATERIALIZED VIEW s").await.unwrap();
    conn.query_drop("INSERT INTO t VALUES (3, 5)").await.unwrap();
    assert_eq!(rows(&mut conn, "SELECT v FROM s").await, [["30"]], "stale");
    conn.query_drop("SET tidemill_read_mode = 'fresh'").await.unwrap();
    assert_eq!(rows(&mut conn, "SELECT v FROM s").await, [["35"]], "fresh");
    assert!(explain(&mut conn, "EXPLAIN SELECT v FROM s").await.contains("s=Hybrid"));
    let plan = explain(&mut conn, "EXPLAIN REFRESH MATERIALIZED VIEW s").await;
    assert!(plan.contains("s=insert-only") && plan.contains("reads=1 changes"), "{plan}");
    conn.query_drop("UPDATE t SET v = 6 WHERE id = 3").await.unwrap();
    conn.query_drop("REFRESH MATERIALIZED VIEW s INCREMENTAL").await.unwrap();
    conn.query_drop("SET tidemill_read_mode = 'stale'").await.unwrap();
    assert_eq!(rows(&mut conn, "SELECT v FROM s").await, [["36"]]);
    let last = "SELECT view_name, refresh, state, last_path, rows_read, last_error FROM tidemill.refreshes";
    assert_eq!(rows(&mut conn, last).await, [["s", "on demand", "idle", "incremental", "2", "NULL"]]);
    conn.query_drop("REFRESH MATERIALIZED VIEW s FULL").await.unwrap();
    assert_eq!(rows(&mut conn, "SELECT v FROM s").await, [["36"]]);
    assert_eq!(rows(&mut conn, "VERIFY MATERIALIZED VIEW s").await, Vec::<Vec<String>>::new());
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_refreshed_says_why() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    conn.query_drop("CREATE TABLE t (id INT PRIMARY KEY)").await.unwrap();
    conn.query_drop("CREATE MATERIALIZED VIEW c AS SELECT id FROM t").await.unwrap();
    conn.query_drop("CREATE MATERIALIZED VIEW d WITH (refresh = 'on demand') AS SELECT id FROM t")
        .await
        .unwrap();
    conn.query_drop("REFRESH MATERIALIZED VIEW d").await.unwrap();
    for (statement, expected) in [
        ("REFRESH MATERIALIZED VIEW c", "is continuous"),
        ("REFRESH MATERIALIZED VIEW t", "is not a materialized view"),
        ("REFRESH MATERIALIZED VIEW x", "doesn't exist"),
        ("REFRESH MATERIALIZED VIEW d AS OF TIMESTAMP '2200-01-01 00:00:00'", "ahead of the store"),
        (
            "REFRESH MATERIALIZED VIEW d AS OF TIMESTAMP '2000-01-01 00:00:00'",
            "can be refreshed to a timestamp in (",
        ),
        ("ALTER MATERIALIZED VIEW d CANCEL", "no fill or refresh"),
        ("ALTER MATERIALIZED VIEW d SET (refresh = 'hourly')", "expected 'continuous'"),
        ("ALTER MATERIALIZED VIEW d SET (refresh = 'every 99999999999 days')", "the longest interval"),
        ("ALTER MATERIALIZED VIEW d SET (job = 'x')", "cannot be changed"),
        ("ALTER MATERIALIZED VIEW d RENAME TO c", "already exists"),
        ("ALTER MATERIALIZED VIEW d RENAME TO other.d", "another database"),
        (
            "CREATE MATERIALIZED VIEW e WITH (refresh = 'on demand', job = 'x') AS SELECT id FROM t",
            "job of its own",
        ),
        ("CREATE MATERIALIZED VIEW e WITH (speed = 'high') AS SELECT id FROM t", "no option 'speed'"),
        ("CREATE OR REPLACE MATERIALIZED VIEW d AS SELECT id + 1 AS id FROM t", "cannot move view"),
        ("EXPLAIN REFRESH MATERIALIZED VIEW c", "is continuous"),
    ] {
        let text = message(&mut conn, statement).await;
        assert!(text.contains(expected), "{statement}: {text}");
    }
    conn.query_drop("ALTER MATERIALIZED VIEW d SUSPEND").await.unwrap();
    assert!(message(&mut conn, "REFRESH MATERIALIZED VIEW d").await.contains("is suspended"));
    conn.query_drop("ALTER MATERIALIZED VIEW d RESUME").await.unwrap();
    conn.query_drop("ALTER MATERIALIZED VIEW d RENAME TO e").await.unwrap();
    conn.query_drop("REFRESH MATERIALIZED VIEW e").await.unwrap();
    let create = rows(&mut conn, "SHOW CREATE MATERIALIZED VIEW e").await;
    assert!(create[0][1].contains("refresh = 'on demand'"), "{create:?}");
    assert_eq!(code(conn.query_drop("REFRESH MATERIALIZED VIEW d").await), 1146);
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_token_carries_a_commit_to_another_connection() {
    let (tidemill, address) = open(|_| {}).await;
    let mut writer = connect(address).await;
    let mut reader = connect(address).await;
    writer.query_drop("CREATE TABLE t (id INT PRIMARY KEY)").await.unwrap();
    writer
        .query_drop("CREATE MATERIALIZED VIEW n WITH (refresh = 'on demand') AS SELECT count(*) AS n FROM t")
        .await
        .unwrap();
    writer.query_drop("REFRESH MATERIALIZED VIEW n").await.unwrap();
    assert_eq!(rows(&mut writer, "SELECT tidemill_token()").await, [["NULL"]], "it has committed nothing");
    writer.query_drop("BEGIN").await.unwrap();
    writer.query_drop("INSERT INTO t VALUES (1)").await.unwrap();
    writer.query_drop("COMMIT").await.unwrap();
    let token = rows(&mut writer, "SELECT tidemill_token()").await.concat().concat();
    reader.query_drop("SET tidemill_read_mode = 'stale'").await.unwrap();
    assert_eq!(rows(&mut reader, "SELECT n FROM n").await, [["0"]]);
    reader.query_drop(format!("SET tidemill_wait_for = '{token}'")).await.unwrap();
    assert_eq!(rows(&mut reader, "SELECT n FROM n").await, [["1"]]);
    for wrong in ["soon", "0000000000000001-1"] {
        let text = message(&mut reader, &format!("SET tidemill_wait_for = '{wrong}'")).await;
        assert!(text.contains("token"), "{text}");
    }
    assert_eq!(rows(&mut reader, "SELECT n FROM n").await, [["1"]], "a wrong one changes nothing");
    reader.query_drop("SET tidemill_wait_for = ''").await.unwrap();
    assert_eq!(rows(&mut reader, "SELECT n FROM n").await, [["0"]]);
    // The same by age: what is older than a millisecond reads as a fresh one does.
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    reader.query_drop("SET tidemill_max_staleness = 1").await.unwrap();
    assert_eq!(rows(&mut reader, "SELECT n FROM n").await, [["1"]]);
    reader.query_drop("SET tidemill_max_staleness = 3600000").await.unwrap();
    assert_eq!(rows(&mut reader, "SELECT n FROM n").await, [["0"]]);
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_job_that_sleeps_is_shown_as_recorded_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("data");
    let query = "SELECT kind, generation, epoch, cut_ts, commit_ts, views FROM tidemill.jobs WHERE kind = 'refreshed'";
    let config = Config::in_directory(&place);
    let tidemill = Tidemill::open(config.clone()).await.unwrap();
    let create = "CREATE MATERIALIZED VIEW s WITH (refresh = 'on demand') AS SELECT sum(v) AS v FROM t";
    for statement in ["CREATE TABLE t (id INT PRIMARY KEY, v INT)", create, "REFRESH MATERIALIZED VIEW s"] {
        tidemill.execute(statement).await.unwrap();
    }
    tidemill.execute("INSERT INTO t VALUES (1, 10)").await.unwrap();
    tidemill.execute("REFRESH MATERIALIZED VIEW s").await.unwrap();
    let before = tidemill.execute(query).await.unwrap().texts();
    assert_eq!((before.len(), before[0][5].as_str()), (1, "test.s"));
    tidemill.shutdown().await.unwrap();

    let tidemill = Tidemill::open(config).await.unwrap();
    assert_eq!(tidemill.execute(query).await.unwrap().texts(), before);
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_name_of_a_job_is_not_empty() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    conn.query_drop("CREATE TABLE t (id INT PRIMARY KEY)").await.unwrap();
    for job in ["", "  "] {
        let create = format!("CREATE MATERIALIZED VIEW v WITH (job = '{job}') AS SELECT id FROM t");
        let error = conn.query_drop(&create).await.unwrap_err().to_string();
        assert!(error.contains("name of a job is not empty"), "{error}");
    }
    conn.query_drop("CREATE MATERIALIZED VIEW v WITH (job = 'x') AS SELECT id FROM t").await.unwrap();
    tidemill.shutdown().await.unwrap();
}
