//! Definitions as TiDB writes them, made of small parts.

use serde_json::{Value, json};
use tidb::MetaTable;

/// NOT NULL and primary key.
pub(crate) const KEY_FLAGS: u64 = 1 | 2;

/// A column's type.
pub(crate) fn field_type(tp: u8, flag: u64, flen: i64, decimal: i64, collate: &str) -> Value {
    let charset = collate.split('_').next().unwrap();
    json!({
        "Tp": tp, "Flag": flag, "Flen": flen, "Decimal": decimal, "Charset": charset, "Collate": collate,
        "Elems": null, "ElemsIsBinaryLit": null, "Array": false
    })
}

/// A public column.
pub(crate) fn column(id: i64, name: &str, field_type: Value) -> Value {
    json!({
        "id": id, "name": {"O": name, "L": name.to_lowercase()}, "offset": 0, "origin_default": null,
        "origin_default_bit": null, "default": null, "default_bit": null, "default_is_expr": false,
        "generated_expr_string": "", "generated_stored": false, "dependences": null, "type": field_type,
        "state": 5, "comment": "", "hidden": false, "change_state_info": null, "version": 2
    })
}

pub(crate) fn int_column(id: i64, name: &str, flag: u64) -> Value {
    column(id, name, field_type(3, flag, 11, 0, "binary"))
}

pub(crate) fn varchar_column(id: i64, name: &str, flag: u64, n_chars: i64, collate: &str) -> Value {
    column(id, name, field_type(15, flag, n_chars, 0, collate))
}

/// An index over columns by offset, each with the length that counts.
pub(crate) fn index(name: &str, primary: bool, columns: &[(usize, i64)]) -> Value {
    let columns: Vec<Value> = columns
        .iter()
        .map(|(offset, length)| json!({"name": {"O": "c", "L": "c"}, "offset": offset, "length": length}))
        .collect();
    json!({
        "id": 1, "idx_name": {"O": name, "L": name.to_lowercase()}, "tbl_name": {"O": "", "L": ""},
        "idx_cols": columns, "state": 5, "comment": "", "index_type": 1, "is_unique": primary,
        "is_primary": primary, "is_invisible": false, "is_global": false
    })
}

/// A table of columns, which get their offsets here; `extra` overrides fields.
pub(crate) fn table_json(columns: Vec<Value>, extra: Value) -> Value {
    let columns: Vec<Value> = columns
        .into_iter()
        .enumerate()
        .map(|(offset, mut column)| {
            column["offset"] = json!(offset);
            column
        })
        .collect();
    let mut table = json!({
        "id": 100, "name": {"O": "T", "L": "t"}, "charset": "utf8mb4", "collate": "utf8mb4_bin",
        "cols": columns, "index_info": null, "constraint_info": null, "fk_info": null, "state": 5,
        "pk_is_handle": false, "is_common_handle": false, "common_handle_version": 0, "comment": "",
        "auto_inc_id": 0, "max_col_id": 9, "update_timestamp": 449_000_000_000_000_001_u64,
        "ShardRowIDBits": 0, "auto_random_bits": 0, "partition": null, "compression": "", "view": null,
        "sequence": null, "Lock": null, "version": 5, "tiflash_replica": null, "is_columnar": false,
        "temp_table_type": 0, "cache_table_status": 0, "policy_ref_info": null, "stats_options": null,
        "exchange_partition_info": null, "ttl_info": null, "revision": 1
    });
    for (name, value) in extra.as_object().unwrap() {
        table[name] = value.clone();
    }
    table
}

pub(crate) fn parsed(table: &Value) -> MetaTable {
    MetaTable::parse(table.to_string().as_bytes()).unwrap()
}

/// A table with an integer key `id` (1), an INT `a` (2), a VARCHAR(10) `s` (3) and a DATE `d` (4).
pub(crate) fn keyed() -> Value {
    let columns = vec![
        int_column(1, "id", KEY_FLAGS),
        int_column(2, "a", 0),
        varchar_column(3, "s", 0, 10, "utf8mb4_bin"),
        column(4, "d", field_type(10, 128, 10, 0, "binary")),
    ];
    table_json(columns, json!({"pk_is_handle": true}))
}

/// Partitions of the given ids.
pub(crate) fn partitions(ids: &[i64]) -> Value {
    let definitions: Vec<Value> = ids
        .iter()
        .map(|id| json!({"id": id, "name": {"O": format!("p{id}"), "L": format!("p{id}")}, "less_than": ["1"]}))
        .collect();
    json!({
        "type": 1, "expr": "`id`", "columns": null, "enable": true, "definitions": definitions,
        "adding_definitions": null, "dropping_definitions": null, "states": null, "num": 0, "ddl_state": 0
    })
}
