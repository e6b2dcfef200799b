//! The shell over a pipe: statements, its own words, errors; and the data directory that it is given.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Pipes a script into `tidemill sql` over a data directory of its own.
fn piped(script: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    piped_in(&folder.path().join("data"), &["--create"], script)
}

/// Pipes a script into `tidemill sql` over a data directory.
fn piped_in(directory: &Path, more: &[&str], script: &str) -> Output {
    let mut shell = Command::new(env!("CARGO_BIN_EXE_tidemill"))
        .args(["sql", "--format", "tsv", "--data-dir"])
        .arg(directory)
        .args(more)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A shell that refuses its directory reads nothing.
    let written = shell.stdin.take().unwrap().write_all(script.as_bytes());
    let output = shell.wait_with_output().unwrap();
    assert!(written.is_ok() || !output.status.success());
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn words_to_leave_end_a_script_well() {
    for word in ["exit", "quit;", "EXIT ;", "\\q"] {
        let output = piped(&format!("SELECT 1 AS a;\n{word}\nSELECT 2 AS b;\n"));
        assert!(output.status.success(), "{word}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "a\n1\n", "{word}");
    }
}

#[test]
fn help_is_given_and_the_script_goes_on() {
    let output = piped("help\nSELECT 1 AS a\n");
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(shown.starts_with("Statements end with a semicolon") && shown.ends_with("a\n1\n"), "{shown}");
}

#[test]
fn the_first_error_ends_a_script() {
    let output = piped("SELECT * FROM nope; SELECT 1 AS a;");
    assert!(!output.status.success());
    assert_eq!(text(&output.stdout), "");
    assert_eq!(text(&output.stderr).trim(), "ERROR 1146 (42S02): Table 'test.nope' doesn't exist");
}

#[test]
fn a_data_directory_that_is_none_is_refused_and_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let (typo, empty, full) =
        (folder.path().join("typo"), folder.path().join("empty"), folder.path().join("full"));
    std::fs::create_dir(&empty).unwrap();
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("letter.txt"), "dear").unwrap();
    for directory in [&typo, &empty, &full] {
        let output = piped_in(directory, &[], "SELECT 1 AS a;");
        assert!(!output.status.success(), "{directory:?}");
        let said = text(&output.stderr);
        assert!(said.contains("is not a data directory") && said.contains("--create"), "{said}");
        assert_eq!(text(&output.stdout), "");
    }
    assert!(!typo.exists(), "nothing was made");
    assert_eq!(std::fs::read_dir(&empty).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(&full).unwrap().count(), 1);
    // Once it is made it is known.
    let output =
        piped_in(&typo, &["--create"], "CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (7);");
    assert!(output.status.success(), "{}", text(&output.stderr));
    for more in [&[][..], &["--create"]] {
        let output = piped_in(&typo, more, "SELECT id FROM t;");
        assert_eq!(text(&output.stdout), "id\n7\n", "{}", text(&output.stderr));
    }
}
