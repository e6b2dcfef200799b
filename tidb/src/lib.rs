//! TiDB's encodings: keys, rows, decimals, times and table definitions.
//!
//! Both stores hold rows in TiDB's bytes, so that TiDB reads views as tables and Tidemill reads TiDB's
//! tables. Rows decode straight into Arrow column builders. This crate does no I/O.

mod schema;

pub use schema::{ColumnInfo, ColumnType, IndexColumn, IndexInfo, TableInfo};
