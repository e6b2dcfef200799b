//! Packed times: the 64-bit form of DATE, DATETIME and TIMESTAMP in rows and keys.
//!
//! ```text
//! ((year * 13 + month) << 5 | day) << 17 | hour << 12 | minute << 6 | second, then << 24 | microsecond
//! ```
//!
//! Packed numbers compare as times do. Arrow holds microseconds (days for DATE) since 1970-01-01; years
//! 0000 to 9999. Zero dates (month or day 0) have no such number and are refused by name.

use types::{Error, Result};

/// Microseconds of a day.
pub(crate) const DAY_MICROS: i64 = 86_400_000_000;
/// Days since the epoch of 0000-01-01.
pub(crate) const DAYS_MIN: i64 = -719_528;
/// Days since the epoch of 9999-12-31.
pub(crate) const DAYS_MAX: i64 = 2_932_896;

/// A date and a time of day in the proleptic Gregorian calendar, without a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CivilTime {
    /// 0 to 9999.
    pub year: i32,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
    /// 0 to 23.
    pub hour: u32,
    /// 0 to 59.
    pub minute: u32,
    /// 0 to 59.
    pub second: u32,
    /// 0 to 999999.
    pub micro: u32,
}

impl CivilTime {
    /// The civil time of microseconds since the epoch.
    ///
    /// # Errors
    /// `Invalid` outside the years 0000 to 9999.
    pub fn from_micros(micros: i64) -> Result<CivilTime> {
        let days = micros.div_euclid(DAY_MICROS);
        let of_day = micros.rem_euclid(DAY_MICROS);
        let date = CivilTime::from_days(days)?;
        let seconds = of_day / 1_000_000;
        Ok(CivilTime {
            hour: (seconds / 3600) as u32,
            minute: (seconds / 60 % 60) as u32,
            second: (seconds % 60) as u32,
            micro: (of_day % 1_000_000) as u32,
            ..date
        })
    }

    /// Midnight of a day since the epoch.
    ///
    /// # Errors
    /// `Invalid` outside the years 0000 to 9999.
    pub fn from_days(days: i64) -> Result<CivilTime> {
        if !(DAYS_MIN..=DAYS_MAX).contains(&days) {
            return Err(Error::invalid("date is outside the years 0000 to 9999").with_mysql_code(1292));
        }
        // Days since 0000-03-01 in eras of 400 years: leap days come last, so months are regular.
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 } as u32;
        let year = (year_of_era + era * 400 + i64::from(month <= 2)) as i32;
        Ok(CivilTime { year, month, day, hour: 0, minute: 0, second: 0, micro: 0 })
    }

    /// Days since the epoch; the time of day does not count.
    ///
    /// # Errors
    /// `Invalid` if a field is out of its range, or for a zero date.
    pub fn to_days(self) -> Result<i64> {
        self.validate()?;
        let year = i64::from(self.year) - i64::from(self.month <= 2);
        let era = year.div_euclid(400);
        let year_of_era = year.rem_euclid(400);
        let month_from_march = i64::from((self.month + 9) % 12);
        let day_of_year = (153 * month_from_march + 2) / 5 + i64::from(self.day) - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        Ok(era * 146_097 + day_of_era - 719_468)
    }

    /// Microseconds since the epoch.
    ///
    /// # Errors
    /// `Invalid` if a field is out of its range, or for a zero date.
    pub fn to_micros(self) -> Result<i64> {
        let days = self.to_days()?;
        let seconds = i64::from(self.hour) * 3600 + i64::from(self.minute) * 60 + i64::from(self.second);
        Ok(days * DAY_MICROS + seconds * 1_000_000 + i64::from(self.micro))
    }

    /// The packed number.
    #[must_use]
    pub fn pack(self) -> u64 {
        let date = (self.year as u64 * 13 + u64::from(self.month)) << 5 | u64::from(self.day);
        let time = u64::from(self.hour) << 12 | u64::from(self.minute) << 6 | u64::from(self.second);
        (date << 17 | time) << 24 | u64::from(self.micro)
    }

    fn validate(self) -> Result<()> {
        if self.month == 0 || self.day == 0 {
            return Err(Error::invalid("zero dates are not supported").with_mysql_code(1292));
        }
        let whole = (0..=9999).contains(&self.year)
            && self.month <= 12
            && self.day <= days_in_month(self.year, self.month)
            && self.hour < 24
            && self.minute < 60
            && self.second < 60
            && self.micro < 1_000_000;
        if whole { Ok(()) } else { Err(Error::invalid("no such date or time").with_mysql_code(1292)) }
    }
}

/// The number of days of a month, 1 to 12.
pub(crate) fn days_in_month(year: i32, month: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

fn unpack(packed: u64) -> Result<CivilTime> {
    let time = packed >> 24;
    let date = time >> 17;
    let year_month = date >> 5;
    let year = i32::try_from(year_month / 13).ok().filter(|year| *year <= 9999);
    let civil = CivilTime {
        year: year.ok_or_else(|| Error::corrupt("packed time has a year beyond 9999"))?,
        month: (year_month % 13) as u32,
        day: (date & 31) as u32,
        hour: (time >> 12 & 31) as u32,
        minute: (time >> 6 & 63) as u32,
        second: (time & 63) as u32,
        micro: (packed & 0xff_ffff) as u32,
    };
    Ok(civil)
}

/// Packs microseconds since the epoch.
///
/// # Errors
/// `Invalid` outside the years 0000 to 9999.
pub fn pack_time(micros: i64) -> Result<u64> {
    CivilTime::from_micros(micros).map(CivilTime::pack)
}

/// Unpacks to microseconds since the epoch.
///
/// # Errors
/// `Invalid` for a zero date or a time that does not exist.
pub fn unpack_time(packed: u64) -> Result<i64> {
    unpack(packed)?.to_micros()
}

/// Packs days since the epoch.
///
/// # Errors
/// `Invalid` outside the years 0000 to 9999.
pub fn pack_date(days: i32) -> Result<u64> {
    CivilTime::from_days(i64::from(days)).map(CivilTime::pack)
}

/// Unpacks to days since the epoch.
///
/// # Errors
/// `Invalid` for a zero date, a date that does not exist, or one with a time of day.
pub fn unpack_date(packed: u64) -> Result<i32> {
    let civil = unpack(packed)?;
    let days = civil.to_days()?;
    if packed & ((1 << 41) - 1) != 0 {
        return Err(Error::corrupt("packed date has a time of day"));
    }
    i32::try_from(days).map_err(|_| Error::corrupt("packed date is out of range"))
}
