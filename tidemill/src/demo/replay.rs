//! The writer: replays the log of events as transactions, one for each slice of the simulated clock.

use anyhow::Result;
use chrono::Duration;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, TxOpts};

use super::data::{Action, Event};

/// How much simulated time one transaction covers.
const SLICE: Duration = Duration::minutes(5);

/// What was replayed.
#[derive(Default)]
pub(super) struct Replayed {
    /// Transactions committed.
    pub(super) n_transactions: u64,
    /// Flights inserted when scheduled.
    pub(super) n_scheduled: u64,
    /// Flights updated at departure.
    pub(super) n_departed: u64,
    /// Flights updated at landing.
    pub(super) n_landed: u64,
    /// Flights deleted when cancelled.
    pub(super) n_cancelled: u64,
}

/// Replays all events; calls `progress` with the events done after each transaction.
pub(super) async fn replay(
    conn: &mut Conn,
    events: &[Event],
    mut progress: impl FnMut(u64),
) -> Result<Replayed> {
    let mut replayed = Replayed::default();
    let mut rest = events;
    let mut n_done = 0;
    while let Some(first) = rest.first() {
        let end = first.at + SLICE;
        let n_slice = rest.partition_point(|event| event.at < end);
        let (slice, later) = rest.split_at(n_slice);
        apply(conn, slice, &mut replayed).await?;
        rest = later;
        n_done += n_slice as u64;
        progress(n_done);
    }
    Ok(replayed)
}

async fn apply(conn: &mut Conn, slice: &[Event], replayed: &mut Replayed) -> Result<()> {
    let mut transaction = conn.start_transaction(TxOpts::default()).await?;
    for event in slice {
        let key = &event.key;
        let statement = match &event.action {
            Action::Scheduled { row } => {
                replayed.n_scheduled += 1;
                format!(
                    "INSERT INTO flights (time_hour, carrier, flight, origin, dest, tailnum, sched_dep, distance) \
                     VALUES {row}"
                )
            }
            Action::Departed { dep_delay } => {
                replayed.n_departed += 1;
                format!("UPDATE flights SET dep_delay = {dep_delay} WHERE {key}")
            }
            Action::Landed { arr_delay, air_time } => {
                replayed.n_landed += 1;
                let (arr_delay, air_time) = (literal(*arr_delay), literal(*air_time));
                format!(
                    "UPDATE flights SET arr_delay = {arr_delay}, air_time = {air_time}, landed = 1 WHERE {key}"
                )
            }
            Action::Cancelled => {
                replayed.n_cancelled += 1;
                format!("DELETE FROM flights WHERE {key}")
            }
        };
        transaction.query_drop(statement.as_str()).await?;
        let n_rows = transaction.affected_rows();
        anyhow::ensure!(n_rows == 1, "{n_rows} rows changed by {statement}");
    }
    transaction.commit().await?;
    replayed.n_transactions += 1;
    Ok(())
}

fn literal(value: Option<i64>) -> String {
    value.map_or_else(|| "NULL".to_owned(), |value| value.to_string())
}
