//! Epochs of a running job: what they take in, when they come, what a waiter is told.

use sql::catalog::TableDefinition;
use types::records::MAIN_JOB;

use crate::plans::{ALL, COPY, GROUPS, JOIN, TOUCHY, VALUES};
use crate::world::{World, options, until};

/// Whether every epoch of a job comes by a fail point, or every run of one.
pub(crate) fn is_of_an_epoch(point: &str) -> bool {
    const STEPS: [&str; 11] = [
        "taken_over",
        "loaded",
        "absorbed",
        "opened",
        "sealed",
        "runs_written",
        "prepared",
        "prewritten",
        "voted",
        "decided",
        "committed",
    ];
    point.strip_prefix("runtime::").is_some_and(|step| STEPS.contains(&step))
}

/// Checks a view at the commit of every epoch that is remembered.
pub(crate) async fn check_every_epoch(world: &World, name: &str) {
    let since = world.table(name).await.view.as_ref().unwrap().created_ts;
    let mut checked = 0;
    for epoch in world.runtime.epochs().into_iter().filter(|epoch| epoch.job == MAIN_JOB) {
        let catalog = world.catalog_at(epoch.commit_ts).await;
        let ready = catalog.find("test", name).and_then(|view| view.view.clone());
        if epoch.commit_ts > since && ready.is_some_and(|view| view.state == sql::catalog::ViewState::Ready) {
            let cut = world.check_at(name, epoch.commit_ts).await;
            assert_eq!(cut, epoch.cut, "the record at C_{} names its own cut", epoch.epoch);
            checked += 1;
        }
    }
    assert!(checked > 0, "view {name} saw no epoch");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_equal_their_queries_at_every_epoch() {
    follow(World::new().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallelism_changes_no_view() {
    for parallelism in [2, 7] {
        follow(World::with(runtime::RuntimeOptions { parallelism, ..options() }).await).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_on_disk_equal_their_queries_and_outlive_the_process() {
    let directory = tempfile::tempdir().unwrap();
    let open = || store::EmbeddedStore::open(directory.path(), store::Options::default()).unwrap();
    let world = World::over(open(), options()).await;
    world.write(&[("t", 1, Some((1, 5)))]).await;
    world.create("v", GROUPS).await.unwrap();
    world.create("w", VALUES).await.unwrap();
    for round in 0..3_i64 {
        let last = world.write(&[("t", round, Some((round, 7))), ("t", 9, Some((1, round)))]).await;
        for name in ["v", "w"] {
            world.caught_up(name, last).await;
            assert!(world.check(name).await >= last);
        }
    }
    world.runtime.shutdown().await;
    world.store.close().await.unwrap();
    drop(world);
    let world = World::over(open(), options()).await;
    let last = world.write(&[("t", 2, None)]).await;
    for name in ["v", "w"] {
        world.caught_up(name, last).await;
        assert!(world.check(name).await >= last);
        assert_eq!(world.status(name).await.unwrap().state, "ready");
    }
    world.runtime.shutdown().await;
}

/// Changes two tables in many transactions under all views, and checks each at every epoch.
async fn follow(world: World) {
    world.write(&[("u", 1, Some((0, 10))), ("t", 1, Some((1, 5)))]).await;
    for (index, query) in ALL.iter().enumerate() {
        world.create(&format!("v{index}"), query).await.unwrap();
    }
    let mut last = types::Timestamp::ZERO;
    for step in 0..60_i64 {
        let id = step % 7;
        let row = (step % 5 != 4).then_some((step % 3, step));
        let weight = (step % 4 != 3).then_some((0, step));
        last = world.write(&[("t", id, row), ("u", step % 3, weight)]).await;
    }
    for index in 0..ALL.len() {
        let name = format!("v{index}");
        world.caught_up(&name, last).await;
        assert!(world.check(&name).await >= last);
        check_every_epoch(&world, &name).await;
    }
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn source_transaction_is_in_one_epoch() {
    // Each transaction moves a row's value between two rows: the sum never wavers.
    let world = World::new().await;
    world.write(&[("t", 1, Some((1, 500))), ("t", 2, Some((1, 500)))]).await;
    world.create("v", GROUPS).await.unwrap();
    for step in 0..50 {
        world.write(&[("t", 1, Some((1, 500 - step))), ("t", 2, Some((1, 500 + step)))]).await;
    }
    let last = world.write(&[("t", 1, Some((1, 0))), ("t", 2, Some((1, 1000)))]).await;
    world.caught_up("v", last).await;
    let definition = world.table("v").await;
    let published = definition.view.as_ref().unwrap().created_ts;
    let mut n_epochs = 0;
    for epoch in world.runtime.epochs().into_iter().filter(|epoch| epoch.job == MAIN_JOB) {
        let catalog = world.catalog_at(epoch.commit_ts).await;
        let ready = catalog
            .find("test", "v")
            .is_some_and(|view| view.view.as_ref().unwrap().state == sql::catalog::ViewState::Ready);
        if epoch.commit_ts > published && ready {
            let stored = world.stored(&definition, epoch.commit_ts).await;
            let row = vec!["1".to_owned(), "2".to_owned(), "1000".to_owned()];
            assert_eq!(stored, [(row, 1)].into(), "epoch {}", epoch.epoch);
            n_epochs += 1;
        }
    }
    assert!(n_epochs > 1, "one epoch does not show anything");
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_job_moves_its_frontier() {
    let world = World::new().await;
    world.create("v", COPY).await.unwrap();
    let before = world.job(MAIN_JOB).await;
    until("two idle epochs", async || world.job(MAIN_JOB).await.epoch.0 >= before.epoch.0 + 2).await;
    let after = world.job(MAIN_JOB).await;
    assert!(after.cut > before.cut && after.commit_ts > after.cut);
    world.check("v").await;
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_is_answered_at_once() {
    let world = World::with(runtime::RuntimeOptions {
        // Neither a change nor idleness would bring an epoch within the test.
        epoch_interval_ms: 3_600_000,
        idle_interval_ms: 3_600_000,
        ..options()
    })
    .await;
    world.create("v", VALUES).await.unwrap();
    let at = world.write(&[("t", 1, Some((1, 1)))]).await;
    let waited = world.runtime.wait_cut(MAIN_JOB, at, 20_000).await.unwrap().unwrap();
    assert!(waited.cut >= at && waited.commit_ts > waited.cut);
    assert_eq!(world.check_at("v", waited.commit_ts).await, waited.cut);
    // Nothing changed since: T itself is the answer, and no epoch is needed for it.
    let epoch = world.job(MAIN_JOB).await.epoch;
    let later = world.store.read_timestamp().await.unwrap();
    let idle = world.runtime.wait_cut(MAIN_JOB, later, 20_000).await.unwrap().unwrap();
    assert_eq!((idle.cut, idle.commit_ts), (later, later));
    assert_eq!(world.job(MAIN_JOB).await.epoch, epoch);
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_without_time_is_told_so() {
    let world = World::new().await;
    world.create("v", VALUES).await.unwrap();
    let mut refused = None;
    // An epoch may be at its end just then.
    until("a wait that finds no epoch", async || {
        let at = world.write(&[("t", 1, Some((1, 1)))]).await;
        refused = world.runtime.wait_cut(MAIN_JOB, at, 0).await.err();
        refused.is_some()
    })
    .await;
    let refused = refused.unwrap();
    assert_eq!((refused.kind(), refused.mysql_code()), (types::ErrorKind::Unavailable, Some(1205)));
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn named_job_has_its_own_cuts() {
    let world = World::new().await;
    world.create("v", COPY).await.unwrap();
    world
        .run_create(&format!("CREATE MATERIALIZED VIEW w WITH (job = 'side') AS {JOIN}"), false)
        .await
        .unwrap();
    let main = world.table("v").await.view.as_ref().unwrap().job;
    let side = world.table("w").await.view.as_ref().unwrap().job;
    assert_ne!(main, side);
    let at = world.write(&[("t", 1, Some((1, 1))), ("u", 1, Some((0, 9)))]).await;
    world.caught_up("v", at).await;
    world.caught_up("w", at).await;
    world.check("v").await;
    world.check("w").await;
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tiny_memory_limit_gives_the_same_views() {
    let world = World::with(runtime::RuntimeOptions { memory_limit_bytes: 4096, ..options() }).await;
    world.create("v", GROUPS).await.unwrap();
    world.create("w", VALUES).await.unwrap();
    let mut last = types::Timestamp::ZERO;
    for step in 0..20_i64 {
        let changes: Vec<_> = (0..40).map(|id| ("t", id, Some((id % 3, step * id)))).collect();
        last = world.write(&changes).await;
    }
    for name in ["v", "w"] {
        world.caught_up(name, last).await;
        assert!(world.check(name).await >= last);
        check_every_epoch(&world, name).await;
    }
    world.runtime.shutdown().await;
}

/// An update of columns that a view does not read is nothing to it, though another view reads them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn update_of_columns_that_a_view_does_not_read_does_not_reach_it() {
    let world = World::new().await;
    world.write(&[("t", 1, Some((1, 1))), ("t", 2, Some((1, 2)))]).await;
    for (name, query) in [("narrow", TOUCHY), ("wide", COPY)] {
        world.create(name, query).await.unwrap();
    }
    let definitions = [world.table("narrow").await, world.table("wide").await];
    // A view's fill had operators of its own, which count by themselves.
    let rows_in_its_job = |definition: &TableDefinition| {
        let (view, job) = (definition.id(), definition.view.as_ref().unwrap().job);
        let operators = world.runtime.operators();
        let mut sources = operators.iter().filter(|it| it.view == view && it.job == job && it.node == 0);
        sources.next().map(|source| source.rows_in)
    };
    let rows_in = || {
        definitions.each_ref().map(|definition| rows_in_its_job(definition).expect("the job has the view"))
    };
    until("the job to report its views", async || {
        definitions.iter().all(|definition| rows_in_its_job(definition).is_some())
    })
    .await;
    let before = rows_in();
    world.write(&[("t", 1, Some((7, 1)))]).await;
    let last = world.write(&[("t", 2, Some((8, 2)))]).await;
    world.caught_up("wide", last).await;
    assert_eq!(rows_in(), [before[0], before[1] + 4]);
    let last = world.write(&[("t", 2, Some((8, 3)))]).await;
    world.caught_up("wide", last).await;
    assert_eq!(rows_in(), [before[0] + 2, before[1] + 6]);
    for name in ["narrow", "wide"] {
        world.check(name).await;
    }
    world.runtime.shutdown().await;
}
