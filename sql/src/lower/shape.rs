//! The shape of a correlated subquery: what its rows depend on, and whether a join can bring them.
//!
//! The engine takes the conditions that name outer columns out of the subquery and makes them conditions
//! of a join. That is right where nothing between the condition and the top of the subquery looks at
//! several rows at once, or where what does so can look at the rows of each outer key apart.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, JoinType, Result as PlanResult, ScalarValue};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Distinct, Expr, Filter, Join, Limit, LogicalPlan, Operator, Projection, Subquery,
    lit,
};

use operators::AggregateFunction;

use super::subquery::{has_subquery, refused};
use crate::aggregates;
use crate::functions::{Library, call_udf};

/// What a correlated subquery amounts to.
pub(super) enum Shape {
    /// Nothing: LIMIT 0.
    Empty,
    /// One row, if the condition is true; both are expressions of the outer query.
    OneRow { condition: Option<Expr>, value: Expr },
    /// Rows of a plan; the value is an expression over them.
    Rows { input: LogicalPlan, value: Expr },
}

/// Whether a plan names columns of the query around it.
pub(super) fn is_correlated(plan: &LogicalPlan) -> bool {
    let mut found = false;
    let walked = plan.apply(|node| {
        found |= node.contains_outer_reference();
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    found || walked.is_err()
}

/// A subquery with another plan in it.
pub(super) fn with_plan(subquery: &Subquery, plan: LogicalPlan) -> Subquery {
    let outer_ref_columns = plan.all_out_ref_exprs();
    Subquery { subquery: Arc::new(plan), outer_ref_columns, spans: subquery.spans.clone() }
}

/// The shape of a correlated subquery. `keeps_value` is false for EXISTS, which does not look at it.
pub(super) fn of(subquery: &Subquery, keeps_value: bool, library: &Library) -> PlanResult<Shape> {
    let Some(plan) = without_order(subquery.subquery.as_ref().clone(), !keeps_value)? else {
        return Ok(Shape::Empty);
    };
    if let Some(row) = one_row(&plan, subquery, library)? {
        let OneRow { condition, columns } = row;
        let value = columns.into_iter().next().map_or_else(|| lit(ScalarValue::Null), |(_, value)| value);
        return Ok(Shape::OneRow { condition, value });
    }
    rows(plan)
}

/// Takes off what changes nothing: an order nobody sees, a LIMIT that all rows pass.
fn without_order(plan: LogicalPlan, is_exists: bool) -> PlanResult<Option<LogicalPlan>> {
    match plan {
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => {
            without_order(Arc::unwrap_or_clone(sort.input), is_exists)
        }
        LogicalPlan::Limit(limit) => {
            let (skip, fetch) = limit_numbers(&limit)?;
            if fetch == Some(0) {
                return Ok(None);
            }
            let input = without_order(Arc::unwrap_or_clone(limit.input), is_exists)?;
            let is_all = is_exists || fetch.is_none() || input.as_ref().is_none_or(is_one_row);
            match skip {
                0 if is_all => Ok(input),
                0 => Err(refused("LIMIT in a correlated subquery")),
                _ => Err(refused("OFFSET in a correlated subquery")),
            }
        }
        other => Ok(Some(other)),
    }
}

fn limit_numbers(limit: &Limit) -> PlanResult<(i64, Option<i64>)> {
    let number = |expr: &Expr| match expr {
        Expr::Literal(ScalarValue::Int64(Some(number)), _) => Ok(*number),
        Expr::Literal(ScalarValue::UInt64(Some(number)), _) => Ok(i64::try_from(*number).unwrap_or(i64::MAX)),
        _ => Err(refused("a computed LIMIT in a correlated subquery")),
    };
    let skip = limit.skip.as_deref().map_or(Ok(0), number)?;
    Ok((skip, limit.fetch.as_deref().map(number).transpose()?))
}

fn is_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => is_one_row(&projection.input),
        LogicalPlan::Filter(filter) => is_one_row(&filter.input),
        LogicalPlan::SubqueryAlias(alias) => is_one_row(&alias.input),
        LogicalPlan::Distinct(Distinct::All(input)) => is_one_row(input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(empty) => empty.produce_one_row,
        _ => false,
    }
}

/// Whether a plan has one row whatever its tables hold.
pub(super) fn always_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => always_one_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => always_one_row(&alias.input),
        LogicalPlan::Distinct(Distinct::All(input)) => always_one_row(input),
        LogicalPlan::Filter(_) => false,
        other => is_one_row(other),
    }
}

/// One row in terms of the outer query.
struct OneRow {
    condition: Option<Expr>,
    columns: Vec<(Column, Expr)>,
}

impl OneRow {
    /// An expression over the row, over the outer query instead.
    fn outside(&self, expr: Expr) -> PlanResult<Expr> {
        if has_subquery(&expr) {
            return Err(refused("a subquery beside the aggregates of a correlated subquery"));
        }
        let outside = expr.transform_down(|expr| match expr {
            Expr::OuterReferenceColumn(_, column) => {
                Ok(Transformed::new(Expr::Column(column), true, TreeNodeRecursion::Jump))
            }
            Expr::Column(column) => {
                let found = self.columns.iter().find(|(known, _)| *known == column);
                let (_, value) = found.ok_or_else(|| refused("this correlated subquery"))?;
                Ok(Transformed::new(value.clone(), true, TreeNodeRecursion::Jump))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(outside.data)
    }
}

/// The row of a subquery that has one at most whatever its tables hold: aggregates without groups, and
/// nothing above them that looks at several rows.
fn one_row(plan: &LogicalPlan, subquery: &Subquery, library: &Library) -> PlanResult<Option<OneRow>> {
    if !is_one_row(plan) {
        return Ok(None);
    }
    match plan {
        LogicalPlan::Projection(projection) => {
            let Some(row) = one_row(&projection.input, subquery, library)? else { return Ok(None) };
            let mut columns = Vec::with_capacity(projection.expr.len());
            for (expr, (qualifier, field)) in projection.expr.iter().zip(projection.schema.iter()) {
                let value = row.outside(expr.clone().unalias_nested().data)?;
                columns.push((Column::from((qualifier, field)), value));
            }
            Ok(Some(OneRow { columns, ..row }))
        }
        LogicalPlan::Filter(filter) => {
            let Some(mut row) = one_row(&filter.input, subquery, library)? else { return Ok(None) };
            let condition = row.outside(filter.predicate.clone())?;
            row.condition = Some(match row.condition.take() {
                None => condition,
                Some(known) => known.and(condition),
            });
            Ok(Some(row))
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let Some(mut row) = one_row(&alias.input, subquery, library)? else { return Ok(None) };
            for ((column, _), (qualifier, field)) in row.columns.iter_mut().zip(alias.schema.iter()) {
                *column = Column::from((qualifier, field));
            }
            Ok(Some(row))
        }
        LogicalPlan::Distinct(Distinct::All(input)) => one_row(input, subquery, library),
        LogicalPlan::Aggregate(aggregate) => of_aggregate(aggregate, subquery, library).map(Some),
        _ => Ok(Some(OneRow { condition: None, columns: Vec::new() })),
    }
}

/// Each aggregate is a scalar subquery of its own: the engine knows its value over no rows.
fn of_aggregate(aggregate: &Aggregate, subquery: &Subquery, library: &Library) -> PlanResult<OneRow> {
    let input = Arc::new(below_aggregate(aggregate.input.as_ref().clone(), library)?);
    let mut columns = Vec::with_capacity(aggregate.aggr_expr.len());
    for (call, (qualifier, field)) in aggregate.aggr_expr.iter().zip(aggregate.schema.iter()) {
        let one = Aggregate::try_new(Arc::clone(&input), Vec::new(), vec![call.clone()])?;
        let value = Expr::ScalarSubquery(with_plan(subquery, LogicalPlan::Aggregate(one)));
        let value = match counts_beside_count(call) {
            true => call_udf(library.or_zero(), vec![value]),
            false => value,
        };
        // The engine is of two minds whether a count of nothing may be NULL.
        let value = call_udf(library.nullable(), vec![value]);
        columns.push((Column::from((qualifier, field)), value));
    }
    Ok(OneRow { condition: None, columns })
}

/// Whether a call counts, but not by the name that the engine knows: over no rows it would take it for NULL.
fn counts_beside_count(call: &Expr) -> bool {
    match call {
        Expr::Alias(alias) => counts_beside_count(&alias.expr),
        Expr::AggregateFunction(call) => {
            let function = aggregates::function_of(&call.func);
            function.is_some_and(|function| function.is_count() && function != AggregateFunction::Count)
        }
        _ => false,
    }
}

/// The rows below the SELECT list, and the value over them.
fn rows(plan: LogicalPlan) -> PlanResult<Shape> {
    let first = |plan: &LogicalPlan| match plan.schema().iter().next() {
        Some(field) => Expr::Column(Column::from(field)),
        None => lit(ScalarValue::Null),
    };
    match plan {
        LogicalPlan::Distinct(Distinct::All(input)) => rows(Arc::unwrap_or_clone(input)),
        LogicalPlan::Projection(projection) => {
            let value = projection.expr.first().cloned().unwrap_or_else(|| lit(ScalarValue::Null));
            let value = value.unalias_nested().data;
            Ok(Shape::Rows { input: Arc::unwrap_or_clone(projection.input), value })
        }
        other => {
            let value = first(&other);
            Ok(Shape::Rows { input: other, value })
        }
    }
}

/// A plan whose correlated conditions a semi, anti or mark join can take.
pub(super) fn joinable(plan: LogicalPlan, library: &Library) -> PlanResult<LogicalPlan> {
    if is_correlated(&plan) { lift(plan, Above::Rows, library) } else { Ok(plan) }
}

/// A plan whose correlated conditions can pass an aggregate without groups above it.
pub(super) fn below_aggregate(plan: LogicalPlan, library: &Library) -> PlanResult<LogicalPlan> {
    if is_correlated(&plan) { lift(plan, Above::Groups, library) } else { Ok(plan) }
}

/// What stands above a condition inside its subquery.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Above {
    /// Nothing that looks at several rows.
    Rows,
    /// An aggregate: the condition must be an equality, which becomes a group.
    Groups,
}

/// Checks a plan whose conditions are to be lifted, and makes its equalities plain.
fn lift(plan: LogicalPlan, above: Above, library: &Library) -> PlanResult<LogicalPlan> {
    if !is_correlated(&plan) {
        return Ok(plan);
    }
    let plan = match plan {
        LogicalPlan::Filter(filter) => lift_filter(filter, above, library)?,
        LogicalPlan::Aggregate(aggregate) => lift_aggregate(aggregate, above, library)?,
        LogicalPlan::Join(join) => lift_join(join, above, library)?,
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => {
            lift(Arc::unwrap_or_clone(sort.input), above, library)?
        }
        other => {
            if let Some(name) = blocking(&other) {
                return Err(refused(&format!("a correlated condition below {name} of a subquery")));
            }
            if !other.expressions().iter().all(|expr| !expr.contains_outer()) {
                return Err(refused("an outer column outside the WHERE of a correlated subquery"));
            }
            other.map_children(|input| lift(input, above, library).map(Transformed::yes))?.data
        }
    };
    plan.recompute_schema()
}

fn blocking(plan: &LogicalPlan) -> Option<&'static str> {
    match plan {
        LogicalPlan::Projection(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Distinct(Distinct::All(_))
        | LogicalPlan::TableScan(_) => None,
        LogicalPlan::Limit(_) => Some("the LIMIT"),
        LogicalPlan::Union(_) => Some("the UNION"),
        LogicalPlan::Window(_) => Some("a window function"),
        LogicalPlan::Sort(_) => Some("the ORDER BY"),
        _ => Some("this construct"),
    }
}

fn lift_filter(filter: Filter, above: Above, library: &Library) -> PlanResult<LogicalPlan> {
    let input = lift(Arc::unwrap_or_clone(filter.input), above, library)?;
    if is_correlated(&input) && has_subquery(&filter.predicate) {
        return Err(refused("a subquery above correlated conditions of a subquery"));
    }
    if !filter.predicate.contains_outer() {
        return Ok(LogicalPlan::Filter(Filter::try_new(filter.predicate, Arc::new(input))?));
    }
    let mut keys = Keys { library, keys: Vec::new() };
    let mut conditions = Vec::new();
    for condition in split_conjunction_owned(filter.predicate) {
        conditions.push(match above {
            _ if !condition.contains_outer() => condition,
            Above::Rows => keys.of_columns(condition)?,
            Above::Groups => {
                let (inner, outer) = equality(condition)?;
                super::expr::binary(keys.of(inner), Operator::Eq, outer)
            }
        });
    }
    let columns = input.schema().iter().map(|field| Expr::Column(Column::from(field)));
    let named = keys.keys.into_iter().map(|(key, name)| key.alias(name));
    let columns: Vec<Expr> = columns.chain(named).collect();
    let input = LogicalPlan::Projection(Projection::try_new(columns, Arc::new(input))?);
    let predicate = conjunction(conditions).unwrap_or_else(|| lit(true));
    Ok(LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input))?))
}

/// What the conditions to be lifted look at, under names that nothing else has: the engine finds it by
/// name above the subquery, where columns of different tables are no longer told apart.
struct Keys<'a> {
    library: &'a Library,
    keys: Vec<(Expr, String)>,
}

impl Keys<'_> {
    fn of(&mut self, key: Expr) -> Expr {
        let known = self.keys.iter().find(|(known, _)| *known == key).map(|(_, name)| name.clone());
        let name = known.unwrap_or_else(|| {
            let name = self.library.fresh_name();
            self.keys.push((key, name.clone()));
            name
        });
        Expr::Column(Column::new_unqualified(name))
    }

    fn of_columns(&mut self, condition: Expr) -> PlanResult<Expr> {
        let named = condition.transform_down(|expr| match expr {
            Expr::Column(_) | Expr::ScalarSubquery(_) => {
                Ok(Transformed::new(self.of(expr), true, TreeNodeRecursion::Jump))
            }
            Expr::Exists(_) | Expr::InSubquery(_) => {
                Err(refused("a subquery beside an outer column in one condition of a subquery"))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(named.data)
    }
}

/// `inner = outer`, where each side names columns of its own query only.
fn equality(condition: Expr) -> PlanResult<(Expr, Expr)> {
    if let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = condition
        && !has_subquery(&left)
        && !has_subquery(&right)
    {
        let is_inner = |expr: &Expr| !expr.contains_outer() && expr.any_column_refs();
        let is_outer = |expr: &Expr| expr.contains_outer() && !expr.any_column_refs();
        if is_inner(&left) && is_outer(&right) {
            return Ok((*left, *right));
        }
        if is_outer(&left) && is_inner(&right) {
            return Ok((*right, *left));
        }
    }
    Err(refused("an aggregate over rows that an outer column chooses by anything but ="))
}

fn lift_aggregate(aggregate: Aggregate, above: Above, library: &Library) -> PlanResult<LogicalPlan> {
    let Aggregate { input, group_expr, aggr_expr, .. } = aggregate;
    if group_expr.is_empty() {
        return Err(refused("a correlated condition below an aggregate of a derived table"));
    }
    if group_expr.iter().chain(&aggr_expr).any(Expr::contains_outer) {
        return Err(refused("an outer column in GROUP BY or an aggregate of a correlated subquery"));
    }
    if group_expr.iter().any(|expr| matches!(expr, Expr::GroupingSet(_))) {
        return Err(refused("ROLLUP in a correlated subquery"));
    }
    // Groups without aggregates are DISTINCT: more of them change nothing for EXISTS.
    let below = if aggr_expr.is_empty() { above } else { Above::Groups };
    let input = lift(Arc::unwrap_or_clone(input), below, library)?;
    Ok(LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(input), group_expr, aggr_expr)?))
}

/// Conditions pass a join from a side whose rows it never fills with NULLs.
fn lift_join(mut join: Join, above: Above, library: &Library) -> PlanResult<LogicalPlan> {
    let (left_passes, right_passes) = match join.join_type {
        JoinType::Inner => (true, true),
        JoinType::Left => (true, false),
        JoinType::Right => (false, true),
        _ => (false, false),
    };
    if (!left_passes && is_correlated(&join.left)) || (!right_passes && is_correlated(&join.right)) {
        return Err(refused("a correlated condition below an outer join, INTERSECT or EXCEPT"));
    }
    let in_condition = join.filter.iter().any(Expr::contains_outer)
        || join.on.iter().any(|(left, right)| left.contains_outer() || right.contains_outer());
    if in_condition && join.join_type != JoinType::Inner {
        return Err(refused("an outer column in the ON of an outer join of a subquery"));
    }
    let mut above_join = Vec::new();
    for side in [&mut join.left, &mut join.right] {
        let lifted = lift(side.as_ref().clone(), above, library)?;
        *side = Arc::new(match lifted {
            LogicalPlan::Filter(filter) if filter.predicate.contains_outer() => {
                above_join.push(filter.predicate);
                Arc::unwrap_or_clone(filter.input)
            }
            other => other,
        });
        if is_correlated(side) {
            return Err(refused("a correlated derived table in a join"));
        }
    }
    let condition = if in_condition { join.filter.take() } else { None };
    let mut plan = LogicalPlan::Join(join).recompute_schema()?;
    if let Some(predicate) = condition {
        plan = lift_filter(Filter::try_new(predicate, Arc::new(plan))?, above, library)?;
    }
    let Some(predicate) = conjunction(above_join) else { return Ok(plan) };
    let (predicate, input) = match plan {
        LogicalPlan::Filter(filter) => (filter.predicate.and(predicate), filter.input),
        other => (predicate, Arc::new(other)),
    };
    Ok(LogicalPlan::Filter(Filter::try_new(predicate, input)?))
}
