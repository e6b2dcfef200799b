//! Groups and their aggregates.
//!
//! A state maps each group to its number of rows and the state of each call. COUNT, SUM and AVG add up.
//! MIN and MAX keep their value there too, and an ordered multiset of all values beside it, which is
//! asked only when the value itself may have gone; DISTINCT keeps such a multiset to know when a value
//! first comes and last goes. APPROX_COUNT_DISTINCT keeps how many registers have each greatest rank, and
//! beside it a multiset of ranks. Calls over the same values share a multiset. Groups speak once an epoch,
//! at the barrier, and only if their state changed.

mod collect;
mod groups;

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray};
use arrow::datatypes::{DataType, SchemaRef};
use types::{Delta, Error, Result};

use crate::accumulate::sketch::REGISTERS;
use crate::accumulate::{ValueCodec, call_output_type};
use crate::arrange::{Arrangement, Layout, by_shards, part_of};
use crate::encoding::{HASH_BYTES, keyed};
use crate::failures::FailedRows;
use crate::operator::{Context, Output, Stateful};
use crate::plan::{AggregateCall, AggregateFunction, Node, Operator};
use crate::run::Run;
use crate::state::State;
use groups::Groups;

/// A multiset that some calls need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Collection {
    pub(crate) arguments: Vec<usize>,
    pub(crate) filter: Option<usize>,
    pub(crate) of: Collected,
}

/// What a multiset holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Collected {
    /// Values in order, for MIN and MAX.
    Ordered,
    /// Values for DISTINCT, where spellings that are equal in SQL are one.
    Distinct,
    /// The register and rank of values, for APPROX_COUNT_DISTINCT.
    Cells,
}

impl Collection {
    /// What it holds, in words.
    pub(crate) fn what(&self) -> String {
        let arguments: Vec<String> = self.arguments.iter().map(|column| format!("#{column}")).collect();
        let filter = self.filter.map_or(String::new(), |column| format!(" where #{column}"));
        let arguments = arguments.join(", ");
        match self.of {
            Collected::Ordered => {
                format!("values in order of ({arguments}){filter}, and how often each came in")
            }
            Collected::Distinct => {
                format!("distinct values of ({arguments}){filter}, and how often each came in")
            }
            Collected::Cells => format!(
                "sketch of ({arguments}){filter}: {REGISTERS} registers, and how many values have each rank in them"
            ),
        }
    }

    /// Whether a call needs it.
    pub(crate) fn is_of(&self, call: &AggregateCall) -> bool {
        collection(call).as_ref() == Some(self)
    }
}

/// The multiset that a call needs, if it is not linear.
fn collection(call: &AggregateCall) -> Option<Collection> {
    let of = match call.function {
        AggregateFunction::Min | AggregateFunction::Max => Collected::Ordered,
        AggregateFunction::ApproxCountDistinct => Collected::Cells,
        _ if call.distinct => Collected::Distinct,
        _ => return None,
    };
    Some(Collection { arguments: call.arguments.clone(), filter: call.filter, of })
}

/// The multisets of an aggregate, each a state; calls over the same values share one.
pub(crate) fn collections(calls: &[AggregateCall]) -> Vec<Collection> {
    let mut collections = Vec::new();
    for collection in calls.iter().filter_map(collection) {
        if !collections.contains(&collection) {
            collections.push(collection);
        }
    }
    collections
}

/// What does not change while an aggregate works.
#[derive(Debug)]
struct Shape {
    n_group: usize,
    layout: Layout,
    calls: Vec<Call>,
    collections: Vec<ShapedCollection>,
    output: SchemaRef,
}

/// A call, with columns by their position in the layout.
#[derive(Debug)]
struct Call {
    function: AggregateFunction,
    arguments: Vec<usize>,
    argument_types: Vec<DataType>,
    filter: Option<usize>,
    /// Which multiset it needs, if it is not linear.
    collection: Option<usize>,
}

/// A multiset, with columns by their position in the layout.
#[derive(Debug)]
struct ShapedCollection {
    arguments: Vec<usize>,
    filter: Option<usize>,
    of: Collected,
    codec: ValueCodec,
}

/// GROUP BY, or a global aggregate, at work.
#[derive(Debug)]
pub(crate) struct Aggregate {
    shape: Shape,
    input: Arrangement,
    groups: State,
    collected: Vec<State>,
}

impl Aggregate {
    pub(crate) fn new(node: &Node, input: &SchemaRef, states: Vec<State>) -> Result<Aggregate> {
        let shape = Shape::new(node, input)?;
        let mut states = states.into_iter();
        let groups = states.next().ok_or_else(|| Error::invalid("an aggregate keeps its groups"))?;
        let collected: Vec<State> = states.collect();
        if collected.len() != shape.collections.len() {
            return Err(Error::invalid("an aggregate keeps a state for each collection of values"));
        }
        Ok(Aggregate { input: Arrangement::new(shape.layout.clone()), shape, groups, collected })
    }
}

impl Shape {
    fn new(node: &Node, input: &SchemaRef) -> Result<Shape> {
        let Operator::Aggregate { group, calls } = &node.operator else {
            return Err(Error::invalid("not an aggregate"));
        };
        let mut columns = group.clone();
        for column in calls.iter().flat_map(|call| call.arguments.iter().chain(&call.filter)) {
            if !columns.contains(column) {
                columns.push(*column);
            }
        }
        let layout = Layout::new(input, columns, group.len())?;
        let position =
            |column: &usize| layout.columns.iter().position(|known| known == column).unwrap_or_default();
        let type_of = |column: &usize| input.field(*column).data_type().clone();
        let shared = collections(calls);
        let mut shaped_calls = Vec::with_capacity(calls.len());
        for (index, call) in calls.iter().enumerate() {
            if call.filter.is_some_and(|filter| type_of(&filter) != DataType::Boolean) {
                return Err(Error::invalid("the filter of an aggregate is not boolean"));
            }
            let argument_types: Vec<DataType> = call.arguments.iter().map(type_of).collect();
            let output_type = call_output_type(call.function, &argument_types, call.distinct)?;
            let declared = node.schema.fields().get(group.len() + index).map(|field| field.data_type());
            if declared != Some(&output_type) {
                return Err(Error::invalid(format!(
                    "{} puts out {output_type}, its plan says {declared:?}",
                    call.function.name()
                )));
            }
            shaped_calls.push(Call {
                function: call.function,
                arguments: call.arguments.iter().map(position).collect(),
                argument_types,
                filter: call.filter.as_ref().map(position),
                collection: collection(call).and_then(|needed| shared.iter().position(|one| *one == needed)),
            });
        }
        let shape_collection = |one: &Collection| {
            let types: Vec<DataType> = one.arguments.iter().map(type_of).collect();
            Ok(ShapedCollection {
                arguments: one.arguments.iter().map(position).collect(),
                filter: one.filter.as_ref().map(position),
                of: one.of,
                codec: match one.of {
                    Collected::Ordered => ValueCodec::exact(&types)?,
                    Collected::Distinct | Collected::Cells => ValueCodec::distinct(&types)?,
                },
            })
        };
        Ok(Shape {
            n_group: group.len(),
            calls: shaped_calls,
            collections: shared.iter().map(shape_collection).collect::<Result<_>>()?,
            output: Arc::clone(&node.schema),
            layout,
        })
    }

    /// A group as a user reads it.
    fn group_text(&self, key: &[u8]) -> String {
        if self.n_group == 0 { "all rows".to_owned() } else { self.layout.key_text(key) }
    }
}

fn pick(columns: &[ArrayRef], positions: &[usize]) -> Vec<ArrayRef> {
    positions.iter().map(|position| Arc::clone(&columns[*position])).collect()
}

fn filter_of(columns: &[ArrayRef], position: Option<usize>) -> Option<&BooleanArray> {
    position.map(|position| columns[position].as_boolean())
}

/// What one shard found.
struct Found {
    deltas: Vec<Delta>,
    groups: Run,
    collected: Vec<Run>,
    failed: FailedRows,
}

impl Stateful for Aggregate {
    fn push(&mut self, _input: usize, delta: Delta) -> Result<()> {
        self.input.push(delta)
    }

    fn barrier(&mut self, context: &Context, output: &mut Output<'_>, failed: &mut FailedRows) -> Result<()> {
        let delta = self.input.take()?;
        if delta.n_rows() == 0 {
            let key = keyed(&[]);
            if self.shape.n_group > 0 || self.groups.get(&key)?.is_some() {
                return Ok(());
            }
            // A global aggregate over nothing is a row, from the first epoch on.
            let mut groups = Groups::load(&self.shape, &self.groups, vec![&key])?;
            let found = groups.finish(&self.shape, failed)?;
            found.0.into_iter().try_for_each(output)?;
            return self.groups.append(found.1);
        }
        let mut groups = Vec::new();
        let mut collected = vec![Vec::new(); self.collected.len()];
        let work = |hashes| self.run_shard(&delta, part_of(&delta, &hashes));
        by_shards(delta.n_rows(), context.parallelism, work, |found| {
            groups.push(found.groups);
            failed.extend(found.failed);
            collected.iter_mut().zip(found.collected).for_each(|(runs, run)| runs.push(run));
            found.deltas.into_iter().try_for_each(&mut *output)
        })?;
        self.groups.append_shards(groups)?;
        self.collected.iter_mut().zip(collected).try_for_each(|(state, runs)| state.append_shards(runs))
    }

    fn states(&self) -> Vec<&State> {
        std::iter::once(&self.groups).chain(&self.collected).collect()
    }

    fn states_mut(&mut self) -> Vec<&mut State> {
        std::iter::once(&mut self.groups).chain(&mut self.collected).collect()
    }

    fn is_idle(&self) -> bool {
        self.input.is_empty()
    }

    fn pending_bytes(&self) -> u64 {
        self.input.n_bytes()
    }
}

/// Entries are decoded in batches of this many.
const BATCH_ROWS: usize = 8192;

impl Aggregate {
    fn run_shard(&self, delta: &Run, range: Range<usize>) -> Result<Found> {
        let shape = &self.shape;
        let (keys, group_of) = group_entries(shape, delta, range.clone())?;
        let mut groups = Groups::load(shape, &self.groups, keys)?;
        let mut collecting: Vec<collect::Collecting> =
            shape.collections.iter().map(|_| collect::Collecting::default()).collect();
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min(start + BATCH_ROWS);
            let slots = &group_of[start - range.start..end - range.start];
            let weights: Vec<i64> = (start..end).map(|index| delta.weight(index)).collect();
            let mut rows: Vec<&[u8]> = (start..end).map(|index| &delta.key(index)[HASH_BYTES..]).collect();
            let columns = shape.layout.codec.decode(&mut rows)?;
            groups.update(shape, &columns, &weights, slots)?;
            for (collecting, collection) in collecting.iter_mut().zip(&shape.collections) {
                collecting.add(collection, &columns, &weights, slots, &groups)?;
            }
            start = end;
        }
        let mut collected = Vec::with_capacity(collecting.len());
        for (index, collecting) in collecting.into_iter().enumerate() {
            let run = collecting.finish()?;
            groups.take_collection(shape, index, &self.collected[index], &run)?;
            collected.push(run);
        }
        let mut failed = FailedRows::default();
        let (deltas, learnt) = groups.finish(shape, &mut failed)?;
        Ok(Found { deltas, groups: learnt, collected, failed })
    }
}

/// The groups of a part of the delta, and for each entry which one it is in.
fn group_entries<'a>(
    shape: &Shape,
    delta: &'a Run,
    range: Range<usize>,
) -> Result<(Vec<&'a [u8]>, Vec<u32>)> {
    let mut keys: Vec<&[u8]> = Vec::new();
    let mut group_of = Vec::with_capacity(range.len());
    for index in range {
        let row = delta.key(index);
        if keys.last().is_none_or(|key| !row.starts_with(key)) {
            keys.push(shape.layout.key_of(row)?);
        }
        group_of.push((keys.len() - 1) as u32);
    }
    Ok((keys, group_of))
}
