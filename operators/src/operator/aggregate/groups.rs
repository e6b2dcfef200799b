//! The groups that an epoch touches: as they were, as they become, and what that puts out.
//!
//! The stored value of a group is its number of rows, then for each call the state of its accumulator,
//! or the present value of a MIN or MAX (its length and one, then its bytes; 0 if there is none), or the
//! registers of a sketch by their greatest rank.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, UInt32Array, new_null_array};
use arrow::compute::{concat, take};
use types::{Delta, Error, ErrorKind, Result};

use super::{Call, Collected, Shape, filter_of, pick};
use crate::accumulate::sketch::{Cell, Ranks};
use crate::accumulate::wire::{
    read_bytes, read_i64, read_unsigned, write_bytes, write_signed, write_unsigned,
};
use crate::accumulate::{Linear, decode_optional, effective_weights};
use crate::arrange::delta_of;
use crate::encoding::HASH_BYTES;
use crate::failures::FailedRows;
use crate::merge::{Merge, MergeBack, Merged};
use crate::operator::distinct::crossings;
use crate::plan::AggregateFunction;
use crate::run::{Run, RunBuilder, StateKind, add_weights, hash_of};
use crate::state::State;

/// The groups that an epoch touches, in order.
pub(super) struct Groups<'a> {
    keys: Vec<&'a [u8]>,
    /// The stored values before the epoch.
    before: Vec<Option<&'a [u8]>>,
    /// The columns of the calls before the epoch.
    columns_before: Columns,
    rows: Vec<i64>,
    calls: Vec<Values>,
}

/// The column of each call.
#[derive(Default)]
struct Columns {
    arrays: Vec<ArrayRef>,
    /// Groups with a result that is out of range, each with the error; they have no row.
    failed: BTreeMap<u32, Error>,
}

/// The state of one call in each group.
enum Values {
    Linear(Linear),
    Extremes(Vec<Option<Vec<u8>>>),
    Sketches(Vec<Ranks>),
}

impl<'a> Groups<'a> {
    /// Loads groups, which come in order.
    pub(super) fn load(shape: &Shape, state: &'a State, keys: Vec<&'a [u8]>) -> Result<Groups<'a>> {
        let before = state.get_sorted(&keys)?;
        let mut calls = Vec::with_capacity(shape.calls.len());
        for call in &shape.calls {
            calls.push(match call.function {
                AggregateFunction::Min | AggregateFunction::Max => Values::Extremes(vec![None; keys.len()]),
                AggregateFunction::ApproxCountDistinct => {
                    Values::Sketches(vec![Ranks::default(); keys.len()])
                }
                AggregateFunction::Count | AggregateFunction::Sum | AggregateFunction::Avg => {
                    let mut linear = Linear::new(call.function, &call.argument_types)?;
                    linear.grow(keys.len());
                    Values::Linear(linear)
                }
            });
        }
        let mut rows = vec![0; keys.len()];
        for (group, stored) in before.iter().enumerate() {
            let Some(mut bytes) = *stored else { continue };
            rows[group] = read_i64(&mut bytes)?;
            for values in &mut calls {
                match values {
                    Values::Linear(linear) => linear.merge(group, &mut bytes)?,
                    Values::Extremes(extremes) => {
                        if read_unsigned(&mut bytes)? == 1 {
                            extremes[group] = Some(read_bytes(&mut bytes)?.to_vec());
                        }
                    }
                    Values::Sketches(sketches) => sketches[group] = Ranks::read(&mut bytes)?,
                }
            }
            if !bytes.is_empty() {
                return Err(Error::corrupt("the stored state of a group has another layout"));
            }
        }
        let mut groups = Groups { keys, before, columns_before: Columns::default(), rows, calls };
        groups.columns_before = groups.columns(shape)?;
        Ok(groups)
    }

    pub(super) fn key(&self, slot: u32) -> &'a [u8] {
        self.keys[slot as usize]
    }

    fn columns(&self, shape: &Shape) -> Result<Columns> {
        let mut columns = Columns::default();
        for (values, call) in self.calls.iter().zip(&shape.calls) {
            let array = match values {
                Values::Linear(linear) => match linear.evaluate(0..self.keys.len()) {
                    Err(error) if error.kind() == ErrorKind::Invalid => {
                        self.evaluate_apart(linear, &mut columns.failed)
                    }
                    array => array,
                },
                Values::Extremes(extremes) => {
                    let codec = &shape.collections[collection_of(call)?].codec;
                    decode_optional(codec, extremes.iter().map(Option::as_deref).collect())
                }
                Values::Sketches(sketches) => {
                    let estimates = sketches.iter().map(Ranks::estimate);
                    Ok(Arc::new(Int64Array::from_iter_values(estimates)) as ArrayRef)
                }
            };
            columns.arrays.push(array?);
        }
        Ok(columns)
    }

    /// Evaluates a call group by group; where it fails, it is NULL.
    fn evaluate_apart(&self, linear: &Linear, failed: &mut BTreeMap<u32, Error>) -> Result<ArrayRef> {
        let mut arrays = Vec::with_capacity(self.keys.len());
        for group in 0..self.keys.len() {
            arrays.push(match linear.evaluate(group..group + 1) {
                Err(error) if error.kind() == ErrorKind::Invalid => {
                    failed.entry(group as u32).or_insert(error);
                    new_null_array(linear.output_type(), 1)
                }
                array => array?,
            });
        }
        let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
        Ok(concat(&arrays)?)
    }

    /// Takes in decoded rows of the delta: the number of rows, and the linear calls.
    pub(super) fn update(
        &mut self,
        shape: &Shape,
        columns: &[ArrayRef],
        weights: &[i64],
        slots: &[u32],
    ) -> Result<()> {
        for (weight, slot) in weights.iter().zip(slots) {
            let rows = &mut self.rows[*slot as usize];
            *rows = add_weights(*rows, *weight)?;
        }
        for (values, call) in self.calls.iter_mut().zip(&shape.calls) {
            if let (Values::Linear(linear), None) = (values, call.collection) {
                let arguments = pick(columns, &call.arguments);
                let filter = filter_of(columns, call.filter);
                let effective = effective_weights(&arguments, Some(weights), slots.len(), filter);
                linear.update(&arguments, &effective, slots)?;
            }
        }
        Ok(())
    }

    /// Takes in the change of a multiset: the calls that need it.
    pub(super) fn take_collection(
        &mut self,
        shape: &Shape,
        index: usize,
        state: &State,
        change: &Run,
    ) -> Result<()> {
        let collection = &shape.collections[index];
        self.check_taken(shape, index, state, change)?;
        if collection.of == Collected::Distinct {
            let (rows, weights) = crossings(state, change, 0..change.n_rows())?;
            let slots = self.slots_of(rows.iter().copied());
            let values = rows.iter().zip(&slots).map(|(row, slot)| &row[self.keys[*slot as usize].len()..]);
            let arguments = collection.codec.decode(values.collect())?;
            for (values, call) in self.calls.iter_mut().zip(&shape.calls) {
                if let (Values::Linear(linear), true) = (values, call.collection == Some(index)) {
                    linear.update(&arguments, &weights, &slots)?;
                }
            }
            return Ok(());
        }
        let slots = self.slots_of((0..change.n_rows()).map(|entry| change.key(entry)));
        for call_index in 0..shape.calls.len() {
            if shape.calls[call_index].collection == Some(index) {
                match collection.of {
                    Collected::Cells => self.update_sketches(call_index, state, change, &slots)?,
                    _ => self.update_extremes(shape, call_index, state, change, &slots)?,
                }
            }
        }
        Ok(())
    }

    /// Refuses a change that takes away values that were not there.
    fn check_taken(&self, shape: &Shape, index: usize, state: &State, change: &Run) -> Result<()> {
        let negative: Vec<usize> = (0..change.n_rows()).filter(|entry| change.weight(*entry) < 0).collect();
        let rows: Vec<&[u8]> = negative.iter().map(|entry| change.key(*entry)).collect();
        for ((entry, row), weight) in negative.iter().zip(&rows).zip(state.weights_sorted(&rows)?) {
            if add_weights(weight, change.weight(*entry))? < 0 {
                let slot = self.slots_of([*row].into_iter())[0];
                let key = self.keys[slot as usize];
                let value = match shape.collections[index].of {
                    Collected::Cells => "one of a sketch".to_owned(),
                    _ => shape.collections[index].codec.text(&row[key.len()..]),
                };
                return Err(Error::corrupt(format!(
                    "a value that is not there is taken away: {value} in group {}",
                    shape.group_text(key)
                )));
            }
        }
        Ok(())
    }

    /// The group of each row of a multiset; rows come in order.
    fn slots_of<'b>(&self, rows: impl Iterator<Item = &'b [u8]>) -> Vec<u32> {
        let mut slot = 0;
        let slots = rows.map(|row| {
            while !row.starts_with(self.keys[slot]) {
                slot += 1;
            }
            slot as u32
        });
        slots.collect()
    }

    fn update_extremes(
        &mut self,
        shape: &Shape,
        call_index: usize,
        state: &State,
        change: &Run,
        slots: &[u32],
    ) -> Result<()> {
        let call = &shape.calls[call_index];
        let codec = &shape.collections[collection_of(call)?].codec;
        let Values::Extremes(extremes) = &mut self.calls[call_index] else {
            return Err(Error::invalid("a minimum without its values"));
        };
        let mut is_lost = vec![false; extremes.len()];
        for (entry, slot) in slots.iter().enumerate() {
            let group = *slot as usize;
            let value = &change.key(entry)[self.keys[group].len()..];
            let best = &mut extremes[group];
            if change.weight(entry) > 0 {
                if best.as_ref().is_none_or(|best| codec.is_better(call.function, value, best)) {
                    *best = Some(value.to_vec());
                }
            } else if best.as_ref().is_none_or(|best| !codec.is_better(call.function, best, value)) {
                // What went is as good as the best or better: only all values can tell the next one.
                is_lost[group] = true;
            }
        }
        for group in (0..extremes.len()).filter(|group| is_lost[*group]) {
            extremes[group] = find_extreme(call.function, codec, state, change, self.keys[group])?;
        }
        Ok(())
    }

    /// Registers whose greatest rank may be another one: before and after the change.
    fn update_sketches(
        &mut self,
        call_index: usize,
        state: &State,
        change: &Run,
        slots: &[u32],
    ) -> Result<()> {
        let Values::Sketches(sketches) = &mut self.calls[call_index] else {
            return Err(Error::invalid("a sketch without its cells"));
        };
        let mut entry = 0;
        while entry < slots.len() {
            let (row, group) = (change.key(entry), slots[entry] as usize);
            // All cells of the register, which stand together.
            let register = &row[..row.len() - 1];
            let range = change.prefix_range(register);
            let hash = hash_of(row);
            let before: Vec<_> =
                state.runs(hash..=hash)?.into_iter().map(|run| (run, run.prefix_range(register))).collect();
            let after = before.iter().cloned().chain([(change, range.clone())]).collect();
            let rank = |parts| greatest_rank(parts, self.keys[group].len());
            sketches[group].change(rank(before)?, rank(after)?)?;
            entry = range.end;
        }
        Ok(())
    }

    /// The output of the epoch and the change of the groups' state.
    pub(super) fn finish(&mut self, shape: &Shape, failed: &mut FailedRows) -> Result<(Vec<Delta>, Run)> {
        self.check_counts(shape)?;
        let columns_after = self.columns(shape)?;
        let mut learnt = RunBuilder::new(StateKind::Map);
        let (mut gone, mut come): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
        let mut value = Vec::new();
        let is_global = shape.n_group == 0;
        for (group, key) in self.keys.iter().enumerate() {
            let is_there = is_global || self.rows[group] > 0;
            if self.rows[group] == 0 {
                self.check_empty(shape, group)?;
            }
            value.clear();
            self.write(group, &mut value);
            let before = self.before[group];
            match (before, is_there) {
                (None, false) => continue,
                (Some(before), true) if before == value => continue,
                _ => {}
            }
            if before.is_some() {
                gone.push(group as u32);
            }
            if is_there {
                come.push(group as u32);
            }
            learnt.push_value(key, is_there.then_some(&value));
        }
        let mut deltas = Vec::new();
        for (mut groups, columns, weight) in [(gone, &self.columns_before, -1), (come, &columns_after, 1)] {
            for group in &groups {
                if let Some(error) = columns.failed.get(group) {
                    failed.add(error.clone(), self.key(*group), weight)?;
                }
            }
            groups.retain(|group| !columns.failed.contains_key(group));
            if !groups.is_empty() {
                deltas.push(self.output(shape, groups, &columns.arrays, weight)?);
            }
        }
        Ok((deltas, learnt.finish()))
    }

    fn write(&self, group: usize, bytes: &mut Vec<u8>) {
        write_signed(i128::from(self.rows[group]), bytes);
        for values in &self.calls {
            match values {
                Values::Linear(linear) => linear.write(group, bytes),
                Values::Extremes(extremes) => match &extremes[group] {
                    None => write_unsigned(0, bytes),
                    Some(extreme) => {
                        write_unsigned(1, bytes);
                        write_bytes(extreme, bytes);
                    }
                },
                Values::Sketches(sketches) => sketches[group].write(bytes),
            }
        }
    }

    /// No group has less than no rows, or less than no values of a call.
    fn check_counts(&self, shape: &Shape) -> Result<()> {
        for (group, rows) in self.rows.iter().enumerate() {
            let counts = self.calls.iter().map(|values| match values {
                Values::Linear(linear) => linear.count(group),
                Values::Extremes(_) | Values::Sketches(_) => 0,
            });
            let least = counts.fold(*rows, i64::min);
            if least < 0 {
                return Err(Error::corrupt(format!(
                    "more rows were taken away than there were: {least} are left in group {}",
                    shape.group_text(self.keys[group])
                )));
            }
        }
        Ok(())
    }

    /// A group without rows holds nothing, or its input deleted something else than it had inserted.
    fn check_empty(&self, shape: &Shape, group: usize) -> Result<()> {
        let is_empty = self.calls.iter().all(|values| match values {
            Values::Linear(linear) => linear.is_zero(group),
            Values::Extremes(extremes) => extremes[group].is_none(),
            Values::Sketches(sketches) => sketches[group].is_empty(),
        });
        if is_empty {
            return Ok(());
        }
        let group = shape.group_text(self.keys[group]);
        Err(Error::corrupt(format!("rows were taken away with other values than they had, in group {group}")))
    }

    fn output(&self, shape: &Shape, groups: Vec<u32>, columns: &[ArrayRef], weight: i64) -> Result<Delta> {
        let mut keys: Vec<&[u8]> =
            groups.iter().map(|group| &self.keys[*group as usize][HASH_BYTES..]).collect();
        let mut output = shape.layout.key_codec().decode(&mut keys)?;
        let n_rows = groups.len();
        let indices = UInt32Array::from(groups);
        for column in columns {
            output.push(if n_rows == column.len() {
                ArrayRef::clone(column)
            } else {
                take(column, &indices, None)?
            });
        }
        delta_of(&shape.output, output, vec![weight; n_rows])
    }
}

fn collection_of(call: &Call) -> Result<usize> {
    call.collection.ok_or_else(|| Error::invalid("a minimum without its values"))
}

/// The greatest rank in parts of runs that hold the cells of one register; 0 if there are none.
fn greatest_rank(parts: Vec<(&Run, std::ops::Range<usize>)>, key_bytes: usize) -> Result<u8> {
    match MergeBack::new(parts).next_weight()? {
        Some((row, _)) => Ok(Cell::decode(&row[key_bytes..])?.rank),
        None => Ok(0),
    }
}

/// Looks for the MIN or MAX of a group among all its values, the change included.
fn find_extreme(
    function: AggregateFunction,
    codec: &crate::accumulate::ValueCodec,
    state: &State,
    change: &Run,
    key: &[u8],
) -> Result<Option<Vec<u8>>> {
    let hash = hash_of(key);
    let runs = state.runs(hash..=hash)?;
    let parts = runs.into_iter().chain([change]).map(|run| (run, run.prefix_range(key)));
    if function == AggregateFunction::Min {
        let first = Merge::new(StateKind::Multiset, parts).next_entry()?;
        return Ok(match first {
            Some((row, Merged::Weight(_))) => Some(row[key.len()..].to_vec()),
            _ => None,
        });
    }
    let mut merge = MergeBack::new(parts.collect());
    let mut best: Option<&[u8]> = None;
    while let Some((row, _)) = merge.next_weight()? {
        let value = &row[key.len()..];
        if best.is_some_and(|best| codec.equal_part(best) != codec.equal_part(value)) {
            break;
        }
        best = Some(value);
    }
    Ok(best.map(<[u8]>::to_vec))
}
