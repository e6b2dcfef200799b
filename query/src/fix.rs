//! The read fix: a view's dataflow over the changes since its checkpoint, in memory.
//!
//! The third driver of the same dataflow: it runs over a private overlay on the checkpoint's manifests and
//! commits nothing. Its output is merged with the stored rows: by key, or by content and count for a view
//! under hidden handles. What it takes back must be there, otherwise the view is not what its state says,
//! and the read fails rather than answer something.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::Int64Array;
use operators::{Dataflow, DataflowOptions, Manifest};
use source::TableDelta;
use sql::catalog::{TableDefinition, ViewDefinition};
use sql::{Settings, ViewPlan};
use store::{Key, Value};
use tidb::{RowDecoder, RowEncoder, TableInfo};
use types::{Delta, Error, Result, TableId, Timestamp};

use crate::Engine;
use crate::names::{Scope, StoredRows};
use crate::paths::Candidate;
use crate::reads::Reads;
use crate::table::{ContentFix, table_range};
use crate::transaction::{Write, Writes, writes_in};

/// Plans of views, by view. A view's definition never changes under its id.
#[derive(Debug, Default)]
pub(crate) struct ViewPlans {
    known: Mutex<HashMap<TableId, Arc<ViewPlan>>>,
}

/// How often a view's output has each row more than its stored rows do.
type Weights = BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, i64>>;

impl Engine {
    /// Runs the read fix and returns the stored rows with it.
    pub(crate) async fn read_fix(
        &self,
        scope: &Scope,
        candidate: &Candidate<'_>,
        changes: Vec<TableDelta>,
    ) -> Result<StoredRows> {
        let plan = self.view_plan(scope, candidate.definition, candidate.view)?;
        let mut deltas = changes;
        for table in &candidate.view.base_tables {
            deltas.extend(self.own_delta(scope, *table).await?);
        }
        let manifests = self.manifests(candidate.definition.id(), scope.at, plan.plan.states_count()).await?;
        let runs = Arc::clone(self.runs());
        let options =
            DataflowOptions { parallelism: self.options().parallelism, ..DataflowOptions::default() };
        // Operators compute and read runs: not on a thread that serves others.
        let run = move || {
            let mut dataflow = Dataflow::open(Arc::new(plan.plan.clone()), manifests, runs, options)?;
            for TableDelta { table, delta } in &deltas {
                dataflow.push(*table, delta)?;
            }
            dataflow.barrier()
        };
        let output = tokio::task::spawn_blocking(run).await;
        let output = output.map_err(|error| Error::corrupt(format!("the dataflow panicked: {error}")))??;
        self.merge(scope, &candidate.definition.info, &output).await
    }

    /// The plan of a view, derived again from its text; it must be the plan that its state was built by.
    pub(crate) fn view_plan(
        &self,
        scope: &Scope,
        definition: &TableDefinition,
        view: &ViewDefinition,
    ) -> Result<Arc<ViewPlan>> {
        let id = definition.id();
        let known = self.view_plans().known.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
        if let Some(plan) = known {
            return Ok(plan);
        }
        let settings = Settings { database: Some(definition.database.clone()), ..Settings::default() };
        let settings = settings.with_view(&view.settings);
        let plan = sql::plan_view(&scope.catalog, &view.query, &view.columns, &settings)?;
        if plan.fingerprint != view.fingerprint {
            return Err(Error::invalid("the view's plan is not the one that its state was built by"));
        }
        let plan = Arc::new(plan);
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

    /// The transaction's own writes to a base table, as the last delta.
    async fn own_delta(&self, scope: &Scope, table: TableId) -> Result<Option<TableDelta>> {
        let definition = scope.catalog.tables.get(&table);
        let definition = definition.ok_or_else(|| Error::corrupt(format!("no base table {table}")))?;
        let info = &definition.info;
        let own: Vec<(&Key, &Write)> = writes_in(&scope.writes, &table_range(info)).collect();
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
        let delta = Delta::new(decoder.finish()?, Int64Array::from(weights));
        Ok(Some(TableDelta { table, delta }))
    }

    /// Lays the dataflow's output over the stored rows.
    async fn merge(&self, scope: &Scope, info: &TableInfo, output: &Delta) -> Result<StoredRows> {
        let weights = net(info, output)?;
        if info.has_hidden_handle() {
            let content = by_content(weights)?;
            return Ok(StoredRows { at: scope.at, overlay: Writes::default(), content: Some(content) });
        }
        let keys: Vec<Key> = weights.keys().map(|key| Key::from(key.clone())).collect();
        let reads = Reads::new(Arc::clone(self.store()), scope.at, Writes::default());
        let mut stored: HashMap<Key, Value> = HashMap::new();
        for chunk in keys.chunks(1024) {
            stored.extend(reads.stored(chunk).await?);
        }
        let mut overlay = BTreeMap::new();
        for (key, values) in weights {
            let key = Key::from(key);
            let old = stored.get(&key);
            let value = merged_row(&key, old, values)?;
            overlay.insert(key, Write { value, existed: old.is_some() });
        }
        Ok(StoredRows { at: scope.at, overlay: Arc::new(overlay), content: None })
    }
}

/// Sums the output's weights by row: key, then value; without a key by value alone.
fn net(info: &TableInfo, output: &Delta) -> Result<Weights> {
    let encoder = RowEncoder::new(info)?;
    let batch = crate::select::renamed(output.batch(), &info.arrow_schema())?;
    let mut rows = encoder.bind(&batch)?;
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
