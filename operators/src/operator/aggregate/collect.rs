//! The change of a multiset: for each group, the values (or their cells of a sketch) that came and went.

use arrow::array::ArrayRef;
use types::Result;

use super::groups::Groups;
use super::{Collected, ShapedCollection, filter_of, pick};
use crate::accumulate::effective_weights;
use crate::accumulate::sketch::Cell;
use crate::encoding::EncodedRows;
use crate::merge::{Deletions, merge_runs};
use crate::run::{Run, RunBuilder, StateKind, consolidate_rows};

/// Runs of the change so far, each of one batch.
#[derive(Default)]
pub(super) struct Collecting {
    runs: Vec<Run>,
}

impl Collecting {
    pub(super) fn add(
        &mut self,
        collection: &ShapedCollection,
        columns: &[ArrayRef],
        weights: &[i64],
        slots: &[u32],
        groups: &Groups<'_>,
    ) -> Result<()> {
        let arguments = pick(columns, &collection.arguments);
        let filter = filter_of(columns, collection.filter);
        let effective = effective_weights(&arguments, Some(weights), slots.len(), filter);
        let values = collection.codec.encode(&arguments, slots.len())?;
        let mut rows = EncodedRows::with_capacity(slots.len());
        let mut counted = Vec::with_capacity(slots.len());
        for ((value, weight), slot) in values.iter().zip(effective).zip(slots) {
            if weight == 0 {
                continue;
            }
            match collection.of {
                Collected::Cells => rows.push(groups.key(*slot), &Cell::of(value).encode()),
                Collected::Ordered | Collected::Distinct => rows.push(groups.key(*slot), value),
            }
            counted.push(weight);
        }
        self.runs.push(consolidate_rows(&rows, &counted)?);
        Ok(())
    }

    /// The whole change as one run.
    pub(super) fn finish(mut self) -> Result<Run> {
        if self.runs.len() == 1 {
            return Ok(self.runs.remove(0));
        }
        let runs: Vec<&Run> = self.runs.iter().collect();
        // It is no larger than the delta it comes from, which fits one run.
        let mut merged = merge_runs(StateKind::Multiset, &runs, Deletions::Keep, usize::MAX)?;
        Ok(merged.pop().unwrap_or_else(|| RunBuilder::new(StateKind::Multiset).finish()))
    }
}
