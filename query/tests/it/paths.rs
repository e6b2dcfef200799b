//! On which path views are read, and that it makes no difference.

use std::sync::Arc;

use async_trait::async_trait;
use query::{Options, PathChoice, ReadMode, ReadPath, ReadSettings, Waited, Waiter};
use sql::catalog::ViewState;
use tokio::sync::{mpsc, oneshot};
use types::{JobId, Result, Timestamp};

use crate::harness::{Harness, rows_of, table};

const SALES: &str = "CREATE TABLE sales (id INT PRIMARY KEY, shop VARCHAR(10), amount INT);
    INSERT INTO sales VALUES (1, 'north', 10), (2, 'north', 20), (3, 'south', 5)";
const TOTALS: &str = "CREATE MATERIALIZED VIEW totals AS
    SELECT shop, count(*) AS n, sum(amount) AS total FROM sales GROUP BY shop";
const LARGE: &str = "CREATE MATERIALIZED VIEW large AS SELECT shop, amount FROM sales WHERE amount >= 10";

async fn shops() -> Harness {
    let mut h = Harness::new(1).await;
    h.run(SALES).await;
    h.run(TOTALS).await;
    h.run(LARGE).await;
    h
}

fn modes(h: &Harness) -> [(ReadSettings, &'static str); 4] {
    [
        (h.with(ReadMode::Fresh, PathChoice::Auto), "auto"),
        (h.with(ReadMode::Fresh, PathChoice::Hybrid), "hybrid"),
        (h.with(ReadMode::Fresh, PathChoice::Live), "path live"),
        (h.with(ReadMode::Live, PathChoice::Auto), "mode live"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unchanged_view_is_read_from_its_rows() {
    let h = shops().await;
    let path = h.path(&h.settings, "SELECT * FROM totals", None).await;
    assert_eq!((path.path, path.cut), (ReadPath::Fresh, h.cut()));
    assert_eq!(h.rows("SELECT * FROM totals ORDER BY shop").await, table("north 2 30, south 1 5"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_view_is_fresh_on_every_path() {
    let mut h = shops().await;
    h.run(
        "DELETE FROM sales WHERE id = 3; UPDATE sales SET amount = 21 WHERE id = 2;
        INSERT INTO sales VALUES (4, 'west', 20), (5, NULL, 10), (6, 'north', 20)",
    )
    .await;
    let path = h.path(&h.settings, "SELECT * FROM totals", None).await;
    assert_eq!(path.path, ReadPath::Hybrid, "{}", path.reason);
    for (settings, name) in modes(&h) {
        let totals = h.sorted(&settings, "SELECT * FROM totals", None).await;
        assert_eq!(totals, table("NULL 1 10, north 3 51, west 1 20"), "{name}");
        let large = h.sorted(&settings, "SELECT * FROM large", None).await;
        assert_eq!(large, table("NULL 10, north 10, north 20, north 21, west 20"), "{name}");
        let some = h.sorted(&settings, "SELECT amount FROM large WHERE shop = 'north' AND amount > 10", None);
        assert_eq!(some.await, table("20, 21"), "{name}");
        let limited = h.rows_in(&settings, "SELECT amount FROM large ORDER BY amount DESC LIMIT 2").await;
        assert_eq!(limited, table("21, 20"), "{name}");
        let three = h.sorted(&settings, "SELECT count(*) FROM (SELECT * FROM large LIMIT 3) s", None).await;
        assert_eq!(three, table("3"), "{name}");
        let point = h.sorted(&settings, "SELECT total FROM totals WHERE shop = 'west'", None).await;
        assert_eq!(point, table("20"), "{name}");
    }
}

/// The read fix of a query that wants few rows reads and computes no more than these need.
#[tokio::test(flavor = "multi_thread")]
async fn conditions_reach_into_the_read_fix() {
    let mut h = Harness::new(1).await;
    h.run("CREATE TABLE shop (id INT PRIMARY KEY, city VARCHAR(10)); CREATE TABLE sale (id INT PRIMARY KEY, shop INT, amount INT)")
        .await;
    h.run("INSERT INTO shop VALUES (1, 'north'), (2, 'south'), (3, 'west')").await;
    for (name, query) in [
        ("by_shop", "SELECT shop, sum(amount) AS total FROM sale GROUP BY shop"),
        ("by_city", "SELECT city, sum(amount) AS total FROM sale JOIN shop ON shop = shop.id GROUP BY city"),
        ("large", "SELECT id, shop, amount FROM sale WHERE amount > 90"),
    ] {
        h.run(&format!("CREATE MATERIALIZED VIEW {name} AS {query}")).await;
    }
    let rows = (0..100).map(|id| format!("({id}, {}, {id})", id % 4));
    h.run(&format!("INSERT INTO sale VALUES {}", rows.collect::<Vec<_>>().join(", "))).await;
    for (query, rows, work) in [
        // By the key of the base table only its changes are read.
        ("SELECT amount FROM large WHERE id = 95", "95", "; 1 read for the rows that are wanted, 1 row of"),
        ("SELECT id FROM large WHERE id IN (3, 92)", "92", "; 2 read for the rows that are wanted, 1 row of"),
        (
            "SELECT id FROM large WHERE id = 91 OR id = 95 OR id IN (1, 2, 3, 4, 5, 6)",
            "91, 95",
            "; 8 read for the rows that are wanted, 2 rows of",
        ),
        ("SELECT id FROM large WHERE id > 97", "98, 99", "; 2 read for the rows that are wanted, 2 rows of"),
        // By another column all are read and the wanted are computed.
        (
            "SELECT total FROM by_shop WHERE shop = 2",
            "1250",
            "; 100 read for the rows that are wanted, 1 row of",
        ),
        (
            "SELECT total FROM by_city WHERE city = 'south'",
            "1250",
            "; 100 read for the rows that are wanted, 1 row of",
        ),
        // A condition on what is computed narrows the result alone.
        (
            "SELECT shop FROM by_shop WHERE total = 1250",
            "2",
            "; 100 read for the rows that are wanted, 1 row of",
        ),
        ("SELECT count(*) FROM large", "9", "; 100 read, 9 rows of"),
        ("SELECT id FROM large WHERE id = 1 OR amount = 99", "99", "; 100 read, 9 rows of"),
    ] {
        let path = h.path(&h.settings, query, None).await;
        assert_eq!(path.path, ReadPath::Hybrid, "{query}: {path}");
        assert!(path.reason.contains(work), "{query}: {path}");
        assert!(path.reason.starts_with("more than 64 changes since the cut; "), "{query}: {path}");
        assert_eq!(h.sorted(&h.settings, query, None).await, table(rows), "{query}");
    }
}

/// A row that a condition on no key column begins or ceases to hold for.
#[tokio::test(flavor = "multi_thread")]
async fn rows_move_in_and_out_of_a_condition() {
    let mut h = Harness::new(1).await;
    h.run("CREATE TABLE sale (id INT PRIMARY KEY, shop INT NOT NULL, amount INT)").await;
    h.run("INSERT INTO sale VALUES (1, 7, 50), (2, 7, 10), (3, 8, 300)").await;
    h.run("CREATE MATERIALIZED VIEW large AS SELECT id, amount FROM sale WHERE amount > 0").await;
    h.run("CREATE MATERIALIZED VIEW by_shop AS SELECT shop, sum(amount) AS total FROM sale GROUP BY shop")
        .await;
    h.run("UPDATE sale SET amount = 200 WHERE id = 1; UPDATE sale SET amount = 3 WHERE id = 3").await;
    for (query, expected) in [
        ("SELECT id FROM large WHERE amount > 100", "1"),
        ("SELECT id FROM large WHERE amount < 100", "2, 3"),
        ("SELECT id FROM large WHERE id = 1 AND amount > 100", "1"),
        ("SELECT shop FROM by_shop WHERE total > 100", "7"),
        ("SELECT shop FROM by_shop WHERE total = 3", "8"),
        ("SELECT l.id, r.total FROM large l JOIN by_shop r ON r.total < 5 WHERE l.amount = 200", "1 3"),
    ] {
        for (settings, name) in modes(&h) {
            assert_eq!(h.sorted(&settings, query, None).await, table(expected), "{query} by {name}");
        }
        let result = h.query(&h.settings, query, None, &[]).await.unwrap();
        assert!(result.paths.iter().all(|path| path.path == ReadPath::Hybrid), "{query}");
    }
}

/// Where more changed than there is, the query over the base tables is cheaper.
#[tokio::test(flavor = "multi_thread")]
async fn many_changes_of_few_rows_are_read_live() {
    let mut h = shops().await;
    h.run("CREATE TABLE bulk (id INT PRIMARY KEY, a INT)").await;
    h.run("CREATE MATERIALIZED VIEW odd AS SELECT id, a FROM bulk WHERE a % 2 = 1").await;
    let rows = (0..3_000).map(|id| format!("({id}, {id})"));
    let insert = format!("INSERT INTO bulk VALUES {}", rows.collect::<Vec<_>>().join(", "));
    h.run(&insert).await;
    let query = "SELECT count(*) FROM odd";
    let path = h.path(&h.settings, query, None).await;
    assert_eq!(path.path, ReadPath::Hybrid, "{path}");
    h.run("DELETE FROM bulk WHERE id >= 1000").await;
    let path = h.path(&h.settings, query, None).await;
    assert_eq!(path.path, ReadPath::Live, "{path}");
    assert!(path.reason.contains("5000 changes since the cut or more, and only 1000 rows"), "{path}");
    assert_eq!(h.rows(query).await, table("500"));
    // A point query reads one change, whatever else there is.
    let point = "SELECT a FROM odd WHERE id = 7";
    assert_eq!(h.path(&h.settings, point, None).await.path, ReadPath::Hybrid);
    assert_eq!(h.rows(point).await, table("7"));
    let forced = h.with(ReadMode::Fresh, PathChoice::Hybrid);
    assert_eq!(h.path(&forced, query, None).await.path, ReadPath::Hybrid);
    assert_eq!(h.rows_in(&forced, query).await, table("500"));
    // Beside a view that stays Hybrid the statement is planned again as a whole.
    h.run("INSERT INTO sales VALUES (9, 'west', 90)").await;
    let both = h.query(
        &h.settings,
        "SELECT (SELECT count(*) FROM odd), total FROM totals WHERE shop = 'west'",
        None,
        &[],
    );
    let both = both.await.unwrap();
    let paths: Vec<_> = both.paths.iter().map(|path| (path.view.clone(), path.path)).collect();
    let expected = [("test.totals".to_owned(), ReadPath::Hybrid), ("test.odd".to_owned(), ReadPath::Live)];
    assert_eq!(paths, expected);
    assert_eq!(rows_of(both).await.unwrap(), table("500 90"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_read_is_the_query_at_the_cut() {
    let mut h = shops().await;
    let stale = h.with(ReadMode::Stale, PathChoice::Auto);
    h.run("INSERT INTO sales VALUES (4, 'west', 20)").await;
    assert_eq!(h.sorted(&stale, "SELECT * FROM totals", None).await, table("north 2 30, south 1 5"));
    let path = h.path(&stale, "SELECT * FROM totals", None).await;
    assert_eq!((path.path, path.cut, path.read), (ReadPath::Stale, h.cut(), h.cut()));
    h.epoch().await;
    assert_eq!(
        h.sorted(&stale, "SELECT * FROM totals", None).await,
        table("north 2 30, south 1 5, west 1 20")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_sees_its_own_writes_in_views() {
    let mut h = shops().await;
    let mut txn = h.engine.begin().await.unwrap();
    h.change("UPDATE sales SET shop = 'south' WHERE id = 1", Some(&mut txn)).await.unwrap();
    h.change("DELETE FROM sales WHERE id = 2", Some(&mut txn)).await.unwrap();
    h.run("INSERT INTO sales VALUES (9, 'later', 1)").await;
    for (settings, name) in modes(&h) {
        let totals = h.sorted(&settings, "SELECT * FROM totals", Some(&txn)).await;
        assert_eq!(totals, table("south 2 15"), "{name}");
        let large = h.sorted(&settings, "SELECT * FROM large", Some(&txn)).await;
        assert_eq!(large, table("south 10"), "{name}");
    }
    let path = h.path(&h.settings, "SELECT * FROM totals", Some(&txn)).await;
    assert_eq!(path.path, ReadPath::Hybrid, "{}", path.reason);
    let wait = h.with(ReadMode::Wait, PathChoice::Auto);
    assert_eq!(h.sorted(&wait, "SELECT * FROM totals", Some(&txn)).await, table("south 2 15"));
}

#[tokio::test(flavor = "multi_thread")]
async fn views_that_are_filled_or_faulted_are_read_live() {
    let mut h = shops().await;
    h.run("INSERT INTO sales VALUES (4, 'west', 20)").await;
    let stale = h.with(ReadMode::Stale, PathChoice::Auto);
    let fault = ViewState::Faulted { reason: "it broke".to_owned(), key: None, at: h.cut() };
    for (state, word) in [(fault, "it broke"), (ViewState::Filling, "filled")] {
        h.set_state("totals", state).await;
        let path = h.path(&h.settings, "SELECT * FROM totals", None).await;
        assert_eq!(path.path, ReadPath::Live);
        assert!(path.reason.contains(word), "{}", path.reason);
        let rows = h.sorted(&h.settings, "SELECT * FROM totals", None).await;
        assert_eq!(rows, table("north 2 30, south 1 5, west 1 20"));
        let error = h.query(&stale, "SELECT * FROM totals", None, &[]).await.unwrap_err();
        assert_eq!(error.mysql_code(), Some(1105));
        assert!(error.message().contains(word), "{error}");
        assert_eq!(
            h.engine.verify(&h.settings, "test", "totals").await.unwrap_err().mysql_code(),
            Some(1105)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn views_over_views_read_base_tables() {
    let mut h = shops().await;
    h.run("CREATE MATERIALIZED VIEW best AS SELECT shop, total FROM totals WHERE total > 6").await;
    h.run("INSERT INTO sales VALUES (4, 'south', 2), (5, 'west', 1)").await;
    for (settings, name) in modes(&h) {
        assert_eq!(
            h.sorted(&settings, "SELECT * FROM best", None).await,
            table("north 30, south 7"),
            "{name}"
        );
        let joined = "SELECT b.shop, t.n, s.id FROM best b JOIN totals t ON b.shop = t.shop
            JOIN sales s ON s.shop = b.shop WHERE s.amount < 10";
        assert_eq!(h.sorted(&settings, joined, None).await, table("south 2 3, south 2 4"), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_finds_rows_that_differ_both_ways() {
    let mut h = shops().await;
    h.run("INSERT INTO sales VALUES (4, 'west', 20)").await;
    for view in ["totals", "large"] {
        let result = h.engine.verify(&h.settings, "test", view).await.unwrap();
        assert!(rows_of(result).await.unwrap().is_empty(), "{view}");
    }
    // Somebody else writes into the view.
    let catalog = h.engine.catalog(h.store.read_timestamp().await.unwrap()).await.unwrap();
    let view = catalog.find("test", "large").unwrap();
    let (start, end) = tidb::record_range(view.info.id);
    let range = store::KeyRange::new(start, end);
    let snapshot = store::Snapshot::newest(Arc::clone(&h.store)).await.unwrap();
    let (key, value) = snapshot.scan(&range, 1).await.unwrap().remove(0);
    let mut copy = key.to_vec();
    *copy.last_mut().unwrap() ^= 0x55;
    let start_ts = h.store.timestamp().await.unwrap();
    let doubled = vec![store::Mutation::put(copy, value)];
    h.store.commit_transaction(start_ts, doubled).await.map_err(types::Error::from).unwrap();
    let result = h.engine.verify(&h.settings, "test", "large").await.unwrap();
    let rows = rows_of(result).await.unwrap();
    let others = [("extra 1 north 10", "missing 1 north 20"), ("extra 1 north 20", "missing 1 north 10")];
    let other = others.iter().find(|(extra, _)| rows == table(extra)).expect("one row is there twice").1;
    let start_ts = h.store.timestamp().await.unwrap();
    let pairs = snapshot.scan(&range, 10).await.unwrap();
    let gone = pairs.iter().map(|(key, _)| store::Mutation::delete(key.clone())).collect();
    h.store.commit_transaction(start_ts, gone).await.map_err(types::Error::from).unwrap();
    let result = h.engine.verify(&h.settings, "test", "large").await.unwrap();
    let mut rows = rows_of(result).await.unwrap();
    rows.sort();
    assert_eq!(rows, table(other));
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_names_the_path_of_each_view() {
    let mut h = shops().await;
    h.run("INSERT INTO sales VALUES (4, 'west', 20)").await;
    let query = query_of("SELECT * FROM totals t JOIN large l ON l.shop = t.shop");
    let result = h.engine.explain(&h.settings, &query, None, &[]).await.unwrap();
    let lines: Vec<String> = rows_of(result).await.unwrap().into_iter().flatten().collect();
    for view in ["test.totals", "test.large"] {
        let start = format!("ReadPath: {view}=Hybrid cut={} read=", h.cut());
        assert!(lines.iter().any(|line| line.starts_with(&start)), "{lines:?}");
    }
    assert!(lines.iter().any(|line| line.contains("Join")), "{lines:?}");
}

/// Hands waits to the test, which answers them.
struct Asked {
    questions: mpsc::Sender<(Timestamp, oneshot::Sender<Waited>)>,
}

#[async_trait]
impl Waiter for Asked {
    async fn wait_cut(&self, _job: JobId, at: Timestamp, timeout_ms: u64) -> Result<Option<Waited>> {
        assert_eq!(timeout_ms, query::WAIT_TIMEOUT_MS);
        let (answer, waited) = oneshot::channel();
        self.questions.send((at, answer)).await.unwrap();
        Ok(Some(waited.await.unwrap()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_reads_rows_at_the_commit_and_tables_at_the_cut() {
    let mut h = shops().await;
    let (questions, mut asked) = mpsc::channel(1);
    let engine = h.engine.clone().with_waiter(Arc::new(Asked { questions }));
    let wait = h.with(ReadMode::Wait, PathChoice::Auto);
    let query = query_of("SELECT s.id, t.total FROM sales s LEFT JOIN totals t ON s.shop = t.shop");
    let idle = engine.select(&wait, &query, None, &[]).await.unwrap();
    assert_eq!(idle.paths[0].reason, "nothing changed since the cut");
    h.run("INSERT INTO sales VALUES (4, 'west', 20)").await;
    let work = async {
        let (at, answer) = asked.recv().await.unwrap();
        h.run("INSERT INTO sales VALUES (5, 'west', 1)").await;
        let commit = h.epoch().await;
        assert!(h.cut() >= at);
        h.run("INSERT INTO sales VALUES (6, 'west', 7)").await;
        answer.send(Waited::Epoch { cut: h.cut(), commit }).unwrap();
    };
    let (result, ()) = tokio::join!(engine.select(&wait, &query, None, &[]), work);
    let result = result.unwrap();
    assert_eq!(
        (result.read_ts, result.paths[0].cut, result.paths[0].path),
        (h.cut(), h.cut(), ReadPath::Fresh)
    );
    let mut rows = rows_of(result).await.unwrap();
    rows.sort();
    assert_eq!(rows, table("1 30, 2 30, 3 5, 4 21, 5 21"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_that_faults_during_a_wait_is_read_live_at_the_cut() {
    let mut h = shops().await;
    let (questions, mut asked) = mpsc::channel(1);
    let engine = h.engine.clone().with_waiter(Arc::new(Asked { questions }));
    let wait = h.with(ReadMode::Wait, PathChoice::Auto);
    let query = query_of("SELECT * FROM totals");
    h.run("INSERT INTO sales VALUES (4, 'west', 20)").await;
    let work = async {
        let (_, answer) = asked.recv().await.unwrap();
        h.epoch().await;
        h.set_state("totals", ViewState::Faulted { reason: "x".to_owned(), key: None, at: h.cut() }).await;
        let commit = h.store.read_timestamp().await.unwrap();
        answer.send(Waited::Epoch { cut: h.cut(), commit }).unwrap();
    };
    let (result, ()) = tokio::join!(engine.select(&wait, &query, None, &[]), work);
    let result = result.unwrap();
    assert_eq!((result.read_ts, result.paths[0].path), (h.cut(), ReadPath::Live));
    let mut rows = rows_of(result).await.unwrap();
    rows.sort();
    assert_eq!(rows, table("north 2 30, south 1 5, west 1 20"));
}

fn query_of(text: &str) -> sql::ast::Query {
    let parsed = sql::parse(text, &sql::Settings::default()).unwrap().remove(0);
    let sql::Statement::Query(query) = parsed.statement else { panic!("no query: {text}") };
    query.query
}

/// Changes that are too many are counted once for a cut, not by every statement.
#[tokio::test(flavor = "multi_thread")]
async fn too_many_changes_are_counted_once_for_a_cut() {
    const MANY: &str = "more than 20 changes since the cut";
    let mut h = Harness::with_options(Options { hybrid_changes_max: 20, ..Options::default() }).await;
    h.run(SALES).await;
    h.run("CREATE MATERIALIZED VIEW large AS SELECT id, amount FROM sales WHERE amount >= 10").await;
    let insert = |from: u32, to: u32| {
        let rows: Vec<String> = (from..to).map(|id| format!("({id}, 'east', {id})")).collect();
        format!("INSERT INTO sales VALUES {}", rows.join(", "))
    };
    let all = "SELECT id, amount FROM large";
    h.run(&insert(10, 20)).await;
    let few = h.store.read_timestamp().await.unwrap();
    h.run(&insert(20, 50)).await;
    let (first, again) = (h.path(&h.settings, all, None).await, h.path(&h.settings, all, None).await);
    assert_eq!((first.path, first.reason.as_str()), (ReadPath::Live, MANY));
    assert_eq!((again.path, again.reason), (ReadPath::Live, format!("{MANY}, as was counted before")));
    // More changes, of which it is known too.
    h.run(&insert(50, 60)).await;
    let more = h.path(&h.settings, "SELECT count(*) FROM large", None).await;
    assert_eq!((more.path, more.reason), (ReadPath::Live, format!("{MANY}, as was counted before")));
    assert_eq!(h.sorted(&h.settings, "SELECT count(*) FROM large", None).await, table("52"));
    // What is not known by that: an earlier time, other keys, what is forced.
    let then = ReadSettings { snapshot: Some(few), ..h.settings.clone() };
    assert_eq!(h.path(&then, all, None).await.path, ReadPath::Hybrid);
    assert_eq!(h.sorted(&then, "SELECT count(*) FROM large", None).await, table("12"));
    let one = "SELECT amount FROM large WHERE id = 55";
    assert_eq!(h.path(&h.settings, one, None).await.path, ReadPath::Hybrid);
    assert_eq!(h.sorted(&h.settings, one, None).await, table("55"));
    let forced = h.with(ReadMode::Fresh, PathChoice::Hybrid);
    assert_eq!(h.path(&forced, all, None).await.path, ReadPath::Hybrid);
    assert_eq!(h.sorted(&forced, "SELECT count(*) FROM large", None).await, table("52"));
    // A new cut begins anew.
    h.epoch().await;
    assert_eq!(h.path(&h.settings, all, None).await.path, ReadPath::Fresh);
    h.run(&insert(60, 70)).await;
    assert_eq!(h.path(&h.settings, all, None).await.path, ReadPath::Hybrid);
    assert_eq!(h.sorted(&h.settings, "SELECT count(*) FROM large", None).await, table("62"));
}
