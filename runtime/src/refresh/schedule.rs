//! The schedules of views that are refreshed every so often.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sql::RefreshKind;
use sql::catalog::{Refresh, TableDefinition};
use store::Snapshot;
use tokio_util::sync::CancellationToken;
use types::{ErrorKind, Result, TableId};

use super::{check_refreshable, due_ms};
use crate::Runtime;
use crate::records::RefreshRecord;
use crate::shared::Shared;
use crate::worker::view_of;

/// How often schedules are looked at.
const LOOK_EVERY_MS: u64 = 250;

/// Refreshes views when their schedules are due, until it is told to stop. A refresh that takes longer than its
/// interval is followed by one, not by all that it has missed.
///
/// # Errors
/// `Closed` when the store is closed.
pub(crate) async fn schedule(runtime: Runtime, token: CancellationToken) -> Result<()> {
    let shared = Arc::clone(&runtime.shared);
    let mut running: BTreeMap<TableId, tokio::task::JoinHandle<Result<()>>> = BTreeMap::new();
    loop {
        tokio::select! {
            () = token.cancelled() => return Ok(()),
            () = tokio::time::sleep(Duration::from_millis(LOOK_EVERY_MS)) => {}
        }
        running.retain(|_, task| !task.is_finished());
        match due(&shared).await {
            Ok(views) => {
                for definition in views {
                    running.entry(definition.id()).or_insert_with(|| {
                        let runtime = runtime.clone();
                        let name = format!("scheduled refresh of {}", definition.full_name());
                        shared.supervisor.spawn(name, async move { runtime.refresh_due(&definition).await })
                    });
                }
            }
            Err(error) if error.kind() == ErrorKind::Closed => return Err(error),
            Err(error) => tracing::warn!(%error, "cannot read which refreshes are due"),
        }
    }
}

impl Runtime {
    /// One refresh of a schedule; what fails is noted, and tried again a while later.
    async fn refresh_due(&self, definition: &TableDefinition) -> Result<()> {
        let refreshed =
            self.refresh_view(&definition.database, &definition.info.name, RefreshKind::Auto, None).await;
        if let Err(error) = refreshed {
            tracing::warn!(view = definition.full_name(), %error, "a scheduled refresh failed");
            let pause = match view_of(definition)?.refresh {
                Refresh::Every(interval_ms) => interval_ms,
                Refresh::Continuous | Refresh::OnDemand => 0,
            };
            let token = self.shared.supervisor.token();
            tokio::select! {
                () = token.cancelled() => {}
                () = tokio::time::sleep(Duration::from_millis(pause)) => {}
            }
        }
        Ok(())
    }
}

async fn due(shared: &Shared) -> Result<Vec<Arc<TableDefinition>>> {
    let snapshot = Snapshot::newest(Arc::clone(&shared.store)).await?;
    let catalog = shared.catalog_at(snapshot.ts()).await?;
    let now_ms = snapshot.ts().physical_ms();
    let mut views = Vec::new();
    for (id, definition, view) in catalog.views() {
        if check_refreshable(definition, view).is_err() || view.replaces.is_some() {
            continue;
        }
        if let Refresh::Every(_) = view.refresh {
            let last = RefreshRecord::read(&snapshot, id).await?;
            if due_ms(view, last.as_ref()).is_some_and(|due| due <= now_ms) {
                views.push(Arc::clone(definition));
            }
        }
    }
    Ok(views)
}
