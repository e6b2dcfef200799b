//! Times as text: DATE_FORMAT and what is written like it.

use std::fmt::Write as _;
use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use chrono::{Datelike, NaiveDate};
use tidb::{CivilTime, format_time};
use types::Result;

use super::super::Call;
use super::{civil_of, day_of, week_of};

/// The name of the function that writes a time with a fixed number of digits behind the second.
pub(in crate::functions) const TIME_TEXT: &str = "$time_text";

/// A time with the digits that its type has; they stand in the function's name.
pub(super) fn time_text(call: &Call<'_>) -> Result<ArrayRef> {
    let fsp: u8 = call.name.rsplit('_').next().and_then(|fsp| fsp.parse().ok()).unwrap_or(6);
    let text = |micros: i64| civil_of(micros).map(|civil| format_time(civil, fsp));
    Ok(Arc::new(call.time(0)?.iter().map(|micros| micros.and_then(text)).collect::<StringArray>()))
}

pub(super) fn format_each(call: &Call<'_>, format: &str) -> Result<ArrayRef> {
    let times = call.time(0)?;
    Ok(Arc::new(
        times
            .iter()
            .map(|micros| micros.and_then(|micros| format_one(micros, format)))
            .collect::<StringArray>(),
    ))
}

pub(super) fn date_format(call: &Call<'_>) -> Result<ArrayRef> {
    let (times, formats) = (call.time(0)?, call.text(1)?);
    let values = times.iter().zip(formats.iter()).map(|(micros, format)| {
        let (micros, format) = micros.zip(format)?;
        format_one(micros, format)
    });
    Ok(Arc::new(values.collect::<StringArray>()))
}

/// One time under a format of MySQL's DATE_FORMAT.
pub(super) fn format_one(micros: i64, format: &str) -> Option<String> {
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
