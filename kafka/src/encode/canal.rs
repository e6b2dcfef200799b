//! TiCDC's Canal-JSON with its extension and full types, as its consumers read it.
//!
//! Old rows are whole; a TIMESTAMP is in UTC, which a consumer must be told, as of TiCDC's own zone.

use std::fmt::Write;

use tidb::{ColumnInfo, ColumnType};
use types::Timestamp;

use super::{CellValue, ChangeEncoder, EncodedMessage};
use crate::json::Quoted;

impl ChangeEncoder {
    /// A change that moves a row to another key is a delete and an insert of the same timestamp.
    pub(super) fn canal(
        &self,
        old: Option<&[CellValue<'_>]>,
        new: Option<&[CellValue<'_>]>,
        at: Timestamp,
    ) -> Vec<EncodedMessage> {
        let message = |kind: &str, data: &[CellValue<'_>], old: Option<&[CellValue<'_>]>| EncodedMessage {
            key: None,
            value: Some(self.canal_message(kind, data, old, at).into_bytes()),
        };
        match (old, new) {
            (None, None) => Vec::new(),
            (None, Some(new)) => vec![message("INSERT", new, None)],
            (Some(old), None) => vec![message("DELETE", old, None)],
            (Some(old), Some(new)) if self.keeps_key(old, new) => vec![message("UPDATE", new, Some(old))],
            (Some(old), Some(new)) => vec![message("DELETE", old, None), message("INSERT", new, None)],
        }
    }

    fn canal_message(
        &self,
        kind: &str,
        data: &[CellValue<'_>],
        old: Option<&[CellValue<'_>]>,
        at: Timestamp,
    ) -> String {
        let keys: Vec<String> =
            self.key.iter().map(|at| Quoted(&self.columns[*at].name).to_string()).collect();
        let by_column = |value: &dyn Fn(usize) -> String| {
            let members = self.columns.iter().enumerate();
            let members: Vec<String> =
                members.map(|(at, column)| format!("{}:{}", Quoted(&column.name), value(at))).collect();
            format!("{{{}}}", members.join(","))
        };
        let row = |cells: &[CellValue<'_>]| format!("[{}]", by_column(&|at| canal_value(&cells[at])));
        let mut text = String::new();
        write!(
            text,
            "{{\"id\":0,\"database\":{},\"table\":{},\"pkNames\":[{}],\"isDdl\":false,\"type\":\"{kind}\",\
             \"es\":{ms},\"ts\":{ms},\"sql\":\"\",\"sqlType\":{},\"mysqlType\":{},\"old\":{},\"data\":{},\
             \"_tidb\":{{\"commitTs\":{at}}}}}",
            Quoted(&self.table.database),
            Quoted(&self.table.table),
            keys.join(","),
            by_column(&|at| sql_type(&self.columns[at]).to_string()),
            by_column(&|at| Quoted(&mysql_type(&self.columns[at])).to_string()),
            old.map_or_else(|| "null".to_owned(), row),
            row(data),
            ms = at.physical_ms(),
        )
        .expect("a text can be written to");
        text
    }
}

/// A watermark, as TiCDC sends it to every partition.
pub(super) fn watermark(at: Timestamp) -> String {
    format!(
        "{{\"id\":0,\"database\":\"\",\"table\":\"\",\"pkNames\":null,\"isDdl\":false,\
         \"type\":\"TIDB_WATERMARK\",\"es\":{ms},\"ts\":{ms},\"sql\":\"\",\"sqlType\":null,\
         \"mysqlType\":null,\"data\":null,\"old\":null,\"_tidb\":{{\"watermarkTs\":{at}}}}}",
        ms = at.physical_ms()
    )
}

fn canal_value(cell: &CellValue<'_>) -> String {
    match cell {
        CellValue::Null => "null".to_owned(),
        // Each byte is the character of that number.
        CellValue::Bytes(bytes) => {
            let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
            Quoted(&text).to_string()
        }
        other => Quoted(&other.text()).to_string(),
    }
}

/// The code of `java.sql.Types`.
fn sql_type(column: &ColumnInfo) -> i32 {
    match column.column_type {
        ColumnType::Int { bits: 8, .. } => -6,
        ColumnType::Int { bits: 16, .. } => 5,
        ColumnType::Int { bits: 64, .. } => -5,
        ColumnType::Int { .. } => 4,
        ColumnType::Float => 7,
        ColumnType::Double => 8,
        ColumnType::Decimal { .. } => 3,
        ColumnType::Char(_) => 1,
        ColumnType::Varchar(_) => 12,
        ColumnType::Text(_) => 2005,
        ColumnType::Binary(_) | ColumnType::Varbinary(_) | ColumnType::Blob(_) => 2004,
        ColumnType::Date => 91,
        ColumnType::Datetime(_) | ColumnType::Timestamp(_) => 93,
    }
}

/// The type as MySQL writes it, but texts and blobs as the largest and times always with their digits behind
/// the second.
fn mysql_type(column: &ColumnInfo) -> String {
    match &column.column_type {
        ColumnType::Text(_) => "longtext".to_owned(),
        ColumnType::Blob(_) => "longblob".to_owned(),
        ColumnType::Datetime(fsp) => format!("datetime({fsp})"),
        ColumnType::Timestamp(fsp) => format!("timestamp({fsp})"),
        column_type => column_type.to_string(),
    }
}
