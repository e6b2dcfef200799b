//! Joins on equal keys, and all that hangs on whether a left row has a match.
//!
//! Both inputs are states, arranged by key. Pairs are linear: the change is dL with R before the epoch,
//! and L after it with dR. Whether a left row has a match is not; it is looked at before and after,
//! for the keys that changed only. Without a residual condition that depends on the key alone; with one,
//! a third state counts the matches of each left row.

mod counted;
mod exists;
mod pairs;

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, new_null_array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{Field, Schema, SchemaRef};
use types::{Delta, Error, Result};

use crate::Expression;
use crate::arrange::{Arrangement, Layout, by_shards, check_deletions, decode_rows, delta_of, part_of};
use crate::failures::FailedRows;
use crate::operator::{Context, Output, Stateful};
use crate::plan::{JoinKind, Node, Operator};
use crate::run::Run;
use crate::state::State;
use pairs::Condition;

/// Pairs or rows are put out in batches of this many.
const BATCH_ROWS: usize = 8192;

/// A join at work.
#[derive(Debug)]
pub(crate) struct Join {
    shape: Shape,
    left: Arrangement,
    right: Arrangement,
    /// Left rows with a NULL key, where they match nothing but still come out.
    unmatched: Vec<Delta>,
    left_state: State,
    right_state: State,
    /// Left row -> matches, where existence depends on a condition.
    counts: Option<State>,
}

/// What does not change while a join works.
#[derive(Debug)]
struct Shape {
    kind: JoinKind,
    left_keys: Vec<usize>,
    right_keys: Vec<usize>,
    /// Whether NULL keys are looked at (they match each other, or the kind gives them a meaning).
    takes_null_keys: bool,
    left_layout: Layout,
    right_layout: Layout,
    /// Left columns, then right columns.
    joined: SchemaRef,
    condition: Option<Condition>,
    output: SchemaRef,
}

impl Join {
    pub(crate) fn new(node: &Node, left: &SchemaRef, right: &SchemaRef, states: Vec<State>) -> Result<Join> {
        let Operator::Join { kind, left_keys, right_keys, null_equal, residual } = &node.operator else {
            return Err(Error::invalid("not a join"));
        };
        let shape =
            Shape::new(*kind, (left, left_keys), (right, right_keys), *null_equal, residual.clone(), node)?;
        let mut states = states.into_iter();
        let (Some(left_state), Some(right_state), counts) = (states.next(), states.next(), states.next())
        else {
            return Err(Error::invalid("a join keeps two states"));
        };
        Ok(Join {
            left: Arrangement::new(shape.left_layout.clone()),
            right: Arrangement::new(shape.right_layout.clone()),
            shape,
            unmatched: Vec::new(),
            left_state,
            right_state,
            counts,
        })
    }
}

impl Shape {
    fn new(
        kind: JoinKind,
        (left, left_keys): (&SchemaRef, &[usize]),
        (right, right_keys): (&SchemaRef, &[usize]),
        null_equal: bool,
        residual: Option<Arc<dyn Expression>>,
        node: &Node,
    ) -> Result<Shape> {
        let fits = left_keys.len() == right_keys.len()
            && left_keys.iter().zip(right_keys).all(|(left_key, right_key)| {
                let left_field = left.fields().get(*left_key);
                let right_field = right.fields().get(*right_key);
                left_field.is_some()
                    && left_field.map(|f| f.data_type()) == right_field.map(|f| f.data_type())
            });
        if !fits {
            return Err(Error::invalid("the keys of a join differ in number or type"));
        }
        let nullable = |field: &Arc<Field>| Arc::new(field.as_ref().clone().with_nullable(true));
        let fields: Vec<Arc<Field>> = left.fields().iter().chain(right.fields()).map(nullable).collect();
        let is_null_aware = kind == JoinKind::LeftAntiNullAware;
        // NOT IN with a condition, or over several columns: the keys become a part of the condition.
        let by_condition = is_null_aware && needs_condition(left_keys.len(), residual.is_some());
        let condition =
            Condition::new(residual, by_condition.then(|| (left_keys, right_keys, left.fields().len())));
        let (kind, left_keys, right_keys) = if by_condition {
            (JoinKind::LeftAnti, Vec::new(), Vec::new())
        } else {
            (kind, left_keys.to_vec(), right_keys.to_vec())
        };
        let keys_only = !matches!(kind, JoinKind::Inner | JoinKind::Left) && condition.is_none();
        Ok(Shape {
            left_layout: Layout::all_columns(left, &left_keys)?,
            right_layout: if keys_only {
                Layout::new(right, right_keys.clone(), right_keys.len())?
            } else {
                Layout::all_columns(right, &right_keys)?
            },
            takes_null_keys: null_equal || kind == JoinKind::LeftAntiNullAware,
            kind,
            left_keys,
            right_keys,
            joined: Arc::new(Schema::new(fields)),
            condition,
            output: Arc::clone(&node.schema),
        })
    }

    /// Whether a left row without a match comes out.
    fn puts_out_unmatched(&self) -> bool {
        !matches!(self.kind, JoinKind::Inner | JoinKind::LeftSemi)
    }

    /// A batch of left rows, with NULLs on the right if the kind has right columns.
    fn left_rows(&self, rows: Vec<&[u8]>, weights: Vec<i64>) -> Result<Delta> {
        let columns = decode_rows(&self.left_layout, rows)?;
        self.left_columns(columns, weights)
    }

    fn left_columns(&self, mut columns: Vec<ArrayRef>, weights: Vec<i64>) -> Result<Delta> {
        if self.kind == JoinKind::Left {
            for field in &self.joined.fields()[columns.len()..] {
                columns.push(new_null_array(field.data_type(), weights.len()));
            }
        }
        delta_of(&self.output, columns, weights)
    }
}

/// Whether NOT IN is decided pair by pair.
pub(crate) fn needs_condition(n_keys: usize, has_residual: bool) -> bool {
    has_residual || n_keys != 1
}

/// What one shard of an epoch works on.
struct Work<'a> {
    shape: &'a Shape,
    left_delta: &'a Run,
    right_delta: &'a Run,
    left_range: Range<usize>,
    right_range: Range<usize>,
    /// The shard.
    hashes: RangeInclusive<u32>,
    left_state: &'a State,
    right_state: &'a State,
    /// Whether pairs may have failed before.
    any_failed: bool,
}

/// What one shard found.
#[derive(Default)]
struct Found {
    deltas: Vec<Delta>,
    failed: FailedRows,
    counts: Option<Run>,
}

impl Stateful for Join {
    fn push(&mut self, input: usize, delta: Delta) -> Result<()> {
        let is_left = input == 0;
        let keys = if is_left { &self.shape.left_keys } else { &self.shape.right_keys };
        let has_key = if self.shape.takes_null_keys { None } else { valid_keys(&delta, keys) };
        let arrangement = if is_left { &mut self.left } else { &mut self.right };
        let Some(has_key) = has_key else {
            return arrangement.push(delta);
        };
        arrangement.push(delta.filter(&has_key)?)?;
        if is_left && self.shape.puts_out_unmatched() {
            self.unmatched.push(delta.filter(&arrow::compute::not(&has_key)?)?);
        }
        Ok(())
    }

    fn barrier(&mut self, context: &Context, output: &mut Output<'_>, failed: &mut FailedRows) -> Result<()> {
        for delta in std::mem::take(&mut self.unmatched) {
            let columns = delta.batch().columns().to_vec();
            output(self.shape.left_columns(columns, delta.weights().values().to_vec())?)?;
        }
        let (left_delta, right_delta) = (self.left.take()?, self.right.take()?);
        if left_delta.n_rows() == 0 && right_delta.n_rows() == 0 {
            return Ok(());
        }
        check_deletions(&self.left_state, &left_delta, &self.shape.left_layout)
            .map_err(|error| error.context("left input"))?;
        check_deletions(&self.right_state, &right_delta, &self.shape.right_layout)
            .map_err(|error| error.context("right input"))?;
        let n_rows = left_delta.n_rows() + right_delta.n_rows();
        let work = |hashes| {
            let work = Work {
                shape: &self.shape,
                left_delta: &left_delta,
                right_delta: &right_delta,
                left_range: part_of(&left_delta, &hashes),
                right_range: part_of(&right_delta, &hashes),
                hashes,
                left_state: &self.left_state,
                right_state: &self.right_state,
                any_failed: context.any_failed,
            };
            work.run(self.counts.as_ref())
        };
        let mut counts = Vec::new();
        by_shards(n_rows, context.parallelism, work, |found| {
            counts.extend(found.counts);
            failed.extend(found.failed);
            found.deltas.into_iter().try_for_each(&mut *output)
        })?;
        if let Some(state) = &mut self.counts {
            state.append_shards(counts)?;
        }
        self.left_state.append(left_delta)?;
        self.right_state.append(right_delta)
    }

    fn states(&self) -> Vec<&State> {
        [&self.left_state, &self.right_state].into_iter().chain(&self.counts).collect()
    }

    fn states_mut(&mut self) -> Vec<&mut State> {
        [&mut self.left_state, &mut self.right_state].into_iter().chain(&mut self.counts).collect()
    }

    fn is_idle(&self) -> bool {
        self.left.is_empty() && self.right.is_empty() && self.unmatched.is_empty()
    }

    fn pending_bytes(&self) -> u64 {
        self.left.n_bytes() + self.right.n_bytes()
    }
}

impl Work<'_> {
    fn run(&self, counts: Option<&State>) -> Result<Found> {
        let mut found = Found::default();
        if matches!(self.shape.kind, JoinKind::Inner | JoinKind::Left) {
            self.put_out_pairs(&mut found)?;
        }
        if self.shape.kind != JoinKind::Inner {
            match counts {
                Some(counts) => self.put_out_counted(counts, &mut found)?,
                None => self.put_out_existing(&mut found)?,
            }
        }
        Ok(found)
    }
}

/// Which rows have no NULL among their keys; none if all have none.
fn valid_keys(delta: &Delta, keys: &[usize]) -> Option<BooleanArray> {
    let nulls = keys.iter().fold(None, |nulls: Option<NullBuffer>, key| {
        NullBuffer::union(nulls.as_ref(), delta.column(*key).logical_nulls().as_ref())
    });
    nulls.filter(|nulls| nulls.null_count() > 0).map(|nulls| BooleanArray::new(nulls.into_inner(), None))
}

/// The ranges of entries of one key each, in a part of a run.
fn key_ranges<'a>(
    run: &'a Run,
    layout: &Layout,
    range: Range<usize>,
) -> Result<Vec<(&'a [u8], Range<usize>)>> {
    let mut ranges: Vec<(&[u8], Range<usize>)> = Vec::new();
    for index in range {
        let row = run.key(index);
        match ranges.last_mut() {
            Some((key, range)) if row.starts_with(key) => range.end = index + 1,
            _ => ranges.push((layout.key_of(row)?, index..index + 1)),
        }
    }
    Ok(ranges)
}
