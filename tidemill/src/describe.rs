//! Definitions as SQL text and as the columns of DESCRIBE.

use sql::catalog::TableDefinition;
use tidb::{ColumnInfo, ColumnType, TableInfo};

/// The type's name without its parameters.
pub(crate) fn data_type(column_type: &ColumnType) -> String {
    let name = column_type.to_string();
    name.split(['(', ' ']).next().unwrap_or_default().to_owned()
}

/// The collation of a text column.
pub(crate) fn collation(column_type: &ColumnType) -> Option<&'static str> {
    matches!(column_type, ColumnType::Char(_) | ColumnType::Varchar(_) | ColumnType::Text(_))
        .then_some("utf8mb4_bin")
}

/// A name between backquotes.
pub(crate) fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// Text between quotes.
pub(crate) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// A default without the quotes of its SQL text.
pub(crate) fn shown_default(column: &ColumnInfo) -> Option<String> {
    let text = column.default.as_deref()?;
    if text.eq_ignore_ascii_case("null") {
        return None;
    }
    let inner = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    Some(inner.map_or_else(|| text.to_owned(), |inner| inner.replace("''", "'")))
}

/// `PRI` for a column of the primary key.
pub(crate) fn key_mark(info: &TableInfo, position: usize) -> &'static str {
    if info.primary_key.contains(&position) { "PRI" } else { "" }
}

fn column_line(column: &ColumnInfo) -> String {
    let mut line = format!("  {} {}", quoted(&column.name), column.column_type);
    if column.not_null {
        line.push_str(" NOT NULL");
    } else if matches!(column.column_type, ColumnType::Timestamp(_)) {
        line.push_str(" NULL");
    }
    match &column.default {
        Some(default) => line.push_str(&format!(" DEFAULT {default}")),
        None if !column.not_null => line.push_str(" DEFAULT NULL"),
        None => {}
    }
    if !column.comment.is_empty() {
        line.push_str(&format!(" COMMENT {}", literal(&column.comment)));
    }
    line
}

fn column_list(names: impl Iterator<Item = String>) -> String {
    names.collect::<Vec<_>>().join(",")
}

/// CREATE TABLE as SHOW prints it.
pub(crate) fn create_table(info: &TableInfo) -> String {
    let mut lines: Vec<String> = info.columns.iter().map(column_line).collect();
    if !info.primary_key.is_empty() {
        let names = info.primary_key.iter().filter_map(|at| info.columns.get(*at));
        lines.push(format!("  PRIMARY KEY ({})", column_list(names.map(|column| quoted(&column.name)))));
    }
    let comment =
        if info.comment.is_empty() { String::new() } else { format!(" COMMENT={}", literal(&info.comment)) };
    format!(
        "CREATE TABLE {} (\n{}\n) ENGINE=Tidemill DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin{comment}",
        quoted(&info.name),
        lines.join(",\n")
    )
}

/// CREATE MATERIALIZED VIEW as SHOW prints it; `None` for a base table.
pub(crate) fn create_view(definition: &TableDefinition) -> Option<String> {
    let view = definition.view.as_ref()?;
    let mut text = format!("CREATE MATERIALIZED VIEW {}", quoted(&definition.info.name));
    if !view.columns.is_empty() {
        text.push_str(&format!(" ({})", column_list(view.columns.iter().map(|name| quoted(name)))));
    }
    if !view.cluster_by.is_empty() {
        let names = view.cluster_by.iter().map(|name| quoted(name));
        text.push_str(&format!(" CLUSTER BY ({})", column_list(names)));
    }
    if !view.options.is_empty() {
        let options: Vec<String> =
            view.options.iter().map(|(name, value)| format!("{name} = {}", literal(value))).collect();
        text.push_str(&format!(" WITH ({})", options.join(", ")));
    }
    text.push_str(&format!(" AS {}", view.query));
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, column_type: ColumnType, not_null: bool, default: Option<&str>) -> ColumnInfo {
        ColumnInfo {
            id: 1,
            name: name.to_owned(),
            column_type,
            not_null,
            default: default.map(str::to_owned),
            origin_default: None,
            comment: String::new(),
        }
    }

    #[test]
    fn a_table_is_shown_as_it_could_be_created_again() {
        let info = TableInfo {
            id: 1,
            name: "t`s".to_owned(),
            columns: vec![
                column("id", ColumnType::Int { bits: 64, unsigned: true }, true, None),
                column("v", ColumnType::Varchar(10), false, Some("'it''s'")),
                column("at", ColumnType::Timestamp(3), false, None),
            ],
            primary_key: vec![0],
            pk_is_handle: true,
            indexes: Vec::new(),
            comment: String::new(),
        };
        let expected = "CREATE TABLE `t``s` (\n  `id` bigint unsigned NOT NULL,\n  `v` varchar(10) DEFAULT 'it''s',\n  \
                        `at` timestamp(3) NULL DEFAULT NULL,\n  PRIMARY KEY (`id`)\n) ENGINE=Tidemill \
                        DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin";
        assert_eq!(create_table(&info), expected);
        assert_eq!(shown_default(&info.columns[1]).as_deref(), Some("it's"));
        assert_eq!(data_type(&info.columns[0].column_type), "bigint");
    }
}
