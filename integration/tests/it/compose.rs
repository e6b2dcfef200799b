//! The script that tries out the containers, over processes of this machine in their place.

use std::process::{Command, Output};

use integration::Binary;

/// The script, and all that it said.
fn script(change: impl FnOnce(&mut Command)) -> (Output, String) {
    let mut command = Command::new("bash");
    command
        .args([concat!(env!("CARGO_MANIFEST_DIR"), "/compose/test.sh"), "--endpoints"])
        .env("TIDEMILL", Binary::find().path())
        .env("TIKV_SERVER", Binary::named("tikv-server").path());
    for inherited in ["TIDB", "PD", "KEEP", "FAILPOINTS"] {
        command.env_remove(inherited);
    }
    change(&mut command);
    let output = command.output().expect("bash runs");
    let text = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    (output, text.concat())
}

/// The last line of what a script prints.
fn verdict(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout);
    said.lines().last().unwrap_or_default().to_owned()
}

#[test]
fn answers_are_exact_after_kills_of_the_jobs_process_a_store_and_the_placement_driver() {
    let (output, text) = script(|_| {});
    assert!(output.status.success(), "{text}");
    let verdict = verdict(&output);
    assert!(verdict.starts_with("verdict: ok, "), "{text}");
    // What was not tried is said.
    assert!(verdict.contains("skipped: TiDB: ") && verdict.contains("; Kafka: "), "{verdict}");
}

/// Epochs that lose their rows: what the script says when all is well is worth something.
#[test]
fn the_script_fails_when_epochs_lose_their_rows() {
    let (output, text) = script(|command| {
        command.env("FAILPOINTS", "runtime::loses_rows=20*off->return(lose)");
    });
    assert_eq!(output.status.code(), Some(1), "{text}");
    let verdict = verdict(&output);
    assert!(verdict.starts_with("verdict: FAILED at: "), "{text}");
}
