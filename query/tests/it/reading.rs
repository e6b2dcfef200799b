//! Reads of tables: points, ranges, times.

use query::ReadSettings;
use types::Timestamp;

use crate::harness::{Harness, rows_of, table};

async fn numbers() -> Harness {
    let mut h = Harness::new(1).await;
    h.run("CREATE TABLE t (id BIGINT UNSIGNED PRIMARY KEY, a INT)").await;
    let rows: Vec<String> = (0..1000).map(|id| format!("({id}, {})", id % 10)).collect();
    h.run(&format!("INSERT INTO t VALUES {}, (18446744073709551615, 1)", rows.join(", "))).await;
    h
}

#[tokio::test(flavor = "multi_thread")]
async fn points_and_scans_agree() {
    let h = numbers().await;
    for (condition, expected) in [
        ("id = 7", "7 7"),
        ("7 = id", "7 7"),
        ("id = 18446744073709551615", "18446744073709551615 1"),
        ("(id = 999)", "999 9"),
        ("id = 7 AND a = 7", "7 7"),
        ("id = '7'", "7 7"),
        ("id = 7.0", "7 7"),
    ] {
        let text = format!("SELECT id, a FROM t WHERE {condition}");
        assert_eq!(h.rows(&text).await, table(expected), "{text}");
    }
    for condition in ["id = -1", "id = 1000", "id = 18446744073709551616", "id = 7.5", "id = NULL"] {
        let text = format!("SELECT id, a FROM t WHERE {condition}");
        assert!(h.rows(&text).await.is_empty(), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_narrow_scans_and_change_nothing() {
    let h = numbers().await;
    for (condition, count) in [
        ("id < 10", 10),
        ("id <= 10", 11),
        ("id > 990", 10),
        ("id >= 990 AND id < 995", 5),
        ("id BETWEEN 5 AND 7", 3),
        ("id IN (1, 5, 5, 2000, 999)", 3),
        ("id IN (1, 5) OR id = 9", 3),
        ("id > 100 AND a = 3", 90),
        ("NOT id < 999", 2),
        ("id < 10 AND id > 20", 0),
    ] {
        let text = format!("SELECT count(*) FROM t WHERE {condition}");
        assert_eq!(h.rows(&text).await, vec![vec![count.to_string()]], "{text}");
    }
    assert_eq!(h.rows("SELECT id FROM t WHERE a = 9 ORDER BY id DESC LIMIT 2").await, table("999, 989"));
    assert_eq!(h.rows("SELECT count(*) FROM (SELECT * FROM t LIMIT 300) s").await, table("300"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_past_is_read_as_it_was() {
    let mut h = Harness::new(1).await;
    h.run("CREATE TABLE t (id INT PRIMARY KEY, a INT); INSERT INTO t VALUES (1, 1)").await;
    let then = h.store.read_timestamp().await.unwrap();
    h.run("UPDATE t SET a = 2; INSERT INTO t VALUES (2, 2); CREATE TABLE u (id INT PRIMARY KEY)").await;
    let past = ReadSettings { snapshot: Some(then), ..h.settings.clone() };
    assert_eq!(h.sorted(&past, "SELECT * FROM t", None).await, table("1 1"));
    assert_eq!(h.sorted(&past, "SELECT a FROM t WHERE id = 1", None).await, table("1"));
    let error = h.query(&past, "SELECT * FROM u", None, &[]).await.unwrap_err();
    assert_eq!(error.mysql_code(), Some(1146), "the catalog is read at T too");
    let future = ReadSettings { snapshot: Some(Timestamp(u64::MAX - 1)), ..h.settings.clone() };
    assert!(h.query(&future, "SELECT * FROM t", None, &[]).await.is_err());
    let mut settings = h.settings.clone();
    settings.snapshot = Some(then);
    let parsed = sql::parse("INSERT INTO t VALUES (3, 3)", &sql::Settings::default()).unwrap().remove(0);
    let sql::Statement::Insert(insert) = parsed.statement else { panic!() };
    let statement = sql::ast::Statement::Insert(*insert);
    let interrupt = tokio_util::sync::CancellationToken::new();
    let written = h.engine.execute(&settings, &statement, None, &[], &interrupt).await;
    assert!(written.is_err(), "the past is not written");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_names_have_their_numbers() {
    let h = numbers().await;
    for (text, code) in [
        ("SELECT * FROM nope", 1146),
        ("SELECT * FROM nope.t", 1049),
        ("SELECT nope FROM t", 1054),
        ("SELECT nope FROM t WHERE id = 1", 1054),
    ] {
        let error = h.query(&h.settings, text, None, &[]).await.unwrap_err();
        assert_eq!(error.mysql_code(), Some(code), "{text}: {error}");
    }
}

/// What is read stays readable until the reader ends, however far the barrier wants to go.
#[tokio::test(flavor = "multi_thread")]
async fn readers_and_transactions_keep_their_snapshots() {
    let mut h = Harness::new(1).await;
    h.run("CREATE TABLE t (id INT PRIMARY KEY, a INT); INSERT INTO t VALUES (1, 10), (2, 20)").await;
    h.run("CREATE MATERIALIZED VIEW v AS SELECT sum(a) AS s FROM t").await;
    let collect = async || {
        let now = h.store.read_timestamp().await.unwrap();
        h.store.collect_garbage(now).await.unwrap() == now
    };
    let streaming = h.query(&h.settings, "SELECT id, a FROM t ORDER BY id", None, &[]).await.unwrap();
    let mut txn = h.engine.begin().await.unwrap();
    h.change("UPDATE t SET a = a + 1", None).await.unwrap();
    assert!(!collect().await, "two readers are behind");
    assert_eq!(rows_of(streaming).await.unwrap(), table("1 10, 2 20"));
    assert!(!collect().await, "a transaction is behind");
    assert_eq!(h.sorted(&h.settings, "SELECT s FROM v", Some(&txn)).await, table("30"));
    h.change("INSERT INTO t VALUES (3, 30)", Some(&mut txn)).await.unwrap();
    h.engine.commit(txn).await.unwrap();
    assert!(collect().await, "nobody is behind");
    assert_eq!(h.rows("SELECT s FROM v").await, table("62"));
}

/// The session that runs queries moves no condition to the other side of an outer join.
#[tokio::test(flavor = "multi_thread")]
async fn a_condition_stays_with_its_side_of_an_outer_join() {
    let mut h = Harness::new(1).await;
    for name in ["p", "q"] {
        h.run(&format!("CREATE TABLE {name} (id INT PRIMARY KEY, s VARCHAR(5), i INT)")).await;
    }
    h.run("INSERT INTO p VALUES (1, 'z', 9); INSERT INTO q VALUES (1, 'a', 1), (2, 'b', 2)").await;
    let query = "SELECT q.id FROM p RIGHT JOIN q ON p.s = q.s WHERE p.id IS NULL AND q.i > 0";
    h.run(&format!("CREATE MATERIALIZED VIEW v AS {query}")).await;
    assert_eq!(h.sorted(&h.settings, query, None).await, table("1, 2"));
    assert!(rows_of(h.engine.verify(&h.settings, "test", "v").await.unwrap()).await.unwrap().is_empty());
}
