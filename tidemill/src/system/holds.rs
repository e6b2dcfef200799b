//! `tidemill.holds`: what keeps history from being collected, and who.
//!
//! Holds of the store are those of jobs. What is read in this process is shown by the session that reads,
//! if it says so: an open transaction, or a statement whose rows are taken. Whatever else is read at (a
//! statement that is still being planned, a check) is a row without a session.

use std::collections::BTreeSet;

use query::VirtualRequest;
use runtime::Runtime;
use types::{Result, Timestamp};

use super::{Cell, SystemTable, SystemType};
use crate::sessions::Sessions;

use SystemType::{Text, Time, Unsigned};

/// Its columns.
pub(super) const TABLE: SystemTable = SystemTable {
    database: "tidemill",
    name: "holds",
    columns: &[
        ("kind", Text),
        ("name", Text),
        ("connection_id", Unsigned),
        ("held_ts", Unsigned),
        ("held_time", Time),
        ("age_ms", Unsigned),
        ("statement", Text),
    ],
};

/// Who reads, or holds.
struct Held {
    kind: &'static str,
    name: Option<String>,
    connection_id: Option<u64>,
    at: Timestamp,
    statement: Option<String>,
}

/// The rows, the oldest first.
pub(super) async fn rows(
    runtime: &Runtime,
    sessions: &Sessions,
    request: &VirtualRequest,
) -> Result<Vec<Vec<Cell>>> {
    let history = runtime.held_history().await?;
    let mut held: Vec<Held> = Vec::new();
    let hold = |(name, at)| Held { kind: "hold", name: Some(name), connection_id: None, at, statement: None };
    held.extend(history.holds.into_iter().map(hold));
    // The statement that asks reads too, and holds nothing back.
    let mut known = BTreeSet::from([request.at]);
    for process in sessions.list() {
        let is_asking = process.id == request.settings.connection_id;
        let reading = process.reading.filter(|at| process.transaction != Some(*at) && !is_asking);
        for (kind, at) in [("transaction", process.transaction), ("query", reading)] {
            let Some(at) = at else { continue };
            known.insert(at);
            if kind == "transaction" {
                // It holds what lies below its start, too.
                known.insert(at.prev());
            }
            held.push(Held {
                kind,
                name: Some(process.user.clone()),
                connection_id: Some(process.id),
                at,
                statement: process.statement.clone(),
            });
        }
    }
    let unknown = history.readings.into_iter().map(|(at, _)| at).filter(|at| !known.contains(at));
    let read = |at| Held { kind: "read", name: None, connection_id: None, at, statement: None };
    held.extend(unknown.map(read));
    held.sort_by_key(|held| held.at);
    let row = |held: Held| {
        vec![
            Cell::text(held.kind),
            Cell::optional(held.name, Cell::Text),
            Cell::optional(held.connection_id, Cell::Unsigned),
            Cell::Unsigned(held.at.0),
            Cell::time_of(held.at),
            Cell::Unsigned(history.now.physical_ms().saturating_sub(held.at.physical_ms())),
            Cell::optional(held.statement, Cell::Text),
        ]
    };
    Ok(held.into_iter().map(row).collect())
}
