//! Canal-JSON, TiCDC's and Canal's own, quirk by quirk.

use kafka::{
    CanalDecoder, CanalDialect, Ddl, DdlEffect, Decoder, EventKind, Extent, Message, Oversize, TableName,
    Value,
};
use proptest::prelude::*;
use types::Timestamp;

use crate::support::{after, before, decode, get, is_watermark, mutated, number, one, reason, text};

fn ticdc() -> CanalDecoder {
    CanalDecoder::new(CanalDialect::Ticdc)
}

const INSERT: &str = r#"{"id":0,"database":"shop","table":"goods","pkNames":["id"],"isDdl":false,
    "type":"INSERT","es":1748736000000,"ts":1748736000123,"sql":"",
    "sqlType":{"id":-5,"price":3,"name":12,"pic":2004,"flags":-7,"kind":4,"tags":-7,"born":91,"w":7,"doc":12},
    "mysqlType":{"id":"bigint unsigned","price":"decimal","name":"varchar","pic":"blob","flags":"bit",
        "kind":"enum","tags":"set","born":"date","w":"float","doc":"json","gone":"int"},
    "old":null,"data":[{"id":"18446744073709551615","price":"12.3400","name":"Käse","pic":"\u0000\u00ffA\u003c",
        "flags":"65","kind":"2","tags":"3","born":"0000-00-00","w":"0.1","doc":"{\"a\": 1}","gone":null}],
    "_tidb":{"commitTs":458421964860358657}}"#;

#[test]
fn an_insert_has_each_value_as_its_type_says() {
    let event = one(&mut ticdc(), INSERT);
    assert_eq!(event.kind, EventKind::Insert);
    assert_eq!(event.table, TableName::new("shop", "goods"));
    assert_eq!(event.key_columns, ["id"]);
    // Beyond 2^53: a reader that goes through a double ends with another digit.
    assert_eq!(event.commit_ts, Some(Timestamp(458_421_964_860_358_657)));
    let row = after(&event);
    assert_eq!(*get(row, "id"), number("18446744073709551615"));
    assert_eq!(*get(row, "price"), number("12.3400"));
    assert_eq!(*get(row, "name"), text("Käse"));
    assert_eq!(*get(row, "pic"), Value::Bytes(vec![0, 0xff, b'A', b'<']));
    assert_eq!(*get(row, "flags"), Value::Bits(65));
    assert_eq!(*get(row, "kind"), Value::Index(2));
    assert_eq!(*get(row, "tags"), Value::Members(3));
    assert_eq!(*get(row, "born"), text("0000-00-00"));
    assert_eq!(*get(row, "w"), Value::Single(0.1));
    assert_eq!(*get(row, "doc"), Value::Json("{\"a\": 1}".to_owned()));
    assert_eq!(*get(row, "gone"), Value::Null);
    assert_eq!(row.extent, Extent::Whole);
}

fn update(old: &str) -> String {
    format!(
        r#"{{"database":"d","table":"t","pkNames":["id"],"isDdl":false,"type":"UPDATE","sql":"",
            "mysqlType":{{"id":"int","a":"int","b":"int"}},"data":[{{"id":"1","a":"5","b":null}}],
            "old":[{old}],"_tidb":{{"commitTs":7}}}}"#
    )
}

#[test]
fn an_old_row_with_only_what_changed_is_completed_from_the_new_one() {
    let event = one(&mut ticdc(), &update(r#"{"a":null,"b":"9"}"#));
    assert_eq!(event.kind, EventKind::Update);
    let old = before(&event);
    assert_eq!((get(old, "id"), get(old, "a"), get(old, "b")), (&number("1"), &Value::Null, &number("9")));
}

#[test]
fn an_update_that_changed_no_selected_column_has_equal_rows() {
    let event = one(&mut ticdc(), &update("{}"));
    assert_eq!(before(&event).cells, after(&event).cells);
}

#[test]
fn a_delete_has_the_old_row_in_data() {
    let message = update("{}").replace("UPDATE", "DELETE").replace(r#""old":[{}]"#, r#""old":null"#);
    let event = one(&mut ticdc(), &message);
    assert_eq!(event.kind, EventKind::Delete);
    assert!(event.after.is_none());
    assert_eq!(*get(before(&event), "a"), number("5"));
}

#[test]
fn watermarks_and_ddl_are_told_from_rows() {
    let watermark = r#"{"id":0,"database":"","table":"","pkNames":null,"isDdl":false,"type":"TIDB_WATERMARK",
        "es":1,"ts":1,"sql":"","sqlType":null,"mysqlType":null,"data":null,"old":null,
        "_tidb":{"watermarkTs":433305438660591630}}"#;
    assert!(is_watermark(&one(&mut ticdc(), watermark), 433_305_438_660_591_630));
    let cases = [
        ("CREATE", "CREATE TABLE t (a INT)", DdlEffect::Creates),
        ("ERASE", "DROP TABLE t", DdlEffect::Drops),
        ("TRUNCATE", "TRUNCATE TABLE t", DdlEffect::Truncates),
        ("RENAME", "RENAME TABLE t TO u", DdlEffect::Renames),
        ("CINDEX", "CREATE INDEX i ON t (a)", DdlEffect::Nothing),
        ("ALTER", "ALTER TABLE t ADD COLUMN b INT", DdlEffect::Alters),
        ("ALTER", "alter table t drop partition p0", DdlEffect::DropsPartitions),
        ("QUERY", "CREATE DATABASE e", DdlEffect::Alters),
    ];
    for (kind, sql, effect) in cases {
        let message = format!(
            r#"{{"id":0,"database":"d","table":"t","pkNames":null,"isDdl":true,"type":"{kind}","es":1,"ts":2,
                "sql":"{sql}","sqlType":null,"mysqlType":null,"data":null,"old":null,"_tidb":{{"commitTs":9}}}}"#
        );
        let event = one(&mut ticdc(), &message);
        assert_eq!(event.kind, EventKind::Ddl(Ddl { sql: sql.to_owned(), effect }));
        assert_eq!(event.commit_ts, Some(Timestamp(9)));
    }
}

#[test]
fn oversize_rows_say_what_is_missing() {
    let base = r#"{"database":"d","table":"t","pkNames":["id"],"isDdl":false,"type":"INSERT",
        "mysqlType":{"id":"int"},"data":[{"id":"1"}],"old":null,"_tidb":{"commitTs":7,EXTRA}}"#;
    let key_only = one(&mut ticdc(), &base.replace("EXTRA", r#""onlyHandleKey":true"#));
    assert_eq!((key_only.oversize.clone(), after(&key_only).extent), (Some(Oversize::KeyOnly), Extent::Key));
    let claim = one(&mut ticdc(), &base.replace("EXTRA", r#""claimCheckLocation":"f.json""#));
    assert_eq!(claim.oversize, Some(Oversize::ClaimCheck("f.json".to_owned())));
    let row_key = one(&mut ticdc(), &base.replace("EXTRA", r#""rowkey":"AAEC""#));
    assert_eq!(row_key.row_key, Some(vec![0, 1, 2]));
}

#[test]
fn without_the_extension_a_message_is_plain_canal_only() {
    let message = update(r#"{"a":"4"}"#).replace(r#""_tidb":{"commitTs":7}"#, r#""gtid":"g:1""#);
    assert!(reason(&mut ticdc(), &message).contains("enable-tidb-extension"));
    let event = one(&mut CanalDecoder::new(CanalDialect::Plain), &message);
    assert_eq!((event.commit_ts, event.position.transaction.as_deref()), (None, Some("g:1")));
}

#[test]
fn canal_puts_many_rows_into_a_message() {
    let message = r#"{"id":3,"database":"d","table":"t","pkNames":["id"],"isDdl":false,"type":"UPDATE",
        "mysqlType":{"id":"int(11)","price":"decimal(10,2)","kind":"enum('x','y')"},
        "data":[{"id":"1","price":"1.50","kind":"y"},{"id":"2","price":"2.50","kind":"1"}],
        "old":[{"price":"1.00"},{"kind":"2"}]}"#;
    let events = decode(&mut CanalDecoder::new(CanalDialect::Plain), message).unwrap();
    assert_eq!(events.len(), 2);
    assert_eq!(*get(before(&events[0]), "price"), number("1.00"));
    assert_eq!(*get(before(&events[1]), "price"), number("2.50"));
    assert_eq!(*get(before(&events[1]), "kind"), Value::Index(2));
    let cell = after(&events[0]).cell("kind").unwrap();
    assert_eq!((&cell.value, cell.source_type.as_ref().unwrap().labels.len()), (&text("y"), 2));
    let uneven = message.replace(r#","old":[{"price":"1.00"},{"kind":"2"}]"#, r#","old":[{}]"#);
    let uneven = uneven.replace("\n        \"old\":[{\"price\":\"1.00\"},{\"kind\":\"2\"}]", "\"old\":[{}]");
    assert!(reason(&mut CanalDecoder::new(CanalDialect::Plain), &uneven).contains("1 rows"));
}

#[test]
fn without_types_binary_values_are_known_by_their_code() {
    let message = r#"{"database":"d","table":"t","isDdl":false,"type":"INSERT","sqlType":{"b":2004,"c":12},
        "data":[{"b":"\u00e9","c":"\u00e9"}],"_tidb":{"commitTs":7}}"#;
    let event = one(&mut ticdc(), message);
    assert_eq!(*get(after(&event), "b"), Value::Bytes(vec![0xe9]));
    assert_eq!(*get(after(&event), "c"), text("é"));
}

#[test]
fn bad_messages_name_the_field_or_the_column_and_the_value() {
    let decoder = &mut ticdc();
    for (message, expected) in [
        ("[]", "an array, not an object"),
        ("{\"type\":", "not JSON at byte 8"),
        (r#"{"type":"INSERT","_tidb":{"commitTs":1.5}}"#, "`commitTs` is 1.5"),
        (r#"{"type":"TIDB_WATERMARK","_tidb":{}}"#, "`_tidb.watermarkTs` is missing"),
        (r#"{"type":"MERGE","_tidb":{"commitTs":1}}"#, "`type` is 'MERGE'"),
        (r#"{"type":"INSERT","_tidb":{"commitTs":1}}"#, "`data` is missing"),
    ] {
        let found = reason(decoder, message);
        assert!(found.contains(expected), "{found}");
    }
    let too_wide = INSERT.replace(r"\u00ff", "漢");
    assert!(reason(decoder, &too_wide).contains("column `pic`"), "no byte, so no row");
    let no_number = INSERT.replace(r#""12.3400""#, r#""12,34""#);
    assert!(reason(decoder, &no_number).contains("column `price`: '12,34' is no decimal"));
    let native = INSERT.replace(r#""65""#, "65");
    assert!(reason(decoder, &native).contains("column `flags`: a value is a number"));
    // And the next message is as good as ever.
    assert_eq!(one(decoder, INSERT).kind, EventKind::Insert);
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(changes in prop::collection::vec(any::<(usize, u8, u8)>(), 1..6)) {
        for golden in [INSERT.to_owned(), update(r#"{"a":"4"}"#)] {
            let bytes = mutated(golden.as_bytes(), &changes);
            for dialect in [CanalDialect::Ticdc, CanalDialect::Plain] {
                let message = Message { value: Some(&bytes), ..Message::default() };
                let _: Result<_, _> = CanalDecoder::new(dialect).decode(message);
            }
        }
    }
}
