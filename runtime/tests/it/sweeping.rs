//! What is left behind is removed, and nothing else: orphan runs, dropped views, holds.

use runtime::RuntimeOptions;
use sql::catalog::{DropKind, DropOptions};
use store::{KeyRange, Snapshot, Store};
use types::records::{self, MAIN_JOB};
use types::{Epoch, Generation, RunName, TableId};

use crate::fills::fill_table;
use crate::plans::{COPY, GROUPS, VALUES};
use crate::world::{World, options, until};

async fn runs(store: &dyn Store) -> Vec<RunName> {
    let keys = store.list_blobs(&records::runs_prefix(), None, 1_000_000).await.unwrap();
    keys.iter().map(|key| records::run_of_key(key).unwrap().0).collect()
}

/// Every key and blob of a table or view that is visible now.
async fn left_of(world: &World, view: TableId) -> Vec<String> {
    let snapshot = Snapshot::newest(std::sync::Arc::clone(&world.store)).await.unwrap();
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
