//! Rows of Arrow batches as MySQL's text and binary rows.
//!
//! A column is looked at once a batch ([`Cells`]), not once a value. Both protocols share the text of
//! every value; the binary one has its own form for numbers and times only.

use std::sync::Arc;

use std::io::Write;

use arrow::array::{
    Array, ArrayRef, BooleanArray, Date32Array, Decimal128Array, Decimal256Array, Float32Array, Float64Array,
    Int8Array, Int16Array, Int32Array, Int64Array, Time64MicrosecondArray, TimestampMicrosecondArray,
    UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit};
use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use tidb::{CivilTime, Zone, format_date, format_double, format_float, format_time};
use types::{Error, Result};

use super::column::{WireColumn, wire_type};
use super::wire::{put_lenenc, put_lenenc_bytes};
use crate::result::Column;

/// One column of a batch, ready to be written.
enum Cells {
    Null,
    Boolean(BooleanArray),
    Int8(Int8Array),
    Int16(Int16Array),
    Int32(Int32Array),
    Int64(Int64Array),
    UInt8(UInt8Array),
    UInt16(UInt16Array),
    UInt32(UInt32Array),
    UInt64(UInt64Array),
    Float32(Float32Array),
    Float64(Float64Array),
    Decimal128(Decimal128Array),
    Decimal256(Decimal256Array),
    Date(Date32Array),
    /// Microseconds; shown in the session's zone if it is an instant.
    Time(TimestampMicrosecondArray, bool),
    Duration(Time64MicrosecondArray),
    Bytes(arrow::array::BinaryArray),
    /// Types without a counterpart, as Arrow displays them.
    Display(ArrayRef),
}

macro_rules! typed {
    ($array:expr, $type:ty) => {
        $array.as_any().downcast_ref::<$type>().cloned().ok_or_else(|| {
            Error::corrupt(format!("column of type {} is something else", $array.data_type()))
        })?
    };
}

impl Cells {
    fn new(array: &ArrayRef) -> Result<Cells> {
        Ok(match array.data_type() {
            DataType::Null => Cells::Null,
            DataType::Boolean => Cells::Boolean(typed!(array, BooleanArray)),
            DataType::Int8 => Cells::Int8(typed!(array, Int8Array)),
            DataType::Int16 => Cells::Int16(typed!(array, Int16Array)),
            DataType::Int32 => Cells::Int32(typed!(array, Int32Array)),
            DataType::Int64 => Cells::Int64(typed!(array, Int64Array)),
            DataType::UInt8 => Cells::UInt8(typed!(array, UInt8Array)),
            DataType::UInt16 => Cells::UInt16(typed!(array, UInt16Array)),
            DataType::UInt32 => Cells::UInt32(typed!(array, UInt32Array)),
            DataType::UInt64 => Cells::UInt64(typed!(array, UInt64Array)),
            DataType::Float32 => Cells::Float32(typed!(array, Float32Array)),
            DataType::Float64 => Cells::Float64(typed!(array, Float64Array)),
            DataType::Decimal128(_, _) => Cells::Decimal128(typed!(array, Decimal128Array)),
            DataType::Decimal256(_, _) => Cells::Decimal256(typed!(array, Decimal256Array)),
            DataType::Date32 => Cells::Date(typed!(array, Date32Array)),
            DataType::Timestamp(unit, zone) => {
                let micros = if *unit == TimeUnit::Microsecond {
                    Arc::clone(array)
                } else {
                    cast(array, &DataType::Timestamp(TimeUnit::Microsecond, zone.clone()))?
                };
                Cells::Time(typed!(micros, TimestampMicrosecondArray), zone.is_some())
            }
            DataType::Time32(_) | DataType::Time64(_) => {
                let micros = cast(array, &DataType::Time64(TimeUnit::Microsecond))?;
                Cells::Duration(typed!(micros, Time64MicrosecondArray))
            }
            DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => {
                let bytes = cast(array, &DataType::Binary)?;
                Cells::Bytes(typed!(bytes, arrow::array::BinaryArray))
            }
            DataType::Dictionary(_, value) => Cells::new(&cast(array, value)?)?,
            _ => Cells::Display(Arc::clone(array)),
        })
    }

    fn is_null(&self, row: usize) -> bool {
        match self {
            Cells::Null => true,
            Cells::Boolean(array) => array.is_null(row),
            Cells::Int8(array) => array.is_null(row),
            Cells::Int16(array) => array.is_null(row),
            Cells::Int32(array) => array.is_null(row),
            Cells::Int64(array) => array.is_null(row),
            Cells::UInt8(array) => array.is_null(row),
            Cells::UInt16(array) => array.is_null(row),
            Cells::UInt32(array) => array.is_null(row),
            Cells::UInt64(array) => array.is_null(row),
            Cells::Float32(array) => array.is_null(row),
            Cells::Float64(array) => array.is_null(row),
            Cells::Decimal128(array) => array.is_null(row),
            Cells::Decimal256(array) => array.is_null(row),
            Cells::Date(array) => array.is_null(row),
            Cells::Time(array, _) => array.is_null(row),
            Cells::Duration(array) => array.is_null(row),
            Cells::Bytes(array) => array.is_null(row),
            Cells::Display(array) => array.is_null(row),
        }
    }

    /// Appends the text of a value that is not NULL.
    fn put_text(&self, row: usize, decimals: u8, zone: Zone, out: &mut Vec<u8>) -> Result<()> {
        match self {
            Cells::Null => {}
            Cells::Boolean(array) => out.push(if array.value(row) { b'1' } else { b'0' }),
            Cells::Int8(array) => put_display(array.value(row), out),
            Cells::Int16(array) => put_display(array.value(row), out),
            Cells::Int32(array) => put_display(array.value(row), out),
            Cells::Int64(array) => put_display(array.value(row), out),
            Cells::UInt8(array) => put_display(array.value(row), out),
            Cells::UInt16(array) => put_display(array.value(row), out),
            Cells::UInt32(array) => put_display(array.value(row), out),
            Cells::UInt64(array) => put_display(array.value(row), out),
            Cells::Float32(array) => out.extend_from_slice(format_float(array.value(row) + 0.0).as_bytes()),
            Cells::Float64(array) => out.extend_from_slice(format_double(array.value(row) + 0.0).as_bytes()),
            Cells::Decimal128(array) => out.extend_from_slice(array.value_as_string(row).as_bytes()),
            Cells::Decimal256(array) => out.extend_from_slice(array.value_as_string(row).as_bytes()),
            Cells::Date(array) => {
                let civil = CivilTime::from_days(i64::from(array.value(row)))?;
                out.extend_from_slice(format_date(civil).as_bytes());
            }
            Cells::Time(array, instant) => {
                let civil = local_time(array.value(row), *instant, zone)?;
                out.extend_from_slice(format_time(civil, decimals).as_bytes());
            }
            Cells::Duration(array) => put_duration(array.value(row), decimals, out),
            Cells::Bytes(array) => out.extend_from_slice(array.value(row)),
            Cells::Display(array) => {
                let options = FormatOptions::default();
                let formatter = ArrayFormatter::try_new(array.as_ref(), &options)?;
                out.extend_from_slice(formatter.value(row).to_string().as_bytes());
            }
        }
        Ok(())
    }

    /// The value as an integer, if the column is one of integers.
    fn integer(&self, row: usize) -> Option<i128> {
        Some(match self {
            Cells::Boolean(array) => i128::from(array.value(row)),
            Cells::Int8(array) => i128::from(array.value(row)),
            Cells::Int16(array) => i128::from(array.value(row)),
            Cells::Int32(array) => i128::from(array.value(row)),
            Cells::Int64(array) => i128::from(array.value(row)),
            Cells::UInt8(array) => i128::from(array.value(row)),
            Cells::UInt16(array) => i128::from(array.value(row)),
            Cells::UInt32(array) => i128::from(array.value(row)),
            Cells::UInt64(array) => i128::from(array.value(row)),
            _ => return None,
        })
    }

    /// Appends the binary form of a value that is not NULL.
    fn put_binary(&self, row: usize, column: &WireColumn, zone: Zone, out: &mut Vec<u8>) -> Result<()> {
        if let Some(integer) = self.integer(row) {
            let width = match column.wire_type {
                wire_type::TINY => 1,
                wire_type::SHORT => 2,
                wire_type::LONG | wire_type::INT24 => 4,
                _ => 8,
            };
            out.extend_from_slice(&integer.to_le_bytes()[..width]);
            return Ok(());
        }
        match self {
            Cells::Float32(array) => out.extend_from_slice(&(array.value(row) + 0.0).to_le_bytes()),
            Cells::Float64(array) => out.extend_from_slice(&(array.value(row) + 0.0).to_le_bytes()),
            Cells::Date(array) => {
                put_binary_datetime(CivilTime::from_days(i64::from(array.value(row)))?, out);
            }
            Cells::Time(array, instant) => {
                put_binary_datetime(local_time(array.value(row), *instant, zone)?, out);
            }
            Cells::Duration(array) => put_binary_duration(array.value(row), out),
            _ => {
                let mut text = Vec::new();
                self.put_text(row, column.decimals, zone, &mut text)?;
                put_lenenc_bytes(out, &text);
            }
        }
        Ok(())
    }
}

/// A batch, ready to be written row by row.
pub(crate) struct BatchRows<'a> {
    cells: Vec<Cells>,
    columns: &'a [WireColumn],
    zone: Zone,
    scratch: Vec<u8>,
}

impl BatchRows<'_> {
    /// Prepares a batch for columns that were announced.
    ///
    /// # Errors
    /// If the batch has other columns than were announced.
    pub(crate) fn new<'a>(
        batch: &RecordBatch,
        columns: &'a [WireColumn],
        zone: Zone,
    ) -> Result<BatchRows<'a>> {
        if batch.num_columns() != columns.len() {
            return Err(Error::corrupt(format!(
                "a batch of {} columns under {} announced ones",
                batch.num_columns(),
                columns.len()
            )));
        }
        let cells = batch.columns().iter().map(Cells::new).collect::<Result<_>>()?;
        Ok(BatchRows { cells, columns, zone, scratch: Vec::new() })
    }

    /// The text row.
    ///
    /// # Errors
    /// If a value lies outside the calendar.
    pub(crate) fn text(&mut self, row: usize, out: &mut Vec<u8>) -> Result<()> {
        for (cells, column) in self.cells.iter().zip(self.columns) {
            if cells.is_null(row) {
                out.push(0xfb);
                continue;
            }
            self.scratch.clear();
            cells.put_text(row, column.decimals, self.zone, &mut self.scratch)?;
            put_lenenc(out, self.scratch.len() as u64);
            out.extend_from_slice(&self.scratch);
        }
        Ok(())
    }

    /// The binary row.
    ///
    /// # Errors
    /// If a value lies outside the calendar.
    pub(crate) fn binary(&mut self, row: usize, out: &mut Vec<u8>) -> Result<()> {
        out.push(0);
        let bitmap_at = out.len();
        out.resize(bitmap_at + (self.columns.len() + 2).div_ceil(8), 0);
        for (index, (cells, column)) in self.cells.iter().zip(self.columns).enumerate() {
            if cells.is_null(row) {
                let bit = index + 2;
                out[bitmap_at + bit / 8] |= 1 << (bit % 8);
            } else {
                cells.put_binary(row, column, self.zone, out)?;
            }
        }
        Ok(())
    }
}

/// All rows as text, as a client sees them; bytes that are no text are shown as hex.
///
/// # Errors
/// If a value lies outside the calendar.
pub(crate) fn text_rows(
    columns: &[Column],
    batches: &[RecordBatch],
    zone: Zone,
) -> Result<Vec<Vec<Option<String>>>> {
    let wire: Vec<WireColumn> = columns.iter().map(WireColumn::of).collect();
    let mut rows = Vec::new();
    for batch in batches {
        let cells = batch.columns().iter().map(Cells::new).collect::<Result<Vec<_>>>()?;
        for row in 0..batch.num_rows() {
            let mut texts = Vec::with_capacity(cells.len());
            for (cells, column) in cells.iter().zip(&wire) {
                let mut text = Vec::new();
                let null = cells.is_null(row);
                if !null {
                    cells.put_text(row, column.decimals, zone, &mut text)?;
                }
                texts.push((!null).then(|| text_or_hex(text)));
            }
            rows.push(texts);
        }
    }
    Ok(rows)
}

/// Bytes as text, or as hex if they are none.
pub(crate) fn text_or_hex(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| {
        error.into_bytes().iter().fold("0x".to_owned(), |hex, byte| hex + &format!("{byte:02X}"))
    })
}

fn put_display(value: impl std::fmt::Display, out: &mut Vec<u8>) {
    write!(out, "{value}").expect("a vector takes every write");
}

fn local_time(us: i64, instant: bool, zone: Zone) -> Result<CivilTime> {
    let local = if instant { zone.to_local(us) } else { Some(us) };
    let outside = || Error::corrupt(format!("microsecond {us} is outside the calendar"));
    CivilTime::from_micros(local.ok_or_else(outside)?)
}

fn put_fraction(micros: u32, decimals: u8, out: &mut Vec<u8>) {
    let digits = usize::from(decimals.min(6));
    if digits > 0 {
        let text = format!("{micros:06}");
        out.push(b'.');
        out.extend_from_slice(&text.as_bytes()[..digits]);
    }
}

fn put_duration(us: i64, decimals: u8, out: &mut Vec<u8>) {
    let (seconds, micros) = (us.unsigned_abs() / 1_000_000, us.unsigned_abs() % 1_000_000);
    if us < 0 {
        out.push(b'-');
    }
    put_display(format_args!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60), out);
    put_fraction(u32::try_from(micros).expect("below a million"), decimals, out);
}

fn put_binary_datetime(time: CivilTime, out: &mut Vec<u8>) {
    let has_time = time.hour > 0 || time.minute > 0 || time.second > 0;
    out.push(if time.micro > 0 {
        11
    } else if has_time {
        7
    } else {
        4
    });
    out.extend_from_slice(&u16::try_from(time.year).unwrap_or(0).to_le_bytes());
    out.extend_from_slice(&[time.month as u8, time.day as u8]);
    if time.micro > 0 || has_time {
        out.extend_from_slice(&[time.hour as u8, time.minute as u8, time.second as u8]);
    }
    if time.micro > 0 {
        out.extend_from_slice(&time.micro.to_le_bytes());
    }
}

fn small(number: u32) -> u8 {
    u8::try_from(number).expect("times of day are below 60")
}

fn put_binary_duration(us: i64, out: &mut Vec<u8>) {
    let micros_all = us.unsigned_abs();
    if micros_all == 0 {
        out.push(0);
        return;
    }
    let (seconds, micros) = (micros_all / 1_000_000, micros_all % 1_000_000);
    out.push(if micros > 0 { 12 } else { 8 });
    out.push(u8::from(us < 0));
    let days = u32::try_from(seconds / 86_400).unwrap_or(u32::MAX);
    out.extend_from_slice(&days.to_le_bytes());
    let of_day = u32::try_from(seconds % 86_400).expect("below a day");
    out.extend_from_slice(&[small(of_day / 3600), small(of_day / 60 % 60), small(of_day % 60)]);
    if micros > 0 {
        out.extend_from_slice(&u32::try_from(micros).expect("below a million").to_le_bytes());
    }
}

#[cfg(test)]
mod tests;
