//! Deltas: Arrow batches with weights, the Z-sets that flow through a dataflow.
//!
//! A row with weight +1 appears, with -1 disappears; an update is both. Rows may repeat and weights
//! may be any number until somebody consolidates; a delta promises no order.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, UInt32Array};
use arrow::compute::{concat, concat_batches, filter, filter_record_batch, take, take_record_batch};
use arrow::datatypes::SchemaRef;

use crate::{Error, Result};

/// A batch of rows with a signed weight each.
#[derive(Clone, Debug)]
pub struct Delta {
    batch: RecordBatch,
    weights: Int64Array,
}

impl Delta {
    /// Makes a delta of rows and their weights.
    ///
    /// # Panics
    /// If the lengths differ or a weight is null: both are bugs of the caller.
    #[must_use]
    pub fn new(batch: RecordBatch, weights: Int64Array) -> Delta {
        assert_eq!(batch.num_rows(), weights.len(), "a delta has one weight a row");
        assert_eq!(weights.null_count(), 0, "a delta has no null weights");
        Delta { batch, weights }
    }

    /// Rows that all appear once.
    #[must_use]
    pub fn inserts(batch: RecordBatch) -> Delta {
        let weights = Int64Array::from_value(1, batch.num_rows());
        Delta::new(batch, weights)
    }

    /// No rows.
    #[must_use]
    pub fn empty(schema: SchemaRef) -> Delta {
        Delta::inserts(RecordBatch::new_empty(schema))
    }

    /// The rows.
    #[must_use]
    pub fn batch(&self) -> &RecordBatch {
        &self.batch
    }

    /// The weights, one a row, never null.
    #[must_use]
    pub fn weights(&self) -> &Int64Array {
        &self.weights
    }

    /// The schema of the rows.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        self.batch.schema()
    }

    /// A column of the rows.
    #[must_use]
    pub fn column(&self, index: usize) -> &ArrayRef {
        self.batch.column(index)
    }

    /// The number of rows, not of their weights.
    #[must_use]
    pub fn n_rows(&self) -> usize {
        self.batch.num_rows()
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.n_rows() == 0
    }

    /// The same rows under other columns; weights stay.
    ///
    /// # Panics
    /// If the new batch has another number of rows.
    #[must_use]
    pub fn with_batch(&self, batch: RecordBatch) -> Delta {
        Delta::new(batch, self.weights.clone())
    }

    /// The rows where the mask is true (NULL counts as false).
    ///
    /// # Errors
    /// If the mask has another length.
    pub fn filter(&self, mask: &BooleanArray) -> Result<Delta> {
        let batch = filter_record_batch(&self.batch, mask)?;
        let weights = filter(&self.weights, mask)?;
        Ok(Delta::new(batch, int64(&weights)?))
    }

    /// The rows at the given positions, in their order.
    ///
    /// # Errors
    /// If a position is out of range.
    pub fn take(&self, indices: &UInt32Array) -> Result<Delta> {
        let batch = take_record_batch(&self.batch, indices)?;
        let weights = take(&self.weights, indices, None)?;
        Ok(Delta::new(batch, int64(&weights)?))
    }

    /// The same rows with all weights negated.
    ///
    /// # Errors
    /// On overflow of a weight.
    pub fn negate(&self) -> Result<Delta> {
        let weights = self
            .weights
            .values()
            .iter()
            .map(|weight| weight.checked_neg().ok_or_else(|| Error::corrupt("weight overflow")))
            .collect::<Result<Vec<i64>>>()?;
        Ok(Delta::new(self.batch.clone(), Int64Array::from(weights)))
    }

    /// All rows of several deltas of one schema.
    ///
    /// # Errors
    /// If the schemas differ.
    pub fn concat(schema: &SchemaRef, deltas: &[Delta]) -> Result<Delta> {
        match deltas {
            [] => Ok(Delta::empty(Arc::clone(schema))),
            [one] => Ok(one.clone()),
            many => {
                let batch = concat_batches(schema, many.iter().map(Delta::batch))?;
                let weights: Vec<&dyn Array> =
                    many.iter().map(|delta| &delta.weights as &dyn Array).collect();
                let weights = concat(&weights)?;
                Ok(Delta::new(batch, int64(&weights)?))
            }
        }
    }
}

fn int64(array: &ArrayRef) -> Result<Int64Array> {
    array
        .as_any()
        .downcast_ref::<Int64Array>()
        .cloned()
        .ok_or_else(|| Error::corrupt("weights are not 64-bit integers"))
}
