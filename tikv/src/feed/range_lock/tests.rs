//! The cover has no gap and the frontier no leap, whatever regions come and go.

use proptest::prelude::*;

use super::*;

fn part(start: &'static str, end: &'static str) -> Part {
    Part::new(start, end)
}

fn whole() -> RangeLock {
    RangeLock::new(&[part("b", "m"), part("p", "")], Timestamp(10))
}

fn start(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn held(ts: u64) -> Lock {
    Lock::Held { ts: Timestamp(ts), n_failures: 0 }
}

#[test]
fn a_fresh_lock_is_unlocked_at_its_start() {
    let lock = whole();
    assert_eq!(lock.frontier(), Some(Timestamp(10)));
    let parts: Vec<Part> = lock.unlocked().into_iter().map(|unlocked| unlocked.part).collect();
    assert_eq!(parts, [part("b", "m"), part("p", "")]);
    assert_eq!(RangeLock::new(&[part("b", "b")], Timestamp(1)).frontier(), None);
}

#[test]
fn what_is_not_subscribed_holds_the_frontier() {
    let mut lock = whole();
    assert_eq!(lock.lock(&part("c", "f"), 1, 5), held(10));
    assert_eq!(lock.lock(&part("p", ""), 2, 5), held(10));
    assert!(lock.advance(&start("c"), 1, Timestamp(30)));
    assert!(lock.advance(&start("p"), 2, Timestamp(40)));
    assert!(!lock.advance(&start("p"), 2, Timestamp(35)), "it never falls");
    assert!(!lock.advance(&start("p"), 3, Timestamp(50)), "nor is it raised by another");
    assert_eq!(lock.frontier(), Some(Timestamp(10)), "b to c and f to m are not subscribed");
    assert_eq!(lock.lock(&part("b", "c"), 3, 5), held(10));
    assert_eq!(lock.lock(&part("f", "m"), 4, 5), held(10));
    assert!(lock.unlocked().is_empty());
    assert!(lock.advance(&start("b"), 3, Timestamp(20)) && lock.advance(&start("f"), 4, Timestamp(25)));
    assert_eq!(lock.frontier(), Some(Timestamp(20)));
}

#[test]
fn versions_tell_the_stale_from_the_early() {
    let mut lock = whole();
    assert_eq!(lock.lock(&part("c", "f"), 1, 5), held(10));
    assert_eq!(lock.lock(&part("b", "d"), 2, 5), Lock::Stale);
    assert_eq!(lock.lock(&part("b", "d"), 2, 4), Lock::Stale);
    assert_eq!(lock.lock(&part("b", "d"), 2, 6), Lock::Wait);
    lock.unlock(&start("c"), 7, true);
    assert_eq!(lock.lock(&part("b", "d"), 2, 6), Lock::Wait, "only the holder lets go");
    lock.unlock(&start("c"), 1, false);
    assert_eq!(lock.lock(&part("b", "d"), 2, 6), held(10));
    assert_eq!(lock.unlocked()[0].part, part("d", "f"), "what sticks out stays");
}

#[test]
fn parts_that_are_not_covered_are_refused() {
    let mut lock = whole();
    for outside in
        [part("a", "c"), part("l", "q"), part("m", "p"), part("l", ""), part("n", "o"), part("c", "c")]
    {
        assert_eq!(lock.lock(&outside, 1, 1), Lock::Outside, "{outside:?}");
    }
}

#[test]
fn a_split_inherits_and_a_merge_takes_the_least() {
    let mut lock = whole();
    lock.lock(&part("b", "m"), 1, 5);
    lock.advance(&start("b"), 1, Timestamp(30));
    lock.unlock(&start("b"), 1, false);
    assert_eq!(lock.lock(&part("b", "e"), 2, 6), held(30));
    assert_eq!(lock.lock(&part("e", "m"), 3, 6), held(30));
    lock.advance(&start("b"), 2, Timestamp(50));
    lock.advance(&start("e"), 3, Timestamp(40));
    lock.unlock(&start("b"), 2, false);
    lock.unlock(&start("e"), 3, true);
    assert_eq!(lock.lock(&part("b", "m"), 4, 7), Lock::Held { ts: Timestamp(40), n_failures: 1 });
    assert_eq!(lock.ts_of(&start("e")), None);
}

#[test]
fn failures_in_a_row_end_with_progress() {
    let mut lock = whole();
    for n_failures in 0..3 {
        assert_eq!(lock.lock(&part("b", "m"), 1, 5), Lock::Held { ts: Timestamp(10), n_failures });
        lock.unlock(&start("b"), 1, true);
    }
    lock.lock(&part("b", "m"), 1, 5);
    lock.advance(&start("b"), 1, Timestamp(11));
    lock.unlock(&start("b"), 1, true);
    assert_eq!(lock.unlocked()[0].n_failures, 1);
}

#[derive(Clone, Debug)]
enum Step {
    Lock { from: u8, to: u8, version: u64 },
    Advance { which: usize, by: u64 },
    Unlock { which: usize, failed: bool },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..20u8, 0..20u8, 0..5u64).prop_map(|(from, to, version)| Step::Lock { from, to, version }),
        3 => (any::<usize>(), 1..9u64).prop_map(|(which, by)| Step::Advance { which, by }),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(which, failed)| Step::Unlock { which, failed }),
    ]
}

fn key(number: u8) -> Bytes {
    Bytes::copy_from_slice(&[number + 1])
}

proptest! {
    /// Against a model with one cell per key: its timestamp and its holder.
    #[test]
    fn it_agrees_with_a_model_of_cells(steps in prop::collection::vec(step(), 1..60)) {
        const N: u8 = 20;
        let whole = [Part { start: key(0), end: key(8) }, Part { start: key(10), end: key(N) }];
        let mut lock = RangeLock::new(&whole, Timestamp(100));
        let inside = |cell: u8| !(8..10).contains(&cell);
        let mut cells: Vec<(u64, Option<(u64, u64)>)> = vec![(100, None); usize::from(N)];
        let mut holders: Vec<(u64, u8, u8)> = Vec::new();
        let mut frontier = Timestamp(100);
        for (id, step) in (1u64..).zip(steps) {
            match step {
                Step::Lock { from, to, version } => {
                    let range = usize::from(from)..usize::from(to).max(usize::from(from));
                    let got = lock.lock(&Part { start: key(from), end: key(to) }, id, version);
                    let crosses = from < 8 && to > 8;
                    let is_newer = |cell: &(u64, Option<(u64, u64)>)| cell.1.is_some_and(|one| one.1 >= version);
                    let expected = if from >= to || crosses || !(from..to).all(inside) {
                        Lock::Outside
                    } else if cells[range.clone()].iter().any(is_newer) {
                        Lock::Stale
                    } else if cells[range.clone()].iter().any(|cell| cell.1.is_some()) {
                        Lock::Wait
                    } else {
                        let ts = cells[range.clone()].iter().map(|cell| cell.0).min().expect("not empty");
                        cells[range].fill((ts, Some((id, version))));
                        holders.push((id, from, to));
                        Lock::Held { ts: Timestamp(ts), n_failures: 0 }
                    };
                    let got = match got {
                        Lock::Held { ts, .. } => Lock::Held { ts, n_failures: 0 },
                        other => other,
                    };
                    prop_assert_eq!(got, expected);
                }
                Step::Advance { which, by } => {
                    if let Some((id, from, to)) = holders.get(which % holders.len().max(1)).copied() {
                        let ts = cells[usize::from(from)].0 + by;
                        prop_assert!(lock.advance(&key(from), id, Timestamp(ts)));
                        cells[usize::from(from)..usize::from(to)].iter_mut().for_each(|cell| cell.0 = ts);
                    }
                }
                Step::Unlock { which, failed } => {
                    if !holders.is_empty() {
                        let (id, from, to) = holders.remove(which % holders.len());
                        lock.unlock(&key(from), id, failed);
                        cells[usize::from(from)..usize::from(to)].iter_mut().for_each(|cell| cell.1 = None);
                    }
                }
            }
            let least = (0..N).filter(|cell| inside(*cell)).map(|cell| cells[usize::from(cell)].0).min();
            prop_assert_eq!(lock.frontier().map(|ts| ts.0), least);
            prop_assert!(lock.frontier() >= Some(frontier), "the frontier never falls");
            frontier = lock.frontier().expect("there are ranges");
            for cell in (0..N).filter(|cell| inside(*cell)) {
                let is_at = |part: &Part| part.start <= key(cell) && key(cell) < part.end;
                let free = lock.unlocked().iter().any(|one| is_at(&one.part));
                prop_assert_eq!(free, cells[usize::from(cell)].1.is_none());
            }
        }
    }
}
