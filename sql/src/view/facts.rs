//! What is known of a node's rows: columns that are never NULL, and columns that identify a row.

use datafusion::common::DFSchema;
use datafusion::logical_expr::{Case, Expr, ExprSchemable, Operator};

use crate::class::Class;
use crate::functions::{is_conversion, is_strict};

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
    Known { schema, not_null }.never_null(expr, &[])
}

/// What is known of an expression's columns.
struct Known<'a> {
    schema: &'a DFSchema,
    not_null: &'a [bool],
}

impl Known<'_> {
    /// The same where some expressions are known not to be NULL: a branch of CASE that asked for it.
    fn never_null(&self, expr: &Expr, given: &[&Expr]) -> bool {
        let inner = |expr: &Expr| self.never_null(expr, given);
        match expr {
            _ if given.contains(&expr) => true,
            Expr::Alias(alias) => inner(&alias.expr),
            Expr::Column(column) => self
                .schema
                .maybe_index_of_column(column)
                .and_then(|index| self.not_null.get(index).copied())
                .unwrap_or(false),
            Expr::Literal(value, _) => !value.is_null(),
            Expr::ScalarFunction(function) => {
                let arguments_known = function.args.iter().all(inner);
                arguments_known && (is_strict(&function.func) || self.widens(expr, &function.args))
            }
            // A cast fails rather than making NULL.
            Expr::Cast(cast) => inner(&cast.expr),
            Expr::Case(case) => self.case_never_null(case, given),
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

    /// IFNULL, COALESCE and IF are CASE: each branch knows its own condition, and that those before it failed.
    fn case_never_null(&self, case: &Case, given: &[&Expr]) -> bool {
        let mut given = given.to_vec();
        for (when, value) in &case.when_then_expr {
            let mut here = given.clone();
            if case.expr.is_none() {
                when_true(when, &mut here);
            }
            if !self.never_null(value, &here) {
                return false;
            }
            if case.expr.is_none() {
                when_false(when, &mut given);
            }
        }
        case.else_expr.as_ref().is_some_and(|value| self.never_null(value, &given))
    }

    /// Whether a call gives its argument another type and never makes NULL of it.
    fn widens(&self, call: &Expr, arguments: &[Expr]) -> bool {
        let [argument] = arguments else { return false };
        let Expr::ScalarFunction(function) = call else { return false };
        if !is_conversion(&function.func) {
            return false;
        }
        let class = |expr: &Expr| expr.get_type(self.schema).ok().as_ref().and_then(Class::of);
        let is_number = |class| {
            matches!(class, Class::Bool | Class::Int | Class::UInt | Class::Decimal(..) | Class::Double)
        };
        match (class(argument), class(call)) {
            // A number that does not fit is an error.
            (Some(from), Some(to)) if is_number(from) && is_number(to) => true,
            (Some(Class::Date), Some(Class::Datetime)) => true,
            (from, to) => from.is_some() && from == to,
        }
    }
}

/// What is not NULL where a condition holds.
fn when_true<'e>(condition: &'e Expr, known: &mut Vec<&'e Expr>) {
    match condition {
        Expr::IsNotNull(expr) => known.push(expr),
        Expr::Not(expr) => when_false(expr, known),
        Expr::BinaryExpr(both) if both.op == Operator::And => {
            when_true(&both.left, known);
            when_true(&both.right, known);
        }
        _ => {}
    }
}

/// What is not NULL where a condition does not hold; it may also be unknown, so only tests for NULL tell.
fn when_false<'e>(condition: &'e Expr, known: &mut Vec<&'e Expr>) {
    match condition {
        Expr::IsNull(expr) => known.push(expr),
        Expr::BinaryExpr(both) if both.op == Operator::Or => {
            when_false(&both.left, known);
            when_false(&both.right, known);
        }
        _ => {}
    }
}
