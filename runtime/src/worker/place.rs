//! Where a worker stands among those of its run: which views are its own, and how a run is begun.
//!
//! Views are divided, not rows: a view's dataflow, states and rows are one worker's, so workers exchange
//! nothing but their votes. Worker 0 leads: it opens epochs, and writes what belongs to the job rather than
//! to a view (faults, adoptions, refreshes).

use std::collections::BTreeMap;
use std::sync::Arc;

use coordinator::{Fault, HelperId, Share, ShareRequest, TakeOverRequest, TakenOver};
use sql::catalog::Catalog;
use store::{Mutation, Snapshot};
use tokio_util::sync::CancellationToken;
use types::{JobId, Result, TableId, Timestamp};

use super::{AtStart, Worker};
use crate::shared::Shared;
use crate::transaction::repeat;
use crate::views::{ChangedSince, ViewFault};

/// One worker among those of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Which, from 0.
    pub(crate) worker: u32,
    /// Of how many.
    pub(crate) n_workers: u32,
}

impl Place {
    /// Whether a view is this worker's. Ids that follow each other are scattered, since tables and views may
    /// take turns.
    pub(crate) fn has(self, view: TableId) -> bool {
        let scattered = view.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        scattered % u64::from(self.n_workers) == u64::from(self.worker)
    }

    /// Whether it opens the epochs.
    pub(crate) fn leads(self) -> bool {
        self.worker == 0
    }
}

/// A transaction with no further keys.
pub(crate) struct Nothing;

#[async_trait::async_trait]
impl AtStart for Nothing {
    async fn mutations(
        &mut self,
        _snapshot: &Snapshot,
        _catalog: &Catalog,
        _cut: Timestamp,
        _faults: &BTreeMap<TableId, ViewFault>,
    ) -> Result<Vec<Mutation>> {
        Ok(Vec::new())
    }
}

impl Worker {
    /// Starts a new run of a job, of this worker alone.
    ///
    /// # Errors
    /// `Fenced` or `Unavailable` from the coordinator; what the store says.
    pub(crate) async fn take_over(
        shared: Arc<Shared>,
        job: JobId,
        token: CancellationToken,
    ) -> Result<Worker> {
        Worker::lead(shared, job, token, &[]).await
    }

    /// Starts a new run of a job, with helpers as its further workers.
    ///
    /// # Errors
    /// `Conflict` if a helper has gone away meanwhile; as [`Worker::take_over`].
    pub(crate) async fn lead(
        shared: Arc<Shared>,
        job: JobId,
        token: CancellationToken,
        helpers: &[HelperId],
    ) -> Result<Worker> {
        let n_workers = u32::try_from(helpers.len()).expect("helpers are few") + 1;
        let taken = shared.coordinator.take_over(TakeOverRequest { job, n_workers }).await?;
        if !helpers.is_empty() {
            let request = ShareRequest { job, taken: taken.clone(), helpers: helpers.to_vec() };
            repeat(|| shared.coordinator.share(request.clone())).await?;
        }
        Worker::begin(shared, job, token, taken, Place { worker: 0, n_workers })
    }

    /// Takes part in a run that another worker leads.
    ///
    /// # Errors
    /// As [`Worker::take_over`].
    pub(crate) fn help(shared: Arc<Shared>, share: &Share, token: CancellationToken) -> Result<Worker> {
        let place = Place { worker: share.worker, n_workers: share.n_workers };
        Worker::begin(shared, share.job, token, share.taken.clone(), place)
    }

    fn begin(
        shared: Arc<Shared>,
        job: JobId,
        token: CancellationToken,
        taken: TakenOver,
        place: Place,
    ) -> Result<Worker> {
        shared.pass("runtime::taken_over")?;
        shared.board.started(job, &taken.frontier, taken.commit_ts);
        tracing::info!(
            job = job.0,
            generation = taken.generation.0,
            epoch = taken.frontier.epoch.0,
            cut = taken.frontier.cut.0,
            worker = place.worker,
            n_workers = place.n_workers,
            "took over"
        );
        Worker::at_frontier(shared, job, token, taken, place)
    }

    /// What other workers have found goes into the epoch's transaction too.
    ///
    /// # Errors
    /// What the store says.
    pub(super) async fn hear_of(&mut self, faults: &[Fault]) -> Result<()> {
        for fault in faults {
            if self.views.faults.contains_key(&fault.view) {
                continue;
            }
            let changed = match fault.changed_since {
                Some(at) => Some(ChangedSince { catalog: self.shared.catalog_at(at).await?, at }),
                None => None,
            };
            let known = ViewFault { changed, ..ViewFault::new(&fault.reason, fault.key.clone()) };
            self.views.fault(fault.view, known);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_view_has_one_worker_and_every_worker_views() {
        for n_workers in 1..6 {
            let places = || (0..n_workers).map(move |worker| Place { worker, n_workers });
            for stride in [1, 2, 3] {
                let views: Vec<TableId> = (100..200).map(|number| TableId(number * stride)).collect();
                for view in &views {
                    assert_eq!(places().filter(|place| place.has(*view)).count(), 1, "{view}");
                }
                let fewest =
                    places().map(|place| views.iter().filter(|view| place.has(**view)).count()).min();
                assert!(fewest.unwrap() * n_workers as usize > 60, "{n_workers} workers: {fewest:?}");
            }
        }
    }
}
