//! Random histories: on every path a view is its query.
//!
//! The oracle is the query itself over the base tables at the same timestamp. Transactions of random changes,
//! epochs at random moments, and reads now and in the past, with each way of reading compared both ways (as
//! multisets, with counts), at parallelism 1, 2 and 7.

use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use query::{PathChoice, ReadMode, ReadPath, ReadSettings};
use types::Timestamp;

use crate::harness::Harness;

/// Views, each with its query.
const VIEWS: &[(&str, &str)] = &[
    ("filtered", "SELECT id, g, a FROM t WHERE a > 2"),
    ("projected", "SELECT g, a + 1 AS b, s FROM t"),
    (
        "grouped",
        "SELECT g, count(*) AS n, count(a) AS na, sum(a) AS s, min(a) AS lo, max(a) AS hi FROM t GROUP BY g",
    ),
    ("keyed", "SELECT coalesce(g, -1) AS k, count(*) AS n, sum(id) AS s FROM t GROUP BY coalesce(g, -1)"),
    ("by_id", "SELECT id, coalesce(a, 0) AS b, coalesce(s, '-') AS s FROM t"),
    ("texts", "SELECT s, count(*) AS n, min(g) AS g FROM t GROUP BY s"),
    ("whole", "SELECT count(*) AS n, sum(a) AS s, avg(a) AS m, count(DISTINCT g) AS d FROM t"),
    ("having", "SELECT g, sum(a) AS s FROM t GROUP BY g HAVING count(*) > 1"),
    ("differ", "SELECT DISTINCT g, a FROM t"),
    ("joined", "SELECT t.id, u.x FROM t JOIN u ON t.g = u.k WHERE u.x IS NOT NULL OR t.a > 1"),
    ("outer_", "SELECT t.g, u.x FROM t LEFT JOIN u ON t.g = u.k"),
    ("absent", "SELECT u.k FROM u WHERE NOT EXISTS (SELECT 1 FROM t WHERE t.g = u.k)"),
];

/// Conditions of point and range queries on a view: on its key, on other columns, on what groups show.
fn conditions(view: &str) -> &'static [&'static str] {
    match view {
        "filtered" => &["id = 3", "id IN (1, 5)", "g = 1", "a > 3", "id > 2 AND g < 3"],
        "projected" => &["g = 1", "s = 'x'", "b = 2", "g IN (0, 2) AND s >= 'x'"],
        "grouped" => &["g = 1", "g IN (0, 2)", "n = 1", "lo < 2", "g >= 2 AND hi = 5"],
        "keyed" => &["n > 1", "k = 1", "s > 7", "k >= 1 AND n = 2", "k IN (-1, 1) AND s < 9"],
        "by_id" => &["b > 1", "id = 3 AND b > 2", "s = 'x'", "id IN (2, 3)", "s = 'x' AND b = 1"],
        "texts" => &["s = 'x'", "s = ''", "s IN ('x  ', 'é')", "g = 1", "s > 'X'"],
        "whole" => &["n = 3", "d > 0"],
        "having" => &["g = 2", "g < 2", "s = 1"],
        "differ" => &["g = 1", "a = 2", "g = 1 AND a > 0"],
        "joined" => &["id = 3", "x = 2", "id IN (1, 2, 3)"],
        "outer_" => &["g = 1", "x = 1", "x IS NULL", "g > 1"],
        "absent" => &["k = 1", "k > 1"],
        other => panic!("no conditions for {other}"),
    }
}

#[derive(Clone, Debug)]
enum Change {
    Insert { id: u8, g: Option<u8>, a: Option<i8>, s: &'static str },
    Update { id: u8, g: Option<u8>, a: Option<i8> },
    Move { id: u8, to: u8 },
    Delete { id: u8 },
    InsertU { k: u8, x: Option<i8> },
    DeleteU { k: u8 },
}

#[derive(Clone, Debug)]
enum Step {
    Transaction(Vec<Change>),
    Epoch,
    Compare,
    Past(prop::sample::Index),
    Inside(Vec<Change>),
}

fn texts() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["''", "'x'", "'x '", "'X'", "NULL", "'é'"])
}

fn change() -> impl Strategy<Value = Change> {
    let id = 0..12_u8;
    let g = prop::option::weighted(0.8, 0..4_u8);
    let a = prop::option::weighted(0.8, -3..6_i8);
    prop_oneof![
        4 => (id.clone(), g.clone(), a.clone(), texts())
            .prop_map(|(id, g, a, s)| Change::Insert { id, g, a, s }),
        3 => (id.clone(), g, a.clone()).prop_map(|(id, g, a)| Change::Update { id, g, a }),
        1 => (id.clone(), 0..12_u8).prop_map(|(id, to)| Change::Move { id, to }),
        2 => id.prop_map(|id| Change::Delete { id }),
        1 => (0..4_u8, a).prop_map(|(k, x)| Change::InsertU { k, x }),
        1 => (0..4_u8).prop_map(|k| Change::DeleteU { k }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop::collection::vec(change(), 1..6).prop_map(Step::Transaction),
        2 => Just(Step::Epoch),
        2 => Just(Step::Compare),
        1 => any::<prop::sample::Index>().prop_map(Step::Past),
        1 => prop::collection::vec(change(), 1..4).prop_map(Step::Inside),
    ]
}

fn text<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "NULL".to_owned(), |value| value.to_string())
}

impl Change {
    fn sql(&self) -> String {
        match self {
            Change::Insert { id, g, a, s } => {
                format!("INSERT INTO t VALUES ({id}, {}, {}, {s})", text(*g), text(*a))
            }
            Change::Update { id, g, a } => {
                format!("UPDATE t SET g = {}, a = {} WHERE id = {id}", text(*g), text(*a))
            }
            Change::Move { id, to } => format!("UPDATE t SET id = {to} WHERE id = {id}"),
            Change::Delete { id } => format!("DELETE FROM t WHERE id = {id}"),
            Change::InsertU { k, x } => format!("INSERT INTO u VALUES ({k}, {})", text(*x)),
            Change::DeleteU { k } => format!("DELETE FROM u WHERE k = {k} LIMIT 1"),
        }
    }
}

struct World {
    h: Harness,
    past: Vec<Timestamp>,
    /// Comparisons so far, to take conditions in turn.
    compared: AtomicUsize,
}

impl World {
    async fn new(parallelism: usize) -> World {
        let mut h = Harness::new(parallelism).await;
        h.run(
            "CREATE TABLE t (id INT PRIMARY KEY, g INT, a INT, s VARCHAR(5)); CREATE TABLE u (k INT, x INT)",
        )
        .await;
        h.run("INSERT INTO t VALUES (1, 1, 1, 'x'), (2, 1, NULL, 'x '), (3, NULL, 5, NULL)").await;
        for (name, query) in VIEWS {
            h.run(&format!("CREATE MATERIALIZED VIEW {name} AS {query}")).await;
        }
        World { h, past: Vec::new(), compared: AtomicUsize::new(0) }
    }

    async fn change_all(&self, changes: &[Change], txn: &mut query::Transaction) {
        for change in changes {
            // A duplicate key is refused; the others stay.
            if let Err(error) = self.h.change(&change.sql(), Some(txn)).await {
                assert_eq!(error.mysql_code(), Some(1062), "{change:?}: {error}");
            }
        }
    }

    async fn take(&mut self, step: &Step) {
        match step {
            Step::Transaction(changes) => {
                let mut txn = self.h.engine.begin().await.unwrap();
                self.change_all(changes, &mut txn).await;
                self.h.engine.commit(txn).await.unwrap();
                self.past.push(self.h.store.read_timestamp().await.unwrap());
            }
            Step::Epoch => {
                self.h.epoch().await;
            }
            Step::Compare => {
                self.compare(None, None).await;
                self.stale().await;
            }
            Step::Past(index) if !self.past.is_empty() => {
                let at = self.past[index.index(self.past.len())];
                self.compare(Some(at), None).await;
            }
            Step::Past(_) => {}
            Step::Inside(changes) => {
                let mut txn = self.h.engine.begin().await.unwrap();
                self.change_all(changes, &mut txn).await;
                self.compare(None, Some(&txn)).await;
            }
        }
    }

    /// Each path against the query over the base tables, at one time.
    async fn compare(&self, snapshot: Option<Timestamp>, txn: Option<&query::Transaction>) {
        let at = match (snapshot, txn) {
            (None, None) => Some(self.h.store.read_timestamp().await.unwrap()),
            (snapshot, _) => snapshot,
        };
        for (name, query) in VIEWS {
            let with = |mode, path| ReadSettings { snapshot: at, ..self.h.with(mode, path) };
            let settings = with(ReadMode::Live, PathChoice::Auto);
            let expected = self.h.sorted(&settings, query, txn).await;
            let all = format!("SELECT * FROM {name}");
            for (mode, path) in [
                (ReadMode::Fresh, PathChoice::Auto),
                (ReadMode::Fresh, PathChoice::Hybrid),
                (ReadMode::Live, PathChoice::Auto),
            ] {
                let settings = with(mode, path);
                let rows = self.h.sorted(&settings, &all, txn).await;
                let taken = self.h.path(&settings, &all, txn).await;
                assert_eq!(rows, expected, "{name} by {taken}");
                if path == PathChoice::Hybrid {
                    assert_eq!(taken.path, ReadPath::Hybrid, "{taken}");
                }
            }
            self.compare_wanted(name, query, at, txn).await;
        }
    }

    /// A condition on a view reaches into its read fix, and changes nothing.
    async fn compare_wanted(
        &self,
        name: &str,
        query: &str,
        at: Option<Timestamp>,
        txn: Option<&query::Transaction>,
    ) {
        let conditions = conditions(name);
        let turn = self.compared.fetch_add(1, Ordering::Relaxed);
        let condition = conditions[turn / VIEWS.len() % conditions.len()];
        let with = |mode, path| ReadSettings { snapshot: at, ..self.h.with(mode, path) };
        let wanted = format!("SELECT * FROM ({query}) AS q WHERE {condition}");
        let expected = self.h.sorted(&with(ReadMode::Live, PathChoice::Auto), &wanted, txn).await;
        let text = format!("SELECT * FROM {name} WHERE {condition}");
        let hybrid = with(ReadMode::Fresh, PathChoice::Hybrid);
        assert_eq!(self.h.sorted(&hybrid, &text, txn).await, expected, "{text}");
        assert_eq!(self.h.path(&hybrid, &text, txn).await.path, ReadPath::Hybrid, "{text}");
    }

    /// Stored rows against the query at the cut.
    async fn stale(&self) {
        for (name, query) in VIEWS {
            let at_cut = ReadSettings {
                snapshot: Some(self.h.cut()),
                ..self.h.with(ReadMode::Live, PathChoice::Auto)
            };
            let expected = self.h.sorted(&at_cut, query, None).await;
            let stale = self.h.with(ReadMode::Stale, PathChoice::Auto);
            let rows = self.h.sorted(&stale, &format!("SELECT * FROM {name}"), None).await;
            assert_eq!(rows, expected, "{name} at its cut");
            let differences = self.h.engine.verify(&self.h.settings, "test", name).await.unwrap();
            let differences = crate::harness::rows_of(differences).await.unwrap();
            assert!(differences.is_empty(), "{name}: {differences:?}");
        }
    }
}

fn check(steps: &[Step], parallelism: usize) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        // In a task, because the harness moves blocking work aside.
        let steps = steps.to_vec();
        #[allow(clippy::disallowed_methods, reason = "a test owns its tasks")]
        let task = tokio::spawn(async move {
            let mut world = World::new(parallelism).await;
            for step in &steps {
                world.take(step).await;
            }
            world.compare(None, None).await;
            world.stale().await;
        });
        if let Err(error) = task.await {
            std::panic::resume_unwind(error.into_panic());
        }
    });
}

/// How many histories; `make soak` sets more.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 30, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_path_answers_the_query(
        steps in prop::collection::vec(step(), 4..12),
        parallelism in prop::sample::select(vec![1_usize, 2, 7]),
    ) {
        check(&steps, parallelism);
    }
}
