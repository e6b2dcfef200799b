//! What a plan keeps and where its columns are made, for those who show a view's physical schema.
//!
//! Read off the plan itself: the states are those that the dataflow opens, and a column is followed
//! through the very operators that compute it. Nothing here decides anything.

use std::collections::BTreeSet;

use types::TableId;

use crate::accumulate::kept;
use crate::operator::collections;
use crate::plan::{AggregateCall, JoinKind, Node, NodeId, Operator, Plan};
use crate::run::StateKind;

/// A state of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateUse {
    /// What its entries mean.
    pub kind: StateKind,
    /// What it remembers, in words.
    pub what: String,
}

/// What a column of the output is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lineage {
    /// What kind of value it is.
    pub kind: LineageKind,
    /// The columns of base tables that it hangs on: the table, and the position in it.
    pub columns: BTreeSet<(TableId, usize)>,
    /// The aggregates that it hangs on: the node, and the position of the call in it.
    pub calls: BTreeSet<(NodeId, usize)>,
    /// Whether it is computed from these, not one of them as it is.
    pub is_computed: bool,
}

/// What kind of value a column of the output is; of a computed one, the greatest that went into it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LineageKind {
    /// It hangs on no table.
    #[default]
    Constant,
    /// It hangs on columns of tables alone.
    Plain,
    /// Its rows are grouped by it (GROUP BY, DISTINCT).
    Group,
    /// It is, or is computed from, the result of an aggregate.
    Aggregate,
}

impl Node {
    /// The states that the operator keeps, in the order of their numbers; fixed by the plan alone.
    #[must_use]
    pub fn states(&self) -> Vec<StateUse> {
        let map = |what: &str| StateUse { kind: StateKind::Map, what: what.to_owned() };
        let multiset = |what: &str| StateUse { kind: StateKind::Multiset, what: what.to_owned() };
        match &self.operator {
            Operator::Source { .. }
            | Operator::Filter { .. }
            | Operator::Project { .. }
            | Operator::Union => vec![],
            Operator::Values { .. } => vec![map("that the rows were put out")],
            Operator::Distinct => vec![multiset("each row, and how often it came in")],
            Operator::AtMostOneRow => {
                vec![multiset("the rows that came in"), map("that the row of NULLs was put out")]
            }
            Operator::Join { kind, residual, left_keys, .. } => {
                let has_residual = residual.is_some();
                let counts = match kind {
                    JoinKind::Inner => false,
                    JoinKind::LeftAntiNullAware => {
                        crate::operator::needs_condition(left_keys.len(), has_residual)
                    }
                    _ => has_residual,
                };
                let mut states = vec![multiset("rows of the left side"), multiset("rows of the right side")];
                if counts {
                    // Existence depends on more than the key.
                    states.push(multiset("for each row of the left side, its matches"));
                }
                states
            }
            Operator::Aggregate { calls, .. } => {
                let texts = calls.iter().map(|call| format!("{}: {}", call.describe(), kept(call)));
                let groups: Vec<String> = std::iter::once("its rows".to_owned()).chain(texts).collect();
                let mut states = vec![map(&format!("for each group {}", groups.join("; ")))];
                states.extend(collections(calls).iter().map(|one| multiset(&one.what())));
                states
            }
        }
    }
}

impl Plan {
    /// Its states by number, each with the node that keeps it: those of its operators, in the order of nodes,
    /// then one of the rows that could not be evaluated yet.
    #[must_use]
    pub fn states(&self) -> Vec<(Option<NodeId>, StateUse)> {
        let of_node = |(index, node): (usize, &Node)| {
            node.states().into_iter().map(move |state| (Some(NodeId(index)), state))
        };
        let mut states: Vec<_> = self.nodes.iter().enumerate().flat_map(of_node).collect();
        let what = "rows that could not be evaluated".to_owned();
        states.push((None, StateUse { kind: StateKind::Multiset, what }));
        states
    }

    /// What a call keeps, state by state: the number of the state, and what of it is the call's.
    ///
    /// # Panics
    /// If there is no such call.
    #[must_use]
    pub fn call_states(&self, node: NodeId, call: usize) -> Vec<(usize, String)> {
        let first = self.nodes[..node.0].iter().map(|node| node.states().len()).sum();
        let call = self.call(node, call);
        let mut states = vec![(first, kept(call).to_owned())];
        let Operator::Aggregate { calls, .. } = &self.nodes[node.0].operator else { return states };
        for (index, collection) in collections(calls).iter().enumerate() {
            if collection.is_of(call) {
                states.push((first + 1 + index, collection.what()));
            }
        }
        states
    }

    /// An aggregate of the plan.
    ///
    /// # Panics
    /// If there is no such call.
    #[must_use]
    pub fn call(&self, node: NodeId, call: usize) -> &AggregateCall {
        match &self.nodes[node.0].operator {
            Operator::Aggregate { calls, .. } => &calls[call],
            other => panic!("node {} is a {}, not an aggregate", node.0, other.name()),
        }
    }

    /// What a column of the output is made of.
    ///
    /// # Panics
    /// If the output has no such column.
    #[must_use]
    pub fn lineage(&self, column: usize) -> Lineage {
        self.lineage_at(NodeId(self.nodes.len() - 1), column)
    }

    /// What the arguments of a call are made of.
    ///
    /// # Panics
    /// If there is no such call.
    #[must_use]
    pub fn argument_lineage(&self, node: NodeId, call: usize) -> Vec<Lineage> {
        let input = self.nodes[node.0].inputs[0];
        self.call(node, call).arguments.iter().map(|argument| self.lineage_at(input, *argument)).collect()
    }

    fn lineage_at(&self, node: NodeId, column: usize) -> Lineage {
        let at = &self.nodes[node.0];
        match &at.operator {
            Operator::Source { table, columns } => Lineage {
                kind: LineageKind::Plain,
                columns: BTreeSet::from([(*table, columns[column])]),
                ..Lineage::default()
            },
            Operator::Values { .. } => Lineage::default(),
            Operator::Filter { .. } | Operator::AtMostOneRow => self.lineage_at(at.inputs[0], column),
            Operator::Distinct => self.lineage_at(at.inputs[0], column).grouped(),
            Operator::Project { expressions } => match expressions[column].passes() {
                Some(passed) => self.lineage_at(at.inputs[0], passed),
                None => {
                    let read = expressions[column].columns();
                    let mut computed = Lineage { is_computed: !read.is_empty(), ..Lineage::default() };
                    for column in read {
                        computed.add(self.lineage_at(at.inputs[0], column));
                    }
                    computed
                }
            },
            Operator::Union => {
                let mut inputs = at.inputs.iter().map(|input| self.lineage_at(*input, column));
                let mut all = inputs.next().unwrap_or_default();
                inputs.for_each(|input| all.add(input));
                all
            }
            Operator::Join { .. } => {
                let n_left = self.nodes[at.inputs[0].0].schema.fields().len();
                match column.checked_sub(n_left) {
                    None => self.lineage_at(at.inputs[0], column),
                    Some(column) => self.lineage_at(at.inputs[1], column),
                }
            }
            Operator::Aggregate { group, calls } => match column.checked_sub(group.len()) {
                None => self.lineage_at(at.inputs[0], group[column]).grouped(),
                Some(call) => match self.shows_group(at.inputs[0], group, &calls[call]) {
                    Some(argument) => self.lineage_at(at.inputs[0], argument).grouped(),
                    None => self.lineage_of_call(node, call),
                },
            },
        }
    }

    fn lineage_of_call(&self, node: NodeId, call: usize) -> Lineage {
        let mut lineage = Lineage::default();
        self.argument_lineage(node, call).into_iter().for_each(|argument| lineage.add(argument));
        lineage.kind = LineageKind::Aggregate;
        lineage.calls = BTreeSet::from([(node, call)]);
        lineage.is_computed = false;
        lineage
    }
}

impl Lineage {
    fn add(&mut self, other: Lineage) {
        self.kind = self.kind.max(other.kind);
        self.columns.extend(other.columns);
        self.calls.extend(other.calls);
        self.is_computed |= other.is_computed;
    }

    fn grouped(self) -> Lineage {
        Lineage { kind: LineageKind::Group, ..self }
    }
}
