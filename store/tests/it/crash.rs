//! Crashes at every write of a scripted workload, refused writes, failed syncs, a full disk.
//!
//! After each the store opens again over what was durable and must hold every acknowledged transaction,
//! each other one whole or not at all, and a change index that tells the same story as the data.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::executor::block_on;
use store::engine::Engine;
use store::testing::{Fault, FaultEngine, ManualClock};
use store::{
    AssertionLevel, CommitRequest, EmbeddedStore, Key, KeyRange, Mutation, MvccInfo, Options,
    PrewriteRequest, Snapshot, Store, Value,
};
use types::{ErrorKind, Timestamp};

const NOW_MS: u64 = 1_700_000_000_000;

fn open(engine: Arc<dyn Engine>, now_ms: u64) -> types::Result<Arc<EmbeddedStore>> {
    let options = Options { inline: true, clock: Arc::new(ManualClock::new(now_ms)), ..Options::default() };
    EmbeddedStore::over(engine, options)
}

/// What a client knows of a transaction.
#[derive(Debug)]
struct Known {
    start_ts: Timestamp,
    writes: Vec<(String, Option<String>)>,
    /// When it committed, if that was acknowledged.
    commit_ts: Option<Timestamp>,
}

/// Everything that a client knows after a run.
#[derive(Debug, Default)]
struct Notes {
    transactions: Vec<Known>,
    newest: Timestamp,
    blobs: Vec<String>,
    collected: Timestamp,
}

struct Client {
    store: Arc<EmbeddedStore>,
    notes: Notes,
}

type Run = Result<(), String>;

fn failed(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}

impl Client {
    async fn start(&mut self) -> Result<Timestamp, String> {
        let ts = self.store.timestamp().await.map_err(failed)?;
        assert!(ts > self.notes.newest, "timestamps never go back");
        self.notes.newest = ts;
        Ok(ts)
    }

    fn begin(&mut self, start_ts: Timestamp, writes: &[(String, Option<String>)]) -> Vec<Mutation> {
        self.notes.transactions.push(Known { start_ts, writes: writes.to_vec(), commit_ts: None });
        let mutation = |(key, value): &(String, Option<String>)| match value {
            Some(value) => Mutation::put(key.clone(), value.clone()),
            None => Mutation::delete(key.clone()),
        };
        writes.iter().map(mutation).collect()
    }

    fn acknowledged(&mut self, commit_ts: Timestamp) {
        self.notes.newest = self.notes.newest.max(commit_ts);
        self.notes.transactions.last_mut().unwrap().commit_ts = Some(commit_ts);
    }

    async fn whole(&mut self, writes: &[(String, Option<String>)]) -> Run {
        let start_ts = self.start().await?;
        let mutations = self.begin(start_ts, writes);
        let commit_ts = self.store.commit_transaction(start_ts, mutations).await.map_err(failed)?;
        self.acknowledged(commit_ts);
        Ok(())
    }

    /// In halves: the primary is the first key; what `stays` is left to readers.
    async fn halves(&mut self, writes: &[(String, Option<String>)], staged: bool, stays: bool) -> Run {
        let start_ts = self.start().await?;
        let mutations = self.begin(start_ts, writes);
        let primary = mutations[0].key.clone();
        let keys: Vec<Key> = mutations.iter().map(|mutation| mutation.key.clone()).collect();
        for piece in mutations.chunks(2) {
            let request = PrewriteRequest {
                mutations: piece.to_vec(),
                primary: primary.clone(),
                start_ts,
                ttl_ms: 5,
                txn_size: 4,
                min_commit_ts: start_ts.next().unwrap(),
                assertion_level: AssertionLevel::Off,
                staged,
            };
            self.store.prewrite(request).await.map_err(failed)?;
        }
        let request = CommitRequest {
            start_ts,
            keys: vec![primary.clone()],
            primary: primary.clone(),
            commit_ts: None,
        };
        let commit_ts = self.store.commit(request).await.map_err(failed)?;
        self.acknowledged(commit_ts);
        if !stays {
            let keys = keys[1..].to_vec();
            let request = CommitRequest { start_ts, keys, primary, commit_ts: Some(commit_ts) };
            self.store.commit(request).await.map_err(failed)?;
        }
        Ok(())
    }

    async fn script(&mut self) -> Run {
        for round in 0..4u32 {
            let put = |key: &str| (format!("{key}{}", round % 3), Some(format!("{key} of {round}")));
            let name = format!("run/{round}");
            self.store
                .put_blobs(vec![(Key::from(name.clone()), Value::from("blob"))])
                .await
                .map_err(failed)?;
            self.whole(&[put("a"), put("b"), ("c".to_owned(), (round % 2 == 0).then(|| round.to_string()))])
                .await?;
            // The sync of the commit has covered the blob.
            self.notes.blobs.push(name);
            self.halves(
                &[put("h"), put("i"), put("j"), (format!("a{}", (round + 2) % 3), None)],
                false,
                round == 2,
            )
            .await?;
            self.halves(&[put("s"), put("t"), put("u"), put("a")], true, false).await?;
            let undone = self.start().await?;
            self.store.batch_rollback(undone, &[Key::from("a0"), Key::from("z")]).await.map_err(failed)?;
            self.store.hold("reader", self.notes.newest).await.map_err(failed)?;
            if round == 2 {
                self.store.release("reader").await.map_err(failed)?;
                let ts = self.store.read_timestamp().await.map_err(failed)?;
                self.notes.collected = ts;
                self.store.collect_garbage(ts).await.map_err(failed)?;
            }
        }
        Ok(())
    }
}

fn run(engine: &Arc<FaultEngine>) -> (Notes, Run) {
    let store = match open(engine.clone(), NOW_MS) {
        Ok(store) => store,
        Err(error) => return (Notes::default(), Err(failed(error))),
    };
    let mut client = Client { store, notes: Notes::default() };
    let result = block_on(client.script());
    (client.notes, result)
}

fn committed(info: &MvccInfo, start_ts: Timestamp) -> Option<Timestamp> {
    info.writes
        .iter()
        .find(|write| write.start_ts == start_ts && write.commit_ts > start_ts)
        .map(|write| write.commit_ts)
}

/// Opens what is left and checks it against what the client knows.
async fn check(store: &Arc<EmbeddedStore>, notes: &Notes, case: &str) {
    let ts = store.timestamp().await.unwrap();
    assert!(ts > notes.newest, "{case}: timestamps never go back, {ts} after {}", notes.newest);
    let ts = store.read_timestamp().await.unwrap();
    let snapshot = Snapshot::new(store.clone(), ts);
    let data = snapshot.scan_all(&KeyRange::all()).await.unwrap();
    let data: BTreeMap<Key, Value> = data.into_iter().collect();
    // Which of the unacknowledged are there: by the record at their first key.
    let mut applied: Vec<(Timestamp, &Known)> = Vec::new();
    for known in &notes.transactions {
        let info = store.mvcc_get(known.writes[0].0.as_bytes()).await.unwrap();
        let found = committed(&info, known.start_ts);
        if let Some(commit_ts) = known.commit_ts {
            let collectable = commit_ts <= notes.collected;
            assert!(
                found == known.commit_ts || (found.is_none() && collectable),
                "{case}: {known:?} is lost"
            );
        }
        if let Some(commit_ts) = known.commit_ts.or(found) {
            applied.push((commit_ts, known));
        }
    }
    applied.sort_by_key(|(commit_ts, _)| *commit_ts);
    let mut expected: BTreeMap<Key, Value> = BTreeMap::new();
    for (_, known) in &applied {
        for (key, value) in &known.writes {
            match value {
                Some(value) => drop(expected.insert(key.clone().into(), value.clone().into())),
                None => drop(expected.remove(key.as_bytes())),
            }
        }
    }
    assert_eq!(data, expected, "{case}");
    // The index rebuilds the data from any point that still has history.
    let barrier = store.gc_barrier().await.unwrap();
    let mut rebuilt: BTreeMap<Key, Value> =
        Snapshot::new(store.clone(), barrier).scan_all(&KeyRange::all()).await.unwrap().into_iter().collect();
    let mut next = None;
    loop {
        let page = store.changes(&[KeyRange::all()], barrier, ts, next, 5).await.unwrap();
        for change in page.changes {
            let before = match change.value {
                Some(value) => rebuilt.insert(change.key, value),
                None => rebuilt.remove(&change.key),
            };
            assert_eq!(before, change.old_value, "{case}");
        }
        next = page.next;
        if next.is_none() {
            break;
        }
    }
    assert_eq!(rebuilt, data, "{case}: the change index tells the story of the data");
    for name in &notes.blobs {
        assert!(store.get_blob(name.as_bytes()).await.unwrap().is_some(), "{case}: blob {name} is lost");
    }
    // And it goes on.
    let start_ts = store.timestamp().await.unwrap();
    store.commit_transaction(start_ts, vec![Mutation::put("a0", "after")]).await.unwrap();
}

fn check_after(engine: &FaultEngine, notes: &Notes, case: &str) {
    let unsynced = engine.unsynced_writes();
    for kept in [0, unsynced / 2, unsynced] {
        let case = format!("{case}, {kept} of {unsynced} unsynced writes kept");
        let left = Arc::new(engine.crash(kept).unwrap());
        // The clock went back a little over the restart.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let store = open(left, NOW_MS - 60_000).unwrap_or_else(|error| panic!("{case}: {error}"));
        runtime.block_on(check(&store, notes, &case));
    }
}

fn writes_of_the_script() -> usize {
    let engine = Arc::new(FaultEngine::new(None));
    let (notes, result) = run(&engine);
    result.unwrap();
    assert_eq!(notes.transactions.len(), 12);
    check_after(&engine, &notes, "no fault");
    engine.writes()
}

#[test]
fn a_crash_before_or_after_any_write_loses_nothing_acknowledged() {
    let writes = writes_of_the_script();
    assert!(writes > 30, "the script has {writes} writes");
    for number in 0..writes {
        for fault in [Fault::DiesBefore(number), Fault::DiesAfter(number)] {
            let engine = Arc::new(FaultEngine::new(Some(fault)));
            let (notes, result) = run(&engine);
            assert!(result.is_err(), "{fault:?} stops the script");
            check_after(&engine, &notes, &format!("{fault:?}"));
        }
    }
}

#[test]
fn a_refused_write_or_sync_closes_the_handle() {
    let writes = writes_of_the_script();
    for number in 1..writes {
        for fault in [Fault::Refuses(number), Fault::FailsSync(number)] {
            let engine = Arc::new(FaultEngine::new(Some(fault)));
            let Ok(store) = open(engine.clone(), NOW_MS) else { continue };
            let mut client = Client { store: store.clone(), notes: Notes::default() };
            let Err(error) = block_on(client.script()) else {
                assert_eq!(fault, Fault::FailsSync(number), "only an unsynced write may pass");
                continue;
            };
            assert!(error.contains("Closed"), "{fault:?}: {error}");
            let all = block_on(every_call(&store));
            for (call, error) in all {
                let error =
                    error.unwrap_or_else(|| panic!("{fault:?}: {call} succeeds on a poisoned handle"));
                assert_eq!(error.kind(), ErrorKind::Closed, "{fault:?}: {call}: {error}");
                assert!(error.message().contains("fails"), "the cause is named: {error}");
            }
            check_after(&engine, &client.notes, &format!("{fault:?}"));
        }
    }
}

/// Calls of every kind with their errors.
async fn every_call(store: &Arc<EmbeddedStore>) -> Vec<(&'static str, Option<types::Error>)> {
    let start_ts = Timestamp::from_parts(NOW_MS, 1);
    let context = store::ReadContext::at(Timestamp::MAX);
    let whole = store.commit_transaction(start_ts, vec![Mutation::put("k", "v")]).await;
    vec![
        ("timestamp", store.timestamp().await.err()),
        ("read_timestamp", store.read_timestamp().await.err()),
        ("get", store.kv_get(b"a0", &context).await.err().map(Into::into)),
        ("commit", whole.err().map(Into::into)),
        ("put_blobs", store.put_blobs(vec![(Key::from("b"), Value::new())]).await.err()),
        ("get_blob", store.get_blob(b"b").await.err()),
        ("hold", store.hold("h", Timestamp::MAX).await.err()),
        ("holds", store.holds().await.err()),
        ("scan_lock", store.scan_lock(&KeyRange::all(), Timestamp::MAX, 0).await.err().map(Into::into)),
        ("subscribe", store.subscribe(vec![KeyRange::all()], Timestamp::MAX).await.err()),
        ("collect_garbage", store.collect_garbage(start_ts).await.err()),
    ]
}

#[test]
fn a_full_disk_is_an_error_and_loses_nothing_acknowledged() {
    for limit in (2_000..12_000).step_by(500) {
        let engine = Arc::new(FaultEngine::new(Some(Fault::Full(limit))));
        let (notes, result) = run(&engine);
        if let Err(error) = &result {
            assert!(error.contains("No space left on device"), "{error}");
        }
        check_after(&engine, &notes, &format!("full at {limit}"));
    }
}

#[test]
fn missing_commits_and_wrong_clocks_are_refused() {
    let engine = Arc::new(FaultEngine::new(None));
    let (notes, result) = run(&engine);
    result.unwrap();
    let left = Arc::new(engine.crash(0).unwrap());
    let early = NOW_MS - 2 * 3_600_000;
    let error = open(left.clone(), early).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.message().contains("more than an hour"), "{error}");
    let clock = Arc::new(ManualClock::new(early));
    let options = Options { inline: true, force: true, clock, ..Options::default() };
    let store = EmbeddedStore::over(left, options).unwrap();
    assert!(block_on(store.timestamp()).unwrap() > notes.newest, "forced open, and still never back");
}

#[test]
fn timestamps_rise_over_clock_jumps() {
    let engine = Arc::new(FaultEngine::new(None));
    let clock = Arc::new(ManualClock::new(NOW_MS));
    let mut last = Timestamp::ZERO;
    for jump_ms in [0, 50_000, -40_000, 3_000_000, -500_000, 0] {
        let now_ms = NOW_MS.checked_add_signed(jump_ms).unwrap();
        clock.set(now_ms);
        let options = Options { inline: true, clock: clock.clone(), ..Options::default() };
        let store = EmbeddedStore::over(engine.clone(), options).unwrap();
        for step in 0..50 {
            let ts = block_on(store.timestamp()).unwrap();
            assert!(ts > last, "{ts} after {last}, jump {jump_ms}, step {step}");
            last = ts;
            if step % 10 == 0 {
                clock.set(now_ms.saturating_sub(step));
            }
        }
        if jump_ms % 20_000 == 0 {
            block_on(store.close()).unwrap();
        }
    }
}
