//! The one door through which expressions enter the operators.

use std::fmt::Debug;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::DataType;
use types::Result;

/// A deterministic scalar expression over the columns of a batch.
///
/// A caller may assume that equal rows give equal values, whatever else is in the batch (otherwise a
/// retraction would not cancel its insertion). The same code runs in every driver and in the batch engine.
pub trait Expression: Debug + Send + Sync {
    /// Evaluates the expression for each row.
    ///
    /// # Errors
    /// If a row cannot be evaluated (overflow, bad cast); the message says why.
    fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef>;

    /// The type of the result.
    fn data_type(&self) -> DataType;

    /// A text that identifies the expression, for plan fingerprints and EXPLAIN.
    fn describe(&self) -> String;

    /// The column whose value it passes on unchanged, or whose sort key it is; `None` if it computes.
    fn passes(&self) -> Option<usize> {
        None
    }

    /// The columns that it reads, as far as it can tell: for those who show where a value comes from.
    fn columns(&self) -> Vec<usize> {
        self.passes().into_iter().collect()
    }
}
