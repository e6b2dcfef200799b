//! The row format that TiDB wrote before version 2: datums in pairs, a column's id and its value.
//!
//! ```text
//! 0x08 varint(id) datum   0x08 varint(id) datum   …        a row without columns is one 0x00
//! ```
//!
//! Datums stand as in keys, but integers are mostly varints (0x08 zigzag, 0x09 unsigned; times and numbers
//! of ENUM and the like are unsigned integers) and strings a varint length and the bytes (0x02). Such rows
//! stay in a cluster until something writes them anew, so they are read for ever; nothing here writes them.

use types::{Error, Result};

use crate::comparable::{flag, skip_bytes, take, take_array, take_i64, take_u8};
use crate::decimal::skip_sized;

/// Flags that stand in values only.
pub(crate) mod value_flag {
    /// Bytes after their length.
    pub(crate) const COMPACT_BYTES: u8 = 0x02;
    /// A time span of 8 bytes.
    pub(crate) const DURATION: u8 = 0x07;
    /// A signed integer, zigzag.
    pub(crate) const VARINT: u8 = 0x08;
    /// An unsigned integer.
    pub(crate) const UVARINT: u8 = 0x09;
    /// A binary JSON.
    pub(crate) const JSON: u8 = 0x0a;
    /// A vector of FLOAT.
    pub(crate) const VECTOR: u8 = 0x14;
}

/// The parts of a row's value in the old format.
#[derive(Clone, Debug)]
pub(crate) struct OldRow<'a> {
    columns: Vec<(i64, &'a [u8])>,
}

impl<'a> OldRow<'a> {
    /// Takes a row's value apart.
    pub(crate) fn parse(value: &'a [u8]) -> Result<OldRow<'a>> {
        let mut columns = Vec::new();
        let mut rest = value;
        if value == [flag::NIL] {
            rest = &[];
        } else if value.is_empty() {
            return Err(Error::corrupt("a row of no bytes"));
        }
        while !rest.is_empty() {
            let id = match take_u8(&mut rest)? {
                value_flag::VARINT => take_varint(&mut rest)?,
                flag::INT => take_i64(&mut rest)?,
                found => {
                    return Err(Error::corrupt(format!(
                        "row is of no known format: flag {found:#x} before an id"
                    )));
                }
            };
            let before = rest;
            skip_value(&mut rest)?;
            columns.push((id, &before[..before.len() - rest.len()]));
        }
        Ok(OldRow { columns })
    }

    /// The datum of a column. Start looking at the `hint`th, if it is known.
    pub(crate) fn find(&self, id: i64, hint: &mut usize) -> Option<&'a [u8]> {
        if let Some((_, datum)) = self.columns.get(*hint).filter(|(found, _)| *found == id) {
            return Some(datum);
        }
        *hint = self.columns.iter().position(|(found, _)| *found == id)?;
        Some(self.columns[*hint].1)
    }
}

/// Reads an unsigned varint: seven bits a byte, the lowest first.
pub(crate) fn take_uvarint(input: &mut &[u8]) -> Result<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take_u8(input)?;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            break;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Error::corrupt("a varint has more than 64 bits"))
}

/// Reads a signed varint: the sign is the lowest bit.
pub(crate) fn take_varint(input: &mut &[u8]) -> Result<i64> {
    take_uvarint(input).map(|zigzag| (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64))
}

/// Reads bytes after their length.
pub(crate) fn take_compact<'a>(input: &mut &'a [u8]) -> Result<&'a [u8]> {
    let n = take_varint(input)?;
    take(input, usize::try_from(n).map_err(|_| Error::corrupt(format!("{n} bytes in a row")))?)
}

fn skip_value(input: &mut &[u8]) -> Result<()> {
    match take_u8(input)? {
        flag::NIL => Ok(()),
        flag::BYTES => skip_bytes(input),
        flag::INT | flag::UINT | flag::FLOAT | value_flag::DURATION => take_array::<8>(input).map(drop),
        flag::DECIMAL => skip_sized(input),
        value_flag::COMPACT_BYTES => take_compact(input).map(drop),
        value_flag::VARINT | value_flag::UVARINT => take_uvarint(input).map(drop),
        value_flag::JSON => skip_json(input),
        value_flag::VECTOR => {
            let n = u32::from_le_bytes(take_array(input)?);
            take(input, (n as usize).saturating_mul(4)).map(drop)
        }
        found => Err(Error::corrupt(format!("unknown flag {found:#x} in a row"))),
    }
}

/// Skips a binary JSON. Objects and arrays say their size, which counts from its own eight bytes on.
fn skip_json(input: &mut &[u8]) -> Result<()> {
    let n = match take_u8(input)? {
        0x01 | 0x03 => {
            let [_, _, _, _, a, b, c, d] = take_array(input)?;
            let size = u32::from_le_bytes([a, b, c, d]) as usize;
            size.checked_sub(8).ok_or_else(|| Error::corrupt(format!("JSON of {size} bytes")))?
        }
        0x04 => 1,
        0x09 | 0x0a | 0x0b | 0x0e | 0x0f | 0x10 => 8,
        0x0c => usize::try_from(take_uvarint(input)?).unwrap_or(usize::MAX),
        0x0d => {
            take_u8(input)?;
            usize::try_from(take_uvarint(input)?).unwrap_or(usize::MAX)
        }
        0x11 => 12,
        found => return Err(Error::corrupt(format!("unknown type {found:#x} of a JSON"))),
    };
    take(input, n).map(drop)
}
