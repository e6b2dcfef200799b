//! Runs every example; each asserts what it shows.

use std::process::Command;

fn run(program: &str) -> String {
    let output = Command::new(program).output().expect("the example runs");
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} failed:\n{text}");
    text
}

#[test]
fn hello() {
    assert!(run(env!("CARGO_BIN_EXE_hello")).contains("Basel"));
}

#[test]
fn authors_and_posts() {
    assert!(run(env!("CARGO_BIN_EXE_authors_and_posts")).contains("Barbara"));
}

#[test]
fn bank() {
    assert!(run(env!("CARGO_BIN_EXE_bank")).contains("never wavered"));
}

#[test]
fn orders_and_payments() {
    assert!(run(env!("CARGO_BIN_EXE_orders_and_payments")).contains("40 snapshots checked"));
}

#[test]
fn read_modes() {
    let text = run(env!("CARGO_BIN_EXE_read_modes"));
    assert!(text.contains("ReadPath: ") && text.contains("=Hybrid") && text.contains("=Stale"), "{text}");
}
