//! Protobuf by descriptors from texts, byte by byte.

use std::collections::BTreeMap;

use kafka::{Cell, ProtobufSchema, Value};
use proptest::prelude::*;

use crate::support::{mutated, text};

const SCHEMA: &str = r#"
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "other.proto";
message Outer {
  message Inner { int32 v = 1; optional string s = 2; }
}
message Row {
  int64 id = 1;
  uint64 big = 2;
  sint32 signed = 3;
  optional string name = 4;
  bytes pic = 5;
  float w = 6;
  double x = 7;
  bool on = 8;
  Kind kind = 9;
  google.protobuf.Timestamp at = 10;
  google.protobuf.Int64Value maybe = 11;
  repeated int32 list = 12;
  map<string, Outer.Inner> entries = 13;
  Outer.Inner inner = 14;
  other.Thing thing = 15;
}
enum Kind { NONE = 0; SOME = 1; }
"#;

fn imports() -> BTreeMap<String, String> {
    let other = "syntax = \"proto3\"; package other; message Thing { bool yes = 1; }";
    [("other.proto".to_owned(), other.to_owned())].into()
}

fn schema() -> ProtobufSchema {
    ProtobufSchema::from_texts(SCHEMA, &imports(), "shop.Row").unwrap()
}

/// A message of the schema above, as the specification has its bytes.
fn message() -> Vec<u8> {
    let mut bytes = vec![0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]; // id -1
    bytes.extend([0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]); // big u64::MAX
    bytes.extend([0x18, 0x03]); // signed -2
    bytes.extend([0x22, 0x02, 0xc3, 0xa9]); // name "é"
    bytes.extend([0x2a, 0x02, 0xff, 0x00]); // pic
    bytes.push(0x35);
    bytes.extend(0.1_f32.to_le_bytes());
    bytes.push(0x39);
    bytes.extend(0.5_f64.to_le_bytes());
    bytes.extend([0x40, 0x01, 0x48, 0x01]); // on, kind SOME
    bytes.extend([0x52, 0x06, 0x08, 0x01, 0x10, 0xc0, 0x84, 0x3d]); // at 1 s and 1,000,000 ns
    bytes.extend([0x5a, 0x02, 0x08, 0x07]); // maybe 7
    bytes.extend([0x62, 0x02, 0x01, 0x02]); // list [1, 2], packed
    bytes.extend([0x6a, 0x07, 0x0a, 0x01, b'b', 0x12, 0x02, 0x08, 0x02]); // entries b: {v: 2}
    bytes.extend([0x6a, 0x07, 0x0a, 0x01, b'a', 0x12, 0x02, 0x08, 0x01]); // entries a: {v: 1}
    bytes.extend([0x72, 0x03, 0x12, 0x01, b's']); // inner {s: "s"}
    bytes.extend([0x7a, 0x02, 0x08, 0x01]); // thing {yes: true}
    bytes.extend([0xf8, 0x07, 0x01]); // a field that nobody knows
    bytes
}

fn cell<'a>(cells: &'a [Cell], name: &str) -> &'a Value {
    &cells.iter().find(|cell| cell.name == name).unwrap().value
}

#[test]
fn every_type_is_read_by_its_descriptor() {
    let cells = schema().read(&message()).unwrap();
    let cell = |name: &str| cell(&cells, name);
    assert_eq!(
        (cell("id"), cell("big"), cell("signed")),
        (&Value::Int(-1), &Value::UInt(u64::MAX), &Value::Int(-2))
    );
    assert_eq!((cell("name"), cell("pic")), (&text("é"), &Value::Bytes(vec![0xff, 0])));
    assert_eq!(
        (cell("w"), cell("x"), cell("on")),
        (&Value::Single(0.1), &Value::Double(0.5), &Value::Bool(true))
    );
    assert_eq!(
        (cell("kind"), cell("at"), cell("maybe")),
        (&text("SOME"), &Value::Instant(1_001_000), &Value::Int(7))
    );
    assert_eq!(*cell("list"), Value::Json("[1,2]".to_owned()));
    assert_eq!(
        *cell("entries"),
        Value::Json(r#"{"a":{"v":1},"b":{"v":2}}"#.to_owned()),
        "in the order of keys"
    );
    assert_eq!(*cell("inner"), Value::Json(r#"{"v":0,"s":"s"}"#.to_owned()));
    assert_eq!(*cell("thing"), Value::Json(r#"{"yes":true}"#.to_owned()));
}

#[test]
fn what_is_not_set_is_null_or_the_default() {
    let cells = schema().read(&[]).unwrap();
    let cell = |name: &str| cell(&cells, name);
    assert_eq!((cell("id"), cell("kind")), (&Value::Int(0), &text("NONE")), "no presence, so a default");
    for name in ["name", "at", "maybe", "inner"] {
        assert_eq!(*cell(name), Value::Null, "{name}");
    }
    let unknown = schema().read(&[0x48, 0x09]).unwrap();
    assert_eq!(*self::cell(&unknown, "kind"), text("9"), "a label that this schema does not know");
}

#[test]
fn messages_are_found_by_name_and_by_position() {
    let inner = ProtobufSchema::at_indexes(SCHEMA, &imports(), &[0, 0]).unwrap();
    assert_eq!(*cell(&inner.read(&[0x08, 0x05]).unwrap(), "v"), Value::Int(5));
    assert!(ProtobufSchema::at_indexes(SCHEMA, &imports(), &[7]).unwrap_err().message().contains("at [7]"));
    let missing = ProtobufSchema::from_texts(SCHEMA, &imports(), "shop.Nothing").unwrap_err();
    assert!(missing.message().contains("no message shop.Nothing"));
    assert!(ProtobufSchema::from_texts("syntax = ", &BTreeMap::new(), "x").is_err());
    assert!(
        ProtobufSchema::from_texts(SCHEMA, &BTreeMap::new(), "shop.Row").is_err(),
        "an import is missing"
    );
}

#[test]
fn messages_that_are_none_are_refused() {
    let error = schema().read(&[0x22, 0x09, b'x']).unwrap_err();
    assert!(error.reason.starts_with("protobuf: "), "{error}");
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(changes in prop::collection::vec(any::<(usize, u8, u8)>(), 1..6)) {
        let schema = schema();
        let _: Result<_, _> = schema.read(&mutated(&message(), &changes));
    }
}
