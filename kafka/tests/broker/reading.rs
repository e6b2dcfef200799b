//! Reading at offsets: what is committed, never over a gap.

use kafka::{Lost, ReadError, Record};
use rdkafka::producer::Producer;

use crate::fixture::{
    PATIENCE, add_partitions, contents, create_topic, delete_before, delete_topic, id, outgoing,
    plain_producer, publisher, reader, send, transactional_producer, value, values,
};

fn next(reader: &mut kafka::Reader) -> Record {
    for _ in 0..1000 {
        if let Some(record) = reader.read(PATIENCE).unwrap() {
            return record;
        }
    }
    panic!("no message came");
}

#[test]
fn only_committed_messages_are_read_and_offsets_have_holes() {
    create_topic("holes", 1);
    let partition = id("holes", 0);
    publisher("holes-a").publish(&[outgoing("holes", 0, "a0"), outgoing("holes", 0, "a1")]).unwrap();
    let other = transactional_producer("holes-b");
    other.begin_transaction().unwrap();
    send(&other, &partition, "b0");
    // While it is open, what is committed ends before it, and nothing beyond is read.
    assert_eq!(reader().bounds(&partition).unwrap(), (0, 3), "two messages and the mark of their commit");
    send(&plain_producer(), &partition, "c0");
    assert_eq!(values("holes"), ["a0", "a1"]);
    other.abort_transaction(PATIENCE).unwrap();
    // The end is the mark of an aborted transaction, after a message.
    let expected = [(0, 0, "a0".to_owned()), (0, 1, "a1".to_owned()), (0, 4, "c0".to_owned())];
    assert_eq!(contents("holes"), expected);
    let mut reader = reader();
    reader.assign(&[(partition.clone(), 2)]).unwrap();
    assert_eq!(next(&mut reader).offset, 4, "offsets 2 and 3 are a mark and an aborted message");
    // Reading to an end that no message shows ends all the same.
    let reached = reader.read_to_end(PATIENCE, |record| panic!("{record:?}")).unwrap();
    assert_eq!(reached, [(partition, 6)]);
}

#[test]
fn headers_keys_and_missing_values_come_through() {
    create_topic("parts", 1);
    let mut tombstone = outgoing("parts", 0, "");
    tombstone.value = None;
    tombstone.key = Some(b"k".to_vec());
    tombstone.headers = vec![("h".to_owned(), Some(vec![0, 255])), ("n".to_owned(), None)];
    publisher("parts").publish(std::slice::from_ref(&tombstone)).unwrap();
    let mut reader = reader();
    reader.assign(&[(id("parts", 0), 0)]).unwrap();
    let record = next(&mut reader);
    assert_eq!((&record.key, &record.value, &record.headers), (&tombstone.key, &None, &tombstone.headers));
    assert!(record.with_message(|message| message.header("h") == Some(&[0, 255][..])));
}

#[test]
fn a_position_before_the_log_or_beyond_it_is_lost_history() {
    create_topic("lost", 2);
    let producer = plain_producer();
    for number in 0..4 {
        send(&producer, &id("lost", 1), &number.to_string());
    }
    delete_before(&id("lost", 1), 2);
    let mut reader = reader();
    let error = reader.assign(&[(id("lost", 0), 0), (id("lost", 1), 1)]).unwrap_err();
    let lost = Lost { partition: id("lost", 1), wanted: 1, first: 2, end: 4 };
    assert_eq!(error, ReadError::HistoryLost(vec![lost]));
    assert_eq!(error.to_string(), "history is lost: lost[1] from offset 1, which has 2 to 4");
    assert!(matches!(reader.assign(&[(id("lost", 1), 5)]), Err(ReadError::HistoryLost(_))), "beyond the end");
    reader.assign(&[(id("lost", 1), 2)]).unwrap();
    assert_eq!(value(&next(&mut reader)), "2");
}

#[test]
fn a_topic_that_was_made_anew_is_not_taken_for_the_old_one() {
    create_topic("anew", 1);
    let partition = id("anew", 0);
    let producer = plain_producer();
    send(&producer, &partition, "old 0");
    send(&producer, &partition, "old 1");
    let mut reader = reader();
    reader.assign(&[(partition.clone(), 0)]).unwrap();
    let first = next(&mut reader);
    let second = next(&mut reader);
    let read = [(partition.clone(), 2, second.fingerprint())];
    assert_eq!(reader.verify(&read, PATIENCE), Ok(Vec::new()), "the same topic");
    assert_ne!(first.fingerprint(), second.fingerprint());
    delete_topic("anew");
    create_topic("anew", 1);
    // Shorter than our position: the broker does not have it.
    let mut reader = crate::fixture::reader();
    assert!(matches!(reader.assign(&[(partition.clone(), 2)]), Err(ReadError::HistoryLost(_))));
    // Longer: only what stands there tells.
    let producer = plain_producer();
    for number in 0..4 {
        send(&producer, &partition, &format!("new {number}"));
    }
    let mut reader = crate::fixture::reader();
    reader.assign(&[(partition.clone(), 2)]).unwrap();
    assert_eq!(
        reader.verify(&read, PATIENCE),
        Err(ReadError::Recreated { partition: partition.clone(), offset: 1 })
    );
    // What retention took cannot be compared.
    delete_before(&partition, 3);
    assert_eq!(reader.verify(&read, PATIENCE), Ok(vec![partition]));
}

#[test]
fn partitions_that_are_added_are_read_from_their_beginning() {
    create_topic("grows", 1);
    let mut reader = reader();
    reader.assign(&[(id("grows", 0), 0)]).unwrap();
    add_partitions("grows", 2);
    send(&plain_producer(), &id("grows", 1), "early");
    send(&plain_producer(), &id("grows", 0), "zero");
    assert_eq!(value(&next(&mut reader)), "zero");
    assert_eq!(reader.partitions("grows").unwrap(), [id("grows", 0), id("grows", 1)]);
    reader.add(&[(id("grows", 1), 0)]).unwrap();
    assert_eq!(value(&next(&mut reader)), "early");
    assert_eq!((reader.position(&id("grows", 0)), reader.position(&id("grows", 1))), (Some(1), Some(1)));
}

#[test]
fn topics_that_are_not_there_are_named_and_not_made() {
    let error = reader().partitions("nowhere").unwrap_err();
    assert_eq!(error.message(), "there is no topic \"nowhere\"");
    assert!(reader().partitions("nowhere").is_err(), "asking did not make it");
}

#[test]
fn offsets_are_found_by_time() {
    create_topic("times", 1);
    send(&plain_producer(), &id("times", 0), "x");
    let found = |at: i64| reader().offsets_at(&[id("times", 0)], at).unwrap();
    assert_eq!(found(0), [(id("times", 0), 0)]);
    assert_eq!(found(i64::MAX / 2), [(id("times", 0), 1)], "the end, if all is older");
}
