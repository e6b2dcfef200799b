//! What is left behind is removed, and nothing else: orphan runs, dropped views, holds.

use std::sync::Arc;

use runtime::RuntimeOptions;
use sql::catalog::{DropKind, DropOptions};
use store::testing::ManualClock;
use store::{EmbeddedStore, KeyRange, Options, Snapshot, Store};
use types::records::{self, MAIN_JOB};
use types::{Epoch, Generation, RunName, TableId, Timestamp};

use crate::fills::fill_table;
use crate::plans::{COPY, GROUPS, VALUES};
use crate::world::{World, options, until};

async fn runs(store: &dyn Store) -> Vec<RunName> {
    let keys = store.list_blobs(&records::runs_prefix(), None, 1_000_000).await.unwrap();
    keys.iter().map(|key| records::run_of_key(key).unwrap().0).collect()
}

/// Every key and blob of a table or view that is visible now.
async fn left_of(world: &World, view: TableId) -> Vec<String> {
    let snapshot = Snapshot::newest(Arc::clone(&world.store)).await.unwrap();
    let mut left: Vec<String> = runs(world.store.as_ref())
        .await
        .into_iter()
        .filter(|run| run.view == view)
        .map(|run| format!("{run:?}"))
        .collect();
    for (key, _) in snapshot.scan_all(&KeyRange::all()).await.unwrap() {
        let of_table = tidb::table_of_key(&key) == Some(view.0 as i64);
        let of_records =
            key.starts_with(records::PREFIX) && key.windows(8).any(|bytes| bytes == view.0.to_be_bytes());
        if of_table || of_records {
            left.push(key.escape_ascii().to_string());
        }
    }
    left
}

/// No history is kept beyond the jobs' holds, so a sweep may remove all that is not in force.
fn without_history() -> RuntimeOptions {
    RuntimeOptions { history_life_time_ms: 0, ..options() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_a_dropped_view() {
    let world = World::with(without_history()).await;
    fill_table(&world, 100).await;
    world.create("v", VALUES).await.unwrap();
    world.create("w", GROUPS).await.unwrap();
    let id = world.view_id("v").await;
    assert!(!left_of(&world, id).await.is_empty());
    world.drop_view("v").await.unwrap();
    until("the sweep", async || {
        // Holds follow the frontier of the jobs; each pass removes what they let go.
        let last = world.write(&[("t", 1, Some((1, 1)))]).await;
        world.caught_up("w", last).await;
        world.runtime.sweep_now().await.unwrap();
        left_of(&world, id).await.is_empty()
    })
    .await;
    let names: Vec<String> = world.store.holds().await.unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, [coordinator::hold_name(MAIN_JOB)], "the fills' holds are gone");
    world.check("w").await;
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_in_force_survive_and_merged_ones_go() {
    let world = World::with(without_history()).await;
    world.create("v", GROUPS).await.unwrap();
    world.create("w", VALUES).await.unwrap();
    for step in 0..60_i64 {
        let last = world.write(&[("t", step % 20, Some((step % 4, step)))]).await;
        world.caught_up("v", last).await;
    }
    let before = runs(world.store.as_ref()).await.len();
    until("merged runs to go", async || {
        world.runtime.sweep_now().await.unwrap();
        runs(world.store.as_ref()).await.len() < before / 2
    })
    .await;
    // A new run of the job reads every run that is in force: it would fault over one that is missing.
    let world = world.restart().await;
    let last = world.write(&[("t", 3, Some((1, 1)))]).await;
    for name in ["v", "w"] {
        world.caught_up(name, last).await;
        assert!(world.check(name).await >= last);
        assert_eq!(world.status(name).await.unwrap().state, "ready");
    }
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zombies_runs_are_swept_and_the_open_epochs_are_not() {
    let world = World::with(without_history()).await;
    world.create("v", COPY).await.unwrap();
    let view = world.view_id("v").await;
    let job = world.job(MAIN_JOB).await;
    let name = |generation: u64, epoch: u64| RunName {
        job: MAIN_JOB,
        generation: Generation(generation),
        epoch: Epoch(epoch),
        view,
        number: 0,
    };
    let zombie = name(job.generation.0 - 1, job.epoch.0 + 1_000_000);
    let open = name(job.generation.0, job.epoch.0 + 1_000_000);
    let blobs = [zombie, open].map(|run| (records::run_part_key(run, 0).into(), "a run".into()));
    world.store.put_blobs(blobs.to_vec()).await.unwrap();
    world.runtime.sweep_now().await.unwrap();
    let left = runs(world.store.as_ref()).await;
    assert!(!left.contains(&zombie) && left.contains(&open), "{left:?}");
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_the_past_keep_what_they_need() {
    let world = World::new().await;
    world.create("v", GROUPS).await.unwrap();
    let first = world.write(&[("t", 1, Some((1, 1)))]).await;
    world.caught_up("v", first).await;
    let past = world.store.read_timestamp().await.unwrap();
    let known = world.runtime.checkpoint_at(MAIN_JOB, world.view_id("v").await, past).await.unwrap().unwrap();
    for step in 0..40 {
        let last = world.write(&[("t", step, Some((step % 4, step)))]).await;
        world.caught_up("v", last).await;
    }
    world.runtime.sweep_now().await.unwrap();
    world.check_at("v", past).await;
    let listed = runs(world.store.as_ref()).await;
    for run in known.manifests.values().flat_map(|manifest| &manifest.runs) {
        assert!(listed.contains(&run.name), "{run:?} is in force at {past}, within the life time of history");
    }
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_table_takes_its_rows_along() {
    let world = World::with(without_history()).await;
    fill_table(&world, 50).await;
    world.create("v", COPY).await.unwrap();
    let (table, view) = (world.view_id("t").await, world.view_id("v").await);
    let names = [sql::TableName { database: None, name: "t".to_owned() }];
    let refused =
        world.runtime.drop_named(DropKind::Table, &names, Some("test"), DropOptions::default()).await;
    let error = refused.expect_err("a view needs it");
    assert_eq!(error.mysql_code(), Some(3730), "{error}");
    let cascade = DropOptions { if_exists: false, cascade: true };
    world.runtime.drop_named(DropKind::Table, &names, Some("test"), cascade).await.unwrap();
    until("the sweep", async || {
        world.runtime.poke(MAIN_JOB);
        world.runtime.sweep_now().await.unwrap();
        left_of(&world, table).await.is_empty() && left_of(&world, view).await.is_empty()
    })
    .await;
    world.runtime.shutdown().await;
}

/// The hold of the main job, if it has one.
async fn main_hold(world: &World) -> Option<Timestamp> {
    let name = coordinator::hold_name(MAIN_JOB);
    world.store.holds().await.unwrap().into_iter().find(|(hold, _)| *hold == name).map(|(_, ts)| ts)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_keeps_its_hold_over_a_long_downtime() {
    const HOUR_MS: u64 = 3_600_000;
    let now_ms = 1_700_000_000_000;
    let clock = Arc::new(ManualClock::new(now_ms));
    let engine = Arc::new(store::engine::MemoryEngine::new());
    let open = || {
        let options =
            Options { inline: true, clock: Arc::<ManualClock>::clone(&clock), ..Options::default() };
        let over: Arc<dyn store::engine::Engine> = Arc::<store::engine::MemoryEngine>::clone(&engine);
        let store: Arc<dyn Store> = EmbeddedStore::over(over, options).unwrap();
        store
    };
    let world = World::over(open(), options()).await;
    world.create("v", GROUPS).await.unwrap();
    let last = world.write(&[("t", 1, Some((1, 1)))]).await;
    world.caught_up("v", last).await;
    world.runtime.shutdown().await;
    assert!(main_hold(&world).await.is_some());
    world.store.close().await.unwrap();

    // A day later the sweep comes before the job gets anywhere.
    clock.set(now_ms + 25 * HOUR_MS);
    let stuck = RuntimeOptions { restart_backoff_ms: (HOUR_MS, HOUR_MS), ..options() };
    stuck.fail_points.arm("runtime::taken_over", 0);
    let world = World::over(open(), stuck).await;
    until("the job's failure", async || !world.fail.is_armed("runtime::taken_over")).await;
    world.runtime.sweep_now().await.unwrap();
    let held = main_hold(&world).await.expect("a day of downtime is no lag");
    assert!(held.physical_ms() < now_ms + HOUR_MS, "the job got nowhere: {held}");
    world.runtime.shutdown().await;
    world.store.close().await.unwrap();

    // When it can, it goes on where it was.
    let world = World::over(open(), options()).await;
    world.runtime.sweep_now().await.unwrap();
    let last = world.write(&[("t", 2, Some((1, 5)))]).await;
    world.caught_up("v", last).await;
    world.check("v").await;
    world.runtime.shutdown().await;
    world.store.close().await.unwrap();

    // One that is stuck for as long while the process runs loses it.
    let stuck = RuntimeOptions { restart_backoff_ms: (HOUR_MS, HOUR_MS), ..options() };
    stuck.fail_points.arm("runtime::taken_over", 0);
    let world = World::over(open(), stuck).await;
    until("the job's failure", async || !world.fail.is_armed("runtime::taken_over")).await;
    world.runtime.sweep_now().await.unwrap();
    assert!(main_hold(&world).await.is_some());
    clock.set(now_ms + 51 * HOUR_MS);
    world.runtime.sweep_now().await.unwrap();
    assert_eq!(main_hold(&world).await, None);
    world.runtime.shutdown().await;
}
