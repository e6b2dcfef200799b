//! Row format v2: the bytes of a row's value.
//!
//! ```text
//! 128  flags  n_notnull u16  n_null u16
//! column ids: not-null ascending, then null ascending      (u8, or u32 if large)
//! end offsets of the not-null values in the data           (u16, or u32 if large)
//! data
//! [checksum: header byte, CRC-32 u32, extra CRC-32 u32 if the header says so]
//! ```
//!
//! All numbers little-endian; large if an id is above 255 or the data above 65,535 bytes.

use types::{Error, Result};

use crate::comparable::{take, take_array};
use crate::row_checksum::verify_checksum;

/// The first byte of every row in this format.
pub(crate) const VERSION: u8 = 128;
const FLAG_LARGE: u8 = 1;
pub(crate) const FLAG_CHECKSUM: u8 = 2;

/// What a row's value says about a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored<'a> {
    /// Its value.
    Value(&'a [u8]),
    /// It is NULL.
    Null,
    /// Nothing: the handle has it, or the column's default of old rows.
    Absent,
}

/// The parts of a row's value.
#[derive(Clone, Copy, Debug)]
pub struct RowView<'a> {
    large: bool,
    n_notnull: usize,
    n_null: usize,
    ids: &'a [u8],
    offsets: &'a [u8],
    data: &'a [u8],
}

impl<'a> RowView<'a> {
    /// Takes a row's value apart and verifies its checksum, if it has one.
    ///
    /// # Errors
    /// `Corrupt` if the bytes are no row, or the checksum does not match.
    pub fn parse(key: &[u8], value: &'a [u8]) -> Result<RowView<'a>> {
        let mut rest = value;
        let [version, flags] = take_array(&mut rest)?;
        if version != VERSION {
            return Err(Error::corrupt(format!("row format {version} is not supported, only 128")));
        }
        if flags & !(FLAG_LARGE | FLAG_CHECKSUM) != 0 {
            return Err(Error::corrupt(format!("unknown row flags {flags:#x}")));
        }
        let large = flags & FLAG_LARGE != 0;
        let n_notnull = usize::from(u16::from_le_bytes(take_array(&mut rest)?));
        let n_null = usize::from(u16::from_le_bytes(take_array(&mut rest)?));
        let ids = take(&mut rest, (n_notnull + n_null) * if large { 4 } else { 1 })?;
        let offsets = take(&mut rest, n_notnull * if large { 4 } else { 2 })?;
        let mut view = RowView { large, n_notnull, n_null, ids, offsets, data: &[] };
        let n_data = view.checked_data_len()?;
        view.data = take(&mut rest, n_data)?;
        if flags & FLAG_CHECKSUM != 0 {
            verify_checksum(key, &value[..value.len() - rest.len()], &mut rest)?;
        }
        if rest.is_empty() { Ok(view) } else { Err(Error::corrupt("bytes after the end of a row")) }
    }

    /// What the value says about a column. Start looking at the `hint`th not-null column, if it is known.
    #[must_use]
    pub fn find(&self, id: i64, hint: &mut usize) -> Stored<'a> {
        if *hint < self.n_notnull && self.id(*hint) == id {
            return Stored::Value(self.value(*hint));
        }
        if let Some(at) = self.search(0, self.n_notnull, id) {
            *hint = at;
            return Stored::Value(self.value(at));
        }
        match self.search(self.n_notnull, self.n_notnull + self.n_null, id) {
            Some(_) => Stored::Null,
            None => Stored::Absent,
        }
    }

    /// The ids of the not-null columns with their values.
    pub fn values(&self) -> impl Iterator<Item = (i64, &'a [u8])> + '_ {
        (0..self.n_notnull).map(|at| (self.id(at), self.value(at)))
    }

    /// The length of the data; checks that offsets never go back, so that values can be cut out blindly.
    fn checked_data_len(&self) -> Result<usize> {
        let mut last = 0;
        for at in 0..self.n_notnull {
            let end = self.end(at);
            if end < last {
                return Err(Error::corrupt("offsets of a row go back"));
            }
            last = end;
        }
        Ok(last)
    }

    fn search(&self, mut low: usize, mut high: usize, id: i64) -> Option<usize> {
        while low < high {
            let middle = low.midpoint(high);
            match self.id(middle).cmp(&id) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Some(middle),
            }
        }
        None
    }

    fn id(&self, at: usize) -> i64 {
        if self.large {
            i64::from(u32::from_le_bytes([
                self.ids[4 * at],
                self.ids[4 * at + 1],
                self.ids[4 * at + 2],
                self.ids[4 * at + 3],
            ]))
        } else {
            i64::from(self.ids[at])
        }
    }

    fn end(&self, at: usize) -> usize {
        if self.large {
            let bytes = &self.offsets[4 * at..4 * at + 4];
            u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize
        } else {
            usize::from(u16::from_le_bytes([self.offsets[2 * at], self.offsets[2 * at + 1]]))
        }
    }

    fn value(&self, at: usize) -> &'a [u8] {
        let start = if at == 0 { 0 } else { self.end(at - 1) };
        &self.data[start..self.end(at)]
    }
}

/// Puts a row's value together; kept between rows so that nothing is allocated for each.
#[derive(Debug, Default)]
pub(crate) struct RowAssembler {
    notnull: Vec<i64>,
    null: Vec<i64>,
    ends: Vec<u32>,
    data: Vec<u8>,
}

impl RowAssembler {
    /// Begins a new row.
    pub(crate) fn clear(&mut self) {
        self.notnull.clear();
        self.null.clear();
        self.ends.clear();
        self.data.clear();
    }

    /// Adds a value: `write` appends its bytes. Ids come in ascending order.
    pub(crate) fn value(&mut self, id: i64, write: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
        write(&mut self.data)?;
        let end = u32::try_from(self.data.len())
            .map_err(|_| Error::mysql(1118, "row size too large: its data exceed 4 GiB"))?;
        self.notnull.push(id);
        self.ends.push(end);
        Ok(())
    }

    /// Adds a NULL. Ids come in ascending order.
    pub(crate) fn null(&mut self, id: i64) {
        self.null.push(id);
    }

    /// The bytes of the row.
    pub(crate) fn assemble(&self) -> Vec<u8> {
        let ids = || self.notnull.iter().chain(&self.null).copied();
        let large = self.data.len() > usize::from(u16::MAX) || ids().any(|id| id > 255);
        let n_ids = self.notnull.len() + self.null.len();
        let mut out = Vec::with_capacity(6 + n_ids * 8 + self.data.len());
        out.extend_from_slice(&[VERSION, if large { FLAG_LARGE } else { 0 }]);
        out.extend_from_slice(&(self.notnull.len() as u16).to_le_bytes());
        out.extend_from_slice(&(self.null.len() as u16).to_le_bytes());
        for id in ids() {
            if large {
                out.extend_from_slice(&(id as u32).to_le_bytes());
            } else {
                out.push(id as u8);
            }
        }
        for end in &self.ends {
            if large {
                out.extend_from_slice(&end.to_le_bytes());
            } else {
                out.extend_from_slice(&(*end as u16).to_le_bytes());
            }
        }
        out.extend_from_slice(&self.data);
        out
    }
}
