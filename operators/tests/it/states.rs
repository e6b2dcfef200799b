//! States against maps in memory: overlays, seals, merges, re-openings; runs against damage.

use std::collections::BTreeMap;
use std::sync::Arc;

use operators::{Manifest, Run, RunBuilder, RunNamer, RunSource, Sealed, State, StateKind, key_hash, keyed};
use proptest::prelude::*;
use types::{Epoch, ErrorKind, Generation, JobId, TableId};

use crate::harness::MemoryRuns;

fn open(kind: StateKind, manifest: &Manifest, runs: &Arc<MemoryRuns>) -> State {
    State::open(kind, manifest, Arc::clone(runs) as Arc<dyn RunSource>)
}

fn key(number: u8) -> Vec<u8> {
    // Keys of several rows share a prefix, as rows of one join key do; some have other lengths.
    let mut key = keyed(&[number / 4]);
    key.extend(std::iter::repeat_n(number % 4, usize::from(number % 3) + 1));
    key
}

/// Seals and checks that the manifest is what a re-opened state needs.
fn seal(state: &mut State, runs: &Arc<MemoryRuns>, epoch: u64) {
    let mut namer = RunNamer::new(JobId(1), Generation(1), Epoch(epoch), TableId(1));
    let mut sealed = Sealed::default();
    let before = state.manifest();
    match state.seal(&mut namer, &mut sealed.runs).unwrap() {
        Some(manifest) => assert_eq!(manifest, state.manifest()),
        None => assert_eq!(before, state.manifest()),
    }
    runs.store(&sealed);
}

proptest! {
    #[test]
    fn a_map_keeps_the_newest(
        epochs in proptest::collection::vec(
            (proptest::collection::vec((0u8..40, proptest::option::of(0usize..600)), 0..30), 0u8..5), 1..14),
        step in prop_oneof![1usize..8, 20usize..400],
    ) {
        let runs = Arc::new(MemoryRuns::default());
        let mut state = open(StateKind::Map, &Manifest::default(), &runs);
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for (epoch, (changes, after)) in epochs.into_iter().enumerate() {
            let newest: BTreeMap<Vec<u8>, Option<Vec<u8>>> = changes
                .into_iter()
                .map(|(number, length)| (key(number), length.map(|length| vec![number; length])))
                .collect();
            let mut builder = RunBuilder::new(StateKind::Map);
            for (key, value) in newest {
                builder.push_value(&key, value.as_deref());
                match value {
                    Some(value) => model.insert(key, value),
                    None => model.remove(&key),
                };
            }
            state.append(builder.finish()).unwrap();
            match after {
                3 => state.compact(usize::MAX),
                4 => state.compact(step),
                _ => {}
            }
            if after > 0 {
                seal(&mut state, &runs, epoch as u64);
            }
            prop_assert!(after != 3 || state.manifest().n_tiers() <= 1, "{:?}", state.manifest());
            if after == 2 {
                state = open(StateKind::Map, &state.manifest(), &runs);
            }
            let mut keys: Vec<Vec<u8>> = (0..40).map(key).collect();
            keys.sort();
            let refs: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let expected: Vec<Option<&[u8]>> = keys.iter().map(|key| model.get(key).map(Vec::as_slice)).collect();
            prop_assert_eq!(state.get_sorted(&refs).unwrap(), expected);
            for group in 0..10u8 {
                let prefix = keyed(&[group]);
                let mut scan = state.scan(&prefix).unwrap();
                let mut found = Vec::new();
                while let Some((key, value)) = scan.next_value().unwrap() {
                    found.push((key.to_vec(), value.to_vec()));
                }
                let expected: Vec<_> =
                    model.iter().filter(|(key, _)| key.starts_with(&prefix)).map(|(k, v)| (k.clone(), v.clone())).collect();
                prop_assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn a_multiset_adds_up(
        epochs in proptest::collection::vec(
            (proptest::collection::vec((0u8..40, prop_oneof![-2i64..3, Just(i64::from(i32::MAX)), Just(127), Just(-128)]), 0..30), 0u8..5), 1..14),
        step in prop_oneof![1usize..8, 20usize..400],
    ) {
        let runs = Arc::new(MemoryRuns::default());
        let mut state = open(StateKind::Multiset, &Manifest::default(), &runs);
        let mut model: BTreeMap<Vec<u8>, i64> = BTreeMap::new();
        for (epoch, (changes, after)) in epochs.into_iter().enumerate() {
            let mut net: BTreeMap<Vec<u8>, i64> = BTreeMap::new();
            for (number, weight) in changes {
                *net.entry(key(number)).or_default() += weight;
                *model.entry(key(number)).or_default() += weight;
            }
            let mut builder = RunBuilder::new(StateKind::Multiset);
            net.iter().filter(|(_, weight)| **weight != 0).for_each(|(key, weight)| builder.push_weight(key, *weight));
            state.append(builder.finish()).unwrap();
            match after {
                3 => state.compact(usize::MAX),
                4 => state.compact(step),
                _ => {}
            }
            if after > 0 {
                seal(&mut state, &runs, epoch as u64);
                prop_assert!(state.manifest().n_tiers() < 12, "merging keeps tiers few: {:?}", state.manifest());
            }
            prop_assert!(after != 3 || state.manifest().n_tiers() <= 1, "{:?}", state.manifest());
            if after == 2 {
                state = open(StateKind::Multiset, &state.manifest(), &runs);
            }
            let overlay = state.clone();
            let mut scan = overlay.scan_all().unwrap();
            let mut found = Vec::new();
            while let Some((key, weight)) = scan.next_weight().unwrap() {
                found.push((key.to_vec(), weight));
            }
            let expected: Vec<_> =
                model.iter().filter(|(_, weight)| **weight != 0).map(|(key, weight)| (key.clone(), *weight)).collect();
            prop_assert_eq!(found, expected);
            let mut keys: Vec<Vec<u8>> = (0..40).map(key).collect();
            keys.sort();
            let refs: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let weights: Vec<i64> = keys.iter().map(|key| model.get(key).copied().unwrap_or(0)).collect();
            prop_assert_eq!(state.weights_sorted(&refs).unwrap(), weights);
        }
    }

    #[test]
    fn a_damaged_run_is_corrupt(at in any::<prop::sample::Index>(), flip in 1u8.., cut in any::<prop::sample::Index>()) {
        let run = some_run();
        let mut bytes = run.bytes().to_vec();
        bytes[at.index(run.n_bytes())] ^= flip;
        prop_assert_eq!(Run::from_bytes(bytes.into()).unwrap_err().kind(), ErrorKind::Corrupt);
        let cut = run.bytes().slice(..cut.index(run.n_bytes()));
        prop_assert_eq!(Run::from_bytes(cut).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

fn some_run() -> Run {
    let mut builder = RunBuilder::new(StateKind::Multiset);
    let mut keys: Vec<Vec<u8>> = (0..40).map(key).collect();
    keys.sort();
    keys.iter().for_each(|key| builder.push_weight(key, 1));
    builder.finish()
}

#[test]
fn golden_bytes_of_runs() {
    let hex = |run: &Run| run.bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut builder = RunBuilder::new(StateKind::Multiset);
    builder.push_weight(&[0, 0, 0, 1, 7], 1);
    builder.push_weight(&[0, 0, 0, 1, 8], -1);
    assert_eq!(
        hex(&builder.finish()),
        "544d5231000000000200000006000000000000000100000001000000010000000c00000000000000020000000000000107010000000108ff558b36dec7ef443c"
    );
    let mut builder = RunBuilder::new(StateKind::Map);
    builder.push_value(&[0, 0, 0, 1], Some(b"ab"));
    builder.push_value(&[9, 0, 0, 1], None);
    assert_eq!(
        hex(&builder.finish()),
        "544d52310100000002000000000000001c0000000100000001000009010000000c000000000000000200000000000000070000000c0000000000000161620209000001febb3c8196a6bc4d59"
    );
}

#[test]
fn every_entry_of_a_large_run_is_found_and_no_other() {
    let mut keys: Vec<Vec<u8>> = (0u32..20_000).map(|number| keyed(&number.to_be_bytes())).collect();
    keys.sort();
    let mut builder = RunBuilder::new(StateKind::Multiset);
    keys.iter().for_each(|key| builder.push_weight(key, 1));
    let run = builder.finish();
    for (index, key) in keys.iter().enumerate() {
        assert_eq!(run.find(key), Some(index));
        assert_eq!(run.prefix_range(key), index..index + 1);
    }
    for number in 20_000u32..40_000 {
        let key = keyed(&number.to_be_bytes());
        assert_eq!(run.find(&key), None);
        assert!(run.prefix_range(&key).is_empty());
    }
}

#[test]
fn a_state_takes_at_most_half_more_than_its_encoded_rows() {
    // Rows of two BIGINT: 18 encoded bytes each, as MIN keeps them for a group and its values.
    let mut keys: Vec<Vec<u8>> = (0i64..50_000)
        .map(|number| {
            let encode = |number: i64| [&[1][..], &(number as u64 ^ 1 << 63).to_be_bytes()].concat();
            let mut key = keyed(&encode(number / 5));
            key.extend(encode(number));
            key
        })
        .collect();
    keys.sort();
    let mut builder = RunBuilder::new(StateKind::Multiset);
    keys.iter().for_each(|key| builder.push_weight(key, 1));
    let run = builder.finish();
    assert!(run.n_bytes() * 2 <= 50_000 * 18 * 3, "{} bytes", run.n_bytes());
}

#[test]
fn runs_that_are_gone_or_wrong_are_corrupt() {
    let runs = Arc::new(MemoryRuns::default());
    let mut state = open(StateKind::Map, &Manifest::default(), &runs);
    state.put(&keyed(b"a"), Some(b"1")).unwrap();
    let mut namer = RunNamer::new(JobId(1), Generation(1), Epoch(1), TableId(1));
    let manifest = state.seal(&mut namer, &mut Vec::new()).unwrap().unwrap();
    let lost = open(StateKind::Map, &manifest, &runs);
    assert_eq!(lost.get(&keyed(b"a")).unwrap_err().kind(), ErrorKind::Corrupt);
    let json = serde_json::to_string(&manifest).unwrap();
    assert_eq!(serde_json::from_str::<Manifest>(&json).unwrap(), manifest);
    assert_eq!(key_hash(b"a").to_be_bytes(), keyed(b"a")[..4]);
}

#[test]
fn unloading_reads_runs_again() {
    let runs = Arc::new(MemoryRuns::default());
    let mut state = open(StateKind::Map, &Manifest::default(), &runs);
    state.put(&keyed(b"a"), Some(b"1")).unwrap();
    seal(&mut state, &runs, 1);
    assert!(state.memory_bytes() > 0);
    state.unload();
    assert_eq!(state.memory_bytes(), 0);
    assert_eq!(state.get(&keyed(b"a")).unwrap(), Some(&b"1"[..]));
}

#[test]
fn compaction_merges_all_tiers_and_drops_what_is_gone() {
    let runs = Arc::new(MemoryRuns::default());
    let mut state = open(StateKind::Map, &Manifest::default(), &runs);
    let mut builder = RunBuilder::new(StateKind::Map);
    let mut keys: Vec<Vec<u8>> = (0u32..1000).map(|number| keyed(&number.to_be_bytes())).collect();
    keys.sort();
    keys.iter().for_each(|key| builder.push_value(key, Some(b"old")));
    state.append(builder.finish()).unwrap();
    seal(&mut state, &runs, 1);
    state.put(&keys[0], None).unwrap();
    seal(&mut state, &runs, 2);
    state.put(&keys[1], Some(b"new")).unwrap();
    let overlay = state.clone();
    let (tiers, before) = (state.manifest().n_tiers(), state.n_rows());
    assert_eq!((tiers, before), (2, 1002), "a small run does not touch a large one");
    let (all, newer) = state.manifest().n_bytes();
    assert!(0 < newer && newer < all / 4, "{newer} of {all}");
    state.compact(usize::MAX);
    seal(&mut state, &runs, 3);
    assert_eq!((state.manifest().n_tiers(), state.n_rows()), (1, 999), "each key once, none that is gone");
    assert_eq!(state.manifest().n_bytes().1, 0);
    assert_eq!(state.get_sorted(&[&keys[1]]).unwrap(), [Some(&b"new"[..])]);
    assert_eq!(overlay.get(&keys[2]).unwrap(), Some(&b"old"[..]), "another reader of the old runs goes on");
    let manifest = state.manifest();
    state.compact(usize::MAX);
    seal(&mut state, &runs, 4);
    assert_eq!(state.manifest(), manifest, "nothing is left to do");
    // Everything gone: no run is left.
    keys.iter().for_each(|key| state.put(key, None).unwrap());
    state.compact(usize::MAX);
    seal(&mut state, &runs, 5);
    assert_eq!(state.manifest(), Manifest::default());
}

/// Every key with its value, as another reader of the manifest finds them.
fn all_of(state: &State, runs: &Arc<MemoryRuns>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let reader = open(state.kind(), &state.manifest(), runs);
    let mut scan = reader.scan_all().unwrap();
    let mut found = BTreeMap::new();
    while let Some((key, value)) = scan.next_value().unwrap() {
        found.insert(key.to_vec(), value.to_vec());
    }
    found
}

/// A state with a large oldest tier and one a third of it, and what it holds.
fn two_tiers(runs: &Arc<MemoryRuns>) -> (State, BTreeMap<Vec<u8>, Vec<u8>>) {
    let mut state = open(StateKind::Map, &Manifest::default(), runs);
    let mut model = BTreeMap::new();
    let keys: BTreeMap<Vec<u8>, u32> =
        (0u32..9_000).map(|number| (keyed(&number.to_be_bytes()), number)).collect();
    for (epoch, every) in [(1, 1), (2, 3)] {
        let mut builder = RunBuilder::new(StateKind::Map);
        for (key, number) in keys.iter().filter(|(_, number)| **number % every == 0) {
            let value = (epoch == 1 || number % 2 == 0).then(|| format!("{number} of {epoch}").into_bytes());
            builder.push_value(key, value.as_deref());
            match value {
                Some(value) => drop(model.insert(key.clone(), value)),
                None => drop(model.remove(key)),
            }
        }
        state.append(builder.finish()).unwrap();
        seal(&mut state, runs, epoch);
    }
    assert_eq!(state.manifest().n_tiers(), 2);
    (state, model)
}

#[test]
fn a_merge_in_steps_changes_nothing_and_each_is_bounded() {
    const STEP: usize = 20_000;
    let runs = Arc::new(MemoryRuns::default());
    let (mut state, mut model) = two_tiers(&runs);
    let n_bytes = state.n_bytes() as usize;
    let mut n_steps = 0;
    state.compact(STEP);
    while n_steps == 0 || state.is_compacting() {
        n_steps += 1;
        // Meanwhile the state goes on, in front of the place where the merge is and behind it.
        let key = keyed(&(n_steps as u32 * 37).to_be_bytes());
        state.put(&key, Some(b"meanwhile")).unwrap();
        model.insert(key, b"meanwhile".to_vec());
        let mut namer = RunNamer::new(JobId(1), Generation(1), Epoch(10 + n_steps as u64), TableId(1));
        let mut sealed = Sealed::default();
        state.compact(STEP);
        state.seal(&mut namer, &mut sealed.runs).unwrap().expect("a step changes the manifest");
        let n_written: usize = sealed.runs.iter().map(|run| run.bytes.len()).sum();
        assert!(n_written < STEP * 3 / 2, "{n_written} bytes written in step {n_steps}");
        runs.store(&sealed);
        assert_eq!(all_of(&state, &runs), model, "step {n_steps}");
        let (keys, values): (Vec<&[u8]>, Vec<Option<&[u8]>>) =
            model.iter().map(|(key, value)| (key.as_slice(), Some(value.as_slice()))).unzip();
        assert_eq!(state.get_sorted(&keys).unwrap(), values, "step {n_steps}");
        if n_steps == 3 {
            // Whoever goes on may have forgotten how far it was.
            state = open(StateKind::Map, &state.manifest(), &runs);
            state.compact(STEP);
        }
    }
    assert!((4..=2 * n_bytes / STEP).contains(&n_steps), "{n_steps} steps for {n_bytes} bytes");
    assert!(state.manifest().runs.iter().all(|run| run.n_merged == 0), "no run is left half merged");
    // What came meanwhile is all that is left beside the oldest tier.
    let (all, newer) = state.manifest().n_bytes();
    assert!(newer < all / 20, "{newer} of {all}");
}

#[test]
fn what_needs_no_merge_is_carried_over() {
    let runs = Arc::new(MemoryRuns::default());
    let (mut state, _) = two_tiers(&runs);
    state.compact(10_000);
    for epoch in 10.. {
        seal(&mut state, &runs, epoch);
        if !state.is_compacting() {
            break;
        }
        state.compact(10_000);
    }
    let before = state.manifest();
    assert!(before.n_tiers() == 1 && before.runs.len() > 8, "{before:?}");
    // A change of the greatest key leaves all runs but the last as they are.
    let reader = open(StateKind::Map, &before, &runs);
    let mut scan = reader.scan_all().unwrap();
    let mut greatest = Vec::new();
    while let Some((key, _)) = scan.next_value().unwrap() {
        greatest = key.to_vec();
    }
    state.put(&greatest, None).unwrap();
    seal(&mut state, &runs, 1_000);
    state.compact(10_000);
    seal(&mut state, &runs, 1_001);
    let after = state.manifest();
    let n_same = before.runs.iter().zip(&after.runs).filter(|(before, after)| before == after).count();
    assert_eq!((n_same, after.n_tiers()), (before.runs.len() - 1, 1), "{after:?}");
}

#[test]
fn a_merge_that_is_not_asked_for_again_waits() {
    let runs = Arc::new(MemoryRuns::default());
    let (mut state, model) = two_tiers(&runs);
    state.compact(10_000);
    seal(&mut state, &runs, 10);
    let manifest = state.manifest();
    seal(&mut state, &runs, 11);
    assert!(state.is_compacting());
    assert_eq!(state.manifest(), manifest);
    assert_eq!(all_of(&state, &runs), model);
}
