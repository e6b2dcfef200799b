//! Statements whose trees are deep: an answer or an error, and a server that lives on.

use crate::support::{code, connect, open, rows};
use mysql_async::prelude::Queryable;

fn chain(first: &str, repeated: &str, times: usize) -> String {
    format!("{first}{}", repeated.repeat(times))
}

fn nested(before: &str, core: &str, after: &str, times: usize) -> String {
    format!("{}{core}{}", before.repeat(times), after.repeat(times))
}

#[tokio::test]
async fn deep_statements_are_answered() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    conn.query_drop("CREATE TABLE t (a INT PRIMARY KEY, b INT)").await.unwrap();
    conn.query_drop("INSERT INTO t VALUES (1, 10), (2, NULL)").await.unwrap();
    let any = chain("SELECT a FROM t WHERE a = 0", " OR a = 1", 1000);
    assert_eq!(rows(&mut conn, &any).await, [["1"]]);
    assert_eq!(rows(&mut conn, &chain("SELECT 1", " + 1", 120)).await, [["121"]]);
    assert_eq!(rows(&mut conn, &format!("{}1", chain("SELECT ", "- ", 120))).await, [["1"]]);
    assert_eq!(rows(&mut conn, &format!("SELECT {}", nested("ABS(", "-1", ")", 120))).await, [["1"]]);
    let mut derived = "t".to_owned();
    for level in 0..60 {
        derived = format!("(SELECT * FROM {derived} d{level})");
    }
    assert_eq!(rows(&mut conn, &format!("SELECT count(*) FROM {derived} d")).await, [["2"]]);
    let union = chain("SELECT a FROM t", " UNION ALL SELECT a FROM t", 119);
    assert_eq!(rows(&mut conn, &union).await.len(), 240);
    let ctes: Vec<String> =
        (1..120).map(|level| format!("c{level} AS (SELECT * FROM c{})", level - 1)).collect();
    let with = format!("WITH c0 AS (SELECT * FROM t), {} SELECT count(*) FROM c119", ctes.join(", "));
    assert_eq!(rows(&mut conn, &with).await, [["2"]]);
    let view = format!("CREATE MATERIALIZED VIEW v AS {any}");
    conn.query_drop(&view).await.unwrap();
    for mode in ["fresh", "wait", "live"] {
        conn.query_drop(format!("SET tidemill_read_mode = '{mode}'")).await.unwrap();
        assert_eq!(rows(&mut conn, "SELECT * FROM v").await, [["1"]], "{mode}");
    }
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_is_deeper_is_refused() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    conn.query_drop("CREATE TABLE t (a INT PRIMARY KEY, b INT)").await.unwrap();
    conn.query_drop("INSERT INTO t VALUES (1, 10), (2, NULL)").await.unwrap();
    let scalar = |times| format!("SELECT {}", nested("(SELECT ", "1", ")", times));
    assert_eq!(rows(&mut conn, &scalar(10)).await, [["1"]]);
    assert_eq!(code(conn.query_drop(scalar(11)).await), 1473);
    let within = |times| {
        format!("SELECT a FROM t {}", nested("WHERE a IN (SELECT a FROM t ", "WHERE a = 1", ")", times))
    };
    assert_eq!(rows(&mut conn, &within(8)).await, [["1"]]);
    assert_eq!(code(conn.query_drop(within(20)).await), 1473);
    assert_eq!(code(conn.query_drop(format!("SELECT {}", nested("(", "1", ")", 2000))).await), 1064);
    assert_eq!(code(conn.query_drop(chain("SELECT 1", " + 1", 5000)).await), 1064);
    assert_eq!(rows(&mut conn, "SELECT count(*) FROM t").await, [["2"]], "the server lives on");
    tidemill.shutdown().await.unwrap();
}
