//! Columns of a batch, taken out of their dynamic types once, then encoded cell by cell.

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, Date32Array, Decimal128Array, Decimal256Array, Float32Array,
    Float64Array, Int8Array, Int16Array, Int32Array, Int64Array, StringArray, TimestampMicrosecondArray,
    UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, TimestampMicrosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type, i256,
};
use types::{Error, Result};

use crate::collation::pad_key;
use crate::comparable::{comparable_f64, flag, key_f64, put_bytes, put_f64, put_i64, put_u64};
use crate::decimal::{fits, put_sized};
use crate::schema::{ColumnInfo, ColumnType};
use crate::time::{pack_date, pack_time};

/// A column whose cells can be encoded.
#[derive(Debug)]
pub(crate) struct Cells<'a> {
    column: &'a ColumnInfo,
    array: &'a ArrayRef,
    typed: Typed<'a>,
}

#[derive(Debug)]
enum Typed<'a> {
    Int8(&'a Int8Array),
    Int16(&'a Int16Array),
    Int32(&'a Int32Array),
    Int64(&'a Int64Array),
    UInt8(&'a UInt8Array),
    UInt16(&'a UInt16Array),
    UInt32(&'a UInt32Array),
    UInt64(&'a UInt64Array),
    Float32(&'a Float32Array),
    Float64(&'a Float64Array),
    Decimal128(&'a Decimal128Array, u8, u8),
    Decimal256(&'a Decimal256Array, u8, u8),
    Text(&'a StringArray),
    Bytes(&'a BinaryArray),
    Date(&'a Date32Array),
    Time(&'a TimestampMicrosecondArray),
}

/// One cell, as its encoding sees it.
enum Cell<'a> {
    Int(i64),
    UInt(u64),
    Float(f64),
    Decimal(i256, u8, u8),
    Text(&'a str),
    Bytes(&'a [u8]),
}

impl<'a> Cells<'a> {
    /// Binds a column's array, which must have exactly the column's Arrow type.
    pub(crate) fn bind(column: &'a ColumnInfo, array: &'a ArrayRef) -> Result<Cells<'a>> {
        let expected = column.column_type.arrow_type();
        if *array.data_type() != expected {
            let found = array.data_type();
            return Err(Error::invalid(format!("column `{}` is {expected}, not {found}", column.name)));
        }
        let typed = match (&expected, &column.column_type) {
            (DataType::Int8, _) => Typed::Int8(array.as_primitive::<Int8Type>()),
            (DataType::Int16, _) => Typed::Int16(array.as_primitive::<Int16Type>()),
            (DataType::Int32, _) => Typed::Int32(array.as_primitive::<Int32Type>()),
            (DataType::Int64, _) => Typed::Int64(array.as_primitive::<Int64Type>()),
            (DataType::UInt8, _) => Typed::UInt8(array.as_primitive::<UInt8Type>()),
            (DataType::UInt16, _) => Typed::UInt16(array.as_primitive::<UInt16Type>()),
            (DataType::UInt32, _) => Typed::UInt32(array.as_primitive::<UInt32Type>()),
            (DataType::UInt64, _) => Typed::UInt64(array.as_primitive::<UInt64Type>()),
            (DataType::Float32, _) => Typed::Float32(array.as_primitive::<Float32Type>()),
            (DataType::Float64, _) => Typed::Float64(array.as_primitive::<Float64Type>()),
            (DataType::Decimal128(..), ColumnType::Decimal { precision, scale }) => {
                Typed::Decimal128(array.as_primitive::<Decimal128Type>(), *precision, *scale)
            }
            (DataType::Decimal256(..), ColumnType::Decimal { precision, scale }) => {
                Typed::Decimal256(array.as_primitive::<Decimal256Type>(), *precision, *scale)
            }
            (DataType::Utf8, _) => Typed::Text(array.as_string::<i32>()),
            (DataType::Binary, _) => Typed::Bytes(array.as_binary::<i32>()),
            (DataType::Date32, _) => Typed::Date(array.as_primitive::<Date32Type>()),
            (DataType::Timestamp(..), _) => Typed::Time(array.as_primitive::<TimestampMicrosecondType>()),
            (other, _) => return Err(Error::invalid(format!("column `{}` is {other}", column.name))),
        };
        Ok(Cells { column, array, typed })
    }

    /// The column's id.
    pub(crate) fn id(&self) -> i64 {
        self.column.id
    }

    /// The column.
    pub(crate) fn column(&self) -> &'a ColumnInfo {
        self.column
    }

    /// Whether a cell is NULL.
    pub(crate) fn is_null(&self, row: usize) -> bool {
        self.array.is_null(row)
    }

    /// Appends a cell as a datum of a key: flag and comparable bytes.
    pub(crate) fn put_datum(&self, out: &mut Vec<u8>, row: usize) -> Result<()> {
        if self.is_null(row) {
            out.push(flag::NIL);
            return Ok(());
        }
        match self.cell(row)? {
            Cell::Int(value) => {
                out.push(flag::INT);
                put_i64(out, value);
            }
            Cell::UInt(value) => {
                out.push(flag::UINT);
                put_u64(out, value);
            }
            Cell::Float(value) => {
                out.push(flag::FLOAT);
                put_f64(out, key_f64(value));
            }
            Cell::Decimal(unscaled, precision, scale) => {
                out.push(flag::DECIMAL);
                put_sized(out, unscaled, precision, scale);
            }
            Cell::Text(text) => {
                out.push(flag::BYTES);
                put_bytes(out, pad_key(text).as_bytes());
            }
            Cell::Bytes(bytes) => {
                out.push(flag::BYTES);
                put_bytes(out, bytes);
            }
        }
        Ok(())
    }

    /// Whether a cell cannot be read back from its datum: a text that lost trailing spaces.
    pub(crate) fn datum_loses(&self, row: usize) -> bool {
        match &self.typed {
            Typed::Text(array) => array.value(row).ends_with(' '),
            _ => false,
        }
    }

    /// Appends a cell that is not NULL as a value of a row.
    pub(crate) fn put_value(&self, out: &mut Vec<u8>, row: usize) -> Result<()> {
        match self.cell(row)? {
            Cell::Int(value) => put_minimal_int(out, value),
            Cell::UInt(value) => put_minimal_uint(out, value),
            Cell::Float(value) => put_u64(out, comparable_f64(value)),
            Cell::Decimal(unscaled, precision, scale) => put_sized(out, unscaled, precision, scale),
            Cell::Text(text) => out.extend_from_slice(text.as_bytes()),
            Cell::Bytes(bytes) => out.extend_from_slice(bytes),
        }
        Ok(())
    }

    /// A cell as the integer of a handle: unsigned numbers keep their 64 bits.
    pub(crate) fn int_handle(&self, row: usize) -> Result<i64> {
        match self.cell(row)? {
            Cell::Int(value) => Ok(value),
            Cell::UInt(value) => Ok(value as i64),
            _ => Err(Error::invalid(format!("column `{}` is no integer handle", self.column.name))),
        }
    }

    fn cell(&self, row: usize) -> Result<Cell<'a>> {
        let cell = match &self.typed {
            Typed::Int8(array) => Cell::Int(array.value(row).into()),
            Typed::Int16(array) => Cell::Int(array.value(row).into()),
            Typed::Int32(array) => Cell::Int(array.value(row).into()),
            Typed::Int64(array) => Cell::Int(array.value(row)),
            Typed::UInt8(array) => Cell::UInt(array.value(row).into()),
            Typed::UInt16(array) => Cell::UInt(array.value(row).into()),
            Typed::UInt32(array) => Cell::UInt(array.value(row).into()),
            Typed::UInt64(array) => Cell::UInt(array.value(row)),
            Typed::Float32(array) => Cell::Float((array.value(row) + 0.0).into()),
            Typed::Float64(array) => Cell::Float(array.value(row) + 0.0),
            Typed::Decimal128(array, precision, scale) => {
                self.decimal(i256::from_i128(array.value(row)), *precision, *scale)?
            }
            Typed::Decimal256(array, precision, scale) => {
                self.decimal(array.value(row), *precision, *scale)?
            }
            Typed::Text(array) => Cell::Text(array.value(row)),
            Typed::Bytes(array) => Cell::Bytes(array.value(row)),
            Typed::Date(array) => Cell::UInt(pack_date(array.value(row)).map_err(|e| self.named(e))?),
            Typed::Time(array) => Cell::UInt(pack_time(array.value(row)).map_err(|e| self.named(e))?),
        };
        Ok(cell)
    }

    fn decimal(&self, unscaled: i256, precision: u8, scale: u8) -> Result<Cell<'a>> {
        if fits(unscaled, precision) {
            return Ok(Cell::Decimal(unscaled, precision, scale));
        }
        Err(Error::mysql(1264, format!("Out of range value for column '{}'", self.column.name)))
    }

    fn named(&self, error: Error) -> Error {
        error.context(format!("column `{}`", self.column.name))
    }
}

/// Appends a signed integer in the fewest of 1, 2, 4 or 8 bytes, little-endian.
fn put_minimal_int(out: &mut Vec<u8>, value: i64) {
    if let Ok(value) = i8::try_from(value) {
        out.extend_from_slice(&value.to_le_bytes());
    } else if let Ok(value) = i16::try_from(value) {
        out.extend_from_slice(&value.to_le_bytes());
    } else if let Ok(value) = i32::try_from(value) {
        out.extend_from_slice(&value.to_le_bytes());
    } else {
        out.extend_from_slice(&value.to_le_bytes());
    }
}

/// Appends an unsigned integer in the fewest of 1, 2, 4 or 8 bytes, little-endian.
fn put_minimal_uint(out: &mut Vec<u8>, value: u64) {
    if let Ok(value) = u8::try_from(value) {
        out.push(value);
    } else if let Ok(value) = u16::try_from(value) {
        out.extend_from_slice(&value.to_le_bytes());
    } else if let Ok(value) = u32::try_from(value) {
        out.extend_from_slice(&value.to_le_bytes());
    } else {
        out.extend_from_slice(&value.to_le_bytes());
    }
}
