//! Pairs of rows with equal keys, and the condition that a pair must fulfil.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::kernels::cmp;
use arrow::compute::{and_kleene, filter_record_batch, is_null, or, prep_null_mask_filter};
use types::{Delta, Error, Result};

use super::{BATCH_ROWS, Found, Shape, Work, key_ranges};
use crate::Expression;
use crate::arrange::{Layout, decode_rows, delta_of, with_schema};
use crate::failures::{FailedRows, evaluate_rows};
use crate::run::{Run, hash_of};
use crate::state::State;

/// What a pair must fulfil beside equal keys.
#[derive(Debug)]
pub(super) struct Condition {
    residual: Option<Arc<dyn Expression>>,
    /// Columns of the joined row that must not differ (equal, or either NULL), for NOT IN.
    not_different: Vec<(usize, usize)>,
}

impl Condition {
    pub(super) fn new(
        residual: Option<Arc<dyn Expression>>,
        null_aware: Option<(&[usize], &[usize], usize)>,
    ) -> Option<Condition> {
        let not_different = null_aware.map_or_else(Vec::new, |(left_keys, right_keys, n_left)| {
            left_keys.iter().zip(right_keys).map(|(left, right)| (*left, n_left + right)).collect()
        });
        let is_needed = residual.is_some() || null_aware.is_some();
        is_needed.then_some(Condition { residual, not_different })
    }

    /// Which rows of a joined batch fulfil it; NULL does not. Where the columns of NOT IN differ, the
    /// residual is not asked.
    fn holds(&self, batch: &RecordBatch, weights: &[i64], failed: &mut FailedRows) -> Result<BooleanArray> {
        let candidates = self.may_be_equal(batch)?;
        match (&self.residual, candidates) {
            (None, None) => Ok(BooleanArray::from(vec![true; batch.num_rows()])),
            (None, Some(candidates)) => Ok(candidates),
            (Some(residual), None) => residual_holds(residual, batch, weights, failed),
            (Some(residual), Some(candidates)) => {
                let asked = filter_record_batch(batch, &candidates)?;
                let asked_weights = weights.iter().zip(candidates.values().iter());
                let asked_weights: Vec<i64> =
                    asked_weights.filter(|(_, asked)| *asked).map(|(weight, _)| *weight).collect();
                let holds = residual_holds(residual, &asked, &asked_weights, failed)?;
                Ok(scatter(&candidates, &holds))
            }
        }
    }

    /// Where the columns do not certainly differ; none if there are no such columns.
    fn may_be_equal(&self, batch: &RecordBatch) -> Result<Option<BooleanArray>> {
        // A comparison of rows is false if one of their columns differs, else it may be unknown.
        let mut equal: Option<BooleanArray> = None;
        for (left, right) in &self.not_different {
            let column_equal = cmp::eq(batch.column(*left), batch.column(*right))?;
            equal = Some(match equal {
                None => column_equal,
                Some(equal) => and_kleene(&equal, &column_equal)?,
            });
        }
        let Some(equal) = equal else {
            return Ok(None);
        };
        let unknown = is_null(&equal)?;
        Ok(Some(or(&unknown, &without_null(equal))?))
    }
}

/// Where a residual is true; it is not where it is NULL, or fails.
fn residual_holds(
    residual: &Arc<dyn Expression>,
    batch: &RecordBatch,
    weights: &[i64],
    failed: &mut FailedRows,
) -> Result<BooleanArray> {
    let evaluate = |rows: &RecordBatch| {
        let array = residual.evaluate(rows).map_err(|error| error.context(residual.describe()))?;
        Ok(vec![array])
    };
    let Some(evaluated) = evaluate_rows(batch, weights, failed, evaluate)? else {
        return Ok(BooleanArray::from(vec![false; batch.num_rows()]));
    };
    let kept = evaluated.kept.as_ref();
    let n_kept = kept.map_or(batch.num_rows(), BooleanArray::true_count);
    let mask = evaluated.columns.first().and_then(|array| array.as_any().downcast_ref::<BooleanArray>());
    let mask = mask.filter(|mask| mask.len() == n_kept).cloned();
    let mask = mask.ok_or_else(|| Error::invalid(format!("{} is no predicate", residual.describe())))?;
    let mask = without_null(mask);
    Ok(match kept {
        None => mask,
        Some(kept) => scatter(kept, &mask),
    })
}

fn without_null(mask: BooleanArray) -> BooleanArray {
    if mask.null_count() > 0 { prep_null_mask_filter(&mask) } else { mask }
}

/// Values of the chosen rows where those are, and false elsewhere.
fn scatter(chosen: &BooleanArray, values: &BooleanArray) -> BooleanArray {
    let mut values = values.values().iter();
    let all = chosen.values().iter().map(|is_chosen| is_chosen && values.next().unwrap_or_default());
    BooleanArray::from(all.collect::<Vec<bool>>())
}

/// Pairs of encoded rows, on their way to become a batch.
#[derive(Default)]
pub(super) struct Pairs<'a> {
    left: Vec<&'a [u8]>,
    right: Vec<&'a [u8]>,
    key_bytes: Vec<usize>,
    weights: Vec<i64>,
    /// What the pair belongs to, where pairs are counted.
    tags: Vec<usize>,
}

impl<'a> Pairs<'a> {
    pub(super) fn push(
        &mut self,
        left: &'a [u8],
        right: &'a [u8],
        key_bytes: usize,
        weight: i64,
        tag: usize,
    ) {
        self.left.push(left);
        self.right.push(right);
        self.key_bytes.push(key_bytes);
        self.weights.push(weight);
        self.tags.push(tag);
    }

    pub(super) fn is_full(&self) -> bool {
        self.left.len() >= BATCH_ROWS
    }

    /// The pairs that fulfil the condition, with their tags; none are left. Those for which it fails are
    /// reported.
    pub(super) fn take(&mut self, shape: &Shape, failed: &mut FailedRows) -> Result<(Delta, Vec<usize>)> {
        let mut columns = decode_rows(&shape.left_layout, std::mem::take(&mut self.left))?;
        let right = decode_right(shape, std::mem::take(&mut self.right), &self.key_bytes, &columns)?;
        columns.extend(right);
        self.key_bytes.clear();
        let (weights, tags) = (std::mem::take(&mut self.weights), std::mem::take(&mut self.tags));
        let options = RecordBatchOptions::new().with_row_count(Some(weights.len()));
        let Some(condition) = &shape.condition else {
            return Ok((delta_of(&shape.joined, columns, weights)?, tags));
        };
        let batch = RecordBatch::try_new_with_options(Arc::clone(&shape.joined), columns, &options)?;
        let mask = condition.holds(&batch, &weights, failed)?;
        let tags = tags.into_iter().zip(mask.values().iter()).filter(|(_, holds)| *holds);
        let tags = tags.map(|(tag, _)| tag).collect();
        Ok((Delta::new(batch, weights.into()).filter(&mask)?, tags))
    }
}

/// The right columns; those of the key are the left ones, since their bytes are equal.
fn decode_right(
    shape: &Shape,
    mut rows: Vec<&[u8]>,
    key_bytes: &[usize],
    left: &[ArrayRef],
) -> Result<Vec<ArrayRef>> {
    let layout = &shape.right_layout;
    for (row, n_bytes) in rows.iter_mut().zip(key_bytes) {
        *row = row.get(*n_bytes..).ok_or_else(|| Error::corrupt("encoded row: too short"))?;
    }
    let mut columns: Vec<Option<ArrayRef>> = vec![None; shape.joined.fields().len() - left.len()];
    for (left_key, right_key) in shape.left_keys.iter().zip(&shape.right_keys) {
        columns[*right_key] = Some(Arc::clone(&left[*left_key]));
    }
    let rest = layout.rest_codec().decode(&mut rows)?;
    for (column, array) in layout.columns[layout.n_key..].iter().zip(rest) {
        columns[*column] = Some(array);
    }
    columns.into_iter().map(|column| column.ok_or_else(|| Error::invalid("a join lacks a column"))).collect()
}

/// Which input of the join a delta comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

impl Work<'_> {
    /// Puts out dL with R before the epoch, and L after it with dR.
    pub(super) fn put_out_pairs(&self, found: &mut Found) -> Result<()> {
        let right_runs = runs_beside(self.right_state, self.left_delta, &self.left_range)?;
        self.put_out_side(Side::Left, &right_runs, found)?;
        let mut left_runs = runs_beside(self.left_state, self.right_delta, &self.right_range)?;
        left_runs.push(self.left_delta);
        self.put_out_side(Side::Right, &left_runs, found)
    }

    fn put_out_side(&self, side: Side, others: &[&Run], found: &mut Found) -> Result<()> {
        let (delta, layout, range) = match side {
            Side::Left => (self.left_delta, &self.shape.left_layout, &self.left_range),
            Side::Right => (self.right_delta, &self.shape.right_layout, &self.right_range),
        };
        if others.iter().all(|run| run.n_rows() == 0) {
            return Ok(());
        }
        let keys = key_ranges(delta, layout, range.clone())?;
        let mut pairs = Pairs::default();
        for other in others {
            for (key, own) in &keys {
                let matches = other.prefix_range(key);
                for index in matches {
                    let (other_row, other_weight) = (other.key(index), other.weight(index));
                    for own_index in own.clone() {
                        let weight = multiply(other_weight, delta.weight(own_index))?;
                        let own_row = delta.key(own_index);
                        match side {
                            Side::Left => pairs.push(own_row, other_row, key.len(), weight, 0),
                            Side::Right => pairs.push(other_row, own_row, key.len(), weight, 0),
                        }
                        if pairs.is_full() {
                            self.put_out(&mut pairs, found)?;
                        }
                    }
                }
            }
        }
        self.put_out(&mut pairs, found)
    }

    fn put_out(&self, pairs: &mut Pairs<'_>, found: &mut Found) -> Result<()> {
        let (delta, _) = pairs.take(self.shape, &mut found.failed)?;
        if !delta.is_empty() {
            let columns = delta.batch().columns().to_vec();
            found.deltas.push(with_schema(&delta, &self.shape.output, columns)?);
        }
        Ok(())
    }
}

/// The runs of a state that a part of a delta may match.
pub(super) fn runs_beside<'a>(state: &'a State, delta: &Run, range: &Range<usize>) -> Result<Vec<&'a Run>> {
    if range.is_empty() {
        return Ok(Vec::new());
    }
    state.runs(hash_of(delta.key(range.start))..=hash_of(delta.key(range.end - 1)))
}

pub(super) fn multiply(left: i64, right: i64) -> Result<i64> {
    left.checked_mul(right).ok_or_else(|| Error::corrupt("weight overflow"))
}

/// Rows of the left input, on their way out.
pub(super) struct LeftRows<'a> {
    rows: Vec<&'a [u8]>,
    weights: Vec<i64>,
}

impl<'a> LeftRows<'a> {
    pub(super) fn new() -> LeftRows<'a> {
        LeftRows { rows: Vec::new(), weights: Vec::new() }
    }

    pub(super) fn push(
        &mut self,
        row: &'a [u8],
        weight: i64,
        shape: &Shape,
        found: &mut Found,
    ) -> Result<()> {
        self.rows.push(row);
        self.weights.push(weight);
        if self.rows.len() >= BATCH_ROWS { self.put_out(shape, found) } else { Ok(()) }
    }

    pub(super) fn put_out(&mut self, shape: &Shape, found: &mut Found) -> Result<()> {
        if !self.rows.is_empty() {
            let (rows, weights) = (std::mem::take(&mut self.rows), std::mem::take(&mut self.weights));
            found.deltas.push(shape.left_rows(rows, weights)?);
        }
        Ok(())
    }
}

impl Layout {
    /// The codec of the columns after the key.
    fn rest_codec(&self) -> crate::encoding::RowCodec {
        self.codec.suffix(self.n_key)
    }
}
