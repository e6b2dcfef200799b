//! DDL of databases and tables, and the first value of a result.

use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use arrow::record_batch::RecordBatch;
use arrow::util::display::array_value_to_string;
use sql::catalog::{CatalogCache, DropKind, DropOptions};
use sql::{CreateTable, Literal, Statement, TableName, ast};
use store::Snapshot;
use tokio_util::sync::CancellationToken;
use types::{Error, Result};

use super::{Session, Warning};
use crate::result::{Done, Outcome};

impl Session {
    /// Remembers a change's notes as warnings.
    pub(super) fn note(&mut self, notes: Vec<String>, code: u16) {
        let warnings = notes.into_iter().map(|message| Warning { level: "Note", code, message });
        self.warnings.extend(warnings);
    }

    pub(super) async fn create_database(&mut self, name: &str, if_not_exists: bool) -> Result<Outcome> {
        let runtime = &self.instance.runtime;
        let change =
            runtime.change_catalog(|catalog, _| catalog.create_database(name, if_not_exists)).await?;
        self.note(change.notes, 1007);
        Ok(Outcome::Done(Done { affected_rows: 1, info: String::new() }))
    }

    /// DROP DATABASE, with its tables and views.
    pub(super) async fn drop_database(&mut self, name: &str, if_exists: bool) -> Result<Outcome> {
        let runtime = &self.instance.runtime;
        let change = runtime.change_catalog(|catalog, _| catalog.drop_database(name, if_exists)).await?;
        let affected_rows = change.dropped.len() as u64;
        self.note(change.notes, 1008);
        if self.database.as_deref().is_some_and(|current| current.eq_ignore_ascii_case(name)) {
            self.database = None;
            self.entry.set_database(None);
        }
        Ok(Outcome::Done(Done { affected_rows, info: String::new() }))
    }

    pub(super) async fn create_table(&mut self, table: &CreateTable) -> Result<Outcome> {
        let database = self.database_of(&table.name)?;
        let runtime = &self.instance.runtime;
        let change = runtime.change_catalog(|catalog, _| catalog.create_table(table, &database)).await?;
        let code = if change.created.is_some() { 1235 } else { 1050 };
        self.note(change.notes, code);
        Ok(Outcome::Done(Done::default()))
    }

    /// DROP TABLE and DROP MATERIALIZED VIEW.
    pub(super) async fn drop_named(
        &mut self,
        kind: DropKind,
        names: &[TableName],
        options: DropOptions,
    ) -> Result<Outcome> {
        let runtime = &self.instance.runtime;
        let change = runtime.drop_named(kind, names, self.database.as_deref(), options).await?;
        self.note(change.notes, 1051);
        Ok(Outcome::Done(Done::default()))
    }

    /// TRUNCATE TABLE: deletes every row, so that views see each go.
    pub(super) async fn truncate(
        &mut self,
        name: &TableName,
        interrupt: &CancellationToken,
    ) -> Result<Outcome> {
        let database = self.database_of(name)?;
        let quoted = crate::describe::quoted;
        let text = format!("DELETE FROM {}.{}", quoted(&database), quoted(&name.name));
        let Some(Statement::Delete(delete)) = self.parse(&text)?.pop().map(|parsed| parsed.statement) else {
            return Err(Error::corrupt("TRUNCATE is carried out as a DELETE"));
        };
        self.change(&ast::Statement::Delete(*delete), &[], interrupt).await?;
        self.commit().await?;
        Ok(Outcome::Done(Done::default()))
    }
}

/// Creates the first database in an empty store.
///
/// # Errors
/// If the store is away or its catalog is broken.
pub(crate) async fn bootstrap(store: &Arc<dyn store::Store>, ids_from: u64) -> Result<()> {
    let start = store.timestamp().await?;
    let snapshot = Snapshot::new(Arc::clone(store), start);
    let change = CatalogCache::new().load_at(&snapshot).await?.bootstrap(ids_from);
    if change.mutations.is_empty() {
        return Ok(());
    }
    match store.commit_transaction(start, change.mutations).await {
        // Another process of the same store was faster.
        Ok(_) | Err(store::KeyError::WriteConflict { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The store's identity; drawn on the first start.
///
/// # Errors
/// If the store is away or the record is broken.
pub(crate) async fn store_identity(store: &Arc<dyn store::Store>) -> Result<u64> {
    let key = types::records::store_identity_key();
    loop {
        let start = store.timestamp().await?;
        if let Some(value) = Snapshot::new(Arc::clone(store), start).get(&key).await? {
            let text = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok());
            return text.ok_or_else(|| Error::corrupt("the store's identity is no number"));
        }
        let drawn: u64 = rand::random();
        let record = store::Mutation::insert(key.clone(), drawn.to_string().into_bytes());
        match store.commit_transaction(start, vec![record]).await {
            Ok(_) | Err(store::KeyError::AlreadyExists(_) | store::KeyError::WriteConflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The one value of a result with one row, NULL without rows.
///
/// # Errors
/// 1242 if there are more rows.
pub(super) fn first_value(batches: &[RecordBatch]) -> Result<Literal> {
    let n_rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    if n_rows > 1 {
        return Err(Error::mysql(1242, "Subquery returns more than 1 row"));
    }
    let Some(batch) = batches.iter().find(|batch| batch.num_rows() > 0) else { return Ok(Literal::Null) };
    let column = batch.column(0);
    if column.is_null(0) {
        return Ok(Literal::Null);
    }
    let text = || array_value_to_string(column, 0).map_err(Error::from);
    let number = |error| Error::corrupt(format!("an integer's text is no integer: {error}"));
    Ok(match column.data_type() {
        DataType::Null => Literal::Null,
        DataType::Boolean => Literal::Int(i64::from(column.as_boolean().value(0))),
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
            Literal::Int(text()?.parse().map_err(number)?)
        }
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => {
            Literal::UInt(text()?.parse().map_err(number)?)
        }
        DataType::Float32 => Literal::Double(f64::from(column.as_primitive::<Float32Type>().value(0))),
        DataType::Float64 => Literal::Double(column.as_primitive::<Float64Type>().value(0)),
        DataType::Decimal128(_, _) | DataType::Decimal256(_, _) => Literal::Decimal(text()?),
        DataType::Date32 => Literal::Date(text()?),
        DataType::Timestamp(_, _) => Literal::Datetime(text()?.replacen('T', " ", 1)),
        DataType::Binary => Literal::Bytes(column.as_binary::<i32>().value(0).to_vec()),
        _ => Literal::String(text()?),
    })
}
