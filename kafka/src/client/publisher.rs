//! Publishes messages in transactions: all of them, or none that a reader of committed messages sees.
//!
//! Connecting with a transactional id fences whoever had it before: his open transaction is aborted, and what
//! he does from then on fails. The last one to connect wins; whether he *should* is for the caller to know,
//! before and after. What has been published is asked of the topic, never assumed: a commit whose answer did
//! not come may have happened.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext, PurgeConfig};
use thiserror::Error;

use super::Connection;

/// How long the brokers get for one step.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// How often a step that may be repeated is.
const ATTEMPTS: usize = 10;

/// How long a full queue is given to empty itself a little.
const QUEUE_WAIT: Duration = Duration::from_millis(50);

/// What a user may set over.
const DEFAULTS: &[(&str, &str)] = &[("compression.type", "lz4"), ("linger.ms", "5")];

/// How to publish.
#[derive(Clone, Debug)]
pub struct PublisherOptions {
    /// By which the brokers know the successor of a publisher.
    pub transactional_id: String,
    /// After what time the brokers abort a transaction; they allow 15 minutes, unless told otherwise.
    pub transaction_timeout: Duration,
}

/// A message to publish.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outgoing {
    /// The topic.
    pub topic: String,
    /// The partition: always named, so that messages keep their order.
    pub partition: i32,
    /// The key.
    pub key: Option<Vec<u8>>,
    /// The value; `None` is a tombstone.
    pub value: Option<Vec<u8>>,
    /// The headers.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

/// Why messages were not published, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PublishError {
    /// Another publisher has the transactional id now. Stop, or prove that the id is ours and connect again.
    #[error("fenced: another publisher has the transactional id: {0}")]
    Fenced(String),
    /// Nothing was published. The same may be tried again with the same publisher.
    #[error("aborted: {0}")]
    Aborted(String),
    /// Whether it was published is not known. Connect again and ask the topic.
    #[error("the outcome is not known: {0}")]
    Unknown(String),
    /// Nothing was published, and the publisher is of no use any more. Connect again.
    #[error("the publisher is broken: {0}")]
    Broken(String),
    /// A message or an option is not possible. Nothing was published.
    #[error("not possible: {0}")]
    Invalid(String),
}

/// Counts what the brokers have acknowledged.
#[derive(Default)]
struct Deliveries {
    outcome: Mutex<Outcome>,
}

#[derive(Default)]
struct Outcome {
    n_delivered: usize,
    first_error: Option<KafkaError>,
}

impl Deliveries {
    fn take(&self) -> Outcome {
        std::mem::take(&mut *self.outcome.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ClientContext for Deliveries {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        super::log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::warn!(%error, reason, "kafka client");
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(_) => outcome.n_delivered += 1,
            Err((error, _)) => {
                outcome.first_error.get_or_insert_with(|| error.clone());
            }
        }
    }
}

/// Publishes in transactions under one transactional id.
pub struct Publisher {
    producer: BaseProducer<Deliveries>,
    /// How many partitions topics had when they were last asked for; topics only grow.
    n_partitions: BTreeMap<String, i32>,
}

impl Publisher {
    /// Connects, and fences whoever had the transactional id before.
    ///
    /// # Errors
    /// A [`PublishError`]; nothing has been published.
    pub fn connect(connection: &Connection, options: &PublisherOptions) -> Result<Publisher, PublishError> {
        let timeout = options.transaction_timeout.as_millis().to_string();
        let fixed = [
            ("transactional.id", options.transactional_id.as_str()),
            ("transaction.timeout.ms", timeout.as_str()),
            ("enable.idempotence", "true"),
            ("allow.auto.create.topics", "false"),
        ];
        let producer: BaseProducer<Deliveries> = connection
            .config(DEFAULTS, &fixed)
            .create_with_context(Deliveries::default())
            .map_err(|error| PublishError::Invalid(error.to_string()))?;
        let publisher = Publisher { producer, n_partitions: BTreeMap::new() };
        publisher.repeat(|producer| producer.init_transactions(STEP_TIMEOUT)).map_err(|error| {
            let is_too_long = error.rdkafka_error_code() == Some(RDKafkaErrorCode::InvalidTransactionTimeout);
            match publisher.broken(&error) {
                _ if is_too_long => {
                    PublishError::Invalid(format!("the brokers do not allow a transaction of {timeout} ms"))
                }
                fenced @ PublishError::Fenced(_) => fenced,
                _ => PublishError::Broken(error.to_string()),
            }
        })?;
        Ok(publisher)
    }

    /// Publishes messages in one transaction.
    ///
    /// # Errors
    /// A [`PublishError`], which says whether anything has been published.
    pub fn publish(&mut self, messages: &[Outgoing]) -> Result<(), PublishError> {
        self.check_partitions(messages)?;
        self.producer.begin_transaction().map_err(|error| self.broken(&error))?;
        self.producer.context().take();
        if let Err(error) = self.send_all(messages) {
            return Err(self.abort(&error));
        }
        if let Err(error) = self.producer.flush(STEP_TIMEOUT) {
            return Err(self.abort(&PublishError::Aborted(error.to_string())));
        }
        let outcome = self.producer.context().take();
        if let Some(error) = outcome.first_error {
            return Err(self.abort(&self.delivery_error(&error)));
        }
        if outcome.n_delivered != messages.len() {
            let missing = messages.len() - outcome.n_delivered;
            return Err(
                self.abort(&PublishError::Aborted(format!("{missing} messages were not acknowledged")))
            );
        }
        self.commit()
    }

    /// Asks for partitions that were not there when they were last asked for: within a transaction the client
    /// would wait for them to appear.
    fn check_partitions(&mut self, messages: &[Outgoing]) -> Result<(), PublishError> {
        for Outgoing { topic, partition, .. } in messages {
            if self.n_partitions.get(topic).is_some_and(|n_partitions| (0..*n_partitions).contains(partition))
            {
                continue;
            }
            let metadata = self.producer.client().fetch_metadata(Some(topic), STEP_TIMEOUT);
            let metadata = metadata.map_err(|error| PublishError::Aborted(error.to_string()))?;
            let found =
                metadata.topics().iter().find(|found| found.name() == topic && found.error().is_none());
            let n_partitions = found.map_or(0, |found| found.partitions().len() as i32);
            if !(0..n_partitions).contains(partition) {
                let reason =
                    format!("topic \"{topic}\" has {n_partitions} partitions, and not partition {partition}");
                return Err(PublishError::Invalid(reason));
            }
            self.n_partitions.insert(topic.clone(), n_partitions);
        }
        Ok(())
    }

    fn send_all(&self, messages: &[Outgoing]) -> Result<(), PublishError> {
        for message in messages {
            let mut record = BaseRecord::to(&message.topic).partition(message.partition);
            if let Some(key) = &message.key {
                record = record.key(key.as_slice());
            }
            if let Some(value) = &message.value {
                record = record.payload(value.as_slice());
            }
            if !message.headers.is_empty() {
                let headers = OwnedHeaders::new_with_capacity(message.headers.len());
                record = record.headers(message.headers.iter().fold(headers, |headers, (key, value)| {
                    headers.insert(Header { key, value: value.as_ref() })
                }));
            }
            let mut waiting = Some(record);
            while let Some(record) = waiting.take() {
                match self.producer.send(record) {
                    Ok(()) => {}
                    Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), record)) => {
                        self.producer.poll(QUEUE_WAIT);
                        waiting = Some(record);
                    }
                    Err((error, _)) => return Err(self.delivery_error(&error)),
                }
            }
            self.producer.poll(Duration::ZERO);
        }
        Ok(())
    }

    fn commit(&self) -> Result<(), PublishError> {
        let Err(error) = self.repeat(|producer| producer.commit_transaction(STEP_TIMEOUT)) else {
            return Ok(());
        };
        match &error {
            KafkaError::Transaction(cause) if cause.txn_requires_abort() => {
                Err(self.abort(&PublishError::Aborted(error.to_string())))
            }
            // Retriable for longer than we try: it may have happened.
            KafkaError::Transaction(cause) if cause.is_retriable() => {
                Err(PublishError::Unknown(error.to_string()))
            }
            KafkaError::Flush(_) => Err(self.abort(&PublishError::Aborted(error.to_string()))),
            _ => Err(match self.broken(&error) {
                fenced @ PublishError::Fenced(_) => fenced,
                _ => PublishError::Unknown(error.to_string()),
            }),
        }
    }

    /// Aborts the transaction, and says what the reason is worth after that. What is on its way is waited
    /// for: a message that came after the end of its transaction would be part of the next one.
    fn abort(&self, reason: &PublishError) -> PublishError {
        self.producer.purge(PurgeConfig::default().queue());
        if let Err(error) = self.producer.flush(STEP_TIMEOUT) {
            return PublishError::Broken(format!("{reason}, then: {error}"));
        }
        match self.repeat(|producer| producer.abort_transaction(STEP_TIMEOUT)) {
            Ok(()) => reason.clone(),
            Err(error) => match (self.broken(&error), reason) {
                (fenced @ PublishError::Fenced(_), _) => fenced,
                (_, fenced @ PublishError::Fenced(_)) => fenced.clone(),
                _ => PublishError::Broken(format!("{reason}, then: {error}")),
            },
        }
    }

    /// Repeats a step of the protocol while the client says that it may be.
    fn repeat(
        &self,
        step: impl Fn(&BaseProducer<Deliveries>) -> Result<(), KafkaError>,
    ) -> Result<(), KafkaError> {
        let mut outcome = step(&self.producer);
        for _ in 1..ATTEMPTS {
            match &outcome {
                Err(KafkaError::Transaction(error)) if error.is_retriable() => outcome = step(&self.producer),
                _ => break,
            }
        }
        outcome
    }

    /// What the failure of one message means for all of them.
    fn delivery_error(&self, error: &KafkaError) -> PublishError {
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::MessageSizeTooLarge) => PublishError::Invalid(
                "a message is larger than the brokers or `message.max.bytes` allow".to_owned(),
            ),
            Some(RDKafkaErrorCode::UnknownPartition | RDKafkaErrorCode::UnknownTopic) => {
                PublishError::Invalid(format!("no such topic or partition: {error}"))
            }
            Some(RDKafkaErrorCode::PurgeQueue | RDKafkaErrorCode::PurgeInflight) => {
                PublishError::Aborted(error.to_string())
            }
            _ if self.producer.client().fatal_error().is_some() => self.broken(error),
            _ => PublishError::Aborted(error.to_string()),
        }
    }

    /// A failure after which the producer is of no use: fenced, or broken in another way.
    fn broken(&self, error: &KafkaError) -> PublishError {
        let fatal = self.producer.client().fatal_error();
        let codes = [error.rdkafka_error_code(), fatal.as_ref().map(|(code, _)| *code)];
        let is_fenced = codes.into_iter().flatten().any(|code| {
            matches!(
                code,
                RDKafkaErrorCode::Fenced
                    | RDKafkaErrorCode::InvalidProducerEpoch
                    | RDKafkaErrorCode::ProducerFenced
            )
        });
        let text = fatal.map_or_else(|| error.to_string(), |(code, text)| format!("{code}: {text}"));
        if is_fenced { PublishError::Fenced(text) } else { PublishError::Broken(text) }
    }
}
