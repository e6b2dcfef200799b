//! The whole protocol in one thread under paused time, from a seed.
//!
//! Two processes fight over one job: each takes over, runs epochs with its workers, loses workers at any
//! await, forgets its coordinator, and wakes old runs as zombies. DDL rewrites the record in between,
//! readers push commits, the store loses, delays, repeats late, and dies with its staged locks. Then
//! everything is healed and one process must make progress. `SEED=7 cargo test -p coordinator simulation`
//! repeats a run exactly.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use coordinator::{
    CommitTimestamps, Coordinator, LocalCoordinator, LocalOptions, MachineOptions, TakeOverRequest,
};
use store::Store;
use types::{ErrorKind, JobId};

use crate::flaky::{Flaky, Random, Rates};
use crate::world::{Worker, World};

/// How long things go wrong, and how long healing may take, in milliseconds of paused time.
const FAULTY_MS: u64 = 60_000;
const HEALED_MS_MAX: u64 = 120_000;

struct Simulation {
    seed: u64,
    flaky: Arc<Flaky>,
    store: Arc<dyn Store>,
    world: Arc<World>,
    healed: AtomicBool,
    over: AtomicBool,
    n_fenced: AtomicU64,
    n_retired: AtomicU64,
}

/// What a run came to; equal for equal seeds.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    n_epochs: u64,
    n_take_overs: u64,
    n_ddl: u64,
    n_fenced: u64,
    n_crashes: u64,
    n_faults: u64,
}

impl Simulation {
    fn options(&self, random: &mut Random) -> LocalOptions {
        let commit_timestamps =
            if self.seed.is_multiple_of(2) { CommitTimestamps::Store } else { CommitTimestamps::Oracle };
        LocalOptions {
            machine: MachineOptions { commit_timestamps, refusals_max: 3, ttl_ms: 2_000 },
            seed: random.next(),
            hold_interval_ms: 1_000,
            ..LocalOptions::default()
        }
    }

    /// One process, until the simulation is over; only process 0 survives healing.
    async fn process(&self, index: u64) {
        let mut random = Random(self.seed.wrapping_mul(31).wrapping_add(index));
        let mut zombies: Vec<Vec<Worker>> = Vec::new();
        let mut coordinator =
            Arc::new(LocalCoordinator::new(Arc::clone(&self.store), self.options(&mut random)));
        while !self.over.load(Ordering::Relaxed) {
            if index > 0 && self.healed.load(Ordering::Relaxed) {
                break;
            }
            if random.chance(300) {
                // The coordinator dies: nothing of its memory is left.
                coordinator =
                    Arc::new(LocalCoordinator::new(Arc::clone(&self.store), self.options(&mut random)));
            }
            let n_workers = u32::try_from(1 + random.below(3)).unwrap();
            let request = TakeOverRequest { job: self.world.job, n_workers };
            let taking = tokio::time::timeout(Duration::from_secs(10), coordinator.take_over(request));
            if let Ok(Ok(taken)) = taking.await {
                let shared: Arc<dyn Coordinator> = Arc::clone(&coordinator) as _;
                let seed = random.next();
                let workers = Worker::of_run(&self.world, &shared, &self.store, &taken, n_workers, seed);
                zombies.extend(self.run(workers, &mut random).await);
            }
            self.wake(&mut zombies, &mut random).await;
            let rest = if self.healed.load(Ordering::Relaxed) { 100 } else { 6_000 };
            tokio::time::sleep(Duration::from_millis(random.below(rest))).await;
        }
        coordinator.shutdown().await;
    }

    /// Runs epochs until one fails; returns what is left as zombies.
    async fn run(&self, mut workers: Vec<Worker>, random: &mut Random) -> Option<Vec<Worker>> {
        while !self.over.load(Ordering::Relaxed) {
            let healed = self.healed.load(Ordering::Relaxed);
            // Somebody dies at whatever the workers are just waiting for.
            let dies = !healed && random.chance(150);
            let patience_ms = if dies { random.below(300) } else { 20_000 };
            let epochs = futures::future::join_all(workers.iter_mut().map(Worker::epoch));
            match tokio::time::timeout(Duration::from_millis(patience_ms), epochs).await {
                Ok(results) => {
                    for error in results.iter().filter_map(|result| result.as_ref().err()) {
                        self.n_fenced
                            .fetch_add(u64::from(error.kind() == ErrorKind::Fenced), Ordering::Relaxed);
                        let expected = matches!(
                            error.kind(),
                            ErrorKind::Fenced
                                | ErrorKind::Conflict
                                | ErrorKind::Unavailable
                                | ErrorKind::Invalid
                        );
                        assert!(expected, "a worker's epoch ends with {:?}: {error}", error.kind());
                    }
                    if results.iter().any(Result::is_err) {
                        return Some(workers);
                    }
                }
                Err(_) => {
                    if random.chance(300) {
                        let worker = &workers[0];
                        let epoch = self.world.newest().next();
                        let abort = worker.coordinator.abort(self.world.job, worker.generation, epoch);
                        // It may be too late, or the store away; both are fine.
                        let _ = tokio::time::timeout(Duration::from_secs(2), abort).await;
                    }
                    return Some(workers);
                }
            }
            tokio::time::sleep(Duration::from_millis(random.below(100))).await;
        }
        None
    }

    /// Wakes an old run and lets it try an epoch, with new timestamps and all.
    async fn wake(&self, zombies: &mut Vec<Vec<Worker>>, random: &mut Random) {
        if zombies.is_empty() || !random.chance(500) {
            return;
        }
        let at = usize::try_from(random.below(zombies.len() as u64)).unwrap();
        let epochs = futures::future::join_all(zombies[at].iter_mut().map(Worker::epoch));
        let _ = tokio::time::timeout(Duration::from_secs(3), epochs).await;
        self.n_retired.fetch_add(1, Ordering::Relaxed);
        if random.chance(300) {
            zombies.remove(at);
        }
    }

    /// Reads at the newest timestamp through the flaky store, pushing what it meets.
    async fn audit(&self) {
        let mut newest = types::Epoch(0);
        while !self.over.load(Ordering::Relaxed) {
            match self.world.audit(Arc::clone(&self.store)).await {
                Ok(epoch) => {
                    assert!(epoch >= newest, "a later read sees epoch {epoch} after {newest}");
                    newest = epoch;
                }
                Err(error) => {
                    // A handle of a store that died under the read.
                    let expected = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Closed);
                    assert!(expected, "an audit fails with {error}");
                }
            }
            tokio::time::sleep(Duration::from_millis(37)).await;
        }
    }

    /// Rewrites the record now and then; returns how many rewrites are acknowledged, and how many unknown.
    async fn ddl(&self) -> (u64, u64) {
        let mut random = Random(self.seed ^ 0xdd1);
        let (mut n_done, mut n_unknown) = (0, 0);
        while !self.healed.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(random.below(2_000))).await;
            match self.world.ddl(&self.store).await {
                Some(true) => n_done += 1,
                Some(false) => {}
                None => n_unknown += 1,
            }
        }
        (n_done, n_unknown)
    }

    async fn heal(&self) {
        tokio::time::sleep(Duration::from_millis(FAULTY_MS)).await;
        self.flaky.set_rates(Rates::default());
        self.healed.store(true, Ordering::Relaxed);
        let goal = self.world.newest().0 + 5;
        let progress = async {
            while self.world.newest().0 < goal {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let progressed = tokio::time::timeout(Duration::from_millis(HEALED_MS_MAX), progress).await;
        assert!(progressed.is_ok(), "seed {}: healed, and no progress towards epoch {goal}", self.seed);
        self.over.store(true, Ordering::Relaxed);
    }
}

fn simulate(seed: u64) -> Outcome {
    println!("seed {seed}");
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let flaky = Flaky::new(seed, Rates::default());
        let world = World::create(flaky.as_ref(), JobId(1)).await;
        flaky.set_rates(Rates { lose_request: 25, lose_answer: 25, delay: 100, deliver_late: 15, crash: 2 });
        let simulation = Simulation {
            seed,
            store: Arc::clone(&flaky) as _,
            flaky,
            world,
            healed: AtomicBool::new(false),
            over: AtomicBool::new(false),
            n_fenced: AtomicU64::new(0),
            n_retired: AtomicU64::new(0),
        };
        let late = simulation.flaky.deliver_late();
        let all = async {
            futures::join!(
                simulation.process(0),
                simulation.process(1),
                simulation.audit(),
                simulation.ddl(),
                simulation.heal()
            )
        };
        let ((), (), (), (n_done, n_unknown), ()) = tokio::select! {
            biased;
            results = all => results,
            () = late => unreachable!("late requests are delivered for ever"),
        };
        let store: Arc<dyn Store> = simulation.flaky.inner();
        let (n_epochs, n_take_overs, n_ddl) = simulation.world.audit_history(store).await;
        assert!(n_ddl >= n_done, "{n_done} rewrites were acknowledged, {n_ddl} are there");
        assert!(
            n_ddl <= n_done + n_unknown,
            "{n_ddl} rewrites, at most {} were asked for",
            n_done + n_unknown
        );
        Outcome {
            n_epochs,
            n_take_overs,
            n_ddl,
            n_fenced: simulation.n_fenced.load(Ordering::Relaxed),
            n_crashes: simulation.flaky.n_crashes(),
            n_faults: simulation.flaky.n_faults(),
        }
    })
}

#[test]
fn faults_change_nothing_that_a_reader_sees_and_healing_brings_progress() {
    let seeds: Vec<u64> = match std::env::var("SEED") {
        Ok(seed) => vec![seed.parse().expect("SEED is a number")],
        Err(_) => {
            let soak = std::env::var("TIDEMILL_SOAK").is_ok();
            let n_seeds = std::env::var("SEEDS")
                .map_or(if soak { 1_000 } else { 12 }, |n| n.parse().expect("SEEDS is a number"));
            (1..=n_seeds).collect()
        }
    };
    let mut total =
        Outcome { n_epochs: 0, n_take_overs: 0, n_ddl: 0, n_fenced: 0, n_crashes: 0, n_faults: 0 };
    for seed in &seeds {
        let outcome = simulate(*seed);
        println!("{outcome:?}");
        assert!(outcome.n_epochs >= 5, "seed {seed}: hardly anything was decided");
        total.n_epochs += outcome.n_epochs;
        total.n_take_overs += outcome.n_take_overs;
        total.n_ddl += outcome.n_ddl;
        total.n_fenced += outcome.n_fenced;
        total.n_crashes += outcome.n_crashes;
        total.n_faults += outcome.n_faults;
    }
    if seeds.len() > 5 {
        // The simulation is worth something only if all of this happens in it.
        assert!(total.n_take_overs > 20, "{total:?}");
        assert!(total.n_ddl > 10, "{total:?}");
        assert!(total.n_fenced > 5, "{total:?}");
        assert!(total.n_crashes > 5, "{total:?}");
        assert!(total.n_faults > 500, "{total:?}");
    }
}

#[test]
fn a_seed_repeats_exactly() {
    assert_eq!(simulate(42), simulate(42));
}
