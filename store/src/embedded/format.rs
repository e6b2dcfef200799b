//! The bytes of the embedded store: format version 1.
//!
//! Every value begins with a CRC-32 over the user's key and the rest of the value, so that neither a
//! broken byte nor a value under the wrong key is ever taken for data.
//!
//! ```text
//! main     key                          crc kind commit start previous value
//! history  escaped(key) !commit         the same bytes, moved
//! records  key                          crc (kind start commit)*          newest first
//! locks    key                          crc kind start ttl size min_commit primary value
//! index    commit 0 first-key           crc start (key kind previous)*    one piece of a commit
//! index    commit 1 key                 crc start  key kind previous      a commit at a named timestamp
//! meta     name                         crc bytes
//! blobs    key                          crc value
//! ```
//!
//! `previous` is the commit timestamp of the version that this one replaced (zero for none), so old
//! values are found without a seek.

use bytes::{BufMut, Bytes, BytesMut};
use types::{Error, Result, Timestamp};

use crate::engine::KEY_BYTES_MAX;
use crate::traits::{Key, LockInfo, LockKind, Value, WriteKind};

/// The version of this layout; a store of another version is refused.
pub(crate) const FORMAT_VERSION: u64 = 1;

const CRC_BYTES: usize = 4;

fn sealed(key: &[u8], body: BytesMut) -> Bytes {
    let mut bytes = body;
    let crc = crc_of(key, &bytes[CRC_BYTES..]);
    bytes[..CRC_BYTES].copy_from_slice(&crc.to_be_bytes());
    bytes.freeze()
}

fn body(capacity: usize) -> BytesMut {
    let mut bytes = BytesMut::with_capacity(capacity + CRC_BYTES);
    bytes.put_u32(0);
    bytes
}

fn crc_of(key: &[u8], rest: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&(key.len() as u64).to_be_bytes());
    hasher.update(key);
    hasher.update(rest);
    hasher.finalize()
}

fn broken(what: &str, key: &[u8]) -> Error {
    Error::corrupt(format!("{what} of key {} is broken", show(key)))
}

/// A key as text for messages.
pub(crate) fn show(key: &[u8]) -> String {
    key.escape_ascii().to_string()
}

/// Checks the checksum and returns what it covers.
fn opened(what: &str, key: &[u8], bytes: &Bytes) -> Result<Bytes> {
    let crc = bytes.get(..CRC_BYTES).and_then(|crc| <[u8; 4]>::try_from(crc).ok());
    let crc = crc.ok_or_else(|| broken(what, key))?;
    if u32::from_be_bytes(crc) != crc_of(key, &bytes[CRC_BYTES..]) {
        return Err(broken(what, key));
    }
    Ok(bytes.slice(CRC_BYTES..))
}

/// Reads numbers and strings off the front of a value.
struct Reader {
    rest: Bytes,
}

impl Reader {
    fn take(&mut self, count: usize) -> Option<Bytes> {
        (self.rest.len() >= count).then(|| self.rest.split_to(count))
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn long(&mut self) -> Option<u64> {
        self.take(8).and_then(|bytes| <[u8; 8]>::try_from(bytes.as_ref()).ok()).map(u64::from_be_bytes)
    }

    fn timestamp(&mut self) -> Option<Timestamp> {
        self.long().map(Timestamp)
    }

    fn varint(&mut self) -> Option<usize> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return usize::try_from(value).ok();
            }
        }
        None
    }
}

fn put_varint(bytes: &mut BytesMut, value: usize) {
    let mut value = value as u64;
    while value >= 0x80 {
        bytes.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.put_u8(value as u8);
}

/// A committed version of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// When it committed.
    pub commit_ts: Timestamp,
    /// The transaction.
    pub start_ts: Timestamp,
    /// The commit of the version it replaced; zero for none.
    pub previous: Timestamp,
    /// The value; `None` for a delete.
    pub value: Option<Value>,
}

impl Version {
    pub(crate) fn encode(&self, key: &[u8]) -> Bytes {
        let value = self.value.as_deref().unwrap_or_default();
        let mut bytes = body(25 + value.len());
        bytes.put_u8(u8::from(self.value.is_some()));
        bytes.put_u64(self.commit_ts.0);
        bytes.put_u64(self.start_ts.0);
        bytes.put_u64(self.previous.0);
        bytes.put_slice(value);
        sealed(key, bytes)
    }

    pub(crate) fn decode(key: &[u8], bytes: &Bytes) -> Result<Version> {
        let mut reader = Reader { rest: opened("version", key, bytes)? };
        let mut parts = || {
            let kind = reader.byte()?;
            let (commit_ts, start_ts, previous) =
                (reader.timestamp()?, reader.timestamp()?, reader.timestamp()?);
            let value = std::mem::take(&mut reader.rest);
            let value = match kind {
                0 if value.is_empty() => None,
                1 => Some(value),
                _ => return None,
            };
            Some(Version { commit_ts, start_ts, previous, value })
        };
        parts().ok_or_else(|| broken("version", key))
    }
}

/// A record that holds no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub kind: RecordKind,
    pub start_ts: Timestamp,
    /// The start for a rollback.
    pub commit_ts: Timestamp,
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// A transaction in halves guarded the key.
    Lock,
    /// A transaction was rolled back.
    Rollback,
    /// A whole transaction guarded the key; nobody can ask for it by its start, so the newest suffices.
    WholeLock,
}

impl Record {
    pub(crate) fn write_kind(&self) -> WriteKind {
        match self.kind {
            RecordKind::Lock | RecordKind::WholeLock => WriteKind::Lock,
            RecordKind::Rollback => WriteKind::Rollback,
        }
    }

    pub(crate) fn encode_list(key: &[u8], records: &[Record]) -> Bytes {
        let mut bytes = body(records.len() * 17);
        for record in records {
            bytes.put_u8(match record.kind {
                RecordKind::Lock => 1,
                RecordKind::Rollback => 2,
                RecordKind::WholeLock => 3,
            });
            bytes.put_u64(record.start_ts.0);
            bytes.put_u64(record.commit_ts.0);
        }
        sealed(key, bytes)
    }

    pub(crate) fn decode_list(key: &[u8], bytes: &Bytes) -> Result<Vec<Record>> {
        let mut reader = Reader { rest: opened("records", key, bytes)? };
        let mut records = Vec::new();
        while !reader.rest.is_empty() {
            let mut record = || {
                let kind = match reader.byte()? {
                    1 => RecordKind::Lock,
                    2 => RecordKind::Rollback,
                    3 => RecordKind::WholeLock,
                    _ => return None,
                };
                Some(Record { kind, start_ts: reader.timestamp()?, commit_ts: reader.timestamp()? })
            };
            records.push(record().ok_or_else(|| broken("records", key))?);
        }
        Ok(records)
    }
}

/// Adds a record to a key's list, newest first, and drops what the new one replaces.
pub(crate) fn add_record(records: &mut Vec<Record>, record: Record) {
    if record.kind == RecordKind::WholeLock {
        records.retain(|old| old.kind != RecordKind::WholeLock);
    }
    let at = records.partition_point(|old| old.commit_ts > record.commit_ts);
    records.insert(at, record);
}

/// A lock with its value, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredLock {
    pub info: LockInfo,
    pub value: Value,
}

impl StoredLock {
    pub(crate) fn encode(&self) -> Bytes {
        let info = &self.info;
        let mut bytes = body(48 + info.primary.len() + self.value.len());
        bytes.put_u8(match info.kind {
            LockKind::Put => 1,
            LockKind::Delete => 2,
            LockKind::Lock => 3,
        });
        bytes.put_u64(info.start_ts.0);
        bytes.put_u64(info.ttl_ms);
        bytes.put_u64(info.txn_size);
        bytes.put_u64(info.min_commit_ts.0);
        put_varint(&mut bytes, info.primary.len());
        bytes.put_slice(&info.primary);
        bytes.put_slice(&self.value);
        sealed(&info.key, bytes)
    }

    pub(crate) fn decode(key: &Key, bytes: &Bytes) -> Result<StoredLock> {
        let mut reader = Reader { rest: opened("lock", key, bytes)? };
        let mut parts = || {
            let kind = match reader.byte()? {
                1 => LockKind::Put,
                2 => LockKind::Delete,
                3 => LockKind::Lock,
                _ => return None,
            };
            let start_ts = reader.timestamp()?;
            let (ttl_ms, txn_size) = (reader.long()?, reader.long()?);
            let min_commit_ts = reader.timestamp()?;
            let length = reader.varint()?;
            let primary = reader.take(length)?;
            let info =
                LockInfo { key: key.clone(), primary, start_ts, ttl_ms, txn_size, kind, min_commit_ts };
            Some(StoredLock { info, value: std::mem::take(&mut reader.rest) })
        };
        parts().ok_or_else(|| broken("lock", key))
    }
}

/// One changed key in a piece of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub key: Key,
    pub deleted: bool,
    /// The commit of the version it replaced; zero for none.
    pub previous: Timestamp,
}

/// A piece of what a commit changed, in key order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexPiece {
    pub start_ts: Timestamp,
    pub entries: Vec<IndexEntry>,
}

/// The most keys of one piece.
pub(crate) const PIECE_KEYS_MAX: usize = 256;

impl IndexPiece {
    pub(crate) fn encode(&self, index_key: &[u8]) -> Bytes {
        let mut bytes = body(16 + self.entries.len() * 32);
        bytes.put_u64(self.start_ts.0);
        let mut before: &[u8] = &[];
        for entry in &self.entries {
            let shared =
                before.iter().zip(entry.key.iter()).take_while(|(left, right)| left == right).count();
            put_varint(&mut bytes, shared);
            put_varint(&mut bytes, entry.key.len() - shared);
            bytes.put_slice(&entry.key[shared..]);
            bytes.put_u8(u8::from(entry.deleted));
            bytes.put_u64(entry.previous.0);
            before = &entry.key;
        }
        sealed(index_key, bytes)
    }

    pub(crate) fn decode(index_key: &[u8], bytes: &Bytes) -> Result<IndexPiece> {
        let mut reader = Reader { rest: opened("index", index_key, bytes)? };
        let start_ts = reader.timestamp().ok_or_else(|| broken("index", index_key))?;
        let mut entries: Vec<IndexEntry> = Vec::new();
        while !reader.rest.is_empty() {
            let before = entries.last().map(|entry| entry.key.clone()).unwrap_or_default();
            let mut entry = || {
                let (shared, more) = (reader.varint()?, reader.varint()?);
                let (shared, more) = (before.get(..shared)?, reader.take(more)?);
                let key = [shared, &more].concat();
                let deleted = reader.byte()? == 1;
                Some(IndexEntry { key: key.into(), deleted, previous: reader.timestamp()? })
            };
            entries.push(entry().ok_or_else(|| broken("index", index_key))?);
        }
        Ok(IndexPiece { start_ts, entries })
    }
}

/// How a piece of the index came about, which is part of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PieceKind {
    /// Pieces of one commit whose timestamp the store drew: disjoint and in order.
    Drawn = 0,
    /// Single keys committed at a timestamp that a caller named.
    Named = 1,
}

/// The key of a piece.
pub(crate) fn index_key(commit_ts: Timestamp, kind: PieceKind, first: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(9 + first.len());
    bytes.put_u64(commit_ts.0);
    bytes.put_u8(kind as u8);
    bytes.put_slice(first);
    bytes.freeze()
}

/// The commit timestamp and the kind in a piece's key.
pub(crate) fn split_index_key(bytes: &[u8]) -> Result<(Timestamp, PieceKind)> {
    let commit_ts =
        bytes.get(..8).and_then(|number| <[u8; 8]>::try_from(number).ok()).map(u64::from_be_bytes);
    let kind = match bytes.get(8) {
        Some(0) => Some(PieceKind::Drawn),
        Some(1) => Some(PieceKind::Named),
        _ => None,
    };
    commit_ts.map(Timestamp).zip(kind).ok_or_else(|| broken("index key", bytes))
}

/// What the key of a replaced version has beyond the escaped key.
const HISTORY_KEY_MORE: usize = 10;
/// How much of a long key a message shows.
const SHOWN_BYTES: usize = 64;

/// The key of a replaced version: versions of a key stand newest first, keys in their order.
pub(crate) fn history_key(key: &[u8], commit_ts: Timestamp) -> Bytes {
    let mut bytes = BytesMut::with_capacity(key.len() + 14);
    for byte in key {
        bytes.put_u8(*byte);
        if *byte == 0 {
            bytes.put_u8(0xff);
        }
    }
    bytes.put_slice(&[0, 1]);
    bytes.put_u64(!commit_ts.0);
    bytes.freeze()
}

/// Refuses a key that a store cannot take: an empty one, or one of more than 65,525 bytes, where a zero byte
/// counts twice. Of the forms in which a key is written that of a replaced version is the longest.
///
/// # Errors
/// `Invalid` if the store would refuse a write of the key.
pub fn check_key_length(key: &[u8]) -> Result<()> {
    let zeros = key.iter().filter(|byte| **byte == 0).count();
    let longest = key.len() + zeros + HISTORY_KEY_MORE;
    if key.is_empty() {
        return Err(Error::invalid("a key is empty"));
    }
    if longest > KEY_BYTES_MAX {
        let most = KEY_BYTES_MAX - HISTORY_KEY_MORE;
        return Err(Error::invalid(format!(
            "a key of {} bytes, {zeros} of them zero, is too long: a key may have {most} bytes, zero bytes count twice; it begins with {}",
            key.len(),
            show(&key[..key.len().min(SHOWN_BYTES)])
        )));
    }
    Ok(())
}

/// Wraps bytes (a blob, a fact of the store) with their checksum.
pub(crate) fn seal_bytes(key: &[u8], value: &[u8]) -> Bytes {
    let mut bytes = body(value.len());
    bytes.put_slice(value);
    sealed(key, bytes)
}

/// Checks and unwraps what [`seal_bytes`] made.
pub(crate) fn open_bytes(key: &[u8], bytes: &Bytes) -> Result<Bytes> {
    opened("value", key, bytes)
}

/// Wraps a number.
pub(crate) fn seal_number(key: &[u8], number: u64) -> Bytes {
    seal_bytes(key, &number.to_be_bytes())
}

/// Checks and unwraps a number.
pub(crate) fn open_number(key: &[u8], bytes: &Bytes) -> Result<u64> {
    let bytes = open_bytes(key, bytes)?;
    <[u8; 8]>::try_from(bytes.as_ref()).map(u64::from_be_bytes).map_err(|_| broken("number", key))
}

#[cfg(test)]
mod tests;
