//! Cuts a TiCDC changefeed at a timestamp: whole transactions over all tables, topics and partitions.
//!
//! ```text
//! partition 0:  row 7   W 8   row 12         W 15  | row 7 (again: below the watermark before it)
//! partition 1:       row 9   W 8   row 12    W 15  |
//!                                     cut at 14: rows 7, 9, 12, each once, then what stands beyond waits
//! ```
//!
//! A changefeed repeats rows after its own restarts, with timestamps below those already seen. A row is a
//! repetition for certain only if a watermark beyond it stands *before it in the same partition*; any other
//! row is held, known by (key, timestamp, half), and its repetitions meet it there. The cut is one below the
//! smallest watermark, because a DDL was seen with exactly the timestamp of the watermark before it.
//!
//! Pure: no clock, no broker. The positions of a cut are recorded with its rows in one transaction; a cutter
//! that is restored from them goes on as if nothing had happened.

mod events;
mod held;
mod partition;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use thiserror::Error;
use types::Timestamp;

use crate::event::{Ddl, TableName};
use held::Held;
use partition::Partition;

pub use events::{EventCutter, KeyColumns, RowKey};
pub use partition::{Position, Positions, TopicPartition};

/// A side of a change: the old row sorts before the new one of the same commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The row that disappears.
    Old,
    /// The row that appears.
    New,
}

/// One side of a row's change; an update and a delete with an insert are the same two halves.
#[derive(Clone, Debug, PartialEq)]
pub struct Half<K, R> {
    /// The table and the key.
    pub key: K,
    /// Which side.
    pub side: Side,
    /// The commit timestamp.
    pub at: Timestamp,
    /// The row, or what is known of it.
    pub row: R,
}

/// What rows must be able to do.
pub trait Content: Clone + Debug {
    /// Takes in what another copy of the same row knows; `false` if the two contradict each other.
    fn merge(&mut self, other: Self) -> bool;
    /// Whether the two say the same.
    fn agrees(&self, other: &Self) -> bool;
}

/// A change of definitions with its place in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DdlAt {
    /// The commit timestamp.
    pub at: Timestamp,
    /// The table.
    pub table: TableName,
    /// The change.
    pub ddl: Ddl,
}

/// What a message has for the cut.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry<K, R> {
    /// A half of a change.
    Row(Half<K, R>),
    /// A change of definitions.
    Ddl(DdlAt),
    /// A watermark.
    Watermark(Timestamp),
    /// A change whose halves are not known yet: it holds the cut below its timestamp.
    Deferred {
        /// By which it is known, among all partitions.
        ticket: u64,
        /// The commit timestamp.
        at: Timestamp,
    },
    /// The halves of a deferred change; they stand where it stood.
    Resolved {
        /// By which it is known.
        ticket: u64,
        /// The halves; none if the message was bad.
        halves: Vec<Half<K, R>>,
    },
}

/// The net change of a key within a cut.
#[derive(Clone, Debug, PartialEq)]
pub struct Change<K, R> {
    /// The table and the key.
    pub key: K,
    /// The row before; `None` if there was none, or if the source does not send it.
    pub old: Option<R>,
    /// The row after; `None` if there is none.
    pub new: Option<R>,
}

/// A part of a cut.
#[derive(Clone, Debug, PartialEq)]
pub enum Step<K, R> {
    /// Net changes, in the order of keys.
    Rows(Vec<Change<K, R>>),
    /// Definitions changed after the rows before and before the rows after.
    Ddl(DdlAt),
}

/// Everything with timestamps in (the cut before, `at`].
#[derive(Clone, Debug)]
pub struct Cut<K, R> {
    /// The cut.
    pub at: Timestamp,
    /// What happened, in order.
    pub steps: Vec<Step<K, R>>,
    /// From where to go on: to be recorded together with the rows.
    pub positions: Positions,
}

/// The answer of [`Cutter::close`].
#[derive(Clone, Debug)]
pub enum Close<K, R> {
    /// Nothing can be closed: watermarks have not moved far enough.
    Waits,
    /// Partitions that were not known: they are to be read from their beginning, and hold the cut until
    /// their first watermark.
    Added(Vec<TopicPartition>),
    /// A cut.
    Closed(Cut<K, R>),
}

/// What to do when a source seems to be another one, or to begin anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reset {
    /// It is a fault: what looks like repetitions may be new rows of a cluster whose clock is behind.
    #[default]
    Refuse,
    /// Rows below the watermarks are repetitions, however old.
    Allow,
}

/// Limits of a cutter.
#[derive(Clone, Copy, Debug)]
pub struct CutOptions {
    /// How far a repetition may lie back, in milliseconds of the source's clock.
    pub back_ms_max: u64,
    /// What to do beyond that.
    pub reset: Reset,
}

impl Default for CutOptions {
    fn default() -> CutOptions {
        CutOptions { back_ms_max: 600_000, reset: Reset::Refuse }
    }
}

/// Why a source cannot go on: what was read cannot be all of the truth.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CutFault {
    /// A message of a partition that nobody announced.
    #[error("partition {0} is not one of the source's")]
    Unknown(TopicPartition),
    /// Offsets of a partition go up.
    #[error("partition {partition}: offset {offset} came after {next}")]
    OffsetWentBack {
        /// The partition.
        partition: TopicPartition,
        /// The offset that came.
        offset: i64,
        /// The least one that could come.
        next: i64,
    },
    /// A row that belongs to a cut that is closed, and is no repetition.
    #[error("partition {partition}, offset {offset}: a row of {at} came after the cut at {cut}")]
    Late {
        /// The partition.
        partition: TopicPartition,
        /// The offset.
        offset: i64,
        /// The row's timestamp.
        at: Timestamp,
        /// The cut.
        cut: Timestamp,
    },
    /// Two messages say different things about the same half of the same change.
    #[error("partition {partition}, offset {offset}: the row {key} of {at} has two contents")]
    Contradiction {
        /// The partition.
        partition: TopicPartition,
        /// The offset of the second one.
        offset: i64,
        /// The timestamp.
        at: Timestamp,
        /// The key.
        key: String,
    },
    /// The source lies further back than repetitions do.
    #[error(
        "partition {partition}, offset {offset}: {at} lies {behind_ms} ms behind the watermark {watermark}: \
         another changefeed or another cluster writes to the topic"
    )]
    Reset {
        /// The partition.
        partition: TopicPartition,
        /// The offset.
        offset: i64,
        /// The timestamp that came.
        at: Timestamp,
        /// The partition's watermark.
        watermark: Timestamp,
        /// How far it lies back.
        behind_ms: u64,
    },
}

/// What a cutter has counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CutCounts {
    /// Halves below a watermark before them: repetitions.
    pub below_watermark: u64,
    /// Halves that were held already.
    pub repeated: u64,
    /// Halves at or before the start.
    pub before_start: u64,
    /// Old rows that differ from the new row before them.
    pub mismatched: u64,
}

/// Holds rows until they can be cut.
#[derive(Clone, Debug)]
pub struct Cutter<K, R> {
    options: CutOptions,
    /// Rows at or before it are of no interest: the source began there.
    started: Timestamp,
    cut: Timestamp,
    partitions: BTreeMap<TopicPartition, Partition>,
    held: Held<K, R>,
    deferred: BTreeMap<u64, Deferred>,
    counts: CutCounts,
}

/// A change whose halves are not known yet.
#[derive(Clone, Debug)]
struct Deferred {
    at: Timestamp,
    id: TopicPartition,
    offset: i64,
}

impl<K: Clone + Ord + Debug, R: Content> Cutter<K, R> {
    /// A cutter of a source that is read for the first time: each partition from an offset on. Rows at or
    /// before `started` are left out; with 0 everything is taken.
    #[must_use]
    pub fn start(
        options: CutOptions,
        started: Timestamp,
        from: impl IntoIterator<Item = (TopicPartition, i64)>,
    ) -> Cutter<K, R> {
        let partitions = from.into_iter().map(|(id, offset)| (id, Partition::begin(offset))).collect();
        Cutter {
            options,
            started,
            cut: started,
            partitions,
            held: Held::default(),
            deferred: BTreeMap::new(),
            counts: CutCounts::default(),
        }
    }

    /// A cutter that goes on after a cut; [`Positions::offsets`] says where to read from.
    #[must_use]
    pub fn restore(options: CutOptions, positions: &Positions) -> Cutter<K, R> {
        let restored = positions.partitions.iter();
        let partitions = restored.map(|(id, position)| (id.clone(), Partition::restore(*position))).collect();
        Cutter {
            options,
            started: positions.started,
            cut: positions.cut,
            partitions,
            held: Held::default(),
            deferred: BTreeMap::new(),
            counts: CutCounts::default(),
        }
    }

    /// Takes the next message of a partition, with what it has for the cut. Messages that have nothing, or
    /// were bad and are skipped, are taken too, so that the position passes them.
    ///
    /// # Errors
    /// A [`CutFault`]: the source must stop.
    pub fn take(
        &mut self,
        id: &TopicPartition,
        offset: i64,
        entries: impl IntoIterator<Item = Entry<K, R>>,
    ) -> Result<(), CutFault> {
        let partition = self.partitions.get_mut(id).ok_or_else(|| CutFault::Unknown(id.clone()))?;
        partition.advance(id, offset)?;
        let is_repeated = partition.is_repeated(offset);
        for entry in entries {
            match entry {
                Entry::Watermark(_) if is_repeated => {}
                Entry::Watermark(at) => {
                    self.check_reset(id, offset, at)?;
                    self.partition(id).raise(at);
                }
                Entry::Row(half) => {
                    if self.is_wanted(id, offset, half.at, is_repeated)? {
                        self.partition(id).note(half.at);
                        self.hold_row(id, offset, half)?;
                    }
                }
                Entry::Ddl(ddl) => {
                    if self.is_wanted(id, offset, ddl.at, is_repeated)? && self.held.put_ddl(id, offset, ddl)
                    {
                        self.partition(id).hold(offset);
                    }
                }
                Entry::Deferred { ticket, at } => {
                    if self.is_wanted(id, offset, at, is_repeated)? {
                        self.deferred.insert(ticket, Deferred { at, id: id.clone(), offset });
                        self.partition(id).hold(offset);
                    }
                }
                Entry::Resolved { ticket, halves } => self.resolve(ticket, halves)?,
            }
        }
        Ok(())
    }

    /// Puts the halves of a change where it stood; if it was not wanted there, nothing is known of it.
    fn resolve(&mut self, ticket: u64, halves: Vec<Half<K, R>>) -> Result<(), CutFault> {
        let Some(Deferred { id, offset, .. }) = self.deferred.remove(&ticket) else { return Ok(()) };
        // The topic may have been forgotten since.
        if !self.partitions.contains_key(&id) {
            return Ok(());
        }
        for half in halves {
            self.hold_row(&id, offset, half)?;
        }
        self.partition(&id).release(offset);
        Ok(())
    }

    /// Says that a partition was read up to an offset without further messages: what lies between is gone
    /// or was never visible.
    ///
    /// # Errors
    /// If the partition is not known.
    pub fn reach(&mut self, id: &TopicPartition, offset: i64) -> Result<(), CutFault> {
        let partition = self.partitions.get_mut(id).ok_or_else(|| CutFault::Unknown(id.clone()))?;
        partition.reach(offset);
        Ok(())
    }

    /// The timestamp at which [`Cutter::close`] would cut.
    #[must_use]
    pub fn candidate(&self) -> Option<Timestamp> {
        let lowest = self.partitions.values().map(Partition::closed_below).min()?;
        let deferred = self.deferred.values().map(|deferred| deferred.at).min();
        let candidate = lowest?.min(deferred.unwrap_or(Timestamp::MAX)).prev();
        (candidate > self.cut).then_some(candidate)
    }

    /// Closes the cut that the watermarks allow. `current` are the source's partitions, asked for *after*
    /// the last message that was taken: rows of this cut may be in a partition that is new.
    pub fn close(&mut self, current: &BTreeSet<TopicPartition>) -> Close<K, R> {
        let added: Vec<TopicPartition> =
            current.iter().filter(|id| !self.partitions.contains_key(*id)).cloned().collect();
        if !added.is_empty() {
            for id in &added {
                self.partitions.insert(id.clone(), Partition::begin(0));
            }
            return Close::Added(added);
        }
        let Some(at) = self.candidate() else { return Close::Waits };
        let taken = self.held.take_until(at);
        for (id, offset) in &taken.freed {
            if let Some(partition) = self.partitions.get_mut(id) {
                partition.release(*offset);
            }
        }
        self.counts.mismatched += taken.n_mismatched;
        self.cut = at;
        Close::Closed(Cut { at, steps: taken.steps, positions: self.positions() })
    }

    /// Stops waiting for a topic: its table is gone, so it gets no watermarks any more.
    pub fn forget_topic(&mut self, topic: &str) {
        self.partitions.retain(|id, _| &*id.topic != topic);
        self.deferred.retain(|_, deferred| &*deferred.id.topic != topic);
    }

    /// The last cut.
    #[must_use]
    pub fn cut(&self) -> Timestamp {
        self.cut
    }

    /// What has been counted.
    #[must_use]
    pub fn counts(&self) -> CutCounts {
        self.counts
    }

    /// How many halves wait for a cut.
    #[must_use]
    pub fn n_held(&self) -> usize {
        self.held.len()
    }

    /// The partition that holds the cut back, with its watermark.
    #[must_use]
    pub fn slowest(&self) -> Option<(&TopicPartition, Timestamp)> {
        let watermarks = self.partitions.iter().map(|(id, partition)| (id, partition.watermark()));
        watermarks.min_by_key(|(_, watermark)| *watermark)
    }

    /// The partitions whose rows are further than so much ahead of the slowest watermark: they should be
    /// read no further for now.
    #[must_use]
    pub fn ahead(&self, ahead_ms_max: u64) -> Vec<TopicPartition> {
        let slowest = self.slowest().map_or(0, |(_, watermark)| watermark.physical_ms());
        let limit = slowest.saturating_add(ahead_ms_max);
        let ahead = self.partitions.iter().filter(|(_, partition)| partition.newest().physical_ms() > limit);
        ahead.map(|(id, _)| id.clone()).collect()
    }

    fn positions(&self) -> Positions {
        let partitions = self.partitions.iter().map(|(id, partition)| (id.clone(), partition.position()));
        Positions { started: self.started, cut: self.cut, partitions: partitions.collect() }
    }

    fn partition(&mut self, id: &TopicPartition) -> &mut Partition {
        self.partitions.get_mut(id).expect("the message was taken from this partition")
    }

    /// Whether something with a timestamp belongs to a cut to come.
    fn is_wanted(
        &mut self,
        id: &TopicPartition,
        offset: i64,
        at: Timestamp,
        is_repeated: bool,
    ) -> Result<bool, CutFault> {
        if at <= self.started {
            self.counts.before_start += 1;
            return Ok(false);
        }
        if is_repeated {
            // Below the recorded position: what is not held was in a cut, or was a repetition.
            return Ok(at > self.cut);
        }
        if at < self.partition(id).watermark() {
            self.check_reset(id, offset, at)?;
            self.counts.below_watermark += 1;
            return Ok(false);
        }
        if at <= self.cut {
            return Err(CutFault::Late { partition: id.clone(), offset, at, cut: self.cut });
        }
        Ok(true)
    }

    fn check_reset(&mut self, id: &TopicPartition, offset: i64, at: Timestamp) -> Result<(), CutFault> {
        let watermark = self.partition(id).watermark();
        let behind_ms = watermark.physical_ms().saturating_sub(at.physical_ms());
        if behind_ms <= self.options.back_ms_max || self.options.reset == Reset::Allow {
            return Ok(());
        }
        Err(CutFault::Reset { partition: id.clone(), offset, at, watermark, behind_ms })
    }

    fn hold_row(&mut self, id: &TopicPartition, offset: i64, half: Half<K, R>) -> Result<(), CutFault> {
        let (at, key) = (half.at, format!("{:?}", half.key));
        match self.held.put_row(id, offset, half) {
            held::Put::New => self.partition(id).hold(offset),
            held::Put::Known => self.counts.repeated += 1,
            held::Put::Contradicts => {
                return Err(CutFault::Contradiction { partition: id.clone(), offset, at, key });
            }
        }
        Ok(())
    }
}
