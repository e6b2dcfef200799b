//! Random histories against the whole: after every commit, every read mode answers what its timestamp says.
//!
//! For random schemas, data, transactions and views: fresh at T = live at T, wait = live at
//! `@@tidemill_last_read_ts`, stale at T = live at the view's cut; each as a multiset, both ways. At
//! parallelism 1, 2 and 7. Some views are continuous, some are refreshed now and then, incrementally or
//! anew. Statements may fail (duplicate keys, overflow); what must not happen is a
//! wrong answer. A view whose query fails at T (an overflow in its sum) must fail in fresh and live alike.

use std::path::Path;

use integration::random::{self, Table};
use integration::{Client, Server, ServerOptions, connect, seed, soak};
use mysql_async::Error;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

#[tokio::test]
async fn every_mode_is_right_after_every_commit_at_parallelism_1() {
    history("parallelism 1", 1).await;
}

#[tokio::test]
async fn every_mode_is_right_after_every_commit_at_parallelism_2() {
    history("parallelism 2", 2).await;
}

#[tokio::test]
async fn every_mode_is_right_after_every_commit_at_parallelism_7() {
    history("parallelism 7", 7).await;
}

fn start(folder: &Path, parallelism: usize) -> Server {
    let config = folder.join("tidemill.toml");
    std::fs::write(&config, format!("[runtime]\nparallelism = {parallelism}\n")).unwrap();
    let arguments = vec!["--config".to_owned(), config.to_str().unwrap().to_owned()];
    Server::start(&folder.join("data"), &ServerOptions { arguments, ..ServerOptions::default() })
}

async fn history(test: &str, parallelism: usize) {
    let mut random = StdRng::seed_from_u64(seed(test));
    let mut refreshing = StdRng::seed_from_u64(seed(&format!("{test}, refreshes")));
    let n_rounds = if soak() { 20 } else { 2 };
    let n_transactions = if soak() { 100 } else { 25 };
    for _ in 0..n_rounds {
        let folder = tempfile::tempdir().unwrap();
        let server = start(folder.path(), parallelism);
        let mut writer = connect(server.address(), "test").await.unwrap();
        let mut reader = connect(server.address(), "test").await.unwrap();
        let tables = [Table::random("t0", &mut random), Table::random("t1", &mut random)];
        for table in &tables {
            writer.must(&table.create()).await;
            println!("{}", table.create());
        }
        for _ in 0..random.random_range(0..8) {
            let table = &tables[random.random_range(0..2)];
            statement(&mut writer, &table.insert(&mut random)).await;
        }
        let views = create_views(&mut writer, &tables, &mut random, &mut refreshing).await;
        for _ in 0..n_transactions {
            transaction(&mut writer, &tables, &mut random).await;
            refresh_some(&mut writer, &mut refreshing).await;
            check_all(&mut reader, &views).await;
        }
        for view in &views {
            verify(&mut writer, view).await;
        }
        assert!(server.terminate().success());
    }
}

/// What CREATE may say to a random query, by what it names: nothing else may be refused, or a construct that is
/// supported today could be lost without a test that fails.
const REFUSED: [(u16, &str); 2] = [
    // The query fails over the rows that are there.
    (1690, "out of range"),
    (1105, "faulted"),
];

/// Creates random views; a query that overflows while it is filled makes none.
async fn create_views(
    writer: &mut Client,
    tables: &[Table; 2],
    random: &mut StdRng,
    refreshing: &mut StdRng,
) -> Vec<String> {
    let mut views = Vec::new();
    let mut tries_left = 100;
    while views.len() < 6 {
        assert!(tries_left > 0, "almost every query is refused");
        tries_left -= 1;
        let (left, right) = if random.random_bool(0.5) { (0, 1) } else { (1, 0) };
        let query = random::query(&tables[left], &tables[right], random);
        let name = format!("v{}", views.len());
        let on_demand = refreshing.random_bool(0.3);
        let how = if on_demand { "WITH (refresh = 'on demand') " } else { "" };
        let create = format!("CREATE MATERIALIZED VIEW {name} {how}AS {query}");
        println!("{create}");
        match writer.run(&create).await {
            Ok(()) => views.push(name),
            Err(Error::Server(error)) => {
                println!("  refused: {} {}", error.code, error.message);
                let is_known =
                    |(code, names): &(u16, &str)| *code == error.code && error.message.contains(names);
                assert!(REFUSED.iter().any(is_known), "{create}: {error:?}");
            }
            Err(error) => panic!("{create}: {error}"),
        }
    }
    // A view on a view.
    if writer.run("CREATE MATERIALIZED VIEW w AS SELECT count(*) AS n FROM v0").await.is_ok() {
        views.push("w".to_owned());
    }
    views
}

/// Refreshes some of the views that are refreshed, one way or the other. A view whose query fails at that
/// moment is refused or faulted, and says so; it is resumed later, or not.
async fn refresh_some(writer: &mut Client, refreshing: &mut StdRng) {
    let views = "SELECT view_name FROM tidemill.refreshes ORDER BY view_name";
    for view in writer.must_rows(views).await {
        if !refreshing.random_bool(0.3) {
            continue;
        }
        let kind = ["", " INCREMENTAL", " FULL"][refreshing.random_range(0..3)];
        let statement = format!("REFRESH MATERIALIZED VIEW {view}{kind}");
        println!("{statement}");
        match writer.run(&statement).await {
            Ok(()) => {}
            Err(Error::Server(error)) => {
                println!("  refused: {} {}", error.code, error.message);
                assert_eq!(error.code, 1105, "{statement}: {error:?}");
                let known = ["the view faulted", "is faulted"];
                assert!(known.iter().any(|known| error.message.contains(known)), "{statement}: {error:?}");
            }
            Err(error) => panic!("{statement}: {error}"),
        }
    }
}

/// Runs a statement that may be refused with an error of its own.
async fn statement(writer: &mut Client, statement: &str) {
    println!("{statement}");
    match writer.run(statement).await {
        Ok(()) => {}
        Err(Error::Server(error)) => {
            println!("  refused: {} {}", error.code, error.message);
            assert!([1062, 1264, 1690, 1048, 1292, 1366].contains(&error.code), "{statement}: {error:?}");
        }
        Err(error) => panic!("{statement}: {error}"),
    }
}

async fn transaction(writer: &mut Client, tables: &[Table; 2], random: &mut StdRng) {
    let n_statements = random.random_range(1..=4);
    writer.must("BEGIN").await;
    for _ in 0..n_statements {
        let table = &tables[random.random_range(0..2)];
        statement(writer, &table.statement(random)).await;
    }
    writer.must(if random.random_bool(0.9) { "COMMIT" } else { "ROLLBACK" }).await;
}

/// The rows of a view, or the number of the error that reading it gives.
async fn answer(reader: &mut Client, view: &str) -> Result<Vec<String>, u16> {
    match reader.rows(&format!("SELECT * FROM {view}")).await {
        Ok(rows) => Ok(rows),
        Err(Error::Server(error)) => {
            println!("  reading {view}: {} {}", error.code, error.message);
            Err(error.code)
        }
        Err(error) => panic!("reading {view}: {error}"),
    }
}

async fn set(reader: &mut Client, mode: &str, snapshot: &str) {
    reader.must(&format!("SET tidemill_read_mode = '{mode}'")).await;
    reader.must(&format!("SET tidemill_snapshot = '{snapshot}'")).await;
}

async fn check_all(reader: &mut Client, views: &[String]) {
    for view in views {
        check(reader, view).await;
    }
}

async fn check(reader: &mut Client, view: &str) {
    for mode in ["fresh", "wait"] {
        set(reader, mode, "").await;
        let got = answer(reader, view).await;
        let at = reader.one("SELECT @@tidemill_last_read_ts").await;
        set(reader, "live", &at).await;
        let live = answer(reader, view).await;
        assert_eq!(got, live, "{mode} read of {view} at {at} differs from live");
    }
    set(reader, "fresh", "").await;
    let at = reader.one("SELECT @@tidemill_last_read_ts").await;
    set(reader, "stale", &at).await;
    let stale = answer(reader, view).await;
    if stale == Err(1105) {
        // A faulted view has no rows to show, nor has one that was never refreshed; it must say so.
        reader.must("SET tidemill_snapshot = ''").await;
        let query = format!("SELECT state FROM tidemill.views WHERE view_name = '{view}'");
        let state = reader.one(&query).await.to_lowercase();
        assert!(["faulted", "unfilled"].contains(&state.as_str()), "{view} is {state}");
        return;
    }
    let cut = cut_of(reader, view).await;
    set(reader, "live", &cut).await;
    let live = answer(reader, view).await;
    assert_eq!(stale, live, "stale read of {view} at {at} differs from live at its cut {cut}");
}

/// The cut that EXPLAIN names for a view in the session's mode and snapshot.
async fn cut_of(reader: &mut Client, view: &str) -> String {
    let lines = reader.must_rows(&format!("EXPLAIN SELECT * FROM {view}")).await;
    let text = lines.join("\n");
    let (_, after) = text.split_once("cut=").unwrap_or_else(|| panic!("EXPLAIN names no cut: {text}"));
    after.chars().take_while(char::is_ascii_digit).collect()
}

async fn verify(writer: &mut Client, view: &str) {
    let query = format!("VERIFY MATERIALIZED VIEW {view}");
    match writer.rows(&query).await {
        Ok(rows) => assert!(rows.is_empty(), "{view} differs from its query: {rows:?}"),
        Err(Error::Server(error)) => {
            println!("  {query}: {} {}", error.code, error.message);
            // What cannot be verified has no rows, or its query fails at the cut as it does for a reader.
            assert!([1105, 1690, 1242].contains(&error.code), "{query}: {error:?}");
        }
        Err(error) => panic!("{query}: {error}"),
    }
}
