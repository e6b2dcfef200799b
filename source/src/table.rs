//! Tables of a transactional store as a source.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use arrow::array::Int64Array;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use bytes::Bytes;
use store::{Change, KeyRange, Snapshot, Store, next_key};
use tidb::{RowDecoder, RowError, TableInfo, record_range, table_of_key};
use types::{Delta, Error, Result, TableId, Timestamp};

use crate::traits::{ChangeCursor, ChangesPage, RowFault, RowsPage, Source, TableDelta};

/// Tables of a store, each with the columns that somebody needs.
pub struct TableSource {
    store: Arc<dyn Store>,
    tables: BTreeMap<TableId, NeededTable>,
}

struct NeededTable {
    info: Arc<TableInfo>,
    columns: Vec<usize>,
    schema: SchemaRef,
    /// The ids in record keys, in ascending order: the table's own, or one a partition.
    physical_ids: Vec<i64>,
    /// Where changes are read; the whole table if nobody narrowed it.
    changed: Vec<KeyRange>,
}

impl NeededTable {
    /// The ranges of the rows' keys, in order.
    fn ranges(&self) -> Vec<KeyRange> {
        let range = |id: &i64| {
            let (start, end) = record_range(*id);
            KeyRange::new(start, end)
        };
        self.physical_ids.iter().map(range).collect()
    }

    fn decoder(&self) -> Result<RowDecoder> {
        Ok(RowDecoder::new(&self.info, &self.columns)?.with_tables(&self.physical_ids))
    }
}

impl TableSource {
    /// A source of some tables; each with the positions of the columns to read, in the order of the deltas.
    /// A table that comes twice keeps its last columns.
    ///
    /// # Errors
    /// `Invalid` if a table's definition contradicts itself, or a column is not there.
    pub fn new(
        store: Arc<dyn Store>,
        tables: impl IntoIterator<Item = (Arc<TableInfo>, Vec<usize>)>,
    ) -> Result<TableSource> {
        let mut needed = BTreeMap::new();
        for (info, columns) in tables {
            let schema = RowDecoder::new(&info, &columns)?.schema();
            let (id, physical_ids) = (info.table_id(), vec![info.id]);
            let mut table = NeededTable { info, columns, schema, physical_ids, changed: Vec::new() };
            table.changed = table.ranges();
            needed.insert(id, table);
        }
        Ok(TableSource { store, tables: needed })
    }

    /// The same, but the rows of a table live under these ids, one a partition.
    #[must_use]
    pub fn partitioned(mut self, table: TableId, physical_ids: &[i64]) -> TableSource {
        if let Some(needed) = self.tables.get_mut(&table) {
            needed.physical_ids = physical_ids.to_vec();
            needed.physical_ids.sort_unstable();
            needed.changed = needed.ranges();
        }
        self
    }

    /// The same, but of a table's changes only those of keys in some ranges, which are in order and apart.
    #[must_use]
    pub fn within(mut self, table: TableId, ranges: Vec<KeyRange>) -> TableSource {
        if let Some(needed) = self.tables.get_mut(&table) {
            needed.changed = ranges;
        }
        self
    }

    /// The columns that are read of a table.
    #[must_use]
    pub fn columns(&self, table: TableId) -> Option<&[usize]> {
        self.tables.get(&table).map(|needed| needed.columns.as_slice())
    }

    /// Where changes are read, in order.
    #[must_use]
    pub fn ranges(&self) -> Vec<KeyRange> {
        let mut ranges: Vec<KeyRange> =
            self.tables.values().flat_map(|needed| needed.changed.iter().cloned()).collect();
        ranges.sort_by(|left, right| left.start.cmp(&right.start));
        ranges
    }

    /// A page of a table's rows at a timestamp, within ranges of keys that are in order and apart.
    ///
    /// # Errors
    /// `Invalid` if the source has no such table, otherwise what the store answers.
    pub async fn read_ranges(
        &self,
        table: TableId,
        at: Timestamp,
        ranges: &[KeyRange],
        limit: usize,
    ) -> Result<RowsPage> {
        let needed = self.needed(table)?;
        let limit = limit.max(1);
        let snapshot = Snapshot::new(Arc::clone(&self.store), at);
        let mut pairs = Vec::new();
        for range in ranges {
            pairs.extend(snapshot.scan(range, limit - pairs.len()).await?);
            if pairs.len() >= limit {
                break;
            }
        }
        let done = pairs.len() < limit;
        let mut decoder = needed.decoder()?;
        let mut page = RowsPage {
            delta: Delta::empty(Arc::clone(&needed.schema)),
            last_key: pairs.last().map(|(key, _)| key.clone()),
            done,
            n_bytes: 0,
            faults: Vec::new(),
        };
        for (key, value) in pairs {
            page.n_bytes += (key.len() + value.len()) as u64;
            if let Err(row_error) = decoder.append(&key, &value) {
                page.faults.push(fault(table, row_error));
            }
        }
        page.delta = Delta::inserts(decoder.finish()?);
        Ok(page)
    }

    /// Which table the keys with an id belong to.
    fn by_physical_id(&self) -> BTreeMap<i64, TableId> {
        let ids = |(table, needed): (&TableId, &NeededTable)| {
            let table = *table;
            needed.physical_ids.clone().into_iter().map(move |id| (id, table))
        };
        self.tables.iter().flat_map(ids).collect()
    }

    fn needed(&self, table: TableId) -> Result<&NeededTable> {
        self.tables.get(&table).ok_or_else(|| Error::invalid(format!("table {table} is not in the source")))
    }
}

#[async_trait]
impl Source for TableSource {
    fn tables(&self) -> Vec<TableId> {
        self.tables.keys().copied().collect()
    }

    fn schema(&self, table: TableId) -> Option<SchemaRef> {
        self.tables.get(&table).map(|needed| Arc::clone(&needed.schema))
    }

    async fn read_rows(
        &self,
        table: TableId,
        at: Timestamp,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<RowsPage> {
        let mut ranges = self.needed(table)?.ranges();
        if let Some(after) = after {
            ranges.retain(|range| range.end.as_ref() > after);
            if let Some(first) = ranges.first_mut().filter(|first| first.start.as_ref() <= after) {
                first.start = next_key(after).into();
            }
        }
        self.read_ranges(table, at, &ranges, limit).await
    }

    async fn read_changes(
        &self,
        from: Timestamp,
        to: Timestamp,
        cursor: Option<ChangeCursor>,
        limit: usize,
    ) -> Result<ChangesPage> {
        if self.tables.is_empty() || from >= to {
            return Ok(ChangesPage::default());
        }
        let ranges = self.ranges();
        let tables = self.by_physical_id();
        let next = cursor.map(|cursor| (cursor.commit_ts, cursor.key));
        let stored = self.store.changes(&ranges, from, to, next, limit.max(1)).await?;
        let mut decoders: BTreeMap<TableId, ChangeDecoder> = BTreeMap::new();
        let mut page = ChangesPage {
            next: stored.next.map(|(commit_ts, key)| ChangeCursor { commit_ts, key }),
            n_changes: stored.changes.len() as u64,
            ..ChangesPage::default()
        };
        for change in &stored.changes {
            assert!(
                from < change.commit_ts && change.commit_ts <= to,
                "the store answered a change of {} for ({from}, {to}]",
                change.commit_ts
            );
            page.n_bytes += n_bytes(change);
            page.n_inserted += u64::from(change.old_value.is_none() && change.value.is_some());
            page.n_deleted += u64::from(change.old_value.is_some() && change.value.is_none());
            let table = table_of(&tables, &change.key)?;
            let decoder = match decoders.entry(table) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(ChangeDecoder::new(self.needed(table)?)?),
            };
            if let Err(row_error) = decoder.append(change) {
                page.faults.push(fault(table, row_error));
            }
        }
        for (table, decoder) in decoders {
            let delta = decoder.finish()?;
            if !delta.is_empty() {
                page.deltas.push(TableDelta { table, delta });
            }
        }
        Ok(page)
    }

    async fn resolved(&self) -> Result<Timestamp> {
        let ranges: Vec<KeyRange> = self.tables.values().flat_map(NeededTable::ranges).collect();
        self.store.resolved(&ranges).await
    }
}

/// Turns changes of one table into weighted rows.
struct ChangeDecoder {
    decoder: RowDecoder,
    weights: Vec<i64>,
}

impl ChangeDecoder {
    fn new(needed: &NeededTable) -> Result<ChangeDecoder> {
        Ok(ChangeDecoder { decoder: needed.decoder()?, weights: Vec::new() })
    }

    /// Appends both rows of a change, or neither.
    fn append(&mut self, change: &Change) -> Result<(), RowError> {
        if let (Some(old), Some(new)) = (&change.old_value, &change.value)
            && self.decoder.is_unchanged(&change.key, old, new)?
        {
            return Ok(());
        }
        let n_before = self.decoder.n_rows();
        for (value, weight) in [(&change.old_value, -1), (&change.value, 1)] {
            let Some(value) = value else { continue };
            if let Err(row_error) = self.decoder.append(&change.key, value) {
                self.decoder.truncate(n_before);
                self.weights.truncate(n_before);
                return Err(row_error);
            }
            self.weights.push(weight);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Delta> {
        Ok(Delta::new(self.decoder.finish()?, Int64Array::from(self.weights)))
    }
}

fn n_bytes(change: &Change) -> u64 {
    let values = [&change.old_value, &change.value];
    (change.key.len() + values.iter().map(|value| value.as_ref().map_or(0, Bytes::len)).sum::<usize>()) as u64
}

fn table_of(tables: &BTreeMap<i64, TableId>, key: &[u8]) -> Result<TableId> {
    let table = table_of_key(key).and_then(|id| tables.get(&id).copied());
    table.ok_or_else(|| Error::corrupt("the store answered a key outside the tables"))
}

fn fault(table: TableId, row_error: RowError) -> RowFault {
    let key = Bytes::from(row_error.key.clone());
    RowFault { table, key, reason: Error::from(row_error).message().to_owned() }
}
