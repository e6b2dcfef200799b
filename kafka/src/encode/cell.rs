//! A cell of a batch, for writing.
//!
//! The few kinds that formats tell apart; how a kind is written is each format's own.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, TimestampMicrosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type, i256,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tidb::{CivilTime, ColumnInfo, ColumnType, Decimal, format_date, format_time};
use types::{Error, Result};

/// A cell.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CellValue<'a> {
    Null,
    Int(i128),
    Single(f32),
    Double(f64),
    Decimal(Decimal),
    Text(&'a str),
    Bytes(&'a [u8]),
    Days(i32),
    /// Microseconds, and digits of the fraction.
    Local(i64, u8),
    Instant(i64, u8),
}

impl<'a> CellValue<'a> {
    pub(crate) fn of(column: &ColumnInfo, array: &'a ArrayRef, row: usize) -> Result<CellValue<'a>> {
        if *array.data_type() != column.column_type.arrow_type() {
            return Err(Error::invalid(format!("column `{}` is {}", column.name, array.data_type())));
        }
        if array.is_null(row) {
            return Ok(CellValue::Null);
        }
        Ok(match array.data_type() {
            DataType::Int8 => CellValue::Int(array.as_primitive::<Int8Type>().value(row).into()),
            DataType::Int16 => CellValue::Int(array.as_primitive::<Int16Type>().value(row).into()),
            DataType::Int32 => CellValue::Int(array.as_primitive::<Int32Type>().value(row).into()),
            DataType::Int64 => CellValue::Int(array.as_primitive::<Int64Type>().value(row).into()),
            DataType::UInt8 => CellValue::Int(array.as_primitive::<UInt8Type>().value(row).into()),
            DataType::UInt16 => CellValue::Int(array.as_primitive::<UInt16Type>().value(row).into()),
            DataType::UInt32 => CellValue::Int(array.as_primitive::<UInt32Type>().value(row).into()),
            DataType::UInt64 => CellValue::Int(array.as_primitive::<UInt64Type>().value(row).into()),
            DataType::Float32 => CellValue::Single(array.as_primitive::<Float32Type>().value(row)),
            DataType::Float64 => CellValue::Double(array.as_primitive::<Float64Type>().value(row)),
            DataType::Decimal128(_, scale) => {
                let unscaled = i256::from_i128(array.as_primitive::<Decimal128Type>().value(row));
                CellValue::Decimal(Decimal { unscaled, scale: scale.unsigned_abs() })
            }
            DataType::Decimal256(_, scale) => {
                let unscaled = array.as_primitive::<Decimal256Type>().value(row);
                CellValue::Decimal(Decimal { unscaled, scale: scale.unsigned_abs() })
            }
            DataType::Utf8 => CellValue::Text(array.as_string::<i32>().value(row)),
            DataType::Binary => CellValue::Bytes(array.as_binary::<i32>().value(row)),
            DataType::Date32 => {
                let days = array.as_primitive::<Date32Type>().value(row);
                CivilTime::from_days(i64::from(days))?;
                CellValue::Days(days)
            }
            _ => {
                let micros = array.as_primitive::<TimestampMicrosecondType>().value(row);
                CivilTime::from_micros(micros)?;
                match column.column_type {
                    ColumnType::Timestamp(fsp) => CellValue::Instant(micros, fsp),
                    ColumnType::Datetime(fsp) => CellValue::Local(micros, fsp),
                    _ => return Err(Error::invalid(format!("column `{}` is no time", column.name))),
                }
            }
        })
    }

    /// The text that MySQL shows; a TIMESTAMP is in UTC. Bytes have none: they are base64.
    pub(crate) fn text(&self) -> String {
        match self {
            CellValue::Null => "NULL".to_owned(),
            CellValue::Int(value) => value.to_string(),
            CellValue::Single(value) => value.to_string(),
            CellValue::Double(value) => value.to_string(),
            CellValue::Decimal(value) => value.to_string(),
            CellValue::Text(text) => (*text).to_owned(),
            CellValue::Bytes(bytes) => STANDARD.encode(bytes),
            CellValue::Days(days) => {
                format_date(CivilTime::from_days(i64::from(*days)).expect("checked when it was taken"))
            }
            CellValue::Local(micros, fsp) | CellValue::Instant(micros, fsp) => {
                format_time(CivilTime::from_micros(*micros).expect("checked when it was taken"), *fsp)
            }
        }
    }
}
