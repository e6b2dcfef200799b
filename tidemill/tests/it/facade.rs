//! The façade: open, execute, sessions, shutdown.

use tidemill::{Config, Tidemill};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn statements_run_in_the_process_and_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config::in_directory(folder.path().join("data"));
    let tidemill = Tidemill::open(config.clone()).await.unwrap();
    tidemill.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(10))").await.unwrap();
    let answer = tidemill.execute("INSERT INTO t VALUES (1, 'a'), (2, NULL)").await.unwrap();
    assert_eq!(answer.affected_rows, 2);
    tidemill.shutdown().await.unwrap();

    let tidemill = Tidemill::open(config).await.unwrap();
    let answer = tidemill.execute("SELECT * FROM t ORDER BY id").await.unwrap();
    assert_eq!(answer.texts(), [["1", "a"], ["2", "NULL"]]);
    let names: Vec<&str> = answer.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["id", "v"]);
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_directory_has_one_owner() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config::in_directory(folder.path().join("data"));
    let tidemill = Tidemill::open(config.clone()).await.unwrap();
    let error = Tidemill::open(config).await.err().expect("the directory is taken");
    assert!(error.message().contains("data"), "{error}");
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn sessions_are_apart_and_see_each_others_commits() {
    let tidemill = Tidemill::open(Config::in_memory()).await.unwrap();
    let (mut one, mut two) = (tidemill.session().unwrap(), tidemill.session().unwrap());
    one.execute("CREATE TABLE t (id INT PRIMARY KEY); SET @x = 5; BEGIN; INSERT INTO t VALUES (1)")
        .await
        .unwrap();
    assert_eq!(one.execute("SELECT @x, count(*) FROM t").await.unwrap().texts(), [["5", "1"]]);
    assert_eq!(two.execute("SELECT @x, count(*) FROM t").await.unwrap().texts(), [["NULL", "0"]]);
    one.execute("COMMIT").await.unwrap();
    assert_eq!(two.execute("SELECT count(*) FROM t").await.unwrap().first(), Some("1"));
    drop((one, two));
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_view_is_maintained_read_in_each_mode_verified_and_dropped() {
    let tidemill = Tidemill::open(Config::in_memory()).await.unwrap();
    let mut session = tidemill.session().unwrap();
    session.execute("CREATE TABLE t (k INT NOT NULL, v INT)").await.unwrap();
    session.execute("INSERT INTO t VALUES (1, 10), (1, 5), (2, NULL)").await.unwrap();
    session
        .execute("CREATE MATERIALIZED VIEW s AS SELECT k, count(*) AS n, sum(v) AS total FROM t GROUP BY k")
        .await
        .unwrap();
    session.execute("UPDATE t SET v = 7 WHERE k = 2").await.unwrap();
    for mode in ["fresh", "wait", "live"] {
        session.execute(&format!("SET tidemill_read_mode = '{mode}'")).await.unwrap();
        let answer = session.execute("SELECT * FROM s ORDER BY k").await.unwrap();
        assert_eq!(answer.texts(), [["1", "2", "15"], ["2", "1", "7"]], "{mode}");
    }
    // Wait mode has brought the checkpoint here.
    session.execute("SET tidemill_read_mode = 'stale'").await.unwrap();
    assert_eq!(session.execute("SELECT total FROM s WHERE k = 2").await.unwrap().first(), Some("7"));
    assert!(session.execute("VERIFY MATERIALIZED VIEW s").await.unwrap().rows.is_empty());
    let views = session.execute("SELECT view_name, state, `rows` FROM tidemill.views").await.unwrap();
    assert_eq!(views.texts(), [["s", "ready", "2"]]);
    let error = session.execute("INSERT INTO s VALUES (1, 2, 3)").await.unwrap_err();
    assert!(error.message().contains('s'), "{error}");
    let error = session.execute("DROP TABLE t").await.unwrap_err();
    assert!(error.message().contains('s'), "{error}");
    session.execute("DROP MATERIALIZED VIEW s; DROP TABLE t").await.unwrap();
    assert!(session.execute("SHOW TABLES").await.unwrap().rows.is_empty());
    drop(session);
    tidemill.shutdown().await.unwrap();
}

/// The status line and the body of a GET.
async fn get(address: std::net::SocketAddr, path: &str) -> (String, String) {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

#[tokio::test]
async fn health_and_metrics_are_served_over_http() {
    let mut config = Config::in_memory();
    config.http_listen = Some("127.0.0.1:0".parse().unwrap());
    let tidemill = Tidemill::open(config).await.unwrap();
    let address = tidemill.http_address().unwrap();
    tidemill
        .execute("CREATE TABLE t (id INT); CREATE MATERIALIZED VIEW v AS SELECT id FROM t")
        .await
        .unwrap();
    assert_eq!(get(address, "/healthz").await, ("HTTP/1.1 200 OK".to_owned(), "ok\n".to_owned()));
    let (status, text) = get(address, "/metrics").await;
    assert_eq!(status, "HTTP/1.1 200 OK");
    for name in [
        "tidemill_sessions ",
        "tidemill_job_epoch{job=\"",
        "tidemill_job_restarts{",
        "tidemill_view_lag_ms{view=\"test.v\"}",
    ] {
        assert!(text.contains(name), "no {name} in\n{text}");
    }
    assert_eq!(get(address, "/nothing").await.0, "HTTP/1.1 404 Not Found");
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn settings_that_do_not_fit_are_refused() {
    let mut config = Config::in_memory();
    config.listen = Some("0.0.0.0:0".parse().unwrap());
    let error = Tidemill::open(config).await.err().expect("everybody could enter");
    assert!(error.message().contains("authentication"), "{error}");
}

/// The longest declared keys make no key of the store, and longer values may be grouped by.
#[tokio::test]
async fn long_values_are_keys_of_views_and_the_store_stays_open() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config::in_directory(folder.path().join("data"));
    let tidemill = Tidemill::open(config.clone()).await.unwrap();
    let mut session = tidemill.session().unwrap();
    let error = session.execute("CREATE TABLE k (a VARBINARY(65535) PRIMARY KEY)").await.unwrap_err();
    assert_eq!(error.mysql_code(), Some(1071), "{error}");
    session.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARBINARY(60000) NOT NULL)").await.unwrap();
    session.execute("CREATE TABLE k (a VARBINARY(3072) PRIMARY KEY)").await.unwrap();
    session.execute("CREATE MATERIALIZED VIEW g AS SELECT v, count(*) AS n FROM t GROUP BY v").await.unwrap();
    session.execute("CREATE MATERIALIZED VIEW d AS SELECT DISTINCT v FROM t").await.unwrap();
    let error = session
        .execute("CREATE MATERIALIZED VIEW c CLUSTER BY (v) AS SELECT v, count(*) AS n FROM t GROUP BY v")
        .await
        .unwrap_err();
    assert_eq!(error.mysql_code(), Some(1071), "{error}");
    session
        .execute("INSERT INTO t VALUES (1, repeat('x', 60000)), (2, repeat('x', 60000)), (3, repeat('\\0', 60000))")
        .await
        .unwrap();
    session.execute("INSERT INTO k VALUES (repeat('\\0', 3072)), (repeat('k', 3072))").await.unwrap();
    for mode in ["fresh", "wait"] {
        session.execute(&format!("SET tidemill_read_mode = '{mode}'")).await.unwrap();
        let answer = session.execute("SELECT length(v), n FROM g ORDER BY n").await.unwrap();
        assert_eq!(answer.texts(), [["60000", "1"], ["60000", "2"]], "{mode}");
        assert_eq!(session.execute("SELECT count(*) FROM d").await.unwrap().first(), Some("2"));
    }
    session.execute("DELETE FROM t WHERE id = 1").await.unwrap();
    assert!(session.execute("VERIFY MATERIALIZED VIEW g").await.unwrap().rows.is_empty());
    drop(session);
    tidemill.shutdown().await.unwrap();
    let tidemill = Tidemill::open(config).await.unwrap();
    assert_eq!(tidemill.execute("SELECT count(*) FROM k").await.unwrap().first(), Some("2"));
    assert_eq!(tidemill.execute("SELECT max(n) FROM g").await.unwrap().first(), Some("1"));
    tidemill.shutdown().await.unwrap();
}
