//! DataFusion's physical expressions behind the operators' expression trait.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use operators::Expression;
use types::Result;

use crate::{from_datafusion, functions};

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

    /// The engine's own text leaves out what type a constant has, where it ends, and the zone of a function.
    fn describe(&self) -> String {
        let mut details = Vec::new();
        let walked = self.inner.apply(|expr| {
            if let Some(literal) = expr.downcast_ref::<Literal>() {
                details.push(format!("{:?}", literal.value()));
            } else if let Some(call) = expr.downcast_ref::<ScalarFunctionExpr>() {
                details.extend(functions::zone_name(call.fun()).map(str::to_owned));
            }
            Ok(TreeNodeRecursion::Continue)
        });
        // The walk itself cannot fail.
        details.extend(walked.err().map(|error| error.to_string()));
        match details.is_empty() {
            true => self.inner.to_string(),
            false => format!("{} {{{}}}", self.inner, details.join(", ")),
        }
    }

    fn passes(&self) -> Option<usize> {
        let passed = match self.inner.downcast_ref::<ScalarFunctionExpr>() {
            Some(call) if functions::is_pad_key(call.fun()) => call.args().first()?,
            Some(_) => return None,
            None => &self.inner,
        };
        passed.downcast_ref::<Column>().map(Column::index)
    }

    fn columns(&self) -> Vec<usize> {
        let columns: BTreeSet<usize> = collect_columns(&self.inner).iter().map(Column::index).collect();
        columns.into_iter().collect()
    }
}
