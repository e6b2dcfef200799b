//! The reader: checks in every read mode, all the time, that the views agree with each other.

use anyhow::{Context, Result};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row, Value};
use tokio_util::sync::CancellationToken;

use super::views::{CHECK_AGAINST_TABLE, CHECKS_OF_VIEWS, Check};

/// The read modes, in the order in which they are tried.
const MODES: &[&str] = &["fresh", "stale", "wait", "live"];

/// What the reader saw.
#[derive(Default)]
pub(super) struct Seen {
    /// Checks made in each of [`MODES`].
    pub(super) n_checks: [u64; 4],
    /// Checks that failed, in words.
    pub(super) failures: Vec<String>,
    /// The views' lag at each look, in milliseconds.
    pub(super) lags_ms: Vec<u64>,
}

impl Seen {
    /// `fresh 120, stale 121, …`
    pub(super) fn modes(&self) -> String {
        let counts = MODES.iter().zip(self.n_checks).map(|(mode, n_checks)| format!("{mode} {n_checks}"));
        counts.collect::<Vec<String>>().join(", ")
    }
}

/// Checks until told to stop; at least one whole round over all modes is made.
pub(super) async fn watch(conn: &mut Conn, stop: CancellationToken) -> Result<Seen> {
    let mut seen = Seen::default();
    loop {
        for (position, mode) in MODES.iter().enumerate() {
            conn.query_drop(format!("SET tidemill_read_mode = '{mode}'")).await?;
            for check in CHECKS_OF_VIEWS.iter().chain((*mode != "stale").then_some(&CHECK_AGAINST_TABLE)) {
                seen.n_checks[position] += 1;
                if let Some(difference) = difference(conn, check).await? {
                    seen.failures.push(format!("{mode}: {}: {difference}", check.about));
                }
            }
        }
        let lag: Option<Option<u64>> = conn.query_first("SELECT max(lag_ms) FROM tidemill.views").await?;
        seen.lags_ms.extend(lag.flatten());
        if stop.is_cancelled() {
            return Ok(seen);
        }
    }
}

/// Runs a check; what differs, if anything does.
async fn difference(conn: &mut Conn, check: &Check) -> Result<Option<String>> {
    let rows: Vec<Row> = conn.query(check.query).await.with_context(|| check.query)?;
    let [row] = rows.as_slice() else { return Ok(Some(format!("{} rows instead of one", rows.len()))) };
    let values: Vec<String> = (0..row.len()).map(|index| show(row.as_ref(index))).collect();
    anyhow::ensure!(!values.is_empty() && values.len().is_multiple_of(2), "a check compares pairs");
    let differs = values.chunks(2).any(|pair| pair[0] != pair[1]);
    Ok(differs.then(|| values.join(", ")))
}

/// A value of the text protocol as text.
pub(super) fn show(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::NULL) => "NULL".to_owned(),
        Some(Value::Bytes(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        Some(other) => other.as_sql(true).trim_matches('\'').to_owned(),
    }
}
