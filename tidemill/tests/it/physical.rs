//! The physical schema: what is stored of a view, what its operators keep, and where columns come from.

use mysql_async::prelude::Queryable;

use crate::support::{code, connect, open, rows};

const COLUMNS: &str = "SELECT ordinal, column_name, column_type, nullable, role, origin, source, state \
                       FROM tidemill.view_columns WHERE view_schema = 'test' AND view_name = ";

async fn columns(conn: &mut mysql_async::Conn, view: &str) -> Vec<String> {
    let rows = rows(conn, &format!("{COLUMNS}'{view}' ORDER BY ordinal IS NULL, ordinal")).await;
    rows.into_iter().map(|row| row.join("|")).collect()
}

#[tokio::test]
async fn columns_say_where_they_come_from_and_what_is_kept_for_them() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    conn.query_drop("CREATE TABLE t (id INT PRIMARY KEY, g VARCHAR(10) NOT NULL, n INT, d DECIMAL(8,2))")
        .await
        .unwrap();
    conn.query_drop("CREATE TABLE u (k INT PRIMARY KEY, g VARCHAR(10), x INT)").await.unwrap();
    for (view, query, expected) in [
        (
            "by_g",
            "SELECT g, COUNT(*) AS c, AVG(d) AS average_amount, MAX(n) AS m, COUNT(DISTINCT n) AS k, \
             SUM(n) + 1 AS s FROM t GROUP BY g",
            vec![
                "1|g|varchar(10)|NO|key|group|test.t.g|NULL",
                "2|c|bigint|NO|value|aggregate|count(*)|0: count",
                "3|average_amount|decimal(12,6)|YES|value|aggregate|avg(test.t.d)|0: count and sum",
                "4|m|int|YES|value|aggregate|max(test.t.n)|0: present value; 1: values in order of (#2), and \
                 how often each came in",
                "5|k|bigint|NO|value|aggregate|count(distinct test.t.n)|0: count; 2: distinct values of (#2), \
                 and how often each came in",
                "6|s|decimal(33,0)|YES|value|aggregate|computed from sum(test.t.n)|0: count and sum",
            ],
        ),
        (
            "joined",
            "SELECT t.id, u.x, t.n * u.x AS p, 7 AS seven FROM t JOIN u ON t.id = u.k",
            vec![
                "1|id|int|NO|key|plain|test.t.id|NULL",
                "2|x|int|YES|value|plain|test.u.x|NULL",
                "3|p|bigint|YES|value|plain|computed from test.t.n, test.u.x|NULL",
                "4|seven|bigint|NO|value|constant||NULL",
            ],
        ),
        (
            "bag",
            "SELECT g, n FROM t UNION ALL SELECT g, x FROM u",
            vec![
                "1|g|varchar(10)|YES|value|plain|test.t.g, test.u.g|NULL",
                "2|n|int|YES|value|plain|test.t.n, test.u.x|NULL",
                "NULL|_tidb_rowid|bigint|NO|hidden identity|handle|vnode << 55 | counter|sink: for each row \
                 the handles under which it is stored",
            ],
        ),
        (
            "groups",
            "SELECT n FROM t GROUP BY n",
            vec![
                "1|n|int|YES|value|group|test.t.n|NULL",
                "NULL|_tidb_rowid|bigint|NO|hidden identity|handle|vnode << 55 | counter|sink: for each row \
                 the handles under which it is stored",
            ],
        ),
        (
            "over",
            "SELECT c, COUNT(*) AS groups_of_c FROM by_g GROUP BY c",
            vec![
                "1|c|bigint|NO|key|group|count(*)|NULL",
                "2|groups_of_c|bigint|NO|value|aggregate|count(*)|1: count",
            ],
        ),
    ] {
        conn.query_drop(format!("CREATE MATERIALIZED VIEW {view} AS {query}")).await.unwrap();
        assert_eq!(columns(&mut conn, view).await, expected, "{query}");
    }
    // The order of a query over the system table is that of any table.
    let hidden = "SELECT count(*) FROM tidemill.view_columns WHERE role = 'hidden identity'";
    assert_eq!(rows(&mut conn, hidden).await, [["2"]]);
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_physical_schema_is_shown_from_the_plan() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    conn.query_drop("CREATE TABLE t (id INT PRIMARY KEY, g INT NOT NULL, n INT, unread INT)").await.unwrap();
    conn.query_drop("INSERT INTO t VALUES (1, 1, 5, 0), (2, 1, 6, 0), (3, 2, NULL, 0)").await.unwrap();
    let create = "CREATE MATERIALIZED VIEW v CLUSTER BY (c) WITH (refresh = 'on demand') AS \
                  SELECT g, COUNT(*) AS c, MIN(n) AS least FROM t WHERE n > 1 OR n IS NULL GROUP BY g";
    conn.query_drop(create).await.unwrap();
    let show = "SHOW CREATE MATERIALIZED VIEW v PHYSICAL";
    let before = rows(&mut conn, show).await.concat().concat();
    assert!(before.contains("refreshed on demand, unfilled\n  no cut yet"), "{before}");
    conn.query_drop("REFRESH MATERIALIZED VIEW v").await.unwrap();
    let answer = rows(&mut conn, show).await;
    assert_eq!(answer[0][0], "v");
    let text = &answer[0][1];
    for expected in [
        "STORED TABLE `test`.`v` (id ",
        ", 2 rows)",
        "  `g` int NOT NULL -- key; group: test.t.g\n",
        "  `c` bigint NOT NULL -- key; aggregate: count(*), state 0: count\n",
        "  `least` int -- value; aggregate: min(test.t.n), state 0: present value; 1: values in order of (#1)",
        "  rows are stored in the order of `c`, `g`\n",
        "OPERATORS\n  #0 source test.t (`g`, `n`)\n  #1 filter ",
        " aggregate by [0] [count(), min(#1)] <- #1\n    state 0, map: for each group its rows; count(): count; \
         min(#1): present value\n    state 1, multiset: values in order of (#1), and how often each came in\n",
        "  state 2, multiset: rows that could not be evaluated\n",
        "BASE TABLES\n  test.t (`g`, `n`)\n",
        "refreshed on demand, ready\n  cut ",
        ", fingerprint ",
    ] {
        assert!(text.contains(expected), "{expected}\nis not in\n{text}");
    }
    assert!(!text.contains("unread") && !text.contains("_tidb_rowid"), "{text}");
    // Without a key the sink keeps the handles.
    conn.query_drop("CREATE MATERIALIZED VIEW b AS SELECT n FROM t").await.unwrap();
    let text = rows(&mut conn, "SHOW CREATE VIEW b PHYSICAL").await.concat().concat();
    for expected in [
        "  `_tidb_rowid` bigint NOT NULL -- hidden identity; handle: vnode << 55 | counter, state sink: ",
        "  rows are stored in the order of `_tidb_rowid`\n",
        "  state of the sink, map: for each row the handles under which it is stored\n",
        ", continuous, ready\n  cut ",
    ] {
        assert!(text.contains(expected), "{expected}\nis not in\n{text}");
    }
    // Nobody sees the handle.
    let first = "SELECT * FROM b ORDER BY n";
    assert_eq!(rows(&mut conn, first).await, [["NULL"], ["5"], ["6"]]);
    assert_eq!(code(conn.query_drop("SHOW CREATE MATERIALIZED VIEW t PHYSICAL").await), 1347);
    assert_eq!(code(conn.query_drop("SHOW CREATE MATERIALIZED VIEW x PHYSICAL").await), 1146);
    assert_eq!(code(conn.query_drop("SHOW CREATE TABLE t PHYSICAL").await), 1064);
    tidemill.shutdown().await.unwrap();
}
