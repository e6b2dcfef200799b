//! Processes that offer help: who hears of what, and what ends a run.

use std::sync::Arc;

use coordinator::{
    Coordinator, Decision, HelperId, LocalCoordinator, LocalOptions, OfferRequest, OpenRequest, Prepared,
    SealedRequest, Share, ShareRequest, TakeOverRequest, TakenOver, VoteRequest,
};
use store::{EmbeddedStore, Store};
use types::{Epoch, ErrorKind, Generation, JobId, Timestamp};

use crate::world::World;

const JOB: JobId = JobId(1);
const HELPER: HelperId = HelperId(7);
const TTL_MS: u64 = 2_000;

async fn coordinator() -> Arc<LocalCoordinator> {
    let store: Arc<dyn Store> = EmbeddedStore::memory();
    World::create(store.as_ref(), JOB).await;
    let options = LocalOptions { helper_ttl_ms: TTL_MS, ..LocalOptions::default() };
    Arc::new(LocalCoordinator::new(store, options))
}

fn offer(helper: HelperId, known: &[(JobId, Generation)]) -> OfferRequest {
    OfferRequest { helper, known: known.to_vec(), leaves: false }
}

async fn take_over(coordinator: &LocalCoordinator, n_workers: u32) -> TakenOver {
    coordinator.take_over(TakeOverRequest { job: JOB, n_workers }).await.unwrap()
}

/// A run of two workers, the second of which is the helper.
async fn shared_run(coordinator: &LocalCoordinator) -> TakenOver {
    assert!(coordinator.offer(offer(HELPER, &[])).await.unwrap().is_empty());
    assert_eq!(coordinator.helpers().await.unwrap(), [HELPER]);
    let taken = take_over(coordinator, 2).await;
    let request = ShareRequest { job: JOB, taken: taken.clone(), helpers: vec![HELPER] };
    coordinator.share(request).await.unwrap();
    taken
}

fn sealed(generation: Generation, worker: u32) -> SealedRequest {
    SealedRequest {
        job: JOB,
        generation,
        epoch: Epoch(1),
        worker,
        definitions: 0,
        retry_of: None,
        faults: Vec::new(),
    }
}

#[tokio::test]
async fn a_helper_hears_of_its_share_and_takes_part_in_the_epoch() {
    let coordinator = coordinator().await;
    let taken = shared_run(&coordinator).await;
    let generation = taken.generation;
    let shares = coordinator.offer(offer(HELPER, &[])).await.unwrap();
    assert_eq!(shares, [Share { job: JOB, taken, worker: 1, n_workers: 2 }]);

    let waiting = {
        let coordinator = Arc::clone(&coordinator);
        async move { coordinator.await_epoch(JOB, generation, Epoch(1)).await }
    };
    let open = OpenRequest { job: JOB, generation, cut: None };
    let (awaited, opened) = futures::join!(waiting, coordinator.open(open));
    let opened = opened.unwrap();
    assert_eq!(awaited.unwrap(), opened);
    let other = OpenRequest { job: JOB, generation, cut: Some(opened.cut.prev()) };
    let again = coordinator.open(other).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Invalid, "a cut that a helper knows stands: {again}");

    let leader = coordinator.sealed(sealed(generation, 0));
    let (leader, helper) = futures::join!(leader, coordinator.sealed(sealed(generation, 1)));
    assert_eq!(leader.as_ref().unwrap(), helper.as_ref().unwrap());
    let Prepared::Prewrite { start_ts, .. } = leader.unwrap() else { panic!("no go") };
    for worker in [1, 0] {
        let vote = VoteRequest { job: JOB, generation, epoch: Epoch(1), worker, start_ts, done: true };
        coordinator.vote(vote).await.unwrap();
    }
    let decision = coordinator.decision(JOB, generation, Epoch(1), start_ts).await.unwrap();
    assert!(matches!(decision, Decision::Committed { .. }));
    let over = coordinator.await_epoch(JOB, generation, Epoch(1)).await.unwrap_err();
    assert_eq!(over.kind(), ErrorKind::Invalid, "{over}");
    coordinator.shutdown().await;
}

#[tokio::test]
async fn a_silent_helper_ends_the_run_and_one_that_calls_does_not() {
    let coordinator = coordinator().await;
    let taken = shared_run(&coordinator).await;
    let known = [(JOB, taken.generation)];
    for _ in 0..5 {
        assert_eq!(coordinator.offer(offer(HELPER, &known)).await.unwrap().len(), 1, "nothing is new");
    }
    // From here on it is silent; whoever waits for it hears of that.
    let ended = coordinator.await_epoch(JOB, taken.generation, Epoch(1)).await.unwrap_err();
    assert_eq!(ended.kind(), ErrorKind::Conflict, "{ended}");
    assert!(coordinator.helpers().await.unwrap().is_empty());
    let again = take_over(&coordinator, 1).await;
    assert_eq!(again.frontier.epoch, Epoch(0), "nothing was decided");
    let request = ShareRequest { job: JOB, taken: again, helpers: vec![HELPER] };
    let gone = coordinator.share(request).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::Conflict, "{gone}");
    coordinator.shutdown().await;
}

#[tokio::test]
async fn a_helper_that_leaves_or_gives_up_ends_the_run_at_once() {
    let coordinator = coordinator().await;
    let taken = shared_run(&coordinator).await;
    coordinator.offer(OfferRequest { leaves: true, ..offer(HELPER, &[]) }).await.unwrap();
    let open = |generation| OpenRequest { job: JOB, generation, cut: None };
    let ended = coordinator.open(open(taken.generation)).await.unwrap_err();
    assert_eq!(ended.kind(), ErrorKind::Conflict, "{ended}");
    assert!(coordinator.helpers().await.unwrap().is_empty());

    let taken = shared_run(&coordinator).await;
    coordinator.open(open(taken.generation)).await.unwrap();
    let waiting = coordinator.sealed(sealed(taken.generation, 0));
    let (waiting, given_up) =
        futures::join!(waiting, coordinator.give_up(JOB, taken.generation, "its disk is full"));
    given_up.unwrap();
    let error = waiting.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.message().contains("its disk is full"), "{error}");
    let late = coordinator.give_up(JOB, taken.generation.next(), "a run that is not there").await;
    assert!(late.is_err());
    coordinator.shutdown().await;
}

#[tokio::test]
async fn a_run_that_ends_after_its_decision_was_asked_for_is_decided_once() {
    let coordinator = coordinator().await;
    let taken = shared_run(&coordinator).await;
    let generation = taken.generation;
    coordinator.open(OpenRequest { job: JOB, generation, cut: None }).await.unwrap();
    let leader = coordinator.sealed(sealed(generation, 0));
    let (leader, _) = futures::join!(leader, coordinator.sealed(sealed(generation, 1)));
    let Prepared::Prewrite { start_ts, .. } = leader.unwrap() else { panic!("no go") };
    let vote = VoteRequest { job: JOB, generation, epoch: Epoch(1), worker: 0, start_ts, done: true };
    coordinator.vote(vote).await.unwrap();
    // The helper dies without a vote: the epoch is rolled back by the take-over, and done again.
    let ended = coordinator.decision(JOB, generation, Epoch(1), start_ts).await.unwrap_err();
    assert_eq!(ended.kind(), ErrorKind::Conflict);
    let again = take_over(&coordinator, 1).await;
    assert_eq!((again.frontier.epoch, again.generation), (Epoch(0), generation.next()));
    assert!(again.commit_ts > Timestamp::ZERO);
    coordinator.shutdown().await;
}
