//! MySQL's meaning, second half: on the logical plan, once types are known.
//!
//! Calls of `$` functions become plain expressions with explicit conversions on both sides, so that the
//! engine's own coercion finds nothing to do. Texts are compared, joined, grouped, made distinct and
//! sorted by `pad_key`; a group shows its smallest text. What is under a LIMIT is sorted to the end.

mod comparison;
mod expr;
mod shape;
mod subquery;

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, JoinConstraint, JoinType, Result as PlanResult, TableReference};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, merge_schema, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, ExprSchemable, Filter, Join, Limit, LogicalPlan, Projection, Sort, SortExpr,
    Union, col, lit,
};

use crate::aggregates;
use crate::class::Class;
use crate::error::to_datafusion;
use crate::functions::{Library, call_udf, common_type};
use crate::plan::Declared;

pub(crate) use expr::{Lowering, convert, truth};
use subquery::{Place, Subqueries, has_subquery};

/// Lowers a whole plan, subqueries included.
pub(crate) fn lower_plan(
    plan: LogicalPlan,
    library: &Library,
    declared: &Declared,
) -> PlanResult<LogicalPlan> {
    let lowered =
        plan.transform_up_with_subqueries(|node| lower_node(node, library, declared).map(Transformed::yes))?;
    Ok(lowered.data)
}

fn lower_node(node: LogicalPlan, library: &Library, declared: &Declared) -> PlanResult<LogicalPlan> {
    let node = lower_subqueries(lower_expressions(node, library, declared)?, library)?;
    match node {
        LogicalPlan::Union(union) => lower_union(union, library),
        LogicalPlan::Join(join) => lower_join(join, library),
        LogicalPlan::Distinct(Distinct::All(input)) => lower_distinct(input, library),
        LogicalPlan::Aggregate(aggregate) => lower_aggregate(aggregate, library),
        LogicalPlan::Sort(sort) => lower_sort(sort, library),
        LogicalPlan::Limit(limit) => complete_order(limit),
        other => Ok(other),
    }
}

fn lower_expressions(node: LogicalPlan, library: &Library, declared: &Declared) -> PlanResult<LogicalPlan> {
    if node.expressions().is_empty() {
        return match node.inputs().is_empty() {
            true => Ok(node),
            // A type below may have changed.
            false => node.recompute_schema(),
        };
    }
    let mut schema = merge_schema(&node.inputs());
    if let LogicalPlan::TableScan(scan) = &node {
        let source = DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?;
        schema.merge(&source);
    }
    let preserver = NamePreserver::new(&node);
    let inputs: Vec<LogicalPlan> = node.inputs().into_iter().cloned().collect();
    let lowering = Lowering::over(library, &schema, &inputs, declared);
    let lowered = node.map_expressions(|expr| {
        let name = preserver.save(&expr);
        let lowered = expr.transform_up(|expr| lowering.lower(expr))?;
        Ok(lowered.update_data(|expr| name.restore(expr)))
    })?;
    lowered.data.recompute_schema()
}

/// Subqueries take forms that joins answer right.
fn lower_subqueries(node: LogicalPlan, library: &Library) -> PlanResult<LogicalPlan> {
    if !node.expressions().iter().any(has_subquery) {
        return Ok(node);
    }
    let schema = merge_schema(&node.inputs());
    let subqueries = Subqueries { library, schema: &schema };
    match node {
        LogicalPlan::Filter(filter) => {
            let predicate = subqueries.rewrite(filter.predicate, Place::Conjunct)?;
            Ok(LogicalPlan::Filter(Filter::try_new(predicate, filter.input)?))
        }
        LogicalPlan::Join(mut join) if join.join_type == JoinType::Inner => {
            // What is left of the condition stands above the join.
            let Some(condition) = join.filter.take() else { return Ok(LogicalPlan::Join(join)) };
            let (above, within): (Vec<_>, Vec<_>) =
                split_conjunction_owned(condition).into_iter().partition(has_subquery);
            join.filter = conjunction(within);
            let Some(above) = conjunction(above) else { return Ok(LogicalPlan::Join(join)) };
            let predicate = subqueries.rewrite(above, Place::Conjunct)?;
            Ok(LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(LogicalPlan::Join(join)))?))
        }
        LogicalPlan::Join(_) => Err(subquery::refused("a subquery in the ON of an outer join")),
        other => {
            let takes_joins = matches!(other, LogicalPlan::Projection(_));
            let preserver = NamePreserver::new(&other);
            let rewritten = other.map_expressions(|expr| {
                let name = preserver.save(&expr);
                let expr = subqueries.rewrite(expr, Place::Value)?;
                if !takes_joins && has_correlated(&expr)? {
                    return Err(subquery::refused(
                        "a correlated subquery outside the SELECT list, WHERE, HAVING and ON",
                    ));
                }
                Ok(Transformed::yes(name.restore(expr)))
            })?;
            rewritten.data.recompute_schema()
        }
    }
}

fn has_correlated(expr: &Expr) -> PlanResult<bool> {
    expr.exists(|expr| {
        let subquery = match expr {
            Expr::ScalarSubquery(subquery) => subquery,
            Expr::Exists(exists) => &exists.subquery,
            Expr::InSubquery(subquery) => &subquery.subquery,
            _ => return Ok(false),
        };
        Ok(shape::is_correlated(&subquery.subquery))
    })
}

/// Columns of a UNION take one type for all inputs.
fn lower_union(union: Union, library: &Library) -> PlanResult<LogicalPlan> {
    let n_columns = union.inputs.first().map_or(0, |input| input.schema().fields().len());
    let mut targets = Vec::with_capacity(n_columns);
    for index in 0..n_columns {
        let types = union.inputs.iter().filter_map(|input| input.schema().fields().get(index));
        let target = common_type(types.map(|field| field.data_type())).map_err(to_datafusion)?;
        targets.push(if target == DataType::Null { DataType::Int64 } else { target });
    }
    let inputs = union
        .inputs
        .into_iter()
        .map(|input| convert_columns(input, &targets, library))
        .collect::<PlanResult<Vec<_>>>()?;
    let inputs = under_names_of_first(inputs)?;
    Ok(LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?))
}

/// The engine looks for the first input's names where only another is left.
fn under_names_of_first(mut inputs: Vec<Arc<LogicalPlan>>) -> PlanResult<Vec<Arc<LogicalPlan>>> {
    let Some(first) = inputs.first().map(|first| Arc::clone(first.schema())) else { return Ok(inputs) };
    for input in inputs.iter_mut() {
        let named = |name: &str, (qualifier, field): (Option<&TableReference>, &FieldRef)| {
            qualifier.is_none() && field.name() == name
        };
        let schema = Arc::clone(input.schema());
        if first.fields().iter().zip(schema.iter()).all(|(wanted, field)| named(wanted.name(), field)) {
            continue;
        }
        let columns = first.fields().iter().zip(schema.iter());
        let columns =
            columns.map(|(wanted, field)| Expr::Column(Column::from(field)).alias(wanted.name().clone()));
        let projection = Projection::try_new(columns.collect(), Arc::clone(input))?;
        *input = Arc::new(LogicalPlan::Projection(projection));
    }
    Ok(inputs)
}

fn convert_columns(
    input: Arc<LogicalPlan>,
    targets: &[DataType],
    library: &Library,
) -> PlanResult<Arc<LogicalPlan>> {
    let schema = Arc::clone(input.schema());
    let same = schema.fields().iter().zip(targets).all(|(field, target)| field.data_type() == target);
    if same {
        return Ok(input);
    }
    let columns = schema.iter().zip(targets).map(|((qualifier, field), target)| {
        let column = Expr::Column(Column::from((qualifier, field)));
        if field.data_type() == target {
            return column;
        }
        let converted = convert(column, field.data_type(), target, library);
        converted.alias_qualified(qualifier.cloned(), field.name())
    });
    Ok(Arc::new(LogicalPlan::Projection(Projection::try_new(columns.collect(), input)?)))
}

/// Key pairs (USING, INTERSECT, EXCEPT) compare as `=` does.
fn lower_join(mut join: Join, library: &Library) -> PlanResult<LogicalPlan> {
    let mut on = Vec::with_capacity(join.on.len());
    let mut changed = false;
    for (left, right) in join.on {
        let left_type = left.get_type(join.left.schema())?;
        let right_type = right.get_type(join.right.schema())?;
        let (new_left, new_right) =
            comparison::comparable(left.clone(), &left_type, right.clone(), &right_type, library)?;
        changed |= new_left != left || new_right != right;
        on.push((new_left, new_right));
    }
    join.on = on;
    if changed {
        // The planner expects plain columns of USING.
        join.join_constraint = JoinConstraint::On;
    }
    Ok(LogicalPlan::Join(join))
}

fn is_text(data_type: &DataType) -> bool {
    Class::of(data_type) == Some(Class::Text)
}

/// A text's sort key.
pub(crate) fn padded(text: Expr, library: &Library) -> Expr {
    if expr::is_padded(&text) { text } else { call_udf(library.pad_key(), vec![text]) }
}

/// Whether an expression must be padded: a text that is not a sort key already (plans of inlined views
/// are lowered before the query that names them).
fn needs_padding(expr: &Expr, schema: &DFSchema) -> PlanResult<bool> {
    Ok(is_text(&expr.get_type(schema)?) && !expr::is_padded(expr))
}

fn lower_distinct(input: Arc<LogicalPlan>, library: &Library) -> PlanResult<LogicalPlan> {
    let has_text = input.schema().fields().iter().any(|field| is_text(field.data_type()));
    if !has_text {
        return Ok(LogicalPlan::Distinct(Distinct::All(input)));
    }
    let group =
        input.schema().iter().map(|(qualifier, field)| Expr::Column(Column::from((qualifier, field))));
    let aggregate = Aggregate::try_new(Arc::clone(&input), group.collect(), Vec::new())?;
    lower_aggregate(aggregate, library)
}

/// Texts group by their sort key; the group shows the smallest of its texts by bytes.
fn lower_aggregate(aggregate: Aggregate, library: &Library) -> PlanResult<LogicalPlan> {
    let Aggregate { input, group_expr, aggr_expr, schema, .. } = aggregate;
    if matches!(group_expr.as_slice(), [Expr::GroupingSet(_)]) {
        let group_expr = group_expr
            .into_iter()
            .map(|set| {
                let padded = set.transform_down(|expr| {
                    if matches!(expr, Expr::GroupingSet(_)) {
                        return Ok(Transformed::no(expr));
                    }
                    let (qualifier, name) = expr.qualified_name();
                    let is_text = is_text(&expr.get_type(input.schema())?);
                    let expr = if is_text {
                        call_udf(library.pad_key(), vec![expr]).alias_qualified(qualifier, name)
                    } else {
                        expr
                    };
                    Ok(Transformed::new(expr, is_text, TreeNodeRecursion::Jump))
                })?;
                Ok(padded.data)
            })
            .collect::<PlanResult<Vec<_>>>()?;
        return Ok(LogicalPlan::Aggregate(Aggregate::try_new(input, group_expr, aggr_expr)?));
    }
    // The aggregate's schema has a key once that is written twice.
    let mut distinct: Vec<Expr> = Vec::with_capacity(group_expr.len());
    for expr in group_expr {
        if !distinct.contains(&expr) {
            distinct.push(expr);
        }
    }
    let group_expr = distinct;
    let mut is_plain = !aggr_expr.iter().any(|call| aggregates::carried_sum(call).is_some());
    for expr in &group_expr {
        is_plain &= !needs_padding(expr, input.schema())?;
    }
    if is_plain {
        return Ok(LogicalPlan::Aggregate(Aggregate::try_new(input, group_expr, aggr_expr)?));
    }
    let n_groups = group_expr.len();
    let mut keys = Vec::with_capacity(n_groups);
    let n_calls = aggr_expr.len();
    let (mut calls, sums) = carried_sums(aggr_expr, &schema, library)?;
    let mut outputs = Vec::with_capacity(schema.fields().len());
    for (index, expr) in group_expr.into_iter().enumerate() {
        let (qualifier, field) = schema.qualified_field(index);
        if !needs_padding(&expr, input.schema())? {
            outputs.push(Expr::Column(Column::from((qualifier, field))));
            keys.push(expr);
            continue;
        }
        let shown = format!("{SHOWN_PREFIX}{index}");
        let plain = expr.clone().unalias_nested().data;
        keys.push(call_udf(library.pad_key(), vec![plain.clone()]).alias(format!("{KEY_PREFIX}{index}")));
        calls.push(aggregates::smallest(plain).alias(&shown));
        outputs.push(col(Column::new_unqualified(shown)).alias_qualified(qualifier.cloned(), field.name()));
    }
    for (index, carried) in (n_groups..n_groups + n_calls).zip(sums) {
        let (qualifier, field) = schema.qualified_field(index);
        let column = Expr::Column(Column::from((qualifier, field)));
        outputs.push(match carried {
            Some(carried) => {
                let shown = library.shown(column, carried, field.data_type());
                shown.alias_qualified(qualifier.cloned(), field.name())
            }
            None => column,
        });
    }
    let aggregate = LogicalPlan::Aggregate(Aggregate::try_new(input, keys, calls)?);
    Ok(LogicalPlan::Projection(Projection::try_new(outputs, Arc::new(aggregate))?))
}

/// Sums of what carries digits add all of them; the types that such sums carry.
fn carried_sums(
    calls: Vec<Expr>,
    schema: &DFSchema,
    library: &Library,
) -> PlanResult<(Vec<Expr>, Vec<Option<DataType>>)> {
    let n_groups = schema.fields().len() - calls.len();
    let mut carried = Vec::with_capacity(calls.len());
    let mut rewritten = Vec::with_capacity(calls.len());
    for (index, call) in calls.into_iter().enumerate() {
        let (qualifier, field) = schema.qualified_field(n_groups + index);
        match aggregates::with_carried_sum(&call, field.data_type(), library)? {
            Some((sum, data_type)) => {
                rewritten.push(sum.alias_qualified(qualifier.cloned(), field.name()));
                carried.push(Some(data_type));
            }
            None => {
                rewritten.push(call);
                carried.push(None);
            }
        }
    }
    Ok((rewritten, carried))
}

/// Names of group keys that were padded, and of the aggregates that show the groups.
pub(crate) const KEY_PREFIX: &str = "#key";
pub(crate) const SHOWN_PREFIX: &str = "#shown";

fn lower_sort(mut sort: Sort, library: &Library) -> PlanResult<LogicalPlan> {
    for order in &mut sort.expr {
        if needs_padding(&order.expr, sort.input.schema())? {
            let expr = std::mem::replace(&mut order.expr, lit(0));
            order.expr = call_udf(library.pad_key(), vec![expr.unalias()]);
        }
    }
    Ok(LogicalPlan::Sort(sort))
}

/// Under a LIMIT the order is completed by all columns, so that which rows come out does not depend on
/// how the engine reads them.
fn complete_order(limit: Limit) -> PlanResult<LogicalPlan> {
    let Limit { skip, fetch, input } = limit;
    let input = complete_below(Arc::unwrap_or_clone(input))?;
    Ok(LogicalPlan::Limit(Limit { skip, fetch, input: Arc::new(input) }))
}

fn complete_below(node: LogicalPlan) -> PlanResult<LogicalPlan> {
    match node {
        LogicalPlan::Sort(mut sort) => {
            let columns = sort
                .input
                .schema()
                .iter()
                .map(|(qualifier, field)| Expr::Column(Column::from((qualifier, field))));
            for column in columns {
                if !sort.expr.iter().any(|order| order.expr == column) {
                    sort.expr.push(SortExpr::new(column, true, true));
                }
            }
            Ok(LogicalPlan::Sort(sort))
        }
        LogicalPlan::Projection(mut projection) => {
            let input = complete_below(Arc::unwrap_or_clone(projection.input))?;
            projection.input = Arc::new(input);
            Ok(LogicalPlan::Projection(projection))
        }
        LogicalPlan::SubqueryAlias(mut alias) => {
            let input = complete_below(Arc::unwrap_or_clone(alias.input))?;
            alias.input = Arc::new(input);
            Ok(LogicalPlan::SubqueryAlias(alias))
        }
        other => Ok(other),
    }
}
