//! TiDB's encodings: keys, rows, decimals, times and table definitions.
//!
//! Both stores hold rows in TiDB's bytes, so that TiDB reads views as tables and Tidemill reads TiDB's
//! tables. Rows decode straight into Arrow column builders, and Arrow batches encode column by column.
//! Values are checked and converted on their way in as MySQL does in strict mode. No I/O here.

pub mod comparable;

mod bounds;
mod cells;
mod check;
mod collation;
mod column_builder;
mod convert;
mod decimal;
mod decode;
mod encode;
mod key;
mod literal;
mod row;
mod schema;
mod time;
mod zone;

pub use bounds::{KeySpan, point_key, scan_spans};
pub use check::check_column;
pub use collation::pad_key;
pub use convert::{Cast, convert_column};
pub use decimal::{DECIMAL_PRECISION_MAX, DECIMAL_SCALE_MAX, Decimal};
pub use decode::{ROW_ID_COLUMN, ROW_ID_NAME, RowDecoder, RowError, describe_row};
pub use encode::{BoundRows, EncodedRow, RowEncoder};
pub use key::{
    Handle, PRIVATE_TABLES_FROM, decode_record_key, describe_key, record_key, record_prefix, record_range,
    table_of_key, table_range,
};
pub use literal::{Parsed, format_date, format_double, format_float, format_time, parse_time};
pub use row::{RowView, Stored};
pub use schema::{ColumnInfo, ColumnType, IndexColumn, IndexInfo, KEY_BYTES_MAX, TableInfo, is_possible_key};
pub use time::{CivilTime, pack_date, pack_time, unpack_date, unpack_time};
pub use zone::Zone;
