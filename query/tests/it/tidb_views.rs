//! Views over TiDB's tables, read before and after TiDB changes them: every read is the query at its timestamp.

use query::{PathChoice, ReadMode, ReadPath, ReadSettings};
use serde_json::{Value, json};
use types::Timestamp;

use crate::harness::{Harness, Row, rows_of, table};
use crate::tidb_meta::{Tidb, bigint, numbered, partitions, plain};

const TOTALS: &str = "CREATE MATERIALIZED VIEW totals AS SELECT grp, COUNT(*) AS n, SUM(val) AS total FROM shop.t GROUP BY grp";
const COPY: &str = "CREATE MATERIALIZED VIEW copy AS SELECT * FROM shop.t";
const ODD: &str = "CREATE MATERIALIZED VIEW over AS SELECT total, grp FROM totals WHERE grp > 1";

/// A table of TiDB with three rows, and views over it that are up to date.
async fn begin() -> (Harness, Tidb) {
    let mut h = Harness::new(1).await;
    let mut tidb = Tidb::begin(&h.store).await;
    tidb.define(vec![plain(5001, "T")], &[]).await;
    tidb.write(5001, &[&["1", "1", "10"], &["2", "1", "20"], &["3", "2", "5"]]).await;
    for view in [TOTALS, COPY, ODD] {
        h.run(view).await;
    }
    (h, tidb)
}

fn modes(h: &Harness) -> [ReadSettings; 4] {
    [
        h.with(ReadMode::Fresh, PathChoice::Auto),
        h.with(ReadMode::Fresh, PathChoice::Hybrid),
        h.with(ReadMode::Fresh, PathChoice::Live),
        h.with(ReadMode::Wait, PathChoice::Auto),
    ]
}

/// Every fresh read of every view has these answers; the path is the expected one.
async fn check(h: &Harness, totals: &str, copy: &str, over: &str, path: ReadPath) {
    let rows = |text: &str| if text.is_empty() { Vec::<Row>::new() } else { table(text) };
    for settings in modes(h) {
        assert_eq!(h.sorted(&settings, "SELECT * FROM totals", None).await, rows(totals), "{settings:?}");
        assert_eq!(h.sorted(&settings, "SELECT * FROM copy", None).await, rows(copy), "{settings:?}");
        assert_eq!(h.sorted(&settings, "SELECT * FROM over", None).await, rows(over), "{settings:?}");
        let some = "SELECT val FROM copy WHERE id = 2";
        let expected: Vec<Row> =
            rows(copy).iter().filter(|row| row[0] == "2").map(|row| vec![row[2].clone()]).collect();
        assert_eq!(h.sorted(&settings, some, None).await, expected, "{settings:?}");
    }
    let found = h.path(&h.settings, "SELECT * FROM totals", None).await;
    assert_eq!(found.path, path, "{}", found.reason);
}

/// VERIFY finds no difference, whatever TiDB has changed since the cut.
async fn verify(h: &Harness) {
    for view in ["totals", "copy", "over"] {
        let result = h.engine.verify(&h.settings, "test", view).await.unwrap();
        assert_eq!(rows_of(result).await.unwrap(), Vec::<Row>::new(), "{view}");
    }
}

/// The answers at a time before.
async fn check_past(h: &Harness, at: Timestamp) {
    let past = ReadSettings { snapshot: Some(at), ..h.settings.clone() };
    assert_eq!(h.sorted(&past, "SELECT * FROM totals", None).await, table("1 2 30, 2 1 5"));
    assert_eq!(h.sorted(&past, "SELECT * FROM copy", None).await, table("1 1 10, 2 1 20, 3 2 5"));
}

async fn error(h: &Harness, text: &str) -> types::Error {
    match h.query(&h.settings, text, None, &[]).await {
        Ok(result) => rows_of(result).await.unwrap_err(),
        Err(error) => error,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn views_are_read_and_verified() {
    let (h, tidb) = begin().await;
    check(&h, "1 2 30, 2 1 5", "1 1 10, 2 1 20, 3 2 5", "5 2", ReadPath::Fresh).await;
    verify(&h).await;
    tidb.write(5001, &[&["4", "2", "1"], &["2", "1", "21"]]).await;
    tidb.delete(5001, &[&["1", "1", "10"]]).await;
    check(&h, "1 1 21, 2 2 6", "2 1 21, 3 2 5, 4 2 1", "6 2", ReadPath::Hybrid).await;
    verify(&h).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_that_keep_what_is_used_keep_the_view() {
    let (mut h, mut tidb) = begin().await;
    // In front, so that every position is another one, and renamed columns and table.
    let mut changed = tidb.tables[&5001].clone();
    let mut added = bigint(9, "extra", 0);
    added["origin_default"] = json!("7");
    changed["cols"].as_array_mut().unwrap().insert(0, added);
    changed["cols"][2]["name"] = json!({"O": "grp2", "L": "grp2"});
    // A column takes the name that another had.
    changed["cols"][0]["name"] = json!({"O": "grp", "L": "grp"});
    changed["name"] = json!({"O": "Moved", "L": "moved"});
    tidb.define(vec![numbered(changed), plain(5002, "t")], &[]).await;
    tidb.write(5002, &[&["77", "7", "7"]]).await;
    check(&h, "1 2 30, 2 1 5", "1 1 10, 2 1 20, 3 2 5", "5 2", ReadPath::Fresh).await;
    verify(&h).await;
    tidb.write(5001, &[&["-", "4", "2", "1"], &["8", "2", "1", "21"]]).await;
    check(&h, "1 2 31, 2 2 6", "1 1 10, 2 1 21, 3 2 5, 4 2 1", "6 2", ReadPath::Hybrid).await;
    verify(&h).await;
    h.epoch().await;
    check(&h, "1 2 31, 2 2 6", "1 1 10, 2 1 21, 3 2 5, 4 2 1", "6 2", ReadPath::Fresh).await;
    verify(&h).await;
    // A new view has the new names and columns.
    h.run("CREATE MATERIALIZED VIEW anew AS SELECT id, grp, grp2 FROM shop.moved").await;
    let anew = h.sorted(&h.settings, "SELECT * FROM anew", None).await;
    assert_eq!(anew, table("1 7 1, 2 8 1, 3 7 2, 4 NULL 2"));
    check(&h, "1 2 31, 2 2 6", "1 1 10, 2 1 21, 3 2 5, 4 2 1", "6 2", ReadPath::Fresh).await;
    // A column that no view uses may go and change; `copy` uses all that there were.
    let mut changed = tidb.tables[&5001].clone();
    changed["cols"].as_array_mut().unwrap().remove(0);
    tidb.define(vec![numbered(changed)], &[]).await;
    check(&h, "1 2 31, 2 2 6", "1 1 10, 2 1 21, 3 2 5, 4 2 1", "6 2", ReadPath::Fresh).await;
    assert_eq!(error(&h, "SELECT * FROM anew").await.mysql_code(), Some(1054));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_table_is_empty_at_once() {
    let (h, mut tidb) = begin().await;
    let before = h.store.read_timestamp().await.unwrap();
    let mut truncated = tidb.tables[&5001].clone();
    truncated["id"] = json!(5002);
    tidb.define(vec![truncated], &[5001]).await;
    check(&h, "", "", "", ReadPath::Live).await;
    let path = h.path(&h.settings, "SELECT * FROM totals", None).await;
    assert!(path.reason.contains("table Shop.T of TiDB was changed"), "{}", path.reason);
    tidb.write(5002, &[&["2", "9", "9"]]).await;
    check(&h, "9 1 9", "2 9 9", "9 9", ReadPath::Live).await;
    verify(&h).await;
    check_past(&h, before).await;
    let stale = h.with(ReadMode::Stale, PathChoice::Auto);
    assert_eq!(h.sorted(&stale, "SELECT * FROM totals", None).await, table("1 2 30, 2 1 5"));
}

/// The name under which the table was truncated is not the one that the view's text has.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_was_renamed_is_found_after_a_truncation() {
    let (mut h, mut tidb) = begin().await;
    let mut renamed = tidb.tables[&5001].clone();
    renamed["name"] = json!({"O": "moved", "L": "moved"});
    renamed["cols"][2]["name"] = json!({"O": "amount", "L": "amount"});
    tidb.define(vec![renamed.clone(), plain(5003, "t")], &[]).await;
    tidb.write(5003, &[&["66", "6", "6"]]).await;
    h.epoch().await;
    renamed["id"] = json!(5002);
    tidb.define(vec![renamed], &[5001]).await;
    tidb.write(5002, &[&["2", "3", "9"]]).await;
    check(&h, "3 1 9", "2 3 9", "9 3", ReadPath::Live).await;
    verify(&h).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_that_come_and_go_are_read_at_once() {
    let mut h = Harness::new(1).await;
    let mut tidb = Tidb::begin(&h.store).await;
    let mut parts = plain(5001, "T");
    parts["partition"] = partitions(&[5012, 5011]);
    tidb.define(vec![parts.clone()], &[]).await;
    tidb.write_at(&tidb.info(5001, 5011), &[&["1", "1", "10"], &["3", "2", "5"]], None).await;
    tidb.write_at(&tidb.info(5001, 5012), &[&["2", "1", "20"]], None).await;
    for view in [TOTALS, COPY, ODD] {
        h.run(view).await;
    }
    check(&h, "1 2 30, 2 1 5", "1 1 10, 2 1 20, 3 2 5", "5 2", ReadPath::Fresh).await;
    tidb.write_at(&tidb.info(5001, 5012), &[&["4", "2", "1"], &["2", "1", "21"]], None).await;
    check(&h, "1 2 31, 2 2 6", "1 1 10, 2 1 21, 3 2 5, 4 2 1", "6 2", ReadPath::Hybrid).await;
    verify(&h).await;
    h.epoch().await;
    verify(&h).await;
    // One is dropped, another comes.
    parts["partition"] = partitions(&[5012, 5013]);
    tidb.define(vec![parts.clone()], &[]).await;
    tidb.write_at(&tidb.info(5001, 5013), &[&["6", "6", "6"]], None).await;
    let copy = "2 1 21, 4 2 1, 6 6 6";
    check(&h, "1 1 21, 2 1 1, 6 1 6", copy, "1 2, 6 6", ReadPath::Live).await;
    verify(&h).await;
    // A partition and a table change their ids, and their rows with them.
    let swap = |id: i64| {
        let mut other = plain(id, "other");
        other["revision"] = json!(id);
        other
    };
    tidb.define(vec![swap(5020)], &[]).await;
    tidb.write(5020, &[&["7", "7", "7"]]).await;
    parts["partition"] = partitions(&[5012, 5020]);
    tidb.define(vec![parts, swap(5013)], &[5020]).await;
    check(&h, "1 1 21, 2 1 1, 7 1 7", "2 1 21, 4 2 1, 7 7 7", "1 2, 7 7", ReadPath::Live).await;
    assert_eq!(h.rows("SELECT * FROM shop.other").await, table("6 6 6"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_gone_or_refused_is_an_error() {
    type Change = fn(&mut Value);
    let cases: [(Option<Change>, u16, &str); 4] = [
        (None, 1146, "doesn't exist"),
        (Some(|table| drop(table["cols"].as_array_mut().unwrap().remove(2))), 1054, "was dropped"),
        (Some(|table| table["cols"][2]["type"]["Tp"] = json!(245)), 1235, "has the type JSON"),
        (Some(|table| table["cache_table_status"] = json!(1)), 1235, "is a cached table"),
    ];
    for (change, code, text) in cases {
        let (h, mut tidb) = begin().await;
        match change {
            None => {
                tidb.define(Vec::new(), &[5001]).await;
            }
            Some(change) => {
                let mut table = tidb.tables[&5001].clone();
                change(&mut table);
                tidb.define(vec![numbered(table)], &[]).await;
            }
        }
        for view in ["totals", "copy", "over"] {
            let error = error(&h, &format!("SELECT * FROM {view}")).await;
            assert_eq!(error.mysql_code(), Some(code), "{view}: {error}");
            assert!(error.message().contains(text), "{error}");
        }
        verify(&h).await;
        let stale = h.with(ReadMode::Stale, PathChoice::Auto);
        assert_eq!(h.sorted(&stale, "SELECT * FROM totals", None).await, table("1 2 30, 2 1 5"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_used_column_of_another_type_is_not_read_as_the_old_one() {
    let (h, mut tidb) = begin().await;
    // DECIMAL(20, 2) in a new column of the same name; old rows have been rewritten.
    let mut table_of = tidb.tables[&5001].clone();
    let mut val = bigint(4, "val", 1);
    val["type"] = crate::tidb_meta::field_type(246, 1, 20, 2, "binary");
    table_of["cols"][2] = val;
    tidb.define(vec![numbered(table_of)], &[]).await;
    tidb.write(5001, &[&["1", "1", "10.50"], &["2", "1", "20.25"], &["3", "2", "5.00"]]).await;
    assert_eq!(h.rows("SELECT SUM(val) FROM shop.t").await, table("35.75"));
    for view in ["totals", "copy"] {
        let error = error(&h, &format!("SELECT * FROM {view}")).await;
        assert_eq!(error.mysql_code(), Some(1105), "{error}");
        assert!(error.message().contains("has another type since TiDB changed a table"), "{error}");
    }
    verify(&h).await;
    // A wider integer holds what the view's column does.
    let (h, mut tidb) = begin().await;
    let mut narrow = tidb.tables[&5001].clone();
    narrow["cols"][2]["type"]["Tp"] = json!(3);
    tidb.define(vec![narrow], &[]).await;
    check(&h, "1 2 30, 2 1 5", "1 1 10, 2 1 20, 3 2 5", "5 2", ReadPath::Live).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exchange_under_way_changes_nothing_for_views() {
    let (mut h, mut tidb) = begin().await;
    let mut exchanging = tidb.tables[&5001].clone();
    exchanging["exchange_partition_info"] = json!({"exchange_partition_id": 77});
    tidb.define(vec![exchanging], &[]).await;
    tidb.write_at(&plain_info(), &[&["4", "2", "1"]], None).await;
    assert_eq!(error(&h, "SELECT * FROM shop.t").await.mysql_code(), Some(1235));
    let copy = "1 1 10, 2 1 20, 3 2 5, 4 2 1";
    check(&h, "1 2 30, 2 2 6", copy, "6 2", ReadPath::Hybrid).await;
    h.epoch().await;
    check(&h, "1 2 30, 2 2 6", copy, "6 2", ReadPath::Fresh).await;
    verify(&h).await;
}

fn plain_info() -> tidb::TableInfo {
    let meta = tidb::MetaTable::parse(plain(5001, "t").to_string().as_bytes()).unwrap();
    tidb::SourceTable::from_meta(&meta, tidb::NewCollations::On).unwrap().info
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_reads_the_tables_of_its_start() {
    let (h, mut tidb) = begin().await;
    let transaction = h.engine.begin().await.unwrap();
    let mut truncated = tidb.tables[&5001].clone();
    truncated["id"] = json!(5002);
    tidb.define(vec![truncated], &[5001]).await;
    let rows = h.sorted(&h.settings, "SELECT * FROM shop.t", Some(&transaction)).await;
    assert_eq!(rows, table("1 1 10, 2 1 20, 3 2 5"));
    let rows = h.sorted(&h.settings, "SELECT * FROM totals", Some(&transaction)).await;
    assert_eq!(rows, table("1 2 30, 2 1 5"));
    assert!(h.rows("SELECT * FROM totals").await.is_empty());
}
