//! What happens to one view while something else happens to it: whatever changes, ends or refreshes a view,
//! while its rows get another order, its runs are merged, or it is built anew; and what a restart finds
//! under way.
//!
//! Nothing may hang, no task may stay behind as running, and the view is its query at its cut all the time.

use std::collections::BTreeMap;
use std::time::Duration;

use runtime::{MaintenanceKind, Refreshed};
use sql::RefreshKind;
use types::{ErrorKind, Result, Timestamp};

use crate::plans::{COPY, GROUPS, JOIN};
use crate::world::{World, error_of, until};

const COMPACT: MaintenanceKind = MaintenanceKind::Compact;
const FINAL: MaintenanceKind = MaintenanceKind::Recluster { at_once: true };

/// Where a fill of these tests stays until it is let go.
const HELD: &str = "runtime::fill_piece_read";

impl World {
    /// A view that is refreshed, or one that is continuous, with pending changes. The newest of them.
    async fn create_some(&self, query: &str, on_demand: bool) -> Timestamp {
        let rows: Vec<_> = (0..200).map(|id| ("t", id, Some((id % 9, id)))).collect();
        self.write(&rows).await;
        self.write(&[("u", 1, Some((7, 0))), ("u", 2, Some((8, 0)))]).await;
        let how = if on_demand { "WITH (refresh = 'on demand') " } else { "" };
        self.run_create(&format!("CREATE MATERIALIZED VIEW v {how}AS {query}"), false).await.unwrap();
        if on_demand {
            self.refresh_v(RefreshKind::Auto).await.unwrap();
        }
        self.write(&[("t", 1, Some((1, 9))), ("t", 2, None), ("t", 999, Some((5, 0)))]).await
    }

    async fn refresh_v(&self, kind: RefreshKind) -> Result<Refreshed> {
        self.runtime.refresh_view("test", "v", kind, None).await
    }

    async fn cluster_v(&self, background: bool) -> Result<()> {
        self.runtime.cluster_view("test", "v", &["grp".to_owned()], background).await
    }

    fn hits(&self, point: &str) -> u64 {
        self.fail.hits().get(point).copied().unwrap_or(0)
    }

    /// Waits until the fill that is held was tried again.
    async fn tried(&self) {
        let before = self.hits(HELD);
        until("another try", async || self.hits(HELD) > before).await;
    }

    async fn tasks(&self, state: &str) -> usize {
        let tasks = self.runtime.maintenance().await.unwrap();
        tasks.iter().filter(|task| task.state == state).count()
    }

    async fn refreshing(&self) -> &'static str {
        self.runtime.refreshes().await.unwrap()[0].state
    }

    /// The view can be refreshed, and nothing is left of what was under way.
    async fn check_well(&self, on_demand: bool) {
        let last = self.write(&[("t", 3, Some((4, 4)))]).await;
        if on_demand {
            self.refresh_v(RefreshKind::Auto).await.unwrap();
        } else {
            self.caught_up("v", last).await;
        }
        assert!(self.check("v").await >= last);
        until("no task to run", async || self.tasks("running").await == 0).await;
        assert_eq!(self.catalog().await.views().count(), 1, "no copy is left");
    }
}

fn check_message<T: std::fmt::Debug>(result: Result<T>, part: &str) {
    let error = error_of(result);
    assert_eq!(error.mysql_code(), Some(1105), "{error}");
    assert!(error.message().contains(part), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clustering_after_a_restart_holds_the_views_turn() {
    for kind in [RefreshKind::Auto, RefreshKind::Incremental, RefreshKind::Full] {
        let world = World::new().await;
        let last = world.create_some(COPY, true).await;
        let cut = world.check("v").await;
        world.fail.arm_always(HELD);
        world.cluster_v(true).await.unwrap();
        world.tried().await;
        let world = world.restart().await;
        assert_eq!(world.tasks("running").await, 1, "its row is there again");
        let refreshing = {
            let runtime = world.runtime.clone();
            tokio::spawn(async move { runtime.refresh_view("test", "v", kind, None).await })
        };
        for _ in 0..3 {
            world.tried().await;
        }
        assert!(!refreshing.is_finished(), "{kind:?}: it waits");
        assert_eq!(world.check("v").await, cut, "{kind:?}");
        world.fail.disarm_all();
        let refreshed = refreshing.await.unwrap().unwrap();
        let view = world.table("v").await;
        assert_eq!(refreshed.view, view.id(), "{kind:?}");
        assert_eq!(view.info.primary_key, [1, 0], "{kind:?}: the order came first");
        assert!(world.check("v").await >= last);
        until("the task to be done", async || world.tasks("done").await == 1).await;
        world.check_well(true).await;
        world.runtime.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clustering_after_a_restart_is_cancelled_as_before() {
    for on_demand in [true, false] {
        let world = World::new().await;
        world.create_some(COPY, on_demand).await;
        let old = world.view_id("v").await;
        world.fail.arm_always(HELD);
        world.cluster_v(true).await.unwrap();
        let world = world.restart().await;
        world.tried().await;
        world.runtime.cancel_refresh("test", "v").await.unwrap();
        until("its end", async || world.tasks("cancelled").await == 1).await;
        assert_eq!(world.view_id("v").await, old);
        world.fail.disarm_all();
        world.check_well(on_demand).await;
        world.cluster_v(false).await.unwrap();
        world.check_well(on_demand).await;
        world.runtime.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_refresh_after_a_restart_is_seen_and_waited_for() {
    for kind in [RefreshKind::Incremental, RefreshKind::Full] {
        let world = World::new().await;
        let last = world.create_some(GROUPS, true).await;
        world.fail.arm_always(HELD);
        let lost = {
            let runtime = world.runtime.clone();
            tokio::spawn(async move { runtime.refresh_view("test", "v", RefreshKind::Full, None).await })
        };
        world.tried().await;
        let world = world.restart().await;
        assert_eq!(error_of(lost.await.unwrap()).kind(), ErrorKind::Closed);
        assert_eq!(world.refreshing().await, "running", "what goes on is shown");
        let refreshing = {
            let runtime = world.runtime.clone();
            tokio::spawn(async move { runtime.refresh_view("test", "v", kind, None).await })
        };
        world.tried().await;
        assert!(!refreshing.is_finished(), "{kind:?}: it waits");
        world.fail.disarm_all();
        refreshing.await.unwrap().unwrap();
        assert!(world.check("v").await >= last);
        assert_eq!(world.refreshing().await, "idle");
        world.check_well(true).await;
        world.runtime.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_while_a_view_is_clustered_is_refused_or_ends_it() {
    for on_demand in [true, false] {
        let world = World::new().await;
        world.create_some(COPY, on_demand).await;
        world.fail.arm_always(HELD);
        world.cluster_v(true).await.unwrap();
        world.tried().await;
        let how = if on_demand { "WITH (refresh = 'on demand') " } else { "" };
        let replace = format!("CREATE OR REPLACE MATERIALIZED VIEW v {how}AS {GROUPS}");
        check_message(world.run_create(&replace, false).await, "already being replaced");
        check_message(world.cluster_again().await, "already being replaced");
        check_message(world.runtime.suspend_view("test", "v").await, "already being replaced");
        check_message(world.runtime.rename_view("test", "v", "w").await, "already being replaced");
        for refresh in ["every 5 minutes", "on demand", "continuous"] {
            let options = BTreeMap::from([("refresh".to_owned(), refresh.to_owned())]);
            let set = world.runtime.set_view_options("test", "v", &options, false).await;
            // A continuous view is continuous already.
            if on_demand || refresh != "continuous" {
                check_message(set, "already being replaced");
            } else {
                set.unwrap();
            }
        }
        // What only merges runs goes on beside it.
        world.runtime.maintain("test", "v", COMPACT).await.unwrap().await.unwrap().unwrap();
        world.check("v").await;
        world.runtime.cancel_refresh("test", "v").await.unwrap();
        until("its end", async || world.tasks("cancelled").await == 1).await;
        // The same for one whose view goes.
        world.cluster_v(true).await.unwrap();
        world.tried().await;
        world.drop_view("v").await.unwrap();
        until("its end", async || world.tasks("failed").await == 1).await;
        assert_eq!(world.catalog().await.views().count(), 0, "the copy went too");
        world.fail.disarm_all();
        world.create_some(JOIN, on_demand).await;
        world.check_well(on_demand).await;
        world.runtime.shutdown().await;
    }
}

impl World {
    /// Another order than the one that is under way; the view's turn may be taken.
    async fn cluster_again(&self) -> Result<()> {
        let columns = ["val".to_owned()];
        let other = self.runtime.cluster_view("test", "v", &columns, true);
        match tokio::time::timeout(Duration::from_millis(300), other).await {
            Ok(outcome) => outcome,
            // It waits for its turn, as a refresh does.
            Err(_) => Err(types::Error::mysql(1105, "already being replaced: waits")),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_clustering_lets_the_refresh_go_on_that_waits() {
    for kind in [RefreshKind::Incremental, RefreshKind::Full] {
        let world = World::new().await;
        let last = world.create_some(COPY, true).await;
        world.fail.arm_always(HELD);
        world.cluster_v(true).await.unwrap();
        world.tried().await;
        let refreshing = {
            let runtime = world.runtime.clone();
            tokio::spawn(async move { runtime.refresh_view("test", "v", kind, None).await })
        };
        world.tried().await;
        assert!(!refreshing.is_finished());
        world.runtime.cancel_refresh("test", "v").await.unwrap();
        world.fail.disarm_all();
        refreshing.await.unwrap().unwrap();
        assert!(world.check("v").await >= last);
        assert_eq!(world.table("v").await.info.primary_key, [0]);
        world.check_well(true).await;
        world.runtime.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_of_a_view_are_merged_whatever_becomes_of_it() {
    for (on_demand, kind) in [(true, COMPACT), (false, COMPACT), (true, FINAL), (false, FINAL)] {
        for what in ["drop", "replace", "full", "suspend", "cancel", "cluster", "set"] {
            let world = World::new().await;
            world.create_some(GROUPS, on_demand).await;
            if kind == FINAL {
                world.runtime.cluster_view("test", "v", &["n".to_owned()], false).await.unwrap();
                world.write(&[("t", 4, None), ("t", 5, Some((4, 1)))]).await;
            }
            if on_demand {
                world.refresh_v(RefreshKind::Auto).await.unwrap();
            }
            // The barrier fails again and again.
            world.fail.arm_always("runtime::sealed");
            let task = world.runtime.maintain("test", "v", kind).await.unwrap();
            let before = world.hits("runtime::sealed");
            let is_tiered = !task.is_finished();
            if is_tiered {
                until("the barrier, or the end", async || {
                    task.is_finished() || world.hits("runtime::sealed") > before
                })
                .await;
            }
            let change = world.change(what, on_demand);
            let let_go = async {
                tokio::task::yield_now().await;
                world.fail.disarm_all();
            };
            let (changed, ()) = futures::join!(change, let_go);
            changed.unwrap_or_else(|error| panic!("{what}: {error}"));
            let ended = tokio::time::timeout(Duration::from_secs(30), task).await;
            let ended = ended.unwrap_or_else(|_| panic!("{what}: the task hangs")).unwrap();
            if let Err(error) = ended {
                let known = ["dropped", "built anew", "cancelled"];
                assert!(known.iter().any(|part| error.message().contains(part)), "{what}: {error}");
            }
            until("no task to run", async || world.tasks("running").await == 0).await;
            if what == "drop" {
                assert_eq!(world.catalog().await.views().count(), 0);
            } else {
                world.check("v").await;
                let again = world.runtime.maintain("test", "v", COMPACT).await.unwrap();
                again.await.unwrap().unwrap();
                world.check("v").await;
            }
            world.runtime.shutdown().await;
        }
    }
}

impl World {
    async fn change(&self, what: &str, on_demand: bool) -> Result<()> {
        match what {
            "drop" => self.drop_view("v").await,
            "replace" => {
                let how = if on_demand { "WITH (refresh = 'on demand') " } else { "" };
                let text = format!("CREATE OR REPLACE MATERIALIZED VIEW v {how}AS {JOIN}");
                self.run_create(&text, false).await
            }
            "full" if on_demand => self.refresh_v(RefreshKind::Full).await.map(drop),
            "full" => Ok(()),
            "suspend" => self.runtime.suspend_view("test", "v").await,
            "cancel" => match self.runtime.cancel_refresh("test", "v").await {
                // It may be over.
                Err(error) if error.message().contains("no maintenance") => Ok(()),
                outcome => outcome,
            },
            // There and back, or back.
            "cluster" => {
                self.runtime.cluster_view("test", "v", &["n".to_owned()], false).await?;
                self.runtime.cluster_view("test", "v", &[], false).await
            }
            "set" => {
                let refresh = if on_demand { "continuous" } else { "on demand" };
                let options = BTreeMap::from([("refresh".to_owned(), refresh.to_owned())]);
                self.runtime.set_view_options("test", "v", &options, false).await
            }
            other => panic!("{other}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_waits_for_the_job_of_a_view_that_was_dropped() {
    let world = World::new().await;
    for round in 0..10_u64 {
        world.create_some(GROUPS, true).await;
        for more in 0..3 {
            // What is counted takes a while, and the view goes meanwhile.
            let rows: Vec<_> = (0..1_000).map(|id| ("t", id, Some((more, id)))).collect();
            world.write(&rows).await;
        }
        let mut tasks = Vec::new();
        for kind in [RefreshKind::Incremental, RefreshKind::Full] {
            let runtime = world.runtime.clone();
            tasks.push(tokio::spawn(
                async move { runtime.refresh_view("test", "v", kind, None).await.map(drop) },
            ));
        }
        let runtime = world.runtime.clone();
        tasks.push(tokio::spawn(async move {
            runtime.maintain("test", "v", COMPACT).await?.await.unwrap().map(drop)
        }));
        tokio::time::sleep(Duration::from_micros(900 * round)).await;
        world.drop_view("v").await.unwrap();
        for task in tasks {
            let ended = tokio::time::timeout(Duration::from_secs(20), task).await;
            let ended = ended.unwrap_or_else(|_| panic!("round {round}: it waits for ever")).unwrap();
            if let Err(error) = ended {
                assert!([Some(1105), Some(1146), None].contains(&error.mysql_code()), "{error:?}");
                assert_ne!(error.kind(), ErrorKind::Corrupt, "{error:?}");
            }
        }
        assert_eq!(world.tasks("running").await, 0);
    }
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_refresh_that_nobody_waits_for_goes_on_has_its_turn_and_ends() {
    for next in [None, Some(RefreshKind::Incremental), Some(RefreshKind::Full)] {
        let world = World::new().await;
        let last = world.create_some(GROUPS, true).await;
        let old = world.view_id("v").await;
        world.fail.arm_always(HELD);
        let start = |kind| {
            let runtime = world.runtime.clone();
            tokio::spawn(async move { runtime.refresh_view("test", "v", kind, None).await })
        };
        // As KILL QUERY and a client that goes away do it.
        let first = start(RefreshKind::Full);
        world.tried().await;
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        assert_eq!(world.refreshing().await, "running", "{next:?}");
        let second = next.map(start);
        for _ in 0..3 {
            world.tried().await;
        }
        assert!(second.as_ref().is_none_or(|second| !second.is_finished()), "{next:?}: it waits");
        world.fail.disarm_all();
        if let Some(second) = second {
            second.await.unwrap().unwrap();
        }
        until("its end", async || world.refreshing().await == "idle").await;
        assert_ne!(world.view_id("v").await, old, "{next:?}: it was built anew");
        assert!(world.check("v").await >= last, "{next:?}");
        world.check_well(true).await;
        world.runtime.shutdown().await;
    }
}
