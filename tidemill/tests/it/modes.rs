//! Read modes over the protocol: time zones of views, several stale views at once, waiting for a faulted view.

use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use crate::support::{code, connect, open, rows};

async fn run(conn: &mut Conn, statements: &[&str]) {
    for statement in statements {
        conn.query_drop(*statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
}

async fn set_mode(conn: &mut Conn, mode: &str) {
    run(conn, &[&format!("SET tidemill_read_mode = '{mode}'")]).await;
}

#[tokio::test]
async fn a_view_keeps_the_time_zone_of_its_creation() {
    let (tidemill, address) = open(|_| {}).await;
    let (mut east, mut west) = (connect(address).await, connect(address).await);
    let statements = [
        "SET time_zone = '+02:00'",
        "CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMP NOT NULL)",
        "INSERT INTO t VALUES (1, '2020-01-01 00:30:00'), (2, '2020-01-01 23:30:00')",
        "CREATE MATERIALIZED VIEW v AS SELECT DATE(at) AS day, COUNT(*) AS n FROM t GROUP BY DATE(at)",
        "CREATE MATERIALIZED VIEW w WITH (refresh = 'on demand') AS SELECT id, CAST(at AS CHAR) AS at FROM t",
        "REFRESH MATERIALIZED VIEW w",
    ];
    run(&mut east, &statements).await;
    run(&mut west, &["SET time_zone = '-05:00'"]).await;
    let days = "SELECT DATE(at) AS day, COUNT(*) AS n FROM t GROUP BY DATE(at) ORDER BY day";
    assert_eq!(rows(&mut west, days).await, [["2019-12-31", "1"], ["2020-01-01", "1"]], "its own zone");
    for mode in ["fresh", "live", "wait", "stale"] {
        set_mode(&mut west, mode).await;
        assert_eq!(rows(&mut west, "SELECT day, n FROM v").await, [["2020-01-01", "2"]], "{mode}");
        let shown = rows(&mut west, "SELECT at FROM w ORDER BY id").await;
        assert_eq!(shown, [["2020-01-01 00:30:00"], ["2020-01-01 23:30:00"]], "{mode}");
    }
    // Six in the evening there is one in the morning of the next day where the views were made.
    run(&mut west, &["INSERT INTO t VALUES (3, '2020-01-01 18:00:00')"]).await;
    for mode in ["fresh", "live", "wait", "stale"] {
        set_mode(&mut west, mode).await;
        let expected = [["2020-01-01", "2"], ["2020-01-02", "1"]];
        assert_eq!(rows(&mut west, "SELECT day, n FROM v ORDER BY day").await, expected, "{mode}");
    }
    set_mode(&mut west, "fresh").await;
    run(&mut west, &["REFRESH MATERIALIZED VIEW w"]).await;
    assert_eq!(rows(&mut west, "SELECT at FROM w WHERE id = 3").await, [["2020-01-02 01:00:00"]]);
    for view in ["v", "w"] {
        let differences = rows(&mut west, &format!("VERIFY MATERIALIZED VIEW {view}")).await;
        assert_eq!(differences, Vec::<Vec<String>>::new(), "{view}");
    }
    tidemill.shutdown().await.unwrap();
}

/// G6: all views of a job are at one S, whatever commits between two reads of one transaction.
#[tokio::test]
async fn stale_views_of_one_transaction_are_at_one_cut() {
    let (tidemill, address) = open(|_| {}).await;
    let (mut reader, mut writer) = (connect(address).await, connect(address).await);
    let statements = [
        "CREATE TABLE t (id INT PRIMARY KEY, v INT NOT NULL)",
        "INSERT INTO t VALUES (0, 1)",
        "CREATE MATERIALIZED VIEW a AS SELECT COUNT(*) AS n FROM t",
        "CREATE MATERIALIZED VIEW b AS SELECT SUM(v) AS s FROM t",
    ];
    run(&mut writer, &statements).await;
    set_mode(&mut reader, "stale").await;
    set_mode(&mut writer, "wait").await;
    for step in 1..=20 {
        run(&mut reader, &["BEGIN"]).await;
        let first = rows(&mut reader, "SELECT n FROM a").await;
        run(&mut writer, &[&format!("INSERT INTO t VALUES ({step}, 1)")]).await;
        // The job has moved on before the second view is read.
        let newest = (step + 1).to_string();
        assert_eq!(rows(&mut writer, "SELECT n, s FROM a, b").await, [[newest.clone(), newest]]);
        assert_eq!(rows(&mut reader, "SELECT s FROM b").await, first, "step {step}");
        let both = rows(&mut reader, "SELECT n, s FROM a, b").await;
        assert_eq!(both, [[first[0][0].clone(), first[0][0].clone()]], "step {step}");
        run(&mut reader, &["COMMIT"]).await;
        let both = rows(&mut reader, "SELECT n, s FROM a, b").await;
        assert_eq!(both[0][0], both[0][1], "step {step}, outside of a transaction");
    }
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn waiting_for_a_faulted_view_reads_live() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    let statements = [
        "CREATE TABLE t (id INT PRIMARY KEY, v BIGINT NOT NULL)",
        "INSERT INTO t VALUES (1, 1)",
        "CREATE MATERIALIZED VIEW f AS SELECT id, v + 1 AS v FROM t",
        "CREATE MATERIALIZED VIEW g AS SELECT COUNT(*) AS n FROM t",
        "SET tidemill_read_mode = 'wait'",
        "INSERT INTO t VALUES (2, 9223372036854775807)",
    ];
    run(&mut conn, &statements).await;
    assert_eq!(code(conn.query_drop("SELECT v FROM f").await), 1690, "as the query fails");
    assert_eq!(rows(&mut conn, "SELECT n FROM g").await, [["2"]], "the other view goes on");
    let state = "SELECT state FROM tidemill.views WHERE view_name = 'f'";
    assert_eq!(rows(&mut conn, state).await, [["faulted"]]);
    run(&mut conn, &["UPDATE t SET v = 2 WHERE id = 2", "INSERT INTO t VALUES (3, 3)"]).await;
    assert_eq!(rows(&mut conn, "SELECT v FROM f ORDER BY id").await, [["2"], ["3"], ["4"]]);
    assert_eq!(rows(&mut conn, "SELECT f.v, n FROM f, g WHERE id = 3").await, [["4", "3"]]);
    assert_eq!(rows(&mut conn, state).await, [["faulted"]], "waiting mends nothing");
    set_mode(&mut conn, "stale").await;
    assert_eq!(code(conn.query_drop("SELECT v FROM f").await), 1105);
    run(&mut conn, &["ALTER MATERIALIZED VIEW f RESUME"]).await;
    assert_eq!(rows(&mut conn, "SELECT v FROM f ORDER BY id").await, [["2"], ["3"], ["4"]]);
    tidemill.shutdown().await.unwrap();
}
