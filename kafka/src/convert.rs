//! Images of rows into columns of our types.
//!
//! A value is converted as MySQL converts what an INSERT gives it in strict mode ([`tidb::convert_column`]),
//! after what formats leave to the reader: labels of ENUM and SET, bits, times of day, zones. A row that
//! cannot be converted is left out with the column, the value and the reason; the rows beside it stay.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Float32Array, Float64Array, RecordBatch,
    StringArray, TimestampMicrosecondArray, new_null_array,
};
use arrow::compute::{concat, filter};
use arrow::datatypes::{Schema, SchemaRef};
use thiserror::Error;
use tidb::{Cast, ColumnInfo, ColumnType, Parsed, Zone, convert_column, parse_time};
use types::Result;

use crate::duration::{duration_number, format_duration, parse_duration};
use crate::event::{Cell, Image};
use crate::value::{SourceType, Value};

/// What to do about a date that MySQL has and our types have not: month or day 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroDates {
    /// The row is an error.
    #[default]
    Refuse,
    /// It is NULL.
    Null,
}

/// What to do about a column that a message does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missing {
    /// The row is an error.
    #[default]
    Refuse,
    /// It is NULL: some senders leave NULLs out.
    Null,
}

/// What a conversion depends on beside the columns.
#[derive(Clone, Debug, Default)]
pub struct ConvertOptions {
    /// The time zone in which the source writes a TIMESTAMP as text.
    pub zone: Zone,
    /// Dates with a month or a day 0.
    pub zero_dates: ZeroDates,
    /// Columns that are not in a message.
    pub missing: Missing,
    /// The members of ENUM and SET columns by name, where the format does not say them.
    pub labels: BTreeMap<String, Vec<String>>,
}

/// Why a row is none of ours.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("column `{column}`, value {value}: {reason}")]
pub struct ColumnError {
    /// The column.
    pub column: String,
    /// The value, shortened.
    pub value: String,
    /// What is wrong with it.
    pub reason: String,
}

/// What became of rows.
#[derive(Debug)]
pub struct Converted {
    /// The rows that could be converted, in their order.
    pub batch: RecordBatch,
    /// The others, by their position among the images.
    pub errors: Vec<(usize, ColumnError)>,
}

/// Converts images into rows of a table, or of a part of its columns.
#[derive(Clone, Debug)]
pub struct RowConverter {
    columns: Vec<ColumnInfo>,
    options: ConvertOptions,
    schema: SchemaRef,
}

/// A value as one of the few types that [`convert_column`] starts from.
#[derive(Clone, Debug, PartialEq)]
enum Prepared {
    Null,
    Text(String),
    Bytes(Vec<u8>),
    Single(f32),
    Double(f64),
    Days(i32),
    Local(i64),
    Instant(i64),
}

impl RowConverter {
    /// A converter into columns.
    #[must_use]
    pub fn new(columns: Vec<ColumnInfo>, options: ConvertOptions) -> RowConverter {
        let fields: Vec<_> = columns.iter().map(ColumnInfo::arrow_field).collect();
        RowConverter { columns, options, schema: Arc::new(Schema::new(fields)) }
    }

    /// The columns.
    #[must_use]
    pub fn columns(&self) -> &[ColumnInfo] {
        &self.columns
    }

    /// Converts rows.
    ///
    /// # Errors
    /// Only if the columns are more than a batch can hold; what is wrong with a row is in the result.
    pub fn convert(&self, images: &[&Image]) -> Result<Converted> {
        let mut errors: BTreeMap<usize, ColumnError> = BTreeMap::new();
        let mut arrays = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            arrays.push(self.column(column, images, &mut errors)?);
        }
        let kept = BooleanArray::from_iter((0..images.len()).map(|row| Some(!errors.contains_key(&row))));
        let n_kept = images.len() - errors.len();
        let arrays = if errors.is_empty() {
            arrays
        } else {
            arrays.iter().map(|array| filter(array, &kept)).collect::<std::result::Result<Vec<_>, _>>()?
        };
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(n_kept));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)?;
        Ok(Converted { batch, errors: errors.into_iter().collect() })
    }

    /// One column of all rows; rows with an error are NULL in it.
    fn column(
        &self,
        column: &ColumnInfo,
        images: &[&Image],
        errors: &mut BTreeMap<usize, ColumnError>,
    ) -> Result<ArrayRef> {
        let mut cells = Vec::with_capacity(images.len());
        for (row, image) in images.iter().enumerate() {
            let prepared = match image.cell(&column.name) {
                Some(cell) => self.prepare(column, cell),
                None if self.options.missing == Missing::Null => Ok(Prepared::Null),
                None => Err("the message does not have the column".to_owned()),
            };
            cells.push(prepared.unwrap_or_else(|reason| {
                errors.entry(row).or_insert_with(|| column_error(column, image, reason));
                Prepared::Null
            }));
        }
        let cast = Cast { zone: self.options.zone };
        if let Some(array) = array_of(&cells)
            && let Ok(converted) = convert_column(column, &array, &cast)
        {
            return Ok(converted);
        }
        let mut singles = Vec::with_capacity(cells.len());
        for (row, cell) in cells.iter().enumerate() {
            let one = array_of(std::slice::from_ref(cell)).expect("one value is of one type");
            let converted = convert_column(column, &one, &cast).or_else(|error| {
                let reason = without_row(error.message());
                errors.entry(row).or_insert_with(|| column_error(column, images[row], reason));
                Ok::<_, types::Error>(new_null_array(&column.column_type.arrow_type(), 1))
            })?;
            singles.push(converted);
        }
        let singles: Vec<&dyn Array> = singles.iter().map(AsRef::as_ref).collect();
        Ok(concat(&singles)?)
    }

    fn prepare(&self, column: &ColumnInfo, cell: &Cell) -> std::result::Result<Prepared, String> {
        let to = &column.column_type;
        let source_type = cell.source_type.as_deref();
        Ok(match &cell.value {
            Value::Null => Prepared::Null,
            Value::Unavailable => {
                return Err("the source left the value out because it did not change".to_owned());
            }
            Value::Bool(value) => Prepared::Text(u8::from(*value).to_string()),
            Value::Int(value) => Prepared::Text(value.to_string()),
            Value::UInt(value) => Prepared::Text(value.to_string()),
            Value::Decimal(value) => Prepared::Text(value.to_string()),
            Value::Number(text) | Value::Json(text) => Prepared::Text(text.clone()),
            Value::Single(value) => Prepared::Single(*value),
            Value::Double(value) => Prepared::Double(*value),
            Value::Bytes(bytes) => Prepared::Bytes(bytes.clone()),
            Value::Bits(bits) => prepare_bits(to, *bits, source_type)?,
            Value::Index(index) => prepare_index(to, *index, self.labels(column, source_type))?,
            Value::Members(mask) => prepare_members(to, *mask, self.labels(column, source_type))?,
            Value::Days(days) => Prepared::Days(i32::try_from(*days).map_err(|_| "no such date".to_owned())?),
            Value::Duration(micros) => prepare_duration(to, *micros, source_type)?,
            Value::Local(micros) => Prepared::Local(*micros),
            Value::Instant(micros) => Prepared::Instant(*micros),
            Value::Zoned { zone, text } => self.prepare_zoned(to, zone, text)?,
            Value::Text(text) => self.prepare_text(column, text, source_type)?,
        })
    }

    fn labels<'a>(&'a self, column: &ColumnInfo, source_type: Option<&'a SourceType>) -> &'a [String] {
        let given = self.options.labels.get(&column.name);
        given.map_or_else(|| source_type.map_or(&[], |found| found.labels.as_slice()), Vec::as_slice)
    }

    fn prepare_text(
        &self,
        column: &ColumnInfo,
        text: &str,
        source_type: Option<&SourceType>,
    ) -> std::result::Result<Prepared, String> {
        let to = &column.column_type;
        let name = source_type.map_or("", |found| found.name.as_str());
        if is_number_type(to) && matches!(name, "enum" | "set") {
            return numbered(text, self.labels(column, source_type), name == "set");
        }
        if is_number_type(to) && name == "time" {
            let micros = parse_duration(text).ok_or_else(|| "no time of day".to_owned())?;
            return Ok(Prepared::Text(duration_number(micros)));
        }
        if self.is_dropped(to, text) {
            return Ok(Prepared::Null);
        }
        // ISO 8601's name for UTC, which MySQL does not have.
        let is_time = matches!(to, ColumnType::Datetime(_) | ColumnType::Timestamp(_));
        match text.strip_suffix('Z').filter(|_| is_time) {
            Some(utc) => Ok(Prepared::Text(format!("{utc}+00:00"))),
            None => Ok(Prepared::Text(text.to_owned())),
        }
    }

    /// Whether a text is a zero date that is to become NULL.
    fn is_dropped(&self, to: &ColumnType, text: &str) -> bool {
        let is_time = matches!(to, ColumnType::Date | ColumnType::Datetime(_) | ColumnType::Timestamp(_));
        self.options.zero_dates == ZeroDates::Null && is_time && is_zero_date(text)
    }

    fn prepare_zoned(
        &self,
        to: &ColumnType,
        zone: &str,
        text: &str,
    ) -> std::result::Result<Prepared, String> {
        if self.is_dropped(to, text) {
            return Ok(Prepared::Null);
        }
        let zone: Zone = zone.parse().map_err(|error: types::Error| error.message().to_owned())?;
        match parse_time(text) {
            Some(Parsed::Instant(micros)) => Ok(Prepared::Instant(micros)),
            Some(Parsed::Local(micros)) => zone
                .to_instant(micros)
                .map(Prepared::Instant)
                .ok_or_else(|| format!("the zone {zone} has no such time")),
            None => Err("no such time".to_owned()),
        }
    }
}

fn column_error(column: &ColumnInfo, image: &Image, reason: String) -> ColumnError {
    let value = image.get(&column.name).map_or_else(|| "none".to_owned(), Value::shown);
    ColumnError { column: column.name.clone(), value, reason }
}

/// A message of a conversion of one row, without the row's number.
fn without_row(message: &str) -> String {
    message.strip_suffix(" at row 1").unwrap_or(message).to_owned()
}

fn is_number_type(column_type: &ColumnType) -> bool {
    matches!(
        column_type,
        ColumnType::Int { .. } | ColumnType::Decimal { .. } | ColumnType::Float | ColumnType::Double
    )
}

fn is_zero_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 10
        && bytes[4] == b'-'
        && bytes[7] == b'-'
        && (bytes[5..7] == *b"00" || bytes[8..10] == *b"00")
}

fn prepare_bits(
    to: &ColumnType,
    bits: u64,
    source_type: Option<&SourceType>,
) -> std::result::Result<Prepared, String> {
    let n_bytes = match to {
        ColumnType::Binary(n_bytes) => *n_bytes,
        ColumnType::Varbinary(_) | ColumnType::Blob(_) => {
            let n_bits = source_type.and_then(|found| found.length);
            n_bits.ok_or("the number of bits is not known: declare the column as an integer")?.div_ceil(8)
        }
        ColumnType::Int { .. } | ColumnType::Decimal { .. } => return Ok(Prepared::Text(bits.to_string())),
        _ => return Err("a BIT goes into an integer or into bytes".to_owned()),
    };
    let n_bytes = n_bytes as usize;
    let bytes = bits.to_be_bytes();
    if n_bytes >= bytes.len() {
        let mut padded = vec![0; n_bytes - bytes.len()];
        padded.extend_from_slice(&bytes);
        return Ok(Prepared::Bytes(padded));
    }
    let (front, kept) = bytes.split_at(bytes.len() - n_bytes);
    if front.iter().any(|byte| *byte != 0) {
        return Err(format!("more bits than {n_bytes} bytes have"));
    }
    Ok(Prepared::Bytes(kept.to_vec()))
}

fn prepare_index(to: &ColumnType, index: u64, labels: &[String]) -> std::result::Result<Prepared, String> {
    if is_number_type(to) {
        return Ok(Prepared::Text(index.to_string()));
    }
    if index == 0 {
        return Ok(Prepared::Text(String::new()));
    }
    if labels.is_empty() {
        return Err("an ENUM by its number, whose labels are not known".to_owned());
    }
    let at = usize::try_from(index - 1).ok();
    let label = at.and_then(|at| labels.get(at));
    let label = label.ok_or_else(|| format!("the ENUM has {} labels", labels.len()))?;
    Ok(Prepared::Text(label.clone()))
}

fn prepare_members(to: &ColumnType, mask: u64, labels: &[String]) -> std::result::Result<Prepared, String> {
    if is_number_type(to) {
        return Ok(Prepared::Text(mask.to_string()));
    }
    if mask != 0 && labels.is_empty() {
        return Err("a SET by its number, whose labels are not known".to_owned());
    }
    if labels.len() < 64 && mask >> labels.len() != 0 {
        return Err(format!("the SET has {} labels", labels.len()));
    }
    let members: Vec<&str> = labels
        .iter()
        .take(64)
        .enumerate()
        .filter(|(at, _)| mask >> at & 1 == 1)
        .map(|(_, label)| label.as_str())
        .collect();
    Ok(Prepared::Text(members.join(",")))
}

/// The number of an ENUM's label or of a SET's labels.
fn numbered(text: &str, labels: &[String], is_set: bool) -> std::result::Result<Prepared, String> {
    if text.is_empty() {
        return Ok(Prepared::Text("0".to_owned()));
    }
    let position = |label: &str| {
        let exact = labels.iter().position(|known| known == label);
        let found = exact.or_else(|| labels.iter().position(|known| known.eq_ignore_ascii_case(label)));
        found.ok_or_else(|| format!("'{label}' is none of the {} labels that are known", labels.len()))
    };
    if !is_set {
        return Ok(Prepared::Text((position(text)? + 1).to_string()));
    }
    let mut mask = 0_u64;
    for label in text.split(',') {
        let bit = u32::try_from(position(label)?).ok().and_then(|at| 1_u64.checked_shl(at));
        mask |= bit.ok_or_else(|| "a SET has at most 64 members".to_owned())?;
    }
    Ok(Prepared::Text(mask.to_string()))
}

fn prepare_duration(
    to: &ColumnType,
    micros: i64,
    source_type: Option<&SourceType>,
) -> std::result::Result<Prepared, String> {
    if is_number_type(to) {
        return Ok(Prepared::Text(duration_number(micros)));
    }
    if matches!(to, ColumnType::Date | ColumnType::Datetime(_) | ColumnType::Timestamp(_)) {
        return Err("a TIME has no date".to_owned());
    }
    let n_digits = source_type.and_then(|found| found.length);
    let n_digits = n_digits.unwrap_or(if micros % 1_000_000 == 0 { 0 } else { 6 });
    Ok(Prepared::Text(format_duration(micros, n_digits)))
}

/// The values as one array, if they are of one type.
fn array_of(cells: &[Prepared]) -> Option<ArrayRef> {
    let first = cells.iter().find(|cell| **cell != Prepared::Null);
    macro_rules! all {
        ($kind:ident, $make:expr) => {{
            let mut values = Vec::with_capacity(cells.len());
            for cell in cells {
                match cell {
                    Prepared::Null => values.push(None),
                    Prepared::$kind(value) => values.push(Some(value)),
                    _ => return None,
                }
            }
            Arc::new($make(values))
        }};
    }
    Some(match first {
        None => new_null_array(&arrow::datatypes::DataType::Null, cells.len()),
        Some(Prepared::Bytes(_)) => {
            all!(Bytes, |values: Vec<Option<&Vec<u8>>>| BinaryArray::from_iter(values))
        }
        Some(Prepared::Single(_)) => all!(Single, |values: Vec<Option<&f32>>| {
            Float32Array::from_iter(values.into_iter().map(Option::<&f32>::copied))
        }),
        Some(Prepared::Double(_)) => all!(Double, |values: Vec<Option<&f64>>| {
            Float64Array::from_iter(values.into_iter().map(Option::<&f64>::copied))
        }),
        Some(Prepared::Days(_)) => all!(Days, |values: Vec<Option<&i32>>| {
            Date32Array::from_iter(values.into_iter().map(Option::<&i32>::copied))
        }),
        Some(Prepared::Local(_)) => all!(Local, |values: Vec<Option<&i64>>| {
            TimestampMicrosecondArray::from_iter(values.into_iter().map(Option::<&i64>::copied))
        }),
        Some(Prepared::Instant(_)) => all!(Instant, |values: Vec<Option<&i64>>| {
            let instants =
                TimestampMicrosecondArray::from_iter(values.into_iter().map(Option::<&i64>::copied));
            instants.with_timezone("UTC")
        }),
        Some(Prepared::Text(_) | Prepared::Null) => {
            all!(Text, |values: Vec<Option<&String>>| StringArray::from_iter(values))
        }
    })
}
