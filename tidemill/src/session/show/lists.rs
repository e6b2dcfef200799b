//! The rows of SHOW that need no store.

use arrow::datatypes::Schema;
use runtime::ViewStatus;
use tidb::TableInfo;

use super::filter::Listing;
use crate::describe;
use crate::instance::Instance;
use crate::result::Rows;
use crate::session::Warning;
use crate::session::variables::{CHARSETS, COLLATIONS, Variables};
use crate::sessions::Process;
use crate::system::{arrow_type_name, shown_time};
use tidb::Zone;

type Row = Vec<Option<String>>;

/// A row of texts.
fn row<const N: usize>(texts: [&str; N]) -> Row {
    texts.iter().map(|text| Some((*text).to_owned())).collect()
}

pub(super) fn variables(variables: &Variables) -> Listing {
    let rows =
        variables.listed().into_iter().map(|(name, value)| vec![Some(name), value.or(Some(String::new()))]);
    Listing::new(&["Variable_name", "Value"], rows.collect())
}

pub(super) fn status(instance: &Instance) -> Listing {
    let rows =
        instance.status_values().into_iter().map(|(name, value)| vec![Some(name.to_owned()), Some(value)]);
    Listing::new(&["Variable_name", "Value"], rows.collect())
}

pub(super) fn warnings(warnings: &[Warning]) -> Listing {
    let rows =
        warnings.iter().map(|warning| row([warning.level, &warning.code.to_string(), &warning.message]));
    Listing::new(&["Level", "Code", "Message"], rows.collect())
}

pub(super) fn processes(processes: &[Process]) -> Rows {
    let rows: Vec<Row> = processes
        .iter()
        .map(|process| {
            let command = if process.statement.is_some() { "Query" } else { "Sleep" };
            let state = if process.statement.is_some() { "executing" } else { "" };
            vec![
                Some(process.id.to_string()),
                Some(process.user.clone()),
                Some(process.peer.clone()),
                process.database.clone(),
                Some(command.to_owned()),
                Some(process.seconds.to_string()),
                Some(state.to_owned()),
                process.statement.clone(),
            ]
        })
        .collect();
    Rows::of_texts(&["Id", "User", "Host", "db", "Command", "Time", "State", "Info"], &rows)
}

pub(super) fn engines() -> Listing {
    let comment = "Transactional tables and incrementally maintained views";
    Listing::new(
        &["Engine", "Support", "Comment", "Transactions", "XA", "Savepoints"],
        vec![row(["Tidemill", "DEFAULT", comment, "YES", "NO", "NO"])],
    )
}

pub(super) fn plugins() -> Listing {
    Listing::new(&["Name", "Status", "Type", "Library", "License"], Vec::new())
}

pub(super) fn collations() -> Listing {
    let rows = COLLATIONS.iter().map(|(name, charset, id, default)| {
        let default = if *default { "Yes" } else { "" };
        let pad = if *name == "binary" { "NO PAD" } else { "PAD SPACE" };
        row([name, charset, &id.to_string(), default, "Yes", "1", pad])
    });
    Listing::new(
        &["Collation", "Charset", "Id", "Default", "Compiled", "Sortlen", "Pad_attribute"],
        rows.collect(),
    )
}

pub(super) fn charsets() -> Listing {
    let rows = CHARSETS
        .iter()
        .map(|(name, description, collation, max)| row([name, description, collation, &max.to_string()]));
    Listing::new(&["Charset", "Description", "Default collation", "Maxlen"], rows.collect())
}

pub(super) fn grants(user: &str) -> Listing {
    let (name, host) = user.split_once('@').unwrap_or((user, "%"));
    let heading = format!("Grants for {user}");
    let grant = format!("GRANT ALL PRIVILEGES ON *.* TO '{name}'@'{host}'");
    Listing::new(&[&heading], vec![vec![Some(grant)]])
}

/// Things that do not exist here, under the columns MySQL would list them with.
pub(super) fn empty(what: &str) -> Listing {
    let what = what.to_lowercase();
    let names: &[&str] = if what.starts_with("trigger") {
        &[
            "Trigger",
            "Event",
            "Table",
            "Statement",
            "Timing",
            "Created",
            "sql_mode",
            "Definer",
            "character_set_client",
            "collation_connection",
            "Database Collation",
        ]
    } else if what.starts_with("event") {
        &[
            "Db",
            "Name",
            "Definer",
            "Time zone",
            "Type",
            "Execute at",
            "Interval value",
            "Interval field",
            "Starts",
            "Ends",
            "Status",
            "Originator",
            "character_set_client",
            "collation_connection",
            "Database Collation",
        ]
    } else {
        &[
            "Db",
            "Name",
            "Type",
            "Definer",
            "Modified",
            "Created",
            "Security_type",
            "Comment",
            "character_set_client",
            "collation_connection",
            "Database Collation",
        ]
    };
    Listing::new(names, Vec::new())
}

pub(super) fn table_status(tables: Vec<(String, &'static str)>) -> Listing {
    let names = [
        "Name",
        "Engine",
        "Version",
        "Row_format",
        "Rows",
        "Avg_row_length",
        "Data_length",
        "Max_data_length",
        "Index_length",
        "Data_free",
        "Auto_increment",
        "Create_time",
        "Update_time",
        "Check_time",
        "Collation",
        "Checksum",
        "Create_options",
        "Comment",
    ];
    let rows = tables.into_iter().map(|(name, kind)| {
        let is_table = kind == "BASE TABLE";
        let mut row: Row = vec![None; names.len()];
        row[0] = Some(name);
        row[1] = is_table.then(|| "Tidemill".to_owned());
        row[14] = is_table.then(|| "utf8mb4_bin".to_owned());
        row[16] = is_table.then(String::new);
        row[17] = Some(if is_table { String::new() } else { kind.to_owned() });
        row
    });
    Listing::new(&names, rows.collect())
}

const COLUMNS: [&str; 6] = ["Field", "Type", "Null", "Key", "Default", "Extra"];
const COLUMNS_FULL: [&str; 9] =
    ["Field", "Type", "Collation", "Null", "Key", "Default", "Extra", "Privileges", "Comment"];

pub(super) fn columns(full: bool, info: &TableInfo) -> Listing {
    let rows = info.columns.iter().enumerate().map(|(at, column)| {
        let field = Some(column.name.clone());
        let type_name = Some(column.column_type.to_string());
        let null = Some(if column.not_null { "NO" } else { "YES" }.to_owned());
        let key = Some(describe::key_mark(info, at).to_owned());
        let default = describe::shown_default(column);
        let extra = Some(String::new());
        if full {
            let collation = describe::collation(&column.column_type).map(str::to_owned);
            let privileges = Some("select,insert,update,references".to_owned());
            let comment = Some(column.comment.clone());
            vec![field, type_name, collation, null, key, default, extra, privileges, comment]
        } else {
            vec![field, type_name, null, key, default, extra]
        }
    });
    let rows = rows.collect();
    if full { Listing::new(&COLUMNS_FULL, rows) } else { Listing::new(&COLUMNS, rows) }
}

pub(super) fn system_columns(full: bool, schema: &Schema) -> Listing {
    let rows = schema.fields().iter().map(|field| {
        let null = if field.is_nullable() { "YES" } else { "NO" };
        let type_name = arrow_type_name(field.data_type());
        if full {
            let mut row = row([field.name(), type_name, "", null, "", "", "", "select", ""]);
            row[2] = None;
            row[5] = None;
            row
        } else {
            let mut row = row([field.name(), type_name, null, "", "", ""]);
            row[4] = None;
            row
        }
    });
    let rows = rows.collect();
    if full { Listing::new(&COLUMNS_FULL, rows) } else { Listing::new(&COLUMNS, rows) }
}

pub(super) fn indexes(info: Option<&TableInfo>) -> Listing {
    let names = [
        "Table",
        "Non_unique",
        "Key_name",
        "Seq_in_index",
        "Column_name",
        "Collation",
        "Cardinality",
        "Sub_part",
        "Packed",
        "Null",
        "Index_type",
        "Comment",
        "Index_comment",
        "Visible",
        "Expression",
    ];
    let mut rows = Vec::new();
    if let Some(info) = info {
        for (at, position) in info.primary_key.iter().enumerate() {
            let Some(column) = info.columns.get(*position) else { continue };
            let seq = (at + 1).to_string();
            let mut row = row([
                &info.name,
                "0",
                "PRIMARY",
                &seq,
                &column.name,
                "A",
                "0",
                "",
                "",
                "",
                "BTREE",
                "",
                "",
                "YES",
                "",
            ]);
            for null in [7, 8, 14] {
                row[null] = None;
            }
            rows.push(row);
        }
    }
    Listing::new(&names, rows)
}

pub(super) fn views<'a>(views: impl Iterator<Item = &'a ViewStatus>, zone: Zone) -> Listing {
    let rows = views.map(|view| {
        vec![
            Some(view.database.clone()),
            Some(view.name.clone()),
            Some(view.state.to_owned()),
            view.cut.and_then(|cut| shown_time(cut, zone)),
            view.n_rows.map(|rows| rows.to_string()),
            view.lag_ms.map(|lag| lag.to_string()),
            view.progress_percent.map(|percent| format!("{percent:.1}%")),
            view.reason.clone(),
        ]
    });
    Listing::new(
        &["Database", "View", "State", "Cut_time", "Rows", "Lag_ms", "Progress", "Reason"],
        rows.collect(),
    )
    .liked_by(1)
}
