//! Merging of runs: one ordered pass over several, equal keys combined.

use types::Result;

use crate::run::{Run, RunBuilder, StateKind, add_weights, order_prefix};

/// A pass over entries of several runs in the order of keys, each key once.
///
/// Of a multiset, weights are added and rows of weight 0 left out; of a map, the newest entry counts.
#[derive(Debug)]
pub struct Merge<'a> {
    kind: StateKind,
    /// Oldest first.
    cursors: Vec<Cursor<'a>>,
    /// Positions in `cursors`, a binary heap, least key (then oldest) first.
    heap: Vec<usize>,
}

#[derive(Debug)]
struct Cursor<'a> {
    run: &'a Run,
    next: usize,
    end: usize,
    prefix: u64,
    key: &'a [u8],
}

/// What a merge found for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merged<'a> {
    /// The weight of a row of a multiset, not 0.
    Weight(i64),
    /// The value of a key of a map.
    Value(&'a [u8]),
    /// The newest entry says that the key is gone.
    Deleted,
}

impl<'a> Merge<'a> {
    /// A pass over parts of runs, oldest first.
    #[must_use]
    pub fn new(
        kind: StateKind,
        parts: impl IntoIterator<Item = (&'a Run, std::ops::Range<usize>)>,
    ) -> Merge<'a> {
        let mut cursors = Vec::new();
        for (run, range) in parts {
            if !range.is_empty() {
                let key = run.key(range.start);
                cursors.push(Cursor {
                    run,
                    next: range.start,
                    end: range.end,
                    prefix: order_prefix(key),
                    key,
                });
            }
        }
        let mut merge = Merge { kind, heap: (0..cursors.len()).collect(), cursors };
        for at in (0..merge.heap.len() / 2).rev() {
            merge.sift_down(at);
        }
        merge
    }

    /// The next key and what is known about it; deleted keys of a map included.
    ///
    /// # Errors
    /// `Corrupt` if weights overflow.
    pub fn next_entry(&mut self) -> Result<Option<(&'a [u8], Merged<'a>)>> {
        while let Some(&top) = self.heap.first() {
            let key = self.cursors[top].key;
            match self.kind {
                StateKind::Multiset => {
                    let mut weight = 0;
                    while let Some(run_weight) = self.take_equal(key, |run, index| run.weight(index)) {
                        weight = add_weights(weight, run_weight)?;
                    }
                    if weight != 0 {
                        return Ok(Some((key, Merged::Weight(weight))));
                    }
                }
                StateKind::Map => {
                    let mut newest = None;
                    while let Some(value) = self.take_equal(key, Run::value) {
                        newest = value;
                    }
                    return Ok(Some((key, newest.map_or(Merged::Deleted, Merged::Value))));
                }
            }
        }
        Ok(None)
    }

    /// Takes the least entry if it has this key.
    fn take_equal<T>(&mut self, key: &[u8], read: impl Fn(&'a Run, usize) -> T) -> Option<T> {
        let top = *self.heap.first()?;
        let cursor = &mut self.cursors[top];
        if cursor.key != key {
            return None;
        }
        let taken = read(cursor.run, cursor.next);
        cursor.next += 1;
        if cursor.next < cursor.end {
            cursor.key = cursor.run.key(cursor.next);
            cursor.prefix = order_prefix(cursor.key);
        } else {
            self.heap.swap_remove(0);
        }
        self.sift_down(0);
        Some(taken)
    }

    fn is_before(&self, left: usize, right: usize) -> bool {
        let (left, right) = (self.heap[left], self.heap[right]);
        let (a, b) = (&self.cursors[left], &self.cursors[right]);
        a.prefix.cmp(&b.prefix).then_with(|| a.key.cmp(b.key)).then(left.cmp(&right)).is_lt()
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let mut least = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.heap.len() && self.is_before(child, least) {
                    least = child;
                }
            }
            if least == at {
                return;
            }
            self.heap.swap(at, least);
            at = least;
        }
    }
}

/// Whether a merge keeps the entries that say that a key is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deletions {
    /// There may be older entries elsewhere.
    Keep,
    /// The merge includes the oldest run.
    Drop,
}

/// Merges whole runs, oldest first, into runs of at most about `n_bytes_max` bytes of data each.
///
/// # Errors
/// `Corrupt` if weights overflow.
pub(crate) fn merge_runs(
    kind: StateKind,
    runs: &[&Run],
    deletions: Deletions,
    n_bytes_max: usize,
) -> Result<Vec<Run>> {
    let mut merge = Merge::new(kind, runs.iter().map(|run| (*run, 0..run.n_rows())));
    let mut merged = Vec::new();
    let mut builder = RunBuilder::new(kind);
    while let Some((key, entry)) = merge.next_entry()? {
        match entry {
            Merged::Weight(weight) => builder.push_weight(key, weight),
            Merged::Value(value) => builder.push_value(key, Some(value)),
            Merged::Deleted if deletions == Deletions::Keep => builder.push_value(key, None),
            Merged::Deleted => {}
        }
        if builder.n_bytes() >= n_bytes_max {
            merged.push(std::mem::replace(&mut builder, RunBuilder::new(kind)).finish());
        }
    }
    if builder.n_rows() > 0 {
        merged.push(builder.finish());
    }
    Ok(merged)
}

/// A pass over rows of a multiset from the greatest down, each row once, none of weight 0.
#[derive(Debug)]
pub(crate) struct MergeBack<'a> {
    parts: Vec<(&'a Run, std::ops::Range<usize>)>,
}

impl<'a> MergeBack<'a> {
    pub(crate) fn new(parts: Vec<(&'a Run, std::ops::Range<usize>)>) -> MergeBack<'a> {
        MergeBack { parts }
    }

    pub(crate) fn next_weight(&mut self) -> Result<Option<(&'a [u8], i64)>> {
        loop {
            self.parts.retain(|(_, range)| !range.is_empty());
            let Some(greatest) = self.parts.iter().map(|(run, range)| run.key(range.end - 1)).max() else {
                return Ok(None);
            };
            let mut weight = 0;
            for (run, range) in &mut self.parts {
                if run.key(range.end - 1) == greatest {
                    range.end -= 1;
                    weight = add_weights(weight, run.weight(range.end))?;
                }
            }
            if weight != 0 {
                return Ok(Some((greatest, weight)));
            }
        }
    }
}
