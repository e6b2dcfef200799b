//! What is known of one partition, and where a restart goes on.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use types::Timestamp;

use super::CutFault;

/// A partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The topic.
    pub topic: Arc<str>,
    /// The number of the partition.
    pub partition: i32,
}

impl TopicPartition {
    /// A partition of a topic.
    #[must_use]
    pub fn new(topic: &str, partition: i32) -> TopicPartition {
        TopicPartition { topic: topic.into(), partition }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}[{}]", self.topic, self.partition)
    }
}

/// What is recorded of a partition with a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// From where a restart reads: the first message of which something was held.
    pub restart: i64,
    /// The first message that had not been read.
    pub next: i64,
    /// The watermark as of `next`.
    pub watermark: Timestamp,
}

/// What is recorded of a source with a cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Positions {
    /// Where the source began.
    pub started: Timestamp,
    /// The cut.
    pub cut: Timestamp,
    /// Its partitions.
    pub partitions: BTreeMap<TopicPartition, Position>,
}

impl Positions {
    /// Where to read each partition from after a restart.
    #[must_use]
    pub fn offsets(&self) -> Vec<(TopicPartition, i64)> {
        self.partitions.iter().map(|(id, position)| (id.clone(), position.restart)).collect()
    }
}

/// A partition as it is read.
#[derive(Clone, Debug)]
pub(crate) struct Partition {
    next: i64,
    /// Messages below it had been read when the cut was recorded from which this run was restored.
    recorded: i64,
    /// Zero before the first one.
    watermark: Timestamp,
    /// The newest row.
    newest: Timestamp,
    /// Offsets of which something is held, with how much.
    held: BTreeMap<i64, usize>,
}

impl Partition {
    pub(crate) fn begin(offset: i64) -> Partition {
        Partition {
            next: offset,
            recorded: offset,
            watermark: Timestamp::ZERO,
            newest: Timestamp::ZERO,
            held: BTreeMap::new(),
        }
    }

    pub(crate) fn restore(position: Position) -> Partition {
        let begun = Partition::begin(position.restart);
        Partition { recorded: position.next, watermark: position.watermark, ..begun }
    }

    /// Passes a message.
    pub(crate) fn advance(&mut self, id: &TopicPartition, offset: i64) -> Result<(), CutFault> {
        if offset < self.next {
            return Err(CutFault::OffsetWentBack { partition: id.clone(), offset, next: self.next });
        }
        self.next = offset + 1;
        Ok(())
    }

    pub(crate) fn reach(&mut self, offset: i64) {
        self.next = self.next.max(offset);
    }

    /// Whether a message had been read before the restart.
    pub(crate) fn is_repeated(&self, offset: i64) -> bool {
        offset < self.recorded
    }

    pub(crate) fn raise(&mut self, watermark: Timestamp) {
        self.watermark = self.watermark.max(watermark);
    }

    pub(crate) fn note(&mut self, at: Timestamp) {
        self.newest = self.newest.max(at);
    }

    pub(crate) fn watermark(&self) -> Timestamp {
        self.watermark
    }

    pub(crate) fn newest(&self) -> Timestamp {
        self.newest
    }

    /// The timestamp below which nothing is missing; `None` before the first watermark, and while what
    /// was held before a restart has not been read again.
    pub(crate) fn closed_below(&self) -> Option<Timestamp> {
        (self.next >= self.recorded && self.watermark > Timestamp::ZERO).then_some(self.watermark)
    }

    pub(crate) fn hold(&mut self, offset: i64) {
        *self.held.entry(offset).or_default() += 1;
    }

    pub(crate) fn release(&mut self, offset: i64) {
        if let Some(count) = self.held.get_mut(&offset) {
            *count -= 1;
            if *count == 0 {
                self.held.remove(&offset);
            }
        }
    }

    pub(crate) fn position(&self) -> Position {
        let restart = self.held.first_key_value().map_or(self.next, |(offset, _)| *offset);
        Position { restart, next: self.next, watermark: self.watermark }
    }
}
