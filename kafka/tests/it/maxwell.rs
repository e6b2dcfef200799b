//! Maxwell's JSON, quirk by quirk.

use kafka::{ConnectHints, Decoder, EventKind, MaxwellDecoder, Message, Value};
use proptest::prelude::*;
use tidb::ColumnType;

use crate::convert::column;
use crate::support::{after, before, get, mutated, number, one, one_of, reason, text};

fn decoder() -> MaxwellDecoder {
    let hints = ConnectHints::of(&[
        column("pic", ColumnType::Blob(100)),
        column("price", ColumnType::Decimal { precision: 20, scale: 10 }),
    ]);
    MaxwellDecoder::new(hints, vec!["flags".to_owned()])
}

const UPDATE: &str = r#"{"database":"d","table":"t","type":"update","ts":1477053217,"xid":23396,"commit":true,
    "position":"master.000006:800911","primary_key_columns":["id"],
    "data":{"id":1,"price":12345678.1234567890,"pic":"AAE=","flags":["a","b"],"doc":["a","b"],"at":"0000-00-00 00:00:00"},
    "old":{"price":1.0000000000}}"#;

#[test]
fn values_are_native_and_old_rows_are_completed() {
    let event = one(&mut decoder(), UPDATE);
    assert_eq!(event.kind, EventKind::Update);
    let (old, new) = (before(&event), after(&event));
    // All digits of a number are there, although it is no text.
    assert_eq!(
        (get(old, "price"), get(new, "price")),
        (&number("1.0000000000"), &number("12345678.1234567890"))
    );
    assert_eq!((get(old, "id"), get(new, "pic")), (&number("1"), &Value::Bytes(vec![0, 1])));
    assert_eq!((get(new, "flags"), get(new, "doc")), (&text("a,b"), &Value::Json(r#"["a","b"]"#.to_owned())));
    assert_eq!(*get(new, "at"), text("0000-00-00 00:00:00"));
    assert_eq!((event.position.transaction.as_deref(), event.position.is_last), (Some("23396"), true));
    assert_eq!(event.key_columns, ["id"]);
}

#[test]
fn keys_say_their_columns_in_two_forms() {
    let message = UPDATE.replace(r#""primary_key_columns":["id"],"#, "");
    for key in [r#"{"database":"d","table":"t","pk.id":1}"#, r#"["d","t",[{"id":1}]]"#] {
        let event = one_of(&mut decoder(), key.as_bytes(), Some(message.as_bytes()));
        assert_eq!(event.key_columns, ["id"], "{key}");
    }
}

#[test]
fn each_type_of_message_is_known() {
    let of = |kind: &str| one(&mut decoder(), &UPDATE.replace(r#""update""#, &format!("\"{kind}\"")));
    assert_eq!(of("insert").kind, EventKind::Insert);
    assert_eq!(of("delete").before.as_ref().map(|row| row.cells.len()), Some(6));
    let bootstrapped = of("bootstrap-insert");
    assert_eq!((bootstrapped.kind, bootstrapped.is_snapshot), (EventKind::Upsert, true));
    assert_eq!(of("bootstrap-start").kind, EventKind::Heartbeat);
    let ddl = r#"{"type":"table-drop","database":"d","table":"t","ts":1,"sql":"DROP TABLE t"}"#;
    assert!(
        matches!(one(&mut decoder(), ddl).kind, EventKind::Ddl(ddl) if ddl.effect == kafka::DdlEffect::Drops)
    );
    assert!(reason(&mut decoder(), r#"{"type":"noise"}"#).contains("`type` is 'noise'"));
    assert!(reason(&mut decoder(), r#"{"type":"insert"}"#).contains("`data` is missing"));
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(changes in prop::collection::vec(any::<(usize, u8, u8)>(), 1..6)) {
        let bytes = mutated(UPDATE.as_bytes(), &changes);
        let message = Message { key: Some(&bytes), value: Some(&bytes), ..Message::default() };
        let _: Result<_, _> = decoder().decode(message);
    }
}
