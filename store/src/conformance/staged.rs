//! Staged prewrites: nothing is visible before the primary commits, everything at once after.

use std::sync::Arc;

use super::{at, begin, commit_keys, now, prefix, prewrite, put, put_of, read, visible};
use crate::traits::{Key, KeyError, KeyRange, PrewriteRequest, Store};

pub(super) async fn run(store: Arc<dyn Store>) {
    rows_appear_with_the_primary(&store).await;
    readers_look_past_staged_locks(&store).await;
    a_rolled_back_primary_takes_all_with_it(&store).await;
    staged_and_stored_locks_mix(&store).await;
}

fn staged(request: PrewriteRequest) -> PrewriteRequest {
    PrewriteRequest { staged: true, ..request }
}

async fn rows_appear_with_the_primary(store: &Arc<dyn Store>) {
    put(store, "rows/0007", "old").await;
    let from = visible(store).await;
    let start = now(store).await;
    let primary = staged(prewrite(start, "rows.primary", vec![put_of("rows.primary", "record")]));
    store.prewrite(primary).await.expect("the primary is locked");
    for piece in 0..10 {
        let rows = (0..100).map(|row| put_of(&format!("rows/{:04}", piece * 100 + row), "new")).collect();
        store.prewrite(staged(prewrite(start, "rows.primary", rows))).await.expect("rows are locked");
    }
    let again = vec![put_of("rows/0007", "another value")];
    store.prewrite(staged(prewrite(start, "rows.primary", again))).await.expect("a repeat is fine");
    let before = visible(store).await;
    let commit_ts = commit_keys(store, start, "rows.primary", &["rows.primary"], None)
        .await
        .expect("the primary commits");
    assert_eq!(at(store, before).scan(&prefix("rows/"), 2000).await.expect("a scan succeeds").len(), 1);
    let rows = at(store, commit_ts).scan(&prefix("rows/"), 2000).await.expect("a scan succeeds");
    assert_eq!(rows.len(), 1000);
    assert!(rows.iter().all(|(_, value)| value == "new"), "the first value of a key counts");
    let locks = store.scan_lock(&KeyRange::all(), commit_ts, 0).await.expect("locks are listed");
    assert!(
        locks.iter().all(|lock| lock.start_ts != start),
        "a store that stages leaves no lock, another finishes"
    );
    let page =
        store.changes(&[prefix("rows/")], from, commit_ts, None, 2000).await.expect("changes are there");
    assert_eq!(page.changes.len(), 1000);
    assert_eq!(page.changes[7].old_value.as_deref(), Some(b"old".as_slice()));
    let again = commit_keys(store, start, "rows.primary", &["rows/0500"], Some(commit_ts)).await;
    assert_eq!(again.expect("a worker may commit its rows once more"), commit_ts);
}

async fn readers_look_past_staged_locks(store: &Arc<dyn Store>) {
    put(store, "past/row", "old").await;
    let start = now(store).await;
    let mutations = vec![put_of("past.primary", "record"), put_of("past/row", "new")];
    store.prewrite(staged(prewrite(start, "past.primary", mutations))).await.expect("keys are locked");
    let reader = now(store).await;
    assert_eq!(read(store, "past/row", reader).await.as_deref(), Some("old"));
    let commit_ts = commit_keys(store, start, "past.primary", &["past.primary"], None)
        .await
        .expect("no refusals when drawn");
    assert!(commit_ts > reader);
    assert_eq!(read(store, "past/row", reader).await.as_deref(), Some("old"));
    assert_eq!(read(store, "past/row", commit_ts).await.as_deref(), Some("new"));
}

async fn a_rolled_back_primary_takes_all_with_it(store: &Arc<dyn Store>) {
    put(store, "undone/row", "old").await;
    let start = now(store).await;
    let mutations = vec![put_of("undone.primary", "record"), put_of("undone/row", "new")];
    store.prewrite(staged(prewrite(start, "undone.primary", mutations))).await.expect("keys are locked");
    store.batch_rollback(start, &[Key::from("undone.primary")]).await.expect("the primary is rolled back");
    let refused = commit_keys(store, start, "undone.primary", &["undone.primary"], None).await;
    assert!(matches!(refused, Err(KeyError::TxnLockNotFound(_))), "{refused:?}");
    let mut writer = begin(store).await;
    writer.put("undone/row", "by another");
    let commit_ts = writer.commit().await.expect("the row's lock is found to be rolled back");
    assert_eq!(read(store, "undone/row", commit_ts).await.as_deref(), Some("by another"));
    let late =
        store.prewrite(staged(prewrite(start, "undone.primary", vec![put_of("undone.primary", "x")]))).await;
    assert!(late.is_err(), "the rollback is remembered");
}

async fn staged_and_stored_locks_mix(store: &Arc<dyn Store>) {
    let from = visible(store).await;
    let start = now(store).await;
    let primary = staged(prewrite(start, "mix.primary", vec![put_of("mix.primary", "record")]));
    store.prewrite(primary).await.expect("the primary is locked");
    let even = (0..600).step_by(2).map(|row| put_of(&format!("mix/{row:03}"), "staged")).collect();
    store.prewrite(staged(prewrite(start, "mix.primary", even))).await.expect("rows are locked");
    let odd: Vec<String> = (0..600).skip(1).step_by(2).map(|row| format!("mix/{row:03}")).collect();
    let mutations = odd.iter().map(|key| put_of(key, "stored")).collect();
    store.prewrite(prewrite(start, "mix.primary", mutations)).await.expect("rows are locked");
    let commit_ts =
        commit_keys(store, start, "mix.primary", &["mix.primary"], None).await.expect("the primary commits");
    let rows = at(store, commit_ts).scan(&prefix("mix/"), 1000).await.expect("a scan resolves locks");
    assert_eq!(rows.len(), 600);
    let odd: Vec<&str> = odd.iter().map(String::as_str).collect();
    commit_keys(store, start, "mix.primary", &odd, Some(commit_ts))
        .await
        .expect("the worker commits its rows");
    for limit in [7, 250, 1000] {
        let mut next = None;
        let mut keys = Vec::new();
        loop {
            let page = store
                .changes(&[prefix("mix/")], from, commit_ts, next, limit)
                .await
                .expect("changes are there");
            keys.extend(page.changes.into_iter().map(|change| change.key));
            next = page.next;
            if next.is_none() {
                break;
            }
        }
        let expected: Vec<Key> = (0..600).map(|row| Key::from(format!("mix/{row:03}"))).collect();
        assert_eq!(
            keys, expected,
            "pages of {limit}: all keys of one commit in order, however they were locked"
        );
    }
}
