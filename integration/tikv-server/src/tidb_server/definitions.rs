//! Databases and tables as the stand-in has them, and what a statement writes into the meta keys.
//!
//! Each change is one transaction with a schema version, its diff, and the definitions that are new, in the
//! JSON that TiDB writes. Steps between (write-only, delete-only) are left out.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tidb::MetaKey;

use super::Refused;
use super::statement::{DeclaredColumn, Name, Statement};
use crate::writers::Write;

const NOT_NULL: u64 = 1;
const PRIMARY: u64 = 2;
const UNSIGNED: u64 = 32;
const BINARY: u64 = 128;
/// The first id that is given: TiDB's own tables have those before.
const FIRST_ID: i64 = 100;

/// What there is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Definitions {
    version: i64,
    n_ids: i64,
    databases: BTreeMap<i64, String>,
    /// Each table with its database, by id.
    tables: BTreeMap<i64, (i64, Value)>,
}

impl Definitions {
    /// What a statement writes; the definitions are changed too.
    pub(crate) fn change(&mut self, statement: &Statement) -> Result<Vec<Write>, Refused> {
        match statement {
            Statement::Nothing | Statement::Variables(_) | Statement::ShowVariable(_) => Ok(Vec::new()),
            Statement::CreateDatabase { name, if_not_exists } => self.create_database(name, *if_not_exists),
            Statement::CreateTable { name, columns, key, clustered } => {
                self.create_table(name, columns, key, *clustered)
            }
            Statement::RenameTables(renames) => self.rename_tables(renames),
            Statement::DropTable { name, if_exists } => match self.find(name) {
                None if *if_exists => Ok(Vec::new()),
                None => Err(unknown(name)),
                Some(id) => {
                    let (database, _) = self.tables.remove(&id).ok_or_else(|| unknown(name))?;
                    Ok(self.written(4, (database, id, 0), vec![(table_key(database, id), None)]))
                }
            },
            Statement::Truncate(name) => {
                let id = self.find(name).ok_or_else(|| unknown(name))?;
                let (database, mut table) = self.tables.remove(&id).ok_or_else(|| unknown(name))?;
                let new_id = self.next_id();
                table["id"] = json!(new_id);
                self.tables.insert(new_id, (database, table.clone()));
                let keys = vec![(table_key(database, id), None), (table_key(database, new_id), Some(table))];
                Ok(self.written(11, (database, new_id, id), keys))
            }
            Statement::AddColumn { name, column } => self.alter(name, 5, |table| {
                let id = table["max_col_id"].as_i64().unwrap_or(0) + 1;
                let offset = table["cols"].as_array().map_or(0, Vec::len);
                table["max_col_id"] = json!(id);
                push(table, "cols", column_json(column, id, offset, false)?);
                Ok(())
            }),
            Statement::AddIndex { name, index, columns } => self.alter(name, 7, |table| {
                let entry = index_json(table, index, columns, false)?;
                push(table, "index_info", entry);
                Ok(())
            }),
        }
    }

    /// CREATE DATABASE.
    pub(crate) fn create_database(&mut self, name: &str, if_not_exists: bool) -> Result<Vec<Write>, Refused> {
        if self.database(name).is_some() {
            let text = format!("Can't create database '{name}'; database exists");
            return if if_not_exists { Ok(Vec::new()) } else { Err(Refused::new(1007, text)) };
        }
        let id = self.next_id();
        self.databases.insert(id, name.to_owned());
        let json = json!({
            "id": id, "db_name": {"O": name, "L": name.to_lowercase()}, "charset": "utf8mb4",
            "collate": "utf8mb4_bin", "state": 5, "policy_ref_info": null
        });
        Ok(self.written(1, (id, 0, 0), vec![(MetaKey::Database(id), Some(json))]))
    }

    fn create_table(
        &mut self,
        name: &Name,
        columns: &[DeclaredColumn],
        key: &[String],
        clustered: bool,
    ) -> Result<Vec<Write>, Refused> {
        let database = self.database(&name.0).ok_or_else(|| unknown_database(&name.0))?;
        if self.find(name).is_some() {
            return Err(exists(name));
        }
        let id = self.next_id();
        let in_key = |column: &DeclaredColumn| key.iter().any(|part| part.eq_ignore_ascii_case(&column.name));
        let columns_json = columns
            .iter()
            .enumerate()
            .map(|(offset, column)| {
                let column_id = i64::try_from(offset).unwrap_or(i64::MAX).saturating_add(1);
                column_json(column, column_id, offset, in_key(column))
            })
            .collect::<Result<Vec<Value>, Refused>>()?;
        if let Some(column) = columns.iter().find(|column| in_key(column) && is_large(&column.type_name)) {
            let text =
                format!("BLOB/TEXT column '{}' used in key specification without a key length", column.name);
            return Err(Refused::new(1170, text));
        }
        let mut table = json!({
            "id": id, "name": {"O": name.1, "L": name.1.to_lowercase()}, "charset": "utf8mb4",
            "collate": "utf8mb4_bin", "cols": columns_json, "index_info": null, "constraint_info": null,
            "fk_info": null, "state": 5, "pk_is_handle": false, "is_common_handle": false,
            "common_handle_version": 0, "comment": "", "auto_inc_id": 0, "auto_id_cache": 0,
            "auto_rand_id": 0, "max_col_id": columns.len(), "max_idx_id": 0, "max_fk_id": 0, "max_cst_id": 0,
            "update_timestamp": 449_000_000_000_000_001_u64, "ShardRowIDBits": 0, "max_shard_row_id_bits": 0,
            "auto_random_bits": 0, "auto_random_range_bits": 0, "pre_split_regions": 0, "partition": null,
            "compression": "", "view": null, "sequence": null, "Lock": null, "version": 5,
            "tiflash_replica": null, "is_columnar": false, "temp_table_type": 0, "cache_table_status": 0,
            "policy_ref_info": null, "stats_options": null, "exchange_partition_info": null, "ttl_info": null,
            "revision": 1
        });
        let mut key_columns = columns.iter().filter(|column| in_key(column));
        let is_integer = |column: &DeclaredColumn| column.type_name.ends_with("INT");
        match (key_columns.next(), key_columns.next()) {
            (None, _) => {}
            (Some(only), None) if clustered && is_integer(only) => table["pk_is_handle"] = json!(true),
            _ => {
                let primary = index_json(&table, "PRIMARY", key, true)?;
                push(&mut table, "index_info", primary);
                table["max_idx_id"] = json!(1);
                table["is_common_handle"] = json!(clustered);
                table["common_handle_version"] = json!(u8::from(clustered));
            }
        }
        self.tables.insert(id, (database, table.clone()));
        Ok(self.written(3, (database, id, 0), vec![(table_key(database, id), Some(table))]))
    }

    /// All of them or none, from left to right.
    fn rename_tables(&mut self, renames: &[(Name, Name)]) -> Result<Vec<Write>, Refused> {
        let mut keys: BTreeMap<(i64, i64), Option<Value>> = BTreeMap::new();
        let mut last = (0, 0, 0);
        for (from, to) in renames {
            let database = self.database(&to.0).ok_or_else(|| unknown_database(&to.0))?;
            let id = self.find(from).ok_or_else(|| unknown(from))?;
            if self.find(to).is_some_and(|there| there != id) {
                return Err(exists(to));
            }
            let (old_database, mut table) = self.tables.remove(&id).ok_or_else(|| unknown(from))?;
            table["name"] = json!({"O": to.1, "L": to.1.to_lowercase()});
            if old_database != database {
                keys.insert((old_database, id), None);
            }
            keys.insert((database, id), Some(table.clone()));
            self.tables.insert(id, (database, table));
            last = (database, id, 0);
        }
        let keys = keys.into_iter().map(|((database, id), json)| (table_key(database, id), json)).collect();
        Ok(self.written(14, last, keys))
    }

    fn alter(
        &mut self,
        name: &Name,
        action: u8,
        change: impl FnOnce(&mut Value) -> Result<(), Refused>,
    ) -> Result<Vec<Write>, Refused> {
        let id = self.find(name).ok_or_else(|| unknown(name))?;
        let (database, table) = self.tables.get_mut(&id).ok_or_else(|| unknown(name))?;
        change(table)?;
        let (database, table) = (*database, table.clone());
        Ok(self.written(action, (database, id, 0), vec![(table_key(database, id), Some(table))]))
    }

    fn next_id(&mut self) -> i64 {
        self.n_ids += 1;
        FIRST_ID + self.n_ids
    }

    fn database(&self, name: &str) -> Option<i64> {
        self.databases.iter().find(|(_, known)| known.eq_ignore_ascii_case(name)).map(|(id, _)| *id)
    }

    fn find(&self, name: &Name) -> Option<i64> {
        let database = self.database(&name.0)?;
        let lower = name.1.to_lowercase();
        let mut tables = self.tables.iter();
        tables
            .find(|(_, (known, table))| *known == database && table["name"]["L"] == lower)
            .map(|(id, _)| *id)
    }

    /// The keys of a change with the next schema version.
    fn written(
        &mut self,
        action: u8,
        (database, table, old_table): (i64, i64, i64),
        keys: Vec<(MetaKey, Option<Value>)>,
    ) -> Vec<Write> {
        self.version += 1;
        let diff = json!({
            "version": self.version, "type": action, "schema_id": database, "table_id": table,
            "old_table_id": old_table, "old_schema_id": database, "regenerate_schema_map": false
        });
        let number = |number: i64| Some(number.to_string().into_bytes());
        let mut writes = vec![
            (MetaKey::SchemaVersion.encode(), number(self.version)),
            (MetaKey::Diff(self.version).encode(), Some(diff.to_string().into_bytes())),
            (MetaKey::NextGlobalId.encode(), number(FIRST_ID + self.n_ids)),
        ];
        let keys = keys
            .into_iter()
            .map(|(key, json)| (key.encode(), json.map(|json| json.to_string().into_bytes())));
        writes.extend(keys);
        writes
    }
}

fn table_key(database: i64, table: i64) -> MetaKey {
    MetaKey::Table { database, table }
}

fn unknown((database, table): &Name) -> Refused {
    Refused::new(1146, format!("Table '{database}.{table}' doesn't exist"))
}

fn unknown_database(name: &str) -> Refused {
    Refused::new(1049, format!("Unknown database '{name}'"))
}

fn exists((_, table): &Name) -> Refused {
    Refused::new(1050, format!("Table '{table}' already exists"))
}

fn push(table: &mut Value, list: &str, entry: Value) {
    match &mut table[list] {
        Value::Array(entries) => entries.push(entry),
        other => *other = json!([entry]),
    }
}

fn is_large(type_name: &str) -> bool {
    type_name.ends_with("TEXT") || type_name.ends_with("BLOB")
}

fn index_json(table: &Value, name: &str, columns: &[String], primary: bool) -> Result<Value, Refused> {
    let all = table["cols"].as_array().cloned().unwrap_or_default();
    let parts = columns.iter().map(|column| {
        let lower = column.to_lowercase();
        let offset = all.iter().position(|known| known["name"]["L"] == lower);
        let offset =
            offset.ok_or_else(|| Refused::new(1072, format!("Key column '{column}' doesn't exist")))?;
        Ok(json!({"name": {"O": column, "L": lower}, "offset": offset, "length": -1}))
    });
    let parts = parts.collect::<Result<Vec<Value>, Refused>>()?;
    Ok(json!({
        "id": if primary { 1 } else { 2 }, "idx_name": {"O": name, "L": name.to_lowercase()},
        "tbl_name": {"O": "", "L": ""}, "idx_cols": parts, "state": 5, "comment": "", "index_type": 1,
        "is_unique": primary, "is_primary": primary, "is_invisible": false, "is_global": false
    }))
}

fn column_json(column: &DeclaredColumn, id: i64, offset: usize, in_key: bool) -> Result<Value, Refused> {
    let (tp, flen, decimal, is_text) = type_of(column)?;
    let collate = if is_text { "utf8mb4_bin" } else { "binary" };
    let flags = [
        (column.not_null || in_key, NOT_NULL),
        (in_key, PRIMARY),
        (column.unsigned, UNSIGNED),
        (!is_text, BINARY),
    ];
    let flag = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum::<u64>();
    Ok(json!({
        "id": id, "name": {"O": column.name, "L": column.name.to_lowercase()}, "offset": offset,
        "origin_default": null, "origin_default_bit": null, "default": null, "default_bit": null,
        "default_is_expr": false, "generated_expr_string": "", "generated_stored": false,
        "dependences": null,
        "type": {
            "Tp": tp, "Flag": flag, "Flen": flen, "Decimal": decimal,
            "Charset": if is_text { "utf8mb4" } else { "binary" }, "Collate": collate, "Elems": null,
            "ElemsIsBinaryLit": null, "Array": false
        },
        "state": 5, "comment": "", "hidden": false, "change_state_info": null, "version": 2
    }))
}

/// The code of a type, its length, its digits after the point, and whether it is text.
fn type_of(column: &DeclaredColumn) -> Result<(u8, i64, i64, bool), Refused> {
    let size = |at: usize, default: i64| column.sizes.get(at).copied().unwrap_or(default);
    let sign = i64::from(!column.unsigned);
    let fsp = size(0, 0);
    let time_length = 19 + if fsp > 0 { fsp + 1 } else { 0 };
    Ok(match column.type_name.as_str() {
        "TINYINT" => (1, 3 + sign, 0, false),
        "SMALLINT" => (2, 5 + sign, 0, false),
        "MEDIUMINT" => (9, 8 + sign, 0, false),
        "INT" => (3, 10 + sign, 0, false),
        "BIGINT" => (8, 20, 0, false),
        "FLOAT" => (4, 12, -1, false),
        "DOUBLE" => (5, 22, -1, false),
        "DECIMAL" => (246, size(0, 10), size(1, 0), false),
        "CHAR" => (254, size(0, 1), 0, true),
        "VARCHAR" => (15, size(0, 0), 0, true),
        "TINYTEXT" => (249, 255, 0, true),
        "TEXT" => (252, 65_535, 0, true),
        "MEDIUMTEXT" => (250, 16_777_215, 0, true),
        "LONGTEXT" => (251, 4_294_967_295, 0, true),
        "BINARY" => (254, size(0, 1), 0, false),
        "VARBINARY" => (15, size(0, 0), 0, false),
        "TINYBLOB" => (249, 255, 0, false),
        "BLOB" => (252, 65_535, 0, false),
        "MEDIUMBLOB" => (250, 16_777_215, 0, false),
        "LONGBLOB" => (251, 4_294_967_295, 0, false),
        "DATE" => (10, 10, 0, false),
        "DATETIME" => (12, time_length, fsp, false),
        "TIMESTAMP" => (7, time_length, fsp, false),
        other => return Err(Refused::new(1064, format!("no type {other}"))),
    })
}
