//! Each row once: a row appears when its weight leaves zero, and goes when it is back.

use arrow::datatypes::SchemaRef;
use types::{Delta, Result};

use crate::arrange::{Arrangement, Layout, by_shards, check_deletions, decode_rows, delta_of, part_of};
use crate::failures::FailedRows;
use crate::operator::{Context, Output, Stateful};
use crate::run::Run;
use crate::state::State;

#[derive(Debug)]
pub(crate) struct Distinct {
    schema: SchemaRef,
    input: Arrangement,
    state: State,
}

impl Distinct {
    pub(crate) fn new(input: &SchemaRef, schema: &SchemaRef, state: State) -> Result<Distinct> {
        let all: Vec<usize> = (0..input.fields().len()).collect();
        let layout = Layout::new(input, all.clone(), all.len())?;
        Ok(Distinct { schema: SchemaRef::clone(schema), input: Arrangement::new(layout), state })
    }
}

impl Stateful for Distinct {
    fn push(&mut self, _input: usize, delta: Delta) -> Result<()> {
        self.input.push(delta)
    }

    fn barrier(
        &mut self,
        context: &Context,
        output: &mut Output<'_>,
        _failed: &mut FailedRows,
    ) -> Result<()> {
        let delta = self.input.take()?;
        let (layout, state) = (self.input.layout(), &self.state);
        check_deletions(state, &delta, layout)?;
        let work = |hashes| {
            let (rows, weights) = crossings(state, &delta, part_of(&delta, &hashes))?;
            delta_of(&self.schema, decode_rows(layout, rows)?, weights)
        };
        by_shards(delta.n_rows(), context.parallelism, work, output)?;
        self.state.append(delta)
    }

    fn states(&self) -> Vec<&State> {
        vec![&self.state]
    }

    fn states_mut(&mut self) -> Vec<&mut State> {
        vec![&mut self.state]
    }

    fn is_idle(&self) -> bool {
        self.input.is_empty()
    }

    fn pending_bytes(&self) -> u64 {
        self.input.n_bytes()
    }
}

/// Rows of a delta that appear (+1) or go (-1), given the state before it.
pub(crate) fn crossings<'a>(
    state: &State,
    delta: &'a Run,
    range: std::ops::Range<usize>,
) -> Result<(Vec<&'a [u8]>, Vec<i64>)> {
    let rows: Vec<&[u8]> = range.clone().map(|index| delta.key(index)).collect();
    let before = state.weights_sorted(&rows)?;
    let mut changed = Vec::new();
    let mut weights = Vec::new();
    for ((row, before), index) in rows.into_iter().zip(before).zip(range) {
        let after = crate::run::add_weights(before, delta.weight(index))?;
        if (before > 0) != (after > 0) {
            changed.push(row);
            weights.push(if after > 0 { 1 } else { -1 });
        }
    }
    Ok((changed, weights))
}
