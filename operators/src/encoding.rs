//! The row encoding: Arrow columns as byte strings that compare like the rows do.
//!
//! Frozen: these bytes are stored in runs, so they never change their meaning (golden tests hold them).
//! Each value is a marker byte (0 NULL, 1 not), then its bytes; NULLs come first.
//!
//! ```text
//! Boolean                    one byte, 0 or 1
//! Int*, Date, Timestamp,     big-endian, sign bit flipped; a NULL is padded with zeros,
//! Decimal128, Decimal256     so such rows have one length
//! UInt*                      big-endian
//! Float32, Float64           IEEE bits; all flipped if negative, else the sign bit; -0.0 is 0.0, one NaN (last)
//! Utf8, Binary               bytes, 00 as 00 FF, then 00 00; a NULL is its marker only
//! Null                       the marker only
//! ```
//!
//! A *keyed* row has four bytes before it: the upper half of the 64-bit hash of its key columns. The
//! first of them is the vnode, so state is ordered, and divided, by vnode.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, BooleanBufferBuilder, NullArray, PrimitiveArray, StringArray,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Decimal256Type, Float32Type, Float64Type,
    Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type, i256,
};
use types::{Error, Result, VNode};
use xxhash_rust::xxh3::xxh3_64;

/// The bytes of the hash before a keyed row.
pub const HASH_BYTES: usize = 4;

/// The hash of an encoded key: order of state, and with its first byte the vnode.
#[must_use]
pub fn key_hash(encoded_key: &[u8]) -> u32 {
    // The seed is zero for ever: the hash is part of the stored format.
    (xxh3_64(encoded_key) >> 32) as u32
}

/// The vnode of an encoded key.
#[must_use]
pub fn vnode(encoded_key: &[u8]) -> VNode {
    VNode((key_hash(encoded_key) >> 24) as u8)
}

/// An encoded key with its hash before it: how every key of a [`State`](crate::State) begins.
#[must_use]
pub fn keyed(encoded_key: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HASH_BYTES + encoded_key.len());
    bytes.extend_from_slice(&key_hash(encoded_key).to_be_bytes());
    bytes.extend_from_slice(encoded_key);
    bytes
}

/// Encodes and decodes rows of given column types.
#[derive(Clone, Debug, PartialEq)]
pub struct RowCodec {
    types: Vec<DataType>,
}

impl RowCodec {
    /// A codec for rows of these columns, in this order.
    ///
    /// # Errors
    /// `Invalid` if a type has no encoding.
    pub fn new(types: Vec<DataType>) -> Result<RowCodec> {
        for data_type in &types {
            if !is_supported(data_type) {
                return Err(Error::invalid(format!("type {data_type} cannot be kept in state")));
            }
        }
        Ok(RowCodec { types })
    }

    /// The columns' types.
    #[must_use]
    pub fn types(&self) -> &[DataType] {
        &self.types
    }

    /// The codec of the first columns only.
    #[must_use]
    pub fn prefix(&self, n_columns: usize) -> RowCodec {
        RowCodec { types: self.types[..n_columns].to_vec() }
    }

    /// The codec of the columns after the first ones.
    #[must_use]
    pub fn suffix(&self, n_columns: usize) -> RowCodec {
        RowCodec { types: self.types[n_columns..].to_vec() }
    }

    /// The length of all rows, if no column has a variable one.
    #[must_use]
    pub fn fixed_length(&self) -> Option<usize> {
        self.types.iter().map(fixed_length).sum()
    }

    /// Encodes rows.
    ///
    /// # Errors
    /// If the columns have other types or lengths.
    pub fn encode(&self, columns: &[ArrayRef], n_rows: usize) -> Result<EncodedRows> {
        let mut rows = self.allocate(columns, n_rows, 0)?;
        let mut cursors = rows.offsets[..n_rows].to_vec();
        for column in columns {
            write_column(column, &mut rows.data, &mut cursors)?;
        }
        Ok(rows)
    }

    /// Encodes keyed rows: the hash of the first `n_key` columns, then all columns.
    ///
    /// # Errors
    /// If the columns have other types or lengths.
    pub fn encode_keyed(&self, columns: &[ArrayRef], n_rows: usize, n_key: usize) -> Result<EncodedRows> {
        let mut rows = self.allocate(columns, n_rows, HASH_BYTES)?;
        let mut cursors: Vec<usize> =
            rows.offsets[..n_rows].iter().map(|offset| offset + HASH_BYTES).collect();
        for column in &columns[..n_key] {
            write_column(column, &mut rows.data, &mut cursors)?;
        }
        for (&start, &end) in rows.offsets.iter().zip(&cursors) {
            let hash = key_hash(&rows.data[start + HASH_BYTES..end]);
            rows.data[start..start + HASH_BYTES].copy_from_slice(&hash.to_be_bytes());
        }
        for column in &columns[n_key..] {
            write_column(column, &mut rows.data, &mut cursors)?;
        }
        Ok(rows)
    }

    fn allocate(&self, columns: &[ArrayRef], n_rows: usize, before: usize) -> Result<EncodedRows> {
        if columns.len() != self.types.len() {
            return Err(Error::invalid(format!(
                "{} columns where {} are due",
                columns.len(),
                self.types.len()
            )));
        }
        for (column, data_type) in columns.iter().zip(&self.types) {
            if column.data_type() != data_type || column.len() != n_rows {
                return Err(Error::invalid(format!(
                    "a column of {} {} where {n_rows} {data_type} are due",
                    column.len(),
                    column.data_type()
                )));
            }
        }
        let fixed: usize = before + self.types.iter().filter_map(fixed_length).sum::<usize>();
        let mut lengths = vec![fixed; n_rows];
        for column in columns.iter().filter(|column| fixed_length(column.data_type()).is_none()) {
            add_lengths(column, &mut lengths)?;
        }
        let mut offsets = Vec::with_capacity(n_rows + 1);
        let mut end = 0;
        offsets.push(0);
        for length in lengths {
            end += length;
            offsets.push(end);
        }
        Ok(EncodedRows { data: vec![0; end], offsets })
    }

    /// Decodes rows; each slice begins with the first column (no hash) and is advanced past the last.
    ///
    /// # Errors
    /// `Corrupt` if the bytes are no such rows.
    pub fn decode(&self, rows: &mut [&[u8]]) -> Result<Vec<ArrayRef>> {
        self.types.iter().map(|data_type| read_column(data_type, rows)).collect()
    }

    /// The length of the encoded columns at the beginning of a row.
    ///
    /// # Errors
    /// `Corrupt` if the bytes are no such row.
    pub fn length_of(&self, row: &[u8]) -> Result<usize> {
        let mut at = 0;
        for data_type in &self.types {
            at += value_length(data_type, row.get(at..).ok_or_else(truncated)?)?;
        }
        Ok(at)
    }
}

/// Rows encoded one after the other.
#[derive(Clone, Debug)]
pub struct EncodedRows {
    data: Vec<u8>,
    offsets: Vec<usize>,
}

impl EncodedRows {
    /// No rows yet.
    pub(crate) fn with_capacity(n_rows: usize) -> EncodedRows {
        let mut offsets = Vec::with_capacity(n_rows + 1);
        offsets.push(0);
        EncodedRows { data: Vec::new(), offsets }
    }

    /// Appends a row of two parts.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) {
        self.data.extend_from_slice(key);
        self.data.extend_from_slice(value);
        self.offsets.push(self.data.len());
    }

    /// The number of rows.
    #[must_use]
    pub fn n_rows(&self) -> usize {
        self.offsets.len() - 1
    }

    /// The bytes of one row.
    #[must_use]
    pub fn row(&self, index: usize) -> &[u8] {
        &self.data[self.offsets[index]..self.offsets[index + 1]]
    }

    /// All rows in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.n_rows()).map(|index| self.row(index))
    }
}

/// Removes the trailing spaces that PAD SPACE does not compare.
#[must_use]
pub fn trim_padding(text: &str) -> &str {
    text.trim_end_matches(' ')
}

fn is_supported(data_type: &DataType) -> bool {
    fixed_length(data_type).is_some() || matches!(data_type, DataType::Utf8 | DataType::Binary)
}

/// The encoded length of a type with one length, marker included.
fn fixed_length(data_type: &DataType) -> Option<usize> {
    let bytes = match data_type {
        DataType::Null => 0,
        DataType::Boolean | DataType::Int8 | DataType::UInt8 => 1,
        DataType::Int16 | DataType::UInt16 => 2,
        DataType::Int32 | DataType::UInt32 | DataType::Float32 | DataType::Date32 => 4,
        DataType::Int64 | DataType::UInt64 | DataType::Float64 | DataType::Timestamp(_, _) => 8,
        DataType::Decimal128(_, _) => 16,
        DataType::Decimal256(_, _) => 32,
        _ => return None,
    };
    Some(1 + bytes)
}

fn value_length(data_type: &DataType, row: &[u8]) -> Result<usize> {
    if let Some(length) = fixed_length(data_type) {
        return if row.len() < length { Err(truncated()) } else { Ok(length) };
    }
    match row.first() {
        Some(0) => Ok(1),
        Some(1) => Ok(1 + text_end(&row[1..])?),
        _ => Err(truncated()),
    }
}

/// The length of an escaped text with its end.
fn text_end(bytes: &[u8]) -> Result<usize> {
    let mut at = 0;
    loop {
        at += bytes[at..].iter().position(|byte| *byte == 0).ok_or_else(truncated)?;
        match bytes.get(at + 1) {
            Some(0) => return Ok(at + 2),
            Some(0xff) => at += 2,
            _ => return Err(Error::corrupt("encoded row: bad escape")),
        }
    }
}

fn truncated() -> Error {
    Error::corrupt("encoded row: too short")
}

/// A number with a fixed, comparable encoding.
trait Comparable: Copy {
    const BYTES: usize;
    fn put(self, to: &mut [u8]);
    fn get(from: &[u8]) -> Self;
}

macro_rules! comparable_integer {
    ($($native:ty, $unsigned:ty, $flip:expr);*) => {$(
        impl Comparable for $native {
            const BYTES: usize = size_of::<$native>();
            fn put(self, to: &mut [u8]) {
                to.copy_from_slice(&((self as $unsigned) ^ $flip).to_be_bytes());
            }
            fn get(from: &[u8]) -> $native {
                let bytes = from.try_into().expect("the caller cut the length");
                (<$unsigned>::from_be_bytes(bytes) ^ $flip) as $native
            }
        }
    )*};
}

comparable_integer!(
    i8, u8, 1 << 7; i16, u16, 1 << 15; i32, u32, 1 << 31; i64, u64, 1 << 63; i128, u128, 1 << 127;
    u8, u8, 0; u16, u16, 0; u32, u32, 0; u64, u64, 0
);

macro_rules! comparable_float {
    ($($native:ty, $bits:ty, $sign:expr);*) => {$(
        impl Comparable for $native {
            const BYTES: usize = size_of::<$native>();
            fn put(self, to: &mut [u8]) {
                let bits = if self.is_nan() { <$native>::NAN.to_bits() & !$sign } else { (self + 0.0).to_bits() };
                let flipped = if bits & $sign == 0 { bits | $sign } else { !bits };
                to.copy_from_slice(&flipped.to_be_bytes());
            }
            fn get(from: &[u8]) -> $native {
                let flipped = <$bits>::from_be_bytes(from.try_into().expect("the caller cut the length"));
                <$native>::from_bits(if flipped & $sign == 0 { !flipped } else { flipped ^ $sign })
            }
        }
    )*};
}

comparable_float!(f32, u32, 1u32 << 31; f64, u64, 1u64 << 63);

impl Comparable for i256 {
    const BYTES: usize = 32;
    fn put(self, to: &mut [u8]) {
        to.copy_from_slice(&self.to_be_bytes());
        to[0] ^= 0x80;
    }
    fn get(from: &[u8]) -> i256 {
        let mut bytes: [u8; 32] = from.try_into().expect("the caller cut the length");
        bytes[0] ^= 0x80;
        i256::from_be_bytes(bytes)
    }
}

/// Calls a generic function with the Arrow type of a fixed-length number.
macro_rules! with_primitive {
    ($data_type:expr, $call:ident ( $($argument:expr),* ), $otherwise:expr) => {
        match $data_type {
            DataType::Int8 => $call::<Int8Type>($($argument),*),
            DataType::Int16 => $call::<Int16Type>($($argument),*),
            DataType::Int32 => $call::<Int32Type>($($argument),*),
            DataType::Int64 => $call::<Int64Type>($($argument),*),
            DataType::UInt8 => $call::<UInt8Type>($($argument),*),
            DataType::UInt16 => $call::<UInt16Type>($($argument),*),
            DataType::UInt32 => $call::<UInt32Type>($($argument),*),
            DataType::UInt64 => $call::<UInt64Type>($($argument),*),
            DataType::Float32 => $call::<Float32Type>($($argument),*),
            DataType::Float64 => $call::<Float64Type>($($argument),*),
            DataType::Date32 => $call::<Date32Type>($($argument),*),
            DataType::Timestamp(TimeUnit::Second, _) => $call::<TimestampSecondType>($($argument),*),
            DataType::Timestamp(TimeUnit::Millisecond, _) => $call::<TimestampMillisecondType>($($argument),*),
            DataType::Timestamp(TimeUnit::Microsecond, _) => $call::<TimestampMicrosecondType>($($argument),*),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => $call::<TimestampNanosecondType>($($argument),*),
            DataType::Decimal128(_, _) => $call::<Decimal128Type>($($argument),*),
            DataType::Decimal256(_, _) => $call::<Decimal256Type>($($argument),*),
            _ => $otherwise,
        }
    };
}

fn add_lengths(column: &ArrayRef, lengths: &mut [usize]) -> Result<()> {
    match column.data_type() {
        DataType::Utf8 => add_text_lengths(downcast::<StringArray>(column)?, lengths),
        DataType::Binary => add_text_lengths(downcast::<BinaryArray>(column)?, lengths),
        other => return Err(Error::invalid(format!("type {other} cannot be kept in state"))),
    }
    Ok(())
}

/// What text and binary arrays have in common here.
trait Texts: Array {
    fn bytes(&self, index: usize) -> &[u8];
}

impl Texts for StringArray {
    fn bytes(&self, index: usize) -> &[u8] {
        self.value(index).as_bytes()
    }
}

impl Texts for BinaryArray {
    fn bytes(&self, index: usize) -> &[u8] {
        self.value(index)
    }
}

fn add_text_lengths<A: Texts>(array: &A, lengths: &mut [usize]) {
    for (index, length) in lengths.iter_mut().enumerate() {
        *length += 1;
        if array.is_valid(index) {
            let bytes = array.bytes(index);
            *length += bytes.len() + 2 + bytes.iter().filter(|byte| **byte == 0).count();
        }
    }
}

fn write_column(column: &ArrayRef, data: &mut [u8], cursors: &mut [usize]) -> Result<()> {
    match column.data_type() {
        DataType::Null => cursors.iter_mut().for_each(|cursor| *cursor += 1),
        DataType::Boolean => {
            let array = downcast::<BooleanArray>(column)?;
            for (index, cursor) in cursors.iter_mut().enumerate() {
                if array.is_valid(index) {
                    data[*cursor] = 1;
                    data[*cursor + 1] = u8::from(array.value(index));
                }
                *cursor += 2;
            }
        }
        DataType::Utf8 => write_texts(downcast::<StringArray>(column)?, data, cursors),
        DataType::Binary => write_texts(downcast::<BinaryArray>(column)?, data, cursors),
        other => {
            return with_primitive!(other, write_primitive(column, data, cursors), Err(unsupported(other)));
        }
    }
    Ok(())
}

fn unsupported(data_type: &DataType) -> Error {
    Error::invalid(format!("type {data_type} cannot be kept in state"))
}

fn write_primitive<T>(column: &ArrayRef, data: &mut [u8], cursors: &mut [usize]) -> Result<()>
where
    T: ArrowPrimitiveType,
    T::Native: Comparable,
{
    let array = downcast::<PrimitiveArray<T>>(column)?;
    let n_bytes = T::Native::BYTES;
    if array.null_count() == 0 {
        for (value, cursor) in array.values().iter().zip(cursors) {
            let to = &mut data[*cursor..*cursor + 1 + n_bytes];
            to[0] = 1;
            value.put(&mut to[1..]);
            *cursor += 1 + n_bytes;
        }
        return Ok(());
    }
    for (index, cursor) in cursors.iter_mut().enumerate() {
        if array.is_valid(index) {
            let to = &mut data[*cursor..*cursor + 1 + n_bytes];
            to[0] = 1;
            array.value(index).put(&mut to[1..]);
        }
        *cursor += 1 + n_bytes;
    }
    Ok(())
}

fn write_texts<A: Texts>(array: &A, data: &mut [u8], cursors: &mut [usize]) {
    for (index, cursor) in cursors.iter_mut().enumerate() {
        if array.is_null(index) {
            *cursor += 1;
            continue;
        }
        data[*cursor] = 1;
        *cursor += 1;
        let bytes = array.bytes(index);
        if bytes.contains(&0) {
            for byte in bytes {
                data[*cursor] = *byte;
                *cursor += 1;
                if *byte == 0 {
                    data[*cursor] = 0xff;
                    *cursor += 1;
                }
            }
        } else {
            data[*cursor..*cursor + bytes.len()].copy_from_slice(bytes);
            *cursor += bytes.len();
        }
        *cursor += 2; // the end, 00 00, is there already
    }
}

fn read_column(data_type: &DataType, rows: &mut [&[u8]]) -> Result<ArrayRef> {
    match data_type {
        DataType::Null => {
            for row in rows.iter_mut() {
                *row = row.get(1..).ok_or_else(truncated)?;
            }
            Ok(Arc::new(NullArray::new(rows.len())))
        }
        DataType::Boolean => {
            let mut values = BooleanBufferBuilder::new(rows.len());
            let mut valid = Validity::new(rows.len());
            for row in rows.iter_mut() {
                let (value, rest) = row.split_at_checked(2).ok_or_else(truncated)?;
                valid.append(value[0]);
                values.append(value[1] != 0);
                *row = rest;
            }
            Ok(Arc::new(BooleanArray::new(values.finish(), valid.finish())))
        }
        DataType::Utf8 => {
            let (offsets, data, nulls) = read_texts(rows)?;
            let array = StringArray::try_new(offsets, data, nulls);
            Ok(Arc::new(array.map_err(|error| Error::corrupt(format!("encoded row: {error}")))?))
        }
        DataType::Binary => {
            let (offsets, data, nulls) = read_texts(rows)?;
            Ok(Arc::new(BinaryArray::new(offsets, data, nulls)))
        }
        other => with_primitive!(other, read_primitive(other, rows), Err(unsupported(other))),
    }
}

/// Collects validity; no buffer is made if all is valid.
struct Validity {
    bits: BooleanBufferBuilder,
    n_nulls: usize,
}

impl Validity {
    fn new(n_rows: usize) -> Validity {
        Validity { bits: BooleanBufferBuilder::new(n_rows), n_nulls: 0 }
    }

    fn append(&mut self, marker: u8) {
        self.bits.append(marker != 0);
        self.n_nulls += usize::from(marker == 0);
    }

    fn finish(mut self) -> Option<NullBuffer> {
        let bits: BooleanBuffer = self.bits.finish();
        (self.n_nulls > 0).then(|| NullBuffer::new(bits))
    }
}

fn read_primitive<T>(data_type: &DataType, rows: &mut [&[u8]]) -> Result<ArrayRef>
where
    T: ArrowPrimitiveType,
    T::Native: Comparable,
{
    let length = 1 + T::Native::BYTES;
    let mut values: Vec<T::Native> = Vec::with_capacity(rows.len());
    let mut n_valid = 0;
    for row in rows.iter() {
        let value = row.get(..length).ok_or_else(truncated)?;
        n_valid += usize::from(value[0] != 0);
        values.push(if value[0] == 0 { T::Native::default() } else { T::Native::get(&value[1..]) });
    }
    let nulls = (n_valid < rows.len())
        .then(|| NullBuffer::new(BooleanBuffer::collect_bool(rows.len(), |index| rows[index][0] != 0)));
    for row in rows.iter_mut() {
        *row = &row[length..];
    }
    let array = PrimitiveArray::<T>::new(ScalarBuffer::from(values), nulls);
    Ok(Arc::new(array.with_data_type(data_type.clone())))
}

type TextParts = (OffsetBuffer<i32>, Buffer, Option<NullBuffer>);

fn read_texts(rows: &mut [&[u8]]) -> Result<TextParts> {
    let mut valid = Validity::new(rows.len());
    let mut data: Vec<u8> = Vec::new();
    let mut offsets: Vec<i32> = Vec::with_capacity(rows.len() + 1);
    offsets.push(0);
    for row in rows.iter_mut() {
        let (marker, mut rest) = row.split_first().ok_or_else(truncated)?;
        valid.append(*marker);
        if *marker != 0 {
            let end = text_end(rest)?;
            let (mut text, after) = rest.split_at(end);
            text = &text[..end - 2];
            while let Some(zero) = text.iter().position(|byte| *byte == 0) {
                data.extend_from_slice(&text[..=zero]);
                text = &text[zero + 2..];
            }
            data.extend_from_slice(text);
            rest = after;
        }
        let end = i32::try_from(data.len()).map_err(|_| Error::invalid("texts of a batch exceed 2 GiB"))?;
        offsets.push(end);
        *row = rest;
    }
    Ok((OffsetBuffer::new(ScalarBuffer::from(offsets)), Buffer::from_vec(data), valid.finish()))
}

fn downcast<A: Array + 'static>(column: &ArrayRef) -> Result<&A> {
    column
        .as_any()
        .downcast_ref::<A>()
        .ok_or_else(|| Error::invalid(format!("unexpected array of {}", column.data_type())))
}

#[cfg(test)]
mod tests;
