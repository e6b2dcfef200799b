//! A TCP proxy that leads to one process after the other, as a virtual address does.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// A listening proxy; it ends with the test's process.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Mutex<Route>>,
}

/// Where connections lead, and those that are open.
#[derive(Default)]
struct Route {
    target: Option<SocketAddr>,
    open: Vec<TcpStream>,
}

impl Proxy {
    /// Listens on a free port; leads nowhere at first.
    ///
    /// # Panics
    /// If it cannot listen.
    #[must_use]
    pub fn listen() -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Mutex::new(Route::default()));
        let accepting = Arc::clone(&shared);
        thread(move || {
            for stream in listener.incoming() {
                accept(stream.expect("a listener accepts"), &accepting);
            }
        });
        Proxy { address, shared }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Leads new connections to an address, and ends those that are open.
    pub fn lead_to(&self, target: SocketAddr) {
        let mut route = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        route.target = Some(target);
        for stream in route.open.drain(..) {
            // One that has ended by itself is as good.
            let _ended = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Connects both sides; whoever cannot be reached is a connection that ends at once.
fn accept(client: TcpStream, shared: &Mutex<Route>) {
    let mut route = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(server) = route.target.and_then(|target| TcpStream::connect(target).ok()) else { return };
    let halves = [&client, &server].map(|stream| stream.try_clone().expect("a stream can be shared"));
    let [client_again, server_again] = halves;
    route.open.extend([&client, &server].map(|stream| stream.try_clone().expect("a stream can be shared")));
    drop(route);
    thread(move || copy(client, server_again));
    thread(move || copy(server, client_again));
}

/// Copies until either side ends, then ends both.
fn copy(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(n_bytes @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..n_bytes]).is_err() {
            break;
        }
    }
    for stream in [from, to] {
        // The other direction may have ended it already.
        let _ended = stream.shutdown(Shutdown::Both);
    }
}

#[allow(clippy::disallowed_methods, reason = "goes on while tests block; ends with its connection")]
fn thread(run: impl FnOnce() + Send + 'static) {
    std::thread::spawn(run);
}
