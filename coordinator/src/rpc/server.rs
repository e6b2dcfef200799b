//! The gRPC server: binds, serves, reports its port, stops.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use store::Store;
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use types::{Error, Result};

use super::coordinator_service::CoordinatorRpc;
use super::proto::coordinator_service_server::CoordinatorServiceServer;
use super::proto::store_service_server::StoreServiceServer;
use super::store_service::StoreRpc;
use super::{MESSAGE_BYTES_MAX, WINDOW_BYTES};
use crate::protocol::Coordinator;
use crate::tasks::Tasks;

/// How long calls under way may go on after the server was told to stop. Longer ones are waits, which
/// their callers repeat elsewhere.
const GRACE: Duration = Duration::from_secs(1);

/// How long a call that waits is held by default: well below its caller's deadline.
const POLL_MS_MAX: u64 = 3_000;

/// What a server offers.
#[derive(Clone)]
pub struct Services {
    /// A coordinator, if it offers one.
    pub coordinator: Option<Arc<dyn Coordinator>>,
    /// A store, if it offers one.
    pub store: Option<Arc<dyn Store>>,
    /// How long a worker's call that waits is held before its client is told to repeat it, in milliseconds.
    pub poll_ms_max: u64,
}

impl Default for Services {
    fn default() -> Services {
        Services { coordinator: None, store: None, poll_ms_max: POLL_MS_MAX }
    }
}

/// A running server.
pub struct RpcServer {
    address: SocketAddr,
    tasks: Tasks,
}

impl RpcServer {
    /// Binds an address (port 0 takes a free one) and serves.
    ///
    /// # Errors
    /// `Invalid` if the address cannot be bound.
    pub async fn start(address: SocketAddr, services: Services) -> Result<RpcServer> {
        let cannot = |error: std::io::Error| Error::invalid(format!("cannot listen on {address}: {error}"));
        let listener = TcpListener::bind(address).await.map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let poll = Duration::from_millis(services.poll_ms_max);
        let coordinator = services.coordinator.map(|coordinator| {
            CoordinatorServiceServer::new(CoordinatorRpc::new(coordinator, poll))
                .max_decoding_message_size(MESSAGE_BYTES_MAX)
                .max_encoding_message_size(MESSAGE_BYTES_MAX)
        });
        let store = services.store.map(|store| {
            StoreServiceServer::new(StoreRpc::new(store))
                .max_decoding_message_size(MESSAGE_BYTES_MAX)
                .max_encoding_message_size(MESSAGE_BYTES_MAX)
        });
        let tasks = Tasks::default();
        let stop = tasks.stop_token();
        let router = Server::builder()
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .add_optional_service(coordinator)
            .add_optional_service(store);
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        tasks.spawn("rpc server", async move {
            let served = router.serve_with_incoming_shutdown(incoming, stop.clone().cancelled_owned());
            let too_late = async {
                stop.cancelled().await;
                tokio::time::sleep(GRACE).await;
            };
            tokio::select! {
                served = served => {
                    if let Err(error) = served {
                        tracing::error!(%address, %error, "the rpc server failed");
                    }
                }
                () = too_late => tracing::debug!(%address, "calls under way were cut off"),
            }
        });
        Ok(RpcServer { address, tasks })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting calls, lets short ones finish, and returns when all is over.
    pub async fn shutdown(&self) {
        self.tasks.shutdown().await;
    }
}
