//! One broker for all tests of the process, topics of their own for each, and a client without our rules.

use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use futures::executor::block_on;
use kafka::{Connection, Outgoing, Publisher, PublisherOptions, Reader, Record, TopicPartition};
use kafka_broker::{Broker, BrokerOptions};
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};

/// How long a message is waited for; generous, as CI machines are slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

static BROKER: LazyLock<Mutex<Broker>> =
    LazyLock::new(|| Mutex::new(Broker::start(&BrokerOptions::default())));

/// The address of the broker that all tests share. It ends with this process.
pub(crate) fn address() -> String {
    BROKER.lock().expect("the broker is only asked for its address").address()
}

pub(crate) fn connection() -> Connection {
    Connection::to(&address()).unwrap()
}

pub(crate) fn reader() -> Reader {
    Reader::connect(&connection(), "test").unwrap()
}

pub(crate) fn id(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition::new(topic, partition)
}

fn admin() -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", address()).create().unwrap()
}

fn options() -> AdminOptions {
    AdminOptions::new().operation_timeout(Some(PATIENCE)).request_timeout(Some(PATIENCE))
}

/// Makes a topic and waits until the broker says that it is there.
pub(crate) fn create_topic(topic: &str, n_partitions: i32) {
    let new = NewTopic::new(topic, n_partitions, TopicReplication::Fixed(1));
    block_on(admin().create_topics([&new], &options())).unwrap().remove(0).unwrap();
    wait_partitions(topic, n_partitions as usize);
}

pub(crate) fn delete_topic(topic: &str) {
    block_on(admin().delete_topics(&[topic], &options())).unwrap().remove(0).unwrap();
    until(|reader| reader.partitions(topic).is_err());
}

pub(crate) fn add_partitions(topic: &str, n_partitions: usize) {
    let new = NewPartitions::new(topic, n_partitions);
    block_on(admin().create_partitions([&new], &options())).unwrap().remove(0).unwrap();
    wait_partitions(topic, n_partitions);
}

/// Takes away the messages before an offset, as retention does.
pub(crate) fn delete_before(partition: &TopicPartition, offset: i64) {
    let mut offsets = TopicPartitionList::new();
    offsets.add_partition_offset(&partition.topic, partition.partition, Offset::Offset(offset)).unwrap();
    block_on(admin().delete_records(&offsets, &options())).unwrap();
}

fn wait_partitions(topic: &str, n_partitions: usize) {
    until(|reader| reader.partitions(topic).is_ok_and(|found| found.len() == n_partitions));
}

fn until(holds: impl Fn(&Reader) -> bool) {
    let mut reader = reader();
    for _ in 0..600 {
        if holds(&reader) {
            return;
        }
        // A reader of nothing waits and reads nothing.
        assert_eq!(reader.read(Duration::from_millis(100)).unwrap(), None);
    }
    panic!("the broker's metadata did not follow in time");
}

/// A producer as TiCDC's: neither idempotent nor transactional.
pub(crate) fn plain_producer() -> BaseProducer {
    ClientConfig::new().set("bootstrap.servers", address()).set("acks", "all").create().unwrap()
}

/// A producer in whose transactions tests look from outside.
pub(crate) fn transactional_producer(transactional_id: &str) -> BaseProducer {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", address())
        .set("transactional.id", transactional_id)
        .create()
        .unwrap();
    producer.init_transactions(PATIENCE).unwrap();
    producer
}

/// Writes a message and waits for it.
pub(crate) fn send(producer: &BaseProducer, partition: &TopicPartition, value: &str) {
    let record = BaseRecord::<(), str>::to(&partition.topic).partition(partition.partition).payload(value);
    producer.send(record).map_err(|(error, _)| error).unwrap();
    producer.flush(PATIENCE).unwrap();
}

pub(crate) fn publisher(transactional_id: &str) -> Publisher {
    Publisher::connect(&connection(), &publisher_options(transactional_id)).unwrap()
}

pub(crate) fn publisher_options(transactional_id: &str) -> PublisherOptions {
    PublisherOptions {
        transactional_id: transactional_id.to_owned(),
        transaction_timeout: Duration::from_secs(60),
    }
}

pub(crate) fn outgoing(topic: &str, partition: i32, value: &str) -> Outgoing {
    Outgoing { topic: topic.to_owned(), partition, value: Some(value.into()), ..Outgoing::default() }
}

pub(crate) fn value(record: &Record) -> String {
    String::from_utf8(record.value.clone().unwrap_or_default()).unwrap()
}

/// All that is committed in a topic now, as (partition, offset, value).
pub(crate) fn contents(topic: &str) -> Vec<(i32, i64, String)> {
    let mut reader = reader();
    let from: Vec<_> = reader
        .partitions(topic)
        .unwrap()
        .into_iter()
        .map(|partition| {
            let (first, _) = reader.bounds(&partition).unwrap();
            (partition, first)
        })
        .collect();
    reader.assign(&from).unwrap();
    let mut found = Vec::new();
    reader
        .read_to_end(PATIENCE, |record| {
            found.push((record.partition.partition, record.offset, value(&record)));
        })
        .unwrap();
    found.sort();
    found
}

pub(crate) fn values(topic: &str) -> Vec<String> {
    contents(topic).into_iter().map(|(_, _, value)| value).collect()
}
