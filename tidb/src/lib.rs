//! TiDB's encodings: keys, rows, decimals, times and table definitions.
//!
//! Both stores hold rows in TiDB's bytes, so that TiDB reads views as tables and Tidemill reads TiDB's
//! tables. Rows decode straight into Arrow column builders, and Arrow batches encode column by column.
//! Values are checked and converted on their way in as MySQL does in strict mode. No I/O here.
//!
//! On a cluster, a [`MetaKey`] says which definition has changed, a [`MetaTable`] is the definition as TiDB
//! writes it, a [`SourceTable`] what Tidemill makes of it, and [`react`] what a change means for a job.

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
mod field_type;
mod key;
mod literal;
mod meta_key;
mod meta_table;
mod old_row;
mod reaction;
mod refusal;
mod row;
mod row_checksum;
mod schema;
mod source_table;
mod stored_row;
mod time;
mod type_name;
mod view_table;
mod view_verify;
mod zone;

pub use bounds::{KeySpan, point_key, scan_spans};
pub use check::check_column;
pub use collation::{Collation, Comparison, pad_key};
pub use convert::{Cast, convert_column};
pub use decimal::{DECIMAL_PRECISION_MAX, DECIMAL_SCALE_MAX, Decimal};
pub use decode::{ROW_ID_COLUMN, ROW_ID_NAME, RowDecoder, RowError, describe_row};
pub use encode::{BoundRows, EncodedRow, RowEncoder};
pub use field_type::NewCollations;
pub use key::{
    Handle, PRIVATE_TABLES_FROM, decode_record_key, describe_key, record_key, record_prefix, record_range,
    table_of_key, table_range,
};
pub use literal::{Parsed, format_date, format_double, format_float, format_time, parse_time};
pub use meta_key::{MetaKey, database_range, databases_range, meta_number, meta_range};
pub use meta_table::{
    MetaColumn, MetaDatabase, MetaDiff, MetaFieldType, MetaIndex, MetaIndexColumn, MetaPartition,
    MetaPartitioning, MetaTable, STATE_PUBLIC,
};
pub use reaction::{Gone, Reaction, RebuildReason, react};
pub use refusal::{ColumnRefusal, TableRefusal};
pub use row::{RowView, Stored};
pub use row_checksum::append_checksum;
pub use schema::{ColumnInfo, ColumnType, IndexColumn, IndexInfo, KEY_BYTES_MAX, TableInfo, is_possible_key};
pub use source_table::{RefusedColumn, SourceTable};
pub use time::{CivilTime, pack_date, pack_time, unpack_date, unpack_time};
pub use view_table::{
    FILL_TABLE_PREFIX, KEY_COLUMNS_MAX, KeyRefusal, check_clustered_key, fill_table_name,
    is_reserved_table_name, old_table_name, quoted, view_table_ddl,
};
pub use view_verify::{ViewDifference, adopt_view_table, verify_view_table};
pub use zone::Zone;
