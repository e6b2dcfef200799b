//! The listener: accepts clients up to the limit, one supervised task each.

use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use types::{Error, Result};

use super::connection::{Connection, Ended};
use super::errors;
use super::packet::PacketStream;
use super::reply::error_payload;
use crate::instance::Instance;
use crate::session::Session;

/// Accepts clients until the instance stops.
///
/// # Errors
/// Never: failures to accept are logged, as the next one may succeed.
pub(crate) async fn serve(listener: TcpListener, instance: Arc<Instance>) -> Result<()> {
    let stopping = instance.stopping();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopping.cancelled() => return Ok(()),
        };
        match accepted {
            Ok((stream, _)) => accept(stream, &instance),
            Err(error) => {
                // Out of file descriptors, most likely: let some go.
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

fn accept(stream: TcpStream, instance: &Arc<Instance>) {
    let Ok(peer) = stream.peer_addr() else { return };
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "could not switch Nagle's algorithm off");
    }
    let task_instance = Arc::clone(instance);
    let Some(session) = Session::open(instance, &peer.to_string(), true) else {
        instance.supervisor.spawn("mysql refusal", refuse(stream));
        return;
    };
    let name = format!("mysql connection {}", session.connection_id());
    instance.supervisor.spawn(name, async move {
        let (reader, writer) = stream.into_split();
        let reader = tokio::io::BufReader::with_capacity(16 << 10, reader);
        let connection = Connection::new(reader, writer, task_instance, session, peer.ip());
        match connection.serve().await {
            Ok(()) | Err(Ended::Orderly) => {}
            Err(Ended::Io(error)) => tracing::debug!(%peer, %error, "connection lost"),
        }
        Ok(())
    });
}

/// Tells a client that there are too many, in place of the greeting.
async fn refuse(stream: TcpStream) -> Result<()> {
    let (reader, mut writer) = stream.into_split();
    let error = Error::mysql(errors::TOO_MANY_CONNECTIONS, "Too many connections");
    let mut packets = PacketStream::new(reader, &mut writer, 0);
    let told = async {
        packets.write(&error_payload(&error)).await?;
        packets.flush().await
    };
    if let Err(error) = told.await {
        tracing::debug!(%error, "a refused client left before it was told");
    }
    drop(packets);
    if let Err(error) = writer.shutdown().await {
        tracing::debug!(%error, "a refused client left before it was told");
    }
    Ok(())
}
