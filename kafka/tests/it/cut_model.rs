//! A model of what TiCDC may write: repetitions after crashes, rows out of order above the watermark, keys
//! that swap, partitions that are added; and the truth to compare a consumer with.

use std::collections::{BTreeMap, BTreeSet};

use kafka::{Content, Ddl, DdlAt, Entry, Half, Side, TableName, TopicPartition};
use rand::Rng;
use rand::rngs::StdRng;
use types::Timestamp;

/// The topic.
pub(crate) const TOPIC: &str = "changes";

/// A table's number and a key.
pub(crate) type Key = (u8, u8);

/// A row: nothing but a number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row(pub(crate) u32);

impl Content for Row {
    fn merge(&mut self, other: Row) -> bool {
        *self == other
    }

    fn agrees(&self, other: &Row) -> bool {
        self == other
    }
}

/// How rows are spread over partitions.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Dispatch {
    Table,
    Key,
    Ts,
}

/// What the producer has to write, in the order of commits.
#[derive(Clone, Debug)]
struct Item {
    at: u64,
    entries: Vec<Entry<Key, Row>>,
    sent: bool,
}

/// TiCDC and the tables behind it.
pub(crate) struct Producer {
    rng: StdRng,
    dispatch: Dispatch,
    /// The log of each partition: a message is a list of entries.
    pub(crate) log: Vec<Vec<Vec<Entry<Key, Row>>>>,
    items: Vec<Item>,
    now: u64,
    rows: BTreeMap<Key, u32>,
    next_value: u32,
    /// The rows after each commit.
    history: BTreeMap<u64, BTreeMap<Key, u32>>,
    ddls: BTreeSet<u64>,
    watermark_max: u64,
    /// What a restart goes back to; at most the last watermark.
    checkpoint: u64,
    /// A partition was added and has no watermark yet.
    grown: bool,
}

impl Producer {
    pub(crate) fn new(rng: StdRng, dispatch: Dispatch, n_partitions: usize) -> Producer {
        Producer {
            rng,
            dispatch,
            log: vec![Vec::new(); n_partitions],
            items: Vec::new(),
            now: 100,
            rows: BTreeMap::new(),
            next_value: 0,
            history: BTreeMap::from([(0, BTreeMap::new())]),
            ddls: BTreeSet::new(),
            watermark_max: 0,
            checkpoint: 0,
            grown: false,
        }
    }

    /// The partitions as metadata has them.
    pub(crate) fn partitions(&self) -> BTreeSet<TopicPartition> {
        (0..self.log.len()).map(|partition| TopicPartition::new(TOPIC, partition as i32)).collect()
    }

    /// The rows as of a timestamp.
    pub(crate) fn rows_at(&self, at: u64) -> &BTreeMap<Key, u32> {
        self.history.range(..=at).next_back().expect("0 is there").1
    }

    /// The definitions that changed up to a timestamp.
    pub(crate) fn ddls_until(&self, at: u64) -> Vec<u64> {
        self.ddls.range(..=at).copied().collect()
    }

    /// The last commit.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Does one thing that TiCDC or its tables may do.
    pub(crate) fn step(&mut self) {
        match self.rng.random_range(0..40) {
            0..10 => self.commit(),
            10..28 => self.send(),
            28..34 => self.send_watermark(),
            34..36 => self.commit_ddl(),
            36..39 => self.crash(),
            _ => self.grow(),
        }
    }

    /// Writes everything, and a watermark beyond it.
    pub(crate) fn finish(&mut self) {
        while self.items.iter().any(|item| !item.sent) {
            self.send();
        }
        self.now += 2;
        self.send_watermark();
    }

    fn value(&mut self) -> u32 {
        self.next_value += 1;
        self.next_value
    }

    /// A transaction over a few keys of both tables; deletes stand before inserts.
    fn commit(&mut self) {
        self.now += self.rng.random_range(1..5);
        let mut keys = BTreeSet::new();
        for _ in 0..self.rng.random_range(1..5) {
            keys.insert((self.rng.random_range(0..2_u8), self.rng.random_range(0..5_u8)));
        }
        let at = Timestamp(self.now);
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for key in keys {
            let old = self.rows.get(&key).copied();
            let new = (old.is_none() || self.rng.random_bool(0.7)).then(|| self.value());
            let half = |side, value| Entry::Row(Half { key, side, at, row: Row(value) });
            match (old, new) {
                // An update that comes as such, or as a delete and an insert, as those of a key swap do.
                (Some(old), Some(new)) if self.rng.random_bool(0.5) => {
                    first.push(vec![half(Side::Old, old), half(Side::New, new)]);
                }
                (old, new) => {
                    first.extend(old.map(|old| vec![half(Side::Old, old)]));
                    second.extend(new.map(|new| vec![half(Side::New, new)]));
                }
            }
            match new {
                Some(new) => self.rows.insert(key, new),
                None => self.rows.remove(&key),
            };
        }
        for entries in first.into_iter().chain(second) {
            self.items.push(Item { at: self.now, entries, sent: false });
        }
        self.history.insert(self.now, self.rows.clone());
    }

    /// DDL waits for all rows before it, and nothing after it goes out before it.
    fn commit_ddl(&mut self) {
        self.now += 1;
        let sql = format!("ALTER TABLE t ADD COLUMN c{} INT", self.now);
        let ddl = Ddl { sql, ..Ddl::default() };
        let at = Timestamp(self.now);
        let entries = vec![Entry::Ddl(DdlAt { at, table: TableName::new("d", "t"), ddl })];
        self.items.push(Item { at: self.now, entries, sent: false });
        self.ddls.insert(self.now);
        self.history.insert(self.now, self.rows.clone());
    }

    /// Writes one of the first rows that wait, perhaps twice: retries are not idempotent.
    fn send(&mut self) {
        let is_ddl = |item: &Item| matches!(item.entries[0], Entry::Ddl(_));
        let waiting: Vec<usize> = (0..self.items.len()).filter(|at| !self.items[*at].sent).collect();
        let n_before_ddl = waiting.iter().take_while(|at| !is_ddl(&self.items[**at])).count();
        if waiting.is_empty() {
            return;
        }
        if n_before_ddl == 0 {
            // The watermark may have the DDL's own timestamp, and stand before it.
            if self.rng.random_bool(0.5) && self.items[waiting[0]].at > self.watermark_max {
                self.put_watermark(self.items[waiting[0]].at);
            }
            let everywhere = self.rng.random_bool(0.5);
            let item = self.items[waiting[0]].clone();
            let n_partitions = if everywhere { self.log.len() } else { 1 };
            for log in &mut self.log[..n_partitions] {
                log.push(item.entries.clone());
            }
            self.items[waiting[0]].sent = true;
            return;
        }
        let chosen = waiting[self.rng.random_range(0..n_before_ddl.min(4))];
        let item = self.items[chosen].clone();
        let partition = self.partition_of(&item);
        for _ in 0..if self.rng.random_bool(0.1) { 2 } else { 1 } {
            self.log[partition].push(item.entries.clone());
        }
        self.items[chosen].sent = true;
    }

    fn partition_of(&self, item: &Item) -> usize {
        let Entry::Row(half) = &item.entries[0] else { return 0 };
        let hash = match self.dispatch {
            Dispatch::Table => usize::from(half.key.0),
            Dispatch::Key => usize::from(half.key.0) * 31 + usize::from(half.key.1),
            Dispatch::Ts => item.at as usize,
        };
        hash % self.log.len()
    }

    /// Everything up to the watermark is out.
    fn send_watermark(&mut self) {
        let waiting = self.items.iter().filter(|item| !item.sent).map(|item| item.at).min();
        self.put_watermark(waiting.map_or(self.now, |waiting| waiting - 1));
        if waiting.is_none() {
            self.grown = false;
        }
    }

    fn put_watermark(&mut self, at: u64) {
        for log in &mut self.log {
            log.push(vec![Entry::Watermark(Timestamp(at))]);
        }
        self.watermark_max = self.watermark_max.max(at);
        if self.rng.random_bool(0.3) {
            self.checkpoint = self.checkpoint.max(at);
        }
    }

    /// All after the last checkpoint is written again.
    fn crash(&mut self) {
        if self.grown {
            return;
        }
        let checkpoint = self.checkpoint;
        for item in self.items.iter_mut().filter(|item| item.at > checkpoint) {
            item.sent = false;
        }
    }

    /// One partition more. What is repeated into a partition that has no watermark yet cannot be told from
    /// what is late, so the model does so only between repetitions.
    fn grow(&mut self) {
        let repeats = self.items.iter().any(|item| !item.sent && item.at <= self.watermark_max);
        if !repeats && self.log.len() < 6 {
            self.log.push(Vec::new());
            self.grown = true;
        }
    }
}
