//! The clock of garbage collection and sweeping: history older than its life time goes, then what only
//! that history needed.
//!
//! A job's hold keeps the history after its frontier; a job that lags beyond the history limit loses its
//! hold, so that it cannot fill the disk, and finds its history gone (G7). While no process ran nothing was
//! written either, so the time before this one began is no lag.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use types::{ErrorKind, Result, Timestamp};

use crate::shared::{Shared, job_of_hold};
use crate::sweep::{Swept, sweep, sweep_holds};

/// Collects and sweeps until it is told to stop.
///
/// # Errors
/// `Closed` when the store is closed.
pub(crate) async fn collect(shared: Arc<Shared>, token: CancellationToken) -> Result<()> {
    loop {
        tokio::select! {
            () = token.cancelled() => return Ok(()),
            () = tokio::time::sleep(Duration::from_millis(shared.options.sweep_interval_ms)) => {}
        }
        match pass(&shared).await {
            Ok(swept) if swept == Swept::default() => {}
            Ok(swept) => tracing::info!(run_parts = swept.run_parts, keys = swept.keys, "swept"),
            Err(error) if error.kind() == ErrorKind::Closed => return Err(error),
            Err(error) => tracing::warn!(%error, "sweeping failed, it is tried again"),
        }
    }
}

/// One pass: release what lags, collect, sweep. Passes wait for each other.
///
/// # Errors
/// What the store says.
pub(crate) async fn pass(shared: &Shared) -> Result<Swept> {
    let mut ledger = shared.ledger.lock().await;
    let now = shared.store.read_timestamp().await?;
    release_lagging(shared, now).await?;
    sweep_holds(shared).await?;
    shared.store.collect_garbage(before(now, shared.options.history_life_time_ms)).await?;
    shared.pass("runtime::collected")?;
    sweep(shared, &mut ledger).await
}

fn before(now: Timestamp, ms: u64) -> Timestamp {
    Timestamp::from_parts(now.physical_ms().saturating_sub(ms), now.logical())
}

async fn release_lagging(shared: &Shared, now: Timestamp) -> Result<()> {
    let limit = before(now, shared.options.history_limit_ms);
    if shared.started >= limit {
        return Ok(());
    }
    for (name, held) in shared.store.holds().await? {
        if held < limit && job_of_hold(&name).is_some() {
            tracing::warn!(hold = name, held = held.0, "a hold beyond the history limit is released");
            shared.store.release(&name).await?;
        }
    }
    Ok(())
}
