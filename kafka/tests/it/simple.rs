//! TiCDC's simple protocol, quirk by quirk.

use kafka::{
    Ddl, DdlEffect, Decoder, Entry, EventKind, KeyColumns, Message, Side, SimpleDecoder, TableName, Value,
};
use proptest::prelude::*;
use types::Timestamp;

use crate::support::{after, before, decode, get, is_watermark, mutated, number, one, reason};

fn schema(table: &str, version: u64) -> String {
    format!(
        r#"{{"schema":"d","table":"{table}","tableID":148,"version":{version},"columns":[
            {{"name":"id","dataType":{{"mysqlType":"bigint","charset":"binary","collate":"binary",
                "length":20,"unsigned":true}},"nullable":false,"default":null}},
            {{"name":"b","dataType":{{"mysqlType":"varbinary","length":8}},"nullable":true,"default":null}},
            {{"name":"ts","dataType":{{"mysqlType":"timestamp"}},"nullable":true,"default":null}},
            {{"name":"p","dataType":{{"mysqlType":"decimal","length":10,"decimal":4}},"nullable":true}},
            {{"name":"e","dataType":{{"mysqlType":"enum","elements":["a","b"]}},"nullable":true}}],
          "indexes":[{{"name":"primary","unique":true,"primary":true,"nullable":false,"columns":["id"]}}]}}"#
    )
}

fn bootstrap(version: u64) -> String {
    format!(
        r#"{{"version":1,"type":"BOOTSTRAP","commitTs":0,"buildTs":1,"tableSchema":{}}}"#,
        schema("t", version)
    )
}

fn row(kind: &str, version: u64) -> String {
    let image = r#"{"id":"18446744073709551615","b":"/wA=","ts":{"location":"Asia/Shanghai",
        "value":"2020-01-01 08:00:00"},"p":"1.5000","e":"2"}"#;
    let images = match kind {
        "INSERT" => format!(r#""data":{image}"#),
        "UPDATE" => format!(r#""data":{image},"old":{}"#, image.replace("1.5000", "0.5000")),
        _ => format!(r#""old":{image}"#),
    };
    format!(
        r#"{{"version":1,"type":"{kind}","database":"d","table":"t","tableID":148,"commitTs":447984084414103554,
            "buildTs":1,"schemaVersion":{version},{images}}}"#
    )
}

#[test]
fn rows_are_read_with_the_schema_of_their_version() {
    let decoder = &mut SimpleDecoder::default();
    assert_eq!(decode(decoder, &bootstrap(7)).unwrap(), [], "a description says nothing of rows");
    let event = one(decoder, &row("UPDATE", 7));
    assert_eq!((&event.kind, &event.table), (&EventKind::Update, &TableName::new("d", "t")));
    assert_eq!(event.commit_ts, Some(Timestamp(447_984_084_414_103_554)));
    assert_eq!(event.key_columns, ["id"]);
    let (old, new) = (before(&event), after(&event));
    assert_eq!((get(old, "p"), get(new, "p")), (&number("0.5000"), &number("1.5000")));
    assert_eq!(*get(new, "b"), Value::Bytes(vec![0xff, 0]), "bytes are base64 here");
    let zoned = Value::Zoned { zone: "Asia/Shanghai".to_owned(), text: "2020-01-01 08:00:00".to_owned() };
    assert_eq!(*get(new, "ts"), zoned);
    assert_eq!(new.cell("e").unwrap().source_type.as_ref().unwrap().labels, ["a", "b"]);
    let delete = one(decoder, &row("DELETE", 7));
    assert_eq!((delete.kind, delete.after, delete.before.is_some()), (EventKind::Delete, None, true));
    assert!(is_watermark(&one(decoder, r#"{"version":1,"type":"WATERMARK","commitTs":9,"buildTs":1}"#), 9));
}

#[test]
fn rows_before_their_schema_wait_for_it_and_keep_their_place() {
    let decoder = &mut SimpleDecoder::default();
    let early = one(decoder, &row("INSERT", 8));
    assert_eq!(
        (&early.kind, early.commit_ts),
        (&EventKind::Deferred(0), Some(Timestamp(447_984_084_414_103_554)))
    );
    one(decoder, &row("DELETE", 8).replace("/wA=", "!"));
    assert_eq!(decoder.n_held(), 2);
    assert_eq!(decode(decoder, &bootstrap(7)).unwrap(), [], "another version");
    let events = decode(decoder, &bootstrap(8)).unwrap();
    assert_eq!(decoder.n_held(), 0);
    assert_eq!((events.len(), &events[0].kind, events[0].resolves), (2, &EventKind::Insert, Some(0)));
    assert_eq!(*get(after(&events[0]), "p"), number("1.5000"));
    // The second is bad: it is named, and it waits no longer.
    let (entries, bad) = KeyColumns::default().all(events);
    assert!(bad.len() == 1 && bad[0].reason.contains("column `b`"), "{bad:?}");
    let Entry::Resolved { ticket: 0, halves } = &entries[0] else { panic!("{entries:?}") };
    assert!(halves.len() == 1 && halves[0].side == Side::New);
    assert!(matches!(&entries[1], Entry::Resolved { ticket: 1, halves } if halves.is_empty()));
}

#[test]
fn ddl_brings_the_new_schema_and_names_the_old_table() {
    let decoder = &mut SimpleDecoder::default();
    let rename = format!(
        r#"{{"version":1,"type":"RENAME","sql":"RENAME TABLE t TO u","commitTs":9,"buildTs":1,
            "tableSchema":{},"preTableSchema":{}}}"#,
        schema("u", 7),
        schema("t", 7)
    );
    let event = one(decoder, &rename);
    let sql = "RENAME TABLE t TO u".to_owned();
    assert_eq!(event.kind, EventKind::Ddl(Ddl { sql, effect: DdlEffect::Renames }));
    assert_eq!(event.table, TableName::new("d", "t"));
    // The version is as before, and the name is the row's own.
    let renamed = one(decoder, &row("INSERT", 7).replace(r#""table":"t""#, r#""table":"u""#));
    assert_eq!(renamed.table, TableName::new("d", "u"));
    let no_schema = r#"{"version":1,"type":"QUERY","sql":"DROP DATABASE d","commitTs":10,"buildTs":1}"#;
    assert_eq!(one(decoder, no_schema).table, TableName::default());
}

#[test]
fn bad_rows_say_why() {
    let decoder = &mut SimpleDecoder::default();
    decode(decoder, &bootstrap(7)).unwrap();
    let unknown = row("INSERT", 7).replace(r#""p":"#, r#""q":"#);
    assert_eq!(reason(decoder, &unknown), "column `q`: the schema of this version has no such column");
    assert!(
        reason(decoder, &row("INSERT", 7).replace("1.5000", "x")).contains("column `p`: 'x' is no decimal")
    );
    assert!(reason(decoder, &row("MERGE", 7)).contains("`type` is 'MERGE'"));
    assert!(reason(decoder, r#"{"version":2}"#).contains("version 2"));
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(
        changes in prop::collection::vec((0_usize..4, any::<(usize, u8, u8)>()), 1..8),
    ) {
        let mut decoder = SimpleDecoder::default();
        let goldens = [row("INSERT", 7), bootstrap(7), row("UPDATE", 7), row("DELETE", 7)];
        for (at, golden) in goldens.iter().enumerate() {
            let changes: Vec<_> =
                changes.iter().filter(|(which, _)| *which == at).map(|(_, change)| *change).collect();
            let bytes = mutated(golden.as_bytes(), &changes);
            let _: Result<_, _> = decoder.decode(Message { value: Some(&bytes), ..Message::default() });
        }
    }
}

#[test]
fn a_deferred_row_holds_the_cut_and_comes_out_in_its_place() {
    use kafka::{Close, CutOptions, EventCutter, Step, TopicPartition};
    let id = TopicPartition::new("t", 0);
    let known = std::collections::BTreeSet::from([id.clone()]);
    let mut cutter = EventCutter::start(CutOptions::default(), Timestamp::ZERO, [(id.clone(), 0)]);
    let decoder = &mut SimpleDecoder::default();
    let at = 447_984_084_414_103_554;
    let watermark = |at: u64| format!(r#"{{"version":1,"type":"WATERMARK","commitTs":{at},"buildTs":1}}"#);
    let messages = [row("INSERT", 7), watermark(at + 100), bootstrap(7)];
    for (offset, message) in messages.iter().enumerate() {
        let (entries, bad) = KeyColumns::default().all(decode(decoder, message).unwrap());
        assert_eq!(bad, []);
        cutter.take(&id, offset as i64, entries).unwrap();
        if offset == 1 {
            let Close::Closed(cut) = cutter.close(&known) else { panic!("what is older can be cut") };
            assert_eq!((cut.at, cut.positions.offsets()), (Timestamp(at - 1), vec![(id.clone(), 0)]));
        }
    }
    // The watermark stands before the description, and the row before both: it is no repetition.
    let Close::Closed(cut) = cutter.close(&known) else { panic!("nothing is deferred any more") };
    assert_eq!(cut.at, Timestamp(at + 99));
    assert!(matches!(&cut.steps[..], [Step::Rows(changes)] if changes.len() == 1), "{:?}", cut.steps);
    assert_eq!(cut.positions.offsets(), [(id, 3)]);
}
