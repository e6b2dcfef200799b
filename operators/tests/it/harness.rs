//! Runs a plan in many ways and compares with recomputation after every barrier.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use arrow::array::Int64Array;
use arrow::datatypes::SchemaRef;
use operators::{Dataflow, DataflowOptions, Manifest, Plan, Rest, Run, RunNamer, RunSource, Sealed};
use types::{Delta, Epoch, Error, Generation, JobId, RunName, TableId};

use crate::model::{Row, Rows, Value, add, batch_of, recompute, rows_of};

/// Runs in memory, as bytes.
#[derive(Default)]
pub(crate) struct MemoryRuns {
    runs: Mutex<BTreeMap<RunName, bytes::Bytes>>,
}

impl MemoryRuns {
    pub(crate) fn store(&self, sealed: &Sealed) {
        for run in &sealed.runs {
            let old = self.runs.lock().unwrap().insert(run.name, run.bytes.clone());
            assert!(old.is_none(), "a name is never used for two contents");
        }
    }
}

impl RunSource for MemoryRuns {
    fn read_run(&self, name: RunName) -> types::Result<Run> {
        let bytes = self.runs.lock().unwrap().get(&name).cloned();
        Run::from_bytes(bytes.ok_or_else(|| Error::corrupt(format!("no run {name:?}")))?)
    }
}

/// One row that comes or goes.
pub(crate) type Change = (TableId, Row, i64);

/// An epoch: its changes in batches, and what happens after its barrier.
#[derive(Clone, Debug)]
pub(crate) struct EpochInput {
    pub(crate) batches: Vec<Vec<Change>>,
    pub(crate) after: After,
}

/// What happens after a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    Nothing,
    Seal,
    Reopen,
}

/// A plan at work, with all that a test compares it with.
pub(crate) struct Harness {
    pub(crate) plan: Arc<Plan>,
    schemas: BTreeMap<TableId, SchemaRef>,
    pub(crate) runs: Arc<MemoryRuns>,
    pub(crate) options: DataflowOptions,
    pub(crate) dataflow: Dataflow,
    pub(crate) manifests: Vec<Manifest>,
    pub(crate) tables: BTreeMap<TableId, Rows>,
    pub(crate) view: Rows,
    epoch: u64,
}

/// A delta of rows.
pub(crate) fn delta_of(schema: &SchemaRef, rows: &[(Row, i64)]) -> Delta {
    let values: Vec<Row> = rows.iter().map(|(row, _)| row.clone()).collect();
    let weights = Int64Array::from_iter_values(rows.iter().map(|(_, weight)| *weight));
    Delta::new(batch_of(schema, &values), weights)
}

fn push_batch(
    dataflow: &mut Dataflow,
    schemas: &BTreeMap<TableId, SchemaRef>,
    batch: &[Change],
) -> types::Result<()> {
    for (table, schema) in schemas {
        let rows: Vec<(Row, i64)> = batch
            .iter()
            .filter(|change| change.0 == *table)
            .map(|change| (change.1.clone(), change.2))
            .collect();
        dataflow.push(*table, &delta_of(schema, &rows))?;
    }
    Ok(())
}

/// The rows of a view's delta; it must be consolidated.
pub(crate) fn consolidated(delta: &Delta) -> Rows {
    let mut rows = Rows::new();
    for (row, weight) in rows_of(delta.batch()).into_iter().zip(delta.weights().values()) {
        assert_ne!(*weight, 0, "a consolidated delta has no weight 0");
        let old = rows.insert(row.clone(), *weight);
        assert!(old.is_none(), "a consolidated delta has {row:?} once");
    }
    rows
}

impl Harness {
    pub(crate) fn new(
        plan: Plan,
        schemas: BTreeMap<TableId, SchemaRef>,
        options: DataflowOptions,
    ) -> Harness {
        let (plan, runs) = (Arc::new(plan), Arc::new(MemoryRuns::default()));
        let source: Arc<dyn RunSource> = Arc::clone(&runs) as Arc<dyn RunSource>;
        let dataflow = Dataflow::open(Arc::clone(&plan), vec![], source, options).unwrap();
        let manifests = vec![Manifest::default(); dataflow.states_count()];
        let (tables, view) = (BTreeMap::new(), Rows::new());
        Harness { plan, schemas, runs, options, dataflow, manifests, tables, view, epoch: 0 }
    }

    pub(crate) fn open(&self) -> Dataflow {
        let source: Arc<dyn RunSource> = Arc::clone(&self.runs) as Arc<dyn RunSource>;
        Dataflow::open(Arc::clone(&self.plan), self.manifests.clone(), source, self.options).unwrap()
    }

    pub(crate) fn push(&mut self, batch: &[Change]) -> types::Result<()> {
        push_batch(&mut self.dataflow, &self.schemas, batch)?;
        for (table, row, weight) in batch {
            add(self.tables.entry(*table).or_default(), row.clone(), *weight);
        }
        Ok(())
    }

    /// Ends an epoch; the view's change is added to the view.
    pub(crate) fn barrier(&mut self) -> types::Result<Rows> {
        let delta = self.dataflow.barrier()?;
        Ok(self.take(&delta))
    }

    /// Ends a part of an epoch.
    pub(crate) fn early_barrier(&mut self, rest: Rest) -> types::Result<Rows> {
        let delta = self.dataflow.early_barrier(rest)?;
        Ok(self.take(&delta))
    }

    fn take(&mut self, delta: &Delta) -> Rows {
        let change = consolidated(delta);
        for (row, weight) in &change {
            add(&mut self.view, row.clone(), *weight);
        }
        change
    }

    pub(crate) fn seal(&mut self) {
        self.epoch += 1;
        let mut namer = RunNamer::new(JobId(1), Generation(1), Epoch(self.epoch), TableId(9));
        let sealed = self.dataflow.seal(&mut namer).unwrap();
        self.runs.store(&sealed);
        for (state, manifest) in sealed.manifests {
            assert_ne!(self.manifests[state as usize], manifest, "only changed manifests are handed over");
            self.manifests[state as usize] = manifest;
        }
        assert_eq!(self.manifests, self.dataflow.manifests());
    }

    pub(crate) fn check(&self) {
        let expected = recompute(&self.plan, &self.tables).expect("the query does not fail");
        assert_eq!(self.view, expected, "view, then recomputed; tables {:#?}", self.tables);
    }

    /// Runs an epoch and compares; it is also run twice on the last checkpoint if that is the state.
    pub(crate) fn run(&mut self, input: &EpochInput, is_sealed_before: bool) {
        let before = self.dataflow.fork().unwrap();
        let mut overlays = if is_sealed_before {
            vec![self.open(), self.open(), self.dataflow.fork().unwrap()]
        } else {
            vec![self.dataflow.fork().unwrap()]
        };
        for batch in &input.batches {
            self.push(batch).unwrap();
        }
        let change = self.barrier().unwrap();
        self.check();
        for overlay in &mut overlays {
            // The other batch split: everything at once.
            push_batch(overlay, &self.schemas, &input.batches.concat()).unwrap();
            assert_eq!(consolidated(&overlay.barrier().unwrap()), change, "an overlay answers the same");
        }
        self.check_wanted(&before, &input.batches.concat(), &change);
        if input.after != After::Nothing {
            self.seal();
        }
        if input.after == After::Reopen {
            self.dataflow = self.open();
        }
    }
}

impl Harness {
    /// Of the rows that somebody wants, no more is needed than the changes that they come from.
    fn check_wanted(&self, before: &Dataflow, batch: &[Change], change: &Rows) {
        for column in 0..self.plan.output().schema.fields().len() {
            let origins = self.plan.origins(column);
            if origins.is_empty() {
                continue;
            }
            let keys = change.keys().chain(self.view.keys()).map(|row| sort_key(&row[column]));
            for wanted in keys.filter(|key| *key != Value::Null).collect::<BTreeSet<Value>>() {
                let is_wanted = |(table, row, _): &&Change| {
                    let columns = origins.get(table);
                    columns.is_none_or(|columns| columns.iter().any(|at| sort_key(&row[*at]) == wanted))
                };
                let needed: Vec<Change> = batch.iter().filter(is_wanted).cloned().collect();
                let mut overlay = before.fork().unwrap();
                push_batch(&mut overlay, &self.schemas, &needed).unwrap();
                let of_interest = |rows: Rows| -> Rows {
                    rows.into_iter().filter(|(row, _)| sort_key(&row[column]) == wanted).collect()
                };
                let answer = of_interest(consolidated(&overlay.barrier().unwrap()));
                assert_eq!(
                    answer,
                    of_interest(change.clone()),
                    "column {column} as {wanted:?} by {origins:?}"
                );
            }
        }
    }
}

/// What two values share that compare as equal.
fn sort_key(value: &Value) -> Value {
    match value {
        Value::Text(text) => Value::Text(text.trim_end_matches(' ').to_owned()),
        other => other.clone(),
    }
}

/// Runs a history at parallelism 1, 2 and 7, and with next to no memory.
pub(crate) fn check_history(plan: &Plan, schemas: &BTreeMap<TableId, SchemaRef>, history: &[EpochInput]) {
    for (parallelism, memory_bytes_max) in [(1, 1 << 30), (2, 64), (7, 1 << 30)] {
        let options = DataflowOptions { parallelism, memory_bytes_max };
        let mut harness = Harness::new(plan.clone(), schemas.clone(), options);
        let mut is_sealed = true;
        for epoch in history {
            harness.run(epoch, is_sealed);
            is_sealed = epoch.after != After::Nothing;
        }
    }
}
