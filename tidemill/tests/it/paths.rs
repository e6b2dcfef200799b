//! The table of docs/paths.md is what happens: each kind of change to each kind of view takes its path.

use std::fmt::Write;

use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use crate::support::{connect, open, rows};

/// Kinds of views, their queries, and whether Databend's views would maintain them.
const VIEWS: &[(&str, &str, bool)] = &[
    ("filter, projection", "SELECT id, g, a + 1 AS b FROM t WHERE a >= 0", true),
    ("rows without a key", "SELECT g, a FROM t", true),
    ("GROUP BY", "SELECT g, count(*) AS n, sum(a) AS s, min(a) AS lo FROM t GROUP BY g", true),
    ("one group", "SELECT count(*) AS n, avg(a) AS m, count(DISTINCT g) AS d FROM t", true),
    ("DISTINCT", "SELECT DISTINCT g FROM t", false),
    ("inner join", "SELECT t.id, u.x FROM t JOIN u ON t.g = u.g", false),
    ("left join", "SELECT t.id, u.x FROM t LEFT JOIN u ON t.g = u.g", false),
    ("subquery", "SELECT u.g, (SELECT count(*) FROM t WHERE t.g = u.g) AS n FROM u", false),
    ("UNION ALL", "SELECT id, a FROM t WHERE a < 5 UNION ALL SELECT g, x FROM u", false),
    ("view on a view", "SELECT s, count(*) AS n FROM below GROUP BY s", false),
];

/// Kinds of changes, and what to run for them.
const CHANGES: &[(&str, &[&str])] = &[
    ("nothing", &[]),
    ("insertions", &["INSERT INTO t VALUES (9001, 1, 1), (9002, 5, 2)"]),
    ("updates", &["UPDATE t SET a = a + 1, g = 3 WHERE id IN (7, 8)"]),
    ("deletions", &["DELETE FROM t WHERE id IN (7, 8)"]),
    (
        "more changes than rows",
        &[
            "UPDATE t SET a = a + 1",
            "UPDATE t SET a = a + 1",
            "UPDATE t SET a = a + 1",
            "UPDATE t SET g = g + 1",
        ],
    ),
];

/// The path that EXPLAIN names after `=`.
fn named(lines: &[Vec<String>]) -> String {
    let line = &lines[0][0];
    let (_, rest) = line.split_once('=').unwrap_or_else(|| panic!("no path in {line}"));
    rest.split(' ').next().unwrap().to_owned()
}

async fn refreshed(conn: &mut Conn, number: usize, query: &str) {
    let create = format!("CREATE MATERIALIZED VIEW v{number} WITH (refresh = 'on demand') AS {query}");
    conn.query_drop(create).await.unwrap();
    conn.query_drop(format!("REFRESH MATERIALIZED VIEW v{number}")).await.unwrap();
}

/// The cell of a view: how a fresh read is answered, and what a refresh does.
async fn cell(conn: &mut Conn, number: usize) -> String {
    let read = named(&rows(conn, &format!("EXPLAIN SELECT * FROM v{number}")).await);
    let plan = named(&rows(conn, &format!("EXPLAIN REFRESH MATERIALIZED VIEW v{number}")).await);
    let fresh = {
        let mut fresh = rows(conn, &format!("SELECT * FROM v{number}")).await;
        fresh.sort();
        fresh
    };
    conn.query_drop(format!("REFRESH MATERIALIZED VIEW v{number}")).await.unwrap();
    let last = format!("SELECT last_path FROM tidemill.refreshes WHERE view_name = 'v{number}'");
    assert_eq!(rows(conn, &last).await, [[plan.as_str()]], "what EXPLAIN REFRESH said");
    conn.query_drop("SET tidemill_read_mode = 'stale'").await.unwrap();
    let mut stored = rows(conn, &format!("SELECT * FROM v{number}")).await;
    stored.sort();
    assert_eq!(stored, fresh, "v{number}: refreshed, then fresh before");
    conn.query_drop("SET tidemill_read_mode = 'fresh'").await.unwrap();
    format!("{read}, {plan}")
}

fn others(change: &str, in_databend: bool) -> &'static str {
    match (change, in_databend) {
        ("nothing", _) => "rows, none",
        ("insertions", true) => "merged, incremental",
        _ => "recomputed",
    }
}

#[tokio::test]
async fn each_change_takes_the_path_that_the_docs_say() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    for statement in [
        "CREATE TABLE t (id INT PRIMARY KEY, g INT, a INT)",
        "CREATE TABLE u (g INT PRIMARY KEY, x INT)",
        "INSERT INTO u VALUES (0, 10), (1, 11), (2, 12), (3, 13), (4, 14)",
        "CREATE MATERIALIZED VIEW below AS SELECT g, sum(a) AS s FROM t GROUP BY g",
    ] {
        conn.query_drop(statement).await.unwrap();
    }
    let values: Vec<String> = (0..1_500).map(|id| format!("({id}, {}, {})", id % 5, id % 10)).collect();
    let fill = format!("INSERT INTO t VALUES {}", values.join(", "));
    let mut table = String::from(
        "| view | change | a fresh read, a refresh | TiFlink: a read | Databend: a read, a refresh |\n",
    );
    table.push_str("|---|---|---|---|---|\n");
    for (change, statements) in CHANGES {
        conn.query_drop("DELETE FROM t").await.unwrap();
        conn.query_drop(&fill).await.unwrap();
        for (number, (_, query, _)) in VIEWS.iter().enumerate() {
            refreshed(&mut conn, number, query).await;
        }
        for statement in *statements {
            conn.query_drop(*statement).await.unwrap();
        }
        for (number, (kind, _, in_databend)) in VIEWS.iter().enumerate() {
            let ours = cell(&mut conn, number).await;
            let theirs = others(change, *in_databend);
            writeln!(table, "| {kind} | {change} | {ours} | the last checkpoint | {theirs} |").unwrap();
            conn.query_drop(format!("DROP MATERIALIZED VIEW v{number}")).await.unwrap();
        }
    }
    let page = include_str!("../../../docs/paths.md");
    let (_, rest) = page.split_once("<!-- table -->\n").expect("the page has a table");
    let (written, _) = rest.split_once("<!-- end of table -->").expect("the table ends");
    assert!(written == table, "docs/paths.md should have this table:\n{table}");
    tidemill.shutdown().await.unwrap();
}
