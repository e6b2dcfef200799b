//! Values of any type as another, the way MySQL's expressions convert them: never an error for text that
//! is not a number (its beginning counts, else 0), NULL for text that is no time.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Decimal256Array, Float64Array,
    StringArray, TimestampMicrosecondArray, new_null_array,
};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int64Type,
    TimestampMicrosecondType, UInt64Type, i256,
};
use tidb::{
    CivilTime, Decimal, Parsed, Zone, format_date, format_double, format_float, format_time, parse_time,
};
use types::{Error, Result};

use crate::class::{Class, DATETIME, timestamp};

const DAY_MICROS: i64 = 86_400_000_000;

/// The class of an array's values.
pub(crate) fn class_of(array: &ArrayRef) -> Result<Class> {
    let class = Class::of(array.data_type());
    class.ok_or_else(|| Error::invalid(format!("values of type {} have no SQL type", array.data_type())))
}

/// Converts to one of the types that expressions work in.
pub(crate) fn convert(array: &ArrayRef, target: &DataType, zone: &Zone) -> Result<ArrayRef> {
    if array.data_type() == target {
        return Ok(Arc::clone(array));
    }
    if *array.data_type() == DataType::Null {
        return Ok(new_null_array(target, array.len()));
    }
    let (from, to) = (class_of(array)?, Class::of(target));
    match to {
        Some(Class::Double) if *target == DataType::Float32 => {
            // What is too small for a FLOAT keeps its sign.
            Ok(Arc::new(doubles(array, zone)?.unary::<_, Float32Type>(|number| number as f32 + 0.0)))
        }
        Some(Class::Double) => Ok(cast(&(Arc::new(doubles(array, zone)?) as ArrayRef), target)?),
        Some(Class::Text) => Ok(Arc::new(texts(array, zone)?)),
        Some(Class::Binary) => Ok(Arc::new(bytes(array, zone)?)),
        Some(Class::Decimal(..)) => decimals(array, target, zone),
        Some(Class::Int | Class::UInt) if from.is_exact() && !matches!(from, Class::Decimal(..)) => {
            checked_cast(array, target)
        }
        Some(Class::Int | Class::UInt) => integers(array, target, zone),
        Some(Class::Date) => dates(array, zone),
        Some(Class::Datetime) => Ok(Arc::new(datetimes(array, zone)?)),
        Some(Class::Timestamp) => instants(array, zone),
        Some(Class::Bool) => Ok(Arc::new(truths(array, zone)?)),
        _ => Err(Error::invalid(format!("no conversion from {} to {target}", array.data_type()))),
    }
}

/// A cast that fails where a value does not fit.
fn checked_cast(array: &ArrayRef, target: &DataType) -> Result<ArrayRef> {
    let options = arrow::compute::CastOptions { safe: false, ..arrow::compute::CastOptions::default() };
    arrow::compute::cast_with_options(array, target, &options)
        .map_err(|_| Error::mysql(1690, format!("value is out of range for {target}")))
}

/// The number that a text begins with; 0 if it begins with none.
pub(crate) fn number_at_start(text: &str) -> f64 {
    unsigned_zero(number_prefix(text).parse().unwrap_or(0.0))
}

/// The same number, but never minus zero: the engine compares floating numbers by their bits.
pub(crate) fn unsigned_zero(number: f64) -> f64 {
    number + 0.0
}

/// The part of a text that is a number.
pub(crate) fn number_prefix(text: &str) -> &str {
    let text = text.trim_start();
    let bytes = text.as_bytes();
    let digits = |mut at: usize| {
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        at
    };
    let start = usize::from(matches!(bytes.first(), Some(b'+' | b'-')));
    let whole = digits(start);
    let mut end = whole;
    let mut n_digits = whole - start;
    if bytes.get(end) == Some(&b'.') {
        let fraction = digits(end + 1);
        n_digits += fraction - end - 1;
        end = fraction;
    }
    if n_digits == 0 {
        return "0";
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = end + 1 + usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits(sign);
        if exponent > sign {
            end = exponent;
        }
    }
    &text[..end]
}

/// Times as numbers, `YYYYMMDD` or `YYYYMMDDhhmmss.ffffff`.
fn time_number(micros: i64, with_time: bool) -> f64 {
    let Ok(civil) = CivilTime::from_micros(micros) else { return 0.0 };
    let date = f64::from(civil.year) * 10_000.0 + f64::from(civil.month * 100 + civil.day);
    if !with_time {
        return date;
    }
    let time = f64::from(civil.hour * 10_000 + civil.minute * 100 + civil.second);
    date * 1_000_000.0 + time + f64::from(civil.micro) / 1_000_000.0
}

/// Any values as doubles.
pub(crate) fn doubles(array: &ArrayRef, zone: &Zone) -> Result<Float64Array> {
    let class = class_of(array)?;
    Ok(match class {
        Class::Text => {
            let array = as_utf8(array)?;
            array.as_string::<i32>().iter().map(|text| text.map(number_at_start)).collect()
        }
        Class::Binary => {
            let array = as_binary(array)?;
            let number = |bytes: &[u8]| number_at_start(&String::from_utf8_lossy(bytes));
            array.as_binary::<i32>().iter().map(|bytes| bytes.map(number)).collect()
        }
        Class::Date => {
            let days = array.as_primitive::<Date32Type>();
            days.unary(|days| time_number(i64::from(days) * DAY_MICROS, false))
        }
        Class::Datetime | Class::Timestamp => {
            datetimes(array, zone)?.unary(|micros| time_number(micros, true))
        }
        Class::Decimal(_, scale) => {
            // By text: the nearest double, as MySQL's.
            let scale = usize::from(scale);
            decimal_texts(array, scale)?.iter().map(|text| text.as_deref().map(number_at_start)).collect()
        }
        _ => cast(array, &DataType::Float64)?.as_primitive::<Float64Type>().clone(),
    })
}

fn decimal_texts(array: &ArrayRef, _scale: usize) -> Result<Vec<Option<String>>> {
    let wide = as_decimal256(array)?;
    let wide = wide.as_primitive::<Decimal256Type>();
    let scale = u8::try_from(wide.scale()).unwrap_or(0);
    Ok(wide.iter().map(|value| value.map(|unscaled| Decimal { unscaled, scale }.to_string())).collect())
}

/// A decimal array with 256-bit values of the same precision and scale.
pub(crate) fn as_decimal256(array: &ArrayRef) -> Result<ArrayRef> {
    match array.data_type() {
        DataType::Decimal256(..) => Ok(Arc::clone(array)),
        DataType::Decimal128(precision, scale) => {
            let values = array.as_primitive::<Decimal128Type>();
            let wide: Decimal256Array = values.unary(i256::from_i128);
            Ok(Arc::new(wide.with_precision_and_scale(*precision, *scale)?))
        }
        other => Err(Error::invalid(format!("{other} is not a decimal"))),
    }
}

/// Any values as decimals of a type; 1690 where one does not fit.
pub(crate) fn decimals(array: &ArrayRef, target: &DataType, zone: &Zone) -> Result<ArrayRef> {
    let Some(Class::Decimal(precision, scale)) = Class::of(target) else {
        return Err(Error::invalid(format!("{target} is not a decimal")));
    };
    let out_of_range =
        || Error::mysql(1690, format!("DECIMAL value is out of range in '({precision},{scale})'"));
    let fit = |number: Decimal| {
        let number = number.rescale(scale).filter(|number| number.fits(precision));
        number.map(|number| number.unscaled).ok_or_else(out_of_range)
    };
    let numbers = exact_numbers(array, zone)?;
    let values = numbers.into_iter().map(|number| number.map(fit).transpose()).collect::<Result<Vec<_>>>()?;
    decimal_array(values, target)
}

/// Builds a decimal array of a type.
pub(crate) fn decimal_array(values: Vec<Option<i256>>, target: &DataType) -> Result<ArrayRef> {
    match target {
        DataType::Decimal128(precision, scale) => {
            let narrow: arrow::array::Decimal128Array =
                values.into_iter().map(|value| value.and_then(i256::to_i128)).collect();
            Ok(Arc::new(narrow.with_precision_and_scale(*precision, *scale)?))
        }
        DataType::Decimal256(precision, scale) => {
            let wide: Decimal256Array = values.into_iter().collect();
            Ok(Arc::new(wide.with_precision_and_scale(*precision, *scale)?))
        }
        other => Err(Error::invalid(format!("{other} is not a decimal"))),
    }
}

/// Any values as exact decimals.
pub(crate) fn exact_numbers(array: &ArrayRef, zone: &Zone) -> Result<Vec<Option<Decimal>>> {
    let whole = |unscaled: i256| Decimal { unscaled, scale: 0 };
    Ok(match class_of(array)? {
        Class::Null => vec![None; array.len()],
        Class::Decimal(..) => {
            let wide = as_decimal256(array)?;
            let wide = wide.as_primitive::<Decimal256Type>();
            let scale = u8::try_from(wide.scale()).unwrap_or(0);
            wide.iter().map(|value| value.map(|unscaled| Decimal { unscaled, scale })).collect()
        }
        Class::Bool | Class::Int => {
            let wide = cast(array, &DataType::Int64)?;
            let number = |value: i64| whole(i256::from_i128(i128::from(value)));
            wide.as_primitive::<Int64Type>().iter().map(|value| value.map(number)).collect()
        }
        Class::UInt => {
            let wide = cast(array, &DataType::UInt64)?;
            let number = |value: u64| whole(i256::from_i128(i128::from(value)));
            wide.as_primitive::<UInt64Type>().iter().map(|value| value.map(number)).collect()
        }
        Class::Text => {
            let array = as_utf8(array)?;
            array
                .as_string::<i32>()
                .iter()
                .map(|text| text.map(decimal_at_start).transpose())
                .collect::<Result<_>>()?
        }
        _ => {
            let doubles = doubles(array, zone)?;
            let number = |value: f64| decimal_at_start(&plain_double(value));
            doubles.iter().map(|value| value.map(number).transpose()).collect::<Result<_>>()?
        }
    })
}

fn plain_double(value: f64) -> String {
    format!("{value}")
}

/// The decimal that a text begins with.
fn decimal_at_start(text: &str) -> Result<Decimal> {
    let prefix = number_prefix(text);
    if let Ok(number) = prefix.parse::<Decimal>() {
        return Ok(number);
    }
    let spelled = plain_double(prefix.parse::<f64>().unwrap_or(0.0));
    spelled.parse().map_err(|_| Error::mysql(1690, format!("DECIMAL value is out of range in '{prefix}'")))
}

/// Any values as integers of a type, halves of exact numbers rounded away from zero; 1690 where one does not fit.
pub(crate) fn integers(array: &ArrayRef, target: &DataType, zone: &Zone) -> Result<ArrayRef> {
    if class_of(array)? == Class::Text {
        return text_integers(array, target);
    }
    let numbers = match class_of(array)? {
        // Halves of floating numbers go to the even neighbour.
        Class::Double => {
            let whole: ArrayRef =
                Arc::new(doubles(array, zone)?.unary::<_, Float64Type>(f64::round_ties_even));
            exact_numbers(&whole, zone)?
        }
        _ => exact_numbers(array, zone)?,
    };
    let wide: Vec<Option<i128>> = numbers
        .into_iter()
        .map(|number| number.map(|number| number.rescale(0).and_then(|number| number.unscaled.to_i128())))
        .map(|number| match number {
            None => Ok(None),
            Some(Some(number)) => Ok(Some(number)),
            Some(None) => Err(out_of_range(target)),
        })
        .collect::<Result<_>>()?;
    integer_array(wide, target)
}

/// Text as integers: only the digits at the beginning count, and too big ones stay at the limit.
fn text_integers(array: &ArrayRef, target: &DataType) -> Result<ArrayRef> {
    let array = as_utf8(array)?;
    let number = |text: &str| {
        let prefix = number_prefix(text);
        let digits = prefix.split(['.', 'e', 'E']).next().unwrap_or("0");
        digits.trim_start_matches('+').parse::<i128>().unwrap_or(0)
    };
    let clamp = |number: i128| match target {
        DataType::UInt64 if number < 0 => number.max(i128::from(i64::MIN)) & i128::from(u64::MAX),
        DataType::UInt64 => number.min(i128::from(u64::MAX)),
        _ => number.clamp(i128::from(i64::MIN), i128::from(i64::MAX)),
    };
    let wide = array.as_string::<i32>().iter().map(|text| text.map(|text| clamp(number(text)))).collect();
    integer_array(wide, target)
}

fn out_of_range(target: &DataType) -> Error {
    let name = if matches!(target, DataType::UInt64) { "BIGINT UNSIGNED" } else { "BIGINT" };
    Error::mysql(1690, format!("{name} value is out of range"))
}

/// Builds an array of 64-bit integers (or narrower, by a checked cast).
pub(crate) fn integer_array(values: Vec<Option<i128>>, target: &DataType) -> Result<ArrayRef> {
    let fail = || out_of_range(target);
    if Class::of(target) == Some(Class::UInt) {
        let narrow = |value: i128| u64::try_from(value).map_err(|_| fail());
        let values: Vec<Option<u64>> =
            values.into_iter().map(|value| value.map(narrow).transpose()).collect::<Result<_>>()?;
        return checked_cast(&(Arc::new(arrow::array::UInt64Array::from(values)) as ArrayRef), target);
    }
    let narrow = |value: i128| i64::try_from(value).map_err(|_| fail());
    let values: Vec<Option<i64>> =
        values.into_iter().map(|value| value.map(narrow).transpose()).collect::<Result<_>>()?;
    checked_cast(&(Arc::new(arrow::array::Int64Array::from(values)) as ArrayRef), target)
}

/// Whatever kind of string array as plain UTF-8.
pub(crate) fn as_utf8(array: &ArrayRef) -> Result<ArrayRef> {
    if *array.data_type() == DataType::Utf8 {
        Ok(Arc::clone(array))
    } else {
        Ok(cast(array, &DataType::Utf8)?)
    }
}

fn as_binary(array: &ArrayRef) -> Result<ArrayRef> {
    if *array.data_type() == DataType::Binary {
        Ok(Arc::clone(array))
    } else {
        Ok(cast(array, &DataType::Binary)?)
    }
}

/// Any values as MySQL writes them.
pub(crate) fn texts(array: &ArrayRef, zone: &Zone) -> Result<StringArray> {
    Ok(match class_of(array)? {
        Class::Text => as_utf8(array)?.as_string::<i32>().clone(),
        Class::Binary => {
            let array = as_binary(array)?;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            array.as_binary::<i32>().iter().map(|bytes| bytes.map(text)).collect()
        }
        Class::Decimal(_, scale) => decimal_texts(array, usize::from(scale))?.into_iter().collect(),
        Class::Double if *array.data_type() == DataType::Float32 => {
            array.as_primitive::<Float32Type>().iter().map(|value| value.map(format_float)).collect()
        }
        Class::Double => {
            array.as_primitive::<Float64Type>().iter().map(|value| value.map(format_double)).collect()
        }
        Class::Date => {
            let days = array.as_primitive::<Date32Type>();
            let text = |days: i32| CivilTime::from_days(i64::from(days)).map(format_date);
            days.iter().map(|days| days.map(text).transpose()).collect::<Result<_>>()?
        }
        Class::Datetime | Class::Timestamp => {
            let text = |micros: i64| {
                let fsp = if micros % 1_000_000 == 0 { 0 } else { 6 };
                CivilTime::from_micros(micros).map(|civil| format_time(civil, fsp))
            };
            datetimes(array, zone)?
                .iter()
                .map(|micros| micros.map(text).transpose())
                .collect::<Result<_>>()?
        }
        Class::Bool => cast(&cast(array, &DataType::Int64)?, &DataType::Utf8)?.as_string::<i32>().clone(),
        _ => cast(array, &DataType::Utf8)?.as_string::<i32>().clone(),
    })
}

/// Any values as bytes: those of the text, but binary strings as they are.
pub(crate) fn bytes(array: &ArrayRef, zone: &Zone) -> Result<BinaryArray> {
    if class_of(array)? == Class::Binary {
        return Ok(as_binary(array)?.as_binary::<i32>().clone());
    }
    let texts = texts(array, zone)?;
    Ok(texts.iter().map(|text| text.map(str::as_bytes)).collect())
}

/// A text as a local time; NULL if it says none.
pub(crate) fn local_time(text: &str, zone: &Zone) -> Option<i64> {
    match parse_time(text)? {
        Parsed::Local(micros) => Some(micros),
        Parsed::Instant(micros) => zone.to_local(micros),
    }
}

/// An integer `[YY]YYMMDD[hhmmss]` as a local time; leading zeros may be missing.
pub(crate) fn time_of_integer(number: i64) -> Option<i64> {
    // As MySQL's number_to_datetime; years of two digits are 1970 to 2069.
    let full = match number {
        101..=691_231 => (number + 20_000_000) * 1_000_000,
        700_101..=991_231 => (number + 19_000_000) * 1_000_000,
        10_000_101..=99_991_231 => number * 1_000_000,
        101_000_000..=691_231_235_959 => number + 20_000_000_000_000,
        700_101_000_000..=991_231_235_959 => number + 19_000_000_000_000,
        10_000_101_000_000..=99_991_231_235_959 => number,
        _ => return None,
    };
    match parse_time(&format!("{full:014}"))? {
        Parsed::Local(micros) => Some(micros),
        Parsed::Instant(_) => None,
    }
}

/// A number `[YY]YYMMDD[hhmmss[.ffffff]]` as a local time.
fn time_of_number(number: Decimal) -> Option<i64> {
    let unit = i256::from_i128(10).checked_pow(u32::from(number.scale))?;
    let whole = number.unscaled.checked_div(unit)?;
    let micros = time_of_integer(i64::try_from(whole.to_i128()?).ok()?)?;
    let rest = Decimal { unscaled: number.unscaled.checked_rem(unit)?, scale: number.scale };
    micros.checked_add(i64::try_from(rest.rescale(6)?.unscaled.to_i128()?).ok()?)
}

/// Any values as local times.
pub(crate) fn datetimes(array: &ArrayRef, zone: &Zone) -> Result<TimestampMicrosecondArray> {
    Ok(match class_of(array)? {
        Class::Datetime => cast(array, &DATETIME)?.as_primitive::<TimestampMicrosecondType>().clone(),
        Class::Timestamp => {
            let instants = cast(array, &timestamp())?;
            let instants = instants.as_primitive::<TimestampMicrosecondType>();
            instants.iter().map(|micros| micros.and_then(|micros| zone.to_local(micros))).collect()
        }
        Class::Date => {
            let days = array.as_primitive::<Date32Type>();
            days.unary(|days| i64::from(days) * DAY_MICROS)
        }
        Class::Text => {
            let array = as_utf8(array)?;
            array.as_string::<i32>().iter().map(|text| text.and_then(|text| local_time(text, zone))).collect()
        }
        Class::Binary => {
            let time = |bytes: &[u8]| local_time(std::str::from_utf8(bytes).ok()?, zone);
            as_binary(array)?.as_binary::<i32>().iter().map(|bytes| bytes.and_then(time)).collect()
        }
        _ => {
            let numbers = exact_numbers(array, zone)?;
            numbers.into_iter().map(|number| number.and_then(time_of_number)).collect()
        }
    })
}

/// Any values as instants: local times are read in the zone.
pub(crate) fn instants(array: &ArrayRef, zone: &Zone) -> Result<ArrayRef> {
    if class_of(array)? == Class::Timestamp {
        return Ok(cast(array, &timestamp())?);
    }
    let local = datetimes(array, zone)?;
    let instants: TimestampMicrosecondArray =
        local.iter().map(|micros| micros.and_then(|micros| zone.to_instant(micros))).collect();
    Ok(Arc::new(instants.with_timezone("UTC")))
}

/// Any values as dates.
pub(crate) fn dates(array: &ArrayRef, zone: &Zone) -> Result<ArrayRef> {
    let local = datetimes(array, zone)?;
    let day = |micros: i64| i32::try_from(micros.div_euclid(DAY_MICROS)).ok();
    let dates: Date32Array = local.iter().map(|micros| micros.and_then(day)).collect();
    Ok(Arc::new(dates))
}

/// Whether values are true: not zero.
pub(crate) fn truths(array: &ArrayRef, zone: &Zone) -> Result<BooleanArray> {
    if *array.data_type() == DataType::Boolean {
        return Ok(array.as_boolean().clone());
    }
    if *array.data_type() == DataType::Null {
        return Ok(BooleanArray::new_null(array.len()));
    }
    let doubles = doubles(array, zone)?;
    Ok(doubles.iter().map(|value| value.map(|value| value != 0.0)).collect())
}
