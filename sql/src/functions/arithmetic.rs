//! Arithmetic that never wraps: 1690 where a result does not fit, NULL where a divisor is zero (in a data
//! change under the strict SQL mode, 1365).

mod result_type;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowNativeTypeOp, AsArray, Float64Array, PrimitiveArray};
use arrow::compute::kernels::numeric;
use arrow::compute::try_binary;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Decimal128Type, Decimal256Type, Float64Type, UInt64Type, i256,
};
use arrow::error::ArrowError;
use tidb::Decimal;
use types::{Error, Result};

use super::{Call, Entry};
use crate::DivisionByZero;
use crate::class::Class;
use crate::values;
pub(in crate::functions) use result_type::carried_type;
use result_type::{negative_type, product_type, quotient_type, remainder_type, sum_type, whole_type};
pub(crate) use result_type::{summed_type, with_carried_scale};

pub(super) static ENTRIES: &[Entry] = &[
    Entry { name: "$add", arity: (2, 2), returns: sum_type, eval: |call| sum(call, false), strict: true },
    Entry { name: "$sub", arity: (2, 2), returns: sum_type, eval: |call| sum(call, true), strict: true },
    Entry { name: "$mul", arity: (2, 2), returns: product_type, eval: product, strict: true },
    Entry { name: "$div", arity: (2, 2), returns: quotient_type, eval: quotient, strict: false },
    Entry { name: "$int_div", arity: (2, 2), returns: whole_type, eval: whole_quotient, strict: false },
    Entry { name: "$mod", arity: (2, 2), returns: remainder_type, eval: remainder, strict: false },
    Entry { name: "$neg", arity: (1, 1), returns: negative_type, eval: negative, strict: true },
];

fn out_of_range(call: &Call<'_>) -> Error {
    let name = match Class::of(&call.returns) {
        Some(Class::UInt) => "BIGINT UNSIGNED",
        Some(Class::Double) => "DOUBLE",
        Some(Class::Decimal(..)) => "DECIMAL",
        _ => "BIGINT",
    };
    Error::mysql(1690, format!("{name} value is out of range in '{}'", call.shown_name()))
}

/// What a division by zero is.
fn by_zero<T>(call: &Call<'_>) -> Result<Option<T>> {
    match call.division_by_zero {
        DivisionByZero::Null => Ok(None),
        DivisionByZero::Error => Err(Error::mysql(1365, "Division by 0")),
    }
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

/// Doubles; a result that is not finite is an error, none is a division by zero.
fn floats(call: &Call<'_>, op: impl Fn(f64, f64) -> Option<f64>) -> Result<ArrayRef> {
    let (a, b) = (call.double(0)?, call.double(1)?);
    let value = |(a, b): (Option<f64>, Option<f64>)| match (a, b) {
        (Some(a), Some(b)) => match op(a, b) {
            Some(value) if value.is_finite() => Ok(Some(values::unsigned_zero(value))),
            Some(_) => Err(out_of_range(call)),
            None => by_zero(call),
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

/// Decimals pair by pair: `None` is out of range, `Some(None)` is a division by zero.
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
            Some(None) => by_zero(call),
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

fn quotient(call: &Call<'_>) -> Result<ArrayRef> {
    let Some(Class::Decimal(_, scale)) = Class::of(&call.returns) else {
        return floats(call, |a, b| if b == 0.0 { None } else { Some(a / b) });
    };
    exact(call, |a, b| {
        if b.unscaled == i256::ZERO {
            return Some(None);
        }
        Some(Some(Decimal { unscaled: divide(a, b, scale)?, scale }))
    })
}

/// `a / b` as an integer of `10^-scale`; what is behind is cut off. `None` if the quotient does not fit.
fn divide(a: Decimal, b: Decimal, scale: u8) -> Option<i256> {
    let ten = i256::from_i128(10);
    let shift = i32::from(scale) + i32::from(b.scale) - i32::from(a.scale);
    let (mut whole, mut rest) = (a.unscaled.checked_div(b.unscaled)?, a.unscaled.checked_rem(b.unscaled)?);
    if shift < 0 {
        let unit = ten.checked_pow(shift.unsigned_abs());
        return Some(unit.map_or(i256::ZERO, |unit| whole.wrapping_div(unit)));
    }
    // In one step where there is room for it, else digit by digit.
    let unit = ten.checked_pow(shift.unsigned_abs());
    if let Some(up) = unit.and_then(|unit| rest.checked_mul(unit)) {
        return whole.checked_mul(unit?)?.checked_add(up.checked_div(b.unscaled)?);
    }
    for _ in 0..shift {
        rest = rest.checked_mul(ten)?;
        whole = whole.checked_mul(ten)?.checked_add(rest.checked_div(b.unscaled)?)?;
        rest = rest.checked_rem(b.unscaled)?;
    }
    Some(whole)
}

fn whole_quotient(call: &Call<'_>) -> Result<ArrayRef> {
    let is_exact = |array: &ArrayRef| Class::of(array.data_type()).is_some_and(Class::is_exact);
    if !is_exact(&call.arrays[0]) || !is_exact(&call.arrays[1]) {
        let (a, b) = (call.double(0)?, call.double(1)?);
        let value = |(a, b): (Option<f64>, Option<f64>)| match (a, b) {
            (Some(_), Some(0.0)) => by_zero(call),
            (Some(a), Some(b)) => {
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
            return by_zero(call);
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
                (Some(_), Some(0)) => by_zero(call),
                (Some(a), Some(b)) => Ok(a.checked_rem(b)),
                _ => Ok(None),
            };
            values::integer_array(pairs.map(value).collect::<Result<_>>()?, &call.returns)
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
