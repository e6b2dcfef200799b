//! Random histories under random failures: first safety, then, when the failures stop, progress.
//!
//! A seed decides what is done and what fails: lost requests and answers of the coordinator, coordinators
//! that are replaced while the old one is still about, runs that end at any fail point, restarts, views
//! created, replaced, resumed and dropped. At every step each published view equals its query at its cut.
//! `SEED=… cargo test -p runtime simulation` repeats one history's choices.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use coordinator::{
    Coordinator, Decision, HelperId, JobStatus, LocalCoordinator, LocalOptions, OfferRequest, OpenRequest,
    Opened, Prepared, SealedRequest, Share, ShareRequest, TakeOverRequest, TakenOver, VoteRequest,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use runtime::POINTS;
use sql::catalog::ViewState;
use store::{EmbeddedStore, Store};
use types::{Epoch, Error, Generation, JobId, Result, Timestamp};

use crate::plans::{COPY, GROUPS, JOIN, VALUES};
use crate::world::{World, options, until};

/// A coordinator that loses calls and answers, and is replaced by a new one at random.
struct Flaky {
    store: Arc<dyn Store>,
    state: Mutex<FlakyState>,
}

struct FlakyState {
    inner: Arc<LocalCoordinator>,
    rng: StdRng,
    faulty: bool,
}

enum Luck {
    Good,
    LoseCall,
    LoseAnswer,
}

impl Flaky {
    fn new(store: Arc<dyn Store>, seed: u64) -> Flaky {
        let inner = Arc::new(LocalCoordinator::new(Arc::clone(&store), LocalOptions::default()));
        let rng = StdRng::seed_from_u64(seed);
        Flaky { store, state: Mutex::new(FlakyState { inner, rng, faulty: true }) }
    }

    fn heal(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).faulty = false;
    }

    fn draw(&self) -> (Arc<LocalCoordinator>, Luck) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.faulty {
            return (Arc::clone(&state.inner), Luck::Good);
        }
        if state.rng.random_bool(0.01) {
            // The old one keeps running: a zombie.
            state.inner = Arc::new(LocalCoordinator::new(Arc::clone(&self.store), LocalOptions::default()));
        }
        let luck = match state.rng.random_range(0..40) {
            0 => Luck::LoseCall,
            1 => Luck::LoseAnswer,
            _ => Luck::Good,
        };
        (Arc::clone(&state.inner), luck)
    }

    async fn call<T, Fut: Future<Output = Result<T>>>(
        &self,
        call: impl FnOnce(Arc<LocalCoordinator>) -> Fut,
    ) -> Result<T> {
        let lost = || Err(Error::unavailable("lost by the simulation"));
        match self.draw() {
            (_, Luck::LoseCall) => lost(),
            (inner, Luck::LoseAnswer) => {
                let _ = call(inner).await;
                lost()
            }
            (inner, Luck::Good) => call(inner).await,
        }
    }
}

#[async_trait]
impl Coordinator for Flaky {
    async fn take_over(&self, request: TakeOverRequest) -> Result<TakenOver> {
        self.call(|inner| async move { inner.take_over(request).await }).await
    }

    async fn open(&self, request: OpenRequest) -> Result<Opened> {
        self.call(|inner| async move { inner.open(request).await }).await
    }

    async fn sealed(&self, request: SealedRequest) -> Result<Prepared> {
        self.call(|inner| async move { inner.sealed(request).await }).await
    }

    async fn vote(&self, request: VoteRequest) -> Result<()> {
        self.call(|inner| async move { inner.vote(request).await }).await
    }

    async fn decision(
        &self,
        job: JobId,
        generation: Generation,
        epoch: Epoch,
        start_ts: Timestamp,
    ) -> Result<Decision> {
        self.call(|inner| async move { inner.decision(job, generation, epoch, start_ts).await }).await
    }

    async fn abort(&self, job: JobId, generation: Generation, epoch: Epoch) -> Result<()> {
        self.call(|inner| async move { inner.abort(job, generation, epoch).await }).await
    }

    async fn give_up(&self, job: JobId, generation: Generation, reason: &str) -> Result<()> {
        let reason = reason.to_owned();
        self.call(|inner| async move { inner.give_up(job, generation, &reason).await }).await
    }

    async fn await_epoch(&self, job: JobId, generation: Generation, epoch: Epoch) -> Result<Opened> {
        self.call(|inner| async move { inner.await_epoch(job, generation, epoch).await }).await
    }

    async fn offer(&self, request: OfferRequest) -> Result<Vec<Share>> {
        self.call(|inner| async move { inner.offer(request).await }).await
    }

    async fn helpers(&self) -> Result<Vec<HelperId>> {
        self.call(|inner| async move { inner.helpers().await }).await
    }

    async fn share(&self, request: ShareRequest) -> Result<()> {
        self.call(|inner| async move { inner.share(request).await }).await
    }

    async fn status(&self, job: JobId) -> Result<JobStatus> {
        self.call(|inner| async move { inner.status(job).await }).await
    }

    async fn forget(&self, job: JobId) -> Result<()> {
        self.call(|inner| async move { inner.forget(job).await }).await
    }
}

const QUERIES: [&str; 4] = [COPY, VALUES, GROUPS, JOIN];

struct Simulation {
    world: World,
    flaky: Arc<Flaky>,
    rng: StdRng,
}

impl Simulation {
    async fn start(seed: u64) -> Simulation {
        let store: Arc<dyn Store> = EmbeddedStore::memory();
        let flaky = Arc::new(Flaky::new(Arc::clone(&store), seed ^ 0xf1a2));
        let coordinator = Arc::clone(&flaky) as Arc<dyn Coordinator>;
        let world = World::coordinated(store, coordinator, options()).await;
        Simulation { world, flaky, rng: StdRng::seed_from_u64(seed) }
    }

    async fn restart(&mut self) {
        self.world.runtime.shutdown().await;
        let store = Arc::clone(&self.world.store);
        let coordinator = Arc::clone(&self.flaky) as Arc<dyn Coordinator>;
        self.world = World::coordinated(store, coordinator, self.world.options.clone()).await;
    }

    async fn write(&mut self) -> Timestamp {
        let n_changes = self.rng.random_range(1..6);
        let mut changes = std::collections::BTreeMap::new();
        for _ in 0..n_changes {
            let table = if self.rng.random_bool(0.8) { "t" } else { "u" };
            let row = self
                .rng
                .random_bool(0.75)
                .then(|| (self.rng.random_range(0..4), self.rng.random_range(0..1000)));
            changes.insert((table, self.rng.random_range(0..60)), row);
        }
        let changes: Vec<_> = changes.into_iter().map(|((table, id), row)| (table, id, row)).collect();
        self.world.write(&changes).await
    }

    async fn step(&mut self) {
        let name = format!("v{}", self.rng.random_range(0..4));
        let query = QUERIES[self.rng.random_range(0..QUERIES.len())];
        match self.rng.random_range(0..20) {
            0 | 1 => self.ddl(self.world.create_in_background(&name, query).await),
            2 => {
                let text = format!("CREATE OR REPLACE MATERIALIZED VIEW {name} AS {query}");
                self.ddl(self.world.run_create(&text, true).await);
            }
            3 => self.ddl(self.world.drop_view(&name).await),
            4 => self.restart().await,
            5..8 => {
                let point = POINTS[self.rng.random_range(0..POINTS.len())];
                self.world.fail.arm(point, self.rng.random_range(0..4));
            }
            8 => {
                // A pass may fail at its fail points; the next one removes what it left.
                let _ = self.world.runtime.sweep_now().await;
            }
            _ => drop(self.write().await),
        }
    }

    /// A DDL may be refused, or its answer lost; nothing else.
    fn ddl(&self, outcome: Result<()>) {
        if let Err(error) = outcome {
            let refused = error.mysql_code().is_some();
            let lost = error.kind() == types::ErrorKind::Unavailable;
            assert!(refused || lost, "{error:?}");
        }
    }

    /// Every published view is its query at its cut; none is faulted.
    async fn check(&self) {
        let at = self.world.store.read_timestamp().await.unwrap();
        let catalog = self.world.catalog_at(at).await;
        for (_, definition, view) in catalog.views() {
            assert!(!matches!(view.state, ViewState::Faulted { .. }), "{:?}", view.state);
            if view.state == ViewState::Ready {
                self.world.check_at(&definition.info.name, at).await;
            }
        }
    }
}

async fn simulate(seed: u64, n_steps: usize) {
    eprintln!("SEED={seed}");
    let mut simulation = Simulation::start(seed).await;
    for _ in 0..n_steps {
        simulation.step().await;
        simulation.check().await;
        let pause_ms = simulation.rng.random_range(0..8);
        tokio::time::sleep(std::time::Duration::from_millis(pause_ms)).await;
    }
    // Healed: every view is published and catches up, and nothing of the dropped ones stays.
    simulation.world.fail.disarm_all();
    simulation.flaky.heal();
    let last = simulation.write().await;
    until("every fill to be adopted", async || {
        let catalog = simulation.world.catalog().await;
        catalog.views().all(|(_, _, view)| view.state == ViewState::Ready)
    })
    .await;
    let names: Vec<String> =
        simulation.world.catalog().await.views().map(|(_, view, _)| view.info.name.clone()).collect();
    for name in names {
        simulation.world.caught_up(&name, last).await;
        assert!(simulation.world.check(&name).await >= last);
    }
    simulation.world.runtime.sweep_now().await.unwrap();
    simulation.check().await;
    simulation.world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_histories_are_safe_and_heal() {
    if let Ok(seed) = std::env::var("SEED") {
        return simulate(seed.parse().expect("SEED is a number"), 150).await;
    }
    let n_seeds = if std::env::var_os("TIDEMILL_SOAK").is_some() { 40 } else { 4 };
    for seed in 1..=n_seeds {
        simulate(seed, 150).await;
    }
}
