//! Column definitions: how a result's Arrow columns are announced to a MySQL client.

use arrow::datatypes::{DataType, TimeUnit};

use super::wire::{put_lenenc, put_lenenc_bytes};
use crate::result::Column;
use tidb::ColumnType;

/// The types of MySQL's protocol that results or parameters have.
pub(crate) mod wire_type {
    pub(crate) const DECIMAL: u8 = 0;
    pub(crate) const TINY: u8 = 1;
    pub(crate) const SHORT: u8 = 2;
    pub(crate) const LONG: u8 = 3;
    pub(crate) const FLOAT: u8 = 4;
    pub(crate) const DOUBLE: u8 = 5;
    pub(crate) const NULL: u8 = 6;
    pub(crate) const TIMESTAMP: u8 = 7;
    pub(crate) const LONGLONG: u8 = 8;
    pub(crate) const INT24: u8 = 9;
    pub(crate) const DATE: u8 = 10;
    pub(crate) const TIME: u8 = 11;
    pub(crate) const DATETIME: u8 = 12;
    pub(crate) const YEAR: u8 = 13;
    pub(crate) const VARCHAR: u8 = 15;
    pub(crate) const BIT: u8 = 16;
    pub(crate) const JSON: u8 = 245;
    pub(crate) const NEWDECIMAL: u8 = 246;
    pub(crate) const ENUM: u8 = 247;
    pub(crate) const SET: u8 = 248;
    pub(crate) const TINY_BLOB: u8 = 249;
    pub(crate) const BLOB: u8 = 252;
    pub(crate) const VAR_STRING: u8 = 253;
    pub(crate) const STRING: u8 = 254;
}

mod flag {
    pub(super) const NOT_NULL: u16 = 1;
    pub(super) const PRI_KEY: u16 = 2;
    pub(super) const BLOB: u16 = 16;
    pub(super) const UNSIGNED: u16 = 32;
    pub(super) const BINARY: u16 = 128;
    pub(super) const NO_DEFAULT_VALUE: u16 = 4096;
    pub(super) const NUM: u16 = 32768;
}

/// The collation `binary`.
const COLLATION_BINARY: u16 = 63;
/// The collation `utf8mb4_bin`.
pub(crate) const COLLATION_UTF8MB4_BIN: u16 = 46;
/// "Not fixed", the decimals of floating-point columns.
const DECIMALS_NOT_FIXED: u8 = 31;

/// How a column travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WireColumn {
    pub(crate) wire_type: u8,
    charset: u16,
    length: u32,
    flags: u16,
    /// Digits after the point; of times, of the seconds.
    pub(crate) decimals: u8,
}

impl WireColumn {
    fn number(wire_type: u8, length: u32, unsigned: bool) -> WireColumn {
        let unsigned = if unsigned { flag::UNSIGNED } else { 0 };
        let flags = flag::BINARY | flag::NUM | unsigned;
        WireColumn { wire_type, charset: COLLATION_BINARY, length, flags, decimals: 0 }
    }

    fn decimal(precision: u32, scale: u8) -> WireColumn {
        let length = precision + 1 + u32::from(scale > 0);
        WireColumn { decimals: scale, ..WireColumn::number(wire_type::NEWDECIMAL, length, false) }
    }

    fn float(wire_type: u8, length: u32) -> WireColumn {
        WireColumn { decimals: DECIMALS_NOT_FIXED, ..WireColumn::number(wire_type, length, false) }
    }

    fn time(wire_type: u8, length: u32, fsp: u8) -> WireColumn {
        let length = if fsp == 0 { length } else { length + 1 + u32::from(fsp) };
        let flags = flag::BINARY;
        WireColumn { wire_type, charset: COLLATION_BINARY, length, flags, decimals: fsp }
    }

    fn text(wire_type: u8, length: u32) -> WireColumn {
        let flags = if wire_type == wire_type::BLOB { flag::BLOB } else { 0 };
        WireColumn { wire_type, charset: COLLATION_UTF8MB4_BIN, length, flags, decimals: 0 }
    }

    fn binary(wire_type: u8, length: u32) -> WireColumn {
        let text = WireColumn::text(wire_type, length);
        WireColumn { charset: COLLATION_BINARY, flags: text.flags | flag::BINARY, ..text }
    }

    /// Whether binary rows carry the value as unsigned.
    pub(crate) fn is_unsigned(&self) -> bool {
        self.flags & flag::UNSIGNED != 0
    }

    /// How a declared type travels.
    pub(crate) fn of_declared(column_type: &ColumnType) -> WireColumn {
        match *column_type {
            ColumnType::Int { bits, unsigned } => WireColumn::of_int(bits, unsigned),
            ColumnType::Float => WireColumn::float(wire_type::FLOAT, 12),
            ColumnType::Double => WireColumn::float(wire_type::DOUBLE, 22),
            ColumnType::Decimal { precision, scale } => WireColumn::decimal(u32::from(precision), scale),
            ColumnType::Char(n) => WireColumn::text(wire_type::STRING, n.saturating_mul(4)),
            ColumnType::Varchar(n) => WireColumn::text(wire_type::VAR_STRING, n.saturating_mul(4)),
            ColumnType::Text(bytes) => WireColumn::text(wire_type::BLOB, bytes),
            ColumnType::Binary(n) => WireColumn::binary(wire_type::STRING, n),
            ColumnType::Varbinary(n) => WireColumn::binary(wire_type::VAR_STRING, n),
            ColumnType::Blob(bytes) => WireColumn::binary(wire_type::BLOB, bytes),
            ColumnType::Date => WireColumn::time(wire_type::DATE, 10, 0),
            ColumnType::Datetime(fsp) => WireColumn::time(wire_type::DATETIME, 19, fsp),
            ColumnType::Timestamp(fsp) => WireColumn::time(wire_type::TIMESTAMP, 19, fsp),
        }
    }

    fn of_int(bits: u8, unsigned: bool) -> WireColumn {
        let (wire_type, digits) = match bits {
            8 => (wire_type::TINY, 3),
            16 => (wire_type::SHORT, 5),
            24 => (wire_type::INT24, 8),
            32 => (wire_type::LONG, 10),
            _ => (wire_type::LONGLONG, if unsigned { 20 } else { 19 }),
        };
        WireColumn::number(wire_type, digits + u32::from(!unsigned), unsigned)
    }

    /// How an Arrow type travels; types without a counterpart travel as text.
    pub(crate) fn of_arrow(data_type: &DataType) -> WireColumn {
        match data_type {
            DataType::Null => WireColumn::binary(wire_type::NULL, 0),
            DataType::Boolean => WireColumn::number(wire_type::LONGLONG, 1, false),
            DataType::Int8 => WireColumn::of_int(8, false),
            DataType::Int16 => WireColumn::of_int(16, false),
            DataType::Int32 => WireColumn::of_int(32, false),
            DataType::Int64 => WireColumn::of_int(64, false),
            DataType::UInt8 => WireColumn::of_int(8, true),
            DataType::UInt16 => WireColumn::of_int(16, true),
            DataType::UInt32 => WireColumn::of_int(32, true),
            DataType::UInt64 => WireColumn::of_int(64, true),
            DataType::Float16 | DataType::Float32 => WireColumn::float(wire_type::FLOAT, 12),
            DataType::Float64 => WireColumn::float(wire_type::DOUBLE, 22),
            DataType::Decimal32(precision, scale)
            | DataType::Decimal64(precision, scale)
            | DataType::Decimal128(precision, scale)
            | DataType::Decimal256(precision, scale) => {
                WireColumn::decimal(u32::from(*precision), u8::try_from(*scale).unwrap_or(0))
            }
            DataType::Date32 | DataType::Date64 => WireColumn::time(wire_type::DATE, 10, 0),
            DataType::Timestamp(unit, zone) => {
                let wire_type = if zone.is_some() { wire_type::TIMESTAMP } else { wire_type::DATETIME };
                WireColumn::time(wire_type, 19, fraction_digits(unit))
            }
            DataType::Time32(unit) | DataType::Time64(unit) => {
                WireColumn::time(wire_type::TIME, 10, fraction_digits(unit))
            }
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => WireColumn::binary(wire_type::VAR_STRING, 65_535),
            _ => WireColumn::text(wire_type::VAR_STRING, 262_140),
        }
    }

    /// How a result's column travels: as declared where its Arrow type is the declared one's.
    pub(crate) fn of(column: &Column) -> WireColumn {
        let by_arrow = WireColumn::of_arrow(&column.data_type);
        let mut wire = match &column.declared {
            Some(declared) => WireColumn::of_declared(declared),
            None => by_arrow,
        };
        if wire.is_unsigned() != by_arrow.is_unsigned() {
            wire = by_arrow;
        }
        if column.not_null {
            wire.flags |= flag::NOT_NULL;
        }
        if column.primary_key {
            wire.flags |= flag::PRI_KEY;
        }
        if column.without_default {
            wire.flags |= flag::NO_DEFAULT_VALUE;
        }
        wire
    }
}

fn fraction_digits(unit: &TimeUnit) -> u8 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond | TimeUnit::Nanosecond => 6,
    }
}

/// The packet that announces a column.
pub(crate) fn definition(column: &Column) -> Vec<u8> {
    let wire = WireColumn::of(column);
    let mut out = Vec::with_capacity(64);
    for text in ["def", &column.schema, &column.table, &column.org_table, &column.name, &column.org_name] {
        put_lenenc_bytes(&mut out, text.as_bytes());
    }
    put_lenenc(&mut out, 12);
    out.extend_from_slice(&wire.charset.to_le_bytes());
    out.extend_from_slice(&wire.length.to_le_bytes());
    out.push(wire.wire_type);
    out.extend_from_slice(&wire.flags.to_le_bytes());
    out.push(wire.decimals);
    out.extend_from_slice(&[0, 0]);
    out
}
