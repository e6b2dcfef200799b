//! Own records beside the epoch record: a fill's position, a view's row count, what was dropped.
//!
//! All are JSON, so that an operator can read them, and change only in the transaction of an epoch or
//! of a DDL.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use store::{KeyRange, Snapshot};
use types::records::{EpochRecord, epoch_record_key, fill_position_key};
use types::{Error, JobId, Result, TableId, Timestamp};

/// How far a fill is: a key of each of its epochs' transactions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FillPosition {
    /// The view that is filled.
    pub view: TableId,
    /// The job that will adopt it.
    pub adopter: JobId,
    /// S0: the cut of every piece of the snapshot.
    pub snapshot: Timestamp,
    /// What comes next.
    pub phase: FillPhase,
    /// Source rows taken in so far.
    pub rows_done: u64,
    /// Whether it is to be adopted at S0, or at its job's cut if that has passed S0: a refresh of a view that
    /// stays at its cut.
    #[serde(default)]
    pub frozen: bool,
}

/// What a fill does next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FillPhase {
    /// Reads the next piece of a base table's snapshot.
    Snapshot {
        /// Position in the view's base tables.
        table_index: usize,
        /// The last key that was taken in, in hexadecimal; `None` before the first.
        last_key: Option<String>,
    },
    /// The snapshot is complete; reads changes until it is adopted.
    CatchUp,
}

/// What is known about a view's stored rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewStats {
    /// The number of stored rows.
    pub n_rows: u64,
}

/// What the last refresh of a view did: a key of its transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefreshRecord {
    /// How it was done.
    pub path: RefreshPath,
    /// Why so.
    pub reason: String,
    /// The cut that it reached.
    pub cut: Timestamp,
    /// When it was begun, in milliseconds of the store's clock.
    pub began_ms: u64,
    /// How long it took up to its commit, in milliseconds.
    pub duration_ms: u64,
    /// Source rows or changes that were read.
    pub rows_read: u64,
    /// View rows that were written.
    pub rows_written: u64,
    /// Changes that were read and had no part in the view.
    pub rows_skipped: u64,
    /// Rows of the base tables, as far as it is known from the last full refresh and the changes since.
    pub source_rows: u64,
}

/// How a refresh is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefreshPath {
    /// Nothing changed: only the checkpoint moves.
    Nothing,
    /// Rows were only inserted: nothing is retracted.
    InsertOnly,
    /// The changes run through the view's dataflow.
    Incremental,
    /// The view is built anew beside the old one, and swapped.
    Full,
}

impl RefreshPath {
    /// Its name in system tables and EXPLAIN.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RefreshPath::Nothing => "none",
            RefreshPath::InsertOnly => "insert-only",
            RefreshPath::Incremental => "incremental",
            RefreshPath::Full => "full",
        }
    }
}

impl FillPosition {
    /// The position of a fill, if it has one.
    ///
    /// # Errors
    /// `Corrupt` if it does not decode; what the store says.
    pub(crate) async fn read(snapshot: &Snapshot, fill: JobId) -> Result<Option<FillPosition>> {
        read(snapshot, &fill_position_key(fill), "position of a fill").await
    }
}

impl ViewStats {
    /// What is known about a view's rows; none yet if nothing was written.
    ///
    /// # Errors
    /// `Corrupt` if the record does not decode; what the store says.
    pub(crate) async fn read(snapshot: &Snapshot, view: TableId) -> Result<ViewStats> {
        Ok(read(snapshot, &view_stats_key(view), "row count of a view").await?.unwrap_or_default())
    }
}

impl RefreshRecord {
    /// What the last refresh of a view did, if there was one.
    ///
    /// # Errors
    /// `Corrupt` if the record does not decode; what the store says.
    pub(crate) async fn read(snapshot: &Snapshot, view: TableId) -> Result<Option<RefreshRecord>> {
        read(snapshot, &refresh_key(view), "refresh").await
    }
}

/// The epoch record of a job, if it has one.
///
/// # Errors
/// `Corrupt` if it does not decode; what the store says.
pub(crate) async fn read_epoch_record(snapshot: &Snapshot, job: JobId) -> Result<Option<EpochRecord>> {
    let value = snapshot.get(&epoch_record_key(job)).await?;
    value.map(|value| EpochRecord::decode(&value)).transpose()
}

async fn read<T: DeserializeOwned>(snapshot: &Snapshot, key: &[u8], what: &str) -> Result<Option<T>> {
    snapshot.get(key).await?.map(|value| decode(what, &value)).transpose()
}

/// The keys of a table's rows.
///
/// # Errors
/// `Corrupt` if the id is too large, which no allocator hands out.
pub(crate) fn rows_of(table: TableId) -> Result<KeyRange> {
    let id = i64::try_from(table.0).map_err(|_| Error::corrupt("a table's id is too large"))?;
    let (start, end) = tidb::record_range(id);
    Ok(KeyRange::new(start, end))
}

/// Encodes a record.
///
/// # Errors
/// `Corrupt` if it does not serialise, which is a bug.
pub(crate) fn encode<T: Serialize>(record: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(record).map_err(|error| Error::corrupt(format!("record does not serialise: {error}")))
}

/// Decodes a record; `what` names it in the error.
///
/// # Errors
/// `Corrupt` if the bytes are no such record.
pub(crate) fn decode<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|error| Error::corrupt(format!("{what}: {error}")))
}

/// Bytes in hexadecimal.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes of a hexadecimal text.
///
/// # Errors
/// `Corrupt` if it is none.
pub(crate) fn from_hex(text: &str) -> Result<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    match digits {
        Some(digits) if digits.len().is_multiple_of(2) => {
            Ok(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
        }
        _ => Err(Error::corrupt(format!("not hexadecimal: {text}"))),
    }
}

/// What is known about a view's stored rows.
#[must_use]
pub fn view_stats_key(view: TableId) -> Vec<u8> {
    numbered(b"s/", view.0)
}

/// What the last refresh of a view did.
#[must_use]
pub fn refresh_key(view: TableId) -> Vec<u8> {
    numbered(b"f/", view.0)
}

fn numbered(kind: &[u8], number: u64) -> Vec<u8> {
    [types::records::PREFIX, kind, &number.to_be_bytes()].concat()
}
