//! DataFusion's physical expressions behind the operators' expression trait.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::DataType;
use datafusion::physical_expr::PhysicalExpr;
use operators::Expression;
use types::Result;

use crate::from_datafusion;

/// A physical expression of the batch engine, for operators.
#[derive(Debug)]
pub struct PhysicalExpression {
    inner: Arc<dyn PhysicalExpr>,
    data_type: DataType,
}

impl PhysicalExpression {
    /// Wraps an expression of a known type.
    #[must_use]
    pub fn new(inner: Arc<dyn PhysicalExpr>, data_type: DataType) -> PhysicalExpression {
        PhysicalExpression { inner, data_type }
    }
}

impl Expression for PhysicalExpression {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        let value = self.inner.evaluate(batch).map_err(from_datafusion)?;
        value.into_array(batch.num_rows()).map_err(from_datafusion)
    }

    fn data_type(&self) -> DataType {
        self.data_type.clone()
    }

    fn describe(&self) -> String {
        self.inner.to_string()
    }
}
