//! What a statement answers: a count, or rows as Arrow batches under described columns.

use std::pin::Pin;
use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::record_batch::RecordBatch;
use futures::{Stream, StreamExt};
use tidb::ColumnType;
use types::Result;

/// A column of a result.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// The name shown.
    pub name: String,
    /// The column's own name, empty for an expression.
    pub org_name: String,
    /// The table's alias.
    pub table: String,
    /// The table's own name.
    pub org_table: String,
    /// The database.
    pub schema: String,
    /// The type of the batches' column.
    pub data_type: DataType,
    /// The declared type, where the column is one of a table.
    pub declared: Option<ColumnType>,
    /// Whether it never is NULL.
    pub not_null: bool,
    /// Whether it belongs to the primary key.
    pub primary_key: bool,
    /// Whether an INSERT must give it a value.
    pub without_default: bool,
}

impl Column {
    /// A column of a query's answer.
    #[must_use]
    pub fn of_result(column: &query::ResultColumn, field: &Field) -> Column {
        let table = column.table.clone().unwrap_or_default();
        Column {
            org_name: if table.is_empty() { String::new() } else { column.name.clone() },
            org_table: table.clone(),
            table,
            schema: column.database.clone().unwrap_or_default(),
            declared: column.column_type.clone(),
            not_null: !column.nullable,
            ..Column::expression(column.name.clone(), field.data_type().clone())
        }
    }

    /// A column of a query that was not run yet.
    #[must_use]
    pub fn of_description(column: &query::ResultColumn) -> Column {
        let data_type = column.column_type.as_ref().map_or(DataType::Null, ColumnType::arrow_type);
        Column::of_result(column, &Field::new(&column.name, data_type, column.nullable))
    }

    /// A column of a table or view.
    ///
    /// # Panics
    /// If there is no column at the position.
    #[must_use]
    pub fn of_table(definition: &sql::catalog::TableDefinition, position: usize) -> Column {
        let info = &definition.info;
        let column = &info.columns[position];
        Column {
            name: column.name.clone(),
            org_name: column.name.clone(),
            table: info.name.clone(),
            org_table: info.name.clone(),
            schema: definition.database.clone(),
            data_type: column.column_type.arrow_type(),
            declared: Some(column.column_type.clone()),
            not_null: column.not_null,
            primary_key: info.primary_key.contains(&position),
            without_default: column.not_null && column.default.is_none(),
        }
    }

    /// A column that is an expression.
    #[must_use]
    pub fn expression(name: impl Into<String>, data_type: DataType) -> Column {
        Column {
            name: name.into(),
            org_name: String::new(),
            table: String::new(),
            org_table: String::new(),
            schema: String::new(),
            data_type,
            declared: None,
            not_null: false,
            primary_key: false,
            without_default: false,
        }
    }
}

/// Batches of a result, as they are computed.
pub type BatchStream = Pin<Box<dyn Stream<Item = Result<RecordBatch>> + Send>>;

/// Rows.
pub struct Rows {
    /// The columns, in the order of the batches'.
    pub columns: Vec<Column>,
    /// The rows.
    pub batches: BatchStream,
}

impl Rows {
    /// Rows that are all there already.
    #[must_use]
    pub fn of_batches(columns: Vec<Column>, batches: Vec<RecordBatch>) -> Rows {
        Rows { columns, batches: futures::stream::iter(batches.into_iter().map(Ok)).boxed() }
    }

    /// A query's answer.
    #[must_use]
    pub fn of_query(result: query::QueryResult) -> Rows {
        let columns = result
            .columns
            .iter()
            .zip(result.schema.fields())
            .map(|(column, field)| Column::of_result(column, field))
            .collect();
        Rows { columns, batches: result.batches }
    }

    /// Rows of text, as SHOW answers them.
    ///
    /// # Panics
    /// If a row has another number of values than there are names: a bug of the caller.
    #[must_use]
    pub fn of_texts(names: &[&str], rows: &[Vec<Option<String>>]) -> Rows {
        let columns: Vec<Column> =
            names.iter().map(|name| Column::expression(*name, DataType::Utf8)).collect();
        let fields: Vec<Field> = names.iter().map(|name| Field::new(*name, DataType::Utf8, true)).collect();
        let arrays = (0..names.len())
            .map(|at| {
                let texts: StringArray = rows.iter().map(|row| row[at].as_deref()).collect();
                Arc::new(texts) as ArrayRef
            })
            .collect();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
            .expect("columns of text have the rows' number");
        Rows::of_batches(columns, vec![batch])
    }

    /// Waits for all batches.
    ///
    /// # Errors
    /// The first error of the stream.
    pub async fn collect(mut self) -> Result<Vec<RecordBatch>> {
        let mut batches = Vec::new();
        while let Some(batch) = self.batches.next().await {
            batches.push(batch?);
        }
        Ok(batches)
    }
}

/// A statement without rows is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Rows written.
    pub affected_rows: u64,
    /// MySQL's human-readable summary, often empty.
    pub info: String,
}

/// What a statement answers.
pub enum Outcome {
    /// It has no rows.
    Done(Done),
    /// It has rows, perhaps none.
    Rows(Rows),
}
