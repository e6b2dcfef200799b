//! Which keys committed together with their primary, for the second half's question after the first.
//!
//! Whoever drives a transaction in halves commits its secondaries when the primary is decided. Staged ones
//! are committed by then; that is answered from here, without a look at every key. What is remembered is
//! bounded; what is forgotten is looked up.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use types::Timestamp;

use crate::traits::Key;

/// The most keys that are remembered; the newest transaction is, however large, up to so many.
const KEYS_MAX: usize = 65_536;

/// The newest transactions that took keys along.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    known: Mutex<VecDeque<Transaction>>,
}

#[derive(Debug)]
struct Transaction {
    start_ts: Timestamp,
    commit_ts: Timestamp,
    /// In order.
    keys: Vec<Key>,
}

impl Taken {
    /// Notes keys, in order, that have committed.
    pub(crate) fn note(&self, start_ts: Timestamp, commit_ts: Timestamp, keys: Vec<Key>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.push_back(Transaction { start_ts, commit_ts, keys });
        let mut n_keys: usize = known.iter().map(|one| one.keys.len()).sum();
        while n_keys > KEYS_MAX {
            n_keys -= known.pop_front().map_or(0, |oldest| oldest.keys.len());
        }
    }

    /// Whether keys are known to have committed at a timestamp.
    pub(crate) fn has(&self, start_ts: Timestamp, commit_ts: Timestamp, keys: &[Key]) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let of_it = known.iter().rev().find(|one| one.start_ts == start_ts && one.commit_ts == commit_ts);
        of_it.is_some_and(|one| keys.iter().all(|key| one.keys.binary_search(key).is_ok()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_taken_along_is_known() {
        let taken = Taken::default();
        let key = |number: usize| Key::from(format!("{number:08}"));
        taken.note(Timestamp(1), Timestamp(2), vec![key(1), key(3)]);
        let has = |start, commit, keys: &[Key]| taken.has(Timestamp(start), Timestamp(commit), keys);
        assert!(has(1, 2, &[key(3), key(1)]) && has(1, 2, &[]));
        assert!(!has(1, 2, &[key(1), key(2)]) && !has(1, 3, &[key(1)]) && !has(2, 2, &[key(1)]));
        taken.note(Timestamp(5), Timestamp(6), (0..KEYS_MAX).map(key).collect());
        assert!(!has(1, 2, &[key(1)]), "the oldest is forgotten first");
        assert!(has(5, 6, &[key(KEYS_MAX - 1)]));
    }
}
