//! INSERT, UPDATE, DELETE and transactions.

use sql::Literal;
use types::ErrorKind;

use crate::harness::{Harness, table};

async fn with_table(columns: &str) -> Harness {
    let mut harness = Harness::new(1).await;
    harness.run(&format!("CREATE TABLE t ({columns})")).await;
    harness
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_inserted_updated_and_deleted() {
    let mut h = with_table("id INT PRIMARY KEY, a INT NOT NULL DEFAULT 7, b VARCHAR(10)").await;
    let results =
        h.run("INSERT INTO t VALUES (1, 10, 'x'), (2, 20, NULL); INSERT INTO t (id) VALUES (3)").await;
    assert_eq!((results[0].affected_rows, results[1].affected_rows), (2, 1));
    assert_eq!(results[0].info, "Records: 2  Duplicates: 0  Warnings: 0");
    assert_eq!(h.rows("SELECT * FROM t ORDER BY id").await, table("1 10 x, 2 20 NULL, 3 7 NULL"));
    let results = h.run("UPDATE t SET a = a + 1, b = 'y' WHERE id >= 2").await;
    assert_eq!((results[0].matched_rows, results[0].affected_rows), (2, 2));
    let results = h.run("UPDATE t SET b = 'y' WHERE id = 2").await;
    assert_eq!((results[0].matched_rows, results[0].affected_rows), (1, 0));
    assert_eq!(h.rows("SELECT * FROM t ORDER BY id").await, table("1 10 x, 2 21 y, 3 8 y"));
    let results = h.run("DELETE FROM t WHERE a > 9; DELETE FROM t WHERE id = 99").await;
    assert_eq!((results[0].affected_rows, results[1].affected_rows), (2, 0));
    assert_eq!(h.rows("SELECT * FROM t").await, table("3 8 y"));
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_have_mysql_numbers() {
    let mut h = with_table("id TINYINT PRIMARY KEY, a INT NOT NULL, b VARCHAR(3), d DATE").await;
    h.run("INSERT INTO t VALUES (1, 1, 'a', '2020-01-01')").await;
    let cases = [
        ("INSERT INTO t VALUES (1, 1, 'a', NULL)", 1062),
        ("INSERT INTO t VALUES (2, 1, 'a', NULL), (2, 1, 'a', NULL)", 1062),
        ("UPDATE t SET a = NULL", 1048),
        ("INSERT INTO t VALUES (2, NULL, 'a', NULL)", 1048),
        ("INSERT INTO t VALUES (200, 1, 'a', NULL)", 1264),
        ("INSERT INTO t VALUES (2, 1, 'abcd', NULL)", 1406),
        ("INSERT INTO t VALUES (2, 'x', 'a', NULL)", 1366),
        ("INSERT INTO t VALUES (2, 1, 'a', '2020-13-01')", 1292),
        ("INSERT INTO t (id) VALUES (2)", 1364),
        ("INSERT INTO t (id, nope) VALUES (2, 1)", 1054),
        ("INSERT INTO t (id, id) VALUES (2, 1)", 1110),
        ("UPDATE t SET nope = 1", 1054),
        ("INSERT INTO nope VALUES (1)", 1146),
        ("INSERT INTO nope.t VALUES (1)", 1049),
        ("INSERT INTO t VALUES (1, 2)", 1136),
        ("INSERT INTO t (id, a) VALUES (2, 2), (3)", 1136),
        ("INSERT INTO t (id, a) SELECT id FROM t", 1136),
    ];
    for (text, code) in cases {
        assert_eq!(h.code(text).await, code, "{text}");
    }
    let error = h.change("INSERT INTO t VALUES (1, 1, 'a', NULL)", None).await.unwrap_err();
    assert_eq!(error.message(), "Duplicate entry '1' for key 't.PRIMARY'");
    assert_eq!(h.rows("SELECT * FROM t").await, table("1 1 a 2020-01-01"));
}

#[tokio::test(flavor = "multi_thread")]
async fn views_refuse_changes_by_name() {
    let mut h = with_table("id INT PRIMARY KEY, a INT").await;
    h.run("CREATE MATERIALIZED VIEW v AS SELECT id, a FROM t").await;
    for (text, code) in [
        ("INSERT INTO v VALUES (1, 1)", 1471),
        ("UPDATE v SET a = 1", 1288),
        ("DELETE FROM v WHERE id = 1", 1288),
    ] {
        let error = h.change(text, None).await.unwrap_err();
        assert_eq!(error.mysql_code(), Some(code), "{text}");
        assert!(error.message().contains("test.v"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_statement_undoes_only_itself() {
    let h = with_table("id INT PRIMARY KEY, a INT").await;
    let mut txn = h.engine.begin().await.unwrap();
    h.change("INSERT INTO t VALUES (1, 1)", Some(&mut txn)).await.unwrap();
    let error = h.change("INSERT INTO t VALUES (2, 2), (1, 3)", Some(&mut txn)).await.unwrap_err();
    assert_eq!(error.mysql_code(), Some(1062));
    let own = h.sorted(&h.settings, "SELECT * FROM t", Some(&txn)).await;
    assert_eq!(own, table("1 1"));
    assert!(h.rows("SELECT * FROM t").await.is_empty(), "uncommitted writes are seen by nobody else");
    h.engine.commit(txn).await.unwrap();
    assert_eq!(h.rows("SELECT * FROM t").await, table("1 1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn own_writes_are_seen_by_scans_points_and_changes() {
    let mut h = with_table("id INT PRIMARY KEY, a INT").await;
    h.run("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)").await;
    let mut txn = h.engine.begin().await.unwrap();
    for text in [
        "DELETE FROM t WHERE id = 2",
        "UPDATE t SET a = 30 WHERE a = 3",
        "INSERT INTO t VALUES (0, 0), (4, 4)",
        "DELETE FROM t WHERE id = 4",
        "UPDATE t SET id = id + 10 WHERE id = 0",
    ] {
        assert_eq!(h.change(text, Some(&mut txn)).await.unwrap().affected_rows.min(1), 1, "{text}");
    }
    assert_eq!(h.sorted(&h.settings, "SELECT * FROM t", Some(&txn)).await, table("1 1, 10 0, 3 30"));
    assert_eq!(h.sorted(&h.settings, "SELECT a FROM t WHERE id = 3", Some(&txn)).await, table("30"));
    assert!(h.sorted(&h.settings, "SELECT a FROM t WHERE id = 2", Some(&txn)).await.is_empty());
    let limited = "SELECT id FROM t WHERE id > 1 ORDER BY id LIMIT 1";
    assert_eq!(h.sorted(&h.settings, limited, Some(&txn)).await, table("3"));
    h.engine.commit(txn).await.unwrap();
    assert_eq!(h.rows("SELECT * FROM t ORDER BY id").await, table("1 1, 3 30, 10 0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_writers_of_a_row_conflict() {
    let mut h = with_table("id INT PRIMARY KEY, a INT").await;
    h.run("INSERT INTO t VALUES (1, 1)").await;
    let mut first = h.engine.begin().await.unwrap();
    let mut second = h.engine.begin().await.unwrap();
    h.change("UPDATE t SET a = a + 1 WHERE id = 1", Some(&mut first)).await.unwrap();
    h.change("UPDATE t SET a = a + 1 WHERE id = 1", Some(&mut second)).await.unwrap();
    h.engine.commit(first).await.unwrap();
    let error = h.engine.commit(second).await.unwrap_err();
    assert_eq!((error.kind(), error.mysql_code()), (ErrorKind::Conflict, Some(9007)));
    assert_eq!(h.rows("SELECT a FROM t").await, table("2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn autocommit_counters_lose_nothing() {
    let mut h = with_table("id INT PRIMARY KEY, a INT").await;
    h.run("INSERT INTO t VALUES (1, 0)").await;
    let increments = (0..8).map(|_| h.change("UPDATE t SET a = a + 1 WHERE id = 1", None));
    let results = futures::future::join_all(increments).await;
    let n_done = results.iter().filter(|result| result.is_ok()).count();
    for error in results.into_iter().filter_map(Result::err) {
        assert_eq!(error.mysql_code(), Some(9007));
    }
    assert_eq!(h.rows("SELECT a FROM t").await, vec![vec![n_done.to_string()]]);
    assert!(n_done > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn assignments_see_earlier_ones() {
    let mut h = with_table("id INT PRIMARY KEY, a INT, b INT").await;
    h.run("INSERT INTO t VALUES (1, 1, 1); UPDATE t SET a = a + 10, b = a, a = a * 2").await;
    assert_eq!(h.rows("SELECT * FROM t").await, table("1 22 11"));
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_move_row_by_row() {
    let mut h = with_table("id INT PRIMARY KEY").await;
    h.run("INSERT INTO t VALUES (1), (2), (3)").await;
    assert_eq!(h.code("UPDATE t SET id = id + 1").await, 1062);
    h.run("UPDATE t SET id = id + 1 ORDER BY id DESC").await;
    assert_eq!(h.rows("SELECT id FROM t ORDER BY id").await, table("2, 3, 4"));
    h.run("DELETE FROM t ORDER BY id DESC LIMIT 2").await;
    assert_eq!(h.rows("SELECT id FROM t").await, table("2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_without_a_key_keep_duplicates_apart() {
    let mut h = with_table("a INT, b VARCHAR(5)").await;
    h.run("INSERT INTO t VALUES (1, 'x'), (1, 'x'), (2, NULL); INSERT INTO t SELECT * FROM t").await;
    assert_eq!(h.rows("SELECT count(*) FROM t").await, table("6"));
    h.run("DELETE FROM t WHERE a = 1 LIMIT 3; UPDATE t SET b = 'z' WHERE a = 2 LIMIT 1").await;
    assert_eq!(h.rows("SELECT a, b FROM t ORDER BY a, b").await, table("1 x, 2 NULL, 2 z"));
}

#[tokio::test(flavor = "multi_thread")]
async fn replace_and_ignore_count_as_in_mysql() {
    let mut h = with_table("id INT PRIMARY KEY, a INT").await;
    h.run("INSERT INTO t VALUES (1, 1)").await;
    let results =
        h.run("REPLACE INTO t VALUES (1, 2), (2, 2); INSERT IGNORE INTO t VALUES (2, 9), (3, 3)").await;
    assert_eq!((results[0].affected_rows, results[1].affected_rows), (3, 1));
    assert_eq!(h.rows("SELECT * FROM t ORDER BY id").await, table("1 2, 2 2, 3 3"));
}

#[tokio::test(flavor = "multi_thread")]
async fn values_may_be_expressions_defaults_and_subqueries() {
    let mut h = with_table("id INT PRIMARY KEY, a INT DEFAULT 5, b VARCHAR(20)").await;
    h.run("INSERT INTO t VALUES (1 + 1, DEFAULT, concat('a', 'b')), (3, -(2 * 3), 1.50)").await;
    h.run("INSERT INTO t (id, a) VALUES ((SELECT max(id) FROM t) + 1, (SELECT count(*) FROM t))").await;
    assert_eq!(h.rows("SELECT * FROM t ORDER BY id").await, table("2 5 ab, 3 -6 1.50, 4 2 NULL"));
    h.run("UPDATE t SET a = (SELECT min(id) FROM t), b = DEFAULT WHERE id IN (SELECT id FROM t WHERE a < 3)")
        .await;
    assert_eq!(h.rows("SELECT * FROM t ORDER BY id").await, table("2 5 ab, 3 2 NULL, 4 2 NULL"));
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_compare_by_their_collation() {
    let mut h = with_table("k VARCHAR(10) PRIMARY KEY, c CHAR(5), n BINARY(3)").await;
    h.run("INSERT INTO t VALUES ('a ', 'x ', 'z')").await;
    assert_eq!(h.code("INSERT INTO t VALUES ('a', '', '')").await, 1062);
    for text in ["SELECT length(k) FROM t WHERE k = 'a'", "SELECT length(k) FROM t WHERE 'a  ' = k AND 1 = 1"]
    {
        assert_eq!(h.rows(text).await, table("2"), "{text}");
    }
    assert_eq!(h.rows("SELECT length(c), length(n) FROM t WHERE k = 'a'").await, table("1 3"));
    h.run("UPDATE t SET k = 'a' WHERE k = 'a'").await;
    assert_eq!(h.rows("SELECT length(k) FROM t").await, table("1"));
    h.run("DELETE FROM t WHERE k = 'a    '").await;
    assert!(h.rows("SELECT * FROM t").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_take_their_places() {
    let h = with_table("id INT PRIMARY KEY, a VARCHAR(10), b DOUBLE").await;
    let values = [Literal::Int(-1), Literal::String("it's".to_owned()), Literal::Double(0.5)];
    h.change_with("INSERT INTO t VALUES (?, ?, ?)", None, &values).await.unwrap();
    let by_key = h.query(&h.settings, "SELECT a, b FROM t WHERE id = ?", None, &values[..1]).await.unwrap();
    assert_eq!(crate::harness::rows_of(by_key).await.unwrap(), table("it's 0.5"));
    let error = h.query(&h.settings, "SELECT ?", None, &[]).await.unwrap_err();
    assert_eq!(error.mysql_code(), Some(1210));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_came_and_went_leaves_no_trace() {
    let h = with_table("id INT PRIMARY KEY").await;
    let mut txn = h.engine.begin().await.unwrap();
    h.change("INSERT INTO t VALUES (1)", Some(&mut txn)).await.unwrap();
    h.change("DELETE FROM t WHERE id = 1", Some(&mut txn)).await.unwrap();
    assert!(txn.is_read_only());
}

/// The rows would be nobody's: the sweep of the table may be over.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_after_drop_table_leaves_nothing() {
    for swept in [false, true] {
        for columns in ["id INT PRIMARY KEY", "id INT"] {
            let h = with_table(columns).await;
            h.change("INSERT INTO t VALUES (1)", None).await.unwrap();
            let mut txn = h.engine.begin().await.unwrap();
            h.change("INSERT INTO t VALUES (2)", Some(&mut txn)).await.unwrap();
            // Begins before and touches the table only after.
            let mut late = h.engine.begin().await.unwrap();
            let range = h.drop_table("t", swept).await;
            let error = h.engine.commit(txn).await.unwrap_err();
            assert_eq!((error.kind(), error.mysql_code()), (ErrorKind::Conflict, Some(8028)), "{error}");
            h.change("INSERT INTO t VALUES (3)", Some(&mut late)).await.unwrap();
            let error = h.engine.commit(late).await.unwrap_err();
            assert_eq!(error.mysql_code(), Some(8028), "{error}");
            // A statement of its own begins anew, and finds no table.
            assert_eq!(h.code("INSERT INTO t VALUES (4)").await, 1146);
            let left = h.keys(&range).await;
            assert_eq!(left.len(), usize::from(!swept), "{columns}: {left:?}");
        }
    }
}

/// MySQL's default SQL mode makes a division by zero an error where data changes, and only there.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_divides_by_zero_is_refused() {
    let mut h = Harness::new(1).await;
    h.run("CREATE TABLE t (id INT PRIMARY KEY, v INT, f DOUBLE); INSERT INTO t VALUES (1, 0, 0), (2, 5, 1)")
        .await;
    for text in [
        "INSERT INTO t VALUES (3, 1/0, 0)",
        "INSERT INTO t VALUES (3, 1 % 0, 0), (4, 1, 1)",
        "INSERT INTO t VALUES (3, 1 DIV 0, 0)",
        "INSERT INTO t VALUES (3, 0, 1e0/0)",
        "INSERT INTO t (id, v) SELECT id + 10, 1/v FROM t",
        "REPLACE INTO t VALUES (1, 5/0.0, 0)",
        "UPDATE t SET v = v/0",
        "UPDATE t SET f = MOD(f, 0)",
        "UPDATE t SET v = 1 WHERE 1/v > 0",
        "DELETE FROM t WHERE 10 DIV v = 2",
        "INSERT INTO t VALUES (1, 1, 1) ON DUPLICATE KEY UPDATE v = v/0",
        "INSERT INTO t VALUES (3, (SELECT MAX(v)/0 FROM t), 1)",
    ] {
        assert_eq!(h.code(text).await, 1365, "{text}");
    }
    assert_eq!(h.rows("SELECT id, v, 1/v FROM t ORDER BY id").await, table("1 0 NULL, 2 5 0.2000"));
    // NULL where the SQL mode or IGNORE says so.
    h.change("INSERT IGNORE INTO t VALUES (3, 1/0, 0)", None).await.unwrap();
    h.settings.sql_mode = "STRICT_TRANS_TABLES".to_owned();
    h.change("INSERT INTO t VALUES (4, 1/0, 0)", None).await.unwrap();
    h.settings.sql_mode = "ERROR_FOR_DIVISION_BY_ZERO".to_owned();
    h.change("UPDATE t SET v = v/0 WHERE id = 2", None).await.unwrap();
    let expected = table("1 0 NULL, 2 NULL NULL, 3 NULL NULL, 4 NULL NULL");
    assert_eq!(h.rows("SELECT id, v, 1/v FROM t ORDER BY id").await, expected);
    h.settings.sql_mode = sql::DEFAULT_SQL_MODE.to_owned();
    h.change("UPDATE t SET v = IF(v = 0, NULL, 10/v) WHERE id = 1", None).await.unwrap();
}

/// What is stored has all digits of a quotient that its column has room for.
#[tokio::test(flavor = "multi_thread")]
async fn a_stored_quotient_has_its_columns_digits() {
    let mut h = Harness::new(1).await;
    h.run(
        "CREATE TABLE t (id INT PRIMARY KEY, d DECIMAL(20,8), f DOUBLE); INSERT INTO t VALUES (1, 1/3, 1/3)",
    )
    .await;
    h.run("INSERT INTO t VALUES (2, 7, 1); UPDATE t SET d = d/9 WHERE id = 2").await;
    let expected = table("1 0.33333333 0.333333333, 2 0.77777778 1.0");
    assert_eq!(h.rows("SELECT id, d, f FROM t ORDER BY id").await, expected);
}
