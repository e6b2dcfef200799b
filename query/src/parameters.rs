//! Values in place of the `?` of a prepared statement, which `sql` numbers: `?1`, `?2`.

use std::ops::ControlFlow;

use sqlparser::ast::{DataType, Expr, TimezoneInfo, TypedString, UnaryOperator, Value, VisitMut, VisitorMut};
use types::{Error, Result};

use crate::Parameter;

/// Puts values in place of `?`.
///
/// # Errors
/// 1210 if there are more or fewer values than `?`.
pub(crate) fn bind<T: VisitMut + Clone>(tree: &T, parameters: &[Parameter]) -> Result<T> {
    let mut bound = tree.clone();
    let mut binder = Binder { parameters: Some(parameters), n_bound: 0 };
    if let ControlFlow::Break(error) = bound.visit(&mut binder) {
        return Err(error);
    }
    if binder.n_bound != parameters.len() {
        let text = format!("Incorrect arguments to EXECUTE: {} for {}", parameters.len(), binder.n_bound);
        return Err(Error::mysql(1210, text));
    }
    Ok(bound)
}

/// Puts NULL in place of every `?`.
pub(crate) fn bind_nulls<T: VisitMut + Clone>(tree: &T) -> T {
    let mut bound = tree.clone();
    // Without values nothing can break.
    let _ = bound.visit(&mut Binder { parameters: None, n_bound: 0 });
    bound
}

struct Binder<'a> {
    parameters: Option<&'a [Parameter]>,
    n_bound: usize,
}

impl VisitorMut for Binder<'_> {
    type Break = Error;

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<Error> {
        let Expr::Value(value) = &*expression else { return ControlFlow::Continue(()) };
        let Value::Placeholder(name) = &value.value else { return ControlFlow::Continue(()) };
        let Some(parameters) = self.parameters else {
            *expression = Expr::Value(Value::Null.into());
            return ControlFlow::Continue(());
        };
        let number = name.strip_prefix('?').and_then(|number| number.parse::<usize>().ok());
        let Some(parameter) = number.and_then(|number| parameters.get(number.checked_sub(1)?)) else {
            return ControlFlow::Break(Error::mysql(1210, format!("no value for the parameter '{name}'")));
        };
        *expression = literal(parameter);
        self.n_bound += 1;
        ControlFlow::Continue(())
    }
}

/// A value as an expression.
fn literal(parameter: &Parameter) -> Expr {
    let typed = |data_type, text| {
        Expr::TypedString(TypedString {
            data_type,
            value: Value::SingleQuotedString(text).into(),
            uses_odbc_syntax: false,
        })
    };
    let value = match parameter {
        Parameter::Null => Value::Null,
        Parameter::Int(value) => return number(&value.to_string()),
        Parameter::Unsigned(value) => return number(&value.to_string()),
        Parameter::Double(value) => return typed(DataType::DoublePrecision, format!("{value:e}")),
        Parameter::Decimal(digits) => return number(digits),
        Parameter::Text(text) => Value::SingleQuotedString(text.clone()),
        Parameter::Bytes(bytes) => {
            Value::HexStringLiteral(bytes.iter().map(|byte| format!("{byte:02X}")).collect())
        }
        Parameter::Date(text) => return typed(DataType::Date, text.clone()),
        Parameter::Datetime(text) => {
            return typed(DataType::Timestamp(None, TimezoneInfo::None), text.clone());
        }
    };
    Expr::Value(value.into())
}

/// A number; a negative one is what the parser would make of it.
fn number(text: &str) -> Expr {
    let digits = |text: &str| Expr::Value(Value::Number(text.to_owned(), false).into());
    match text.strip_prefix('-') {
        Some(rest) => Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(digits(rest)) },
        None => digits(text),
    }
}
