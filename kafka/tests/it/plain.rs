//! Messages that are rows, and columns guessed from them.

use std::collections::BTreeMap;

use kafka::{
    AvroSchema, CsvOptions, Decoder, Encoding, EventKind, Inference, JsonPath, Message, PlainDecoder,
    PlainMode, ProtobufSchema, TableName, Value,
};
use proptest::prelude::*;

use crate::support::{after, get, mutated, number, one, one_of, reason, text};

fn decoder(mode: PlainMode, value: Encoding, key: Option<Encoding>) -> PlainDecoder {
    PlainDecoder::new(mode, value, key, TableName::new("", "t")).unwrap()
}

fn path(text: &str) -> JsonPath {
    text.parse().unwrap()
}

fn nested() -> Encoding {
    let paths = [
        ("city", "address.city"),
        ("first", "$.tags[0]"),
        ("odd", "\"a b\".x"),
        ("none", "address.no.where"),
    ];
    Encoding::Json { paths: paths.map(|(column, way)| (column.to_owned(), path(way))).to_vec() }
}

const ROW: &str = r#"{"id":12345678901234567890,"price":1.10,"on":true,"address":{"city":"Bern"},
    "tags":["x","y"],"a b":{"x":1},"id":7,"nothing":null}"#;

#[test]
fn members_and_paths_are_columns() {
    let event = one(&mut decoder(PlainMode::Append, nested(), None), ROW);
    assert_eq!(event.kind, EventKind::Insert);
    let row = after(&event);
    assert_eq!(
        (get(row, "id"), get(row, "price")),
        (&number("7"), &number("1.10")),
        "the last of two counts"
    );
    assert_eq!(
        (get(row, "city"), get(row, "first"), get(row, "odd")),
        (&text("Bern"), &text("x"), &number("1"))
    );
    assert_eq!((get(row, "none"), get(row, "nothing")), (&Value::Null, &Value::Null));
    assert_eq!(*get(row, "tags"), Value::Json(r#"["x","y"]"#.to_owned()));
    assert_eq!(*get(row, "on"), Value::Bool(true));
    for bad in ["", "$", "a.", ".a", "a[", "a[x]", "a[0]b", "\"a"] {
        assert!(bad.parse::<JsonPath>().is_err(), "{bad}");
    }
}

#[test]
fn a_key_brings_columns_and_a_tombstone_removes_its_row() {
    let decoder = &mut decoder(PlainMode::Upsert, Encoding::json(), Some(Encoding::json()));
    let event = one_of(decoder, br#"{"id":1}"#, Some(br#"{"id":2,"a":3}"#));
    assert_eq!((&event.kind, &event.key_columns), (&EventKind::Upsert, &vec!["id".to_owned()]));
    assert_eq!((get(after(&event), "id"), get(after(&event), "a")), (&number("1"), &number("3")));
    let gone = one_of(decoder, br#"{"id":1}"#, None);
    assert_eq!((&gone.kind, gone.after.is_some(), gone.key.is_some()), (&EventKind::Tombstone, false, true));
    assert!(reason(decoder, "{}").contains("without a key"));
    let bad = decoder.decode(Message { key: Some(b"1"), value: None, ..Message::default() }).unwrap_err();
    assert_eq!(bad.reason, "key: a row is a number, not an object");
    assert!(PlainDecoder::new(PlainMode::Upsert, nested(), None, TableName::default()).is_err());
}

#[test]
fn without_a_value_nothing_is_appended() {
    let decoder = &mut decoder(PlainMode::Append, Encoding::json(), None);
    assert_eq!(decoder.decode(Message::default()).unwrap(), []);
}

fn csv() -> Encoding {
    let columns = ["a", "b", "c"].map(str::to_owned).to_vec();
    Encoding::Csv(CsvOptions { columns, delimiter: b';', null: "\\N".to_owned() })
}

#[test]
fn a_line_of_csv_is_a_row() {
    let decoder = &mut decoder(PlainMode::Append, csv(), None);
    let event = one(decoder, "1;\"x;\"\"y\nz\";\\N\n");
    let row = after(&event);
    assert_eq!((get(row, "a"), get(row, "b"), get(row, "c")), (&text("1"), &text("x;\"y\nz"), &Value::Null));
    assert_eq!(*get(after(&one(decoder, "1;;")), "b"), text(""));
    assert_eq!(reason(decoder, "1;2"), "CSV: 2 fields for 3 columns");
    assert_eq!(reason(decoder, "1;2;3\n4;5;6"), "CSV: more than one line");
    assert_eq!(reason(decoder, ""), "CSV: there is no line");
}

#[test]
fn bytes_and_text_are_one_column() {
    let bytes = Encoding::Bytes { column: "b".to_owned() };
    let key = Encoding::Text { column: "k".to_owned() };
    let decoder = &mut decoder(PlainMode::Append, bytes, Some(key));
    let event = one_of(decoder, b"key", Some(&[0xff]));
    assert_eq!((get(after(&event), "k"), get(after(&event), "b")), (&text("key"), &Value::Bytes(vec![0xff])));
    let message = Message { key: Some(&[0xff]), value: Some(b""), ..Message::default() };
    assert!(decoder.decode(message).unwrap_err().reason.contains("not UTF-8"));
}

#[test]
fn avro_and_protobuf_are_rows_too() {
    let avro = |kind: &str| {
        let schema = format!(r#"{{"type":"record","name":"R","fields":[{{"name":"a","type":"{kind}"}}]}}"#);
        AvroSchema::parse(&schema).unwrap()
    };
    let decoder_of = |value| decoder(PlainMode::Append, value, None);
    let read = |decoder: &mut PlainDecoder, bytes: &[u8]| {
        let message = Message { value: Some(bytes), ..Message::default() };
        decoder.decode(message).map(|events| get(after(&events[0]), "a").clone()).map_err(|bad| bad.reason)
    };
    assert_eq!(read(&mut decoder_of(Encoding::Avro(avro("int"))), &[2]), Ok(Value::Int(1)));
    let framed = Encoding::FramedAvro([(1, avro("int")), (2, avro("string"))].into());
    let framed = &mut decoder_of(framed);
    assert_eq!(read(framed, &[0, 0, 0, 0, 2, 2, b'x']), Ok(text("x")));
    assert_eq!(read(framed, &[0, 0, 0, 0, 3, 2]), Err("there is no schema 3".to_owned()));
    let proto = "syntax = \"proto3\"; message R { int32 a = 1; }";
    let schema = ProtobufSchema::from_texts(proto, &BTreeMap::new(), "R").unwrap();
    assert_eq!(read(&mut decoder_of(Encoding::Protobuf(schema)), &[8, 1]), Ok(Value::Int(1)));
}

#[test]
fn columns_are_guessed_and_can_be_shown() {
    let mut inference = Inference::default();
    for row in [
        r#"{"id":1,"big":1,"price":1.5,"x":1e3,"born":"2000-01-01","at":"2000-01-01 00:00:00","mix":1,"doc":{"a":1},"n":null}"#,
        r#"{"id":-2,"big":18446744073709551615,"price":20,"x":1,"born":"2001-02-03","at":"2000-01-01T00:00:00.25","mix":"a","doc":[1],"on":true}"#,
    ] {
        inference.add(row.as_bytes()).unwrap();
    }
    assert!(inference.add(b"[1]").is_err(), "no example");
    let expected = "`id` BIGINT NOT NULL,\n`big` BIGINT UNSIGNED NOT NULL,\n`price` DECIMAL(21,1) NOT NULL,\n\
                    `x` DOUBLE NOT NULL,\n`born` DATE NOT NULL,\n`at` DATETIME(2) NOT NULL,\n\
                    `mix` VARCHAR(255) NOT NULL,\n`doc` LONGTEXT NOT NULL,\n`n` VARCHAR(255),\n`on` BOOLEAN";
    assert_eq!(inference.shown(), expected);
    assert_eq!(inference.columns().len(), 10);
}

#[test]
fn a_boolean_among_whole_numbers_is_guessed_as_one_of_them() {
    let mut inference = Inference::default();
    for row in [r#"{"c":true}"#, r#"{"c":18446744073709551615}"#] {
        inference.add(row.as_bytes()).unwrap();
    }
    assert_eq!(inference.shown(), "`c` BIGINT UNSIGNED NOT NULL");
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(changes in prop::collection::vec(any::<(usize, u8, u8)>(), 1..6)) {
        for (golden, encoding) in [(ROW, nested()), ("1;\"x\";\\N\n", csv())] {
            let bytes = mutated(golden.as_bytes(), &changes);
            let message = Message { key: Some(&bytes), value: Some(&bytes), ..Message::default() };
            let _: Result<_, _> = decoder(PlainMode::Upsert, encoding.clone(), Some(encoding)).decode(message);
            let _: Result<_, _> = Inference::default().add(&bytes);
        }
    }

    #[test]
    fn any_text_is_a_path_or_is_refused(text in "[a$.\\[\\]\"0-9é]{0,12}") {
        let _: Result<JsonPath, _> = text.parse();
    }

    #[test]
    fn guesses_fit_their_examples(numbers in prop::collection::vec("-?(0|[1-9][0-9]{0,24})(\\.[0-9]{1,12})?", 1..6)) {
        let mut inference = Inference::default();
        let mut images = Vec::new();
        for digits in &numbers {
            let row = format!("{{\"c\":{digits}}}");
            inference.add(row.as_bytes()).unwrap();
            images.push(one(&mut decoder(PlainMode::Append, Encoding::json(), None), &row).after.unwrap());
        }
        let images: Vec<_> = images.iter().collect();
        let converter = kafka::RowConverter::new(inference.columns(), kafka::ConvertOptions::default());
        let done = converter.convert(&images).unwrap();
        prop_assert_eq!(done.errors, vec![], "{:?}", inference.shown());
    }
}
