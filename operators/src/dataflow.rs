//! The dataflow: a plan at work over the states of its operators.
//!
//! Rows are pushed, pass the operators without state at once, and are arranged before those with state.
//! These speak once, at the barrier, in the order of the plan; the barrier yields the net change of the
//! view. Sealing turns what the states learnt into runs. Nothing it reads is ever changed, so a query
//! opens a dataflow of its own over the same manifests and drops it afterwards.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{Array, BooleanArray, RecordBatch};
use types::{Delta, Error, ErrorKind, Result, TableId};

use crate::Expression;
use crate::arrange::{Arrangement, Layout, decode_rows, delta_of, with_schema};
use crate::failures::{FailedRows, Failures, evaluate_rows};
use crate::operator::{Context, Stateful, build};
use crate::plan::{Node, NodeId, Operator, Plan};
use crate::run::StateKind;
use crate::state::{Manifest, RunNamer, RunSource, SealedRun, State};

/// Changes of a source are passed on in batches of at least this many rows, or at the barrier.
const PASS_ROWS_MIN: usize = 4096;

/// How a dataflow runs.
#[derive(Clone, Copy, Debug)]
pub struct DataflowOptions {
    /// Shards by vnode that work at once; the results do not depend on it.
    pub parallelism: usize,
    /// Beyond it sealed runs are let go after a barrier, and [`Dataflow::wants_barrier`] asks for an early one.
    pub memory_bytes_max: u64,
}

impl Default for DataflowOptions {
    fn default() -> DataflowOptions {
        DataflowOptions { parallelism: 1, memory_bytes_max: 1 << 30 }
    }
}

/// What may still come between an early barrier and the end of the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Insertions into tables only, as in a fill: what linear operators have put out stays.
    Inserts,
    /// Anything.
    Changes,
}

/// What sealing hands over to be committed.
#[derive(Clone, Debug, Default)]
pub struct Sealed {
    /// New runs, to be written before the vote.
    pub runs: Vec<SealedRun>,
    /// The manifests that changed, by state number.
    pub manifests: Vec<(u32, Manifest)>,
}

/// What an operator has done and keeps, for `tidemill.operators`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorStatistics {
    /// The operator.
    pub node: NodeId,
    /// What it does.
    pub name: &'static str,
    /// Rows that came in since the dataflow was opened.
    pub rows_in: u64,
    /// Rows that went out since the dataflow was opened.
    pub rows_out: u64,
    /// Rows in its state, before runs are merged.
    pub state_rows: u64,
    /// Encoded bytes of its state, before runs are merged.
    pub state_bytes: u64,
}

/// A plan at work. After an error it is unusable, and says so.
#[derive(Debug)]
pub struct Dataflow {
    plan: Arc<Plan>,
    options: DataflowOptions,
    nodes: Vec<Running>,
    output: Arrangement,
    failures: Failures,
    failure: Option<Error>,
}

/// A node at work.
#[derive(Debug)]
struct Running {
    /// None for operators without state, and while the operator itself runs.
    stateful: Option<Box<dyn Stateful>>,
    /// Nodes, and which of their inputs, that this one feeds.
    users: Vec<(usize, usize)>,
    /// Of sources: what was not passed on yet.
    pending: Vec<Delta>,
    pending_rows: usize,
    /// Whether it loses no row while tables lose none.
    is_growing: bool,
    rows_in: u64,
    rows_out: u64,
}

impl Dataflow {
    /// Opens a plan over the manifests of its states, by state number; those at the end may be missing
    /// if they are empty. Nothing is read yet.
    ///
    /// # Errors
    /// `Invalid` if the plan cannot run: wrong columns or types, or more manifests than states.
    pub fn open(
        plan: Arc<Plan>,
        manifests: Vec<Manifest>,
        runs: Arc<dyn RunSource>,
        options: DataflowOptions,
    ) -> Result<Dataflow> {
        let kinds = plan.state_kinds();
        if manifests.len() > kinds.len() {
            return Err(Error::invalid(format!("{} manifests for {} states", manifests.len(), kinds.len())));
        }
        let mut manifests = manifests.into_iter();
        let open =
            |kind: StateKind| State::open(kind, &manifests.next().unwrap_or_default(), Arc::clone(&runs));
        let states = kinds.into_iter().map(open).collect();
        Dataflow::over(plan, states, options)
    }

    fn over(plan: Arc<Plan>, states: Vec<State>, options: DataflowOptions) -> Result<Dataflow> {
        plan.check()?;
        let mut states = states.into_iter();
        let mut nodes: Vec<Running> = Vec::with_capacity(plan.nodes.len());
        for (index, node) in plan.nodes.iter().enumerate() {
            let own: Vec<State> = states.by_ref().take(node.state_kinds().len()).collect();
            let stateful = build(&plan, node, own).map_err(|error| error.context(plan.node_text(index)))?;
            for (port, input) in node.inputs.iter().enumerate() {
                nodes[input.0].users.push((index, port));
            }
            let is_growing =
                node.operator.is_linear() && node.inputs.iter().all(|input| nodes[input.0].is_growing);
            nodes.push(Running {
                stateful,
                is_growing,
                users: Vec::new(),
                pending: Vec::new(),
                pending_rows: 0,
                rows_in: 0,
                rows_out: 0,
            });
        }
        let schema = &plan.output().schema;
        let all: Vec<usize> = (0..schema.fields().len()).collect();
        let output = Arrangement::new(Layout::new(schema, all.clone(), all.len())?);
        let failed = states.next().ok_or_else(|| Error::invalid("the state of failed rows is missing"))?;
        let failures = Failures::new(failed);
        Ok(Dataflow { plan, options, nodes, output, failures, failure: None })
    }

    /// Another dataflow over the same state as of the last barrier, sharing all that is in memory.
    ///
    /// # Errors
    /// `Invalid` if something was pushed since the last barrier; `Closed` after a failure.
    pub fn fork(&self) -> Result<Dataflow> {
        self.check_usable()?;
        let is_pending = |node: &Running| {
            node.pending_rows > 0 || node.stateful.as_ref().is_some_and(|operator| !operator.is_idle())
        };
        if !self.output.is_empty() || !self.failures.is_idle() || self.nodes.iter().any(is_pending) {
            return Err(Error::invalid("a dataflow is forked at a barrier only"));
        }
        let states = self.nodes.iter().filter_map(|node| node.stateful.as_ref());
        let states = states.flat_map(|operator| operator.states()).chain([self.failures.state()]);
        let states = states.cloned().collect();
        Dataflow::over(Arc::clone(&self.plan), states, self.options)
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The number of states, and so of manifests.
    #[must_use]
    pub fn states_count(&self) -> usize {
        self.plan.states_count()
    }

    /// Takes in changes of a base table: rows of all its public columns, in the table's order.
    /// A table that the plan does not read changes nothing.
    ///
    /// # Errors
    /// `Invalid` if columns are missing or of other types.
    pub fn push(&mut self, table: TableId, delta: &Delta) -> Result<()> {
        self.check_usable()?;
        let result = self.push_to_sources(table, delta);
        self.keep_failure(result)
    }

    fn push_to_sources(&mut self, table: TableId, delta: &Delta) -> Result<()> {
        for index in 0..self.nodes.len() {
            let node = &self.plan.nodes[index];
            let Operator::Source { table: of, columns } = &node.operator else {
                continue;
            };
            if *of != table || delta.is_empty() {
                continue;
            }
            let missing = columns.iter().find(|column| **column >= delta.batch().num_columns());
            if let Some(column) = missing {
                return Err(Error::invalid(format!("changes of table {table} have no column {column}")));
            }
            let arrays = columns.iter().map(|column| Arc::clone(delta.column(*column))).collect();
            let projected = with_schema(delta, &node.schema, arrays)
                .map_err(|error| error.context(format!("changes of table {table}")))?;
            let running = &mut self.nodes[index];
            running.pending.push(projected);
            running.pending_rows += delta.n_rows();
            running.rows_in += delta.n_rows() as u64;
            if running.pending_rows >= PASS_ROWS_MIN {
                self.pass_pending(index)?;
            }
        }
        Ok(())
    }

    fn pass_pending(&mut self, index: usize) -> Result<()> {
        let running = &mut self.nodes[index];
        let pending = std::mem::take(&mut running.pending);
        running.pending_rows = 0;
        if pending.is_empty() {
            return Ok(());
        }
        let delta = Delta::concat(&self.plan.nodes[index].schema, &pending)?;
        self.send(index, delta)
    }

    /// Passes a node's output on, through operators without state, to arrangements.
    fn send(&mut self, from: usize, delta: Delta) -> Result<()> {
        let mut work = vec![(from, delta)];
        while let Some((from, delta)) = work.pop() {
            if delta.is_empty() {
                continue;
            }
            self.nodes[from].rows_out += delta.n_rows() as u64;
            for (user, port) in self.nodes[from].users.clone() {
                let passed = self.take_in(user, port, &delta);
                let passed = passed.map_err(|error| error.context(self.plan.node_text(user)))?;
                work.extend(passed.map(|delta| (user, delta)));
            }
            if from + 1 == self.nodes.len() {
                self.output.push(delta)?;
            }
        }
        Ok(())
    }

    /// A node's input; without state it has its output at once.
    fn take_in(&mut self, node: usize, port: usize, delta: &Delta) -> Result<Option<Delta>> {
        let running = &mut self.nodes[node];
        running.rows_in += delta.n_rows() as u64;
        if let Some(operator) = &mut running.stateful {
            operator.push(port, delta.clone())?;
            return Ok(None);
        }
        let mut failed = FailedRows::default();
        let output = apply(&self.plan.nodes[node], delta, &mut failed)?;
        self.failures.report(&self.plan, node, failed)?;
        Ok(Some(output))
    }

    /// Ends the epoch: the net change of the view by everything that was pushed since the last barrier.
    /// Equal rows come once; no weight is 0; the order does not depend on arrival or parallelism.
    ///
    /// # Errors
    /// `Corrupt` if something is deleted that is not there, `Invalid` if an expression or an aggregate
    /// fails for rows that are there now; the view is then at fault.
    pub fn barrier(&mut self) -> Result<Delta> {
        self.check_usable()?;
        let result = self.run_nodes().and_then(|()| self.failures.settle()).and_then(|()| self.take_output());
        self.keep_failure(result)
    }

    /// Ends a part of an epoch: states take in what was pushed, so that memory is free for more. The net
    /// change may be any; that of the parts together is the epoch's. Rows for which an expression or an
    /// aggregate fails may still go: until then they are left out.
    ///
    /// # Errors
    /// `Corrupt` if something is deleted that is not there, `Invalid` if something fails for rows that
    /// cannot go any more.
    pub fn early_barrier(&mut self, rest: Rest) -> Result<Delta> {
        self.check_usable()?;
        let result = self.run_nodes().and_then(|()| {
            self.failures.keep(|node| rest == Rest::Inserts && self.nodes[node].is_growing)?;
            self.take_output()
        });
        self.keep_failure(result)
    }

    fn run_nodes(&mut self) -> Result<()> {
        let (parallelism, any_failed) = (self.options.parallelism.max(1), self.failures.any_before());
        let context = Context { parallelism, any_failed };
        for index in 0..self.nodes.len() {
            self.pass_pending(index)?;
            if let Some(mut operator) = self.nodes[index].stateful.take() {
                let mut failed = FailedRows::default();
                let result = operator.barrier(&context, &mut |delta| self.send(index, delta), &mut failed);
                self.nodes[index].stateful = Some(operator);
                result
                    .and_then(|()| self.failures.report(&self.plan, index, failed))
                    .map_err(|error| error.context(self.plan.node_text(index)))?;
            }
        }
        Ok(())
    }

    fn take_output(&mut self) -> Result<Delta> {
        let run = self.output.take()?;
        let rows = (0..run.n_rows()).map(|index| run.key(index)).collect();
        let weights = (0..run.n_rows()).map(|index| run.weight(index)).collect();
        let columns = decode_rows(self.output.layout(), rows)?;
        let delta = delta_of(&self.plan.output().schema, columns, weights)?;
        if self.memory_bytes() > self.options.memory_bytes_max {
            for operator in self.nodes.iter_mut().filter_map(|node| node.stateful.as_mut()) {
                operator.states_mut().into_iter().for_each(State::unload);
            }
        }
        Ok(delta)
    }

    /// Seals what the states learnt up to the last barrier; the dataflow goes on over the sealed runs,
    /// which it keeps in memory.
    ///
    /// # Errors
    /// `Invalid` if something was pushed since the last barrier; those of the run source.
    pub fn seal(&mut self, namer: &mut RunNamer) -> Result<Sealed> {
        self.check_usable()?;
        let result = self.seal_states(namer);
        self.keep_failure(result)
    }

    fn seal_states(&mut self, namer: &mut RunNamer) -> Result<Sealed> {
        let mut sealed = Sealed::default();
        let mut number = 0;
        for node in &mut self.nodes {
            let idle =
                node.pending_rows == 0 && node.stateful.as_ref().is_none_or(|operator| operator.is_idle());
            if !idle {
                return Err(Error::invalid("a dataflow is sealed at a barrier only"));
            }
            for state in node.stateful.iter_mut().flat_map(|operator| operator.states_mut()) {
                if let Some(manifest) = state.seal(namer, &mut sealed.runs)? {
                    sealed.manifests.push((number, manifest));
                }
                number += 1;
            }
        }
        if let Some(manifest) = self.failures.state_mut().seal(namer, &mut sealed.runs)? {
            sealed.manifests.push((number, manifest));
        }
        Ok(sealed)
    }

    /// Has some states, by number, merged into one tier each when the dataflow is sealed next, about so many
    /// bytes of each ([`State::compact`]).
    pub fn compact(&mut self, numbers: &BTreeSet<u32>, n_bytes_max: usize) {
        let operators = self.nodes.iter_mut().filter_map(|node| node.stateful.as_mut());
        let states = operators.flat_map(|operator| operator.states_mut()).chain([self.failures.state_mut()]);
        for (_, state) in (0..).zip(states).filter(|(number, _)| numbers.contains(number)) {
            state.compact(n_bytes_max);
        }
    }

    /// Whether one of some states, by number, is not merged yet and is to be.
    #[must_use]
    pub fn is_compacting(&self, numbers: &BTreeSet<u32>) -> bool {
        let operators = self.nodes.iter().filter_map(|node| node.stateful.as_ref());
        let states = operators.flat_map(|operator| operator.states()).chain([self.failures.state()]);
        (0..).zip(states).any(|(number, state)| numbers.contains(&number) && state.is_compacting())
    }

    /// The manifests of all states, by number, as last sealed.
    #[must_use]
    pub fn manifests(&self) -> Vec<Manifest> {
        self.nodes
            .iter()
            .filter_map(|node| node.stateful.as_ref())
            .flat_map(|operator| operator.states())
            .chain([self.failures.state()])
            .map(State::manifest)
            .collect()
    }

    /// Bytes of encoded rows held in memory: loaded and unsealed runs, and the epoch's arrangements.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let operators = self.nodes.iter().filter_map(|node| node.stateful.as_ref());
        let states = operators.map(|operator| {
            operator.pending_bytes() + operator.states().iter().map(|state| state.memory_bytes()).sum::<u64>()
        });
        let failures = self.failures.pending_bytes() + self.failures.state().memory_bytes();
        states.sum::<u64>() + self.output.n_bytes() + failures
    }

    /// Whether what is not sealed yet exceeds the memory limit: the driver should end the epoch.
    #[must_use]
    pub fn wants_barrier(&self) -> bool {
        let operators = self.nodes.iter().filter_map(|node| node.stateful.as_ref());
        let unsealed = operators.map(|operator| {
            operator.pending_bytes()
                + operator.states().iter().map(|state| state.unsealed_bytes()).sum::<u64>()
        });
        let failures = self.failures.pending_bytes() + self.failures.state().unsealed_bytes();
        unsealed.sum::<u64>() + self.output.n_bytes() + failures > self.options.memory_bytes_max
    }

    /// What each operator has done and keeps.
    #[must_use]
    pub fn statistics(&self) -> Vec<OperatorStatistics> {
        let statistics =
            self.nodes.iter().zip(&self.plan.nodes).enumerate().map(|(index, (running, node))| {
                let states = running.stateful.iter().flat_map(|operator| operator.states());
                let (state_rows, state_bytes) = states
                    .fold((0, 0), |(rows, bytes), state| (rows + state.n_rows(), bytes + state.n_bytes()));
                OperatorStatistics {
                    node: NodeId(index),
                    name: node.operator.name(),
                    rows_in: running.rows_in,
                    rows_out: running.rows_out,
                    state_rows,
                    state_bytes,
                }
            });
        statistics.collect()
    }

    fn check_usable(&self) -> Result<()> {
        match &self.failure {
            None => Ok(()),
            Some(error) => {
                Err(Error::new(ErrorKind::Closed, format!("the dataflow failed before: {}", error.message())))
            }
        }
    }

    fn keep_failure<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.failure = Some(error.clone());
        }
        result
    }
}

/// Applies an operator without state to the rows that it can be applied to; the others are reported.
fn apply(node: &Node, delta: &Delta, failed: &mut FailedRows) -> Result<Delta> {
    let one = |expression: &Arc<dyn Expression>, rows: &RecordBatch| {
        expression.evaluate(rows).map_err(|error| error.context(expression.describe()))
    };
    let weights = delta.weights().values();
    match &node.operator {
        Operator::Filter { predicate } => {
            let evaluate = |rows: &RecordBatch| Ok(vec![one(predicate, rows)?]);
            let Some(evaluated) = evaluate_rows(delta.batch(), weights, failed, evaluate)? else {
                return Ok(Delta::empty(Arc::clone(&node.schema)));
            };
            let delta = evaluated.kept_of(delta)?;
            let mask = evaluated.columns[0].as_any().downcast_ref::<BooleanArray>();
            let mask = mask.filter(|mask| mask.len() == delta.n_rows());
            let mask =
                mask.ok_or_else(|| Error::invalid(format!("{} is no predicate", predicate.describe())))?;
            let all_hold = mask.null_count() == 0 && mask.true_count() == mask.len();
            let kept = if all_hold { delta } else { delta.filter(mask)? };
            with_schema(&kept, &node.schema, kept.batch().columns().to_vec())
        }
        Operator::Project { expressions } => {
            let evaluate =
                |rows: &RecordBatch| expressions.iter().map(|expression| one(expression, rows)).collect();
            match evaluate_rows(delta.batch(), weights, failed, evaluate)? {
                Some(evaluated) => with_schema(&evaluated.kept_of(delta)?, &node.schema, evaluated.columns),
                None => Ok(Delta::empty(Arc::clone(&node.schema))),
            }
        }
        Operator::Union => with_schema(delta, &node.schema, delta.batch().columns().to_vec()),
        other => Err(Error::invalid(format!("{} takes no input at once", other.name()))),
    }
}
