//! Kafka's client: what is allowed to be set, reading at recorded offsets, publishing in transactions.
//!
//! All calls here block; they belong on threads of their own, never into an async task.

mod connection;
mod partitioner;
mod publisher;
mod reader;

pub use connection::Connection;
pub use partitioner::partition_of_key;
pub use publisher::{Outgoing, PublishError, Publisher, PublisherOptions};
pub use reader::{Lost, ReadError, Reader, Record};

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::KafkaError;

/// Sends the client's own log to ours. What it calls errors are mostly connections that it makes again.
struct Logging;

impl ClientContext for Logging {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::warn!(%error, reason, "kafka client");
    }
}

impl ConsumerContext for Logging {}

fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
            tracing::error!(facility, message, "kafka client");
        }
        RDKafkaLogLevel::Error | RDKafkaLogLevel::Warning => {
            tracing::warn!(facility, message, "kafka client")
        }
        RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => tracing::info!(facility, message, "kafka client"),
        RDKafkaLogLevel::Debug => tracing::debug!(facility, message, "kafka client"),
    }
}
