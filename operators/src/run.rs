//! Runs: immutable, sorted, encoded pieces of state.
//!
//! Frozen format; the same bytes in memory, on disk and in the store. Keys begin with their hash
//! ([`keyed`](crate::keyed)), so a directory by hash leads a probe to a handful of entries and answers
//! most misses without touching data. All numbers are little-endian.
//!
//! ```text
//! "TMR1" kind:u8 0 0 0 | n_rows stride shift first_hash last_hash n_buckets data_bytes : u32 each
//! directory: (n_buckets + 1) u32       first entry of each bucket of hashes
//! offsets:   (n_rows + 1) u32          only if stride is 0, that is if entries differ in length
//! data:      entries                   key, then what follows is read from the end:
//!     multiset   weight as i8, or 8 bytes of weight and 127
//!     map        value and its length as u8; or value, 4 bytes of length, 255; or 254: deleted
//! checksum:  u64                       xxh3 of all before
//! ```

use bytes::Bytes;
use types::{Error, Result};
use xxhash_rust::xxh3::xxh3_64;

use crate::encoding::{EncodedRows, HASH_BYTES};

const MAGIC: &[u8; 4] = b"TMR1";
const HEADER_BYTES: usize = 36;
const CHECKSUM_BYTES: usize = 8;
const WEIGHT_LONG: u8 = 127;
const VALUE_DELETED: u8 = 254;
const VALUE_LONG: u8 = 255;

/// What the entries of a state mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateKind {
    /// Row -> weight; entries of one row add up, and a row of weight 0 is not there.
    Multiset,
    /// Key -> value; the newest entry of a key counts, and it may say that the key is gone.
    Map,
}

/// An immutable sorted run; a clone shares the bytes.
#[derive(Clone, Debug)]
pub struct Run {
    bytes: Bytes,
    kind: StateKind,
    /// All entries, those that are left out included.
    n_rows: usize,
    /// Entries at the beginning that are left out.
    n_left_out: usize,
    stride: usize,
    shift: u32,
    /// Of all entries: where the directory begins.
    first_hash: u32,
    last_hash: u32,
    offsets_at: usize,
    data_at: usize,
}

impl Run {
    /// Opens a run's bytes, all of which are checked.
    ///
    /// # Errors
    /// `Corrupt` if these are not the bytes of a run.
    ///
    /// # Panics
    /// Never: the checksum is cut to eight bytes.
    pub fn from_bytes(bytes: Bytes) -> Result<Run> {
        let checksum_at = bytes.len().checked_sub(CHECKSUM_BYTES).ok_or_else(|| broken("too short"))?;
        let stored = u64::from_le_bytes(bytes[checksum_at..].try_into().expect("cut to 8 bytes"));
        if xxh3_64(&bytes[..checksum_at]) != stored {
            return Err(broken("checksum differs"));
        }
        Run::open(bytes)
    }

    /// Reads the header and checks that the sections fit.
    fn open(bytes: Bytes) -> Result<Run> {
        if bytes.len() < HEADER_BYTES + CHECKSUM_BYTES || &bytes[..4] != MAGIC {
            return Err(broken("not a run"));
        }
        let kind = match bytes[4] {
            0 => StateKind::Multiset,
            1 => StateKind::Map,
            _ => return Err(broken("unknown kind")),
        };
        let field = |index: usize| read_u32(&bytes, 8 + 4 * index);
        let (n_rows, stride, shift, n_buckets) =
            (field(0) as usize, field(1) as usize, field(2), field(5) as usize);
        let offsets_at = HEADER_BYTES + 4 * (n_buckets + 1);
        let data_at = offsets_at + if stride == 0 { 4 * (n_rows + 1) } else { 0 };
        if data_at + field(6) as usize + CHECKSUM_BYTES != bytes.len() || shift > 31 {
            return Err(broken("sections do not fit"));
        }
        let (first_hash, last_hash) = (field(3), field(4));
        let n_left_out = 0;
        Ok(Run { kind, n_rows, n_left_out, stride, shift, first_hash, last_hash, offsets_at, data_at, bytes })
    }

    /// The same run, its first entries left out; the bytes stay whole.
    ///
    /// # Panics
    /// If there are not so many.
    #[must_use]
    pub fn without_first(&self, n_entries: usize) -> Run {
        assert!(n_entries <= self.n_rows(), "a run of {} entries, not {n_entries}", self.n_rows());
        Run { n_left_out: self.n_left_out + n_entries, ..self.clone() }
    }

    /// The bytes to keep, those of entries that are left out included.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// What its entries mean.
    #[must_use]
    pub fn kind(&self) -> StateKind {
        self.kind
    }

    /// The number of entries.
    #[must_use]
    pub fn n_rows(&self) -> usize {
        self.n_rows - self.n_left_out
    }

    /// The number of bytes.
    #[must_use]
    pub fn n_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The least hash of a key.
    #[must_use]
    pub fn first_hash(&self) -> u32 {
        if self.n_left_out == 0 || self.n_rows() == 0 { self.first_hash } else { hash_of(self.key(0)) }
    }

    /// The greatest hash of a key.
    #[must_use]
    pub fn last_hash(&self) -> u32 {
        self.last_hash
    }

    fn entry(&self, index: usize) -> &[u8] {
        let index = index + self.n_left_out;
        let (start, end) = if self.stride == 0 {
            let at = self.offsets_at + 4 * index;
            (read_u32(&self.bytes, at) as usize, read_u32(&self.bytes, at + 4) as usize)
        } else {
            (index * self.stride, (index + 1) * self.stride)
        };
        &self.bytes[self.data_at + start..self.data_at + end]
    }

    /// The key of an entry, hash included.
    ///
    /// # Panics
    /// If there is no such entry.
    #[must_use]
    pub fn key(&self, index: usize) -> &[u8] {
        let entry = self.entry(index);
        let tag = entry[entry.len() - 1];
        let tail = match (self.kind, tag) {
            (StateKind::Multiset, WEIGHT_LONG) => 9,
            (StateKind::Multiset, _) | (StateKind::Map, VALUE_DELETED) => 1,
            (StateKind::Map, VALUE_LONG) => 5 + read_u32(entry, entry.len() - 5) as usize,
            (StateKind::Map, length) => 1 + length as usize,
        };
        &entry[..entry.len() - tail]
    }

    /// The weight of an entry of a multiset.
    ///
    /// # Panics
    /// If there is no such entry.
    #[must_use]
    pub fn weight(&self, index: usize) -> i64 {
        debug_assert_eq!(self.kind, StateKind::Multiset);
        let entry = self.entry(index);
        match entry[entry.len() - 1] {
            WEIGHT_LONG => {
                let at = entry.len() - 9;
                i64::from_le_bytes(entry[at..at + 8].try_into().expect("cut to 8 bytes"))
            }
            short => i64::from(short as i8),
        }
    }

    /// The value of an entry of a map; none if it says that the key is gone.
    ///
    /// # Panics
    /// If there is no such entry.
    #[must_use]
    pub fn value(&self, index: usize) -> Option<&[u8]> {
        debug_assert_eq!(self.kind, StateKind::Map);
        let entry = self.entry(index);
        let (tail, length) = match entry[entry.len() - 1] {
            VALUE_DELETED => return None,
            VALUE_LONG => (5, read_u32(entry, entry.len() - 5) as usize),
            length => (1, length as usize),
        };
        let end = entry.len() - tail;
        Some(&entry[end - length..end])
    }

    /// The first entry whose key is not below the given one.
    #[must_use]
    pub fn lower_bound(&self, key: &[u8]) -> usize {
        let hash = hash_of(key);
        if self.n_rows() == 0 || hash < self.first_hash {
            return 0;
        }
        if hash > self.last_hash {
            return self.n_rows();
        }
        let at = HEADER_BYTES + 4 * (((hash - self.first_hash) >> self.shift) as usize);
        let entry = |at: usize| (read_u32(&self.bytes, at) as usize).saturating_sub(self.n_left_out);
        let (mut low, mut high) = (entry(at), entry(at + 4));
        while low < high {
            let middle = low.midpoint(high);
            if self.key(middle) < key { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// The entries whose keys begin with the prefix (which holds at least the hash).
    #[must_use]
    pub fn prefix_range(&self, prefix: &[u8]) -> std::ops::Range<usize> {
        let start = self.lower_bound(prefix);
        // Gallop: most prefixes have few entries.
        let mut step = 1;
        let mut low = start;
        while low + step <= self.n_rows() && self.key(low + step - 1).starts_with(prefix) {
            low += step;
            step *= 2;
        }
        let mut high = (low + step).min(self.n_rows() + 1) - 1;
        while low < high {
            let middle = low.midpoint(high);
            if self.key(middle).starts_with(prefix) { low = middle + 1 } else { high = middle }
        }
        start..low
    }

    /// The entry of exactly this key.
    #[must_use]
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        let index = self.lower_bound(key);
        (index < self.n_rows() && self.key(index) == key).then_some(index)
    }
}

fn broken(what: &str) -> Error {
    Error::corrupt(format!("state run: {what}"))
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("cut to 4 bytes"))
}

/// The hash at the beginning of a key (a shorter key counts as padded with zeros).
pub(crate) fn hash_of(key: &[u8]) -> u32 {
    match key.first_chunk::<HASH_BYTES>() {
        Some(bytes) => u32::from_be_bytes(*bytes),
        None => key
            .iter()
            .chain([0; HASH_BYTES].iter())
            .take(HASH_BYTES)
            .fold(0, |hash, b| hash << 8 | u32::from(*b)),
    }
}

/// The first eight bytes of a key as a number that orders like them.
pub(crate) fn order_prefix(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(bytes)
        }
    }
}

/// Writes a run from entries in the order of their keys, each key once.
#[derive(Debug)]
pub struct RunBuilder {
    kind: StateKind,
    data: Vec<u8>,
    offsets: Vec<u32>,
    /// The length of all entries so far, while they are equal.
    stride: Option<usize>,
}

impl RunBuilder {
    /// An empty run to be.
    #[must_use]
    pub fn new(kind: StateKind) -> RunBuilder {
        RunBuilder { kind, data: Vec::new(), offsets: vec![0], stride: None }
    }

    /// The number of entries so far.
    #[must_use]
    pub fn n_rows(&self) -> usize {
        self.offsets.len() - 1
    }

    /// The bytes of data so far.
    #[must_use]
    pub fn n_bytes(&self) -> usize {
        self.data.len()
    }

    /// Appends a row of a multiset.
    ///
    /// # Panics
    /// If a run exceeds 4 GiB; runs are cut long before.
    pub fn push_weight(&mut self, key: &[u8], weight: i64) {
        debug_assert_eq!(self.kind, StateKind::Multiset);
        self.data.extend_from_slice(key);
        match i8::try_from(weight) {
            Ok(short) if short as u8 != WEIGHT_LONG => self.data.push(short as u8),
            _ => {
                self.data.extend_from_slice(&weight.to_le_bytes());
                self.data.push(WEIGHT_LONG);
            }
        }
        self.end_entry();
    }

    /// Appends a key of a map with its value, or with none to say that it is gone.
    ///
    /// # Panics
    /// If a run exceeds 4 GiB; runs are cut long before.
    pub fn push_value(&mut self, key: &[u8], value: Option<&[u8]>) {
        debug_assert_eq!(self.kind, StateKind::Map);
        self.data.extend_from_slice(key);
        match value {
            None => self.data.push(VALUE_DELETED),
            Some(value) => {
                self.data.extend_from_slice(value);
                match u8::try_from(value.len()) {
                    Ok(length) if length < VALUE_DELETED => self.data.push(length),
                    _ => {
                        let length = u32::try_from(value.len()).expect("a value is below 4 GiB");
                        self.data.extend_from_slice(&length.to_le_bytes());
                        self.data.push(VALUE_LONG);
                    }
                }
            }
        }
        self.end_entry();
    }

    fn end_entry(&mut self) {
        let start = self.offsets[self.offsets.len() - 1] as usize;
        let length = self.data.len() - start;
        self.stride = match self.stride {
            None => Some(length),
            Some(stride) if stride == length => Some(stride),
            Some(_) => Some(0),
        };
        self.offsets.push(u32::try_from(self.data.len()).expect("a run is below 4 GiB"));
    }

    fn hash(&self, index: usize) -> u32 {
        hash_of(&self.data[self.offsets[index] as usize..])
    }

    /// The run.
    ///
    /// # Panics
    /// Never: the sections were just laid out.
    #[must_use]
    pub fn finish(self) -> Run {
        let n_rows = self.n_rows();
        let (first_hash, last_hash) =
            if n_rows == 0 { (0, 0) } else { (self.hash(0), self.hash(n_rows - 1)) };
        assert!(first_hash <= last_hash, "entries of a run come in order");
        let stride = self.stride.unwrap_or(0);
        let (shift, n_buckets) = directory_shape(last_hash - first_hash, n_rows);
        let offsets_bytes = if stride == 0 { 4 * (n_rows + 1) } else { 0 };
        let total = HEADER_BYTES + 4 * (n_buckets + 1) + offsets_bytes + self.data.len() + CHECKSUM_BYTES;
        let mut bytes = Vec::with_capacity(total);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&[u8::from(self.kind == StateKind::Map), 0, 0, 0]);
        let number = |number: usize| u32::try_from(number).expect("a run is below 4 GiB");
        for field in [
            number(n_rows),
            number(stride),
            shift,
            first_hash,
            last_hash,
            number(n_buckets),
            number(self.data.len()),
        ] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        let mut row = 0;
        for bucket in 0..n_buckets {
            while row < n_rows && (((self.hash(row) - first_hash) >> shift) as usize) < bucket {
                row += 1;
            }
            bytes.extend_from_slice(&number(row).to_le_bytes());
        }
        bytes.extend_from_slice(&number(n_rows).to_le_bytes());
        if stride == 0 {
            for offset in &self.offsets {
                bytes.extend_from_slice(&offset.to_le_bytes());
            }
        }
        bytes.extend_from_slice(&self.data);
        let checksum = xxh3_64(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        Run::open(Bytes::from(bytes)).expect("the sections were just laid out")
    }
}

/// About one bucket for eight entries, over the span of hashes.
fn directory_shape(span: u32, n_rows: usize) -> (u32, usize) {
    let wanted = (n_rows / 8).max(1).next_power_of_two() as u64;
    let mut shift = 0;
    while u64::from(span >> shift) >= wanted && shift < 31 {
        shift += 1;
    }
    (shift, (span >> shift) as usize + 1)
}

/// Sorts encoded rows and adds up the weights of equal ones: a run of a multiset.
///
/// # Errors
/// `Corrupt` if weights overflow.
///
/// # Panics
/// If there is not one weight a row.
pub fn consolidate_rows(rows: &EncodedRows, weights: &[i64]) -> Result<Run> {
    assert_eq!(rows.n_rows(), weights.len(), "one weight a row");
    let mut order: Vec<(u64, u32)> =
        rows.iter().enumerate().map(|(index, row)| (order_prefix(row), index as u32)).collect();
    order.sort_unstable_by(|left, right| {
        left.0.cmp(&right.0).then_with(|| rows.row(left.1 as usize).cmp(rows.row(right.1 as usize)))
    });
    let mut builder = RunBuilder::new(StateKind::Multiset);
    let mut at = 0;
    while at < order.len() {
        let (prefix, index) = order[at];
        let row = rows.row(index as usize);
        let mut weight = weights[index as usize];
        at += 1;
        while at < order.len() && order[at].0 == prefix && rows.row(order[at].1 as usize) == row {
            weight = add_weights(weight, weights[order[at].1 as usize])?;
            at += 1;
        }
        if weight != 0 {
            builder.push_weight(row, weight);
        }
    }
    Ok(builder.finish())
}

pub(crate) fn add_weights(left: i64, right: i64) -> Result<i64> {
    left.checked_add(right).ok_or_else(|| Error::corrupt("weight overflow"))
}
