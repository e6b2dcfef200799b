//! System tables: `tidemill` and `information_schema`, computed from the catalog and what runs here.
//!
//! A table is a list of named columns and a function that makes its rows; [`SystemTables`] gives both to
//! the query engine, so they can be joined, filtered and ordered like any table. Names are in lower case.

mod holds;
mod information;
mod own;

use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{ArrayRef, Float64Array, Int64Array, StringArray, TimestampMicrosecondArray, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use query::{VirtualRequest, VirtualTables};
use runtime::Runtime;
use types::{Error, Result, Timestamp};

use crate::session::Variables;
use crate::sessions::Sessions;
use tidb::{CivilTime, Zone, format_time};

/// The type of a system table's column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SystemType {
    Text,
    Int,
    Unsigned,
    Double,
    Time,
}

impl SystemType {
    fn arrow(self) -> DataType {
        match self {
            SystemType::Text => DataType::Utf8,
            SystemType::Int => DataType::Int64,
            SystemType::Unsigned => DataType::UInt64,
            SystemType::Double => DataType::Float64,
            SystemType::Time => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        }
    }
}

/// A value of a system table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    Null,
    Text(String),
    Int(i64),
    Unsigned(u64),
    Double(f64),
    /// Microseconds since 1970 in UTC.
    Time(i64),
}

impl Cell {
    pub(crate) fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into())
    }

    pub(crate) fn optional<T>(value: Option<T>, cell: impl FnOnce(T) -> Cell) -> Cell {
        value.map_or(Cell::Null, cell)
    }

    pub(crate) fn time_of(at: Timestamp) -> Cell {
        i64::try_from(at.physical_ms()).map_or(Cell::Null, |ms| Cell::Time(ms.saturating_mul(1000)))
    }
}

/// A system table: its place and its columns.
#[derive(Debug)]
pub(crate) struct SystemTable {
    pub(crate) database: &'static str,
    pub(crate) name: &'static str,
    pub(crate) columns: &'static [(&'static str, SystemType)],
}

impl SystemTable {
    fn schema(&self) -> SchemaRef {
        let fields = self.columns.iter().map(|(name, kind)| Field::new(*name, kind.arrow(), true));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    /// The rows as a batch.
    ///
    /// # Errors
    /// `Corrupt` if a row does not fit the columns.
    fn batch(&self, rows: &[Vec<Cell>]) -> Result<RecordBatch> {
        if let Some(row) = rows.iter().find(|row| row.len() != self.columns.len()) {
            return Err(Error::corrupt(format!("a row of {} has {} values", self.name, row.len())));
        }
        let arrays = self.columns.iter().enumerate().map(|(at, (_, kind))| array(*kind, at, rows));
        Ok(RecordBatch::try_new(self.schema(), arrays.collect())?)
    }
}

fn array(kind: SystemType, at: usize, rows: &[Vec<Cell>]) -> ArrayRef {
    let cells = rows.iter().map(|row| &row[at]);
    match kind {
        SystemType::Text => Arc::new(StringArray::from_iter(cells.map(|cell| match cell {
            Cell::Text(text) => Some(text.as_str()),
            _ => None,
        }))),
        SystemType::Int => Arc::new(Int64Array::from_iter(cells.map(|cell| match cell {
            Cell::Int(number) => Some(*number),
            _ => None,
        }))),
        SystemType::Unsigned => Arc::new(UInt64Array::from_iter(cells.map(|cell| match cell {
            Cell::Unsigned(number) => Some(*number),
            _ => None,
        }))),
        SystemType::Double => Arc::new(Float64Array::from_iter(cells.map(|cell| match cell {
            Cell::Double(number) => Some(*number),
            _ => None,
        }))),
        SystemType::Time => {
            let times = cells.map(|cell| match cell {
                Cell::Time(us) => Some(*us),
                _ => None,
            });
            Arc::new(TimestampMicrosecondArray::from_iter(times).with_timezone("UTC"))
        }
    }
}

/// The name that MySQL gives an Arrow type of a system table.
pub(crate) fn arrow_type_name(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Int64 => "bigint",
        DataType::UInt64 => "bigint unsigned",
        DataType::Float64 => "double",
        DataType::Timestamp(_, _) => "timestamp(6)",
        _ => "varchar(65535)",
    }
}

/// A timestamp's time in a zone.
pub(crate) fn shown_time(at: Timestamp, zone: Zone) -> Option<String> {
    let us = i64::try_from(at.physical_ms()).ok()?.checked_mul(1000)?;
    Some(format_time(CivilTime::from_micros(zone.to_local(us)?).ok()?, 3))
}

/// All system tables.
fn all() -> impl Iterator<Item = &'static SystemTable> {
    own::TABLES.iter().chain(information::TABLES)
}

fn find(database: &str, table: &str) -> Option<&'static SystemTable> {
    all()
        .find(|known| known.database.eq_ignore_ascii_case(database) && known.name.eq_ignore_ascii_case(table))
}

/// The schema of a system table.
pub(crate) fn schema(database: &str, table: &str) -> Option<SchemaRef> {
    find(database, table).map(SystemTable::schema)
}

/// The databases that consist of system tables.
pub(crate) fn databases() -> [&'static str; 2] {
    sql::catalog::SYSTEM_DATABASES
}

/// The system tables of a database.
pub(crate) fn tables(database: &str) -> Vec<&'static str> {
    all().filter(|table| table.database == database).map(|table| table.name).collect()
}

/// Computes system tables for the query engine.
pub(crate) struct SystemTables {
    sessions: Arc<Sessions>,
    globals: Arc<Mutex<Variables>>,
    runtime: Runtime,
}

impl SystemTables {
    pub(crate) fn new(
        sessions: Arc<Sessions>,
        globals: Arc<Mutex<Variables>>,
        runtime: Runtime,
    ) -> SystemTables {
        SystemTables { sessions, globals, runtime }
    }

    fn globals(&self) -> Variables {
        self.globals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[async_trait]
impl VirtualTables for SystemTables {
    fn schema(&self, database: &str, table: &str) -> Option<SchemaRef> {
        schema(database, table)
    }

    fn has_database(&self, database: &str) -> bool {
        databases().contains(&database)
    }

    async fn scan(&self, request: VirtualRequest) -> Result<Vec<RecordBatch>> {
        let VirtualRequest { database, table, .. } = &request;
        let found = find(database, table)
            .ok_or_else(|| Error::mysql(1146, format!("Table '{database}.{table}' doesn't exist")))?;
        let rows = match found.database {
            "tidemill" if found.name == "holds" => {
                holds::rows(&self.runtime, &self.sessions, &request).await?
            }
            "tidemill" => own::rows(found.name, &self.runtime, &request).await?,
            _ => information::rows(found.name, &request.catalog, &self.sessions, &self.globals()),
        };
        Ok(vec![found.batch(&rows)?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_lower_case_and_columns_too() {
        let mut names: Vec<_> = all().map(|table| (table.database, table.name)).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for table in all() {
            assert!(databases().contains(&table.database));
            let mut columns: Vec<_> = table.columns.iter().map(|(name, _)| *name).collect();
            columns.sort_unstable();
            columns.dedup();
            assert_eq!(columns.len(), table.columns.len(), "{}", table.name);
            assert!(columns.iter().all(|name| *name == name.to_lowercase()));
        }
    }

    /// The columns that the SQL reference documents, by table: name and type.
    fn documented() -> Vec<(String, Vec<(String, String)>)> {
        let mut tables: Vec<(String, Vec<(String, String)>)> = Vec::new();
        for line in include_str!("../../../docs/sql.md").lines() {
            if let Some(name) = line.strip_prefix("### tidemill.") {
                tables.push((name.trim().to_owned(), Vec::new()));
            } else if let (Some((_, columns)), Some(row)) = (tables.last_mut(), line.strip_prefix("| `")) {
                let mut cells = row.split(" | ");
                let name = cells.next().unwrap().trim_end_matches('`').to_owned();
                let kind = cells.next().unwrap().to_owned();
                let meaning = cells.next().unwrap().trim_end_matches(" |");
                assert!(!meaning.is_empty(), "{name} has no meaning");
                columns.push((name, kind));
            }
        }
        tables
    }

    #[test]
    fn every_column_is_documented_as_it_is() {
        let kind = |kind: &SystemType| match kind {
            SystemType::Text => "VARCHAR",
            SystemType::Int => "BIGINT",
            SystemType::Unsigned => "BIGINT UNSIGNED",
            SystemType::Double => "DOUBLE",
            SystemType::Time => "TIMESTAMP(6)",
        };
        let columns = |table: &SystemTable| {
            let column = |(name, of): &(&str, SystemType)| ((*name).to_owned(), kind(of).to_owned());
            table.columns.iter().map(column).collect()
        };
        let real: Vec<(String, Vec<(String, String)>)> =
            own::TABLES.iter().map(|table| (table.name.to_owned(), columns(table))).collect();
        assert_eq!(documented(), real);
    }

    #[test]
    fn a_row_that_does_not_fit_is_an_error() {
        let table = find("tidemill", "views").unwrap();
        assert!(table.batch(&[vec![Cell::Null]]).is_err());
        assert_eq!(table.batch(&[]).unwrap().num_rows(), 0);
    }
}
