//! One view's output, from deltas to mutations.
//!
//! A view whose table has a primary key is *keyed*: the key is in the row. Any other view has hidden
//! handles, and the sink remembers which handle holds which row (see `handles`). Which of the two is fixed
//! by the table's definition.

use std::sync::Arc;

use arrow::util::display::{ArrayFormatter, FormatOptions};
use operators::{Manifest, RunNamer, RunSource, SealedRun};
use store::{Assertion, Mutation, MutationOp};
use tidb::{RowEncoder, TableInfo, append_checksum, describe_key};
use types::{Delta, Error, Result, StateId};

use crate::fault::{Fault, SinkError};
use crate::fold::Fold;
use crate::handles::Handles;

/// The number of the sink's own state among a view's; operators count theirs from 0.
pub const SINK_STATE: u32 = u32::MAX;

/// Turns one view's output into mutations of its table.
pub struct ViewSink {
    encoder: RowEncoder,
    /// Of a view without a key: which row is under which handle.
    handles: Option<Handles>,
    /// Whether rows are written with checksums.
    has_checksums: bool,
}

/// An epoch's rows, ready to be prewritten.
#[derive(Clone, Debug, Default)]
pub struct Prepared {
    /// One mutation a key, in ascending order of keys.
    pub mutations: Vec<Mutation>,
    /// By how much the number of stored rows changes.
    pub n_rows_change: i64,
}

impl Prepared {
    /// The mutations in batches of at most so many keys and about so many bytes.
    pub fn batches(&self, n_keys_max: usize, n_bytes_max: usize) -> impl Iterator<Item = &[Mutation]> {
        let mut rest = self.mutations.as_slice();
        std::iter::from_fn(move || {
            let mut n_bytes = 0;
            let fits = |mutation: &&Mutation| {
                let within = n_bytes < n_bytes_max;
                n_bytes += mutation.key.len() + mutation.value.len();
                within
            };
            let n = rest.iter().take(n_keys_max.max(1)).take_while(fits).count();
            let (batch, others) = rest.split_at(n.max(1).min(rest.len()));
            rest = others;
            (!batch.is_empty()).then_some(batch)
        })
    }
}

impl ViewSink {
    /// The sink of a view's table. `manifest` is the one of [`ViewSink::state_id`], if there is one.
    ///
    /// # Errors
    /// `Invalid` if the definition contradicts itself.
    pub fn open(
        table: &TableInfo,
        manifest: Option<&Manifest>,
        source: Arc<dyn RunSource>,
    ) -> Result<ViewSink> {
        let encoder = RowEncoder::new(table)?;
        let handles = table.has_hidden_handle().then(|| Handles::open(manifest, source));
        Ok(ViewSink { encoder, handles, has_checksums: false })
    }

    /// The sink, which writes rows with checksums if so asked, as TiDB does. Rows are compared without.
    #[must_use]
    pub fn with_checksums(self, has_checksums: bool) -> ViewSink {
        ViewSink { has_checksums, ..self }
    }

    /// Under which state the sink's manifest is kept.
    #[must_use]
    pub fn state_id(&self) -> StateId {
        StateId { view: self.encoder.table().table_id(), state: SINK_STATE }
    }

    /// Adds a delta of the view's output to an epoch's fold.
    ///
    /// # Errors
    /// A fault if a row cannot be stored (NULL in a key, a key too long, a date out of range); `Invalid` if the delta is
    /// not one of the view's columns.
    pub fn add(&self, fold: &mut Fold, delta: &Delta) -> Result<(), SinkError> {
        let mut rows = self.encoder.bind(delta.batch())?;
        for (row, weight) in delta.weights().values().iter().enumerate() {
            let encoded = (|| {
                let value = rows.value(row)?;
                match &self.handles {
                    None => {
                        let key = rows.key(row, None)?;
                        store::check_key_length(&key)?;
                        Ok((key, value))
                    }
                    Some(_) => Ok((value, Vec::new())),
                }
            })();
            let (key, value) = encoded.map_err(|error: Error| Fault {
                reason: error.message().to_owned(),
                key: Some(describe_row(delta, row)),
            })?;
            fold.add(key, value, *weight)?;
        }
        Ok(())
    }

    /// Turns an epoch's fold into mutations. After a fault the sink is as it was before. Reads state: call
    /// it from a blocking thread.
    ///
    /// # Errors
    /// A fault if rows contradict each other or what is stored; otherwise what the state's runs answer.
    pub fn prepare(&mut self, fold: Fold) -> Result<Prepared, SinkError> {
        let mut prepared = match &mut self.handles {
            None => prepare_keyed(fold),
            Some(handles) => handles.prepare(&self.encoder, fold),
        }?;
        if self.has_checksums {
            add_checksums(&mut prepared.mutations)?;
        }
        Ok(prepared)
    }

    /// Seals the sink's state, if it has one that changed: the new manifest to commit, and its runs.
    ///
    /// # Errors
    /// What the state's runs answer.
    pub fn seal(&mut self, namer: &mut RunNamer, sealed: &mut Vec<SealedRun>) -> Result<Option<Manifest>> {
        match &mut self.handles {
            None => Ok(None),
            Some(handles) => handles.seal(namer, sealed),
        }
    }

    /// Has the sink's state, if it has one, merged into one tier when it is sealed next, about so many bytes
    /// of it.
    pub fn compact(&mut self, n_bytes_max: usize) {
        if let Some(handles) = &mut self.handles {
            handles.compact(n_bytes_max);
        }
    }

    /// Whether the sink's state is not merged yet and is to be.
    #[must_use]
    pub fn is_compacting(&self) -> bool {
        self.handles.as_ref().is_some_and(Handles::is_compacting)
    }

    /// Rows and bytes of the sink's state.
    #[must_use]
    pub fn state_size(&self) -> (u64, u64) {
        self.handles.as_ref().map_or((0, 0), Handles::size)
    }
}

fn add_checksums(mutations: &mut [Mutation]) -> Result<()> {
    for mutation in mutations.iter_mut().filter(|mutation| mutation.op == MutationOp::Put) {
        let mut value = mutation.value.to_vec();
        append_checksum(&mutation.key, &mut value)?;
        mutation.value = value.into();
    }
    Ok(())
}

/// Each key has at most one row before and one after.
fn prepare_keyed(fold: Fold) -> Result<Prepared, SinkError> {
    let mut prepared = Prepared { mutations: Vec::with_capacity(fold.n_keys()), n_rows_change: 0 };
    for (key, values) in fold.keys {
        let mut old = None;
        let mut new = None;
        for (value, weight) in values {
            let (slot, what) = match weight {
                1 => (&mut new, "two rows have one key"),
                -1 => (&mut old, "two rows of one key are taken back"),
                weight if weight > 1 => return Err(duplicate(&key, "two rows have one key")),
                _ => return Err(duplicate(&key, "a row is taken back more often than it was there")),
            };
            if slot.replace(value).is_some() {
                return Err(duplicate(&key, what));
            }
        }
        let mutation = match (old, new) {
            (None, Some(new)) => {
                prepared.n_rows_change += 1;
                Mutation::put(key, new).asserting(Assertion::NotExist)
            }
            (Some(_), Some(new)) => Mutation::put(key, new).asserting(Assertion::Exist),
            (Some(_), None) => {
                prepared.n_rows_change -= 1;
                Mutation::delete(key).asserting(Assertion::Exist)
            }
            (None, None) => continue,
        };
        prepared.mutations.push(mutation);
    }
    Ok(prepared)
}

fn duplicate(key: &[u8], reason: &str) -> SinkError {
    Fault { reason: reason.to_owned(), key: Some(describe_key(key)) }.into()
}

/// How many characters of a value are shown.
const SHOWN_CHARACTERS_MAX: usize = 100;

/// A row in words, as far as it can be shown.
fn describe_row(delta: &Delta, row: usize) -> String {
    let options = FormatOptions::default().with_null("NULL");
    let cells = delta.batch().columns().iter().map(|array| {
        let mut cell = ArrayFormatter::try_new(array, &options)
            .map_or_else(|_| "?".to_owned(), |formatter| formatter.value(row).to_string());
        if let Some((end, _)) = cell.char_indices().nth(SHOWN_CHARACTERS_MAX) {
            cell.truncate(end);
            cell.push_str("...");
        }
        cell
    });
    format!("row ({})", cells.collect::<Vec<_>>().join(", "))
}
