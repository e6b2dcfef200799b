//! The writes of one statement, over what the transaction sees.

use std::collections::{BTreeMap, HashMap};

use arrow::array::{AsArray, RecordBatch};
use store::{Key, Value};
use tidb::{Cast, ColumnInfo, ColumnType, TableInfo, Zone, convert_column};
use types::{Error, Result};

use crate::names::Scope;
use crate::transaction::Write;

/// Writes of a statement on one table.
pub(super) struct Buffer<'a> {
    scope: &'a Scope,
    writes: BTreeMap<Key, Write>,
    /// What the snapshot has at keys that were asked for.
    stored: HashMap<Key, Option<Value>>,
}

impl<'a> Buffer<'a> {
    pub(super) fn new(scope: &'a Scope) -> Buffer<'a> {
        Buffer { scope, writes: BTreeMap::new(), stored: HashMap::new() }
    }

    /// Reads what the snapshot has at some keys, so that the row-by-row work below does not wait.
    pub(super) async fn load(&mut self, keys: &[Key]) -> Result<()> {
        let unknown: Vec<Key> = keys.iter().filter(|key| !self.stored.contains_key(*key)).cloned().collect();
        for chunk in unknown.chunks(1024) {
            for (key, value) in self.scope.reads().stored(chunk).await? {
                self.stored.insert(key, Some(value));
            }
            for key in chunk {
                self.stored.entry(key.clone()).or_insert(None);
            }
        }
        Ok(())
    }

    /// The value at a key, after all writes so far.
    pub(super) fn get(&self, key: &Key) -> Option<Value> {
        match self.writes.get(key).or_else(|| self.scope.writes.get(key)) {
            Some(write) => write.value.clone(),
            None => self.stored.get(key).cloned().flatten(),
        }
    }

    /// Whether the key is in the transaction's snapshot. The key has been loaded or is known to exist.
    fn existed(&self, key: &Key) -> bool {
        match self.scope.writes.get(key) {
            Some(write) => write.existed,
            None => self.stored.get(key).is_some_and(Option::is_some),
        }
    }

    /// Writes a row under a key that was loaded, or that is new by construction.
    pub(super) fn put(&mut self, key: Key, value: Value) {
        let existed = self.existed(&key);
        self.writes.insert(key, Write { value: Some(value), existed });
    }

    /// Deletes a row that was loaded.
    pub(super) fn delete(&mut self, key: Key) {
        let existed = self.existed(&key);
        self.writes.insert(key, Write { value: None, existed });
    }

    /// Tells that a row was read from the snapshot, or from the transaction's own writes.
    pub(super) fn was_read(&mut self, key: &Key, value: &Value) {
        if !self.scope.writes.contains_key(key) {
            self.stored.insert(key.clone(), Some(value.clone()));
        }
    }

    /// The statement's writes.
    pub(super) fn into_writes(self) -> BTreeMap<Key, Write> {
        self.writes
    }
}

/// MySQL's error for a key that is there already.
pub(super) fn duplicate_entry(info: &TableInfo, batch: &RecordBatch, row: usize, zone: Zone) -> Error {
    let shown = shown_key(info, batch, row, zone);
    Error::mysql(1062, format!("Duplicate entry '{shown}' for key '{}.PRIMARY'", info.name))
}

/// A row's primary key as MySQL shows it: the values of its columns, with `-` between.
pub(crate) fn shown_key(info: &TableInfo, batch: &RecordBatch, row: usize, zone: Zone) -> String {
    let text = |at: &usize| -> Result<String> {
        let shown = ColumnInfo {
            id: 1,
            name: String::new(),
            column_type: ColumnType::Text(u32::MAX),
            not_null: false,
            default: None,
            origin_default: None,
            comment: String::new(),
        };
        let array = batch.column(*at).slice(row, 1);
        let array = convert_column(&shown, &array, &Cast { zone })?;
        Ok(array.as_string_opt::<i32>().map(|texts| texts.value(0).to_owned()).unwrap_or_default())
    };
    let parts: Result<Vec<String>> = info.primary_key.iter().map(text).collect();
    let shown = parts.map(|parts| parts.join("-")).unwrap_or_else(|_| "?".to_owned());
    shown.chars().take(64).collect()
}
