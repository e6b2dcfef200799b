//! Arrow columns under construction, filled from encoded bytes.
//!
//! Unlike Arrow's builders these can be cut back, so that a row that fails in its last column leaves no
//! trace in the others.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, Decimal128Array, Decimal256Array, NullBufferBuilder, PrimitiveArray, StringArray,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type, i256,
};
use types::{Error, Result};

use crate::comparable::{
    f64_of_comparable, flag, skip_bytes, take_array, take_bytes, take_f64, take_i64, take_u8, take_u64,
};
use crate::decimal::{Decimal, skip_sized, take_sized};
use crate::old_row::{take_compact, take_uvarint, take_varint, value_flag};
use crate::schema::ColumnType;
use crate::time::{unpack_date, unpack_time};

/// One Arrow column under construction.
#[derive(Debug)]
pub(crate) struct ColumnBuilder {
    column_type: ColumnType,
    values: Values,
    nulls: NullBufferBuilder,
}

#[derive(Debug)]
enum Values {
    Int8(Vec<i8>),
    Int16(Vec<i16>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    UInt8(Vec<u8>),
    UInt16(Vec<u16>),
    UInt32(Vec<u32>),
    UInt64(Vec<u64>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
    Decimal128(Vec<i128>, u8, u8),
    Decimal256(Vec<i256>, u8, u8),
    Text(Vec<i32>, Vec<u8>),
    Bytes(Vec<i32>, Vec<u8>),
    Date(Vec<i32>),
    Time(Vec<i64>, DataType),
}

/// What a builder takes: the logical content of a cell.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Content<'a> {
    Int(i64),
    UInt(u64),
    Float(f64),
    Decimal(i256),
    Bytes(&'a [u8]),
    /// A packed date or time.
    Packed(u64),
}

impl ColumnBuilder {
    pub(crate) fn new(column_type: &ColumnType) -> ColumnBuilder {
        let values = match column_type.arrow_type() {
            DataType::Int8 => Values::Int8(Vec::new()),
            DataType::Int16 => Values::Int16(Vec::new()),
            DataType::Int32 => Values::Int32(Vec::new()),
            DataType::UInt8 => Values::UInt8(Vec::new()),
            DataType::UInt16 => Values::UInt16(Vec::new()),
            DataType::UInt32 => Values::UInt32(Vec::new()),
            DataType::UInt64 => Values::UInt64(Vec::new()),
            DataType::Float32 => Values::Float32(Vec::new()),
            DataType::Float64 => Values::Float64(Vec::new()),
            DataType::Decimal128(precision, scale) => Values::Decimal128(Vec::new(), precision, scale as u8),
            DataType::Decimal256(precision, scale) => Values::Decimal256(Vec::new(), precision, scale as u8),
            DataType::Utf8 => Values::Text(vec![0], Vec::new()),
            DataType::Binary => Values::Bytes(vec![0], Vec::new()),
            DataType::Date32 => Values::Date(Vec::new()),
            time @ DataType::Timestamp(..) => Values::Time(Vec::new(), time),
            _ => Values::Int64(Vec::new()),
        };
        ColumnBuilder { column_type: column_type.clone(), values, nulls: NullBufferBuilder::new(0) }
    }

    /// The number of rows.
    pub(crate) fn len(&self) -> usize {
        self.nulls.len()
    }

    /// Appends NULL.
    pub(crate) fn append_null(&mut self) {
        self.nulls.append_null();
        match &mut self.values {
            Values::Int8(values) => values.push(0),
            Values::Int16(values) => values.push(0),
            Values::Int32(values) | Values::Date(values) => values.push(0),
            Values::Int64(values) | Values::Time(values, _) => values.push(0),
            Values::UInt8(values) => values.push(0),
            Values::UInt16(values) => values.push(0),
            Values::UInt32(values) => values.push(0),
            Values::UInt64(values) => values.push(0),
            Values::Float32(values) => values.push(0.0),
            Values::Float64(values) => values.push(0.0),
            Values::Decimal128(values, ..) => values.push(0),
            Values::Decimal256(values, ..) => values.push(i256::ZERO),
            Values::Text(ends, data) | Values::Bytes(ends, data) => ends.push(data.len() as i32),
        }
    }

    /// Appends a cell from the bytes of a row's value.
    pub(crate) fn append_value(&mut self, bytes: &[u8]) -> Result<()> {
        let content = match &self.column_type {
            ColumnType::Int { unsigned: false, .. } => Content::Int(minimal_int(bytes)?),
            ColumnType::Int { unsigned: true, .. } => Content::UInt(minimal_uint(bytes)?),
            ColumnType::Float | ColumnType::Double => Content::Float(f64_of_comparable(whole_u64(bytes)?)),
            ColumnType::Decimal { precision, scale } => {
                let mut rest = bytes;
                let unscaled = take_sized(&mut rest, *precision, *scale)?;
                if !rest.is_empty() {
                    return Err(Error::corrupt("bytes after the end of a decimal"));
                }
                Content::Decimal(unscaled)
            }
            ColumnType::Date | ColumnType::Datetime(_) | ColumnType::Timestamp(_) => {
                Content::Packed(minimal_uint(bytes)?)
            }
            _ => Content::Bytes(bytes),
        };
        self.append(content)
    }

    /// Appends a cell from the front of a key's datums.
    pub(crate) fn append_datum(&mut self, input: &mut &[u8], scratch: &mut Vec<u8>) -> Result<()> {
        let found = take_u8(input)?;
        let content = match (found, &self.column_type) {
            (flag::INT, ColumnType::Int { unsigned: false, .. }) => Content::Int(take_i64(input)?),
            (flag::UINT, ColumnType::Int { unsigned: true, .. }) => Content::UInt(take_u64(input)?),
            (flag::FLOAT, ColumnType::Float | ColumnType::Double) => Content::Float(take_f64(input)?),
            (flag::DECIMAL, ColumnType::Decimal { precision, scale }) => {
                Content::Decimal(take_sized(input, *precision, *scale)?)
            }
            (flag::UINT, ColumnType::Date | ColumnType::Datetime(_) | ColumnType::Timestamp(_)) => {
                Content::Packed(take_u64(input)?)
            }
            (flag::BYTES, column_type) if column_type.is_string() => {
                scratch.clear();
                take_bytes(input, scratch)?;
                Content::Bytes(scratch)
            }
            (found, column_type) => {
                return Err(Error::corrupt(format!("flag {found:#x} before a {column_type:?} in a key")));
            }
        };
        self.append(content)
    }

    /// Appends a cell, not NULL, from a datum of a value in the old format.
    pub(crate) fn append_value_datum(&mut self, datum: &[u8], scratch: &mut Vec<u8>) -> Result<()> {
        let mut input = datum;
        let content = match (take_u8(&mut input)?, &self.column_type) {
            (value_flag::VARINT, ColumnType::Int { unsigned: false, .. }) => {
                Content::Int(take_varint(&mut input)?)
            }
            (value_flag::UVARINT, ColumnType::Int { unsigned: true, .. }) => {
                Content::UInt(take_uvarint(&mut input)?)
            }
            (value_flag::UVARINT, ColumnType::Date | ColumnType::Datetime(_) | ColumnType::Timestamp(_)) => {
                Content::Packed(take_uvarint(&mut input)?)
            }
            (value_flag::COMPACT_BYTES, column_type) if column_type.is_string() => {
                Content::Bytes(take_compact(&mut input)?)
            }
            _ => return self.append_datum(&mut &datum[..], scratch),
        };
        self.append(content)
    }

    /// Appends a cell from an integer handle.
    pub(crate) fn append_handle(&mut self, handle: i64) -> Result<()> {
        match self.column_type {
            ColumnType::Int { unsigned: true, .. } => self.append(Content::UInt(handle as u64)),
            _ => self.append(Content::Int(handle)),
        }
    }

    /// Appends a cell that is not NULL, or leaves everything as it was.
    pub(crate) fn append(&mut self, content: Content<'_>) -> Result<()> {
        match (&mut self.values, content) {
            (Values::Int8(values), Content::Int(value)) => values.push(narrow(value)?),
            (Values::Int16(values), Content::Int(value)) => values.push(narrow(value)?),
            (Values::Int32(values), Content::Int(value)) => {
                values.push(narrow_medium(value, &self.column_type)?);
            }
            (Values::Int64(values), Content::Int(value)) => values.push(value),
            (Values::UInt8(values), Content::UInt(value)) => values.push(narrow(value)?),
            (Values::UInt16(values), Content::UInt(value)) => values.push(narrow(value)?),
            (Values::UInt32(values), Content::UInt(value)) => {
                values.push(narrow_medium(value, &self.column_type)?);
            }
            (Values::UInt64(values), Content::UInt(value)) => values.push(value),
            (Values::Float32(values), Content::Float(value)) => values.push(value as f32),
            (Values::Float64(values), Content::Float(value)) => values.push(value),
            (Values::Decimal128(values, precision, scale), Content::Decimal(value)) => {
                let narrow =
                    value.to_i128().filter(|_| Decimal { unscaled: value, scale: *scale }.fits(*precision));
                values.push(narrow.ok_or_else(|| Error::corrupt("decimal is out of range"))?);
            }
            (Values::Decimal256(values, precision, scale), Content::Decimal(value)) => {
                if !(Decimal { unscaled: value, scale: *scale }).fits(*precision) {
                    return Err(Error::corrupt("decimal is out of range"));
                }
                values.push(value);
            }
            (Values::Text(ends, data), Content::Bytes(bytes)) => {
                std::str::from_utf8(bytes).map_err(|error| Error::corrupt(format!("text: {error}")))?;
                push_bytes(ends, data, bytes)?;
            }
            (Values::Bytes(ends, data), Content::Bytes(bytes)) => push_bytes(ends, data, bytes)?,
            (Values::Date(values), Content::Packed(packed)) => values.push(unpack_date(packed)?),
            (Values::Time(values, _), Content::Packed(packed)) => values.push(unpack_time(packed)?),
            (_, content) => {
                return Err(Error::corrupt(format!("{content:?} is no value of {:?}", self.column_type)));
            }
        }
        self.nulls.append_non_null();
        Ok(())
    }

    /// Cuts back to so many rows.
    pub(crate) fn truncate(&mut self, len: usize) {
        if self.len() <= len {
            return;
        }
        self.nulls.truncate(len);
        match &mut self.values {
            Values::Int8(values) => values.truncate(len),
            Values::Int16(values) => values.truncate(len),
            Values::Int32(values) | Values::Date(values) => values.truncate(len),
            Values::Int64(values) | Values::Time(values, _) => values.truncate(len),
            Values::UInt8(values) => values.truncate(len),
            Values::UInt16(values) => values.truncate(len),
            Values::UInt32(values) => values.truncate(len),
            Values::UInt64(values) => values.truncate(len),
            Values::Float32(values) => values.truncate(len),
            Values::Float64(values) => values.truncate(len),
            Values::Decimal128(values, ..) => values.truncate(len),
            Values::Decimal256(values, ..) => values.truncate(len),
            Values::Text(ends, data) | Values::Bytes(ends, data) => {
                ends.truncate(len + 1);
                data.truncate(ends.last().map_or(0, |end| *end as usize));
            }
        }
    }

    /// Takes the column out and begins a new one.
    pub(crate) fn finish(&mut self) -> Result<ArrayRef> {
        let fresh = ColumnBuilder::new(&self.column_type);
        let ColumnBuilder { values, mut nulls, .. } = std::mem::replace(self, fresh);
        let nulls = nulls.finish();
        let array: ArrayRef = match values {
            Values::Int8(values) => primitive::<Int8Type>(values, nulls)?,
            Values::Int16(values) => primitive::<Int16Type>(values, nulls)?,
            Values::Int32(values) => primitive::<Int32Type>(values, nulls)?,
            Values::Int64(values) => primitive::<Int64Type>(values, nulls)?,
            Values::UInt8(values) => primitive::<UInt8Type>(values, nulls)?,
            Values::UInt16(values) => primitive::<UInt16Type>(values, nulls)?,
            Values::UInt32(values) => primitive::<UInt32Type>(values, nulls)?,
            Values::UInt64(values) => primitive::<UInt64Type>(values, nulls)?,
            Values::Float32(values) => primitive::<Float32Type>(values, nulls)?,
            Values::Float64(values) => primitive::<Float64Type>(values, nulls)?,
            Values::Decimal128(values, precision, scale) => {
                let array = Decimal128Array::try_new(values.into(), nulls)?;
                Arc::new(array.with_precision_and_scale(precision, scale as i8)?)
            }
            Values::Decimal256(values, precision, scale) => {
                let array = Decimal256Array::try_new(values.into(), nulls)?;
                Arc::new(array.with_precision_and_scale(precision, scale as i8)?)
            }
            Values::Text(ends, data) => {
                let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
                Arc::new(StringArray::try_new(offsets, Buffer::from_vec(data), nulls)?)
            }
            Values::Bytes(ends, data) => {
                let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
                Arc::new(BinaryArray::try_new(offsets, Buffer::from_vec(data), nulls)?)
            }
            Values::Date(values) => primitive::<Date32Type>(values, nulls)?,
            Values::Time(values, data_type) => {
                let array = PrimitiveArray::<TimestampMicrosecondType>::try_new(values.into(), nulls)?;
                Arc::new(array.with_data_type(data_type))
            }
        };
        Ok(array)
    }
}

/// Skips one datum of a key.
pub(crate) fn skip_datum(input: &mut &[u8]) -> Result<()> {
    match take_u8(input)? {
        flag::NIL => Ok(()),
        flag::BYTES => skip_bytes(input),
        flag::INT | flag::UINT | flag::FLOAT => take_array::<8>(input).map(drop),
        flag::DECIMAL => skip_sized(input),
        found => Err(Error::corrupt(format!("unknown flag {found:#x} in a key"))),
    }
}

fn primitive<T: ArrowPrimitiveType>(values: Vec<T::Native>, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    Ok(Arc::new(PrimitiveArray::<T>::try_new(ScalarBuffer::from(values), nulls)?))
}

fn push_bytes(ends: &mut Vec<i32>, data: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
    let end = i32::try_from(data.len() + bytes.len())
        .map_err(|_| Error::invalid("more than 2 GiB in one column of a batch"))?;
    data.extend_from_slice(bytes);
    ends.push(end);
    Ok(())
}

fn narrow<W: Copy + std::fmt::Display, N: TryFrom<W>>(value: W) -> Result<N> {
    N::try_from(value).map_err(|_| Error::corrupt(format!("integer {value} is out of its column's range")))
}

/// Narrows to 32 bits, or to the 24 of a MEDIUMINT.
fn narrow_medium<W: Copy + std::fmt::Display + Into<i128>, N: TryFrom<W>>(
    value: W,
    column_type: &ColumnType,
) -> Result<N> {
    let wide: i128 = value.into();
    let fits = match column_type {
        ColumnType::Int { bits: 24, unsigned: false } => (-(1 << 23)..1 << 23).contains(&wide),
        ColumnType::Int { bits: 24, unsigned: true } => (0..1 << 24).contains(&wide),
        _ => true,
    };
    if fits {
        narrow(value)
    } else {
        Err(Error::corrupt(format!("integer {wide} is out of its column's range")))
    }
}

fn whole_u64(bytes: &[u8]) -> Result<u64> {
    let bytes = <[u8; 8]>::try_from(bytes);
    bytes.map(u64::from_be_bytes).map_err(|_| Error::corrupt("floating number that has not 8 bytes"))
}

fn minimal_int(bytes: &[u8]) -> Result<i64> {
    match *bytes {
        [a] => Ok(i64::from(a as i8)),
        [a, b] => Ok(i64::from(i16::from_le_bytes([a, b]))),
        [a, b, c, d] => Ok(i64::from(i32::from_le_bytes([a, b, c, d]))),
        [a, b, c, d, e, f, g, h] => Ok(i64::from_le_bytes([a, b, c, d, e, f, g, h])),
        _ => Err(Error::corrupt(format!("integer of {} bytes", bytes.len()))),
    }
}

fn minimal_uint(bytes: &[u8]) -> Result<u64> {
    match *bytes {
        [a] => Ok(u64::from(a)),
        [a, b] => Ok(u64::from(u16::from_le_bytes([a, b]))),
        [a, b, c, d] => Ok(u64::from(u32::from_le_bytes([a, b, c, d]))),
        [a, b, c, d, e, f, g, h] => Ok(u64::from_le_bytes([a, b, c, d, e, f, g, h])),
        _ => Err(Error::corrupt(format!("integer of {} bytes", bytes.len()))),
    }
}
