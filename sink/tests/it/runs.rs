//! Runs as blobs, behind the cache; manifests.

use std::sync::Arc;

use operators::{Manifest, Run, RunBuilder, RunMeta, RunSource, SealedRun, StateKind};
use sink::{RunCache, load_manifests, manifest_mutation, run_blobs};
use store::{EmbeddedStore, Store};
use tokio::runtime::Runtime;
use types::records::{RUN_PART_BYTES_MAX, run_part_key, run_prefix};
use types::{Epoch, ErrorKind, Generation, JobId, RunName, StateId, TableId, Timestamp};

fn name(number: u32) -> RunName {
    RunName { job: JobId(1), generation: Generation(2), epoch: Epoch(3), view: TableId(4), number }
}

fn run(n_value_bytes: usize) -> Run {
    let mut builder = RunBuilder::new(StateKind::Map);
    builder.push_value(b"key of a run", Some(&vec![7; n_value_bytes]));
    builder.finish()
}

fn sealed(number: u32, run: &Run) -> SealedRun {
    SealedRun { name: name(number), bytes: run.bytes().clone() }
}

struct Fixture {
    runtime: Runtime,
    store: Arc<dyn Store>,
}

impl Fixture {
    fn new() -> Fixture {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Fixture { runtime, store: EmbeddedStore::memory() }
    }

    fn cache(&self, n_bytes_max: usize) -> Arc<RunCache> {
        RunCache::new(Arc::clone(&self.store), self.runtime.handle().clone(), n_bytes_max)
    }
}

#[test]
fn runs_of_any_size_come_back() {
    let fixture = Fixture::new();
    let overhead = run(0).n_bytes() + 4;
    let sizes =
        [0, 10, RUN_PART_BYTES_MAX - overhead, 3 * RUN_PART_BYTES_MAX - overhead, 3 * RUN_PART_BYTES_MAX];
    for (number, size) in sizes.into_iter().enumerate() {
        let run = run(size);
        let sealed = sealed(number as u32, &run);
        let blobs = run_blobs(&sealed);
        assert!(blobs.iter().all(|(_, value)| value.len() <= RUN_PART_BYTES_MAX));
        fixture.runtime.block_on(fixture.cache(0).write_runs(&[sealed])).unwrap();
        // Another cache, from a thread that drives no tasks.
        let read = fixture.cache(0).read_run(name(number as u32)).unwrap();
        assert_eq!(read.bytes(), run.bytes());
    }
    let whole = run(3 * RUN_PART_BYTES_MAX - overhead).n_bytes();
    assert_eq!(whole % RUN_PART_BYTES_MAX, 0, "one of the sizes ends with a part");
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a test owns its task")]
fn runs_are_read_from_blocking_threads() {
    let fixture = Fixture::new();
    let cache = fixture.cache(0);
    fixture.runtime.block_on(cache.write_runs(&[sealed(1, &run(5))])).unwrap();
    fixture.runtime.block_on(async {
        let read = tokio::task::spawn_blocking(move || cache.read_run(name(1))).await.unwrap().unwrap();
        assert_eq!(read.n_rows(), 1);
        // From a worker's task it works, too.
        let cache = fixture.cache(0);
        let read = tokio::task::spawn(async move { cache.read_run(name(1)) });
        assert_eq!(read.await.unwrap().unwrap().n_rows(), 1);
    });
}

#[test]
fn missing_and_broken_runs_are_corrupt() {
    let fixture = Fixture::new();
    let cache = fixture.cache(1 << 20);
    assert_eq!(cache.read_run(name(1)).unwrap_err().kind(), ErrorKind::Corrupt);
    let long = run(2 * RUN_PART_BYTES_MAX);
    fixture.runtime.block_on(fixture.cache(0).write_runs(&[sealed(1, &long)])).unwrap();
    let last = run_part_key(name(1), 2);
    fixture.runtime.block_on(fixture.store.delete_blobs(vec![last.clone().into()])).unwrap();
    let error = cache.read_run(name(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains("part 2 of run"), "{error}");
    fixture.runtime.block_on(fixture.store.put_blobs(vec![(last.into(), vec![1, 2, 3].into())])).unwrap();
    assert_eq!(cache.read_run(name(1)).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn the_cache_keeps_what_was_used_last_within_its_bounds() {
    let fixture = Fixture::new();
    let run = run(1000);
    let cache = fixture.cache(2 * run.n_bytes() + 10);
    let runs: Vec<SealedRun> = (1..=3).map(|number| sealed(number, &run)).collect();
    fixture.runtime.block_on(cache.write_runs(&runs[..2])).unwrap();
    cache.read_run(name(1)).unwrap();
    fixture.runtime.block_on(cache.write_runs(&runs[2..])).unwrap();
    assert_eq!(cache.n_bytes(), 2 * run.n_bytes());
    // Without the store's blobs only the cache can answer.
    let keys = (1..=3).map(|number| run_part_key(name(number), 0).into()).collect();
    fixture.runtime.block_on(fixture.store.delete_blobs(keys)).unwrap();
    assert!(cache.read_run(name(1)).is_ok());
    assert!(cache.read_run(name(2)).is_err(), "it was not used for the longest time");
    assert!(cache.read_run(name(3)).is_ok());
}

#[test]
fn deleted_runs_leave_nothing() {
    let fixture = Fixture::new();
    let cache = fixture.cache(1 << 30);
    let runs = [sealed(1, &run(20 * RUN_PART_BYTES_MAX)), sealed(2, &run(1))];
    fixture.runtime.block_on(async {
        cache.write_runs(&runs).await.unwrap();
        cache.delete_runs(&[name(1)]).await.unwrap();
        assert!(fixture.store.list_blobs(&run_prefix(name(1)), None, 10).await.unwrap().is_empty());
        assert_eq!(fixture.store.list_blobs(&run_prefix(name(2)), None, 10).await.unwrap().len(), 1);
    });
    assert!(cache.read_run(name(1)).is_err());
    assert!(cache.read_run(name(2)).is_ok());
}

#[test]
fn manifests_come_back_by_state_as_of_a_timestamp() {
    let fixture = Fixture::new();
    let manifest = |number| Manifest {
        runs: vec![RunMeta {
            name: name(number),
            n_rows: 5,
            n_merged: 0,
            n_bytes: 6,
            tier: 0,
            first_hash: 1,
            last_hash: 2,
        }],
    };
    let write = |view, state, number| {
        let state = StateId { view: TableId(view), state };
        let mutation = manifest_mutation(state, &manifest(number)).unwrap();
        fixture.runtime.block_on(async {
            let start_ts = fixture.store.timestamp().await.unwrap();
            fixture.store.commit_transaction(start_ts, vec![mutation]).await.unwrap()
        })
    };
    write(4, 0, 10);
    write(5, 0, 11);
    let before = write(4, u32::MAX, 12);
    write(4, 0, 13);
    let load = |view, ts: Timestamp| {
        fixture.runtime.block_on(load_manifests(&fixture.store, TableId(view), ts)).unwrap()
    };
    assert_eq!(load(4, before), [(0, manifest(10)), (u32::MAX, manifest(12))].into());
    let now = fixture.runtime.block_on(fixture.store.read_timestamp()).unwrap();
    assert_eq!(load(4, now), [(0, manifest(13)), (u32::MAX, manifest(12))].into());
    assert_eq!(load(6, now), [].into());
}
