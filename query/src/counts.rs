//! What was counted of the changes since views' cuts, when they were too many for a read fix.
//!
//! The changes in (S_k, T] are among those in (S_k, T'] for every T' after T. So a statement that comes
//! later, while the cut and the keys that are wanted are the same, need not read as many changes again to
//! know that there are too many. Nothing here decides an answer, only how soon a statement goes Live.
//! Bounded: a view that was read long ago is forgotten.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use store::KeyRange;
use types::{TableId, Timestamp};

/// Views that are remembered.
const VIEWS_MAX: usize = 256;
/// Counts that are remembered of a view.
const COUNTS_MAX: usize = 8;

/// The keys of a view's base tables that were looked at, by table.
pub(crate) type Looked = Vec<(TableId, Vec<KeyRange>)>;

/// So many changes, or more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) n_changes: u64,
    /// Pages that they were read in; many if they lie among many others.
    pub(crate) n_pages: usize,
}

#[derive(Debug)]
struct Known {
    cut: Timestamp,
    at: Timestamp,
    looked: Looked,
    counted: Counted,
}

/// The newest counts of each view.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    views: Mutex<BTreeMap<TableId, VecDeque<Known>>>,
}

impl Counts {
    fn views(&self) -> MutexGuard<'_, BTreeMap<TableId, VecDeque<Known>>> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many changes there are at least in (`cut`, `at`], if that was counted.
    pub(crate) fn at_least(
        &self,
        view: TableId,
        cut: Timestamp,
        at: Timestamp,
        looked: &Looked,
    ) -> Option<Counted> {
        let views = self.views();
        let same = |known: &&Known| known.cut == cut && known.at <= at && known.looked == *looked;
        views.get(&view)?.iter().rev().find(same).map(|known| known.counted)
    }

    /// Remembers that there are so many changes, or more, in (`cut`, `at`].
    pub(crate) fn note(
        &self,
        view: TableId,
        cut: Timestamp,
        at: Timestamp,
        looked: Looked,
        counted: Counted,
    ) {
        let mut views = self.views();
        if !views.contains_key(&view) && views.len() >= VIEWS_MAX {
            // Any will do: it is counted again when it is read.
            views.pop_first();
        }
        let known = views.entry(view).or_default();
        // What was counted later says less: it holds from a later time on.
        known.retain(|old| old.cut != cut || old.looked != looked || old.at < at);
        if known.len() >= COUNTS_MAX {
            known.pop_front();
        }
        known.push_back(Known { cut, at, looked, counted });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ts(ms: u64) -> Timestamp {
        Timestamp::from_parts(ms, 0)
    }

    fn looked(key: &'static [u8]) -> Looked {
        vec![(TableId(1), vec![KeyRange::prefix(key)])]
    }

    #[test]
    fn a_count_holds_for_the_same_cut_and_keys_and_later_times() {
        let (counts, view) = (Counts::default(), TableId(7));
        let counted = Counted { n_changes: 5, n_pages: 1 };
        counts.note(view, ts(10), ts(20), looked(b"a"), counted);
        let check = |view, cut, at, key, expected| {
            assert_eq!(counts.at_least(view, cut, at, &looked(key)), expected);
        };
        check(view, ts(10), ts(20), b"a", Some(counted));
        check(view, ts(10), ts(99), b"a", Some(counted));
        check(view, ts(10), ts(19), b"a", None);
        check(view, ts(11), ts(20), b"a", None);
        check(view, ts(10), ts(20), b"b", None);
        check(TableId(8), ts(10), ts(20), b"a", None);
        // An earlier time says it all; a later one does not forget it.
        counts.note(view, ts(10), ts(15), looked(b"a"), counted);
        check(view, ts(10), ts(15), b"a", Some(counted));
        counts.note(view, ts(10), ts(30), looked(b"a"), Counted { n_changes: 9, n_pages: 2 });
        check(view, ts(10), ts(16), b"a", Some(counted));
        check(view, ts(10), ts(30), b"a", Some(Counted { n_changes: 9, n_pages: 2 }));
    }

    #[test]
    fn only_so_much_is_remembered() {
        let counts = Counts::default();
        for view in 0..2 * VIEWS_MAX as u64 {
            for cut in 0..2 * COUNTS_MAX as u64 {
                counts.note(TableId(view), ts(cut), ts(99), looked(b"a"), Counted::default());
            }
        }
        assert_eq!(counts.views().len(), VIEWS_MAX);
        assert!(counts.views().values().all(|known| known.len() == COUNTS_MAX));
    }
}
