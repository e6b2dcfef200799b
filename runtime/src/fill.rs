//! A fill: a job of its own that builds one view, until the view's job adopts it.
//!
//! ```text
//! [ piece of the snapshot at S0: one epoch with cut S0 ]*  -->  [ catch-up: (S, now] ]*
//!   --> offer; the job announces S_k --> (S, S_k], decided --> adopted in epoch k, or catch up again
//! ```
//!
//! The position is a key of each epoch's transaction, so after a crash the fill goes on at the piece it
//! had not decided. A fill whose record is gone was adopted or dropped: it ends. A fault of its data is
//! recorded by a DDL, with the record deleted: a fill has no other views to go on with.

use std::sync::Arc;

use source::Source;
use sql::catalog::{Catalog, CatalogChange, TableDefinition, ViewState};
use store::{KeyRange, Mutation, Snapshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use types::records;
use types::{Error, ErrorKind, JobId, Result, TableId, Timestamp};

use crate::board::FillProgress;
use crate::ddl::{commit_ddl, fill_of};
use crate::records::{FillPhase, FillPosition, encode, from_hex, to_hex};
use crate::shared::Shared;
use crate::views::{Ends, ViewFault};
use crate::worker::{Nothing, Worker, view_of};

/// How a run of a fill ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FillEnd {
    /// Adopted, dropped or faulted: there is nothing left to do.
    Over,
    /// The process shuts down.
    Shutdown,
}

/// Runs a fill until its view is published, dropped or faulted.
///
/// # Errors
/// Whatever ends this run; the next one takes over.
pub(crate) async fn run(
    shared: Arc<Shared>,
    fill: JobId,
    view: TableId,
    token: CancellationToken,
) -> Result<FillEnd> {
    let worker = match Worker::take_over(Arc::clone(&shared), fill, token).await {
        Ok(worker) => worker,
        Err(error) if is_over(&shared, fill, view).await? => {
            tracing::info!(fill = fill.0, %error, "fill is over");
            return Ok(FillEnd::Over);
        }
        Err(error) => return Err(error),
    };
    let mut run = match FillRun::load(worker, view).await? {
        Some(run) => run,
        None => return Ok(FillEnd::Over),
    };
    match run.run().await {
        Err(error) if error.kind() == ErrorKind::Fenced && is_over(&shared, fill, view).await? => {
            Ok(FillEnd::Over)
        }
        outcome => outcome,
    }
}

/// Whether the catalog has no view any more that this fill builds.
async fn is_over(shared: &Shared, fill: JobId, view: TableId) -> Result<bool> {
    let now = shared.store.read_timestamp().await?;
    let catalog = shared.catalog_at(now).await?;
    Ok(catalog.tables.get(&view).is_none_or(|definition| !is_filled_by(definition, fill)))
}

fn is_filled_by(definition: &TableDefinition, fill: JobId) -> bool {
    fill_of(definition) == Some(fill)
        && view_of(definition).is_ok_and(|view| view.state == ViewState::Filling)
}

struct FillRun {
    worker: Worker,
    view: TableId,
    position: FillPosition,
    base_tables: Vec<TableId>,
    /// First and last key of each base table at S0, for the progress.
    bounds: Vec<Option<(Vec<u8>, Vec<u8>)>>,
}

impl FillRun {
    /// Opens the view as of the take-over; `None` if there is nothing to fill.
    async fn load(mut worker: Worker, view: TableId) -> Result<Option<FillRun>> {
        let shared = Arc::clone(&worker.shared);
        let at = worker.commit_ts;
        let catalog = shared.catalog_at(at).await?;
        let definition = catalog.tables.get(&view).filter(|known| is_filled_by(known, worker.job));
        let Some(definition) = definition.cloned() else { return Ok(None) };
        let catalog = worker.as_of_read(&catalog).await?;
        let snapshot = Snapshot::new(Arc::clone(&shared.store), at);
        let position = FillPosition::read(&snapshot, worker.job).await?;
        let position =
            position.ok_or_else(|| Error::corrupt(format!("fill {} has no position", worker.job)))?;
        worker.load_view(&catalog, &definition, at).await?;
        let base_tables = view_of(&definition)?.base_tables.clone();
        worker.bind_sources(&catalog)?;
        let at_snapshot = Snapshot::new(Arc::clone(&shared.store), position.snapshot);
        let mut bounds = Vec::new();
        if matches!(position.phase, FillPhase::Snapshot { .. }) {
            for table in &base_tables {
                let ranges = catalog.tables.get(table).map(|known| known.record_ranges());
                bounds.push(bounds_of(&at_snapshot, &ranges.unwrap_or_default()).await?);
            }
        }
        shared.pass("runtime::fill_loaded")?;
        let run = FillRun { worker, view, position, base_tables, bounds };
        run.report();
        Ok(Some(run))
    }

    async fn run(&mut self) -> Result<FillEnd> {
        let token = self.worker.token.clone();
        loop {
            if token.is_cancelled() {
                return Ok(FillEnd::Shutdown);
            }
            if let Some(fault) = self.worker.views.faults.get(&self.view).cloned() {
                self.record_fault(fault).await?;
                return Ok(FillEnd::Over);
            }
            match self.position.phase.clone() {
                FillPhase::Snapshot { table_index, last_key } => self.piece(table_index, last_key).await?,
                FillPhase::CatchUp => {
                    if let Some(end) = self.catch_up().await? {
                        return Ok(end);
                    }
                }
            }
        }
    }

    /// One bounded piece of the snapshot, with the cut S0.
    async fn piece(&mut self, table_index: usize, last_key: Option<String>) -> Result<()> {
        let started = Instant::now();
        let shared = Arc::clone(&self.worker.shared);
        let next = match self.base_tables.get(table_index).copied() {
            None => FillPhase::CatchUp,
            Some(table) => self.read_piece(table, table_index, last_key).await?,
        };
        shared.pass("runtime::fill_piece_read")?;
        let is_last = matches!(&next, FillPhase::Snapshot { table_index, .. } if *table_index >= self.base_tables.len());
        let phase = if is_last { FillPhase::CatchUp } else { next };
        let position = FillPosition {
            phase,
            rows_done: self.position.rows_done + self.worker.absorbed.n_changes,
            ..self.position.clone()
        };
        self.commit_epoch(self.position.snapshot, position, started).await
    }

    /// Reads pages until the piece is as large as allowed, or the table ends.
    async fn read_piece(
        &mut self,
        table: TableId,
        table_index: usize,
        last_key: Option<String>,
    ) -> Result<FillPhase> {
        let shared = Arc::clone(&self.worker.shared);
        let limit = shared.options.rows_per_piece_max;
        let mut last_key = last_key.map(|text| from_hex(&text)).transpose()?;
        let mut rows_left = limit;
        if self.worker.source().schema(table).is_none() {
            // No plan reads a column of it any more: the optimiser has removed the table.
            return Ok(FillPhase::Snapshot { table_index: table_index + 1, last_key: None });
        }
        loop {
            let source = Arc::clone(self.worker.source());
            let n_rows = rows_left.min(limit.div_ceil(4));
            let page = source.read_rows(table, self.position.snapshot, last_key.as_deref(), n_rows).await;
            let page = match page {
                Ok(page) => page,
                Err(error) if error.is_history_gone() => {
                    let fault = ViewFault::new(error.message(), None);
                    self.worker.views.fault(self.view, fault);
                    break;
                }
                Err(error) => return Err(error),
            };
            self.worker.absorbed.n_changes += page.delta.n_rows() as u64;
            self.worker.absorbed.n_bytes += page.n_bytes;
            rows_left = rows_left.saturating_sub(page.delta.n_rows().max(1));
            let done = page.done;
            if let Some(key) = &page.last_key {
                last_key = Some(key.to_vec());
            }
            self.worker.push_rows(table, page).await?;
            if done {
                return Ok(FillPhase::Snapshot { table_index: table_index + 1, last_key: None });
            }
            if rows_left == 0 || self.worker.is_full() {
                break;
            }
        }
        Ok(FillPhase::Snapshot { table_index, last_key: last_key.as_deref().map(to_hex) })
    }

    /// Changes up to now; when little is left, an offer to the job, and the epoch at the cut it announces.
    async fn catch_up(&mut self) -> Result<Option<FillEnd>> {
        let started = Instant::now();
        let shared = Arc::clone(&self.worker.shared);
        if !self.position.frozen {
            let now = shared.store.read_timestamp().await?;
            self.worker.absorb(now).await?;
        }
        if self.worker.is_full()
            || self.worker.absorbed.n_changes as usize > shared.options.rows_per_piece_max
        {
            self.commit_epoch(self.worker.read_to, self.caught_up(), started).await?;
            return Ok(None);
        }
        if self.worker.views.faults.contains_key(&self.view) {
            return Ok(None);
        }
        let at = self.position.frozen.then_some(self.position.snapshot);
        let offered = shared.offers.offer(self.position.adopter, self.worker.job, self.view, at);
        shared.pass("runtime::fill_offered")?;
        if let Some(door) = shared.board.door(self.position.adopter) {
            door.poke.notify_one();
        }
        shared.board.waiting_for(self.worker.job, "its job to announce a cut");
        let token = self.worker.token.clone();
        let cut = tokio::select! {
            () = token.cancelled() => return Ok(Some(FillEnd::Shutdown)),
            announced = offered.announced => announced,
        };
        // The job's run ended before it opened an epoch: its next run takes a new offer.
        let Ok(cut) = cut else { return Ok(None) };
        self.worker.absorb(cut).await?;
        if self.worker.read_to == cut {
            self.commit_epoch(cut, self.caught_up(), started).await?;
            if self.worker.views.running.contains_key(&self.view) {
                shared.pass("runtime::fill_reached")?;
                if offered.reached.send(()).is_ok() && offered.outcome.await == Ok(true) {
                    return Ok(Some(FillEnd::Over));
                }
            }
        }
        Ok(None)
    }

    fn caught_up(&self) -> FillPosition {
        FillPosition {
            rows_done: self.position.rows_done + self.worker.absorbed.n_changes,
            ..self.position.clone()
        }
    }

    /// One epoch of the fill, with its position. If the view faults in it, the epoch is given up.
    async fn commit_epoch(&mut self, cut: Timestamp, position: FillPosition, started: Instant) -> Result<()> {
        let opened = self.worker.open(cut).await?;
        let own = vec![Mutation::put(records::fill_position_key(self.worker.job), encode(&position)?)];
        let ends = match position.phase {
            FillPhase::Snapshot { .. } => Ends::Piece,
            FillPhase::CatchUp => Ends::Cut,
        };
        let sealed = self.worker.seal(opened.clone(), own, ends).await?;
        if self.worker.views.faults.contains_key(&self.view) {
            let (job, generation) = (self.worker.job, self.worker.generation);
            return self.worker.shared.coordinator.abort(job, generation, opened.epoch).await;
        }
        let run_bytes = sealed.run_bytes();
        let decided = self.worker.decide(sealed, &mut Nothing).await?;
        if let Some(fault) = self.worker.views.faults.get(&self.view).cloned() {
            // Found while prewriting: the epoch was decided without the view's keys, so its position lies.
            self.record_fault(fault).await?;
            return Err(Error::fenced("the fill's view faulted"));
        }
        self.worker.advance(opened, decided, run_bytes, started);
        self.position = position;
        self.report();
        self.worker.shared.pass("runtime::fill_piece_done")
    }

    fn report(&self) {
        let percent = match &self.position.phase {
            FillPhase::CatchUp => 100.0,
            FillPhase::Snapshot { table_index, last_key } => {
                let part = last_key.as_ref().and_then(|text| {
                    let key = from_hex(text).ok()?;
                    let (first, last) = self.bounds.get(*table_index)?.as_ref()?;
                    Some(fraction(first, last, &key))
                });
                let n_tables = self.base_tables.len().max(1) as f64;
                100.0 * (*table_index as f64 + part.unwrap_or(0.0)) / n_tables
            }
        };
        let progress = FillProgress { percent, rows_done: self.position.rows_done };
        self.worker.shared.board.report_fill(self.worker.job, progress);
    }

    /// Records the fault in the catalog and ends the fill: a new view is faulted; one that was to replace
    /// another goes, and the other says why if it is faulted itself.
    async fn record_fault(&mut self, fault: ViewFault) -> Result<()> {
        let (fill, view, cut) = (self.worker.job, self.view, self.worker.read_to);
        let shared = Arc::clone(&self.worker.shared);
        let text = match &fault.key {
            Some(key) => format!("the view faulted: {} at {key}", fault.reason),
            None => format!("the view faulted: {}", fault.reason),
        };
        shared.fill_failed(view, text);
        let make = move |catalog: &Catalog, _now: Timestamp| end_faulted(catalog, view, fill, &fault, cut);
        commit_ddl(&shared, &make).await?;
        shared.coordinator.forget(fill).await
    }
}

fn end_faulted(
    catalog: &Catalog,
    view: TableId,
    fill: JobId,
    fault: &ViewFault,
    cut: Timestamp,
) -> Result<CatalogChange> {
    let Some(definition) = catalog.tables.get(&view).filter(|known| is_filled_by(known, fill)) else {
        return Ok(CatalogChange::default());
    };
    let ViewFault { reason, key, changed } = fault.clone();
    let Some(old) = view_of(definition)?.replaces else {
        let state = ViewState::Faulted { reason, key, at: cut };
        let mut change = match changed {
            Some(since) => catalog.fault_by_change(view, state, &since.catalog)?,
            None => catalog.set_view_state(view, state)?,
        };
        change.mutations.push(Mutation::delete(records::epoch_record_key(fill)));
        change.mutations.push(Mutation::delete(records::fill_position_key(fill)));
        return Ok(change);
    };
    let mut changes = vec![catalog.abandon_view(view)?];
    let old_state =
        catalog.tables.get(&old).map(|old| view_of(old).map(|old| old.state.clone())).transpose()?;
    if let Some(ViewState::Faulted { at, .. }) = old_state {
        let reason = format!("rebuilding failed: {reason}");
        changes.push(catalog.set_view_state(old, ViewState::Faulted { reason, key, at })?);
    }
    Ok(catalog.merge(changes))
}

/// The first and the last key of a table at the snapshot; `None` if it is empty.
async fn bounds_of(snapshot: &Snapshot, ranges: &[KeyRange]) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    let mut first = None;
    for range in ranges {
        first = snapshot.scan(range, 1).await?.into_iter().next();
        if first.is_some() {
            break;
        }
    }
    let mut last = None;
    for range in ranges.iter().rev() {
        last = snapshot.scan_reverse(range, 1).await?.into_iter().next();
        if last.is_some() {
            break;
        }
    }
    Ok(first.zip(last).map(|((first, _), (last, _))| (first.to_vec(), last.to_vec())))
}

/// Where a key lies between two others, by the first eight bytes that tell them apart.
fn fraction(first: &[u8], last: &[u8], key: &[u8]) -> f64 {
    let same = first.iter().zip(last).take_while(|(left, right)| left == right).count();
    let number = |bytes: &[u8]| {
        let tail = bytes.get(same..).unwrap_or_default();
        (0..8).fold(0_u64, |number, index| number << 8 | u64::from(tail.get(index).copied().unwrap_or(0)))
    };
    let (low, high, at) = (number(first), number(last), number(key));
    if high <= low {
        return 1.0;
    }
    (at.clamp(low, high) - low) as f64 / (high - low) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_lies_between_the_bounds() {
        assert!((fraction(b"t1_r\x00", b"t1_r\xff", b"t1_r\x80") - 0.5).abs() < 0.01);
        assert!((fraction(b"t1_a", b"t1_a", b"t1_a") - 1.0).abs() < f64::EPSILON, "one row");
        assert!((fraction(b"a", b"b", b"a")).abs() < f64::EPSILON);
        assert!((fraction(b"a", b"b", b"b") - 1.0).abs() < f64::EPSILON);
    }
}
