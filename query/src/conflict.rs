//! What a failed commit tells a client: the table and the row, not the key.

use store::{Key, KeyError, Snapshot};
use tidb::{Handle, RowDecoder, Zone, decode_record_key, describe_key};
use types::{Error, Result, TableId};

use crate::dml::shown_key;
use crate::engine::commit_error;
use crate::{Engine, Transaction};

impl Engine {
    /// The error of a commit, in words.
    pub(crate) async fn told(&self, transaction: &Transaction, failed: KeyError) -> Error {
        let error = commit_error(failed.clone());
        let KeyError::WriteConflict { key, start_ts, conflict_commit_ts, .. } = &failed else { return error };
        if error.mysql_code() != Some(9007) {
            return error;
        }
        // What cannot be decoded is told as it is: the conflict is the news.
        let row = self.row_in_words(transaction, key).await.unwrap_or_else(|_| describe_key(key));
        let text = format!(
            "Write conflict: {row} was changed by a transaction that committed at {conflict_commit_ts}, after \
             this one began at {start_ts}; try again"
        );
        Error::conflict(text).with_mysql_code(9007)
    }

    async fn row_in_words(&self, transaction: &Transaction, key: &Key) -> Result<String> {
        let (table, handle) = decode_record_key(key)?;
        let id = u64::try_from(table).map_err(|_| Error::corrupt("a table's id is negative"))?;
        let catalog = self.catalog(transaction.start_ts()).await?;
        let known = catalog.tables.get(&TableId(id));
        let definition = known.ok_or_else(|| Error::corrupt(format!("no table has the id {id}")))?;
        let (info, name) = (&definition.info, definition.full_name());
        if info.primary_key.is_empty() {
            return Ok(match handle {
                Handle::Int(row_id) => format!("row #{row_id} of table '{name}' without a primary key"),
                Handle::Common(_) => format!("a row of table '{name}'"),
            });
        }
        let written = transaction.writes().get(key).and_then(|write| write.value.clone());
        let value = match written {
            Some(value) => Some(value),
            None => {
                Snapshot::new(std::sync::Arc::clone(self.store()), transaction.start_ts()).get(key).await?
            }
        };
        let value = value.ok_or_else(|| Error::corrupt("a row that was deleted is not there"))?;
        let all: Vec<usize> = (0..info.columns.len()).collect();
        let mut decoder = RowDecoder::new(info, &all)?;
        decoder.append(key, &value)?;
        let shown = shown_key(info, &decoder.finish()?, 0, Zone::default());
        Ok(format!("row '{shown}' of table '{name}'"))
    }
}
