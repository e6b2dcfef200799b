//! TiDB's tables in queries: what is read of them, what is refused, and by which names they are found.

use query::ReadSettings;
use serde_json::{Value, json};
use tidb::MetaKey;
use types::Result;

use crate::harness::{Harness, Row, rows_of, table};
use crate::tidb_meta as meta;
use crate::tidb_meta::{
    KEY, SHOP, Tidb, bigint, clustered, column, field_type, numbered, partitions, plain, varchar,
};

async fn begin() -> (Harness, Tidb) {
    let h = Harness::new(1).await;
    let tidb = Tidb::begin(&h.store).await;
    (h, tidb)
}

/// The error of a query.
async fn refused(h: &Harness, text: &str) -> (u16, String) {
    let result = match h.query(&h.settings, text, None, &[]).await {
        Ok(result) => rows_of(result).await.map(|rows| panic!("{text} is answered: {rows:?}")),
        Err(error) => Err(error),
    };
    let error = Result::<()>::unwrap_err(result);
    (error.mysql_code().unwrap_or(0), error.message().to_owned())
}

fn row(cells: &[&str]) -> Row {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_type_is_read() {
    let (h, mut tidb) = begin().await;
    let columns = vec![
        column(1, "id", field_type(3, KEY, 11, 0, "binary")),
        column(2, "tiny", field_type(1, 32, 3, 0, "binary")),
        column(3, "amount", field_type(246, 0, 10, 2, "binary")),
        varchar(4, "Name", 0, 20),
        column(5, "born", field_type(10, 128, 10, 0, "binary")),
        column(6, "seen", field_type(12, 128, 26, 6, "binary")),
        column(7, "d", field_type(5, 0, 22, -1, "binary")),
        column(8, "bytes", field_type(15, 128, 4, 0, "binary")),
    ];
    tidb.define(vec![meta::table(5001, "Things", columns, json!({"pk_is_handle": true}))], &[]).await;
    tidb.write(
        5001,
        &[
            &["1", "255", "12.30", "a b ", "2020-02-29", "2020-01-02 03:04:05.000006", "0.5", "xy"],
            &["-2", "-", "-", "-", "-", "-", "-", "-"],
        ],
    )
    .await;
    let rows = h.rows("SELECT * FROM shop.things ORDER BY id DESC").await;
    let full = row(&["1", "255", "12.30", "a b ", "2020-02-29", "2020-01-02T03:04:05.000006", "0.5", "7879"]);
    assert_eq!(rows[0], full);
    assert_eq!(rows[1][..2], row(&["-2", "NULL"]));
    // By the planner and by a point read, names in any case.
    assert_eq!(h.rows("SELECT name FROM SHOP.THINGS WHERE ID = 1").await, vec![row(&["a b "])]);
    assert_eq!(h.rows("SELECT id FROM shop.things WHERE name = 'a b'").await, table("1"));
    assert_eq!(h.rows("SELECT COUNT(*), SUM(amount) FROM shop.things").await, table("2 12.30"));
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_that_were_added_later_have_their_default_in_old_rows() {
    let (h, mut tidb) = begin().await;
    tidb.define(vec![plain(5001, "t")], &[]).await;
    tidb.write(5001, &[&["1", "10", "100"]]).await;
    let then = h.store.read_timestamp().await.unwrap();
    let mut changed = tidb.tables[&5001].clone();
    let mut added = bigint(4, "added", 1);
    added["origin_default"] = json!("7");
    added["default"] = json!("7");
    let columns = changed["cols"].as_array_mut().unwrap();
    columns.insert(0, added);
    columns.push(bigint(5, "last", 0));
    tidb.define(vec![numbered(changed)], &[]).await;
    assert_eq!(h.rows("SELECT * FROM shop.t").await, vec![row(&["7", "1", "10", "100", "NULL"])]);
    tidb.write(5001, &[&["8", "2", "20", "200", "9"]]).await;
    assert_eq!(
        h.rows("SELECT * FROM shop.t ORDER BY id").await,
        vec![row(&["7", "1", "10", "100", "NULL"]), row(&["8", "2", "20", "200", "9"])]
    );
    assert_eq!(h.rows("SELECT added, last FROM shop.t WHERE id = 1").await, table("7 NULL"));
    // The past has the definition of the past.
    let past = ReadSettings { snapshot: Some(then), ..h.settings.clone() };
    assert_eq!(h.rows_in(&past, "SELECT * FROM shop.t").await, table("1 10 100"));
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_are_one_table() {
    let (h, mut tidb) = begin().await;
    // Not in the order of their ids.
    let partition = partitions(&[5013, 5011, 5012]);
    let mut table_of = plain(5010, "p");
    table_of["partition"] = partition;
    tidb.define(vec![table_of], &[]).await;
    for (physical, id) in [(5011, "1"), (5013, "2"), (5012, "3"), (5011, "-4")] {
        tidb.write_at(&tidb.info(5010, physical), &[&[id, "1", "10"]], None).await;
    }
    // The table's own id has no rows.
    tidb.write_at(&tidb.info(5010, 5010), &[&["99", "1", "10"]], None).await;
    assert_eq!(h.rows("SELECT id FROM shop.p ORDER BY id").await, table("-4, 1, 2, 3"));
    assert_eq!(h.rows("SELECT COUNT(*), SUM(val) FROM shop.p").await, table("4 40"));
    for id in ["-4", "1", "2", "3"] {
        assert_eq!(h.rows(&format!("SELECT id FROM shop.p WHERE id = {id}")).await, table(id));
    }
    assert_eq!(h.rows("SELECT id FROM shop.p WHERE id > 1 ORDER BY id").await, table("2, 3"));
    assert_eq!(h.rows("SELECT id FROM shop.p WHERE id IN (3, 1, 99) ORDER BY id").await, table("1, 3"));
    assert_eq!(h.rows("SELECT COUNT(*) FROM (SELECT id FROM shop.p LIMIT 3) x").await, table("3"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_handle_is_read() {
    let (h, mut tidb) = begin().await;
    let texts = vec![bigint(1, "n", 0), varchar(2, "k", KEY, 10), bigint(3, "m", KEY)];
    let hidden = vec![bigint(1, "a", 0), bigint(2, "b", 0)];
    let unsigned = vec![bigint(1, "id", KEY | 32), bigint(2, "a", 0)];
    tidb.define(
        vec![
            meta::table(5001, "texts", texts, clustered(&[1, 2])),
            meta::table(5002, "hidden", hidden, json!({})),
            meta::table(5003, "big", unsigned, json!({"pk_is_handle": true})),
        ],
        &[],
    )
    .await;
    tidb.write(5001, &[&["1", "a", "1"], &["2", "a", "2"], &["3", "b  ", "1"]]).await;
    tidb.write_at(&tidb.info(5002, 5002), &[&["1", "1"], &["1", "1"], &["2", "-"]], Some(&[1, 2, 3])).await;
    tidb.write(5003, &[&["1", "1"], &["18446744073709551615", "2"]]).await;
    assert_eq!(h.rows("SELECT n FROM shop.texts ORDER BY n").await, table("1, 2, 3"));
    assert_eq!(h.rows("SELECT n FROM shop.texts WHERE k = 'a' AND m = 2").await, table("2"));
    assert_eq!(h.rows("SELECT n FROM shop.texts WHERE k = 'b' AND m = 1").await, table("3"));
    assert_eq!(h.rows("SELECT n FROM shop.texts WHERE k > 'a'").await, table("3"));
    assert_eq!(h.sorted(&h.settings, "SELECT * FROM shop.hidden", None).await, table("1 1, 1 1, 2 NULL"));
    assert_eq!(h.rows("SELECT a FROM shop.big WHERE id = 18446744073709551615").await, table("2"));
    assert_eq!(h.rows("SELECT a FROM shop.big WHERE id > 1").await, table("2"));
    assert_eq!(h.rows("SELECT id FROM shop.big ORDER BY id").await, table("1, 18446744073709551615"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_refused_by_name() {
    let (h, mut tidb) = begin().await;
    let with = |name: &str, id: i64, extra: Value| {
        let mut table = plain(id, name);
        for (field, value) in extra.as_object().unwrap() {
            table[field] = value.clone();
        }
        table
    };
    let mut broken = plain(5007, "broken");
    broken["cols"] = json!("nothing that a column is");
    tidb.define(
        vec![
            with("v", 5001, json!({"view": {"view_algorithm": 0}})),
            with("seq", 5002, json!({"sequence": {"sequence_start": 1}})),
            with("cached", 5003, json!({"cache_table_status": 1})),
            with("x", 5004, json!({"exchange_partition_info": {"exchange_partition_id": 1}})),
            with("dropping", 5005, json!({"state": 2})),
            broken,
            plain(5006, "t"),
        ],
        &[],
    )
    .await;
    for (name, what) in [
        ("v", "is a view of TiDB"),
        ("seq", "is a sequence"),
        ("cached", "is a cached table"),
        ("x", "is in an exchange of partitions"),
        ("dropping", "is not public"),
        ("broken", "definition of a table"),
    ] {
        let (code, text) = refused(&h, &format!("SELECT 1 FROM Shop.{name}")).await;
        assert_eq!(code, 1235, "{text}");
        assert!(text.contains(what) && text.contains(name), "{text}");
        let (code, _) = refused(&h, &format!("SELECT * FROM Shop.{name} WHERE id = 1")).await;
        assert_eq!(code, 1235, "by a point");
    }
    assert_eq!(refused(&h, "SELECT * FROM shop.other").await.0, 1146);
    assert_eq!(refused(&h, "SELECT * FROM shop2.t").await.0, 1049);
    assert_eq!(refused(&h, "SELECT * FROM mysql.tidb").await.0, 1049, "TiDB's own are not there");
    assert!(h.rows("SELECT * FROM shop.t").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_columns_are_never_left_out() {
    let (h, mut tidb) = begin().await;
    let json_column = |id: i64, name: &str| column(id, name, field_type(245, 0, -1, 0, "binary"));
    let columns = |name: &str| vec![bigint(1, "id", KEY), json_column(2, name), bigint(3, "a", 0)];
    let key = json!({"pk_is_handle": true});
    tidb.define(
        vec![
            meta::table(5001, "t", columns("Doc"), key.clone()),
            meta::table(5002, "u", columns("doc"), key.clone()),
            meta::table(5003, "all_refused", vec![json_column(1, "j")], json!({})),
        ],
        &[],
    )
    .await;
    let info = tidb.info(5001, 5001);
    tidb.write_at(&info, &[&["1", "5"], &["2", "6"]], None).await;
    let of_t = "column `Doc` of table `t` has the type JSON, which is not supported";
    for text in [
        "SELECT * FROM shop.t",
        "SELECT x.* FROM shop.t x",
        "SELECT doc FROM shop.t",
        "SELECT id FROM shop.t WHERE DOC IS NULL",
        "SELECT id FROM shop.t ORDER BY doc",
        "SELECT * FROM shop.t WHERE id = 1",
        "SELECT doc FROM shop.t WHERE id = 1",
        "SELECT a FROM (SELECT * FROM shop.t) s",
        "SELECT COUNT(doc) FROM shop.t",
        "SELECT id FROM shop.t WHERE EXISTS (SELECT 1 FROM shop.t y WHERE y.doc = shop.t.id)",
        "SELECT CONCAT(doc, 'a') FROM shop.t",
        "SELECT x.id FROM shop.t x JOIN shop.t y USING (id, doc)",
        "SELECT id FROM shop.t NATURAL JOIN shop.t z",
    ] {
        assert_eq!(refused(&h, text).await, (1235, of_t.to_owned()), "{text}");
    }
    assert_eq!(refused(&h, "SELECT id FROM shop.t NATURAL JOIN shop.u").await.0, 1235);
    assert_eq!(refused(&h, "SELECT 1 FROM shop.all_refused").await.0, 1235);
    assert_eq!(refused(&h, "SELECT nothing FROM shop.t").await.0, 1054);
    assert_eq!(h.rows("SELECT id, a FROM shop.t ORDER BY id").await, table("1 5, 2 6"));
    assert_eq!(h.rows("SELECT a FROM shop.t WHERE id = 2").await, table("6"));
    assert_eq!(h.rows("SELECT COUNT(*) FROM shop.t").await, table("2"));
    assert_eq!(h.rows("SELECT x.id FROM shop.t x JOIN shop.u y ON x.id = y.id").await, Vec::<Row>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_are_refused_without_the_new_collations() {
    for (value, is_read) in [("True", true), ("False", false)] {
        let (h, mut tidb) = begin().await;
        let settings = vec![
            varchar(1, "VARIABLE_NAME", 1, 64),
            varchar(2, "VARIABLE_VALUE", 0, 1024),
            varchar(3, "COMMENT", 0, 1024),
        ];
        let settings = meta::table(5, "tidb", settings, json!({}));
        tidb.tables.insert(5, settings.clone());
        let rows: [&[&str]; 2] = [&["other", "x", "-"], &["new_collation_enabled", value, "-"]];
        tidb.write_at(&tidb.info(5, 5), &rows, Some(&[1, 2])).await;
        tidb.change(vec![(MetaKey::Table { database: 2, table: 5 }, Some(settings))]).await;
        let columns = vec![bigint(1, "id", KEY), varchar(2, "name", 0, 10)];
        tidb.define(vec![meta::table(5001, "t", columns, json!({"pk_is_handle": true}))], &[]).await;
        tidb.write(5001, &[&["1", "a"]]).await;
        assert_eq!(h.rows("SELECT id FROM shop.t").await, table("1"));
        if is_read {
            assert_eq!(h.rows("SELECT name FROM shop.t").await, table("a"));
        } else {
            let (code, text) = refused(&h, "SELECT name FROM shop.t").await;
            assert!(code == 1235 && text.contains("new_collation_enabled"), "{text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tidbs_tables_are_not_written() {
    let (h, mut tidb) = begin().await;
    tidb.define(vec![plain(5001, "t")], &[]).await;
    tidb.write(5001, &[&["1", "10", "100"]]).await;
    for (text, code) in [
        ("INSERT INTO shop.t VALUES (2, 1, 1)", 1471),
        ("INSERT INTO shop.t VALUES (1, 1, 1) ON DUPLICATE KEY UPDATE val = 2", 1471),
        ("REPLACE INTO shop.t VALUES (1, 1, 1)", 1471),
        ("UPDATE shop.t SET val = 2 WHERE id = 1", 1288),
        ("DELETE FROM shop.t", 1288),
    ] {
        let error = h.change(text, None).await.unwrap_err();
        assert_eq!(error.mysql_code(), Some(code), "{error}");
        assert!(error.message().contains("belongs to TiDB"), "{error}");
    }
    assert_eq!(h.rows("SELECT * FROM shop.t").await, table("1 10 100"));
}

#[tokio::test(flavor = "multi_thread")]
async fn own_tables_are_found_first_and_names_are_taken_once() {
    let (mut h, mut tidb) = begin().await;
    h.run("CREATE TABLE mine (id INT PRIMARY KEY)").await;
    h.run("INSERT INTO mine VALUES (1)").await;
    // TiDB has a database `test` too, and a table of the same name in it.
    let database = json!({"id": 3, "db_name": {"O": "TEST", "L": "test"}, "state": 5});
    let key = |table| MetaKey::Table { database: 3, table };
    tidb.change(vec![
        (MetaKey::Database(3), Some(database)),
        (key(5001), Some(plain(5001, "Mine"))),
        (key(5002), Some(plain(5002, "theirs"))),
    ])
    .await;
    assert_eq!(h.rows("SELECT * FROM mine").await, table("1"));
    assert!(h.rows("SELECT id, val FROM Test.Theirs").await.is_empty());
    tidb.define(vec![plain(5003, "t")], &[]).await;
    let now = h.store.read_timestamp().await.unwrap();
    let catalog = h.engine.catalog(now).await.unwrap();
    let statement =
        |text: &str| match sql::parse(text, &sql::Settings::default()).unwrap().remove(0).statement {
            sql::Statement::CreateTable(table) => *table,
            other => panic!("{other:?}"),
        };
    let create = |text: &str, database: &str| {
        catalog.create_table(&statement(text), database).map_err(|error| error.mysql_code())
    };
    assert_eq!(create("CREATE TABLE THEIRS (id INT)", "test").unwrap_err(), Some(1050));
    assert_eq!(create("CREATE TABLE t (id INT)", "SHOP").unwrap_err(), Some(1050));
    assert!(create("CREATE TABLE IF NOT EXISTS t (id INT)", "shop").unwrap().mutations.is_empty());
    assert!(
        create("CREATE TABLE own (id INT)", "shop").is_ok(),
        "beside TiDB's tables there may be own ones"
    );
    let code = |result: Result<sql::catalog::CatalogChange>| result.unwrap_err().mysql_code();
    assert_eq!(code(catalog.create_database("shop", false)), Some(1007));
    for name in ["shop", "test"] {
        let error = catalog.drop_database(name, false).unwrap_err();
        assert!(error.mysql_code() == Some(1142) && error.message().contains("belongs to TiDB"), "{error}");
    }
    let names = [sql::TableName { database: Some("shop".into()), name: "T".into() }];
    let options = sql::catalog::DropOptions::default();
    let dropped = catalog.drop_named(sql::catalog::DropKind::Table, &names, None, options);
    assert_eq!(code(dropped), Some(1142));
    assert_eq!(catalog.databases, ["test", "Shop"]);
    // What was created in a database of TiDB stays when TiDB drops that.
    let change = create("CREATE TABLE own (id INT PRIMARY KEY)", "shop").unwrap();
    let start_ts = h.store.timestamp().await.unwrap();
    h.store.commit_transaction(start_ts, change.mutations).await.unwrap();
    tidb.change(vec![
        (MetaKey::Database(SHOP), None),
        (MetaKey::Table { database: SHOP, table: 5003 }, None),
    ])
    .await;
    assert!(h.rows("SELECT * FROM shop.own").await.is_empty());
    assert_eq!(refused(&h, "SELECT * FROM shop.t").await.0, 1146);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_was_drawn_is_not_yet_its_change() {
    let (h, mut tidb) = begin().await;
    tidb.define(vec![plain(5001, "t")], &[]).await;
    tidb.write(5001, &[&["1", "10", "100"]]).await;
    assert_eq!(h.rows("SELECT * FROM shop.t").await, table("1 10 100"));
    tidb.draw_version().await;
    // The catalog that is read now has the version, and the tables of the one before.
    assert_eq!(h.rows("SELECT * FROM shop.t").await, table("1 10 100"));
    let mut truncated = tidb.tables[&5001].clone();
    truncated["id"] = json!(5002);
    tidb.define(vec![truncated], &[5001]).await;
    assert!(h.rows("SELECT * FROM shop.t").await.is_empty(), "the version's change is seen");
}
