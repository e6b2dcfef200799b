//! A TiDB as far as its keys go: definitions under meta keys, schema versions, rows under record keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::Schema;
use serde_json::{Value, json};
use store::{Mutation, Store};
use tidb::{Cast, MetaKey, MetaTable, NewCollations, RowEncoder, SourceTable, TableInfo, convert_column};
use types::Timestamp;

#[allow(dead_code, reason = "tests of the encodings use all of it")]
#[path = "../../../tidb/tests/it/meta_json.rs"]
mod meta_json;

pub(crate) use meta_json::{column, field_type};

/// NOT NULL and primary key.
pub(crate) const KEY: u64 = 1 | 2;
/// The database of all tables.
pub(crate) const SHOP: i64 = 1;

/// A BIGINT column.
pub(crate) fn bigint(id: i64, name: &str, flag: u64) -> Value {
    column(id, name, field_type(8, flag, 20, 0, "binary"))
}

/// A VARCHAR column.
pub(crate) fn varchar(id: i64, name: &str, flag: u64, n_chars: i64) -> Value {
    column(id, name, field_type(15, flag, n_chars, 0, "utf8mb4_bin"))
}

/// A clustered primary key over columns by offset.
pub(crate) fn clustered(offsets: &[usize]) -> Value {
    let columns: Vec<Value> = offsets
        .iter()
        .map(|offset| json!({"name": {"O": "c", "L": "c"}, "offset": offset, "length": -1}))
        .collect();
    json!({
        "is_common_handle": true, "common_handle_version": 1,
        "index_info": [{
            "id": 1, "idx_name": {"O": "PRIMARY", "L": "primary"}, "tbl_name": {"O": "", "L": ""},
            "idx_cols": columns, "state": 5, "comment": "", "index_type": 1, "is_unique": true,
            "is_primary": true, "is_invisible": false, "is_global": false
        }]
    })
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

/// A table of columns, which get their offsets here; `extra` overrides fields.
pub(crate) fn table(id: i64, name: &str, columns: Vec<Value>, extra: Value) -> Value {
    let mut table = json!({
        "id": id, "name": {"O": name, "L": name.to_lowercase()}, "charset": "utf8mb4",
        "collate": "utf8mb4_bin", "cols": columns, "index_info": null, "constraint_info": null,
        "fk_info": null, "state": 5, "pk_is_handle": false, "is_common_handle": false,
        "common_handle_version": 0, "comment": "", "auto_inc_id": 0, "max_col_id": 9,
        "update_timestamp": 449_000_000_000_000_001_u64, "ShardRowIDBits": 0, "auto_random_bits": 0,
        "partition": null, "compression": "", "view": null, "sequence": null, "Lock": null, "version": 5,
        "tiflash_replica": null, "is_columnar": false, "temp_table_type": 0, "cache_table_status": 0,
        "policy_ref_info": null, "stats_options": null, "exchange_partition_info": null, "ttl_info": null,
        "revision": 1
    });
    for (name, value) in extra.as_object().unwrap() {
        table[name] = value.clone();
    }
    numbered(table)
}

/// `t` (id BIGINT PRIMARY KEY, grp BIGINT NOT NULL, val BIGINT NOT NULL), with the columns' ids 1, 2 and 3.
pub(crate) fn plain(id: i64, name: &str) -> Value {
    let columns = vec![bigint(1, "id", KEY), bigint(2, "grp", 1), bigint(3, "val", 1)];
    table(id, name, columns, json!({"pk_is_handle": true}))
}

/// The table with its columns' offsets as they stand.
pub(crate) fn numbered(mut table: Value) -> Value {
    for (offset, column) in table["cols"].as_array_mut().unwrap().iter_mut().enumerate() {
        column["offset"] = json!(offset);
    }
    table
}

/// A TiDB over a store.
pub(crate) struct Tidb {
    pub(crate) store: Arc<dyn Store>,
    version: i64,
    /// The definitions as they are, by id.
    pub(crate) tables: BTreeMap<i64, Value>,
}

impl Tidb {
    /// Begins with the databases `mysql` and `Shop`.
    pub(crate) async fn begin(store: &Arc<dyn Store>) -> Tidb {
        let mut tidb = Tidb { store: Arc::clone(store), version: 0, tables: BTreeMap::new() };
        let database = |id: i64, name: &str| {
            let json = json!({
                "id": id, "db_name": {"O": name, "L": name.to_lowercase()}, "charset": "utf8mb4",
                "collate": "utf8mb4_bin", "state": 5
            });
            (MetaKey::Database(id), Some(json))
        };
        tidb.change(vec![database(SHOP, "Shop"), database(2, "mysql")]).await;
        tidb
    }

    /// One step of a DDL: meta keys with a new schema version.
    pub(crate) async fn change(&mut self, keys: Vec<(MetaKey, Option<Value>)>) -> Timestamp {
        self.version += 1;
        let diff = json!({"version": self.version, "type": 3, "schema_id": SHOP, "table_id": 0});
        let mut mutations = vec![
            Mutation::put(MetaKey::SchemaVersion.encode(), self.version.to_string().into_bytes()),
            Mutation::put(MetaKey::Diff(self.version).encode(), diff.to_string().into_bytes()),
        ];
        for (key, value) in keys {
            mutations.push(match value {
                Some(value) => Mutation::put(key.encode(), value.to_string().into_bytes()),
                None => Mutation::delete(key.encode()),
            });
        }
        self.commit(mutations).await
    }

    /// Draws a schema version whose change is not written yet.
    pub(crate) async fn draw_version(&mut self) {
        self.version += 1;
        let version = self.version.to_string().into_bytes();
        self.commit(vec![Mutation::put(MetaKey::SchemaVersion.encode(), version)]).await;
        // The next change is that of this version.
        self.version -= 1;
    }

    /// Writes definitions, and removes those of some ids, in one step.
    pub(crate) async fn define(&mut self, tables: Vec<Value>, gone: &[i64]) -> Timestamp {
        let key = |id: i64| MetaKey::Table { database: SHOP, table: id };
        let mut keys: Vec<_> = gone.iter().map(|id| (key(*id), None)).collect();
        for id in gone {
            self.tables.remove(id);
        }
        for table in tables {
            let id = table["id"].as_i64().unwrap();
            keys.push((key(id), Some(table.clone())));
            self.tables.insert(id, table);
        }
        self.change(keys).await
    }

    /// What Tidemill makes of a table, its rows under the table's own id or a partition's.
    pub(crate) fn info(&self, table: i64, physical_id: i64) -> TableInfo {
        let meta = MetaTable::parse(self.tables[&table].to_string().as_bytes()).unwrap();
        let source = SourceTable::from_meta(&meta, NewCollations::On).unwrap();
        TableInfo { id: physical_id, ..source.info }
    }

    /// Writes rows of text, `-` is NULL; a handle each for tables without a clustered key.
    pub(crate) async fn write(&self, table: i64, rows: &[&[&str]]) -> Timestamp {
        self.write_at(&self.info(table, table), rows, None).await
    }

    /// Writes rows by a definition.
    pub(crate) async fn write_at(
        &self,
        info: &TableInfo,
        rows: &[&[&str]],
        handles: Option<&[i64]>,
    ) -> Timestamp {
        let batch = batch(info, rows);
        let encoded = RowEncoder::new(info).unwrap().encode_batch(&batch, handles).unwrap();
        self.commit(encoded.into_iter().map(|(key, value)| Mutation::put(key, value)).collect()).await
    }

    /// Deletes rows, given in full.
    pub(crate) async fn delete(&self, table: i64, rows: &[&[&str]]) -> Timestamp {
        let info = self.info(table, table);
        let encoded = RowEncoder::new(&info).unwrap().encode_batch(&batch(&info, rows), None).unwrap();
        self.commit(encoded.into_iter().map(|(key, _)| Mutation::delete(key)).collect()).await
    }

    async fn commit(&self, mutations: Vec<Mutation>) -> Timestamp {
        loop {
            let start_ts = self.store.timestamp().await.unwrap();
            match self.store.commit_transaction(start_ts, mutations.clone()).await {
                Ok(commit_ts) => return commit_ts,
                Err(store::KeyError::WriteConflict { .. }) => {}
                Err(error) => panic!("write failed: {error:?}"),
            }
        }
    }
}

fn batch(info: &TableInfo, rows: &[&[&str]]) -> RecordBatch {
    let mut arrays: Vec<ArrayRef> = Vec::new();
    for (at, column) in info.columns.iter().enumerate() {
        let texts: StringArray = rows.iter().map(|row| Some(row[at]).filter(|text| *text != "-")).collect();
        let texts: ArrayRef = Arc::new(texts);
        let array = convert_column(column, &texts, &Cast::default()).unwrap();
        assert_eq!(array.len(), rows.len());
        arrays.push(array);
    }
    let fields: Vec<_> = info.columns.iter().map(|column| column.arrow_field().with_nullable(true)).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}
