//! Processes beside a server: a coordinator of its own, which decides epochs over the server's store, and workers,
//! which take shares of the runs of its jobs.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use coordinator::{
    LocalCoordinator, LocalOptions, RemoteCoordinator, RemoteOptions, RemoteStore, RpcServer, Services, Share,
};
use runtime::{Helper, Supervisor};
use store::Store;

use crate::config::Config;
use crate::tidemill::open_store;

/// Runs a coordinator over the store at `store` (host:port) until `stop` is over; `ready` hears its address.
///
/// The store need not be there yet, and may go and come back: calls wait for it.
///
/// # Errors
/// If the address cannot be bound, or what `ready` and `stop` return.
pub async fn run_coordinator(
    store: &str,
    listen: SocketAddr,
    ready: impl FnOnce(SocketAddr) -> Result<()>,
    stop: impl Future<Output = Result<()>>,
) -> Result<()> {
    anyhow::ensure!(
        listen.ip().is_loopback(),
        "listening for gRPC on {listen} is refused: it has no authentication, use 127.0.0.1"
    );
    let store: Arc<dyn Store> = Arc::new(RemoteStore::new(store, RemoteOptions::default())?);
    let coordinator = Arc::new(LocalCoordinator::new(Arc::clone(&store), LocalOptions::default()));
    let services =
        Services { coordinator: Some(Arc::clone(&coordinator) as _), store: None, ..Services::default() };
    let server = RpcServer::start(listen, services).await?;
    ready(server.address())?;
    let stopped = stop.await;
    server.shutdown().await;
    coordinator.shutdown().await;
    store.close().await?;
    stopped
}

/// Offers this process's work to the configured coordinator until `stop` is over; the data is at the store of a
/// server at `store` (host:port), or else where the configuration says. `say` hears of each share.
///
/// The coordinator need not be there yet, and may go and come back.
///
/// # Errors
/// A setting that is missing, or what `say` and `stop` return.
pub async fn run_worker(
    config: Config,
    store: Option<&str>,
    mut say: impl FnMut(&str) -> Result<()>,
    stop: impl Future<Output = Result<()>>,
) -> Result<()> {
    config.validate()?;
    let address = config.coordinator.clone();
    let address = address.ok_or_else(|| anyhow::anyhow!("where is the coordinator? give --coordinator"))?;
    let supervisor = Supervisor::new();
    let store: Arc<dyn Store> = match store {
        Some(address) => Arc::new(RemoteStore::new(address, RemoteOptions::default())?),
        None => open_store(&config, &supervisor).await?,
    };
    let coordinator = Arc::new(RemoteCoordinator::new(&address, RemoteOptions::default())?);
    let helper = Helper::start(Arc::clone(&store), coordinator, config.runtime, supervisor).await?;
    say(&format!("worker offers itself to {address}"))?;
    let mut shares = helper.shares();
    tokio::pin!(stop);
    let stopped = loop {
        tokio::select! {
            stopped = &mut stop => break stopped,
            changed = shares.changed() => {
                if changed.is_err() {
                    break stop.await;
                }
                for Share { job, taken, worker, n_workers } in shares.borrow_and_update().clone() {
                    let generation = taken.generation;
                    say(&format!("worker {worker} of {n_workers} of job {job}, generation {generation}"))?;
                }
            }
        }
    };
    helper.shutdown().await;
    store.close().await?;
    stopped
}
