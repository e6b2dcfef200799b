//! Views that are refreshed: on demand, by schedule, incrementally or anew; suspended, renamed, cancelled,
//! killed on the way. At every moment the view is its query at the cut of its own job.

use std::collections::BTreeMap;
use std::sync::Arc;

use runtime::{RefreshPath, Refreshed, RuntimeOptions};
use sql::RefreshKind;
use sql::catalog::{Refresh, ViewState};
use store::EmbeddedStore;
use store::engine::Space;
use store::testing::{CountingEngine, StillClock};
use types::records::{MAIN_JOB, epoch_record_key};
use types::{Result, Timestamp};

use crate::plans::{ALL, COPY, GROUPS, JOIN, TOUCHY, VALUES};
use crate::world::{World, error_of, options, until};

impl World {
    async fn create_on_demand(&self, name: &str, query: &str) {
        let text = format!("CREATE MATERIALIZED VIEW {name} WITH (refresh = 'on demand') AS {query}");
        self.run_create(&text, false).await.unwrap();
    }

    async fn refresh(&self, name: &str) -> Result<Refreshed> {
        self.runtime.refresh_view("test", name, RefreshKind::Auto, None).await
    }

    async fn set(&self, name: &str, refresh: &str) -> Result<()> {
        let options = BTreeMap::from([("refresh".to_owned(), refresh.to_owned())]);
        self.runtime.set_view_options("test", name, &options, false).await
    }

    async fn state(&self, name: &str) -> ViewState {
        self.table(name).await.view.clone().unwrap().state
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_kind_of_change_takes_its_path() {
    for query in ALL {
        let world = World::new().await;
        world.write(&[("t", 1, Some((1, 10))), ("t", 2, Some((1, 20))), ("u", 1, Some((7, 0)))]).await;
        world.create_on_demand("v", query).await;
        assert_eq!(world.state("v").await, ViewState::Unfilled, "nothing is filled before it is asked for");
        let first = world.refresh("v").await.unwrap();
        assert_eq!(first.record.path, RefreshPath::Full, "{query}");
        assert_eq!(world.check("v").await, first.record.cut);
        let nothing = world.refresh("v").await.unwrap();
        assert_eq!((nothing.record.path, nothing.record.rows_written), (RefreshPath::Nothing, 0), "{query}");
        assert!(nothing.record.cut > first.record.cut, "the checkpoint moves all the same");
        assert_eq!(nothing.view, first.view, "the same storage");
        let last = world.write(&[("t", 3, Some((1, 5))), ("u", 2, Some((8, 0)))]).await;
        assert!(world.check("v").await < last, "changes alone move nothing");
        let inserted = world.refresh("v").await.unwrap();
        assert_eq!(
            (inserted.record.path, inserted.record.rows_read),
            (RefreshPath::InsertOnly, if query == JOIN { 2 } else { 1 }),
            "{query}"
        );
        assert!(world.check("v").await >= last);
        world.write(&[("t", 3, None), ("t", 1, Some((2, 11)))]).await;
        let changed = world.refresh("v").await.unwrap();
        assert_eq!(changed.record.path, RefreshPath::Incremental, "{query}");
        assert!(changed.record.rows_written > 0);
        assert_eq!(world.check("v").await, changed.record.cut);
        let full = world.runtime.refresh_view("test", "v", RefreshKind::Full, None).await.unwrap();
        assert_eq!(full.record.path, RefreshPath::Full);
        assert_ne!(full.view, changed.view, "new storage");
        assert_eq!(world.check("v").await, full.record.cut);
        world.runtime.sweep_now().await.unwrap();
        world.write(&[("t", 9, Some((1, 1)))]).await;
        let after = world.refresh("v").await.unwrap();
        assert_eq!(after.record.path, RefreshPath::InsertOnly, "{query}");
        world.check("v").await;
        world.runtime.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refresh_reaches_the_timestamp_that_was_asked_for() {
    for kind in [RefreshKind::Auto, RefreshKind::Incremental, RefreshKind::Full] {
        let world = World::new().await;
        world.write(&[("t", 1, Some((1, 1)))]).await;
        world.create_on_demand("v", GROUPS).await;
        let first = world.refresh("v").await.unwrap().record.cut;
        let middle = world.write(&[("t", 2, Some((1, 2)))]).await;
        world.write(&[("t", 3, Some((1, 3))), ("t", 1, None)]).await;
        let to = |at| world.runtime.refresh_view("test", "v", kind, Some(at));
        assert_eq!(to(middle).await.unwrap().record.cut, middle, "{kind:?}");
        assert_eq!(world.check("v").await, middle);
        for wrong in [first, middle, Timestamp::from_parts(middle.physical_ms() + 3_600_000, 0)] {
            let error = error_of(to(wrong).await);
            assert!(error.message().contains("can be refreshed to a timestamp in ("), "{error}");
        }
        world.refresh("v").await.unwrap();
        world.check("v").await;
        world.runtime.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_changes_are_cheaper_read_from_the_tables() {
    let world = World::new().await;
    world.write(&[("t", 1, Some((1, 1)))]).await;
    world.create_on_demand("v", GROUPS).await;
    world.refresh("v").await.unwrap();
    for round in 0..12_i64 {
        let rows: Vec<_> = (0..1_000).map(|id| ("t", round * 1_000 + id, Some((id % 7, id)))).collect();
        world.write(&rows).await;
    }
    let plan = world.runtime.plan_refresh("test", "v", RefreshKind::Auto, None).await.unwrap();
    assert_eq!(plan.path, RefreshPath::Full, "{plan:?}");
    assert!(plan.reason.contains("cost more"), "{plan:?}");
    let full = world.refresh("v").await.unwrap();
    assert_eq!((full.record.path, full.record.source_rows), (RefreshPath::Full, 12_000));
    world.check("v").await;
    // Of so many rows a few changes are few.
    world.write(&[("t", 5, None)]).await;
    let few = world.refresh("v").await.unwrap().record;
    assert_eq!((few.path, few.rows_read, few.rows_skipped), (RefreshPath::Incremental, 1, 11_998));
    world.check("v").await;
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_whose_history_is_gone_is_built_anew() {
    let world =
        World::with(RuntimeOptions { history_life_time_ms: 0, history_limit_ms: 0, ..options() }).await;
    world.write(&[("t", 1, Some((1, 1)))]).await;
    world.create_on_demand("v", VALUES).await;
    world.refresh("v").await.unwrap();
    world.write(&[("t", 1, Some((1, 2)))]).await;
    until("the hold to be released", async || {
        world.runtime.sweep_now().await.unwrap();
        let plan = world.runtime.plan_refresh("test", "v", RefreshKind::Auto, None).await.unwrap();
        plan.path == RefreshPath::Full && plan.reason.contains("history")
    })
    .await;
    let error = error_of(world.runtime.refresh_view("test", "v", RefreshKind::Incremental, None).await);
    assert!(error.message().contains("history"), "{error}");
    world.refresh("v").await.unwrap();
    world.check("v").await;
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refresh_that_dies_anywhere_leaves_the_old_view_and_is_done_later() {
    for point in runtime::POINTS {
        for kind in [RefreshKind::Incremental, RefreshKind::Full] {
            let world = World::new().await;
            world.write(&[("t", 1, Some((1, 1))), ("t", 2, Some((2, 2)))]).await;
            world.create_on_demand("v", GROUPS).await;
            world.refresh("v").await.unwrap();
            world.write(&[("t", 1, None), ("t", 3, Some((2, 3)))]).await;
            world.fail.arm(point, 0);
            let refreshed = world.runtime.refresh_view("test", "v", kind, None).await;
            world.fail.disarm_all();
            world.check("v").await;
            // What did not get through (a DDL's own fail points are its caller's error) does so now.
            if refreshed.is_err() {
                until("the refresh", async || world.refresh("v").await.is_ok()).await;
            }
            world.check("v").await;
            let last = world.write(&[("t", 4, Some((9, 4)))]).await;
            world.refresh("v").await.unwrap();
            assert!(world.check("v").await >= last, "{point} {kind:?}");
            world.runtime.shutdown().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_keeps_the_checkpoint_and_the_schedule() {
    let world = World::new().await;
    world.write(&[("t", 1, Some((1, 1)))]).await;
    let text = "CREATE MATERIALIZED VIEW v WITH (refresh = 'every 1 second') AS ".to_owned() + COPY;
    world.run_create(&text, false).await.unwrap();
    world.create_on_demand("w", GROUPS).await;
    until("the first scheduled refresh", async || world.state("v").await == ViewState::Ready).await;
    world.refresh("w").await.unwrap();
    let cut = world.check("w").await;
    let last = world.write(&[("t", 2, Some((2, 2)))]).await;
    let world = world.restart().await;
    assert_eq!(world.check("w").await, cut, "nobody refreshed it");
    until("the next scheduled refresh", async || world.check("v").await >= last).await;
    let rows = world.runtime.refreshes().await.unwrap();
    assert_eq!(rows.len(), 2);
    let scheduled = rows.iter().find(|row| row.refresh == Refresh::Every(1_000)).unwrap();
    let last = scheduled.last.as_ref().unwrap();
    assert_eq!(scheduled.next_ms, Some(last.began_ms + 1_000));
    world.refresh("w").await.unwrap();
    world.check("w").await;
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_continuous_view_is_taken_out_of_its_job_and_put_back() {
    for query in ALL {
        let world = World::new().await;
        world.write(&[("t", 1, Some((1, 1))), ("u", 1, Some((3, 0)))]).await;
        world.create("v", query).await.unwrap();
        world.create("other", COPY).await.unwrap();
        world.set("v", "on demand").await.unwrap();
        let own = world.table("v").await.view.clone().unwrap();
        assert_ne!(own.job, MAIN_JOB);
        let last = world.write(&[("t", 2, Some((1, 2)))]).await;
        world.caught_up("other", last).await;
        world.check("other").await;
        assert!(world.check("v").await < last, "it stays where it was");
        let refreshed = world.refresh("v").await.unwrap();
        assert_eq!(refreshed.record.path, RefreshPath::InsertOnly, "its state went with it");
        assert!(world.check("v").await >= last);
        world.set("v", "continuous").await.unwrap();
        let back = world.table("v").await.view.clone().unwrap();
        assert_eq!((back.job, back.refresh, back.state), (MAIN_JOB, Refresh::Continuous, ViewState::Ready));
        let last = world.write(&[("t", 1, None)]).await;
        world.caught_up("v", last).await;
        world.check("v").await;
        let record = store::Snapshot::newest(Arc::clone(&world.store)).await.unwrap();
        assert!(record.get(&epoch_record_key(own.job)).await.unwrap().is_none(), "its own job is gone");
        world.runtime.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspended_view_stays_and_goes_on() {
    let world = World::new().await;
    world.write(&[("t", 1, Some((1, 1)))]).await;
    world.create("v", GROUPS).await.unwrap();
    world.create_on_demand("w", GROUPS).await;
    world.refresh("w").await.unwrap();
    for name in ["v", "w"] {
        world.runtime.suspend_view("test", name).await.unwrap();
        assert_eq!(world.status(name).await.unwrap().state, "suspended");
        let error = error_of(world.runtime.suspend_view("test", name).await);
        assert!(error.message().contains("suspended already"), "{error}");
        let error = error_of(world.refresh(name).await);
        assert!(error.message().contains("RESUME first"), "{error}");
    }
    let last = world.write(&[("t", 2, Some((1, 1)))]).await;
    let world = world.restart().await;
    for name in ["v", "w"] {
        assert!(world.check(name).await < last);
        world.runtime.resume_view("test", name, false).await.unwrap();
    }
    world.caught_up("v", last).await;
    world.check("v").await;
    world.refresh("w").await.unwrap();
    assert!(world.check("w").await >= last);
    let error = error_of(world.runtime.resume_view("test", "w", false).await);
    assert!(error.message().contains("neither faulted nor suspended"), "{error}");
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refreshes_of_one_view_wait_for_each_other_and_writers_for_none() {
    let world = World::new().await;
    world.create_on_demand("v", GROUPS).await;
    let refreshing = async |_: usize| {
        for _ in 0..5 {
            world.refresh("v").await.unwrap();
            world.check("v").await;
        }
    };
    let writing = async {
        for id in 0..100 {
            world.write(&[("t", id % 10, Some((id % 3, id)))]).await;
        }
    };
    futures::join!(futures::future::join_all((0..4).map(refreshing)), writing);
    world.refresh("v").await.unwrap();
    world.check("v").await;
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refresh_over_wrong_data_faults_the_view_and_says_so() {
    let world = World::new().await;
    world.write(&[("t", 1, Some((1, 1)))]).await;
    world.create_on_demand("v", TOUCHY).await;
    world.refresh("v").await.unwrap();
    world.write(&[("t", 2, Some((1, -666)))]).await;
    let error = error_of(world.refresh("v").await);
    assert!(error.message().contains("-666 is out of range"), "{error}");
    assert_eq!(world.status("v").await.unwrap().state, "faulted");
    let error = error_of(world.refresh("v").await);
    assert!(error.message().contains("RESUME rebuilds it"), "{error}");
    world.write(&[("t", 2, None)]).await;
    world.runtime.resume_view("test", "v", false).await.unwrap();
    world.check("v").await;
    world.write(&[("t", 3, Some((1, 3)))]).await;
    world.refresh("v").await.unwrap();
    world.check("v").await;
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_that_is_refreshed_while_it_is_replaced_is_replaced_at_the_later_cut() {
    let world = World::new().await;
    world.write(&[("t", 1, Some((1, 1)))]).await;
    world.create_on_demand("v", COPY).await;
    world.refresh("v").await.unwrap();
    let old = world.view_id("v").await;
    // The fill has its snapshot, and cannot offer itself before the view is refreshed past it.
    world.fail.arm_always("runtime::fill_offered");
    let replace = format!("CREATE OR REPLACE MATERIALIZED VIEW v WITH (refresh = 'on demand') AS {GROUPS}");
    world.run_create(&replace, true).await.unwrap();
    until("the fill", async || world.fail.hits().contains_key("runtime::fill_offered")).await;
    let last = world.write(&[("t", 2, Some((1, 2)))]).await;
    let refreshed = world.refresh("v").await.unwrap();
    assert!(refreshed.record.cut >= last);
    world.fail.disarm_all();
    until("the swap", async || world.view_id("v").await != old).await;
    assert!(world.check("v").await >= refreshed.record.cut, "it never goes back");
    world.write(&[("t", 1, None)]).await;
    world.refresh("v").await.unwrap();
    world.check("v").await;
    world.drop_view("v").await.unwrap();
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_cancelled_changes_nothing() {
    let world = World::new().await;
    world.write(&[("t", 1, Some((1, 1)))]).await;
    world.create_on_demand("v", COPY).await;
    let error = error_of(world.runtime.cancel_refresh("test", "v").await);
    assert!(error.message().contains("no fill or refresh"), "{error}");
    for (point, kind) in
        [("runtime::fill_piece_read", RefreshKind::Full), ("runtime::absorbed", RefreshKind::Incremental)]
    {
        world.refresh("v").await.unwrap();
        let before = world.check("v").await;
        world.write(&[("t", 2, Some((1, 1)))]).await;
        // It fails there again and again until it is given up.
        world.fail.arm_always(point);
        let refresh = world.runtime.refresh_view("test", "v", kind, None);
        let cancel =
            until("it to be cancelled", async || world.runtime.cancel_refresh("test", "v").await.is_ok());
        let (refreshed, ()) = futures::join!(refresh, cancel);
        let error = error_of(refreshed);
        assert!(error.message().contains("cancelled"), "{error}");
        world.fail.disarm_all();
        assert_eq!(world.check("v").await, before);
    }
    world.refresh("v").await.unwrap();
    world.check("v").await;
    assert_eq!(world.catalog().await.views().count(), 1);
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renamed_view_is_the_same_view() {
    let world = World::new().await;
    world.write(&[("t", 1, Some((1, 1)))]).await;
    world.create("v", COPY).await.unwrap();
    world.runtime.rename_view("test", "v", "w").await.unwrap();
    assert!(world.catalog().await.find("test", "v").is_none());
    let error = error_of(world.runtime.rename_view("test", "w", "t").await);
    assert!(error.message().contains("already exists"), "{error}");
    let last = world.write(&[("t", 2, Some((1, 1)))]).await;
    world.caught_up("w", last).await;
    world.check("w").await;
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_view_leaves_no_job() {
    let world = World::new().await;
    world.create_on_demand("v", COPY).await;
    world.refresh("v").await.unwrap();
    let job = world.table("v").await.view.clone().unwrap().job;
    world.drop_view("v").await.unwrap();
    let error = error_of(world.refresh("v").await);
    assert!(error.message().contains("doesn't exist"), "{error}");
    let snapshot = store::Snapshot::newest(Arc::clone(&world.store)).await.unwrap();
    assert!(snapshot.get(&epoch_record_key(job)).await.unwrap().is_none());
    until("the job to stop", async || !world.runtime.jobs().iter().any(|status| status.job == job)).await;
    world.runtime.shutdown().await;
}

/// Longer intervals than these could be said before there was a bound.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interval_without_bound_that_is_stored_is_the_longest() {
    let world = World::new().await;
    let text = format!("CREATE MATERIALIZED VIEW v WITH (refresh = 'every 36500 days') AS {COPY}");
    world.run_create(&text, false).await.unwrap();
    world.refresh("v").await.unwrap();
    let longest = 36_500 * 86_400_000_u64;
    let id = world.view_id("v").await;
    let key = types::records::table_key(id);
    let stored = store::Snapshot::newest(Arc::clone(&world.store)).await.unwrap().get(&key).await.unwrap();
    let stored = String::from_utf8(stored.unwrap().to_vec()).unwrap();
    assert!(stored.contains(&longest.to_string()) && stored.contains("every 36500 days"), "{stored}");
    let old = stored.replace(&longest.to_string(), &u64::MAX.to_string());
    let old = old.replace("every 36500 days", "every 213503982334 days");
    let put = |catalog: &sql::catalog::Catalog, _| {
        // Some change, so that the catalog is read again.
        let mut change = catalog.create_database(&format!("d{}", catalog.version), false)?;
        change.mutations.push(store::Mutation::put(key.clone(), old.clone().into_bytes()));
        Ok(change)
    };
    world.runtime.change_catalog(put).await.unwrap();
    let world = world.restart().await;
    let view = world.table("v").await.view.clone().unwrap();
    assert_eq!(view.refresh, Refresh::Every(longest));
    assert_eq!(view.options["refresh"], "every 36500 days", "as SHOW CREATE says it");
    let next_ms = world.runtime.refreshes().await.unwrap()[0].next_ms.unwrap();
    assert!(next_ms < 1 << 46, "{next_ms} is a time of a timestamp");
    world.refresh("v").await.unwrap();
    world.check("v").await;
    world.runtime.shutdown().await;
}

/// What a refresh asks of the store is one look a change, for the row of the view that is replaced, and one
/// wait for the disk: the newest changes are in memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refresh_looks_once_for_each_row_that_it_writes_and_syncs_once() {
    let engine = Arc::new(CountingEngine::default());
    // Nothing becomes due meanwhile: neither a hold nor the oracle's bound is written.
    let clock = Arc::new(StillClock(1_700_000_000_000));
    let store_options = store::Options { clock, inline: true, ..store::Options::default() };
    let store = EmbeddedStore::over(Arc::<CountingEngine>::clone(&engine), store_options).unwrap();
    let idle = RuntimeOptions { idle_interval_ms: 3_600_000, ..options() };
    let world = World::over(store, idle).await;
    let rows = |n_rows: i64, val: i64| (0..n_rows).map(|id| ("t", id, Some((id, val)))).collect::<Vec<_>>();
    world.write(&rows(500, 0)).await;
    world.create_on_demand("v", GROUPS).await;
    world.refresh("v").await.unwrap();
    let looks = || Space::ALL.into_iter().map(|space| engine.gets(space)).sum::<usize>();
    let mut looked = Vec::new();
    for (round, n_rows) in [(1, 10), (2, 100), (3, 400)] {
        world.write(&rows(n_rows, round)).await;
        let before = (looks(), engine.syncs());
        let refreshed = world.refresh("v").await.unwrap().record;
        assert_eq!((refreshed.rows_read, refreshed.rows_written), (n_rows as u64, n_rows as u64));
        if round > 1 {
            assert_eq!(engine.syncs() - before.1, 1, "{n_rows} changes");
            looked.push(looks() - before.0);
        }
        world.check("v").await;
    }
    let of_300 = looked[1] - looked[0];
    assert!((300..400).contains(&of_300), "{of_300} looks for 300 changes more ({looked:?})");
    world.runtime.shutdown().await;
}
