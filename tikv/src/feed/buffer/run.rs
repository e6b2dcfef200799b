//! A sorted temporary file of changes, with a sparse index in memory.
//!
//! A record is its length, two timestamps, the key's length and the key, what there is, the value's length
//! and the value, and the old value in the rest. The file is this process's own: no checksums.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use store::Change;
use types::{Error, Result, Timestamp};

use super::Position;

/// One entry of the index for so many bytes.
const INDEX_BYTES: u64 = 64 << 10;
const HAS_VALUE: u8 = 1;
const HAS_OLD_VALUE: u8 = 2;

/// A finished file.
#[derive(Debug)]
pub(super) struct Run {
    file: File,
    /// Where some records begin, the first among them.
    index: Vec<(Position, u64)>,
    n_bytes: u64,
    last: Timestamp,
}

impl Run {
    /// The last commit timestamp in it.
    pub(super) fn last(&self) -> Timestamp {
        self.last
    }

    /// Its size.
    pub(super) fn n_bytes(&self) -> u64 {
        self.n_bytes
    }

    /// Reads on from a position; one reader at a time.
    pub(super) fn read_from(&self, from: &Position) -> Result<RunReader<'_>> {
        let after = self.index.partition_point(|(position, _)| position <= from);
        let offset = after.checked_sub(1).map_or(0, |at| self.index[at].1);
        let mut file = BufReader::with_capacity(INDEX_BYTES as usize, &self.file);
        file.seek(SeekFrom::Start(offset)).map_err(broken)?;
        Ok(RunReader { file, n_left: self.n_bytes - offset, from: Some(from.clone()) })
    }
}

/// Reads a file's changes in order.
pub(super) struct RunReader<'a> {
    file: BufReader<&'a File>,
    n_left: u64,
    from: Option<Position>,
}

impl RunReader<'_> {
    /// The next change.
    pub(super) fn next(&mut self) -> Result<Option<Change>> {
        while self.n_left > 0 {
            let mut length = [0; 8];
            self.file.read_exact(&mut length).map_err(broken)?;
            let length = u64::from_be_bytes(length);
            let mut record = vec![0; usize::try_from(length).expect("a record was in memory once")];
            self.file.read_exact(&mut record).map_err(broken)?;
            self.n_left -= 8 + length;
            let change = decode(Bytes::from(record));
            let is_before = |from: &Position| (change.commit_ts, &change.key) < (from.0, &from.1);
            if !self.from.as_ref().is_some_and(is_before) {
                self.from = None;
                return Ok(Some(change));
            }
        }
        Ok(None)
    }
}

/// Writes changes in order.
pub(super) struct RunWriter {
    file: BufWriter<File>,
    index: Vec<(Position, u64)>,
    n_bytes: u64,
    last: Timestamp,
}

impl RunWriter {
    /// Begins a file in a directory.
    pub(super) fn create(directory: Option<&Path>) -> Result<RunWriter> {
        let file = match directory {
            Some(directory) => tempfile::tempfile_in(directory),
            None => tempfile::tempfile(),
        };
        let file = BufWriter::with_capacity(1 << 20, file.map_err(broken)?);
        Ok(RunWriter { file, index: Vec::new(), n_bytes: 0, last: Timestamp::ZERO })
    }

    /// Appends a change, which comes after the one before.
    pub(super) fn write(&mut self, change: &Change) -> Result<()> {
        if self.index.last().is_none_or(|(_, offset)| self.n_bytes >= offset + INDEX_BYTES) {
            self.index.push(((change.commit_ts, change.key.clone()), self.n_bytes));
        }
        let record = encode(change);
        self.file.write_all(&(record.len() as u64).to_be_bytes()).map_err(broken)?;
        self.file.write_all(&record).map_err(broken)?;
        self.n_bytes += 8 + record.len() as u64;
        self.last = change.commit_ts;
        Ok(())
    }

    /// Ends the file; `None` if there is nothing in it.
    pub(super) fn finish(self) -> Result<Option<Run>> {
        let RunWriter { file, index, n_bytes, last } = self;
        let file = file.into_inner().map_err(|error| broken(error.into_error()))?;
        Ok((n_bytes > 0).then_some(Run { file, index, n_bytes, last }))
    }
}

fn broken(error: std::io::Error) -> Error {
    Error::unavailable(format!("a temporary file of the change feed: {error}"))
}

fn encode(change: &Change) -> BytesMut {
    let value = change.value.as_deref().unwrap_or_default();
    let old_value = change.old_value.as_deref().unwrap_or_default();
    let mut record = BytesMut::with_capacity(33 + change.key.len() + value.len() + old_value.len());
    record.put_u64(change.commit_ts.0);
    record.put_u64(change.start_ts.0);
    record.put_u64(change.key.len() as u64);
    record.put_slice(&change.key);
    let has = |flag, is_there| if is_there { flag } else { 0 };
    record.put_u8(has(HAS_VALUE, change.value.is_some()) | has(HAS_OLD_VALUE, change.old_value.is_some()));
    record.put_u64(value.len() as u64);
    record.put_slice(value);
    record.put_slice(old_value);
    record
}

fn decode(mut record: Bytes) -> Change {
    let sized = |record: &mut Bytes| {
        let length = record.get_u64();
        record.split_to(usize::try_from(length).expect("a part was in memory once"))
    };
    let commit_ts = Timestamp(record.get_u64());
    let start_ts = Timestamp(record.get_u64());
    let key = sized(&mut record);
    let flags = record.get_u8();
    let value = sized(&mut record);
    Change {
        key,
        start_ts,
        commit_ts,
        value: (flags & HAS_VALUE != 0).then_some(value),
        old_value: (flags & HAS_OLD_VALUE != 0).then_some(record),
    }
}
