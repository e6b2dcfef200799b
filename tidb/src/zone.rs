//! Time zones of sessions: how a TIMESTAMP, an instant, is written and shown as a local time.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, NaiveDateTime, Offset, TimeZone};
use chrono_tz::Tz;
use types::{Error, Result};

/// A time zone as MySQL names it: an offset (`+08:00`) or a name (`Europe/Berlin`). `SYSTEM` is UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zone {
    /// Seconds east of UTC.
    Offset(i32),
    /// A zone of the IANA database.
    Named(Tz),
}

impl Zone {
    /// Coordinated Universal Time.
    pub const UTC: Zone = Zone::Offset(0);

    /// The instant of a local time, both in microseconds since the epoch. `None` if the local time does
    /// not exist (a clock was put forward); of two instants (a clock was put back) the earlier.
    #[must_use]
    pub fn to_instant(&self, local_micros: i64) -> Option<i64> {
        match self {
            Zone::Offset(seconds) => local_micros.checked_sub(i64::from(*seconds) * 1_000_000),
            Zone::Named(zone) => {
                let local = naive(local_micros)?;
                zone.from_local_datetime(&local).earliest().map(|instant| instant.timestamp_micros())
            }
        }
    }

    /// The local time of an instant, both in microseconds since the epoch. `None` beyond the calendar.
    #[must_use]
    pub fn to_local(&self, instant_micros: i64) -> Option<i64> {
        let seconds = match self {
            Zone::Offset(seconds) => *seconds,
            Zone::Named(zone) => {
                zone.offset_from_utc_datetime(&naive(instant_micros)?).fix().local_minus_utc()
            }
        };
        instant_micros.checked_add(i64::from(seconds) * 1_000_000)
    }
}

impl Default for Zone {
    fn default() -> Zone {
        Zone::UTC
    }
}

fn naive(micros: i64) -> Option<NaiveDateTime> {
    DateTime::from_timestamp_micros(micros).map(|instant| instant.naive_utc())
}

impl FromStr for Zone {
    type Err = Error;

    fn from_str(text: &str) -> Result<Zone> {
        let unknown = || Error::mysql(1298, format!("Unknown or incorrect time zone: '{text}'"));
        if text.eq_ignore_ascii_case("system") || text.eq_ignore_ascii_case("utc") {
            return Ok(Zone::UTC);
        }
        if let Some(offset) = parse_offset(text) {
            return Ok(Zone::Offset(offset));
        }
        let named = chrono_tz::TZ_VARIANTS.iter().find(|zone| zone.name().eq_ignore_ascii_case(text));
        named.map(|zone| Zone::Named(*zone)).ok_or_else(unknown)
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Zone::Offset(seconds) => {
                let sign = if *seconds < 0 { '-' } else { '+' };
                let minutes = seconds.abs() / 60;
                write!(formatter, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
            }
            Zone::Named(zone) => formatter.write_str(zone.name()),
        }
    }
}

/// Reads `[+-]h[h]:mm`, from -13:59 to +14:00.
pub(crate) fn parse_offset(text: &str) -> Option<i32> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'+' => (1, &text[1..]),
        b'-' => (-1, &text[1..]),
        _ => return None,
    };
    let (hours, minutes) = rest.split_once(':')?;
    let digits = |text: &str, n_max: usize| {
        let good = !text.is_empty() && text.len() <= n_max && text.bytes().all(|byte| byte.is_ascii_digit());
        good.then(|| text.parse::<i32>().ok()).flatten()
    };
    let (hours, minutes) = (digits(hours, 2)?, digits(minutes, 2)?);
    let seconds = sign * (hours * 3600 + minutes * 60);
    (minutes < 60 && (-50_340..=50_400).contains(&seconds)).then_some(seconds)
}
