//! The shell over a pipe: statements, its own words, errors.

use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Pipes a script into `tidemill sql` over a data directory.
fn piped(script: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let mut shell = Command::new(env!("CARGO_BIN_EXE_tidemill"))
        .args(["sql", "--format", "tsv", "--data-dir"])
        .arg(folder.path().join("data"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    shell.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    shell.wait_with_output().unwrap()
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
