//! Views as tables of TiDB: what TiDB sees of them, from its meta keys and the rows in the cluster, while
//! views come, change, are altered behind Tidemill's back, and go, and while processes and TiDB die.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use arrow::util::display::{ArrayFormatter, FormatOptions};
use runtime::FailPoints;
use tidb::{NewCollations, RowDecoder, SourceTable};
use tidemill::{Cluster, Config, TidbUrl, Tidemill};
use tikv_server::{Fault, Options, Seen, Target, TidbFault, TidbServer};

/// How long something is waited for that happens by itself.
const PATIENCE: Duration = Duration::from_secs(60);
const PASSWORD: &str = "a-password-nobody-may-see";

struct World {
    cluster: Arc<tikv_server::Cluster>,
    tidb: TidbServer,
}

impl World {
    async fn start() -> World {
        let options = Options { min_ts_interval: Duration::from_millis(20), ..Options::default() };
        let cluster = Arc::new(tikv_server::Cluster::start(options).await.unwrap());
        let tidb = TidbServer::start(&cluster).await.unwrap();
        World { cluster, tidb }
    }

    fn config(&self) -> Config {
        let mut cluster = Cluster::at(self.cluster.pd_endpoints());
        cluster.lease_ms = 1_000;
        cluster.drives_gc = true;
        cluster.tidb = Some(TidbUrl::new(format!("mysql://root:{PASSWORD}@{}/", self.tidb.address())));
        Config::on_cluster(cluster)
    }

    async fn open(&self) -> Tidemill {
        Tidemill::open(self.config()).await.unwrap()
    }

    /// What TiDB sees of a table, as texts in order; `None` if it sees none.
    async fn rows(&self, name: &str) -> Option<Vec<String>> {
        self.tidb.seen("test", name).await.unwrap().map(|seen| texts(&seen))
    }

    /// Waits until TiDB sees these rows.
    async fn sees(&self, name: &str, expected: &[&str]) {
        let what = format!("TiDB sees {expected:?} in {name}");
        until(&what, || async {
            let rows = self.rows(name).await;
            let seen = rows.as_ref().is_some_and(|rows| rows == expected);
            if seen { Ok(()) } else { Err(format!("{rows:?}")) }
        })
        .await;
    }

    /// Tables of TiDB whose names only tables of views have, before and after they are a view's.
    async fn left_over(&self) -> Vec<String> {
        let mut tables = self.tidb.tables().await.unwrap();
        tables.retain(|name| name.contains("_tidemill_"));
        tables
    }

    async fn nothing_is_left_over(&self) {
        until("nothing is left over in TiDB", || async {
            let left = self.left_over().await;
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
    }
}

/// Waits until something holds.
async fn until<F, Fut>(what: &str, mut check: F)
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<(), String>>,
{
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        match check().await {
            Ok(()) => return,
            Err(found) => assert!(tokio::time::Instant::now() < deadline, "{what}: {found}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The rows as TiDB decodes them.
fn texts(seen: &Seen) -> Vec<String> {
    let source = SourceTable::from_meta(&seen.meta, NewCollations::On).unwrap();
    let columns: Vec<usize> = (0..source.info.columns.len()).collect();
    let mut decoder = RowDecoder::new(&source.info, &columns).unwrap();
    for (key, value) in &seen.rows {
        decoder.append(key, value).unwrap();
    }
    let batch = decoder.finish().unwrap();
    let options = FormatOptions::default().with_null("NULL");
    let cells: Vec<_> =
        batch.columns().iter().map(|array| ArrayFormatter::try_new(array, &options).unwrap()).collect();
    let row = |row| cells.iter().map(|cell| cell.value(row).to_string()).collect::<Vec<_>>().join(" ");
    let mut rows: Vec<String> = (0..batch.num_rows()).map(row).collect();
    rows.sort();
    rows
}

async fn run(tidemill: &Tidemill, statements: &[&str]) {
    for statement in statements {
        tidemill.execute(statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
}

async fn error_of(tidemill: &Tidemill, statement: &str) -> types::Error {
    match tidemill.execute(statement).await {
        Ok(_) => panic!("{statement}: it was not refused"),
        Err(error) => error,
    }
}

/// A table `t` of three rows.
const TABLE: [&str; 2] = [
    "CREATE TABLE t (id INT PRIMARY KEY, grp INT NOT NULL, val INT)",
    "INSERT INTO t VALUES (1, 1, 10), (2, 1, 20), (3, 2, NULL)",
];
const SUMS: &str =
    "CREATE MATERIALIZED VIEW v AS SELECT grp, COUNT(*) AS n, SUM(val) AS total FROM t GROUP BY grp";

#[tokio::test(flavor = "multi_thread")]
async fn tidb_sees_a_view_as_a_table_and_follows_it() {
    let world = World::start().await;
    let tidemill = world.open().await;
    run(&tidemill, &TABLE).await;
    run(&tidemill, &[SUMS]).await;
    // Published: no waiting.
    assert_eq!(world.rows("v").await.unwrap(), ["1 2 30", "2 1 NULL"]);
    let seen = world.tidb.seen("test", "v").await.unwrap().unwrap();
    assert!(seen.meta.pk_is_handle || seen.meta.is_common_handle, "GROUP BY gives a clustered key");
    run(&tidemill, &["INSERT INTO t VALUES (4, 2, 5), (5, 3, 7)", "DELETE FROM t WHERE id = 1"]).await;
    world.sees("v", &["1 1 20", "2 2 5", "3 1 7"]).await;
    world.nothing_is_left_over().await;
    tidemill.shutdown().await.unwrap();
    world.cluster.finish().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_is_replaced_by_one_rename() {
    let world = World::start().await;
    let tidemill = world.open().await;
    run(&tidemill, &TABLE).await;
    run(&tidemill, &[SUMS]).await;
    let old = world.tidb.seen("test", "v").await.unwrap().unwrap().meta.id;
    // Until TiDB renames, it has the old table as of its last epoch.
    world.tidb.inject("RENAME TABLE", TidbFault::Refuse(8000), usize::MAX);
    run(&tidemill, &["CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT id, val FROM t WHERE id < 3"]).await;
    let warned = tidemill.execute("SHOW WARNINGS").await.unwrap().texts();
    assert!(warned.iter().any(|row| row[2].contains("TiDB does not show view 'test.v'")), "{warned:?}");
    assert_eq!(tidemill.execute("SELECT COUNT(*) FROM v").await.unwrap().first(), Some("2"));
    let known = tidemill.execute("SELECT reason FROM tidemill.views WHERE view_name = 'v'").await.unwrap();
    assert!(known.first().unwrap().contains("TiDB refused it (8000)"), "{known}");
    let before = world.rows("v").await.unwrap();
    run(&tidemill, &["INSERT INTO t VALUES (0, 9, 90)"]).await;
    assert_eq!(world.rows("v").await.unwrap(), before, "the old table stays at its last epoch");
    world.tidb.heal();
    world.sees("v", &["0 90", "1 10", "2 20"]).await;
    world.nothing_is_left_over().await;
    let seen = world.tidb.seen("test", "v").await.unwrap().unwrap();
    assert_ne!(seen.meta.id, old);
    let renames: Vec<String> =
        world.tidb.done().into_iter().filter(|done| done.starts_with("RENAME")).collect();
    assert_eq!(renames.len(), 2, "publishing, then the swap: {renames:?}");
    let swap: Vec<&str> = renames[1].split(", ").collect();
    assert!(swap[0].starts_with("RENAME TABLE `test`.`v` TO `test`.`_tidemill_old_"), "{swap:?}");
    assert!(
        swap[1].starts_with("`test`.`_tidemill_fill_") && swap[1].ends_with(" TO `test`.`v`"),
        "{swap:?}"
    );
    tidemill.shutdown().await.unwrap();
    world.cluster.finish().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rename_that_a_process_did_not_live_to_see_is_done_by_the_next() {
    let world = World::start().await;
    world.tidb.inject("RENAME TABLE", TidbFault::BreakBefore, usize::MAX);
    let first = world.open().await;
    run(&first, &TABLE).await;
    run(&first, &[SUMS]).await;
    assert_eq!(world.rows("v").await, None, "decided, and not renamed");
    assert_eq!(world.left_over().await.len(), 1);
    first.shutdown().await.unwrap();
    world.tidb.heal();
    let second = world.open().await;
    world.sees("v", &["1 2 30", "2 1 NULL"]).await;
    run(&second, &["INSERT INTO t VALUES (4, 4, 4)"]).await;
    world.sees("v", &["1 2 30", "2 1 NULL", "4 1 4"]).await;
    // One whose answer is lost is not done twice.
    world.tidb.inject("RENAME TABLE", TidbFault::BreakAfter, 1);
    run(&second, &["ALTER MATERIALIZED VIEW v RENAME TO w"]).await;
    world.sees("w", &["1 2 30", "2 1 NULL", "4 1 4"]).await;
    assert_eq!(world.rows("v").await, None);
    second.shutdown().await.unwrap();
    world.cluster.finish().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fill_that_was_cut_off_goes_on_in_the_same_table() {
    let world = World::start().await;
    let mut config = world.config();
    config.runtime.fail_points = FailPoints::armable();
    config.runtime.rows_per_piece_max = 1;
    let fail_points = config.runtime.fail_points.clone();
    let first = Tidemill::open(config).await.unwrap();
    run(&first, &TABLE).await;
    fail_points.arm_always("runtime::fill_offered");
    run(&first, &["SET tidemill_background_ddl = 1", SUMS]).await;
    until("all rows are filled", || async {
        let reached = fail_points.hits().get("runtime::fill_offered").copied().unwrap_or(0);
        if reached > 0 { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await;
    let filled = world.left_over().await;
    assert_eq!(filled.len(), 1, "{filled:?}");
    let table = filled[0].strip_prefix("test.").unwrap();
    let table = world.tidb.seen("test", table).await.unwrap().unwrap().meta.id;
    first.shutdown().await.unwrap();
    let second = world.open().await;
    world.sees("v", &["1 2 30", "2 1 NULL"]).await;
    assert_eq!(world.tidb.seen("test", "v").await.unwrap().unwrap().meta.id, table);
    world.nothing_is_left_over().await;
    second.shutdown().await.unwrap();
    world.cluster.finish().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn encryption_that_is_asked_for_is_not_done_without() {
    let world = World::start().await;
    let mut config = world.config();
    if let Some(cluster) = &mut config.cluster {
        let url = format!("mysql://root:{PASSWORD}@{}/?require_ssl=true", world.tidb.address());
        cluster.tidb = Some(TidbUrl::new(url));
    }
    let tidemill = Tidemill::open(config).await.unwrap();
    run(&tidemill, &TABLE).await;
    let error = error_of(&tidemill, SUMS).await;
    assert!(error.message().contains("cannot be reached"), "{error}");
    assert!(!error.message().contains(PASSWORD), "{error}");
    tidemill.shutdown().await.unwrap();
    world.cluster.finish().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_views_are_dropped_in_tidb() {
    let world = World::start().await;
    let tidemill = world.open().await;
    run(&tidemill, &TABLE).await;
    run(&tidemill, &[SUMS, "DROP MATERIALIZED VIEW v"]).await;
    assert_eq!(world.rows("v").await, None, "the statement waits for TiDB");
    world.nothing_is_left_over().await;
    // A name that a user could have is never dropped: the table is renamed before.
    let drops: Vec<String> = world.tidb.done().into_iter().filter(|done| done.starts_with("DROP")).collect();
    assert_eq!(drops.len(), 1, "{drops:?}");
    assert!(drops[0].contains("`_tidemill_old_"), "{drops:?}");
    run(&tidemill, &[SUMS]).await;
    assert_eq!(world.rows("v").await.unwrap(), ["1 2 30", "2 1 NULL"]);
    tidemill.shutdown().await.unwrap();
    world.cluster.finish().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn while_tidb_is_away_views_go_on_and_ddl_says_so() {
    let world = World::start().await;
    let tidemill = world.open().await;
    run(&tidemill, &TABLE).await;
    run(&tidemill, &[SUMS]).await;
    world.tidb.down();
    for statement in [
        "CREATE MATERIALIZED VIEW w AS SELECT id FROM t",
        "CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT id FROM t",
        "DROP MATERIALIZED VIEW v",
        "ALTER MATERIALIZED VIEW v RENAME TO x",
    ] {
        let error = error_of(&tidemill, statement).await;
        assert!(error.message().contains("cannot be reached"), "{statement}: {error}");
        assert!(!error.message().contains(PASSWORD), "{statement}: {error}");
    }
    run(&tidemill, &["INSERT INTO t VALUES (4, 2, 5)"]).await;
    world.sees("v", &["1 2 30", "2 2 5"]).await;
    world.tidb.up();
    run(&tidemill, &["CREATE MATERIALIZED VIEW w AS SELECT id FROM t"]).await;
    assert_eq!(world.rows("w").await.unwrap(), ["1", "2", "3", "4"]);
    let variables = tidemill.execute("SHOW VARIABLES").await.unwrap().texts();
    assert!(!format!("{variables:?}").contains(PASSWORD));
    tidemill.shutdown().await.unwrap();
    world.cluster.finish().await.unwrap();
}

/// What somebody does to the table of a view, and what is said of it.
const BY_HAND: [(&str, &str); 6] = [
    ("ALTER TABLE test.v ADD INDEX i (n)", "there is an index `i`"),
    ("ALTER TABLE test.v ADD COLUMN more INT NULL", "column `more` is not the view's"),
    ("TRUNCATE TABLE test.v", "was dropped or truncated in TiDB"),
    ("DROP TABLE test.v", "was dropped or truncated in TiDB"),
    ("RENAME TABLE test.v TO test.mine", "was renamed to test.mine in TiDB"),
    ("RENAME TABLE test.v TO shop.v", "was renamed to shop.v in TiDB"),
];

#[tokio::test(flavor = "multi_thread")]
async fn ddl_by_hand_faults_the_view_before_anything_is_written() {
    let world = World::start().await;
    let tidemill = world.open().await;
    run(&tidemill, &TABLE).await;
    run(&tidemill, &[SUMS]).await;
    world.tidb.execute("CREATE DATABASE shop").await.unwrap();
    for (n, (statement, reason)) in BY_HAND.into_iter().enumerate() {
        let before = world.tidb.seen("test", "v").await.unwrap().unwrap();
        world.tidb.execute(statement).await.unwrap();
        run(&tidemill, &[&format!("INSERT INTO t VALUES ({}, 1, 1)", 100 + n)]).await;
        until(statement, || async {
            let found =
                tidemill.execute("SELECT state, reason FROM tidemill.views WHERE view_name = 'v'").await;
            let row = found.unwrap().texts().remove(0);
            if row[0] == "faulted" && row[1].contains(reason) { Ok(()) } else { Err(format!("{row:?}")) }
        })
        .await;
        // Nothing was written to what was the view's table, whatever it is called now.
        let rows = world.tidb.rows_of(before.meta.id).await.unwrap();
        assert_eq!(rows, before.rows, "{statement}");
        // Reads stay exact.
        let count = tidemill.execute("SELECT SUM(n) FROM v").await.unwrap();
        assert_eq!(count.first().unwrap(), (4 + n).to_string(), "{statement}");
        run(&tidemill, &["ALTER MATERIALIZED VIEW v RESUME"]).await;
        let expected = [format!("1 {} {}", 3 + n, 31 + n), "2 1 NULL".to_owned()];
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        world.sees("v", &expected).await;
        world.nothing_is_left_over().await;
    }
    assert!(world.rows("mine").await.is_some(), "a table that somebody renamed is theirs");
    tidemill.shutdown().await.unwrap();
    world.cluster.finish().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_written_by_hand_fault_the_view() {
    let world = World::start().await;
    let tidemill = world.open().await;
    run(&tidemill, &TABLE).await;
    run(&tidemill, &[SUMS]).await;
    let (key, _) = world.tidb.seen("test", "v").await.unwrap().unwrap().rows.remove(0);
    world.cluster.write(&[(key, None)]).await.unwrap();
    run(&tidemill, &["INSERT INTO t VALUES (4, 1, 1)"]).await;
    until("the view is faulted", || async {
        let found = tidemill.execute("SELECT state, reason FROM tidemill.views WHERE view_name = 'v'").await;
        let row = found.unwrap().texts().remove(0);
        let reason = "a stored row is not what the view expects";
        if row[0] == "faulted" && row[1].contains(reason) { Ok(()) } else { Err(format!("{row:?}")) }
    })
    .await;
    run(&tidemill, &["ALTER MATERIALIZED VIEW v RESUME"]).await;
    assert_eq!(world.rows("v").await.unwrap(), ["1 3 31", "2 1 NULL"]);
    tidemill.shutdown().await.unwrap();
    world.cluster.finish().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn ddl_between_prewrite_and_commit_is_found() {
    let world = World::start().await;
    let tidemill = world.open().await;
    run(&tidemill, &TABLE).await;
    run(&tidemill, &[SUMS]).await;
    let before = world.tidb.seen("test", "v").await.unwrap().unwrap();
    let (start, end) = tidb::table_range(before.meta.id);
    world.cluster.split_at(&start).await.unwrap();
    world.cluster.split_at(&end).await.unwrap();
    let region_id = Some(world.cluster.region_of(&start).await.id());
    let prewrites = Target { region_id, ..Target::rpc("KvPrewrite") };
    // The rows are locked, and the transaction does not hear of it before the table is altered.
    world.cluster.plan_fault(prewrites, Fault::HoldAnswer, Some(1));
    run(&tidemill, &["INSERT INTO t VALUES (4, 1, 1)"]).await;
    until("the rows are prewritten", || async {
        let left = world.cluster.faults_left();
        if left == 0 { Ok(()) } else { Err(format!("{left} to come")) }
    })
    .await;
    world.tidb.execute("ALTER TABLE test.v ADD INDEX i (n)").await.unwrap();
    world.cluster.release_held();
    until("the view is faulted", || async {
        let found = tidemill.execute("SELECT state, reason FROM tidemill.views WHERE view_name = 'v'").await;
        let row = found.unwrap().texts().remove(0);
        if row[0] == "faulted" && row[1].contains("index `i`") { Ok(()) } else { Err(format!("{row:?}")) }
    })
    .await;
    let after = world.tidb.seen("test", "v").await.unwrap().unwrap();
    assert_eq!(after.rows, before.rows, "nothing was committed to the altered table");
    tidemill.shutdown().await.unwrap();
    world.cluster.finish().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_key() {
    let world = World::start().await;
    let tidemill = world.open().await;
    run(
        &tidemill,
        &[
            "CREATE TABLE k (id BIGINT PRIMARY KEY, name VARCHAR(20) NOT NULL, note TEXT NOT NULL, \
             price DECIMAL(10,2), day DATE NOT NULL, raw VARBINARY(8))",
            "INSERT INTO k VALUES (-1, 'b ', 'x', 1.50, '2024-02-29', x'00ff'), (2, 'a', 'x', NULL, \
             '2024-03-01', NULL), (3, 'a', 'y', 2.00, '2024-03-01', x'01')",
            "CREATE MATERIALIZED VIEW by_id AS SELECT id, note, raw FROM k",
            "CREATE MATERIALIZED VIEW by_text AS SELECT name, day, COUNT(*) AS n FROM k GROUP BY name, day",
            "CREATE MATERIALIZED VIEW by_long AS SELECT note, COUNT(*) AS n FROM k GROUP BY note",
            "CREATE MATERIALIZED VIEW by_null AS SELECT price, COUNT(*) AS n FROM k GROUP BY price",
            "CREATE MATERIALIZED VIEW no_key AS SELECT name FROM k",
        ],
    )
    .await;
    let check = |name: &'static str, kind: [bool; 2], expected: &'static [&'static str]| {
        let world = &world;
        async move {
            world.sees(name, expected).await;
            let meta = world.tidb.seen("test", name).await.unwrap().unwrap().meta;
            assert_eq!([meta.pk_is_handle, meta.is_common_handle], kind, "{name}");
            assert!(meta.indexes.len() <= usize::from(kind[1]), "{name}");
        }
    };
    check("by_id", [true, false], &["-1 x 00ff", "2 x NULL", "3 y 01"]).await;
    check("by_text", [false, true], &["a 2024-03-01 2", "b  2024-02-29 1"]).await;
    check("by_long", [false, false], &["x 2", "y 1"]).await;
    check("by_null", [false, false], &["1.50 1", "2.00 1", "NULL 1"]).await;
    check("no_key", [false, false], &["a", "a", "b "]).await;
    run(&tidemill, &["UPDATE k SET name = 'c', note = 'y', price = 2.00 WHERE id = 2"]).await;
    check("by_id", [true, false], &["-1 x 00ff", "2 y NULL", "3 y 01"]).await;
    check("by_text", [false, true], &["a 2024-03-01 1", "b  2024-02-29 1", "c 2024-03-01 1"]).await;
    check("by_long", [false, false], &["x 1", "y 2"]).await;
    check("by_null", [false, false], &["1.50 1", "2.00 2"]).await;
    check("no_key", [false, false], &["a", "b ", "c"]).await;
    tidemill.shutdown().await.unwrap();
    world.cluster.finish().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_tidb_has_are_its_own() {
    let world = World::start().await;
    world.tidb.execute("CREATE TABLE test.taken (a INT NOT NULL)").await.unwrap();
    let tidemill = world.open().await;
    run(&tidemill, &TABLE).await;
    let error = error_of(&tidemill, "CREATE MATERIALIZED VIEW taken AS SELECT id FROM t").await;
    assert_eq!(error.mysql_code(), Some(1050), "{error}");
    // One that comes while the view is filled: the view is there, and TiDB shows it when the name is free.
    world.tidb.inject("RENAME TABLE", TidbFault::Refuse(8000), usize::MAX);
    run(&tidemill, &[SUMS]).await;
    world.tidb.execute("CREATE TABLE test.v (a INT NOT NULL)").await.unwrap();
    world.tidb.heal();
    until("it is said why", || async {
        let found =
            tidemill.execute("SELECT reason FROM tidemill.views WHERE view_name = 'v'").await.unwrap();
        let reason = found.texts().remove(0).remove(0);
        if reason.contains("another table of that name") { Ok(()) } else { Err(reason) }
    })
    .await;
    assert_eq!(tidemill.execute("SELECT SUM(n) FROM v").await.unwrap().first(), Some("3"));
    world.tidb.execute("DROP TABLE test.v").await.unwrap();
    world.sees("v", &["1 2 30", "2 1 NULL"]).await;
    // A view's table is no table of TiDB's to Tidemill.
    let tables = tidemill.execute("SHOW TABLES").await.unwrap().texts();
    assert_eq!(tables.concat(), ["t", "taken", "v"]);
    tidemill.shutdown().await.unwrap();
    world.cluster.finish().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_have_checksums_where_the_cluster_has_them() {
    let world = World::start().await;
    let has_checksums = |seen: Seen| seen.rows.iter().map(|(_, value)| value[1] & 2 != 0).collect::<Vec<_>>();
    let tidemill = world.open().await;
    run(&tidemill, &TABLE).await;
    run(&tidemill, &[SUMS]).await;
    assert_eq!(has_checksums(world.tidb.seen("test", "v").await.unwrap().unwrap()), [false, false]);
    world.tidb.set_variable("tidb_enable_row_level_checksum", "ON");
    run(&tidemill, &["CREATE MATERIALIZED VIEW w AS SELECT id, grp FROM t"]).await;
    assert_eq!(has_checksums(world.tidb.seen("test", "w").await.unwrap().unwrap()), [true, true, true]);
    run(&tidemill, &["CREATE MATERIALIZED VIEW x AS SELECT grp FROM t"]).await;
    assert_eq!(has_checksums(world.tidb.seen("test", "x").await.unwrap().unwrap()), [true, true, true]);
    // They are right: what decodes them compares.
    assert_eq!(world.rows("x").await.unwrap(), ["1", "1", "2"]);
    run(&tidemill, &["UPDATE t SET grp = 5 WHERE id = 1", "DELETE FROM t WHERE id = 2"]).await;
    world.sees("w", &["1 5", "3 2"]).await;
    assert_eq!(has_checksums(world.tidb.seen("test", "w").await.unwrap().unwrap()), [true, true]);
    assert_eq!(tidemill.execute("SELECT SUM(grp) FROM w").await.unwrap().first(), Some("7"));
    tidemill.shutdown().await.unwrap();
    world.cluster.finish().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_became_no_views_are_taken_away() {
    let world = World::start().await;
    let table = |number: u64| format!("CREATE TABLE test.{} (a INT NOT NULL)", tidb::fill_table_name(number));
    // A process died in CREATE long ago, and another is in the middle of one.
    let now = world.cluster.timestamp().await.unwrap();
    for number in [7, now] {
        let intent = (types::records::tidb_intent_key(number), Some(b"{}".to_vec()));
        world.cluster.write(&[intent]).await.unwrap();
        world.tidb.execute(&table(number)).await.unwrap();
    }
    let tidemill = world.open().await;
    let left = [format!("test.{}", tidb::fill_table_name(now))];
    until("the old one goes, the new one stays", || async {
        let found = world.left_over().await;
        if found == left { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
    let end = (types::records::tidb_intent_key(now), None);
    world.cluster.write(&[end]).await.unwrap();
    world.nothing_is_left_over().await;
    // An answer to CREATE TABLE that is lost; a fill that fails; a view that is cancelled.
    run(&tidemill, &TABLE).await;
    world.tidb.inject("CREATE TABLE", TidbFault::BreakAfter, 1);
    let error = error_of(&tidemill, SUMS).await;
    assert!(error.message().contains("cannot be reached"), "{error}");
    world.nothing_is_left_over().await;
    world.tidb.inject("CREATE TABLE", TidbFault::Refuse(1142), 1);
    let error = error_of(&tidemill, SUMS).await;
    assert!(error.message().contains("TiDB refused it (1142)"), "{error}");
    let too_long =
        "CREATE MATERIALIZED VIEW bad AS SELECT id, CAST(val AS SIGNED) * 9223372036854775807 AS n FROM t";
    error_of(&tidemill, too_long).await;
    world.nothing_is_left_over().await;
    // In the background the view stays, faulted, to be looked at; its table does not.
    run(&tidemill, &["SET tidemill_background_ddl = 1", too_long]).await;
    until("the view is faulted", || async {
        let found = tidemill.execute("SELECT state FROM tidemill.views WHERE view_name = 'bad'").await;
        let state = found.unwrap().texts().concat().concat();
        if state == "faulted" { Ok(()) } else { Err(state) }
    })
    .await;
    world.nothing_is_left_over().await;
    run(&tidemill, &["DROP MATERIALIZED VIEW bad"]).await;
    assert_eq!(tidemill.execute("SELECT COUNT(*) FROM tidemill.views").await.unwrap().first(), Some("0"));
    tidemill.shutdown().await.unwrap();
    world.cluster.finish().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_on_demand_is_a_table_from_its_first_refresh_on() {
    let world = World::start().await;
    let tidemill = world.open().await;
    run(&tidemill, &TABLE).await;
    run(&tidemill, &[&SUMS.replace(" AS SELECT", " WITH (refresh = 'on demand') AS SELECT")]).await;
    assert_eq!(world.rows("v").await, None, "a table without rows would be a wrong answer");
    run(&tidemill, &["REFRESH MATERIALIZED VIEW v"]).await;
    assert_eq!(world.rows("v").await.unwrap(), ["1 2 30", "2 1 NULL"]);
    let first = world.tidb.seen("test", "v").await.unwrap().unwrap().meta.id;
    run(&tidemill, &["INSERT INTO t VALUES (4, 4, 4)", "REFRESH MATERIALIZED VIEW v"]).await;
    assert_eq!(world.rows("v").await.unwrap(), ["1 2 30", "2 1 NULL", "4 1 4"]);
    assert_eq!(world.tidb.seen("test", "v").await.unwrap().unwrap().meta.id, first);
    run(&tidemill, &["DELETE FROM t WHERE id = 4", "REFRESH MATERIALIZED VIEW v FULL"]).await;
    assert_eq!(world.rows("v").await.unwrap(), ["1 2 30", "2 1 NULL"]);
    assert_ne!(world.tidb.seen("test", "v").await.unwrap().unwrap().meta.id, first);
    world.nothing_is_left_over().await;
    // A full refresh builds anew what somebody altered.
    world.tidb.execute("ALTER TABLE test.v ADD INDEX i (n)").await.unwrap();
    run(&tidemill, &["INSERT INTO t VALUES (5, 5, 5)"]).await;
    for _ in 0..2 {
        let error = error_of(&tidemill, "REFRESH MATERIALIZED VIEW v").await;
        assert!(error.message().contains("there is an index `i`"), "{error}");
    }
    let plan = tidemill.execute("EXPLAIN REFRESH MATERIALIZED VIEW v FULL").await.unwrap();
    assert!(format!("{plan}").contains("the view is faulted"), "{plan}");
    run(&tidemill, &["REFRESH MATERIALIZED VIEW v FULL"]).await;
    assert_eq!(world.rows("v").await.unwrap(), ["1 2 30", "2 1 NULL", "5 1 5"]);
    world.nothing_is_left_over().await;
    tidemill.shutdown().await.unwrap();
    world.cluster.finish().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_address_views_stay_private_until_they_are_built_anew_with_one() {
    let world = World::start().await;
    let mut config = world.config();
    if let Some(cluster) = &mut config.cluster {
        cluster.tidb = None;
    }
    let without = Tidemill::open(config.clone()).await.unwrap();
    run(&without, &TABLE).await;
    run(&without, &[SUMS]).await;
    assert_eq!(world.tidb.tables().await.unwrap(), Vec::<String>::new());
    without.shutdown().await.unwrap();
    let with = world.open().await;
    assert_eq!(with.execute("SELECT SUM(n) FROM v").await.unwrap().first(), Some("3"));
    assert_eq!(world.rows("v").await, None);
    run(&with, &[&SUMS.replace("CREATE", "CREATE OR REPLACE")]).await;
    assert_eq!(world.rows("v").await.unwrap(), ["1 2 30", "2 1 NULL"]);
    with.shutdown().await.unwrap();
    let without = Tidemill::open(config).await.unwrap();
    let error = error_of(&without, "DROP MATERIALIZED VIEW v").await;
    assert!(error.message().contains("--tidb"), "{error}");
    run(&without, &["INSERT INTO t VALUES (4, 4, 4)"]).await;
    world.sees("v", &["1 2 30", "2 1 NULL", "4 1 4"]).await;
    without.shutdown().await.unwrap();
    world.cluster.finish().await.unwrap();
}

/// A view over a table of TiDB, in a database of TiDB's, by a process that does not run the jobs; then the
/// one that does goes away.
#[tokio::test(flavor = "multi_thread")]
async fn several_processes_and_sources_of_tidb() {
    let world = World::start().await;
    world.tidb.execute("CREATE DATABASE shop").await.unwrap();
    world.tidb.execute("CREATE TABLE shop.src (id INT NOT NULL, PRIMARY KEY (id) CLUSTERED)").await.unwrap();
    let source = world.tidb.seen("shop", "src").await.unwrap().unwrap().meta;
    let insert = |id: i64| {
        let key = tidb::record_key(source.id, &tidb::Handle::Int(id));
        // A row of no columns beside its key.
        (key, Some(vec![128, 0, 0, 0, 0, 0]))
    };
    world.cluster.write(&[insert(1), insert(2)]).await.unwrap();
    let first = world.open().await;
    let second = world.open().await;
    run(
        &second,
        &["CREATE MATERIALIZED VIEW shop.seen AS SELECT id, COUNT(*) AS n FROM shop.src GROUP BY id"],
    )
    .await;
    let sees = |expected: &'static [&'static str]| {
        let world = &world;
        async move {
            until("TiDB sees the view in its database", || async {
                let found = world.tidb.seen("shop", "seen").await.unwrap().map(|seen| texts(&seen));
                if found.as_ref().is_some_and(|rows| rows == expected) {
                    Ok(())
                } else {
                    Err(format!("{found:?}"))
                }
            })
            .await;
        }
    };
    sees(&["1 1", "2 1"]).await;
    first.shutdown().await.unwrap();
    world.cluster.write(&[insert(3)]).await.unwrap();
    sees(&["1 1", "2 1", "3 1"]).await;
    run(&second, &["DROP MATERIALIZED VIEW shop.seen"]).await;
    assert_eq!(world.tidb.tables().await.unwrap(), ["shop.src"]);
    // A database that TiDB does not have is made there with the first view in it.
    run(&second, &["CREATE DATABASE own", "CREATE MATERIALIZED VIEW own.ids AS SELECT id FROM shop.src"])
        .await;
    assert_eq!(world.tidb.tables().await.unwrap(), ["own.ids", "shop.src"]);
    second.shutdown().await.unwrap();
    world.cluster.finish().await.unwrap();
}
