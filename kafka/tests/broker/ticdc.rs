//! From a topic, as TiCDC writes it, to whole transactions; over a restart from recorded positions.

use std::collections::{BTreeMap, BTreeSet};

use kafka::{
    CanalDecoder, Close, CutOptions, Decoder, EventCutter, Image, KeyColumns, Positions, Reader, RowKey,
    Step, TopicPartition, Value,
};
use types::Timestamp;

use crate::fixture::{PATIENCE, create_topic, id, plain_producer, reader, send};

/// The balance of each account, by name.
type Balances = BTreeMap<String, i64>;

fn row(table: &str, balance: i64, old: i64, at: u64) -> String {
    format!(
        r#"{{"id":0,"database":"bank","table":"{table}","pkNames":["id"],"isDdl":false,"type":"UPDATE","es":1,
            "ts":2,"sql":"","sqlType":{{}},"mysqlType":{{"id":"int","balance":"bigint"}},
            "old":[{{"balance":"{old}"}}],"data":[{{"id":"1","balance":"{balance}"}}],
            "_tidb":{{"commitTs":{at}}}}}"#
    )
}

fn watermark(at: u64) -> String {
    format!(r#"{{"isDdl":false,"type":"TIDB_WATERMARK","_tidb":{{"watermarkTs":{at}}}}}"#)
}

/// Reads what is there and applies each cut; the sum of all balances is the same at each of them.
fn consume(reader: &mut Reader, cutter: &mut EventCutter, balances: &mut Balances) -> Option<Positions> {
    let (mut decoder, keys) = (CanalDecoder::default(), KeyColumns::default());
    let mut records = Vec::new();
    reader.read_to_end(PATIENCE, |record| records.push(record)).unwrap();
    let mut positions = None;
    for record in records {
        let events = record.with_message(|message| decoder.decode(message)).unwrap();
        let (entries, bad) = keys.all(events);
        assert_eq!(bad, []);
        cutter.take(&record.partition, record.offset, entries).unwrap();
        // After each message, as a barrier may come at any moment.
        let known: BTreeSet<TopicPartition> = reader.partitions("bank").unwrap().into_iter().collect();
        if let Close::Closed(cut) = cutter.close(&known) {
            for step in cut.steps {
                let Step::Rows(changes) = step else { continue };
                changes.into_iter().for_each(|change| apply(balances, &change.key, change.new.as_ref()));
            }
            assert_eq!(balances.values().sum::<i64>(), 0, "no transfer is half there at {}", cut.at);
            positions = Some(cut.positions);
        }
    }
    positions
}

fn apply(balances: &mut Balances, key: &RowKey, row: Option<&Image>) {
    let row = row.expect("no account goes away");
    let Some(Value::Number(balance)) = row.get("balance") else { panic!("{row:?}") };
    balances.insert(key.table.table.clone(), balance.parse().unwrap());
}

#[test]
fn transfers_over_partitions_are_whole_at_every_cut_and_after_a_restart() {
    create_topic("bank", 2);
    let producer = plain_producer();
    let put = |partition: i32, message: &str| send(&producer, &id("bank", partition), message);
    let transfer = |at: u64, balance: i64| {
        put(0, &row("a", -balance, 1 - balance, at));
        put(1, &row("b", balance, balance - 1, at));
    };
    transfer(10, 1);
    transfer(20, 2);
    put(0, &watermark(15));
    put(1, &watermark(25));
    put(0, &row("a", -3, -2, 30));
    let mut reader_before = reader();
    let ids = reader_before.partitions("bank").unwrap();
    let from: Vec<_> = ids.iter().map(|id| (id.clone(), 0)).collect();
    let mut cutter = EventCutter::start(CutOptions::default(), Timestamp::ZERO, from.clone());
    reader_before.assign(&from).unwrap();
    let mut balances = Balances::new();
    let positions = consume(&mut reader_before, &mut cutter, &mut balances).expect("a cut at 14");
    assert_eq!(
        (positions.cut, &balances),
        (Timestamp(14), &Balances::from([("a".into(), -1), ("b".into(), 1)]))
    );
    drop((cutter, reader_before));

    // TiCDC dies after half of the transfer of 30, and begins again at its checkpoint.
    put(1, &row("b", 2, 1, 20));
    put(0, &row("a", -2, -1, 20));
    put(0, &watermark(18));
    put(1, &row("b", 3, 2, 30));
    put(0, &row("a", -3, -2, 30));
    put(0, &watermark(40));
    put(1, &watermark(40));
    let mut reader_after = reader();
    let mut cutter = EventCutter::restore(CutOptions::default(), &positions);
    reader_after.assign(&positions.offsets()).unwrap();
    let positions = consume(&mut reader_after, &mut cutter, &mut balances).expect("a cut at 39");
    assert_eq!(positions.cut, Timestamp(39));
    assert_eq!(balances, Balances::from([("a".into(), -3), ("b".into(), 3)]));
    assert!(cutter.counts().below_watermark > 0 && cutter.counts().repeated > 0, "{:?}", cutter.counts());
}
