//! Hidden handles: which stored row of a view without a key has which content.
//!
//! A row is its content and an ordinal among equal ones. The state is a map under keys that begin with a
//! hash whose first byte is the vnode:
//!
//! ```text
//! hash(content) 01 content              -> handle of ordinal 0 [, count if it is above 1]
//! hash(content) 02 content ordinal:u64  -> handle of a further ordinal
//! vnode 00 00 00 00                     -> the vnode's next counter
//! ```
//!
//! Rows come and go at the greatest ordinal, so ordinals have no gaps. A handle is
//! `vnode << 55 | counter` and is never used twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use operators::{Manifest, Run, RunBuilder, RunNamer, RunSource, SealedRun, State, StateKind, keyed, vnode};
use store::{Assertion, Mutation};
use tidb::{Handle, RowEncoder, record_key};
use types::{Error, Result, VNode};

use crate::fault::{Fault, SinkError};
use crate::fold::Fold;
use crate::view_sink::Prepared;

const TAG_COUNTER: u8 = 0;
const TAG_FIRST: u8 = 1;
const TAG_FURTHER: u8 = 2;
const COUNTER_BITS: u32 = 55;

/// The map from rows to handles.
pub(crate) struct Handles {
    state: State,
}

/// A content that changes.
struct ContentChange {
    content: Vec<u8>,
    /// The state key of ordinal 0.
    first_key: Vec<u8>,
    change: i64,
    /// Stored rows of the content before.
    n_before: u64,
    /// The handle of ordinal 0, if there is one.
    first_handle: Option<i64>,
}

/// What one epoch does to the map.
#[derive(Default)]
struct Changes {
    entries: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    counters: BTreeMap<VNode, u64>,
    mutations: Vec<Mutation>,
}

impl Handles {
    pub(crate) fn open(manifest: Option<&Manifest>, source: Arc<dyn RunSource>) -> Handles {
        let empty = Manifest::default();
        Handles { state: State::open(StateKind::Map, manifest.unwrap_or(&empty), source) }
    }

    pub(crate) fn seal(
        &mut self,
        namer: &mut RunNamer,
        sealed: &mut Vec<SealedRun>,
    ) -> Result<Option<Manifest>> {
        self.state.seal(namer, sealed)
    }

    pub(crate) fn compact(&mut self, n_bytes_max: usize) {
        self.state.compact(n_bytes_max);
    }

    pub(crate) fn is_compacting(&self) -> bool {
        self.state.is_compacting()
    }

    pub(crate) fn size(&self) -> (u64, u64) {
        (self.state.n_rows(), self.state.n_bytes())
    }

    /// Gives new rows handles and finds those of rows that go.
    pub(crate) fn prepare(&mut self, encoder: &RowEncoder, fold: Fold) -> Result<Prepared, SinkError> {
        let contents = self.look_up(fold)?;
        let table = encoder.table().id;
        let mut changes = Changes { counters: self.read_counters(&contents)?, ..Changes::default() };
        let removed = self.further_handles(&contents)?;
        let mut n_rows_change: i64 = 0;
        for content in &contents {
            let n_after = i128::from(content.n_before) + i128::from(content.change);
            let Ok(n_after) = u64::try_from(n_after) else {
                return Err(negative(encoder, content).into());
            };
            changes.apply(table, content, n_after, &removed)?;
            n_rows_change = n_rows_change
                .checked_add(content.change)
                .ok_or_else(|| Error::corrupt("the number of rows overflows"))?;
        }
        for (vnode, counter) in std::mem::take(&mut changes.counters) {
            changes.entries.insert(counter_key(vnode), Some(counter.to_be_bytes().to_vec()));
        }
        self.state.append(run_of(&changes.entries))?;
        changes.mutations.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        Ok(Prepared { mutations: changes.mutations, n_rows_change })
    }

    /// What is stored of each content, in the order of state keys.
    fn look_up(&self, fold: Fold) -> Result<Vec<ContentChange>> {
        let mut contents: Vec<ContentChange> = Vec::with_capacity(fold.n_keys());
        for (content, values) in fold.keys {
            let change = values.iter().map(|(_, weight)| *weight).sum();
            let first_key = state_key(TAG_FIRST, &content);
            contents.push(ContentChange { content, first_key, change, n_before: 0, first_handle: None });
        }
        contents.sort_unstable_by(|a, b| a.first_key.cmp(&b.first_key));
        let keys: Vec<&[u8]> = contents.iter().map(|content| content.first_key.as_slice()).collect();
        let found: Vec<Option<(i64, u64)>> = self
            .state
            .get_sorted(&keys)?
            .into_iter()
            .map(|value| value.map(decode_first).transpose())
            .collect::<Result<_>>()?;
        for (content, found) in contents.iter_mut().zip(found) {
            if let Some((handle, count)) = found {
                content.first_handle = Some(handle);
                content.n_before = count;
            }
        }
        Ok(contents)
    }

    /// The counters of all vnodes that get new rows.
    fn read_counters(&self, contents: &[ContentChange]) -> Result<BTreeMap<VNode, u64>> {
        let growing = contents.iter().filter(|content| content.change > 0);
        let mut counters: BTreeMap<VNode, u64> =
            growing.map(|content| (vnode(&content.content), 0)).collect();
        let keys: Vec<Vec<u8>> = counters.keys().map(|vnode| counter_key(*vnode)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        for (counter, value) in counters.values_mut().zip(self.state.get_sorted(&keys)?) {
            if let Some(value) = value {
                *counter = decode_u64(value)?;
            }
        }
        Ok(counters)
    }

    /// The handles of ordinals above 0 that go, by their state keys.
    fn further_handles(&self, contents: &[ContentChange]) -> Result<BTreeMap<Vec<u8>, i64>> {
        let mut keys = Vec::new();
        for content in contents.iter().filter(|content| content.change < 0) {
            let n_after = content.n_before.saturating_sub(content.change.unsigned_abs());
            let ordinals = n_after.max(1)..content.n_before;
            keys.extend(ordinals.map(|ordinal| further_key(&content.content, ordinal)));
        }
        keys.sort_unstable();
        let sorted: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let values = self.state.get_sorted(&sorted)?;
        let handles: Vec<i64> = values
            .into_iter()
            .map(|value| value.ok_or_else(|| Error::corrupt("an ordinal of a view's row has no handle")))
            .map(|value| value.and_then(|value| Ok(decode_u64(value)? as i64)))
            .collect::<Result<_>>()?;
        Ok(keys.into_iter().zip(handles).collect())
    }
}

impl Changes {
    /// Takes one content from `n_before` rows to `n_after`.
    fn apply(
        &mut self,
        table: i64,
        content: &ContentChange,
        n_after: u64,
        removed: &BTreeMap<Vec<u8>, i64>,
    ) -> Result<()> {
        let mut first_handle = content.first_handle;
        for ordinal in content.n_before..n_after {
            let handle = self.next_handle(vnode(&content.content))?;
            let key = record_key(table, &Handle::Int(handle));
            let put = Mutation::put(key, content.content.clone()).asserting(Assertion::NotExist);
            self.mutations.push(put);
            if ordinal == 0 {
                first_handle = Some(handle);
            } else {
                let value = Some(handle.to_be_bytes().to_vec());
                self.entries.insert(further_key(&content.content, ordinal), value);
            }
        }
        for ordinal in n_after..content.n_before {
            let handle = if ordinal == 0 {
                first_handle.take().ok_or_else(|| Error::corrupt("a view's row has no handle"))?
            } else {
                let key = further_key(&content.content, ordinal);
                let handle =
                    *removed.get(&key).ok_or_else(|| Error::corrupt("a view's row has no handle"))?;
                self.entries.insert(key, None);
                handle
            };
            let key = record_key(table, &Handle::Int(handle));
            self.mutations.push(Mutation::delete(key).asserting(Assertion::Exist));
        }
        self.entries
            .insert(content.first_key.clone(), first_handle.map(|handle| encode_first(handle, n_after)));
        Ok(())
    }

    fn next_handle(&mut self, vnode: VNode) -> Result<i64> {
        let counter = self.counters.entry(vnode).or_insert(0);
        if *counter >> COUNTER_BITS != 0 {
            return Err(Error::invalid(format!("the handles of vnode {} are used up", vnode.0)));
        }
        let handle = i64::from(vnode.0) << COUNTER_BITS | *counter as i64;
        *counter += 1;
        Ok(handle)
    }
}

fn run_of(entries: &BTreeMap<Vec<u8>, Option<Vec<u8>>>) -> Run {
    let mut builder = RunBuilder::new(StateKind::Map);
    for (key, value) in entries {
        builder.push_value(key, value.as_deref());
    }
    builder.finish()
}

fn negative(encoder: &RowEncoder, content: &ContentChange) -> Fault {
    let (n_before, n_taken) = (content.n_before, content.change.unsigned_abs());
    Fault {
        reason: format!("{n_taken} rows are taken back where {n_before} are stored"),
        key: Some(describe_content(encoder, &content.content)),
    }
}

/// A row in words.
fn describe_content(encoder: &RowEncoder, content: &[u8]) -> String {
    tidb::describe_row(encoder.table(), content)
}

fn state_key(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut key = keyed(content);
    key.insert(operators::HASH_BYTES, tag);
    key
}

fn further_key(content: &[u8], ordinal: u64) -> Vec<u8> {
    let mut key = state_key(TAG_FURTHER, content);
    key.extend_from_slice(&ordinal.to_be_bytes());
    key
}

fn counter_key(vnode: VNode) -> Vec<u8> {
    vec![vnode.0, 0, 0, 0, TAG_COUNTER]
}

fn encode_first(handle: i64, count: u64) -> Vec<u8> {
    let mut value = handle.to_be_bytes().to_vec();
    if count > 1 {
        value.extend_from_slice(&count.to_be_bytes());
    }
    value
}

fn decode_first(value: &[u8]) -> Result<(i64, u64)> {
    match value.len() {
        8 => Ok((decode_u64(value)? as i64, 1)),
        16 => Ok((decode_u64(&value[..8])? as i64, decode_u64(&value[8..])?)),
        n => Err(Error::corrupt(format!("entry of {n} bytes for a view's row"))),
    }
}

fn decode_u64(value: &[u8]) -> Result<u64> {
    let bytes = <[u8; 8]>::try_from(value);
    bytes.map(u64::from_be_bytes).map_err(|_| Error::corrupt("a number that has not 8 bytes"))
}
