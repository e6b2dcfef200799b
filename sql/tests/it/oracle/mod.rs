//! Random queries against a naive evaluator.
//!
//! The batch engine and the operators share a planner and so could share its mistakes; the evaluator here
//! is a third opinion that knows nothing of joins. A query is compared with it over small tables with
//! NULLs and duplicates, live, and as a view after every one of some changes. A refusal is no wrong
//! answer, but most queries have to be accepted.

mod evaluate;
mod generate;
mod tree;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use types::{Delta, TableId};

use self::evaluate::{Evaluator, Tables, Value};
use self::generate::{Choices, Generator};
use crate::world::{World, lines, weighted_lines};

const TABLES: &[(&str, &str, &[&str])] = &[
    ("r", "CREATE TABLE r (rid INT PRIMARY KEY, k INT, x INT, w INT NOT NULL)", &["rid", "k", "x", "w"]),
    ("s", "CREATE TABLE s (sid INT PRIMARY KEY, w INT NOT NULL, y INT, k INT)", &["sid", "w", "y", "k"]),
    (
        "t",
        "CREATE TABLE t (tid INT PRIMARY KEY, k INT NOT NULL, y INT, z INT NOT NULL)",
        &["tid", "k", "y", "z"],
    ),
];

/// Columns that are never NULL.
const NOT_NULL: &[(&str, &str)] = &[("r", "w"), ("s", "w"), ("t", "k"), ("t", "z")];

/// What became of a query.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    queries: u32,
    answered: u32,
    viewed: u32,
}

/// A row of a table by choices.
fn row(table: &str, columns: &[&str], id: i64, choices: &mut Choices<'_>) -> Vec<Value> {
    let value = |column: &&str| match choices.value() {
        None if NOT_NULL.contains(&(table, column)) => Some(0),
        value => value,
    };
    std::iter::once(Some(id)).chain(columns[1..].iter().map(value)).collect()
}

fn batch(world: &World, table: TableId, rows: &[Vec<Value>]) -> RecordBatch {
    let schema = world.rows[&table].schema();
    let column = |at: usize| {
        let values = rows.iter().map(|row| row[at].map(|value| i32::try_from(value).unwrap()));
        Arc::new(values.collect::<Int32Array>()) as ArrayRef
    };
    let columns = (0..schema.fields().len()).map(column).collect();
    RecordBatch::try_new(schema, columns).unwrap()
}

fn id(world: &World, table: &str) -> TableId {
    world.catalog.find("test", table).unwrap().id()
}

/// The evaluator's answer, as the engines' are written; none if a scalar subquery had several rows.
fn expected(tables: &Tables, query: &tree::Query) -> Option<BTreeMap<String, i64>> {
    let rows = Evaluator { tables }.answer(query).ok()?;
    let mut counts = BTreeMap::new();
    for row in rows {
        let cell = |value: &Value| value.map_or_else(|| "NULL".to_owned(), |value| value.to_string());
        *counts.entry(row.iter().map(cell).collect::<Vec<_>>().join("|")).or_insert(0) += 1;
    }
    Some(counts)
}

/// Whether an error is a refusal, or the error of a scalar subquery with several rows (which engines may
/// see though no row of the answer needs it).
fn is_refusal(error: &types::Error) -> bool {
    matches!(error.mysql_code(), Some(1235 | 1242))
}

struct Case<'a> {
    world: &'a mut World,
    tables: Tables,
    query: tree::Query,
    text: String,
}

impl Case<'_> {
    fn describe(&self, found: &dyn std::fmt::Debug) -> TestCaseError {
        let Case { tables, query, text, .. } = self;
        let expected = expected(tables, query);
        TestCaseError::fail(format!("{text}\nover {tables:?}\nfound    {found:?}\nexpected {expected:?}"))
    }

    fn live(&mut self, tally: &mut Tally) -> Result<(), TestCaseError> {
        tally.queries += 1;
        let expected = expected(&self.tables, &self.query);
        match (self.world.query(&self.text), expected) {
            (Ok(batch), Some(expected)) => {
                tally.answered += 1;
                let mut found = BTreeMap::new();
                for line in lines(&batch) {
                    *found.entry(line).or_insert(0) += 1;
                }
                if found == expected { Ok(()) } else { Err(self.describe(&found)) }
            }
            (Err(error), Some(_)) if !is_refusal(&error) => Err(self.describe(&error)),
            _ => Ok(()),
        }
    }

    /// The view after the first fill and after each change.
    fn view(&mut self, changes: &mut Choices<'_>, tally: &mut Tally) -> Result<(), TestCaseError> {
        let plan = match self.world.plan_view(&self.text) {
            Ok(plan) => plan,
            // `*` of columns that share a name makes no table.
            Err(error) if is_refusal(&error) || error.mysql_code() == Some(1060) => return Ok(()),
            Err(error) => return Err(self.describe(&format!("view: {error}"))),
        };
        tally.viewed += 1;
        let mut dataflow = self.world.dataflow(&plan);
        let mut output = self.world.fill(&mut dataflow);
        let mut contents = BTreeMap::new();
        for step in 0..5 {
            let delta = match output {
                Ok(delta) => delta,
                Err(error) if is_refusal(&error) => return Ok(()),
                Err(error) => return Err(self.describe(&format!("view: {error}"))),
            };
            for (line, weight) in weighted_lines(delta.batch(), delta.weights()) {
                *contents.entry(line).or_insert(0) += weight;
            }
            contents.retain(|_, weight| *weight != 0);
            let Some(expected) = expected(&self.tables, &self.query) else { return Ok(()) };
            if contents != expected {
                return Err(self.describe(&format!("view after {step} changes: {contents:?}")));
            }
            for _ in 0..=changes.below(3) {
                let (table, delta) = self.change(100 + step, changes);
                dataflow.push(table, &delta).map_err(|error| self.describe(&error))?;
            }
            output = dataflow.barrier();
        }
        Ok(())
    }

    /// Takes a row away, or puts one in.
    fn change(&mut self, at_least: i64, changes: &mut Choices<'_>) -> (TableId, Delta) {
        let (name, _, columns) = TABLES[changes.below(TABLES.len())];
        let rows = &mut self.tables.get_mut(name).unwrap().1;
        let is_removal = !rows.is_empty() && changes.below(2) == 0;
        let (row, weight) = if is_removal {
            (rows.remove(changes.below(rows.len())), -1)
        } else {
            let newest = rows.iter().filter_map(|row| row[0]).max().unwrap_or(0);
            let row = row(name, columns, newest.max(at_least) + 1, changes);
            rows.push(row.clone());
            (row, 1)
        };
        let table = id(self.world, name);
        let batch = batch(self.world, table, &[row]);
        (table, Delta::new(batch, Int64Array::from(vec![weight])))
    }
}

fn check(
    world: &mut World,
    (query, rows, changes): &(Vec<u16>, Vec<u16>, Vec<u16>),
    tally: &mut Tally,
) -> Result<(), TestCaseError> {
    let mut tables = Tables::new();
    let mut choices = Choices::new(rows);
    for (name, _, columns) in TABLES {
        let n_rows = choices.below(6);
        let rows: Vec<_> =
            (1..=n_rows).map(|id| row(name, columns, i64::try_from(id).unwrap(), &mut choices)).collect();
        let table = id(world, name);
        let batch = batch(world, table, &rows);
        world.rows.insert(table, batch);
        tables.insert(*name, (columns.to_vec(), rows));
    }
    let query = Generator::new(&mut Choices::new(query), &tables).outermost();
    let text = query.to_string();
    let mut case = Case { world, tables, query, text };
    case.live(tally)?;
    case.view(&mut Choices::new(changes), tally)
}

/// How many queries; `make soak` sets more, and takes others each time.
fn runner() -> TestRunner {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    let config = ProptestConfig {
        cases: cases.unwrap_or(200),
        failure_persistence: None,
        max_shrink_iters: 150,
        ..ProptestConfig::default()
    };
    match cases {
        Some(_) => TestRunner::new(config),
        None => TestRunner::new_with_rng(
            config,
            TestRng::from_seed(RngAlgorithm::ChaCha, b"tidemill tidemill tidemill tide!"),
        ),
    }
}

#[test]
fn queries_answer_as_a_naive_evaluator() {
    use proptest::collection::vec;
    let world = std::cell::RefCell::new(World::with(&[TABLES[0].1, TABLES[1].1, TABLES[2].1]));
    let tally = std::cell::Cell::new(Tally::default());
    let numbers = || vec(any::<u16>(), 20..200);
    let result = runner().run(&(numbers(), vec(any::<u16>(), 60), vec(any::<u16>(), 60)), |case| {
        let mut counts = tally.get();
        let result = check(&mut world.borrow_mut(), &case, &mut counts);
        tally.set(counts);
        result
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    let tally = tally.get();
    assert!(tally.answered * 2 > tally.queries, "too few queries are answered: {tally:?}");
    assert!(tally.viewed * 3 > tally.queries, "too few views are planned: {tally:?}");
}
