//! A disk that is really full: a small file system in memory, where the test may mount one.

use std::path::Path;
use std::process::Command;

use store::engine::DiskOptions;
use store::{EmbeddedStore, Key, Mutation, Options, Snapshot, Store};
use types::ErrorKind;

/// A mounted file system, unmounted when dropped.
struct Mount<'a>(&'a Path);

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "{} stays mounted", self.0.display());
    }
}

fn mount(directory: &Path, options: &str) -> bool {
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(directory).output();
    mount.is_ok_and(|output| output.status.success())
}

fn options() -> Options {
    Options { disk: DiskOptions { memtable_bytes: 1 << 20, ..DiskOptions::default() }, ..Options::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_file_system_is_a_clear_error_and_loses_nothing_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    if !mount(directory.path(), "size=12m") {
        // Only root may mount; the engine that reports a full disk covers the store's side everywhere.
        println!("not allowed to mount a file system: left out");
        return;
    }
    let mount_point = Mount(directory.path());
    let home = directory.path().join("store");
    let store = EmbeddedStore::open(&home, options()).unwrap();
    let mut acknowledged = 0u32;
    let error = loop {
        let start_ts = match store.timestamp().await {
            Ok(start_ts) => start_ts,
            Err(error) => break error,
        };
        let value: Vec<u8> =
            (0..20_000u32).map(|at| (at.wrapping_mul(2_654_435_761 + acknowledged) >> 13) as u8).collect();
        let mutation = Mutation::put(format!("k{acknowledged:05}"), value);
        match store.commit_transaction(start_ts, vec![mutation]).await {
            Ok(_) => acknowledged += 1,
            Err(error) => break error.into(),
        }
        assert!(acknowledged < 5_000, "the file system does not fill up");
    };
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    println!("{acknowledged} commits, then: {error}");
    assert!(acknowledged > 10);
    drop(store);
    assert!(
        Command::new("mount")
            .args(["-o", "remount,size=400m"])
            .arg(directory.path())
            .status()
            .unwrap()
            .success()
    );
    let store = EmbeddedStore::open(&home, options()).unwrap();
    let snapshot = Snapshot::newest(store.clone()).await.unwrap();
    for number in 0..acknowledged {
        let found = snapshot.get(&Key::from(format!("k{number:05}"))).await.unwrap();
        assert!(found.is_some_and(|value| value.len() == 20_000), "acknowledged commit {number} is lost");
    }
    let start_ts = store.timestamp().await.unwrap();
    store.commit_transaction(start_ts, vec![Mutation::put("after", "room again")]).await.unwrap();
    store.close().await.unwrap();
    drop(snapshot);
    drop(store);
    drop(mount_point);
}
