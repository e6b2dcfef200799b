//! Random histories against a model: a map of versions, written down at once and never synced.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use store::engine::DiskOptions;
use store::{
    AssertionLevel, CommitRequest, EmbeddedStore, Key, KeyRange, Mutation, Options, PrewriteRequest,
    Snapshot, Store, Value,
};
use types::Timestamp;

/// How a transaction is written.
#[derive(Clone, Copy, Debug)]
enum Way {
    Whole,
    Halves,
    Staged,
    /// Prewritten, then rolled back.
    Undone,
    /// Prewritten and its primary committed; the rest is left to whoever meets it.
    Abandoned,
}

/// One step of a history.
#[derive(Clone, Debug)]
enum Step {
    Write {
        way: Way,
        writes: BTreeMap<u8, Option<u8>>,
    },
    /// Reads at one of the timestamps so far.
    Read {
        at: prop::sample::Index,
    },
    Scan {
        at: prop::sample::Index,
        from: u8,
        to: u8,
        limit: usize,
        reverse: bool,
    },
    Changes {
        from: prop::sample::Index,
        to: prop::sample::Index,
        limit: usize,
    },
    Collect {
        at: prop::sample::Index,
    },
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let way = prop_oneof![
        3 => Just(Way::Whole),
        2 => Just(Way::Halves),
        2 => Just(Way::Staged),
        1 => Just(Way::Undone),
        1 => Just(Way::Abandoned)
    ];
    let writes = prop::collection::btree_map(0u8..12, prop::option::weighted(0.7, any::<u8>()), 1..5);
    let index = any::<prop::sample::Index>;
    let step = prop_oneof![
        6 => (way, writes).prop_map(|(way, writes)| Step::Write { way, writes }),
        2 => index().prop_map(|at| Step::Read { at }),
        2 => (index(), 0u8..13, 0u8..13, 1usize..8, any::<bool>())
            .prop_map(|(at, from, to, limit, reverse)| Step::Scan { at, from, to, limit, reverse }),
        2 => (index(), index(), 1usize..6).prop_map(|(from, to, limit)| Step::Changes { from, to, limit }),
        1 => index().prop_map(|at| Step::Collect { at }),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..40)
}

fn key(number: u8) -> Key {
    // Keys that are prefixes of others and hold zero bytes, as TiDB's do.
    let mut key = vec![b'k'; usize::from(number % 3)];
    key.extend_from_slice(&[0, number, 0]);
    key.into()
}

#[derive(Default)]
struct Model {
    versions: BTreeMap<Key, BTreeMap<Timestamp, Option<Value>>>,
    /// Timestamps that were visible at some time, in order.
    moments: Vec<Timestamp>,
    barrier: Timestamp,
}

impl Model {
    fn at(&self, ts: Timestamp) -> BTreeMap<Key, Value> {
        let value = |versions: &BTreeMap<Timestamp, Option<Value>>| {
            versions.range(..=ts).next_back().and_then(|(_, value)| value.clone())
        };
        self.versions.iter().filter_map(|(key, versions)| Some((key.clone(), value(versions)?))).collect()
    }

    fn moment(&self, index: prop::sample::Index) -> Timestamp {
        let live: Vec<Timestamp> = self.moments.iter().copied().filter(|ts| *ts >= self.barrier).collect();
        *index.get(&live)
    }

    fn changes(&self, from: Timestamp, to: Timestamp) -> Vec<(Timestamp, Key, Option<Value>, Option<Value>)> {
        let mut changes = Vec::new();
        for (key, versions) in &self.versions {
            for (commit_ts, value) in versions.range(from.next().unwrap()..=to.max(from.next().unwrap())) {
                if *commit_ts > to {
                    continue;
                }
                let old = versions.range(..commit_ts).next_back().and_then(|(_, value)| value.clone());
                changes.push((*commit_ts, key.clone(), old, value.clone()));
            }
        }
        changes.sort();
        changes
    }
}

async fn write(store: &Arc<EmbeddedStore>, way: Way, writes: &BTreeMap<u8, Option<u8>>) -> Option<Timestamp> {
    let start_ts = store.timestamp().await.unwrap();
    let mutation = |(number, value): (&u8, &Option<u8>)| match value {
        Some(value) => Mutation::put(key(*number), vec![*value; usize::from(*value % 5)]),
        None => Mutation::delete(key(*number)),
    };
    let mutations: Vec<Mutation> = writes.iter().map(mutation).collect();
    if matches!(way, Way::Whole) {
        return Some(store.commit_transaction(start_ts, mutations).await.unwrap());
    }
    let keys: Vec<Key> = mutations.iter().map(|mutation| mutation.key.clone()).collect();
    let primary = keys[0].clone();
    let request = PrewriteRequest {
        mutations,
        primary: primary.clone(),
        start_ts,
        ttl_ms: 20_000,
        txn_size: keys.len() as u64,
        min_commit_ts: start_ts.next().unwrap(),
        assertion_level: AssertionLevel::Off,
        staged: matches!(way, Way::Staged),
    };
    while let Err(errors) = store.prewrite(request.clone()).await {
        // Left behind by an abandoned transaction: whoever reads the key finishes it.
        assert!(errors.iter().all(|error| matches!(error, store::KeyError::Locked(_))), "{errors:?}");
        let snapshot = Snapshot::newest(store.clone()).await.unwrap();
        snapshot.batch_get(&keys).await.unwrap();
    }
    if matches!(way, Way::Undone) {
        store.batch_rollback(start_ts, &keys).await.unwrap();
        return None;
    }
    let first =
        CommitRequest { start_ts, keys: vec![primary.clone()], primary: primary.clone(), commit_ts: None };
    let commit_ts = store.commit(first).await.unwrap();
    if !matches!(way, Way::Abandoned) {
        let rest = CommitRequest { start_ts, keys: keys[1..].to_vec(), primary, commit_ts: Some(commit_ts) };
        store.commit(rest).await.unwrap();
    }
    Some(commit_ts)
}

/// Where a store under test lives, so that it can be opened again.
enum Home {
    Memory(Arc<store::engine::MemoryEngine>),
    Disk(tempfile::TempDir),
}

impl Home {
    fn open(&self) -> Arc<EmbeddedStore> {
        match self {
            Home::Memory(engine) => {
                EmbeddedStore::over(engine.clone(), Options { inline: true, ..Options::default() }).unwrap()
            }
            Home::Disk(directory) => {
                let disk = DiskOptions { memtable_bytes: 64 << 10, ..DiskOptions::default() };
                EmbeddedStore::open(directory.path(), Options { disk, ..Options::default() }).unwrap()
            }
        }
    }
}

async fn replay(home: &Home, steps: Vec<Step>) {
    let mut store = home.open();
    let mut model = Model::default();
    model.moments.push(store.read_timestamp().await.unwrap());
    for step in steps {
        match step {
            Step::Write { way, writes } => {
                if let Some(commit_ts) = write(&store, way, &writes).await {
                    for (number, value) in writes {
                        let value = value.map(|value| Value::from(vec![value; usize::from(value % 5)]));
                        model.versions.entry(key(number)).or_default().insert(commit_ts, value);
                    }
                }
                model.moments.push(store.read_timestamp().await.unwrap());
            }
            Step::Read { at } => {
                let ts = model.moment(at);
                let snapshot = Snapshot::new(store.clone(), ts);
                let expected = model.at(ts);
                for number in 0..12 {
                    assert_eq!(
                        snapshot.get(&key(number)).await.unwrap().as_ref(),
                        expected.get(&key(number))
                    );
                }
            }
            Step::Scan { at, from, to, limit, reverse } => {
                let ts = model.moment(at);
                let snapshot = Snapshot::new(store.clone(), ts);
                let range = KeyRange::new(key(from), if to == 12 { Key::new() } else { key(to) });
                let inside = model.at(ts).into_iter().filter(|(key, _)| range.contains(key));
                let mut expected: Vec<(Key, Value)> = inside.collect();
                let found = if reverse {
                    expected.reverse();
                    snapshot.scan_reverse(&range, limit).await.unwrap()
                } else {
                    snapshot.scan(&range, limit).await.unwrap()
                };
                expected.truncate(limit);
                assert_eq!(found, expected);
            }
            Step::Changes { from, to, limit } => check_changes(&store, &model, from, to, limit).await,
            Step::Collect { at } => {
                let ts = model.moment(at);
                let barrier = store.collect_garbage(ts).await.unwrap();
                assert!(barrier <= ts && barrier >= model.barrier);
                model.barrier = barrier;
            }
            Step::Reopen => {
                store.close().await.unwrap();
                drop(store);
                store = home.open();
            }
        }
    }
    store.close().await.unwrap();
}

async fn check_changes(
    store: &Arc<EmbeddedStore>,
    model: &Model,
    from: prop::sample::Index,
    to: prop::sample::Index,
    limit: usize,
) {
    let (left, right) = (model.moment(from), model.moment(to));
    let (from, to) = (left.min(right), left.max(right));
    let mut next = None;
    let mut found = Vec::new();
    loop {
        let page = store.changes(&[KeyRange::all()], from, to, next, limit).await.unwrap();
        let change = |change: store::Change| (change.commit_ts, change.key, change.old_value, change.value);
        found.extend(page.changes.into_iter().map(change));
        next = page.next;
        if next.is_none() {
            break;
        }
    }
    assert_eq!(found, model.changes(from, to));
}

/// Cases of a property; a soak runs twenty times as many.
fn config(cases: u32) -> ProptestConfig {
    let factor = if std::env::var_os("TIDEMILL_SOAK").is_some() { 20 } else { 1 };
    ProptestConfig { cases: cases * factor, failure_persistence: None, ..ProptestConfig::default() }
}

fn check(home: &Home, steps: Vec<Step>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(replay(home, steps));
}

proptest! {
    #![proptest_config(config(300))]
    #[test]
    fn random_histories_agree_with_the_model_in_memory(steps in steps()) {
        check(&Home::Memory(Arc::new(store::engine::MemoryEngine::new())), steps);
    }
}

proptest! {
    #![proptest_config(config(25))]
    #[test]
    fn random_histories_agree_with_the_model_on_disk(steps in steps()) {
        check(&Home::Disk(tempfile::tempdir().unwrap()), steps);
    }
}
