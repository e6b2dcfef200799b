//! Arrangements: the delta of an epoch, encoded, sorted by key and consolidated while it comes in.
//!
//! Every operator with state takes its inputs through one. At the barrier the arrangement is a run: the
//! operator reads it in the order of keys beside its state, and appends it to the state as it is.

use std::ops::{Range, RangeInclusive};

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use types::{Delta, Error, Result, VNODES};

use crate::encoding::{HASH_BYTES, RowCodec};
use crate::merge::{Deletions, merge_runs};
use crate::run::{Run, RunBuilder, StateKind, consolidate_rows};
use crate::state::State;

/// Rows are encoded and sorted at once up to here: the sort stays in the processor's cache.
const SORT_ROWS_MAX: usize = 16 * 1024;

/// A shard works on about so many rows of a delta, so that what it puts out stays small.
const SHARD_ROWS: usize = 16 * 1024;

/// Small runs are merged into one when there are more.
const RUNS_MAX: usize = 32;

/// The largest delta of one operator in one epoch; a run counts its bytes in 32 bits.
const EPOCH_BYTES_MAX: usize = 2 << 30;

/// How an operator's rows are laid out in keys of its state: some columns of the input, the key first.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// Columns of the input in encoded order.
    pub(crate) columns: Vec<usize>,
    /// How many of them are the key: what is hashed, and probed by prefix.
    pub(crate) n_key: usize,
    pub(crate) codec: RowCodec,
    key_codec: RowCodec,
    names: Vec<String>,
}

impl Layout {
    pub(crate) fn new(schema: &SchemaRef, columns: Vec<usize>, n_key: usize) -> Result<Layout> {
        let field = |column: &usize| {
            schema
                .fields()
                .get(*column)
                .ok_or_else(|| Error::invalid(format!("no column {column} in {schema}")))
        };
        let types = columns.iter().map(|column| Ok(field(column)?.data_type().clone()));
        let codec = RowCodec::new(types.collect::<Result<Vec<DataType>>>()?)?;
        let names = columns.iter().map(|column| Ok(field(column)?.name().clone())).collect::<Result<_>>()?;
        Ok(Layout { key_codec: codec.prefix(n_key), columns, n_key, codec, names })
    }

    /// All columns of the input, the key columns first.
    pub(crate) fn all_columns(schema: &SchemaRef, keys: &[usize]) -> Result<Layout> {
        let mut columns = keys.to_vec();
        let n_key = columns.len();
        columns.extend((0..schema.fields().len()).filter(|column| !keys.contains(column)));
        Layout::new(schema, columns, n_key)
    }

    /// The part of an encoded row that is its hash and key.
    pub(crate) fn key_of<'a>(&self, row: &'a [u8]) -> Result<&'a [u8]> {
        let length = match self.key_codec.fixed_length() {
            Some(length) => length,
            None => self.key_codec.length_of(row.get(HASH_BYTES..).unwrap_or_default())?,
        };
        row.get(..HASH_BYTES + length).ok_or_else(|| Error::corrupt("encoded row: too short"))
    }

    /// A row as a user reads it, for errors.
    pub(crate) fn row_text(&self, row: &[u8]) -> String {
        let decoded = row.get(HASH_BYTES..).map(|bytes| self.codec.decode(&mut [bytes]));
        let Some(Ok(columns)) = decoded else {
            return format!("{row:02x?}");
        };
        let values = column_texts(&columns).into_iter().zip(&self.names);
        let texts: Vec<String> = values.map(|(value, name)| format!("{name} = {value}")).collect();
        format!("({})", texts.join(", "))
    }

    /// A key as a user reads it, for errors.
    pub(crate) fn key_text(&self, key: &[u8]) -> String {
        match key.get(HASH_BYTES..).map(|bytes| self.key_codec.decode(&mut [bytes])) {
            Some(Ok(columns)) => {
                let values = column_texts(&columns).into_iter().zip(&self.names);
                let texts: Vec<String> = values.map(|(value, name)| format!("{name} = {value}")).collect();
                format!("({})", texts.join(", "))
            }
            _ => format!("{key:02x?}"),
        }
    }

    pub(crate) fn key_codec(&self) -> &RowCodec {
        &self.key_codec
    }
}

/// The first value of each column as a user reads it.
pub(crate) fn column_texts(columns: &[ArrayRef]) -> Vec<String> {
    let options = FormatOptions::new().with_null("NULL");
    let text = |column: &ArrayRef| {
        ArrayFormatter::try_new(column, &options)
            .map_or_else(|error| error.to_string(), |formatter| formatter.value(0).to_string())
    };
    columns.iter().map(text).collect()
}

/// The delta of an epoch in the making.
#[derive(Debug)]
pub(crate) struct Arrangement {
    layout: Layout,
    buffered: Vec<Delta>,
    buffered_rows: usize,
    runs: Vec<Run>,
}

impl Arrangement {
    pub(crate) fn new(layout: Layout) -> Arrangement {
        Arrangement { layout, buffered: Vec::new(), buffered_rows: 0, runs: Vec::new() }
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Takes in rows of the input.
    pub(crate) fn push(&mut self, delta: Delta) -> Result<()> {
        let columns: Vec<usize> = self.layout.columns.clone();
        let n_rows = delta.n_rows();
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(n_rows));
        let schema = std::sync::Arc::new(delta.schema().project(&columns)?);
        let arrays = columns.iter().map(|column| std::sync::Arc::clone(delta.column(*column))).collect();
        let batch = RecordBatch::try_new_with_options(schema, arrays, &options)?;
        let delta = delta.with_batch(batch);
        let mut start = 0;
        while start < n_rows {
            let length = (n_rows - start).min(SORT_ROWS_MAX - self.buffered_rows);
            self.buffered.push(slice(&delta, start, length));
            self.buffered_rows += length;
            start += length;
            if self.buffered_rows == SORT_ROWS_MAX {
                self.encode()?;
            }
        }
        Ok(())
    }

    fn encode(&mut self) -> Result<()> {
        let Some(first) = self.buffered.first() else {
            return Ok(());
        };
        let delta = Delta::concat(&first.schema(), &self.buffered)?;
        self.buffered.clear();
        self.buffered_rows = 0;
        let rows =
            self.layout.codec.encode_keyed(delta.batch().columns(), delta.n_rows(), self.layout.n_key)?;
        let run = consolidate_rows(&rows, delta.weights().values())?;
        if run.n_rows() > 0 {
            self.runs.push(run);
        }
        if self.runs.len() > RUNS_MAX {
            self.runs = vec![self.merge()?];
        }
        Ok(())
    }

    fn merge(&self) -> Result<Run> {
        let runs: Vec<&Run> = self.runs.iter().collect();
        let mut merged = merge_runs(StateKind::Multiset, &runs, Deletions::Keep, EPOCH_BYTES_MAX)?;
        match (merged.pop(), merged.is_empty()) {
            (None, _) => Ok(RunBuilder::new(StateKind::Multiset).finish()),
            (Some(run), true) => Ok(run),
            (Some(_), false) => Err(Error::invalid("the changes of one epoch exceed 2 GiB in one operator")),
        }
    }

    /// The consolidated delta of the epoch; the arrangement is empty afterwards.
    pub(crate) fn take(&mut self) -> Result<Run> {
        self.encode()?;
        let run = if self.runs.len() == 1 { self.runs.remove(0) } else { self.merge()? };
        self.runs.clear();
        Ok(run)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.buffered_rows == 0 && self.runs.is_empty()
    }

    /// Bytes of the encoded part.
    pub(crate) fn n_bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.n_bytes() as u64).sum()
    }
}

fn slice(delta: &Delta, start: usize, length: usize) -> Delta {
    if start == 0 && length == delta.n_rows() {
        return delta.clone();
    }
    Delta::new(delta.batch().slice(start, length), delta.weights().slice(start, length))
}

/// Decodes rows of one layout back into the columns of the input, in the input's order.
pub(crate) fn decode_rows(layout: &Layout, mut rows: Vec<&[u8]>) -> Result<Vec<ArrayRef>> {
    for row in &mut rows {
        *row = row.get(HASH_BYTES..).ok_or_else(|| Error::corrupt("encoded row: too short"))?;
    }
    let decoded = layout.codec.decode(&mut rows)?;
    // A column may stand twice in a key.
    let n_columns = layout.columns.iter().max().map_or(0, |column| column + 1);
    let mut columns: Vec<Option<ArrayRef>> = vec![None; n_columns];
    for (column, array) in layout.columns.iter().zip(decoded) {
        columns[*column] = Some(array);
    }
    columns
        .into_iter()
        .map(|column| column.ok_or_else(|| Error::invalid("a layout without some column")))
        .collect()
}

/// The same rows under a node's schema, which may differ in names and nullability.
pub(crate) fn with_schema(delta: &Delta, schema: &SchemaRef, columns: Vec<ArrayRef>) -> Result<Delta> {
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(delta.n_rows()));
    Ok(delta.with_batch(RecordBatch::try_new_with_options(std::sync::Arc::clone(schema), columns, &options)?))
}

/// A delta of a node's schema from its columns.
pub(crate) fn delta_of(schema: &SchemaRef, columns: Vec<ArrayRef>, weights: Vec<i64>) -> Result<Delta> {
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(weights.len()));
    let batch = RecordBatch::try_new_with_options(std::sync::Arc::clone(schema), columns, &options)?;
    Ok(Delta::new(batch, Int64Array::from(weights)))
}

/// Refuses a delta that deletes what a state does not hold.
pub(crate) fn check_deletions(state: &State, delta: &Run, layout: &Layout) -> Result<()> {
    let negative: Vec<usize> = (0..delta.n_rows()).filter(|index| delta.weight(*index) < 0).collect();
    let rows: Vec<&[u8]> = negative.iter().map(|index| delta.key(*index)).collect();
    for ((index, row), weight) in negative.iter().zip(&rows).zip(state.weights_sorted(&rows)?) {
        let after = crate::run::add_weights(weight, delta.weight(*index))?;
        if after < 0 {
            return Err(Error::corrupt(format!(
                "a row that is not there is deleted: {} (its weight would be {after})",
                layout.row_text(row)
            )));
        }
    }
    Ok(())
}

/// The hashes of each shard: vnodes are divided evenly.
fn shard_hashes(parallelism: usize) -> Vec<RangeInclusive<u32>> {
    let parallelism = parallelism.clamp(1, VNODES);
    let start = |shard: usize| ((shard * VNODES).div_ceil(parallelism) << 24) as u64;
    (0..parallelism).map(|shard| start(shard) as u32..=(start(shard + 1) - 1) as u32).collect()
}

/// The entries of a run with hashes in a range.
pub(crate) fn part_of(run: &Run, hashes: &RangeInclusive<u32>) -> Range<usize> {
    let bound = |hash: u32| run.lower_bound(&hash.to_be_bytes());
    bound(*hashes.start())..hashes.end().checked_add(1).map_or(run.n_rows(), bound)
}

/// Divides the work on some rows by vnode. As many shards as asked for work at once; what they found is
/// taken in the order of shards, and before the next ones begin, so that it need not be held together.
pub(crate) fn by_shards<T, W, F>(n_rows: usize, parallelism: usize, work: W, mut take: F) -> Result<()>
where
    T: Send,
    W: Fn(RangeInclusive<u32>) -> Result<T> + Sync,
    F: FnMut(T) -> Result<()>,
{
    let parallelism = parallelism.clamp(1, VNODES);
    let shards = shard_hashes((n_rows / SHARD_ROWS).max(parallelism));
    for shards in shards.chunks(parallelism) {
        in_shards(shards.to_vec(), &work)?.into_iter().try_for_each(&mut take)?;
    }
    Ok(())
}

/// Runs work for each shard, in threads if there are several; results come in the order of shards.
fn in_shards<S, T, F>(shards: Vec<S>, work: F) -> Result<Vec<T>>
where
    S: Send,
    T: Send,
    F: Fn(S) -> Result<T> + Sync,
{
    if shards.len() == 1 {
        return shards.into_iter().map(work).collect();
    }
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = shards.into_iter().map(|shard| scope.spawn(move || work(shard))).collect();
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.collect()
    })
}
