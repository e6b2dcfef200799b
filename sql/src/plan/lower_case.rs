//! A table under lower-case column names.
//!
//! MySQL's column names have no case; plans know columns in lower case only. A table that declares
//! others is read through this, which renames columns on the way out and filters on the way in.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result as PlanResult};
use datafusion::datasource::{TableProvider, TableType};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column as PhysicalColumn;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;

/// A table whose columns are renamed to lower case.
#[derive(Debug)]
pub(super) struct LowerCase {
    inner: Arc<dyn TableProvider>,
    schema: SchemaRef,
}

impl LowerCase {
    pub(super) fn new(inner: Arc<dyn TableProvider>) -> LowerCase {
        let schema = inner.schema();
        let fields: Vec<_> = schema
            .fields()
            .iter()
            .map(|field| Arc::new(field.as_ref().clone().with_name(field.name().to_lowercase())))
            .collect();
        LowerCase { inner, schema: Arc::new(Schema::new(fields)) }
    }

    /// A filter with the columns as the table names them.
    fn filter(&self, filter: &Expr) -> PlanResult<Expr> {
        let declared = self.inner.schema();
        let renamed = filter.clone().transform_up(|expr| match expr {
            Expr::Column(column) => {
                let name = match self.schema.index_of(&column.name) {
                    Ok(index) => declared.field(index).name().clone(),
                    Err(_) => column.name.clone(),
                };
                Ok(Transformed::yes(Expr::Column(Column { name, ..column })))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(renamed.data)
    }
}

#[async_trait]
impl TableProvider for LowerCase {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        self.inner.table_type()
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> PlanResult<Vec<TableProviderFilterPushDown>> {
        let filters = filters.iter().map(|filter| self.filter(filter)).collect::<PlanResult<Vec<_>>>()?;
        self.inner.supports_filters_pushdown(&filters.iter().collect::<Vec<_>>())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let filters = filters.iter().map(|filter| self.filter(filter)).collect::<PlanResult<Vec<_>>>()?;
        let scan = self.inner.scan(state, projection, &filters, limit).await?;
        if scan.schema().fields().is_empty() {
            return Ok(scan);
        }
        let columns: Vec<(Arc<dyn PhysicalExpr>, String)> = scan
            .schema()
            .fields()
            .iter()
            .enumerate()
            .map(|(index, field)| {
                let column: Arc<dyn PhysicalExpr> = Arc::new(PhysicalColumn::new(field.name(), index));
                (column, field.name().to_lowercase())
            })
            .collect();
        Ok(Arc::new(ProjectionExec::try_new(columns, scan)?))
    }
}
