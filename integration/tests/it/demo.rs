//! `tidemill demo` as a process: what it says, and how it ends.

use std::process::Output;

use integration::Binary;

fn demo(fail_points: &str) -> (Output, String) {
    let mut command = Binary::find().command();
    let output = command.args(["demo", "--days", "1"]).env("FAILPOINTS", fail_points).output().unwrap();
    let text = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    (output, text.concat())
}

#[test]
fn the_demo_checks_in_every_mode_and_ends_well() {
    let (output, text) = demo("");
    assert!(output.status.success(), "{text}");
    assert!(text.contains("Everything agrees."), "{text}");
    assert_eq!(text.matches("equals its query").count(), 6, "{text}");
    let checks = text.lines().find(|line| line.starts_with("Consistency checks while it ran: ")).unwrap();
    assert!(checks.ends_with("; failed: 0."), "{checks}");
    for mode in ["fresh", "stale", "wait", "live"] {
        assert!(checks.contains(&format!("{mode} ")) && !checks.contains(&format!("{mode} 0")), "{checks}");
    }
}

/// The same run with epochs that lose their rows: what the demo says when all is well is worth something.
#[test]
fn the_demo_fails_when_epochs_lose_their_rows() {
    let (output, text) = demo("runtime::loses_rows=20*off->return(lose)");
    assert_eq!(output.status.code(), Some(1), "{text}");
    let says_why = ["rows differ", "consistency checks failed", "read fix of view"];
    assert!(says_why.iter().any(|why| text.contains(why)), "{text}");
    assert!(!text.contains("Everything agrees."), "{text}");
}
