//! A real Tidemill to test against: processes started, killed and started again.
//!
//! Tests of this crate use the built binary, real clients and real files. A server listens on loopback
//! on a free port and is ended by its own process id, whatever becomes of the test.

mod client;
mod ports;
mod process;
mod proxy;
pub mod random;

pub use client::{Client, connect};
pub use ports::free_port;
pub use process::{Binary, Death, Server, ServerOptions, until};
pub use proxy::Proxy;

/// Whether the long versions of the tests were asked for (`make soak`).
#[must_use]
pub fn soak() -> bool {
    std::env::var_os("TIDEMILL_SOAK").is_some()
}

/// The seed of a run that must be the same each time; it once led to a minus zero that views and tables
/// showed differently.
const SEED: u64 = 1_796_047_514_026_954_858;

/// The seed of a randomised test: `SEED` if it is set, from the clock in a soak, else always the same;
/// printed, so that it can be repeated.
#[must_use]
pub fn seed(test: &str) -> u64 {
    let given = std::env::var("SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| if soak() { entropy() } else { SEED });
    #[allow(clippy::print_stdout, reason = "a test prints its seed first")]
    {
        println!("{test}: SEED={seed}");
    }
    seed
}

#[allow(clippy::disallowed_methods, reason = "only the choice of a seed, which is printed")]
fn entropy() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |duration| duration.as_nanos() as u64)
}
