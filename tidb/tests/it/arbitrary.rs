//! Random tables and rows, and small ones by hand.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, Date32Array, Decimal128Array, Decimal256Array, Float32Array, Float64Array,
    Int8Array, Int16Array, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
    UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use arrow::datatypes::{DataType, i256};
use proptest::collection::vec;
use proptest::prelude::*;
use tidb::{ColumnInfo, ColumnType, TableInfo};

/// Microseconds since the epoch of 0000-01-01 and of the last microsecond of 9999.
pub(crate) const MICROS: (i64, i64) = (-62_167_219_200_000_000, 253_402_300_799_999_999);
/// Days since the epoch of 0000-01-01 and 9999-12-31.
pub(crate) const DAYS: (i32, i32) = (-719_528, 2_932_896);

/// So many cases, or twenty times as many in a soak.
pub(crate) fn cases(n_cases: u32) -> ProptestConfig {
    let soak = std::env::var_os("TIDEMILL_SOAK").is_some();
    ProptestConfig::with_cases(if soak { 20 * n_cases } else { n_cases })
}

pub(crate) fn column(id: i64, name: &str, column_type: ColumnType) -> ColumnInfo {
    ColumnInfo {
        id,
        name: name.into(),
        column_type,
        not_null: false,
        default: None,
        origin_default: None,
        comment: String::new(),
    }
}

pub(crate) fn table(columns: Vec<ColumnInfo>, primary_key: &[usize]) -> TableInfo {
    let mut columns = columns;
    for at in primary_key {
        columns[*at].not_null = true;
    }
    let pk_is_handle =
        matches!(primary_key, [one] if matches!(columns[*one].column_type, ColumnType::Int { .. }));
    TableInfo {
        id: 42,
        name: "t".into(),
        columns,
        primary_key: primary_key.to_vec(),
        pk_is_handle,
        indexes: Vec::new(),
        comment: String::new(),
    }
}

pub(crate) fn batch(table: &TableInfo, columns: Vec<ArrayRef>) -> RecordBatch {
    RecordBatch::try_new(table.arrow_schema(), columns).unwrap()
}

fn column_type() -> impl Strategy<Value = ColumnType> {
    prop_oneof![
        4 => (prop::sample::select(vec![8, 16, 24, 32, 64]), any::<bool>())
            .prop_map(|(bits, unsigned)| ColumnType::Int { bits, unsigned }),
        1 => Just(ColumnType::Float),
        1 => Just(ColumnType::Double),
        3 => (1_u8..=65)
            .prop_flat_map(|precision| (Just(precision), 0..=precision.min(30)))
            .prop_map(|(precision, scale)| ColumnType::Decimal { precision, scale }),
        1 => Just(ColumnType::Char(20)),
        2 => Just(ColumnType::Varchar(40)),
        1 => Just(ColumnType::Text(65_535)),
        1 => Just(ColumnType::Binary(12)),
        1 => Just(ColumnType::Varbinary(40)),
        1 => Just(ColumnType::Blob(65_535)),
        1 => Just(ColumnType::Date),
        1 => Just(ColumnType::Datetime(6)),
        1 => Just(ColumnType::Timestamp(3)),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c ]{0,4}", "[a-zA-Z0-9 ]{0,20}", "\\PC{0,12}", "[\\x00-\\x21]{0,10}"]
}

fn digits(precision: u8) -> impl Strategy<Value = i256> {
    (vec(0_u8..10, 0..=usize::from(precision)), any::<bool>()).prop_map(|(digits, negative)| {
        let ten = i256::from_i128(10);
        let magnitude = digits.iter().fold(i256::ZERO, |sum, digit| {
            sum.wrapping_mul(ten).wrapping_add(i256::from_i128((*digit).into()))
        });
        if negative { magnitude.wrapping_neg() } else { magnitude }
    })
}

fn maybe<T: std::fmt::Debug + Clone + 'static>(
    not_null: bool,
    values: impl Strategy<Value = T> + 'static,
) -> BoxedStrategy<Option<T>> {
    if not_null { values.prop_map(Some).boxed() } else { prop::option::weighted(0.8, values).boxed() }
}

/// Arrays of `n` values of a column, NULLs too if it may have some.
pub(crate) fn values(column: &ColumnInfo, n: usize) -> BoxedStrategy<ArrayRef> {
    let not_null = column.not_null;
    macro_rules! column_of {
        ($array:ty, $values:expr) => {
            vec(maybe(not_null, $values), n)
                .prop_map(|values| Arc::new(<$array>::from(values)) as ArrayRef)
                .boxed()
        };
    }
    match (&column.column_type, column.column_type.arrow_type()) {
        (ColumnType::Int { bits: 24, unsigned: false }, _) => column_of!(Int32Array, -(1_i32 << 23)..1 << 23),
        (ColumnType::Int { bits: 24, unsigned: true }, _) => column_of!(UInt32Array, 0_u32..1 << 24),
        (_, DataType::Int8) => column_of!(Int8Array, any::<i8>()),
        (_, DataType::Int16) => column_of!(Int16Array, any::<i16>()),
        (_, DataType::Int32) => column_of!(Int32Array, any::<i32>()),
        (_, DataType::Int64) => column_of!(Int64Array, prop_oneof![any::<i64>(), -3_i64..3]),
        (_, DataType::UInt8) => column_of!(UInt8Array, any::<u8>()),
        (_, DataType::UInt16) => column_of!(UInt16Array, any::<u16>()),
        (_, DataType::UInt32) => column_of!(UInt32Array, any::<u32>()),
        (_, DataType::UInt64) => column_of!(UInt64Array, any::<u64>()),
        (_, DataType::Float32) => column_of!(Float32Array, prop_oneof![any::<f32>(), Just(-0.0), Just(0.0)]),
        (_, DataType::Float64) => column_of!(Float64Array, prop_oneof![any::<f64>(), Just(-0.0), Just(0.0)]),
        (_, DataType::Decimal128(precision, scale)) => {
            let numbers = digits(precision).prop_map(|number| number.to_i128().unwrap());
            vec(maybe(not_null, numbers), n)
                .prop_map(move |values| {
                    let array = Decimal128Array::from(values);
                    Arc::new(array.with_precision_and_scale(precision, scale).unwrap()) as ArrayRef
                })
                .boxed()
        }
        (_, DataType::Decimal256(precision, scale)) => vec(maybe(not_null, digits(precision)), n)
            .prop_map(move |values| {
                let array = Decimal256Array::from(values);
                Arc::new(array.with_precision_and_scale(precision, scale).unwrap()) as ArrayRef
            })
            .boxed(),
        (_, DataType::Utf8) => column_of!(StringArray, text()),
        (_, DataType::Date32) => column_of!(Date32Array, DAYS.0..=DAYS.1),
        (_, data_type @ DataType::Timestamp(..)) => vec(maybe(not_null, MICROS.0..=MICROS.1), n)
            .prop_map(move |values| {
                let array = TimestampMicrosecondArray::from(values);
                Arc::new(array.with_data_type(data_type.clone())) as ArrayRef
            })
            .boxed(),
        _ => vec(maybe(not_null, vec(any::<u8>(), 0..20)), n)
            .prop_map(|values| Arc::new(BinaryArray::from_iter(values)) as ArrayRef)
            .boxed(),
    }
}

/// A table with up to 8 columns, some of them its primary key, and a batch of up to 12 rows.
pub(crate) fn table_and_rows() -> impl Strategy<Value = (TableInfo, RecordBatch)> {
    let columns = vec((column_type(), any::<bool>(), 1_i64..1000, prop::option::of(Just("0"))), 1..8);
    (columns, vec(any::<prop::sample::Index>(), 0..4), 0_usize..12).prop_flat_map(|(columns, key, n_rows)| {
        let mut id = 0;
        let columns: Vec<ColumnInfo> = columns
            .into_iter()
            .enumerate()
            .map(|(at, (column_type, not_null, step, default))| {
                // Small ids, or large ones, in any mixture.
                id += if step > 800 { step } else { 1 };
                ColumnInfo {
                    not_null,
                    default: default.map(str::to_owned),
                    ..column(id, &format!("c{at}"), column_type)
                }
            })
            .collect();
        let mut primary_key = Vec::new();
        for index in key {
            let at = index.index(columns.len());
            if !primary_key.contains(&at) && columns[at].column_type.allowed_in_key() {
                primary_key.push(at);
            }
        }
        let table = table(columns, &primary_key);
        let arrays: Vec<_> = table.columns.iter().map(|column| values(column, n_rows)).collect();
        (Just(table), arrays).prop_map(|(table, arrays)| {
            let batch = RecordBatch::try_new(table.arrow_schema(), arrays).unwrap();
            (table, batch)
        })
    })
}
