//! Functions on dates and times. TIMESTAMPs are read as local times of the session's zone.

use std::fmt::Write as _;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, Int64Array, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, TimestampMicrosecondType};
use chrono::{Datelike, Days, Months, NaiveDate};
use tidb::{CivilTime, Zone};
use types::{Error, Result};

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

/// The unit of time that an argument says, the same in all rows.
fn unit(call: &Call<'_>, index: usize) -> Result<String> {
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

fn unknown_unit(unit: &str) -> Error {
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

fn timestamp_diff(call: &Call<'_>) -> Result<ArrayRef> {
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
fn shifted_type(types: &Types<'_>, date: usize, unit: usize) -> Result<DataType> {
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

fn timestamp_add(call: &Call<'_>) -> Result<ArrayRef> {
    shift(call, 2, 1, 0, 1)
}

fn shift(call: &Call<'_>, date: usize, amount: usize, unit_at: usize, sign: i64) -> Result<ArrayRef> {
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
        _ => return None,
    })
}

/// `'1:30'` in the given units; missing ones are the leading ones.
fn composite_amount(text: &str, units: &[&str]) -> Option<(i64, i64)> {
    let text = text.trim();
    let (sign, text) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let numbers = text.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
    let numbers = numbers.map(|part| part.parse::<i64>().ok()).collect::<Option<Vec<_>>>()?;
    let skipped = units.len().checked_sub(numbers.len())?;
    let (mut months, mut micros) = (0_i64, 0_i64);
    for (unit, number) in units[skipped..].iter().zip(numbers) {
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

fn format_each(call: &Call<'_>, format: &str) -> Result<ArrayRef> {
    let times = call.time(0)?;
    Ok(Arc::new(
        times
            .iter()
            .map(|micros| micros.and_then(|micros| format_one(micros, format)))
            .collect::<StringArray>(),
    ))
}

fn date_format(call: &Call<'_>) -> Result<ArrayRef> {
    let (times, formats) = (call.time(0)?, call.text(1)?);
    let values = times.iter().zip(formats.iter()).map(|(micros, format)| {
        let (micros, format) = micros.zip(format)?;
        format_one(micros, format)
    });
    Ok(Arc::new(values.collect::<StringArray>()))
}

/// One time under a format of MySQL's DATE_FORMAT.
fn format_one(micros: i64, format: &str) -> Option<String> {
    let (time, day) = (civil_of(micros)?, day_of(micros)?);
    let mut text = String::new();
    let mut specifiers = format.chars();
    while let Some(c) = specifiers.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        let Some(specifier) = specifiers.next() else {
            text.push('%');
            break;
        };
        push_specifier(&mut text, specifier, time, day)?;
    }
    Some(text)
}

fn push_specifier(text: &mut String, specifier: char, time: CivilTime, day: NaiveDate) -> Option<()> {
    let hour12 = (time.hour + 11) % 12 + 1;
    let half = if time.hour < 12 { "AM" } else { "PM" };
    match specifier {
        'Y' => write!(text, "{:04}", time.year),
        'y' => write!(text, "{:02}", time.year % 100),
        'm' => write!(text, "{:02}", time.month),
        'c' => write!(text, "{}", time.month),
        'd' => write!(text, "{:02}", time.day),
        'e' => write!(text, "{}", time.day),
        'D' => write!(text, "{}{}", time.day, ordinal_suffix(time.day)),
        'H' => write!(text, "{:02}", time.hour),
        'k' => write!(text, "{}", time.hour),
        'h' | 'I' => write!(text, "{hour12:02}"),
        'l' => write!(text, "{hour12}"),
        'i' => write!(text, "{:02}", time.minute),
        's' | 'S' => write!(text, "{:02}", time.second),
        'f' => write!(text, "{:06}", time.micro),
        'p' => write!(text, "{half}"),
        'T' => write!(text, "{:02}:{:02}:{:02}", time.hour, time.minute, time.second),
        'r' => write!(text, "{hour12:02}:{:02}:{:02} {half}", time.minute, time.second),
        'j' => write!(text, "{:03}", day.ordinal()),
        'w' => write!(text, "{}", day.weekday().num_days_from_sunday()),
        'W' => write!(text, "{}", day.format("%A")),
        'a' => write!(text, "{}", day.format("%a")),
        'M' => write!(text, "{}", day.format("%B")),
        'b' => write!(text, "{}", day.format("%b")),
        'U' => write!(text, "{:02}", week_of(day, 0)),
        'u' => write!(text, "{:02}", week_of(day, 1)),
        'V' => write!(text, "{:02}", week_of(day, 2)),
        'v' => write!(text, "{:02}", week_of(day, 3)),
        'x' => write!(text, "{:04}", day.iso_week().year()),
        other => {
            text.push(other);
            Ok(())
        }
    }
    .ok()
}

fn ordinal_suffix(day: u32) -> &'static str {
    match (day % 10, day / 10) {
        (_, 1) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    }
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
    let number = |micros: i64| arrow::datatypes::i256::from_i128(i128::from(micros.max(0)));
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
