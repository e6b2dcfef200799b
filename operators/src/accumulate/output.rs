//! Results: exact sums and means as decimals of the declared type, checked once.

use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Builder, Decimal256Builder};
use arrow::datatypes::{DataType, i256};
use types::{Error, Result};

/// A sum to be divided by a count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ratio {
    pub(crate) sum: i256,
    pub(crate) count: i64,
}

/// Decimals of a type from ratios of numbers of another scale, rounded half away from zero.
pub(crate) fn decimals(
    values: impl Iterator<Item = Option<Ratio>>,
    scale: i8,
    output_type: &DataType,
    name: &str,
) -> Result<ArrayRef> {
    let (DataType::Decimal128(precision, output_scale) | DataType::Decimal256(precision, output_scale)) =
        output_type
    else {
        return Err(Error::invalid(format!("{name} has no decimals of type {output_type}")));
    };
    let out_of_range = || {
        Error::mysql(
            1690,
            format!("a result of {name} is out of range for DECIMAL({precision},{output_scale})"),
        )
    };
    let ten = i256::from_i128(10);
    let shift = u32::try_from(output_scale - scale).map_err(|_| out_of_range())?;
    let factor = ten.checked_pow(shift).ok_or_else(out_of_range)?;
    let bound = ten.checked_pow(u32::from(*precision)).ok_or_else(out_of_range)?;
    let mut checked = Vec::with_capacity(values.size_hint().0);
    for ratio in values {
        let Some(ratio) = ratio else {
            checked.push(None);
            continue;
        };
        let number = divide(ratio, factor).ok_or_else(out_of_range)?;
        if number >= bound || number <= -bound {
            return Err(out_of_range());
        }
        checked.push(Some(number));
    }
    build(checked, output_type, *precision, *output_scale)
}

/// sum * factor / count, rounded half away from zero.
fn divide(ratio: Ratio, factor: i256) -> Option<i256> {
    let numerator = ratio.sum.checked_mul(factor)?;
    if ratio.count == 1 {
        return Some(numerator);
    }
    let count = i256::from_i128(i128::from(ratio.count));
    let quotient = numerator.checked_div(count)?;
    let remainder = numerator.checked_rem(count)?;
    let is_negative = remainder < i256::ZERO;
    let twice = remainder.checked_mul(i256::from_i128(if is_negative { -2 } else { 2 }))?;
    if twice < count {
        Some(quotient)
    } else {
        quotient.checked_add(i256::from_i128(if is_negative { -1 } else { 1 }))
    }
}

fn build(numbers: Vec<Option<i256>>, output_type: &DataType, precision: u8, scale: i8) -> Result<ArrayRef> {
    if let DataType::Decimal128(_, _) = output_type {
        let mut builder = Decimal128Builder::with_capacity(numbers.len());
        for number in numbers {
            builder.append_option(number.map(i256::as_i128));
        }
        return Ok(Arc::new(builder.finish().with_precision_and_scale(precision, scale)?));
    }
    let mut builder = Decimal256Builder::with_capacity(numbers.len());
    for number in numbers {
        builder.append_option(number);
    }
    Ok(Arc::new(builder.finish().with_precision_and_scale(precision, scale)?))
}
