//! Which clause of a query a refused name stands in: MySQL's errors say it, the batch engine's do not.
//!
//! The query is looked through once it is refused, innermost SELECT first.

use std::ops::ControlFlow;

use sqlparser::ast::{
    self, Expr, GroupByExpr, JoinConstraint, Query, Select, SelectItem, SetExpr, Visit, Visitor,
};
use types::Error;

use crate::meaning::{constraint, strip};

/// Says where a name stands that an error is about.
pub(crate) fn located(error: Error, query: &Query) -> Error {
    let text = error.message();
    let Some(name) = text.split('\'').nth(1).map(str::to_lowercase) else { return error };
    match error.mysql_code() {
        Some(1054) if text.ends_with('\'') && !text.contains(" in '") => {
            let clause = Finder::find(query, &name).map_or("field list", |found| found.clause);
            Error::mysql(1054, format!("Unknown column '{name}' in '{clause}'"))
        }
        Some(1052) if text.ends_with("' is ambiguous") => {
            let clause = Finder::find(query, &name).map_or("field list", |found| found.clause);
            Error::mysql(1052, format!("Column '{name}' in {clause} is ambiguous"))
        }
        Some(1055) if text.starts_with("nonaggregated") => not_grouped(&name, query),
        _ => error,
    }
}

/// ONLY_FULL_GROUP_BY's refusal, which has another number where nothing is grouped.
fn not_grouped(name: &str, query: &Query) -> Error {
    let found = Finder::find(query, name).filter(|found| found.clause == "field list");
    let (at, is_grouped) = found.map_or((1, true), |found| (found.at, found.is_grouped));
    let mode = "this is incompatible with sql_mode=only_full_group_by";
    if is_grouped {
        let text = format!(
            "Expression #{at} of SELECT list is not in GROUP BY clause and contains nonaggregated column '{name}' \
             which is not functionally dependent on columns in GROUP BY clause; {mode}"
        );
        return Error::mysql(1055, text);
    }
    let text = format!(
        "In aggregated query without GROUP BY, expression #{at} of SELECT list contains nonaggregated column \
         '{name}'; {mode}"
    );
    Error::mysql(1140, text)
}

#[derive(Clone, Copy)]
struct Found {
    clause: &'static str,
    /// The position in its clause, from 1.
    at: usize,
    is_grouped: bool,
}

struct Finder<'a> {
    name: &'a str,
}

impl Finder<'_> {
    fn find(query: &Query, name: &str) -> Option<Found> {
        match query.visit(&mut Finder { name }) {
            ControlFlow::Break(found) => Some(found),
            ControlFlow::Continue(()) => None,
        }
    }

    /// Whether an expression names the column outside of its subqueries, which were looked at before.
    fn names(&self, expr: &Expr) -> bool {
        let found = ast::visit_expressions(expr, |part| {
            let written = match part {
                Expr::Identifier(ident) => ident.value.to_lowercase(),
                Expr::CompoundIdentifier(parts) => {
                    parts.iter().map(|part| part.value.to_lowercase()).collect::<Vec<_>>().join(".")
                }
                _ => return ControlFlow::Continue(()),
            };
            // What is written without its table may be meant; a name without one was written so.
            let is_same = written == self.name
                || self.name.ends_with(&format!(".{written}"))
                || (self.name.contains('.') && written.ends_with(&format!(".{}", self.name)));
            if is_same { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        found.is_break()
    }

    fn select(&self, select: &Select) -> Option<Found> {
        let grouped: &[Expr] = match &select.group_by {
            GroupByExpr::Expressions(exprs, _) => exprs,
            GroupByExpr::All(_) => &[],
        };
        let found = |clause, at| Found { clause, at, is_grouped: !grouped.is_empty() };
        let item = |item: &SelectItem| match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => self.names(strip(expr)),
            _ => false,
        };
        let wildcard = |item: &SelectItem| {
            matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))
                && self.name.contains('.')
        };
        let items = &select.projection;
        if let Some(at) = items.iter().position(item).or_else(|| items.iter().position(wildcard)) {
            return Some(found("field list", at + 1));
        }
        let joins = select.from.iter().flat_map(|table| &table.joins);
        if joins.filter_map(condition).any(|condition| self.names(condition)) {
            return Some(found("on clause", 1));
        }
        if select.selection.as_ref().is_some_and(|condition| self.names(condition)) {
            return Some(found("where clause", 1));
        }
        if let Some(at) = grouped.iter().position(|expr| self.names(expr)) {
            return Some(found("group statement", at + 1));
        }
        select.having.as_ref().filter(|having| self.names(having)).map(|_| found("having clause", 1))
    }

    fn body(&self, body: &SetExpr) -> Option<Found> {
        match body {
            SetExpr::Select(select) => self.select(select),
            SetExpr::SetOperation { left, right, .. } => self.body(left).or_else(|| self.body(right)),
            // A query in parentheses is visited by itself.
            _ => None,
        }
    }
}

impl Visitor for Finder<'_> {
    type Break = Found;

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<Found> {
        let ordered = || {
            let ast::OrderByKind::Expressions(exprs) = &query.order_by.as_ref()?.kind else { return None };
            let at = exprs.iter().position(|order| self.names(&order.expr))?;
            Some(Found { clause: "order clause", at: at + 1, is_grouped: false })
        };
        match self.body(&query.body).or_else(ordered) {
            Some(found) => ControlFlow::Break(found),
            None => ControlFlow::Continue(()),
        }
    }
}

fn condition(join: &ast::Join) -> Option<&Expr> {
    match constraint(&join.join_operator)? {
        JoinConstraint::On(expr) => Some(expr),
        _ => None,
    }
}
