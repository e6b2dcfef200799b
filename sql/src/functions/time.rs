//! Functions on dates and times. TIMESTAMPs are read as local times of the session's zone.

mod format;
mod interval;

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, Int64Array, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, TimestampMicrosecondType};
use chrono::{Datelike, Days, Months, NaiveDate};
use tidb::{CivilTime, Zone};
use types::{Error, Result};

pub(super) use format::TIME_TEXT;
use format::{date_format, format_each, format_one, time_text};
pub(crate) use interval::is_composite_unit;
use interval::{shift, shifted_type, timestamp_add, timestamp_diff, unit, unknown_unit};

use super::{Call, Entry, Types};
use crate::class::{Class, DATETIME, timestamp};
use crate::values;

const DAY_MICROS: i64 = 86_400_000_000;
const SECOND_MICROS: i64 = 1_000_000;

const fn part(name: &'static str, eval: fn(&Call<'_>) -> Result<ArrayRef>) -> Entry {
    Entry { name, arity: (1, 1), returns: |_| Ok(DataType::Int64), eval, strict: false }
}

const fn other(
    name: &'static str,
    arity: (usize, usize),
    returns: fn(&Types<'_>) -> Result<DataType>,
    eval: fn(&Call<'_>) -> Result<ArrayRef>,
) -> Entry {
    Entry { name, arity, returns, eval, strict: false }
}

fn int(_: &Types<'_>) -> Result<DataType> {
    Ok(DataType::Int64)
}

fn date(_: &Types<'_>) -> Result<DataType> {
    Ok(DataType::Date32)
}

fn datetime(_: &Types<'_>) -> Result<DataType> {
    Ok(DATETIME)
}

fn text(_: &Types<'_>) -> Result<DataType> {
    Ok(DataType::Utf8)
}

pub(super) static ENTRIES: &[Entry] = &[
    other("$now", (0, 0), datetime, |call| now(call, call.zone)),
    other("$utc_now", (0, 0), datetime, |call| now(call, &Zone::UTC)),
    other("$today", (0, 0), date, |call| today(call, call.zone)),
    other("$utc_today", (0, 0), date, |call| today(call, &Zone::UTC)),
    other("$date_literal", (1, 1), date, |call| literal(call, "DATE")),
    other("$datetime_literal", (1, 1), datetime, |call| literal(call, "DATETIME")),
    part("year", |call| civil(call, |time| i64::from(time.year))),
    part("month", |call| civil(call, |time| i64::from(time.month))),
    part("dayofmonth", |call| civil(call, |time| i64::from(time.day))),
    part("hour", |call| civil(call, |time| i64::from(time.hour))),
    part("minute", |call| civil(call, |time| i64::from(time.minute))),
    part("second", |call| civil(call, |time| i64::from(time.second))),
    part("microsecond", |call| civil(call, |time| i64::from(time.micro))),
    part("quarter", |call| civil(call, |time| i64::from(time.month.div_ceil(3)))),
    part("weekday", |call| day_part(call, |day| i64::from(day.weekday().num_days_from_monday()))),
    part("dayofweek", |call| day_part(call, |day| i64::from(day.weekday().number_from_sunday()))),
    part("dayofyear", |call| day_part(call, |day| i64::from(day.ordinal()))),
    part("to_days", |call| day_part(call, |day| i64::from(day.num_days_from_ce()) + 365)),
    other("week", (1, 2), int, week),
    other("weekofyear", (1, 1), int, |call| day_part(call, |day| i64::from(day.iso_week().week()))),
    other("dayname", (1, 1), text, |call| format_each(call, "%W")),
    other("monthname", (1, 1), text, |call| format_each(call, "%M")),
    other("date", (1, 1), date, |call| values::dates(&local(call, 0)?, call.zone)),
    other("last_day", (1, 1), date, last_day),
    other("from_days", (1, 1), date, from_days),
    other("makedate", (2, 2), date, make_date),
    other("datediff", (2, 2), int, date_diff),
    other("timestampdiff", (3, 3), int, timestamp_diff),
    other("timestampadd", (3, 3), |types| shifted_type(types, 2, 0), timestamp_add),
    other("$date_add", (3, 3), |types| shifted_type(types, 0, 2), |call| shift(call, 0, 1, 2, 1)),
    other("$date_sub", (3, 3), |types| shifted_type(types, 0, 2), |call| shift(call, 0, 1, 2, -1)),
    other("$extract", (2, 2), int, extract),
    other("date_format", (2, 2), text, date_format),
    other(TIME_TEXT, (1, 1), text, time_text),
    other("unix_timestamp", (1, 1), unix_type, unix_timestamp),
    other(
        "from_unixtime",
        (1, 2),
        |types| if types.types.len() == 1 { datetime(types) } else { text(types) },
        from_unixtime,
    ),
];

/// Whether a function's value depends on the statement's time.
pub(super) fn is_now(name: &str) -> bool {
    matches!(name, "$now" | "$utc_now" | "$today" | "$utc_today")
}

fn now(call: &Call<'_>, zone: &Zone) -> Result<ArrayRef> {
    let fsp: u32 = call.name.rsplit('_').next().and_then(|fsp| fsp.parse().ok()).unwrap_or(0);
    let local =
        zone.to_local(call.now_micros).ok_or_else(|| Error::invalid("the time is beyond the calendar"))?;
    let unit = 10_i64.pow(6 - fsp.min(6));
    let local = local.div_euclid(unit) * unit;
    Ok(Arc::new(TimestampMicrosecondArray::from(vec![local; call.n_rows])))
}

fn today(call: &Call<'_>, zone: &Zone) -> Result<ArrayRef> {
    let local =
        zone.to_local(call.now_micros).ok_or_else(|| Error::invalid("the time is beyond the calendar"))?;
    let day = i32::try_from(local.div_euclid(DAY_MICROS))
        .map_err(|_| Error::invalid("the time is beyond the calendar"))?;
    Ok(Arc::new(Date32Array::from(vec![day; call.n_rows])))
}

fn literal(call: &Call<'_>, name: &str) -> Result<ArrayRef> {
    let texts = call.text(0)?;
    let value = |content: Option<&str>| match content {
        None => Ok(None),
        Some(content) => match values::local_time(content, call.zone) {
            Some(micros) => Ok(Some(micros)),
            None => Err(Error::mysql(1525, format!("incorrect {name} value: '{content}'"))),
        },
    };
    let times = texts.iter().map(value).collect::<Result<TimestampMicrosecondArray>>()?;
    values::convert(&(Arc::new(times) as ArrayRef), &call.returns, call.zone)
}

fn local(call: &Call<'_>, index: usize) -> Result<ArrayRef> {
    Ok(Arc::new(call.time(index)?))
}

fn civil_of(micros: i64) -> Option<CivilTime> {
    CivilTime::from_micros(micros).ok()
}

fn day_of(micros: i64) -> Option<NaiveDate> {
    let time = civil_of(micros)?;
    NaiveDate::from_ymd_opt(time.year, time.month, time.day)
}

fn civil(call: &Call<'_>, op: impl Fn(CivilTime) -> i64) -> Result<ArrayRef> {
    let times = call.time(0)?;
    Ok(Arc::new(times.iter().map(|micros| micros.and_then(civil_of).map(&op)).collect::<Int64Array>()))
}

fn day_part(call: &Call<'_>, op: impl Fn(NaiveDate) -> i64) -> Result<ArrayRef> {
    let times = call.time(0)?;
    Ok(Arc::new(times.iter().map(|micros| micros.and_then(day_of).map(&op)).collect::<Int64Array>()))
}

/// Days since 1970 of a date.
fn days_of(day: NaiveDate) -> Option<i32> {
    let epoch = NaiveDate::from_ymd_opt(1970, 1, 1)?;
    i32::try_from(day.signed_duration_since(epoch).num_days()).ok()
}

fn last_day(call: &Call<'_>) -> Result<ArrayRef> {
    let times = call.time(0)?;
    let last = |micros: i64| {
        let first = day_of(micros)?.with_day(1)?;
        days_of(first.checked_add_months(Months::new(1))?.pred_opt()?)
    };
    Ok(Arc::new(times.iter().map(|micros| micros.and_then(last)).collect::<Date32Array>()))
}

fn from_days(call: &Call<'_>) -> Result<ArrayRef> {
    let day = |number: i64| {
        let number = i32::try_from(number.checked_sub(365)?).ok()?;
        days_of(NaiveDate::from_num_days_from_ce_opt(number)?).filter(|_| number > 0)
    };
    Ok(Arc::new(call.int(0)?.iter().map(|number| number.and_then(day)).collect::<Date32Array>()))
}

fn make_date(call: &Call<'_>) -> Result<ArrayRef> {
    let (years, days) = (call.int(0)?, call.int(1)?);
    let make = |(year, day): (i64, i64)| {
        let year = if (0..70).contains(&year) {
            year + 2000
        } else if (70..100).contains(&year) {
            year + 1900
        } else {
            year
        };
        let first = NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, 1, 1)?;
        let day = first.checked_add_days(Days::new(u64::try_from(day.checked_sub(1)?).ok()?))?;
        days_of(day).filter(|_| (0..=9999).contains(&day.year()))
    };
    let values = years.iter().zip(days.iter()).map(|(year, day)| year.zip(day).and_then(make));
    Ok(Arc::new(values.collect::<Date32Array>()))
}

fn date_diff(call: &Call<'_>) -> Result<ArrayRef> {
    let (a, b) = (call.time(0)?, call.time(1)?);
    let day = |micros: i64| micros.div_euclid(DAY_MICROS);
    let values = a.iter().zip(b.iter()).map(|(a, b)| a.zip(b).map(|(a, b)| day(a) - day(b)));
    Ok(Arc::new(values.collect::<Int64Array>()))
}

fn extract(call: &Call<'_>) -> Result<ArrayRef> {
    let unit = unit(call, 0)?;
    let times = call.time(1)?;
    let op: fn(CivilTime) -> i64 = match unit.as_str() {
        "year" => |time| i64::from(time.year),
        "quarter" => |time| i64::from(time.month.div_ceil(3)),
        "month" => |time| i64::from(time.month),
        "day" => |time| i64::from(time.day),
        "hour" => |time| i64::from(time.hour),
        "minute" => |time| i64::from(time.minute),
        "second" => |time| i64::from(time.second),
        "microsecond" => |time| i64::from(time.micro),
        "year_month" => |time| i64::from(time.year) * 100 + i64::from(time.month),
        "hour_minute" => |time| i64::from(time.hour) * 100 + i64::from(time.minute),
        "minute_second" => |time| i64::from(time.minute) * 100 + i64::from(time.second),
        _ => return Err(unknown_unit(&unit)),
    };
    Ok(Arc::new(times.iter().map(|micros| micros.and_then(civil_of).map(op)).collect::<Int64Array>()))
}

fn week(call: &Call<'_>) -> Result<ArrayRef> {
    let times = call.time(0)?;
    let modes = if call.arrays.len() == 2 { Some(call.int(1)?) } else { None };
    let value = |row: usize| {
        let day = (!times.is_null(row)).then(|| times.value(row)).and_then(day_of)?;
        let mode = match &modes {
            None => 0,
            Some(modes) if modes.is_null(row) => return None,
            Some(modes) => modes.value(row),
        };
        Some(week_of(day, mode))
    };
    Ok(Arc::new((0..call.n_rows).map(value).collect::<Int64Array>()))
}

/// MySQL's WEEK(date, mode).
fn week_of(day: NaiveDate, mode: i64) -> i64 {
    let mode = mode & 7;
    let monday_first = mode & 1 == 1;
    let with_last_year = mode & 2 == 2;
    // Modes 0, 2, 5, 7: week 1 is the first with the starting weekday; others: with four days or more.
    let four_days = matches!(mode, 1 | 3 | 4 | 6);
    let weekday = |day: NaiveDate| {
        i64::from(if monday_first {
            day.weekday().num_days_from_monday()
        } else {
            day.weekday().num_days_from_sunday()
        })
    };
    let first_of = |year: i32| NaiveDate::from_ymd_opt(year, 1, 1).unwrap_or(day);
    // The day of the year (from 0) on which week 1 begins.
    let week_one = |year: i32| {
        let start = weekday(first_of(year));
        let starts_here = if four_days { start <= 3 } else { start == 0 };
        if starts_here { -start } else { 7 - start }
    };
    let ordinal = i64::from(day.ordinal0());
    let begin = week_one(day.year());
    if ordinal >= begin {
        let week = (ordinal - begin) / 7 + 1;
        let days_in_year = i64::from(if first_of(day.year()).leap_year() { 366_i32 } else { 365 });
        let next = days_in_year + week_one(day.year() + 1);
        return if with_last_year && ordinal >= next { 1 } else { week };
    }
    if !with_last_year {
        return 0;
    }
    let days_before = i64::from(if first_of(day.year() - 1).leap_year() { 366_i32 } else { 365 });
    (ordinal + days_before - week_one(day.year() - 1)) / 7 + 1
}

fn unix_type(types: &Types<'_>) -> Result<DataType> {
    let whole = matches!(types.class(0)?, Class::Date);
    Ok(if whole { DataType::Int64 } else { crate::class::decimal(20, 6) })
}

fn unix_timestamp(call: &Call<'_>) -> Result<ArrayRef> {
    let instants = if *call.arrays[0].data_type() == DataType::Null {
        arrow::array::new_null_array(&timestamp(), call.n_rows)
    } else {
        values::instants(&call.arrays[0], call.zone)?
    };
    let micros = instants.as_primitive::<TimestampMicrosecondType>();
    if call.returns == DataType::Int64 {
        let seconds =
            micros.iter().map(|micros| micros.map(|micros| micros.div_euclid(SECOND_MICROS).max(0)));
        return Ok(Arc::new(seconds.collect::<Int64Array>()));
    }
    let scale = Class::of(&call.returns).map_or(6, |class| match class {
        Class::Decimal(_, scale) => u32::from(scale.min(6)),
        _ => 6,
    });
    let unit = 10_i64.pow(6 - scale);
    let number = |micros: i64| arrow::datatypes::i256::from_i128(i128::from(micros.max(0) / unit));
    values::decimal_array(micros.iter().map(|micros| micros.map(number)).collect(), &call.returns)
}

fn from_unixtime(call: &Call<'_>) -> Result<ArrayRef> {
    let numbers = values::exact_numbers(&call.arrays[0], call.zone)?;
    let time = |number: tidb::Decimal| {
        let micros =
            i64::try_from(number.rescale(6)?.unscaled.to_i128()?).ok().filter(|micros| *micros >= 0)?;
        call.zone.to_local(micros)
    };
    let times: TimestampMicrosecondArray = numbers.into_iter().map(|number| number.and_then(time)).collect();
    if call.arrays.len() == 1 {
        return Ok(Arc::new(times));
    }
    let formats = call.text(1)?;
    let values = times.iter().zip(formats.iter()).map(|(micros, format)| {
        let (micros, format) = micros.zip(format)?;
        format_one(micros, format)
    });
    Ok(Arc::new(values.collect::<StringArray>()))
}
