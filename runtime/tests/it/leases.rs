//! Several processes over one store: one of them runs the jobs, and another takes over when it ends or dies.

use std::sync::Arc;

use runtime::{LeaseOptions, Runtime, RuntimeOptions, Supervisor};
use store::{EmbeddedStore, Mutation, Store};
use types::records::lease_key;

use crate::plans::GROUPS;
use crate::world::{World, local, options, until};

fn leased(holder: &str) -> RuntimeOptions {
    let lease = LeaseOptions { holder: holder.to_owned(), ttl_ms: 600 };
    RuntimeOptions { lease: Some(lease), ..options() }
}

async fn start(store: &Arc<dyn Store>, holder: &str) -> Runtime {
    Runtime::start(Arc::clone(store), local(store), leased(holder), Supervisor::new()).await.unwrap()
}

/// Waits until a process holds the lease, and returns its term.
async fn held_by(runtime: &Runtime, holder: &str) -> u64 {
    let mut term = 0;
    until("the lease", async || {
        let lease = runtime.lease().await.unwrap().filter(|lease| lease.holder == holder);
        term = lease.as_ref().map_or(0, |lease| lease.term);
        lease.is_some()
    })
    .await;
    term
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process_runs_the_jobs_and_another_takes_over_when_it_ends() {
    let store: Arc<dyn Store> = EmbeddedStore::memory();
    let world = World::over(Arc::clone(&store), leased("first")).await;
    assert_eq!(held_by(&world.runtime, "first").await, 1);
    let second = start(&store, "second").await;
    world.create("v", GROUPS).await.unwrap();
    let written = world.write(&[("t", 1, Some((1, 1))), ("t", 2, Some((1, 1)))]).await;
    world.caught_up("v", written).await;
    assert!(second.jobs().is_empty(), "the second process only answers");
    assert!(world.runtime.lease().await.unwrap().is_some_and(|lease| lease.is_here));
    assert!(second.lease().await.unwrap().is_some_and(|lease| !lease.is_here));

    // A view that is made through the process that runs nothing is filled by the one that does.
    let World { runtime: first, options, fail, .. } = world;
    let world = World { store, runtime: second, options, fail };
    world.create("w", GROUPS).await.unwrap();
    first.shutdown().await;
    assert_eq!(held_by(&world.runtime, "second").await, 2);
    let written = world.write(&[("t", 3, Some((1, 1)))]).await;
    for name in ["v", "w"] {
        world.caught_up(name, written).await;
        assert!(world.check(name).await >= written);
    }
    world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_holders_lease_expires_and_a_living_ones_does_not() {
    let store: Arc<dyn Store> = EmbeddedStore::memory();
    let start_ts = store.timestamp().await.unwrap();
    let dead =
        format!("{{\"holder\":\"dead\",\"process\":1,\"term\":7,\"renewed\":{},\"ttl_ms\":900}}", start_ts.0);
    store.commit_transaction(start_ts, vec![Mutation::put(lease_key(), dead)]).await.unwrap();
    let first = start(&store, "first").await;
    let lease = first.lease().await.unwrap().unwrap();
    assert_eq!((lease.holder.as_str(), lease.term, lease.is_here), ("dead", 7, false));
    assert_eq!(held_by(&first, "first").await, 8);
    let second = start(&store, "second").await;
    // Three life times later it is still the first one's: it renews.
    let now = store.timestamp().await.unwrap().physical_ms();
    until("three life times", async || store.timestamp().await.unwrap().physical_ms() > now + 1800).await;
    let lease = second.lease().await.unwrap().unwrap();
    assert_eq!((lease.holder.as_str(), lease.term), ("first", 8));
    second.shutdown().await;
    first.shutdown().await;
    // It gave the lease up, so nobody has to wait.
    assert_eq!(held_by(&start(&store, "third").await, "third").await, 9);
}
