//! Listeners that can go down and come back under the same address, as a process does that is killed.
//!
//! Going down breaks every connection in the middle of whatever it does; while down, connections are
//! accepted and closed at once, so that nobody else can take the port.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

use crate::tasks::Tasks;

/// Connections that wait to be served.
const BACKLOG: usize = 64;

/// Whether a listener serves, and the way to cut its connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate {
    /// Cut with the connections of the present; `None` while down.
    state: Arc<Mutex<Option<CancellationToken>>>,
}

impl Gate {
    pub(crate) fn open() -> Gate {
        Gate { state: Arc::new(Mutex::new(Some(CancellationToken::new()))) }
    }

    fn cut(&self) -> Option<CancellationToken> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Breaks every connection and lets none in.
    pub(crate) fn down(&self) {
        let cut = self.state.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(cut) = cut {
            cut.cancel();
        }
    }

    /// Lets connections in.
    pub(crate) fn up(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default();
    }

    /// Breaks every connection, and lets new ones in.
    pub(crate) fn reset(&self) {
        self.down();
        self.up();
    }

    pub(crate) fn is_up(&self) -> bool {
        self.cut().is_some()
    }
}

/// A connection that ends when it is cut.
pub(crate) struct Connection {
    stream: TcpStream,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Connection {
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.cut.as_mut().poll(context) {
            Poll::Ready(()) => Err(io::Error::from(io::ErrorKind::ConnectionReset)),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

/// Connections for a server.
pub(crate) type Incoming = ReceiverStream<io::Result<Connection>>;

/// Listens on a port of this machine (any if zero).
pub(crate) async fn listen(port: u16, gate: Gate, tasks: &Tasks) -> io::Result<(SocketAddr, Incoming)> {
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let address = listener.local_addr()?;
    let (sender, receiver) = mpsc::channel(BACKLOG);
    tasks.spawn_stoppable(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            let Some(cut) = gate.cut() else { continue };
            // Small messages must not wait for each other.
            let _ = stream.set_nodelay(true);
            let connection = Connection { stream, cut: Box::pin(cut.cancelled_owned()) };
            if sender.send(Ok(connection)).await.is_err() {
                return;
            }
        }
    });
    Ok((address, ReceiverStream::new(receiver)))
}
