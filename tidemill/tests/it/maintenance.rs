//! OPTIMIZE, CLUSTER BY and RECLUSTER over the protocol: what they answer, and what the system table shows.

use mysql_async::prelude::Queryable;

use crate::support::{code, connect, open, rows};

/// The answer of OPTIMIZE for a table that went well; `more` is said of space.
fn done(table: &str, more: &str) -> [[String; 4]; 2] {
    let note = &format!("runs merged, versions nobody may read dropped{more}");
    [[table, "optimize", "note", note], [table, "optimize", "status", "OK"]]
        .map(|row| row.map(|cell| cell.to_owned()))
}

#[tokio::test]
async fn a_view_is_maintained_and_answers_the_same() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    conn.query_drop("CREATE TABLE t (id INT PRIMARY KEY, g INT NOT NULL, v INT)").await.unwrap();
    conn.query_drop("INSERT INTO t VALUES (1, 1, 10), (2, 1, 20), (3, 2, 5)").await.unwrap();
    conn.query_drop("CREATE MATERIALIZED VIEW c AS SELECT id, g FROM t").await.unwrap();
    conn.query_drop("CREATE MATERIALIZED VIEW s AS SELECT g, count(*) AS n FROM t GROUP BY g").await.unwrap();
    let answer = rows(&mut conn, "OPTIMIZE TABLE s, t COMPACT").await;
    // The store is in memory.
    let by_itself = "; the store reclaims space by itself";
    assert_eq!(answer, [done("test.s", by_itself), done("test.t", by_itself)].concat());
    let answer = rows(&mut conn, "OPTIMIZE TABLE nope, t").await;
    assert_eq!(answer[0][2..], ["Error", "Table 'test.nope' doesn't exist"]);
    assert_eq!(answer[1][2..], ["status", "Operation failed"]);
    assert_eq!(answer[2..], done("test.t", ""));
    let refused = conn.query_drop("ALTER MATERIALIZED VIEW c RECLUSTER").await.unwrap_err().to_string();
    assert!(refused.contains("no cluster key"), "{refused}");
    conn.query_drop("ALTER MATERIALIZED VIEW c CLUSTER BY (g)").await.unwrap();
    let create = rows(&mut conn, "SHOW CREATE MATERIALIZED VIEW c").await;
    assert!(create[0][1].contains("CLUSTER BY (`g`)"), "{create:?}");
    conn.query_drop("ALTER MATERIALIZED VIEW c RECLUSTER FINAL").await.unwrap();
    assert_eq!(code(conn.query_drop("ALTER MATERIALIZED VIEW t RECLUSTER").await), 1347);
    assert_eq!(code(conn.query_drop("ALTER MATERIALIZED VIEW c CLUSTER BY (v)").await), 1072);
    for mode in ["wait", "stale", "live", "fresh"] {
        conn.query_drop(format!("SET tidemill_read_mode = '{mode}'")).await.unwrap();
        let groups = rows(&mut conn, "SELECT g, n FROM s ORDER BY g").await;
        assert_eq!(groups, [["1", "2"], ["2", "1"]], "{mode}");
        let copy = rows(&mut conn, "SELECT id, g FROM c ORDER BY id").await;
        assert_eq!(copy, [["1", "1"], ["2", "1"], ["3", "2"]], "{mode}");
    }
    let verified = rows(&mut conn, "VERIFY MATERIALIZED VIEW c").await;
    assert_eq!(verified, Vec::<Vec<String>>::new());
    let tasks =
        "SELECT view_name, kind, state, automatic, progress, error FROM tidemill.maintenance ORDER BY task";
    let expected =
        [("s", "compact"), ("t", "compact"), ("t", "compact"), ("c", "cluster"), ("c", "recluster")];
    let expected =
        expected.map(|(name, kind)| [name, kind, "done", "no", "100", "NULL"].map(str::to_owned).to_vec());
    assert_eq!(rows(&mut conn, tasks).await, expected);
    conn.query_drop("SET tidemill_background_ddl = 'on'").await.unwrap();
    let answer = rows(&mut conn, "OPTIMIZE TABLE s").await;
    assert!(answer[0][3].contains("in the background"), "{answer:?}");
    conn.query_drop("SET TRANSACTION READ ONLY").await.unwrap();
    assert_eq!(code(conn.query_drop("OPTIMIZE TABLE s").await), 1792);
    tidemill.shutdown().await.unwrap();
}
