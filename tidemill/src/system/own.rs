//! The tables of the database `tidemill`: views and their columns, jobs, epochs and operators.

use std::collections::BTreeMap;

use query::VirtualRequest;
use runtime::{
    EpochStatus, JobKind, JobStatus, LeaseStatus, MaintenanceStatus, OperatorStatus, RefreshStatus, Runtime,
    ViewStatus,
};
use sql::catalog::Catalog;
use types::{Error, Result, TableId, Timestamp};

use super::{Cell, SystemTable, SystemType};
use crate::physical::Physical;

use SystemType::{Double, Text, Time, Unsigned};

/// What there is.
pub(super) static TABLES: &[SystemTable] = &[
    SystemTable {
        database: "tidemill",
        name: "views",
        columns: &[
            ("view_schema", Text),
            ("view_name", Text),
            ("view_id", Unsigned),
            ("job_id", Unsigned),
            ("state", Text),
            ("cut_ts", Unsigned),
            ("cut_time", Time),
            ("commit_ts", Unsigned),
            ("rows", Unsigned),
            ("lag_ms", Unsigned),
            ("progress", Double),
            ("fill_rows", Unsigned),
            ("reason", Text),
        ],
    },
    SystemTable {
        database: "tidemill",
        name: "view_columns",
        columns: &[
            ("view_schema", Text),
            ("view_name", Text),
            ("ordinal", Unsigned),
            ("column_name", Text),
            ("column_type", Text),
            ("nullable", Text),
            ("role", Text),
            ("origin", Text),
            ("source", Text),
            ("state", Text),
        ],
    },
    SystemTable {
        database: "tidemill",
        name: "refreshes",
        columns: &[
            ("view_schema", Text),
            ("view_name", Text),
            ("refresh", Text),
            ("state", Text),
            ("last_path", Text),
            ("last_reason", Text),
            ("last_cut_ts", Unsigned),
            ("last_time", Time),
            ("duration_ms", Unsigned),
            ("rows_read", Unsigned),
            ("rows_written", Unsigned),
            ("rows_skipped", Unsigned),
            ("next_time", Time),
            ("last_error", Text),
        ],
    },
    SystemTable {
        database: "tidemill",
        name: "maintenance",
        columns: &[
            ("task", Unsigned),
            ("view_schema", Text),
            ("view_name", Text),
            ("kind", Text),
            ("state", Text),
            ("automatic", Text),
            ("begin_time", Time),
            ("end_time", Time),
            ("progress", Double),
            ("runs_before", Unsigned),
            ("runs_after", Unsigned),
            ("bytes_before", Unsigned),
            ("bytes_after", Unsigned),
            ("error", Text),
        ],
    },
    super::holds::TABLE,
    SystemTable {
        database: "tidemill",
        name: "lease",
        columns: &[("holder", Text), ("term", Unsigned), ("renewed_time", Time), ("is_here", Text)],
    },
    SystemTable {
        database: "tidemill",
        name: "jobs",
        columns: &[
            ("job_id", Unsigned),
            ("kind", Text),
            ("state", Text),
            ("generation", Unsigned),
            ("epoch", Unsigned),
            ("cut_ts", Unsigned),
            ("cut_time", Time),
            ("commit_ts", Unsigned),
            ("views", Text),
            ("waiting_for", Text),
            ("restarts", Unsigned),
            ("last_error", Text),
        ],
    },
    SystemTable {
        database: "tidemill",
        name: "epochs",
        columns: &[
            ("job_id", Unsigned),
            ("epoch", Unsigned),
            ("generation", Unsigned),
            ("cut_ts", Unsigned),
            ("cut_time", Time),
            ("commit_ts", Unsigned),
            ("changes", Unsigned),
            ("keys_written", Unsigned),
            ("run_bytes", Unsigned),
            ("duration_ms", Unsigned),
        ],
    },
    SystemTable {
        database: "tidemill",
        name: "operators",
        columns: &[
            ("view_schema", Text),
            ("view_name", Text),
            ("job_id", Unsigned),
            ("node", Unsigned),
            ("operator", Text),
            ("rows_in", Unsigned),
            ("rows_out", Unsigned),
            ("state_rows", Unsigned),
            ("state_bytes", Unsigned),
        ],
    },
];

/// The rows of a table.
pub(super) async fn rows(table: &str, runtime: &Runtime, request: &VirtualRequest) -> Result<Vec<Vec<Cell>>> {
    // The names of views, as the catalog of the statement has them.
    let names: BTreeMap<TableId, (String, String)> = request
        .catalog
        .tables
        .iter()
        .map(|(id, definition)| (*id, (definition.database.clone(), definition.info.name.clone())))
        .collect();
    Ok(match table {
        "views" => runtime.views().await?.iter().map(view).collect(),
        "view_columns" => view_columns(&request.catalog),
        "refreshes" => runtime.refreshes().await?.iter().map(|status| refresh(status, &names)).collect(),
        "maintenance" => runtime.maintenance().await?.iter().map(maintenance).collect(),
        "lease" => runtime.lease().await?.iter().map(lease).collect(),
        "jobs" => runtime.recorded_jobs().await?.iter().map(|status| job(status, &names)).collect(),
        "epochs" => runtime.epochs().iter().map(epoch).collect(),
        "operators" => runtime.operators().iter().map(|status| operator(status, &names)).collect(),
        other => return Err(Error::corrupt(format!("no rows are made for table tidemill.{other}"))),
    })
}

fn view(status: &ViewStatus) -> Vec<Cell> {
    vec![
        Cell::text(&status.database),
        Cell::text(&status.name),
        Cell::Unsigned(status.view.0),
        Cell::Unsigned(status.job.0),
        Cell::text(status.state),
        Cell::optional(status.cut, |cut| Cell::Unsigned(cut.0)),
        Cell::optional(status.cut, Cell::time_of),
        Cell::optional(status.commit_ts, |commit| Cell::Unsigned(commit.0)),
        Cell::optional(status.n_rows, Cell::Unsigned),
        Cell::optional(status.lag_ms, Cell::Unsigned),
        Cell::optional(status.progress_percent, Cell::Double),
        Cell::optional(status.fill_rows_done, Cell::Unsigned),
        Cell::optional(status.reason.as_ref(), Cell::text),
    ]
}

/// The stored columns of all views but those that are built to replace another.
fn view_columns(catalog: &Catalog) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    let shown = catalog.views().filter(|(_, _, view)| view.replaces.is_none());
    for (_, definition, _) in shown {
        let (database, name) = (Cell::text(&definition.database), Cell::text(&definition.info.name));
        let physical = match Physical::of(catalog, definition) {
            Ok(physical) => physical,
            Err(error) => {
                // One view that cannot be planned any more does not hide the others.
                let mut row = vec![Cell::Null; 10];
                (row[0], row[1]) = (database, name);
                row[8] = Cell::Text(format!("unknown: {error}"));
                rows.push(row);
                continue;
            }
        };
        for column in physical.columns() {
            rows.push(vec![
                database.clone(),
                name.clone(),
                Cell::optional(column.ordinal, |ordinal| Cell::Unsigned(ordinal as u64)),
                Cell::Text(column.name),
                Cell::Text(column.type_name),
                Cell::text(if column.is_nullable { "YES" } else { "NO" }),
                Cell::text(column.role),
                Cell::text(column.origin),
                Cell::Text(column.source),
                Cell::optional(column.state, Cell::Text),
            ]);
        }
    }
    rows
}

fn refresh(status: &RefreshStatus, names: &BTreeMap<TableId, (String, String)>) -> Vec<Cell> {
    let (database, name) = name_of(status.view, names);
    let last = status.last.as_ref();
    let time = |ms: u64| Cell::time_of(Timestamp::from_parts(ms, 0));
    vec![
        database,
        name,
        Cell::Text(status.refresh.to_string()),
        Cell::text(status.state),
        Cell::optional(last, |last| Cell::text(last.path.name())),
        Cell::optional(last, |last| Cell::text(&last.reason)),
        Cell::optional(last, |last| Cell::Unsigned(last.cut.0)),
        Cell::optional(last, |last| time(last.began_ms)),
        Cell::optional(last, |last| Cell::Unsigned(last.duration_ms)),
        Cell::optional(last, |last| Cell::Unsigned(last.rows_read)),
        Cell::optional(last, |last| Cell::Unsigned(last.rows_written)),
        Cell::optional(last, |last| Cell::Unsigned(last.rows_skipped)),
        Cell::optional(status.next_ms, time),
        Cell::optional(status.error.as_ref(), Cell::text),
    ]
}

fn maintenance(status: &MaintenanceStatus) -> Vec<Cell> {
    let time = |ms: u64| Cell::time_of(Timestamp::from_parts(ms, 0));
    vec![
        Cell::Unsigned(status.task),
        Cell::text(&status.database),
        Cell::text(&status.name),
        Cell::text(status.kind.name()),
        Cell::text(status.state),
        Cell::text(if status.automatic { "yes" } else { "no" }),
        time(status.began_ms),
        Cell::optional(status.ended_ms, time),
        Cell::Double(status.percent),
        Cell::Unsigned(status.runs.0),
        Cell::optional(status.runs.1, Cell::Unsigned),
        Cell::Unsigned(status.bytes.0),
        Cell::optional(status.bytes.1, Cell::Unsigned),
        Cell::optional(status.error.as_ref(), Cell::text),
    ]
}

fn lease(status: &LeaseStatus) -> Vec<Cell> {
    vec![
        Cell::text(&status.holder),
        Cell::Unsigned(status.term),
        Cell::time_of(status.renewed),
        Cell::text(if status.is_here { "yes" } else { "no" }),
    ]
}

fn name_of(view: TableId, names: &BTreeMap<TableId, (String, String)>) -> (Cell, Cell) {
    match names.get(&view) {
        Some((database, name)) => (Cell::text(database), Cell::text(name)),
        None => (Cell::Null, Cell::Text(format!("#{view}"))),
    }
}

fn job(status: &JobStatus, names: &BTreeMap<TableId, (String, String)>) -> Vec<Cell> {
    let kind = match status.kind {
        JobKind::Continuous => "continuous",
        JobKind::Refreshed => "refreshed",
        JobKind::Fill => "fill",
    };
    let views: Vec<String> = status
        .views
        .iter()
        .map(|view| names.get(view).map_or_else(|| format!("#{view}"), |(of, name)| format!("{of}.{name}")))
        .collect();
    vec![
        Cell::Unsigned(status.job.0),
        Cell::text(kind),
        Cell::text(status.state),
        Cell::Unsigned(status.generation.0),
        Cell::Unsigned(status.epoch.0),
        Cell::Unsigned(status.cut.0),
        Cell::time_of(status.cut),
        Cell::Unsigned(status.commit_ts.0),
        Cell::Text(views.join(",")),
        Cell::text(&status.waiting_for),
        Cell::Unsigned(status.n_restarts),
        Cell::optional(status.last_error.as_ref(), Cell::text),
    ]
}

fn epoch(status: &EpochStatus) -> Vec<Cell> {
    vec![
        Cell::Unsigned(status.job.0),
        Cell::Unsigned(status.epoch.0),
        Cell::Unsigned(status.generation.0),
        Cell::Unsigned(status.cut.0),
        Cell::time_of(status.cut),
        Cell::Unsigned(status.commit_ts.0),
        Cell::Unsigned(status.n_changes),
        Cell::Unsigned(status.n_keys),
        Cell::Unsigned(status.run_bytes),
        Cell::Unsigned(status.duration_ms),
    ]
}

fn operator(status: &OperatorStatus, names: &BTreeMap<TableId, (String, String)>) -> Vec<Cell> {
    let (database, name) = name_of(status.view, names);
    vec![
        database,
        name,
        Cell::Unsigned(status.job.0),
        Cell::Unsigned(status.node as u64),
        Cell::text(&status.operator),
        Cell::Unsigned(status.rows_in),
        Cell::Unsigned(status.rows_out),
        Cell::Unsigned(status.state_rows),
        Cell::Unsigned(status.state_bytes),
    ]
}
