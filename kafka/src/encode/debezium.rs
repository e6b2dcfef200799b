//! Debezium's envelope in JSON with its schemas: decimals, dates and times exactly as its connectors write
//! them. A BIGINT UNSIGNED is a decimal without digits after the point (`bigint.unsigned.handling.mode` is
//! `precise`), as a number of 64 bits with a sign would change half of its values.

use arrow::datatypes::i256;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tidb::{ColumnInfo, ColumnType};
use types::Timestamp;

use super::{CellValue, ChangeEncoder, EncodedMessage};
use crate::json::Quoted;

impl ChangeEncoder {
    /// A change that moves a row to another key is a delete under the old key and a create under the new one.
    pub(super) fn debezium(
        &self,
        old: Option<&[CellValue<'_>]>,
        new: Option<&[CellValue<'_>]>,
        at: Timestamp,
        tombstones: bool,
    ) -> Vec<EncodedMessage> {
        let mut messages = Vec::with_capacity(3);
        let is_moved = old.zip(new).is_some_and(|(old, new)| !self.keeps_key(old, new));
        if let Some(old) = old.filter(|_| new.is_none() || is_moved) {
            let key = self.debezium_key(old);
            messages.push(EncodedMessage {
                key: Some(key.clone()),
                value: Some(self.envelope("d", Some(old), None, at)),
            });
            if tombstones {
                messages.push(EncodedMessage { key: Some(key), value: None });
            }
        }
        if let Some(new) = new {
            let old = old.filter(|_| !is_moved);
            let operation = if old.is_some() { "u" } else { "c" };
            let value = self.envelope(operation, old, Some(new), at);
            messages.push(EncodedMessage { key: Some(self.debezium_key(new)), value: Some(value) });
        }
        messages
    }

    fn debezium_key(&self, cells: &[CellValue<'_>]) -> Vec<u8> {
        let schema = format!(
            "{{\"type\":\"struct\",\"fields\":[{}],\"optional\":false,\"name\":{}}}",
            self.fields(&self.key),
            Quoted(&self.schema_name("Key"))
        );
        format!("{{\"schema\":{schema},\"payload\":{}}}", self.values(&self.key, cells)).into_bytes()
    }

    fn envelope(
        &self,
        operation: &str,
        old: Option<&[CellValue<'_>]>,
        new: Option<&[CellValue<'_>]>,
        at: Timestamp,
    ) -> Vec<u8> {
        let all: Vec<usize> = (0..self.columns.len()).collect();
        let fields = self.fields(&all);
        let value_name = self.schema_name("Value");
        let row = |field: &str| {
            let name = Quoted(&value_name);
            format!(
                "{{\"type\":\"struct\",\"fields\":[{fields}],\"optional\":true,\"name\":{name},\
                 \"field\":\"{field}\"}}"
            )
        };
        let plain = |kind: &str, name: &str| {
            format!("{{\"type\":\"{kind}\",\"optional\":false,\"field\":\"{name}\"}}")
        };
        let source_fields = [
            plain("string", "connector"),
            plain("string", "db"),
            plain("string", "table"),
            plain("int64", "ts_ms"),
            plain("int64", "commit_ts"),
        ];
        let source_schema = format!(
            "{{\"type\":\"struct\",\"fields\":[{}],\"optional\":false,\"field\":\"source\"}}",
            source_fields.join(",")
        );
        let schema = format!(
            "{{\"type\":\"struct\",\"fields\":[{},{},{source_schema},{},{}],\"optional\":false,\"name\":{}}}",
            row("before"),
            row("after"),
            plain("string", "op"),
            plain("int64", "ts_ms"),
            Quoted(&self.schema_name("Envelope"))
        );
        let image = |cells: Option<&[CellValue<'_>]>| {
            cells.map_or_else(|| "null".to_owned(), |cells| self.values(&all, cells))
        };
        let ms = at.physical_ms();
        let source = format!(
            "{{\"connector\":\"tidemill\",\"db\":{},\"table\":{},\"ts_ms\":{ms},\"commit_ts\":{at}}}",
            Quoted(&self.table.database),
            Quoted(&self.table.table)
        );
        format!(
            "{{\"schema\":{schema},\"payload\":{{\"before\":{},\"after\":{},\"source\":{source},\
             \"op\":\"{operation}\",\"ts_ms\":{ms}}}}}",
            image(old),
            image(new)
        )
        .into_bytes()
    }

    fn schema_name(&self, what: &str) -> String {
        format!("tidemill.{}.{}.{what}", self.table.database, self.table.table)
    }

    fn fields(&self, columns: &[usize]) -> String {
        let fields: Vec<String> = columns.iter().map(|at| field(&self.columns[*at])).collect();
        fields.join(",")
    }

    fn values(&self, columns: &[usize], cells: &[CellValue<'_>]) -> String {
        let members: Vec<String> = columns
            .iter()
            .map(|at| {
                format!(
                    "{}:{}",
                    Quoted(&self.columns[*at].name),
                    connect_value(&self.columns[*at], &cells[*at])
                )
            })
            .collect();
        format!("{{{}}}", members.join(","))
    }
}

/// The schema of a column: Connect's type, and the name that says what it means.
fn field(column: &ColumnInfo) -> String {
    let (kind, name, parameters) = match column.column_type {
        ColumnType::Int { bits: 8, unsigned: false } => ("int16", "", String::new()),
        ColumnType::Int { bits: 8, unsigned: true } => ("int16", "", String::new()),
        ColumnType::Int { bits: 16, unsigned: false } => ("int16", "", String::new()),
        ColumnType::Int { bits: 16 | 24, unsigned: true } => ("int32", "", String::new()),
        ColumnType::Int { bits: 24 | 32, unsigned: false } => ("int32", "", String::new()),
        // In 64 bits with a sign half of its numbers would change theirs.
        ColumnType::Int { bits: 64, unsigned: true } => ("bytes", DECIMAL, scale(0)),
        ColumnType::Int { .. } => ("int64", "", String::new()),
        ColumnType::Float => ("float", "", String::new()),
        ColumnType::Double => ("double", "", String::new()),
        ColumnType::Decimal { scale: digits, .. } => ("bytes", DECIMAL, scale(digits)),
        ColumnType::Char(_) | ColumnType::Varchar(_) | ColumnType::Text(_) => ("string", "", String::new()),
        ColumnType::Binary(_) | ColumnType::Varbinary(_) | ColumnType::Blob(_) => {
            ("bytes", "", String::new())
        }
        ColumnType::Date => ("int32", "io.debezium.time.Date", String::new()),
        ColumnType::Datetime(0..=3) => ("int64", "io.debezium.time.Timestamp", String::new()),
        ColumnType::Datetime(_) => ("int64", "io.debezium.time.MicroTimestamp", String::new()),
        ColumnType::Timestamp(_) => ("string", "io.debezium.time.ZonedTimestamp", String::new()),
    };
    let name = if name.is_empty() { String::new() } else { format!(",\"name\":\"{name}\",\"version\":1") };
    let (optional, field) = (!column.not_null, Quoted(&column.name));
    format!("{{\"type\":\"{kind}\",\"optional\":{optional}{name}{parameters},\"field\":{field}}}")
}

const DECIMAL: &str = "org.apache.kafka.connect.data.Decimal";

fn scale(digits: u8) -> String {
    format!(",\"parameters\":{{\"scale\":\"{digits}\"}}")
}

fn connect_value(column: &ColumnInfo, cell: &CellValue<'_>) -> String {
    let is_large = matches!(column.column_type, ColumnType::Int { bits: 64, unsigned: true });
    match cell {
        CellValue::Null => "null".to_owned(),
        CellValue::Int(value) if is_large => Quoted(&unscaled(i256::from_i128(*value))).to_string(),
        CellValue::Int(value) => value.to_string(),
        CellValue::Single(value) => format!("{value:e}"),
        CellValue::Double(value) => format!("{value:e}"),
        CellValue::Decimal(value) => Quoted(&unscaled(value.unscaled)).to_string(),
        CellValue::Days(days) => days.to_string(),
        CellValue::Local(micros, 0..=3) => micros.div_euclid(1_000).to_string(),
        CellValue::Local(micros, _) => micros.to_string(),
        CellValue::Instant(..) => Quoted(&format!("{}Z", cell.text().replace(' ', "T"))).to_string(),
        CellValue::Text(_) | CellValue::Bytes(_) => Quoted(&cell.text()).to_string(),
    }
}

/// The fewest bytes of two's complement, in base64.
fn unscaled(value: i256) -> String {
    let bytes = value.to_be_bytes();
    let sign = if value.is_negative() { 0xff } else { 0 };
    let mut start = 0;
    // A byte of nothing but sign goes if the next one has the same sign.
    while start < bytes.len() - 1 && bytes[start] == sign && (bytes[start + 1] ^ sign) & 0x80 == 0 {
        start += 1;
    }
    STANDARD.encode(&bytes[start..])
}
