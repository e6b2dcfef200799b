//! Numbers and times as text, the way MySQL reads and writes them.

use crate::time::{CivilTime, DAY_MICROS, days_in_month};
use crate::zone::parse_offset;

/// A time read from text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A local time, in microseconds since the epoch.
    Local(i64),
    /// An instant: the text had an offset.
    Instant(i64),
}

/// The length of the number that a text begins with: `[+-]digits[.digits][e[+-]digits]`; 0 if none.
#[must_use]
pub(crate) fn number_prefix(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digits = |at: usize| bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut end = usize::from(matches!(bytes.first(), Some(b'+' | b'-')));
    let n_whole = digits(end);
    end += n_whole;
    let mut n_digits = n_whole;
    if bytes.get(end) == Some(&b'.') {
        let n_fraction = digits(end + 1);
        n_digits += n_fraction;
        end += 1 + n_fraction;
    }
    if n_digits == 0 {
        return 0;
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let n_exponent = digits((end + 1 + sign).min(bytes.len()));
        if n_exponent > 0 {
            end += 1 + sign + n_exponent;
        }
    }
    end
}

/// Reads a date or a time: `YYYY-MM-DD[ hh:mm[:ss[.ffffff]]][+hh:mm]` with any punctuation between the
/// numbers, or `YYYYMMDD[hhmmss[.ffffff]]`; two-digit years are 1970 to 2069. Fractions beyond
/// microseconds round. `None` if the text says no time of the years 0000 to 9999, zero dates included.
#[must_use]
pub fn parse_time(text: &str) -> Option<Parsed> {
    let text = text.trim();
    let n_digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let rest = &text[n_digits..];
    if n_digits >= 6 && (rest.is_empty() || (rest.starts_with('.') && n_digits >= 12)) {
        return parse_compact(&text[..n_digits], rest);
    }
    let mut reader = Reader { rest: text };
    let (year, n_year_digits) = reader.number(4)?;
    reader.punctuation()?;
    let (month, _) = reader.number(2)?;
    reader.punctuation()?;
    let (day, _) = reader.number(2)?;
    let year = if n_year_digits <= 2 { two_digit_year(year) } else { year };
    let mut fields = [year, month, day, 0, 0, 0];
    let mut micros = 0;
    if reader.date_time_separator() {
        fields[3] = reader.number(2)?.0;
        for (field, _) in fields[4..6].iter_mut().zip(0..2) {
            if !reader.eat(':') {
                break;
            }
            *field = reader.number(2)?.0;
        }
        if reader.rest.starts_with('.') {
            micros = reader.fraction()?;
        }
    }
    let local = civil_micros(fields, micros)?;
    if reader.rest.is_empty() {
        return Some(Parsed::Local(local));
    }
    let offset = parse_offset(reader.rest)?;
    Some(Parsed::Instant(local.checked_sub(i64::from(offset) * 1_000_000)?))
}

fn parse_compact(digits: &str, fraction: &str) -> Option<Parsed> {
    let (n_year_digits, has_time) = match digits.len() {
        6 => (2, false),
        8 => (4, false),
        12 => (2, true),
        14 => (4, true),
        _ => return None,
    };
    let mut reader = Reader { rest: digits };
    let (year, _) = reader.number(n_year_digits)?;
    let year = if n_year_digits == 2 { two_digit_year(year) } else { year };
    let mut fields = [year, 0, 0, 0, 0, 0];
    let n_fields = if has_time { 6 } else { 3 };
    for field in &mut fields[1..n_fields] {
        *field = reader.number(2)?.0;
    }
    let mut fraction = Reader { rest: fraction };
    let micros = if fraction.rest.is_empty() { 0 } else { fraction.fraction()? };
    if fraction.rest.is_empty() { civil_micros(fields, micros).map(Parsed::Local) } else { None }
}

fn two_digit_year(year: u32) -> u32 {
    if year < 70 { 2000 + year } else { 1900 + year }
}

fn civil_micros([year, month, day, hour, minute, second]: [u32; 6], micros: i64) -> Option<i64> {
    if month == 0 || month > 12 || day == 0 || day > days_in_month(year as i32, month) {
        return None;
    }
    let civil = CivilTime { year: year as i32, month, day, hour, minute, second, micro: 0 };
    let micros = civil.to_micros().ok()?.checked_add(micros)?;
    // Rounding may have gone past the last day.
    CivilTime::from_days(micros.div_euclid(DAY_MICROS)).ok().map(|_| micros)
}

/// Reads numbers and what stands between them.
struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    /// A number of at most so many digits, with their number.
    fn number(&mut self, n_digits_max: usize) -> Option<(u32, usize)> {
        let n = self.rest.bytes().take(n_digits_max).take_while(u8::is_ascii_digit).count();
        let number = self.rest[..n].parse().ok()?;
        self.rest = &self.rest[n..];
        Some((number, n))
    }

    fn punctuation(&mut self) -> Option<()> {
        let first = self.rest.chars().next().filter(char::is_ascii_punctuation)?;
        self.rest = &self.rest[first.len_utf8()..];
        Some(())
    }

    fn eat(&mut self, expected: char) -> bool {
        match self.rest.strip_prefix(expected) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Whether a time of day follows: after a T or spaces, and a digit.
    fn date_time_separator(&mut self) -> bool {
        let rest = self.rest.strip_prefix(['T', 't']).unwrap_or_else(|| self.rest.trim_start_matches(' '));
        let follows = rest.len() < self.rest.len() && rest.starts_with(|c: char| c.is_ascii_digit());
        if follows {
            self.rest = rest;
        }
        follows
    }

    /// `.ffffff` in microseconds, rounded.
    fn fraction(&mut self) -> Option<i64> {
        let digits = self.rest.strip_prefix('.')?;
        let n = digits.bytes().take_while(u8::is_ascii_digit).count();
        let digit = |at: usize| digits.as_bytes()[..n].get(at).map(|digit| i64::from(digit - b'0'));
        let micros = (0..6).fold(0, |sum, at| sum * 10 + digit(at).unwrap_or(0));
        let round_up = digit(6).is_some_and(|digit| digit >= 5);
        self.rest = &digits[n..];
        Some(micros + i64::from(round_up))
    }
}

/// A date as `YYYY-MM-DD`.
#[must_use]
pub fn format_date(civil: CivilTime) -> String {
    format!("{:04}-{:02}-{:02}", civil.year, civil.month, civil.day)
}

/// A time as `YYYY-MM-DD hh:mm:ss`, with so many digits of the fraction.
#[must_use]
pub fn format_time(civil: CivilTime, fsp: u8) -> String {
    let date = format_date(civil);
    let time = format!("{:02}:{:02}:{:02}", civil.hour, civil.minute, civil.second);
    if fsp == 0 {
        return format!("{date} {time}");
    }
    let fraction = format!("{:06}", civil.micro);
    format!("{date} {time}.{}", &fraction[..usize::from(fsp.min(6))])
}

/// A double as MySQL prints it: the shortest text that reads back, with an exponent from 1e15 on and
/// below 1e-15.
#[must_use]
pub fn format_double(value: f64) -> String {
    format_shortest(&value.to_string(), &format!("{value:e}"), value.abs())
}

/// A FLOAT as MySQL prints it.
#[must_use]
pub fn format_float(value: f32) -> String {
    format_shortest(&value.to_string(), &format!("{value:e}"), f64::from(value.abs()))
}

fn format_shortest(plain: &str, scientific: &str, magnitude: f64) -> String {
    let plain_range = (1e-15..1e15).contains(&magnitude) || magnitude == 0.0 || !magnitude.is_finite();
    if plain_range { plain.to_owned() } else { scientific.to_owned() }
}
