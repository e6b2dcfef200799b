//! Views over TiDB's tables while TiDB changes these: after each change the views are their queries again, over
//! the tables as they are then; those that a change does not touch are the same views as before.

use std::collections::BTreeMap;
use std::sync::Arc;

use runtime::{RefreshPath, RuntimeOptions, SqlPlanner};
use serde_json::{Value, json};
use sql::RefreshKind;
use sql::catalog::ViewState;
use types::{TableId, Timestamp};

use crate::tidb_meta::{Tidb, bigint, field_type, numbered, partitions, plain};
use crate::world::{Bag, World, error_of, options, until};

const COPY: &str = "SELECT id, grp, val FROM shop.t";
const TOTALS: &str = "SELECT grp, COUNT(*) AS n, SUM(val) AS total FROM shop.t GROUP BY grp";
const OVER: &str = "SELECT grp, total FROM test.totals WHERE n > 1";
const ODD: &str = "SELECT grp FROM shop.t";
const VIEWS: [(&str, &str); 4] = [("copy", COPY), ("totals", TOTALS), ("over", OVER), ("odd", ODD)];

/// Rows by id.
type Rows = BTreeMap<i64, (i64, i64)>;

struct Shop {
    world: World,
    tidb: Tidb,
    /// What the table has.
    rows: Rows,
    /// The table's id, and the id that rows are written under.
    table: i64,
    physical: i64,
}

fn with_sql() -> RuntimeOptions {
    RuntimeOptions { planner: Arc::new(SqlPlanner), ..options() }
}

impl Shop {
    async fn begin() -> Shop {
        let world = World::with(with_sql()).await;
        let mut tidb = Tidb::begin(&world.store).await;
        tidb.define(vec![plain(5001, "t")], &[]).await;
        let mut shop = Shop { world, tidb, rows: Rows::new(), table: 5001, physical: 5001 };
        for id in 1..40 {
            shop.put(id, id % 5, id).await;
        }
        shop
    }

    /// The same, with all views.
    async fn with_views() -> Shop {
        let shop = Shop::begin().await;
        for (name, query) in VIEWS {
            shop.world.create(name, query).await.unwrap();
        }
        shop.settled(Timestamp::ZERO).await;
        shop
    }

    /// Writes a row, NULL in all columns that it does not know.
    async fn put(&mut self, id: i64, grp: i64, val: i64) -> Timestamp {
        self.rows.insert(id, (grp, val));
        let info = self.tidb.info(self.table, self.physical);
        let texts: Vec<String> = info
            .columns
            .iter()
            .map(|column| match column.id {
                1 => id.to_string(),
                2 => grp.to_string(),
                3 | 30 => val.to_string(),
                _ if column.not_null => "0".to_owned(),
                _ => "-".to_owned(),
            })
            .collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        self.tidb.write_at(&info, &[&texts], None).await
    }

    fn expected(&self, name: &str) -> Bag {
        let mut bag = Bag::new();
        let mut add = |row: Vec<String>| *bag.entry(row).or_default() += 1;
        let mut groups: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
        for (grp, val) in self.rows.values() {
            let group = groups.entry(*grp).or_default();
            *group = (group.0 + 1, group.1 + val);
        }
        let texts = |numbers: &[i64]| numbers.iter().map(ToString::to_string).collect::<Vec<String>>();
        match name {
            "copy" => self.rows.iter().for_each(|(id, (grp, val))| add(texts(&[*id, *grp, *val]))),
            "odd" => self.rows.values().for_each(|(grp, _)| add(texts(&[*grp]))),
            "totals" => groups.iter().for_each(|(grp, (n, total))| add(texts(&[*grp, *n, *total]))),
            _ => groups
                .iter()
                .filter(|(_, (n, _))| *n > 1)
                .for_each(|(grp, (_, total))| add(texts(&[*grp, *total]))),
        }
        bag
    }

    /// The ids of the views, once all of them are ready with a cut at or after a timestamp.
    async fn settled(&self, at: Timestamp) -> BTreeMap<&'static str, TableId> {
        let mut ids = BTreeMap::new();
        for (name, _) in VIEWS {
            until("the view to be ready", async || {
                let status = self.world.status(name).await.unwrap();
                self.world.runtime.poke(status.job);
                status.state == "ready" && status.cut.is_some_and(|cut| cut >= at)
            })
            .await;
            ids.insert(name, self.world.view_id(name).await);
        }
        ids
    }

    /// All views are what they must be, as of a timestamp at or after the given one, and again after a change.
    async fn check(&mut self, at: Timestamp) -> BTreeMap<&'static str, TableId> {
        self.settled(at).await;
        self.compare().await;
        let last = self.put(7, 3, 700).await;
        let ids = self.settled(last).await;
        self.compare().await;
        ids
    }

    async fn compare(&self) {
        for (name, _) in VIEWS {
            let now = self.world.store.read_timestamp().await.unwrap();
            let definition = self.world.table(name).await;
            let stored = self.world.stored(&definition, now).await;
            assert_eq!(stored, self.expected(name), "{name}");
        }
    }

    /// A change of the table, all of whose rows stay.
    async fn change(&mut self, change: impl FnOnce(&mut Value)) -> Timestamp {
        let mut table = self.tidb.tables[&self.table].clone();
        change(&mut table);
        self.tidb.define(vec![numbered(table)], &[]).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_rows_are_followed() {
    let mut shop = Shop::with_views().await;
    let at = shop.put(50, 1, 50).await;
    shop.check(at).await;
    shop.world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_that_do_not_matter_keep_the_views() {
    let mut shop = Shop::with_views().await;
    let ids = shop.settled(Timestamp::ZERO).await;
    // A column in front, one behind.
    let at = shop
        .change(|table| {
            let columns = table["cols"].as_array_mut().unwrap();
            let mut first = bigint(8, "first", 1);
            first["origin_default"] = json!("0");
            columns.insert(0, first);
            columns.push(bigint(9, "last", 0));
        })
        .await;
    assert_eq!(shop.check(at).await, ids);
    // Another type of a column that nobody uses, an index, a comment.
    let at = shop
        .change(|table| {
            table["cols"][0]["type"] = field_type(3, 1, 11, 0, "binary");
            table["comment"] = json!("changed");
        })
        .await;
    assert_eq!(shop.check(at).await, ids);
    // The unused column goes again; the table and a used column are renamed.
    let at = shop
        .change(|table| {
            table["cols"].as_array_mut().unwrap().remove(0);
            table["name"] = json!({"O": "renamed", "L": "renamed"});
            table["cols"][1]["name"] = json!({"O": "g", "L": "g"});
        })
        .await;
    assert_eq!(shop.check(at).await, ids);
    // The definitions are read again from the start.
    shop.world.runtime.shutdown().await;
    shop.world = World::over(Arc::clone(&shop.world.store), with_sql()).await;
    let at = shop.put(60, 1, 1).await;
    assert_eq!(shop.check(at).await, ids);
    shop.world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_truncated_table_rebuilds_the_views() {
    let mut shop = Shop::with_views().await;
    let mut ids = shop.settled(Timestamp::ZERO).await;
    for round in 0..3 {
        let mut truncated = shop.tidb.tables[&shop.table].clone();
        let (old, new) = (shop.table, 5100 + round);
        truncated["id"] = json!(new);
        let at = shop.tidb.define(vec![truncated], &[old]).await;
        shop.rows.clear();
        (shop.table, shop.physical) = (new, new);
        if round > 0 {
            shop.put(90, 2, round).await;
        }
        let rebuilt = shop.check(at).await;
        for (name, _) in VIEWS {
            assert_ne!(rebuilt[name], ids[name], "{name} is built anew");
        }
        ids = rebuilt;
    }
    shop.world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_was_renamed_is_found_when_it_is_truncated() {
    let mut shop = Shop::with_views().await;
    let at = shop.change(|table| table["name"] = json!({"O": "moved", "L": "moved"})).await;
    shop.check(at).await;
    // Another table takes the name.
    let decoy = plain(5300, "t");
    shop.tidb.define(vec![decoy], &[]).await;
    shop.tidb.write(5300, &[&["1", "666", "666"]]).await;
    let mut truncated = shop.tidb.tables[&5001].clone();
    truncated["id"] = json!(5200);
    let at = shop.tidb.define(vec![truncated], &[5001]).await;
    shop.rows.clear();
    (shop.table, shop.physical) = (5200, 5200);
    shop.check(at).await;
    shop.world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_type_of_a_used_column_rebuilds_the_views_that_use_it() {
    let mut shop = Shop::with_views().await;
    let ids = shop.settled(Timestamp::ZERO).await;
    // As TiDB does it: a hidden column is filled, then it takes the old one's place.
    let mut val = bigint(30, "_Col$_val_0", 1);
    val["state"] = json!(3);
    let at = shop.change(|table| table["cols"].as_array_mut().unwrap().push(val)).await;
    shop.settled(at).await;
    shop.compare().await;
    let mut val = bigint(30, "val", 1);
    val["type"] = field_type(3, 1, 11, 0, "binary");
    let old = shop.tidb.info(5001, 5001);
    let rows: Vec<(i64, (i64, i64))> = shop.rows.iter().map(|(id, row)| (*id, *row)).collect();
    let mut table = shop.tidb.tables[&5001].clone();
    let columns = table["cols"].as_array_mut().unwrap();
    columns.pop();
    columns[2] = val;
    // The rows have both columns while the change goes on.
    let both = tidb::TableInfo {
        columns: {
            let mut columns = old.columns.clone();
            columns.push(tidb::ColumnInfo { id: 30, name: "new".to_owned(), ..columns[2].clone() });
            columns
        },
        ..old
    };
    for (id, (grp, value)) in rows {
        let texts = [id, grp, value, value].map(|number| number.to_string());
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        shop.tidb.write_at(&both, &[&texts], None).await;
    }
    let at = shop.tidb.define(vec![numbered(table)], &[]).await;
    let rebuilt = shop.check(at).await;
    for name in ["copy", "totals", "over"] {
        assert_ne!(rebuilt[name], ids[name], "{name} is built anew");
    }
    assert_eq!(rebuilt["odd"], ids["odd"], "it does not use the column");
    let definition = shop.world.table("copy").await;
    assert_eq!(definition.info.columns[2].column_type, tidb::ColumnType::Int { bits: 32, unsigned: false });
    shop.world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_that_come_and_are_exchanged_rebuild_the_views() {
    let mut shop = Shop::begin().await;
    let table = shop.tidb.tables[&5001].clone();
    // The table of all rows becomes the first partition.
    let mut parts = table.clone();
    parts["id"] = json!(5500);
    parts["partition"] = partitions(&[5001]);
    shop.tidb.define(vec![parts.clone()], &[5001]).await;
    (shop.table, shop.physical) = (5500, 5001);
    for (name, query) in VIEWS {
        shop.world.create(name, query).await.unwrap();
    }
    let ids = shop.check(Timestamp::ZERO).await;
    // Added.
    parts["partition"] = partitions(&[5001, 5002]);
    let at = shop.tidb.define(vec![parts.clone()], &[]).await;
    shop.physical = 5002;
    shop.put(1_000, 1, 1).await;
    shop.physical = 5001;
    let added = shop.check(at).await;
    assert_ne!(added["copy"], ids["copy"]);
    // Exchanged with a table.
    let mut other = plain(5600, "other");
    other["exchange_partition_info"] = json!({"exchange_partition_id": 5002});
    shop.tidb.define(vec![other], &[]).await;
    shop.tidb.write_at(&plain_info(5600), &[&["2000", "2", "2"], &["2001", "2", "3"]], None).await;
    let unchanged = shop.check(Timestamp::ZERO).await;
    assert_eq!(unchanged["copy"], added["copy"]);
    parts["partition"] = partitions(&[5001, 5600]);
    let at = shop.tidb.define(vec![parts, plain(5002, "other")], &[5600]).await;
    shop.rows.remove(&1_000);
    shop.rows.extend([(2_000, (2, 2)), (2_001, (2, 3))]);
    let exchanged = shop.check(at).await;
    assert_ne!(exchanged["copy"], added["copy"]);
    shop.world.runtime.shutdown().await;
}

fn plain_info(id: i64) -> tidb::TableInfo {
    let meta = tidb::MetaTable::parse(plain(id, "t").to_string().as_bytes()).unwrap();
    tidb::SourceTable::from_meta(&meta, tidb::NewCollations::On).unwrap().info
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_table_faults_the_views_until_it_is_there_again() {
    let mut shop = Shop::with_views().await;
    shop.world.create("own", "SELECT id, grp FROM test.t").await.unwrap();
    let own = shop.world.view_id("own").await;
    shop.tidb.define(Vec::new(), &[5001]).await;
    for (name, _) in VIEWS {
        until("the view to be faulted", async || {
            let definition = shop.world.table(name).await;
            let ViewState::Faulted { reason, .. } = definition.view.as_ref().unwrap().state.clone() else {
                return false;
            };
            // One that reads another such view waits for it.
            let tried = name == "over" || reason.contains("cannot be built anew: ");
            tried && reason.contains("table Shop.t of TiDB was dropped")
        })
        .await;
    }
    let last = shop.world.write(&[("t", 1, Some((1, 1)))]).await;
    shop.world.caught_up("own", last).await;
    assert_eq!(shop.world.view_id("own").await, own, "views over other tables go on");
    // Created anew, with other ids of its columns.
    let mut table = plain(5700, "t");
    for (at, id) in [(0, 1), (1, 2), (2, 30)] {
        table["cols"][at]["id"] = json!(id);
    }
    (shop.table, shop.physical) = (5700, 5700);
    shop.rows.clear();
    let at = shop.tidb.define(vec![table], &[]).await;
    shop.put(1, 1, 1).await;
    shop.check(at).await;
    shop.world.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refreshes_do_not_read_across_a_change() {
    let mut shop = Shop::begin().await;
    for (name, query) in [("copy", COPY), ("totals", TOTALS)] {
        let text = format!("CREATE MATERIALIZED VIEW {name} WITH (refresh = 'on demand') AS {query}");
        shop.world.run_create(&text, false).await.unwrap();
        shop.world.runtime.refresh_view("test", name, RefreshKind::Auto, None).await.unwrap();
    }
    let refresh =
        async |world: &World, name: &str, kind, at| world.runtime.refresh_view("test", name, kind, at).await;
    let compare = async |shop: &Shop, name: &str| {
        let now = shop.world.store.read_timestamp().await.unwrap();
        let stored = shop.world.stored(&*shop.world.table(name).await, now).await;
        assert_eq!(stored, shop.expected(name), "{name}");
    };
    // A change that does not matter, and one of rows.
    shop.change(|table| table["cols"].as_array_mut().unwrap().insert(0, bigint(9, "first", 0))).await;
    shop.put(3, 3, 333).await;
    for name in ["copy", "totals"] {
        let done = refresh(&shop.world, name, RefreshKind::Auto, None).await.unwrap();
        assert_eq!(done.record.path, RefreshPath::Incremental, "{}", done.record.reason);
        compare(&shop, name).await;
    }
    let before = shop.put(4, 3, 4).await;
    let of_before = shop.rows.clone();
    let mut truncated = shop.tidb.tables[&5001].clone();
    truncated["id"] = json!(5002);
    shop.tidb.define(vec![truncated], &[5001]).await;
    (shop.table, shop.physical) = (5002, 5002);
    shop.rows.clear();
    shop.put(1, 1, 1).await;
    // Up to before the change it is one over the old table.
    let done = refresh(&shop.world, "copy", RefreshKind::Full, Some(before)).await.unwrap();
    assert_eq!(done.record.cut, before);
    let of_now = std::mem::replace(&mut shop.rows, of_before);
    compare(&shop, "copy").await;
    shop.rows = of_now;
    for name in ["copy", "totals"] {
        let error = error_of(refresh(&shop.world, name, RefreshKind::Incremental, None).await);
        assert!(error.message().contains("table Shop.t of TiDB was changed"), "{error}");
        let done = refresh(&shop.world, name, RefreshKind::Auto, None).await.unwrap();
        assert_eq!(done.record.path, RefreshPath::Full);
        assert!(done.record.reason.contains("table Shop.t of TiDB was changed"), "{}", done.record.reason);
        compare(&shop, name).await;
    }
    shop.put(2, 2, 2).await;
    let done = refresh(&shop.world, "copy", RefreshKind::Auto, None).await.unwrap();
    assert_eq!(done.record.path, RefreshPath::InsertOnly);
    compare(&shop, "copy").await;
    shop.world.runtime.shutdown().await;
}

/// A change while a fill is under way: its pieces are of the snapshot before, and it does not go on past it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_during_a_fill_is_not_read_across() {
    let mut shop = Shop::begin().await;
    let gate = shop.world.fail.clone();
    gate.arm_always("runtime::fill_piece_read");
    shop.world.create_in_background("copy", COPY).await.unwrap();
    until("the fill to read", async || gate.hits().contains_key("runtime::fill_piece_read")).await;
    let mut truncated = shop.tidb.tables[&5001].clone();
    truncated["id"] = json!(5002);
    let at = shop.tidb.define(vec![truncated], &[5001]).await;
    (shop.table, shop.physical) = (5002, 5002);
    shop.rows.clear();
    shop.put(1, 1, 1).await;
    gate.disarm_all();
    until("the view to be ready", async || {
        let status = shop.world.status("copy").await.unwrap();
        shop.world.runtime.poke(status.job);
        status.state == "ready" && status.cut.is_some_and(|cut| cut >= at)
    })
    .await;
    let now = shop.world.store.read_timestamp().await.unwrap();
    let stored = shop.world.stored(&*shop.world.table("copy").await, now).await;
    assert_eq!(stored, shop.expected("copy"));
    shop.world.runtime.shutdown().await;
}
