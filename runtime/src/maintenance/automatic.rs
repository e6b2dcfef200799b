//! Compactions that begin by themselves: states of which too much may be dead, one task at a time.
//!
//! Barriers keep each tier of a state larger than twice all that is newer, so up to a half as much as the
//! oldest tier holds may say anew what it says, for long if little changes. A threshold below that half
//! trades writing for space.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use operators::Manifest;
use sink::load_manifests;
use sql::catalog::{TableDefinition, ViewState};
use tokio_util::sync::CancellationToken;
use types::{ErrorKind, Result};

use super::MaintenanceKind;
use crate::Runtime;

/// A view whose states are over the threshold.
struct Found {
    definition: Arc<TableDefinition>,
    manifests: BTreeMap<u32, Manifest>,
    states: BTreeSet<u32>,
    now_ms: u64,
}

/// Looks for states that are over the threshold, and has them merged, until it is told to stop.
///
/// # Errors
/// `Closed` when the store is closed.
pub(crate) async fn automatic(runtime: Runtime, token: CancellationToken) -> Result<()> {
    if runtime.shared.options.compact_at_percent == 0 {
        return Ok(());
    }
    loop {
        tokio::select! {
            () = token.cancelled() => return Ok(()),
            () = tokio::time::sleep(Duration::from_millis(runtime.shared.options.sweep_interval_ms)) => {}
        }
        match over_threshold(&runtime).await {
            Ok(views) => {
                for found in views {
                    // Its outcome is a row of tidemill.maintenance; what failed is found again.
                    let Found { definition, manifests, states, now_ms } = found;
                    let kind = MaintenanceKind::Compact;
                    let task = runtime.spawn_compaction(definition, kind, true, &manifests, states, now_ms);
                    drop(task.await);
                }
            }
            Err(error) if error.kind() == ErrorKind::Closed => return Err(error),
            Err(error) => tracing::warn!(%error, "cannot read which states are to be merged"),
        }
    }
}

async fn over_threshold(runtime: &Runtime) -> Result<Vec<Found>> {
    let shared = &runtime.shared;
    let now = shared.store.read_timestamp().await?;
    let catalog = shared.catalog_at(now).await?;
    let mut views = Vec::new();
    for (id, definition, view) in catalog.views() {
        if view.state != ViewState::Ready {
            continue;
        }
        let manifests = load_manifests(&shared.store, id, now).await?;
        let (percent, bytes_min) = (shared.options.compact_at_percent, shared.options.compact_bytes_min);
        let over = manifests.iter().filter(|(_, manifest)| is_over(manifest, percent, bytes_min));
        let states: BTreeSet<u32> = over.map(|(number, _)| *number).collect();
        if !states.is_empty() {
            let definition = Arc::clone(definition);
            views.push(Found { definition, manifests, states, now_ms: now.physical_ms() });
        }
    }
    Ok(views)
}

/// Whether as many bytes of a state as the threshold says are newer than its oldest tier.
fn is_over(manifest: &Manifest, percent: u64, bytes_min: u64) -> bool {
    let (all, newer) = manifest.n_bytes();
    all >= bytes_min && newer > 0 && newer.saturating_mul(100) >= (all - newer).saturating_mul(percent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use operators::RunMeta;
    use types::{Epoch, Generation, JobId, RunName, TableId};

    fn manifest(runs: &[(u32, u64)]) -> Manifest {
        let run = |(tier, n_bytes): &(u32, u64)| RunMeta {
            name: RunName {
                job: JobId(1),
                generation: Generation(1),
                epoch: Epoch(1),
                view: TableId(1),
                number: *tier,
            },
            n_rows: 1,
            n_merged: 0,
            n_bytes: *n_bytes,
            tier: *tier,
            first_hash: 0,
            last_hash: 0,
        };
        Manifest { runs: runs.iter().map(run).collect() }
    }

    #[test]
    fn a_state_is_over_when_its_newer_tiers_are_large_enough() {
        let quarter = |runs: &[(u32, u64)]| is_over(&manifest(runs), 25, 1_000);
        assert!(!quarter(&[]));
        assert!(!quarter(&[(0, 5_000)]), "one tier is what a compaction makes");
        assert!(!quarter(&[(0, 2_000), (0, 2_000)]), "runs of one merge are one tier");
        assert!(!quarter(&[(0, 4_000), (1, 999)]));
        assert!(quarter(&[(0, 4_000), (1, 1_000)]));
        assert!(quarter(&[(0, 4_000), (1, 900), (2, 100)]));
        assert!(!quarter(&[(0, 400), (1, 100)]), "too small to care");
    }
}
