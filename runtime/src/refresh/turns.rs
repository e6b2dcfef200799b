//! Whose turn it is to refresh a view, and why the last refreshes failed.
//!
//! Whatever moves the checkpoint of a view with a job of its own, or builds a copy at it, has the view's
//! turn: refreshes, and CLUSTER BY. A copy outlives the process that began it, so the next process takes
//! the turn for it before it serves anybody.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use sql::catalog::{TableDefinition, ViewDefinition, ViewState};
use store::Snapshot;
use tokio::sync::OwnedMutexGuard;
use types::{JobId, Result, TableId};

use crate::maintenance::begun;
use crate::worker::view_of;
use crate::{MaintenanceKind, Runtime};

/// One at a time.
type Turn = Arc<tokio::sync::Mutex<()>>;

/// One refresh of a view at a time, and why the last ones failed.
#[derive(Debug, Default)]
pub(crate) struct Refreshing {
    /// By the view's own job, which a full refresh and a new name leave as it is.
    turns: Mutex<BTreeMap<JobId, Turn>>,
    errors: Mutex<BTreeMap<TableId, String>>,
}

impl Refreshing {
    pub(super) fn turn(&self, job: JobId) -> Turn {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(turns.entry(job).or_default())
    }

    pub(super) fn note(&self, view: TableId, error: Option<String>) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        match error {
            Some(error) => drop(errors.insert(view, error)),
            None => drop(errors.remove(&view)),
        }
    }

    pub(super) fn error(&self, view: TableId) -> Option<String> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).get(&view).cloned()
    }
}

/// What a copy of a view is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copying {
    /// Its rows get another order.
    Cluster,
    /// The same again: a full refresh, or RESUME.
    Rebuild,
}

/// What a copy of a view is built for; `None` if it is another view, or maintained in another way.
pub(crate) fn copying(view: &ViewDefinition, copy: &TableDefinition) -> Option<Copying> {
    let copy = copy.view.as_ref().filter(|copy| copy.state == ViewState::Filling)?;
    let same = (&copy.query, &copy.columns, &copy.settings, copy.job)
        == (&view.query, &view.columns, &view.settings, view.job);
    let kind = if copy.cluster_by == view.cluster_by { Copying::Rebuild } else { Copying::Cluster };
    same.then_some(kind)
}

impl Runtime {
    /// Takes the turns of the views of which an earlier process left copies that are being built, until these
    /// are swapped in or given up. What gets another order is a task of this process from now on.
    pub(crate) async fn take_turns_again(&self) -> Result<()> {
        let snapshot = Snapshot::newest(Arc::clone(&self.shared.store)).await?;
        let catalog = self.shared.catalog_at(snapshot.ts()).await?;
        for (id, definition, view) in catalog.views() {
            let Some(copy) = catalog.replacement_of(id) else { continue };
            let Some(kind) = copying(view, copy) else { continue };
            let turn = if view.has_own_job() {
                Some(self.shared.refreshing.turn(view.job).lock_owned().await)
            } else {
                // Views of a continuous job are not refreshed.
                None
            };
            match (kind, turn) {
                (Copying::Cluster, turn) => {
                    let began_ms = view_of(copy)?.created_ts.physical_ms();
                    let manifests = sink::load_manifests(&self.shared.store, id, snapshot.ts()).await?;
                    let status = begun(definition, MaintenanceKind::Cluster, false, &manifests, began_ms);
                    drop(self.watch_clustering(definition, copy.id(), status, turn));
                }
                (Copying::Rebuild, Some(turn)) => self.watch_rebuild(copy.id(), turn),
                (Copying::Rebuild, None) => {}
            }
        }
        Ok(())
    }

    /// Keeps a view's turn while a copy of it is built.
    fn watch_rebuild(&self, copy: TableId, turn: OwnedMutexGuard<()>) {
        let runtime = self.clone();
        let task = async move {
            // However it ends, the next refresh finds what has become of it.
            let ended = runtime.wait_published(copy).await;
            drop(turn);
            ended
        };
        drop(self.shared.supervisor.spawn(format!("turn of the copy {copy}"), task));
    }
}
