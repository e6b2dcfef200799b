//! Connections: plain or under TLS, with the windows and limits that a cluster's messages need.

use std::time::Duration;

use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use types::{Error, Result};

use crate::options::{Options, Tls};

/// The largest message that is taken: a change of a row carries it twice, and stores batch up to 6 MB.
pub(crate) const MESSAGE_BYTES_MAX: usize = 256 << 20;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(3);
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
const STREAM_WINDOW_BYTES: u32 = 4 << 20;

/// An address as an URL: members name URLs, stores name `host:port`.
fn url_of(address: &str, tls: bool) -> String {
    let scheme = if tls { "https" } else { "http" };
    match address.split_once("://") {
        Some((_, rest)) => format!("{scheme}://{}", rest.trim_end_matches('/')),
        None => format!("{scheme}://{address}"),
    }
}

async fn tls_config(tls: &Tls) -> Result<ClientTlsConfig> {
    let read = async |path: &std::path::Path| {
        let bytes = tokio::fs::read(path).await;
        bytes.map_err(|error| Error::invalid(format!("certificate file {}: {error}", path.display())))
    };
    let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(&tls.ca).await?));
    if let Some((certificate, key)) = &tls.identity {
        config = config.identity(Identity::from_pem(read(certificate).await?, read(key).await?));
    }
    if let Some(domain) = &tls.domain {
        config = config.domain_name(domain.clone());
    }
    Ok(config)
}

/// Connects to an address; certificates are read from their files each time.
///
/// # Errors
/// `Unavailable` if nobody answers there, `Invalid` for a bad address or bad certificates.
pub(crate) async fn connect(options: &Options, address: &str) -> Result<Channel> {
    let url = url_of(address, options.tls.is_some());
    let bad = |error: tonic::transport::Error| Error::invalid(format!("address {url}: {error}"));
    let mut endpoint = Endpoint::from_shared(url.clone())
        .map_err(bad)?
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEPALIVE_EVERY)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .initial_stream_window_size(STREAM_WINDOW_BYTES);
    if let Some(tls) = &options.tls {
        endpoint = endpoint.tls_config(tls_config(tls).await?).map_err(bad)?;
    }
    endpoint.connect().await.map_err(|error| {
        let mut text = format!("no connection to {url}: {error}");
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            text.push_str(&format!(": {cause}"));
            source = cause.source();
        }
        Error::unavailable(text)
    })
}

#[cfg(test)]
mod tests;
