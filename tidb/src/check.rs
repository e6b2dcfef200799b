//! Whether values may stand in a column, as MySQL decides in strict mode, and the form they are kept in.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, PrimitiveArray, StringArray};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Decimal256Type, Float32Type, Float64Type,
    Int32Type, TimestampMicrosecondType, UInt32Type, i256,
};
use types::{Error, Result};

use crate::decimal::fits;
use crate::schema::{ColumnInfo, ColumnType};
use crate::time::{CivilTime, DAYS_MAX, DAYS_MIN};

/// The first instant of a TIMESTAMP: 1970-01-01 00:00:01 UTC.
const TIMESTAMP_MIN: i64 = 1_000_000;
/// The last instant of a TIMESTAMP: 2038-01-19 03:14:07.999999 UTC.
const TIMESTAMP_MAX: i64 = 2_147_483_647_999_999;

/// Checks the values of a column and returns them in the form in which they are kept: CHAR without
/// trailing spaces, BINARY padded with zeros, times rounded to the column's fraction.
///
/// The array has the column's Arrow type already; [`crate::convert_column`] brings other types there.
///
/// # Errors
/// `Invalid` with MySQL's number: 1048 for a NULL in a NOT NULL column, 1264 out of range, 1292 for a time
/// that the type has not, 1406 too long. Messages name the column and the row, counted from 1.
pub fn check_column(column: &ColumnInfo, array: &ArrayRef) -> Result<ArrayRef> {
    let expected = column.column_type.arrow_type();
    if *array.data_type() != expected {
        let found = array.data_type();
        return Err(Error::invalid(format!("column `{}` is {expected}, not {found}", column.name)));
    }
    if column.not_null && array.null_count() > 0 {
        return Err(Error::mysql(1048, format!("Column '{}' cannot be null", column.name)));
    }
    match &column.column_type {
        ColumnType::Int { bits: 24, unsigned: false } => {
            check_each::<Int32Type>(column, array, |value| (-(1 << 23)..1 << 23).contains(&value))
        }
        ColumnType::Int { bits: 24, unsigned: true } => {
            check_each::<UInt32Type>(column, array, |value| value < 1 << 24)
        }
        ColumnType::Int { .. } => Ok(Arc::clone(array)),
        ColumnType::Float => check_each::<Float32Type>(column, array, f32::is_finite),
        ColumnType::Double => check_each::<Float64Type>(column, array, f64::is_finite),
        ColumnType::Decimal { precision, .. } => match expected {
            DataType::Decimal128(..) => {
                check_each::<Decimal128Type>(column, array, |value| fits(i256::from_i128(value), *precision))
            }
            _ => check_each::<Decimal256Type>(column, array, |value| fits(value, *precision)),
        },
        ColumnType::Char(_) | ColumnType::Varchar(_) | ColumnType::Text(_) => check_text(column, array),
        ColumnType::Binary(_) | ColumnType::Varbinary(_) | ColumnType::Blob(_) => check_bytes(column, array),
        ColumnType::Date => {
            let days = array.as_primitive::<Date32Type>();
            for (row, day) in days.iter().enumerate() {
                if day.is_some_and(|day| !(DAYS_MIN..=DAYS_MAX).contains(&i64::from(day))) {
                    return Err(incorrect_time(column, "date", "beyond the calendar", row));
                }
            }
            Ok(Arc::clone(array))
        }
        ColumnType::Datetime(fsp) | ColumnType::Timestamp(fsp) => check_times(column, array, *fsp),
    }
}

fn check_each<T: ArrowPrimitiveType>(
    column: &ColumnInfo,
    array: &ArrayRef,
    fits: impl Fn(T::Native) -> bool,
) -> Result<ArrayRef> {
    let values = array.as_primitive::<T>();
    match values.iter().position(|value| value.is_some_and(|value| !fits(value))) {
        Some(row) => Err(out_of_range(column, row)),
        None => Ok(Arc::clone(array)),
    }
}

fn check_text(column: &ColumnInfo, array: &ArrayRef) -> Result<ArrayRef> {
    let texts = array.as_string::<i32>();
    let kept = |row: usize| -> Result<Option<&str>> {
        if texts.is_null(row) {
            return Ok(None);
        }
        let text = texts.value(row);
        let kept = match &column.column_type {
            ColumnType::Char(n_chars) => cut_spaces(text.trim_end_matches(' '), *n_chars),
            ColumnType::Varchar(n_chars) => cut_spaces(text, *n_chars),
            ColumnType::Text(n_bytes) => (text.len() as u64 <= u64::from(*n_bytes)).then_some(text),
            _ => Some(text),
        };
        kept.map(Some).ok_or_else(|| too_long(column, row))
    };
    let mut changed = false;
    let mut rows = Vec::with_capacity(texts.len());
    for row in 0..texts.len() {
        let text = kept(row)?;
        changed |= text.is_some_and(|text| text.len() != texts.value(row).len());
        rows.push(text);
    }
    if changed { Ok(Arc::new(StringArray::from(rows))) } else { Ok(Arc::clone(array)) }
}

/// The text if it has at most so many characters, or without the spaces that are too many.
fn cut_spaces(text: &str, n_chars: u32) -> Option<&str> {
    let n_chars = n_chars as usize;
    if text.len() <= n_chars {
        return Some(text);
    }
    match text.char_indices().nth(n_chars) {
        None => Some(text),
        Some((end, _)) => text[end..].bytes().all(|byte| byte == b' ').then_some(&text[..end]),
    }
}

fn check_bytes(column: &ColumnInfo, array: &ArrayRef) -> Result<ArrayRef> {
    let values = array.as_binary::<i32>();
    let n_bytes = match &column.column_type {
        ColumnType::Binary(n) | ColumnType::Varbinary(n) | ColumnType::Blob(n) => *n as usize,
        _ => usize::MAX,
    };
    if let Some(row) = values.iter().position(|value| value.is_some_and(|value| value.len() > n_bytes)) {
        return Err(too_long(column, row));
    }
    let short = |value: &[u8]| value.len() < n_bytes;
    if !matches!(column.column_type, ColumnType::Binary(_)) || !values.iter().flatten().any(short) {
        return Ok(Arc::clone(array));
    }
    let padded: Vec<Option<Cow<'_, [u8]>>> = values
        .iter()
        .map(|value| {
            value.map(|value| {
                let mut padded = value.to_vec();
                padded.resize(n_bytes, 0);
                Cow::Owned(padded)
            })
        })
        .collect();
    Ok(Arc::new(BinaryArray::from_iter(padded)))
}

fn check_times(column: &ColumnInfo, array: &ArrayRef, fsp: u8) -> Result<ArrayRef> {
    let times = array.as_primitive::<TimestampMicrosecondType>();
    let is_instant = matches!(column.column_type, ColumnType::Timestamp(_));
    let kind = if is_instant { "timestamp" } else { "datetime" };
    let mut kept = Vec::with_capacity(times.len());
    for (row, micros) in times.iter().enumerate() {
        let Some(micros) = micros else {
            kept.push(None);
            continue;
        };
        let rounded = round_micros(micros, fsp);
        let good = rounded.filter(|rounded| {
            if is_instant {
                (TIMESTAMP_MIN..=TIMESTAMP_MAX).contains(rounded)
            } else {
                CivilTime::from_micros(*rounded).is_ok()
            }
        });
        if good.is_none() {
            return Err(incorrect_time(column, kind, &micros.to_string(), row));
        }
        kept.push(good);
    }
    let kept = PrimitiveArray::<TimestampMicrosecondType>::from(kept);
    Ok(Arc::new(kept.with_data_type(column.column_type.arrow_type())))
}

/// Rounds to so many digits of a second, halves up.
pub(crate) fn round_micros(micros: i64, fsp: u8) -> Option<i64> {
    let unit = 10_i64.pow(6 - u32::from(fsp.min(6)));
    Some(micros.checked_add(unit / 2)?.div_euclid(unit) * unit)
}

pub(crate) fn out_of_range(column: &ColumnInfo, row: usize) -> Error {
    Error::mysql(1264, format!("Out of range value for column '{}' at row {}", column.name, row + 1))
}

pub(crate) fn too_long(column: &ColumnInfo, row: usize) -> Error {
    Error::mysql(1406, format!("Data too long for column '{}' at row {}", column.name, row + 1))
}

pub(crate) fn incorrect_time(column: &ColumnInfo, kind: &str, value: &str, row: usize) -> Error {
    let (name, row) = (&column.name, row + 1);
    Error::mysql(1292, format!("Incorrect {kind} value: '{value}' for column '{name}' at row {row}"))
}
