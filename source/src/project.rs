//! Fewer columns of a delta.

use arrow::array::{BooleanArray, BooleanBufferBuilder};
use arrow::row::{RowConverter, SortField};
use types::{Delta, Result};

/// Some columns of a delta, by position. The two rows of an update that are equal in these columns
/// cancel, if they stand side by side, as a [`crate::Source`] puts them.
///
/// # Errors
/// If a position is out of range.
pub fn project_delta(delta: &Delta, columns: &[usize]) -> Result<Delta> {
    let projected = delta.with_batch(delta.batch().project(columns)?);
    let weights = projected.weights().values();
    let opposite = |row: usize| weights[row].checked_add(weights[row + 1]) == Some(0);
    let n_rows = projected.n_rows();
    if !(0..n_rows.saturating_sub(1)).any(opposite) {
        return Ok(projected);
    }
    if columns.is_empty() {
        // Rows without columns are all equal.
        let kept = keep(n_rows, opposite);
        return kept.map_or(Ok(projected.clone()), |mask| projected.filter(&mask));
    }
    let fields = projected.batch().columns().iter().map(|array| SortField::new(array.data_type().clone()));
    let converter = RowConverter::new(fields.collect())?;
    let rows = converter.convert_columns(projected.batch().columns())?;
    let kept = keep(n_rows, |row| opposite(row) && rows.row(row) == rows.row(row + 1));
    kept.map_or(Ok(projected.clone()), |mask| projected.filter(&mask))
}

/// A mask without the pairs that cancel; `None` if there are none.
fn keep(n_rows: usize, cancels: impl Fn(usize) -> bool) -> Option<BooleanArray> {
    let mut mask = BooleanBufferBuilder::new(n_rows);
    let mut row = 0;
    while row < n_rows {
        if row + 1 < n_rows && cancels(row) {
            mask.append_n(2, false);
            row += 2;
        } else {
            mask.append(true);
            row += 1;
        }
    }
    let mask = BooleanArray::new(mask.finish(), None);
    (mask.true_count() < n_rows).then_some(mask)
}
