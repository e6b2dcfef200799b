//! Pessimistic transactions of other clients, as TiDB's are: their locks are in no reader's way, their
//! commits lie above what committed after their start, and what they leave behind is ended once their time is
//! over.

use store::{Change, Key, KeyRange, Store};
use tikv::proto::kvrpcpb::{self, prewrite_request::PessimisticAction, write_conflict::Reason};
use tikv_server::Options;
use types::Timestamp;

use super::Pair;
use super::foreign::{Raw, outlive};

/// One such transaction; its primary is its first key.
struct Transaction<'a> {
    raw: Raw<'a>,
    start_ts: Timestamp,
    ttl_ms: u64,
    keys: Vec<Key>,
}

impl<'a> Transaction<'a> {
    async fn begin(pair: &'a Pair, ttl_ms: u64, keys: &[&str]) -> Transaction<'a> {
        let start_ts = pair.client.timestamp().await.expect("the oracle answers");
        let keys = keys.iter().map(|key| Key::from((*key).to_owned())).collect();
        Transaction { raw: Raw::new(pair).await, start_ts, ttl_ms, keys }
    }

    fn mutations(&self, keys: &[usize], op: kvrpcpb::Op) -> Vec<kvrpcpb::Mutation> {
        let mutation = |at: &usize| kvrpcpb::Mutation {
            op: op.into(),
            key: self.keys[*at].clone(),
            value: Key::from(if op == kvrpcpb::Op::Put { "foreign" } else { "" }),
            ..kvrpcpb::Mutation::default()
        };
        keys.iter().map(mutation).collect()
    }

    async fn lock(&mut self, keys: &[usize], for_update_ts: Timestamp) -> kvrpcpb::PessimisticLockResponse {
        let request = kvrpcpb::PessimisticLockRequest {
            context: self.raw.context().await,
            mutations: self.mutations(keys, kvrpcpb::Op::PessimisticLock),
            primary_lock: self.keys[0].clone(),
            start_version: self.start_ts.0,
            lock_ttl: self.ttl_ms,
            for_update_ts: for_update_ts.0,
            is_first_lock: true,
            return_values: true,
            min_commit_ts: for_update_ts.0 + 1,
            ..kvrpcpb::PessimisticLockRequest::default()
        };
        self.raw.client.kv_pessimistic_lock(request).await.expect("the store answers").into_inner()
    }

    async fn locked(&mut self, keys: &[usize], for_update_ts: Timestamp) {
        let answer = self.lock(keys, for_update_ts).await;
        assert!(answer.errors.is_empty() && answer.region_error.is_none(), "{answer:?}");
    }

    async fn prewrite(&mut self, keys: &[usize], for_update_ts: Timestamp) -> Vec<kvrpcpb::KeyError> {
        let request = kvrpcpb::PrewriteRequest {
            context: self.raw.context().await,
            mutations: self.mutations(keys, kvrpcpb::Op::Put),
            primary_lock: self.keys[0].clone(),
            start_version: self.start_ts.0,
            lock_ttl: self.ttl_ms,
            txn_size: keys.len() as u64,
            min_commit_ts: for_update_ts.0 + 1,
            for_update_ts: for_update_ts.0,
            pessimistic_actions: vec![PessimisticAction::DoPessimisticCheck.into(); keys.len()],
            ..kvrpcpb::PrewriteRequest::default()
        };
        self.raw.client.kv_prewrite(request).await.expect("the store answers").into_inner().errors
    }

    async fn commit(&mut self, keys: &[usize], commit_ts: Timestamp) {
        let request = kvrpcpb::CommitRequest {
            context: self.raw.context().await,
            start_version: self.start_ts.0,
            keys: keys.iter().map(|at| self.keys[*at].clone()).collect(),
            commit_version: commit_ts.0,
            ..kvrpcpb::CommitRequest::default()
        };
        let answer = self.raw.client.kv_commit(request).await.expect("the store answers").into_inner();
        assert!(answer.error.is_none() && answer.region_error.is_none(), "{answer:?}");
    }
}

async fn now(pair: &Pair) -> Timestamp {
    pair.client.timestamp().await.expect("the oracle answers")
}

async fn changes(pair: &Pair, prefix: &str, from: Timestamp, to: Timestamp) -> Vec<Change> {
    let ranges = [KeyRange::prefix(prefix.as_bytes())];
    pair.client.changes(&ranges, from, to, None, 100).await.expect("history is there").changes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_feeds_pass_pessimistic_locks_by() {
    let pair = Pair::start(Options::default()).await;
    let from = now(&pair).await;
    pair.put(&[("p/1", "old"), ("p/2", "old")]).await;
    let mut foreign = Transaction::begin(&pair, 60_000, &["p/1", "p/2"]).await;
    let start_ts = foreign.start_ts;
    foreign.locked(&[0, 1], start_ts).await;
    let to = now(&pair).await;
    assert_eq!(pair.read("p/1", to).await.as_deref(), Some("old"));
    assert_eq!(pair.scan("p/", to).await.len(), 2);
    assert_eq!(changes(&pair, "p/", from, to).await.len(), 2);
    let range = KeyRange::prefix(b"p/");
    let resolved = pair.client.resolved(std::slice::from_ref(&range)).await.expect("it is known");
    assert!(resolved > start_ts, "nothing waits for a transaction that has written nothing");
    assert!(pair.client.scan_lock(&range, to, 0).await.expect("locks are listed").is_empty());
    pair.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pessimistic_commit_lies_above_what_it_has_seen_after_its_start() {
    let pair = Pair::start(Options::default()).await;
    let mut foreign = Transaction::begin(&pair, 60_000, &["s/1", "s/2"]).await;
    let start_ts = foreign.start_ts;
    let mine = pair.put(&[("s/1", "mine")]).await;
    let early = foreign.lock(&[0], start_ts).await;
    let conflict =
        early.errors.first().and_then(|error| error.conflict.clone()).expect("it was changed since");
    assert_eq!(conflict.reason(), Reason::PessimisticRetry);
    let seen = now(&pair).await;
    let answer = foreign.lock(&[0, 1], seen).await;
    assert_eq!((answer.values, answer.not_founds), (vec![Key::from("mine"), Key::new()], vec![false, true]));
    assert!(foreign.prewrite(&[0, 1], seen).await.is_empty());
    let commit_ts = now(&pair).await;
    foreign.commit(&[0], commit_ts).await;
    // The secondary is still locked: whoever reads finishes it.
    let to = now(&pair).await;
    assert_eq!(pair.read("s/2", to).await.as_deref(), Some("foreign"));
    assert_eq!(pair.read("s/1", to).await.as_deref(), Some("foreign"));
    let found = changes(&pair, "s/1", start_ts, to).await;
    let commits: Vec<Timestamp> = found.iter().map(|change| change.commit_ts).collect();
    assert_eq!(commits, [mine, commit_ts]);
    assert_eq!(found[1].old_value.as_deref(), Some(b"mine".as_slice()), "the value that it replaced");
    assert!(found[1].start_ts < mine, "it began before what it replaced");
    pair.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_ends_a_dead_pessimistic_transaction_and_waits_for_a_living_one() {
    let pair = Pair::start(Options::default()).await;
    let mut dead = Transaction::begin(&pair, 20, &["d/1", "d/2"]).await;
    let start_ts = dead.start_ts;
    dead.locked(&[0, 1], start_ts).await;
    outlive(&pair, start_ts, 20).await;
    pair.put(&[("d/2", "mine")]).await;
    assert_eq!(dead.prewrite(&[0], start_ts).await.len(), 1, "it is over, at its primary too");

    let mut living = Transaction::begin(&pair, 400, &["l/1"]).await;
    let start_ts = living.start_ts;
    living.locked(&[0], start_ts).await;
    let commit_ts = pair.put(&[("l/1", "mine")]).await;
    let ends_ms = start_ts.physical_ms() + 400;
    assert!(commit_ts.physical_ms() > ends_ms, "the writer came after its time");
    pair.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pessimistic_lock_that_outlives_its_commit_is_ended() {
    let pair = Pair::start(Options::default()).await;
    let mut foreign = Transaction::begin(&pair, 20, &["o/1", "o/2"]).await;
    let start_ts = foreign.start_ts;
    foreign.locked(&[0, 1], start_ts).await;
    assert!(foreign.prewrite(&[0], start_ts).await.is_empty());
    let commit_ts = now(&pair).await;
    foreign.commit(&[0], commit_ts).await;
    // It has written nothing to the other key, and is gone without giving its lock back.
    let mine = pair.put(&[("o/2", "mine")]).await;
    let to = now(&pair).await;
    assert_eq!(pair.read("o/1", to).await.as_deref(), Some("foreign"));
    assert_eq!(pair.written("o/2").await, mine);
    assert_eq!(changes(&pair, "o/", start_ts, to).await.len(), 2, "a lock is no change");
    pair.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pessimistic_locks_are_given_back_without_a_trace() {
    let pair = Pair::start(Options::default()).await;
    let mut foreign = Transaction::begin(&pair, 60_000, &["g/1"]).await;
    let start_ts = foreign.start_ts;
    foreign.locked(&[0], start_ts).await;
    let request = kvrpcpb::PessimisticRollbackRequest {
        context: foreign.raw.context().await,
        start_version: start_ts.0,
        for_update_ts: start_ts.0,
        keys: foreign.keys.clone(),
    };
    let answer = foreign.raw.client.kv_pessimistic_rollback(request).await.expect("the store answers");
    assert!(answer.into_inner().errors.is_empty());
    let mine = pair.put(&[("g/1", "mine")]).await;
    let info = pair.cluster.store().mvcc_get(b"g/1").await.expect("the engine answers");
    assert_eq!(info.writes.iter().map(|write| write.commit_ts).collect::<Vec<_>>(), [mine]);
    let missing = foreign.prewrite(&[0], start_ts).await;
    assert!(missing[0].abort.contains("PessimisticLockNotFound"), "{missing:?}");
    pair.end().await;
}
