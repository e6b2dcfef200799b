//! DDL of databases and tables, and the first value of a result.

use std::future::Future;
use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use arrow::record_batch::RecordBatch;
use arrow::util::display::array_value_to_string;
use runtime::DropOptions;
use sql::catalog::{Catalog, CatalogChange};
use sql::{CreateTable, Literal, Statement, TableName, ast};
use tokio_util::sync::CancellationToken;
use types::{Error, ErrorKind, Result, Timestamp};

use super::{Session, Warning};
use crate::result::{Done, Outcome};

/// How often a definition is tried again when another one came between.
const ATTEMPTS_MAX: u32 = 32;

impl Session {
    /// Makes a change of the catalog and commits it, again if another change came between.
    async fn change_catalog(
        &mut self,
        make: impl Fn(&Catalog) -> Result<CatalogChange>,
    ) -> Result<CatalogChange> {
        let store = Arc::clone(&self.instance.store);
        let mut attempt = 0;
        loop {
            attempt += 1;
            let start = store.timestamp().await?;
            let catalog = self.instance.engine.catalog(start).await?;
            let change = make(&catalog)?;
            if change.mutations.is_empty() {
                return Ok(change);
            }
            match store.commit_transaction(start, change.mutations.clone()).await.map_err(Error::from) {
                Ok(_) => return Ok(change),
                Err(error) if error.kind() == ErrorKind::Conflict && attempt < ATTEMPTS_MAX => {
                    let pause_ms = rand::random_range(1..=u64::from(5 * attempt));
                    tokio::time::sleep(std::time::Duration::from_millis(pause_ms)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Remembers a change's notes as warnings.
    fn note(&mut self, notes: Vec<String>, code: u16) {
        let warnings = notes.into_iter().map(|message| Warning { level: "Note", code, message });
        self.warnings.extend(warnings);
    }

    pub(super) async fn create_database(&mut self, name: &str, if_not_exists: bool) -> Result<Outcome> {
        let change = self.change_catalog(|catalog| catalog.create_database(name, if_not_exists)).await?;
        self.note(change.notes, 1007);
        Ok(Outcome::Done(Done { affected_rows: 1, info: String::new() }))
    }

    /// DROP DATABASE: its views go first, then its tables, then itself; each through the runtime, which
    /// tells the jobs.
    pub(super) async fn drop_database(&mut self, name: &str, if_exists: bool) -> Result<Outcome> {
        let at = self.instance.store.read_timestamp().await?;
        let catalog = self.instance.engine.catalog(at).await?;
        // Whatever refuses the whole refuses it before anything is dropped.
        let change = catalog.drop_database(name, if_exists)?;
        let runtime = &self.instance.runtime;
        let options = DropOptions { if_exists: true, cascade: true };
        let n_dropped = change.dropped.len() as u64;
        for definition in change.dropped.iter().filter(|definition| definition.view.is_some()) {
            runtime.drop_view(&definition.database, &definition.info.name, options).await?;
        }
        for definition in change.dropped.iter().filter(|definition| definition.view.is_none()) {
            runtime.drop_table(&definition.database, &definition.info.name, options).await?;
        }
        let change = self.change_catalog(|catalog| catalog.drop_database(name, if_exists)).await?;
        self.note(change.notes, 1008);
        if self.database.as_deref().is_some_and(|current| current.eq_ignore_ascii_case(name)) {
            self.database = None;
            self.entry.set_database(None);
        }
        Ok(Outcome::Done(Done { affected_rows: n_dropped, info: String::new() }))
    }

    pub(super) async fn create_table(&mut self, table: &CreateTable) -> Result<Outcome> {
        let database = self.database_of(&table.name)?;
        let change = self.change_catalog(|catalog| catalog.create_table(table, &database)).await?;
        self.note(change.notes, 1050);
        Ok(Outcome::Done(Done::default()))
    }

    pub(super) async fn drop_tables(
        &mut self,
        names: &[TableName],
        if_exists: bool,
        cascade: bool,
    ) -> Result<Outcome> {
        let at = self.instance.store.read_timestamp().await?;
        let catalog = self.instance.engine.catalog(at).await?;
        // Refuses all of them before the first is dropped.
        let change = catalog.drop_tables(names, self.database.as_deref(), if_exists, cascade)?;
        let options = DropOptions { if_exists, cascade };
        for definition in change.dropped.iter().filter(|definition| definition.view.is_none()) {
            self.instance.runtime.drop_table(&definition.database, &definition.info.name, options).await?;
        }
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
pub(crate) async fn bootstrap<F>(
    store: &Arc<dyn store::Store>,
    catalog_at: impl Fn(Timestamp) -> F,
) -> Result<()>
where
    F: Future<Output = Result<Arc<Catalog>>>,
{
    let start = store.timestamp().await?;
    let change = catalog_at(start).await?.bootstrap();
    if change.mutations.is_empty() {
        return Ok(());
    }
    store.commit_transaction(start, change.mutations).await.map_err(Error::from).map(|_| ())
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
