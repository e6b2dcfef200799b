//! What a session or a transaction may not do, and how much a statement may: read only, limits, EXPLAIN.

use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use crate::support::{code, connect, open, rows};

/// `t` with 1000 rows and a view over it.
async fn prepare(conn: &mut Conn) {
    conn.query_drop("CREATE TABLE t (id INT PRIMARY KEY, v INT)").await.unwrap();
    conn.query_drop("CREATE TABLE u (v INT)").await.unwrap();
    let values: Vec<String> = (0..1000).map(|id| format!("({id}, {})", id % 7)).collect();
    conn.query_drop(format!("INSERT INTO t VALUES {}", values.join(", "))).await.unwrap();
    conn.query_drop("CREATE MATERIALIZED VIEW w AS SELECT v, count(*) AS n FROM t GROUP BY v").await.unwrap();
}

const WRITES: [&str; 8] = [
    "INSERT INTO t VALUES (-1, 1)",
    "REPLACE INTO t VALUES (1, 1)",
    "UPDATE t SET v = 9 WHERE id = 1",
    "DELETE FROM t",
    "TRUNCATE TABLE t",
    "DROP TABLE u",
    "CREATE TABLE x (id INT)",
    "DROP MATERIALIZED VIEW w",
];

#[tokio::test]
async fn read_only_transactions_refuse_every_write() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    prepare(&mut conn).await;
    for write in WRITES {
        conn.query_drop("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY").await.unwrap();
        assert_eq!(code(conn.query_drop(write).await), 1792, "{write}");
        // It goes on.
        assert_eq!(rows(&mut conn, "SELECT count(*) FROM t").await, [["1000"]]);
        conn.query_drop("COMMIT").await.unwrap();
    }
    // The next one is not read only.
    conn.query_drop("BEGIN").await.unwrap();
    conn.query_drop(WRITES[0]).await.unwrap();
    conn.query_drop("COMMIT").await.unwrap();
    // A session whose transactions are; one says otherwise.
    conn.query_drop("SET SESSION TRANSACTION READ ONLY").await.unwrap();
    for write in WRITES {
        assert_eq!(code(conn.query_drop(write).await), 1792, "{write} by itself");
    }
    conn.query_drop("START TRANSACTION READ WRITE").await.unwrap();
    conn.query_drop("DELETE FROM t WHERE id = -1").await.unwrap();
    conn.query_drop("COMMIT").await.unwrap();
    conn.query_drop("BEGIN").await.unwrap();
    conn.query_drop("SET SESSION TRANSACTION READ WRITE").await.unwrap();
    assert_eq!(code(conn.query_drop(WRITES[0]).await), 1792, "the open one stays as it began");
    conn.query_drop("ROLLBACK").await.unwrap();
    conn.query_drop(WRITES[0]).await.unwrap();
    assert_eq!(code(conn.query_drop("START TRANSACTION READ ONLY, READ WRITE").await), 1064);
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn set_global_transaction_is_of_later_sessions() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    prepare(&mut conn).await;
    conn.query_drop("SET GLOBAL TRANSACTION READ ONLY").await.unwrap();
    conn.query_drop(WRITES[0]).await.unwrap();
    let mut later = connect(address).await;
    assert_eq!(code(later.query_drop(WRITES[1]).await), 1792);
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn sql_select_limit_bounds_what_has_no_limit_of_its_own() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    prepare(&mut conn).await;
    conn.query_drop("SET sql_select_limit = 2").await.unwrap();
    for (query, expected) in [
        ("SELECT id FROM t ORDER BY id DESC", 2),
        ("SELECT id FROM t ORDER BY id LIMIT 5", 5),
        ("SELECT id FROM t WHERE id < 3 UNION ALL SELECT id FROM t WHERE id = 9", 2),
        ("SELECT v FROM w", 2),
        // Of the answer, not of what is read for it.
        ("SELECT count(*) FROM (SELECT id FROM t) AS x HAVING count(*) = 1000", 1),
        ("SELECT id FROM t WHERE id = 4", 1),
    ] {
        assert_eq!(rows(&mut conn, query).await.len(), expected, "{query}");
        let prepared: Vec<mysql_async::Row> = conn.exec(query, ()).await.unwrap();
        assert_eq!(prepared.len(), expected, "{query}, prepared");
    }
    conn.query_drop("INSERT INTO u SELECT v FROM t").await.unwrap();
    assert_eq!(rows(&mut conn, "SELECT count(*) FROM u").await, [["1000"]]);
    conn.query_drop("SET sql_select_limit = 0").await.unwrap();
    assert!(rows(&mut conn, "SELECT id FROM t").await.is_empty());
    conn.query_drop("SET sql_select_limit = DEFAULT").await.unwrap();
    assert_eq!(rows(&mut conn, "SELECT id FROM t").await.len(), 1000);
    tidemill.shutdown().await.unwrap();
}

/// A query that no machine ends: 1000 rows to the fifth power.
const ENDLESS: &str = "SELECT sum(a.v * b.v + c.v - d.v * e.v) FROM t a, t b, t c, t d, t e";

#[tokio::test]
async fn max_execution_time_ends_a_query_and_nothing_else() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    prepare(&mut conn).await;
    conn.query_drop("SET max_execution_time = 20").await.unwrap();
    let bound = std::time::Duration::from_secs(60);
    let ended = tokio::time::timeout(bound, conn.query_drop(ENDLESS)).await;
    assert_eq!(code(ended.expect("the limit is 20 ms")), 3024);
    let ended = tokio::time::timeout(bound, conn.exec_drop(ENDLESS, ())).await;
    assert_eq!(code(ended.expect("the limit is 20 ms")), 3024);
    // Only SELECT is bounded.
    conn.query_drop("SET max_execution_time = 1").await.unwrap();
    conn.query_drop("INSERT INTO u SELECT a.v FROM t a, t b WHERE a.id < 20").await.unwrap();
    conn.query_drop("SET max_execution_time = 0").await.unwrap();
    assert_eq!(rows(&mut conn, "SELECT count(*) FROM u").await, [["20000"]]);
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn kill_ends_a_query_that_computes_for_ever() {
    let (tidemill, address) = open(|_| {}).await;
    let (mut conn, mut killer) = (connect(address).await, connect(address).await);
    prepare(&mut conn).await;
    let kill = format!("KILL QUERY {}", conn.id());
    let mut endless = Box::pin(conn.query_drop(ENDLESS));
    // A KILL before it runs ends nothing.
    let ended = loop {
        tokio::select! {
            ended = &mut endless => break ended,
            killed = killer.query_drop(&kill) => killed.unwrap(),
        }
    };
    assert_eq!(code(ended), 1317);
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn changes_are_explained_and_not_done() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    prepare(&mut conn).await;
    for (change, parts) in [
        ("INSERT INTO u VALUES (1), (2)", &["Insert: test.u", "Values: 2 rows"][..]),
        ("INSERT INTO u SET v = 1", &["Insert: test.u", "Values: 1 row"]),
        ("REPLACE INTO t SELECT v, n FROM w", &["Replace: test.t", "ReadPath: test.w"]),
        ("UPDATE t SET v = 0 WHERE id = 7", &["Update: test.t", "PointGet: 1 row by its primary key"]),
        ("UPDATE t SET v = 0 WHERE v IN (SELECT v FROM w)", &["Update: test.t", "ReadPath: test.w"]),
        ("DELETE FROM t WHERE v > 3 ORDER BY id LIMIT 5", &["Delete: test.t", "fetch=5"]),
        ("DELETE FROM t WHERE id = 7", &["Delete: test.t", "PointGet: 1 row by its primary key"]),
    ] {
        let explained = rows(&mut conn, &format!("EXPLAIN {change}")).await;
        let text: Vec<String> = explained.into_iter().flatten().collect();
        let text = text.join("\n");
        for part in parts {
            assert!(text.contains(part), "{change}: no {part} in\n{text}");
        }
    }
    assert_eq!(rows(&mut conn, "SELECT count(*), sum(v = 0) FROM t").await, [["1000", "143"]]);
    assert_eq!(rows(&mut conn, "SELECT count(*) FROM u").await, [["0"]]);
    assert_eq!(code(conn.query_drop("EXPLAIN DELETE FROM w").await), 1288);
    assert_eq!(code(conn.query_drop("EXPLAIN UPDATE t SET nope = 1").await), 1054);
    assert_eq!(code(conn.query_drop("EXPLAIN INSERT INTO u VALUES (1, 2)").await), 1136);
    tidemill.shutdown().await.unwrap();
}
