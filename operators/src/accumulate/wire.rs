//! The bytes of aggregate states: numbers as variable-length integers, least group first.

use arrow::datatypes::i256;
use types::{Error, Result};

fn truncated() -> Error {
    Error::corrupt("aggregate state: too short")
}

pub(crate) fn write_unsigned(mut number: u128, bytes: &mut Vec<u8>) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

pub(crate) fn read_unsigned(bytes: &mut &[u8]) -> Result<u128> {
    let mut number = 0u128;
    for shift in (0..).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or_else(truncated)?;
        *bytes = rest;
        let group = u128::from(byte & 0x7f);
        if shift > 126 || (shift == 126 && group > 3) {
            return Err(Error::corrupt("aggregate state: number too long"));
        }
        number |= group << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    Ok(number)
}

pub(crate) fn write_signed(number: i128, bytes: &mut Vec<u8>) {
    write_unsigned(((number << 1) ^ (number >> 127)) as u128, bytes);
}

pub(crate) fn read_signed(bytes: &mut &[u8]) -> Result<i128> {
    let number = read_unsigned(bytes)?;
    Ok((number >> 1) as i128 ^ -((number & 1) as i128))
}

pub(crate) fn read_i64(bytes: &mut &[u8]) -> Result<i64> {
    i64::try_from(read_signed(bytes)?).map_err(|_| Error::corrupt("aggregate state: number too large"))
}

pub(crate) fn read_length(bytes: &mut &[u8]) -> Result<usize> {
    let length = usize::try_from(read_unsigned(bytes)?).map_err(|_| truncated())?;
    if length > bytes.len() { Err(truncated()) } else { Ok(length) }
}

pub(crate) fn write_i256(number: i256, bytes: &mut Vec<u8>) {
    let (low, high) = number.to_parts();
    let fits = number == i256::from_i128(low as i128);
    // Most sums fit 128 bits; the flag keeps equal numbers at equal bytes.
    if fits {
        bytes.push(0);
        write_signed(low as i128, bytes);
    } else {
        bytes.push(1);
        write_signed(high, bytes);
        write_unsigned(low, bytes);
    }
}

pub(crate) fn read_i256(bytes: &mut &[u8]) -> Result<i256> {
    let (flag, rest) = bytes.split_first().ok_or_else(truncated)?;
    *bytes = rest;
    if *flag == 0 {
        return Ok(i256::from_i128(read_signed(bytes)?));
    }
    let high = read_signed(bytes)?;
    let low = read_unsigned(bytes)?;
    Ok(i256::from_parts(low, high))
}

pub(crate) fn write_bytes(value: &[u8], bytes: &mut Vec<u8>) {
    write_unsigned(value.len() as u128, bytes);
    bytes.extend_from_slice(value);
}

pub(crate) fn read_bytes<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8]> {
    let length = read_length(bytes)?;
    let (value, rest) = bytes.split_at(length);
    *bytes = rest;
    Ok(value)
}
