//! Parameters of prepared statements, and AS OF clauses.

use std::ops::ControlFlow;

use sqlparser::ast::{
    DataType, Expr, Query, TableFactor, TableVersion, TimezoneInfo, TypedString, UnaryOperator, Value,
    VisitMut, VisitorMut,
};
use types::{Error, Result};

use crate::Literal;

/// Puts values in place of every `?`, in the order of the text.
///
/// # Errors
/// MySQL 1210 if there are more or fewer values than `?`.
pub fn bind<T: VisitMut + Clone>(tree: &T, values: &[Literal]) -> Result<T> {
    let mut bound = tree.clone();
    let mut binder = Binder { values: Some(values), n_bound: 0 };
    if let ControlFlow::Break(error) = crate::stack::with_room(|| bound.visit(&mut binder)) {
        return Err(error);
    }
    if binder.n_bound != values.len() {
        let text = format!("Incorrect arguments to EXECUTE: {} for {}", values.len(), binder.n_bound);
        return Err(Error::mysql(1210, text));
    }
    Ok(bound)
}

/// Puts NULL in place of every `?`.
pub fn bind_nulls<T: VisitMut + Clone>(tree: &T) -> T {
    let mut bound = tree.clone();
    // Without values nothing can break.
    let _ = crate::stack::with_room(|| bound.visit(&mut Binder { values: None, n_bound: 0 }));
    bound
}

struct Binder<'a> {
    /// `None` puts NULL everywhere.
    values: Option<&'a [Literal]>,
    n_bound: usize,
}

impl VisitorMut for Binder<'_> {
    type Break = Error;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        let Expr::Value(value) = expr else { return ControlFlow::Continue(()) };
        let Value::Placeholder(name) = &value.value else { return ControlFlow::Continue(()) };
        let Some(values) = self.values else {
            *expr = Expr::Value(Value::Null.into());
            return ControlFlow::Continue(());
        };
        let number = name.strip_prefix('?').and_then(|number| number.parse::<usize>().ok());
        let Some(literal) = number.and_then(|number| values.get(number.checked_sub(1)?)) else {
            return ControlFlow::Break(Error::mysql(1210, format!("no value for the parameter '{name}'")));
        };
        *expr = literal_expr(literal);
        self.n_bound += 1;
        ControlFlow::Continue(())
    }
}

/// A constant as an expression.
pub(crate) fn literal_expr(literal: &Literal) -> Expr {
    let value = match literal {
        Literal::Null => Value::Null,
        Literal::Int(number) if *number < 0 => {
            let digits = Value::Number(number.unsigned_abs().to_string(), false);
            return Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(Expr::Value(digits.into())) };
        }
        Literal::Int(number) => Value::Number(number.to_string(), false),
        Literal::UInt(number) => Value::Number(number.to_string(), false),
        Literal::Double(number) => return typed(DataType::DoublePrecision, format!("{number:e}")),
        Literal::Decimal(text) => match text.strip_prefix('-') {
            Some(digits) => {
                let digits = Box::new(Expr::Value(Value::Number(digits.to_owned(), false).into()));
                return Expr::UnaryOp { op: UnaryOperator::Minus, expr: digits };
            }
            None => Value::Number(text.clone(), false),
        },
        Literal::String(text) => Value::SingleQuotedString(text.clone()),
        Literal::Bytes(bytes) => {
            Value::HexStringLiteral(bytes.iter().map(|byte| format!("{byte:02X}")).collect())
        }
        Literal::Date(text) => return typed(DataType::Date, text.clone()),
        Literal::Datetime(text) => return typed(DataType::Timestamp(None, TimezoneInfo::None), text.clone()),
    };
    Expr::Value(value.into())
}

fn typed(data_type: DataType, text: String) -> Expr {
    Expr::TypedString(TypedString {
        data_type,
        value: Value::SingleQuotedString(text).into(),
        uses_odbc_syntax: false,
    })
}

/// Takes the AS OF clauses out of a query; all of them must be the same.
pub(super) fn take_as_of(query: &mut Query) -> Result<Option<Expr>> {
    let mut taker = AsOf { found: None };
    match query.visit(&mut taker) {
        ControlFlow::Continue(()) => Ok(taker.found),
        ControlFlow::Break(error) => Err(error),
    }
}

struct AsOf {
    found: Option<Expr>,
}

impl VisitorMut for AsOf {
    type Break = Error;

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        let TableFactor::Table { version, .. } = factor else { return ControlFlow::Continue(()) };
        match version.take() {
            None => ControlFlow::Continue(()),
            Some(TableVersion::ForSystemTimeAsOf(expr)) => {
                // Spans take no part in the comparison of trees.
                if self.found.as_ref().is_some_and(|found| *found != expr) {
                    let text = "can not set different time in the as of";
                    return ControlFlow::Break(Error::mysql(8135, text));
                }
                self.found = Some(expr);
                ControlFlow::Continue(())
            }
            Some(other) => {
                let text = format!("you have an error in your SQL syntax near '{other}'");
                ControlFlow::Break(Error::mysql(1064, text))
            }
        }
    }
}
