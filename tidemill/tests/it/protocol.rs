//! A real driver against the server: types in both protocols, errors, transactions, kills.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row, Value};

use crate::support::{code, connect, open, options, rows, texts};

const TYPES: &str = "CREATE TABLE types (id INT PRIMARY KEY, t TINYINT, tu TINYINT UNSIGNED, s SMALLINT, \
    m MEDIUMINT, b BIGINT, bu BIGINT UNSIGNED, f FLOAT, d DOUBLE, n DECIMAL(65,30), c CHAR(5), v VARCHAR(20), \
    x TEXT, bin BINARY(3), vb VARBINARY(5), bl BLOB, day DATE, dt DATETIME(6), ts TIMESTAMP(3))";

/// One row, as literals and as the text that comes back.
const VALUES: &[(&str, &str)] = &[
    ("1", "1"),
    ("-128", "-128"),
    ("255", "255"),
    ("-32768", "-32768"),
    ("-8388608", "-8388608"),
    ("-9223372036854775808", "-9223372036854775808"),
    ("18446744073709551615", "18446744073709551615"),
    ("1.5", "1.5"),
    ("-0.1", "-0.1"),
    (
        "12345678901234567890123456789012345.000000000000000000000000000001",
        "12345678901234567890123456789012345.000000000000000000000000000001",
    ),
    ("'ab  '", "ab"),
    ("'naïve 日本 😀 '", "naïve 日本 😀 "),
    ("''", ""),
    ("X'616200'", "ab\0"),
    ("X'6162'", "ab"),
    ("X'00'", "\0"),
    ("'0001-01-01'", "0001-01-01"),
    ("'9999-12-31 23:59:59.999999'", "9999-12-31 23:59:59.999999"),
    ("'2024-07-01 12:00:00.125'", "2024-07-01 12:00:00.125"),
];

async fn types_table(conn: &mut Conn) {
    conn.query_drop(TYPES).await.unwrap();
    let literals: Vec<&str> = VALUES.iter().map(|(literal, _)| *literal).collect();
    conn.query_drop(format!("INSERT INTO types VALUES ({})", literals.join(", "))).await.unwrap();
    conn.query_drop("INSERT INTO types (id) VALUES (2)").await.unwrap();
}

#[tokio::test]
async fn every_type_comes_back_in_both_protocols() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    types_table(&mut conn).await;
    let expected: Vec<&str> = VALUES.iter().map(|(_, text)| *text).collect();
    let text = rows(&mut conn, "SELECT * FROM types ORDER BY id").await;
    assert_eq!(text[0], expected);
    assert!(text[1][1..].iter().all(|value| value == "NULL"), "{:?}", text[1]);

    let binary: Vec<Row> = conn.exec("SELECT * FROM types WHERE id >= ? ORDER BY id", (1,)).await.unwrap();
    let values: Vec<Value> = binary[0].clone().unwrap();
    assert_eq!(values[1], Value::Int(-128));
    assert_eq!(values[2], Value::Int(255));
    assert_eq!(values[5], Value::Int(i64::MIN));
    assert_eq!(values[6], Value::UInt(u64::MAX));
    assert_eq!(values[7], Value::Float(1.5));
    assert_eq!(values[8], Value::Double(-0.1));
    assert_eq!(values[9], Value::Bytes(VALUES[9].1.as_bytes().to_vec()));
    assert_eq!(values[13], Value::Bytes(b"ab\0".to_vec()));
    assert_eq!(values[16], Value::Date(1, 1, 1, 0, 0, 0, 0));
    assert_eq!(values[17], Value::Date(9999, 12, 31, 23, 59, 59, 999_999));
    assert_eq!(values[18], Value::Date(2024, 7, 1, 12, 0, 0, 125_000));
    assert!(binary[1].clone().unwrap()[1..].iter().all(|value| *value == Value::NULL));
    conn.disconnect().await.unwrap();
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn columns_are_announced_with_their_types() {
    use mysql_async::consts::{ColumnFlags, ColumnType};
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    types_table(&mut conn).await;
    let statement = conn.prep("SELECT * FROM types WHERE id = ?").await.unwrap();
    assert_eq!(statement.num_params(), 1);
    let row: Row = conn.exec_first(&statement, (1,)).await.unwrap().unwrap();
    let columns = row.columns_ref();
    for (prepared, executed) in statement.columns().iter().zip(columns) {
        assert_eq!(prepared.name_str(), executed.name_str());
        assert_eq!(prepared.column_type(), executed.column_type(), "{}", executed.name_str());
    }
    let column = |name: &str| columns.iter().find(|column| column.name_str() == name).unwrap();
    for (name, wire) in [
        ("t", ColumnType::MYSQL_TYPE_TINY),
        ("m", ColumnType::MYSQL_TYPE_INT24),
        ("bu", ColumnType::MYSQL_TYPE_LONGLONG),
        ("f", ColumnType::MYSQL_TYPE_FLOAT),
        ("n", ColumnType::MYSQL_TYPE_NEWDECIMAL),
        ("c", ColumnType::MYSQL_TYPE_STRING),
        ("v", ColumnType::MYSQL_TYPE_VAR_STRING),
        ("x", ColumnType::MYSQL_TYPE_BLOB),
        ("day", ColumnType::MYSQL_TYPE_DATE),
        ("dt", ColumnType::MYSQL_TYPE_DATETIME),
        ("ts", ColumnType::MYSQL_TYPE_TIMESTAMP),
    ] {
        assert_eq!(column(name).column_type(), wire, "{name}");
    }
    assert!(column("bu").flags().contains(ColumnFlags::UNSIGNED_FLAG));
    assert!(column("id").flags().contains(ColumnFlags::NOT_NULL_FLAG));
    assert_eq!((column("x").character_set(), column("bl").character_set()), (46, 63));
    assert_eq!((column("n").decimals(), column("dt").decimals(), column("ts").decimals()), (30, 6, 3));
    assert_eq!(column("v").schema_str(), "test");
    assert_eq!(column("v").table_str(), "types");
    conn.disconnect().await.unwrap();
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn parameters_of_every_type_are_bound() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    conn.query_drop(TYPES).await.unwrap();
    conn.exec_drop(
        "INSERT INTO types (id, t, bu, d, n, v, vb, dt) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            7,
            -5_i8,
            u64::MAX,
            0.25_f64,
            "1.5",
            "quo'te \\ ü",
            vec![0_u8, 0xff, b'\''],
            Value::Date(2013, 2, 8, 1, 2, 3, 456_789),
        ),
    )
    .await
    .unwrap();
    conn.exec_drop("INSERT INTO types (id, v) VALUES (?, ?)", (8, None::<String>)).await.unwrap();
    let found: Vec<Row> = conn
        .exec(
            "SELECT t, bu, d, n, v, vb, dt FROM types WHERE id = ? AND dt = ?",
            (7, "2013-02-08 01:02:03.456789"),
        )
        .await
        .unwrap();
    let values = found.into_iter().next().unwrap().unwrap();
    assert_eq!(values[0], Value::Int(-5));
    assert_eq!(values[1], Value::UInt(u64::MAX));
    assert_eq!(values[2], Value::Double(0.25));
    assert_eq!(values[4], Value::Bytes("quo'te \\ ü".into()));
    assert_eq!(values[5], Value::Bytes(vec![0, 0xff, b'\'']));
    assert_eq!(values[6], Value::Date(2013, 2, 8, 1, 2, 3, 456_789));
    assert_eq!(rows(&mut conn, "SELECT v FROM types WHERE id = 8").await, [["NULL"]]);
    // A statement can be executed again and again, with other types too.
    let statement = conn.prep("SELECT ? + 1").await.unwrap();
    for (value, expected) in [(Value::Int(1), "2"), (Value::UInt(4), "5"), (Value::NULL, "NULL")] {
        let row: Row = conn.exec_first(&statement, (value,)).await.unwrap().unwrap();
        assert_eq!(texts(row), [expected]);
    }
    conn.disconnect().await.unwrap();
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn errors_have_their_numbers_and_leave_the_connection_usable() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    conn.query_drop("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(3) NOT NULL, n TINYINT, d DATE)")
        .await
        .unwrap();
    conn.query_drop("INSERT INTO t VALUES (1, 'a', 1, '2024-01-01')").await.unwrap();
    for (statement, number) in [
        ("SELEC 1", 1064),
        ("SELECT nothing FROM t", 1054),
        ("SELECT * FROM nothing", 1146),
        ("SELECT * FROM nowhere.t", 1049),
        ("USE nowhere", 1049),
        ("INSERT INTO t VALUES (1, 'b', 1, NULL)", 1062),
        ("INSERT INTO t VALUES (2, 'long', 1, NULL)", 1406),
        ("INSERT INTO t VALUES (2, 'b', 128, NULL)", 1264),
        ("INSERT INTO t VALUES (2, NULL, 1, NULL)", 1048),
        ("INSERT INTO t VALUES (2, 'b')", 1136),
        ("INSERT INTO t VALUES (2, 'b', 'x', NULL)", 1366),
        ("INSERT INTO t VALUES (2, 'b', 1, '2024-02-30')", 1292),
        ("INSERT INTO t (id, nope) VALUES (2, 'b')", 1054),
        ("SELECT 9223372036854775807 + 1", 1690),
        ("CREATE TABLE t (id INT)", 1050),
        ("DROP TABLE nothing", 1051),
        ("CREATE DATABASE test", 1007),
        ("DROP DATABASE nothing", 1008),
        ("SET no_such_variable = 1", 1193),
        ("SET version = 'x'", 1238),
        ("SET time_zone = 'Mars/Base'", 1298),
        ("KILL 4000000", 1094),
    ] {
        assert_eq!(code(conn.query_drop(statement).await), number, "{statement}");
    }
    assert_eq!(rows(&mut conn, "SELECT * FROM t").await, [["1", "a", "1", "2024-01-01"]]);
    assert_eq!(code(conn.query_drop("SELEC 1").await), 1064);
    let warnings = rows(&mut conn, "SHOW WARNINGS").await;
    assert_eq!((warnings[0][0].as_str(), warnings[0][1].as_str()), ("Error", "1064"));
    conn.disconnect().await.unwrap();
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn transactions_see_their_own_writes_and_conflicts_are_9007() {
    let (tidemill, address) = open(|_| {}).await;
    let (mut one, mut two) = (connect(address).await, connect(address).await);
    one.query_drop("CREATE TABLE t (id INT PRIMARY KEY, v INT)").await.unwrap();
    one.query_drop("INSERT INTO t VALUES (1, 0)").await.unwrap();
    one.query_drop("BEGIN").await.unwrap();
    two.query_drop("START TRANSACTION").await.unwrap();
    one.query_drop("UPDATE t SET v = v + 1").await.unwrap();
    assert_eq!(rows(&mut one, "SELECT v FROM t").await, [["1"]]);
    assert_eq!(rows(&mut two, "SELECT v FROM t").await, [["0"]]);
    two.query_drop("UPDATE t SET v = 10").await.unwrap();
    one.query_drop("COMMIT").await.unwrap();
    assert_eq!(rows(&mut two, "SELECT v FROM t").await, [["10"]], "its snapshot, and its own write");
    assert_eq!(code(two.query_drop("COMMIT").await), 9007);
    assert_eq!(rows(&mut two, "SELECT v FROM t").await, [["1"]], "the transaction is over");
    // Without autocommit the first statement begins one; SET autocommit = 1 commits it.
    one.query_drop("SET autocommit = 0").await.unwrap();
    one.query_drop("UPDATE t SET v = 5").await.unwrap();
    assert_eq!(rows(&mut two, "SELECT v FROM t").await, [["1"]]);
    one.query_drop("ROLLBACK").await.unwrap();
    one.query_drop("UPDATE t SET v = 6").await.unwrap();
    one.query_drop("SET autocommit = 1").await.unwrap();
    assert_eq!(rows(&mut two, "SELECT v FROM t").await, [["6"]]);
    // DDL commits.
    one.query_drop("BEGIN").await.unwrap();
    one.query_drop("UPDATE t SET v = 7").await.unwrap();
    one.query_drop("CREATE TABLE u (id INT)").await.unwrap();
    one.query_drop("ROLLBACK").await.unwrap();
    assert_eq!(rows(&mut two, "SELECT v FROM t").await, [["7"]]);
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_transaction_ends_with_its_connection() {
    let (tidemill, address) = open(|_| {}).await;
    let (mut one, mut two) = (connect(address).await, connect(address).await);
    one.query_drop("CREATE TABLE t (id INT PRIMARY KEY)").await.unwrap();
    one.query_drop("BEGIN").await.unwrap();
    one.query_drop("INSERT INTO t VALUES (1)").await.unwrap();
    assert!(one.reset().await.unwrap(), "COM_RESET_CONNECTION is understood");
    one.query_drop("COMMIT").await.unwrap();
    assert!(rows(&mut two, "SELECT * FROM t").await.is_empty());
    one.query_drop("BEGIN").await.unwrap();
    one.query_drop("INSERT INTO t VALUES (1)").await.unwrap();
    one.change_user(mysql_async::ChangeUserOpts::default()).await.unwrap();
    one.query_drop("COMMIT").await.unwrap();
    assert!(rows(&mut two, "SELECT * FROM test.t").await.is_empty());
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn affected_and_found_rows_are_what_the_client_asked_for() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    conn.query_drop("CREATE TABLE t (id INT PRIMARY KEY, v INT)").await.unwrap();
    conn.query_drop("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)").await.unwrap();
    assert_eq!(conn.affected_rows(), 3);
    conn.query_drop("UPDATE t SET v = 2").await.unwrap();
    assert_eq!(conn.affected_rows(), 2, "one row had the value already");
    let with_found = options(address).client_found_rows(true);
    let mut other = Conn::new(with_found).await.unwrap();
    other.query_drop("UPDATE t SET v = 2").await.unwrap();
    assert_eq!(other.affected_rows(), 3);
    conn.query_drop("DELETE FROM t WHERE id > 1").await.unwrap();
    assert_eq!(conn.affected_rows(), 2);
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn several_statements_of_one_text_have_several_results() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    let mut result = conn.query_iter("SELECT 1; CREATE TABLE t (id INT); SELECT 'a;b', 2").await.unwrap();
    let first: Vec<Row> = result.collect().await.unwrap();
    assert_eq!(texts(first.into_iter().next().unwrap()), ["1"]);
    let second: Vec<Row> = result.collect().await.unwrap();
    assert!(second.is_empty());
    let third: Vec<Row> = result.collect().await.unwrap();
    assert_eq!(texts(third.into_iter().next().unwrap()), ["a;b", "2"]);
    drop(result);
    // The first error ends them.
    assert_eq!(code(conn.query_drop("SELECT 1; SELECT nope; CREATE TABLE later (id INT)").await), 1054);
    assert_eq!(rows(&mut conn, "SHOW TABLES").await, [["t"]]);
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn values_beyond_sixteen_megabytes_go_both_ways() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    for length in [(16 << 20) - 1, 16 << 20, 40 << 20] {
        let text = "x".repeat(length);
        let answer: Option<String> = conn.query_first(format!("SELECT '{text}'")).await.unwrap();
        assert!(answer.as_deref() == Some(text.as_str()), "length {length}");
        let answer: Option<String> = conn.exec_first("SELECT ?", (&text,)).await.unwrap();
        assert!(answer.as_deref() == Some(text.as_str()), "length {length}, prepared");
    }
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_killed_connection_ends_and_a_killed_query_does_not_end_it() {
    let (tidemill, address) = open(|_| {}).await;
    let (mut one, mut two) = (connect(address).await, connect(address).await);
    let id: u64 = one.query_first("SELECT CONNECTION_ID()").await.unwrap().unwrap();
    two.query_drop(format!("KILL QUERY {id}")).await.unwrap();
    assert_eq!(rows(&mut one, "SELECT 1").await, [["1"]]);
    let listed = rows(&mut two, "SHOW PROCESSLIST").await;
    assert!(listed.iter().any(|row| row[0] == id.to_string() && row[4] == "Sleep"), "{listed:?}");
    two.query_drop(format!("KILL {id}")).await.unwrap();
    assert!(one.query_drop("SELECT 1").await.is_err());
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn users_need_their_passwords_with_both_methods() {
    let (tidemill, address) = open(|config| {
        config.users.insert("ann".to_owned(), "secret".to_owned());
    })
    .await;
    let with = |user: &'static str, password: Option<&'static str>| {
        Conn::new(options(address).user(Some(user)).pass(password))
    };
    let mut conn = with("ann", Some("secret")).await.unwrap();
    assert_eq!(rows(&mut conn, "SELECT USER()").await, [["ann@localhost"]]);
    for (user, password) in [("ann", Some("Secret")), ("ann", None), ("root", None), ("eve", Some("secret"))]
    {
        assert_eq!(code(with(user, password).await), 1045, "{user}");
    }
    // The same user again on the same connection, by the method the driver prefers.
    let change = mysql_async::ChangeUserOpts::default()
        .with_user(Some("ann".to_owned()))
        .with_pass(Some("secret".to_owned()));
    conn.change_user(change).await.unwrap();
    assert_eq!(rows(&mut conn, "SELECT 1").await, [["1"]]);
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn shutdown_tells_idle_clients_and_frees_the_port() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    assert_eq!(rows(&mut conn, "SELECT 1").await, [["1"]]);
    tidemill.shutdown().await.unwrap();
    assert!(conn.query_drop("SELECT 1").await.is_err());
    tokio::net::TcpListener::bind(address).await.unwrap();
}

#[tokio::test]
async fn a_conflict_names_the_table_and_the_row() {
    let (tidemill, address) = open(|_| {}).await;
    let (mut one, mut two) = (connect(address).await, connect(address).await);
    for create in [
        "CREATE TABLE i (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE p (a VARCHAR(10), d DATE, v INT, PRIMARY KEY (a, d))",
        "CREATE TABLE h (v INT)",
        "INSERT INTO i VALUES (-7, 0)",
        "INSERT INTO p VALUES ('x', '2020-01-31', 0)",
        "INSERT INTO h VALUES (0)",
    ] {
        one.query_drop(create).await.unwrap();
    }
    for (change, row) in [
        ("UPDATE i SET v = v + 1", "row '-7' of table 'test.i'"),
        ("DELETE FROM i", "row '-7' of table 'test.i'"),
        ("UPDATE p SET v = v + 1", "row 'x-2020-01-31' of table 'test.p'"),
        ("UPDATE h SET v = v + 1", "of table 'test.h' without a primary key"),
    ] {
        one.query_drop("BEGIN").await.unwrap();
        one.query_drop(change).await.unwrap();
        two.query_drop(change.replace("DELETE FROM i", "UPDATE i SET v = 9")).await.unwrap();
        let error = one.query_drop("COMMIT").await.unwrap_err().to_string();
        assert!(error.contains("9007") && error.contains("Write conflict") && error.contains(row), "{error}");
        assert!(!error.contains("b\\\"") && !error.contains("key:"), "{error}");
    }
    tidemill.shutdown().await.unwrap();
}
