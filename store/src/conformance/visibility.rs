//! Concurrency: commits become visible in their order, sums never waver, a snapshot never changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::join_all;
use types::Timestamp;

use super::{at, begin, now, prefix, put, visible};
use crate::traits::{KeyError, Store};

pub(super) async fn run(store: Arc<dyn Store>) {
    acknowledged_commits_are_visible_in_order(&store).await;
    money_is_neither_made_nor_lost(&store).await;
}

const WRITERS: usize = 8;
const COMMITS: usize = 20;

/// Each writer counts up a key of its own and one that is shared by nobody; a reader that sees a commit
/// sees every commit with a smaller timestamp.
async fn acknowledged_commits_are_visible_in_order(store: &Arc<dyn Store>) {
    let done = AtomicBool::new(false);
    let writer = async |number: usize| {
        let mut commits = Vec::new();
        for count in 0..COMMITS {
            let before = visible(store).await;
            let commit_ts = put(store, &format!("order/{number}"), &count.to_string()).await;
            assert!(commit_ts > before, "a commit is above what was visible when it began");
            assert!(visible(store).await >= commit_ts, "an acknowledged commit is visible");
            commits.push((commit_ts, number, count));
            tokio::task::yield_now().await;
        }
        commits
    };
    let writing = async {
        let commits = join_all((0..WRITERS).map(writer)).await;
        done.store(true, Ordering::SeqCst);
        commits
    };
    let reading = async {
        let mut seen: Vec<(Timestamp, BTreeMap<String, String>)> = Vec::new();
        while !done.load(Ordering::SeqCst) {
            let ts = visible(store).await;
            seen.push((ts, snapshot_of(store, "order/", ts).await));
            tokio::task::yield_now().await;
        }
        seen
    };
    let (commits, seen) = futures::join!(writing, reading);
    let commits: Vec<(Timestamp, usize, usize)> = commits.into_iter().flatten().collect();
    let distinct: std::collections::BTreeSet<Timestamp> =
        commits.iter().map(|(commit_ts, ..)| *commit_ts).collect();
    assert_eq!(distinct.len(), commits.len(), "commit timestamps are unique");
    for (ts, data) in seen {
        let mut expected = BTreeMap::new();
        for (_, number, count) in commits.iter().filter(|(commit_ts, ..)| *commit_ts <= ts) {
            let newest: &mut usize = expected.entry(format!("order/{number}")).or_default();
            *newest = (*newest).max(*count);
        }
        let expected: BTreeMap<String, String> =
            expected.into_iter().map(|(key, count)| (key, count.to_string())).collect();
        assert_eq!(data, expected, "a read at {ts} is all that committed at or below it, and nothing else");
        assert_eq!(snapshot_of(store, "order/", ts).await, expected, "and stays so");
    }
}

async fn snapshot_of(store: &Arc<dyn Store>, start: &str, ts: Timestamp) -> BTreeMap<String, String> {
    let pairs = at(store, ts).scan(&prefix(start), 1000).await.expect("a scan succeeds");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    pairs.into_iter().map(|(key, value)| (text(&key), text(&value))).collect()
}

const ACCOUNTS: usize = 10;
const BALANCE: i64 = 100;

async fn money_is_neither_made_nor_lost(store: &Arc<dyn Store>) {
    for account in 0..ACCOUNTS {
        put(store, &format!("bank/{account}"), &BALANCE.to_string()).await;
    }
    let done = AtomicBool::new(false);
    let teller = async |number: usize| {
        let mut transferred = 0;
        for step in 0..25 {
            let (from, to) = ((number * 3 + step) % ACCOUNTS, (number + step * 7 + 1) % ACCOUNTS);
            if from != to {
                transferred += usize::from(transfer(store, from, to, number.is_multiple_of(2)).await);
            }
            tokio::task::yield_now().await;
        }
        transferred
    };
    let working = async {
        let transferred = join_all((0..WRITERS).map(teller)).await;
        done.store(true, Ordering::SeqCst);
        transferred.into_iter().sum::<usize>()
    };
    let auditing = async {
        let mut audits = 0;
        while !done.load(Ordering::SeqCst) {
            let ts = if audits % 2 == 0 { visible(store).await } else { now(store).await };
            let balances = snapshot_of(store, "bank/", ts).await;
            let total: i64 =
                balances.values().map(|balance| balance.parse::<i64>().expect("a balance is a number")).sum();
            assert_eq!(total, ACCOUNTS as i64 * BALANCE, "at {ts}: {balances:?}");
            audits += 1;
            tokio::task::yield_now().await;
        }
        audits
    };
    let (transferred, audits) = futures::join!(working, auditing);
    assert!(transferred > 0 && audits > 0, "{transferred} transfers, {audits} audits");
}

/// Moves one unit; `false` if somebody else was faster or the account is empty.
async fn transfer(store: &Arc<dyn Store>, from: usize, to: usize, halves: bool) -> bool {
    let mut transaction = begin(store).await;
    let mut balances = Vec::new();
    for account in [from, to] {
        let value = transaction.get(format!("bank/{account}").as_bytes()).await.expect("a read succeeds");
        let value = value.expect("an account exists");
        balances
            .push(std::str::from_utf8(&value).expect("a balance is text").parse::<i64>().expect("a number"));
    }
    if balances[0] == 0 {
        return false;
    }
    transaction.put(format!("bank/{from}"), (balances[0] - 1).to_string());
    transaction.put(format!("bank/{to}"), (balances[1] + 1).to_string());
    let result = if halves { transaction.commit_in_halves().await } else { transaction.commit().await };
    match result {
        Ok(_) => true,
        Err(KeyError::WriteConflict { .. } | KeyError::Locked(_)) => false,
        Err(error) => panic!("{error:?}"),
    }
}
