//! Decimals: MySQL's binary form, and exact values up to DECIMAL(65,30).
//!
//! The binary form is the digits before the point, then those after it, in groups of nine digits to four
//! bytes; a partial group stands first and last, in fewer bytes. The first bit is flipped and negative
//! numbers are inverted, so for one precision and scale the bytes compare as the numbers do. In rows and
//! keys a byte of precision and a byte of scale stand in front: always the column's.

use std::fmt;
use std::str::FromStr;

use arrow::datatypes::i256;
use types::{Error, Result};

use crate::comparable::{take, take_u8};

/// The most digits of a DECIMAL.
pub const DECIMAL_PRECISION_MAX: u8 = 65;
/// The most digits after the point.
pub const DECIMAL_SCALE_MAX: u8 = 30;

/// Digits of a full group.
const GROUP_DIGITS: usize = 9;
/// Bytes of a group of so many digits.
const GROUP_BYTES: [usize; 10] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];
const POWERS: [u32; 10] =
    [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000];

/// An exact decimal number: `unscaled / 10^scale`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal {
    /// All digits as one integer.
    pub unscaled: i256,
    /// Digits after the point.
    pub scale: u8,
}

/// 10 to the power of `exponent`.
///
/// # Panics
/// If the exponent is above 76: such a number has no place in 256 bits.
#[must_use]
pub(crate) fn power_of_ten(exponent: u8) -> i256 {
    assert!(exponent <= 76, "10^{exponent} does not fit in 256 bits");
    i256::from_i128(10).wrapping_pow(u32::from(exponent))
}

/// Whether a number has at most so many digits.
#[must_use]
pub(crate) fn fits(unscaled: i256, precision: u8) -> bool {
    precision > 76
        || (unscaled < power_of_ten(precision) && unscaled > power_of_ten(precision).wrapping_neg())
}

impl Decimal {
    /// The same number with so many digits after the point, halves rounded away from zero.
    /// `None` if it does not fit in 256 bits.
    #[must_use]
    pub fn rescale(self, scale: u8) -> Option<Decimal> {
        let unscaled = if scale >= self.scale {
            let up = scale - self.scale;
            if up > 76 {
                return (self.unscaled == i256::ZERO).then_some(Decimal { unscaled: i256::ZERO, scale });
            }
            self.unscaled.checked_mul(power_of_ten(up))?
        } else {
            let down = self.scale - scale;
            if down > 76 { i256::ZERO } else { divide_rounded(self.unscaled, power_of_ten(down)) }
        };
        Some(Decimal { unscaled, scale })
    }

    /// The same number with so many digits after the point, if no digit is lost and it fits.
    #[must_use]
    pub fn rescale_exact(self, scale: u8) -> Option<Decimal> {
        let rescaled = self.rescale(scale)?;
        if scale >= self.scale || rescaled.rescale(self.scale)? == self { Some(rescaled) } else { None }
    }

    /// Whether the number has at most so many digits.
    #[must_use]
    pub fn fits(self, precision: u8) -> bool {
        fits(self.unscaled, precision)
    }

    /// Appends the binary form of a DECIMAL(precision, scale), without the two bytes in front.
    ///
    /// # Errors
    /// `Invalid` (1264) if the number does not fit, or has more digits after the point.
    pub fn put_binary(self, out: &mut Vec<u8>, precision: u8, scale: u8) -> Result<()> {
        let same = self.rescale_exact(scale).filter(|same| same.fits(precision));
        let same = same.ok_or_else(|| {
            Error::mysql(1264, format!("{self} is out of range for DECIMAL({precision},{scale})"))
        })?;
        put_binary(out, same.unscaled, precision, scale);
        Ok(())
    }

    /// Reads the binary form of a DECIMAL(precision, scale).
    ///
    /// # Errors
    /// `Corrupt` if the input is too short or a group has more digits than it may.
    pub fn take_binary(input: &mut &[u8], precision: u8, scale: u8) -> Result<Decimal> {
        take_binary(input, precision, scale).map(|unscaled| Decimal { unscaled, scale })
    }
}

fn divide_rounded(number: i256, divisor: i256) -> i256 {
    let quotient = number.wrapping_div(divisor);
    let remainder = number.wrapping_rem(divisor).wrapping_abs();
    // remainder >= divisor - remainder says "at least a half" without overflow.
    if remainder >= divisor.wrapping_sub(remainder) {
        quotient.wrapping_add(i256::from_i128(if number.is_negative() { -1 } else { 1 }))
    } else {
        quotient
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.unscaled.to_string();
        let (sign, digits) = text.strip_prefix('-').map_or(("", text.as_str()), |digits| ("-", digits));
        let scale = usize::from(self.scale);
        if scale == 0 {
            return write!(formatter, "{sign}{digits}");
        }
        let digits = format!("{digits:0>width$}", width = scale + 1);
        let (whole, fraction) = digits.split_at(digits.len() - scale);
        write!(formatter, "{sign}{whole}.{fraction}")
    }
}

impl FromStr for Decimal {
    type Err = Error;

    /// Reads `[+-]digits[.digits][e[+-]digits]`; nothing else may be there. Digits beyond what 256 bits
    /// hold after the point are rounded.
    fn from_str(text: &str) -> Result<Decimal> {
        let bad = || Error::mysql(1366, format!("incorrect decimal value: '{text}'"));
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let (number, exponent) = match rest.find(['e', 'E']) {
            Some(at) => (&rest[..at], rest[at + 1..].parse::<i32>().map_err(|_| bad())?),
            None => (rest, 0),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return Err(bad());
        }
        let point = i64::try_from(whole.len()).map_err(|_| bad())? + i64::from(exponent);
        let overflow = || Error::mysql(1264, format!("decimal out of range: '{text}'"));
        parse_digits(&digits, point, negative).ok_or_else(overflow)
    }
}

/// The number of digits with the point after the first `point` of them; at most 76 digits are kept.
fn parse_digits(digits: &[u8], point: i64, negative: bool) -> Option<Decimal> {
    let n_zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    let significant = &digits[n_zeros..];
    let point = point - n_zeros as i64;
    if significant.is_empty() {
        let scale = (digits.len() as i64 - (point + n_zeros as i64)).clamp(0, 76) as u8;
        return Some(Decimal { unscaled: i256::ZERO, scale });
    }
    if point > 76 {
        return None;
    }
    // Digits that may be kept: 76 in all, and no scale above 76.
    let n_kept = (significant.len() as i64).min(76).min(point + 76);
    if n_kept < 0 {
        return Some(Decimal { unscaled: i256::ZERO, scale: 76 });
    }
    let n_kept = n_kept as usize;
    let ten = i256::from_i128(10);
    let digit_of = |digit: &u8| i256::from_i128(i128::from(digit - b'0'));
    let mut unscaled = significant[..n_kept]
        .iter()
        .fold(i256::ZERO, |sum, digit| sum.wrapping_mul(ten).wrapping_add(digit_of(digit)));
    if significant.get(n_kept).is_some_and(|digit| *digit >= b'5') {
        unscaled = unscaled.wrapping_add(i256::ONE);
    }
    let mut scale = n_kept as i64 - point;
    while scale < 0 {
        unscaled = unscaled.checked_mul(ten)?;
        scale += 1;
    }
    let unscaled = if negative { unscaled.wrapping_neg() } else { unscaled };
    fits(unscaled, 76).then_some(Decimal { unscaled, scale: scale as u8 })
}

/// How the digits of a DECIMAL divide into groups.
struct Layout {
    leading: usize,
    n_whole: usize,
    n_fraction: usize,
    trailing: usize,
}

impl Layout {
    fn new(precision: u8, scale: u8) -> Layout {
        let whole = usize::from(precision) - usize::from(scale);
        let fraction = usize::from(scale);
        Layout {
            leading: whole % GROUP_DIGITS,
            n_whole: whole / GROUP_DIGITS,
            n_fraction: fraction / GROUP_DIGITS,
            trailing: fraction % GROUP_DIGITS,
        }
    }

    /// Digits of each group, first to last.
    fn groups(&self) -> impl DoubleEndedIterator<Item = usize> {
        let full = std::iter::repeat_n(GROUP_DIGITS, self.n_whole + self.n_fraction);
        std::iter::once(self.leading).chain(full).chain(std::iter::once(self.trailing)).filter(|n| *n > 0)
    }
}

/// The length of the binary form.
pub(crate) fn binary_len(precision: u8, scale: u8) -> usize {
    Layout::new(precision, scale).groups().map(|n_digits| GROUP_BYTES[n_digits]).sum()
}

/// Appends the binary form of a number that is known to fit.
pub(crate) fn put_binary(out: &mut Vec<u8>, unscaled: i256, precision: u8, scale: u8) {
    assert!(scale <= precision, "DECIMAL({precision},{scale}) has a scale above its precision");
    debug_assert!(fits(unscaled, precision), "{unscaled} does not fit in {precision} digits");
    let start = out.len();
    out.resize(start + binary_len(precision, scale), 0);
    let bytes = &mut out[start..];
    let mut end = bytes.len();
    let mut magnitude = Magnitude::new(unscaled);
    for n_digits in Layout::new(precision, scale).groups().rev() {
        let group = magnitude.pop_digits(n_digits).to_be_bytes();
        let n_bytes = GROUP_BYTES[n_digits];
        bytes[end - n_bytes..end].copy_from_slice(&group[4 - n_bytes..]);
        end -= n_bytes;
    }
    if unscaled.is_negative() {
        bytes.iter_mut().for_each(|byte| *byte = !*byte);
    }
    if let Some(first) = bytes.first_mut() {
        *first ^= 0x80;
    }
}

/// The digits of a number, given out from the end; 128 bits as long as they suffice.
enum Magnitude {
    Narrow(u128),
    Wide(i256),
}

impl Magnitude {
    fn new(unscaled: i256) -> Magnitude {
        let (low, high) = unscaled.wrapping_abs().to_parts();
        if high == 0 { Magnitude::Narrow(low) } else { Magnitude::Wide(unscaled.wrapping_abs()) }
    }

    fn pop_digits(&mut self, n_digits: usize) -> u32 {
        let power = POWERS[n_digits];
        match self {
            Magnitude::Narrow(number) => {
                let group = (*number % u128::from(power)) as u32;
                *number /= u128::from(power);
                group
            }
            Magnitude::Wide(number) => {
                let power = i256::from_i128(i128::from(power));
                let group = number.wrapping_rem(power).as_i128() as u32;
                let (low, high) = number.wrapping_div(power).to_parts();
                *self = if high == 0 {
                    Magnitude::Narrow(low)
                } else {
                    Magnitude::Wide(i256::from_parts(low, high))
                };
                group
            }
        }
    }
}

/// Reads the binary form.
pub(crate) fn take_binary(input: &mut &[u8], precision: u8, scale: u8) -> Result<i256> {
    if scale > precision || precision == 0 || precision > 76 {
        return Err(Error::corrupt(format!("decimal with precision {precision} and scale {scale}")));
    }
    let bytes = take(input, binary_len(precision, scale))?;
    let negative = bytes[0] & 0x80 == 0;
    let mask = if negative { 0xff } else { 0 };
    let mut narrow: u128 = 0;
    let mut wide: Option<i256> = None;
    let mut n_seen = 0;
    let mut at = 0;
    for n_digits in Layout::new(precision, scale).groups() {
        let mut group: u32 = 0;
        for (i, byte) in bytes[at..at + GROUP_BYTES[n_digits]].iter().enumerate() {
            let flip = if at + i == 0 { 0x80 } else { 0 };
            group = group << 8 | u32::from(byte ^ flip ^ mask);
        }
        at += GROUP_BYTES[n_digits];
        if group >= POWERS[n_digits] {
            return Err(Error::corrupt(format!("decimal group {group} has more than {n_digits} digits")));
        }
        n_seen += n_digits;
        if n_seen <= 38 {
            narrow = narrow * u128::from(POWERS[n_digits]) + u128::from(group);
        } else {
            let sum = wide.unwrap_or_else(|| i256::from_parts(narrow, 0));
            let power = i256::from_i128(i128::from(POWERS[n_digits]));
            wide = Some(sum.wrapping_mul(power).wrapping_add(i256::from_i128(i128::from(group))));
        }
    }
    let magnitude = wide.unwrap_or_else(|| i256::from_parts(narrow, 0));
    Ok(if negative { magnitude.wrapping_neg() } else { magnitude })
}

/// Appends precision, scale and binary form.
pub(crate) fn put_sized(out: &mut Vec<u8>, unscaled: i256, precision: u8, scale: u8) {
    out.push(precision);
    out.push(scale);
    put_binary(out, unscaled, precision, scale);
}

/// Reads precision, scale and binary form as a number of the given scale.
pub(crate) fn take_sized(input: &mut &[u8], precision: u8, scale: u8) -> Result<i256> {
    let stored_precision = take_u8(input)?;
    let stored_scale = take_u8(input)?;
    let decimal = Decimal::take_binary(input, stored_precision, stored_scale)?;
    if stored_scale == scale && stored_precision <= precision {
        return Ok(decimal.unscaled);
    }
    let same = decimal.rescale_exact(scale).filter(|same| same.fits(precision));
    let same = same
        .ok_or_else(|| Error::corrupt(format!("{decimal} does not fit in DECIMAL({precision},{scale})")))?;
    Ok(same.unscaled)
}

/// Skips precision, scale and binary form.
pub(crate) fn skip_sized(input: &mut &[u8]) -> Result<()> {
    let precision = take_u8(input)?;
    let scale = take_u8(input)?;
    if scale > precision {
        return Err(Error::corrupt(format!("decimal with precision {precision} and scale {scale}")));
    }
    take(input, binary_len(precision, scale)).map(drop)
}
