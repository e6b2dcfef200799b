//! Digits that a decimal carries but does not show.
//!
//! MySQL's quotients have more digits than they show, and what is computed from them goes on with all of
//! these: `1 / 3 * 3` is 1.0000. So an expression that carries digits is wrapped in `$shown`, which rounds it
//! to what it shows; whatever wants a number looks through the wrap (`carried`), whatever wants a text does not.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::logical_expr::{Expr, ScalarUDF};
use types::Result;

use super::arithmetic::carried_type;
use super::{Entry, Function, Library, Types, bits, call_udf, number};
use crate::class::Class;
use crate::values;

/// Ends a function's name where the type of its result follows.
pub(super) const NAME_END: &str = " as ";

/// Rounds to the digits that are shown.
static SHOWN: Entry = Entry {
    name: "$shown",
    arity: (1, 1),
    returns: |types| Ok(types.types[0].clone()),
    eval: |call| values::convert(&call.arrays[0], &call.returns, call.zone),
    strict: true,
};

/// What a function makes of arguments that carry digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Digits {
    /// It takes them as they are shown.
    Shown,
    /// It takes all digits; its own result is as any.
    Taken,
    /// It takes all digits, and its result carries them on.
    Carried,
}

/// What a function makes of arguments that carry digits.
pub(crate) fn digits_of(function: &ScalarUDF) -> Digits {
    let Some(function) = own(function) else { return Digits::Shown };
    let name = function.entry.name;
    match name {
        "$div" | "$mul" | "$add" | "$sub" | "$mod" | "$neg" | "abs" | "greatest" | "least" => Digits::Carried,
        "$int_div" => Digits::Taken,
        // A CAST to a number or to none.
        "$cast" => match function.target.as_ref().and_then(Class::of) {
            Some(Class::Text | Class::Binary) | None => Digits::Shown,
            Some(_) => Digits::Taken,
        },
        _ if number::ENTRIES.iter().chain(bits::ENTRIES).any(|entry| entry.name == name) => Digits::Taken,
        _ => Digits::Shown,
    }
}

fn own(function: &ScalarUDF) -> Option<&Function> {
    function.inner().as_ref().downcast_ref::<Function>()
}

/// Whether a function's result has a type of its own choice already.
pub(crate) fn has_target(function: &ScalarUDF) -> bool {
    own(function).is_some_and(|function| function.target.is_some() && function.entry.name != "$cast")
}

/// The type that a function shows.
pub(crate) fn shown_type(function: &ScalarUDF, types: &Types<'_>) -> Result<Option<DataType>> {
    own(function).map(|function| function.returns(types)).transpose()
}

/// An expression with all its digits, and their type, if it carries more than it shows.
pub(crate) fn carried(expr: &Expr) -> Option<(&Expr, &DataType)> {
    match expr {
        Expr::Alias(alias) => carried(&alias.expr),
        Expr::ScalarFunction(call) => match own(&call.func) {
            Some(Function { entry, source: Some(source), .. }) if entry.name == SHOWN.name => {
                Some((call.args.first()?, source))
            }
            _ => None,
        },
        _ => None,
    }
}

impl Library {
    /// An expression that carries digits of one type, as it shows another.
    pub(crate) fn shown(&self, expr: Expr, carried: DataType, shown: &DataType) -> Expr {
        if carried == *shown {
            return expr;
        }
        let name = format!("{}{NAME_END}{shown}", SHOWN.name);
        let function = self.function(name, &SHOWN, Some(shown.clone()));
        call_udf(
            Arc::new(ScalarUDF::new_from_impl(Function { source: Some(carried), ..function })),
            vec![expr],
        )
    }

    /// A function whose result carries the digits of its arguments; `None` if it does not.
    pub(crate) fn carrying(
        &self,
        function: &ScalarUDF,
        shown: &DataType,
        arguments: &[DataType],
    ) -> Option<(Arc<ScalarUDF>, DataType)> {
        let entry = own(function)?.entry;
        let carried = carried_type(entry.name, shown, arguments)?;
        let name = format!("{}{NAME_END}{carried}", entry.name);
        Some((self.make(name, entry, Some(carried.clone())), carried))
    }
}
