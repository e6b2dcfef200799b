//! The cutter against a model of its producer, and its rules one by one.

use std::collections::{BTreeMap, BTreeSet};

use kafka::{
    Change, Close, Cut, CutFault, CutOptions, Cutter, Ddl, DdlAt, Entry, Half, Positions, Reset, Side, Step,
    TableName, TopicPartition,
};
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use types::Timestamp;

use crate::cut_model::{Dispatch, Key, Producer, Row, TOPIC};

/// A consumer that reads the producer's log, is restarted at will, and is compared at each cut.
struct Consumer {
    cutter: Cutter<Key, Row>,
    offsets: BTreeMap<TopicPartition, usize>,
    recorded: Positions,
    rows: BTreeMap<Key, u32>,
    ddls: Vec<u64>,
    n_cuts: usize,
}

impl Consumer {
    fn new(producer: &Producer) -> Consumer {
        let from: Vec<_> = producer.partitions().into_iter().map(|id| (id, 0)).collect();
        let cutter = Cutter::start(CutOptions::default(), Timestamp::ZERO, from.clone());
        let offsets: BTreeMap<_, _> = from.iter().map(|(id, _)| (id.clone(), 0)).collect();
        let partitions = from.into_iter().map(|(id, offset)| {
            let watermark = Timestamp::ZERO;
            (id, kafka::Position { restart: offset, next: offset, watermark })
        });
        let recorded =
            Positions { started: Timestamp::ZERO, cut: Timestamp::ZERO, partitions: partitions.collect() };
        Consumer { cutter, offsets, recorded, rows: BTreeMap::new(), ddls: Vec::new(), n_cuts: 0 }
    }

    /// Reads the next message of some partition; `false` if there is none.
    fn read(&mut self, producer: &Producer, rng: &mut StdRng) -> bool {
        let readable: Vec<TopicPartition> = self
            .offsets
            .iter()
            .filter(|(id, offset)| **offset < producer.log[id.partition as usize].len())
            .map(|(id, _)| id.clone())
            .collect();
        if readable.is_empty() {
            return false;
        }
        let id = &readable[rng.random_range(0..readable.len())];
        let offset = self.offsets[id];
        let entries = producer.log[id.partition as usize][offset].clone();
        self.cutter.take(id, offset as i64, entries).unwrap();
        self.offsets.insert(id.clone(), offset + 1);
        true
    }

    fn close(&mut self, producer: &Producer) {
        match self.cutter.close(&producer.partitions()) {
            Close::Waits => {}
            Close::Added(added) => self.offsets.extend(added.into_iter().map(|id| (id, 0))),
            Close::Closed(cut) => self.apply(cut, producer),
        }
    }

    fn apply(&mut self, cut: Cut<Key, Row>, producer: &Producer) {
        for step in cut.steps {
            match step {
                Step::Ddl(ddl) => {
                    self.ddls.push(ddl.at.0);
                    assert_eq!(&self.rows, producer.rows_at(ddl.at.0), "rows at the DDL of {}", ddl.at);
                }
                Step::Rows(changes) => {
                    for Change { key, old, new } in changes {
                        assert_eq!(self.rows.get(&key), old.as_ref().map(|row| &row.0), "old row of {key:?}");
                        match new {
                            Some(Row(new)) => self.rows.insert(key, new),
                            None => self.rows.remove(&key),
                        };
                    }
                }
            }
        }
        assert_eq!(&self.rows, producer.rows_at(cut.at.0), "rows at the cut {}", cut.at);
        assert_eq!(self.ddls, producer.ddls_until(cut.at.0), "DDL up to the cut {}", cut.at);
        self.recorded = cut.positions;
        self.n_cuts += 1;
    }

    /// Forgets everything but what was recorded with the last cut.
    fn restart(&mut self) {
        self.cutter = Cutter::restore(CutOptions::default(), &self.recorded);
        self.offsets = self.recorded.offsets().into_iter().map(|(id, at)| (id, at as usize)).collect();
    }
}

fn run(seed: u64, dispatch: Dispatch, n_partitions: usize, n_steps: usize) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut producer = Producer::new(StdRng::seed_from_u64(seed ^ 0x5eed), dispatch, n_partitions);
    let mut consumer = Consumer::new(&producer);
    for _ in 0..n_steps {
        match rng.random_range(0..12) {
            0..6 => producer.step(),
            6..10 => {
                consumer.read(&producer, &mut rng);
            }
            10 => consumer.close(&producer),
            _ if rng.random_bool(0.2) => consumer.restart(),
            _ => {}
        }
    }
    producer.finish();
    // New partitions are found, everything is read, and the last commit is cut.
    for _ in 0..2 {
        consumer.close(&producer);
        while consumer.read(&producer, &mut rng) {}
        consumer.close(&producer);
    }
    assert!(consumer.cutter.cut() >= Timestamp(producer.now() - 2), "the cut follows the watermarks");
    assert_eq!(&consumer.rows, producer.rows_at(producer.now()));
    assert_eq!(consumer.cutter.counts().mismatched, 0);
    assert_eq!(consumer.cutter.n_held(), 0);
}

proptest! {
    #[test]
    fn every_cut_is_exactly_the_tables_at_its_timestamp(
        seed in any::<u64>(),
        dispatch in prop_oneof![Just(Dispatch::Table), Just(Dispatch::Key), Just(Dispatch::Ts)],
        n_partitions in 1_usize..4,
        n_steps in 1_usize..1500,
    ) {
        run(seed, dispatch, n_partitions, n_steps);
    }
}

fn id(partition: i32) -> TopicPartition {
    TopicPartition::new(TOPIC, partition)
}

fn both() -> BTreeSet<TopicPartition> {
    BTreeSet::from([id(0), id(1)])
}

fn half(key: Key, side: Side, at: u64, value: u32) -> Entry<Key, Row> {
    Entry::Row(Half { key, side, at: Timestamp(at), row: Row(value) })
}

fn watermark(at: u64) -> [Entry<Key, Row>; 1] {
    [Entry::Watermark(Timestamp(at))]
}

fn cutter() -> Cutter<Key, Row> {
    Cutter::start(CutOptions::default(), Timestamp::ZERO, [(id(0), 0), (id(1), 0)])
}

fn closed(cutter: &mut Cutter<Key, Row>) -> Cut<Key, Row> {
    match cutter.close(&both()) {
        Close::Closed(cut) => cut,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_cut_is_one_below_the_slowest_watermark() {
    let mut cutter = cutter();
    cutter.take(&id(0), 0, [half((0, 1), Side::New, 8, 1)]).unwrap();
    cutter.take(&id(0), 1, watermark(9)).unwrap();
    assert!(matches!(cutter.close(&both()), Close::Waits), "partition 1 has no watermark");
    cutter.take(&id(1), 0, watermark(8)).unwrap();
    assert_eq!(cutter.slowest(), Some((&id(1), Timestamp(8))));
    let cut = closed(&mut cutter);
    assert_eq!((cut.at, cut.steps.len()), (Timestamp(7), 0), "the row of 8 waits");
    assert_eq!(cut.positions.offsets(), [(id(0), 0), (id(1), 1)], "and is read again after a restart");
    cutter.take(&id(1), 5, watermark(9)).unwrap();
    assert_eq!(closed(&mut cutter).steps.len(), 1);
    assert_eq!(cutter.n_held(), 0);
}

#[test]
fn a_row_below_a_row_is_data_and_below_a_watermark_a_repetition() {
    let mut cutter = cutter();
    cutter.take(&id(0), 0, [half((0, 1), Side::New, 20, 1)]).unwrap();
    cutter.take(&id(0), 1, [half((0, 2), Side::New, 15, 2)]).unwrap();
    assert_eq!(cutter.n_held(), 2, "a lower timestamp after a higher one");
    cutter.take(&id(0), 2, watermark(30)).unwrap();
    cutter.take(&id(0), 3, [half((0, 2), Side::New, 15, 2)]).unwrap();
    cutter.take(&id(0), 4, [half((0, 3), Side::New, 30, 2)]).unwrap();
    assert_eq!((cutter.counts().below_watermark, cutter.n_held()), (1, 3));
    // A watermark that repeats, or is lower, changes nothing.
    cutter.take(&id(0), 5, watermark(25)).unwrap();
    assert_eq!(cutter.slowest(), Some((&id(1), Timestamp::ZERO)));
}

#[test]
fn a_swap_of_keys_keeps_both_halves_of_each_key() {
    let mut cutter = cutter();
    let rows = [(0, Side::Old, 1), (1, Side::Old, 2), (0, Side::New, 2), (1, Side::New, 1)];
    for (offset, (key, side, value)) in rows.into_iter().enumerate() {
        cutter.take(&id(0), offset as i64, [half((0, key), side, 5, value)]).unwrap();
    }
    cutter.take(&id(0), 9, watermark(6)).unwrap();
    cutter.take(&id(1), 9, watermark(6)).unwrap();
    let change = |key, old, new| Change { key: (0, key), old: Some(Row(old)), new: Some(Row(new)) };
    assert_eq!(closed(&mut cutter).steps, [Step::Rows(vec![change(0, 1, 2), change(1, 2, 1)])]);
}

#[test]
fn what_comes_and_goes_within_a_cut_is_nothing() {
    let mut cutter = cutter();
    cutter.take(&id(0), 0, [half((0, 1), Side::New, 5, 1)]).unwrap();
    cutter.take(&id(0), 1, [half((0, 1), Side::Old, 6, 1)]).unwrap();
    cutter.take(&id(0), 2, [half((0, 2), Side::Old, 6, 4), half((0, 2), Side::New, 6, 5)]).unwrap();
    cutter.take(&id(0), 3, [half((0, 2), Side::Old, 7, 5), half((0, 2), Side::New, 7, 4)]).unwrap();
    cutter.take(&id(0), 4, watermark(9)).unwrap();
    cutter.take(&id(1), 0, watermark(9)).unwrap();
    assert_eq!(closed(&mut cutter).steps, []);
}

#[test]
fn a_new_partition_holds_the_cut_until_its_first_watermark() {
    let mut cutter = cutter();
    for partition in 0..2 {
        cutter.take(&id(partition), 0, watermark(9)).unwrap();
    }
    let three = BTreeSet::from([id(0), id(1), id(2)]);
    let Close::Added(added) = cutter.close(&three) else { panic!("partition 2 is new") };
    assert_eq!(added, [id(2)]);
    assert!(matches!(cutter.close(&three), Close::Waits));
    cutter.take(&id(2), 0, [half((0, 1), Side::New, 4, 1)]).unwrap();
    cutter.take(&id(2), 1, watermark(9)).unwrap();
    assert!(matches!(cutter.close(&three), Close::Closed(cut) if cut.steps.len() == 1));
}

#[test]
fn a_partition_of_a_dropped_table_stops_holding_the_cut() {
    let other = TopicPartition::new("gone", 0);
    let from = [(id(0), 0), (other.clone(), 0)];
    let mut cutter: Cutter<Key, Row> = Cutter::start(CutOptions::default(), Timestamp::ZERO, from);
    cutter.take(&id(0), 0, watermark(9)).unwrap();
    assert_eq!(cutter.candidate(), None);
    cutter.forget_topic("gone");
    assert_eq!(cutter.candidate(), Some(Timestamp(8)));
    assert_eq!(cutter.take(&other, 1, watermark(9)), Err(CutFault::Unknown(other)));
}

#[test]
fn a_late_row_of_an_uncounted_partition_is_a_fault() {
    let mut cutter = cutter();
    for partition in 0..2 {
        cutter.take(&id(partition), 0, watermark(9)).unwrap();
    }
    closed(&mut cutter);
    let three = BTreeSet::from([id(0), id(1), id(2)]);
    assert!(matches!(cutter.close(&three), Close::Added(_)));
    let late = cutter.take(&id(2), 0, [half((0, 1), Side::New, 8, 1)]);
    assert!(matches!(late, Err(CutFault::Late { offset: 0, at: Timestamp(8), cut: Timestamp(8), .. })));
}

#[test]
fn contradicting_copies_and_offsets_that_go_back_are_faults() {
    let mut cutter = cutter();
    cutter.take(&id(0), 3, [half((0, 1), Side::New, 8, 1)]).unwrap();
    cutter.take(&id(1), 0, [half((0, 1), Side::New, 8, 1)]).unwrap();
    assert_eq!((cutter.counts().repeated, cutter.n_held()), (1, 1), "one row in two partitions");
    let two = cutter.take(&id(1), 1, [half((0, 1), Side::New, 8, 2)]).unwrap_err();
    assert!(two.to_string().contains("the row (0, 1) of 8 has two contents"), "{two}");
    let back = cutter.take(&id(0), 3, []).unwrap_err();
    assert_eq!(back, CutFault::OffsetWentBack { partition: id(0), offset: 3, next: 4 });
}

#[test]
fn another_cluster_whose_clock_is_behind_is_a_fault_unless_it_is_allowed() {
    let now = Timestamp::from_parts(10_000_000, 0).0;
    let old = Timestamp::from_parts(9_000_000, 0).0;
    for (reset, is_fault) in [(Reset::Refuse, true), (Reset::Allow, false)] {
        let options = CutOptions { reset, ..CutOptions::default() };
        let mut cutter: Cutter<Key, Row> = Cutter::start(options, Timestamp::ZERO, [(id(0), 0)]);
        cutter.take(&id(0), 0, watermark(now)).unwrap();
        let row = cutter.take(&id(0), 1, [half((0, 1), Side::New, old, 1)]);
        let mark = cutter.take(&id(0), 2, watermark(old));
        assert_eq!((row.is_err(), mark.is_err()), (is_fault, is_fault), "{row:?} {mark:?}");
    }
}

#[test]
fn a_source_that_begins_in_the_middle_leaves_out_what_is_older() {
    let from = [(id(0), 40)];
    let mut cutter: Cutter<Key, Row> = Cutter::start(CutOptions::default(), Timestamp(100), from);
    cutter.take(&id(0), 40, [half((0, 1), Side::New, 99, 1)]).unwrap();
    cutter.take(&id(0), 41, watermark(101)).unwrap();
    assert_eq!(cutter.candidate(), None, "100 is the cut to begin with");
    cutter.take(&id(0), 42, [half((0, 2), Side::New, 101, 1)]).unwrap();
    cutter.take(&id(0), 43, watermark(110)).unwrap();
    let Close::Closed(cut) = cutter.close(&BTreeSet::from([id(0)])) else { panic!("it can be cut") };
    assert_eq!((cut.steps.len(), cutter.counts().before_start), (1, 1));
    // And it stays so after a restart.
    let mut restored: Cutter<Key, Row> = Cutter::restore(CutOptions::default(), &cut.positions);
    restored.take(&id(0), 44, [half((0, 1), Side::New, 99, 1)]).unwrap();
    assert_eq!(restored.counts().before_start, 1);
}

#[test]
fn ddl_stands_between_the_rows_before_and_after_it() {
    let mut cutter = cutter();
    let ddl = |sql: &str| {
        let ddl = Ddl { sql: sql.to_owned(), ..Ddl::default() };
        Entry::Ddl(DdlAt { at: Timestamp(6), table: TableName::new("d", "t"), ddl })
    };
    cutter.take(&id(0), 0, [half((0, 1), Side::New, 7, 1)]).unwrap();
    cutter.take(&id(0), 1, [ddl("ALTER 1")]).unwrap();
    cutter.take(&id(1), 0, [ddl("ALTER 1")]).unwrap();
    cutter.take(&id(1), 1, [half((0, 2), Side::New, 6, 1)]).unwrap();
    cutter.take(&id(0), 2, watermark(9)).unwrap();
    cutter.take(&id(1), 2, watermark(9)).unwrap();
    let steps = closed(&mut cutter).steps;
    assert!(matches!(&steps[..], [Step::Rows(_), Step::Ddl(_), Step::Rows(_)]), "{steps:?}");
}

#[test]
fn after_a_restart_nothing_is_cut_before_what_was_held_is_read_again() {
    let mut cutter = cutter();
    cutter.take(&id(0), 0, [half((0, 1), Side::New, 20, 1)]).unwrap();
    cutter.take(&id(0), 1, watermark(30)).unwrap();
    cutter.take(&id(1), 0, watermark(10)).unwrap();
    let positions = closed(&mut cutter).positions;
    let mut restored: Cutter<Key, Row> = Cutter::restore(CutOptions::default(), &positions);
    restored.take(&id(1), 1, watermark(30)).unwrap();
    assert_eq!(restored.candidate(), None, "row 20 has not been read again");
    restored.take(&id(0), 0, [half((0, 1), Side::New, 20, 1)]).unwrap();
    assert_eq!(restored.candidate(), None);
    // The message with the watermark is gone (a segment was deleted, a transaction aborted).
    restored.reach(&id(0), 2).unwrap();
    assert_eq!(closed(&mut restored).steps.len(), 1);
}

#[test]
fn partitions_far_ahead_of_the_slowest_are_named() {
    let mut cutter = cutter();
    cutter.take(&id(1), 0, watermark(Timestamp::from_parts(1_000, 0).0)).unwrap();
    let ahead = Timestamp::from_parts(400_000, 0).0;
    cutter.take(&id(1), 1, [half((0, 1), Side::New, ahead, 1)]).unwrap();
    cutter.take(&id(0), 0, watermark(Timestamp::from_parts(1_000, 0).0)).unwrap();
    assert_eq!(cutter.ahead(60_000), [id(1)]);
    assert!(cutter.ahead(600_000).is_empty());
}
