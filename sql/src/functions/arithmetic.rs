//! Arithmetic that never wraps: 1690 where a result does not fit, NULL where a divisor is zero.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowNativeTypeOp, AsArray, Float64Array, PrimitiveArray};
use arrow::compute::kernels::numeric;
use arrow::compute::{binary, try_binary};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Decimal128Type, Decimal256Type, Float64Type, Int64Type, UInt64Type, i256,
};
use arrow::error::ArrowError;
use tidb::Decimal;
use types::{Error, Result};

use super::{Call, Entry, Types};
use crate::class::{Class, decimal, digits};
use crate::values;

/// Digits that a division adds after the point (`div_precision_increment`).
const DIVISION_DIGITS: u8 = 4;

pub(super) static ENTRIES: &[Entry] = &[
    Entry {
        name: "$add",
        arity: (2, 2),
        returns: |types| sum_type(types),
        eval: |call| sum(call, false),
        strict: true,
    },
    Entry {
        name: "$sub",
        arity: (2, 2),
        returns: |types| sum_type(types),
        eval: |call| sum(call, true),
        strict: true,
    },
    Entry { name: "$mul", arity: (2, 2), returns: product_type, eval: product, strict: true },
    Entry { name: "$div", arity: (2, 2), returns: quotient_type, eval: quotient, strict: false },
    Entry { name: "$int_div", arity: (2, 2), returns: whole_type, eval: whole_quotient, strict: false },
    Entry { name: "$mod", arity: (2, 2), returns: remainder_type, eval: remainder, strict: false },
    Entry { name: "$neg", arity: (1, 1), returns: negative_type, eval: negative, strict: true },
    Entry {
        name: "$bit_and",
        arity: (2, 2),
        returns: bits_type,
        eval: |call| bits(call, |a, b| a & b),
        strict: true,
    },
    Entry {
        name: "$bit_or",
        arity: (2, 2),
        returns: bits_type,
        eval: |call| bits(call, |a, b| a | b),
        strict: true,
    },
    Entry {
        name: "$bit_xor",
        arity: (2, 2),
        returns: bits_type,
        eval: |call| bits(call, |a, b| a ^ b),
        strict: true,
    },
    Entry {
        name: "$shift_left",
        arity: (2, 2),
        returns: bits_type,
        eval: |call| bits(call, |a, b| if b < 64 { a << b } else { 0 }),
        strict: true,
    },
    Entry {
        name: "$shift_right",
        arity: (2, 2),
        returns: bits_type,
        eval: |call| bits(call, |a, b| if b < 64 { a >> b } else { 0 }),
        strict: true,
    },
    Entry {
        name: "$bit_not",
        arity: (1, 1),
        returns: bits_type,
        eval: |call| Ok(Arc::new(bit_pattern(&call.arrays[0], call)?.unary::<_, UInt64Type>(|a| !a))),
        strict: true,
    },
];

fn bits_type(_: &Types<'_>) -> Result<DataType> {
    Ok(DataType::UInt64)
}

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

/// Digits before and after the point of an argument; a constant's are its own.
fn argument_digits(types: &Types<'_>, index: usize) -> (u8, u8) {
    if let Some(value) = types.constant_int(index) {
        let n_digits = value.unsigned_abs().checked_ilog10().unwrap_or(0) + 1;
        return (u8::try_from(n_digits).unwrap_or(20), 0);
    }
    digits(&types.types[index])
}

fn sum_type(types: &Types<'_>) -> Result<DataType> {
    Ok(match domain(types)? {
        Domain::Int => DataType::Int64,
        Domain::UInt => DataType::UInt64,
        Domain::Double => DataType::Float64,
        Domain::Decimal => {
            let ((whole_a, scale_a), (whole_b, scale_b)) =
                (argument_digits(types, 0), argument_digits(types, 1));
            let scale = scale_a.max(scale_b);
            decimal(whole_a.max(whole_b).saturating_add(1).saturating_add(scale), scale)
        }
    })
}

fn product_type(types: &Types<'_>) -> Result<DataType> {
    Ok(match domain(types)? {
        Domain::Int => DataType::Int64,
        Domain::UInt => DataType::UInt64,
        Domain::Double => DataType::Float64,
        Domain::Decimal => {
            let ((whole_a, scale_a), (whole_b, scale_b)) =
                (argument_digits(types, 0), argument_digits(types, 1));
            let scale = scale_a.saturating_add(scale_b);
            decimal(whole_a.saturating_add(whole_b).saturating_add(scale), scale)
        }
    })
}

fn quotient_type(types: &Types<'_>) -> Result<DataType> {
    if domain(types)? == Domain::Double {
        return Ok(DataType::Float64);
    }
    let ((whole_a, scale_a), (_, scale_b)) = (argument_digits(types, 0), argument_digits(types, 1));
    let scale = scale_a.saturating_add(DIVISION_DIGITS);
    Ok(decimal(whole_a.saturating_add(scale_b).saturating_add(scale), scale))
}

fn whole_type(types: &Types<'_>) -> Result<DataType> {
    let unsigned = types.class(0)? == Class::UInt || types.class(1)? == Class::UInt;
    Ok(if unsigned { DataType::UInt64 } else { DataType::Int64 })
}

fn remainder_type(types: &Types<'_>) -> Result<DataType> {
    Ok(match domain(types)? {
        // The sign and the type are the dividend's.
        Domain::Int | Domain::UInt => {
            if types.class(0)? == Class::UInt {
                DataType::UInt64
            } else {
                DataType::Int64
            }
        }
        Domain::Double => DataType::Float64,
        Domain::Decimal => {
            let ((whole_a, scale_a), (whole_b, scale_b)) =
                (argument_digits(types, 0), argument_digits(types, 1));
            let scale = scale_a.max(scale_b);
            decimal(whole_a.max(whole_b).saturating_add(scale), scale)
        }
    })
}

fn negative_type(types: &Types<'_>) -> Result<DataType> {
    Ok(match domain(types)? {
        Domain::Int | Domain::UInt => DataType::Int64,
        Domain::Double => DataType::Float64,
        Domain::Decimal => types.types[0].clone(),
    })
}

fn out_of_range(call: &Call<'_>) -> Error {
    let name = match Class::of(&call.returns) {
        Some(Class::UInt) => "BIGINT UNSIGNED",
        Some(Class::Double) => "DOUBLE",
        Some(Class::Decimal(..)) => "DECIMAL",
        _ => "BIGINT",
    };
    Error::mysql(1690, format!("{name} value is out of range in '{}'", call.name.trim_start_matches('$')))
}

/// Integers of both signs as they are before they meet.
fn wide_integers(call: &Call<'_>, index: usize) -> Result<Vec<Option<i128>>> {
    let array = &call.arrays[index];
    if Class::of(array.data_type()) == Some(Class::UInt) {
        let wide = values::convert(array, &DataType::UInt64, call.zone)?;
        return Ok(wide.as_primitive::<UInt64Type>().iter().map(|value| value.map(i128::from)).collect());
    }
    Ok(call.int(index)?.iter().map(|value| value.map(i128::from)).collect())
}

fn sum(call: &Call<'_>, minus: bool) -> Result<ArrayRef> {
    match Class::of(&call.returns) {
        Some(Class::Int) => {
            let (a, b) = (call.int(0)?, call.int(1)?);
            let result = if minus { numeric::sub(&a, &b) } else { numeric::add(&a, &b) };
            result.map_err(|_| out_of_range(call))
        }
        Some(Class::UInt) => mixed(call, |a, b| if minus { a.checked_sub(b) } else { a.checked_add(b) }),
        Some(Class::Double) => floats(call, |a, b| Some(if minus { a - b } else { a + b })),
        _ => decimal_sum(call, minus),
    }
}

/// Integers of which one is unsigned, by way of 128 bits.
fn mixed(call: &Call<'_>, op: impl Fn(i128, i128) -> Option<i128>) -> Result<ArrayRef> {
    let pairs = wide_integers(call, 0)?.into_iter().zip(wide_integers(call, 1)?);
    let value = |(a, b): (Option<i128>, Option<i128>)| match (a, b) {
        (Some(a), Some(b)) => op(a, b).map(Some).ok_or_else(|| out_of_range(call)),
        _ => Ok(None),
    };
    let values = pairs.map(value).collect::<Result<Vec<_>>>()?;
    values::integer_array(values, &call.returns).map_err(|_| out_of_range(call))
}

/// Doubles; a result that is not finite is an error, none is NULL.
fn floats(call: &Call<'_>, op: impl Fn(f64, f64) -> Option<f64>) -> Result<ArrayRef> {
    let (a, b) = (call.double(0)?, call.double(1)?);
    let value = |(a, b): (Option<f64>, Option<f64>)| match (a, b) {
        (Some(a), Some(b)) => match op(a, b) {
            Some(value) if value.is_finite() => Ok(Some(values::unsigned_zero(value))),
            Some(_) => Err(out_of_range(call)),
            None => Ok(None),
        },
        _ => Ok(None),
    };
    let values: Float64Array = a.iter().zip(b.iter()).map(value).collect::<Result<_>>()?;
    Ok(Arc::new(values))
}

fn decimal_sum(call: &Call<'_>, minus: bool) -> Result<ArrayRef> {
    let a = values::convert(&call.arrays[0], &call.returns, call.zone)?;
    let b = values::convert(&call.arrays[1], &call.returns, call.zone)?;
    match call.returns {
        DataType::Decimal128(..) => raw_sum::<Decimal128Type>(call, &a, &b, minus),
        _ => raw_sum::<Decimal256Type>(call, &a, &b, minus),
    }
}

fn raw_sum<T>(call: &Call<'_>, a: &ArrayRef, b: &ArrayRef, minus: bool) -> Result<ArrayRef>
where
    T: ArrowPrimitiveType,
    T::Native: ArrowNativeTypeOp,
{
    let op = |a: T::Native, b: T::Native| if minus { a.sub_checked(b) } else { a.add_checked(b) };
    let sum: Result<PrimitiveArray<T>, ArrowError> =
        try_binary(a.as_primitive::<T>(), b.as_primitive::<T>(), op);
    let sum = sum.map_err(|_| out_of_range(call))?.with_data_type(call.returns.clone());
    check_digits(call, Arc::new(sum))
}

/// At the greatest precision a result may still be too long.
fn check_digits(call: &Call<'_>, array: ArrayRef) -> Result<ArrayRef> {
    let Some(Class::Decimal(precision, scale)) = Class::of(&call.returns) else { return Ok(array) };
    if precision < tidb::DECIMAL_PRECISION_MAX {
        return Ok(array);
    }
    let wide = values::as_decimal256(&array)?;
    let fits = |unscaled: i256| Decimal { unscaled, scale }.fits(precision);
    if wide.as_primitive::<Decimal256Type>().iter().flatten().all(fits) {
        Ok(array)
    } else {
        Err(out_of_range(call))
    }
}

fn product(call: &Call<'_>) -> Result<ArrayRef> {
    match Class::of(&call.returns) {
        Some(Class::Int) => numeric::mul(&call.int(0)?, &call.int(1)?).map_err(|_| out_of_range(call)),
        Some(Class::UInt) => mixed(call, i128::checked_mul),
        Some(Class::Double) => floats(call, |a, b| Some(a * b)),
        _ => exact(call, |a, b| {
            let unscaled = a.unscaled.checked_mul(b.unscaled)?;
            Some(Some(Decimal { unscaled, scale: a.scale + b.scale }))
        }),
    }
}

/// Decimals pair by pair: `None` is out of range, `Some(None)` is NULL.
fn exact(call: &Call<'_>, op: impl Fn(Decimal, Decimal) -> Option<Option<Decimal>>) -> Result<ArrayRef> {
    let Some(Class::Decimal(precision, scale)) = Class::of(&call.returns) else {
        return Err(Error::invalid(format!("{} is not a decimal", call.returns)));
    };
    let pairs = values::exact_numbers(&call.arrays[0], call.zone)?
        .into_iter()
        .zip(values::exact_numbers(&call.arrays[1], call.zone)?);
    let value = |(a, b): (Option<Decimal>, Option<Decimal>)| {
        let (Some(a), Some(b)) = (a, b) else { return Ok(None) };
        match op(a, b) {
            Some(None) => Ok(None),
            Some(Some(number)) => {
                let number = number.rescale(scale).filter(|number| number.fits(precision));
                number.map(|number| Some(number.unscaled)).ok_or_else(|| out_of_range(call))
            }
            None => Err(out_of_range(call)),
        }
    };
    let values = pairs.map(value).collect::<Result<Vec<_>>>()?;
    values::decimal_array(values, &call.returns)
}

fn power_of_ten(exponent: u8) -> Option<i256> {
    i256::from_i128(10).checked_pow(u32::from(exponent))
}

fn quotient(call: &Call<'_>) -> Result<ArrayRef> {
    let Some(Class::Decimal(_, scale)) = Class::of(&call.returns) else {
        return floats(call, |a, b| if b == 0.0 { None } else { Some(a / b) });
    };
    exact(call, |a, b| {
        if b.unscaled == i256::ZERO {
            return Some(None);
        }
        // a / 10^sa / (b / 10^sb), as an integer of 10^-scale.
        let up = scale.checked_add(b.scale)?.checked_sub(a.scale)?;
        let unscaled = divide_rounded(a.unscaled.checked_mul(power_of_ten(up)?)?, b.unscaled)?;
        Some(Some(Decimal { unscaled, scale }))
    })
}

/// Divides; halves round away from zero.
fn divide_rounded(a: i256, b: i256) -> Option<i256> {
    let whole = a.checked_div(b)?;
    let rest = a.checked_rem(b)?;
    let double = rest.wrapping_abs().checked_mul(i256::from_i128(2))?;
    if double < b.wrapping_abs() {
        return Some(whole);
    }
    let negative = (a < i256::ZERO) != (b < i256::ZERO);
    if negative { whole.checked_sub(i256::ONE) } else { whole.checked_add(i256::ONE) }
}

fn whole_quotient(call: &Call<'_>) -> Result<ArrayRef> {
    let is_exact = |array: &ArrayRef| Class::of(array.data_type()).is_some_and(Class::is_exact);
    if !is_exact(&call.arrays[0]) || !is_exact(&call.arrays[1]) {
        let (a, b) = (call.double(0)?, call.double(1)?);
        let value = |(a, b): (Option<f64>, Option<f64>)| match (a, b) {
            (Some(a), Some(b)) if b != 0.0 => {
                let whole = (a / b).trunc();
                let limit = if call.returns == DataType::UInt64 {
                    1.8446744073709552e19
                } else {
                    9.223372036854776e18
                };
                if whole.abs() >= limit { Err(out_of_range(call)) } else { Ok(Some(whole as i128)) }
            }
            _ => Ok(None),
        };
        let values = a.iter().zip(b.iter()).map(value).collect::<Result<Vec<_>>>()?;
        return values::integer_array(values, &call.returns).map_err(|_| out_of_range(call));
    }
    let pairs = values::exact_numbers(&call.arrays[0], call.zone)?
        .into_iter()
        .zip(values::exact_numbers(&call.arrays[1], call.zone)?);
    let value = |(a, b): (Option<Decimal>, Option<Decimal>)| {
        let (Some(a), Some(b)) = (a, b) else { return Ok(None) };
        if b.unscaled == i256::ZERO {
            return Ok(None);
        }
        let scale = a.scale.max(b.scale);
        let whole =
            a.rescale(scale).zip(b.rescale(scale)).and_then(|(a, b)| a.unscaled.checked_div(b.unscaled));
        whole.and_then(i256::to_i128).map(Some).ok_or_else(|| out_of_range(call))
    };
    let values = pairs.map(value).collect::<Result<Vec<_>>>()?;
    values::integer_array(values, &call.returns).map_err(|_| out_of_range(call))
}

fn remainder(call: &Call<'_>) -> Result<ArrayRef> {
    match Class::of(&call.returns) {
        Some(Class::Int | Class::UInt) => {
            let pairs = wide_integers(call, 0)?.into_iter().zip(wide_integers(call, 1)?);
            let value = |(a, b): (Option<i128>, Option<i128>)| match (a, b) {
                (Some(a), Some(b)) => a.checked_rem(b),
                _ => None,
            };
            values::integer_array(pairs.map(value).collect(), &call.returns)
        }
        Some(Class::Double) => floats(call, |a, b| if b == 0.0 { None } else { Some(a % b) }),
        _ => exact(call, |a, b| {
            if b.unscaled == i256::ZERO {
                return Some(None);
            }
            let scale = a.scale.max(b.scale);
            let unscaled = a.rescale(scale)?.unscaled.checked_rem(b.rescale(scale)?.unscaled)?;
            Some(Some(Decimal { unscaled, scale }))
        }),
    }
}

fn negative(call: &Call<'_>) -> Result<ArrayRef> {
    match Class::of(&call.returns) {
        Some(Class::Int) => {
            let values = wide_integers(call, 0)?.into_iter().map(|value| value.map(|value| -value)).collect();
            values::integer_array(values, &call.returns).map_err(|_| out_of_range(call))
        }
        Some(Class::Double) => {
            Ok(Arc::new(call.double(0)?.unary::<_, Float64Type>(|value| values::unsigned_zero(-value))))
        }
        _ => match &call.arrays[0].data_type() {
            DataType::Decimal128(..) => {
                let values = call.arrays[0].as_primitive::<Decimal128Type>();
                Ok(Arc::new(
                    values.unary::<_, Decimal128Type>(|value| -value).with_data_type(call.returns.clone()),
                ))
            }
            _ => {
                let values = call.arrays[0].as_primitive::<Decimal256Type>();
                let negated = values.unary::<_, Decimal256Type>(i256::wrapping_neg);
                Ok(Arc::new(negated.with_data_type(call.returns.clone())))
            }
        },
    }
}

/// A number as 64 bits: negative ones by two's complement.
fn bit_pattern(array: &ArrayRef, call: &Call<'_>) -> Result<PrimitiveArray<UInt64Type>> {
    if Class::of(array.data_type()) == Some(Class::UInt) {
        let unsigned = values::convert(array, &DataType::UInt64, call.zone)?;
        return Ok(unsigned.as_primitive::<UInt64Type>().clone());
    }
    let signed = values::convert(array, &DataType::Int64, call.zone)?;
    Ok(signed.as_primitive::<Int64Type>().unary(i64::cast_unsigned))
}

fn bits(call: &Call<'_>, op: impl Fn(u64, u64) -> u64) -> Result<ArrayRef> {
    let a = bit_pattern(&call.arrays[0], call)?;
    let b = bit_pattern(&call.arrays[1], call)?;
    let result: PrimitiveArray<UInt64Type> = binary(&a, &b, op)?;
    Ok(Arc::new(result))
}
