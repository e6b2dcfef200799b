//! MySQL's TIME, for which we have no column type: as text, and as the number that MySQL makes of it.

/// The longest TIME: 838:59:59.
const SECONDS_MAX: i64 = 838 * 3600 + 59 * 60 + 59;

/// Reads `[-]h:mm:ss[.ffffff]` in microseconds; digits beyond microseconds are refused.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (sign, rest) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let (whole, fraction) = rest.split_once('.').unwrap_or((rest, ""));
    let mut parts = whole.split(':');
    let mut part = |n_digits_max: usize| -> Option<i64> {
        let text = parts.next()?;
        let good = (1..=n_digits_max).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        good.then(|| text.parse().ok()).flatten()
    };
    let (hours, minutes, seconds) = (part(3)?, part(2)?, part(2)?);
    if parts.next().is_some() || minutes > 59 || seconds > 59 {
        return None;
    }
    if fraction.len() > 6 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let micros: i64 = if fraction.is_empty() { 0 } else { format!("{fraction:0<6}").parse().ok()? };
    let seconds = hours * 3600 + minutes * 60 + seconds;
    (seconds <= SECONDS_MAX).then_some(sign * (seconds * 1_000_000 + micros))
}

/// Writes `[-]hh:mm:ss[.ffffff]` with so many digits of the fraction.
pub(crate) fn format_duration(micros: i64, n_digits: u32) -> String {
    let sign = if micros < 0 { "-" } else { "" };
    let (seconds, fraction) = split(micros);
    let whole = format!("{sign}{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if n_digits == 0 {
        return whole;
    }
    let digits = format!("{fraction:06}");
    format!("{whole}.{}", &digits[..n_digits.min(6) as usize])
}

/// The number that MySQL makes of a TIME: `hhmmss[.ffffff]`.
pub(crate) fn duration_number(micros: i64) -> String {
    let sign = if micros < 0 { "-" } else { "" };
    let (seconds, fraction) = split(micros);
    let number = seconds / 3600 * 10_000 + seconds / 60 % 60 * 100 + seconds % 60;
    if fraction == 0 { format!("{sign}{number}") } else { format!("{sign}{number}.{fraction:06}") }
}

fn split(micros: i64) -> (u64, u64) {
    let magnitude = micros.unsigned_abs();
    (magnitude / 1_000_000, magnitude % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::{duration_number, format_duration, parse_duration};

    #[test]
    fn times_of_day_read_write_and_count() {
        assert_eq!(parse_duration("-838:59:59.5"), Some(-3_020_399_500_000));
        assert_eq!(format_duration(-3_020_399_500_000, 1), "-838:59:59.5");
        assert_eq!(duration_number(-3_020_399_500_000), "-8385959.500000");
        assert_eq!(duration_number(3_723_000_000), "10203");
        for bad in ["", "1:2", "1:60:00", "839:00:00", "01:02:03.1234567", "a:b:c", "1:2:3:4"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }
}
