//! `tidemill demo`: the main job on real input.
//!
//! Starts a server on a free port, and everything after that goes through it as any MySQL client would:
//! makes tables and views, replays up to three days of flights as transactions while a reader checks in every
//! read mode that the views agree, and verifies at the end each view against its query. Fails if
//! anything differs.

mod data;
mod progress;
mod reader;
mod replay;
mod views;

use std::net::SocketAddr;

use anyhow::{Context, Result};
use comfy_table::Table;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder, Row};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use progress::Lines;
use reader::{Seen, show};
use replay::Replayed;
use views::VIEWS;

/// Rows of one INSERT while the dimension tables are filled.
const ROWS_PER_INSERT: usize = 500;

/// Runs the job against the server at an address, over the first days of three; an error if anything differs.
///
/// # Errors
/// If the server refuses a statement, or a check or a verification fails.
pub async fn run(address: SocketAddr, n_days: u8, mut print: impl FnMut(String)) -> Result<()> {
    let began = Instant::now();
    let mut writer = connect(address, None).await?;
    writer.query_drop("CREATE DATABASE IF NOT EXISTS flights").await?;
    writer.query_drop("USE flights").await?;
    print(
        "Tables: the airlines, airports and planes of the United States, and the weather of three days."
            .to_owned(),
    );
    fill_dimensions(&mut writer).await?;
    writer.query_drop(data::FLIGHTS_TABLE).await.context("table flights")?;
    print("Views, kept up to date from now on:".to_owned());
    for view in VIEWS {
        let create = format!("CREATE MATERIALIZED VIEW {} AS {}", view.name, view.query);
        writer.query_drop(create).await.with_context(|| format!("view {}", view.name))?;
        print(format!("  {:<17} {}", view.name, view.about));
    }
    let events = data::events(n_days)?;
    print(format!(
        "Replaying {} events of {} February 2013: flights are inserted when scheduled, updated when they \
         depart and land, deleted when cancelled (a blizzard closed New York on the 8th).",
        events.len(),
        match n_days {
            1 => "7",
            2 => "7 and 8",
            _ => "7 to 9",
        }
    ));
    let (replayed, seen) = replay_and_watch(address, &mut writer, &events, &mut print).await?;
    report_replay(&replayed, &seen, &mut print);
    let n_epochs: Option<u64> = writer.query_first("SELECT count(*) FROM tidemill.epochs").await?;
    print(format!("Epochs on record: {}.", n_epochs.unwrap_or(0)));
    let n_different = verify(&mut writer, &mut print).await?;
    for view in VIEWS {
        print(format!("\n{}: {}\n{}", view.name, view.about, table(&mut writer, view.report).await?));
    }
    writer.disconnect().await?;
    for failure in seen.failures.iter().take(10) {
        print(format!("FAILED {failure}"));
    }
    anyhow::ensure!(seen.failures.is_empty(), "{} consistency checks failed", seen.failures.len());
    anyhow::ensure!(n_different == 0, "{n_different} rows differ between views and their queries");
    print(format!("\nEverything agrees. Took {:.1} s.", began.elapsed().as_secs_f64()));
    Ok(())
}

async fn connect(address: SocketAddr, database: Option<&str>) -> Result<Conn> {
    let options = OptsBuilder::default()
        .ip_or_hostname(address.ip().to_string())
        .tcp_port(address.port())
        .user(Some("root"))
        .db_name(database)
        .prefer_socket(false);
    Conn::new(options).await.with_context(|| format!("connecting to {address}"))
}

async fn fill_dimensions(conn: &mut Conn) -> Result<()> {
    for table in data::dimensions()? {
        conn.query_drop(table.create).await.with_context(|| format!("table {}", table.name))?;
        for rows in table.rows.chunks(ROWS_PER_INSERT) {
            let insert = format!("INSERT INTO {} VALUES {}", table.name, rows.join(", "));
            conn.query_drop(insert).await.with_context(|| format!("rows of {}", table.name))?;
        }
    }
    Ok(())
}

/// Replays while a second connection reads; both must end well. Without a terminal for a bar, progress is lines.
async fn replay_and_watch(
    address: SocketAddr,
    writer: &mut Conn,
    events: &[data::Event],
    print: &mut impl FnMut(String),
) -> Result<(Replayed, Seen)> {
    let mut reading = connect(address, Some("flights")).await?;
    let stop = CancellationToken::new();
    let bar = indicatif::ProgressBar::new(events.len() as u64);
    let mut lines = Lines::new(events.len() as u64, Instant::now());
    let write = async {
        let progress = |n_done| {
            bar.set_position(n_done);
            if let Some(line) = lines.line(n_done, Instant::now()).filter(|_| bar.is_hidden()) {
                print(line);
            }
        };
        let replayed = replay::replay(writer, events, progress).await;
        stop.cancel();
        replayed
    };
    let (replayed, seen) = futures::join!(write, reader::watch(&mut reading, stop.clone()));
    bar.finish_and_clear();
    reading.disconnect().await?;
    Ok((replayed.context("replaying")?, seen.context("reading")?))
}

fn report_replay(replayed: &Replayed, seen: &Seen, print: &mut impl FnMut(String)) {
    print(format!(
        "Replayed {} transactions: {} flights scheduled, {} departed, {} landed, {} cancelled.",
        replayed.n_transactions,
        replayed.n_scheduled,
        replayed.n_departed,
        replayed.n_landed,
        replayed.n_cancelled
    ));
    print(format!("Consistency checks while it ran: {}; failed: {}.", seen.modes(), seen.failures.len()));
    let mut lags = seen.lags_ms.clone();
    lags.sort_unstable();
    let percentile =
        |percent: usize| lags.get((lags.len() * percent / 100).min(lags.len().saturating_sub(1)));
    if let (Some(p50), Some(p99)) = (percentile(50), percentile(99)) {
        print(format!(
            "Lag of the materialized rows: median {p50} ms, 99th percentile {p99} ms (fresh reads: none)."
        ));
    }
}

/// Verifies each view; the number of rows that differ.
async fn verify(conn: &mut Conn, print: &mut impl FnMut(String)) -> Result<u64> {
    let mut n_different = 0;
    for view in VIEWS {
        let rows: Vec<Row> = conn.query(format!("VERIFY MATERIALIZED VIEW {}", view.name)).await?;
        let n_rows: Option<u64> = conn.query_first(format!("SELECT count(*) FROM {}", view.name)).await?;
        // A view that faulted answers from the tables, which always agree with themselves.
        let of_view = format!("SELECT state FROM tidemill.views WHERE view_name = '{}'", view.name);
        let state: Option<String> = conn.query_first(of_view).await?;
        let state = state.with_context(|| format!("view {} is gone", view.name))?;
        anyhow::ensure!(state.eq_ignore_ascii_case("ready"), "view {} is {state}", view.name);
        let verdict = if rows.is_empty() {
            "equals its query".to_owned()
        } else {
            format!("{} ROWS DIFFER", rows.len())
        };
        print(format!("  {:<17} {:>5} rows, {verdict}", view.name, n_rows.unwrap_or(0)));
        n_different += rows.len() as u64;
    }
    Ok(n_different)
}

/// The result of a query as a table.
async fn table(conn: &mut Conn, query: &str) -> Result<Table> {
    let rows: Vec<Row> = conn.query(query).await.with_context(|| query.to_owned())?;
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::ASCII_MARKDOWN);
    if let Some(first) = rows.first() {
        table.set_header(first.columns_ref().iter().map(|column| column.name_str().into_owned()));
    }
    for row in &rows {
        table.add_row((0..row.len()).map(|index| show(row.as_ref(index))));
    }
    Ok(table)
}
