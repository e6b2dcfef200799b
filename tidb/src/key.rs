//! Record keys: `t{table}_r{handle}`.
//!
//! A handle is one integer (8 bytes), or the datums of a clustered primary key, padded with zero bytes to
//! at least 9 so that the two never look alike. Tables whose ids TiDB never gives out
//! ([`PRIVATE_TABLES_FROM`] and above) have their keys under Tidemill's private prefix, so that TiDB, its
//! garbage collector of dropped tables and its backups never meet them.

use types::records::PREFIX;
use types::{Error, Result};

use crate::comparable::{put_i64, take_array, take_i64};

/// Ids from here on are of tables that TiDB knows nothing of. TiDB counts up from 1, and keeps the ids just
/// below 2^48 for itself.
pub const PRIVATE_TABLES_FROM: i64 = 1 << 40;
/// Where such ids end.
const PRIVATE_TABLES_END: i64 = 1 << 47;

/// The length of `t{table}_r` under the private prefix.
const PREFIX_LEN_MAX: usize = PREFIX.len() + 11;
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
    let mut key = Vec::with_capacity(PREFIX_LEN_MAX + 8);
    put_record_prefix(&mut key, table);
    key
}

pub(crate) fn put_record_prefix(out: &mut Vec<u8>, table: i64) {
    put_table_prefix(out, table);
    out.extend_from_slice(b"_r");
}

fn put_table_prefix(out: &mut Vec<u8>, table: i64) {
    if is_private(table) {
        out.extend_from_slice(PREFIX);
    }
    out.push(b't');
    put_i64(out, table);
}

fn is_private(table: i64) -> bool {
    (PRIVATE_TABLES_FROM..PRIVATE_TABLES_END).contains(&table)
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
    // The prefix ends with `_r`.
    end.pop();
    end.push(b's');
    (start, end)
}

/// The range of all of a table's keys, indexes included, end exclusive.
#[must_use]
pub fn table_range(table: i64) -> (Vec<u8>, Vec<u8>) {
    let mut start = Vec::with_capacity(PREFIX_LEN_MAX);
    put_table_prefix(&mut start, table);
    let mut end = start.clone();
    // The next integer of the same width; the last one of all is followed by the next letter.
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            break;
        }
    }
    (start, end)
}

/// Splits a record key into its table and the bytes of its handle.
pub(crate) fn split_record_key(key: &[u8]) -> Result<(i64, &[u8])> {
    let (mut rest, in_private) = match key.strip_prefix(PREFIX) {
        Some(rest) => (rest, true),
        None => (key, false),
    };
    let parts = (|| {
        let [t] = take_array(&mut rest)?;
        let table = take_i64(&mut rest)?;
        let separator = take_array::<2>(&mut rest)?;
        let is_record = t == b't' && separator == *b"_r" && is_private(table) == in_private;
        Ok::<_, Error>(is_record.then_some((table, rest)))
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
