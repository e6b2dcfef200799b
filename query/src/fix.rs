//! The read fix: a view's dataflow over the changes since its checkpoint, in memory.
//!
//! The third driver of the same dataflow: it runs over a private overlay on the checkpoint's manifests and
//! commits nothing. It runs when it is known what the query wants of the view: changes that cannot lead to a
//! wanted row are not read, or not pushed. Its output is merged with the stored rows: by key, or by content
//! and count for a view under hidden handles. What it takes back must be there, otherwise the view is not
//! what its state says, and the read fails rather than answer something.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{ArrayRef, Int64Array, NullArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::catalog::Session;
use operators::{Dataflow, DataflowOptions, Manifest, Plan};
use source::{Source, TableDelta};
use sql::catalog::{Catalog, TableDefinition};
use store::{Key, Snapshot, Value, next_key};
use tidb::{RowDecoder, RowEncoder, TableInfo};
use types::{Delta, Error, Result, TableId, Timestamp};

use crate::counts::{Counted, Looked};
use crate::hybrid::HybridView;
use crate::names::Scope;
use crate::paths::{base_tables, table_source, view_of};
use crate::reads::Reads;
use crate::table::ContentFix;
use crate::transaction::{Write, Writes, writes_in};
use crate::wanted::{Mask, Wanted, WantedRows};
use crate::{Engine, PathChoice};

/// Plans of views, by view. A view's definition never changes under its id.
#[derive(Debug, Default)]
pub(crate) struct ViewPlans {
    known: Mutex<HashMap<TableId, Arc<Plan>>>,
}

/// Changes a page.
const PAGE_CHANGES: usize = 4096;
/// More pages are not read, however few of the changes in them are wanted.
const PAGES_MAX: usize = 64;
/// Up to so many changes the read fix is not worth a look at what else there is.
const SURELY_FEW_CHANGES: u64 = 4096;
/// A change costs the read fix as much as so many rows cost the query over the base tables.
const ROWS_A_CHANGE: u64 = 1;

/// How often a view's output has each row more than its stored rows do.
type Weights = BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, i64>>;

/// What a read fix has come to.
pub(crate) enum Fix {
    /// The stored rows with it; for the rows that were wanted they are the query's.
    Rows(FixedRows),
    /// The query over the base tables is cheaper, or the only way.
    Live(String),
}

/// Rows that a read fix lays over the stored ones, and what it took.
#[derive(Clone)]
pub(crate) struct FixedRows {
    /// Changed rows by key.
    pub(crate) overlay: Writes,
    /// Changed rows by content.
    pub(crate) content: Option<Arc<ContentFix>>,
    /// Changes that were read.
    pub(crate) n_changes: u64,
    /// Changed rows that came out.
    pub(crate) n_rows: usize,
}

/// The changes that a read fix takes in.
#[derive(Default)]
struct Pending {
    deltas: Vec<TableDelta>,
    n_changes: u64,
}

impl Engine {
    /// Runs the read fix of a view for the rows that are wanted.
    pub(crate) async fn read_fix(
        &self,
        view: &HybridView,
        wanted: &Wanted,
        state: &dyn Session,
    ) -> Result<Fix> {
        let HybridView { scope, definition, .. } = view;
        let plan = self.view_plan(&scope.catalog, definition)?;
        let tables = base_tables(&scope.catalog, view_of(definition)?)?;
        let rows = wanted.of_tables(&definition.info, &plan, tables.iter().map(AsRef::as_ref), state)?;
        let mut pending = match self.pending(view, &tables, &rows).await? {
            Ok(pending) => pending,
            Err(reason) => return Ok(Fix::Live(reason)),
        };
        for table in &tables {
            if let Some(own) = self.own_delta(scope, table, rows.get(&table.id())).await? {
                pending.deltas.push(own);
            }
        }
        let manifests = self.manifests(definition.id(), scope.at, plan.states_count()).await?;
        let runs = Arc::clone(self.runs());
        let options =
            DataflowOptions { parallelism: self.options().parallelism, ..DataflowOptions::default() };
        let Pending { deltas, n_changes } = pending;
        // Operators compute and read runs: not on a thread that serves others.
        let run = move || {
            let mut dataflow = Dataflow::open(plan, manifests, runs, options)?;
            for TableDelta { table, delta } in &deltas {
                dataflow.push(*table, delta)?;
            }
            dataflow.barrier()
        };
        let output = tokio::task::spawn_blocking(run).await;
        let output = output.map_err(|error| Error::corrupt(format!("the dataflow panicked: {error}")))??;
        let info = &definition.info;
        let output = output.with_batch(crate::select::renamed(output.batch(), &info.arrow_schema())?);
        let mask = wanted.of_view(info, state)?;
        let (overlay, content) = self.merge(scope, info, &mask, &mask.apply(&output)?).await?;
        let by_content = content.as_ref().map_or(0, |content| content.retracted.len() + content.added.len());
        let n_rows = overlay.len() + by_content;
        Ok(Fix::Rows(FixedRows { overlay, content, n_changes, n_rows }))
    }

    /// The wanted changes of the base tables in (S_k, T], or why the view should rather be read Live.
    async fn pending(
        &self,
        view: &HybridView,
        tables: &[Arc<TableDefinition>],
        wanted: &BTreeMap<TableId, WantedRows>,
    ) -> Result<std::result::Result<Pending, String>> {
        let HybridView { scope, cut, .. } = view;
        let mut pending = Pending::default();
        if scope.at <= *cut {
            return Ok(Ok(pending));
        }
        let is_forced = scope.session.path == PathChoice::Hybrid;
        let (id, looked) = (view.definition.id(), looked_at(tables, wanted));
        if let Some(counted) = self.counts().at_least(id, *cut, scope.at, &looked).filter(|_| !is_forced)
            && let Some(reason) = self.too_many(scope, tables, counted, SURELY_FEW_CHANGES).await?
        {
            return Ok(Err(format!("{reason}, as was counted before")));
        }
        let mut source = table_source(self.store(), tables)?;
        for (table, rows) in wanted {
            source = source.within(*table, rows.ranges.clone());
        }
        let mut weighed_at = SURELY_FEW_CHANGES;
        let mut cursor = None;
        let mut counted = Counted::default();
        loop {
            let page = match source.read_changes(*cut, scope.at, cursor, PAGE_CHANGES).await {
                Ok(page) => page,
                Err(error) if error.is_history_gone() => return Ok(Err(error.to_string())),
                Err(error) => return Err(error),
            };
            if let Some(fault) = page.faults.first() {
                return Ok(Err(format!("a change cannot be decoded: {}", fault.reason)));
            }
            pending.n_changes += page.n_changes;
            counted = Counted { n_changes: pending.n_changes, n_pages: counted.n_pages + 1 };
            if !is_forced {
                if let Some(reason) = self.too_many(scope, tables, counted, weighed_at).await? {
                    self.counts().note(id, *cut, scope.at, looked, counted);
                    return Ok(Err(reason));
                }
                if counted.n_changes > weighed_at {
                    weighed_at = counted.n_changes * 2;
                }
            }
            for TableDelta { table, delta } in page.deltas {
                let delta = match wanted.get(&table) {
                    Some(rows) => rows.mask.apply(&delta)?,
                    None => delta,
                };
                let definition = tables.iter().find(|known| known.id() == table);
                let delta = match definition {
                    Some(definition) => numbered(definition, &delta)?,
                    None => delta,
                };
                if !delta.is_empty() {
                    pending.deltas.push(TableDelta { table, delta });
                }
            }
            cursor = page.next;
            if cursor.is_none() {
                return Ok(Ok(pending));
            }
        }
    }

    /// Why so many changes are too many for a read fix, if they are. They are weighed against the tables'
    /// rows beyond a number of them.
    async fn too_many(
        &self,
        scope: &Scope,
        tables: &[Arc<TableDefinition>],
        counted: Counted,
        weighed_at: u64,
    ) -> Result<Option<String>> {
        let max = self.options().hybrid_changes_max as u64;
        if counted.n_changes > max {
            return Ok(Some(format!("more than {max} changes since the cut")));
        }
        if counted.n_pages > PAGES_MAX {
            return Ok(Some("too many commits since the cut".to_owned()));
        }
        if counted.n_changes > weighed_at {
            return self.outweighed(scope, tables, counted.n_changes).await;
        }
        Ok(None)
    }

    /// Why the query over the base tables is cheaper than so many changes, if it is.
    async fn outweighed(
        &self,
        scope: &Scope,
        tables: &[Arc<TableDefinition>],
        n_changes: u64,
    ) -> Result<Option<String>> {
        let most = n_changes.saturating_mul(ROWS_A_CHANGE);
        let n_rows = self.count_rows(scope, tables, most).await?;
        let text = || {
            format!("{n_changes} changes since the cut or more, and only {n_rows} rows in the base tables")
        };
        Ok((n_rows < most).then(text))
    }

    /// Counts rows of tables, up to a number beyond which it does not matter.
    async fn count_rows(&self, scope: &Scope, tables: &[Arc<TableDefinition>], most: u64) -> Result<u64> {
        let snapshot = Snapshot::new(Arc::clone(self.store()), scope.at);
        let mut n_rows = 0;
        for mut range in tables.iter().flat_map(|table| table.record_ranges()) {
            while n_rows < most {
                let keys = snapshot.scan_keys(&range, PAGE_CHANGES).await?;
                n_rows += keys.len() as u64;
                let Some(last) = keys.last().filter(|_| keys.len() >= PAGE_CHANGES) else { break };
                range.start = next_key(last).into();
            }
        }
        Ok(n_rows)
    }

    /// The plan of a view, derived again from its text. TiDB's tables must be there as they were when the view's
    /// rows were made.
    pub(crate) fn view_plan(&self, catalog: &Catalog, definition: &TableDefinition) -> Result<Arc<Plan>> {
        let id = definition.id();
        let known = self.view_plans().known.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
        if let Some(plan) = known {
            return Ok(plan);
        }
        let plan = Arc::new(sql::plan_stored_view(catalog, definition)?.plan);
        self.view_plans().known.lock().unwrap_or_else(PoisonError::into_inner).insert(id, Arc::clone(&plan));
        Ok(plan)
    }

    /// The operators' manifests of a view at a timestamp, by state number.
    async fn manifests(&self, view: TableId, at: Timestamp, n_states: usize) -> Result<Vec<Manifest>> {
        let mut manifests = vec![Manifest::default(); n_states];
        for (number, known) in sink::load_manifests(self.store(), view, at).await? {
            // The sink's own state is no operator's.
            if let Some(manifest) = manifests.get_mut(number as usize) {
                *manifest = known;
            }
        }
        Ok(manifests)
    }

    /// The transaction's own writes to a base table that are wanted, as the last delta.
    async fn own_delta(
        &self,
        scope: &Scope,
        definition: &TableDefinition,
        wanted: Option<&WantedRows>,
    ) -> Result<Option<TableDelta>> {
        let info = &definition.info;
        let ranges = definition.record_ranges();
        let own = ranges.iter().flat_map(|range| writes_in(&scope.writes, range));
        let own: Vec<(&Key, &Write)> = own.collect();
        if own.is_empty() {
            return Ok(None);
        }
        let keys: Vec<Key> = own.iter().map(|(key, _)| (*key).clone()).collect();
        let mut old: HashMap<Key, Value> = HashMap::new();
        for chunk in keys.chunks(1024) {
            old.extend(scope.reads().stored(chunk).await?);
        }
        let columns: Vec<usize> = (0..info.columns.len()).collect();
        let mut decoder = RowDecoder::new(info, &columns)?;
        let mut weights = Vec::new();
        for (key, write) in own {
            for (value, weight) in [(old.get(key), -1), (write.value.as_ref(), 1)] {
                if let Some(value) = value {
                    decoder.append(key, value)?;
                    weights.push(weight);
                }
            }
        }
        let mut delta = Delta::new(decoder.finish()?, Int64Array::from(weights));
        if let Some(wanted) = wanted {
            delta = wanted.mask.apply(&delta)?;
        }
        Ok(Some(TableDelta { table: definition.id(), delta }))
    }

    /// Lays the dataflow's output over the stored rows.
    async fn merge(
        &self,
        scope: &Scope,
        info: &TableInfo,
        wanted: &Mask,
        output: &Delta,
    ) -> Result<(Writes, Option<Arc<ContentFix>>)> {
        let weights = net(info, output)?;
        if info.has_hidden_handle() {
            let content = by_content(weights)?;
            return Ok((Writes::default(), Some(Arc::new(content))));
        }
        let keys: Vec<Key> = weights.keys().map(|key| Key::from(key.clone())).collect();
        let reads = Reads::new(Arc::clone(self.store()), scope.at, Writes::default());
        let mut stored: BTreeMap<Key, Value> = BTreeMap::new();
        for chunk in keys.chunks(1024) {
            stored.extend(reads.stored(chunk).await?);
        }
        let unwanted = unwanted_rows(info, wanted, &stored)?;
        let mut overlay = BTreeMap::new();
        for (key, values) in weights {
            let key = Key::from(key);
            let old = stored.get(&key);
            // The change that takes an unwanted row back was left out.
            let value = merged_row(&key, old.filter(|_| !unwanted.contains(&key)), values)?;
            overlay.insert(key, Write { value, existed: old.is_some() });
        }
        Ok((Arc::new(overlay), None))
    }
}

/// Where changes are looked for.
fn looked_at(tables: &[Arc<TableDefinition>], wanted: &BTreeMap<TableId, WantedRows>) -> Looked {
    let ranges = |table: &Arc<TableDefinition>| {
        let known = wanted.get(&table.id()).map(|rows| rows.ranges.clone());
        (table.id(), known.unwrap_or_else(|| table.record_ranges()))
    };
    tables.iter().map(ranges).collect()
}

/// A delta of all columns of a table, each at the number that plans have for it.
fn numbered(definition: &TableDefinition, delta: &Delta) -> Result<Delta> {
    if definition.foreign.is_none() {
        return Ok(delta.clone());
    }
    let n_rows = delta.n_rows();
    let nothing: ArrayRef = Arc::new(NullArray::new(n_rows));
    let width = definition.width();
    let mut arrays = vec![nothing; width];
    let absent = Arc::new(Field::new("", DataType::Null, true));
    let mut fields: Vec<_> = (0..width).map(|_| Arc::clone(&absent)).collect();
    for position in 0..definition.info.columns.len() {
        let number = definition.column_number(position);
        arrays[number] = Arc::clone(delta.column(position));
        fields[number] = Arc::clone(&delta.schema().fields()[position]);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(n_rows));
    let batch = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)?;
    Ok(delta.with_batch(batch))
}

/// The keys of stored rows that are not wanted.
fn unwanted_rows(info: &TableInfo, wanted: &Mask, stored: &BTreeMap<Key, Value>) -> Result<BTreeSet<Key>> {
    if wanted.is_everything() || stored.is_empty() {
        return Ok(BTreeSet::new());
    }
    let columns: Vec<usize> = (0..info.columns.len()).collect();
    let mut decoder = RowDecoder::new(info, &columns)?;
    for (key, value) in stored {
        decoder.append(key, value)?;
    }
    let batch = crate::select::renamed(&decoder.finish()?, &info.arrow_schema())?;
    let holds = wanted.holds(&batch)?;
    let keys = stored.keys().enumerate();
    Ok(keys.filter(|(row, _)| !holds.value(*row)).map(|(_, key)| key.clone()).collect())
}

/// Sums the output's weights by row: key, then value; without a key by value alone.
fn net(info: &TableInfo, output: &Delta) -> Result<Weights> {
    let encoder = RowEncoder::new(info)?;
    let mut rows = encoder.bind(output.batch())?;
    let mut weights = Weights::new();
    for (row, weight) in output.weights().values().iter().enumerate() {
        let key = if info.has_hidden_handle() { Vec::new() } else { rows.key(row, None)? };
        let sum = weights.entry(key).or_default().entry(rows.value(row)?).or_default();
        *sum = sum.checked_add(*weight).ok_or_else(|| Error::corrupt("weight overflow"))?;
    }
    Ok(weights)
}

fn by_content(weights: Weights) -> Result<ContentFix> {
    let mut content = ContentFix::default();
    for (value, weight) in weights.into_values().flatten() {
        let count = weight.unsigned_abs();
        match weight {
            0 => {}
            1.. => content.added.push((value.into(), count)),
            _ => {
                content.retracted.insert(value.into(), count);
            }
        }
    }
    Ok(content)
}

/// The row of a key after the read fix: at most one was there, at most one is there.
fn merged_row(key: &Key, old: Option<&Value>, values: BTreeMap<Vec<u8>, i64>) -> Result<Option<Value>> {
    let broken = |what: &str| Err(Error::corrupt(format!("view row {}: {what}", tidb::describe_key(key))));
    let (mut taken, mut given) = (None, None);
    for (value, weight) in values {
        let (slot, what) = match weight {
            0 => continue,
            1 => (&mut given, "two rows have one key"),
            -1 => (&mut taken, "two rows of one key are taken back"),
            _ => return broken("a row with a key does not come once"),
        };
        if slot.replace(Value::from(value)).is_some() {
            return broken(what);
        }
    }
    match (old, taken, given) {
        (old, None, None) => Ok(old.cloned()),
        (None, None, given) => Ok(given),
        (Some(old), Some(taken), given) if *old == taken => Ok(given),
        (Some(_), None, Some(_)) => broken("a row comes that is there already"),
        _ => broken("a row is taken back that is not there"),
    }
}
