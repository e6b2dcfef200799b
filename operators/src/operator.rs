//! Operators with state: what they owe the dataflow, and how a plan's nodes become them.

mod aggregate;
mod distinct;
mod join;
mod one_row;
mod values;

use types::{Delta, Error, Result};

pub(crate) use aggregate::collections;
pub(crate) use join::needs_condition;

use crate::failures::FailedRows;
use crate::plan::{Node, Operator, Plan};
use crate::state::State;

/// What the dataflow tells an operator at a barrier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    /// Shards that may work at once.
    pub(crate) parallelism: usize,
    /// Whether a row of this dataflow is left out since an early barrier.
    pub(crate) any_failed: bool,
}

/// Where an operator's output goes, batch by batch.
pub(crate) type Output<'a> = dyn FnMut(Delta) -> Result<()> + 'a;

/// An operator with state. It takes in the epoch's deltas and speaks at the barrier.
pub(crate) trait Stateful: std::fmt::Debug + Send + Sync {
    /// Takes in rows of one input.
    fn push(&mut self, input: usize, delta: Delta) -> Result<()>;

    /// Ends the epoch: puts out its change, and appends what was learnt to the states. Rows of the output
    /// that cannot be evaluated are reported instead; so is their going.
    fn barrier(&mut self, context: &Context, output: &mut Output<'_>, failed: &mut FailedRows) -> Result<()>;

    /// The states in the order of their numbers.
    fn states(&self) -> Vec<&State>;

    /// The states in the order of their numbers.
    fn states_mut(&mut self) -> Vec<&mut State>;

    /// Whether nothing was taken in since the last barrier.
    fn is_idle(&self) -> bool;

    /// Bytes of what was taken in since the last barrier.
    fn pending_bytes(&self) -> u64;
}

/// The operator of a node over its states; none if it needs no state.
pub(crate) fn build(plan: &Plan, node: &Node, states: Vec<State>) -> Result<Option<Box<dyn Stateful>>> {
    let input = |port: usize| &plan.nodes[node.inputs[port].0].schema;
    let mut states = states.into_iter();
    let mut state = || states.next().ok_or_else(|| Error::invalid("a state is missing"));
    Ok(match &node.operator {
        Operator::Source { .. } | Operator::Filter { .. } | Operator::Project { .. } | Operator::Union => {
            None
        }
        Operator::Values { rows } => Some(Box::new(values::Values::new(rows.clone(), state()?))),
        Operator::Distinct => Some(Box::new(distinct::Distinct::new(input(0), &node.schema, state()?)?)),
        Operator::AtMostOneRow => {
            Some(Box::new(one_row::AtMostOneRow::new(input(0), &node.schema, state()?, state()?)?))
        }
        Operator::Join { .. } => Some(Box::new(join::Join::new(node, input(0), input(1), states.collect())?)),
        Operator::Aggregate { .. } => {
            Some(Box::new(aggregate::Aggregate::new(node, input(0), states.collect())?))
        }
    })
}
