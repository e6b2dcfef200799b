//! Reads at a timestamp: repeatable, in order, complete over pages, deletes and empty values told apart.

use std::sync::Arc;

use types::Timestamp;

use super::{at, delete, newest, now, prefix, put, read, visible};
use crate::traits::{Key, KeyRange, ReadContext, ScanRequest, Store};

pub(super) async fn run(store: Arc<dyn Store>) {
    versions_are_read_at_their_timestamps(&store).await;
    pages_and_directions_agree(&store).await;
    timestamps_rise_and_are_unique(&store).await;
}

async fn versions_are_read_at_their_timestamps(store: &Arc<dyn Store>) {
    let before = visible(store).await;
    let mut commits = Vec::new();
    for number in 0..8 {
        commits.push((put(store, "reads/k", &number.to_string()).await, Some(number.to_string())));
        if number % 3 == 2 {
            commits.push((delete(store, "reads/k").await, None));
        }
    }
    let empty = put(store, "reads/k", "").await;
    commits.push((empty, Some(String::new())));
    assert_eq!(read(store, "reads/k", before).await, None);
    for pass in ["first", "second"] {
        for (commit_ts, value) in &commits {
            assert_eq!(read(store, "reads/k", *commit_ts).await, *value, "at the commit, {pass}");
            let older = read(store, "reads/k", commit_ts.prev()).await;
            let expected = commits.iter().rev().find(|(other, _)| other < commit_ts);
            assert_eq!(older, expected.and_then(|(_, value)| value.clone()), "just below the commit, {pass}");
        }
        put(store, "reads/k", "newer").await;
    }
    let found = store.kv_get(b"reads/k", &ReadContext::at(Timestamp::MAX)).await.expect("the newest is read");
    assert_eq!(found.as_deref(), Some(b"newer".as_slice()));
}

async fn pages_and_directions_agree(store: &Arc<dyn Store>) {
    for number in 0..50 {
        put(store, &format!("scan/{number:02}"), "v").await;
    }
    for number in (0..50).step_by(7) {
        delete(store, &format!("scan/{number:02}")).await;
    }
    let snapshot = newest(store).await;
    put(store, "scan/later", "not in the snapshot").await;
    let expected: Vec<Key> = (0..50)
        .filter(|number| number % 7 != 0)
        .map(|number| Key::from(format!("scan/{number:02}")))
        .collect();
    let range = prefix("scan/");
    for page_pairs in [1, 3, 42, 1000] {
        let mut pages = snapshot.pages(range.clone(), page_pairs);
        let mut keys = Vec::new();
        while let Some(page) = pages.next().await.expect("a page is read") {
            assert!(!page.is_empty() && page.len() <= page_pairs);
            keys.extend(page.into_iter().map(|(key, _)| key));
        }
        assert_eq!(keys, expected, "pages of {page_pairs}");
    }
    let mut reverse = snapshot.scan_reverse(&range, 1000).await.expect("a scan succeeds");
    reverse.reverse();
    assert!(reverse.iter().map(|(key, _)| key).eq(&expected), "reverse has the same keys");
    let last = snapshot.scan_reverse(&range, 3).await.expect("a scan succeeds");
    assert_eq!(last[2].0, expected[expected.len() - 3]);
    let keys = snapshot.scan_keys(&range, 1000).await.expect("a scan succeeds");
    assert_eq!(keys, expected);
    let empty = KeyRange::new("scan/3", "scan/3");
    assert!(snapshot.scan(&empty, 10).await.expect("a scan succeeds").is_empty());
    let backwards = KeyRange::new("scan/4", "scan/3");
    assert!(snapshot.scan(&backwards, 10).await.expect("a scan succeeds").is_empty());

    let wanted: Vec<Key> = ["scan/01", "scan/00", "scan/49", "nothing", "scan/01"].map(Key::from).to_vec();
    let found = snapshot.batch_get(&wanted).await.expect("a batch get succeeds");
    assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, false, false, true]);
    let request = ScanRequest { range, limit: 0, key_only: false, reverse: false };
    let none = store.kv_scan(&request, &ReadContext::at(snapshot.ts())).await.expect("a scan succeeds");
    assert!(none.is_empty(), "a limit of zero reads nothing");
}

async fn timestamps_rise_and_are_unique(store: &Arc<dyn Store>) {
    let mut last = Timestamp::ZERO;
    for number in 0..200 {
        let next = now(store).await;
        assert!(next > last, "{next} after {last}");
        last = next;
        if number % 20 == 0 {
            let read_ts = visible(store).await;
            assert!(read_ts >= last, "nothing is under way: what is visible follows the oracle");
            let committed = put(store, "reads/t", "v").await;
            assert!(committed > read_ts, "commits come after what could be read");
            assert!(visible(store).await >= committed, "an acknowledged commit is visible");
            last = committed;
        }
    }
    let start = now(store).await;
    store.wait_visible(start).await.expect("a start becomes visible");
    assert_eq!(
        at(store, start).get(b"reads/t").await.expect("a read succeeds").as_deref(),
        Some(b"v".as_slice())
    );
    let future = Timestamp::from_parts(start.physical_ms() + 3_000_000, 0);
    assert!(store.kv_get(b"reads/t", &ReadContext::at(future)).await.is_err(), "the future cannot be read");
}
