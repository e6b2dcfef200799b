//! New views: filled in pieces while writers write, adopted, replaced, cancelled, resumed.

use runtime::RuntimeOptions;
use sql::catalog::ViewState;
use types::records::MAIN_JOB;

use crate::epochs::check_every_epoch;
use crate::plans::{ALL, COPY, GROUPS, GUARDED, OVER, TOUCHY, VALUES};
use crate::world::{World, error_of, options, until};

/// Fills `t` with rows 0..n, a hundred a transaction.
pub(crate) async fn fill_table(world: &World, n: i64) {
    let ids: Vec<i64> = (0..n).collect();
    for chunk in ids.chunks(100) {
        let rows: Vec<_> = chunk.iter().map(|id| ("t", *id, Some((id % 10, *id)))).collect();
        world.write(&rows).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn view_is_filled_and_adopted_while_writers_write() {
    let world = World::new().await;
    fill_table(&world, 300).await;
    world.write(&[("u", 1, Some((0, 7)))]).await;
    for (index, query) in ALL.iter().enumerate() {
        let name = format!("v{index}");
        let done = std::sync::atomic::AtomicBool::new(false);
        let writer = async {
            let mut step = 0_i64;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                step += 1;
                let row = (step % 3 != 0).then_some((step % 10, step));
                world.write(&[("t", step * 7 % 320, row), ("u", step % 4, Some((0, step)))]).await;
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        };
        let filler = async {
            world.create(&name, query).await.unwrap();
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        };
        tokio::join!(writer, filler);
        world.check(&name).await;
        let last = world.write(&[("t", 1, Some((1, 1)))]).await;
        world.caught_up(&name, last).await;
        world.check(&name).await;
        check_every_epoch(&world, &name).await;
        let view = world.table(&name).await.view.clone().unwrap();
        assert_eq!((view.state, view.fill_job), (ViewState::Ready, None));
    }
    assert!(world.fail.hits()["runtime::fill_piece_done"] > 5 * 300 / 16, "pieces are bounded");
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn background_fill_shows_progress_and_is_waited_for() {
    let world = World::new().await;
    fill_table(&world, 200).await;
    world.create_in_background("v", GROUPS).await.unwrap();
    let id = world.view_id("v").await;
    let status = world.status("v").await.unwrap();
    assert!(status.state == "filling" || status.state == "ready");
    world.runtime.wait_published(id).await.unwrap();
    let status = world.status("v").await.unwrap();
    assert_eq!((status.state, status.n_rows, status.progress_percent), ("ready", Some(10), None));
    world.check("v").await;
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drop_cancels_a_fill_and_a_late_fill_changes_nothing() {
    let world = World::new().await;
    fill_table(&world, 400).await;
    world.create_in_background("v", VALUES).await.unwrap();
    let definition = world.table("v").await;
    let fill = definition.view.as_ref().unwrap().fill_job.unwrap();
    world.drop_view("v").await.unwrap();
    let error = error_of(world.runtime.wait_published(definition.id()).await);
    assert!(error.message().contains("dropped"), "{error}");
    until("the fill to end", async || !world.runtime.jobs().iter().any(|status| status.job == fill)).await;
    assert!(world.catalog().await.find("test", "v").is_none());
    // The name is free again.
    world.create("v", GROUPS).await.unwrap();
    world.check("v").await;
    world.runtime.shutdown().await;
}

/// What a killed CREATE gives up is its own view, not whatever has its name by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_is_abandoned_by_its_id_and_only_before_it_is_published() {
    let world = World::new().await;
    fill_table(&world, 400).await;
    world.create_in_background("v", VALUES).await.unwrap();
    let first = world.view_id("v").await;
    world.drop_view("v").await.unwrap();
    world.create_in_background("v", GROUPS).await.unwrap();
    let second = world.view_id("v").await;
    world.runtime.abandon(first).await.unwrap();
    assert_eq!(world.view_id("v").await, second);
    world.runtime.wait_published(second).await.unwrap();
    world.runtime.abandon(second).await.unwrap();
    world.check("v").await;
    world.create_in_background("w", VALUES).await.unwrap();
    world.runtime.abandon(world.view_id("w").await).await.unwrap();
    let left = world.catalog().await.find("test", "w").map(|known| known.view.clone().unwrap().state);
    assert!(
        left.as_ref().is_none_or(|state| *state == ViewState::Ready),
        "abandoned, or published before: {left:?}"
    );
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_that_is_replaced_has_one_row_and_tells_the_fill_there() {
    let world = World::with(RuntimeOptions { rows_per_piece_max: 2, ..options() }).await;
    fill_table(&world, 600).await;
    world.create("v", COPY).await.unwrap();
    let old = world.view_id("v").await;
    world.run_create(&format!("CREATE OR REPLACE MATERIALIZED VIEW v AS {GROUPS}"), true).await.unwrap();
    let mut told = false;
    while world.view_id("v").await == old {
        let views = world.runtime.views().await.unwrap();
        let names: Vec<(&str, &str)> = views.iter().map(|view| (view.name.as_str(), view.state)).collect();
        assert_eq!(names, [("v", "ready")]);
        told |= views[0].progress_percent.is_some() && views[0].fill_rows_done.is_some();
    }
    assert!(told, "300 pieces, and none was told");
    assert_eq!(world.status("v").await.unwrap().progress_percent, None);
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn or_replace_answers_by_the_old_definition_until_it_is_swapped() {
    let world = World::new().await;
    fill_table(&world, 300).await;
    world.create("v", COPY).await.unwrap();
    let old = world.view_id("v").await;
    world.run_create(&format!("CREATE OR REPLACE MATERIALIZED VIEW v AS {GROUPS}"), true).await.unwrap();
    let new = world.catalog().await.views().map(|(id, _, _)| id).max().unwrap();
    until("the swap", async || {
        // Whatever the name stands for is right all the way.
        world.check("v").await;
        world.view_id("v").await != old
    })
    .await;
    assert_eq!(world.view_id("v").await, new);
    let view = world.table("v").await.view.clone().unwrap();
    assert_eq!((view.state, view.replaces), (ViewState::Ready, None));
    assert!(!world.catalog().await.tables.contains_key(&old), "the old one went with the swap");
    let last = world.write(&[("t", 1, Some((1, 100)))]).await;
    world.caught_up("v", last).await;
    world.check("v").await;
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_of_a_foreground_fill_is_the_error_and_leaves_no_view() {
    let world = World::new().await;
    world.write(&[("t", 1, Some((1, -666)))]).await;
    let error = error_of(world.create("v", TOUCHY).await);
    assert!(error.message().contains("-666 is out of range"), "{error}");
    assert!(world.catalog().await.find("test", "v").is_none());
    // In the background the view stays, faulted, and can be resumed once the data is mended.
    world.create_in_background("v", TOUCHY).await.unwrap();
    until("the fault", async || world.status("v").await.unwrap().state == "faulted").await;
    world.write(&[("t", 1, Some((1, 1)))]).await;
    world.runtime.resume_view("test", "v", false).await.unwrap();
    world.check("v").await;
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_of_a_replacing_fill_leaves_the_old_view() {
    let world = World::new().await;
    world.create("v", COPY).await.unwrap();
    let last = world.write(&[("t", 1, Some((1, -666)))]).await;
    let replace = format!("CREATE OR REPLACE MATERIALIZED VIEW v AS {TOUCHY}");
    let error = error_of(world.run_create(&replace, false).await);
    assert!(error.message().contains("-666 is out of range"), "{error}");
    world.caught_up("v", last).await;
    world.check("v").await;
    assert_eq!(world.catalog().await.views().count(), 1, "the failed definition is gone");
    world.runtime.shutdown().await;
}

/// Between its pieces a fill stands at no snapshot: what fails there, and not at the end, is no fault.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_that_fails_only_halfway_through_a_fill_is_no_fault() {
    let world = World::new().await;
    fill_table(&world, 40).await;
    world.write(&[("t", 3, Some((1, -666))), ("u", 3, Some((0, 1)))]).await;
    world.create("v", GUARDED).await.unwrap();
    world.check("v").await;
    // Its guard goes, and then the row counts.
    world.write(&[("u", 3, None)]).await;
    until("the fault", async || world.status("v").await.unwrap().state == "faulted").await;
    let error = error_of(world.create("w", GUARDED).await);
    assert!(error.message().contains("-666 is out of range"), "{error}");
    world.runtime.shutdown().await;
}

/// A view that is rebuilt rewrites the definition of a view over it that is offered with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rebuilt_view_and_a_new_one_over_it_are_adopted_one_after_the_other() {
    let world = World::with(RuntimeOptions { restart_backoff_ms: (1500, 1500), ..options() }).await;
    world.write(&[("t", 1, Some((1, 1)))]).await;
    world.create("v", TOUCHY).await.unwrap();
    world.write(&[("t", 2, Some((1, -666)))]).await;
    until("the fault", async || world.status("v").await.unwrap().state == "faulted").await;
    world.write(&[("t", 2, Some((1, 2)))]).await;
    // While the job's run is over and the next one waits, both fills come to offer.
    world.fail.arm("runtime::absorbed", 0);
    world.write(&[("t", 3, Some((1, 3)))]).await;
    until("the job to fail", async || !world.fail.is_armed("runtime::absorbed")).await;
    let offered = || world.fail.hits().get("runtime::fill_offered").copied().unwrap_or_default();
    let offered_before = offered();
    world.create_in_background("w", OVER).await.unwrap();
    world.runtime.resume_view("test", "v", true).await.unwrap();
    until("both offers", async || offered() >= offered_before + 2).await;
    for name in ["v", "w"] {
        until("its adoption", async || {
            world.catalog().await.find("test", name).is_some_and(|definition| {
                definition.view.as_ref().is_some_and(|view| view.state == ViewState::Ready)
            })
        })
        .await;
        world.check(name).await;
    }
    let (v, w) = (world.view_id("v").await, world.table("w").await);
    assert_eq!(w.view.as_ref().unwrap().depends_on, [v], "it depends on the new one");
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fill_of_a_view_over_an_empty_table_is_published() {
    let world = World::new().await;
    world.create("v", VALUES).await.unwrap();
    assert!(world.check("v").await <= world.job(MAIN_JOB).await.commit_ts);
    world.runtime.shutdown().await;
}
