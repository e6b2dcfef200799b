//! The coordinator and its store between processes, over gRPC.
//!
//! [`RpcServer`] offers a coordinator, a store, or both; [`RemoteCoordinator`] and [`RemoteStore`] are
//! their clients, which reconnect by themselves. An error of the other side travels with its kind and
//! comes out the same; an error of the transport is `Unavailable`: the call may have been done or not.

mod coordinator_client;
mod coordinator_service;
mod coordinator_wire;
mod errors;
mod server;
mod store_client;
mod store_service;
mod store_wire;

pub use coordinator_client::RemoteCoordinator;
pub use server::{RpcServer, Services};
pub use store_client::RemoteStore;

use std::future::Future;
use std::time::Duration;

use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};
use types::{Error, ErrorKind, Result};

/// The generated messages and stubs.
#[allow(
    clippy::all,
    clippy::allow_attributes_without_reason,
    clippy::too_many_lines,
    clippy::clone_on_ref_ptr,
    clippy::large_futures,
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    reason = "generated code"
)]
pub(crate) mod proto {
    tonic::include_proto!("tidemill.v1");
}

/// The largest message: a worker's batch of prewrites with the largest rows (6 MiB each in TiDB) and a page
/// of changes with their old values stay well below it, and a broken length cannot ask for more.
const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// How much may be on its way on one stream before it is read: some batches.
const WINDOW_BYTES: u32 = 8 << 20;

/// How a client works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteOptions {
    /// How long a connection may take, in milliseconds.
    pub connect_ms_max: u64,
    /// How long a call may take, in milliseconds; calls that wait for something have that on top.
    pub call_ms_max: u64,
}

impl Default for RemoteOptions {
    fn default() -> RemoteOptions {
        RemoteOptions { connect_ms_max: 2_000, call_ms_max: 10_000 }
    }
}

/// A channel that connects when it is first used, and again whenever it has to.
fn channel(address: &str, options: RemoteOptions) -> Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .map_err(|error| Error::invalid(format!("address {address}: {error}")))?
        .connect_timeout(Duration::from_millis(options.connect_ms_max))
        .http2_keep_alive_interval(Duration::from_secs(5))
        .keep_alive_timeout(Duration::from_secs(5))
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .tcp_nodelay(true);
    Ok(endpoint.connect_lazy())
}

/// Waits for a call's answer, but not for ever.
async fn bounded<T>(
    what: &'static str,
    ms_max: u64,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T> {
    match tokio::time::timeout(Duration::from_millis(ms_max), call).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(away_if_closed(what, errors::from_status(&status))),
        Err(_) => Err(Error::unavailable(format!("{what}: no answer within {ms_max} ms"))),
    }
}

/// Over there `Closed` means to reopen the handle; from here it means to wait until its owner has.
fn away_if_closed(what: &str, error: Error) -> Error {
    match error.kind() {
        ErrorKind::Closed => Error::unavailable(format!("{what}: {error}")),
        _ => error,
    }
}

fn missing(what: &str) -> Error {
    Error::corrupt(format!("message without {what}"))
}
