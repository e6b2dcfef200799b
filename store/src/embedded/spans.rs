//! Between which keys large commits lie, so that a feed of other keys passes them by.
//!
//! Only of pieces whose timestamp the store drew: they are written at once and never added to. What is
//! remembered is bounded; what is forgotten is looked up again.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use types::Timestamp;

use crate::traits::{Key, KeyRange};

/// The most commits that are remembered: two keys each.
const COMMITS_MAX: usize = 4096;

/// First and last keys of commits, by commit timestamp.
#[derive(Debug, Default)]
pub(crate) struct Spans {
    known: Mutex<BTreeMap<Timestamp, (Key, Key)>>,
}

impl Spans {
    pub(crate) fn get(&self, commit_ts: Timestamp) -> Option<(Key, Key)> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&commit_ts).cloned()
    }

    pub(crate) fn note(&self, commit_ts: Timestamp, span: (Key, Key)) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(commit_ts, span);
        if known.len() > COMMITS_MAX {
            known.pop_first();
        }
    }
}

/// Whether any of some ranges may hold a key between two, both included.
pub(crate) fn meets(ranges: &[KeyRange], (first, last): &(Key, Key)) -> bool {
    ranges.iter().any(|range| range.start <= *last && (range.end.is_empty() || *first < range.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_meets_a_span_at_its_ends_only_where_it_has_a_key() {
        let span = (Key::from_static(b"d"), Key::from_static(b"m"));
        let met = |start: &'static str, end: &'static str| {
            meets(&[KeyRange { start: start.as_bytes().into(), end: end.as_bytes().into() }], &span)
        };
        assert!(met("a", "e") && met("m", "n") && met("f", "g") && met("a", "") && met("", ""));
        assert!(!met("a", "d") && !met("ma", "z") && !met("n", ""));
    }

    #[test]
    fn the_oldest_commit_is_forgotten_first() {
        let spans = Spans::default();
        let key = Key::from_static(b"k");
        for ts in 1..=COMMITS_MAX as u64 + 1 {
            spans.note(Timestamp(ts), (key.clone(), key.clone()));
        }
        assert_eq!(spans.get(Timestamp(1)), None);
        assert!(spans.get(Timestamp(2)).is_some() && spans.get(Timestamp(COMMITS_MAX as u64 + 1)).is_some());
    }
}
