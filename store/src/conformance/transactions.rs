//! Whole transactions and the convenience over them: conflicts, inserts, guards, own writes, repeats.

use std::sync::Arc;

use super::{begin, commit_keys, delete, now, prefix, prewrite, put, put_of, read, text};
use crate::Transaction;
use crate::traits::{Key, KeyError, Mutation, Store};

pub(super) async fn run(store: Arc<dyn Store>) {
    of_two_writers_the_first_wins(&store).await;
    guards_conflict(&store).await;
    inserts_find_what_exists(&store).await;
    own_writes_are_read(&store).await;
    repeated_commits_answer_the_same(&store).await;
    halves_and_whole_exclude_each_other(&store).await;
    writers_finish_what_is_decided(&store).await;
    a_key_twice_is_refused(&store).await;
}

async fn of_two_writers_the_first_wins(store: &Arc<dyn Store>) {
    put(store, "rivals/k", "0").await;
    let (mut first, mut second) = (begin(store).await, begin(store).await);
    first.put("rivals/k", "1");
    second.put("rivals/other", "2");
    second.delete("rivals/k");
    let (first_start, second_start) = (first.start_ts(), second.start_ts());
    let commit_ts = first.commit().await.expect("the first commits");
    match second.commit().await {
        Err(KeyError::WriteConflict { key, start_ts, conflict_start_ts, conflict_commit_ts, .. }) => {
            assert_eq!((key.as_ref(), start_ts), (b"rivals/k".as_slice(), second_start));
            assert_eq!((conflict_start_ts, conflict_commit_ts), (first_start, commit_ts));
        }
        other => panic!("{other:?}"),
    }
    let later = now(store).await;
    assert_eq!(read(store, "rivals/other", later).await, None, "nothing of a refused transaction stays");
}

async fn guards_conflict(store: &Arc<dyn Store>) {
    let (mut guard, mut writer) = (begin(store).await, begin(store).await);
    guard.lock("guard/k");
    guard.put("guard/mine", "v");
    writer.put("guard/k", "v");
    guard.commit().await.expect("the guard commits");
    assert!(
        matches!(writer.commit().await, Err(KeyError::WriteConflict { .. })),
        "a guard keeps writers out"
    );
    let (mut guard, mut writer) = (begin(store).await, begin(store).await);
    guard.lock("guard/k");
    writer.put("guard/k", "v");
    writer.commit().await.expect("the writer commits");
    assert!(matches!(guard.commit().await, Err(KeyError::WriteConflict { .. })), "a write breaks a guard");
}

async fn inserts_find_what_exists(store: &Arc<dyn Store>) {
    put(store, "insert/k", "there").await;
    let mut transaction = begin(store).await;
    transaction.insert("insert/k", "again");
    let refused = transaction.commit().await;
    assert!(matches!(&refused, Err(KeyError::AlreadyExists(key)) if key == "insert/k"), "{refused:?}");
    let mut transaction = begin(store).await;
    transaction.mutate(Mutation { op: crate::MutationOp::CheckNotExists, ..Mutation::lock("insert/k") });
    transaction.put("insert/unique", "v");
    assert!(matches!(transaction.commit().await, Err(KeyError::AlreadyExists(_))));
    delete(store, "insert/k").await;
    let mut transaction = begin(store).await;
    transaction.insert("insert/k", "again");
    let commit_ts = transaction.commit().await.expect("a deleted key can be inserted");
    assert_eq!(read(store, "insert/k", commit_ts).await.as_deref(), Some("again"));
}

async fn own_writes_are_read(store: &Arc<dyn Store>) {
    for number in [1, 3, 5, 7] {
        put(store, &format!("own/{number}"), "stored").await;
    }
    let mut transaction = begin(store).await;
    transaction.put("own/0", "own");
    transaction.put("own/3", "own");
    transaction.delete("own/5");
    transaction.put("own/9", "own");
    transaction.lock("own/7");
    let get = async |key: &str| transaction.get(key.as_bytes()).await.expect("a read succeeds");
    assert_eq!(get("own/3").await.as_deref(), Some(b"own".as_slice()));
    assert_eq!(get("own/5").await, None);
    assert_eq!(get("own/7").await.as_deref(), Some(b"stored".as_slice()));
    let expected = ["0=own", "1=stored", "3=own", "7=stored", "9=own"];
    for limit in 1..=expected.len() + 1 {
        let found = transaction.scan(&prefix("own/"), limit).await.expect("a scan succeeds");
        let shown: Vec<String> =
            found.iter().map(|(key, value)| format!("{}={}", &text(key)[4..], text(value))).collect();
        assert_eq!(shown, expected[..limit.min(expected.len())], "limit {limit}");
    }
    let keys = ["own/0", "own/1", "own/5"].map(Key::from);
    let found = transaction.batch_get(&keys).await.expect("a batch get succeeds");
    assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false]);
    drop(transaction);
    let later = now(store).await;
    assert_eq!(read(store, "own/0", later).await, None, "a dropped transaction leaves nothing");
}

async fn repeated_commits_answer_the_same(store: &Arc<dyn Store>) {
    let start = now(store).await;
    let mutations = vec![put_of("repeat/a", "v"), put_of("repeat/b", "v")];
    let commit_ts = store.commit_transaction(start, mutations.clone()).await.expect("it commits");
    put(store, "repeat/a", "newer").await;
    let again = store.commit_transaction(start, mutations).await.expect("a lost answer is asked for again");
    assert_eq!(again, commit_ts);
    let later = now(store).await;
    assert_eq!(read(store, "repeat/a", later).await.as_deref(), Some("newer"), "nothing is applied twice");
}

async fn halves_and_whole_exclude_each_other(store: &Arc<dyn Store>) {
    let mut halves = begin(store).await;
    for number in 0..5 {
        halves.put(format!("halves/{number}"), "halves");
    }
    let mut rival = begin(store).await;
    rival.put("halves/3", "whole");
    rival.commit().await.expect("the whole transaction commits");
    let refused = halves.commit_in_halves().await;
    assert!(matches!(refused, Err(KeyError::WriteConflict { .. })), "{refused:?}");
    let ts = now(store).await;
    assert!(store.scan_lock(&prefix("halves/"), ts, 0).await.expect("locks are listed").is_empty());
    assert_eq!(read(store, "halves/0", ts).await, None);
    let mut halves = Transaction::begin(Arc::clone(store)).await.expect("a transaction begins");
    halves.put("halves/3", "halves");
    halves.insert("halves/new", "halves");
    let commit_ts = halves.commit_in_halves().await.expect("the halves commit");
    assert_eq!(read(store, "halves/new", commit_ts).await.as_deref(), Some("halves"));
}

async fn writers_finish_what_is_decided(store: &Arc<dyn Store>) {
    let start = now(store).await;
    let request = prewrite(start, "decided/a", vec![put_of("decided/a", "1"), put_of("decided/b", "1")]);
    store.prewrite(request).await.expect("free keys are locked");
    commit_keys(store, start, "decided/a", &["decided/a"], None).await.expect("the primary commits");
    let mut writer = begin(store).await;
    assert_eq!(writer.get(b"decided/b").await.expect("a read succeeds").as_deref(), Some(b"1".as_slice()));
    writer.put("decided/b", "2");
    writer.commit().await.expect("the secondary's lock is finished, not waited for");
}

async fn a_key_twice_is_refused(store: &Arc<dyn Store>) {
    let start = now(store).await;
    let twice = vec![put_of("twice/k", "1"), put_of("twice/k", "2")];
    assert!(store.prewrite(prewrite(start, "twice/k", twice.clone())).await.is_err());
    assert!(store.commit_transaction(start, twice).await.is_err());
    let ts = now(store).await;
    assert_eq!(read(store, "twice/k", ts).await, None);
}
