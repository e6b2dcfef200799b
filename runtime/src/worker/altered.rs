//! What a run does about views that lie in tables of TiDB: nothing is written to one that somebody altered.
//!
//! TiDB does not know that rows are written past it. Whether a table is as it was made is looked at by the
//! schema that the epoch's transaction starts at, and once more, if the schema has changed by then, when all
//! keys are locked. A step of TiDB's DDL takes longer than the way from there to the commit.

use std::sync::Arc;

use coordinator::Decision;
use sql::catalog::{Catalog, ForeignSchema};
use store::Snapshot;
use types::{Epoch, Error, Result, TableId, Timestamp};

use super::{SealedEpoch, Worker};
use crate::views::ViewFault;

impl Worker {
    /// Cuts off the views whose tables in TiDB are not what was made, and says whether there were any.
    pub(super) fn fault_altered(
        &mut self,
        catalog: &Catalog,
        foreign: &ForeignSchema,
        sealed: &mut SealedEpoch,
    ) -> bool {
        if self.verified == Some(foreign.stamp) {
            return false;
        }
        let views: Vec<TableId> = self.views.running.keys().copied().collect();
        let altered: Vec<(TableId, String)> = views
            .into_iter()
            .filter_map(|view| Some((view, catalog.tables.get(&view)?.altered_in(foreign)?)))
            .collect();
        if altered.is_empty() {
            self.verified = Some(foreign.stamp);
            return false;
        }
        for (view, reason) in altered {
            self.views.fault(view, ViewFault::new(reason, None));
            sealed.parts.remove(&view);
        }
        true
    }

    /// As [`Worker::fault_altered`], by the newest schema: called when every key is locked.
    ///
    /// # Errors
    /// What the store says.
    pub(super) async fn fault_altered_since(
        &mut self,
        catalog: &Catalog,
        sealed: &mut SealedEpoch,
    ) -> Result<bool> {
        if !self.views.running.values().any(|view| view.definition.tidb().is_some()) {
            return Ok(false);
        }
        let snapshot = Snapshot::newest(Arc::clone(&self.shared.store)).await?;
        match self.shared.catalog.foreign_since(&snapshot, catalog).await? {
            Some(foreign) => Ok(self.fault_altered(catalog, &foreign, sealed)),
            None => Ok(false),
        }
    }

    /// Lets a start go by at which nothing was prewritten here: the next attempt has what was found out.
    ///
    /// # Errors
    /// What the coordinator says.
    pub(super) async fn pass_start(&self, epoch: Epoch, start_ts: Timestamp) -> Result<()> {
        self.vote(epoch, start_ts, false).await?;
        match self.decision(epoch, start_ts).await? {
            Decision::Retry => Ok(()),
            Decision::Committed { .. } => Err(Error::corrupt("an epoch was decided against a vote")),
        }
    }
}
