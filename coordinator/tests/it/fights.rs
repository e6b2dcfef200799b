//! The coordinator in this process over a store in memory, with real threads: many jobs, two coordinators,
//! zombies, readers, DDL, and what a restart finds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use coordinator::{
    Coordinator, Decision, LocalCoordinator, LocalOptions, MachineOptions, OpenRequest, Prepared,
    SealedRequest, TakeOverRequest, TakenOver, VoteRequest, hold_name,
};
use store::{CommitRequest, EmbeddedStore, Mutation, Snapshot, Store};
use types::records::epoch_record_key;
use types::{Epoch, ErrorKind, Generation, JobId, Timestamp};

use crate::flaky::{Flaky, Random, Rates};
use crate::world::{Worker, World};

const JOB: JobId = JobId(1);

fn local(store: &Arc<dyn Store>) -> Arc<LocalCoordinator> {
    let machine = MachineOptions { ttl_ms: 3_000, ..MachineOptions::default() };
    Arc::new(LocalCoordinator::new(Arc::clone(store), LocalOptions { machine, ..LocalOptions::default() }))
}

async fn take_over(coordinator: &dyn Coordinator, n_workers: u32) -> TakenOver {
    coordinator.take_over(TakeOverRequest { job: JOB, n_workers }).await.unwrap()
}

/// Opens, seals and is told to go, as the only worker.
async fn prewritten(coordinator: &dyn Coordinator, generation: Generation) -> (Epoch, Timestamp) {
    let opened = coordinator.open(OpenRequest { job: JOB, generation, cut: None }).await.unwrap();
    let prepared = coordinator.sealed(sealed(generation, opened.epoch)).await.unwrap();
    match prepared {
        Prepared::Prewrite { start_ts, .. } => (opened.epoch, start_ts),
        other => panic!("{other:?}"),
    }
}

fn sealed(generation: Generation, epoch: Epoch) -> SealedRequest {
    SealedRequest {
        job: JOB,
        generation,
        epoch,
        worker: 0,
        definitions: 0,
        retry_of: None,
        faults: Vec::new(),
    }
}

fn vote(generation: Generation, epoch: Epoch, start_ts: Timestamp) -> VoteRequest {
    VoteRequest { job: JOB, generation, epoch, worker: 0, start_ts, done: true }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_jobs_at_once_each_with_its_own_epochs() {
    let store: Arc<dyn Store> = EmbeddedStore::memory();
    let coordinator = local(&store);
    let jobs = (1..=6).map(|job| {
        let (store, coordinator) = (Arc::clone(&store), Arc::clone(&coordinator));
        async move {
            let world = World::create(store.as_ref(), JobId(job)).await;
            let n_workers = u32::try_from(1 + job % 3).unwrap();
            let taken = coordinator.take_over(TakeOverRequest { job: JobId(job), n_workers }).await.unwrap();
            assert_eq!(taken.generation, Generation(1));
            let shared: Arc<dyn Coordinator> = Arc::clone(&coordinator) as _;
            let mut workers = Worker::of_run(&world, &shared, &store, &taken, n_workers, job);
            for _ in 0..20 {
                let epochs = futures::future::join_all(workers.iter_mut().map(Worker::epoch)).await;
                assert!(epochs.iter().all(Result::is_ok), "{epochs:?}");
                world.audit(Arc::clone(&store)).await.unwrap();
            }
            assert_eq!(world.audit_history(Arc::clone(&store)).await, (20, 1, 0));
            let status = coordinator.status(JobId(job)).await.unwrap();
            assert_eq!((status.record.epoch, status.open), (Epoch(20), None));
            assert_eq!(status.waiting_for, "waiting for a worker to open the next epoch");
        }
    });
    futures::future::join_all(jobs).await;
    coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_coordinators_and_their_generations_fight_and_readers_see_single_epochs() {
    let store: Arc<dyn Store> = EmbeddedStore::memory();
    let world = World::create(store.as_ref(), JOB).await;
    let over = AtomicBool::new(false);
    let fighter = |seed: u64| {
        let (store, world, over) = (Arc::clone(&store), Arc::clone(&world), &over);
        async move {
            let mut random = Random(seed);
            let coordinator = local(&store);
            let mut zombies = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let n_workers = u32::try_from(1 + random.below(2)).unwrap();
                let Ok(taken) = coordinator.take_over(TakeOverRequest { job: JOB, n_workers }).await else {
                    continue;
                };
                let shared: Arc<dyn Coordinator> = Arc::clone(&coordinator) as _;
                let mut workers = Worker::of_run(&world, &shared, &store, &taken, n_workers, random.next());
                for _ in 0..3 + random.below(5) {
                    let epochs = futures::future::join_all(workers.iter_mut().map(Worker::epoch)).await;
                    if epochs.iter().any(Result::is_err) {
                        break;
                    }
                }
                for zombie in &mut zombies {
                    let worker: &mut Worker = zombie;
                    if worker.n_workers == 1 && worker.generation < taken.generation {
                        let error = worker.epoch().await.unwrap_err();
                        assert!(matches!(error.kind(), ErrorKind::Fenced | ErrorKind::Conflict), "{error}");
                    }
                }
                zombies.extend(workers);
            }
        }
    };
    let audit = async {
        while world.newest() < Epoch(40) {
            world.audit(Arc::clone(&store)).await.unwrap();
            world.ddl(&store).await;
            tokio::task::yield_now().await;
        }
        over.store(true, Ordering::Relaxed);
    };
    let all = async { futures::join!(fighter(1), fighter(2), audit) };
    tokio::time::timeout(Duration::from_secs(120), all).await.expect("40 epochs are decided in time");
    let (n_epochs, n_take_overs, _) = world.audit_history(Arc::clone(&store)).await;
    assert!(n_epochs >= 40 && n_take_overs >= 4, "{n_epochs} epochs, {n_take_overs} take-overs");
}

#[tokio::test]
async fn a_zombie_with_a_newer_start_changes_nothing() {
    let store: Arc<dyn Store> = EmbeddedStore::memory();
    World::create(store.as_ref(), JOB).await;
    let (old, new) = (local(&store), local(&store));
    let before = take_over(old.as_ref(), 1).await;
    // The old run has its primary prewritten and goes to sleep.
    let (epoch, start_ts) = prewritten(old.as_ref(), before.generation).await;
    let taken = take_over(new.as_ref(), 1).await;
    assert_eq!(taken.generation, before.generation.next());
    assert_eq!(taken.frontier.epoch, before.frontier.epoch);
    let record = new.status(JOB).await.unwrap();
    // It wakes, votes, and is told the truth: rolled back. It tries again under a newer start.
    old.vote(vote(before.generation, epoch, start_ts)).await.unwrap();
    let decision = old.decision(JOB, before.generation, epoch, start_ts).await.unwrap();
    assert_eq!(decision, Decision::Retry);
    let again = SealedRequest { retry_of: Some(start_ts), ..sealed(before.generation, epoch) };
    assert_eq!(old.sealed(again).await.unwrap_err().kind(), ErrorKind::Fenced);
    // Even by hand, with the newest timestamp there is: the start is gone for good.
    let key = epoch_record_key(JOB);
    let commit = CommitRequest {
        start_ts,
        keys: vec![key.clone().into()],
        primary: key.clone().into(),
        commit_ts: Some(store.timestamp().await.unwrap()),
    };
    store.commit(commit).await.unwrap_err();
    let after = new.status(JOB).await.unwrap();
    assert_eq!((after.record, after.commit_ts), (record.record, record.commit_ts));
    // The old coordinator knows nothing of the new run, and does not pretend to.
    let open = OpenRequest { job: JOB, generation: taken.generation, cut: None };
    assert_eq!(old.open(open).await.unwrap_err().kind(), ErrorKind::Conflict);
}

#[tokio::test]
async fn a_take_over_finds_an_epoch_that_was_decided_without_an_answer() {
    let store: Arc<dyn Store> = EmbeddedStore::memory();
    let world = World::create(store.as_ref(), JOB).await;
    let old = local(&store);
    let before = take_over(old.as_ref(), 1).await;
    let shared: Arc<dyn Coordinator> = Arc::clone(&old) as _;
    let mut workers = Worker::of_run(&world, &shared, &store, &before, 1, 1);
    workers[0].epoch().await.unwrap();
    drop((workers, shared, old));
    let new = local(&store);
    let taken = take_over(new.as_ref(), 1).await;
    assert_eq!(taken.frontier.epoch, Epoch(1));
    assert_eq!(world.audit(Arc::clone(&store)).await.unwrap(), Epoch(1));
}

#[tokio::test]
async fn a_reader_pushes_the_commit_above_itself_and_does_not_wait() {
    let store: Arc<dyn Store> = EmbeddedStore::memory();
    let world = World::create(store.as_ref(), JOB).await;
    let coordinator = local(&store);
    let taken = take_over(coordinator.as_ref(), 1).await;
    let (epoch, start_ts) = prewritten(coordinator.as_ref(), taken.generation).await;
    let read_ts = store.timestamp().await.unwrap();
    assert!(read_ts > start_ts);
    let snapshot = Snapshot::new(Arc::clone(&store), read_ts);
    let read = tokio::time::timeout(Duration::from_secs(1), snapshot.get(&epoch_record_key(JOB))).await;
    let value = read.expect("the reader does not wait").unwrap().unwrap();
    coordinator.vote(vote(taken.generation, epoch, start_ts)).await.unwrap();
    let decision = coordinator.decision(JOB, taken.generation, epoch, start_ts).await.unwrap();
    let Decision::Committed { commit_ts } = decision else { panic!("{decision:?}") };
    assert!(commit_ts > read_ts, "committed at {commit_ts}, read at {read_ts}");
    assert_eq!(snapshot.get(&epoch_record_key(JOB)).await.unwrap(), Some(value));
    assert_eq!(world.audit_at(Arc::clone(&store), read_ts).await.unwrap(), Epoch(0));
}

#[tokio::test]
async fn ddl_in_between_is_loaded_and_not_lost() {
    let store: Arc<dyn Store> = EmbeddedStore::memory();
    let world = World::create(store.as_ref(), JOB).await;
    let coordinator = local(&store);
    let taken = take_over(coordinator.as_ref(), 1).await;
    let open = OpenRequest { job: JOB, generation: taken.generation, cut: None };
    let opened = coordinator.open(open).await.unwrap();
    assert_eq!(world.ddl(&store).await, Some(true));
    let prepared = coordinator.sealed(sealed(taken.generation, opened.epoch)).await.unwrap();
    let Prepared::DefinitionsChanged { definitions: 1, at } = prepared else { panic!("{prepared:?}") };
    // What it says can be read there.
    let snapshot = Snapshot::new(Arc::clone(&store), at);
    let value = snapshot.get(&epoch_record_key(JOB)).await.unwrap().unwrap();
    assert_eq!(types::records::EpochRecord::decode(&value).unwrap().definitions, 1);
    let again = SealedRequest { definitions: 1, ..sealed(taken.generation, opened.epoch) };
    let prepared = coordinator.sealed(again).await.unwrap();
    assert!(matches!(prepared, Prepared::Prewrite { .. }), "{prepared:?}");
}

#[tokio::test]
async fn a_gone_record_fences_and_its_job_is_forgotten_with_its_hold() {
    let store: Arc<dyn Store> = EmbeddedStore::memory();
    World::create(store.as_ref(), JOB).await;
    let coordinator = local(&store);
    let taken = take_over(coordinator.as_ref(), 1).await;
    let held = async || store.holds().await.unwrap().iter().any(|(name, _)| *name == hold_name(JOB));
    tokio::time::timeout(Duration::from_secs(5), async {
        while !held().await {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("history is held at the frontier");
    let opened =
        coordinator.open(OpenRequest { job: JOB, generation: taken.generation, cut: None }).await.unwrap();
    // The fill was adopted: its record is deleted by another job's epoch.
    let start_ts = store.timestamp().await.unwrap();
    store.commit_transaction(start_ts, vec![Mutation::delete(epoch_record_key(JOB))]).await.unwrap();
    let error = coordinator.sealed(sealed(taken.generation, opened.epoch)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
    assert_eq!(coordinator.status(JOB).await.unwrap_err().kind(), ErrorKind::Invalid);
    coordinator.forget(JOB).await.unwrap();
    assert!(!held().await);
    let error = coordinator.vote(vote(taken.generation, opened.epoch, start_ts)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    // Forgetting again is fine.
    coordinator.forget(JOB).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_epoch_outlives_its_time_to_live_by_heartbeats() {
    let flaky = Flaky::new(1, Rates::default());
    let store: Arc<dyn Store> = Arc::clone(&flaky) as _;
    World::create(store.as_ref(), JOB).await;
    let coordinator = local(&store);
    let taken = take_over(coordinator.as_ref(), 1).await;
    let (epoch, start_ts) = prewritten(coordinator.as_ref(), taken.generation).await;
    // Many times the time to live; a writer who meets the lock all the while may not end it.
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        let mut lock = store.mvcc_get(&epoch_record_key(JOB)).await.unwrap().lock;
        let lock = lock.take().expect("the lock is there");
        let now = store.timestamp().await.unwrap();
        assert!(lock.start_ts.physical_ms() + lock.ttl_ms > now.physical_ms(), "the lock has expired");
    }
    coordinator.vote(vote(taken.generation, epoch, start_ts)).await.unwrap();
    let decision = coordinator.decision(JOB, taken.generation, epoch, start_ts).await.unwrap();
    assert!(matches!(decision, Decision::Committed { .. }));
}

#[tokio::test(start_paused = true)]
async fn after_the_stores_death_its_primary_is_asked_before_anything_else() {
    let flaky = Flaky::new(1, Rates::default());
    let store: Arc<dyn Store> = Arc::clone(&flaky) as _;
    let world = World::create(store.as_ref(), JOB).await;
    let coordinator = local(&store);
    let taken = take_over(coordinator.as_ref(), 1).await;
    let (epoch, start_ts) = prewritten(coordinator.as_ref(), taken.generation).await;
    flaky.crash().await;
    coordinator.vote(vote(taken.generation, epoch, start_ts)).await.unwrap();
    // The staged lock is lost, so the epoch cannot be decided under this start; no worker is reloaded.
    let decision = coordinator.decision(JOB, taken.generation, epoch, start_ts).await.unwrap();
    assert_eq!(decision, Decision::Retry);
    let again = SealedRequest { retry_of: Some(start_ts), ..sealed(taken.generation, epoch) };
    let prepared = coordinator.sealed(again).await.unwrap();
    let Prepared::Prewrite { start_ts: second, .. } = prepared else { panic!("{prepared:?}") };
    assert!(second > start_ts);
    coordinator.vote(vote(taken.generation, epoch, second)).await.unwrap();
    let decision = coordinator.decision(JOB, taken.generation, epoch, second).await.unwrap();
    assert!(matches!(decision, Decision::Committed { .. }));
    let newest = coordinator.status(JOB).await.unwrap();
    assert_eq!((newest.record.epoch, newest.record.generation), (epoch, taken.generation));
    drop(world);
}

#[tokio::test(start_paused = true)]
async fn shutting_down_ends_every_wait_and_leaves_the_decision_to_the_next_run() {
    let flaky = Flaky::new(1, Rates::default());
    let store: Arc<dyn Store> = Arc::clone(&flaky) as _;
    World::create(store.as_ref(), JOB).await;
    let coordinator = local(&store);
    let taken = take_over(coordinator.as_ref(), 2).await;
    let opened =
        coordinator.open(OpenRequest { job: JOB, generation: taken.generation, cut: None }).await.unwrap();
    let waiting = coordinator.sealed(sealed(taken.generation, opened.epoch));
    let stop = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let status = coordinator.status(JOB).await.unwrap();
        assert_eq!(status.waiting_for, "waiting for worker 1 to seal");
        assert_eq!(status.open, Some(opened.clone()));
        coordinator.shutdown().await;
    };
    let (waited, ()) = futures::join!(waiting, stop);
    assert_eq!(waited.unwrap_err().kind(), ErrorKind::Closed);
    let open = OpenRequest { job: JOB, generation: taken.generation, cut: None };
    assert_eq!(coordinator.open(open).await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(take_over(local(&store).as_ref(), 1).await.generation, taken.generation.next());
}
