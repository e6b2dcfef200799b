//! A stored table, or a view's stored rows, as a table of the batch engine.
//!
//! Rows stream page by page, only the columns that are asked for are decoded, predicates on the primary
//! key narrow the ranges that are scanned, and a limit ends the scan. What lies over the stored rows (own
//! writes, the read fix) is merged below all of that, so filters and limits see the merged table.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use sql::catalog::TableDefinition;
use store::{Key, KeyRange, Value};
use tidb::{Handle, ROW_ID_COLUMN, ROW_ID_NAME, RowDecoder, TableInfo};
use types::{Error, Result};

use crate::pushdown;
use crate::reads::{Cursor, Reads};

/// Rows by content that a read fix takes from and adds to the stored rows of a view without a key.
#[derive(Debug, Default)]
pub(crate) struct ContentFix {
    /// Stored values to leave out, each so many times.
    pub(crate) retracted: HashMap<Value, u64>,
    /// Values to add, each so many times.
    pub(crate) added: Vec<(Value, u64)>,
}

/// A table whose rows are in the store.
#[derive(Clone, Debug)]
pub(crate) struct StoreTable {
    info: Arc<TableInfo>,
    /// The ids in record keys, in ascending order.
    physical_ids: Arc<[i64]>,
    schema: SchemaRef,
    reads: Reads,
    content: Option<Arc<ContentFix>>,
    batch_rows: usize,
}

impl StoreTable {
    /// A table as of the reads' timestamp.
    pub(crate) fn new(definition: &TableDefinition, reads: Reads, batch_rows: usize) -> StoreTable {
        let info = Arc::new(definition.info.clone());
        let mut fields: Vec<Field> =
            definition.visible_columns().iter().map(tidb::ColumnInfo::arrow_field).collect();
        // They are there to be refused by name; no plan that runs reads them.
        fields.extend(sql::refused_fields(definition));
        StoreTable {
            info,
            physical_ids: definition.physical_ids().into(),
            schema: Arc::new(Schema::new(fields)),
            reads,
            content: None,
            batch_rows,
        }
    }

    /// The same with the hidden row id as a further column, if the table has one.
    pub(crate) fn with_row_id(mut self) -> StoreTable {
        if self.info.has_hidden_handle() {
            let mut fields: Vec<Arc<Field>> = self.schema.fields().iter().cloned().collect();
            fields.push(Arc::new(Field::new(ROW_ID_NAME, DataType::Int64, false)));
            self.schema = Arc::new(Schema::new(fields));
        }
        self
    }

    /// The same with a read fix over the stored rows.
    pub(crate) fn with_content(mut self, content: Arc<ContentFix>) -> StoreTable {
        self.content = Some(content);
        self
    }

    /// A stream over some ranges.
    fn rows(&self, columns: &[usize], ranges: Vec<KeyRange>, limit: Option<usize>) -> Result<Rows> {
        let position = |column: &usize| match self.schema.fields().get(*column) {
            Some(field) if sql::is_refused(field) => {
                let text = format!("column `{}` of table `{}` cannot be read", field.name(), self.info.name);
                Err(Error::corrupt(text))
            }
            _ if *column < self.info.columns.len() => Ok(*column),
            _ => Ok(ROW_ID_COLUMN),
        };
        let positions = columns.iter().map(position).collect::<Result<Vec<usize>>>()?;
        Ok(Rows {
            decoder: RowDecoder::new(&self.info, &positions)?.with_tables(&self.physical_ids),
            cursors: ranges.into_iter().map(|range| self.reads.scan(range)).collect(),
            retracted: self.content.as_ref().map(|content| content.retracted.clone()).unwrap_or_default(),
            added: self.content.as_ref().map(|content| content.added.clone()).unwrap_or_default(),
            page: VecDeque::new(),
            table: self.info.id,
            name: self.info.name.clone(),
            left: limit,
            batch_rows: self.batch_rows,
        })
    }

    /// Every row, in key order, with all columns; for point reads and comparisons.
    pub(crate) fn all_rows(&self, columns: &[usize]) -> Result<Rows> {
        let ranges = pushdown::ranges(&self.info, &self.physical_ids, &[])?;
        self.rows(columns, ranges, None)
    }
}

#[async_trait]
impl TableProvider for StoreTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> datafusion::common::Result<Vec<TableProviderFilterPushDown>> {
        Ok(pushdown::support(filters, |filter| pushdown::is_useful(&self.info, filter)))
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> datafusion::common::Result<Arc<dyn ExecutionPlan>> {
        let columns = match projection {
            Some(columns) => columns.clone(),
            None => (0..self.schema.fields().len()).collect(),
        };
        let schema = Arc::new(self.schema.project(&columns)?);
        let ranges = pushdown::ranges(&self.info, &self.physical_ids, filters).map_err(external)?;
        // A limit over filters that are not applied exactly here would cut too early.
        let limit = if filters.is_empty() { limit } else { None };
        let scan = Scan { table: self.clone(), columns, schema: Arc::clone(&schema), ranges, limit };
        Ok(Arc::new(StreamingTableExec::try_new(schema, vec![Arc::new(scan)], None, [], false, limit)?))
    }
}

/// Wraps our error for the batch engine; `sql::from_datafusion` finds it again.
pub(crate) fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// One scan of a plan.
struct Scan {
    table: StoreTable,
    columns: Vec<usize>,
    schema: SchemaRef,
    ranges: Vec<KeyRange>,
    limit: Option<usize>,
}

impl fmt::Debug for Scan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.table.info.name;
        write!(formatter, "{name} ranges={} at={}", self.ranges.len(), self.table.reads.at())
    }
}

impl PartitionStream for Scan {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.schema);
        let rows = self.table.rows(&self.columns, self.ranges.clone(), self.limit);
        let batches = futures::stream::try_unfold(rows, move |rows| {
            let schema = Arc::clone(&schema);
            async move {
                let mut rows = rows.map_err(external)?;
                let batch = rows.next_batch().await.map_err(external)?;
                // The decoder's schema may differ in metadata only.
                let batch = batch.map(|batch| batch.with_schema(schema)).transpose()?;
                Ok(batch.map(|batch| (batch, Ok(rows))))
            }
        });
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), batches))
    }
}

/// A scan's rows, decoded batch by batch.
pub(crate) struct Rows {
    decoder: RowDecoder,
    cursors: VecDeque<Cursor>,
    retracted: HashMap<Value, u64>,
    added: Vec<(Value, u64)>,
    page: VecDeque<(Key, Value)>,
    table: i64,
    name: String,
    left: Option<usize>,
    batch_rows: usize,
}

impl Rows {
    /// The next batch; `None` after the last.
    pub(crate) async fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        while self.decoder.n_rows() < self.batch_rows && self.left != Some(0) {
            let Some((key, value)) = self.next_pair().await? else { break };
            self.decoder.append(&key, &value)?;
            if let Some(left) = &mut self.left {
                *left -= 1;
            }
        }
        if self.decoder.n_rows() == 0 {
            return Ok(None);
        }
        Ok(Some(self.decoder.finish()?))
    }

    /// The next row as key and value, after the read fix.
    pub(crate) async fn next_pair(&mut self) -> Result<Option<(Key, Value)>> {
        loop {
            if let Some((key, value)) = self.page.pop_front() {
                if !self.retracted.is_empty() && self.retract(&value) {
                    continue;
                }
                return Ok(Some((key, value)));
            }
            let Some(cursor) = self.cursors.front_mut() else {
                return self.next_added();
            };
            let pending = usize::try_from(self.retracted.values().sum::<u64>()).unwrap_or(usize::MAX);
            let limit = self.left.map(|left| left.saturating_add(pending));
            match cursor.next_page(limit).await? {
                Some(page) => self.page = page.into(),
                None => {
                    self.cursors.pop_front();
                }
            }
        }
    }

    /// Whether the row is one that the read fix takes away.
    fn retract(&mut self, value: &Value) -> bool {
        let Some(count) = self.retracted.get_mut(value) else { return false };
        *count -= 1;
        if *count == 0 {
            self.retracted.remove(value);
        }
        true
    }

    fn next_added(&mut self) -> Result<Option<(Key, Value)>> {
        if !self.retracted.is_empty() {
            let n_rows: u64 = self.retracted.values().sum();
            let text = format!("view '{}': {n_rows} rows to retract are not among its rows", self.name);
            return Err(Error::corrupt(text));
        }
        let Some((value, count)) = self.added.last_mut() else { return Ok(None) };
        let value = value.clone();
        *count -= 1;
        if *count == 0 {
            self.added.pop();
        }
        Ok(Some((tidb::record_key(self.table, &Handle::Int(0)).into(), value)))
    }
}
