//! A call whose answer was lost is made once more, after others have gone on.

use store::{EmbeddedStore, Key, Mutation, PrewriteRequest, Store};
use types::Timestamp;

/// A transaction that guards `guarded` and does something to `written`.
async fn repeated(op: impl Fn() -> Mutation, first_value: bool) {
    let store = EmbeddedStore::memory();
    if first_value {
        let start_ts = store.timestamp().await.unwrap();
        store.commit_transaction(start_ts, vec![Mutation::put("written", "before")]).await.unwrap();
    }
    let start_ts = store.timestamp().await.unwrap();
    let mutations = || vec![Mutation::lock("guarded"), op()];
    let commit_ts = store.commit_transaction(start_ts, mutations()).await.unwrap();
    // Another one guards the key: of the guards of whole transactions only the newest is kept.
    let other_ts = store.timestamp().await.unwrap();
    store.commit_transaction(other_ts, vec![Mutation::lock("guarded")]).await.unwrap();
    let again = store.commit_transaction(start_ts, mutations()).await;
    assert_eq!(again.expect("it has committed"), commit_ts);
    // The key is locked by one that lives.
    let locking_ts = store.timestamp().await.unwrap();
    let request = PrewriteRequest {
        mutations: vec![Mutation::put("guarded", "by another")],
        primary: Key::from("guarded"),
        start_ts: locking_ts,
        ttl_ms: 60_000,
        txn_size: 1,
        min_commit_ts: Timestamp::ZERO,
        assertion_level: store::AssertionLevel::Off,
        staged: false,
    };
    store.prewrite(request).await.unwrap();
    let again = store.commit_transaction(start_ts, mutations()).await;
    assert_eq!(again.expect("it has committed"), commit_ts);
}

#[tokio::test]
async fn a_repeated_commit_is_known_by_any_of_its_writes() {
    repeated(|| Mutation::put("written", "value"), false).await;
    repeated(|| Mutation::insert("written", "value"), false).await;
    repeated(|| Mutation::delete("written"), true).await;
}
