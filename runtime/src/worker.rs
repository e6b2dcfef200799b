//! One run of a job, from take-over to its end: the steps that continuous jobs and fills share.
//!
//! ```text
//! take_over --> load views --> [ absorb changes --> open --> seal --> write runs --> decide ]*
//! ```
//!
//! A run holds its state in memory only; whatever goes wrong with it, it is dropped and the next
//! generation resumes from the frontier. Between two epochs every view stands exactly at the frontier's
//! cut plus what was absorbed since.

mod altered;
mod foreign;
mod place;

use std::collections::BTreeMap;
use std::sync::Arc;

use coordinator::{Decision, Fault, OpenRequest, Opened, Prepared, SealedRequest, TakenOver, VoteRequest};
use operators::{DataflowOptions, RunSource};
use sink::load_manifests;
use source::{ChangeCursor, RowsPage, Source, TableSource};
use sql::catalog::{Catalog, SchemaStamp, TableDefinition, ViewDefinition, ViewState};
use store::{Mutation, Snapshot};
use tokio_util::sync::CancellationToken;
use types::records::EpochRecord;
use types::{Epoch, Error, ErrorKind, Generation, JobId, Result, TableId, Timestamp};

use crate::records::ViewStats;
use crate::refresh::Changed;
use crate::shared::Shared;
use crate::transaction::{EpochTransaction, Prewritten, assert_distinct, repeat};
use crate::views::{ChangedSince, Ends, Stored, Tables, View, ViewFault, ViewPart, Views};
use crate::{EpochStatus, LOSES_ROWS};

pub(crate) use place::{Nothing, Place};

/// Source changes of one page.
const CHANGES_PER_PAGE: usize = 8192;
/// Absorbed source bytes end an epoch early when they exceed this part of the memory limit: decoded and in
/// state they are several times as many.
const MEMORY_PARTS: u64 = 8;

/// One run of a job.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) job: JobId,
    /// Which of the run's workers it is.
    pub(crate) place: Place,
    /// Cancelled when the job is to stop.
    pub(crate) token: CancellationToken,
    pub(crate) generation: Generation,
    /// The newest decided epoch.
    pub(crate) frontier: EpochRecord,
    /// When it committed, or later.
    pub(crate) commit_ts: Timestamp,
    /// The definitions that are loaded.
    pub(crate) definitions: u64,
    pub(crate) views: Views,
    source: Arc<TableSource>,
    tables: Arc<Tables>,
    /// Source changes up to here are in the views.
    pub(crate) read_to: Timestamp,
    /// Changes and bytes absorbed since the last epoch.
    pub(crate) absorbed: Absorbed,
    /// TiDB's schema by which the tables of the views that run were last found as they were made.
    verified: Option<Option<SchemaStamp>>,
}

/// What was taken in since the last epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Absorbed {
    /// Source changes or rows.
    pub(crate) n_changes: u64,
    /// Those of the changes that are insertions.
    pub(crate) n_inserted: u64,
    /// Those of the changes that are deletions.
    pub(crate) n_deleted: u64,
    /// Their bytes.
    pub(crate) n_bytes: u64,
}

/// An epoch that every view has sealed.
pub(crate) struct SealedEpoch {
    pub(crate) opened: Opened,
    pub(crate) parts: BTreeMap<TableId, ViewPart>,
    /// Further keys of the job itself (a fill's position).
    pub(crate) own: Vec<Mutation>,
}

/// An epoch that is decided, its keys committed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decided {
    pub(crate) commit_ts: Timestamp,
    pub(crate) n_keys: u64,
}

/// What else belongs into an epoch's transaction, known only once its start is: read at it.
#[async_trait::async_trait]
pub(crate) trait AtStart: Send {
    /// The further mutations of the transaction that starts at the snapshot. Called again for a new start.
    async fn mutations(
        &mut self,
        snapshot: &Snapshot,
        catalog: &Catalog,
        cut: Timestamp,
        faults: &BTreeMap<TableId, ViewFault>,
    ) -> Result<Vec<Mutation>>;
}

impl Worker {
    /// A worker of a run that begins.
    fn at_frontier(
        shared: Arc<Shared>,
        job: JobId,
        token: CancellationToken,
        taken: TakenOver,
        place: Place,
    ) -> Result<Worker> {
        let source = Arc::new(TableSource::new(Arc::clone(&shared.store), [])?);
        let read_to = taken.frontier.cut;
        Ok(Worker {
            job,
            place,
            token,
            generation: taken.generation,
            definitions: taken.frontier.definitions,
            frontier: taken.frontier,
            commit_ts: taken.commit_ts,
            views: Views::default(),
            source,
            tables: Arc::default(),
            read_to,
            absorbed: Absorbed::default(),
            verified: None,
            shared,
        })
    }

    /// Opens a view over its state at a timestamp and adds it; a plan that is not the stored one faults it. Of
    /// TiDB's tables the catalog says what they were at `read_to` ([`Worker::as_of_read`]).
    ///
    /// # Errors
    /// What is not the view's own fault.
    pub(crate) async fn load_view(
        &mut self,
        catalog: &Arc<Catalog>,
        definition: &Arc<TableDefinition>,
        at: Timestamp,
    ) -> Result<()> {
        let id = definition.id();
        let stored = read_stored(&self.shared, id, at).await;
        let opened = match stored {
            Ok(stored) => self.open_view(catalog, definition, stored).await,
            Err(error) => Err(error),
        };
        match opened {
            Ok(view) => {
                self.verified = None;
                self.views.running.insert(id, view);
                Ok(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Corrupt) => {
                let mut fault = ViewFault::new(error.message(), None);
                // What it reads of TiDB, or a view over that, is not what it was.
                let is_foreign = catalog.reads_foreign(&view_of(definition)?.base_tables);
                fault.changed =
                    is_foreign.then(|| ChangedSince { catalog: Arc::clone(catalog), at: self.read_to });
                self.views.fault(id, fault);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn open_view(
        &self,
        catalog: &Arc<Catalog>,
        definition: &Arc<TableDefinition>,
        stored: Stored,
    ) -> Result<View> {
        let catalog = Arc::clone(catalog);
        let definition = Arc::clone(definition);
        let runs: Arc<dyn RunSource> = Arc::clone(&self.shared.runs) as Arc<dyn RunSource>;
        let options = DataflowOptions {
            parallelism: self.shared.options.parallelism,
            memory_bytes_max: self.shared.options.memory_limit_bytes as u64,
        };
        let planner = Arc::clone(&self.shared.options.planner);
        let checksums = self.shared.tidb.checksums();
        let open = move || {
            let view = view_of(&definition)?;
            let settings =
                sql::Settings { database: None, ..sql::Settings::default() }.with_view(&view.settings);
            let catalog = catalog.bound_to(view);
            let planned = planner.plan_view(&catalog, &view.query, &view.columns, &settings)?;
            if planned.fingerprint != view.fingerprint {
                return Err(Error::invalid("plan changed: the stored state belongs to another plan"));
            }
            let view = View::open(definition, Arc::new(planned.plan), &stored, &runs, options)?;
            Ok(view.with_checksums(checksums))
        };
        self.shared.supervisor.blocking("opening a view", open).await
    }

    /// Reads the base tables that the views need now; TiDB's as they were at `read_to`.
    ///
    /// # Errors
    /// `Corrupt` if a base table is not in the catalog.
    pub(crate) fn bind_sources(&mut self, catalog: &Catalog) -> Result<()> {
        let mut tables = Tables::default();
        let mut needed = Vec::new();
        for (table, columns) in self.views.needed() {
            let definition = catalog
                .tables
                .get(&table)
                .ok_or_else(|| Error::corrupt(format!("base table {table} of job {} is gone", self.job)))?;
            let columns: Vec<usize> = columns.into_iter().collect();
            tables.add(table, columns.clone(), definition);
            let positions = columns.iter().map(|number| definition.column_position(*number));
            let positions: Option<Vec<usize>> = positions.collect();
            let positions =
                positions.ok_or_else(|| Error::corrupt(format!("a column of base table {table} is gone")))?;
            needed.push((definition, positions));
        }
        let infos = needed.iter().map(|(table, positions)| (Arc::new(table.info.clone()), positions.clone()));
        let mut source = TableSource::new(Arc::clone(&self.shared.store), infos)?;
        for (table, _) in &needed {
            source = source.partitioned(table.id(), table.physical_ids());
        }
        self.source = Arc::new(source);
        self.tables = Arc::new(tables);
        Ok(())
    }

    /// The source of the base tables.
    pub(crate) fn source(&self) -> &Arc<TableSource> {
        &self.source
    }

    /// Absorbs the changes in (`read_to`, `to`]; stops earlier, after a whole transaction, when memory is
    /// full. `read_to` says how far it came. History that is gone faults every view that needs it (G7).
    ///
    /// # Errors
    /// What the store says.
    pub(crate) async fn absorb(&mut self, to: Timestamp) -> Result<()> {
        self.look_for_changes(to).await?;
        let mut to = to;
        let mut cursor: Option<ChangeCursor> = None;
        while self.read_to < to {
            let read = self.source.read_changes(self.read_to, to, cursor.take(), CHANGES_PER_PAGE).await;
            let page = match read {
                Ok(page) => page,
                Err(error) if error.is_history_gone() => {
                    self.lose_history(&error);
                    break;
                }
                Err(error) => return Err(error),
            };
            self.absorbed.n_changes += page.n_changes;
            self.absorbed.n_inserted += page.n_inserted;
            self.absorbed.n_deleted += page.n_deleted;
            self.absorbed.n_bytes += page.n_bytes;
            cursor.clone_from(&page.next);
            if page.n_changes > 0 {
                let tables = Arc::clone(&self.tables);
                self.with_views("absorbing changes", move |views| views.push_changes(&page, &tables)).await?;
            }
            match &cursor {
                None => break,
                // The transaction that the page ended in is finished, and no more.
                Some(next) if self.is_full() => to = next.commit_ts,
                Some(_) => {}
            }
        }
        self.read_to = self.read_to.max(to);
        Ok(())
    }

    /// Moves to a timestamp without reading what changed: for a worker without views.
    pub(crate) fn skip_to(&mut self, to: Timestamp) {
        assert!(self.views.running.is_empty(), "a view would miss what is skipped");
        self.read_to = self.read_to.max(to);
    }

    /// Pushes a page of a table's rows into the views.
    ///
    /// # Errors
    /// What is not a view's own fault.
    pub(crate) async fn push_rows(&mut self, table: TableId, page: RowsPage) -> Result<()> {
        let tables = Arc::clone(&self.tables);
        self.with_views("absorbing rows", move |views| views.push_rows(table, &page, &tables)).await
    }

    /// Whether the open epoch has taken in as much as memory allows.
    pub(crate) fn is_full(&self) -> bool {
        let limit = self.shared.options.memory_limit_bytes as u64 / MEMORY_PARTS;
        self.absorbed.n_bytes > limit || self.views.fold_bytes() > limit
    }

    fn lose_history(&mut self, error: &Error) {
        let reading: Vec<TableId> = self
            .views
            .running
            .values()
            .filter(|view| view_of(&view.definition).is_ok_and(|view| !view.base_tables.is_empty()))
            .map(View::id)
            .collect();
        for view in reading {
            self.views.fault(view, ViewFault::new(error.message(), None));
        }
    }

    /// Works on the views on a blocking thread.
    ///
    /// # Errors
    /// What the work returns; `Corrupt` if it panicked, and then the run is over.
    pub(crate) async fn with_views<T: Send + 'static>(
        &mut self,
        name: &str,
        work: impl FnOnce(&mut Views) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let mut views = std::mem::take(&mut self.views);
        let moved = move || {
            let outcome = work(&mut views);
            Ok((views, outcome))
        };
        let (views, outcome) = self.shared.supervisor.blocking(name, moved).await?;
        self.views = views;
        outcome
    }

    /// Begins the next epoch with a cut.
    ///
    /// # Errors
    /// What the coordinator says.
    pub(crate) async fn open(&mut self, cut: Timestamp) -> Result<Opened> {
        let request = OpenRequest { job: self.job, generation: self.generation, cut: Some(cut) };
        let coordinator = &self.shared.coordinator;
        let opened = repeat(|| coordinator.open(request.clone())).await?;
        self.shared.pass("runtime::opened")?;
        assert_eq!(opened.epoch, self.frontier.epoch.next(), "epochs follow each other");
        assert_eq!(opened.cut, cut, "the cut is the one that was asked for");
        Ok(opened)
    }

    /// Seals every view and writes the runs, ahead of the decision.
    ///
    /// # Errors
    /// What is not a view's own fault.
    pub(crate) async fn seal(
        &mut self,
        opened: Opened,
        own: Vec<Mutation>,
        ends: Ends,
    ) -> Result<SealedEpoch> {
        let (job, generation, epoch) = (self.job, self.generation, opened.epoch);
        self.shared.board.waiting_for(job, "views to seal");
        let parts =
            self.with_views("sealing views", move |views| views.seal(job, generation, epoch, ends)).await?;
        self.shared.pass("runtime::sealed")?;
        self.shared.board.waiting_for(job, "runs to be written");
        for part in parts.values() {
            let runs = &self.shared.runs;
            repeat(|| runs.write_runs(&part.runs)).await?;
        }
        self.shared.pass("runtime::runs_written")?;
        Ok(SealedEpoch { opened, parts, own })
    }

    /// Carries a sealed epoch to its decision and commits its keys: retries under new starts, loads newer
    /// definitions, records faults.
    ///
    /// # Errors
    /// `Fenced` if a newer run exists; whatever ends this run.
    pub(crate) async fn decide(
        &mut self,
        mut sealed: SealedEpoch,
        at_start: &mut dyn AtStart,
    ) -> Result<Decided> {
        let mut retry_of = None;
        loop {
            match self.report_sealed(&sealed, retry_of).await? {
                Prepared::DefinitionsChanged { definitions, at } => {
                    self.load_definitions(definitions, at, &mut sealed).await?;
                }
                Prepared::Prewrite { start_ts, primary, ttl_ms, min_commit_ts, faults } => {
                    self.shared.pass("runtime::prepared")?;
                    for fault in &faults {
                        sealed.parts.remove(&fault.view);
                    }
                    if self.place.leads() {
                        self.hear_of(&faults).await?;
                    }
                    let store = Arc::clone(&self.shared.store);
                    let transaction = EpochTransaction { store, start_ts, primary, ttl_ms, min_commit_ts };
                    let attempt = self.attempt(&mut sealed, &transaction, at_start).await?;
                    if let Some(decided) = attempt {
                        return Ok(decided);
                    }
                    retry_of = Some(start_ts);
                }
            }
        }
    }

    async fn report_sealed(&mut self, sealed: &SealedEpoch, retry_of: Option<Timestamp>) -> Result<Prepared> {
        self.shared.board.waiting_for(self.job, "the coordinator to prepare the transaction");
        let fault = |(view, fault): (&TableId, &ViewFault)| Fault {
            view: *view,
            reason: fault.reason.clone(),
            key: fault.key.clone(),
            changed_since: fault.changed.as_ref().map(|since| since.at),
        };
        let request = SealedRequest {
            job: self.job,
            generation: self.generation,
            epoch: sealed.opened.epoch,
            worker: self.place.worker,
            definitions: self.definitions,
            retry_of,
            faults: self.views.faults.iter().map(fault).collect(),
        };
        let coordinator = &self.shared.coordinator;
        repeat(|| coordinator.sealed(request.clone())).await
    }

    /// One start of the epoch's transaction; `None` if it must be tried under a new one.
    async fn attempt(
        &mut self,
        sealed: &mut SealedEpoch,
        transaction: &EpochTransaction,
        at_start: &mut dyn AtStart,
    ) -> Result<Option<Decided>> {
        self.shared.board.waiting_for(self.job, "keys to be prewritten");
        let cut = sealed.opened.cut;
        let snapshot = Snapshot::new(Arc::clone(&self.shared.store), transaction.start_ts);
        self.shared.store.wait_visible(transaction.start_ts).await?;
        let catalog = self.shared.catalog.load_at(&snapshot).await?;
        if self.fault_altered(&catalog, &catalog.foreign, sealed) {
            self.pass_start(sealed.opened.epoch, transaction.start_ts).await?;
            return Ok(None);
        }
        let mut mutations = at_start.mutations(&snapshot, &catalog, cut, &self.views.faults).await?;
        mutations.extend(sealed.own.iter().cloned());
        if store::failpoints::pass(LOSES_ROWS).is_ok() {
            mutations.extend(sealed.parts.values().flat_map(|part| part.mutations.iter().cloned()));
        }
        assert_distinct(&mutations)?;
        let prewritten = transaction.prewrite(&mutations).await?;
        self.shared.pass("runtime::prewritten")?;
        if let Prewritten::Foreign { view, key, reason } = &prewritten {
            let key = Some(tidb::describe_key(key));
            self.views.fault(*view, ViewFault::new(*reason, key));
            sealed.parts.remove(view);
        }
        let mut done = prewritten == Prewritten::Done;
        if done && self.fault_altered_since(&catalog, sealed).await? {
            done = false;
        }
        self.vote(sealed.opened.epoch, transaction.start_ts, done).await?;
        self.shared.pass("runtime::voted")?;
        self.shared.board.waiting_for(self.job, "the decision");
        match self.decision(sealed.opened.epoch, transaction.start_ts).await? {
            Decision::Committed { commit_ts } => {
                self.shared.pass("runtime::decided")?;
                transaction.commit(&mutations, commit_ts).await?;
                self.shared.pass("runtime::committed")?;
                Ok(Some(Decided { commit_ts, n_keys: mutations.len() as u64 + 1 }))
            }
            Decision::Retry => {
                transaction.roll_back(&mutations).await?;
                self.shared.pass("runtime::rolled_back")?;
                Ok(None)
            }
        }
    }

    async fn vote(&self, epoch: Epoch, start_ts: Timestamp, done: bool) -> Result<()> {
        let (job, generation, worker) = (self.job, self.generation, self.place.worker);
        let request = VoteRequest { job, generation, epoch, worker, start_ts, done };
        repeat(|| self.shared.coordinator.vote(request.clone())).await
    }

    async fn decision(&self, epoch: Epoch, start_ts: Timestamp) -> Result<Decision> {
        repeat(|| self.shared.coordinator.decision(self.job, self.generation, epoch, start_ts)).await
    }

    /// Newer definitions: what belongs to views that are gone, or are not this job's to maintain any more,
    /// is dropped from the epoch.
    async fn load_definitions(
        &mut self,
        definitions: u64,
        at: Timestamp,
        sealed: &mut SealedEpoch,
    ) -> Result<()> {
        let catalog = self.shared.catalog_at(at).await?;
        let known: Vec<TableId> =
            self.views.running.keys().chain(self.views.faults.keys()).copied().collect();
        for view in known {
            let there = catalog.tables.get(&view).is_some_and(|definition| self.maintains(definition));
            if !there {
                tracing::info!(job = self.job.0, view = view.0, "a view of the job is gone");
                self.views.remove(view);
                sealed.parts.remove(&view);
            }
        }
        self.definitions = definitions;
        let catalog = self.as_of_read(&catalog).await?;
        self.bind_sources(&catalog)?;
        self.shared.pass("runtime::definitions_loaded")
    }

    /// Whether a view is this worker's to maintain: as its job's once it is published, as its fill's before.
    pub(crate) fn maintains(&self, definition: &TableDefinition) -> bool {
        self.place.has(definition.id())
            && definition.view.as_ref().is_some_and(|view| match view.state {
                ViewState::Ready => view.job == self.job,
                ViewState::Filling => view.fill_job == Some(self.job),
                ViewState::Unfilled | ViewState::Faulted { .. } => false,
            })
    }

    /// The epoch is decided and its keys are committed: it is the frontier now.
    pub(crate) fn advance(
        &mut self,
        opened: Opened,
        decided: Decided,
        run_bytes: u64,
        started: tokio::time::Instant,
    ) {
        assert!(opened.cut < decided.commit_ts, "an epoch commits after its cut");
        assert!(self.commit_ts < decided.commit_ts, "epochs commit in order");
        self.frontier = EpochRecord {
            epoch: opened.epoch,
            cut: opened.cut,
            generation: self.generation,
            definitions: self.definitions,
        };
        self.commit_ts = decided.commit_ts;
        self.views.faults.clear();
        let status = EpochStatus {
            job: self.job,
            epoch: opened.epoch,
            cut: opened.cut,
            commit_ts: decided.commit_ts,
            generation: self.generation,
            n_changes: self.absorbed.n_changes,
            n_keys: decided.n_keys,
            run_bytes,
            duration_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        self.absorbed = Absorbed::default();
        metrics::counter!("tidemill_epochs_total").increment(1);
        metrics::histogram!("tidemill_epoch_duration_ms").record(status.duration_ms as f64);
        let board = &self.shared.board;
        board.report_views(self.job, self.views.rows(), self.views.operators(self.job));
        board.decided(status, self.shared.options.epochs_remembered);
        board.waiting_for(self.job, "changes");
    }
}

impl Absorbed {
    /// The changes among it.
    pub(crate) fn changed(self) -> Changed {
        let Absorbed { n_changes, n_inserted, n_deleted, n_bytes: _ } = self;
        Changed { n_changes, n_inserted, n_deleted }
    }
}

impl SealedEpoch {
    /// Bytes of the runs that were written for it.
    pub(crate) fn run_bytes(&self) -> u64 {
        self.parts.values().flat_map(|part| &part.runs).map(|run| run.bytes.len() as u64).sum()
    }
}

/// What makes a definition a view.
///
/// # Errors
/// `Corrupt` if it is a base table's.
pub(crate) fn view_of(definition: &TableDefinition) -> Result<&ViewDefinition> {
    definition.view.as_ref().ok_or_else(|| Error::corrupt(format!("'{}' is no view", definition.full_name())))
}

async fn read_stored(shared: &Shared, view: TableId, at: Timestamp) -> Result<Stored> {
    let manifests = load_manifests(&shared.store, view, at).await?;
    let stats = ViewStats::read(&Snapshot::new(Arc::clone(&shared.store), at), view).await?;
    Ok(Stored { manifests, stats })
}
