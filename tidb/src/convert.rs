//! Values of any type into a column's type, as MySQL converts them when it stores them in strict mode.
//!
//! A conversion that loses more than digits after the point is an error, with MySQL's number and message.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, Decimal128Array, Decimal256Array, PrimitiveArray, StringArray,
    new_null_array,
};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Decimal256Type, Float32Type, Float64Type,
    Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type, i256,
};
use types::{Error, Result};

use crate::check::{check_column, incorrect_time, out_of_range};
use crate::decimal::Decimal;
use crate::literal::{
    Parsed, format_date, format_double, format_float, format_time, number_prefix, parse_time,
};
use crate::schema::{ColumnInfo, ColumnType};
use crate::time::{CivilTime, DAY_MICROS};
use crate::zone::Zone;

/// What a conversion depends on beside the value.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cast {
    /// The session's time zone: how a TIMESTAMP is read and written as text.
    pub zone: Zone,
}

/// Converts an array to a column's type and checks it ([`check_column`]).
///
/// # Errors
/// As [`check_column`], and 1366, 1265 or 1292 for text that does not say such a value; messages name the
/// column and the row, counted from 1.
pub fn convert_column(column: &ColumnInfo, array: &ArrayRef, context: &Cast) -> Result<ArrayRef> {
    let target = column.column_type.arrow_type();
    if *array.data_type() == target {
        return check_column(column, array);
    }
    if *array.data_type() == DataType::Null {
        return check_column(column, &new_null_array(&target, array.len()));
    }
    let array = plain(array)?;
    let conversion = Conversion { column, context, array: &array, texts: texts_of(&array) };
    check_column(column, &conversion.run(&target)?)
}

/// The same values in one of the few types that conversions start from.
fn plain(array: &ArrayRef) -> Result<ArrayRef> {
    let simpler = match array.data_type() {
        DataType::LargeUtf8 | DataType::Utf8View => Some(DataType::Utf8),
        DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => Some(DataType::Binary),
        DataType::Float16 => Some(DataType::Float32),
        DataType::Boolean => Some(DataType::Int8),
        DataType::Date64 => Some(DataType::Timestamp(TimeUnit::Microsecond, None)),
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
            Some(DataType::Decimal128(*precision, *scale))
        }
        DataType::Timestamp(unit, zone) if *unit != TimeUnit::Microsecond => {
            Some(DataType::Timestamp(TimeUnit::Microsecond, zone.clone()))
        }
        DataType::Dictionary(_, values) => {
            let values = cast(array, values)?;
            return plain(&values);
        }
        _ => None,
    };
    match simpler {
        Some(simpler) => Ok(cast(array, &simpler)?),
        None => Ok(Arc::clone(array)),
    }
}

/// A value before its conversion.
enum Scalar<'a> {
    Number(Decimal),
    Float(f64),
    Single(f32),
    Text(&'a str),
    Bytes(&'a [u8]),
    Date(i64),
    Local(i64),
    Instant(i64),
}

struct Conversion<'a> {
    column: &'a ColumnInfo,
    context: &'a Cast,
    array: &'a ArrayRef,
    texts: Option<&'a StringArray>,
}

fn texts_of(array: &ArrayRef) -> Option<&StringArray> {
    array.as_string_opt::<i32>()
}

impl<'a> Conversion<'a> {
    fn run(&self, target: &DataType) -> Result<ArrayRef> {
        match target {
            DataType::Int8 => self.integers::<Int8Type>(),
            DataType::Int16 => self.integers::<Int16Type>(),
            DataType::Int32 => self.integers::<Int32Type>(),
            DataType::Int64 => self.integers::<Int64Type>(),
            DataType::UInt8 => self.integers::<UInt8Type>(),
            DataType::UInt16 => self.integers::<UInt16Type>(),
            DataType::UInt32 => self.integers::<UInt32Type>(),
            DataType::UInt64 => self.integers::<UInt64Type>(),
            DataType::Float32 => self.primitives::<Float32Type>(|row| {
                let wide = self.to_float(row)?;
                Ok(wide as f32)
            }),
            DataType::Float64 => self.primitives::<Float64Type>(|row| self.to_float(row)),
            DataType::Decimal128(precision, scale) => {
                let values = self.each(|row| {
                    let unscaled = self.to_decimal(row, *precision, *scale as u8)?;
                    unscaled.to_i128().ok_or_else(|| out_of_range(self.column, row))
                })?;
                Ok(Arc::new(Decimal128Array::from(values).with_precision_and_scale(*precision, *scale)?))
            }
            DataType::Decimal256(precision, scale) => {
                let values = self.each(|row| self.to_decimal(row, *precision, *scale as u8))?;
                Ok(Arc::new(Decimal256Array::from(values).with_precision_and_scale(*precision, *scale)?))
            }
            DataType::Utf8 => {
                let values = self.each(|row| self.to_text(row))?;
                Ok(Arc::new(StringArray::from_iter(values)))
            }
            DataType::Binary => {
                let values = self.each(|row| self.to_bytes(row))?;
                Ok(Arc::new(BinaryArray::from_iter(values)))
            }
            DataType::Date32 => self.primitives::<Date32Type>(|row| {
                let days = self.to_local(row)?.div_euclid(DAY_MICROS);
                i32::try_from(days).map_err(|_| out_of_range(self.column, row))
            }),
            DataType::Timestamp(..) => {
                let instants = matches!(self.column.column_type, ColumnType::Timestamp(_));
                let values =
                    self.each(|row| if instants { self.to_instant(row) } else { self.to_local(row) })?;
                let values = PrimitiveArray::<TimestampMicrosecondType>::from(values);
                Ok(Arc::new(values.with_data_type(target.clone())))
            }
            other => Err(Error::invalid(format!("no column is {other}"))),
        }
    }

    fn each<T>(&self, convert: impl Fn(usize) -> Result<T>) -> Result<Vec<Option<T>>> {
        let rows = 0..self.array.len();
        rows.map(|row| if self.array.is_null(row) { Ok(None) } else { convert(row).map(Some) }).collect()
    }

    fn primitives<T: ArrowPrimitiveType>(
        &self,
        convert: impl Fn(usize) -> Result<T::Native>,
    ) -> Result<ArrayRef> {
        Ok(Arc::new(PrimitiveArray::<T>::from_iter(self.each(convert)?)))
    }

    fn integers<T: ArrowPrimitiveType>(&self) -> Result<ArrayRef>
    where
        T::Native: TryFrom<i128>,
    {
        self.primitives::<T>(|row| {
            let number = self.to_integer(row)?;
            T::Native::try_from(number).map_err(|_| out_of_range(self.column, row))
        })
    }

    fn scalar(&self, row: usize) -> Result<Scalar<'a>> {
        if let Some(texts) = self.texts {
            return Ok(Scalar::Text(texts.value(row)));
        }
        let array = self.array;
        let whole = |value: i128| Scalar::Number(Decimal { unscaled: i256::from_i128(value), scale: 0 });
        let scalar = match array.data_type() {
            DataType::Int8 => whole(array.as_primitive::<Int8Type>().value(row).into()),
            DataType::Int16 => whole(array.as_primitive::<Int16Type>().value(row).into()),
            DataType::Int32 => whole(array.as_primitive::<Int32Type>().value(row).into()),
            DataType::Int64 => whole(array.as_primitive::<Int64Type>().value(row).into()),
            DataType::UInt8 => whole(array.as_primitive::<UInt8Type>().value(row).into()),
            DataType::UInt16 => whole(array.as_primitive::<UInt16Type>().value(row).into()),
            DataType::UInt32 => whole(array.as_primitive::<UInt32Type>().value(row).into()),
            DataType::UInt64 => whole(array.as_primitive::<UInt64Type>().value(row).into()),
            DataType::Float32 => Scalar::Single(array.as_primitive::<Float32Type>().value(row)),
            DataType::Float64 => Scalar::Float(array.as_primitive::<Float64Type>().value(row)),
            DataType::Decimal128(_, scale) => {
                let value = i256::from_i128(array.as_primitive::<Decimal128Type>().value(row));
                Scalar::Number(self.scaled(value, *scale, row)?)
            }
            DataType::Decimal256(_, scale) => {
                let value = array.as_primitive::<Decimal256Type>().value(row);
                Scalar::Number(self.scaled(value, *scale, row)?)
            }
            DataType::Binary => Scalar::Bytes(array.as_binary::<i32>().value(row)),
            DataType::Date32 => Scalar::Date(array.as_primitive::<Date32Type>().value(row).into()),
            DataType::Timestamp(_, zone) => {
                let micros = array.as_primitive::<TimestampMicrosecondType>().value(row);
                if zone.is_some() { Scalar::Instant(micros) } else { Scalar::Local(micros) }
            }
            other => {
                let name = &self.column.name;
                return Err(Error::mysql(
                    1366,
                    format!("Incorrect value of type {other} for column '{name}'"),
                ));
            }
        };
        Ok(scalar)
    }

    fn scaled(&self, value: i256, scale: i8, row: usize) -> Result<Decimal> {
        let decimal = if scale >= 0 {
            Some(Decimal { unscaled: value, scale: scale as u8 })
        } else {
            Decimal { unscaled: value, scale: 0 }
                .rescale(scale.unsigned_abs())
                .map(|up| Decimal { scale: 0, ..up })
        };
        decimal.ok_or_else(|| out_of_range(self.column, row))
    }

    /// The value as a number, times as `YYYYMMDDhhmmss.ffffff`.
    fn to_number(&self, row: usize) -> Result<Scalar<'a>> {
        let scalar = self.scalar(row)?;
        let micros = match scalar {
            Scalar::Date(days) => {
                let civil = CivilTime::from_days(days).map_err(|_| out_of_range(self.column, row))?;
                let number = i128::from(civil.year) * 10_000 + i128::from(civil.month * 100 + civil.day);
                return Ok(Scalar::Number(Decimal { unscaled: i256::from_i128(number), scale: 0 }));
            }
            Scalar::Local(_) | Scalar::Instant(_) => self.to_local(row)?,
            other => return Ok(other),
        };
        let civil = CivilTime::from_micros(micros).map_err(|_| out_of_range(self.column, row))?;
        let date = i128::from(civil.year) * 10_000 + i128::from(civil.month * 100 + civil.day);
        let time = i128::from(civil.hour * 10_000 + civil.minute * 100 + civil.second);
        let number = (date * 1_000_000 + time) * 1_000_000 + i128::from(civil.micro);
        Ok(Scalar::Number(Decimal { unscaled: i256::from_i128(number), scale: 6 }))
    }

    fn to_integer(&self, row: usize) -> Result<i128> {
        let decimal = match self.to_number(row)? {
            // Most texts are plain integers, and need no arithmetic of 256 bits.
            Scalar::Text(text) if let Ok(number) = text.trim().parse::<i64>() => return Ok(number.into()),
            Scalar::Float(value) => return self.float_to_integer(value, row),
            Scalar::Single(value) => return self.float_to_integer(value.into(), row),
            Scalar::Number(decimal) => decimal,
            Scalar::Text(text) => self.text_number(text, "integer", row)?,
            Scalar::Bytes(bytes) => self.text_number(self.utf8(bytes, row)?, "integer", row)?,
            _ => return Err(out_of_range(self.column, row)),
        };
        let whole = decimal.rescale(0).and_then(|whole| whole.unscaled.to_i128());
        whole.ok_or_else(|| out_of_range(self.column, row))
    }

    fn float_to_integer(&self, value: f64, row: usize) -> Result<i128> {
        let whole = value.round_ties_even();
        // 2^100 and beyond fits in no column; below it the conversion is exact.
        if whole.is_nan() || whole.abs() > 1.0e30 {
            Err(out_of_range(self.column, row))
        } else {
            Ok(whole as i128)
        }
    }

    fn to_float(&self, row: usize) -> Result<f64> {
        let text = match self.to_number(row)? {
            Scalar::Float(value) => return Ok(value),
            Scalar::Single(value) => return Ok(value.into()),
            Scalar::Number(decimal) => Cow::Owned(decimal.to_string()),
            Scalar::Text(text) => Cow::Borrowed(text.trim()),
            Scalar::Bytes(bytes) => Cow::Borrowed(self.utf8(bytes, row)?.trim()),
            _ => return Err(out_of_range(self.column, row)),
        };
        // Rust reads the same numbers as MySQL, and words (inf, nan) that MySQL does not have.
        if number_prefix(&text) != text.len() || text.is_empty() {
            return Err(self.truncated(row));
        }
        text.parse().map_err(|_| self.truncated(row))
    }

    fn to_decimal(&self, row: usize, precision: u8, scale: u8) -> Result<i256> {
        let decimal = match self.to_number(row)? {
            Scalar::Float(value) if value.is_finite() => {
                self.text_number(&value.to_string(), "decimal", row)?
            }
            Scalar::Single(value) if value.is_finite() => {
                self.text_number(&value.to_string(), "decimal", row)?
            }
            Scalar::Number(decimal) => decimal,
            Scalar::Text(text) => self.text_number(text, "decimal", row)?,
            Scalar::Bytes(bytes) => self.text_number(self.utf8(bytes, row)?, "decimal", row)?,
            _ => return Err(out_of_range(self.column, row)),
        };
        let rounded = decimal.rescale(scale).filter(|rounded| rounded.fits(precision));
        rounded.map(|rounded| rounded.unscaled).ok_or_else(|| out_of_range(self.column, row))
    }

    /// A text as a number: spaces around it do not count, garbage after it is an error.
    fn text_number(&self, text: &str, kind: &str, row: usize) -> Result<Decimal> {
        let trimmed = text.trim();
        let n_number = number_prefix(trimmed);
        if n_number == 0 {
            let name = &self.column.name;
            let message = format!("Incorrect {kind} value: '{text}' for column '{name}' at row {}", row + 1);
            return Err(Error::mysql(1366, message));
        }
        if n_number < trimmed.len() {
            return Err(self.truncated(row));
        }
        trimmed.parse::<Decimal>().map_err(|_| out_of_range(self.column, row))
    }

    fn truncated(&self, row: usize) -> Error {
        Error::mysql(1265, format!("Data truncated for column '{}' at row {}", self.column.name, row + 1))
    }

    fn utf8(&self, bytes: &'a [u8], row: usize) -> Result<&'a str> {
        std::str::from_utf8(bytes).map_err(|error| {
            let bad = &bytes[error.valid_up_to()..];
            let shown: String = bad.iter().take(6).map(|byte| format!("\\x{byte:02X}")).collect();
            let name = &self.column.name;
            let message = format!("Incorrect string value: '{shown}' for column '{name}' at row {}", row + 1);
            Error::mysql(1366, message)
        })
    }

    fn to_text(&self, row: usize) -> Result<Cow<'a, str>> {
        Ok(match self.scalar(row)? {
            Scalar::Number(decimal) => Cow::Owned(decimal.to_string()),
            Scalar::Float(value) => Cow::Owned(format_double(value)),
            Scalar::Single(value) => Cow::Owned(format_float(value)),
            Scalar::Text(text) => Cow::Borrowed(text),
            Scalar::Bytes(bytes) => Cow::Borrowed(self.utf8(bytes, row)?),
            Scalar::Date(days) => Cow::Owned(format_date(
                CivilTime::from_days(days).map_err(|_| out_of_range(self.column, row))?,
            )),
            Scalar::Local(_) | Scalar::Instant(_) => {
                let civil = CivilTime::from_micros(self.to_local(row)?);
                let civil = civil.map_err(|_| out_of_range(self.column, row))?;
                Cow::Owned(format_time(civil, if civil.micro == 0 { 0 } else { 6 }))
            }
        })
    }

    fn to_bytes(&self, row: usize) -> Result<Cow<'a, [u8]>> {
        if let Scalar::Bytes(bytes) = self.scalar(row)? {
            return Ok(Cow::Borrowed(bytes));
        }
        Ok(match self.to_text(row)? {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        })
    }

    /// The value as a local time.
    fn to_local(&self, row: usize) -> Result<i64> {
        match self.scalar(row)? {
            Scalar::Date(days) => days.checked_mul(DAY_MICROS).ok_or_else(|| out_of_range(self.column, row)),
            Scalar::Local(micros) => Ok(micros),
            Scalar::Instant(micros) => {
                self.context.zone.to_local(micros).ok_or_else(|| out_of_range(self.column, row))
            }
            other => {
                let (parsed, text) = self.parse(&other, row)?;
                match parsed {
                    Parsed::Local(micros) => Ok(micros),
                    Parsed::Instant(micros) => {
                        self.context.zone.to_local(micros).ok_or_else(|| self.incorrect(&text, row))
                    }
                }
            }
        }
    }

    /// The value as an instant.
    fn to_instant(&self, row: usize) -> Result<i64> {
        let (local, shown) = match self.scalar(row)? {
            Scalar::Instant(micros) => return Ok(micros),
            Scalar::Date(_) | Scalar::Local(_) => {
                let local = self.to_local(row)?;
                let shown = CivilTime::from_micros(local).map(|civil| format_time(civil, 0));
                (local, shown.unwrap_or_default())
            }
            other => match self.parse(&other, row)? {
                (Parsed::Instant(micros), _) => return Ok(micros),
                (Parsed::Local(local), shown) => (local, shown),
            },
        };
        self.context.zone.to_instant(local).ok_or_else(|| self.incorrect(&shown, row))
    }

    fn parse(&self, scalar: &Scalar<'_>, row: usize) -> Result<(Parsed, String)> {
        let text = match scalar {
            Scalar::Text(text) => (*text).to_owned(),
            Scalar::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Scalar::Number(decimal) => decimal.to_string(),
            Scalar::Float(value) => value.to_string(),
            Scalar::Single(value) => value.to_string(),
            _ => String::new(),
        };
        match parse_time(&text) {
            Some(parsed) => Ok((parsed, text)),
            None => Err(self.incorrect(&text, row)),
        }
    }

    fn incorrect(&self, text: &str, row: usize) -> Error {
        let kind = match self.column.column_type {
            ColumnType::Date => "date",
            ColumnType::Timestamp(_) => "timestamp",
            _ => "datetime",
        };
        incorrect_time(self.column, kind, text, row)
    }
}
