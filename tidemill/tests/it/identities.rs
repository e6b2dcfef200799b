//! Rows without a key of their own: groups without aggregates, duplicates of equal rows, hidden identities.
//!
//! Such views answer as their queries in every read mode, by every path and way of being refreshed, through
//! inserts, updates that make rows equal or tell them apart, and deletes of one duplicate or all; nobody
//! sees what identifies their rows.

use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use crate::support::{connect, open, rows};

/// Views with the number of columns that a user sees.
const VIEWS: &[(&str, usize, &str)] = &[
    ("bag", 2, "SELECT g, n FROM t"),
    ("groups", 1, "SELECT g FROM t GROUP BY g"),
    ("two_groups", 2, "SELECT g, n FROM t GROUP BY g, n"),
    ("group_not_shown", 1, "SELECT 1 AS one FROM t GROUP BY g"),
    ("counts_only", 1, "SELECT COUNT(*) AS c FROM t GROUP BY g"),
    ("having", 1, "SELECT g FROM t GROUP BY g HAVING COUNT(*) > 1"),
    ("distinct_rows", 2, "SELECT DISTINCT g, n FROM t"),
    ("both", 1, "SELECT n FROM t UNION ALL SELECT k FROM u"),
    ("pairs", 2, "SELECT t.g, u.k FROM t JOIN u ON t.n = u.k"),
    ("left_pairs", 2, "SELECT t.n, u.name FROM t LEFT JOIN u ON t.n = u.k"),
    ("estimates", 2, "SELECT g, APPROX_COUNT_DISTINCT(n) AS n FROM t GROUP BY g"),
    ("estimate", 2, "SELECT APPROX_COUNT_DISTINCT(g) AS g, APPROX_COUNT_DISTINCT(n) AS n FROM t"),
    ("present", 1, "SELECT g FROM t WHERE n IN (SELECT k FROM u)"),
];

/// Each is a transaction.
const CHANGES: &[&str] = &[
    "INSERT INTO t VALUES ('a', 1), ('a', 1), ('a ', 1), ('b', 2), (NULL, NULL), (NULL, NULL), ('', 3)",
    "INSERT INTO u VALUES (1, 'x'), (1, 'x'), (2, NULL), (3, 'x')",
    "INSERT INTO t VALUES ('a', 1), ('c', 2), ('c  ', 3)",
    "DELETE FROM t WHERE g = 'a' LIMIT 1",
    "UPDATE t SET n = 2 WHERE g = 'a'",
    "UPDATE t SET g = 'a' WHERE g = 'b' OR g IS NULL",
    "UPDATE u SET k = 1",
    "DELETE FROM u WHERE name IS NULL",
    "DELETE FROM t WHERE n IS NULL",
    "INSERT INTO t SELECT g, n FROM t",
    "DELETE FROM t",
    "INSERT INTO t VALUES ('a ', 1), (NULL, 1)",
    "DELETE FROM u",
    "INSERT INTO t VALUES ('a', 1)",
];

async fn sorted(conn: &mut Conn, query: &str) -> Vec<Vec<String>> {
    let mut rows = rows(conn, query).await;
    rows.sort();
    rows
}

/// What each view's query answers.
async fn answers(conn: &mut Conn) -> Vec<Vec<Vec<String>>> {
    let mut answers = Vec::new();
    for (_, _, query) in VIEWS {
        answers.push(sorted(conn, query).await);
    }
    answers
}

/// Reads all views in the session's mode and by its path.
async fn check(conn: &mut Conn, expected: &[Vec<Vec<String>>], at: &str) {
    for ((view, n_columns, query), expected) in VIEWS.iter().zip(expected) {
        let found = sorted(conn, &format!("SELECT * FROM {view}")).await;
        assert_eq!(found, *expected, "{view} ({query}), {at}");
        assert!(found.iter().all(|row| row.len() == *n_columns), "{view}, {at}: {found:?}");
    }
}

async fn read_by(conn: &mut Conn, mode: &str, path: &str) {
    conn.query_drop(format!("SET tidemill_read_mode = '{mode}', tidemill_read_path = '{path}'"))
        .await
        .unwrap();
}

async fn check_stored(conn: &mut Conn, expected: &[Vec<Vec<String>>], at: &str) {
    for ((view, ..), expected) in VIEWS.iter().zip(expected) {
        let differing = rows(conn, &format!("VERIFY MATERIALIZED VIEW {view}")).await;
        assert!(differing.is_empty(), "{view}, {at}: {differing:?}");
        let query = format!("SELECT `rows` FROM tidemill.views WHERE view_name = '{view}'");
        assert_eq!(rows(conn, &query).await, [[expected.len().to_string()]], "stored rows of {view}, {at}");
    }
}

/// The tables, and the views with these options in turn.
async fn create(conn: &mut Conn, options: &[&str]) {
    conn.query_drop("CREATE TABLE t (g VARCHAR(5), n INT)").await.unwrap();
    conn.query_drop("CREATE TABLE u (k INT NOT NULL, name VARCHAR(5))").await.unwrap();
    for ((view, _, query), options) in VIEWS.iter().zip(options.iter().cycle()) {
        conn.query_drop(format!("CREATE MATERIALIZED VIEW {view} {options} AS {query}")).await.unwrap();
    }
}

#[tokio::test]
async fn continuous_views_without_a_key_answer_in_every_mode() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    create(&mut conn, &[""]).await;
    for (index, change) in CHANGES.iter().enumerate() {
        conn.query_drop(*change).await.unwrap();
        let expected = answers(&mut conn).await;
        let modes: &[(&str, &str)] = match index % 2 {
            0 => &[("fresh", "hybrid"), ("live", "auto")],
            // Wait mode brings the checkpoint to where stale reads see it.
            _ => &[("fresh", "auto"), ("wait", "auto"), ("stale", "auto")],
        };
        for (mode, path) in modes {
            read_by(&mut conn, mode, path).await;
            check(&mut conn, &expected, &format!("{mode}, {path}, after {change}")).await;
        }
        read_by(&mut conn, "fresh", "auto").await;
        if index % 2 == 1 {
            check_stored(&mut conn, &expected, change).await;
        }
    }
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn refreshed_views_without_a_key_answer_at_their_cut_and_beyond() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    create(&mut conn, &["WITH (refresh = 'on demand')", "WITH (refresh = 'every 10 hours')"]).await;
    for (view, ..) in VIEWS {
        conn.query_drop(format!("REFRESH MATERIALIZED VIEW {view}")).await.unwrap();
    }
    let mut at_cut = answers(&mut conn).await;
    for (index, change) in CHANGES.iter().enumerate() {
        conn.query_drop(*change).await.unwrap();
        // Some refreshes take in several transactions.
        let kind = match index % 5 {
            0 | 3 => continue,
            4 => "FULL",
            _ => "INCREMENTAL",
        };
        let expected = answers(&mut conn).await;
        for (mode, path, expected) in [("fresh", "hybrid", &expected), ("stale", "auto", &at_cut)] {
            read_by(&mut conn, mode, path).await;
            check(&mut conn, expected, &format!("{mode}, {path}, after {change}")).await;
        }
        read_by(&mut conn, "fresh", "auto").await;
        for (view, ..) in VIEWS {
            conn.query_drop(format!("REFRESH MATERIALIZED VIEW {view} {kind}")).await.unwrap();
        }
        at_cut = expected;
        check_stored(&mut conn, &at_cut, &format!("{kind} after {change}")).await;
    }
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn own_writes_are_among_the_duplicates() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    create(&mut conn, &[""]).await;
    for change in &CHANGES[..3] {
        conn.query_drop(*change).await.unwrap();
    }
    let before = answers(&mut conn).await;
    conn.query_drop("BEGIN").await.unwrap();
    for change in CHANGES[3..].iter().filter(|change| !change.starts_with("DELETE FROM u")) {
        conn.query_drop(*change).await.unwrap();
        let expected = answers(&mut conn).await;
        check(&mut conn, &expected, &format!("in a transaction after {change}")).await;
    }
    conn.query_drop("ROLLBACK").await.unwrap();
    check(&mut conn, &before, "after the rollback").await;
    tidemill.shutdown().await.unwrap();
}
