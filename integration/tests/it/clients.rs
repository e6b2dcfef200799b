//! Real clients from their registries: the mariadb shell and PyMySQL.

use std::process::{Command, Output};

use integration::{Server, ServerOptions};

fn python() -> std::path::PathBuf {
    let test = std::env::current_exe().expect("a test knows its path");
    let target = test.ancestors().nth(3).expect("a test lies in target/<profile>/deps").to_path_buf();
    let python = target.join("python/bin/python");
    assert!(python.exists(), "{} is missing: run `make services` first", python.display());
    python
}

fn shell(server: &Server, statements: &str) -> Output {
    let port = server.address().port().to_string();
    let program =
        ["mariadb", "mysql"].into_iter().find(|name| Command::new(name).arg("--version").output().is_ok());
    let program = program.expect("the mariadb shell is installed: run `make services` first");
    Command::new(program)
        .args(["-h", "127.0.0.1", "-P", &port, "-u", "root", "--table", "-e", statements])
        .output()
        .expect("the shell runs")
}

#[test]
fn the_mariadb_shell_connects_looks_around_and_queries() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &ServerOptions::default());
    let statements = "USE test; \
        CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(10), price DECIMAL(8,2)); \
        INSERT INTO t VALUES (1, 'one', 1.50), (2, NULL, -0.25); \
        CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n, sum(price) AS s FROM t; \
        SHOW DATABASES; SHOW TABLES; DESCRIBE t; SELECT * FROM t ORDER BY id; SELECT * FROM v; SHOW CREATE TABLE t";
    let output = shell(&server, statements);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    for expected in ["| test", "| id ", "| 1 | one", "| 2 | NULL", "| 1.25 |", "PRIMARY KEY", "| -0.25 |"] {
        let squeezed = text.split_whitespace().collect::<Vec<&str>>().join(" ");
        let wanted = expected.split_whitespace().collect::<Vec<&str>>().join(" ");
        assert!(squeezed.contains(&wanted), "no {expected} in:\n{text}");
    }
    let failed = shell(&server, "SELECT * FROM test.nothing");
    assert!(!failed.status.success());
    let message = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(message.contains("ERROR 1146 (42S02)"), "{message}");
}

#[test]
fn pymysql_binds_types_transacts_and_sees_errors() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &ServerOptions::default());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/pymysql_client.py");
    let port = server.address().port().to_string();
    let output = Command::new(python()).args([script, &port]).output().expect("python runs");
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}");
    assert!(text.contains("all is well"), "{text}");
}
