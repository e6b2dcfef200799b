//! Left rows by whether their key has a match: semi, anti and left joins without a condition, NOT IN.
//!
//! With `pass` saying whether a key's left rows come out, the change is L·(after - before) + dL·after.

use types::{Error, Result};

use super::pairs::{LeftRows, multiply};
use super::{Found, Work, key_ranges};
use crate::arrange::part_of;
use crate::encoding::{HASH_BYTES, keyed};
use crate::merge::{Merge, Merged};
use crate::plan::JoinKind;
use crate::run::{Run, StateKind, hash_of};

/// What NOT IN asks of the right side as a whole.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Whole {
    is_empty: bool,
    has_null: bool,
}

impl Work<'_> {
    pub(super) fn put_out_existing(&self, found: &mut Found) -> Result<()> {
        let whole = match self.shape.kind {
            JoinKind::LeftAntiNullAware => Some((self.whole(false)?, self.whole(true)?)),
            _ => None,
        };
        let looks_at_all = whole.is_some_and(|(before, after)| before != after);
        let keys = if looks_at_all { self.all_left_keys()? } else { self.changed_keys()? };
        let (Some(first), Some(last)) = (keys.first(), keys.last()) else {
            return Ok(());
        };
        let hashes = hash_of(first)..=hash_of(last);
        let left_runs = self.left_state.runs(hashes.clone())?;
        let before_runs = self.right_state.runs(hashes)?;
        let mut after_runs = before_runs.clone();
        after_runs.push(self.right_delta);
        let mut rows = LeftRows::new();
        for key in keys {
            let matches_before = exists(&before_runs, key)?;
            let is_right_changed = !self.right_delta.prefix_range(key).is_empty();
            let matches_after = if is_right_changed { exists(&after_runs, key)? } else { matches_before };
            let before = self.passes(key, matches_before, whole.map(|whole| whole.0))?;
            let after = self.passes(key, matches_after, whole.map(|whole| whole.1))?;
            if after {
                for index in self.left_delta.prefix_range(key) {
                    let weight = self.left_delta.weight(index);
                    rows.push(self.left_delta.key(index), weight, self.shape, found)?;
                }
            }
            if before != after {
                let sign = if after { 1 } else { -1 };
                for run in &left_runs {
                    for index in run.prefix_range(key) {
                        rows.push(run.key(index), multiply(run.weight(index), sign)?, self.shape, found)?;
                    }
                }
            }
        }
        rows.put_out(self.shape, found)
    }

    /// Whether left rows of a key come out.
    fn passes(&self, key: &[u8], has_match: bool, whole: Option<Whole>) -> Result<bool> {
        Ok(match (self.shape.kind, whole) {
            (JoinKind::LeftSemi, _) => has_match,
            (JoinKind::Left | JoinKind::LeftAnti, _) => !has_match,
            (JoinKind::LeftAntiNullAware, Some(whole)) => {
                let is_null = key[HASH_BYTES] == 0;
                whole.is_empty || !(is_null || whole.has_null || has_match)
            }
            _ => return Err(Error::invalid("this join does not ask for existence")),
        })
    }

    /// The right side as a whole, before or after the epoch.
    fn whole(&self, is_after: bool) -> Result<Whole> {
        let mut runs = self.right_state.runs(0..=u32::MAX)?;
        if is_after {
            runs.push(self.right_delta);
        }
        let mut all = Merge::new(StateKind::Multiset, runs.iter().map(|run| (*run, 0..run.n_rows())));
        let is_empty = all.next_entry()?.is_none();
        let n_bytes = self.shape.right_layout.codec.fixed_length().unwrap_or(1);
        let null_key = keyed(&vec![0; n_bytes]);
        Ok(Whole { is_empty, has_null: exists(&runs, &null_key)? })
    }

    /// The keys of either delta in this shard, in order, each once.
    fn changed_keys(&self) -> Result<Vec<&[u8]>> {
        let left = key_ranges(self.left_delta, &self.shape.left_layout, self.left_range.clone())?;
        let right = key_ranges(self.right_delta, &self.shape.right_layout, self.right_range.clone())?;
        let mut keys: Vec<&[u8]> = left.into_iter().chain(right).map(|(key, _)| key).collect();
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }

    /// The keys of all left rows in this shard, before and after the epoch.
    fn all_left_keys(&self) -> Result<Vec<&[u8]>> {
        let mut keys = Vec::new();
        for run in self.left_state.runs(self.hashes.clone())? {
            let ranges = key_ranges(run, &self.shape.left_layout, part_of(run, &self.hashes))?;
            keys.extend(ranges.into_iter().map(|(key, _)| key));
        }
        keys.extend(self.changed_keys()?);
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }
}

/// Whether the runs together hold a row of the key.
fn exists(runs: &[&Run], key: &[u8]) -> Result<bool> {
    let mut parts =
        runs.iter().map(|run| (*run, run.prefix_range(key))).filter(|(_, range)| !range.is_empty());
    let Some((run, range)) = parts.next() else {
        return Ok(false);
    };
    match parts.next() {
        // Entries of one run are never 0, and those of the oldest are positive.
        None => Ok(range.into_iter().any(|index| run.weight(index) > 0)),
        Some(second) => {
            let parts = [(run, range), second].into_iter().chain(parts);
            let next = Merge::new(StateKind::Multiset, parts).next_entry()?;
            Ok(matches!(next, Some((_, Merged::Weight(1..)))))
        }
    }
}
