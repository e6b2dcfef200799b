//! Values of this crate's own: written past whoever else writes them, read at a fresh timestamp.
//!
//! Unversioned values are such values. They are written in transactions of bounded size; of one that is
//! rewritten the newest counts, and garbage collection drops the others as it does of every key.

use std::sync::Arc;

use store::{Key, KeyError, KeyRange, KvPair, Mutation, ReadContext, ScanRequest, Value};
use types::{Error, Result};

use crate::backoff::{Backoff, Pause};
use crate::cluster::Cluster;
use crate::own_keys;

/// Bytes of one transaction of unversioned values.
const TRANSACTION_BYTES_MAX: usize = 4 << 20;
/// Keys of one transaction of unversioned values.
const TRANSACTION_KEYS_MAX: usize = 2048;
/// Pairs of one page.
const PAGE_PAIRS: usize = 1024;

/// Cuts mutations so that no transaction is larger than the bounds; of a key that comes twice the last
/// counts.
fn transactions(mutations: Vec<Mutation>) -> Vec<Vec<Mutation>> {
    let by_key: std::collections::BTreeMap<Key, Mutation> =
        mutations.into_iter().map(|mutation| (mutation.key.clone(), mutation)).collect();
    let mut transactions: Vec<Vec<Mutation>> = Vec::new();
    let mut bytes = 0;
    for mutation in by_key.into_values() {
        let size = mutation.key.len() + mutation.value.len();
        match transactions.last_mut() {
            Some(last) if last.len() < TRANSACTION_KEYS_MAX && bytes + size <= TRANSACTION_BYTES_MAX => {
                bytes += size;
                last.push(mutation);
            }
            _ => {
                bytes = size;
                transactions.push(vec![mutation]);
            }
        }
    }
    transactions
}

impl Cluster {
    /// Writes values of our own; where another writer was faster, once more.
    ///
    /// # Errors
    /// `Unavailable` if the cluster does not answer in time.
    pub(crate) async fn write_own(self: &Arc<Self>, mutations: Vec<Mutation>) -> Result<()> {
        for mutations in transactions(mutations) {
            let mut waits = Backoff::new(self.options.lock_wait);
            loop {
                let start_ts = self.timestamp().await?;
                match self.commit_whole(start_ts, mutations.clone()).await {
                    Ok(_) => break,
                    Err(KeyError::WriteConflict { .. } | KeyError::TxnLockNotFound(_))
                        if waits.wait(Pause::Lock).await => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// Reads a range of values of our own, newest first known; locks of others are got past.
    ///
    /// # Errors
    /// `Unavailable` if the cluster does not answer in time.
    pub(crate) async fn read_own(&self, range: &KeyRange) -> Result<Vec<(Key, Value)>> {
        self.read_own_page(range, usize::MAX, false).await
    }

    async fn read_own_page(
        &self,
        range: &KeyRange,
        limit: usize,
        key_only: bool,
    ) -> Result<Vec<(Key, Value)>> {
        let context = ReadContext::at(self.timestamp().await?);
        let mut found: Vec<(Key, Value)> = Vec::new();
        let mut range = range.clone();
        let mut waits = Backoff::new(self.options.lock_wait);
        while found.len() < limit && (range.end.is_empty() || range.start < range.end) {
            let wanted = (limit - found.len()).min(PAGE_PAIRS);
            let request = ScanRequest { range: range.clone(), limit: wanted, key_only, reverse: false };
            let page = self.scan(&request, &context).await.map_err(Error::from)?;
            let full = page.len() == wanted;
            let mut locks = Vec::new();
            for KvPair { key, value } in page {
                match value {
                    Ok(value) if locks.is_empty() => found.push((key, value)),
                    Ok(_) => {}
                    Err(KeyError::Locked(lock)) => locks.push(*lock),
                    Err(error) => return Err(error.into()),
                }
            }
            if locks.is_empty() && !full {
                break;
            }
            // Own transactions can be pushed, but only decided ones are finished: read on when they are.
            self.make_way(locks, &mut waits).await.map_err(Error::from)?;
            if let Some((last, _)) = found.last() {
                range.start = store::next_key(last).into();
            }
        }
        Ok(found)
    }

    /// Reads one unversioned value.
    ///
    /// # Errors
    /// `Unavailable` if the cluster does not answer in time.
    pub(crate) async fn blob(&self, key: &[u8]) -> Result<Option<Value>> {
        let key = own_keys::blob(key);
        let context = ReadContext::at(self.timestamp().await?);
        let mut waits = Backoff::new(self.options.lock_wait);
        loop {
            match self.get(&key, &context).await {
                Ok(value) => return Ok(value),
                Err(KeyError::Locked(lock)) => {
                    self.make_way(vec![*lock], &mut waits).await.map_err(Error::from)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Lists keys of unversioned values; see [`store::Store::list_blobs`].
    ///
    /// # Errors
    /// `Unavailable` if the cluster does not answer in time.
    pub(crate) async fn blob_keys(
        &self,
        prefix: &[u8],
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<Key>> {
        let found = self.read_own_page(&own_keys::blobs(prefix, after), limit, true).await?;
        found.iter().map(|(key, _)| own_keys::blob_of(key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_are_bounded_and_fold() {
        let put = |number: usize, bytes: usize| Mutation::put(format!("{number:04}"), vec![1; bytes]);
        let sizes = |mutations| transactions(mutations).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes((0..5).map(|number| put(number, 1 << 20)).collect()), [3, 2]);
        assert_eq!(sizes((0..2049).map(|number| put(number, 1)).collect()), [2048, 1]);
        assert_eq!(sizes(vec![put(1, 1), put(1, 2), put(2, 9 << 20)]), [1, 1]);
        assert_eq!(transactions(vec![put(1, 1), put(1, 2)])[0][0].value.len(), 2);
    }
}
