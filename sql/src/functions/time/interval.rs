//! Times and intervals: units, amounts, and times that are moved by them.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::DataType;
use chrono::{Datelike, Months};
use types::{Error, Result};

use super::super::{Call, Types};
use super::{DAY_MICROS, SECOND_MICROS, civil_of, day_of, days_of};
use crate::class::{Class, DATETIME};
use crate::values;

/// The unit of time that an argument says, the same in all rows.
pub(super) fn unit(call: &Call<'_>, index: usize) -> Result<String> {
    let texts = call.text(index)?;
    let unit = texts.iter().flatten().next().unwrap_or("").to_owned();
    Ok(unit.strip_prefix("sql_tsi_").unwrap_or(&unit).trim_end_matches('s').to_owned())
}

/// Microseconds of a unit of fixed length.
fn unit_micros(unit: &str) -> Option<i64> {
    Some(match unit {
        "microsecond" => 1,
        "second" => SECOND_MICROS,
        "minute" => 60 * SECOND_MICROS,
        "hour" => 3600 * SECOND_MICROS,
        "day" => DAY_MICROS,
        "week" => 7 * DAY_MICROS,
        _ => return None,
    })
}

/// Months of a unit of months.
fn unit_months(unit: &str) -> Option<i64> {
    Some(match unit {
        "month" => 1,
        "quarter" => 3,
        "year" => 12,
        _ => return None,
    })
}

pub(super) fn unknown_unit(unit: &str) -> Error {
    crate::parse::unsupported(&format!("INTERVAL unit {}", unit.to_uppercase()))
}

/// Whole months from one time to another.
fn months_between(from: i64, to: i64) -> Option<i64> {
    if from > to {
        return months_between(to, from).map(|months| -months);
    }
    let (a, b) = (civil_of(from)?, civil_of(to)?);
    let months = i64::from(b.year - a.year) * 12 + i64::from(b.month) - i64::from(a.month);
    let rest_a = (a.day, from.rem_euclid(DAY_MICROS));
    let rest_b = (b.day, to.rem_euclid(DAY_MICROS));
    Some(if rest_b < rest_a { months - 1 } else { months })
}

pub(super) fn timestamp_diff(call: &Call<'_>) -> Result<ArrayRef> {
    let unit = unit(call, 0)?;
    let (from, to) = (call.time(1)?, call.time(2)?);
    let pairs = from.iter().zip(to.iter()).map(|(from, to)| from.zip(to));
    if let Some(months) = unit_months(&unit) {
        let value = |(from, to): (i64, i64)| months_between(from, to).map(|between| between / months);
        return Ok(Arc::new(pairs.map(|pair| pair.and_then(value)).collect::<Int64Array>()));
    }
    let micros = unit_micros(&unit).ok_or_else(|| unknown_unit(&unit))?;
    Ok(Arc::new(pairs.map(|pair| pair.map(|(from, to)| (to - from) / micros)).collect::<Int64Array>()))
}

/// A DATE stays one under whole days, months and years; text becomes text.
pub(super) fn shifted_type(types: &Types<'_>, date: usize, unit: usize) -> Result<DataType> {
    let unit = match types.constants.get(unit).and_then(Option::as_ref) {
        Some(datafusion::common::ScalarValue::Utf8(Some(unit))) => unit.clone(),
        _ => String::new(),
    };
    let unit = unit.trim_start_matches("sql_tsi_").trim_end_matches('s').to_owned();
    let whole_days = matches!(unit.as_str(), "day" | "week" | "month" | "quarter" | "year" | "year_month");
    Ok(match types.class(date)? {
        Class::Date if whole_days => DataType::Date32,
        Class::Text | Class::Binary => DataType::Utf8,
        _ => DATETIME,
    })
}

pub(super) fn timestamp_add(call: &Call<'_>) -> Result<ArrayRef> {
    shift(call, 2, 1, 0, 1)
}

pub(super) fn shift(
    call: &Call<'_>,
    date: usize,
    amount: usize,
    unit_at: usize,
    sign: i64,
) -> Result<ArrayRef> {
    let unit = unit(call, unit_at)?;
    let times = call.time(date)?;
    let amounts = Amounts::read(call, amount, &unit)?;
    let value = |row: usize| {
        let micros = (!times.is_null(row)).then(|| times.value(row))?;
        let (months, shift) = amounts.at(row)?;
        let moved = add_months(micros, months.checked_mul(sign)?)?.checked_add(shift.checked_mul(sign)?)?;
        civil_of(moved).map(|_| moved)
    };
    let moved: TimestampMicrosecondArray = (0..call.n_rows).map(value).collect();
    if call.returns == DataType::Utf8 {
        return shifted_texts(call, date, &unit, &moved);
    }
    values::convert(&(Arc::new(moved) as ArrayRef), &call.returns, call.zone)
}

/// Text that was a date stays a date under whole days.
fn shifted_texts(
    call: &Call<'_>,
    date: usize,
    unit: &str,
    moved: &TimestampMicrosecondArray,
) -> Result<ArrayRef> {
    let sources = call.text(date)?;
    let whole_days = unit_months(unit).is_some() || matches!(unit, "day" | "week" | "year_month");
    let array: ArrayRef = Arc::new(moved.clone());
    let texts = values::texts(&array, call.zone)?;
    let value = |row: usize| {
        let text = (!texts.is_null(row)).then(|| texts.value(row))?;
        let only_date = whole_days && !sources.is_null(row) && sources.value(row).trim().len() <= 10;
        Some(if only_date { text.get(..10).unwrap_or(text) } else { text })
    };
    Ok(Arc::new((0..call.n_rows).map(value).collect::<StringArray>()))
}

/// The amounts of an INTERVAL: months, and microseconds.
enum Amounts {
    Months(Int64Array, i64),
    Micros(Int64Array, i64),
    Seconds(Vec<Option<i64>>),
    Parts(Vec<Option<(i64, i64)>>),
}

impl Amounts {
    fn read(call: &Call<'_>, index: usize, unit: &str) -> Result<Amounts> {
        if let Some(months) = unit_months(unit) {
            return Ok(Amounts::Months(call.int(index)?, months));
        }
        if unit == "second" {
            // Fractions of seconds count.
            let numbers = values::exact_numbers(&call.arrays[index], call.zone)?;
            let micros = |number: tidb::Decimal| i64::try_from(number.rescale(6)?.unscaled.to_i128()?).ok();
            return Ok(Amounts::Seconds(numbers.into_iter().map(|number| number.and_then(micros)).collect()));
        }
        if let Some(micros) = unit_micros(unit) {
            return Ok(Amounts::Micros(call.int(index)?, micros));
        }
        let units = composite(unit).ok_or_else(|| unknown_unit(unit))?;
        let texts = call.text(index)?;
        Ok(Amounts::Parts(
            texts.iter().map(|text| text.and_then(|text| composite_amount(text, units))).collect(),
        ))
    }

    fn at(&self, row: usize) -> Option<(i64, i64)> {
        match self {
            Amounts::Months(numbers, months) if !numbers.is_null(row) => {
                Some((numbers.value(row).checked_mul(*months)?, 0))
            }
            Amounts::Micros(numbers, micros) if !numbers.is_null(row) => {
                Some((0, numbers.value(row).checked_mul(*micros)?))
            }
            Amounts::Months(..) | Amounts::Micros(..) => None,
            Amounts::Seconds(micros) => Some((0, micros[row]?)),
            Amounts::Parts(parts) => parts[row],
        }
    }
}

/// Whether a unit, in lower case, has more than one part.
pub(crate) fn is_composite_unit(unit: &str) -> bool {
    composite(unit).is_some()
}

/// The units of `HOUR_MINUTE` and its like.
fn composite(unit: &str) -> Option<&'static [&'static str]> {
    Some(match unit {
        "year_month" => &["year", "month"],
        "day_hour" => &["day", "hour"],
        "day_minute" => &["day", "hour", "minute"],
        "day_second" => &["day", "hour", "minute", "second"],
        "hour_minute" => &["hour", "minute"],
        "hour_second" => &["hour", "minute", "second"],
        "minute_second" => &["minute", "second"],
        "day_microsecond" => &["day", "hour", "minute", "second", "microsecond"],
        "hour_microsecond" => &["hour", "minute", "second", "microsecond"],
        "minute_microsecond" => &["minute", "second", "microsecond"],
        "second_microsecond" => &["second", "microsecond"],
        _ => return None,
    })
}

/// `'1:30'` in the given units; missing ones are the leading ones.
fn composite_amount(text: &str, units: &[&str]) -> Option<(i64, i64)> {
    let text = text.trim();
    let (sign, text) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let numbers = text.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
    let parts: Vec<&str> = numbers.collect();
    let skipped = units.len().checked_sub(parts.len())?;
    let (mut months, mut micros) = (0_i64, 0_i64);
    for (unit, part) in units[skipped..].iter().zip(parts) {
        // Microseconds are the digits behind the point of a second.
        let number = if *unit == "microsecond" {
            format!("{part:0<6}").get(..6)?.parse::<i64>().ok()?
        } else {
            part.parse::<i64>().ok()?
        };
        if let Some(of_unit) = unit_months(unit) {
            months = months.checked_add(number.checked_mul(of_unit)?)?;
        } else {
            micros = micros.checked_add(number.checked_mul(unit_micros(unit)?)?)?;
        }
    }
    Some((months * sign, micros * sign))
}

/// Adds months; the day stays within the month.
fn add_months(micros: i64, months: i64) -> Option<i64> {
    if months == 0 {
        return Some(micros);
    }
    let day = day_of(micros)?;
    let n_months = u32::try_from(months.unsigned_abs()).ok()?;
    let moved = if months > 0 {
        day.checked_add_months(Months::new(n_months))?
    } else {
        day.checked_sub_months(Months::new(n_months))?
    };
    if !(0..=9999).contains(&moved.year()) {
        return None;
    }
    i64::from(days_of(moved)?).checked_mul(DAY_MICROS)?.checked_add(micros.rem_euclid(DAY_MICROS))
}
