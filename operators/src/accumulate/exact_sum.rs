//! Exact sums of floating numbers: one wide fixed-point number, rounded once, when it is read.
//!
//! Every finite `f64` is a whole multiple of 2^-1074, so a sum of weighted ones is a big integer. It is
//! kept in two's complement limbs of 64 bits, only those in use; infinities and NaNs are counted beside
//! it, so that they can leave again. Addition is exact, so neither order nor retraction changes a digit.

use smallvec::SmallVec;
use types::{Error, Result};

use super::wire::{read_i64, read_length, read_unsigned, write_signed, write_unsigned};

/// The exponent of the lowest bit of limb 0.
const LOWEST_EXPONENT: i64 = -1074;

/// An exact sum of weighted `f64`s.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExactSum {
    /// The position of the lowest limb that is kept.
    low: usize,
    /// Two's complement, lowest first; the last limb is the sign only (0 or all ones). Empty is zero.
    limbs: SmallVec<[u64; 5]>,
    n_nans: i64,
    n_positive_infinities: i64,
    n_negative_infinities: i64,
}

impl ExactSum {
    /// Adds a number as often as its weight says.
    ///
    /// # Errors
    /// `Corrupt` if weights overflow.
    pub fn add(&mut self, number: f64, weight: i64) -> Result<()> {
        if !number.is_finite() {
            let count = if number.is_nan() {
                &mut self.n_nans
            } else if number > 0.0 {
                &mut self.n_positive_infinities
            } else {
                &mut self.n_negative_infinities
            };
            *count = crate::run::add_weights(*count, weight)?;
            return Ok(());
        }
        let bits = number.to_bits();
        let exponent = (bits >> 52) & 0x7ff;
        let fraction = bits & ((1 << 52) - 1);
        let (mantissa, position) =
            if exponent == 0 { (fraction, 0) } else { (fraction | 1 << 52, exponent as usize - 1) };
        let product = u128::from(mantissa) * u128::from(weight.unsigned_abs());
        if product == 0 {
            return Ok(());
        }
        let (limb, shift) = (position / 64, position % 64);
        let high = if shift == 0 { 0 } else { (product >> (128 - shift)) as u64 };
        let shifted = product << shift;
        self.cover(limb, limb + 4);
        self.add_limbs(limb, &[shifted as u64, (shifted >> 64) as u64, high], (number < 0.0) != (weight < 0));
        Ok(())
    }

    /// Makes limbs from `start` to below `end` exist; the last one is the sign.
    fn cover(&mut self, start: usize, end: usize) {
        if self.limbs.is_empty() {
            self.low = start;
            self.limbs.resize(end - start, 0);
            return;
        }
        if start < self.low {
            self.limbs.insert_many(0, std::iter::repeat_n(0, self.low - start));
            self.low = start;
        }
        let sign = self.limbs[self.limbs.len() - 1];
        while self.low + self.limbs.len() < end {
            self.limbs.push(sign);
        }
    }

    /// Adds or subtracts a magnitude that ends below the sign limb.
    fn add_limbs(&mut self, at: usize, magnitude: &[u64], is_negative: bool) {
        let mut carry = is_negative;
        for (index, limb) in self.limbs.iter_mut().enumerate().skip(at - self.low) {
            let term = magnitude.get(index + self.low - at).copied().unwrap_or(0);
            let term = if is_negative { !term } else { term };
            let (sum, first) = limb.overflowing_add(term);
            let (sum, second) = sum.overflowing_add(u64::from(carry));
            *limb = sum;
            carry = first || second;
            if index + self.low >= at + magnitude.len() && carry == is_negative {
                break; // what follows adds nothing: 0, or all ones and a carry
            }
        }
        let last = self.limbs[self.limbs.len() - 1];
        if last != 0 && last != u64::MAX {
            self.limbs.push(if last >> 63 == 0 { 0 } else { u64::MAX });
        }
    }

    /// Adds another sum.
    ///
    /// # Errors
    /// `Corrupt` if weights overflow.
    pub fn add_sum(&mut self, other: &ExactSum) -> Result<()> {
        use crate::run::add_weights;
        self.n_nans = add_weights(self.n_nans, other.n_nans)?;
        self.n_positive_infinities = add_weights(self.n_positive_infinities, other.n_positive_infinities)?;
        self.n_negative_infinities = add_weights(self.n_negative_infinities, other.n_negative_infinities)?;
        if !other.limbs.is_empty() {
            let (is_negative, magnitude) = other.magnitude();
            self.cover(other.low, other.low + magnitude.len() + 1);
            self.add_limbs(other.low, &magnitude, is_negative);
        }
        Ok(())
    }

    /// The sum, rounded to the nearest `f64`, ties to even; an infinity if it is beyond all of them.
    ///
    /// # Errors
    /// `Corrupt` if more infinities or NaNs were taken away than there were.
    pub fn value(&self) -> Result<f64> {
        self.mean(1)
    }

    /// The sum divided by a count, rounded once.
    ///
    /// # Errors
    /// As [`ExactSum::value`].
    pub fn mean(&self, count: u64) -> Result<f64> {
        let counts = [self.n_nans, self.n_positive_infinities, self.n_negative_infinities];
        if counts.iter().any(|count| *count < 0) {
            return Err(Error::corrupt("a floating sum lost an infinity or NaN that it did not have"));
        }
        match counts {
            [0, 0, 0] => {}
            [0, _, 0] => return Ok(f64::INFINITY),
            [0, 0, _] => return Ok(f64::NEG_INFINITY),
            _ => return Ok(f64::NAN),
        }
        let (is_negative, mut magnitude) = self.magnitude();
        let mut exponent = LOWEST_EXPONENT + 64 * self.low as i64;
        let mut remainder = 0;
        if count > 1 {
            // Two more limbs below leave the quotient more bits than any f64 holds.
            magnitude.insert_many(0, [0, 0]);
            exponent -= 128;
            for limb in magnitude.iter_mut().rev() {
                let dividend = u128::from(remainder) << 64 | u128::from(*limb);
                *limb = (dividend / u128::from(count)) as u64;
                remainder = (dividend % u128::from(count)) as u64;
            }
        }
        let rounded = round(&magnitude, exponent, remainder != 0);
        Ok(if is_negative { -rounded } else { rounded })
    }

    /// Sign and absolute value, without the sign limb.
    fn magnitude(&self) -> (bool, SmallVec<[u64; 8]>) {
        let is_negative = self.limbs.last().is_some_and(|limb| *limb != 0);
        let mut magnitude: SmallVec<[u64; 8]> = SmallVec::from_slice(&self.limbs);
        if is_negative {
            let mut carry = true;
            for limb in &mut magnitude {
                let (negated, overflow) = (!*limb).overflowing_add(u64::from(carry));
                *limb = negated;
                carry = overflow;
            }
        }
        while magnitude.last() == Some(&0) {
            magnitude.pop();
        }
        (is_negative, magnitude)
    }

    /// Whether it is a sum of nothing: exactly zero, without infinities and NaNs.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.limbs.iter().all(|limb| *limb == 0)
            && [self.n_nans, self.n_positive_infinities, self.n_negative_infinities] == [0, 0, 0]
    }

    /// Appends its bytes; equal sums have equal ones.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        let (is_negative, magnitude) = self.magnitude();
        let n_zeros = magnitude.iter().take_while(|limb| **limb == 0).count();
        let magnitude = &magnitude[n_zeros..];
        let counts = [self.n_nans, self.n_positive_infinities, self.n_negative_infinities];
        let has_counts = counts != [0, 0, 0];
        bytes.push(u8::from(is_negative) | u8::from(has_counts) << 1);
        if has_counts {
            counts.iter().for_each(|count| write_signed(i128::from(*count), bytes));
        }
        write_unsigned(magnitude.len() as u128, bytes);
        if !magnitude.is_empty() {
            write_unsigned((self.low + n_zeros) as u128, bytes);
            magnitude.iter().for_each(|limb| bytes.extend_from_slice(&limb.to_le_bytes()));
        }
    }

    /// Reads what [`ExactSum::write`] wrote.
    ///
    /// # Errors
    /// `Corrupt` if the bytes are no sum.
    ///
    /// # Panics
    /// Never: limbs are cut to eight bytes.
    pub fn read(bytes: &mut &[u8]) -> Result<ExactSum> {
        let broken = || Error::corrupt("aggregate state: bad sum");
        let (flags, rest) = bytes.split_first().ok_or_else(broken)?;
        *bytes = rest;
        let mut sum = ExactSum::default();
        if flags & 2 != 0 {
            sum.n_nans = read_i64(bytes)?;
            sum.n_positive_infinities = read_i64(bytes)?;
            sum.n_negative_infinities = read_i64(bytes)?;
        }
        let n_limbs = read_length(bytes)?;
        if n_limbs > 0 {
            let low = usize::try_from(read_unsigned(bytes)?).map_err(|_| broken())?;
            if low > 64 || n_limbs > 64 || bytes.len() < 8 * n_limbs {
                return Err(broken());
            }
            let (limbs, rest) = bytes.split_at(8 * n_limbs);
            *bytes = rest;
            let magnitude: SmallVec<[u64; 8]> = limbs
                .chunks_exact(8)
                .map(|limb| u64::from_le_bytes(limb.try_into().expect("chunks of eight")))
                .collect();
            sum.cover(low, low + n_limbs + 1);
            sum.add_limbs(low, &magnitude, flags & 1 != 0);
        }
        Ok(sum)
    }
}

/// The `f64` nearest to magnitude * 2^exponent, or a little more if `is_more`.
fn round(magnitude: &[u64], exponent: i64, is_more: bool) -> f64 {
    let n_limbs = magnitude.iter().rposition(|limb| *limb != 0).map_or(0, |index| index + 1);
    let Some(top) = n_limbs.checked_sub(1) else {
        return 0.0;
    };
    let magnitude = &magnitude[..n_limbs];
    let top_bit = 64 * top as i64 + 63 - i64::from(magnitude[top].leading_zeros());
    // The lowest bit that the result keeps: 53 bits, or fewer where the result is subnormal.
    let lowest = (top_bit - 52).max(LOWEST_EXPONENT - exponent);
    if lowest <= 0 {
        // All bits are kept: at most 53 of them, in the lowest limb.
        return compose(magnitude[0], exponent);
    }
    let bit = |index: i64| index >= 0 && magnitude[(index / 64) as usize] >> (index % 64) & 1 == 1;
    let mut kept = 0;
    for index in (lowest..=top_bit).rev() {
        kept = kept << 1 | u64::from(bit(index));
    }
    let half = lowest - 1 <= top_bit && bit(lowest - 1);
    let below = lowest - 1; // bits under the half
    let whole_limbs = (below / 64) as usize;
    let is_above_half = is_more
        || magnitude.iter().take(whole_limbs).any(|limb| *limb != 0)
        || magnitude.get(whole_limbs).is_some_and(|limb| limb & ((1u64 << (below % 64)) - 1) != 0);
    if half && (is_above_half || kept & 1 == 1) {
        kept += 1;
    }
    compose(kept, exponent + lowest)
}

/// mantissa * 2^exponent, where the mantissa has at most 53 bits (or is 2^53) and no bit gets lost.
fn compose(mantissa: u64, exponent: i64) -> f64 {
    if mantissa == 0 {
        return 0.0;
    }
    let top_bit = 63 - i64::from(mantissa.leading_zeros());
    let biased = top_bit + exponent + 1023;
    if biased > 2046 {
        return f64::INFINITY;
    }
    if biased < 1 {
        // Subnormal: the exponent is that of the lowest bit, or above it.
        return f64::from_bits(mantissa << (exponent - LOWEST_EXPONENT));
    }
    let fraction = if top_bit <= 52 { mantissa << (52 - top_bit) } else { mantissa >> (top_bit - 52) };
    f64::from_bits((biased as u64) << 52 | fraction & ((1 << 52) - 1))
}
