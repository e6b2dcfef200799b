//! Which commits lie between which keys: a feed of other keys passes them by without a look at the index.
//!
//! Every commit of this process is noted before it is visible, so what is known is complete from a timestamp
//! on; before that the index is asked. Small commits that follow each other are one stretch, a large one is a
//! stretch of its own. What is remembered is bounded; the oldest is forgotten first.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use types::Timestamp;

use super::spans::meets;
use crate::traits::{Key, KeyRange};

/// The most stretches that are remembered: two keys each.
const STRETCHES_MAX: usize = 16_384;
/// The most commits of one stretch.
const COMMITS_MAX: usize = 256;
/// The most parts of the keys of one stretch; of more only the ends are known.
const PARTS_MAX: usize = 8;
/// Keys that begin with the same bytes are one part: mostly they are one table's.
const ALIKE_BYTES: usize = 9;

/// The least and the greatest of some keys.
type Part = (Key, Key);

/// What is known of the newest commits.
#[derive(Debug)]
pub(crate) struct Stretches {
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    /// Every commit above it is in a stretch.
    since: Timestamp,
    /// In order and apart.
    stretches: VecDeque<Stretch>,
}

#[derive(Debug)]
struct Stretch {
    first: Timestamp,
    last: Timestamp,
    n_commits: usize,
    /// Nothing is added to it but what is in between.
    is_large: bool,
    /// Where its keys are.
    parts: Vec<Part>,
}

/// Where some keys are, which come in order.
pub(crate) fn parts_of<'a>(keys: impl Iterator<Item = &'a Key>) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for key in keys {
        match parts.last_mut() {
            Some(last) if alike(&last.0, key) => last.1 = key.clone(),
            _ => parts.push((key.clone(), key.clone())),
        }
    }
    few(parts)
}

fn alike(left: &[u8], right: &[u8]) -> bool {
    let beginning = |key: &[u8]| key.len().min(ALIKE_BYTES);
    left[..beginning(left)] == right[..beginning(right)]
}

/// The same keys in not too many parts.
fn few(parts: Vec<Part>) -> Vec<Part> {
    if parts.len() <= PARTS_MAX {
        return parts;
    }
    let ends = parts.into_iter().reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
    ends.into_iter().collect()
}

impl Stretches {
    /// Nothing is known up to a timestamp.
    pub(crate) fn since(since: Timestamp) -> Stretches {
        Stretches { known: Mutex::new(Known { since, stretches: VecDeque::new() }) }
    }

    /// Notes a commit, or more of one, and where its keys are.
    pub(crate) fn note(&self, commit_ts: Timestamp, parts: Vec<Part>, is_large: bool) {
        self.known().note(commit_ts, parts, is_large);
    }

    /// The parts of (`after`, `to`] whose commits may have changed a key of some ranges, in order; each
    /// without its beginning and with its end.
    pub(crate) fn worth_a_look(
        &self,
        ranges: &[KeyRange],
        after: Timestamp,
        to: Timestamp,
    ) -> Vec<(Timestamp, Timestamp)> {
        let known = self.known();
        let mut parts = Vec::new();
        if after < known.since {
            parts.push((after, to.min(known.since)));
        }
        let begin = known.stretches.partition_point(|stretch| stretch.last <= after);
        for stretch in known.stretches.range(begin..).take_while(|stretch| stretch.first <= to) {
            if stretch.parts.iter().any(|part| meets(ranges, part)) {
                parts.push((stretch.first.prev().max(after), stretch.last.min(to)));
            }
        }
        parts
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn note(&mut self, commit_ts: Timestamp, parts: Vec<Part>, is_large: bool) {
        if commit_ts <= self.since {
            return;
        }
        // Nearly always the newest; a commit at a named timestamp may come later than newer ones.
        let at = match self.stretches.back() {
            Some(newest) if commit_ts > newest.last => self.stretches.len(),
            _ => self.stretches.partition_point(|stretch| stretch.last < commit_ts),
        };
        let is_within = self.stretches.get(at).is_some_and(|next| next.first <= commit_ts);
        let before = at.checked_sub(1).and_then(|before| self.stretches.get_mut(before));
        if is_within {
            self.stretches[at].take_in(parts);
        } else if let Some(before) = before.filter(|before| !is_large && before.has_room()) {
            before.last = commit_ts;
            before.n_commits += 1;
            before.take_in(parts);
        } else {
            let stretch = Stretch { first: commit_ts, last: commit_ts, n_commits: 1, is_large, parts };
            self.stretches.insert(at, stretch);
        }
        if self.stretches.len() > STRETCHES_MAX
            && let Some(oldest) = self.stretches.pop_front()
        {
            self.since = oldest.last;
        }
    }
}

impl Stretch {
    fn has_room(&self) -> bool {
        !self.is_large && self.n_commits < COMMITS_MAX
    }

    fn take_in(&mut self, parts: Vec<Part>) {
        for (least, greatest) in parts {
            match self.parts.iter_mut().find(|known| alike(&known.0, &least)) {
                Some(known) => {
                    known.0 = least.min(std::mem::take(&mut known.0));
                    known.1 = greatest.max(std::mem::take(&mut known.1));
                }
                None => self.parts.push((least, greatest)),
            }
        }
        self.parts = few(std::mem::take(&mut self.parts));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(least: &'static str, greatest: &'static str) -> Vec<Part> {
        vec![(Key::from_static(least.as_bytes()), Key::from_static(greatest.as_bytes()))]
    }

    fn looks(stretches: &Stretches, start: &str, end: &str, after: u64, to: u64) -> Vec<(u64, u64)> {
        let ranges = [KeyRange::new(start.to_owned(), end.to_owned())];
        let parts = stretches.worth_a_look(&ranges, Timestamp(after), Timestamp(to));
        parts.into_iter().map(|(after, to)| (after.0, to.0)).collect()
    }

    #[test]
    fn large_commits_of_other_keys_are_passed_by() {
        let stretches = Stretches::since(Timestamp(10));
        for (commit_ts, least, greatest, is_large) in
            [(11, "a", "c", true), (12, "m", "m", false), (13, "n", "n", false), (14, "b", "d", true)]
        {
            stretches.note(Timestamp(commit_ts), keys(least, greatest), is_large);
        }
        assert_eq!(looks(&stretches, "a", "b", 10, 20), [(10, 11)]);
        assert_eq!(looks(&stretches, "c", "e", 10, 20), [(10, 11), (13, 14)]);
        assert_eq!(looks(&stretches, "m", "o", 12, 20), [(12, 13)]);
        assert_eq!(looks(&stretches, "m", "o", 10, 12), [(11, 12)]);
        assert_eq!(looks(&stretches, "x", "z", 10, 20), []);
        assert_eq!(looks(&stretches, "x", "z", 5, 20), [(5, 10)], "what was before is not known");
        assert_eq!(looks(&stretches, "x", "z", 5, 7), [(5, 7)]);
    }

    #[test]
    fn a_commit_at_a_named_timestamp_is_found_wherever_it_falls() {
        let stretches = Stretches::since(Timestamp(10));
        stretches.note(Timestamp(20), keys("a", "a"), true);
        stretches.note(Timestamp(30), keys("a", "a"), false);
        stretches.note(Timestamp(40), keys("a", "a"), false);
        for (commit_ts, key) in [(15, "p"), (20, "q"), (25, "r"), (35, "s"), (9, "t")] {
            stretches.note(Timestamp(commit_ts), keys(key, key), false);
        }
        assert_eq!(looks(&stretches, "p", "q", 10, 50), [(14, 15)]);
        assert_eq!(looks(&stretches, "q", "r", 10, 50), [(19, 20)]);
        assert_eq!(looks(&stretches, "r", "s", 10, 50), [(24, 25)]);
        assert_eq!(looks(&stretches, "s", "t", 10, 50), [(29, 40)]);
        assert_eq!(looks(&stretches, "t", "u", 10, 50), []);
    }

    #[test]
    fn keys_of_one_table_are_one_part_and_many_tables_are_one_too() {
        let keys: Vec<Key> = ["table---1/a", "table---1/b", "table---1/c", "table---3/a", "~"]
            .into_iter()
            .map(|key| Key::from_static(key.as_bytes()))
            .collect();
        let stretches = Stretches::since(Timestamp(0));
        stretches.note(Timestamp(1), parts_of(keys.iter()), true);
        assert_eq!(looks(&stretches, "table---1", "table---2", 0, 9), [(0, 1)]);
        assert_eq!(looks(&stretches, "table---2", "table---3", 0, 9), []);
        assert_eq!(looks(&stretches, "table---4", "~", 0, 9), []);
        assert_eq!(looks(&stretches, "~", "", 0, 9), [(0, 1)]);
        let many: Vec<Key> = (0..=PARTS_MAX).map(|table| Key::from(format!("table---{table}/k"))).collect();
        assert_eq!(parts_of(many.iter()), [(many[0].clone(), many[PARTS_MAX].clone())]);
    }

    #[test]
    fn of_what_is_forgotten_nothing_is_said() {
        let stretches = Stretches::since(Timestamp(0));
        for commit_ts in 1..=STRETCHES_MAX as u64 + 2 {
            stretches.note(Timestamp(commit_ts), keys("k", "k"), true);
        }
        assert_eq!(looks(&stretches, "x", "z", 0, 100), [(0, 2)]);
        assert_eq!(looks(&stretches, "x", "z", 2, 100), []);
    }
}
