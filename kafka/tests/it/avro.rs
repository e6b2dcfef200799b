//! Avro in frames, byte by byte.

use kafka::{AvroSchema, Cell, FramedAvro, KnownSchemas, Value, message_indexes, read_record, unframed};
use proptest::prelude::*;
use tidb::Decimal;
use types::ErrorKind;

use crate::support::{mutated, text};

const SCHEMA: &str = r#"{"type":"record","name":"Row","namespace":"a.b","fields":[
    {"name":"i","type":"int"},
    {"name":"l","type":["null","long"]},
    {"name":"f","type":"float"},
    {"name":"d","type":"double"},
    {"name":"on","type":"boolean"},
    {"name":"s","type":"string"},
    {"name":"b","type":"bytes"},
    {"name":"m","type":{"type":"bytes","logicalType":"decimal","precision":10,"scale":2}},
    {"name":"day","type":{"type":"int","logicalType":"date"}},
    {"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}},
    {"name":"local","type":{"type":"long","connect.name":"io.debezium.time.MicroTimestamp"}},
    {"name":"e","type":{"type":"enum","name":"E","symbols":["x","y"]}},
    {"name":"e2","type":"E"},
    {"name":"a","type":{"type":"array","items":["null","string"]}},
    {"name":"h","type":{"type":"map","values":"int"}},
    {"name":"x","type":{"type":"fixed","name":"F","size":2}},
    {"name":"tree","type":["null",{"type":"record","name":"Tree","fields":[
        {"name":"v","type":"int"},{"name":"next","type":["null","Tree"]}]}]}]}"#;

/// A record of the schema above, as the specification has its bytes.
fn record() -> Vec<u8> {
    let mut bytes = vec![0x01]; // -1
    bytes.extend([0x02, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]); // i64::MAX
    bytes.extend(0.1_f32.to_le_bytes());
    bytes.extend(0.5_f64.to_le_bytes());
    bytes.push(1);
    bytes.extend([0x06, b'f', b'o', b'o']);
    bytes.extend([0x04, 0xff, 0x00]);
    bytes.extend([0x04, 0xff, 0x38]); // -200
    bytes.push(0x03); // -2
    bytes.extend([0xb8, 0x17]); // 1500
    bytes.push(0x0a); // 5
    bytes.extend([0x02, 0x00]); // y, x
    bytes.extend([0x03, 0x06, 0x02, 0x02, b'z', 0x00, 0x00]); // two elements in 3 bytes: "z", null
    bytes.extend([0x02, 0x02, b'k', 0x08, 0x00]); // {"k": 4}
    bytes.extend([7, 8]);
    bytes.extend([0x02, 0x02, 0x02, 0x04, 0x00]); // v 1, next: v 2, next: null
    bytes
}

fn cell<'a>(cells: &'a [Cell], name: &str) -> &'a Value {
    &cells.iter().find(|cell| cell.name == name).unwrap().value
}

#[test]
fn every_type_is_read_by_its_writers_schema() {
    let schema = AvroSchema::parse(SCHEMA).unwrap();
    let cells = read_record(&schema, &record()).unwrap();
    let cell = |name: &str| cell(&cells, name);
    assert_eq!((cell("i"), cell("l")), (&Value::Int(-1), &Value::Int(i64::MAX)));
    assert_eq!(
        (cell("f"), cell("d"), cell("on")),
        (&Value::Single(0.1), &Value::Double(0.5), &Value::Bool(true))
    );
    assert_eq!((cell("s"), cell("b")), (&text("foo"), &Value::Bytes(vec![0xff, 0])));
    let exact = Decimal { unscaled: arrow::datatypes::i256::from_i128(-200), scale: 2 };
    assert_eq!(*cell("m"), Value::Decimal(exact));
    assert_eq!(
        (cell("day"), cell("at"), cell("local")),
        (&Value::Days(-2), &Value::Instant(1_500_000), &Value::Local(5))
    );
    assert_eq!((cell("e"), cell("e2"), cell("x")), (&text("y"), &text("x"), &Value::Bytes(vec![7, 8])));
    assert_eq!(*cell("a"), Value::Json(r#"["z",null]"#.to_owned()));
    assert_eq!(*cell("h"), Value::Json(r#"{"k":4}"#.to_owned()));
    assert_eq!(*cell("tree"), Value::Json(r#"{"v":1,"next":{"v":2,"next":null}}"#.to_owned()));
}

#[test]
fn each_message_is_read_with_its_own_schema() {
    let narrow = r#"{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}"#;
    let wide =
        r#"{"type":"record","name":"R","fields":[{"name":"b","type":"string"},{"name":"a","type":"long"}]}"#;
    let by_id = [(1, narrow.to_owned()), (258, wide.to_owned())].into();
    let mut reader = FramedAvro::new(KnownSchemas { by_id });
    assert_eq!(*cell(&reader.read(&[0, 0, 0, 0, 1, 0x02]).unwrap(), "a"), Value::Int(1));
    let cells = reader.read(&[0, 0, 0, 1, 2, 0x02, b'x', 0x04]).unwrap();
    assert_eq!((cell(&cells, "a"), cell(&cells, "b")), (&Value::Int(2), &text("x")));
    let unknown = reader.read(&[0, 0, 0, 0, 9, 0]).unwrap_err();
    assert_eq!((unknown.kind(), unknown.message()), (ErrorKind::Invalid, "there is no schema 9"));
    assert!(reader.read(&[1, 0, 0, 0, 1, 0x02]).unwrap_err().message().contains("begins with 0x01"));
    assert!(reader.read(&[0, 0]).unwrap_err().message().contains("too short"));
    let long = reader.read(&[0, 0, 0, 0, 1, 0x02, 0x02]).unwrap_err();
    assert_eq!(long.message(), "avro: bytes after the end");
}

#[test]
fn ways_to_messages_are_those_of_confluent() {
    for (bytes, expected) in [(&[0][..], &[0][..]), (&[0x02, 0x02], &[1]), (&[0x04, 0x00, 0x02], &[0, 1])] {
        let (indexes, rest) = message_indexes(bytes).unwrap();
        assert_eq!((indexes.as_slice(), rest.len()), (expected, 0));
    }
    for bad in [&[][..], &[0x04, 0x00], &[0x01, 0x00], &[0xff; 9]] {
        assert!(message_indexes(bad).is_err(), "{bad:?}");
    }
    assert_eq!(unframed(&[0, 0, 0, 0, 7, 1]).unwrap(), (7, &[1][..]));
}

#[test]
fn schemas_that_are_none_are_named() {
    for (schema, reason) in [
        ("{", "not JSON"),
        ("7", "a number is no type"),
        (
            r#"{"type":"record","name":"R","fields":[{"name":"a","type":"Unknown"}]}"#,
            "there is no type Unknown",
        ),
        (r#"{"type":"record","fields":[]}"#, "record without `name`"),
        (r#"{"type":"array"}"#, "array without `items`"),
    ] {
        let error = AvroSchema::parse(schema).unwrap_err();
        assert!(error.message().contains(reason), "{error}");
    }
    let schema = AvroSchema::parse("\"int\"").unwrap();
    assert!(read_record(&schema, &[0]).unwrap_err().reason.contains("not one of a record"));
    // A type that contains itself and nothing else has no values: reading it ends.
    let endless = r#"{"type":"record","name":"R","fields":[{"name":"r","type":"R"}]}"#;
    let error = read_record(&AvroSchema::parse(endless).unwrap(), &[]).unwrap_err();
    assert!(error.reason.contains("too deep"), "{error}");
    let nulls =
        r#"{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"array","items":"null"}}]}"#;
    let many: [u8; 10] = [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    // Cut off, or with its end.
    let mut with_end = many.to_vec();
    with_end.push(0x00);
    for bytes in [many.to_vec(), with_end] {
        let error = read_record(&AvroSchema::parse(nulls).unwrap(), &bytes).unwrap_err();
        assert!(error.reason.contains("more elements than bytes"), "{error}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(changes in prop::collection::vec(any::<(usize, u8, u8)>(), 1..6)) {
        let schema = AvroSchema::parse(SCHEMA).unwrap();
        let _: Result<_, _> = read_record(&schema, &mutated(&record(), &changes));
        if let Ok(text) = String::from_utf8(mutated(SCHEMA.as_bytes(), &changes))
            && let Ok(schema) = AvroSchema::parse(&text)
        {
            let _: Result<_, _> = read_record(&schema, &record());
        }
    }
}
