//! The types of arithmetic: what two numbers become, and how many digits the result shows and carries.
//!
//! A decimal shows a fixed number of digits after the point. MySQL's quotients carry more than they show: whole
//! groups of nine, cut off behind them. What is computed from a quotient goes on with the carried digits and
//! is rounded only where it is shown.

use arrow::datatypes::DataType;
use types::Result;

use super::super::Types;
use crate::class::{Class, decimal, digits};

/// Digits that a division adds after the point (`div_precision_increment`).
const DIVISION_DIGITS: u8 = 4;
/// Digits of a group.
const GROUP_DIGITS: u8 = 9;
/// The most digits that fit in 256 bits.
const CARRIED_DIGITS_MAX: u8 = 76;

/// Digits before and after the point.
type Digits = (u8, u8);

/// What two numbers are before they meet: integers, decimals, or doubles.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Domain {
    Int,
    UInt,
    Decimal,
    Double,
}

fn domain(types: &Types<'_>) -> Result<Domain> {
    let mut domain = Domain::Int;
    for index in 0..types.types.len() {
        let next = match types.class(index)? {
            Class::Null | Class::Bool | Class::Int | Class::Date | Class::Datetime | Class::Timestamp => {
                Domain::Int
            }
            Class::UInt => Domain::UInt,
            Class::Decimal(..) => Domain::Decimal,
            Class::Double | Class::Text | Class::Binary => Domain::Double,
        };
        domain = match (domain, next) {
            (Domain::Double, _) | (_, Domain::Double) => Domain::Double,
            (Domain::Decimal, _) | (_, Domain::Decimal) => Domain::Decimal,
            (Domain::UInt, _) | (_, Domain::UInt) => Domain::UInt,
            _ => Domain::Int,
        };
    }
    Ok(domain)
}

/// Digits of an argument; a constant's are its own.
fn argument_digits(types: &Types<'_>, index: usize) -> Digits {
    if let Some(value) = types.constant_int(index) {
        let n_digits = value.unsigned_abs().checked_ilog10().unwrap_or(0) + 1;
        return (u8::try_from(n_digits).unwrap_or(20), 0);
    }
    digits(&types.types[index])
}

/// The type of an operation on two numbers; a decimal's digits follow from those of both.
fn numeric_type(types: &Types<'_>, digits_of: fn(Digits, Digits) -> Digits) -> Result<DataType> {
    Ok(match domain(types)? {
        Domain::Int => DataType::Int64,
        Domain::UInt => DataType::UInt64,
        Domain::Double => DataType::Float64,
        Domain::Decimal => decimal_type(types, digits_of),
    })
}

fn decimal_type(types: &Types<'_>, digits_of: fn(Digits, Digits) -> Digits) -> DataType {
    let (whole, scale) = digits_of(argument_digits(types, 0), argument_digits(types, 1));
    decimal(whole.saturating_add(scale), scale)
}

pub(super) fn sum_type(types: &Types<'_>) -> Result<DataType> {
    numeric_type(types, |a, b| (a.0.max(b.0).saturating_add(1), a.1.max(b.1)))
}

pub(super) fn product_type(types: &Types<'_>) -> Result<DataType> {
    numeric_type(types, |a, b| (a.0.saturating_add(b.0), a.1.saturating_add(b.1)))
}

pub(super) fn quotient_type(types: &Types<'_>) -> Result<DataType> {
    if domain(types)? == Domain::Double {
        return Ok(DataType::Float64);
    }
    Ok(decimal_type(types, |a, b| (a.0.saturating_add(b.1), a.1.saturating_add(DIVISION_DIGITS))))
}

pub(super) fn whole_type(types: &Types<'_>) -> Result<DataType> {
    let unsigned = types.class(0)? == Class::UInt || types.class(1)? == Class::UInt;
    Ok(if unsigned { DataType::UInt64 } else { DataType::Int64 })
}

pub(super) fn remainder_type(types: &Types<'_>) -> Result<DataType> {
    // The sign of a whole remainder is the dividend's, and so is its type.
    if matches!(domain(types)?, Domain::Int | Domain::UInt) {
        return Ok(if types.class(0)? == Class::UInt { DataType::UInt64 } else { DataType::Int64 });
    }
    numeric_type(types, |a, b| (a.0.max(b.0), a.1.max(b.1)))
}

pub(super) fn negative_type(types: &Types<'_>) -> Result<DataType> {
    Ok(match domain(types)? {
        Domain::Int | Domain::UInt => DataType::Int64,
        Domain::Double => DataType::Float64,
        Domain::Decimal => types.types[0].clone(),
    })
}

/// The type in which a function's result is carried on, if it shows `shown` and its arguments carry these
/// types; `None` if it is not one of those that carry digits.
pub(in crate::functions) fn carried_type(
    name: &str,
    shown: &DataType,
    arguments: &[DataType],
) -> Option<DataType> {
    let scales = || arguments.iter().map(|argument| digits(argument).1);
    let scale = match name {
        "$div" => quotient_scale(digits(arguments.first()?).1, digits(arguments.get(1)?).1),
        "$mul" => scales().fold(0, u8::saturating_add),
        "$add" | "$sub" | "$mod" | "$neg" | "abs" | "greatest" | "least" => scales().max()?,
        _ => return None,
    };
    Some(with_carried_scale(shown, scale))
}

/// The digits after the point of a quotient: MySQL divides in groups of nine digits on both sides, and adds
/// only what they leave of the four.
fn quotient_scale(a: u8, b: u8) -> u8 {
    let grouped = |scale: u8| scale.div_ceil(GROUP_DIGITS).saturating_mul(GROUP_DIGITS);
    let (grouped_a, grouped_b) = (grouped(a), grouped(b));
    let spare = (grouped_a - a).saturating_add(grouped_b - b);
    grouped(grouped_a.saturating_add(grouped_b).saturating_add(DIVISION_DIGITS.saturating_sub(spare)))
}

/// A decimal type with more digits after the point, as many groups of them as there is room for.
pub(crate) fn with_carried_scale(shown: &DataType, scale: u8) -> DataType {
    let (whole, shown_scale) = digits(shown);
    let room = CARRIED_DIGITS_MAX.saturating_sub(whole);
    let scale = if scale <= room { scale } else { room - room % GROUP_DIGITS };
    let scale = scale.max(shown_scale);
    let precision = whole.saturating_add(scale).clamp(1, CARRIED_DIGITS_MAX);
    let signed = i8::try_from(scale).unwrap_or(i8::MAX);
    if precision <= 38 {
        DataType::Decimal128(precision, signed)
    } else {
        DataType::Decimal256(precision, signed)
    }
}

/// The type in which the argument of a sum is carried, so that the sum has room for it.
pub(crate) fn summed_type(argument: &DataType, carried: &DataType, sum: &DataType) -> DataType {
    // The accumulators hold decimals of 65 digits, 30 of them after the point.
    let ((_, shown), (whole, _)) = (digits(argument), digits(sum));
    let room = tidb::DECIMAL_PRECISION_MAX.saturating_sub(whole).min(tidb::DECIMAL_SCALE_MAX);
    let room = room - room % GROUP_DIGITS;
    with_carried_scale(argument, digits(carried).1.min(room).max(shown))
}
