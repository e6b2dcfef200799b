//! Row ids of tables without a primary key: taken from the store in batches, never given out twice.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use store::{Mutation, Snapshot};
use types::records::{row_id_allocator_key, table_key};
use types::{Error, Result, TableId};

use crate::Engine;
use crate::engine::{commit_error, still_there, table_gone};

/// How many ids are taken from the store at once.
const BATCH_IDS: u64 = 30_000;
/// How often taking ids is tried when others take some at the same time.
const ATTEMPTS_MAX: u32 = 100;

/// The ids that this process has taken and not yet used.
#[derive(Debug, Default)]
pub(crate) struct RowIds {
    free: tokio::sync::Mutex<HashMap<TableId, Range<u64>>>,
}

impl Engine {
    /// New row ids for a table.
    pub(crate) async fn new_row_ids(&self, table: TableId, n_ids: usize) -> Result<Vec<i64>> {
        let n_ids = n_ids as u64;
        let mut free = self.row_ids().free.lock().await;
        let range = free.entry(table).or_default();
        if range.end - range.start < n_ids {
            *range = self.take_row_ids(table, n_ids.max(BATCH_IDS)).await?;
        }
        let ids = range.start..range.start + n_ids;
        range.start = ids.end;
        let signed = |id| i64::try_from(id).map_err(|_| Error::mysql(1467, "row ids have run out"));
        ids.map(signed).collect()
    }

    async fn take_row_ids(&self, table: TableId, n_ids: u64) -> Result<Range<u64>> {
        let key = row_id_allocator_key(table);
        for _ in 0..ATTEMPTS_MAX {
            let start_ts = self.store().timestamp().await?;
            self.store().wait_visible(start_ts).await?;
            let snapshot = Snapshot::new(Arc::clone(self.store()), start_ts);
            if snapshot.get(&table_key(table)).await?.is_none() {
                return Err(table_gone());
            }
            let stored = snapshot.get(&key).await?;
            let next = match stored {
                None => 1,
                Some(bytes) => {
                    std::str::from_utf8(&bytes).ok().and_then(|text| text.parse::<u64>().ok()).ok_or_else(
                        || Error::corrupt(format!("row-id allocator of table {table} is no number")),
                    )?
                }
            };
            let end = next.checked_add(n_ids).filter(|end| i64::try_from(*end).is_ok());
            let end = end.ok_or_else(|| Error::mysql(1467, "row ids have run out"))?;
            let put = Mutation::put(key.clone(), end.to_string().into_bytes());
            let mutations = vec![put, still_there(table)];
            match self.store().commit_transaction(start_ts, mutations).await.map_err(commit_error) {
                Ok(_) => return Ok(next..end),
                Err(error) if error.mysql_code() == Some(9007) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::conflict("row ids are contended").with_mysql_code(9007))
    }
}
