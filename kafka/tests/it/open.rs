//! TiCDC's open protocol, quirk by quirk.

use kafka::{
    Compression, Ddl, DdlEffect, Decoder, EventKind, Extent, Message, OpenDecoder, OpenOptions, Oversize,
    Value,
};
use proptest::prelude::*;
use types::Timestamp;

use crate::support::{after, before, get, is_watermark, mutated, number, text};

/// A message of events, each a key and a value.
fn message(events: &[(&str, &[u8])]) -> (Vec<u8>, Vec<u8>) {
    let frame = |out: &mut Vec<u8>, bytes: &[u8]| {
        out.extend_from_slice(&(bytes.len() as i64).to_be_bytes());
        out.extend_from_slice(bytes);
    };
    let (mut keys, mut values) = (1_i64.to_be_bytes().to_vec(), Vec::new());
    for (key, value) in events {
        frame(&mut keys, key.as_bytes());
        frame(&mut values, value);
    }
    (keys, values)
}

fn decode(options: OpenOptions, events: &[(&str, &[u8])]) -> Result<Vec<kafka::Event>, String> {
    let (key, value) = message(events);
    let message = Message { key: Some(&key), value: Some(&value), ..Message::default() };
    OpenDecoder::new(options).decode(message).map_err(|error| error.reason)
}

const ROW_KEY: &str = r#"{"ts":415508856908021766,"scm":"d","tbl":"t","t":1}"#;

const ROW: &str = r#"{"u":{
    "id":{"t":8,"h":true,"f":139,"v":18446744073709551615},
    "f":{"t":4,"f":0,"v":0.1},
    "d":{"t":246,"f":0,"v":"1.2300"},
    "vc":{"t":15,"f":0,"v":"a\\x"},
    "vb":{"t":15,"f":1,"v":"a\\x89\\\\\\n\u00e9\\u00e9"},
    "tx":{"t":252,"f":0,"v":"5rWL6K+V"},
    "bl":{"t":252,"f":1,"v":"iVBORw=="},
    "bi":{"t":16,"f":0,"v":18446744073709551615},
    "en":{"t":247,"f":0,"v":2},
    "st":{"t":248,"f":0,"v":5},
    "js":{"t":245,"f":0,"v":"{\"k\": 1}"},
    "ye":{"t":13,"f":0,"v":2024},
    "dt":{"t":12,"f":0,"v":"2020-01-01 00:00:00.5"},
    "nu":{"t":3,"f":64,"v":null}}}"#;

#[test]
fn each_type_is_read_as_it_is_written() {
    let events = decode(OpenOptions::default(), &[(ROW_KEY, ROW.as_bytes())]).unwrap();
    let event = &events[0];
    assert_eq!(
        (&event.kind, event.commit_ts),
        (&EventKind::Insert, Some(Timestamp(415_508_856_908_021_766)))
    );
    assert_eq!(event.key_columns, ["id"]);
    let row = after(event);
    assert_eq!(*get(row, "id"), number("18446744073709551615"));
    assert!(row.cell("id").unwrap().source_type.as_ref().unwrap().unsigned);
    assert_eq!(*get(row, "f"), Value::Single(0.1));
    assert_eq!(*get(row, "d"), number("1.2300"));
    assert_eq!(*get(row, "vc"), text("a\\x"), "text is as it is");
    assert_eq!(*get(row, "vb"), Value::Bytes(b"a\x89\\\n\xc3\xa9\xc3\xa9".to_vec()), "bytes are Go's");
    assert_eq!(*get(row, "tx"), text("测试"));
    assert_eq!(*get(row, "bl"), Value::Bytes(vec![0x89, b'P', b'N', b'G']));
    assert_eq!(*get(row, "bi"), Value::Bits(u64::MAX));
    assert_eq!((get(row, "en"), get(row, "st")), (&Value::Index(2), &Value::Members(5)));
    assert_eq!(*get(row, "js"), Value::Json("{\"k\": 1}".to_owned()));
    assert_eq!((get(row, "ye"), get(row, "nu")), (&number("2024"), &Value::Null));
    assert_eq!(*get(row, "dt"), text("2020-01-01 00:00:00.5"));
}

#[test]
fn a_message_has_many_events_of_all_kinds() {
    let column = |value: u8| format!(r#"{{"id":{{"t":3,"f":11,"v":1}},"a":{{"t":3,"f":0,"v":{value}}}}}"#);
    let update = format!(r#"{{"u":{},"p":{{"a":{{"t":3,"f":0,"v":1}}}}}}"#, column(2));
    let delete = format!(r#"{{"d":{}}}"#, column(2));
    let ddl_key = r#"{"ts":9,"scm":"d","tbl":"t","t":2}"#;
    let events = decode(
        OpenOptions::default(),
        &[
            (ROW_KEY, update.as_bytes()),
            (ROW_KEY, delete.as_bytes()),
            (ddl_key, br#"{"q":"TRUNCATE TABLE t","t":11}"#),
            (r#"{"ts":415508856908021766,"t":3}"#, b""),
        ],
    )
    .unwrap();
    assert_eq!(events[0].kind, EventKind::Update);
    // Of the old row only what changed; the rest is as in the new one.
    assert_eq!((get(before(&events[0]), "id"), get(before(&events[0]), "a")), (&number("1"), &number("1")));
    assert_eq!((&events[1].kind, events[1].after.is_some()), (&EventKind::Delete, false));
    let sql = "TRUNCATE TABLE t".to_owned();
    assert_eq!(events[2].kind, EventKind::Ddl(Ddl { sql, effect: DdlEffect::Truncates }));
    assert!(is_watermark(&events[3], 415_508_856_908_021_766));
}

#[test]
fn without_old_values_an_update_cannot_be_told_from_an_insert() {
    let options = OpenOptions { no_old_values: true, ..OpenOptions::default() };
    assert_eq!(decode(options, &[(ROW_KEY, ROW.as_bytes())]).unwrap()[0].kind, EventKind::Upsert);
}

#[test]
fn a_claim_check_names_its_file_although_the_key_says_two_things() {
    let key = r#"{"ts":1,"scm":"d","tbl":"t","ohk":true,"t":1,"ccl":"s3://b/f.json","ohk":false}"#;
    let event = &decode(OpenOptions::default(), &[(key, ROW.as_bytes())]).unwrap()[0];
    assert_eq!(event.oversize, Some(Oversize::ClaimCheck("s3://b/f.json".to_owned())));
    let key = r#"{"ts":1,"scm":"d","tbl":"t","ohk":true,"t":1}"#;
    let event = &decode(OpenOptions::default(), &[(key, ROW.as_bytes())]).unwrap()[0];
    assert_eq!((event.oversize.clone(), after(event).extent), (Some(Oversize::KeyOnly), Extent::Key));
}

#[test]
fn each_value_is_compressed_by_itself() {
    let packed = snap::raw::Encoder::new().compress_vec(ROW.as_bytes()).unwrap();
    let options = OpenOptions { compression: Compression::Snappy, ..OpenOptions::default() };
    let events = decode(options, &[(ROW_KEY, &packed), (r#"{"ts":7,"t":3}"#, b"")]).unwrap();
    assert_eq!((events[0].kind.clone(), is_watermark(&events[1], 7)), (EventKind::Insert, true));
}

#[test]
fn frames_that_do_not_fit_are_refused() {
    let (key, value) = message(&[(ROW_KEY, ROW.as_bytes())]);
    let bad = |key: &[u8], value: &[u8]| {
        let message = Message { key: Some(key), value: Some(value), ..Message::default() };
        OpenDecoder::default().decode(message).unwrap_err().reason
    };
    assert!(bad(&key[..12], &value).contains("a length is cut off"));
    assert!(bad(&key, &value[..value.len() - 1]).contains("where"));
    let mut long = key.clone();
    long[8..16].copy_from_slice(&i64::MIN.to_be_bytes());
    assert!(bad(&long, &value).contains("an event of -9223372036854775808 bytes"));
    assert!(bad(&2_i64.to_be_bytes(), &[]).contains("version 2"));
    assert!(bad(&1_i64.to_be_bytes(), &value).contains("more values than keys"));
    let twelve = ROW.replace(r#""v":2024"#, r#""v":"MMXXIV""#);
    let reason = decode(OpenOptions::default(), &[(ROW_KEY, twelve.as_bytes())]).unwrap_err();
    assert_eq!(reason, "column `ye`: a text is no year");
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(
        key_changes in prop::collection::vec(any::<(usize, u8, u8)>(), 0..3),
        value_changes in prop::collection::vec(any::<(usize, u8, u8)>(), 0..5),
    ) {
        let (key, value) = message(&[(ROW_KEY, ROW.as_bytes()), (r#"{"ts":7,"t":3}"#, b"")]);
        let (key, value) = (mutated(&key, &key_changes), mutated(&value, &value_changes));
        for compression in [Compression::None, Compression::Lz4, Compression::Snappy] {
            let options = OpenOptions { compression, ..OpenOptions::default() };
            let message = Message { key: Some(&key), value: Some(&value), ..Message::default() };
            let _: Result<_, _> = OpenDecoder::new(options).decode(message);
        }
    }
}
