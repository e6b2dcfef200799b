//! Where the brokers are and how to speak to them: what a user may set, and nothing else.
//!
//! Properties come from SQL, so the list is one of what is allowed. Secrets never show.

use std::collections::BTreeMap;
use std::fmt;

use rdkafka::ClientConfig;
use types::{Error, Result};

/// What a user may set; the names are librdkafka's.
const ALLOWED: &[&str] = &[
    "bootstrap.servers",
    "broker.address.family",
    "check.crcs",
    "client.dns.lookup",
    "client.id",
    "client.rack",
    "compression.type",
    "connections.max.idle.ms",
    "enable.ssl.certificate.verification",
    "fetch.max.bytes",
    "fetch.message.max.bytes",
    "fetch.min.bytes",
    "fetch.wait.max.ms",
    "linger.ms",
    "message.max.bytes",
    "queued.max.messages.kbytes",
    "queued.min.messages",
    "receive.message.max.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "sasl.mechanism",
    "sasl.password",
    "sasl.username",
    "security.protocol",
    "socket.connection.setup.timeout.ms",
    "socket.keepalive.enable",
    "socket.timeout.ms",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.pem",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.password",
    "ssl.key.pem",
];

/// Names of Java's client, with librdkafka's or with what to do instead.
const JAVA_NAMES: &[(&str, &str)] = &[
    ("max.partition.fetch.bytes", "fetch.message.max.bytes"),
    ("bootstrap.server", "bootstrap.servers"),
    ("fetch.max.wait.ms", "fetch.wait.max.ms"),
    ("sasl.mechanisms", "sasl.mechanism"),
];

/// Properties that are ours to decide, or of no use, with the reason.
const REFUSED: &[(&str, &str)] = &[
    ("sasl.jaas.config", "give `sasl.username` and `sasl.password`"),
    ("ssl.truststore.location", "give the certificates as `ssl.ca.pem`"),
    ("ssl.keystore.location", "give `ssl.certificate.pem` and `ssl.key.pem`"),
    ("auto.offset.reset", "a lost position is always an error"),
    ("isolation.level", "only committed messages are read"),
    ("enable.auto.commit", "positions are recorded with the rows"),
    ("group.id", "it is the option `group_id`"),
    ("transactional.id", "it is the option `transactional_id`"),
    ("transaction.timeout.ms", "it is the option `transaction_timeout`"),
];

/// How to reach a Kafka cluster.
#[derive(Clone, PartialEq, Eq)]
pub struct Connection {
    properties: BTreeMap<String, String>,
}

impl Connection {
    /// A connection from properties, by the names of librdkafka or of Java's client.
    ///
    /// # Errors
    /// `Invalid` for a property that may not be set, or if there are no brokers.
    pub fn new(properties: impl IntoIterator<Item = (String, String)>) -> Result<Connection> {
        let mut known = BTreeMap::new();
        for (name, value) in properties {
            let java = JAVA_NAMES.iter().find(|(java, _)| *java == name);
            let name = java.map_or(name.as_str(), |(_, ours)| ours);
            if let Some((_, reason)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
                return Err(Error::invalid(format!("property `{name}` cannot be set: {reason}")));
            }
            if !ALLOWED.contains(&name) {
                return Err(Error::invalid(format!("property `{name}` is not known, or not allowed")));
            }
            known.insert(name.to_owned(), value);
        }
        if known.get("bootstrap.servers").is_none_or(String::is_empty) {
            return Err(Error::invalid("property `bootstrap.servers` is missing"));
        }
        Ok(Connection { properties: known })
    }

    /// A connection to brokers, without anything else.
    ///
    /// # Errors
    /// `Invalid` if there are none.
    pub fn to(brokers: &str) -> Result<Connection> {
        Connection::new([("bootstrap.servers".to_owned(), brokers.to_owned())])
    }

    /// The client's configuration; `defaults` are what a user may set over.
    pub(crate) fn config(&self, defaults: &[(&str, &str)], fixed: &[(&str, &str)]) -> ClientConfig {
        let mut config = ClientConfig::new();
        for (name, value) in defaults {
            config.set(*name, *value);
        }
        for (name, value) in &self.properties {
            config.set(name, value);
        }
        for (name, value) in fixed {
            config.set(*name, *value);
        }
        config
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = out.debug_map();
        for (name, value) in &self.properties {
            let is_secret = name.contains("password") || name.ends_with(".pem");
            map.entry(name, if is_secret { &"***" } else { value });
        }
        map.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::Connection;

    fn connection(name: &str, value: &str) -> types::Result<Connection> {
        let brokers = ("bootstrap.servers".to_owned(), "localhost:1".to_owned());
        Connection::new([brokers, (name.to_owned(), value.to_owned())])
    }

    #[test]
    fn only_what_is_allowed_can_be_set_and_secrets_never_show() {
        for (name, reason) in [
            ("debug", "not allowed"),
            ("plugin.library.paths", "not allowed"),
            ("ssl.key.location", "not allowed"),
            ("auto.offset.reset", "a lost position is always an error"),
            ("sasl.jaas.config", "sasl.username"),
        ] {
            let error = connection(name, "x").unwrap_err();
            assert!(error.message().contains(reason), "{error}");
        }
        assert!(Connection::to("").is_err());
        let shown = format!("{:?}", connection("sasl.password", "secret").unwrap());
        assert!(shown.contains("localhost:1") && !shown.contains("secret"), "{shown}");
        let java = connection("max.partition.fetch.bytes", "7").unwrap();
        assert!(format!("{java:?}").contains("fetch.message.max.bytes"));
    }
}
