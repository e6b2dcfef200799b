//! The thin line: bytes of a TiCDC topic in, whole transactions in our types out.

use std::collections::BTreeSet;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Decimal128Type, UInt64Type};
use kafka::{
    CanalDecoder, Change, Close, ConvertOptions, CutOptions, Decoder, EventCutter, Image, KeyColumns,
    Message, RowConverter, RowKey, Step, TopicPartition,
};
use tidb::{ColumnInfo, ColumnType};
use types::Timestamp;

use crate::convert::column;

fn row(kind: &str, table: &str, id: u64, amount: &str, at: u64, old: &str) -> String {
    let old = if old.is_empty() { "null".to_owned() } else { format!(r#"[{{"amount":"{old}"}}]"#) };
    format!(
        r#"{{"id":0,"database":"bank","table":"{table}","pkNames":["id"],"isDdl":false,"type":"{kind}",
            "es":1,"ts":2,"sql":"","sqlType":{{"id":3,"amount":3}},
            "mysqlType":{{"id":"bigint unsigned","amount":"decimal(10,2)"}},"old":{old},
            "data":[{{"id":"{id}","amount":"{amount}"}}],"_tidb":{{"commitTs":{at}}}}}"#
    )
}

fn watermark(at: u64) -> String {
    format!(r#"{{"isDdl":false,"type":"TIDB_WATERMARK","_tidb":{{"watermarkTs":{at}}}}}"#)
}

/// Reads a topic whose partitions are given as texts; `None` marks a message that must be bad.
fn read(cutter: &mut EventCutter, partition: i32, messages: &[(&str, bool)]) {
    let mut decoder = CanalDecoder::default();
    let keys = KeyColumns::default();
    for (offset, (message, is_good)) in messages.iter().enumerate() {
        let message = Message { value: Some(message.as_bytes()), ..Message::default() };
        let entries = decoder.decode(message).and_then(|events| {
            let entries: Result<Vec<_>, _> = events.into_iter().map(|event| keys.entries(event)).collect();
            Ok(entries?.into_iter().flatten().collect::<Vec<_>>())
        });
        assert_eq!(entries.is_ok(), *is_good, "{entries:?}");
        let id = TopicPartition::new("bank", partition);
        cutter.take(&id, offset as i64, entries.unwrap_or_default()).unwrap();
    }
}

fn rows(images: &[&Image]) -> RecordBatch {
    let columns: Vec<ColumnInfo> = vec![
        column("id", ColumnType::Int { bits: 64, unsigned: true }),
        column("amount", ColumnType::Decimal { precision: 10, scale: 2 }),
    ];
    let converted = RowConverter::new(columns, ConvertOptions::default()).convert(images).unwrap();
    assert_eq!(converted.errors, []);
    converted.batch
}

#[test]
fn a_transfer_over_two_tables_and_partitions_comes_out_whole() {
    let ids = BTreeSet::from([TopicPartition::new("bank", 0), TopicPartition::new("bank", 1)]);
    let from = ids.iter().map(|id| (id.clone(), 0));
    let mut cutter = EventCutter::start(CutOptions::default(), Timestamp::ZERO, from);
    let insert = row("INSERT", "accounts", u64::MAX, "100.00", 10, "");
    let take = row("UPDATE", "accounts", u64::MAX, "60.00", 20, "100.00");
    let give = row("INSERT", "savings", 1, "40.00", 20, "");
    let late = row("UPDATE", "savings", 1, "41.00", 31, "40.00");
    read(
        &mut cutter,
        0,
        &[(&insert, true), (&watermark(15), true), (&take, true), ("{", false), (&watermark(30), true)],
    );
    read(
        &mut cutter,
        1,
        &[(&watermark(15), true), (&late, true), (&give, true), (&give, true), (&watermark(30), true)],
    );
    let Close::Closed(cut) = cutter.close(&ids) else { panic!("both partitions have watermarks") };
    assert_eq!(cut.at, Timestamp(29));
    let [Step::Rows(changes)] = &cut.steps[..] else { panic!("{:?}", cut.steps) };
    let shown: Vec<_> =
        changes.iter().map(|Change::<RowKey, Image> { key, .. }| key.table.to_string()).collect();
    assert_eq!(shown, ["`bank`.`accounts`", "`bank`.`savings`"]);
    let images: Vec<&Image> = changes.iter().filter_map(|change| change.new.as_ref()).collect();
    let batch = rows(&images);
    assert_eq!(batch.column(0).as_primitive::<UInt64Type>().values(), &[u64::MAX, 1]);
    assert_eq!(batch.column(1).as_primitive::<Decimal128Type>().values(), &[6_000, 4_000]);
    // What is above the cut is read again after a restart, from its own message on.
    let restart = cut.positions.offsets();
    assert_eq!(restart, [(TopicPartition::new("bank", 0), 5), (TopicPartition::new("bank", 1), 1)]);
}
