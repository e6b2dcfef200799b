//! GROUP BY and DISTINCT: keys and arguments are projected, then grouped.

use arrow::datatypes::DataType;
use datafusion::logical_expr::{Aggregate, Expr};
use operators::{AggregateCall, AggregateFunction, NodeId, Operator};
use types::Result;

use super::compile::Compiler;
use super::facts::{Facts, distinct_keys, never_null};
use crate::aggregates;
use crate::lower::{KEY_PREFIX, SHOWN_PREFIX};
use crate::parse::unsupported;

/// The calls of an aggregation, and the columns that they and the groups need.
struct Columns {
    exprs: Vec<Expr>,
    calls: Vec<AggregateCall>,
}

impl Columns {
    /// The position of an expression, which is added if it is new.
    fn place(&mut self, expr: &Expr) -> usize {
        let plain = expr.clone().unalias_nested().data;
        if let Some(at) = self.exprs.iter().position(|known| *known == plain) {
            return at;
        }
        self.exprs.push(plain);
        self.exprs.len() - 1
    }
}

impl Compiler {
    pub(super) fn aggregate(&mut self, aggregate: &Aggregate) -> Result<NodeId> {
        if matches!(aggregate.group_expr.as_slice(), [Expr::GroupingSet(_)]) {
            return Err(unsupported("GROUP BY ... WITH ROLLUP in a view"));
        }
        let input = self.node(&aggregate.input)?;
        let schema = aggregate.input.schema();
        let mut columns = Columns { exprs: Vec::new(), calls: Vec::new() };
        // Each group is a column of its own, so that the output is the plan's.
        let n_groups = aggregate.group_expr.len();
        columns.exprs.extend(aggregate.group_expr.iter().map(|expr| expr.clone().unalias_nested().data));
        for expr in &aggregate.aggr_expr {
            let call = self.call(expr, &mut columns)?;
            columns.calls.push(call);
        }
        let not_null = self.output_not_null(aggregate, &columns, input);
        let Columns { exprs, calls } = columns;
        let projected = if exprs.is_empty() { input } else { self.exactly(input, schema, &exprs)? };
        if calls.is_empty() {
            return Ok(self.distinct(projected));
        }
        let types: Vec<DataType> =
            aggregate.schema.fields().iter().map(|field| field.data_type().clone()).collect();
        let keys = group_keys(aggregate, n_groups);
        let facts = Facts { not_null, keys, append_only: false };
        let operator = Operator::Aggregate { group: (0..n_groups).collect(), calls };
        Ok(self.push(operator, vec![projected], &types, facts))
    }

    /// A projection to exactly these expressions.
    fn exactly(
        &mut self,
        input: NodeId,
        schema: &datafusion::common::DFSchemaRef,
        exprs: &[Expr],
    ) -> Result<NodeId> {
        let node = self.projection(input, schema, exprs)?;
        assert_eq!(self.width(node), exprs.len(), "a projection has its expressions as columns");
        Ok(node)
    }

    fn call(&self, expr: &Expr, columns: &mut Columns) -> Result<AggregateCall> {
        let Expr::AggregateFunction(call) = expr.clone().unalias_nested().data else {
            return Err(unsupported(&format!("{expr} in a view")));
        };
        let name = call.func.name().to_uppercase();
        let Some(function) = aggregates::function_of(&call.func) else {
            return Err(unsupported(&format!("aggregate {name} in a view")));
        };
        if !call.params.order_by.is_empty() || call.params.null_treatment.is_some() {
            return Err(unsupported(&format!(
                "aggregate {name} with an order or treatment of NULLs in a view"
            )));
        }
        let distinct = call.params.distinct;
        let is_constant = |expr: &Expr| matches!(expr, Expr::Literal(value, _) if !value.is_null());
        let counts_rows =
            function == AggregateFunction::Count && !distinct && call.params.args.iter().all(is_constant);
        let arguments = if counts_rows {
            Vec::new()
        } else {
            call.params.args.iter().map(|argument| columns.place(argument)).collect()
        };
        let filter = call.params.filter.as_ref().map(|filter| columns.place(filter));
        Ok(AggregateCall { function, arguments, distinct, filter })
    }

    /// What counts is never NULL; others are not if every group has a row that counts.
    fn output_not_null(&self, aggregate: &Aggregate, columns: &Columns, input: NodeId) -> Vec<bool> {
        let known = &self.facts(input).not_null;
        let schema = aggregate.input.schema();
        let is_grouped = !aggregate.group_expr.is_empty();
        let groups = aggregate.group_expr.iter().map(|expr| never_null(expr, schema, known));
        let calls = columns.calls.iter().map(|call| {
            let arguments_known =
                call.arguments.iter().all(|at| never_null(&columns.exprs[*at], schema, known));
            call.function.is_count() || (is_grouped && call.filter.is_none() && arguments_known)
        });
        groups.chain(calls).collect()
    }
}

/// The group columns identify a row; the text that a padded group shows does as well as its key.
fn group_keys(aggregate: &Aggregate, n_groups: usize) -> Vec<Vec<usize>> {
    let groups: Vec<usize> = (0..n_groups).collect();
    let name = |index: usize| aggregate.schema.field(index).name().clone();
    let shown = |index: &usize| {
        let number = name(*index).strip_prefix(KEY_PREFIX).map(str::to_owned)?;
        let wanted = format!("{SHOWN_PREFIX}{number}");
        (n_groups..aggregate.schema.fields().len()).find(|at| name(*at) == wanted)
    };
    let as_shown = groups.iter().map(|index| shown(index).unwrap_or(*index)).collect();
    distinct_keys([groups, as_shown].into_iter())
}
