//! Comparisons: two values as a pair that compares the way MySQL compares them.

use arrow::datatypes::DataType;
use datafusion::common::{Result as PlanResult, ScalarValue};
use datafusion::logical_expr::{Expr, lit};
use types::Error;

use super::expr::{convert, is_padded, literal_text};
use crate::class::{Class, Comparison, comparison};
use crate::error::to_datafusion;
use crate::functions::{self, Library, call_udf};
use crate::values;

/// Two values as a pair that compares the way MySQL compares them.
pub(crate) fn comparable(
    left: Expr,
    left_type: &DataType,
    right: Expr,
    right_type: &DataType,
    library: &Library,
) -> PlanResult<(Expr, Expr)> {
    if let Some((carried, carried_type)) = functions::carried(&left) {
        return comparable(carried.clone(), carried_type, right, right_type, library);
    }
    if let Some((carried, carried_type)) = functions::carried(&right) {
        return comparable(left, left_type, carried.clone(), carried_type, library);
    }
    if let Some(right) = constant_as(&right, &left, left_type, library)? {
        return Ok((left, right));
    }
    if let Some(left) = constant_as(&left, &right, right_type, library)? {
        return Ok((left, right));
    }
    match comparison(left_type, right_type) {
        Some(Comparison::As(common)) => {
            let left = convert(left, left_type, &common, library);
            let right = convert(right, right_type, &common, library);
            if common == DataType::Utf8 {
                let pad = |text: Expr| match literal_text(&text) {
                    _ if is_padded(&text) => text,
                    Some(constant) => lit(tidb::pad_key(constant).to_owned()),
                    None => call_udf(library.pad_key(), vec![text]),
                };
                return Ok((pad(left), pad(right)));
            }
            Ok((left, right))
        }
        Some(Comparison::AsDouble) => Ok((
            convert(left, left_type, &DataType::Float64, library),
            convert(right, right_type, &DataType::Float64, library),
        )),
        None => {
            let text = format!("values of type {left_type} and {right_type} do not compare");
            Err(to_datafusion(Error::mysql(1105, text)))
        }
    }
}

/// A constant as the other side's type, where that changes nothing: a text that is a whole number beside an
/// integer, a text beside a time, an integer that is a time beside a column of times.
fn constant_as(
    expr: &Expr,
    other: &Expr,
    other_type: &DataType,
    library: &Library,
) -> PlanResult<Option<Expr>> {
    let class = Class::of(other_type);
    let is_time = class.is_some_and(Class::is_temporal);
    if let Some(number) = literal_integer(expr) {
        // Beside any other expression MySQL compares numbers.
        let micros = match is_time && is_column(other) {
            true => values::time_of_integer(number),
            false => None,
        };
        return Ok(micros.and_then(|micros| time_constant(micros, class, library)));
    }
    let Some(text) = literal_text(expr) else { return Ok(None) };
    match class {
        Some(Class::Int | Class::UInt) => {
            Ok(text.trim().parse::<i128>().ok().and_then(|number| narrow(number, other_type)))
        }
        Some(Class::Date | Class::Datetime | Class::Timestamp) => {
            let name = match class {
                Some(Class::Date) => "DATE",
                Some(Class::Datetime) => "DATETIME",
                _ => "TIMESTAMP",
            };
            let micros = values::local_time(text, library.zone());
            let micros = micros.ok_or_else(|| {
                to_datafusion(Error::mysql(1525, format!("incorrect {name} value: '{text}'")))
            })?;
            Ok(time_constant(micros, class, library))
        }
        _ => Ok(None),
    }
}

fn is_column(expr: &Expr) -> bool {
    match expr {
        Expr::Alias(alias) => is_column(&alias.expr),
        Expr::Column(_) | Expr::OuterReferenceColumn(..) => true,
        _ => false,
    }
}

/// The integer that an expression always is.
fn literal_integer(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Literal(ScalarValue::Int64(number), _) => *number,
        Expr::Alias(alias) => literal_integer(&alias.expr),
        _ => None,
    }
}

fn narrow(number: i128, data_type: &DataType) -> Option<Expr> {
    Some(match data_type {
        DataType::Int8 => lit(i8::try_from(number).ok()?),
        DataType::Int16 => lit(i16::try_from(number).ok()?),
        DataType::Int32 => lit(i32::try_from(number).ok()?),
        DataType::Int64 => lit(i64::try_from(number).ok()?),
        DataType::UInt8 => lit(u8::try_from(number).ok()?),
        DataType::UInt16 => lit(u16::try_from(number).ok()?),
        DataType::UInt32 => lit(u32::try_from(number).ok()?),
        DataType::UInt64 => lit(u64::try_from(number).ok()?),
        _ => return None,
    })
}

fn time_constant(micros: i64, class: Option<Class>, library: &Library) -> Option<Expr> {
    const DAY_MICROS: i64 = 86_400_000_000;
    match class? {
        Class::Date if micros.rem_euclid(DAY_MICROS) == 0 => {
            let days = i32::try_from(micros.div_euclid(DAY_MICROS)).ok()?;
            Some(lit(ScalarValue::Date32(Some(days))))
        }
        Class::Datetime => Some(lit(ScalarValue::TimestampMicrosecond(Some(micros), None))),
        Class::Timestamp => {
            let instant = library.zone().to_instant(micros)?;
            Some(lit(ScalarValue::TimestampMicrosecond(Some(instant), Some("UTC".into()))))
        }
        _ => None,
    }
}
