//! Debezium's JSON, quirk by quirk, and TiCDC's version of it.

use kafka::{
    BeforeImages, ConnectHints, DebeziumDecoder, DebeziumOptions, DecimalsAs, Decoder, EventKind, Extent,
    Message, TableName, TimesAs, Value,
};
use proptest::prelude::*;
use tidb::{ColumnType, Decimal};
use types::Timestamp;

use crate::convert::column;
use crate::support::{after, before, decode, get, is_watermark, mutated, number, one, one_of, reason, text};

/// A field of a Connect schema.
fn field(name: &str, kind: &str, logical: &str, parameters: &str) -> String {
    format!(
        r#"{{"type":"{kind}","optional":true,"field":"{name}","name":"{logical}","parameters":{{{parameters}}}}}"#
    )
}

/// A message with its schema.
fn wrapped(fields: &[String], payload: &str) -> String {
    let row = |name: &str| format!(r#"{{"type":"struct","field":"{name}","fields":[{}]}}"#, fields.join(","));
    format!(
        r#"{{"schema":{{"type":"struct","fields":[{},{}]}},"payload":{payload}}}"#,
        row("before"),
        row("after")
    )
}

fn typed(kind: &str, logical: &str, parameters: &str, value: &str) -> Value {
    let message = wrapped(
        &[field("c", kind, logical, parameters)],
        &format!(r#"{{"before":null,"after":{{"c":{value}}},"op":"c","source":{{"db":"d","table":"t"}}}}"#),
    );
    get(after(&one(&mut DebeziumDecoder::default(), &message)), "c").clone()
}

#[test]
fn with_a_schema_each_logical_type_is_exact() {
    let decimal = "org.apache.kafka.connect.data.Decimal";
    let exact = |unscaled, scale| {
        Value::Decimal(Decimal { unscaled: arrow::datatypes::i256::from_i128(unscaled), scale })
    };
    assert_eq!(typed("bytes", decimal, r#""scale":"2""#, r#""MDk=""#), exact(12_345, 2));
    assert_eq!(typed("bytes", decimal, r#""scale":"3""#, r#""/w==""#), exact(-1, 3));
    assert_eq!(typed("bytes", decimal, r#""scale":"2""#, "123.45"), number("123.45"));
    let variable = "io.debezium.data.VariableScaleDecimal";
    assert_eq!(typed("struct", variable, "", r#"{"scale":1,"value":"Cg=="}"#), exact(10, 1));
    assert_eq!(typed("int32", "io.debezium.time.Date", "", "-1"), Value::Days(-1));
    assert_eq!(typed("int64", "io.debezium.time.MicroTime", "", "-5"), Value::Duration(-5));
    assert_eq!(typed("int32", "org.apache.kafka.connect.data.Time", "", "5"), Value::Duration(5_000));
    assert_eq!(typed("int64", "io.debezium.time.Timestamp", "", "1500"), Value::Local(1_500_000));
    assert_eq!(typed("int64", "io.debezium.time.MicroTimestamp", "", "1500"), Value::Local(1_500));
    assert_eq!(typed("int64", "io.debezium.time.NanoTimestamp", "", "-1"), Value::Local(-1));
    let zoned = "io.debezium.time.ZonedTimestamp";
    assert_eq!(typed("string", zoned, "", r#""1970-01-01T00:00:01.5Z""#), Value::Instant(1_500_000));
    assert_eq!(typed("string", zoned, "", r#""1970-01-01T02:00:01+02:00""#), Value::Instant(1_000_000));
    assert_eq!(typed("bytes", "io.debezium.data.Bits", r#""length":"10""#, r#""AQI=""#), Value::Bits(0x0201));
    assert_eq!(typed("string", "io.debezium.data.Enum", r#""allowed":"a,b""#, r#""b""#), text("b"));
    assert_eq!(typed("string", "io.debezium.data.Json", "", r#""{}""#), Value::Json("{}".to_owned()));
    assert_eq!(typed("bytes", "", "", r#""AAE=""#), Value::Bytes(vec![0, 1]));
    assert_eq!(typed("float", "", "", "0.1"), Value::Single(0.1));
    assert_eq!(typed("double", "", "", "1e300"), Value::Double(1e300));
    assert_eq!(typed("int64", "", "", "9223372036854775807"), number("9223372036854775807"));
    assert_eq!(typed("boolean", "", "", "true"), Value::Bool(true));
}

fn hints() -> ConnectHints {
    ConnectHints::of(&[
        column("Price", ColumnType::Decimal { precision: 10, scale: 2 }),
        column("big", ColumnType::Int { bits: 64, unsigned: true }),
        column("born", ColumnType::Date),
        column("short", ColumnType::Datetime(3)),
        column("long", ColumnType::Datetime(6)),
        column("at", ColumnType::Timestamp(6)),
        column("pic", ColumnType::Blob(100)),
    ])
}

const BARE: &str = r#"{"before":null,"after":{"id":1,"price":"MDk=","big":-1,"born":1,"short":1500,"long":1500,
    "at":"1970-01-01T00:00:01Z","pic":"AAE=","j":{"a":1.50}},"op":"c","ts_ms":5,
    "source":{"connector":"mysql","db":"d","table":"t","file":"binlog.3","pos":154,"row":0,"gtid":null,
    "snapshot":"false"},"transaction":{"id":"x:1","total_order":2,"data_collection_order":1}}"#;

#[test]
fn without_a_schema_our_columns_say_what_values_are() {
    let options = DebeziumOptions { hints: hints(), ..DebeziumOptions::default() };
    let event = one(&mut DebeziumDecoder::new(options), BARE);
    let row = after(&event);
    let exact = Decimal { unscaled: arrow::datatypes::i256::from_i128(12_345), scale: 2 };
    assert_eq!(*get(row, "price"), Value::Decimal(exact));
    assert_eq!(*get(row, "big"), Value::UInt(u64::MAX), "the same bits without a sign");
    assert_eq!((get(row, "born"), get(row, "pic")), (&Value::Days(1), &Value::Bytes(vec![0, 1])));
    assert_eq!((get(row, "short"), get(row, "long")), (&Value::Local(1_500_000), &Value::Local(1_500)));
    assert_eq!(*get(row, "at"), Value::Instant(1_000_000));
    assert_eq!(*get(row, "j"), Value::Json(r#"{"a":1.50}"#.to_owned()));
    let parts: Vec<String> =
        event.position.parts.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(parts, ["file=binlog.3", "pos=154", "row=0", "total_order=2"]);
    assert_eq!(event.position.transaction.as_deref(), Some("x:1"));
}

#[test]
fn settings_of_the_sender_change_what_values_are() {
    let mut hints = hints();
    (hints.decimals, hints.times) = (DecimalsAs::Plain, TimesAs::Millis);
    let options = DebeziumOptions { hints, ..DebeziumOptions::default() };
    let message = BARE.replace(r#""MDk=""#, r#""123.45""#);
    let event = one(&mut DebeziumDecoder::new(options), &message);
    assert_eq!(*get(after(&event), "price"), text("123.45"));
    assert_eq!(*get(after(&event), "long"), Value::Local(1_500_000));
}

fn change(before: &str, after: &str, op: &str) -> String {
    format!(
        r#"{{"before":{before},"after":{after},"op":"{op}","source":{{"connector":"postgresql","db":"d",
            "schema":"public","table":"t","lsn":7,"snapshot":"true"}}}}"#
    )
}

#[test]
fn operations_say_what_happened_and_missing_rows_stay_missing() {
    let decoder = &mut DebeziumDecoder::default();
    let created = one(decoder, &change("null", r#"{"id":1}"#, "c"));
    assert_eq!((&created.kind, &created.table), (&EventKind::Insert, &TableName::new("public", "t")));
    let read = one(decoder, &change("null", r#"{"id":1}"#, "r"));
    assert_eq!((&read.kind, read.is_snapshot), (&EventKind::Upsert, true));
    let updated = one(decoder, &change("null", r#"{"id":1}"#, "u"));
    assert_eq!((&updated.kind, &updated.before), (&EventKind::Update, &None));
    assert_eq!(one(decoder, &change("null", "null", "t")).kind, EventKind::Truncate);
    assert_eq!(
        decode(decoder, &change("null", "null", "m")).unwrap(),
        [],
        "a message of the database's user"
    );
    let deleted = one_of(decoder, br#"{"id":1}"#, Some(change("null", "null", "d").as_bytes()));
    assert_eq!((&deleted.kind, deleted.key.is_some()), (&EventKind::Delete, true));
    assert_eq!(deleted.key_columns, ["id"]);
    assert!(reason(decoder, &change("null", "null", "d")).contains("neither a row before nor a key"));
    assert!(reason(decoder, &change("null", "null", "u")).contains("`after` is missing"));
    assert!(reason(decoder, &change("null", "null", "x")).contains("`op` is 'x'"));
}

#[test]
fn tombstones_after_deletes_say_nothing_new() {
    let decoder = &mut DebeziumDecoder::default();
    let tombstone = Message { key: Some(br#"{"id":1}"#), ..Message::default() };
    assert_eq!(decoder.decode(tombstone).unwrap(), []);
    assert_eq!(decode(decoder, r#"{"schema":null,"payload":null}"#).unwrap(), []);
}

#[test]
fn a_row_before_that_has_only_the_key_is_cut_down_to_it() {
    let options = DebeziumOptions { before_images: BeforeImages::KeyOnly, ..DebeziumOptions::default() };
    let message = change(r#"{"id":1,"a":null}"#, "null", "d");
    let event = one_of(
        &mut DebeziumDecoder::new(options),
        br#"{"schema":{"type":"struct","fields":[{"type":"int32","field":"id"}]},"payload":{"id":1}}"#,
        Some(message.as_bytes()),
    );
    let old = before(&event);
    assert_eq!((old.cells.len(), get(old, "id"), old.extent), (1, &number("1"), Extent::Key));
}

#[test]
fn large_values_that_did_not_change_are_no_values() {
    let message = change("null", r#"{"id":1,"doc":"__debezium_unavailable_value"}"#, "u");
    assert_eq!(*get(after(&one(&mut DebeziumDecoder::default(), &message)), "doc"), Value::Unavailable);
    // As bytes it is the same text in base64.
    let bytes = r#""X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==""#;
    assert_eq!(typed("bytes", "", "", bytes), Value::Unavailable);
}

#[test]
fn what_is_no_change_is_known() {
    let decoder = &mut DebeziumDecoder::default();
    assert_eq!(one(decoder, r#"{"ts_ms":1}"#).kind, EventKind::Heartbeat);
    let end = r#"{"status":"END","id":"x:1","ts_ms":1,"event_count":2,
        "data_collections":[{"data_collection":"d.t","event_count":2}]}"#;
    let EventKind::Transaction(mark) = one(decoder, end).kind else { panic!("an end") };
    assert_eq!((mark.ends, mark.n_events, mark.by_table), (true, Some(2), vec![("d.t".to_owned(), 2)]));
    assert!(reason(decoder, r#"{"a":1}"#).contains("neither a change"));
}

#[test]
fn ticdc_has_timestamps_watermarks_and_ddl() {
    let decoder = &mut DebeziumDecoder::default();
    let source = r#""source":{"connector":"TiCDC","db":"d","table":"t","commit_ts":447984084414103554,
        "cluster_id":"default","file":"","pos":0,"gtid":null,"snapshot":"false"}"#;
    let watermark = format!(r#"{{"op":"m","ts_ms":1,{source},"transaction":null}}"#);
    assert!(is_watermark(&one(decoder, &watermark), 447_984_084_414_103_554));
    let ddl = format!(
        r#"{{"schema":{{"type":"struct","fields":[]}},"payload":{{{source},"ts_ms":1,"databaseName":"d",
            "ddl":"CREATE TABLE t (a INT)","tableChanges":[{{"type":"CREATE","id":"x","table":{{}}}}]}}}}"#
    );
    let event = one(decoder, &ddl);
    assert!(matches!(&event.kind, EventKind::Ddl(ddl) if ddl.effect == kafka::DdlEffect::Creates));
    assert_eq!(event.commit_ts, Some(Timestamp(447_984_084_414_103_554)));
    // A decimal is a double there: its digits are taken as they are written, no more is lost.
    let options = DebeziumOptions { hints: hints(), ..DebeziumOptions::default() };
    let row = wrapped(
        &[field("price", "double", "", "")],
        &format!(r#"{{"before":null,"after":{{"price":0.10}},"op":"c",{source}}}"#),
    );
    let event = one(&mut DebeziumDecoder::new(options), &row);
    assert_eq!((get(after(&event), "price"), event.commit_ts.is_some()), (&number("0.10"), true));
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(changes in prop::collection::vec(any::<(usize, u8, u8)>(), 1..6)) {
        let decimal = field("c", "bytes", "org.apache.kafka.connect.data.Decimal", r#""scale":"2""#);
        let bits = field("b", "bytes", "io.debezium.data.Bits", r#""length":"9""#);
        let whole = wrapped(
            &[decimal, bits],
            r#"{"before":null,"after":{"c":"MDk=","b":"AQE="},"op":"c","source":{"db":"d","table":"t"}}"#,
        );
        for golden in [whole.as_str(), BARE] {
            let bytes = mutated(golden.as_bytes(), &changes);
            let options = DebeziumOptions { hints: hints(), ..DebeziumOptions::default() };
            let message = Message { key: Some(&bytes), value: Some(&bytes), ..Message::default() };
            let _: Result<_, _> = DebeziumDecoder::new(options).decode(message);
        }
    }
}
