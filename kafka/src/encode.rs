//! Changes of rows as messages of a sink, in JSON.
//!
//! What is written is a function of the rows alone: the same change gives the same bytes, so that a
//! publisher that tries again writes what it wrote before. Each format is read back exactly by the decoder of
//! the same name; numbers are never written with fewer digits than they have.

mod canal;
mod cell;
mod debezium;
mod plain;

use arrow::array::RecordBatch;
use tidb::ColumnInfo;
use types::{Error, Result, Timestamp};

use crate::event::TableName;

pub(crate) use cell::CellValue;

/// The format of a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkFormat {
    /// Rows that appear; a change that removes one is an error.
    Plain,
    /// The newest row of each key; a removed one is a message without a value.
    Upsert,
    /// Debezium's envelope, with its schemas.
    Debezium {
        /// Whether a message without a value follows a delete, for compaction.
        tombstones: bool,
    },
    /// TiCDC's Canal-JSON with the extension: TiCDC's own consumers read it.
    Canal,
}

/// A row of a batch.
#[derive(Clone, Copy, Debug)]
pub struct RowOf<'a> {
    /// The batch.
    pub batch: &'a RecordBatch,
    /// The row's position.
    pub row: usize,
}

/// The net change of a key.
#[derive(Clone, Copy, Debug)]
pub struct RowChange<'a> {
    /// The row before, if there was one.
    pub old: Option<RowOf<'a>>,
    /// The row after, if there is one.
    pub new: Option<RowOf<'a>>,
}

/// What goes into a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedMessage {
    /// The key.
    pub key: Option<Vec<u8>>,
    /// The value.
    pub value: Option<Vec<u8>>,
}

/// Writes changes of one table or view.
#[derive(Clone, Debug)]
pub struct ChangeEncoder {
    format: SinkFormat,
    table: TableName,
    columns: Vec<ColumnInfo>,
    key: Vec<usize>,
}

impl ChangeEncoder {
    /// An encoder; `key` are the positions of the columns that identify a row.
    ///
    /// # Errors
    /// `Invalid` if the format needs a key and there is none.
    pub fn new(
        format: SinkFormat,
        table: TableName,
        columns: Vec<ColumnInfo>,
        key: Vec<usize>,
    ) -> Result<ChangeEncoder> {
        if key.is_empty() && format != SinkFormat::Plain {
            return Err(Error::invalid(format!("{table} has no key by which {format:?} knows its rows")));
        }
        if key.iter().any(|at| *at >= columns.len()) {
            return Err(Error::invalid(format!("{table}: a column of the key is not there")));
        }
        Ok(ChangeEncoder { format, table, columns, key })
    }

    /// The messages of a change, in their order.
    ///
    /// # Errors
    /// `Invalid` for a change that the format cannot say, or a batch of other columns.
    pub fn encode(&self, change: RowChange<'_>, at: Timestamp) -> Result<Vec<EncodedMessage>> {
        let old = change.old.map(|row| self.cells(row)).transpose()?;
        let new = change.new.map(|row| self.cells(row)).transpose()?;
        let (old, new) = (old.as_deref(), new.as_deref());
        match self.format {
            SinkFormat::Plain => self.plain(old, new),
            SinkFormat::Upsert => Ok(self.upsert(old, new)),
            SinkFormat::Debezium { tombstones } => Ok(self.debezium(old, new, at, tombstones)),
            SinkFormat::Canal => Ok(self.canal(old, new, at)),
        }
    }

    /// The message that says that everything up to a timestamp has been written, for each partition.
    /// `None` where the format has no such message.
    #[must_use]
    pub fn watermark(&self, at: Timestamp) -> Option<EncodedMessage> {
        let text = (self.format == SinkFormat::Canal).then(|| canal::watermark(at))?;
        Some(EncodedMessage { key: None, value: Some(text.into_bytes()) })
    }

    fn cells<'a>(&self, row: RowOf<'a>) -> Result<Vec<CellValue<'a>>> {
        if row.batch.num_columns() != self.columns.len() {
            let n_columns = row.batch.num_columns();
            return Err(Error::invalid(format!(
                "{} has {} columns, not {n_columns}",
                self.table,
                self.columns.len()
            )));
        }
        let columns = self.columns.iter().zip(row.batch.columns());
        columns.map(|(column, array)| CellValue::of(column, array, row.row)).collect()
    }

    /// Whether a change leaves a row under its key.
    fn keeps_key(&self, old: &[CellValue<'_>], new: &[CellValue<'_>]) -> bool {
        self.key.iter().all(|at| old[*at] == new[*at])
    }
}
