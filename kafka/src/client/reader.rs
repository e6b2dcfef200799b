//! Reads partitions from given offsets on: only what is committed, and never over a gap.
//!
//! No consumer group is joined and no offset is stored in Kafka: positions are ours. A position that the
//! broker does not have any more is an error that names what there is; so is one beyond the end, as after
//! the topic was made anew. A topic that was made anew and is longer than our position already looks like
//! the old one to the client: [`Reader::verify`] compares the last message read.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Headers, Message as _};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use thiserror::Error;
use types::{Error as CrossError, Result as CrossResult};
use xxhash_rust::xxh3::xxh3_64;

use super::{Connection, Logging};
use crate::cut::TopicPartition;
use crate::event::{Header, Message};

/// How long a question to the brokers may take.
const ASK_TIMEOUT: Duration = Duration::from_secs(30);

/// What a user may set over.
const DEFAULTS: &[(&str, &str)] = &[
    ("queued.min.messages", "10000"),
    ("queued.max.messages.kbytes", "32768"),
    ("fetch.wait.max.ms", "100"),
    ("check.crcs", "true"),
];

/// What guarantees rest on.
const FIXED: &[(&str, &str)] = &[
    ("enable.auto.commit", "false"),
    ("enable.auto.offset.store", "false"),
    ("auto.offset.reset", "error"),
    ("isolation.level", "read_committed"),
    ("enable.partition.eof", "true"),
    ("allow.auto.create.topics", "false"),
    ("topic.metadata.refresh.interval.ms", "10000"),
    // A full queue would stop a partition for a second.
    ("fetch.queue.backoff.ms", "20"),
];

/// A message, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The partition.
    pub partition: TopicPartition,
    /// The offset.
    pub offset: i64,
    /// When it was made or appended, in milliseconds since the epoch.
    pub timestamp_ms: Option<i64>,
    /// The key.
    pub key: Option<Vec<u8>>,
    /// The value.
    pub value: Option<Vec<u8>>,
    /// The headers.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Record {
    /// Gives the message to a decoder.
    pub fn with_message<T>(&self, read: impl FnOnce(Message<'_>) -> T) -> T {
        let headers: Vec<Header<'_>> =
            self.headers.iter().map(|(name, value)| Header { name, value: value.as_deref() }).collect();
        read(Message { key: self.key.as_deref(), value: self.value.as_deref(), headers: &headers })
    }

    /// A number by which the message is known again.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut bytes = Vec::new();
        for part in [&self.key, &self.value] {
            bytes.extend_from_slice(&part.as_ref().map_or(u64::MAX, |part| part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part.as_deref().unwrap_or_default());
        }
        bytes.extend_from_slice(&self.timestamp_ms.unwrap_or(-1).to_be_bytes());
        xxh3_64(&bytes)
    }
}

/// A position that the broker does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The partition.
    pub partition: TopicPartition,
    /// The offset that was to be read next.
    pub wanted: i64,
    /// The first offset that there is.
    pub first: i64,
    /// The end of what is committed.
    pub end: i64,
}

/// Why reading stopped.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// Messages that were not read are gone, or the topic is another one. Going on would leave a gap.
    #[error("history is lost: {}", shown(.0))]
    HistoryLost(Vec<Lost>),
    /// The topic is another one under the same name: its message at a recorded offset is not the one read.
    #[error(
        "partition {partition}: the message at offset {offset} is not the one that was read: \
         the topic was made anew"
    )]
    Recreated {
        /// The partition.
        partition: TopicPartition,
        /// The offset of the message that differs.
        offset: i64,
    },
    /// The client cannot go on.
    #[error("kafka: {0}")]
    Client(String),
}

fn shown(lost: &[Lost]) -> String {
    let all: Vec<String> = lost
        .iter()
        .map(|lost| {
            format!(
                "{} from offset {}, which has {} to {}",
                lost.partition, lost.wanted, lost.first, lost.end
            )
        })
        .collect();
    if all.is_empty() { "the broker refused a position".to_owned() } else { all.join(", ") }
}

/// Reads partitions.
pub struct Reader {
    config: ClientConfig,
    consumer: BaseConsumer<Logging>,
    /// Whether the consumer has had an assignment. It never gets a second one: librdkafka 2.12 ends the
    /// process (an assertion on partitions that stop twice) if two follow each other quickly.
    is_assigned: bool,
    /// The next offset of each partition that is read.
    next: BTreeMap<TopicPartition, i64>,
}

impl Reader {
    /// A reader of a cluster; `name` is what the brokers' logs and quotas see as its group.
    ///
    /// # Errors
    /// `Invalid` if a property has no such value.
    pub fn connect(connection: &Connection, name: &str) -> CrossResult<Reader> {
        let mut config = connection.config(DEFAULTS, FIXED);
        config.set("group.id", format!("tidemill-{name}"));
        let consumer = config
            .create_with_context(Logging)
            .map_err(|error| CrossError::invalid(format!("kafka source \"{name}\": {error}")))?;
        Ok(Reader { config, consumer, is_assigned: false, next: BTreeMap::new() })
    }

    /// The partitions of a topic, as the brokers have them now.
    ///
    /// # Errors
    /// `Invalid` if there is no such topic, `Unavailable` if the brokers do not answer.
    pub fn partitions(&self, topic: &str) -> CrossResult<Vec<TopicPartition>> {
        let metadata =
            self.consumer.fetch_metadata(Some(topic), ASK_TIMEOUT).map_err(|error| unavailable(&error))?;
        let found = metadata.topics().iter().find(|found| found.name() == topic);
        let Some(found) = found else {
            return Err(CrossError::invalid(format!("there is no topic \"{topic}\"")));
        };
        if let Some(error) = found.error() {
            let code = RDKafkaErrorCode::from(error);
            return Err(match code {
                RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic => {
                    CrossError::invalid(format!("there is no topic \"{topic}\""))
                }
                other => CrossError::unavailable(format!("topic \"{topic}\": {other}")),
            });
        }
        let mut partitions: Vec<TopicPartition> =
            found.partitions().iter().map(|partition| TopicPartition::new(topic, partition.id())).collect();
        partitions.sort();
        Ok(partitions)
    }

    /// The first offset of a partition and the end of what is committed: transactions that are open begin
    /// there.
    ///
    /// # Errors
    /// `Unavailable` if the brokers do not answer.
    pub fn bounds(&self, partition: &TopicPartition) -> CrossResult<(i64, i64)> {
        let bounds = self.consumer.fetch_watermarks(&partition.topic, partition.partition, ASK_TIMEOUT);
        bounds.map_err(|error| unavailable(&error))
    }

    /// The first offset of each partition whose message is not older than a time; the end if all are.
    ///
    /// # Errors
    /// `Unavailable` if the brokers do not answer.
    pub fn offsets_at(
        &self,
        partitions: &[TopicPartition],
        timestamp_ms: i64,
    ) -> CrossResult<Vec<(TopicPartition, i64)>> {
        let times = list(partitions.iter().map(|partition| (partition, timestamp_ms)))?;
        let found =
            self.consumer.offsets_for_times(times, ASK_TIMEOUT).map_err(|error| unavailable(&error))?;
        let mut offsets = Vec::with_capacity(partitions.len());
        for element in found.elements() {
            let partition = TopicPartition::new(element.topic(), element.partition());
            let offset = match element.offset() {
                Offset::Offset(offset) => offset,
                _ => self.bounds(&partition)?.1,
            };
            offsets.push((partition, offset));
        }
        offsets.sort();
        Ok(offsets)
    }

    /// Reads these partitions from these offsets on, and no others. A second time it makes a new
    /// connection: partitions that come later are for [`Reader::add`].
    ///
    /// # Errors
    /// [`ReadError::HistoryLost`] if the broker does not have an offset.
    pub fn assign(&mut self, from: &[(TopicPartition, i64)]) -> Result<(), ReadError> {
        self.next = from.iter().cloned().collect();
        self.check_positions()?;
        let list = list(from.iter().map(|(partition, offset)| (partition, *offset)));
        let list = list.map_err(|error| ReadError::Client(error.to_string()))?;
        if self.is_assigned {
            let fresh = self.config.create_with_context(Logging);
            self.consumer = fresh.map_err(|error| ReadError::Client(error.to_string()))?;
        }
        self.is_assigned = true;
        self.consumer.assign(&list).map_err(|error| ReadError::Client(error.to_string()))
    }

    /// Reads partitions too, beside those that are read.
    ///
    /// # Errors
    /// [`ReadError::HistoryLost`] if the broker does not have an offset.
    pub fn add(&mut self, from: &[(TopicPartition, i64)]) -> Result<(), ReadError> {
        self.next.extend(from.iter().cloned());
        self.check_positions()?;
        self.is_assigned = true;
        let list = list(from.iter().map(|(partition, offset)| (partition, *offset)));
        let list = list.map_err(|error| ReadError::Client(error.to_string()))?;
        self.consumer.incremental_assign(&list).map_err(|error| ReadError::Client(error.to_string()))
    }

    /// The next message of any partition; `None` if none came in time.
    ///
    /// # Errors
    /// A [`ReadError`] after which the partitions must be assigned again.
    pub fn read(&mut self, timeout: Duration) -> Result<Option<Record>, ReadError> {
        let read = match self.consumer.poll(timeout) {
            None => return Ok(None),
            Some(Ok(message)) => Ok(record(&message)),
            Some(Err(error)) => Err(error),
        };
        match read {
            Ok(record) => {
                self.next.insert(record.partition.clone(), record.offset + 1);
                Ok(Some(record))
            }
            Err(error) => self.failed(&error).map(|()| None),
        }
    }

    /// What an error of the client means: most it overcomes by itself.
    fn failed(&self, error: &KafkaError) -> Result<(), ReadError> {
        match error {
            KafkaError::PartitionEOF(_) => Ok(()),
            KafkaError::MessageConsumption(
                RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange,
            ) => {
                self.check_positions()?;
                // The broker's bounds have moved on since, or its log was cut and grew again.
                Err(ReadError::HistoryLost(Vec::new()))
            }
            KafkaError::MessageConsumption(
                RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic,
            )
            | KafkaError::MessageConsumptionFatal(_) => Err(ReadError::Client(error.to_string())),
            other => {
                tracing::warn!(error = %other, "kafka source");
                Ok(())
            }
        }
    }

    /// Compares positions with what the broker has.
    fn check_positions(&self) -> Result<(), ReadError> {
        let mut lost = Vec::new();
        for (partition, wanted) in &self.next {
            let (first, end) =
                self.bounds(partition).map_err(|error| ReadError::Client(error.to_string()))?;
            if *wanted < first || *wanted > end {
                lost.push(Lost { partition: partition.clone(), wanted: *wanted, first, end });
            }
        }
        if lost.is_empty() { Ok(()) } else { Err(ReadError::HistoryLost(lost)) }
    }

    /// Reads the last message before each offset again and compares it with the one that was read then, so
    /// that a topic that was deleted and made anew is not taken for the old one. Partitions whose message
    /// is gone by retention cannot be compared, and are returned.
    ///
    /// # Errors
    /// [`ReadError::Recreated`] if a message is another one; else as [`Reader::assign`] and [`Reader::read`].
    pub fn verify(
        &mut self,
        read: &[(TopicPartition, i64, u64)],
        patience: Duration,
    ) -> Result<Vec<TopicPartition>, ReadError> {
        let mut gone = Vec::new();
        for (partition, next, fingerprint) in read {
            let (first, _) = self.bounds(partition).map_err(|error| ReadError::Client(error.to_string()))?;
            if first >= *next {
                gone.push(partition.clone());
                continue;
            }
            self.assign(&[(partition.clone(), next - 1)])?;
            match self.read(patience)? {
                Some(record) if record.offset == next - 1 => {
                    if record.fingerprint() != *fingerprint {
                        let offset = record.offset;
                        return Err(ReadError::Recreated { partition: partition.clone(), offset });
                    }
                }
                // Compaction took it, or the old topic had nothing there that can be read.
                _ => gone.push(partition.clone()),
            }
        }
        Ok(gone)
    }

    /// The next offset of a partition that is read.
    #[must_use]
    pub fn position(&self, partition: &TopicPartition) -> Option<i64> {
        self.next.get(partition).copied()
    }

    /// Reads everything that was committed when the call began, and gives each message to `take`; returns
    /// how far it read. The end of a log may be nothing but marks of transactions, which no message shows:
    /// then the client's word that the end is reached decides. Only that word names no topic, so topics are
    /// read one after the other.
    ///
    /// # Errors
    /// As [`Reader::read`], and if nothing comes for `patience`.
    pub fn read_to_end(
        &mut self,
        patience: Duration,
        mut take: impl FnMut(Record),
    ) -> Result<Vec<(TopicPartition, i64)>, ReadError> {
        let all: Vec<(TopicPartition, i64)> = self.next.clone().into_iter().collect();
        let mut ends = BTreeMap::new();
        for (partition, _) in &all {
            let (_, end) = self.bounds(partition).map_err(|error| ReadError::Client(error.to_string()))?;
            ends.insert(partition.clone(), end);
        }
        let mut reached = Vec::with_capacity(all.len());
        let mut rest = all.as_slice();
        while let Some((first, _)) = rest.first() {
            let n_of_topic = rest.iter().take_while(|(partition, _)| partition.topic == first.topic).count();
            let (of_topic, others) = rest.split_at(n_of_topic);
            rest = others;
            self.assign(of_topic)?;
            self.read_topic_to(&ends, patience, &mut take)?;
            reached.extend(
                self.next.iter().map(|(partition, next)| (partition.clone(), *next.max(&ends[partition]))),
            );
        }
        self.assign(&reached)?;
        Ok(reached)
    }

    fn read_topic_to(
        &mut self,
        ends: &BTreeMap<TopicPartition, i64>,
        patience: Duration,
        take: &mut impl FnMut(Record),
    ) -> Result<(), ReadError> {
        let mut open: BTreeMap<i32, i64> = self
            .next
            .iter()
            .filter(|(partition, next)| **next < ends[*partition])
            .map(|(partition, _)| (partition.partition, ends[partition]))
            .collect();
        while !open.is_empty() {
            let polled = match self.consumer.poll(patience) {
                None => return Err(ReadError::Client(format!("the end did not come in {patience:?}"))),
                Some(Ok(message)) => Ok(record(&message)),
                Some(Err(error)) => Err(error),
            };
            match polled {
                Ok(record) => {
                    let number = record.partition.partition;
                    let next = record.offset + 1;
                    let end = ends.get(&record.partition).copied().unwrap_or(i64::MAX);
                    self.next.insert(record.partition.clone(), next);
                    if next >= end {
                        open.remove(&number);
                    }
                    take(record);
                }
                // It was asked for after the ends were, so it is at or beyond them.
                Err(KafkaError::PartitionEOF(number)) => {
                    open.remove(&number);
                }
                Err(error) => self.failed(&error)?,
            }
        }
        Ok(())
    }
}

fn list<'a>(offsets: impl Iterator<Item = (&'a TopicPartition, i64)>) -> CrossResult<TopicPartitionList> {
    let mut list = TopicPartitionList::new();
    for (partition, offset) in offsets {
        list.add_partition_offset(&partition.topic, partition.partition, Offset::Offset(offset))
            .map_err(|error| CrossError::invalid(format!("offset {offset} of {partition}: {error}")))?;
    }
    Ok(list)
}

fn unavailable(error: &KafkaError) -> CrossError {
    CrossError::unavailable(format!("kafka: {error}"))
}

fn record(message: &BorrowedMessage<'_>) -> Record {
    let headers = message.headers().map_or_else(Vec::new, |headers| {
        headers.iter().map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec))).collect()
    });
    Record {
        partition: TopicPartition::new(message.topic(), message.partition()),
        offset: message.offset(),
        timestamp_ms: message.timestamp().to_millis(),
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(<[u8]>::to_vec),
        headers,
    }
}
