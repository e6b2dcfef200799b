//! Checksums of rows: after the data a header byte, a CRC-32, and a second one if the header says so.
//!
//! The header's low three bits are a version. 1 covers the row's bytes, the header and the key; 2, which
//! TiDB writes today, the same with the handle in place of the key. 0 covers the columns' values in a
//! form of its own and needs all types of the table to be computed again: it is stepped over. Views' rows
//! get version 2 where the cluster's other rows have checksums.

use types::{Error, Result};

use crate::comparable::{take_array, take_u8};
use crate::key::split_record_key;
use crate::row::{FLAG_CHECKSUM, VERSION};

const VERSION_MASK: u8 = 0b0111;
const EXTRA: u8 = 0b1000;
/// Over the row's bytes and the key.
const OVER_KEY: u8 = 1;
/// Over the row's bytes and the handle.
const OVER_HANDLE: u8 = 2;

/// Takes a checksum off the front of `rest` and compares it with what the row's bytes before it give.
pub(crate) fn verify_checksum(key: &[u8], row: &[u8], rest: &mut &[u8]) -> Result<()> {
    let header = take_u8(rest)?;
    let stored = u32::from_le_bytes(take_array(rest)?);
    if header & EXTRA != 0 {
        take_array::<4>(rest)?;
    }
    let identity = match header & VERSION_MASK {
        0 => return Ok(()),
        OVER_KEY => key,
        OVER_HANDLE => split_record_key(key)?.1,
        version => return Err(Error::corrupt(format!("unknown version {version} of a row checksum"))),
    };
    let computed = checksum(row, header, identity);
    if computed == stored {
        Ok(())
    } else {
        Err(Error::corrupt(format!("row checksum is {computed:#010x}, {stored:#010x} was stored")))
    }
}

/// Adds a checksum to an encoded row that has none, as TiDB does with `tidb_enable_row_level_checksum` on.
///
/// # Errors
/// `Invalid` if the key is no record key, or the value no row or one with a checksum.
pub fn append_checksum(key: &[u8], value: &mut Vec<u8>) -> Result<()> {
    let (_, handle) =
        split_record_key(key).map_err(|_| Error::invalid("a checksum for what is no record key"))?;
    match value.as_mut_slice() {
        [VERSION, flags, ..] if *flags & FLAG_CHECKSUM == 0 => *flags |= FLAG_CHECKSUM,
        _ => return Err(Error::invalid("a checksum for what is no row, or has one")),
    }
    let checksum = checksum(value, OVER_HANDLE, handle);
    value.push(OVER_HANDLE);
    value.extend_from_slice(&checksum.to_le_bytes());
    Ok(())
}

fn checksum(row: &[u8], header: u8, identity: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(row);
    hasher.update(&[header]);
    hasher.update(identity);
    hasher.finalize()
}
