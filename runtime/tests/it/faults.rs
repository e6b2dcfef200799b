//! Faults of one view's data: loud, recorded with the epoch that left it out, and nobody else's (G10).

use sql::catalog::ViewState;
use store::Mutation;

use crate::plans::{COPY, GROUPS, TOUCHY};
use crate::world::{World, until};

async fn faulted_by(value: i64, expected: &str) {
    let world = World::new().await;
    world.write(&[("t", 1, Some((1, 1)))]).await;
    for (name, query) in [("v", TOUCHY), ("w", COPY), ("x", GROUPS)] {
        world.create(name, query).await.unwrap();
    }
    let generation = world.job(types::records::MAIN_JOB).await.generation;
    let bad = world.write(&[("t", 2, Some((1, value)))]).await;
    until("the fault", async || world.status("v").await.unwrap().state == "faulted").await;
    let status = world.status("v").await.unwrap();
    assert!(status.reason.as_ref().unwrap().contains(expected), "{status:?}");
    let definition = world.table("v").await;
    let ViewState::Faulted { at, .. } = definition.view.as_ref().unwrap().state else {
        panic!("not faulted")
    };
    assert!(at >= bad, "the cut of the epoch that left it out");
    // The rows stay as they were before that epoch.
    let now = world.store.read_timestamp().await.unwrap();
    let before = bad.prev();
    assert_eq!(world.stored(&definition, now).await, world.recompute(TOUCHY, before).await);
    // The others go on, in the same run.
    let last = world.write(&[("t", 3, Some((2, 5)))]).await;
    for name in ["w", "x"] {
        world.caught_up(name, last).await;
        assert!(world.check(name).await >= last);
    }
    assert_eq!(world.job(types::records::MAIN_JOB).await.generation, generation);
    // Resuming over the bad row fails, and says so; once it is mended the view is rebuilt and goes on.
    let error = world.runtime.resume_view("test", "v", false).await.expect_err("the row is still there");
    assert!(error.message().contains(expected), "{error}");
    assert_eq!(world.status("v").await.unwrap().state, "faulted");
    world.write(&[("t", 2, None)]).await;
    world.runtime.resume_view("test", "v", false).await.unwrap();
    let last = world.write(&[("t", 4, Some((2, 6)))]).await;
    world.caught_up("v", last).await;
    assert!(world.check("v").await >= last);
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn error_of_an_expression_faults_its_view_only() {
    faulted_by(-666, "-666 is out of range").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panic_in_a_dataflow_faults_its_view_only() {
    faulted_by(-13, "thirteen brings bad luck").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn view_whose_rows_somebody_else_wrote_is_faulted() {
    let world = World::new().await;
    world.write(&[("t", 1, Some((1, 1)))]).await;
    world.create("v", COPY).await.unwrap();
    world.create("w", GROUPS).await.unwrap();
    // Somebody deletes the view's row; the next change of it asserts that it is there.
    let definition = world.table("v").await;
    let row = crate::world::batch(&definition, 1, 1, 1);
    let encoder = tidb::RowEncoder::new(&definition.info).unwrap();
    let key = encoder.encode(&row, 0, None).unwrap().0;
    let start_ts = world.store.timestamp().await.unwrap();
    world.store.commit_transaction(start_ts, vec![Mutation::delete(key)]).await.unwrap();
    let last = world.write(&[("t", 1, Some((1, 2)))]).await;
    until("the fault", async || world.status("v").await.unwrap().state == "faulted").await;
    assert!(world.status("v").await.unwrap().reason.unwrap().contains("stored row"));
    world.caught_up("w", last).await;
    world.check("w").await;
    world.runtime.resume_view("test", "v", false).await.unwrap();
    world.check("v").await;
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_that_cannot_be_decoded_faults_the_views_that_read_its_table() {
    let world = World::new().await;
    world.write(&[("t", 1, Some((1, 1))), ("u", 1, Some((0, 1)))]).await;
    world.create("v", COPY).await.unwrap();
    let definition = world.table("t").await;
    let row = crate::world::batch(&definition, 2, 1, 1);
    let encoder = tidb::RowEncoder::new(&definition.info).unwrap();
    let key = encoder.encode(&row, 0, None).unwrap().0;
    let start_ts = world.store.timestamp().await.unwrap();
    world.store.commit_transaction(start_ts, vec![Mutation::put(key, "no row")]).await.unwrap();
    until("the fault", async || world.status("v").await.unwrap().state == "faulted").await;
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_that_is_gone_faults_instead_of_skipping() {
    let world = World::new().await;
    world.write(&[("t", 1, Some((1, 1)))]).await;
    world.create("v", COPY).await.unwrap();
    let (store, options) = (std::sync::Arc::clone(&world.store), world.options.clone());
    let cut = world.check("v").await;
    world.runtime.shutdown().await;
    // While nobody runs, the holds are lost and history after the frontier is collected.
    let writer = World { ..world };
    writer.write(&[("t", 2, Some((1, 2)))]).await;
    let last = writer.write(&[("t", 2, Some((1, 3)))]).await;
    for (name, _) in store.holds().await.unwrap() {
        store.release(&name).await.unwrap();
    }
    let barrier = store.collect_garbage(last).await.unwrap();
    assert!(barrier > cut, "the history after the cut is gone");
    let world = World::over(store, options).await;
    until("the fault", async || world.status("v").await.unwrap().state == "faulted").await;
    assert!(world.status("v").await.unwrap().reason.unwrap().contains("history is gone"));
    world.runtime.resume_view("test", "v", false).await.unwrap();
    world.check("v").await;
    world.runtime.shutdown().await;
}
