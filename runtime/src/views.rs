//! The views of a job at work: each a dataflow and a sink of its own, fed with the same source deltas.
//!
//! Synchronous; driven from blocking threads. What goes wrong with one view's data, a panic included, is
//! that view's fault: it stops there and the others go on (G10). Only what is nobody's data (the store is
//! away, the handle is closed) is an error of the whole run.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::{ArrayRef, NullArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema};
use operators::{Dataflow, DataflowOptions, Manifest, Plan, Rest, RunNamer, RunSource, SealedRun};
use sink::{Fold, SINK_STATE, SinkError, ViewSink, manifest_mutation};
use source::{ChangesPage, RowFault, RowsPage};
use sql::catalog::{Catalog, TableDefinition};
use store::Mutation;
use types::{Delta, Epoch, Error, ErrorKind, Generation, JobId, Result, StateId, TableId, Timestamp};

use crate::OperatorStatus;
use crate::board::Merged;
use crate::records::{ViewStats, encode, rows_of, view_stats_key};
use crate::supervisor::panic_text;

/// Why a view was cut off.
#[derive(Clone, Debug)]
pub(crate) struct ViewFault {
    /// What happened.
    pub(crate) reason: String,
    /// The key of the row, in words, if one is known.
    pub(crate) key: Option<String>,
    /// If TiDB changed a table: the catalog before, for the names that it had; the view is built anew.
    pub(crate) changed: Option<ChangedSince>,
}

/// The catalog before a change of TiDB's.
#[derive(Clone, Debug)]
pub(crate) struct ChangedSince {
    /// What it was.
    pub(crate) catalog: Arc<Catalog>,
    /// When TiDB's side was so.
    pub(crate) at: Timestamp,
}

impl ViewFault {
    /// A fault, with the key of a row if one is known.
    pub(crate) fn new(reason: impl Into<String>, key: Option<String>) -> ViewFault {
        ViewFault { reason: reason.into(), key, changed: None }
    }
}

/// One view's part of a sealed epoch.
#[derive(Clone, Debug, Default)]
pub(crate) struct ViewPart {
    /// Rows, manifests and the row count: each key once.
    pub(crate) mutations: Vec<Mutation>,
    /// Runs to write before the vote.
    pub(crate) runs: Vec<SealedRun>,
}

impl ViewPart {
    /// How many rows of the view it writes or deletes.
    ///
    /// # Errors
    /// As [`rows_of`].
    pub(crate) fn n_rows_written(&self, view: TableId) -> Result<u64> {
        let rows = rows_of(view)?;
        Ok(self.mutations.iter().filter(|mutation| rows.contains(&mutation.key)).count() as u64)
    }
}

/// What sealing ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// An epoch whose views stand at its cut: what fails there is a fault.
    Cut,
    /// A piece of a fill with more to come: rows that fail may be gone when the last piece is in.
    Piece,
}

/// A view at work.
pub(crate) struct View {
    /// Its definition.
    pub(crate) definition: Arc<TableDefinition>,
    dataflow: Dataflow,
    sink: ViewSink,
    fold: Fold,
    /// Stored rows as of what was sealed last.
    pub(crate) n_rows: u64,
    /// Columns that the plan reads, by base table: the numbers that the plan has for them.
    pub(crate) needed: BTreeMap<TableId, BTreeSet<usize>>,
}

/// What a view is opened from.
pub(crate) struct Stored {
    /// Its manifests, by state number.
    pub(crate) manifests: BTreeMap<u32, Manifest>,
    /// Its row count.
    pub(crate) stats: ViewStats,
}

impl View {
    /// Opens a view over its state.
    ///
    /// # Errors
    /// `Invalid` or `Corrupt` if plan, definition and state do not fit.
    pub(crate) fn open(
        definition: Arc<TableDefinition>,
        plan: Arc<Plan>,
        stored: &Stored,
        runs: &Arc<dyn RunSource>,
        options: DataflowOptions,
    ) -> Result<View> {
        let n_states = u32::try_from(plan.states_count()).map_err(|_| Error::corrupt("too many states"))?;
        let unknown = stored.manifests.keys().find(|state| **state >= n_states && **state != SINK_STATE);
        if let Some(state) = unknown {
            return Err(Error::corrupt(format!(
                "state {state} is stored, but the plan has {n_states} states"
            )));
        }
        let manifest = |state| stored.manifests.get(&state).cloned().unwrap_or_default();
        let manifests = (0..n_states).map(manifest).collect();
        let needed = sql::used_columns(&plan);
        let dataflow = Dataflow::open(plan, manifests, Arc::clone(runs), options)?;
        let sink = ViewSink::open(&definition.info, stored.manifests.get(&SINK_STATE), Arc::clone(runs))?;
        let n_rows = stored.stats.n_rows;
        Ok(View { definition, dataflow, sink, fold: Fold::default(), n_rows, needed })
    }

    /// The view, whose rows are written with checksums if they lie in TiDB and its rows have them now, or, if
    /// that is not known, had them when the table was made.
    pub(crate) fn with_checksums(self, now: Option<bool>) -> View {
        let made = self.definition.tidb().map(|tidb| tidb.checksums);
        let has_checksums = made.is_some_and(|made| now.unwrap_or(made));
        View { sink: self.sink.with_checksums(has_checksums), ..self }
    }

    /// Its id.
    pub(crate) fn id(&self) -> TableId {
        self.definition.id()
    }

    /// Folds what was pushed, with more to come before the cut.
    fn early_barrier(&mut self, rest: Rest) -> std::result::Result<(), SinkError> {
        let output = self.dataflow.early_barrier(rest)?;
        self.sink.add(&mut self.fold, &output)
    }

    fn seal(&mut self, namer: &mut RunNamer, ends: Ends) -> std::result::Result<ViewPart, SinkError> {
        let output = match ends {
            Ends::Cut => self.dataflow.barrier()?,
            Ends::Piece => self.dataflow.early_barrier(Rest::Inserts)?,
        };
        self.sink.add(&mut self.fold, &output)?;
        let prepared = self.sink.prepare(std::mem::take(&mut self.fold))?;
        let mut sealed = self.dataflow.seal(namer)?;
        let sink_manifest = self.sink.seal(namer, &mut sealed.runs)?;
        let mut mutations = prepared.mutations;
        let view = self.id();
        for (state, manifest) in &sealed.manifests {
            mutations.push(manifest_mutation(StateId { view, state: *state }, manifest)?);
        }
        if let Some(manifest) = sink_manifest {
            mutations.push(manifest_mutation(self.sink.state_id(), &manifest)?);
        }
        if prepared.n_rows_change != 0 {
            self.n_rows = self
                .n_rows
                .checked_add_signed(prepared.n_rows_change)
                .ok_or_else(|| Error::corrupt("the number of stored rows became negative"))?;
            let stats = ViewStats { n_rows: self.n_rows };
            mutations.push(Mutation::put(view_stats_key(view), encode(&stats)?));
        }
        Ok(ViewPart { mutations, runs: sealed.runs })
    }

    fn operators(&self, job: JobId) -> Vec<OperatorStatus> {
        let view = self.id();
        let (sink_rows, sink_bytes) = self.sink.state_size();
        let statistics = self.dataflow.statistics();
        let n_nodes = statistics.len();
        let mut operators: Vec<OperatorStatus> = statistics
            .into_iter()
            .map(|operator| OperatorStatus {
                view,
                job,
                node: operator.node.0,
                operator: operator.name.to_owned(),
                rows_in: operator.rows_in,
                rows_out: operator.rows_out,
                state_rows: operator.state_rows,
                state_bytes: operator.state_bytes,
            })
            .collect();
        let rows_in = operators.last().map_or(0, |output| output.rows_out);
        operators.push(OperatorStatus {
            view,
            job,
            node: n_nodes,
            operator: "sink".to_owned(),
            rows_in,
            rows_out: rows_in,
            state_rows: sink_rows,
            state_bytes: sink_bytes,
        });
        operators
    }
}

/// All views of a job, and the faults that the next epoch will record.
#[derive(Default)]
pub(crate) struct Views {
    /// The views that work.
    pub(crate) running: BTreeMap<TableId, View>,
    /// Views that were cut off since the last epoch.
    pub(crate) faults: BTreeMap<TableId, ViewFault>,
}

impl Views {
    /// Every base table that a view reads, with the columns somebody needs.
    pub(crate) fn needed(&self) -> BTreeMap<TableId, BTreeSet<usize>> {
        let mut needed: BTreeMap<TableId, BTreeSet<usize>> = BTreeMap::new();
        for (table, columns) in self.running.values().flat_map(|view| &view.needed) {
            needed.entry(*table).or_default().extend(columns);
        }
        needed
    }

    /// Cuts a view off.
    pub(crate) fn fault(&mut self, view: TableId, fault: ViewFault) {
        tracing::warn!(view = view.0, reason = fault.reason, key = fault.key, "view faulted");
        self.running.remove(&view);
        self.faults.insert(view, fault);
    }

    /// Removes a view that is dropped.
    pub(crate) fn remove(&mut self, view: TableId) {
        self.running.remove(&view);
        self.faults.remove(&view);
    }

    /// Has states of a view merged when it is sealed, about so many bytes of each.
    pub(crate) fn compact(&mut self, view: TableId, states: &BTreeSet<u32>, n_bytes_max: usize) {
        let Some(view) = self.running.get_mut(&view) else { return };
        view.dataflow.compact(states, n_bytes_max);
        if states.contains(&SINK_STATE) {
            view.sink.compact(n_bytes_max);
        }
    }

    /// What sealing has made of a merge.
    pub(crate) fn merged(&self, view: TableId, states: &BTreeSet<u32>) -> Merged {
        let Some(view) = self.running.get(&view) else { return Merged::Nothing };
        let of_sink = states.contains(&SINK_STATE) && view.sink.is_compacting();
        if of_sink || view.dataflow.is_compacting(states) { Merged::Part } else { Merged::All }
    }

    /// Pushes a page of changes into every view.
    ///
    /// # Errors
    /// What is not a view's own fault.
    pub(crate) fn push_changes(&mut self, page: &ChangesPage, tables: &Tables) -> Result<()> {
        for changed in &page.deltas {
            self.push(changed.table, &changed.delta, tables, Rest::Changes)?;
        }
        self.fault_rows(&page.faults);
        Ok(())
    }

    /// Pushes a page of a table's rows into every view.
    ///
    /// # Errors
    /// What is not a view's own fault.
    pub(crate) fn push_rows(&mut self, table: TableId, page: &RowsPage, tables: &Tables) -> Result<()> {
        self.push(table, &page.delta, tables, Rest::Inserts)?;
        self.fault_rows(&page.faults);
        Ok(())
    }

    /// Pushes a delta of the columns that some view needs into every view, to each its own columns.
    fn push(&mut self, table: TableId, delta: &Delta, tables: &Tables, rest: Rest) -> Result<()> {
        let mut narrowed: BTreeMap<BTreeSet<usize>, Delta> = BTreeMap::new();
        for columns in self.running.values().filter_map(|view| view.needed.get(&table)) {
            if !narrowed.contains_key(columns) {
                narrowed.insert(columns.clone(), tables.narrow(table, delta, columns)?);
            }
        }
        self.each(|view| {
            let delta = view.needed.get(&table).and_then(|columns| narrowed.get(columns));
            let Some(delta) = delta.filter(|delta| !delta.is_empty()) else {
                return Ok(());
            };
            view.dataflow.push(table, delta)?;
            // Early barriers keep a huge epoch within the memory limit: state and fold take it in.
            if view.dataflow.wants_barrier() { view.early_barrier(rest) } else { Ok(()) }
        })
    }

    /// A row that cannot be decoded faults every view that reads its table.
    fn fault_rows(&mut self, faults: &[RowFault]) {
        for row in faults {
            let reads = |view: &View| view.needed.contains_key(&row.table);
            let hit: Vec<TableId> =
                self.running.iter().filter(|(_, view)| reads(view)).map(|(id, _)| *id).collect();
            for view in hit {
                let key = Some(tidb::describe_key(&row.key));
                self.fault(view, ViewFault::new(row.reason.clone(), key));
            }
        }
    }

    /// Seals every view; one that faults in it has no part.
    ///
    /// # Errors
    /// What is not a view's own fault.
    pub(crate) fn seal(
        &mut self,
        job: JobId,
        generation: Generation,
        epoch: Epoch,
        ends: Ends,
    ) -> Result<BTreeMap<TableId, ViewPart>> {
        let mut parts = BTreeMap::new();
        self.each(|view| {
            let mut namer = RunNamer::new(job, generation, epoch, view.id());
            parts.insert(view.id(), view.seal(&mut namer, ends)?);
            Ok(())
        })?;
        Ok(parts)
    }

    /// Does something with every view, and cuts off those that it fails for.
    fn each(&mut self, mut work: impl FnMut(&mut View) -> std::result::Result<(), SinkError>) -> Result<()> {
        let mut faults = Vec::new();
        for (id, view) in &mut self.running {
            match catch_unwind(AssertUnwindSafe(|| work(view))) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => faults.push((*id, own_fault(error)?)),
                Err(panic) => {
                    let reason = format!("panic: {}", panic_text(panic.as_ref()));
                    faults.push((*id, ViewFault::new(reason, None)));
                }
            }
        }
        for (id, fault) in faults {
            self.fault(id, fault);
        }
        Ok(())
    }

    /// Bytes that the open epoch keeps beside the states.
    pub(crate) fn fold_bytes(&self) -> u64 {
        self.running.values().map(|view| view.fold.n_bytes()).sum()
    }

    /// Stored rows, by view.
    pub(crate) fn rows(&self) -> BTreeMap<TableId, u64> {
        self.running.iter().map(|(id, view)| (*id, view.n_rows)).collect()
    }

    /// What every operator has done and keeps.
    pub(crate) fn operators(&self, job: JobId) -> Vec<OperatorStatus> {
        self.running.values().flat_map(|view| view.operators(job)).collect()
    }
}

/// The fault that an error is, unless it is not the view's own.
fn own_fault(error: SinkError) -> Result<ViewFault> {
    match error {
        SinkError::Fault(fault) => Ok(ViewFault::new(fault.reason, fault.key)),
        SinkError::Other(error) => match error.kind() {
            ErrorKind::Invalid | ErrorKind::Corrupt => Ok(ViewFault::new(error.message(), None)),
            ErrorKind::Conflict | ErrorKind::Fenced | ErrorKind::Unavailable | ErrorKind::Closed => {
                Err(error)
            }
        },
    }
}

/// The base tables of a job: how wide each is, and which columns are read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables {
    columns: BTreeMap<TableId, (Vec<usize>, usize)>,
    foreign: BTreeSet<TableId>,
}

impl Tables {
    /// Adds a table with the numbers of the columns that are read, in order.
    pub(crate) fn add(&mut self, table: TableId, columns: Vec<usize>, definition: &TableDefinition) {
        self.columns.insert(table, (columns, definition.width()));
        if definition.foreign.is_some() {
            self.foreign.insert(table);
        }
    }

    /// Whether a table is TiDB's.
    pub(crate) fn is_foreign(&self, table: TableId) -> bool {
        self.foreign.contains(&table)
    }

    /// Some of the columns that were read, where a dataflow expects them; all others hold nothing. The two
    /// rows of an update that does not change them cancel.
    fn narrow(&self, table: TableId, delta: &Delta, columns: &BTreeSet<usize>) -> Result<Delta> {
        let (read, n_columns) = self
            .columns
            .get(&table)
            .ok_or_else(|| Error::corrupt(format!("changes of table {table}, which no view reads")))?;
        let position = |column: &usize| {
            let found = read.binary_search(column);
            found.map_err(|_| Error::corrupt(format!("column {column} of table {table} was not read")))
        };
        let positions = columns.iter().map(position).collect::<Result<Vec<usize>>>()?;
        let delta = source::project_delta(delta, &positions)?;
        let n_rows = delta.n_rows();
        let nothing: ArrayRef = Arc::new(NullArray::new(n_rows));
        let no_field = Arc::new(Field::new("", DataType::Null, true));
        let mut arrays: Vec<ArrayRef> = (0..*n_columns).map(|_| Arc::clone(&nothing)).collect();
        let mut fields: Vec<Arc<Field>> = (0..*n_columns).map(|_| Arc::clone(&no_field)).collect();
        for (index, position) in columns.iter().enumerate() {
            arrays[*position] = Arc::clone(delta.column(index));
            fields[*position] = Arc::clone(&delta.schema().fields()[index]);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(n_rows));
        let batch = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)?;
        Ok(delta.with_batch(batch))
    }
}
