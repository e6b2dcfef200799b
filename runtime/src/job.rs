//! A job at work: a continuous one waits for changes and turns them into epochs, one that works by
//! refreshes waits to be asked.
//!
//! The continuous loop absorbs resolved changes as they come and opens an epoch when one is due (`schedule`). One
//! epoch at a time: the next begins to absorb when the last one's keys are committed. Fills that have
//! caught up are adopted in an epoch's own transaction.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use coordinator::HelperId;
use sql::catalog::{Catalog, CatalogChange, ViewState};
use store::{KeyRange, Mutation, Snapshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use types::records;
use types::{Epoch, Error, JobId, Result, TableId, Timestamp};

use crate::RefreshPath;
use crate::adoption::Announced;
use crate::board::{JobDoor, Request};
use crate::ddl::{fill_of, forget_table};
use crate::records::{
    FillPhase, FillPosition, RefreshRecord, ViewStats, encode, read_epoch_record, refresh_key,
};
use crate::refresh::Changed;
use crate::schedule::{Pending, Schedule};
use crate::shared::Shared;
use crate::transaction::repeat;
use crate::views::{Ends, ViewFault, ViewPart};
use crate::worker::{AtStart, SealedEpoch, Worker, view_of};

/// How long a job that works by refreshes keeps its run between two of them: without it each pays for a
/// take-over, a commit of its own.
const KEPT_MS: u64 = 60_000;

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
    while !token.is_cancelled() {
        // Where a view to be compacted will be is not known yet.
        let helpers = wanted_helpers(&shared, &door, |_| true).await?;
        let worker = Worker::lead(Arc::clone(&shared), job, token.clone(), &helpers).await?;
        let door = Arc::clone(&door);
        let mut run =
            JobRun { worker, door, started: Instant::now(), last_opened_ms: 0, others: Others::default() };
        run.load().await?;
        let mut looked_at = run.worker.frontier.epoch;
        while !token.is_cancelled() {
            run.step().await?;
            // Helpers that come are given their share between two epochs; one that goes ends the run.
            let (epoch, place) = (run.worker.frontier.epoch, run.worker.place);
            if epoch != std::mem::replace(&mut looked_at, epoch)
                && wanted_helpers(&shared, &run.door, |view| !place.has(view)).await? != helpers
            {
                tracing::info!(job = job.0, "the job's views are divided anew");
                break;
            }
        }
    }
    Ok(())
}

/// The helpers that a run of a job that begins now is to have: none if a view is to be compacted that may
/// be with another worker, which this process does itself.
async fn wanted_helpers(
    shared: &Shared,
    door: &JobDoor,
    may_be_elsewhere: impl Fn(TableId) -> bool,
) -> Result<Vec<HelperId>> {
    if door.wants_compaction(may_be_elsewhere) {
        return Ok(Vec::new());
    }
    repeat(|| shared.coordinator.helpers()).await
}

/// Runs a job that works by refreshes until shutdown: takes over when a refresh is asked for or a full one
/// is to be adopted, commits it, and lets go of everything after a while.
///
/// # Errors
/// Whatever ends a refresh; the next run takes over and tries again.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    job: JobId,
    door: Arc<JobDoor>,
    token: CancellationToken,
) -> Result<()> {
    let mut kept = None;
    while !token.is_cancelled() {
        shared.board.waiting_for(job, "a refresh");
        let (cancel, to) =
            door.requested().map_or_else(Default::default, |request| (request.cancel, request.to));
        let served = tokio::select! {
            biased;
            // Dropped halfway it is as if the worker had died: the next take-over rolls its epoch back.
            () = cancel.cancelled() => {
                door.finish(to);
                Served { anything: true, run: None }
            }
            served = serve_asked(&shared, job, &door, &token, kept.take()) => served?,
        };
        kept = served.run;
        if !served.anything {
            let kept_ms = if kept.is_some() { KEPT_MS } else { u64::MAX };
            tokio::select! {
                () = token.cancelled() => {}
                () = door.poke.notified() => {}
                () = tokio::time::sleep(Duration::from_millis(kept_ms)) => kept = None,
            }
        }
    }
    Ok(())
}

/// What came of a look at what is asked for.
struct Served {
    /// Whether something was.
    anything: bool,
    /// The run, at the frontier with its views loaded, for the next thing that is asked for soon.
    run: Option<JobRun>,
}

/// Does one thing that is asked for, `false` if nothing is. Only one: the next has a cancellation of its own.
async fn serve_asked(
    shared: &Arc<Shared>,
    job: JobId,
    door: &Arc<JobDoor>,
    token: &CancellationToken,
    kept: Option<JobRun>,
) -> Result<Served> {
    let offered = shared.offers.wanted_cut(job);
    let request = door.requested();
    let asked = request.as_ref().filter(|request| request.path != RefreshPath::Full).map(|one| one.to);
    let to = offered.or(asked);
    if to.is_none() && !door.wants_compaction(|_| true) {
        return Ok(Served { anything: false, run: kept });
    }
    let mut run = match kept.filter(|_| offered.is_none()) {
        Some(run) => run,
        None => {
            let worker = Worker::take_over(Arc::clone(shared), job, token.clone()).await?;
            let door = Arc::clone(door);
            let mut run = JobRun {
                worker,
                door,
                started: Instant::now(),
                last_opened_ms: 0,
                others: Others::default(),
            };
            if let Some(to) = offered {
                // What is replaced need not be brought up to date.
                run.worker.skip_to(to);
                run.commit(Target { request, adopts: true, ..Target::default() }).await?;
                return Ok(Served { anything: true, run: None });
            }
            run.load().await?;
            run
        }
    };
    let Some(to) = to else {
        // The view stays at its cut: only its runs change.
        run.commit(Target::default()).await?;
        return Ok(Served { anything: true, run: Some(run) });
    };
    let mut changed = Changed::default();
    while run.worker.frontier.cut < to && !token.is_cancelled() {
        run.worker.absorb(to).await?;
        shared.pass("runtime::absorbed")?;
        changed = changed.and(run.worker.absorbed.changed());
        run.commit(Target { request: request.clone(), changed, adopts: false }).await?;
    }
    run.door.finish(to);
    // A view that faulted is not there to be refreshed.
    let run = Some(run).filter(|run| run.worker.frontier.cut >= to && run.worker.views.faults.is_empty());
    Ok(Served { anything: true, run })
}

/// What an epoch is for.
#[derive(Clone, Debug, Default)]
struct Target {
    /// The refresh that it is.
    request: Option<Request>,
    /// What the refresh has taken in, with this epoch.
    changed: Changed,
    /// Whether it is nothing without the fill that it adopts.
    adopts: bool,
}

/// Where an epoch is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Now: somebody waits for it, so it is worth finding out what is not at hand yet.
    Newest,
    /// Up to where changes are at hand, so that nothing is waited for.
    AtHand,
}

struct JobRun {
    worker: Worker,
    door: Arc<JobDoor>,
    /// The zero of the schedule's clock.
    started: Instant,
    last_opened_ms: u64,
    others: Others,
}

/// What the views of other workers read: the one that leads opens epochs for them too.
#[derive(Default)]
struct Others {
    /// The epoch whose definitions the ranges are of.
    epoch: Option<Epoch>,
    ranges: Vec<KeyRange>,
    /// Whether something changed there since the last epoch.
    changed: bool,
}

impl JobRun {
    /// Opens every view that the job maintains, as of the take-over.
    async fn load(&mut self) -> Result<()> {
        self.worker.load_own().await?;
        self.worker.shared.pass("runtime::loaded")?;
        // Faults of loading are recorded at once, not at the next change.
        if !self.worker.views.faults.is_empty() {
            self.epoch(Ending::AtHand).await?;
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
            changed: self.worker.absorbed.n_changes > 0
                || self.others.changed
                || !self.worker.views.faults.is_empty(),
            asked: self.worker.shared.offers.any(self.worker.job) || self.door.wants_compaction(|_| true),
            full: self.worker.is_full(),
            timer_ms: None,
        };
        let wait_ms = schedule.wait_ms(self.now_ms(), pending);
        if wait_ms == 0 {
            // A fill that has caught up may be ahead of what is at hand.
            let to =
                if self.worker.shared.offers.any(self.worker.job) { Ending::Newest } else { Ending::AtHand };
            return self.epoch(to).await;
        }
        let token = self.worker.token.clone();
        let changed = if pending.changed {
            // Until the epoch is due there is nothing to decide; what changes meanwhile is absorbed then.
            tokio::select! {
                () = token.cancelled() => return Ok(()),
                () = self.door.poke.notified() => return self.epoch(Ending::Newest).await,
                () = tokio::time::sleep(Duration::from_millis(wait_ms)) => None,
            }
        } else {
            let store = Arc::clone(&self.worker.shared.store);
            let ranges = self.worker.source().ranges();
            tokio::select! {
                () = token.cancelled() => return Ok(()),
                () = self.door.poke.notified() => return self.epoch(Ending::Newest).await,
                // Cancel safe: it only reads.
                cut = store.cut(&ranges, self.worker.read_to, wait_ms) => Some(cut?),
            }
        };
        match changed {
            Some(cut) => {
                self.look_at_others(cut).await?;
                self.worker.absorb(cut).await
            }
            None => Ok(()),
        }
    }

    /// Whether anything changed up to `to` that only views of other workers read.
    async fn look_at_others(&mut self, to: Timestamp) -> Result<()> {
        let (job, place, from) = (self.worker.job, self.worker.place, self.worker.read_to);
        if place.n_workers == 1 || self.others.changed || from >= to {
            return Ok(());
        }
        let epoch = self.worker.frontier.epoch;
        if self.others.epoch != Some(epoch) {
            let catalog = self.worker.shared.catalog_at(self.worker.commit_ts).await?;
            self.others = Others { epoch: Some(epoch), ranges: Vec::new(), changed: false };
            for definition in catalog.tables.values() {
                let Some(view) = &definition.view else { continue };
                if view.state == ViewState::Ready && view.job == job && !place.has(definition.id()) {
                    match catalog.base_ranges(view) {
                        Ok(ranges) => self.others.ranges.extend(ranges),
                        // TiDB dropped a table: whose view it is finds that in the next epoch.
                        Err(_) => self.others.changed = true,
                    }
                }
            }
        }
        if self.others.changed {
            return Ok(());
        }
        self.others.changed =
            match self.worker.shared.store.count_changes(&self.others.ranges, from, to, 0).await {
                Ok(n_changes) => n_changes > 0,
                // Whose history it is finds that out.
                Err(error) if error.is_history_gone() => true,
                Err(error) => return Err(error),
            };
        Ok(())
    }

    /// One epoch: to where it is to end, or as far as memory allows.
    async fn epoch(&mut self, to: Ending) -> Result<()> {
        self.last_opened_ms = self.now_ms();
        let shared = Arc::clone(&self.worker.shared);
        if !self.worker.is_full() {
            let cut = match to {
                Ending::Newest => shared.store.read_timestamp().await?,
                Ending::AtHand => {
                    shared.store.cut(&self.worker.source().ranges(), self.worker.read_to, 0).await?
                }
            };
            self.worker.absorb(cut).await?;
        }
        shared.pass("runtime::absorbed")?;
        self.commit(Target::default()).await
    }

    /// Carries what was absorbed to its decision, with the fills that have caught up.
    async fn commit(&mut self, target: Target) -> Result<()> {
        let started = Instant::now();
        let shared = Arc::clone(&self.worker.shared);
        let opened = self.worker.open(self.worker.read_to).await?;
        self.others.changed = false;
        let offers = shared.offers.take(self.worker.job, opened.cut);
        let place = self.worker.place;
        let compaction = if target.adopts { None } else { self.door.take_compaction(|view| place.has(view)) };
        if let Some(compaction) = &compaction {
            self.worker.views.compact(compaction.view, &compaction.states, compaction.n_bytes_max);
        }
        let mut sealed = self.worker.seal(opened.clone(), Vec::new(), Ends::Cut).await?;
        if let (Some(request), false) = (&target.request, target.adopts) {
            sealed.own = self.refresh_records(request, target.changed, &sealed)?;
        }
        let reached = self.await_fills(offers).await;
        let mut adoption = Adoption {
            job: self.worker.job,
            target,
            now_ms: shared.store.read_timestamp().await?.physical_ms(),
            reached,
            adopted: BTreeSet::new(),
            dropped: Vec::new(),
        };
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
        if let Some(compaction) = compaction {
            let merged = self.worker.views.merged(compaction.view, &compaction.states);
            compaction.tell(merged);
        }
        Ok(())
    }

    /// What an incremental refresh leaves behind about itself.
    fn refresh_records(
        &self,
        request: &Request,
        changed: Changed,
        sealed: &SealedEpoch,
    ) -> Result<Vec<Mutation>> {
        let (path, reason) = changed.path();
        let source_rows = changed.rows_after(request.source_rows);
        let record = |(view, part): (&TableId, &ViewPart)| {
            let record = RefreshRecord {
                path,
                reason: reason.clone(),
                cut: sealed.opened.cut,
                began_ms: request.began_ms,
                duration_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
                rows_read: changed.n_changes,
                rows_written: part.n_rows_written(*view)?,
                rows_skipped: source_rows.saturating_sub(changed.n_changes),
                source_rows,
            };
            Ok(Mutation::put(refresh_key(*view), encode(&record)?))
        };
        sealed.parts.iter().map(record).collect()
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
        let catalog = self.worker.as_of_read(&catalog).await?;
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
    target: Target,
    /// The store's clock when the epoch was sealed.
    now_ms: u64,
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

    /// The fill's position, if that is where it must be at the start: caught up to this very cut, its view
    /// still wanted. Whatever else it finds leaves the fill alone.
    async fn adoptable(
        &self,
        snapshot: &Snapshot,
        catalog: &Catalog,
        cut: Timestamp,
        offer: &Announced,
    ) -> Result<Option<FillPosition>> {
        let wanted = catalog.tables.get(&offer.view).is_some_and(|definition| {
            fill_of(definition) == Some(offer.fill)
                && view_of(definition)
                    .is_ok_and(|view| view.job == self.job && view.state == ViewState::Filling)
        });
        let record = read_epoch_record(snapshot, offer.fill).await?;
        if !wanted || record.is_none_or(|record| record.cut != cut) {
            return Ok(None);
        }
        let position = FillPosition::read(snapshot, offer.fill).await?;
        Ok(position.filter(|position| position.phase == FillPhase::CatchUp))
    }

    /// What a full refresh leaves behind about itself.
    async fn refresh_record(
        &self,
        snapshot: &Snapshot,
        position: &FillPosition,
        cut: Timestamp,
    ) -> Result<Mutation> {
        let stats = ViewStats::read(snapshot, position.view).await?;
        let request = self.target.request.as_ref();
        let began_ms = request.map_or(position.snapshot.physical_ms(), |request| request.began_ms);
        let record = RefreshRecord {
            path: RefreshPath::Full,
            reason: request.map_or_else(|| "rebuilt".to_owned(), |request| request.reason.clone()),
            cut,
            began_ms,
            duration_ms: self.now_ms.saturating_sub(began_ms),
            rows_read: position.rows_done,
            rows_written: stats.n_rows,
            rows_skipped: 0,
            source_rows: position.rows_done,
        };
        Ok(Mutation::put(refresh_key(position.view), encode(&record)?))
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
            let ViewFault { reason, key, changed } = fault.clone();
            let state = ViewState::Faulted { reason, key, at: cut };
            changes.push(match changed {
                Some(since) => catalog.fault_by_change(*view, state, &since.catalog)?,
                None => catalog.set_view_state(*view, state)?,
            });
        }
        let mut mutations = Vec::new();
        // Faults and adoptions could touch one definition; the fills wait for the next epoch.
        for offer in self.reached.iter().filter(|_| faults.is_empty()) {
            let Some(position) = self.adoptable(snapshot, catalog, cut, offer).await? else {
                continue;
            };
            let change = catalog.publish_view(offer.view)?;
            // A view that is swapped in rewrites the definitions over it, of which one may be offered too.
            if changes.iter().any(|known| known.collides_with(&change)) {
                continue;
            }
            for gone in &change.dropped {
                mutations.extend(forget_table(gone)?);
                self.dropped.push(gone.id());
            }
            mutations.push(self.refresh_record(snapshot, &position, cut).await?);
            mutations.push(Mutation::delete(records::epoch_record_key(offer.fill)));
            mutations.push(Mutation::delete(records::fill_position_key(offer.fill)));
            self.adopted.insert(offer.view);
            changes.push(change);
        }
        if self.target.adopts && self.adopted.is_empty() {
            return Err(Error::unavailable("the fill of a refresh cannot be adopted now"));
        }
        if !changes.is_empty() {
            mutations.extend(catalog.merge(changes).mutations);
        }
        Ok(mutations)
    }
}
