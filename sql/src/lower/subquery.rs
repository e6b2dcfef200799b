//! Subqueries as the batch engine and the operators answer them right.
//!
//! Both make joins of EXISTS, IN and correlated scalar subqueries, and a join forgets what three-valued
//! logic, an aggregate without groups or a LIMIT mean. So each subquery becomes one of the forms that a
//! join answers exactly, or is refused by name:
//!
//! * a subquery of one row (an aggregate without GROUP BY, or no FROM) becomes an expression over scalar
//!   subqueries, so that outer rows that meet nothing are not lost;
//! * NOT IN is a null-aware anti join only if its subquery is not correlated; otherwise, and where unknown
//!   and false differ, IN is spelled out by EXISTS;
//! * EXISTS outside WHERE, HAVING and ON becomes a count.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result as PlanResult, ScalarValue};
use datafusion::logical_expr::expr::{Case, Exists, InSubquery};
use datafusion::logical_expr::{
    Aggregate, Expr, ExprSchemable, Filter, LogicalPlan, Operator, Projection, Subquery, lit,
};

use super::shape::{self, Shape};
use crate::aggregates;
use crate::error::to_datafusion;
use crate::functions::{Library, call_udf};
use crate::parse::unsupported;

/// Where a part of an expression stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A condition of a filter: the row passes only if it is true.
    Conjunct,
    /// Under OR of a filter, where unknown and false are one.
    Disjunct,
    /// Anywhere else in a filter: unknown and false differ.
    InFilter,
    /// In another expression, where EXISTS cannot become a join.
    Value,
}

/// Rewrites subqueries in expressions over one schema.
pub(super) struct Subqueries<'a> {
    pub(super) library: &'a Library,
    pub(super) schema: &'a DFSchema,
}

/// Whether an expression has a subquery in it.
pub(super) fn has_subquery(expr: &Expr) -> bool {
    expr.exists(|expr| {
        Ok(matches!(
            expr,
            Expr::Exists(_) | Expr::InSubquery(_) | Expr::ScalarSubquery(_) | Expr::SetComparison(_)
        ))
    })
    .unwrap_or(true)
}

impl Subqueries<'_> {
    /// Rewrites the subqueries of an expression.
    pub(super) fn rewrite(&self, expr: Expr, place: Place) -> PlanResult<Expr> {
        if !has_subquery(&expr) {
            return Ok(expr);
        }
        let below = match place {
            Place::Value => Place::Value,
            _ => Place::InFilter,
        };
        self.check_levels(&expr)?;
        match expr {
            Expr::BinaryExpr(mut binary) if matches!(binary.op, Operator::And | Operator::Or) => {
                let is_or = binary.op == Operator::Or;
                let place = if is_or && place == Place::Conjunct { Place::Disjunct } else { place };
                *binary.left = self.rewrite(*binary.left, place)?;
                *binary.right = self.rewrite(*binary.right, place)?;
                Ok(Expr::BinaryExpr(binary))
            }
            Expr::Not(inner) => match *inner {
                Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                    self.in_subquery(InSubquery::new(expr, subquery, !negated), place)
                }
                Expr::Exists(Exists { subquery, negated }) => self.exists(subquery, !negated, place),
                other => Ok(Expr::Not(Box::new(self.rewrite(other, below)?))),
            },
            Expr::InSubquery(subquery) => self.in_subquery(subquery, place),
            Expr::Exists(Exists { subquery, negated }) => self.exists(subquery, negated, place),
            Expr::ScalarSubquery(subquery) => self.scalar(subquery),
            Expr::SetComparison(_) => Err(refused("a comparison with ANY or ALL of a subquery")),
            other => Ok(other.map_children(|child| self.rewrite(child, below).map(Transformed::yes))?.data),
        }
    }

    /// A subquery names columns of its own tables and of the query next around it.
    fn check_levels(&self, expr: &Expr) -> PlanResult<()> {
        let (Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::ScalarSubquery(subquery)) = expr
        else {
            return Ok(());
        };
        let mut is_known = true;
        subquery.subquery.apply(|node| {
            node.apply_expressions(|expr| {
                expr.apply(|expr| {
                    if let Expr::OuterReferenceColumn(_, column) = expr {
                        is_known &= self.schema.has_column(column);
                    }
                    Ok(TreeNodeRecursion::Continue)
                })
            })
        })?;
        if is_known {
            Ok(())
        } else {
            Err(refused("a subquery that names columns of a query two levels out"))
        }
    }

    fn exists(&self, subquery: Subquery, negated: bool, place: Place) -> PlanResult<Expr> {
        if !shape::is_correlated(&subquery.subquery) {
            return self.exists_rows(subquery, negated, place);
        }
        match shape::of(&subquery, false, self.library)? {
            Shape::Empty => Ok(lit(negated)),
            Shape::OneRow { condition: None, .. } => Ok(lit(!negated)),
            Shape::OneRow { condition: Some(condition), .. } => {
                let condition = Box::new(condition);
                Ok(if negated { Expr::IsNotTrue(condition) } else { Expr::IsTrue(condition) })
            }
            Shape::Rows { input, .. } => self.exists_rows(shape::with_plan(&subquery, input), negated, place),
        }
    }

    /// EXISTS as a join can answer it, or as a count.
    fn exists_rows(&self, subquery: Subquery, negated: bool, place: Place) -> PlanResult<Expr> {
        let is_correlated = shape::is_correlated(&subquery.subquery);
        if place == Place::Conjunct || (place != Place::Value && is_correlated) {
            let plan = shape::joinable(subquery.subquery.as_ref().clone(), self.library)?;
            let subquery = shape::with_plan(&subquery, plan);
            return Ok(Expr::Exists(Exists { subquery, negated }));
        }
        let count = self.count(&subquery)?;
        let operator = if negated { Operator::Eq } else { Operator::Gt };
        Ok(super::expr::binary(count, operator, lit(0_i64)))
    }

    fn count(&self, subquery: &Subquery) -> PlanResult<Expr> {
        let input = shape::below_aggregate(subquery.subquery.as_ref().clone(), self.library)?;
        let count = aggregates::count_rows().alias("#count");
        let aggregate = LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(input), Vec::new(), vec![count])?);
        let count = Expr::ScalarSubquery(shape::with_plan(subquery, aggregate));
        Ok(call_udf(self.library.nullable(), vec![count]))
    }

    fn in_subquery(&self, subquery: InSubquery, place: Place) -> PlanResult<Expr> {
        let InSubquery { expr: value, subquery, negated } = subquery;
        let value = self.rewrite(*value, if place == Place::Value { place } else { Place::InFilter })?;
        if super::has_correlated(&value)? {
            return Err(refused("IN (SELECT ...) with a correlated subquery on its left side"));
        }
        if !shape::is_correlated(&subquery.subquery) {
            return self.in_rows(value, subquery, negated, place);
        }
        match shape::of(&subquery, true, self.library)? {
            Shape::Empty => Ok(lit(negated)),
            Shape::OneRow { condition, value: one } => {
                let equal = super::expr::binary(value, Operator::Eq, one);
                let found = match condition {
                    None => equal,
                    Some(condition) => Expr::IsTrue(Box::new(condition)).and(equal),
                };
                Ok(if negated { Expr::Not(Box::new(found)) } else { found })
            }
            Shape::Rows { input, value: item } => {
                let parts = Parts { value, item, input, subquery };
                self.correlated_in(parts, negated, place)
            }
        }
    }

    /// IN of rows that do not depend on the outer row.
    fn in_rows(&self, value: Expr, subquery: Subquery, negated: bool, place: Place) -> PlanResult<Expr> {
        if value.contains_outer() {
            return Err(refused("IN (SELECT ...) of an outer column within a correlated subquery"));
        }
        if !negated && place == Place::Conjunct {
            return Ok(Expr::InSubquery(InSubquery::new(Box::new(value), subquery, false)));
        }
        // The join finds its key by the columns of the value, so that nothing else may become a constant.
        if place == Place::Conjunct && is_column(&value) {
            let subquery = self.with_nullable(subquery, value.nullable(self.schema)?)?;
            return Ok(Expr::InSubquery(InSubquery::new(Box::new(value), subquery, true)));
        }
        let (qualifier, field) = subquery.subquery.schema().qualified_field(0);
        let item = Expr::Column(Column::from((qualifier, field)));
        let input = subquery.subquery.as_ref().clone();
        let parts = Parts { value, item, input, subquery };
        if !negated && place == Place::Disjunct {
            let matches = self.equal(&parts)?;
            return self.exists_where(&parts, matches, false, place);
        }
        self.spelled_out(&parts, negated, place)
    }

    /// The engine looks at columns only when it decides whether a NULL may occur, and a value may be
    /// NULL though its columns are not; so the subquery's column is declared to be NULL perhaps.
    fn with_nullable(&self, subquery: Subquery, is_nullable: bool) -> PlanResult<Subquery> {
        let schema = subquery.subquery.schema();
        let (qualifier, field) = schema.qualified_field(0);
        if !is_nullable || field.is_nullable() {
            return Ok(subquery);
        }
        let name = field.name().clone();
        let column = Expr::Column(Column::from((qualifier, field)));
        let nullable = call_udf(self.library.nullable(), vec![column]).alias(name);
        let input = Arc::clone(&subquery.subquery);
        let plan = LogicalPlan::Projection(Projection::try_new(vec![nullable], input)?);
        Ok(shape::with_plan(&subquery, plan))
    }

    fn correlated_in(&self, parts: Parts, negated: bool, place: Place) -> PlanResult<Expr> {
        match place {
            Place::Conjunct | Place::Disjunct if !negated => {
                let matches = self.equal(&parts)?;
                self.exists_where(&parts, matches, false, place)
            }
            Place::Conjunct | Place::Disjunct => {
                // True unless some row is equal or unknown.
                let mut any = self.equal(&parts)?;
                if parts.item.nullable(parts.input.schema())? {
                    any = any.or(parts.item.clone().is_null());
                }
                if parts.value.nullable(self.schema)? {
                    any = any.or(self.outer(&parts.value)?.is_null());
                }
                self.exists_where(&parts, any, true, place)
            }
            Place::InFilter | Place::Value => self.spelled_out(&parts, negated, place),
        }
    }

    /// IN by its definition: true if a row is equal, else unknown if there is a NULL on either side.
    fn spelled_out(&self, parts: &Parts, negated: bool, place: Place) -> PlanResult<Expr> {
        let below = if place == Place::Value { Place::Value } else { Place::InFilter };
        let matches = self.equal(parts)?;
        let mut branches = vec![(self.exists_where(parts, matches, false, below)?, lit(!negated))];
        let unknown = lit(ScalarValue::Boolean(None));
        if parts.value.nullable(self.schema)? {
            let any = self.exists_where(parts, lit(true), false, below)?;
            branches.push((parts.value.clone().is_null().and(any), unknown.clone()));
        }
        if parts.item.nullable(parts.input.schema())? {
            let null = parts.item.clone().is_null();
            branches.push((self.exists_where(parts, null, false, below)?, unknown));
        }
        let branches = branches.into_iter().map(|(when, then)| (Box::new(when), Box::new(then))).collect();
        Ok(Expr::Case(Case::new(None, branches, Some(Box::new(lit(negated))))))
    }

    /// EXISTS of the rows of the subquery that fulfil a condition.
    fn exists_where(&self, parts: &Parts, condition: Expr, negated: bool, place: Place) -> PlanResult<Expr> {
        // The engine knows one correlated filter over a plan.
        let (condition, input) = match parts.input.clone() {
            LogicalPlan::Filter(filter) => (filter.predicate.and(condition), filter.input),
            other => (condition, Arc::new(other)),
        };
        let plan = LogicalPlan::Filter(Filter::try_new(condition, input)?);
        self.exists_rows(shape::with_plan(&parts.subquery, plan), negated, place)
    }

    /// Value and item are equal, seen from inside the subquery.
    fn equal(&self, parts: &Parts) -> PlanResult<Expr> {
        let value = self.outer(&parts.value)?;
        Ok(super::expr::binary(parts.item.clone(), Operator::Eq, value))
    }

    /// An expression of the outer query, inside the subquery.
    fn outer(&self, value: &Expr) -> PlanResult<Expr> {
        if value.contains_outer() {
            return Err(refused("a subquery that names columns of a query two levels out"));
        }
        if has_subquery(value) {
            return Err(refused("IN (SELECT ...) with a subquery on its left side in this place"));
        }
        let outer = value.clone().transform(|expr| match expr {
            Expr::Column(column) => {
                let (_, field) = self.schema.qualified_field_from_column(&column)?;
                Ok(Transformed::yes(Expr::OuterReferenceColumn(Arc::clone(field), column)))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(outer.data)
    }

    /// A scalar subquery: a correlated one has to be an expression over aggregates.
    fn scalar(&self, subquery: Subquery) -> PlanResult<Expr> {
        if !shape::is_correlated(&subquery.subquery) {
            if shape::always_one_row(&subquery.subquery) {
                return Ok(Expr::ScalarSubquery(subquery));
            }
            // Without a row its value is NULL, whatever is known of its column.
            return Ok(call_udf(self.library.nullable(), vec![Expr::ScalarSubquery(subquery)]));
        }
        let data_type = subquery.subquery.schema().field(0).data_type().clone();
        match shape::of(&subquery, true, self.library)? {
            Shape::Empty => null_of(&data_type),
            Shape::OneRow { condition: None, value } => Ok(value),
            Shape::OneRow { condition: Some(condition), value } => {
                let branches = vec![(Box::new(condition), Box::new(value))];
                let otherwise = Some(Box::new(null_of(&data_type)?));
                Ok(Expr::Case(Case::new(None, branches, otherwise)))
            }
            Shape::Rows { .. } => {
                Err(refused("a correlated scalar subquery without an aggregate or with GROUP BY"))
            }
        }
    }
}

/// `value IN (SELECT item FROM input)`.
struct Parts {
    value: Expr,
    item: Expr,
    input: LogicalPlan,
    subquery: Subquery,
}

/// Whether a value is a column, perhaps converted.
fn is_column(value: &Expr) -> bool {
    match value {
        Expr::Column(_) => true,
        Expr::Cast(cast) => is_column(&cast.expr),
        Expr::ScalarFunction(function) => match function.args.as_slice() {
            [argument] => is_column(argument),
            _ => false,
        },
        _ => false,
    }
}

fn null_of(data_type: &DataType) -> PlanResult<Expr> {
    Ok(lit(ScalarValue::try_from(data_type)?))
}

pub(super) fn refused(what: &str) -> datafusion::common::DataFusionError {
    to_datafusion(unsupported(what))
}
