//! Rows of Arrow batches as keys and values.
//!
//! What TiDB leaves out of a value is left out here: an integer primary key, columns of a common handle
//! that can be read back from it, and NULLs of columns without a default. So a row has one encoding, and
//! equal rows have equal bytes.

use arrow::array::RecordBatch;
use types::{Error, Result};

use crate::cells::Cells;
use crate::comparable::put_i64;
use crate::key::{COMMON_HANDLE_LEN_MIN, put_record_prefix};
use crate::row::RowAssembler;
use crate::schema::TableInfo;

/// A row's key and value.
pub type EncodedRow = (Vec<u8>, Vec<u8>);

/// Encodes rows of one table. Batches hold all public columns of the table, in order.
#[derive(Clone, Debug)]
pub struct RowEncoder {
    table: TableInfo,
    /// Positions of columns in ascending order of their ids.
    by_id: Vec<usize>,
    /// For each column, its place in the primary key.
    in_key: Vec<bool>,
}

impl RowEncoder {
    /// Makes an encoder for a table.
    ///
    /// # Errors
    /// `Invalid` if the definition contradicts itself (a key column that is not there).
    pub fn new(table: &TableInfo) -> Result<RowEncoder> {
        table.validate()?;
        let mut by_id: Vec<usize> = (0..table.columns.len()).collect();
        by_id.sort_by_key(|at| table.columns[*at].id);
        let in_key = (0..table.columns.len()).map(|at| table.primary_key.contains(&at)).collect();
        Ok(RowEncoder { table: table.clone(), by_id, in_key })
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> &TableInfo {
        &self.table
    }

    /// Prepares a batch, so that its rows encode without looking at types again.
    ///
    /// # Errors
    /// `Invalid` if a column has another Arrow type than the table's.
    pub fn bind<'a>(&'a self, batch: &'a RecordBatch) -> Result<BoundRows<'a>> {
        if batch.num_columns() != self.table.columns.len() {
            let (found, expected) = (batch.num_columns(), self.table.columns.len());
            let name = &self.table.name;
            return Err(Error::invalid(format!("table `{name}` has {expected} columns, not {found}")));
        }
        let columns = self.table.columns.iter().zip(batch.columns());
        let cells = columns.map(|(column, array)| Cells::bind(column, array)).collect::<Result<_>>()?;
        Ok(BoundRows { encoder: self, cells, n_rows: batch.num_rows(), assembler: RowAssembler::default() })
    }

    /// Encodes one row. `handle` is the hidden row id of a table without a primary key.
    ///
    /// # Errors
    /// See [`BoundRows::key`] and [`BoundRows::value`].
    pub fn encode(&self, batch: &RecordBatch, row: usize, handle: Option<i64>) -> Result<EncodedRow> {
        let mut rows = self.bind(batch)?;
        Ok((rows.key(row, handle)?, rows.value(row)?))
    }

    /// Encodes all rows of a batch, in order.
    ///
    /// # Errors
    /// See [`BoundRows::key`] and [`BoundRows::value`]; `Invalid` if there is not one handle a row.
    pub fn encode_batch(&self, batch: &RecordBatch, handles: Option<&[i64]>) -> Result<Vec<EncodedRow>> {
        if handles.is_some_and(|handles| handles.len() != batch.num_rows()) {
            return Err(Error::invalid("not one handle a row"));
        }
        let mut rows = self.bind(batch)?;
        let handle = |row| handles.map(|handles: &[i64]| handles[row]);
        (0..batch.num_rows()).map(|row| Ok((rows.key(row, handle(row))?, rows.value(row)?))).collect()
    }
}

/// The rows of one batch, ready to be encoded.
#[derive(Debug)]
pub struct BoundRows<'a> {
    encoder: &'a RowEncoder,
    cells: Vec<Cells<'a>>,
    n_rows: usize,
    assembler: RowAssembler,
}

impl BoundRows<'_> {
    /// The number of rows.
    #[must_use]
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// The key of a row. `handle` is the hidden row id of a table without a primary key.
    ///
    /// # Errors
    /// `Invalid`: 1048 if a key column is NULL, 1264 or 1292 if a value is out of its type's range, and if
    /// a handle is missing, or given where the primary key is the handle.
    pub fn key(&self, row: usize, handle: Option<i64>) -> Result<Vec<u8>> {
        let table = &self.encoder.table;
        let mut key = Vec::with_capacity(32);
        put_record_prefix(&mut key, table.id);
        match handle {
            Some(handle) if table.has_hidden_handle() => put_i64(&mut key, handle),
            None if !table.has_hidden_handle() => self.put_handle(&mut key, row)?,
            _ => {
                let name = &table.name;
                return Err(Error::invalid(format!("table `{name}`: a row id goes with a hidden handle")));
            }
        }
        Ok(key)
    }

    fn put_handle(&self, key: &mut Vec<u8>, row: usize) -> Result<()> {
        let table = &self.encoder.table;
        let start = key.len();
        for at in &table.primary_key {
            let cells = &self.cells[*at];
            if cells.is_null(row) {
                return Err(not_null_error(cells));
            }
            if table.pk_is_handle {
                put_i64(key, cells.int_handle(row)?);
            } else {
                cells.put_datum(key, row)?;
            }
        }
        if !table.pk_is_handle {
            pad_handle(key, start);
        }
        Ok(())
    }

    /// The value of a row.
    ///
    /// # Errors
    /// `Invalid`: 1048 if a NOT NULL column is NULL, 1264 or 1292 if a value is out of its type's range.
    pub fn value(&mut self, row: usize) -> Result<Vec<u8>> {
        self.assembler.clear();
        for at in &self.encoder.by_id {
            let cells = &self.cells[*at];
            let column = cells.column();
            if cells.is_null(row) {
                if column.not_null {
                    return Err(not_null_error(cells));
                }
                if column.default.is_some() || column.origin_default.is_some() {
                    self.assembler.null(cells.id());
                }
            } else if !self.encoder.in_key[*at]
                || (!self.encoder.table.pk_is_handle
                    && (column.column_type.needs_restored_data() || cells.datum_loses(row)))
            {
                self.assembler.value(cells.id(), |out| cells.put_value(out, row))?;
            }
        }
        Ok(self.assembler.assemble())
    }
}

fn not_null_error(cells: &Cells<'_>) -> Error {
    Error::mysql(1048, format!("Column '{}' cannot be null", cells.column().name))
}

/// Pads a common handle that begins at `start`, so that it is never 8 bytes long.
pub(crate) fn pad_handle(key: &mut Vec<u8>, start: usize) {
    if key.len() - start < COMMON_HANDLE_LEN_MIN {
        key.resize(start + COMMON_HANDLE_LEN_MIN, 0);
    }
}
