//! Left rows by how many matches they have, where a match is a matter of a condition.
//!
//! A state counts the matches of each left row that is there. A row that appears is counted against the
//! whole right side, a row that stays against the change of the right side.

use std::ops::Range;

use types::{Error, Result};

use super::pairs::{LeftRows, Pairs, runs_beside};
use super::{Found, Work, key_ranges};
use crate::failures::FailedRows;
use crate::merge::{Merge, Merged};
use crate::plan::JoinKind;
use crate::run::{Run, RunBuilder, StateKind, add_weights};
use crate::state::State;

/// A left row whose weight or matches may have changed.
#[derive(Clone, Copy)]
struct Touched<'a> {
    row: &'a [u8],
    key_bytes: usize,
    weight_before: i64,
    weight_change: i64,
    /// Matches: all of them if the row is new, else their change.
    matches: i64,
}

impl Touched<'_> {
    fn weight_after(&self) -> Result<i64> {
        add_weights(self.weight_before, self.weight_change)
    }

    fn is_gone(&self) -> bool {
        self.weight_before != 0 && self.weight_before == -self.weight_change
    }
}

fn add_matches(touched: &mut [Touched<'_>], counted: Vec<i64>) -> Result<()> {
    for (touched, matches) in touched.iter_mut().zip(counted) {
        touched.matches = add_weights(touched.matches, matches)?;
    }
    Ok(())
}

impl<'a> Work<'a> {
    pub(super) fn put_out_counted(&self, counts: &State, found: &mut Found) -> Result<()> {
        let mut touched = self.touched_rows()?;
        self.count_new(&mut touched, found)?;
        self.count_changed(&mut touched, found)?;
        if self.any_failed {
            self.take_back_failed(&touched, found)?;
        }
        let rows: Vec<&[u8]> = touched.iter().map(|touched| touched.row).collect();
        let matches_before = counts.weights_sorted(&rows)?;
        let passes = |matches: i64| (matches > 0) == (self.shape.kind == JoinKind::LeftSemi);
        let mut learnt = RunBuilder::new(StateKind::Multiset);
        let mut left_rows = LeftRows::new();
        for (touched, matches_before) in touched.iter().zip(matches_before) {
            let weight_after = touched.weight_after()?;
            let change = if weight_after == 0 { -matches_before } else { touched.matches };
            let matches_after = add_weights(matches_before, change)?;
            if matches_before < 0 || matches_after < 0 {
                return Err(Error::corrupt(format!(
                    "a left row has {matches_after} matches: {}",
                    self.shape.left_layout.row_text(touched.row)
                )));
            }
            if change != 0 {
                learnt.push_weight(touched.row, change);
            }
            let before = if passes(matches_before) { touched.weight_before } else { 0 };
            let after = if passes(matches_after) { weight_after } else { 0 };
            if before != after {
                left_rows.push(touched.row, add_weights(after, -before)?, self.shape, found)?;
            }
        }
        left_rows.put_out(self.shape, found)?;
        found.counts = Some(learnt.finish());
        Ok(())
    }

    /// The left rows that changed, or whose key changed on the right, in order.
    fn touched_rows(&self) -> Result<Vec<Touched<'a>>> {
        let (state, shape) = (self.left_state, self.shape);
        let changed: Vec<&[u8]> = self.left_range.clone().map(|index| self.left_delta.key(index)).collect();
        let weights = state.weights_sorted(&changed)?;
        let mut touched = Vec::with_capacity(changed.len());
        for ((index, row), weight_before) in self.left_range.clone().zip(changed).zip(weights) {
            let key_bytes = shape.left_layout.key_of(row)?.len();
            let weight_change = self.left_delta.weight(index);
            touched.push(Touched { row, key_bytes, weight_before, weight_change, matches: 0 });
        }
        let n_changed = touched.len();
        let left_runs = runs_beside(state, self.right_delta, &self.right_range)?;
        for (key, _) in key_ranges(self.right_delta, &shape.right_layout, self.right_range.clone())? {
            let mut merge =
                Merge::new(StateKind::Multiset, left_runs.iter().map(|run| (*run, run.prefix_range(key))));
            while let Some((row, merged)) = merge.next_entry()? {
                let Merged::Weight(weight_before) = merged else { continue };
                let is_known = touched[..n_changed].binary_search_by(|touched| touched.row.cmp(row)).is_ok();
                if !is_known {
                    let key_bytes = key.len();
                    touched.push(Touched { row, key_bytes, weight_before, weight_change: 0, matches: 0 });
                }
            }
        }
        touched.sort_unstable_by_key(|touched| touched.row);
        Ok(touched)
    }

    /// Counts all matches of rows that appear.
    fn count_new(&self, touched: &mut [Touched<'a>], found: &mut Found) -> Result<()> {
        let mut right_runs = runs_beside(self.right_state, self.left_delta, &self.left_range)?;
        right_runs.push(self.right_delta);
        let parts: Vec<(&Run, Range<usize>)> =
            right_runs.into_iter().map(|run| (run, 0..run.n_rows())).collect();
        let counted = self.count(touched, &parts, |touched| touched.weight_before == 0, &mut found.failed)?;
        add_matches(touched, counted)
    }

    /// Counts the change in the matches of rows that stay.
    fn count_changed(&self, touched: &mut [Touched<'a>], found: &mut Found) -> Result<()> {
        let parts = [(self.right_delta, self.right_range.clone())];
        let stays = |touched: &Touched<'a>| touched.weight_before != 0 && !touched.is_gone();
        let counted = self.count(touched, &parts, stays, &mut found.failed)?;
        add_matches(touched, counted)
    }

    /// The pairs that the condition failed for go with their left row.
    fn take_back_failed(&self, touched: &[Touched<'a>], found: &mut Found) -> Result<()> {
        let right_runs = runs_beside(self.right_state, self.left_delta, &self.left_range)?;
        let parts: Vec<(&Run, Range<usize>)> =
            right_runs.into_iter().map(|run| (run, 0..run.n_rows())).collect();
        let mut failed = FailedRows::default();
        self.count(touched, &parts, Touched::is_gone, &mut failed)?;
        found.failed.extend(failed.negate()?);
        Ok(())
    }

    /// The matches of the rows that are asked for.
    fn count(
        &self,
        touched: &[Touched<'a>],
        right: &[(&'a Run, Range<usize>)],
        is_asked: impl Fn(&Touched<'a>) -> bool,
        failed: &mut FailedRows,
    ) -> Result<Vec<i64>> {
        let mut pairs = Pairs::default();
        let mut counted: Vec<i64> = vec![0; touched.len()];
        for (tag, one) in touched.iter().enumerate().filter(|(_, touched)| is_asked(touched)) {
            let key = &one.row[..one.key_bytes];
            for (run, range) in right {
                let matching = run.prefix_range(key);
                for index in matching.start.max(range.start)..matching.end.min(range.end) {
                    pairs.push(one.row, run.key(index), one.key_bytes, run.weight(index), tag);
                    if pairs.is_full() {
                        self.add_counts(&mut pairs, &mut counted, failed)?;
                    }
                }
            }
        }
        self.add_counts(&mut pairs, &mut counted, failed)?;
        Ok(counted)
    }

    fn add_counts(&self, pairs: &mut Pairs<'a>, counted: &mut [i64], failed: &mut FailedRows) -> Result<()> {
        let (delta, tags) = pairs.take(self.shape, failed)?;
        for (tag, weight) in tags.into_iter().zip(delta.weights().values()) {
            counted[tag] = add_weights(counted[tag], *weight)?;
        }
        Ok(())
    }
}
