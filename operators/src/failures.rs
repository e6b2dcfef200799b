//! Rows that an operator cannot evaluate: they count only if they are still there when the epoch ends.
//!
//! Deltas hold rows that are in no snapshot: pairs of a join whose two sides both change, rows that come
//! and go within an epoch, groups and subqueries halfway through a fill. An operator that fails for a row
//! leaves it out of its output and reports it with its weight; when the row is taken back, it fails again
//! and is reported with the opposite weight. What is left at the end of an epoch is a row that is there,
//! and that the query itself fails for: only that is a fault of the view. Until then the weights are a
//! state like any other, so an epoch may end in several parts, and a fill in several epochs.

use std::collections::BTreeMap;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use arrow::compute::concat;
use types::{Delta, Error, ErrorKind, Result};
use xxhash_rust::xxh3::xxh3_128;

use crate::arrange::column_texts;
use crate::encoding::{EncodedRows, HASH_BYTES, keyed};
use crate::plan::Plan;
use crate::run::{add_weights, consolidate_rows};
use crate::state::State;

/// Rows that one operator could not evaluate, each with its error and its weight.
#[derive(Debug, Default)]
pub(crate) struct FailedRows {
    rows: Vec<FailedRow>,
}

#[derive(Debug)]
struct FailedRow {
    error: Error,
    /// Tells rows with the same error apart.
    row: u128,
    weight: i64,
}

impl FailedRows {
    /// Reports a row, by bytes that tell it from others.
    ///
    /// # Errors
    /// The error itself, if it is not one of the row's data.
    pub(crate) fn add(&mut self, error: Error, row: &[u8], weight: i64) -> Result<()> {
        if error.kind() != ErrorKind::Invalid {
            return Err(error);
        }
        self.rows.push(FailedRow { error, row: xxh3_128(row), weight });
        Ok(())
    }

    /// The same rows, taken back.
    ///
    /// # Errors
    /// `Corrupt` if a weight overflows.
    pub(crate) fn negate(mut self) -> Result<FailedRows> {
        for row in &mut self.rows {
            row.weight = row.weight.checked_neg().ok_or_else(|| Error::corrupt("weight overflow"))?;
        }
        Ok(self)
    }

    /// Takes in what another part of the operator reports.
    pub(crate) fn extend(&mut self, other: FailedRows) {
        self.rows.extend(other.rows);
    }
}

/// What an evaluation yields.
pub(crate) struct Evaluated {
    /// The columns, of the rows that could be evaluated.
    pub(crate) columns: Vec<ArrayRef>,
    /// Which rows those are; none if all are.
    pub(crate) kept: Option<BooleanArray>,
}

impl Evaluated {
    /// The rows of a delta that could be evaluated.
    pub(crate) fn kept_of(&self, delta: &Delta) -> Result<Delta> {
        self.kept.as_ref().map_or_else(|| Ok(delta.clone()), |kept| delta.filter(kept))
    }
}

/// Evaluates a batch whose rows have the given weights. Rows that fail are reported and left out; the
/// result is none if no row is left.
///
/// # Errors
/// What is not an error of a row's data.
pub(crate) fn evaluate_rows(
    batch: &RecordBatch,
    weights: &[i64],
    failed: &mut FailedRows,
    evaluate: impl Fn(&RecordBatch) -> Result<Vec<ArrayRef>>,
) -> Result<Option<Evaluated>> {
    match evaluate(batch) {
        Err(error) if error.kind() == ErrorKind::Invalid => evaluate_apart(batch, weights, failed, &evaluate),
        columns => Ok(Some(Evaluated { columns: columns?, kept: None })),
    }
}

/// Evaluates halves of halves of a batch, down to the rows that fail.
fn evaluate_apart(
    batch: &RecordBatch,
    weights: &[i64],
    failed: &mut FailedRows,
    evaluate: &dyn Fn(&RecordBatch) -> Result<Vec<ArrayRef>>,
) -> Result<Option<Evaluated>> {
    let mut kept = vec![true; weights.len()];
    let mut parts: Vec<Vec<ArrayRef>> = Vec::new();
    let mut ranges = vec![(0, weights.len())];
    while let Some((start, n_rows)) = ranges.pop() {
        let rows = batch.slice(start, n_rows);
        match (evaluate(&rows), n_rows) {
            (_, 0) => {}
            (Ok(columns), _) => parts.push(columns),
            (Err(error), 1) => {
                let row = format!("{:?}", column_texts(rows.columns()));
                failed.add(error, row.as_bytes(), weights[start])?;
                kept[start] = false;
            }
            (Err(error), _) if error.kind() != ErrorKind::Invalid => return Err(error),
            (Err(_), _) => {
                let half = n_rows / 2;
                ranges.push((start + half, n_rows - half));
                ranges.push((start, half));
            }
        }
    }
    let Some(first) = parts.first() else {
        return Ok(None);
    };
    let column = |index: usize| {
        let arrays: Vec<_> = parts.iter().map(|columns| columns[index].as_ref()).collect();
        concat(&arrays)
    };
    let columns = (0..first.len()).map(column).collect::<std::result::Result<Vec<_>, _>>()?;
    Ok(Some(Evaluated { columns, kept: Some(BooleanArray::from(kept)) }))
}

/// All that operators of a dataflow could not evaluate and that is still there.
#[derive(Debug)]
pub(crate) struct Failures {
    /// Reported since the last barrier; none has the weight 0.
    reported: BTreeMap<Vec<u8>, i64>,
    /// As of the last barrier. Empty at the end of an epoch.
    state: State,
}

impl Failures {
    pub(crate) fn new(state: State) -> Failures {
        Failures { reported: BTreeMap::new(), state }
    }

    /// Takes in what an operator reports.
    pub(crate) fn report(&mut self, plan: &Plan, node: usize, failed: FailedRows) -> Result<()> {
        for FailedRow { error, row, weight } in failed.rows {
            let error = error.context(plan.node_text(node));
            let entry = self.reported.entry(encode(node, row, &error)).or_default();
            *entry = add_weights(*entry, weight)?;
        }
        Ok(())
    }

    /// Whether some row was left out up to the last barrier.
    pub(crate) fn any_before(&self) -> bool {
        self.state.n_rows() > 0
    }

    /// Ends a part of an epoch: what failed may still go away, except in operators that say otherwise.
    ///
    /// # Errors
    /// The error of a row that cannot go away.
    pub(crate) fn keep(&mut self, is_final: impl Fn(usize) -> bool) -> Result<()> {
        self.reported.retain(|_, weight| *weight != 0);
        for entry in self.reported.keys() {
            let (node, error) = decode(entry)?;
            if is_final(node) {
                return Err(error);
            }
        }
        self.append()
    }

    /// Ends an epoch: nothing may be left.
    ///
    /// # Errors
    /// The error of a row that is there.
    pub(crate) fn settle(&mut self) -> Result<()> {
        self.reported.retain(|_, weight| *weight != 0);
        if self.reported.is_empty() && !self.any_before() {
            return Ok(());
        }
        self.append()?;
        if let Some((entry, _)) = self.state.scan_all()?.next_weight()? {
            return Err(decode(entry)?.1);
        }
        self.state.clear();
        Ok(())
    }

    fn append(&mut self) -> Result<()> {
        let mut rows = EncodedRows::with_capacity(self.reported.len());
        let mut weights = Vec::with_capacity(self.reported.len());
        for (entry, weight) in std::mem::take(&mut self.reported) {
            rows.push(&entry, &[]);
            weights.push(weight);
        }
        self.state.append(consolidate_rows(&rows, &weights)?)
    }

    /// Whether nothing was reported since the last barrier.
    pub(crate) fn is_idle(&self) -> bool {
        self.reported.is_empty()
    }

    /// Bytes of what was reported since the last barrier.
    pub(crate) fn pending_bytes(&self) -> u64 {
        self.reported.keys().map(|entry| entry.len() as u64).sum()
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    pub(crate) fn state_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

/// Operator, row, MySQL's number or 0, message.
fn encode(node: usize, row: u128, error: &Error) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(22 + error.message().len());
    bytes.extend_from_slice(&(node as u32).to_be_bytes());
    bytes.extend_from_slice(&row.to_be_bytes());
    bytes.extend_from_slice(&error.mysql_code().unwrap_or(0).to_be_bytes());
    bytes.extend_from_slice(error.message().as_bytes());
    keyed(&bytes)
}

fn decode(entry: &[u8]) -> Result<(usize, Error)> {
    let broken = || Error::corrupt("the entry of a failed row is too short");
    let entry = entry.get(HASH_BYTES..).ok_or_else(broken)?;
    let (node, rest) = entry.split_first_chunk::<4>().ok_or_else(broken)?;
    let (_row, rest) = rest.split_first_chunk::<16>().ok_or_else(broken)?;
    let (code, message) = rest.split_first_chunk::<2>().ok_or_else(broken)?;
    let error = Error::invalid(String::from_utf8_lossy(message));
    let error = match u16::from_be_bytes(*code) {
        0 => error,
        code => error.with_mysql_code(code),
    };
    Ok((u32::from_be_bytes(*node) as usize, error))
}
