//! Record keys: `t{table}_r{handle}`.
//!
//! A handle is one integer (8 bytes), or the datums of a clustered primary key, padded with zero bytes to
//! at least 9 so that the two never look alike.

use types::{Error, Result};

use crate::comparable::{put_i64, take_array, take_i64};

/// The length of `t{table}_r`.
const PREFIX_LEN: usize = 11;
/// The least length of a common handle.
pub(crate) const COMMON_HANDLE_LEN_MIN: usize = 9;

/// What identifies a row of a table in its key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Handle {
    /// An integer primary key, or a hidden row id.
    Int(i64),
    /// The encoded datums of a clustered primary key, padded.
    Common(Vec<u8>),
}

impl Handle {
    /// Appends the handle as it stands in the key.
    pub fn put(&self, out: &mut Vec<u8>) {
        match self {
            Handle::Int(value) => put_i64(out, *value),
            Handle::Common(bytes) => out.extend_from_slice(bytes),
        }
    }

    /// The handle in the bytes after `_r`.
    ///
    /// # Errors
    /// `Corrupt` if it has fewer than 8 bytes.
    pub fn decode(bytes: &[u8]) -> Result<Handle> {
        match bytes.len() {
            8 => Ok(Handle::Int(take_i64(&mut &bytes[..])?)),
            n if n >= COMMON_HANDLE_LEN_MIN => Ok(Handle::Common(bytes.to_vec())),
            n => Err(Error::corrupt(format!("handle of {n} bytes"))),
        }
    }
}

/// The prefix of a table's record keys.
#[must_use]
pub fn record_prefix(table: i64) -> Vec<u8> {
    let mut key = Vec::with_capacity(PREFIX_LEN + 8);
    put_record_prefix(&mut key, table);
    key
}

pub(crate) fn put_record_prefix(out: &mut Vec<u8>, table: i64) {
    out.push(b't');
    put_i64(out, table);
    out.extend_from_slice(b"_r");
}

/// The key of a row.
#[must_use]
pub fn record_key(table: i64, handle: &Handle) -> Vec<u8> {
    let mut key = record_prefix(table);
    handle.put(&mut key);
    key
}

/// The range of a table's record keys, end exclusive.
#[must_use]
pub fn record_range(table: i64) -> (Vec<u8>, Vec<u8>) {
    let start = record_prefix(table);
    let mut end = start.clone();
    end[PREFIX_LEN - 1] = b's';
    (start, end)
}

/// The range of all of a table's keys, indexes included, end exclusive.
#[must_use]
pub fn table_range(table: i64) -> (Vec<u8>, Vec<u8>) {
    let prefix = |table: i64| {
        let mut key = vec![b't'];
        put_i64(&mut key, table);
        key
    };
    let end = table.checked_add(1).map_or_else(|| vec![b't' + 1], prefix);
    (prefix(table), end)
}

/// Splits a record key into its table and the bytes of its handle.
pub(crate) fn split_record_key(key: &[u8]) -> Result<(i64, &[u8])> {
    let mut rest = key;
    let parts = (|| {
        let [t] = take_array(&mut rest)?;
        let table = take_i64(&mut rest)?;
        let separator = take_array::<2>(&mut rest)?;
        Ok::<_, Error>((t == b't' && separator == *b"_r").then_some((table, rest)))
    })();
    match parts {
        Ok(Some(split)) => Ok(split),
        _ => Err(Error::corrupt(format!("{} is no record key", hex(key)))),
    }
}

/// The table and the handle of a record key.
///
/// # Errors
/// `Corrupt` if the key is no record key.
pub fn decode_record_key(key: &[u8]) -> Result<(i64, Handle)> {
    let (table, handle) = split_record_key(key)?;
    Ok((table, Handle::decode(handle)?))
}

/// The table of a record key; `None` for any other key (an index, a record of our own).
#[must_use]
pub fn table_of_key(key: &[u8]) -> Option<i64> {
    split_record_key(key).ok().map(|(table, _)| table)
}

/// A key for messages: table and integer handle in plain numbers, anything else in hexadecimal.
#[must_use]
pub fn describe_key(key: &[u8]) -> String {
    match decode_record_key(key) {
        Ok((table, Handle::Int(handle))) => format!("t{table}_r{handle}"),
        Ok((table, Handle::Common(handle))) => format!("t{table}_r{}", hex(&handle)),
        Err(_) => hex(key),
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(2 + 2 * bytes.len());
    text.push_str("0x");
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
