//! Plans: a view's query as a graph of incremental operators.
//!
//! A plan is data. Nodes stand in topological order (inputs before users), the last node is the
//! output. It is fixed at CREATE and derived again from the stored query at each start; a fingerprint
//! guards against an engine that would plan the same text differently over existing state.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use types::{Error, Result, TableId};
use xxhash_rust::xxh3::xxh3_128;

use crate::Expression;
use crate::encoding::RowCodec;
use crate::run::StateKind;

/// The position of a node in its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub usize);

/// A view's dataflow.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The operators, inputs before users; the last is the output.
    pub nodes: Vec<Node>,
}

impl Plan {
    /// The node whose output is the view's.
    ///
    /// # Panics
    /// If the plan has no node.
    #[must_use]
    pub fn output(&self) -> &Node {
        self.nodes.last().expect("a plan has a node")
    }

    /// The base tables that the plan reads, each once.
    #[must_use]
    pub fn tables(&self) -> Vec<TableId> {
        let mut tables: Vec<TableId> = Vec::new();
        for node in &self.nodes {
            if let Operator::Source { table, .. } = &node.operator
                && !tables.contains(table)
            {
                tables.push(*table);
            }
        }
        tables
    }

    /// A node as errors name it.
    pub(crate) fn node_text(&self, index: usize) -> String {
        format!("operator {index} ({})", self.nodes[index].operator.name())
    }

    /// The number of states.
    #[must_use]
    pub fn states_count(&self) -> usize {
        self.state_kinds().len()
    }

    /// The kinds of its states, by number.
    #[must_use]
    pub fn state_kinds(&self) -> Vec<StateKind> {
        self.states().into_iter().map(|(_, state)| state.kind).collect()
    }

    /// A text that says all that the meaning of stored state depends on.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let inputs: Vec<String> = node.inputs.iter().map(|input| format!("#{}", input.0)).collect();
            let types: Vec<String> =
                node.schema.fields().iter().map(|field| field.data_type().to_string()).collect();
            let _ = writeln!(
                text,
                "#{index} {} <- [{}] : ({})",
                node.operator.describe(),
                inputs.join(", "),
                types.join(", ")
            );
        }
        text
    }

    /// A hash of [`Plan::describe`]: state of a plan with another fingerprint is not this plan's.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        format!("{:032x}", xxh3_128(self.describe().as_bytes()))
    }

    /// Checks that nodes stand in order and have the right number of inputs.
    ///
    /// # Errors
    /// `Invalid` if not.
    pub fn check(&self) -> Result<()> {
        if self.nodes.is_empty() {
            return Err(Error::invalid("a plan without nodes"));
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let n_inputs = node.inputs.len();
            let fits = match &node.operator {
                Operator::Source { .. } | Operator::Values { .. } => n_inputs == 0,
                Operator::Join { .. } => n_inputs == 2,
                Operator::Union => n_inputs > 0,
                _ => n_inputs == 1,
            };
            if !fits || node.inputs.iter().any(|input| input.0 >= index) {
                return Err(Error::invalid(format!(
                    "operator {index} ({}) has wrong inputs",
                    node.operator.name()
                )));
            }
        }
        Ok(())
    }
}

/// One operator with its edges.
#[derive(Clone, Debug)]
pub struct Node {
    /// What it does.
    pub operator: Operator,
    /// Where its deltas come from.
    pub inputs: Vec<NodeId>,
    /// What it puts out.
    pub schema: SchemaRef,
    /// Columns whose values identify a row of the output, if any are known.
    pub stream_key: Option<Vec<usize>>,
    /// Whether no retraction can ever leave it.
    pub append_only: bool,
}

/// What a node does. Keys and groups are columns: the planner projects expressions first, and it
/// projects sort keys for PAD SPACE strings, so operators compare bytes.
#[derive(Clone, Debug)]
pub enum Operator {
    /// The rows of a base table, in the node's schema (a projection of the table's columns).
    Source {
        /// The table.
        table: TableId,
        /// The table's public columns, by position, that the node puts out.
        columns: Vec<usize>,
    },
    /// Fixed rows, there from the beginning (SELECT without FROM, or FROM an empty relation).
    Values {
        /// The rows.
        rows: RecordBatch,
    },
    /// Keeps rows whose predicate is true.
    Filter {
        /// A boolean.
        predicate: Arc<dyn Expression>,
    },
    /// Computes columns.
    Project {
        /// One a column of the output.
        expressions: Vec<Arc<dyn Expression>>,
    },
    /// UNION ALL of inputs of one schema.
    Union,
    /// A join on equal key columns. Inner and left put out left columns, then right columns; semi and
    /// anti put out left columns. Without keys it is a cross join.
    Join {
        /// Which rows come out.
        kind: JoinKind,
        /// Key columns of the left input.
        left_keys: Vec<usize>,
        /// Key columns of the right input, of the same types.
        right_keys: Vec<usize>,
        /// Whether NULL keys match each other.
        null_equal: bool,
        /// A further condition on the joined row (left columns, then right columns): part of the match.
        residual: Option<Arc<dyn Expression>>,
    },
    /// Groups and aggregates: group columns, then one column a call. Without group columns it is a
    /// global aggregate: one row, also over nothing.
    Aggregate {
        /// Columns of the input.
        group: Vec<usize>,
        /// The aggregates.
        calls: Vec<AggregateCall>,
    },
    /// Each row once.
    Distinct,
    /// A scalar subquery's result: no row becomes a row of NULLs, two rows are an error.
    AtMostOneRow,
}

impl Node {
    /// The kinds of the states that the operator keeps; fixed by the plan alone.
    #[must_use]
    pub fn state_kinds(&self) -> Vec<StateKind> {
        self.states().into_iter().map(|state| state.kind).collect()
    }
}

impl Operator {
    /// Whether a row of its output hangs on one row of each input alone: more rows in are only more out.
    #[must_use]
    pub fn is_linear(&self) -> bool {
        match self {
            Operator::Source { .. }
            | Operator::Values { .. }
            | Operator::Filter { .. }
            | Operator::Project { .. }
            | Operator::Union
            | Operator::Join { kind: JoinKind::Inner, .. } => true,
            Operator::Join { .. }
            | Operator::Aggregate { .. }
            | Operator::Distinct
            | Operator::AtMostOneRow => false,
        }
    }

    /// What it is called in statistics and errors.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Operator::Source { .. } => "source",
            Operator::Values { .. } => "values",
            Operator::Filter { .. } => "filter",
            Operator::Project { .. } => "project",
            Operator::Union => "union",
            Operator::Join { kind, .. } => match kind {
                JoinKind::Inner => "inner join",
                JoinKind::Left => "left join",
                JoinKind::LeftSemi => "semi join",
                JoinKind::LeftAnti => "anti join",
                JoinKind::LeftAntiNullAware => "null-aware anti join",
            },
            Operator::Aggregate { .. } => "aggregate",
            Operator::Distinct => "distinct",
            Operator::AtMostOneRow => "at most one row",
        }
    }

    /// What it is and does, in full.
    #[must_use]
    pub fn describe(&self) -> String {
        let name = self.name();
        match self {
            Operator::Source { table, columns } => format!("{name} {table} {columns:?}"),
            Operator::Values { rows } => format!("{name} {}", describe_rows(rows)),
            Operator::Filter { predicate } => format!("{name} {}", predicate.describe()),
            Operator::Project { expressions } => {
                let texts: Vec<String> = expressions.iter().map(|expression| expression.describe()).collect();
                format!("{name} [{}]", texts.join(", "))
            }
            Operator::Join { left_keys, right_keys, null_equal, residual, .. } => {
                let residual = residual.as_ref().map_or(String::new(), |residual| residual.describe());
                format!("{name} {left_keys:?} = {right_keys:?} null_equal={null_equal} on [{residual}]")
            }
            Operator::Aggregate { group, calls } => {
                let texts: Vec<String> = calls.iter().map(AggregateCall::describe).collect();
                format!("{name} by {group:?} [{}]", texts.join(", "))
            }
            Operator::Union | Operator::Distinct | Operator::AtMostOneRow => name.to_owned(),
        }
    }
}

/// All of some rows in short: their number and a hash of them, however many there are.
fn describe_rows(rows: &RecordBatch) -> String {
    let types = rows.schema().fields().iter().map(|field| field.data_type().clone()).collect();
    let encoded = RowCodec::new(types).and_then(|codec| codec.encode(rows.columns(), rows.num_rows()));
    let mut bytes = Vec::new();
    match encoded {
        Ok(encoded) => {
            for row in encoded.iter() {
                bytes.extend_from_slice(&(row.len() as u64).to_be_bytes());
                bytes.extend_from_slice(row);
            }
        }
        // What has no encoding is said in full.
        Err(_) => {
            for column in rows.columns() {
                bytes.extend_from_slice(format!("{:?}", column.to_data()).as_bytes());
            }
        }
    }
    format!("{} rows {:032x}", rows.num_rows(), xxh3_128(&bytes))
}

/// Which rows a join puts out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinKind {
    /// Matching pairs.
    Inner,
    /// Matching pairs, and left rows without a match, NULLs on the right.
    Left,
    /// Left rows with a match, once.
    LeftSemi,
    /// Left rows without a match.
    LeftAnti,
    /// NOT IN: left rows without a match; one NULL key on the right empties the result, and left rows
    /// with a NULL key pass only while the right side is empty.
    LeftAntiNullAware,
}

/// An aggregate over columns of its input.
#[derive(Clone, Debug)]
pub struct AggregateCall {
    /// The function.
    pub function: AggregateFunction,
    /// The argument columns; none for COUNT(*).
    pub arguments: Vec<usize>,
    /// Whether each value counts once.
    pub distinct: bool,
    /// A boolean column: only rows where it is true count.
    pub filter: Option<usize>,
}

impl AggregateCall {
    /// What it is, in full.
    #[must_use]
    pub fn describe(&self) -> String {
        let distinct = if self.distinct { "distinct " } else { "" };
        let arguments: Vec<String> = self.arguments.iter().map(|column| format!("#{column}")).collect();
        let filter = self.filter.map_or(String::new(), |column| format!(" where #{column}"));
        format!("{}({distinct}{}){filter}", self.function.name(), arguments.join(", "))
    }
}

/// The aggregate functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AggregateFunction {
    /// Rows (no argument), or rows whose arguments are all not NULL.
    Count,
    /// The exact sum.
    Sum,
    /// The exact mean.
    Avg,
    /// The least value; of equal values (PAD SPACE) the smallest by bytes.
    Min,
    /// The greatest value; of equal values (PAD SPACE) the smallest by bytes.
    Max,
    /// About how many different values there are: a sketch that values can be taken away from.
    ApproxCountDistinct,
}
