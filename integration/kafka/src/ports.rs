//! Ports that a broker can have again after a restart.
//!
//! Clients know a broker by its port, so it must be the same after a restart. A port that the kernel gives
//! out may be anybody's by then; these come from below the range that kernels give out.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// The first port. Tidemill's own servers in tests have those from 20000 on.
const FIRST: u16 = 12_000;
/// How many ports there are from the first one on.
const PORTS: u16 = 8_000;

/// Ports tried by this process.
static TRIED: AtomicU16 = AtomicU16::new(0);

/// A port of 127.0.0.1 that nobody has, and that this process does not get again soon.
///
/// # Panics
/// If none is free.
pub(crate) fn free_port() -> u16 {
    // Test processes that run at the same time begin at different ports.
    let begin = u16::try_from(std::process::id() * 7 % u32::from(PORTS)).expect("below the number of ports");
    for _ in 0..PORTS {
        let offset = (begin + TRIED.fetch_add(1, Ordering::Relaxed) % PORTS) % PORTS;
        if TcpListener::bind(("127.0.0.1", FIRST + offset)).is_ok() {
            return FIRST + offset;
        }
    }
    panic!("no port from {FIRST} on is free");
}
