//! Epochs of random deltas: what is stored is what the deltas add up to.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use store::{Assertion, MutationOp};
use tidb::{Handle, decode_record_key};
use types::Delta;

use crate::fixture::{Epochs, Row, delta};

fn row() -> impl Strategy<Value = Row> {
    (0_i64..4, prop::option::of("[ab ]{0,2}"))
}

/// Cuts weighted rows into deltas.
fn pieces(rows: &[(Row, i64)], n_rows: usize) -> Vec<Delta> {
    rows.chunks(n_rows).map(delta).collect()
}

fn one_mutation_a_key(prepared: &sink::Prepared) {
    assert!(prepared.mutations.windows(2).all(|pair| pair[0].key < pair[1].key), "sorted, each key once");
    assert!(prepared.mutations.iter().all(|mutation| mutation.assertion != Assertion::None));
}

proptest! {
    #![proptest_config(crate::fixture::cases(80))]

    /// Keys whose row is replaced, with detours within an epoch.
    #[test]
    fn a_keyed_view_holds_its_newest_rows(
        epochs in vec(vec((row(), any::<bool>(), any::<bool>()), 0..8), 1..8),
        n_rows in 1_usize..5,
        reverse in any::<bool>(),
    ) {
        let mut run = Epochs::new(true);
        let mut model: BTreeMap<i64, Option<String>> = BTreeMap::new();
        for steps in epochs {
            let mut weighted = Vec::new();
            let before = model.len() as i64;
            for ((key, value), is_delete, with_detour) in steps {
                if let Some(old) = model.remove(&key) {
                    weighted.push(((key, old), -1));
                }
                if with_detour {
                    weighted.push(((key, Some("detour".into())), 1));
                    weighted.push(((key, Some("detour".into())), -1));
                }
                if !is_delete {
                    weighted.push(((key, value.clone()), 1));
                    model.insert(key, value);
                }
            }
            // The fold does not care for order.
            if reverse {
                weighted.reverse();
            }
            let prepared = run.run(&pieces(&weighted, n_rows)).unwrap();
            one_mutation_a_key(&prepared);
            prop_assert_eq!(prepared.n_rows_change, model.len() as i64 - before);
            let expected: BTreeMap<Row, i64> =
                model.iter().map(|(key, value)| ((*key, value.clone()), 1)).collect();
            prop_assert_eq!(run.stored(), expected);
        }
    }

    /// Any multiset, with restarts over the manifest in between.
    #[test]
    fn a_view_without_a_key_holds_its_multiset(
        epochs in vec((vec((row(), 1_i64..4, any::<bool>()), 0..8), prop::option::weighted(0.3, 0_usize..2000)), 1..8),
        n_rows in 1_usize..5,
    ) {
        let mut run = Epochs::new(false);
        let mut model: BTreeMap<Row, i64> = BTreeMap::new();
        let mut used: BTreeSet<i64> = BTreeSet::new();
        for (steps, restart) in epochs {
            let mut weighted = Vec::new();
            let before: i64 = model.values().sum();
            for (row, weight, is_delete) in steps {
                let n = model.entry(row.clone()).or_insert(0);
                let weight = if is_delete { -weight.min(*n) } else { weight };
                *n += weight;
                weighted.push((row, weight));
            }
            model.retain(|_, n| *n > 0);
            let prepared = run.run(&pieces(&weighted, n_rows)).unwrap();
            one_mutation_a_key(&prepared);
            prop_assert_eq!(prepared.n_rows_change, model.values().sum::<i64>() - before);
            for mutation in prepared.mutations.iter().filter(|mutation| mutation.op == MutationOp::Put) {
                let Ok((9, Handle::Int(handle))) = decode_record_key(&mutation.key) else { panic!() };
                prop_assert!(handle >= 0);
                prop_assert!(used.insert(handle), "handle {} was used before", handle);
            }
            prop_assert_eq!(run.stored(), model.clone());
            if let Some(n_cache_bytes) = restart {
                run.restart(n_cache_bytes);
            }
        }
    }
}

#[test]
fn handles_are_vnode_and_counter() {
    let mut run = Epochs::new(false);
    run.run(&[delta(&[((1, None), 3), ((2, None), 1)])]).unwrap();
    for (key, value) in run.stored_pairs() {
        let (_, Handle::Int(handle)) = decode_record_key(&key).unwrap() else { panic!() };
        assert_eq!((handle >> 55) as u8, operators::vnode(&value).0);
        assert!(handle & ((1 << 55) - 1) < 3);
    }
}

#[test]
fn what_cancels_leaves_no_mutation() {
    for keyed in [true, false] {
        let mut run = Epochs::new(keyed);
        let prepared = run.run(&[delta(&[((1, None), 1)]), delta(&[((1, None), -1)])]).unwrap();
        assert!(prepared.mutations.is_empty());
        let fold = run.fold(&[delta(&[((1, None), 1), ((1, None), -1), ((1, None), 0)])]).unwrap();
        assert!(fold.is_empty());
        assert_eq!((fold.n_keys(), fold.n_bytes()), (0, 0));
    }
}

#[test]
fn a_row_of_one_content_often_is_many_rows() {
    let mut run = Epochs::new(false);
    run.run(&[delta(&[((1, None), 1000)])]).unwrap();
    run.run(&[delta(&[((1, None), -999)])]).unwrap();
    assert_eq!(run.stored(), [((1, None), 1)].into());
    run.run(&[delta(&[((1, None), -1)])]).unwrap();
    assert!(run.stored().is_empty());
    run.run(&[delta(&[((1, None), 2)])]).unwrap();
    assert_eq!(run.stored(), [((1, None), 2)].into());
}

#[test]
fn batches_are_bounded_and_complete() {
    let mut run = Epochs::new(true);
    let rows: Vec<(Row, i64)> = (0..100).map(|key| ((key, Some("x".repeat(10))), 1)).collect();
    let prepared = run.run(&[delta(&rows)]).unwrap();
    for (n_keys_max, n_bytes_max) in
        [(1, 1 << 20), (7, 1 << 20), (100, 1 << 20), (1000, 1), (1000, 100), (0, 0)]
    {
        let batches: Vec<_> = prepared.batches(n_keys_max, n_bytes_max).collect();
        assert_eq!(batches.concat(), prepared.mutations, "{n_keys_max} {n_bytes_max}");
        assert!(batches.iter().all(|batch| batch.len() <= n_keys_max.max(1)));
        let n_bytes =
            |batch: &[store::Mutation]| batch.iter().map(|m| m.key.len() + m.value.len()).sum::<usize>();
        assert!(batches.iter().all(|batch| batch.len() == 1 || n_bytes(&batch[1..]) <= n_bytes_max));
    }
}
