//! What is known of a node's rows: columns that are never NULL, and columns that identify a row.

use datafusion::common::DFSchema;
use datafusion::logical_expr::{Expr, Operator};

use crate::functions::is_strict;

/// Known of one node's output.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Per column of the node.
    pub(super) not_null: Vec<bool>,
    /// Sets of columns, each of which identifies a row; an empty set says that there is one row at most.
    pub(super) keys: Vec<Vec<usize>>,
    /// Whether no retraction can leave the node.
    pub(super) append_only: bool,
}

/// Keys beyond this many are forgotten: joins multiply them.
const KEYS_MAX: usize = 8;

impl Facts {
    /// The facts of columns computed from these: `sources` says which column each output column is.
    pub(super) fn projected(&self, sources: &[Option<usize>], not_null: Vec<bool>) -> Facts {
        let place = |column: &usize| sources.iter().position(|source| *source == Some(*column));
        let keys = self.keys.iter().filter_map(|key| key.iter().map(place).collect::<Option<Vec<_>>>());
        Facts { not_null, keys: distinct_keys(keys), append_only: self.append_only }
    }
}

/// A bounded list of keys without repetition.
pub(super) fn distinct_keys(keys: impl Iterator<Item = Vec<usize>>) -> Vec<Vec<usize>> {
    let mut distinct: Vec<Vec<usize>> = Vec::new();
    for mut key in keys {
        key.sort_unstable();
        key.dedup();
        if !distinct.contains(&key) && distinct.len() < KEYS_MAX {
            distinct.push(key);
        }
    }
    distinct
}

/// Whether an expression is never NULL, given which columns never are.
pub(super) fn never_null(expr: &Expr, schema: &DFSchema, not_null: &[bool]) -> bool {
    let inner = |expr: &Expr| never_null(expr, schema, not_null);
    match expr {
        Expr::Alias(alias) => inner(&alias.expr),
        Expr::Column(column) => schema
            .maybe_index_of_column(column)
            .and_then(|index| not_null.get(index).copied())
            .unwrap_or(false),
        Expr::Literal(value, _) => !value.is_null(),
        Expr::ScalarFunction(function) => is_strict(&function.func) && function.args.iter().all(inner),
        // A cast fails rather than making NULL.
        Expr::Cast(cast) => inner(&cast.expr),
        Expr::Case(case) => {
            case.when_then_expr.iter().all(|(_, value)| inner(value))
                && case.else_expr.as_ref().is_some_and(|value| inner(value))
        }
        Expr::BinaryExpr(binary) => match binary.op {
            Operator::IsDistinctFrom | Operator::IsNotDistinctFrom => true,
            _ => inner(&binary.left) && inner(&binary.right),
        },
        Expr::Not(expr) => inner(expr),
        Expr::Like(like) => inner(&like.expr) && inner(&like.pattern),
        Expr::InList(list) => inner(&list.expr) && list.list.iter().all(inner),
        Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::IsTrue(_)
        | Expr::IsFalse(_)
        | Expr::IsUnknown(_)
        | Expr::IsNotTrue(_)
        | Expr::IsNotFalse(_)
        | Expr::IsNotUnknown(_) => true,
        _ => false,
    }
}
