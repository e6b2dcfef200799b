//! What a name in HAVING means that an item of the SELECT list and a column of FROM share.
//!
//! MySQL takes a column of GROUP BY first, then the item, and nothing else but in the arguments of
//! aggregates, where a name is a column. The batch engine takes the column of FROM always, and then misses
//! it in GROUP BY. So the item's expression is put in the place of its name, before either is rewritten.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use sqlparser::ast::{Expr, GroupByExpr, Query, Select, SelectItem, VisitMut, VisitorMut};

use super::function::is_aggregate;
use super::items::FromColumns;
use super::{Rewrite, strip};

/// Items by the names that columns of FROM have too, as they are written.
pub(super) type NamedItems = BTreeMap<String, Expr>;

impl Rewrite<'_> {
    /// The items that names in HAVING mean although FROM, which is rewritten already, has them too.
    pub(super) fn items_of_having(&self, select: &Select) -> NamedItems {
        if select.having.is_none() {
            return NamedItems::new();
        }
        let columns = FromColumns::new(self, &select.from);
        let mut items = NamedItems::new();
        for item in &select.projection {
            let SelectItem::ExprWithAlias { expr, alias } = item else { continue };
            let name = alias.value.to_lowercase();
            if columns.may_have(&name) && !is_grouped(&select.group_by, &name) {
                // Of items that share a name the first is meant, as far as they are not told apart before.
                items.entry(name).or_insert_with(|| expr.clone());
            }
        }
        items
    }
}

/// Whether GROUP BY names a column so.
fn is_grouped(group_by: &GroupByExpr, name: &str) -> bool {
    let GroupByExpr::Expressions(exprs, _) = group_by else { return false };
    exprs.iter().any(|expr| match strip(expr) {
        Expr::Identifier(ident) => ident.value.to_lowercase() == name,
        Expr::CompoundIdentifier(parts) => {
            parts.last().is_some_and(|ident| ident.value.to_lowercase() == name)
        }
        _ => false,
    })
}

/// Puts items in the place of their names.
pub(super) fn put_items(having: &mut Expr, items: &NamedItems) {
    if items.is_empty() {
        return;
    }
    let done = having.visit(&mut Putting { items, depth: 0 });
    debug_assert!(done.is_continue(), "nothing ends it early");
}

struct Putting<'a> {
    items: &'a NamedItems,
    /// Aggregates and queries around the expression that is looked at.
    depth: usize,
}

fn is_call_of_aggregate(expr: &Expr) -> bool {
    let Expr::Function(function) = expr else { return false };
    is_aggregate(&function.name.to_string().trim_matches('`').to_lowercase())
}

impl VisitorMut for Putting<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.depth += usize::from(is_call_of_aggregate(expr));
        ControlFlow::Continue(())
    }

    /// After what is inside, so that what is put in is not looked at again.
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.depth -= usize::from(is_call_of_aggregate(expr));
        if let Expr::Identifier(ident) = expr
            && self.depth == 0
            && let Some(item) = self.items.get(&ident.value.to_lowercase())
        {
            *expr = Expr::Nested(Box::new(item.clone()));
        }
        ControlFlow::Continue(())
    }
}
