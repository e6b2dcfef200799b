//! What a view cannot be: named before the optimizer folds it away.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};
use types::Result;

use crate::from_datafusion;
use crate::parse::unsupported;

/// Refuses functions whose value is not a function of their arguments.
pub(super) fn volatile(plan: &LogicalPlan) -> Result<()> {
    let mut found = None;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::ScalarFunction(function) = expr
                    && function.func.signature().volatility != Volatility::Immutable
                {
                    found = Some(format!(
                        "{}() in a view",
                        function.name().trim_start_matches('$').to_uppercase()
                    ));
                }
                if matches!(expr, Expr::ScalarVariable(..) | Expr::Placeholder(_)) {
                    found = Some("variables and parameters in a view".to_owned());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })
    .map_err(from_datafusion)?;
    match found {
        Some(what) => Err(unsupported(&what)),
        None => Ok(()),
    }
}

/// The name of a plan node that has no operator.
pub(super) fn node_name(plan: &LogicalPlan) -> &'static str {
    match plan {
        LogicalPlan::Sort(_) => "ORDER BY in a view",
        LogicalPlan::Limit(_) => "LIMIT in a view",
        LogicalPlan::Window(_) => "window functions in a view",
        LogicalPlan::RecursiveQuery(_) => "WITH RECURSIVE in a view",
        LogicalPlan::Subquery(_) => "a correlated subquery in a view that does not become a join",
        LogicalPlan::Unnest(_) => "UNNEST in a view",
        LogicalPlan::Distinct(_) => "DISTINCT ON in a view",
        _ => "this construct in a view",
    }
}
