//! A coordinator of its own: a process that decides epochs over a server's store.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use coordinator::{LocalCoordinator, LocalOptions, RemoteOptions, RemoteStore, RpcServer, Services};
use store::Store;

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
