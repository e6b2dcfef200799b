//! Looking around, and what a session remembers.

use mysql_async::prelude::Queryable;

use crate::support::{code, connect, open, rows};

#[tokio::test]
async fn what_shells_ask_at_connect_is_answered() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    let version = rows(&mut conn, "select @@version, @@version_comment limit 1").await;
    assert!(version[0][0].starts_with("8.0.11-Tidemill-"), "{version:?}");
    assert_eq!(rows(&mut conn, "SELECT DATABASE(), USER()").await, [["test", "root@localhost"]]);
    for statement in [
        "SET NAMES utf8mb4",
        "SET NAMES utf8 COLLATE utf8_general_ci",
        "SET character_set_results = NULL",
        "SET SESSION sql_mode = 'STRICT_TRANS_TABLES'",
        "SET autocommit = 1, @@session.wait_timeout = 100",
        "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        "SET @a = 1, @b = 'x'",
        "SELECT @@session.auto_increment_increment, @@character_set_client, @@max_allowed_packet, @@tx_isolation",
        "SHOW DATABASES",
        "SHOW ENGINES",
        "SHOW COLLATION",
        "SHOW CHARACTER SET",
        "SHOW VARIABLES LIKE 'lower_case_%'",
        "SHOW STATUS LIKE 'Ssl_cipher'",
        "SHOW GRANTS",
        "SHOW PLUGINS",
        "SHOW TABLE STATUS",
        "SHOW FULL TABLES",
        "SHOW TRIGGERS",
        "SHOW WARNINGS",
        "SHOW PROCESSLIST",
    ] {
        conn.query_drop(statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn definitions_are_shown() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    conn.query_drop("CREATE TABLE t (id BIGINT UNSIGNED NOT NULL, s VARCHAR(10) DEFAULT 'x', d DECIMAL(8,2), PRIMARY KEY (id))")
        .await
        .unwrap();
    conn.query_drop("CREATE MATERIALIZED VIEW v AS SELECT s, count(*) AS n FROM t GROUP BY s").await.unwrap();
    assert_eq!(rows(&mut conn, "SHOW TABLES").await, [["t"], ["v"]]);
    assert_eq!(rows(&mut conn, "SHOW FULL TABLES WHERE Table_type = 'VIEW'").await, [["v", "VIEW"]]);
    let described = rows(&mut conn, "DESCRIBE t").await;
    assert_eq!(described[0], ["id", "bigint unsigned", "NO", "PRI", "NULL", ""]);
    assert_eq!(described[1], ["s", "varchar(10)", "YES", "", "x", ""]);
    assert_eq!(rows(&mut conn, "SHOW COLUMNS FROM t LIKE 'd'").await[0][1], "decimal(8,2)");
    assert_eq!(rows(&mut conn, "SHOW INDEX FROM t").await[0][2..5], ["PRIMARY", "1", "id"]);
    let created = rows(&mut conn, "SHOW CREATE TABLE t").await[0][1].clone();
    conn.query_drop("CREATE DATABASE other").await.unwrap();
    conn.query_drop("USE other").await.unwrap();
    conn.query_drop(&created).await.unwrap_or_else(|error| panic!("{created}: {error}"));
    assert_eq!(rows(&mut conn, "SHOW CREATE TABLE t").await[0][1], created);
    let view = rows(&mut conn, "SHOW CREATE MATERIALIZED VIEW test.v").await[0][1].clone();
    assert!(view.starts_with("CREATE MATERIALIZED VIEW `v` AS SELECT"), "{view}");
    let views = rows(&mut conn, "SHOW MATERIALIZED VIEWS FROM test").await;
    assert_eq!(views[0][1..3], ["v", "ready"]);
    let columns = "SELECT column_name, data_type, column_key FROM information_schema.columns \
                   WHERE table_schema = 'test' AND table_name = 't' ORDER BY ordinal_position";
    assert_eq!(rows(&mut conn, columns).await[0], ["id", "bigint", "PRI"]);
    let tables =
        "SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = 'test' ORDER BY 1";
    assert_eq!(rows(&mut conn, tables).await, [["t", "BASE TABLE"], ["v", "VIEW"]]);
    conn.query_drop("DROP DATABASE other").await.unwrap();
    assert!(rows(&mut conn, "SHOW DATABASES LIKE 'oth%'").await.is_empty());
    assert_eq!(code(conn.query_drop("SHOW TABLES").await), 1046);
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn variables_keep_what_they_are_set_to() {
    let (tidemill, address) = open(|_| {}).await;
    let (mut one, mut two) = (connect(address).await, connect(address).await);
    one.query_drop("SET time_zone = '+02:00', tidemill_read_mode = 'stale', @x = 1 + 1").await.unwrap();
    let query = "SELECT @@time_zone, @@tidemill_read_mode, @x";
    assert_eq!(rows(&mut one, query).await, [["+02:00", "stale", "2"]]);
    assert_eq!(rows(&mut two, query).await, [["SYSTEM", "fresh", "NULL"]]);
    one.query_drop("SET GLOBAL time_zone = '+05:00'").await.unwrap();
    assert_eq!(rows(&mut two, "SELECT @@time_zone").await, [["SYSTEM"]]);
    let mut three = connect(address).await;
    assert_eq!(rows(&mut three, "SELECT @@time_zone").await, [["+05:00"]]);
    assert_eq!(
        rows(&mut three, "SHOW VARIABLES WHERE Variable_name = 'time_zone'").await,
        [["time_zone", "+05:00"]]
    );
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn timestamps_follow_the_sessions_zone() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    conn.query_drop("CREATE TABLE t (id INT PRIMARY KEY, ts TIMESTAMP, dt DATETIME)").await.unwrap();
    conn.query_drop("SET time_zone = '+02:00'").await.unwrap();
    conn.query_drop("INSERT INTO t VALUES (1, '2024-07-01 12:00:00', '2024-07-01 12:00:00')").await.unwrap();
    assert_eq!(
        rows(&mut conn, "SELECT ts, dt FROM t").await,
        [["2024-07-01 12:00:00", "2024-07-01 12:00:00"]]
    );
    conn.query_drop("SET time_zone = 'America/New_York'").await.unwrap();
    assert_eq!(
        rows(&mut conn, "SELECT ts, dt FROM t").await,
        [["2024-07-01 06:00:00", "2024-07-01 12:00:00"]]
    );
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_past_can_be_read_and_not_written() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    conn.query_drop("CREATE TABLE t (id INT PRIMARY KEY, v INT)").await.unwrap();
    conn.query_drop("INSERT INTO t VALUES (1, 1)").await.unwrap();
    assert_eq!(rows(&mut conn, "SELECT v FROM t").await, [["1"]]);
    let then = rows(&mut conn, "SELECT @@tidemill_last_read_ts").await[0][0].clone();
    conn.query_drop("UPDATE t SET v = 2").await.unwrap();
    conn.query_drop("CREATE TABLE later (id INT)").await.unwrap();
    let as_of = format!("SELECT v FROM t AS OF TIMESTAMP {then}");
    assert_eq!(rows(&mut conn, &as_of).await, [["1"]]);
    assert_eq!(rows(&mut conn, "SELECT v FROM t").await, [["2"]]);
    conn.query_drop(format!("SET tidemill_snapshot = {then}")).await.unwrap();
    assert_eq!(rows(&mut conn, "SELECT v FROM t").await, [["1"]]);
    assert_eq!(code(conn.query_drop("SELECT * FROM later").await), 1146, "the catalog is read then, too");
    assert_eq!(code(conn.query_drop("UPDATE t SET v = 3").await), 1105);
    assert_eq!(code(conn.query_drop("CREATE TABLE x (id INT)").await), 1105);
    assert_eq!(code(conn.query_drop("BEGIN").await), 1105);
    conn.query_drop("SET tidemill_snapshot = ''").await.unwrap();
    assert_eq!(rows(&mut conn, "SELECT v FROM t").await, [["2"]]);
    for (value, number) in [("'yesterday'", 1292), ("18446744073709551615", 1105), ("1.5", 1292)] {
        let set = format!("SET tidemill_snapshot = {value}");
        assert_eq!(code(conn.query_drop(&set).await), number, "{set}");
    }
    // Nothing was there then, not even the database.
    conn.query_drop("SET tidemill_snapshot = '1999-01-01'").await.unwrap();
    assert_eq!(code(conn.query_drop("SELECT v FROM t").await), 1049);
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_read_of_the_sessions_own_commit_sees_it_in_every_mode_but_stale() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    conn.query_drop("CREATE TABLE t (id INT PRIMARY KEY)").await.unwrap();
    conn.query_drop("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM t").await.unwrap();
    for (at, mode) in ["fresh", "wait", "live"].into_iter().enumerate() {
        conn.query_drop(format!("SET tidemill_read_mode = '{mode}'")).await.unwrap();
        conn.query_drop(format!("INSERT INTO t VALUES ({at})")).await.unwrap();
        assert_eq!(rows(&mut conn, "SELECT n FROM v").await, [[(at + 1).to_string()]], "{mode}");
    }
    let explained = rows(&mut conn, "EXPLAIN SELECT n FROM v").await;
    let lines: Vec<String> = explained.into_iter().map(|row| row.join(" ")).collect();
    assert!(lines.iter().any(|line| line.contains("ReadPath: test.v=Live cut=")), "{lines:?}");
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn like_looks_at_the_names_of_views() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    conn.query_drop("CREATE TABLE t (id INT PRIMARY KEY)").await.unwrap();
    for name in ["by_day", "by_hour", "test_all"] {
        let create = format!("CREATE MATERIALIZED VIEW {name} AS SELECT id FROM t");
        conn.query_drop(create).await.unwrap();
    }
    for (statement, expected) in [
        ("SHOW MATERIALIZED VIEWS LIKE 'by%'", &["by_day", "by_hour"][..]),
        ("SHOW MATERIALIZED VIEWS LIKE 'test'", &[]),
        ("SHOW MATERIALIZED VIEWS LIKE 'test%'", &["test_all"]),
        ("SHOW MATERIALIZED VIEWS WHERE View = 'by_day'", &["by_day"]),
    ] {
        let found: Vec<String> =
            rows(&mut conn, statement).await.into_iter().map(|row| row[1].clone()).collect();
        assert_eq!(found, expected, "{statement}");
    }
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_table_that_is_not_there_is_missed_in_a_database_that_is() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    for database in ["tidemill", "TIDEMILL", "information_schema", "test"] {
        for statement in ["SELECT * FROM {}.nope", "DESCRIBE {}.nope", "SHOW INDEX FROM {}.nope"] {
            let statement = statement.replace("{}", database);
            assert_eq!(code(conn.query_drop(&statement).await), 1146, "{statement}");
        }
    }
    conn.query_drop("USE tidemill").await.unwrap();
    assert_eq!(code(conn.query_drop("SELECT * FROM nope").await), 1146);
    for statement in ["SELECT * FROM nowhere.t", "DESCRIBE nowhere.t", "INSERT INTO nowhere.t VALUES (1)"] {
        assert_eq!(code(conn.query_drop(statement).await), 1049, "{statement}");
    }
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_number_out_of_range_is_moved_with_a_warning() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    conn.query_drop("SET tidemill_max_staleness = -1, wait_timeout = 0").await.unwrap();
    assert_eq!(
        rows(&mut conn, "SHOW WARNINGS").await,
        [
            ["Warning", "1292", "Truncated incorrect tidemill_max_staleness value: '-1'"],
            ["Warning", "1292", "Truncated incorrect wait_timeout value: '0'"]
        ]
    );
    assert_eq!(rows(&mut conn, "SELECT @@tidemill_max_staleness, @@wait_timeout").await, [["0", "1"]]);
    conn.query_drop("SET tidemill_max_staleness = 5").await.unwrap();
    assert!(rows(&mut conn, "SHOW WARNINGS").await.is_empty());
    conn.query_drop("SET sql_mode = 'STRICT_ALL_TABLES'").await.unwrap();
    assert_eq!(code(conn.query_drop("SET tidemill_max_staleness = -1").await), 1231);
    assert_eq!(rows(&mut conn, "SELECT @@tidemill_max_staleness").await, [["5"]]);
    tidemill.shutdown().await.unwrap();
}
