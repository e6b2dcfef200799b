//! Primitive encodings whose bytes compare as their values do.
//!
//! `put_*` appends to a buffer, `take_*` reads from the front of a slice and moves it on. Readers never
//! panic: whatever bytes they meet, they answer with a value or with `Corrupt`.

use types::{Error, Result};

/// The number of bytes in a group of the bytes encoding.
const GROUP: usize = 8;
/// The marker after a full group.
const MARKER_FULL: u8 = 0xff;

/// Flags in front of a datum in a key.
pub mod flag {
    /// NULL.
    pub const NIL: u8 = 0x00;
    /// Bytes in the bytes encoding.
    pub const BYTES: u8 = 0x01;
    /// A signed integer.
    pub const INT: u8 = 0x03;
    /// An unsigned integer; times, too.
    pub const UINT: u8 = 0x04;
    /// A double.
    pub const FLOAT: u8 = 0x05;
    /// A decimal.
    pub const DECIMAL: u8 = 0x06;
}

/// Splits `n` bytes off the front of the input.
///
/// # Errors
/// `Corrupt` if there are fewer.
pub fn take<'a>(input: &mut &'a [u8], n: usize) -> Result<&'a [u8]> {
    match input.split_at_checked(n) {
        Some((head, rest)) => {
            *input = rest;
            Ok(head)
        }
        None => Err(Error::corrupt(format!("{n} bytes expected, {} left", input.len()))),
    }
}

/// Splits a fixed number of bytes off the front of the input.
///
/// # Errors
/// `Corrupt` if there are fewer.
pub fn take_array<const N: usize>(input: &mut &[u8]) -> Result<[u8; N]> {
    match input.split_first_chunk::<N>() {
        Some((head, rest)) => {
            *input = rest;
            Ok(*head)
        }
        None => Err(Error::corrupt(format!("{N} bytes expected, {} left", input.len()))),
    }
}

/// Splits one byte off the front of the input.
///
/// # Errors
/// `Corrupt` at the end.
pub fn take_u8(input: &mut &[u8]) -> Result<u8> {
    take_array::<1>(input).map(|[byte]| byte)
}

/// Appends a signed integer: big-endian with the sign bit flipped.
pub fn put_i64(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(&((value as u64) ^ (1 << 63)).to_be_bytes());
}

/// Reads a signed integer.
///
/// # Errors
/// `Corrupt` if the input is too short.
pub fn take_i64(input: &mut &[u8]) -> Result<i64> {
    take_array(input).map(|bytes| (u64::from_be_bytes(bytes) ^ (1 << 63)) as i64)
}

/// Appends an unsigned integer: big-endian.
pub fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Reads an unsigned integer.
///
/// # Errors
/// `Corrupt` if the input is too short.
pub fn take_u64(input: &mut &[u8]) -> Result<u64> {
    take_array(input).map(u64::from_be_bytes)
}

/// The comparable bits of a double: sign bit set for what is not negative, all bits inverted otherwise.
/// `-0.0` keeps bits of its own just below `0.0`; keys normalise it first ([`key_f64`]).
#[must_use]
pub fn comparable_f64(value: f64) -> u64 {
    let bits = value.to_bits();
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

/// The double of comparable bits.
#[must_use]
pub fn f64_of_comparable(bits: u64) -> f64 {
    f64::from_bits(if bits >> 63 == 1 { bits & !(1 << 63) } else { !bits })
}

/// The double that stands for a value in a key: `-0.0` equals `0.0`, as it does in TiDB's keys.
#[must_use]
pub fn key_f64(value: f64) -> f64 {
    if value == 0.0 { 0.0 } else { value }
}

/// Appends a double.
pub fn put_f64(out: &mut Vec<u8>, value: f64) {
    put_u64(out, comparable_f64(value));
}

/// Reads a double.
///
/// # Errors
/// `Corrupt` if the input is too short.
pub fn take_f64(input: &mut &[u8]) -> Result<f64> {
    take_u64(input).map(f64_of_comparable)
}

/// Appends bytes: groups of 8, zero padded, each with a marker that counts the padding.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve((bytes.len() / GROUP + 1) * (GROUP + 1));
    let mut groups = bytes.chunks_exact(GROUP);
    for group in &mut groups {
        out.extend_from_slice(group);
        out.push(MARKER_FULL);
    }
    let rest = groups.remainder();
    let n_pad = GROUP - rest.len();
    out.extend_from_slice(rest);
    out.extend_from_slice(&[0; GROUP][..n_pad]);
    out.push(MARKER_FULL - n_pad as u8);
}

/// Reads bytes and appends them to `out`.
///
/// # Errors
/// `Corrupt` if the input is too short or not such an encoding.
pub fn take_bytes(input: &mut &[u8], out: &mut Vec<u8>) -> Result<()> {
    loop {
        let group = take_array::<9>(input)?;
        let n_pad = usize::from(MARKER_FULL - group[GROUP]);
        if n_pad > GROUP {
            return Err(Error::corrupt(format!("marker {:#x} in encoded bytes", group[GROUP])));
        }
        let (bytes, padding) = group[..GROUP].split_at(GROUP - n_pad);
        if padding.iter().any(|byte| *byte != 0) {
            return Err(Error::corrupt("padding of encoded bytes is not zero"));
        }
        out.extend_from_slice(bytes);
        if n_pad > 0 {
            return Ok(());
        }
    }
}

/// Skips encoded bytes.
///
/// # Errors
/// `Corrupt` if the input is too short or not such an encoding.
pub fn skip_bytes(input: &mut &[u8]) -> Result<()> {
    loop {
        let marker = take_array::<9>(input)?[GROUP];
        match MARKER_FULL - marker {
            0 => {}
            n_pad if usize::from(n_pad) <= GROUP => return Ok(()),
            _ => return Err(Error::corrupt(format!("marker {marker:#x} in encoded bytes"))),
        }
    }
}
