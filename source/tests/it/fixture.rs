//! A small table in a store in memory, and what deltas add up to.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use proptest::test_runner::Config as ProptestConfig;
use source::{ChangesPage, Source, TableSource};
use store::{EmbeddedStore, Mutation, Store};
use tidb::{ColumnInfo, ColumnType, Handle, RowEncoder, TableInfo, record_key};
use types::{Delta, TableId, Timestamp};

/// A row of the table: id, a, s.
pub(crate) type Row = (i64, Option<i64>, Option<String>);
/// Rows in any columns, as text, with their weights.
pub(crate) type ZSet = BTreeMap<Vec<String>, i64>;

/// So many cases, or twenty times as many in a soak.
pub(crate) fn cases(n_cases: u32) -> ProptestConfig {
    let soak = std::env::var_os("TIDEMILL_SOAK").is_some();
    ProptestConfig::with_cases(if soak { 20 * n_cases } else { n_cases })
}

pub(crate) fn table(id: i64) -> Arc<TableInfo> {
    let bigint = ColumnType::Int { bits: 64, unsigned: false };
    let column = |id, name: &str, column_type, not_null| ColumnInfo {
        id,
        name: name.into(),
        column_type,
        not_null,
        default: None,
        origin_default: None,
        comment: String::new(),
    };
    Arc::new(TableInfo {
        id,
        name: format!("t{id}"),
        columns: vec![
            column(1, "id", bigint.clone(), true),
            column(2, "a", bigint, false),
            column(3, "s", ColumnType::Varchar(20), false),
        ],
        primary_key: vec![0],
        pk_is_handle: true,
        indexes: Vec::new(),
        comment: String::new(),
    })
}

pub(crate) fn put(table: &TableInfo, row: &Row) -> Mutation {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![row.0])),
        Arc::new(Int64Array::from(vec![row.1])),
        Arc::new(StringArray::from(vec![row.2.clone()])),
    ];
    let batch = RecordBatch::try_new(table.arrow_schema(), columns).unwrap();
    let (key, value) = RowEncoder::new(table).unwrap().encode(&batch, 0, None).unwrap();
    Mutation::put(key, value)
}

pub(crate) fn delete(table: &TableInfo, id: i64) -> Mutation {
    Mutation::delete(record_key(table.id, &Handle::Int(id)))
}

pub(crate) fn store() -> Arc<dyn Store> {
    EmbeddedStore::memory()
}

pub(crate) async fn commit(store: &Arc<dyn Store>, mutations: Vec<Mutation>) -> Timestamp {
    let start_ts = store.timestamp().await.unwrap();
    store.commit_transaction(start_ts, mutations).await.unwrap()
}

pub(crate) fn source(store: &Arc<dyn Store>, tables: &[&Arc<TableInfo>], columns: &[usize]) -> TableSource {
    let tables = tables.iter().map(|table| (Arc::clone(table), columns.to_vec()));
    TableSource::new(Arc::clone(store), tables).unwrap()
}

pub(crate) fn add(sum: &mut ZSet, delta: &Delta) {
    for row in 0..delta.n_rows() {
        let cells = delta.batch().columns().iter().map(|array| {
            if array.is_null(row) {
                "NULL".to_owned()
            } else if let Some(texts) = array.as_string_opt::<i32>() {
                format!("'{}'", texts.value(row))
            } else {
                array.as_primitive::<Int64Type>().value(row).to_string()
            }
        });
        let entry = sum.entry(cells.collect()).or_insert(0);
        *entry += delta.weights().value(row);
    }
    sum.retain(|_, weight| *weight != 0);
}

/// All rows of a table at a timestamp, read in pages.
pub(crate) async fn rows_at(source: &TableSource, table: TableId, at: Timestamp, limit: usize) -> ZSet {
    let mut sum = ZSet::new();
    let mut after = None;
    loop {
        let page = source.read_rows(table, at, after.as_deref(), limit).await.unwrap();
        assert!(page.faults.is_empty());
        assert!(page.delta.n_rows() <= limit);
        add(&mut sum, &page.delta);
        if page.done {
            return sum;
        }
        after = page.last_key;
    }
}

/// All pages of changes.
pub(crate) async fn pages(
    source: &TableSource,
    from: Timestamp,
    to: Timestamp,
    limit: usize,
) -> Vec<ChangesPage> {
    let mut pages = Vec::new();
    let mut cursor = None;
    loop {
        let page = source.read_changes(from, to, cursor, limit).await.unwrap();
        cursor = page.next.clone();
        pages.push(page);
        if cursor.is_none() {
            return pages;
        }
    }
}
