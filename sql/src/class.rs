//! MySQL's view of a value's type: what decides how two values compare, combine and convert.

use arrow::datatypes::{DataType, TimeUnit};
use tidb::{ColumnType, DECIMAL_PRECISION_MAX, DECIMAL_SCALE_MAX};

/// What a type is to MySQL's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    /// Only NULL.
    Null,
    /// A condition: 0 or 1 as a value.
    Bool,
    /// A signed integer.
    Int,
    /// An unsigned integer.
    UInt,
    /// A decimal.
    Decimal(u8, u8),
    /// FLOAT or DOUBLE.
    Double,
    /// A string.
    Text,
    /// Bytes.
    Binary,
    /// DATE.
    Date,
    /// DATETIME.
    Datetime,
    /// TIMESTAMP.
    Timestamp,
}

impl Class {
    /// The class of an Arrow type; `None` for types that MySQL has not.
    pub(crate) fn of(data_type: &DataType) -> Option<Class> {
        Some(match data_type {
            DataType::Null => Class::Null,
            DataType::Boolean => Class::Bool,
            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => Class::Int,
            DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => Class::UInt,
            DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
                Class::Decimal(*precision, u8::try_from(*scale).ok()?)
            }
            DataType::Float32 | DataType::Float64 => Class::Double,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Class::Text,
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Class::Binary,
            DataType::Date32 => Class::Date,
            DataType::Timestamp(_, None) => Class::Datetime,
            DataType::Timestamp(_, Some(_)) => Class::Timestamp,
            _ => return None,
        })
    }

    pub(crate) fn is_temporal(self) -> bool {
        matches!(self, Class::Date | Class::Datetime | Class::Timestamp)
    }

    pub(crate) fn is_exact(self) -> bool {
        matches!(self, Class::Null | Class::Bool | Class::Int | Class::UInt | Class::Decimal(..))
    }
}

/// Microseconds without a zone.
pub(crate) const DATETIME: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// An instant.
pub(crate) fn timestamp() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// The Arrow type of a decimal, within MySQL's limits.
pub(crate) fn decimal(precision: u8, scale: u8) -> DataType {
    let scale = scale.min(DECIMAL_SCALE_MAX);
    let precision = precision.clamp(scale.max(1), DECIMAL_PRECISION_MAX);
    let signed = i8::try_from(scale).unwrap_or(i8::MAX);
    if precision <= 38 {
        DataType::Decimal128(precision, signed)
    } else {
        DataType::Decimal256(precision, signed)
    }
}

/// Digits before and after the point of an exact number's type.
pub(crate) fn digits(data_type: &DataType) -> (u8, u8) {
    match data_type {
        DataType::Null | DataType::Boolean => (1, 0),
        DataType::Int8 | DataType::UInt8 => (3, 0),
        DataType::Int16 | DataType::UInt16 => (5, 0),
        DataType::Int32 | DataType::UInt32 => (10, 0),
        DataType::Date32 => (8, 0),
        DataType::Timestamp(..) => (14, 6),
        other => match Class::of(other) {
            Some(Class::Decimal(precision, scale)) => (precision - scale.min(precision), scale),
            _ => (20, 0),
        },
    }
}

/// The one type that values of both types become where they meet: CASE, COALESCE, UNION.
pub(crate) fn union_type(left: &DataType, right: &DataType) -> Option<DataType> {
    if left == right {
        return Some(left.clone());
    }
    let (a, b) = (Class::of(left)?, Class::of(right)?);
    Some(match (a, b) {
        (Class::Null, _) => value_type(right),
        (_, Class::Null) => value_type(left),
        (Class::Text, _) | (_, Class::Text) => {
            if a == Class::Binary || b == Class::Binary {
                DataType::Binary
            } else {
                DataType::Utf8
            }
        }
        (Class::Binary, _) | (_, Class::Binary) => DataType::Binary,
        (Class::Date, Class::Date) => DataType::Date32,
        (Class::Timestamp, Class::Timestamp) => timestamp(),
        (a, b) if a.is_temporal() && b.is_temporal() => DATETIME,
        (a, b) if a.is_temporal() || b.is_temporal() => DataType::Utf8,
        (Class::Double, _) | (_, Class::Double) => DataType::Float64,
        (Class::Bool | Class::Int, Class::Bool | Class::Int) | (Class::UInt, Class::UInt) => {
            wider(left, right)
        }
        _ => {
            let ((whole_a, scale_a), (whole_b, scale_b)) = (digits(left), digits(right));
            let scale = scale_a.max(scale_b);
            decimal(whole_a.max(whole_b).saturating_add(scale), scale)
        }
    })
}

/// The type of a value that is not a condition any more.
pub(crate) fn value_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Boolean => DataType::Int64,
        other => other.clone(),
    }
}

fn wider(left: &DataType, right: &DataType) -> DataType {
    let (left, right) = (value_type(left), value_type(right));
    let width = |data_type: &DataType| data_type.primitive_width().unwrap_or(8);
    if width(&left) >= width(&right) { left } else { right }
}

/// How two values compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// Both become this type, and strings lose trailing spaces.
    As(DataType),
    /// Both become numbers: times as `YYYYMMDDhhmmss`, strings by their beginning.
    AsDouble,
}

/// The type in which MySQL compares two types; `None` if one is no SQL type.
pub(crate) fn comparison(left: &DataType, right: &DataType) -> Option<Comparison> {
    let (a, b) = (Class::of(left)?, Class::of(right)?);
    let temporal = |class: Class| class.is_temporal();
    Some(match (a, b) {
        (Class::Null, Class::Null) => Comparison::As(DataType::Int64),
        (Class::Null, other) | (other, Class::Null) if temporal(other) || other == Class::Text => {
            Comparison::As(union_type(left, right)?)
        }
        (Class::Text, Class::Text) => Comparison::As(DataType::Utf8),
        (Class::Text | Class::Binary, Class::Text | Class::Binary) => Comparison::As(DataType::Binary),
        (Class::Timestamp, Class::Text) | (Class::Text, Class::Timestamp) => Comparison::As(timestamp()),
        (a, Class::Text) | (Class::Text, a) if temporal(a) => Comparison::As(DATETIME),
        (a, b) if temporal(a) && temporal(b) => Comparison::As(union_type(left, right)?),
        (a, b) if temporal(a) || temporal(b) => Comparison::AsDouble,
        (Class::Text | Class::Binary, _) | (_, Class::Text | Class::Binary) => Comparison::AsDouble,
        _ => Comparison::As(union_type(left, right)?),
    })
}

/// The column type of values of an Arrow type, where no declared one is known.
pub(crate) fn column_type(data_type: &DataType) -> Option<ColumnType> {
    let integer = |bits: u8, unsigned: bool| ColumnType::Int { bits, unsigned };
    Some(match data_type {
        DataType::Null | DataType::Boolean | DataType::Int64 => integer(64, false),
        DataType::Int8 => integer(8, false),
        DataType::Int16 => integer(16, false),
        DataType::Int32 => integer(32, false),
        DataType::UInt8 => integer(8, true),
        DataType::UInt16 => integer(16, true),
        DataType::UInt32 => integer(32, true),
        DataType::UInt64 => integer(64, true),
        DataType::Float32 => ColumnType::Float,
        DataType::Float64 => ColumnType::Double,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => ColumnType::Text(u32::MAX),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => ColumnType::Blob(u32::MAX),
        DataType::Date32 => ColumnType::Date,
        DataType::Timestamp(_, None) => ColumnType::Datetime(6),
        DataType::Timestamp(_, Some(_)) => ColumnType::Timestamp(6),
        other => match Class::of(other)? {
            Class::Decimal(precision, scale) => ColumnType::Decimal { precision, scale },
            _ => return None,
        },
    })
}
