//! A continuous job: waits for changes, and turns them into epochs.
//!
//! The loop absorbs resolved changes as they come and opens an epoch when one is due (`schedule`). One
//! epoch at a time: the next begins to absorb when the last one's keys are committed. Fills that have
//! caught up are adopted in an epoch's own transaction.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sql::catalog::{Catalog, CatalogChange, TableDefinition, ViewState};
use store::{Mutation, Snapshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use types::records::{self, EpochRecord};
use types::{JobId, Result, TableId, Timestamp};

use crate::adoption::Announced;
use crate::board::JobDoor;
use crate::ddl::{fill_of, forget_table};
use crate::records::{FillPhase, FillPosition, decode};
use crate::schedule::{Pending, Schedule};
use crate::shared::Shared;
use crate::views::{Ends, ViewFault};
use crate::worker::{AtStart, Worker, view_of};

/// Runs a continuous job until shutdown.
///
/// # Errors
/// Whatever ends this run; the next one takes over.
pub(crate) async fn run(
    shared: Arc<Shared>,
    job: JobId,
    door: Arc<JobDoor>,
    token: CancellationToken,
) -> Result<()> {
    let worker = Worker::take_over(shared, job, token.clone()).await?;
    let mut run = JobRun { worker, door, started: Instant::now(), last_opened_ms: 0 };
    run.load().await?;
    while !token.is_cancelled() {
        run.step().await?;
    }
    Ok(())
}

struct JobRun {
    worker: Worker,
    door: Arc<JobDoor>,
    /// The zero of the schedule's clock.
    started: Instant,
    last_opened_ms: u64,
}

impl JobRun {
    /// Opens every view that the job maintains, as of the take-over.
    async fn load(&mut self) -> Result<()> {
        let at = self.worker.commit_ts;
        let catalog = self.worker.shared.catalog_at(at).await?;
        let own: Vec<Arc<TableDefinition>> =
            catalog.tables.values().filter(|known| self.worker.maintains(known)).cloned().collect();
        for definition in own {
            self.worker.load_view(&catalog, &definition, at).await?;
        }
        self.worker.bind_sources(&catalog)?;
        self.worker.shared.pass("runtime::loaded")?;
        // Faults of loading are recorded at once, not at the next change.
        if !self.worker.views.faults.is_empty() {
            self.epoch().await?;
        }
        Ok(())
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Waits for something to do, and does it.
    async fn step(&mut self) -> Result<()> {
        let options = &self.worker.shared.options;
        let schedule = Schedule {
            epoch_interval_ms: options.epoch_interval_ms,
            idle_interval_ms: options.idle_interval_ms,
            last_opened_ms: self.last_opened_ms,
        };
        let pending = Pending {
            changed: self.worker.absorbed.n_changes > 0 || !self.worker.views.faults.is_empty(),
            asked: self.worker.shared.offers.any(self.worker.job),
            full: self.worker.is_full(),
            timer_ms: None,
        };
        let wait_ms = schedule.wait_ms(self.now_ms(), pending);
        if wait_ms == 0 {
            return self.epoch().await;
        }
        let token = self.worker.token.clone();
        let changed = if pending.changed {
            // Until the epoch is due there is nothing to decide; what changes meanwhile is absorbed then.
            tokio::select! {
                () = token.cancelled() => return Ok(()),
                () = self.door.poke.notified() => return self.epoch().await,
                () = tokio::time::sleep(Duration::from_millis(wait_ms)) => None,
            }
        } else {
            let store = Arc::clone(&self.worker.shared.store);
            tokio::select! {
                () = token.cancelled() => return Ok(()),
                () = self.door.poke.notified() => return self.epoch().await,
                // Cancel safe: it only reads.
                visible = store.wait_change(self.worker.read_to, wait_ms) => Some(visible?),
            }
        };
        match changed {
            Some(visible) => self.worker.absorb(visible).await,
            None => Ok(()),
        }
    }

    /// One epoch: up to now, or as far as memory allows.
    async fn epoch(&mut self) -> Result<()> {
        self.last_opened_ms = self.now_ms();
        let started = Instant::now();
        let shared = Arc::clone(&self.worker.shared);
        if !self.worker.is_full() {
            let now = shared.store.read_timestamp().await?;
            self.worker.absorb(now).await?;
        }
        shared.pass("runtime::absorbed")?;
        let opened = self.worker.open(self.worker.read_to).await?;
        let offers = shared.offers.take(self.worker.job, opened.cut);
        let sealed = self.worker.seal(opened.clone(), Vec::new(), Ends::Cut).await?;
        let reached = self.await_fills(offers).await;
        let mut adoption =
            Adoption { job: self.worker.job, reached, adopted: BTreeSet::new(), dropped: Vec::new() };
        let run_bytes = sealed.run_bytes();
        let n_faults = self.worker.views.faults.len();
        let decided = self.worker.decide(sealed, &mut adoption).await;
        let decided = match decided {
            Ok(decided) => decided,
            Err(error) => {
                adoption.tell(&BTreeSet::new());
                return Err(error);
            }
        };
        let faulted = n_faults > 0 || !self.worker.views.faults.is_empty();
        self.worker.advance(opened, decided, run_bytes, started);
        if faulted || !adoption.adopted.is_empty() {
            self.after_change(&mut adoption, faulted).await?;
        }
        let adopted = std::mem::take(&mut adoption.adopted);
        adoption.tell(&adopted);
        Ok(())
    }

    /// Waits, for a bounded time, until the fills that were told the cut have reached it.
    async fn await_fills(&self, offers: Vec<Announced>) -> Vec<Announced> {
        if offers.is_empty() {
            return offers;
        }
        let shared = &self.worker.shared;
        shared.board.waiting_for(self.worker.job, "fills to reach the cut");
        let deadline = Instant::now() + Duration::from_millis(shared.options.adoption_wait_ms);
        let mut reached = Vec::new();
        for mut offer in offers {
            match tokio::time::timeout_at(deadline, &mut offer.reached).await {
                Ok(Ok(())) => reached.push(offer),
                _ => offer.tell(false),
            }
        }
        reached
    }

    /// Views came or went with the epoch: they are opened or closed, and the sources read again.
    async fn after_change(&mut self, adoption: &mut Adoption, faulted: bool) -> Result<()> {
        let shared = Arc::clone(&self.worker.shared);
        let at = self.worker.commit_ts;
        let catalog = shared.catalog_at(at).await?;
        for view in std::mem::take(&mut adoption.dropped) {
            self.worker.views.remove(view);
        }
        for offer in adoption.reached.iter().filter(|offer| adoption.adopted.contains(&offer.view)) {
            if let Some(definition) =
                catalog.tables.get(&offer.view).filter(|known| self.worker.maintains(known))
            {
                self.worker.load_view(&catalog, definition, at).await?;
                tracing::info!(
                    view = definition.full_name(),
                    epoch = self.worker.frontier.epoch.0,
                    "view published"
                );
            }
            shared.pass("runtime::adopted")?;
            shared.coordinator.forget(offer.fill).await?;
        }
        self.worker.bind_sources(&catalog)?;
        let board = &shared.board;
        board.report_views(
            self.worker.job,
            self.worker.views.rows(),
            self.worker.views.operators(self.worker.job),
        );
        if faulted {
            tracing::warn!(job = self.worker.job.0, "the job goes on without the views that faulted");
        }
        shared.catalog_changed();
        Ok(())
    }
}

/// What epoch k's transaction does beside the views' own keys: faults, and the fills it adopts.
struct Adoption {
    job: JobId,
    reached: Vec<Announced>,
    /// Views that the newest start adopts.
    adopted: BTreeSet<TableId>,
    /// Views that they replace.
    dropped: Vec<TableId>,
}

impl Adoption {
    /// Tells every fill what became of it.
    fn tell(self, adopted: &BTreeSet<TableId>) {
        for offer in self.reached {
            let yes = adopted.contains(&offer.view);
            offer.tell(yes);
        }
    }

    /// Whether the fill is where it must be at the start: caught up to this very cut, its view still
    /// wanted. Whatever else it finds leaves the fill alone.
    async fn may_adopt(
        &self,
        snapshot: &Snapshot,
        catalog: &Catalog,
        cut: Timestamp,
        offer: &Announced,
    ) -> Result<bool> {
        let wanted = catalog.tables.get(&offer.view).is_some_and(|definition| {
            fill_of(definition) == Some(offer.fill)
                && view_of(definition)
                    .is_ok_and(|view| view.job == self.job && view.state == ViewState::Filling)
        });
        let Some(record) = snapshot.get(&records::epoch_record_key(offer.fill)).await?.filter(|_| wanted)
        else {
            return Ok(false);
        };
        let Some(position) = snapshot.get(&records::fill_position_key(offer.fill)).await? else {
            return Ok(false);
        };
        let position: FillPosition = decode("position of a fill", &position)?;
        Ok(EpochRecord::decode(&record)?.cut == cut && position.phase == FillPhase::CatchUp)
    }
}

#[async_trait::async_trait]
impl AtStart for Adoption {
    async fn mutations(
        &mut self,
        snapshot: &Snapshot,
        catalog: &Catalog,
        cut: Timestamp,
        faults: &BTreeMap<TableId, ViewFault>,
    ) -> Result<Vec<Mutation>> {
        self.adopted.clear();
        self.dropped.clear();
        let mut changes: Vec<CatalogChange> = Vec::new();
        for (view, fault) in faults.iter().filter(|(view, _)| catalog.tables.contains_key(view)) {
            let ViewFault { reason, key } = fault.clone();
            changes.push(catalog.set_view_state(*view, ViewState::Faulted { reason, key, at: cut })?);
        }
        let mut mutations = Vec::new();
        // Faults and adoptions could touch one definition; the fills wait for the next epoch.
        for offer in self.reached.iter().filter(|_| faults.is_empty()) {
            if !self.may_adopt(snapshot, catalog, cut, offer).await? {
                continue;
            }
            let change = catalog.publish_view(offer.view)?;
            // A view that is swapped in rewrites the definitions over it, of which one may be offered too.
            if changes.iter().any(|known| known.collides_with(&change)) {
                continue;
            }
            for gone in &change.dropped {
                mutations.extend(forget_table(gone)?);
                self.dropped.push(gone.id());
            }
            mutations.push(Mutation::delete(records::epoch_record_key(offer.fill)));
            mutations.push(Mutation::delete(records::fill_position_key(offer.fill)));
            self.adopted.insert(offer.view);
            changes.push(change);
        }
        if !changes.is_empty() {
            mutations.extend(catalog.merge(changes).mutations);
        }
        Ok(mutations)
    }
}
