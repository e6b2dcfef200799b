//! Rows from keys and values into Arrow columns.
//!
//! A column is looked for in the value first, then in the handle, then it is NULL or the default of rows
//! older than the column. A row that cannot be decoded is an error of its own and leaves no trace in the
//! batch: its neighbours stay.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use types::{Error, Result};

use crate::cells::Cells;
use crate::column_builder::{ColumnBuilder, Content, skip_datum};
use crate::comparable::take_i64;
use crate::convert::{Cast, convert_column};
use crate::key::{COMMON_HANDLE_LEN_MIN, Handle, describe_key, record_key, split_record_key};
use crate::schema::{ColumnInfo, ColumnType, TableInfo};
use crate::stored_row::{Found, StoredRow};

/// Stands for the hidden row id in a list of columns of a table without a primary key.
pub const ROW_ID_COLUMN: usize = usize::MAX;
/// The name of the hidden row id.
pub const ROW_ID_NAME: &str = "_tidb_rowid";

/// A row that could not be decoded.
#[derive(Clone, Debug)]
pub struct RowError {
    /// The row's key.
    pub key: Vec<u8>,
    /// What is wrong with it.
    pub error: Error,
}

impl From<RowError> for Error {
    fn from(row_error: RowError) -> Error {
        row_error.error.context(format!("row {}", describe_key(&row_error.key)))
    }
}

/// Decodes rows of one table into the columns that somebody needs.
#[derive(Debug)]
pub struct RowDecoder {
    /// The ids that may stand in keys: one a partition.
    table_ids: Vec<i64>,
    columns: Vec<ColumnDecoder>,
    schema: SchemaRef,
    handle: HandleKind,
    /// How many leading datums of a common handle some column is read from.
    n_datums: usize,
    n_rows: usize,
    /// Where the datums of the current row's handle begin, after the first.
    datum_starts: Vec<usize>,
    scratch: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HandleKind {
    Hidden,
    Integer,
    Common,
}

#[derive(Debug)]
struct ColumnDecoder {
    name: String,
    id: i64,
    not_null: bool,
    builder: ColumnBuilder,
    /// Where the column is in the values of recent rows.
    hint: usize,
    source: Source,
}

/// Where a column comes from if the value has nothing.
#[derive(Debug)]
enum Source {
    /// It is the hidden row id, never in the value.
    RowId,
    /// The integer handle.
    Handle,
    /// A datum of the common handle; `restored` if only the value has the column itself.
    Datum { at: usize, restored: bool },
    /// NULL, or the encoded default of old rows.
    Default(Option<Vec<u8>>),
}

impl RowDecoder {
    /// Makes a decoder for some columns of a table (positions; [`ROW_ID_COLUMN`] for the hidden row id).
    ///
    /// # Errors
    /// `Invalid` if a column is not there, or the definition contradicts itself.
    pub fn new(table: &TableInfo, columns: &[usize]) -> Result<RowDecoder> {
        table.validate()?;
        let mut decoders = Vec::with_capacity(columns.len());
        let mut fields = Vec::with_capacity(columns.len());
        let mut n_datums = 0;
        for at in columns {
            let (decoder, field) = column_decoder(table, *at)?;
            if let Source::Datum { at, .. } = decoder.source {
                n_datums = n_datums.max(at + 1);
            }
            decoders.push(decoder);
            fields.push(field);
        }
        let handle = match (table.has_hidden_handle(), table.pk_is_handle) {
            (true, _) => HandleKind::Hidden,
            (false, true) => HandleKind::Integer,
            (false, false) => HandleKind::Common,
        };
        Ok(RowDecoder {
            table_ids: vec![table.id],
            columns: decoders,
            schema: Arc::new(Schema::new(fields)),
            handle,
            n_datums,
            n_rows: 0,
            datum_starts: Vec::new(),
            scratch: Vec::new(),
        })
    }

    /// Decodes rows of all these physical tables, the partitions of one, in place of the table's own id.
    #[must_use]
    pub fn with_tables(mut self, physical_ids: &[i64]) -> RowDecoder {
        self.table_ids = physical_ids.to_vec();
        self
    }

    /// The schema of the batches.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The number of rows so far.
    #[must_use]
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Appends a row, or nothing.
    ///
    /// # Errors
    /// A [`RowError`] with the row's key if it cannot be decoded; the decoder goes on as if it had not been
    /// there.
    pub fn append(&mut self, key: &[u8], value: &[u8]) -> Result<(), RowError> {
        match self.try_append(key, value) {
            Ok(()) => {
                self.n_rows += 1;
                Ok(())
            }
            Err(error) => {
                self.truncate(self.n_rows);
                Err(RowError { key: key.to_vec(), error })
            }
        }
    }

    /// Forgets the newest rows, so that `n_rows` stay.
    pub fn truncate(&mut self, n_rows: usize) {
        self.n_rows = self.n_rows.min(n_rows);
        for column in &mut self.columns {
            column.builder.truncate(self.n_rows);
        }
    }

    /// Whether two values of one key say the same about the columns that are read.
    ///
    /// # Errors
    /// A [`RowError`] if one of them is no row at all.
    pub fn is_unchanged(&mut self, key: &[u8], old: &[u8], new: &[u8]) -> Result<bool, RowError> {
        if old == new {
            return Ok(true);
        }
        let parse =
            |value| StoredRow::parse(key, value).map_err(|error| RowError { key: key.to_vec(), error });
        let (old, new) = (parse(old)?, parse(new)?);
        let columns = self.columns.iter_mut().filter(|column| !matches!(column.source, Source::RowId));
        for column in columns {
            if old.find(column.id, &mut column.hint) != new.find(column.id, &mut column.hint) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes the rows out as a batch and begins a new one.
    ///
    /// # Errors
    /// `Corrupt` if the columns do not make a batch, which no input brings about.
    pub fn finish(&mut self) -> Result<RecordBatch> {
        let columns: Vec<ArrayRef> =
            self.columns.iter_mut().map(|column| column.builder.finish()).collect::<Result<_>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.n_rows));
        self.n_rows = 0;
        Ok(RecordBatch::try_new_with_options(self.schema(), columns, &options)?)
    }

    fn try_append(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let (table, handle) = split_record_key(key)?;
        if !self.table_ids.contains(&table) {
            return Err(Error::corrupt(format!("key of table {table}, not {:?}", self.table_ids)));
        }
        let row = StoredRow::parse(key, value)?;
        let int_handle = self.read_handle(handle)?;
        for column in &mut self.columns {
            let from_handle = HandleParts { int_handle, handle, datum_starts: &self.datum_starts };
            column
                .append(&row, &from_handle, &mut self.scratch)
                .map_err(|error| error.context(format!("column `{}`", column.name)))?;
        }
        Ok(())
    }

    /// Checks the handle's form and finds the datums that columns may be read from.
    fn read_handle(&mut self, handle: &[u8]) -> Result<i64> {
        if self.handle != HandleKind::Common {
            if handle.len() != 8 {
                return Err(Error::corrupt(format!("integer handle of {} bytes", handle.len())));
            }
            return take_i64(&mut &handle[..]);
        }
        if handle.len() < COMMON_HANDLE_LEN_MIN {
            return Err(Error::corrupt(format!("common handle of {} bytes", handle.len())));
        }
        self.datum_starts.clear();
        let mut rest = handle;
        for at in 0..self.n_datums {
            self.datum_starts.push(handle.len() - rest.len());
            if at + 1 < self.n_datums {
                skip_datum(&mut rest)?;
            }
        }
        Ok(0)
    }
}

/// The handle of the row that is being decoded.
struct HandleParts<'a> {
    int_handle: i64,
    handle: &'a [u8],
    datum_starts: &'a [usize],
}

impl ColumnDecoder {
    fn append(&mut self, row: &StoredRow<'_>, handle: &HandleParts<'_>, scratch: &mut Vec<u8>) -> Result<()> {
        if let Source::RowId = self.source {
            return self.builder.append(Content::Int(handle.int_handle));
        }
        match row.find(self.id, &mut self.hint) {
            Found::Value(bytes) => self.builder.append_value(bytes),
            Found::Datum(datum) => self.builder.append_value_datum(datum, scratch),
            Found::Null => self.append_null(),
            Found::Absent => match &self.source {
                Source::RowId | Source::Handle => self.builder.append_handle(handle.int_handle),
                Source::Datum { restored: true, .. } => {
                    Err(Error::corrupt("is in the key as a sort key only, and not in the value"))
                }
                Source::Datum { at, .. } => {
                    let mut datum = &handle.handle[handle.datum_starts[*at]..];
                    self.builder.append_datum(&mut datum, scratch)
                }
                Source::Default(Some(encoded)) => self.builder.append_value(encoded),
                Source::Default(None) => self.append_null(),
            },
        }
    }

    fn append_null(&mut self) -> Result<()> {
        if self.not_null {
            return Err(Error::corrupt("is NULL, but declared NOT NULL"));
        }
        self.builder.append_null();
        Ok(())
    }
}

fn column_decoder(table: &TableInfo, at: usize) -> Result<(ColumnDecoder, Field)> {
    if at == ROW_ID_COLUMN && table.has_hidden_handle() {
        let column_type = ColumnType::Int { bits: 64, unsigned: false };
        let decoder = ColumnDecoder {
            name: ROW_ID_NAME.into(),
            id: 0,
            not_null: true,
            builder: ColumnBuilder::new(&column_type),
            hint: 0,
            source: Source::RowId,
        };
        return Ok((decoder, Field::new(ROW_ID_NAME, DataType::Int64, false)));
    }
    let column = table
        .columns
        .get(at)
        .ok_or_else(|| Error::invalid(format!("table `{}` has no column {at}", table.name)))?;
    let source = match table.primary_key.iter().position(|key_column| *key_column == at) {
        Some(_) if table.pk_is_handle => Source::Handle,
        Some(at) => Source::Datum { at, restored: column.column_type.needs_restored_data() },
        None => Source::Default(encoded_default(column)?),
    };
    let decoder = ColumnDecoder {
        name: column.name.clone(),
        id: column.id,
        not_null: column.not_null,
        builder: ColumnBuilder::new(&column.column_type),
        hint: 0,
        source,
    };
    Ok((decoder, column.arrow_field()))
}

/// The default of rows older than the column, as a value of a row.
pub(crate) fn encoded_default(column: &ColumnInfo) -> Result<Option<Vec<u8>>> {
    let Some(text) = &column.origin_default else { return Ok(None) };
    let text: ArrayRef = Arc::new(StringArray::from(vec![text.as_str()]));
    let value = convert_column(column, &text, &Cast::default())?;
    if value.is_null(0) {
        return Ok(None);
    }
    let mut encoded = Vec::new();
    Cells::bind(column, &value)?.put_value(&mut encoded, 0)?;
    Ok(Some(encoded))
}

/// A row's value in words, for messages: its columns, or its bytes if they are no row.
#[must_use]
pub fn describe_row(table: &TableInfo, value: &[u8]) -> String {
    let show = || -> Result<String> {
        let key = record_key(table.id, &Handle::Int(0));
        let in_value: Vec<usize> =
            (0..table.columns.len()).filter(|at| !table.primary_key.contains(at)).collect();
        let mut decoder = RowDecoder::new(
            &TableInfo { primary_key: Vec::new(), pk_is_handle: false, ..table.clone() },
            &in_value,
        )?;
        decoder.append(&key, value)?;
        let batch = decoder.finish()?;
        let options = FormatOptions::default().with_null("NULL");
        let cells = batch.columns().iter().map(|array| {
            let formatter = ArrayFormatter::try_new(array, &options)?;
            Ok(formatter.value(0).to_string())
        });
        Ok(format!("row ({})", cells.collect::<Result<Vec<_>>>()?.join(", ")))
    };
    show().unwrap_or_else(|_| describe_key(value))
}
