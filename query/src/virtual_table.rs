//! A virtual table as a table of the batch engine: computed when it is scanned.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::MemTable;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;

use crate::hooks::{VirtualRequest, VirtualTables};
use crate::table::external;

/// A table that is computed.
pub(crate) struct VirtualTable {
    tables: Arc<dyn VirtualTables>,
    schema: SchemaRef,
    request: VirtualRequest,
}

impl VirtualTable {
    pub(crate) fn new(
        tables: Arc<dyn VirtualTables>,
        schema: SchemaRef,
        request: VirtualRequest,
    ) -> VirtualTable {
        VirtualTable { tables, schema, request }
    }
}

impl fmt::Debug for VirtualTable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.request.database, self.request.table)
    }
}

#[async_trait]
impl TableProvider for VirtualTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> datafusion::common::Result<Arc<dyn ExecutionPlan>> {
        let batches = self.tables.scan(self.request.clone()).await.map_err(external)?;
        let table = MemTable::try_new(Arc::clone(&self.schema), vec![batches])?;
        table.scan(state, projection, filters, limit).await
    }
}
