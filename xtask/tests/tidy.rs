//! Tidy: the shape of the workspace, as a test.
//!
//! Levels of crates against `cargo metadata`, a `//!` head on each file, file lengths as a ratchet, no
//! large files, and for each guarantee of docs/invariants.md at least one test that exists.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A crate may depend only on crates of lower levels (docs/architecture.md).
const LEVELS: &[(&str, u8)] = &[
    ("types", 0),
    ("store", 1),
    ("tidb", 1),
    ("operators", 1),
    ("tikv", 2),
    ("tikv-server", 3),
    ("kafka-broker", 1),
    ("source", 2),
    ("sink", 2),
    ("coordinator", 2),
    ("sql", 2),
    ("kafka", 3),
    ("runtime", 3),
    ("query", 3),
    ("tidemill", 4),
    ("examples", 5),
    ("integration", 5),
    ("xtask", 5),
];

/// The most lines of a file, tests not counted.
const LINES_MAX: usize = 600;

/// Files that are longer, and how long they may be: they shrink, or they are split.
const LONGER: &[(&str, usize)] = &[];

/// The largest file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the workspace").to_path_buf()
}

/// Files that git tracks, relative to the root.
fn tracked_files() -> Vec<PathBuf> {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output().expect("git runs");
    assert!(output.status.success(), "git ls-files failed");
    let names = String::from_utf8(output.stdout).expect("names are UTF-8");
    let files: Vec<PathBuf> = names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect();
    assert!(files.len() > 20, "git lists the workspace's files");
    files.into_iter().filter(|file| root().join(file).exists()).collect()
}

fn is_test(file: &Path) -> bool {
    let in_tests = file
        .components()
        .any(|part| matches!(part.as_os_str().to_str(), Some("tests" | "benches" | "conformance")));
    in_tests || file.file_name().is_some_and(|name| name == "tests.rs")
}

fn rust_files() -> Vec<PathBuf> {
    tracked_files().into_iter().filter(|file| file.extension().is_some_and(|ext| ext == "rs")).collect()
}

fn read(file: &Path) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The workspace's packages, as `cargo metadata` lists them.
fn packages() -> Vec<serde_json::Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("metadata is JSON");
    let packages = metadata["packages"].as_array().expect("metadata lists packages");
    assert!(packages.len() >= 10, "metadata lists the workspace");
    packages.clone()
}

/// Tests behind the feature `failpoints` are compiled by the workspace's tests, and by nobody else.
#[test]
fn fail_points_of_every_crate_are_on_in_the_workspaces_tests() {
    let packages = packages();
    let package = |name: &str| packages.iter().find(|package| package["name"] == name).expect("a package");
    let on = package("tidemill")["features"]["failpoints"].as_array().expect("tidemill has fail points");
    for package in &packages {
        let name = package["name"].as_str().expect("a package has a name");
        if name != "tidemill" && !package["features"]["failpoints"].is_null() {
            assert!(on.contains(&format!("{name}/failpoints").into()), "tidemill leaves out those of {name}");
        }
    }
    let dependencies = package("integration")["dependencies"].as_array().expect("dependencies");
    let tidemill = dependencies.iter().find(|dependency| dependency["name"] == "tidemill");
    let features = tidemill.and_then(|tidemill| tidemill["features"].as_array()).expect("features");
    assert!(features.contains(&"failpoints".into()), "the integration tests have fail points");
}

#[test]
fn crates_depend_on_lower_levels_only() {
    let levels: BTreeMap<&str, u8> = LEVELS.iter().copied().collect();
    for package in &packages() {
        let name = package["name"].as_str().expect("a package has a name");
        let level = levels.get(name).unwrap_or_else(|| panic!("crate {name} has no level"));
        for dependency in package["dependencies"].as_array().expect("a package lists dependencies") {
            let other = dependency["name"].as_str().expect("a dependency has a name");
            // A crate may depend on itself, to have its test helpers in its own tests.
            if dependency["path"].is_null() || other == name {
                continue;
            }
            // Suites run over it too.
            if dependency["kind"] == "dev" && other == "tikv-server" {
                continue;
            }
            let other_level = levels.get(other).unwrap_or_else(|| panic!("crate {other} has no level"));
            assert!(other_level < level, "{name} (level {level}) depends on {other} (level {other_level})");
        }
    }
}

#[test]
fn only_sql_and_query_name_datafusion() {
    for file in rust_files() {
        let crate_name =
            file.components().next().and_then(|part| part.as_os_str().to_str()).expect("a file has a crate");
        if ["sql", "query", "integration", "xtask"].contains(&crate_name) {
            continue;
        }
        let names = read(&file)
            .lines()
            .any(|line| !line.trim_start().starts_with("//") && line.contains("datafusion::"));
        assert!(!names, "{} names DataFusion", file.display());
    }
}

#[test]
fn files_open_with_a_head() {
    for file in rust_files() {
        let text = read(&file);
        let first = text.lines().next().unwrap_or_default();
        assert!(first.starts_with("//!"), "{} has no //! head", file.display());
    }
}

#[test]
fn files_stay_short() {
    for file in rust_files().into_iter().filter(|file| !is_test(file)) {
        let n_lines = read(&file).lines().count();
        let longer = LONGER.iter().find(|(name, _)| Path::new(name) == file);
        let n_lines_max = longer.map_or(LINES_MAX, |(_, n_lines_max)| *n_lines_max);
        assert!(n_lines <= n_lines_max, "{} has {n_lines} lines, more than {n_lines_max}", file.display());
    }
}

#[test]
fn files_stay_small() {
    for file in tracked_files() {
        let n_bytes = fs::metadata(root().join(&file)).expect("the file is there").len();
        assert!(n_bytes <= FILE_BYTES_MAX, "{} has {n_bytes} bytes", file.display());
    }
}

#[test]
fn nothing_names_a_machine() {
    let forbidden = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("../sha", "red"),
        concat!("TIKV", ".md"),
        concat!("KAFKA", ".md"),
        concat!("DESIGN", ".md"),
        concat!("DESIGN", " section"),
        concat!("PITFALLS", ".md"),
        concat!("STYLE", ".md"),
        concat!("TECH", ".md"),
    ];
    for file in tracked_files() {
        let Ok(text) = fs::read_to_string(root().join(&file)) else { continue };
        for word in forbidden {
            assert!(!text.contains(word), "{} contains {word}", file.display());
        }
    }
}

#[test]
fn tests_are_not_ignored() {
    for file in rust_files() {
        let text = read(&file);
        assert!(!text.contains(concat!("#[ig", "nore")), "{} ignores a test", file.display());
    }
}

/// Whether a crate has a test of that name: a function under a test attribute, or one of the conformance
/// suite, which the store's tests run over every engine.
fn has_test(sources: &[(PathBuf, String)], krate: &str, name: &str) -> bool {
    let of_crate = sources.iter().filter(|(file, _)| file.starts_with(krate));
    of_crate.into_iter().any(|(file, text)| {
        let lines: Vec<&str> = text.lines().collect();
        let call = format!("fn {name}(");
        lines.iter().enumerate().filter(|(_, line)| line.contains(&call)).any(|(at, _)| {
            let above = lines[..at].iter().rev().take_while(|line| !line.trim().is_empty());
            file.starts_with("store/src/conformance")
                || above.into_iter().any(|line| line.contains("test]") || line.contains("::test("))
        })
    })
}

#[test]
fn each_guarantee_names_tests_that_exist() {
    let sources: Vec<(PathBuf, String)> =
        rust_files().into_iter().map(|file| (file.clone(), read(&file))).collect();
    let invariants = read(Path::new("docs/invariants.md"));
    for number in 1..=11 {
        let heading = format!("## G{number} ");
        let start =
            invariants.find(&heading).unwrap_or_else(|| panic!("docs/invariants.md has no {heading}"));
        let section = &invariants[start + heading.len()..];
        let section = &section[..section.find("\n## ").unwrap_or(section.len())];
        let tests: Vec<&str> = section
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix("- `"))
            .filter_map(|line| line.split('`').next())
            .collect();
        assert!(!tests.is_empty(), "guarantee {number} names no test");
        for test in tests {
            let (krate, name) =
                test.split_once("::").unwrap_or_else(|| panic!("{test} does not name its crate"));
            assert!(has_test(&sources, krate, name), "guarantee {number} names {test}, which is no test");
        }
    }
}
