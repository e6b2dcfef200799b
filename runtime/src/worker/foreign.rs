//! What a run does about TiDB: definitions as of what was read, and no step across a change.

use std::sync::Arc;

use sql::catalog::Catalog;
use types::{Result, TableId, Timestamp};

use super::Worker;
use crate::views::{ChangedSince, View, ViewFault};

impl Worker {
    /// A catalog with TiDB's side as it was at `read_to`: rows up to there mean that, and what was changed since
    /// the next changes are read across.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) async fn as_of_read(&self, catalog: &Arc<Catalog>) -> Result<Arc<Catalog>> {
        match self.shared.catalog_at(self.read_to).await {
            Ok(then) => catalog.with_foreign_of(&then),
            // The changes since are gone too: that is found when they are read.
            Err(error) if error.is_history_gone() => Ok(Arc::clone(catalog)),
            Err(error) => Err(error),
        }
    }

    /// Cuts off the views that read a table which TiDB changed in (`read_to`, `to`], so that they are not what
    /// they were: nothing is read across the change.
    ///
    /// # Errors
    /// What the store says.
    pub(super) async fn look_for_changes(&mut self, to: Timestamp) -> Result<()> {
        let reads = |view: &View| view.needed.keys().any(|table| self.tables.is_foreign(*table));
        if self.read_to >= to || !self.views.running.values().any(reads) {
            return Ok(());
        }
        let (before, after) = match self.shared.catalog_at(self.read_to).await {
            Ok(before) => (before, self.shared.catalog_at(to).await?),
            Err(error) if error.is_history_gone() => {
                self.lose_history(&error);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let mut changed = Vec::new();
        for (id, view) in &self.views.running {
            let base_tables: Vec<TableId> = view.needed.keys().copied().collect();
            if let Some(reason) = after.changes_since(&before, &base_tables, &view.needed) {
                changed.push((*id, reason));
            }
        }
        let is_changed = !changed.is_empty();
        for (id, reason) in changed {
            let fault = ViewFault {
                changed: Some(ChangedSince { catalog: Arc::clone(&before), at: self.read_to }),
                ..ViewFault::new(reason, None)
            };
            self.views.fault(id, fault);
        }
        if is_changed { self.bind_sources(&before) } else { Ok(()) }
    }
}
