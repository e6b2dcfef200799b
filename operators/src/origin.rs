//! Where the values of an output column come from, and so which source rows some rows of the output hang on.
//!
//! A query that wants only the output rows whose column satisfies a condition needs only the changes of the
//! source rows that can lead to them. A column is followed through its plan down to the sources as long as
//! rows with another value there cannot matter to the wanted rows: through projections that pass it on, to
//! the groups of an aggregate, and across the keys of a join to the other side.

use std::collections::{BTreeMap, BTreeSet};

use types::TableId;

use crate::plan::{AggregateCall, AggregateFunction, JoinKind, NodeId, Operator, Plan};

/// Columns of sources (positions in the table), by table.
pub type Origins = BTreeMap<TableId, BTreeSet<usize>>;

impl Plan {
    /// The columns of base tables that a column of the output comes from.
    ///
    /// Let C be a condition on the column that is not true for NULL and cannot tell two values of one sort
    /// key apart, and let only output rows with C be of interest. Then of each table in the answer the rows
    /// of which no named column satisfies C need not be pushed; a table that is not in the answer must be
    /// pushed whole. The output rows without C are then meaningless, those with C are exact.
    ///
    /// # Panics
    /// If the output has no such column.
    #[must_use]
    pub fn origins(&self, column: usize) -> Origins {
        assert!(column < self.output().schema.fields().len(), "the output has no column {column}");
        let mut tracer = Tracer { plan: self, n_users: self.n_users(), reached: BTreeMap::new() };
        tracer.follow(NodeId(self.nodes.len() - 1), column);
        let reached = tracer.reached;
        let mut origins = Origins::new();
        let mut whole: BTreeSet<TableId> = BTreeSet::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let Operator::Source { table, .. } = &node.operator else { continue };
            match reached.get(&index) {
                Some(columns) => origins.entry(*table).or_default().extend(columns),
                // Rows are pushed to all sources of a table alike.
                None => {
                    whole.insert(*table);
                }
            }
        }
        origins.retain(|table, _| !whole.contains(table));
        origins
    }

    fn n_users(&self) -> Vec<usize> {
        let mut n_users = vec![0; self.nodes.len()];
        for input in self.nodes.iter().flat_map(|node| &node.inputs) {
            n_users[input.0] += 1;
        }
        n_users
    }

    /// The node and column that a column's values are taken from unchanged, or but for their sort keys.
    fn value_of(&self, node: NodeId, column: usize) -> (NodeId, usize) {
        let at = &self.nodes[node.0];
        match &at.operator {
            Operator::Filter { .. } | Operator::Distinct => self.value_of(at.inputs[0], column),
            Operator::Project { expressions } => match expressions[column].passes() {
                Some(passed) => self.value_of(at.inputs[0], passed),
                None => (node, column),
            },
            Operator::Join { kind, .. } => {
                let n_left = self.nodes[at.inputs[0].0].schema.fields().len();
                match kind {
                    _ if column < n_left => self.value_of(at.inputs[0], column),
                    JoinKind::Inner => self.value_of(at.inputs[1], column - n_left),
                    _ => (node, column),
                }
            }
            Operator::Source { .. }
            | Operator::Values { .. }
            | Operator::Union
            | Operator::Aggregate { .. }
            | Operator::AtMostOneRow => (node, column),
        }
    }

    /// The argument of a call whose value is one of the texts of a group of the input.
    pub(crate) fn shows_group(&self, input: NodeId, group: &[usize], call: &AggregateCall) -> Option<usize> {
        shown_of(call).filter(|argument| group.iter().any(|group| self.are_one(input, *group, *argument)))
    }

    /// Whether two columns of a node have the same sort key in every row.
    fn are_one(&self, node: NodeId, left: usize, right: usize) -> bool {
        self.value_of(node, left) == self.value_of(node, right)
    }
}

/// What following a column has reached.
struct Tracer<'a> {
    plan: &'a Plan,
    n_users: Vec<usize>,
    /// Positions in the tables, by source node.
    reached: BTreeMap<usize, BTreeSet<usize>>,
}

impl Tracer<'_> {
    fn follow(&mut self, node: NodeId, column: usize) {
        let at = &self.plan.nodes[node.0];
        // Somebody else wants its other rows.
        if self.n_users[node.0] > 1 {
            return;
        }
        match &at.operator {
            Operator::Source { columns, .. } => {
                self.reached.entry(node.0).or_default().insert(columns[column]);
            }
            // A row that is missing below could make one row out of two.
            Operator::Values { .. } | Operator::AtMostOneRow => {}
            Operator::Filter { .. } | Operator::Distinct => self.follow(at.inputs[0], column),
            Operator::Project { expressions } => {
                if let Some(passed) = expressions[column].passes() {
                    self.follow(at.inputs[0], passed);
                }
            }
            Operator::Union => {
                for input in &at.inputs {
                    self.follow(*input, column);
                }
            }
            Operator::Aggregate { group, calls } => match column.checked_sub(group.len()) {
                None => self.follow(at.inputs[0], group[column]),
                Some(call) => {
                    if let Some(argument) = self.plan.shows_group(at.inputs[0], group, &calls[call]) {
                        self.follow(at.inputs[0], argument);
                    }
                }
            },
            Operator::Join { kind, left_keys, right_keys, .. } => {
                let (left, right) = (at.inputs[0], at.inputs[1]);
                let n_left = self.plan.nodes[left.0].schema.fields().len();
                let (from, column, other, own_keys, other_keys) = match column.checked_sub(n_left) {
                    None => (left, column, right, left_keys, right_keys),
                    // The row of NULLs of an outer join hangs on all rows of the other side.
                    Some(_) if *kind != JoinKind::Inner => return,
                    Some(column) => (right, column, left, right_keys, left_keys),
                };
                self.follow(from, column);
                // A NULL on the right of NOT IN concerns every row.
                if *kind == JoinKind::LeftAntiNullAware {
                    return;
                }
                for (own, other_key) in own_keys.iter().zip(other_keys) {
                    if self.plan.are_one(from, *own, column) {
                        self.follow(other, *other_key);
                    }
                }
            }
        }
    }
}

/// The argument of a call whose value is one of the argument's.
fn shown_of(call: &AggregateCall) -> Option<usize> {
    let picks = matches!(call.function, AggregateFunction::Min | AggregateFunction::Max);
    match call.arguments.as_slice() {
        [argument] if picks && call.filter.is_none() => Some(*argument),
        _ => None,
    }
}
