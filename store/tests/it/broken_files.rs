//! Broken bytes, cut files, a strange format, a second owner: a clear error or a full recovery, never a
//! wrong or a short answer.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use store::engine::{DiskEngine, DiskOptions, Space};
use store::{Change, EmbeddedStore, Key, KeyRange, Options, Snapshot, Store, Transaction};
use types::{ErrorKind, Timestamp};

fn small() -> DiskOptions {
    DiskOptions { memtable_bytes: 64 << 10, cache_bytes: 1 << 20, ..DiskOptions::default() }
}

fn options() -> Options {
    Options { disk: small(), ..Options::default() }
}

/// What must be there.
#[derive(Default)]
struct Filled {
    data: BTreeMap<Key, Vec<u8>>,
    changes: Vec<Change>,
    held: Timestamp,
}

/// Writes some versions, part of them in tables, part in the journal only.
async fn filled(directory: &Path) -> Filled {
    let store = EmbeddedStore::open(directory, options()).unwrap();
    let mut data = BTreeMap::new();
    let held = store.read_timestamp().await.unwrap();
    store.hold("reader", held).await.unwrap();
    for round in 0..30u32 {
        let mut transaction = Transaction::begin(store.clone()).await.unwrap();
        for row in 0..40u32 {
            let key = Key::from(format!("row/{:04}", (round * 23 + row * 7) % 600));
            let value = format!("{round} {row} ").repeat(12).into_bytes();
            transaction.put(key.clone(), value.clone());
            data.insert(key, value);
        }
        transaction.commit().await.unwrap();
        store
            .put_blobs(vec![(Key::from(format!("blob/{round}")), vec![round as u8; 9000].into())])
            .await
            .unwrap();
    }
    let mut transaction = Transaction::begin(store.clone()).await.unwrap();
    transaction.put("row/last", "covers the blobs");
    data.insert(Key::from("row/last"), b"covers the blobs".to_vec());
    let to = transaction.commit().await.unwrap();
    let changes = all_changes(&store, held, to).await.unwrap();
    assert_eq!(changes.len(), 30 * 40 + 1);
    Filled { data, changes, held }
}

async fn all_changes(
    store: &Arc<EmbeddedStore>,
    from: Timestamp,
    to: Timestamp,
) -> types::Result<Vec<Change>> {
    let page = store.changes(&[KeyRange::all()], from, to, None, 10_000).await?;
    assert!(page.next.is_none());
    Ok(page.changes)
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if fs::metadata(&path).unwrap().len() > 0 && !path.ends_with("LOCK") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() { copy(&path, &target) } else { assert!(fs::copy(&path, &target).is_ok()) }
    }
}

/// Opens what is left; every answer is right or an error. Returns what came of it.
async fn judge(directory: &Path, filled: &Filled, case: &str) -> &'static str {
    let data = &filled.data;
    let store = match EmbeddedStore::open(directory, options()) {
        Ok(store) => store,
        Err(error) => {
            assert!(!error.message().is_empty(), "{case}");
            return "refused at open";
        }
    };
    let mut outcome = "recovered in full";
    let snapshot = Snapshot::newest(store.clone()).await.unwrap();
    for (key, value) in data {
        match snapshot.get(key).await {
            Ok(found) => assert_eq!(found.as_deref(), Some(value.as_slice()), "{case}: {key:?}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{case}: {error}");
                outcome = "errors at reads";
            }
        }
    }
    match snapshot.scan_all(&KeyRange::prefix(b"row/")).await {
        Ok(found) => {
            let found: Vec<(Key, Vec<u8>)> =
                found.into_iter().map(|(key, value)| (key, value.to_vec())).collect();
            assert!(found.iter().map(|(key, value)| (key, value)).eq(data), "{case}: the scan differs");
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{case}: {error}");
            outcome = "errors at reads";
        }
    }
    for round in 0..30u8 {
        match store.get_blob(format!("blob/{round}").as_bytes()).await {
            Ok(blob) => {
                assert_eq!(blob.as_deref(), Some(vec![round; 9000].as_slice()), "{case}: blob {round}")
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{case}: {error}");
                outcome = "errors at reads";
            }
        }
    }
    let to = filled.changes.last().unwrap().commit_ts;
    match all_changes(&store, filled.held, to).await {
        Ok(changes) => assert!(changes == filled.changes, "{case}: {} changes", changes.len()),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{case}: {error}");
            outcome = "errors at reads";
        }
    }
    assert_eq!(store.holds().await.unwrap(), [("reader".to_owned(), filled.held)], "{case}");
    outcome
}

/// Where in a tree's version the values lie that fjall asserts.
const ASSERTED_BYTES: usize = 32;
/// The directory that a child process is to open.
const OPENED: &str = "TIDEMILL_TEST_OPENED";

/// Whether a store with this file ends the process that opens it: fjall asserts what it reads in a tree's
/// version, and its database cannot be dropped after that. The process says so and is gone, in a child here.
fn ends_the_process(name: &Path, directory: &Path) -> bool {
    let file = name.file_name().unwrap().to_str().unwrap();
    if file.strip_prefix('v').is_none_or(|number| number.parse::<u64>().is_err()) {
        return false;
    }
    let copied = tempfile::tempdir().unwrap();
    copy(directory, copied.path());
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "broken_files::child_process_opens_a_store", "--nocapture"])
        .env(OPENED, copied.path())
        .output()
        .unwrap();
    let is_aborted = child.status.signal() == Some(ABORTED);
    let said = String::from_utf8_lossy(&child.stderr);
    if is_aborted {
        assert!(said.contains("panicked at"), "{name:?}: {said}");
    }
    is_aborted
}

/// SIGABRT.
const ABORTED: i32 = 6;

#[tokio::test(flavor = "multi_thread")]
async fn child_process_opens_a_store() {
    let Ok(directory) = std::env::var(OPENED) else { return };
    drop(EmbeddedStore::open(Path::new(&directory), options()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_byte_or_a_cut_file_is_never_a_wrong_answer() {
    let seed = 20_261_130;
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let original = tempfile::tempdir().unwrap();
    let data = filled(original.path()).await;
    let names: Vec<PathBuf> = files(original.path())
        .iter()
        .map(|path| path.strip_prefix(original.path()).unwrap().to_owned())
        .collect();
    assert!(names.len() > 5, "{names:?}");
    let mut outcomes: BTreeMap<&str, usize> = BTreeMap::new();
    for case in 0..120 {
        let copied = tempfile::tempdir().unwrap();
        copy(original.path(), copied.path());
        let name = &names[case % names.len()];
        let path = copied.path().join(name);
        let mut bytes = fs::read(&path).unwrap();
        // Journals are long and mostly empty at their end; break what was written.
        let written = bytes.iter().rposition(|byte| *byte != 0).map_or(bytes.len(), |last| last + 1);
        let at = random.random_range(0..written);
        let what = if case % 3 == 2 {
            bytes.truncate(at);
            "cut"
        } else {
            bytes[at] ^= 1 << random.random_range(0..8);
            "broken"
        };
        fs::write(&path, bytes).unwrap();
        let text = format!("{} {what} at {at}", name.display());
        let outcome = match at < ASSERTED_BYTES && ends_the_process(name, copied.path()) {
            true => "ended at open",
            false => judge(copied.path(), &data, &text).await,
        };
        *outcomes.entry(outcome).or_default() += 1;
        println!("{text}: {outcome}");
    }
    println!("{outcomes:?}");
    assert!(outcomes.contains_key("refused at open") && outcomes.len() > 1, "{outcomes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_torn_tail_of_the_journal_loses_nothing_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let data = filled(directory.path()).await;
    let journals: Vec<PathBuf> = files(directory.path())
        .into_iter()
        .filter(|path| path.extension().is_some_and(|end| end == "jnl"))
        .collect();
    let newest = journals.last().unwrap();
    let bytes = fs::read(newest).unwrap();
    let written = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    // A process that died while it wrote the next batch.
    let mut torn = bytes[..written].to_vec();
    torn.extend_from_slice(&[1, 2, 3, 4, 5, 6, 7]);
    fs::write(newest, torn).unwrap();
    assert_eq!(judge(directory.path(), &data, "torn tail").await, "recovered in full");
    // The last acknowledged batch itself.
    let bytes = fs::read(newest).unwrap();
    let mut cut = false;
    for missing in [1, 20, 200] {
        let copied = tempfile::tempdir().unwrap();
        copy(directory.path(), copied.path());
        let name = newest.strip_prefix(directory.path()).unwrap();
        fs::write(copied.path().join(name), &bytes[..bytes.len().min(written) - missing]).unwrap();
        let outcome = judge(copied.path(), &data, &format!("{missing} bytes cut")).await;
        cut |= outcome == "refused at open";
    }
    assert!(cut, "a journal that ends before an acknowledged commit is refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_owner_and_a_strange_format_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), options()).unwrap();
    let error = EmbeddedStore::open(directory.path(), options()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let named = directory.path().display().to_string();
    assert!(error.message().contains(&named) && error.message().contains("another process"), "{error}");
    store.close().await.unwrap();
    assert_eq!(store.timestamp().await.err().unwrap().kind(), ErrorKind::Closed);
    {
        use bytes::{BufMut, BytesMut};
        let engine = DiskEngine::open(&directory.path().join("engine"), &small()).unwrap();
        let mut body = BytesMut::new();
        body.put_u64(99);
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&6u64.to_be_bytes());
        hasher.update(b"format");
        hasher.update(&body);
        let sealed = [hasher.finalize().to_be_bytes().as_slice(), &body].concat();
        let mut batch = store::engine::Batch::default();
        batch.put(Space::Meta, b"format".as_slice(), sealed);
        store::engine::Engine::commit(&engine, batch, store::engine::Durability::Synced).unwrap();
    }
    let error = EmbeddedStore::open(directory.path(), options()).err().unwrap();
    assert!(error.message().contains("format 99"), "{error}");
    fs::remove_file(directory.path().join("CURRENT")).unwrap();
    let error = EmbeddedStore::open(directory.path(), options()).err().unwrap();
    assert!(error.message().contains("CURRENT is missing"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_or_dropped_store_lets_its_directory_go() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let store = EmbeddedStore::open(directory.path(), options()).unwrap();
        let feed =
            store.subscribe(vec![KeyRange::all()], store.read_timestamp().await.unwrap()).await.unwrap();
        if round == 1 {
            store.close().await.unwrap();
        }
        let weak = Arc::downgrade(&store);
        drop(store);
        assert!(weak.upgrade().is_none());
        drop(feed);
    }
}

/// A machine that died while pages were on their way to the disk.
struct Crash {
    /// The acknowledged groups before the torn values, so many after.
    groups_after: u64,
    /// Whether `CURRENT` is as it was before the values were written.
    current_behind: bool,
    force: bool,
}

/// Options under which nothing is written out to tables meanwhile: what is torn is in the journal alone.
fn journal_only() -> Options {
    Options::default()
}

/// Writes a value of 1 MiB that is not synced, loses 4 KiB inside it, and opens what is left.
async fn after(crash: &Crash) -> (tempfile::TempDir, types::Result<Arc<EmbeddedStore>>) {
    let seed = 20_261_201;
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), journal_only()).unwrap();
    put(&store, "before").await;
    let current = fs::read(directory.path().join("CURRENT")).unwrap();
    let mut value = vec![0; 1 << 20];
    StdRng::seed_from_u64(seed).fill(value.as_mut_slice());
    let lost = value[(512 << 10)..(516 << 10)].to_vec();
    store.put_blobs(vec![(Key::from("torn"), value.into())]).await.unwrap();
    store.put_blobs(vec![(Key::from("whole"), Key::from("but not synced either"))]).await.unwrap();
    for group in 0..crash.groups_after {
        put(&store, &format!("after {group}")).await;
    }
    let copied = tempfile::tempdir().unwrap();
    copy(directory.path(), copied.path());
    let mut torn = 0;
    for journal in files(copied.path()).iter().filter(|path| path.extension().is_some_and(|end| end == "jnl"))
    {
        let mut bytes = fs::read(journal).unwrap();
        let written = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let place = bytes[..written].windows(16).position(|window| *window == lost[..16]);
        if let Some(at) = place {
            assert_eq!(bytes[at..at + lost.len()], lost);
            bytes[at..at + lost.len()].fill(0);
            torn += 1;
        }
        fs::write(journal, bytes).unwrap();
    }
    assert_eq!(torn, 1, "seed {seed}: the value is in one journal, as it is");
    if crash.current_behind {
        fs::write(copied.path().join("CURRENT"), current).unwrap();
    }
    let opened = EmbeddedStore::open(copied.path(), Options { force: crash.force, ..journal_only() });
    (copied, opened)
}

async fn put(store: &Arc<EmbeddedStore>, key: &str) {
    let mut transaction = Transaction::begin(store.clone()).await.unwrap();
    transaction.put(key.to_owned(), "value");
    transaction.commit().await.unwrap();
}

async fn kept(directory: &Path, store: &Arc<EmbeddedStore>) -> Vec<Key> {
    let cut = files(directory).iter().filter(|path| path.to_string_lossy().contains("cut-at-")).count();
    assert_eq!(cut, 1, "what is cut off is kept");
    assert_eq!(store.get_blob(b"torn").await.unwrap(), None);
    assert_eq!(store.get_blob(b"whole").await.unwrap(), None, "it came after");
    put(store, "goes on").await;
    let snapshot = Snapshot::newest(store.clone()).await.unwrap();
    snapshot.scan_all(&KeyRange::all()).await.unwrap().into_iter().map(|(key, _)| key).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_torn_batch_that_nobody_was_told_of_is_cut_off() {
    // The group after it, too, was not acknowledged: else its sync had covered the batch before.
    for groups_after in [0, 1] {
        let crash = Crash { groups_after, current_behind: true, force: false };
        let (directory, opened) = after(&crash).await;
        let store = opened.unwrap_or_else(|error| panic!("{groups_after} groups after: {error}"));
        assert_eq!(kept(directory.path(), &store).await, ["before", "goes on"]);
        store.close().await.unwrap();
        drop(store);
        let store = EmbeddedStore::open(directory.path(), options()).unwrap();
        let snapshot = Snapshot::newest(store.clone()).await.unwrap();
        assert_eq!(snapshot.scan_all(&KeyRange::all()).await.unwrap().len(), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_broken_below_acknowledged_groups_is_refused_unless_forced() {
    for (groups_after, current_behind) in [(1, false), (2, true)] {
        let crash = Crash { groups_after, current_behind, force: false };
        let (directory, opened) = after(&crash).await;
        let error = opened.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.message().contains("force the store open"), "{error}");
        assert!(files(directory.path()).iter().all(|path| !path.to_string_lossy().contains("cut-at-")));
        let store = EmbeddedStore::open(directory.path(), Options { force: true, ..options() }).unwrap();
        assert_eq!(kept(directory.path(), &store).await, ["before", "goes on"]);
    }
}
