//! The jars of the broker: brought by Maven once, kept in the user's cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What Maven is to bring.
const POM: &str = include_str!("../pom.xml");

/// The version in it, and the cache's name for what is brought.
const VERSION: &str = "4.4.0";

/// The folder with the jars, `${XDG_CACHE_HOME:-~/.cache}/tidemill-kafka/<version>`; the first call on a
/// machine fills it, which takes up to a minute and needs the network.
///
/// # Panics
/// If Maven is missing or cannot bring them; its output says why.
#[must_use]
pub fn jars() -> PathBuf {
    let cache = cache().join("tidemill-kafka");
    let jars = cache.join(VERSION);
    if jars.join("done").exists() {
        return jars;
    }
    fs::create_dir_all(&cache).expect("the user's cache can be written");
    // Others may do the same at the same time: whoever comes first puts his folder into its place.
    let work = tempfile::tempdir_in(&cache).expect("the user's cache can be written");
    let libs = work.path().join("libs");
    fetch(work.path(), &libs);
    fs::write(libs.join("done"), "").expect("a file in the folder just made");
    if fs::rename(&libs, &jars).is_err() {
        assert!(jars.join("done").exists(), "{} is there and not whole: remove it", jars.display());
    }
    jars
}

fn cache() -> PathBuf {
    let given = std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    given.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").expect("HOME is set")).join(".cache"))
}

fn fetch(work: &Path, libs: &Path) {
    assert!(POM.contains(&format!("<version>{VERSION}</version>")), "the version is that of pom.xml");
    let pom = work.join("pom.xml");
    fs::write(&pom, POM).expect("a file in a folder just made");
    let output = Command::new("mvn")
        .args(["-q", "-B", "-f"])
        .arg(&pom)
        .args(["dependency:copy-dependencies", "-DincludeScope=runtime"])
        .arg(format!("-DoutputDirectory={}", libs.display()))
        .output();
    let output = output.unwrap_or_else(|error| panic!("mvn does not run ({error}): install Maven"));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "mvn could not bring Kafka: {said}");
}
