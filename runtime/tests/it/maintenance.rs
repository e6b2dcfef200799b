//! Maintenance: runs are merged, rows get another order, and no answer changes, whoever writes, kills,
//! cancels, drops or replaces meanwhile.

use std::sync::Arc;

use runtime::{Maintained, MaintenanceKind, MaintenanceStatus, RefreshPath};
use sink::load_manifests;
use sql::RefreshKind;
use store::Snapshot;
use types::records::{EpochRecord, MAIN_JOB, epoch_record_key};
use types::{Error, Result, Timestamp};

use crate::plans::{ALL, COPY, GROUPS, JOIN, OVER, TOUCHY, VALUES};
use crate::world::{World, error_of, options, until};

const COMPACT: MaintenanceKind = MaintenanceKind::Compact;
const RECLUSTER: MaintenanceKind = MaintenanceKind::Recluster { at_once: false };
const FINAL: MaintenanceKind = MaintenanceKind::Recluster { at_once: true };

impl World {
    async fn maintain(&self, name: &str, kind: MaintenanceKind) -> Result<Maintained> {
        self.runtime.maintain("test", name, kind).await?.await.unwrap()
    }

    async fn cluster(&self, name: &str, columns: &[&str]) -> Result<()> {
        let columns: Vec<String> = columns.iter().map(|&column| column.to_owned()).collect();
        self.runtime.cluster_view("test", name, &columns, false).await
    }

    /// The states of a view that are in several tiers, and its runs.
    async fn tiers(&self, name: &str) -> (usize, usize) {
        let now = self.store.read_timestamp().await.unwrap();
        let manifests = load_manifests(&self.store, self.view_id(name).await, now).await.unwrap();
        let tiered = manifests.values().filter(|manifest| manifest.n_tiers() > 1).count();
        (tiered, manifests.values().map(|manifest| manifest.runs.len()).sum())
    }

    async fn newest_task(&self) -> MaintenanceStatus {
        self.runtime.maintenance().await.unwrap().pop().expect("there was a task")
    }

    /// Many rows, then a few: states with a large tier and a small one.
    async fn write_tiers(&self) -> Timestamp {
        let rows: Vec<_> = (0..400).map(|id| ("t", id, Some((id, id)))).collect();
        self.write(&rows).await;
        let rows: Vec<_> = (0..400).map(|id| ("u", id, Some((id, 0)))).collect();
        self.write(&rows).await
    }

    async fn write_few(&self) -> Timestamp {
        self.write(&[("t", 1, Some((1, 9))), ("t", 2, None), ("u", 3, None), ("u", 999, Some((5, 0)))]).await
    }

    /// A view with states in several tiers.
    async fn create_tiered(&self, query: &str) {
        let last = self.write_tiers().await;
        self.create("v", query).await.unwrap();
        self.caught_up("v", last).await;
        let last = self.write_few().await;
        self.caught_up("v", last).await;
    }
}

fn check_message<T: std::fmt::Debug>(result: Result<T>, code: u16, part: &str) {
    let error: Error = error_of(result);
    assert_eq!(error.mysql_code(), Some(code), "{error}");
    assert!(error.message().contains(part), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_merges_the_runs_of_every_state_and_changes_no_answer() {
    for query in ALL {
        let world = World::new().await;
        world.create_tiered(query).await;
        let before = world.check("v").await;
        let at = world.store.read_timestamp().await.unwrap();
        let (tiered, _) = world.tiers("v").await;
        let has_state = query != COPY && query != TOUCHY;
        assert_eq!(tiered > 0, has_state, "{query}");
        let maintained = world.maintain("v", COMPACT).await.unwrap();
        assert_eq!(maintained.n_states, tiered, "{query}");
        assert_eq!(world.tiers("v").await.0, 0, "{query}");
        assert!(world.check("v").await >= before);
        world.check_at("v", at).await;
        let task = world.newest_task().await;
        assert_eq!((task.state, task.automatic, task.percent), ("done", false, 100.0), "{task:?}");
        assert!(task.runs.1.unwrap() <= task.runs.0 && task.ended_ms.is_some(), "{task:?}");
        assert_eq!(task.runs.1.unwrap() < task.runs.0, has_state, "{task:?}");
        // The dataflow goes on over what was merged, here and after a restart.
        let last = world.write_few().await;
        world.caught_up("v", last).await;
        world.check("v").await;
        let world = world.restart().await;
        let last = world.write(&[("t", 1, None), ("t", 7, Some((3, 3)))]).await;
        world.caught_up("v", last).await;
        world.check("v").await;
        world.runtime.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_and_readers_do_not_notice() {
    let world = World::new().await;
    world.create_tiered(JOIN).await;
    let writing = async {
        for id in 0..60 {
            world.write(&[("t", id, Some((id % 7, id))), ("u", id % 7, Some((id, 0)))]).await;
        }
    };
    let maintaining = async {
        for kind in [COMPACT, COMPACT, COMPACT] {
            world.maintain("v", kind).await.unwrap();
        }
    };
    let reading = async {
        for _ in 0..40 {
            world.check("v").await;
        }
    };
    futures::join!(writing, maintaining, reading);
    let last = world.write_few().await;
    world.caught_up("v", last).await;
    world.check("v").await;
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_that_is_refreshed_or_suspended_stays_at_its_cut() {
    let world = World::new().await;
    world.write_tiers().await;
    let text = format!("CREATE MATERIALIZED VIEW v WITH (refresh = 'on demand') AS {GROUPS}");
    world.run_create(&text, false).await.unwrap();
    assert_eq!(world.maintain("v", COMPACT).await.unwrap().n_states, 0, "nothing is stored yet");
    let refresh = async || world.runtime.refresh_view("test", "v", RefreshKind::Auto, None).await.unwrap();
    refresh().await;
    world.write_few().await;
    refresh().await;
    let cut = world.check("v").await;
    let last = world.write(&[("t", 8, None)]).await;
    assert!(world.tiers("v").await.0 > 0);
    world.maintain("v", COMPACT).await.unwrap();
    assert_eq!(world.tiers("v").await.0, 0);
    assert_eq!(world.check("v").await, cut, "nobody refreshed it");
    let refreshed = refresh().await;
    assert_eq!(refreshed.record.path, RefreshPath::Incremental, "its history is still held");
    assert!(world.check("v").await >= last);
    world.runtime.suspend_view("test", "v").await.unwrap();
    let cut = world.check("v").await;
    assert!(world.tiers("v").await.0 > 0);
    world.maintain("v", COMPACT).await.unwrap();
    assert_eq!((world.tiers("v").await.0, world.check("v").await), (0, cut));
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn maintenance_that_dies_anywhere_changes_nothing_and_is_done_when_asked_again() {
    for point in runtime::POINTS {
        let world = World::new().await;
        world.create_tiered(GROUPS).await;
        world.fail.arm(point, 0);
        let first = world.maintain("v", COMPACT).await;
        world.fail.disarm_all();
        world.check("v").await;
        let task = world.newest_task().await;
        assert_eq!(task.state, if first.is_ok() { "done" } else { "failed" }, "{point}: {task:?}");
        assert_eq!(task.error.is_some(), first.is_err(), "{point}: {task:?}");
        until("the compaction", async || world.maintain("v", COMPACT).await.is_ok()).await;
        assert_eq!(world.tiers("v").await.0, 0, "{point}");
        let last = world.write_few().await;
        world.caught_up("v", last).await;
        world.check("v").await;
        world.runtime.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn maintenance_that_is_cancelled_or_whose_view_goes_is_over() {
    let world = World::new().await;
    world.create_tiered(GROUPS).await;
    check_message(world.runtime.cancel_refresh("test", "v").await, 1105, "and no maintenance");
    // It fails there again and again until it is given up.
    world.fail.arm_always("runtime::sealed");
    let cancel = async {
        until("the barrier", async || world.fail.hits().contains_key("runtime::sealed")).await;
        world.runtime.cancel_refresh("test", "v").await.unwrap();
    };
    let (maintained, ()) = futures::join!(world.maintain("v", COMPACT), cancel);
    check_message(maintained, 1105, "cancelled");
    assert_eq!(world.newest_task().await.state, "cancelled");
    // The same with a view that is dropped.
    let task = world.runtime.maintain("test", "v", COMPACT).await.unwrap();
    assert_eq!(world.newest_task().await.state, "running");
    world.drop_view("v").await.unwrap();
    check_message(task.await.unwrap(), 1105, "dropped, or built anew");
    assert_eq!(world.newest_task().await.state, "failed");
    world.fail.disarm_all();
    world.create("v", GROUPS).await.unwrap();
    world.check("v").await;
    // And with one that is replaced while it waits for a barrier.
    world.write_few().await;
    let last = world.write_few().await;
    world.caught_up("v", last).await;
    let replace = format!("CREATE OR REPLACE MATERIALIZED VIEW v AS {JOIN}");
    let replacing = world.run_create(&replace, false);
    let (_, replaced) = futures::join!(world.maintain("v", COMPACT), replacing);
    replaced.unwrap();
    world.check("v").await;
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_maintained_says_why() {
    let world = World::new().await;
    world.write_tiers().await;
    world.create("v", COPY).await.unwrap();
    world.create("values", VALUES).await.unwrap();
    world.create("groups", GROUPS).await.unwrap();
    assert_eq!(world.maintain("t", COMPACT).await.unwrap().n_states, 0, "a table has no runs");
    check_message(world.maintain("nope", COMPACT).await, 1146, "doesn't exist");
    check_message(world.maintain("nope", FINAL).await, 1146, "doesn't exist");
    check_message(world.maintain("t", RECLUSTER).await, 1347, "is not a materialized view");
    check_message(world.maintain("v", RECLUSTER).await, 1105, "has no cluster key");
    check_message(world.cluster("nope", &["id"]).await, 1146, "doesn't exist");
    check_message(world.cluster("t", &["id"]).await, 1347, "is not a materialized view");
    check_message(world.cluster("v", &["nope"]).await, 1072, "'nope' doesn't exist");
    check_message(world.cluster("groups", &["total"]).await, 1171, "'total' may be NULL");
    check_message(world.cluster("values", &["grp"]).await, 1235, "identify the view's rows");
    let text = format!("CREATE MATERIALIZED VIEW lazy WITH (refresh = 'on demand') AS {COPY}");
    world.run_create(&text, false).await.unwrap();
    check_message(world.cluster("lazy", &["grp"]).await, 1105, "never been refreshed");
    world.runtime.suspend_view("test", "v").await.unwrap();
    check_message(world.cluster("v", &["grp"]).await, 1105, "RESUME it first");
    world.create("touchy", TOUCHY).await.unwrap();
    world.write(&[("t", 1, Some((1, -666)))]).await;
    until("the fault", async || world.status("touchy").await.unwrap().state == "faulted").await;
    check_message(world.maintain("touchy", COMPACT).await, 1105, "RESUME rebuilds it");
    check_message(world.cluster("touchy", &["id"]).await, 1105, "RESUME rebuilds it");
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_cluster_key_moves_the_rows_and_keeps_what_depends_on_them() {
    let world = World::new().await;
    world.write_tiers().await;
    world.create("v", COPY).await.unwrap();
    world.create("over", OVER).await.unwrap();
    let old = world.view_id("v").await;
    let at = world.store.read_timestamp().await.unwrap();
    let writing = async {
        for id in 0..40 {
            world.write(&[("t", id, Some((id % 3, id)))]).await;
            world.check("v").await;
        }
    };
    let (clustered, ()) = futures::join!(world.cluster("v", &["grp", "VAL"]), writing);
    clustered.unwrap();
    let view = world.table("v").await;
    assert_ne!(view.id(), old);
    assert_eq!(view.info.primary_key, [1, 2, 0], "the key's own columns follow");
    assert_eq!(world.table("over").await.view.clone().unwrap().depends_on, [view.id()]);
    let task = world.newest_task().await;
    assert_eq!((task.kind.name(), task.state, task.name.as_str()), ("cluster", "done", "v"));
    world.check_at("v", at).await;
    let last = world.write_few().await;
    world.caught_up("v", last).await;
    world.check("v").await;
    world.check("over").await;
    world.cluster("v", &["GRP", "val"]).await.unwrap();
    assert_eq!(world.view_id("v").await, view.id(), "that is its key already");
    for kind in [RECLUSTER, FINAL] {
        world.maintain("v", kind).await.unwrap();
        assert_eq!(world.newest_task().await.kind.name(), "recluster");
    }
    world.cluster("v", &[]).await.unwrap();
    assert_eq!(world.table("v").await.info.primary_key, [0]);
    world.check("v").await;
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clustering_a_view_on_demand_keeps_its_cut() {
    let world = World::new().await;
    world.write_tiers().await;
    let text = format!("CREATE MATERIALIZED VIEW v WITH (refresh = 'on demand') AS {COPY}");
    world.run_create(&text, false).await.unwrap();
    let refresh = async || world.runtime.refresh_view("test", "v", RefreshKind::Auto, None).await.unwrap();
    refresh().await;
    let cut = world.check("v").await;
    let last = world.write_few().await;
    world.cluster("v", &["grp"]).await.unwrap();
    assert_eq!(world.table("v").await.info.primary_key, [1, 0]);
    assert_eq!(world.check("v").await, cut);
    assert_eq!(refresh().await.record.path, RefreshPath::Incremental);
    assert!(world.check("v").await >= last);
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clustering_goes_on_after_a_crash_and_ends_when_it_is_cancelled() {
    let world = World::new().await;
    world.write_tiers().await;
    world.create("v", COPY).await.unwrap();
    let old = world.view_id("v").await;
    let columns = ["grp".to_owned()];
    let clustering = async |world: &World| {
        let tasks = world.runtime.maintenance().await.unwrap();
        tasks.iter().any(|task| task.kind == MaintenanceKind::Cluster && task.state == "running")
    };
    world.fail.arm_always("runtime::fill_piece_read");
    world.runtime.cluster_view("test", "v", &columns, true).await.unwrap();
    assert!(clustering(&world).await);
    world.runtime.cancel_refresh("test", "v").await.unwrap();
    until("its end", async || !clustering(&world).await).await;
    assert_eq!(world.newest_task().await.state, "cancelled");
    assert_eq!(world.view_id("v").await, old);
    world.runtime.cluster_view("test", "v", &columns, true).await.unwrap();
    for columns in [&columns[..], &[]] {
        let again = world.runtime.cluster_view("test", "v", columns, true).await;
        check_message(again, 1105, "already being replaced");
    }
    let world = world.restart().await;
    assert!(clustering(&world).await, "the fill is there, and so is its row");
    world.check("v").await;
    world.fail.disarm_all();
    until("the swap", async || world.view_id("v").await != old).await;
    until("the end of the task", async || !clustering(&world).await).await;
    assert_eq!(world.newest_task().await.state, "done");
    let last = world.write_few().await;
    world.caught_up("v", last).await;
    world.check("v").await;
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn states_over_the_threshold_are_merged_by_themselves() {
    let some = runtime::RuntimeOptions {
        sweep_interval_ms: 10,
        compact_at_percent: 1,
        compact_bytes_min: 1,
        ..options()
    };
    let world = World::with(some).await;
    let last = world.write_tiers().await;
    world.create("v", GROUPS).await.unwrap();
    world.caught_up("v", last).await;
    world.write_few().await;
    until("a task of its own", async || {
        let tasks = world.runtime.maintenance().await.unwrap();
        tasks.iter().any(|task| task.automatic && task.state == "done" && task.kind == COMPACT)
    })
    .await;
    until("one tier", async || world.tiers("v").await.0 == 0).await;
    world.check("v").await;
    let never = runtime::RuntimeOptions { compact_at_percent: 101, ..options() };
    assert!(error_of(never.validate()).message().contains("compact_at_percent"));
    world.runtime.shutdown().await;
    // Without a threshold nothing begins by itself; the pass that would have begun it has passed.
    let world =
        World::with(runtime::RuntimeOptions { compact_at_percent: 0, sweep_interval_ms: 1, ..options() })
            .await;
    world.create_tiered(GROUPS).await;
    for _ in 0..3 {
        let hits = world.fail.hits().get("runtime::collected").copied().unwrap_or(0);
        until("a pass", async || world.fail.hits().get("runtime::collected").copied() > Some(hits)).await;
    }
    assert!(world.runtime.maintenance().await.unwrap().is_empty());
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refreshes_and_maintenance_of_one_view_do_not_disturb_each_other() {
    let world = World::new().await;
    world.write_tiers().await;
    let text = format!("CREATE MATERIALIZED VIEW v WITH (refresh = 'on demand') AS {GROUPS}");
    world.run_create(&text, false).await.unwrap();
    let refresh = async |kind| world.runtime.refresh_view("test", "v", kind, None).await;
    refresh(RefreshKind::Auto).await.unwrap();
    let refreshing = async {
        for round in 0..12 {
            world.write(&[("t", round, Some((round % 3, 1))), ("t", 100 + round, None)]).await;
            let kind = if round % 4 == 3 { RefreshKind::Full } else { RefreshKind::Incremental };
            // It waits while the view gets another order.
            refresh(kind).await.unwrap();
            world.check("v").await;
        }
    };
    let maintaining = async {
        for round in 0..12 {
            let key: &[&str] = if round % 2 == 0 { &["n"] } else { &[] };
            let ended = if round % 3 == 2 {
                world.cluster("v", key).await
            } else {
                world.maintain("v", COMPACT).await.map(drop)
            };
            // The view may be built anew meanwhile.
            if let Err(error) = ended {
                let known = ["built anew", "is being replaced", "already", "dropped"];
                assert!(known.iter().any(|part| error.message().contains(part)), "{error}");
            }
            world.check("v").await;
        }
    };
    futures::join!(refreshing, maintaining);
    refresh(RefreshKind::Auto).await.unwrap();
    world.maintain("v", COMPACT).await.unwrap();
    world.check("v").await;
    assert_eq!(world.tiers("v").await.0, 0);
    assert_eq!(world.catalog().await.views().count(), 1);
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_would_be_lost_with_the_old_order_is_refused_and_a_refresh_waits() {
    let world = World::new().await;
    world.write_tiers().await;
    let text = format!("CREATE MATERIALIZED VIEW v WITH (refresh = 'on demand') AS {COPY}");
    world.run_create(&text, false).await.unwrap();
    world.runtime.refresh_view("test", "v", RefreshKind::Auto, None).await.unwrap();
    let last = world.write_few().await;
    world.fail.arm_always("runtime::fill_piece_read");
    world.runtime.cluster_view("test", "v", &["grp".to_owned()], true).await.unwrap();
    check_message(world.runtime.suspend_view("test", "v").await, 1105, "already being replaced");
    let options = [("refresh".to_owned(), "every 5 minutes".to_owned())].into();
    let set = world.runtime.set_view_options("test", "v", &options, false).await;
    check_message(set, 1105, "already being replaced");
    let refreshing = world.runtime.refresh_view("test", "v", RefreshKind::Full, None);
    let going_on = async {
        let hits = || world.fail.hits().get("runtime::fill_piece_read").copied().unwrap_or(0);
        let before = hits();
        until("another try", async || hits() > before).await;
        world.fail.disarm_all();
    };
    let (refreshed, ()) = futures::join!(refreshing, going_on);
    let view = world.table("v").await;
    assert_eq!(refreshed.unwrap().view, view.id());
    assert_eq!(view.info.primary_key, [1, 0]);
    assert!(world.check("v").await >= last);
    world.runtime.suspend_view("test", "v").await.unwrap();
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_compactions_of_one_job_do_not_wait_for_its_idle_interval() {
    let world = World::with(runtime::RuntimeOptions { idle_interval_ms: 3_600_000, ..options() }).await;
    let names = ["a", "b", "c", "d", "e", "f"];
    world.write_tiers().await;
    for name in names {
        world.create(name, GROUPS).await.unwrap();
    }
    let last = world.write_few().await;
    for name in names {
        world.caught_up(name, last).await;
    }
    let mut tasks = Vec::new();
    for name in names {
        assert!(world.tiers(name).await.0 > 0);
        tasks.push(world.runtime.maintain("test", name, COMPACT).await.unwrap());
    }
    until("all of them", async || tasks.iter().all(tokio::task::JoinHandle::is_finished)).await;
    for name in names {
        assert_eq!(world.tiers(name).await.0, 0);
    }
    world.runtime.shutdown().await;
}

/// A state is merged over as many epochs as it takes, whoever writes meanwhile; it may end anywhere between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_state_is_merged_in_many_short_epochs() {
    for query in [GROUPS, VALUES, JOIN] {
        let stepwise = runtime::RuntimeOptions {
            compact_step_bytes: 1_000,
            // So that no epoch comes but for a change or a step.
            idle_interval_ms: 3_600_000,
            ..options()
        };
        let world = World::with(stepwise).await;
        world.create_tiered(query).await;
        let epoch = async || {
            let now = world.store.read_timestamp().await.unwrap();
            let snapshot = Snapshot::new(Arc::clone(&world.store), now);
            let record = snapshot.get(&epoch_record_key(MAIN_JOB)).await.unwrap().unwrap();
            EpochRecord::decode(&record).unwrap().epoch.0
        };
        let before = epoch().await;
        let n_states = world.maintain("v", COMPACT).await.unwrap().n_states as u64;
        assert!(n_states > 0 && epoch().await >= before + 3 * n_states, "{query}: {n_states} states");
        assert_eq!(world.tiers("v").await.0, 0, "{query}");
        world.check("v").await;
        let last = world.write_few().await;
        world.caught_up("v", last).await;
        let writing = async {
            for id in 0..20 {
                world.write(&[("t", id, Some((id, id + 1)))]).await;
            }
        };
        let (maintained, ()) = futures::join!(world.maintain("v", COMPACT), writing);
        maintained.unwrap();
        world.check("v").await;
        // Killed between two steps: what is merged stays so.
        let last = world.write_few().await;
        world.caught_up("v", last).await;
        let task = world.runtime.maintain("test", "v", COMPACT).await.unwrap();
        let began = epoch().await;
        until("a step", async || epoch().await > began).await;
        let world = world.restart().await;
        drop(task);
        world.check("v").await;
        let last = world.write(&[("t", 11, None), ("t", 12, Some((11, 3)))]).await;
        world.caught_up("v", last).await;
        world.check("v").await;
        until("the compaction", async || world.maintain("v", COMPACT).await.is_ok()).await;
        world.check("v").await;
        world.runtime.shutdown().await;
    }
}
