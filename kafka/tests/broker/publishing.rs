//! Publishing in transactions: all or nothing, and by one publisher at a time.

use std::time::Duration;

use kafka::{Connection, PublishError, Publisher, partition_of_key};
use kafka_broker::{Broker, BrokerOptions};
use rdkafka::producer::Producer;

use crate::fixture::{
    address, connection, contents, create_topic, id, outgoing, publisher, publisher_options, send,
    transactional_producer, values,
};

#[test]
fn a_transaction_over_partitions_is_all_or_nothing() {
    create_topic("atomic", 3);
    let mut publisher = publisher("atomic");
    let three = [outgoing("atomic", 0, "a"), outgoing("atomic", 1, "b"), outgoing("atomic", 2, "c")];
    publisher.publish(&three).unwrap();
    // The last one has no partition to go to: the first two do not appear either.
    let bad = [outgoing("atomic", 0, "d"), outgoing("atomic", 1, "e"), outgoing("atomic", 9, "f")];
    let error = publisher.publish(&bad).unwrap_err();
    assert!(matches!(error, PublishError::Invalid(_)), "{error:?}");
    assert_eq!(values("atomic"), ["a", "b", "c"]);
    // And the publisher is as good as before.
    publisher.publish(&[outgoing("atomic", 0, "g")]).unwrap();
    assert_eq!(values("atomic"), ["a", "g", "b", "c"]);
}

#[test]
fn a_message_that_is_too_large_is_said_before_anything_is_published() {
    create_topic("large", 1);
    let mut publisher = publisher("large");
    let large = outgoing("large", 0, &"x".repeat(2_000_000));
    let error = publisher.publish(&[outgoing("large", 0, "a"), large]).unwrap_err();
    assert!(matches!(&error, PublishError::Invalid(reason) if reason.contains("larger")), "{error:?}");
    publisher.publish(&[outgoing("large", 0, "b")]).unwrap();
    assert_eq!(values("large"), ["b"]);
}

#[test]
fn who_connects_later_fences_who_was_there_before() {
    create_topic("fence", 1);
    let mut first = publisher("fence");
    first.publish(&[outgoing("fence", 0, "first")]).unwrap();
    let mut second = publisher("fence");
    let error = first.publish(&[outgoing("fence", 0, "zombie")]).unwrap_err();
    assert!(matches!(error, PublishError::Fenced(_)), "{error:?}");
    second.publish(&[outgoing("fence", 0, "second")]).unwrap();
    assert!(matches!(first.publish(&[outgoing("fence", 0, "zombie")]), Err(PublishError::Fenced(_))));
    assert_eq!(values("fence"), ["first", "second"]);
}

#[test]
fn the_open_transaction_of_a_predecessor_is_aborted() {
    create_topic("open", 1);
    let predecessor = transactional_producer("open");
    predecessor.begin_transaction().unwrap();
    send(&predecessor, &id("open", 0), "never");
    let mut successor = publisher("open");
    successor.publish(&[outgoing("open", 0, "after")]).unwrap();
    assert!(predecessor.commit_transaction(Duration::from_secs(30)).is_err(), "it is fenced");
    // Nothing of it is seen, and nobody waits for it.
    assert_eq!(values("open"), ["after"]);
}

#[test]
fn a_transaction_timeout_that_brokers_do_not_allow_is_named() {
    let mut options = publisher_options("patient");
    options.transaction_timeout = Duration::from_secs(3_600);
    let error = Publisher::connect(&connection(), &options).err().expect("an hour is too long");
    assert_eq!(
        error,
        PublishError::Invalid("the brokers do not allow a transaction of 3600000 ms".to_owned())
    );
}

#[test]
fn keys_go_where_other_clients_send_them() {
    create_topic("keys", 5);
    // Java's default partitioner, in librdkafka's words.
    let producer: rdkafka::producer::BaseProducer = rdkafka::ClientConfig::new()
        .set("bootstrap.servers", address())
        .set("partitioner", "murmur2")
        .create()
        .unwrap();
    let mut expected = Vec::new();
    for key in ["", "a", "ab", "abc", "abcd", "häufig", "a longer key"] {
        let record = rdkafka::producer::BaseRecord::to("keys").key(key).payload(key);
        producer.send(record).map_err(|(error, _)| error).unwrap();
        expected.push((partition_of_key(key.as_bytes(), 5) as i32, key.to_owned()));
    }
    producer.flush(Duration::from_secs(60)).unwrap();
    let mut found: Vec<(i32, String)> =
        contents("keys").into_iter().map(|(partition, _, value)| (partition, value)).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn a_publisher_outlives_its_broker_and_knows_what_it_published() {
    let mut broker = Broker::start(&BrokerOptions::default());
    let connection = Connection::to(&broker.address()).unwrap();
    // Topics of this broker are made by its own client.
    let admin: rdkafka::admin::AdminClient<rdkafka::client::DefaultClientContext> =
        rdkafka::ClientConfig::new().set("bootstrap.servers", broker.address()).create().unwrap();
    let topic = rdkafka::admin::NewTopic::new("outlive", 1, rdkafka::admin::TopicReplication::Fixed(1));
    let options = rdkafka::admin::AdminOptions::new().operation_timeout(Some(Duration::from_secs(60)));
    futures::executor::block_on(admin.create_topics([&topic], &options)).unwrap().remove(0).unwrap();
    let mut publisher = Publisher::connect(&connection, &publisher_options("outlive")).unwrap();
    publisher.publish(&[outgoing("outlive", 0, "0")]).unwrap();
    broker.kill();
    broker.resume();
    // Whatever the answers are: what was said to be published is there, once, and what was not is not.
    let mut published = vec!["0".to_owned()];
    for number in 1..4 {
        let message = outgoing("outlive", 0, &number.to_string());
        match publisher.publish(std::slice::from_ref(&message)) {
            Ok(()) => published.push(number.to_string()),
            Err(PublishError::Aborted(_)) => {}
            Err(PublishError::Broken(_) | PublishError::Fenced(_)) => {
                publisher = Publisher::connect(&connection, &publisher_options("outlive")).unwrap();
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    publisher.publish(&[outgoing("outlive", 0, "last")]).unwrap();
    published.push("last".to_owned());
    let mut reader = kafka::Reader::connect(&connection, "outlive").unwrap();
    reader.assign(&[(id("outlive", 0), 0)]).unwrap();
    let mut found = Vec::new();
    reader.read_to_end(Duration::from_secs(60), |record| found.push(crate::fixture::value(&record))).unwrap();
    assert_eq!(found, published);
}
