//! Two processes of one job, joined by gRPC only: each has some of the views, and prewrites its own keys of
//! every epoch. Whatever step the second one fails or dies at, and whenever another comes, nothing is lost or
//! done twice (G2, G9).

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use coordinator::{
    LocalCoordinator, LocalOptions, RemoteCoordinator, RemoteOptions, RemoteStore, RpcServer, Services,
};
use runtime::{FailPoints, Helper, POINTS, RuntimeOptions, Supervisor};
use store::Store;
use types::records::MAIN_JOB;
use types::{TableId, Timestamp};

use crate::epochs::{check_every_epoch, is_of_an_epoch};
use crate::plans::{COPY, COPY_OF_U, GROUPS, VALUES};
use crate::world::{World, options, until};

const VIEWS: [(&str, &str); 6] =
    [("a", COPY), ("b", VALUES), ("c", GROUPS), ("d", COPY), ("e", VALUES), ("f", GROUPS)];

/// The first process, and where others find it.
struct Pair {
    world: World,
    /// The cluster as the second process has it; in memory it has the first one's store over gRPC.
    second: Option<Arc<dyn Store>>,
    rpc: RpcServer,
    coordinator: Arc<LocalCoordinator>,
}

/// The second process: a runtime of its own.
struct Second {
    helper: Helper,
    runtime: tokio::runtime::Runtime,
    fail: FailPoints,
}

impl Pair {
    async fn new() -> Pair {
        Pair::with(options().idle_interval_ms).await
    }

    async fn with(idle_interval_ms: u64) -> Pair {
        let [first, second] = tikv_server::suite::store_of_two().await;
        let local = LocalOptions { helper_ttl_ms: 400, ..LocalOptions::default() };
        let coordinator = Arc::new(LocalCoordinator::new(Arc::clone(&first), local));
        let services = Services {
            coordinator: Some(Arc::clone(&coordinator) as _),
            store: Some(Arc::clone(&first)),
            ..Services::default()
        };
        let anywhere: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let rpc = RpcServer::start(anywhere, services).await.unwrap();
        let second = tikv_server::suite::is_on_cluster().then_some(second);
        let options = RuntimeOptions { epochs_remembered: 6, idle_interval_ms, ..options() };
        let world = World::coordinated(first, Arc::clone(&coordinator) as _, options).await;
        Pair { world, second, rpc, coordinator }
    }

    async fn second(&self) -> Second {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let fail = FailPoints::armable();
        let options = RuntimeOptions { fail_points: fail.clone(), ..options() };
        let address = self.rpc.address().to_string();
        // Over a cluster it has a connection of its own, in memory the first process's store is all there is.
        let own = self.second.clone();
        let started = runtime.spawn(async move {
            let remote = || RemoteStore::new(&address, RemoteOptions::default()).unwrap();
            let store = own.unwrap_or_else(|| Arc::new(remote()));
            let coordinator = RemoteCoordinator::new(&address, RemoteOptions::default()).unwrap();
            Helper::start(store, Arc::new(coordinator), options, Supervisor::new()).await.unwrap()
        });
        Second { helper: started.await.unwrap(), runtime, fail }
    }

    async fn create_views(&self) {
        for (name, query) in VIEWS {
            self.world.create(name, query).await.unwrap();
        }
    }

    /// Writes until something has happened; returns the last write.
    async fn write_until(&self, what: &str, mut has_happened: impl FnMut() -> bool) -> Timestamp {
        let mut step = 0;
        let mut last = Timestamp::ZERO;
        until(what, async || {
            step += 1;
            let row = (step % 4 != 0).then_some((step % 3, step));
            last = self.world.write(&[("t", step % 7, row), ("u", step % 3, Some((step, 0)))]).await;
            has_happened()
        })
        .await;
        last
    }

    /// Every view is its query, and was at each of the last epochs.
    async fn check(&self, at_least: Timestamp, after: &str) {
        for (name, _) in VIEWS {
            self.world.caught_up(name, at_least).await;
            assert!(self.world.check(name).await >= at_least, "{name} after {after}");
            check_every_epoch(&self.world, name).await;
        }
    }

    /// The views that a process runs.
    fn run_here(&self) -> BTreeSet<TableId> {
        self.world.runtime.operators().into_iter().map(|operator| operator.view).collect()
    }

    async fn end(self) {
        self.world.runtime.shutdown().await;
        self.rpc.shutdown().await;
        self.coordinator.shutdown().await;
    }
}

impl Second {
    /// Ends as SIGTERM would end it.
    async fn end(self) {
        self.helper.shutdown().await;
        self.die();
    }

    /// Ends as SIGKILL would end it.
    fn die(self) {
        drop(self.helper);
        self.runtime.shutdown_background();
    }

    fn has_share(&self) -> bool {
        !self.helper.shares().borrow().is_empty()
    }

    /// Waits until it is worker 1 of a run that is newer than one it had.
    async fn shares(&self, after: u64) -> u64 {
        let mut shares = self.helper.shares();
        let newer = |share: &coordinator::Share| share.job == MAIN_JOB && share.taken.generation.0 > after;
        let found = shares.wait_for(|shares| shares.iter().any(newer)).await.unwrap().clone();
        found.into_iter().find(|share| newer(share)).unwrap().taken.generation.0
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_prewrite_one_transaction() {
    let pair = Pair::new().await;
    pair.create_views().await;
    let second = pair.second().await;
    let last = pair
        .write_until("two processes to have decided an epoch", || {
            let n_here = pair.run_here().len();
            let there = second.fail.hits();
            (1..VIEWS.len()).contains(&n_here) && there.contains_key("runtime::committed")
        })
        .await;
    pair.check(last, "the division").await;

    // Views that come while the work is divided are their worker's from the epoch that publishes them.
    for (name, query) in [("g", COPY), ("h", VALUES), ("i", GROUPS), ("j", COPY)] {
        pair.world.create(name, query).await.unwrap();
    }
    let last = pair.write_until("an epoch", || true).await;
    for name in ["g", "h", "i", "j"] {
        pair.world.caught_up(name, last).await;
        pair.world.check(name).await;
        check_every_epoch(&pair.world, name).await;
    }
    pair.world.drop_view("g").await.unwrap();
    pair.world.drop_view("h").await.unwrap();
    let last = pair.write_until("an epoch", || true).await;
    pair.check(last, "drops").await;

    second.end().await;
    let last = pair.write_until("an epoch", || true).await;
    pair.check(last, "the second process has gone").await;
    until("every view to run here again", async || pair.run_here().len() == VIEWS.len() + 2).await;
    pair.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_only_the_second_process_reads_is_followed_too() {
    let pair = Pair::with(600_000).await;
    let over_u: Vec<String> = (0..6).map(|at| format!("w{at}")).collect();
    for name in &over_u {
        pair.world.create(name, COPY_OF_U).await.unwrap();
    }
    pair.create_views().await;
    let second = pair.second().await;
    pair.write_until("a share", || {
        second.has_share() && (1..VIEWS.len() + over_u.len()).contains(&pair.run_here().len())
    })
    .await;
    let here = pair.run_here();
    let mut there = Vec::new();
    for name in over_u {
        match here.contains(&pair.world.view_id(&name).await) {
            true => pair.world.drop_view(&name).await.unwrap(),
            false => there.push(name),
        }
    }
    let watched = there.first().expect("views are scattered");
    let last = pair.write_until("an epoch", || true).await;
    pair.world.caught_up(watched, last).await;
    // Nobody waits for it and nothing else changes.
    let written = pair.world.write(&[("u", 1, Some((77, 0)))]).await;
    until("an epoch without anybody who waits", async || {
        pair.world.runtime.epochs().iter().any(|epoch| epoch.job == MAIN_JOB && epoch.cut >= written)
    })
    .await;
    pair.world.check(watched).await;
    second.end().await;
    pair.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_process_may_fail_at_each_step() {
    let pair = Pair::new().await;
    pair.create_views().await;
    let second = pair.second().await;
    let mut generation = 0;
    for point in POINTS.iter().filter(|point| is_of_an_epoch(point)) {
        pair.write_until("a share", || second.has_share()).await;
        // It fails there, gives its share up, and is given another.
        second.fail.arm(point, 0);
        if *point == "runtime::taken_over" || *point == "runtime::loaded" {
            second.fail.arm("runtime::opened", 0);
        }
        pair.write_until(point, || !second.fail.is_armed(point)).await;
        let last = pair.write_until("an epoch", || true).await;
        pair.check(last, &format!("a failure at {point}")).await;
        generation = second.shares(generation).await;
    }
    let n_restarts = pair.world.job(MAIN_JOB).await.n_restarts;
    assert!(n_restarts >= 8, "each failure ends the run: {n_restarts}");
    second.end().await;
    let last = pair.write_until("an epoch", || true).await;
    pair.check(last, "all of it").await;
    pair.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_process_may_die_at_any_moment() {
    let pair = Pair::new().await;
    pair.create_views().await;
    // A cluster takes a while for every look at it.
    let n_rounds = if tikv_server::suite::is_on_cluster() { 3 } else { 10 };
    for round in 0..n_rounds {
        let second = pair.second().await;
        pair.write_until("a share", || second.has_share()).await;
        let mut n_writes = 0;
        pair.write_until("some writes", || {
            n_writes += 1;
            n_writes > round
        })
        .await;
        // Nothing of it moves from here on, and nobody says so.
        second.die();
        let last = pair.write_until("an epoch", || true).await;
        pair.check(last, &format!("death {round}")).await;
    }
    pair.end().await;
}
