//! Functions on numbers.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use tidb::Decimal;
use types::{Error, Result};

use super::{Call, Entry, Types, common_type};
use crate::class::{Class, decimal, digits, value_type};
use crate::values;

const fn double(name: &'static str, eval: fn(&Call<'_>) -> Result<ArrayRef>) -> Entry {
    Entry { name, arity: (1, 1), returns: |_| Ok(DataType::Float64), eval, strict: false }
}

pub(super) static ENTRIES: &[Entry] = &[
    Entry { name: "abs", arity: (1, 1), returns: number_type, eval: abs, strict: true },
    Entry { name: "sign", arity: (1, 1), returns: |_| Ok(DataType::Int64), eval: sign, strict: true },
    Entry { name: "round", arity: (1, 2), returns: round_type, eval: |call| round(call, true), strict: true },
    Entry {
        name: "truncate",
        arity: (2, 2),
        returns: round_type,
        eval: |call| round(call, false),
        strict: true,
    },
    Entry { name: "ceil", arity: (1, 1), returns: whole_type, eval: |call| whole(call, true), strict: true },
    Entry {
        name: "floor",
        arity: (1, 1),
        returns: whole_type,
        eval: |call| whole(call, false),
        strict: true,
    },
    double("sqrt", |call| map(call, |x| (x >= 0.0).then(|| x.sqrt()))),
    double("exp", |call| map(call, |x| Some(x.exp()))),
    double("ln", |call| map(call, |x| (x > 0.0).then(|| x.ln()))),
    double("log2", |call| map(call, |x| (x > 0.0).then(|| x.log2()))),
    double("log10", |call| map(call, |x| (x > 0.0).then(|| x.log10()))),
    Entry { name: "log", arity: (1, 2), returns: |_| Ok(DataType::Float64), eval: log, strict: false },
    Entry {
        name: "pow",
        arity: (2, 2),
        returns: |_| Ok(DataType::Float64),
        eval: |call| map2(call, |x, y| Some(x.powf(y))),
        strict: false,
    },
    double("sin", |call| map(call, |x| Some(x.sin()))),
    double("cos", |call| map(call, |x| Some(x.cos()))),
    double("tan", |call| map(call, |x| Some(x.tan()))),
    double("asin", |call| map(call, |x| (x.abs() <= 1.0).then(|| x.asin()))),
    double("acos", |call| map(call, |x| (x.abs() <= 1.0).then(|| x.acos()))),
    double("radians", |call| map(call, |x| Some(x.to_radians()))),
    double("degrees", |call| map(call, |x| Some(x.to_degrees()))),
    Entry { name: "atan", arity: (1, 2), returns: |_| Ok(DataType::Float64), eval: atan, strict: true },
    Entry { name: "atan2", arity: (2, 2), returns: |_| Ok(DataType::Float64), eval: atan, strict: true },
    Entry {
        name: "pi",
        arity: (0, 0),
        returns: |_| Ok(DataType::Float64),
        eval: |call| Ok(Arc::new(Float64Array::from(vec![std::f64::consts::PI; call.n_rows]))),
        strict: true,
    },
    Entry {
        name: "greatest",
        arity: (2, usize::MAX),
        returns: extreme_type,
        eval: |call| extreme(call, true),
        strict: false,
    },
    Entry {
        name: "least",
        arity: (2, usize::MAX),
        returns: extreme_type,
        eval: |call| extreme(call, false),
        strict: false,
    },
    Entry {
        name: "$double",
        arity: (1, 1),
        returns: |_| Ok(DataType::Float64),
        eval: double_literal,
        strict: true,
    },
];

/// The type of a number, or DOUBLE for what is none.
fn number_type(types: &Types<'_>) -> Result<DataType> {
    Ok(match types.class(0)? {
        Class::Null | Class::Bool | Class::Int => DataType::Int64,
        Class::UInt => DataType::UInt64,
        Class::Decimal(..) => types.types[0].clone(),
        _ => DataType::Float64,
    })
}

fn out_of_range(call: &Call<'_>) -> Error {
    Error::mysql(1690, format!("value is out of range in '{}'", call.shown_name()))
}

fn double_literal(call: &Call<'_>) -> Result<ArrayRef> {
    let numbers =
        call.text(0)?.iter().map(|text| text.map(values::number_at_start)).collect::<Float64Array>();
    if numbers.iter().flatten().any(|number| !number.is_finite()) {
        return Err(Error::mysql(1367, "illegal double value found during parsing"));
    }
    Ok(Arc::new(numbers))
}

fn finite(call: &Call<'_>, value: Option<f64>) -> Result<Option<f64>> {
    match value {
        Some(value) if value.is_finite() => Ok(Some(values::unsigned_zero(value))),
        Some(_) => Err(Error::mysql(1690, format!("DOUBLE value is out of range in '{}'", call.name))),
        None => Ok(None),
    }
}

fn map(call: &Call<'_>, op: impl Fn(f64) -> Option<f64>) -> Result<ArrayRef> {
    let values = call.double(0)?;
    let values =
        values.iter().map(|value| finite(call, value.and_then(&op))).collect::<Result<Float64Array>>()?;
    Ok(Arc::new(values))
}

fn map2(call: &Call<'_>, op: impl Fn(f64, f64) -> Option<f64>) -> Result<ArrayRef> {
    let (a, b) = (call.double(0)?, call.double(1)?);
    let pairs = a.iter().zip(b.iter());
    let value = |(a, b): (Option<f64>, Option<f64>)| finite(call, a.zip(b).and_then(|(a, b)| op(a, b)));
    Ok(Arc::new(pairs.map(value).collect::<Result<Float64Array>>()?))
}

fn log(call: &Call<'_>) -> Result<ArrayRef> {
    if call.arrays.len() == 1 {
        return map(call, |x| (x > 0.0).then(|| x.ln()));
    }
    map2(call, |base, x| (base > 0.0 && base != 1.0 && x > 0.0).then(|| x.ln() / base.ln()))
}

fn atan(call: &Call<'_>) -> Result<ArrayRef> {
    if call.arrays.len() == 1 {
        return map(call, |x| Some(x.atan()));
    }
    map2(call, |y, x| Some(y.atan2(x)))
}

fn abs(call: &Call<'_>) -> Result<ArrayRef> {
    let array = &call.arrays[0];
    match Class::of(&call.returns) {
        Some(Class::Int) => {
            let values = call.int(0)?;
            let abs = |value: i64| value.checked_abs().ok_or_else(|| out_of_range(call));
            Ok(Arc::new(values.try_unary::<_, Int64Type, _>(abs)?))
        }
        Some(Class::UInt) => Ok(cast(array, &DataType::UInt64)?),
        Some(Class::Decimal(..)) => {
            let values = values::exact_numbers(array, call.zone)?;
            let values =
                values.into_iter().map(|value| value.map(|value| value.unscaled.wrapping_abs())).collect();
            values::decimal_array(values, &call.returns)
        }
        _ => Ok(Arc::new(call.double(0)?.unary::<_, Float64Type>(f64::abs))),
    }
}

fn sign(call: &Call<'_>) -> Result<ArrayRef> {
    let sign = |value: f64| {
        if value > 0.0 {
            1
        } else if value < 0.0 {
            -1
        } else {
            0
        }
    };
    Ok(Arc::new(call.double(0)?.unary::<_, Int64Type>(sign)))
}

fn round_type(types: &Types<'_>) -> Result<DataType> {
    let number = number_type(types)?;
    let Some(Class::Decimal(precision, scale)) = Class::of(&number) else { return Ok(number) };
    let places = if types.types.len() == 1 { Some(0) } else { types.constant_int(1) };
    let Some(places) = places else { return Ok(number) };
    let new_scale = u8::try_from(places.clamp(0, i64::from(scale))).unwrap_or(scale);
    // Rounding 9.9 up takes one digit more before the point.
    Ok(decimal(precision - scale.min(precision) + 1 + new_scale, new_scale))
}

fn round(call: &Call<'_>, nearest: bool) -> Result<ArrayRef> {
    let places = if call.arrays.len() == 2 { Some(call.int(1)?) } else { None };
    let places_at = |row: usize| match &places {
        None => Some(0),
        Some(places) => (!places.is_null(row)).then(|| places.value(row)),
    };
    if Class::of(&call.returns) == Some(Class::Double) {
        let numbers = call.double(0)?;
        let value = |row: usize| {
            let number = (!numbers.is_null(row)).then(|| numbers.value(row));
            number.zip(places_at(row)).map(|(number, places)| round_double(number, places, nearest))
        };
        return Ok(Arc::new((0..call.n_rows).map(value).collect::<Float64Array>()));
    }
    let numbers = values::exact_numbers(&call.arrays[0], call.zone)?;
    let rounded = numbers
        .into_iter()
        .enumerate()
        .map(|(row, number)| match number.zip(places_at(row)) {
            None => Ok(None),
            Some((number, places)) => {
                round_exact(number, places, nearest).map(Some).ok_or_else(|| out_of_range(call))
            }
        })
        .collect::<Result<Vec<_>>>()?;
    match Class::of(&call.returns) {
        Some(Class::Decimal(precision, scale)) => {
            let fit = |number: Decimal| {
                let number = number.rescale(scale).filter(|number| number.fits(precision));
                number.map(|number| number.unscaled).ok_or_else(|| out_of_range(call))
            };
            let values =
                rounded.into_iter().map(|number| number.map(fit).transpose()).collect::<Result<Vec<_>>>()?;
            values::decimal_array(values, &call.returns)
        }
        _ => {
            let whole = |number: Decimal| number.rescale(0).and_then(|number| number.unscaled.to_i128());
            let values = rounded.into_iter().map(|number| number.and_then(whole)).collect();
            values::integer_array(values, &call.returns)
        }
    }
}

/// Doubles round as their nearest representation does, halves to the even neighbour.
fn round_double(number: f64, places: i64, nearest: bool) -> f64 {
    let places = i32::try_from(places.clamp(-400, 400)).unwrap_or(0);
    let to_whole = |value: f64| if nearest { value.round_ties_even() } else { value.trunc() };
    let factor = 10_f64.powi(places.abs());
    let result = if places >= 0 {
        if factor.is_infinite() || (number * factor).is_infinite() {
            number
        } else {
            to_whole(number * factor) / factor
        }
    } else if factor.is_infinite() {
        0.0
    } else {
        to_whole(number / factor) * factor
    };
    values::unsigned_zero(result)
}

fn round_exact(number: Decimal, places: i64, nearest: bool) -> Option<Decimal> {
    let scale = i64::from(number.scale);
    let places = places.clamp(-76, 76);
    if places >= scale {
        return Some(number);
    }
    let drop = u32::try_from(scale - places).ok()?;
    let ten = arrow::datatypes::i256::from_i128(10);
    let Some(unit) = ten.checked_pow(drop) else {
        return Some(Decimal { unscaled: arrow::datatypes::i256::ZERO, scale: number.scale });
    };
    let rest = number.unscaled.checked_rem(unit)?;
    let mut unscaled = number.unscaled.checked_sub(rest)?;
    let half = unit.checked_div(arrow::datatypes::i256::from_i128(2))?;
    if nearest && rest.wrapping_abs() >= half {
        let step = if rest < arrow::datatypes::i256::ZERO { unit.wrapping_neg() } else { unit };
        unscaled = unscaled.checked_add(step)?;
    }
    Some(Decimal { unscaled, scale: number.scale })
}

fn whole_type(types: &Types<'_>) -> Result<DataType> {
    let number = number_type(types)?;
    Ok(match Class::of(&number) {
        Some(Class::Decimal(..)) => {
            let (whole, _) = digits(&number);
            if whole <= 17 { DataType::Int64 } else { decimal(whole + 1, 0) }
        }
        _ => number,
    })
}

fn whole(call: &Call<'_>, up: bool) -> Result<ArrayRef> {
    let array = &call.arrays[0];
    if Class::of(&call.returns) == Some(Class::Double) {
        let numbers = call.double(0)?;
        let whole = |value: f64| values::unsigned_zero(if up { value.ceil() } else { value.floor() });
        return Ok(Arc::new(numbers.unary::<_, Float64Type>(whole)));
    }
    if !matches!(values::class_of(array)?, Class::Decimal(..)) {
        return values::convert(array, &call.returns, call.zone);
    }
    let step = |number: Decimal| {
        let zero = arrow::datatypes::i256::ZERO;
        let one = arrow::datatypes::i256::ONE;
        let unit = arrow::datatypes::i256::from_i128(10).checked_pow(u32::from(number.scale))?;
        let whole = number.unscaled.checked_div(unit)?;
        let rest = number.unscaled.checked_rem(unit)?;
        let whole = if up && rest > zero {
            whole.checked_add(one)?
        } else if !up && rest < zero {
            whole.checked_sub(one)?
        } else {
            whole
        };
        Some(Decimal { unscaled: whole, scale: 0 })
    };
    let numbers: Vec<Option<Decimal>> =
        values::exact_numbers(array, call.zone)?.into_iter().map(|number| number.and_then(step)).collect();
    if call.returns == DataType::Int64 {
        let values =
            numbers.into_iter().map(|number| number.and_then(|number| number.unscaled.to_i128())).collect();
        return values::integer_array(values, &call.returns);
    }
    values::decimal_array(
        numbers.into_iter().map(|number| number.map(|number| number.unscaled)).collect(),
        &call.returns,
    )
}

fn extreme_type(types: &Types<'_>) -> Result<DataType> {
    let has_text = (0..types.types.len()).any(|index| matches!(types.class(index), Ok(Class::Text)));
    if has_text {
        return Ok(DataType::Utf8);
    }
    Ok(value_type(&common_type(types.types.iter())?))
}

fn extreme(call: &Call<'_>, greatest: bool) -> Result<ArrayRef> {
    if call.returns == DataType::Utf8 {
        let columns = (0..call.arrays.len()).map(|index| call.text(index)).collect::<Result<Vec<_>>>()?;
        let value = |row: usize| {
            if columns.iter().any(|column| column.is_null(row)) {
                return None;
            }
            let texts = columns.iter().map(|column| column.value(row));
            if greatest {
                texts.max_by_key(|text| tidb::pad_key(text))
            } else {
                texts.min_by_key(|text| tidb::pad_key(text))
            }
        };
        return Ok(Arc::new((0..call.n_rows).map(value).collect::<StringArray>()));
    }
    let mut best = values::convert(&call.arrays[0], &call.returns, call.zone)?;
    for array in &call.arrays[1..] {
        let next = values::convert(array, &call.returns, call.zone)?;
        best = better(&best, &next, greatest)?;
    }
    Ok(best)
}

/// Row by row the greater or the lesser; NULL if either is.
fn better(a: &ArrayRef, b: &ArrayRef, greatest: bool) -> Result<ArrayRef> {
    use arrow::compute::kernels::cmp;
    let take_a = if greatest { cmp::gt_eq(a, b)? } else { cmp::lt_eq(a, b)? };
    let chosen = arrow::compute::kernels::zip::zip(&take_a, a, b)?;
    let is_null = arrow::compute::or(&arrow::compute::is_null(a)?, &arrow::compute::is_null(b)?)?;
    Ok(arrow::compute::nullif(&chosen, &is_null)?)
}
