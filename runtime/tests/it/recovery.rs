//! Crashes: a run that ends at any step is followed by one that resumes from the frontier (G9).

use std::sync::Arc;

use runtime::{POINTS, RuntimeOptions};
use types::records::MAIN_JOB;

use crate::epochs::{check_every_epoch, is_of_an_epoch};
use crate::fills::fill_table;
use crate::plans::{COPY, GROUPS, VALUES};
use crate::world::{World, options, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_step_of_an_epoch_may_fail() {
    let world = World::new().await;
    world.write(&[("t", 1, Some((1, 1)))]).await;
    for (name, query) in [("v", COPY), ("w", VALUES), ("x", GROUPS)] {
        world.create(name, query).await.unwrap();
    }
    let mut step = 0;
    for point in POINTS.iter().filter(|point| is_of_an_epoch(point)) {
        world.fail.arm(point, 0);
        if *point == "runtime::taken_over" || *point == "runtime::loaded" {
            // Only a new run comes by there.
            world.fail.arm("runtime::opened", 0);
        }
        let mut last = types::Timestamp::ZERO;
        until(point, async || {
            step += 1;
            last = world.write(&[("t", step % 5, (step % 4 != 0).then_some((step % 3, step)))]).await;
            !world.fail.is_armed(point)
        })
        .await;
        for name in ["v", "w", "x"] {
            world.caught_up(name, last).await;
            assert!(world.check(name).await >= last, "{name} after {point}");
            check_every_epoch(&world, name).await;
        }
    }
    assert!(world.job(MAIN_JOB).await.n_restarts >= 10);
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_step_of_a_fill_may_fail() {
    let world = World::new().await;
    fill_table(&world, 150).await;
    let points = [
        "runtime::fill_loaded",
        "runtime::fill_piece_read",
        "runtime::fill_piece_done",
        "runtime::fill_offered",
        "runtime::fill_reached",
        "runtime::adopted",
    ];
    for (index, point) in points.iter().enumerate() {
        for after in [0, 3] {
            let name = format!("v{index}_{after}");
            // The main job's run, which passes by often, is not what these points are about.
            world.fail.arm(point, if (1..3).contains(&index) { after } else { 0 });
            world.create(&name, if after == 0 { VALUES } else { GROUPS }).await.unwrap();
            until(point, async || !world.fail.is_armed(point)).await;
            let last = world.write(&[("t", index as i64, Some((1, after as i64)))]).await;
            world.caught_up(&name, last).await;
            assert!(world.check(&name).await >= last, "{name} after {point}");
        }
    }
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_process_resumes_jobs_and_fills() {
    let mut world = World::new().await;
    fill_table(&world, 300).await;
    world.create("v", GROUPS).await.unwrap();
    world.create_in_background("w", VALUES).await.unwrap();
    let mut last = types::Timestamp::ZERO;
    for round in 0..4_i64 {
        world = world.restart().await;
        last = world.write(&[("t", round, Some((3, round * 10)))]).await;
    }
    let id = world.view_id("w").await;
    world.runtime.wait_published(id).await.unwrap();
    for name in ["v", "w"] {
        world.caught_up(name, last).await;
        assert!(world.check(name).await >= last);
    }
    assert!(world.job(MAIN_JOB).await.generation.0 >= 2, "a start is a take-over");
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newer_run_fences_the_older_one() {
    let first = World::new().await;
    first.write(&[("t", 1, Some((1, 1)))]).await;
    first.create("v", GROUPS).await.unwrap();
    // A second process on the same store, with a coordinator of its own.
    let second = World::over(Arc::clone(&first.store), RuntimeOptions { ..options() }).await;
    until("the second to run", async || {
        second.runtime.jobs().iter().any(|status| status.job == MAIN_JOB && status.state == "running")
    })
    .await;
    let mut last = types::Timestamp::ZERO;
    for step in 0..20 {
        last = first.write(&[("t", step, Some((step % 3, step)))]).await;
    }
    until("the first to be fenced", async || {
        first.job(MAIN_JOB).await.state == "restarting" || second.job(MAIN_JOB).await.n_restarts > 0
    })
    .await;
    second.caught_up("v", last).await;
    assert!(second.check("v").await >= last);
    // When the newer run is gone, the older one comes back by itself.
    second.runtime.shutdown().await;
    let last = first.write(&[("t", 50, Some((1, 1)))]).await;
    until("the first to take over", async || first.check("v").await >= last).await;
    first.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plan_that_changed_faults_instead_of_running_over_old_state() {
    let world = World::new().await;
    world.write(&[("t", 1, Some((1, 1)))]).await;
    world.create("v", GROUPS).await.unwrap();
    world.create("w", COPY).await.unwrap();
    let definition = world.table("v").await;
    world.runtime.shutdown().await;
    let mut changed = sql::catalog::TableDefinition::clone(&definition);
    changed.view.as_mut().unwrap().fingerprint = "another".to_owned();
    let start_ts = world.store.timestamp().await.unwrap();
    let catalog = world.catalog().await;
    let mutations = vec![
        store::Mutation::put(
            types::records::table_key(definition.id()),
            serde_json::to_vec(&changed).unwrap(),
        ),
        store::Mutation::put(
            types::records::catalog_version_key(),
            (catalog.version + 1).to_string().into_bytes(),
        ),
    ];
    world.store.commit_transaction(start_ts, mutations).await.unwrap();
    let world = world.restart().await;
    until("the fault", async || world.status("v").await.unwrap().state == "faulted").await;
    assert!(world.status("v").await.unwrap().reason.unwrap().contains("plan changed"));
    let last = world.write(&[("t", 2, Some((1, 1)))]).await;
    world.caught_up("w", last).await;
    world.check("w").await;
    world.runtime.resume_view("test", "v", false).await.unwrap();
    world.check("v").await;
    world.runtime.shutdown().await;
}
