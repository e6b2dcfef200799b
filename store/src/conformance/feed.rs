//! The change feed: bounded pages are exact, the live feed delivers each change once and resolves in time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use types::Timestamp;

use super::{at, begin, commit_keys, delete, now, prefix, prewrite, put, put_of, visible};
use crate::traits::{Change, FeedEvent, FeedStream, Key, KeyRange, Store, Value};

pub(super) async fn run(store: Arc<dyn Store>) {
    pages_have_every_change_with_old_values(&store).await;
    ranges_select(&store).await;
    a_bounded_feed_settles_locks(&store).await;
    resolved_stays_below_locks(&store).await;
    a_live_feed_follows(&store).await;
    changes_rebuild_the_data(&store).await;
    waiting_ends_with_a_change(&store).await;
    cuts_move_on_over_every_change(&store).await;
}

/// Reads all changes in pages.
async fn all(
    store: &Arc<dyn Store>,
    ranges: &[KeyRange],
    from: Timestamp,
    to: Timestamp,
    limit: usize,
) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut next = None;
    loop {
        let page = store.changes(ranges, from, to, next, limit).await.expect("changes are there");
        assert!(page.changes.len() <= limit);
        changes.extend(page.changes);
        next = page.next;
        if next.is_none() {
            break;
        }
    }
    let n_changes = changes.len() as u64;
    for most in [0, n_changes / 2, n_changes, u64::MAX] {
        let counted = store.count_changes(ranges, from, to, most).await.expect("changes are counted");
        let is_right = if most < n_changes { counted > most } else { counted == n_changes };
        assert!(is_right, "{counted} counted of {n_changes} up to {most}");
    }
    changes
}

async fn pages_have_every_change_with_old_values(store: &Arc<dyn Store>) {
    let from = put(store, "pages/k", "0").await;
    let second = put(store, "pages/k", "1").await;
    let third = delete(store, "pages/k").await;
    let fourth = put(store, "pages/k", "2").await;
    put(store, "pages/k", "later").await;
    let changes = all(store, &[prefix("pages/")], from, fourth, 2).await;
    let value = |text: &str| Some(Value::from(text.to_owned()));
    let got: Vec<_> =
        changes.iter().map(|one| (one.commit_ts, one.old_value.clone(), one.value.clone())).collect();
    let expected = [
        (second, value("0"), value("1")),
        (third, value("1"), None),
        // A deleted key has no value before.
        (fourth, None, value("2")),
    ];
    assert_eq!(got, expected);
    assert!(all(store, &[prefix("pages/")], fourth, fourth, 10).await.is_empty());
    let mut large = begin(store).await;
    for row in 0..2000 {
        large.put(format!("pages/{row:05}"), "v");
    }
    let from = visible(store).await;
    let commit_ts = large.commit().await.expect("a large transaction commits");
    for limit in [1, 255, 256, 257, 5000] {
        let limit = if limit == 1 { 97 } else { limit };
        let changes = all(store, &[prefix("pages/")], from, commit_ts, limit).await;
        let expected: Vec<Key> = (0..2000).map(|row| Key::from(format!("pages/{row:05}"))).collect();
        let keys: Vec<Key> = changes.into_iter().map(|change| change.key).collect();
        assert_eq!(keys, expected, "pages of {limit}");
    }
}

async fn ranges_select(store: &Arc<dyn Store>) {
    let from = visible(store).await;
    let mut large = begin(store).await;
    for row in 0..900 {
        large.put(format!("ranges/{row:03}"), "v");
    }
    let to = large.commit().await.expect("it commits");
    let ranges = [
        KeyRange::new("ranges/700", "ranges/703"),
        KeyRange::new("ranges/100", "ranges/105"),
        KeyRange::new("ranges/103", "ranges/107"),
        KeyRange::new("ranges/899", ""),
        KeyRange::new("ranges/5", "ranges/5"),
    ];
    for limit in [1, 3, 100] {
        let keys: Vec<String> = all(store, &ranges, from, to, limit)
            .await
            .into_iter()
            .map(|change| String::from_utf8_lossy(&change.key[7..]).into_owned())
            .collect();
        let expected = ["100", "101", "102", "103", "104", "105", "106", "700", "701", "702", "899"];
        assert_eq!(keys, expected, "pages of {limit}");
    }
}

async fn a_bounded_feed_settles_locks(store: &Arc<dyn Store>) {
    let from = visible(store).await;
    let committed = now(store).await;
    let keys = ["settle/a", "settle/b"];
    let mutations = keys.iter().map(|key| put_of(key, "v")).collect();
    store.prewrite(prewrite(committed, "settle/a", mutations)).await.expect("keys are locked");
    let commit_ts =
        commit_keys(store, committed, "settle/a", &["settle/a"], None).await.expect("the primary commits");
    let living = now(store).await;
    store
        .prewrite(prewrite(living, "settle/c", vec![put_of("settle/c", "v")]))
        .await
        .expect("a key is locked");
    let to = visible(store).await;
    let changes = all(store, &[prefix("settle/")], from, to, 10).await;
    let got: Vec<_> = changes.iter().map(|one| (one.key.as_ref(), one.commit_ts)).collect();
    let expected = [(b"settle/a".as_slice(), commit_ts), (b"settle/b".as_slice(), commit_ts)];
    assert_eq!(got, expected, "the secondary of a decided transaction is not forgotten");
    let later = commit_keys(store, living, "settle/c", &["settle/c"], None).await.expect("it commits");
    assert!(later > to, "what lived while the feed read up to T commits above T");
}

async fn resolved_stays_below_locks(store: &Arc<dyn Store>) {
    let range = [prefix("resolved/")];
    let start = now(store).await;
    store
        .prewrite(prewrite(start, "resolved/k", vec![put_of("resolved/k", "v")]))
        .await
        .expect("a key is locked");
    let held = store.resolved(&range).await.expect("resolved answers");
    assert!(held < start, "{held} is held by the lock of {start}");
    let elsewhere = store.resolved(&[prefix("elsewhere/")]).await.expect("resolved answers");
    assert!(elsewhere >= start, "a lock holds back nothing but its range");
    let commit_ts = commit_keys(store, start, "resolved/k", &["resolved/k"], None).await.expect("it commits");
    let resolved = store.resolved(&range).await.expect("resolved answers");
    assert!(resolved >= commit_ts);
    let idle = store.resolved(&range).await.expect("resolved answers");
    assert!(idle >= resolved, "an idle range moves with the oracle");
}

async fn next_event(feed: &mut FeedStream) -> FeedEvent {
    let next = tokio::time::timeout(Duration::from_secs(20), feed.next()).await;
    next.expect("the feed speaks in time").expect("the feed does not end").expect("the feed does not fail")
}

async fn a_live_feed_follows(store: &Arc<dyn Store>) {
    let from = visible(store).await;
    let mut feed = store.subscribe(vec![prefix("live/")], from).await.expect("a feed begins");
    let writing = async {
        let mut commits = Vec::new();
        for number in 0..30 {
            commits.push(put(store, &format!("live/{}", number % 7), &number.to_string()).await);
            put(store, "not in the range", "v").await;
        }
        let mut halves = begin(store).await;
        halves.put("live/a", "v");
        halves.put("live/b", "v");
        let commit_ts = halves.commit_in_halves().await.expect("it commits");
        commits.extend([commit_ts, commit_ts]);
        commits
    };
    let reading = async {
        let (mut seen, mut resolved) = (Vec::new(), from);
        while seen.len() < 32 || resolved < *seen.last().expect("something was seen") {
            match next_event(&mut feed).await {
                FeedEvent::Change(change) => {
                    assert!(change.commit_ts > resolved, "a change comes before its resolved timestamp");
                    seen.push(change.commit_ts);
                }
                FeedEvent::Resolved(ts) => {
                    assert!(ts > resolved, "resolved timestamps rise");
                    resolved = ts;
                }
            }
        }
        seen
    };
    let (commits, seen) = futures::join!(writing, reading);
    assert_eq!(seen, commits, "each change once, in commit order");
    let mut again = store.subscribe(vec![prefix("live/")], commits[9]).await.expect("a feed begins");
    let FeedEvent::Change(first) = next_event(&mut again).await else {
        panic!("a feed begins with what is there")
    };
    assert_eq!(first.commit_ts, commits[10], "a feed begins right after its timestamp");
}

async fn changes_rebuild_the_data(store: &Arc<dyn Store>) {
    let range = prefix("rebuild/");
    let mut data: BTreeMap<Key, Value> = BTreeMap::new();
    let mut from = visible(store).await;
    for round in 0..20u32 {
        let mut transaction = begin(store).await;
        for step in 0..10 {
            let key = format!("rebuild/{:02}", (round * 7 + step * step) % 40);
            if (round + step) % 4 == 0 {
                transaction.delete(key);
            } else {
                transaction.put(key, format!("{round}.{step}"));
            }
        }
        if round % 2 == 0 {
            transaction.commit().await.expect("it commits");
        } else {
            transaction.commit_in_halves().await.expect("it commits");
        }
        let to = visible(store).await;
        for change in all(store, std::slice::from_ref(&range), from, to, 3).await {
            let before = match change.value {
                Some(value) => data.insert(change.key, value),
                None => data.remove(&change.key),
            };
            assert_eq!(before, change.old_value, "the old value is what was there");
        }
        let stored = at(store, to).scan(&range, 1000).await.expect("a scan succeeds");
        assert_eq!(data.clone().into_iter().collect::<Vec<_>>(), stored, "round {round}");
        from = to;
    }
}

async fn waiting_ends_with_a_change(store: &Arc<dyn Store>) {
    let ts = visible(store).await;
    let quiet = store.wait_change(ts, 5).await.expect("waiting ends");
    assert!(quiet >= ts);
    let (woken, commit_ts) = futures::join!(store.wait_change(ts, 20_000), put(store, "wait/k", "v"));
    assert!(woken.expect("waiting ends") >= commit_ts);
}

/// Whoever moves from cut to cut sees every change once, in time.
async fn cuts_move_on_over_every_change(store: &Arc<dyn Store>) {
    let ranges = [prefix("cut/")];
    let mut cut = visible(store).await;
    let mut seen = Vec::new();
    let mut written = Vec::new();
    for number in 0..20 {
        written.push(put(store, &format!("cut/{number}"), "v").await);
        while seen.len() < written.len() {
            let next = store.cut(&ranges, cut, 20_000).await.expect("there is a cut");
            assert!(next >= cut, "cuts do not go back: {next} after {cut}");
            seen.extend(all(store, &ranges, cut, next, 100).await.iter().map(|change| change.commit_ts));
            cut = next;
        }
    }
    assert_eq!(seen, written);
    let idle = store.cut(&ranges, cut, 0).await.expect("there is a cut");
    assert!(idle >= cut, "nothing has changed");
    assert!(store.cut(&[], cut, 0).await.expect("there is a cut of nothing") >= cut);
}
