//! Plans: a view's query as a graph of incremental operators.
//!
//! A plan is data. Nodes stand in topological order (inputs before users), the last node is the
//! output. It is fixed at CREATE and derived again from the stored query at each start; a fingerprint
//! guards against an engine that would plan the same text differently over existing state.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use types::TableId;

use crate::Expression;

/// The position of a node in its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub usize);

/// A view's dataflow.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The operators, inputs before users; the last is the output.
    pub nodes: Vec<Node>,
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
        rows: arrow::array::RecordBatch,
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

/// The aggregate functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
}
