//! Random histories against the whole: after every commit, every read mode answers what its timestamp says.
//!
//! For random schemas, data, transactions and views: fresh at T = live at T on every path, wait = live at
//! `@@tidemill_last_read_ts`, stale at T = live at the view's cut; each as a multiset, both ways; now, at
//! times of the past, and inside transactions with writes of their own. At parallelism 1, 2 and 7. Some
//! views are continuous, some on demand, some by a schedule; these are refreshed now and then,
//! incrementally or anew, and all are compacted, suspended and resumed. The server is killed and opened
//! again on the way. Statements may fail (duplicate keys, overflow); what must not happen is a wrong
//! answer. (All at the same time: the test of kills during upkeep.) A view
//! whose query fails at T (an overflow in its sum) must fail in fresh and live alike.

use std::path::Path;

use integration::random::{self, Table};
use integration::{Client, Server, ServerOptions, connect, seed, soak, until};
use mysql_async::Error;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
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
        let mut server = start(folder.path(), parallelism);
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
        let mut past = Vec::new();
        for number in 0..n_transactions {
            transaction(&mut writer, &tables, &mut random).await;
            refresh_some(&mut writer, &mut refreshing).await;
            maintain_some(&mut writer, &views, &mut refreshing).await;
            past.push(check_all(&mut reader, &views).await);
            let view = views.choose(&mut refreshing).expect("there are views");
            if number % 2 == 0 {
                let at = past.choose(&mut refreshing).expect("there is a past");
                check_past(&mut reader, view, at, &mut refreshing).await;
            } else {
                check_inside(&mut reader, view, &tables, &mut refreshing).await;
            }
            if number % 10 == 5 {
                drop((writer, reader));
                server.kill();
                server = start(folder.path(), parallelism);
                writer = connect(server.address(), "test").await.unwrap();
                reader = connect(server.address(), "test").await.unwrap();
            }
        }
        for view in &views {
            verify(&mut writer, view).await;
        }
        assert!(server.terminate().success());
    }
}

/// What CREATE may say to a random query, by what it names: nothing else may be refused, or a construct
/// that is supported today could be lost without a test that fails.
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
        let scheduled = refreshing.random_bool(0.2);
        let how = match (on_demand, scheduled) {
            (true, _) => "WITH (refresh = 'on demand') ",
            (false, true) => "WITH (refresh = 'every 1 second') ",
            (false, false) => "",
        };
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
    // What a schedule has not filled yet would be filled between two looks at it.
    let to_come = "SELECT v.view_name FROM tidemill.views v JOIN tidemill.refreshes r ON v.view_name = r.view_name \
         WHERE r.refresh LIKE 'every%' AND v.state = 'unfilled'";
    until("the first refreshes", async || writer.must_rows(to_come).await.is_empty()).await;
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
                let known = ["the view faulted", "is faulted", "is suspended"];
                assert!(known.iter().any(|known| error.message.contains(known)), "{statement}: {error:?}");
            }
            Err(error) => panic!("{statement}: {error}"),
        }
    }
}

/// Changes how some view is stored, and whether it is kept up to date.
async fn maintain_some(writer: &mut Client, views: &[String], refreshing: &mut StdRng) {
    let view = views.choose(refreshing).expect("there are views");
    let statement = match refreshing.random_range(0..8) {
        0 | 1 => format!("OPTIMIZE TABLE {view} COMPACT"),
        2 => format!("ALTER MATERIALIZED VIEW {view} SUSPEND"),
        3 | 4 => format!("ALTER MATERIALIZED VIEW {view} RESUME"),
        _ => return,
    };
    println!("{statement}");
    match writer.rows(&statement).await {
        Ok(rows) => {
            let failed = rows.iter().find(|row| row.contains("| Error |"));
            let is_known = |row: &String| row.contains("faulted") || row.contains("built anew");
            assert!(failed.is_none_or(is_known), "{statement}: {failed:?}");
        }
        Err(Error::Server(error)) => {
            println!("  refused: {} {}", error.code, error.message);
            let known = ["fault", "suspended", "still being filled", "already being replaced", "never been"];
            assert!(known.iter().any(|known| error.message.contains(known)), "{statement}: {error:?}");
        }
        Err(error) => panic!("{statement}: {error}"),
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

/// Checks every view, and returns a time at which they were.
async fn check_all(reader: &mut Client, views: &[String]) -> String {
    for view in views {
        check(reader, view).await;
    }
    set(reader, "fresh", "").await;
    reader.must("SELECT count(*) FROM t0").await;
    reader.one("SELECT @@tidemill_last_read_ts").await
}

/// On every path a view at a time of the past is its query at that time.
async fn check_past(reader: &mut Client, view: &str, at: &str, random: &mut StdRng) {
    set(reader, "live", at).await;
    let live = answer(reader, view).await;
    for path in ["auto", "hybrid", "live"] {
        let mode = ["fresh", "wait"][random.random_range(0..2)];
        set(reader, mode, at).await;
        reader.must(&format!("SET tidemill_read_path = '{path}'")).await;
        let got = answer(reader, view).await;
        assert_eq!(got, live, "{mode} read of {view} by {path} at the past {at} differs from live");
    }
    reader.must("SET tidemill_read_path = 'auto'").await;
    set(reader, "stale", at).await;
    let stale = answer(reader, view).await;
    // A view that was faulted then, or never filled, has no stale answer.
    if stale != Err(1105) {
        let cut = cut_of(reader, view).await;
        set(reader, "live", &cut).await;
        assert_eq!(stale, answer(reader, view).await, "stale read of {view} at the past {at}, cut {cut}");
    }
}

/// In a transaction a view has its writes, on every path.
async fn check_inside(reader: &mut Client, view: &str, tables: &[Table; 2], random: &mut StdRng) {
    set(reader, "live", "").await;
    reader.must("BEGIN").await;
    for _ in 0..random.random_range(0..3) {
        statement(reader, &tables[random.random_range(0..2)].statement(random)).await;
    }
    let live = answer(reader, view).await;
    for (mode, path) in [("fresh", "auto"), ("fresh", "hybrid"), ("wait", "auto"), ("fresh", "live")] {
        reader.must(&format!("SET tidemill_read_mode = '{mode}', tidemill_read_path = '{path}'")).await;
        let got = answer(reader, view).await;
        assert_eq!(got, live, "{mode} read of {view} by {path} in a transaction differs from live");
    }
    reader.must("ROLLBACK").await;
    reader.must("SET tidemill_read_path = 'auto'").await;
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
