//! The tables of `information_schema` that clients look around with.

use sql::catalog::{Catalog, TableDefinition};
use tidb::ColumnType;

use super::{Cell, SystemTable, SystemType, arrow_type_name};
use crate::describe;
use crate::session::{CHARSETS, COLLATIONS, Variables};
use crate::sessions::Sessions;

use SystemType::{Int, Text, Unsigned};

const DATABASE: &str = "information_schema";

/// What there is.
pub(super) static TABLES: &[SystemTable] = &[
    SystemTable {
        database: DATABASE,
        name: "schemata",
        columns: &[
            ("catalog_name", Text),
            ("schema_name", Text),
            ("default_character_set_name", Text),
            ("default_collation_name", Text),
            ("sql_path", Text),
        ],
    },
    SystemTable {
        database: DATABASE,
        name: "tables",
        columns: &[
            ("table_catalog", Text),
            ("table_schema", Text),
            ("table_name", Text),
            ("table_type", Text),
            ("engine", Text),
            ("version", Int),
            ("row_format", Text),
            ("table_rows", Unsigned),
            ("avg_row_length", Unsigned),
            ("data_length", Unsigned),
            ("max_data_length", Unsigned),
            ("index_length", Unsigned),
            ("data_free", Unsigned),
            ("auto_increment", Unsigned),
            ("create_time", SystemType::Time),
            ("update_time", SystemType::Time),
            ("check_time", SystemType::Time),
            ("table_collation", Text),
            ("checksum", Int),
            ("create_options", Text),
            ("table_comment", Text),
            ("tidb_table_id", Int),
        ],
    },
    SystemTable {
        database: DATABASE,
        name: "columns",
        columns: &[
            ("table_catalog", Text),
            ("table_schema", Text),
            ("table_name", Text),
            ("column_name", Text),
            ("ordinal_position", Unsigned),
            ("column_default", Text),
            ("is_nullable", Text),
            ("data_type", Text),
            ("character_maximum_length", Int),
            ("character_octet_length", Int),
            ("numeric_precision", Unsigned),
            ("numeric_scale", Unsigned),
            ("datetime_precision", Unsigned),
            ("character_set_name", Text),
            ("collation_name", Text),
            ("column_type", Text),
            ("column_key", Text),
            ("extra", Text),
            ("privileges", Text),
            ("column_comment", Text),
            ("generation_expression", Text),
        ],
    },
    SystemTable {
        database: DATABASE,
        name: "views",
        columns: &[
            ("table_catalog", Text),
            ("table_schema", Text),
            ("table_name", Text),
            ("view_definition", Text),
            ("check_option", Text),
            ("is_updatable", Text),
            ("definer", Text),
            ("security_type", Text),
            ("character_set_client", Text),
            ("collation_connection", Text),
        ],
    },
    SystemTable {
        database: DATABASE,
        name: "statistics",
        columns: &[
            ("table_catalog", Text),
            ("table_schema", Text),
            ("table_name", Text),
            ("non_unique", Int),
            ("index_schema", Text),
            ("index_name", Text),
            ("seq_in_index", Unsigned),
            ("column_name", Text),
            ("collation", Text),
            ("cardinality", Int),
            ("sub_part", Int),
            ("packed", Text),
            ("nullable", Text),
            ("index_type", Text),
            ("comment", Text),
            ("index_comment", Text),
            ("is_visible", Text),
            ("expression", Text),
        ],
    },
    SystemTable {
        database: DATABASE,
        name: "key_column_usage",
        columns: &[
            ("constraint_catalog", Text),
            ("constraint_schema", Text),
            ("constraint_name", Text),
            ("table_catalog", Text),
            ("table_schema", Text),
            ("table_name", Text),
            ("column_name", Text),
            ("ordinal_position", Unsigned),
            ("position_in_unique_constraint", Unsigned),
            ("referenced_table_schema", Text),
            ("referenced_table_name", Text),
            ("referenced_column_name", Text),
        ],
    },
    SystemTable {
        database: DATABASE,
        name: "table_constraints",
        columns: &[
            ("constraint_catalog", Text),
            ("constraint_schema", Text),
            ("constraint_name", Text),
            ("table_schema", Text),
            ("table_name", Text),
            ("constraint_type", Text),
            ("enforced", Text),
        ],
    },
    SystemTable {
        database: DATABASE,
        name: "engines",
        columns: &[
            ("engine", Text),
            ("support", Text),
            ("comment", Text),
            ("transactions", Text),
            ("xa", Text),
            ("savepoints", Text),
        ],
    },
    SystemTable {
        database: DATABASE,
        name: "character_sets",
        columns: &[
            ("character_set_name", Text),
            ("default_collate_name", Text),
            ("description", Text),
            ("maxlen", Int),
        ],
    },
    SystemTable {
        database: DATABASE,
        name: "collations",
        columns: &[
            ("collation_name", Text),
            ("character_set_name", Text),
            ("id", Int),
            ("is_default", Text),
            ("is_compiled", Text),
            ("sortlen", Int),
            ("pad_attribute", Text),
        ],
    },
    SystemTable {
        database: DATABASE,
        name: "processlist",
        columns: &[
            ("id", Unsigned),
            ("user", Text),
            ("host", Text),
            ("db", Text),
            ("command", Text),
            ("time", Int),
            ("state", Text),
            ("info", Text),
        ],
    },
    SystemTable {
        database: DATABASE,
        name: "global_variables",
        columns: &[("variable_name", Text), ("variable_value", Text)],
    },
    SystemTable {
        database: DATABASE,
        name: "routines",
        columns: &[
            ("specific_name", Text),
            ("routine_schema", Text),
            ("routine_name", Text),
            ("routine_type", Text),
            ("routine_definition", Text),
        ],
    },
    SystemTable {
        database: DATABASE,
        name: "triggers",
        columns: &[("trigger_schema", Text), ("trigger_name", Text), ("event_object_table", Text)],
    },
    SystemTable {
        database: DATABASE,
        name: "referential_constraints",
        columns: &[
            ("constraint_schema", Text),
            ("constraint_name", Text),
            ("unique_constraint_schema", Text),
            ("unique_constraint_name", Text),
            ("match_option", Text),
            ("update_rule", Text),
            ("delete_rule", Text),
            ("table_name", Text),
            ("referenced_table_name", Text),
        ],
    },
];

/// The rows of a table.
pub(super) fn rows(
    table: &str,
    catalog: &Catalog,
    sessions: &Sessions,
    globals: &Variables,
) -> Vec<Vec<Cell>> {
    match table {
        "schemata" => schemata(catalog),
        "tables" => tables(catalog),
        "columns" => columns(catalog),
        "views" => published(catalog).filter_map(view).collect(),
        "statistics" => published(catalog).flat_map(statistics).collect(),
        "key_column_usage" => published(catalog).flat_map(key_columns).collect(),
        "table_constraints" => published(catalog).filter_map(constraint).collect(),
        "engines" => {
            vec![texts(&["Tidemill", "DEFAULT", "Transactional tables and views", "YES", "NO", "NO"])]
        }
        "character_sets" => CHARSETS
            .iter()
            .map(|(name, description, collation, max)| {
                let mut row = texts(&[name, collation, description]);
                row.push(Cell::Int(i64::from(*max)));
                row
            })
            .collect(),
        "collations" => collations(),
        "processlist" => processes(sessions),
        "global_variables" => globals
            .listed()
            .into_iter()
            .map(|(name, value)| vec![Cell::Text(name), Cell::optional(value, Cell::Text)])
            .collect(),
        // Routines, triggers and foreign keys do not exist.
        _ => Vec::new(),
    }
}

fn texts(texts: &[&str]) -> Vec<Cell> {
    texts.iter().map(|text| Cell::text(*text)).collect()
}

/// Tables and views by name; one that is built to replace another is not among them.
fn published(catalog: &Catalog) -> impl Iterator<Item = &TableDefinition> {
    catalog.names.values().filter_map(|id| catalog.tables.get(id)).map(AsRef::as_ref)
}

fn schemata(catalog: &Catalog) -> Vec<Vec<Cell>> {
    let own = super::databases();
    let names = own.into_iter().chain(catalog.databases.iter().map(String::as_str));
    names
        .map(|name| {
            let mut row = texts(&["def", name, "utf8mb4", "utf8mb4_bin"]);
            row.push(Cell::Null);
            row
        })
        .collect()
}

fn tables(catalog: &Catalog) -> Vec<Vec<Cell>> {
    let system = super::all().map(|table| table_row(table.database, table.name, "SYSTEM VIEW", None));
    let stored = published(catalog).map(|definition| {
        let kind = if definition.view.is_some() { "VIEW" } else { "BASE TABLE" };
        table_row(&definition.database, &definition.info.name, kind, Some(definition))
    });
    system.chain(stored).collect()
}

fn table_row(database: &str, name: &str, kind: &str, definition: Option<&TableDefinition>) -> Vec<Cell> {
    let is_table = kind == "BASE TABLE";
    let comment = match definition {
        Some(definition) if definition.view.is_some() => "MATERIALIZED VIEW",
        Some(definition) => definition.info.comment.as_str(),
        None => "",
    };
    let created = definition.and_then(|definition| definition.view.as_ref()).map(|view| view.created_ts);
    let mut row = texts(&["def", database, name, kind]);
    row.push(if is_table { Cell::text("Tidemill") } else { Cell::Null });
    row.push(Cell::Int(10));
    row.extend(vec![Cell::Null; 8]);
    row.push(Cell::optional(created, Cell::time_of));
    row.extend([Cell::Null, Cell::Null]);
    row.push(if definition.is_some() { Cell::text("utf8mb4_bin") } else { Cell::Null });
    row.extend([Cell::Null, Cell::text(""), Cell::text(comment)]);
    row.push(Cell::optional(definition, |definition| Cell::Int(definition.info.id)));
    row
}

fn columns(catalog: &Catalog) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    for table in super::all() {
        for (at, (name, kind)) in table.columns.iter().enumerate() {
            let type_name = arrow_type_name(&kind.arrow());
            let mut row = texts(&["def", table.database, table.name, name]);
            row.push(Cell::Unsigned(at as u64 + 1));
            row.extend([Cell::Null, Cell::text("YES")]);
            row.push(Cell::text(type_name.split(['(', ' ']).next().unwrap_or_default()));
            row.extend(vec![Cell::Null; 7]);
            row.extend(texts(&[type_name, "", "", "select", "", ""]));
            rows.push(row);
        }
    }
    for definition in published(catalog) {
        for position in 0..definition.info.columns.len() {
            rows.push(column_row(definition, position));
        }
    }
    rows
}

/// Characters, bytes, digits, digits behind the point, and digits of seconds of a type.
fn measures(column_type: &ColumnType) -> [Option<i64>; 5] {
    match *column_type {
        ColumnType::Int { bits, unsigned } => {
            let digits = match bits {
                8 => 3,
                16 => 5,
                24 => 7,
                32 => 10,
                _ => {
                    if unsigned {
                        20
                    } else {
                        19
                    }
                }
            };
            [None, None, Some(digits), Some(0), None]
        }
        ColumnType::Float => [None, None, Some(12), None, None],
        ColumnType::Double => [None, None, Some(22), None, None],
        ColumnType::Decimal { precision, scale } => {
            [None, None, Some(i64::from(precision)), Some(i64::from(scale)), None]
        }
        ColumnType::Char(n) | ColumnType::Varchar(n) => {
            [Some(i64::from(n)), Some(i64::from(n) * 4), None, None, None]
        }
        ColumnType::Text(n) | ColumnType::Binary(n) | ColumnType::Varbinary(n) | ColumnType::Blob(n) => {
            [Some(i64::from(n)), Some(i64::from(n)), None, None, None]
        }
        ColumnType::Date => [None, None, None, None, None],
        ColumnType::Datetime(fsp) | ColumnType::Timestamp(fsp) => {
            [None, None, None, None, Some(i64::from(fsp))]
        }
    }
}

fn column_row(definition: &TableDefinition, position: usize) -> Vec<Cell> {
    let column = &definition.info.columns[position];
    let [characters, bytes, digits, scale, fraction] = measures(&column.column_type);
    let unsigned =
        |number: Option<i64>| Cell::optional(number, |number| Cell::Unsigned(number.unsigned_abs()));
    let collation = describe::collation(&column.column_type);
    let mut row = texts(&["def", &definition.database, &definition.info.name, &column.name]);
    row.push(Cell::Unsigned(position as u64 + 1));
    row.push(Cell::optional(describe::shown_default(column), Cell::Text));
    row.push(Cell::text(if column.not_null { "NO" } else { "YES" }));
    row.push(Cell::Text(describe::data_type(&column.column_type)));
    row.push(Cell::optional(characters, Cell::Int));
    row.push(Cell::optional(bytes, Cell::Int));
    row.extend([unsigned(digits), unsigned(scale), unsigned(fraction)]);
    row.push(Cell::optional(collation, |_| Cell::text("utf8mb4")));
    row.push(Cell::optional(collation, Cell::text));
    row.push(Cell::Text(column.column_type.to_string()));
    row.push(Cell::text(describe::key_mark(&definition.info, position)));
    row.extend(texts(&["", "select,insert,update,references", &column.comment, ""]));
    row
}

fn view(definition: &TableDefinition) -> Option<Vec<Cell>> {
    let view = definition.view.as_ref()?;
    Some(texts(&[
        "def",
        &definition.database,
        &definition.info.name,
        &view.query,
        "NONE",
        "NO",
        "root@localhost",
        "DEFINER",
        "utf8mb4",
        &view.settings.collation,
    ]))
}

fn statistics(definition: &TableDefinition) -> Vec<Vec<Cell>> {
    let info = &definition.info;
    let positions = info.primary_key.iter().filter_map(|position| info.columns.get(*position));
    let row = |(at, column): (usize, &tidb::ColumnInfo)| {
        let mut row = texts(&["def", &definition.database, &info.name]);
        row.push(Cell::Int(0));
        row.extend(texts(&[&definition.database, "PRIMARY"]));
        row.push(Cell::Unsigned(at as u64 + 1));
        row.extend(texts(&[&column.name, "A"]));
        row.extend([Cell::Int(0), Cell::Null, Cell::Null]);
        row.extend(texts(&["", "BTREE", "", "", "YES"]));
        row.push(Cell::Null);
        row
    };
    positions.enumerate().map(row).collect()
}

fn key_columns(definition: &TableDefinition) -> Vec<Vec<Cell>> {
    let info = &definition.info;
    let positions = info.primary_key.iter().filter_map(|position| info.columns.get(*position));
    let row = |(at, column): (usize, &tidb::ColumnInfo)| {
        let mut row = texts(&[
            "def",
            &definition.database,
            "PRIMARY",
            "def",
            &definition.database,
            &info.name,
            &column.name,
        ]);
        row.push(Cell::Unsigned(at as u64 + 1));
        row.extend(vec![Cell::Null; 4]);
        row
    };
    positions.enumerate().map(row).collect()
}

fn constraint(definition: &TableDefinition) -> Option<Vec<Cell>> {
    let (database, name) = (&definition.database, &definition.info.name);
    let has_key = !definition.info.primary_key.is_empty();
    has_key.then(|| texts(&["def", database, "PRIMARY", database, name, "PRIMARY KEY", "YES"]))
}

fn collations() -> Vec<Vec<Cell>> {
    COLLATIONS
        .iter()
        .map(|(name, charset, id, default)| {
            let mut row = texts(&[name, charset]);
            row.push(Cell::Int(i64::from(*id)));
            row.extend(texts(&[if *default { "Yes" } else { "" }, "Yes"]));
            row.push(Cell::Int(1));
            row.push(Cell::text(if *name == "binary" { "NO PAD" } else { "PAD SPACE" }));
            row
        })
        .collect()
}

fn processes(sessions: &Sessions) -> Vec<Vec<Cell>> {
    let row = |process: crate::sessions::Process| {
        let running = process.statement.is_some();
        vec![
            Cell::Unsigned(process.id),
            Cell::Text(process.user),
            Cell::Text(process.peer),
            Cell::optional(process.database, Cell::Text),
            Cell::text(if running { "Query" } else { "Sleep" }),
            Cell::Int(i64::try_from(process.seconds).unwrap_or(i64::MAX)),
            Cell::text(if running { "executing" } else { "" }),
            Cell::optional(process.statement, Cell::Text),
        ]
    };
    sessions.list().into_iter().map(row).collect()
}
