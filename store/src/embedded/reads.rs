//! Reads at a timestamp. The lock table is asked first and the data after, because a commit goes the
//! other way: what is not locked any more is in the data.

use std::ops::Bound;
use std::time::Duration;

use types::{Error, Result, Timestamp};

use super::Inner;
use super::committer::Step;
use super::format::{StoredLock, Version, history_key};
use super::locks::{Lock, LockValue};
use crate::engine::{Engine, KeyBounds, Space};
use crate::traits::{
    Key, KeyError, KeyRange, KvPair, KvResult, LockInfo, LockKind, MvccInfo, MvccWrite, ReadContext,
    ScanRequest, Value, WriteKind,
};

/// How far ahead of the oracle a read waits rather than fails.
const FUTURE_MS_MAX: u64 = 5_000;

/// What a lock does to a reader.
enum Met {
    Blocked(LockInfo),
    /// The transaction is known to have committed: read its value; `None` deletes.
    Through(Option<Value>),
}

impl Inner {
    /// A fresh, unique timestamp.
    pub(crate) async fn timestamp(&self) -> Result<Timestamp> {
        loop {
            self.core.check_open()?;
            if let Some(ts) = self.core.oracle.next() {
                return Ok(ts);
            }
            self.extend_bound(Timestamp::ZERO).await?;
        }
    }

    pub(crate) async fn read_timestamp(&self) -> Result<Timestamp> {
        self.core.check_open()?;
        if self.core.oracle.wants_bound(0) {
            self.extend_bound(Timestamp::ZERO).await?;
        }
        Ok(self.core.oracle.visible())
    }

    async fn extend_bound(&self, least: Timestamp) -> Result<()> {
        self.submit(move |group| {
            group.extend_bound(least);
            Step::Done(())
        })
        .await
    }

    pub(crate) async fn wait_visible(&self, ts: Timestamp) -> Result<()> {
        loop {
            let mut progress = self.core.watch();
            self.core.check_open()?;
            if self.core.oracle.visible() >= ts {
                return Ok(());
            }
            if ts.physical_ms()
                > self.core.oracle.now_ms().saturating_add(FUTURE_MS_MAX).max(self.core.oracle.bound_ms())
            {
                return Err(Error::invalid(format!("timestamp {ts} is in the future")));
            }
            if self.core.oracle.wants_bound(0) {
                self.extend_bound(ts).await?;
                continue;
            }
            // Either a group ends or the clock gets there.
            let _ = tokio::time::timeout(Duration::from_millis(1), progress.changed()).await;
        }
    }

    /// Waits until a read is final, and returns the timestamp to read at.
    async fn readable(&self, ts: Timestamp) -> Result<Timestamp> {
        if ts == Timestamp::MAX {
            return Ok(self.core.oracle.visible());
        }
        self.core.check_history(ts)?;
        self.wait_visible(ts).await?;
        Ok(ts)
    }

    pub(crate) async fn get(&self, key: &[u8], context: &ReadContext) -> KvResult<Option<Value>> {
        let ts = self.readable(context.ts).await?;
        let engine = self.core.engine()?;
        let value = self.get_now(engine.as_ref(), key, context, ts)?;
        self.core.check_history(ts)?;
        Ok(value)
    }

    fn get_now(
        &self,
        engine: &dyn Engine,
        key: &[u8],
        context: &ReadContext,
        ts: Timestamp,
    ) -> KvResult<Option<Value>> {
        loop {
            let lock = self.core.locks().get(key).filter(|lock| lock.blocks(context)).cloned();
            match lock.map(|lock| meet(engine, &lock, context)).transpose()? {
                Some(Some(Met::Blocked(info))) => return Err(KeyError::Locked(Box::new(info))),
                Some(Some(Met::Through(value))) => return Ok(value),
                // It was released in between.
                Some(None) => {}
                None => {
                    let version = self.core.version_at(engine, key, ts)?;
                    return Ok(version.and_then(|version| version.value));
                }
            }
        }
    }

    pub(crate) async fn batch_get(&self, keys: &[Key], context: &ReadContext) -> KvResult<Vec<KvPair>> {
        let ts = self.readable(context.ts).await?;
        let engine = self.core.engine()?;
        let mut pairs = Vec::with_capacity(keys.len());
        for key in keys {
            match self.get_now(engine.as_ref(), key, context, ts) {
                Ok(None) => {}
                Ok(Some(value)) => pairs.push(KvPair { key: key.clone(), value: Ok(value) }),
                Err(error @ KeyError::Locked(_)) => {
                    pairs.push(KvPair { key: key.clone(), value: Err(error) })
                }
                Err(error) => return Err(error),
            }
        }
        self.core.check_history(ts)?;
        Ok(pairs)
    }

    pub(crate) async fn scan(&self, request: &ScanRequest, context: &ReadContext) -> KvResult<Vec<KvPair>> {
        let ts = self.readable(context.ts).await?;
        let engine = self.core.engine()?;
        let pairs = self.scan_now(engine.as_ref(), request, context, ts)?;
        self.core.check_history(ts)?;
        Ok(pairs)
    }

    fn scan_now(
        &self,
        engine: &dyn Engine,
        request: &ScanRequest,
        context: &ReadContext,
        ts: Timestamp,
    ) -> KvResult<Vec<KvPair>> {
        let blocking = self.blocking(request, context);
        let mut locks = blocking.into_iter().peekable();
        let mut entries = engine.range(Space::Main, bounds(&request.range), request.reverse).peekable();
        let mut pairs = Vec::new();
        let before = |left: &Key, right: &Key| if request.reverse { left > right } else { left < right };
        while pairs.len() < request.limit {
            let next_lock = match (locks.peek(), entries.peek()) {
                (None, None) => break,
                (Some(lock), Some(Ok((key, _)))) if lock.info.key == *key => {
                    entries.next();
                    locks.next()
                }
                (Some(lock), Some(Ok((key, _)))) if before(&lock.info.key, key) => locks.next(),
                (Some(_), None) => locks.next(),
                _ => None,
            };
            if let Some(lock) = next_lock {
                let key = lock.info.key.clone();
                match meet(engine, &lock, context)? {
                    Some(Met::Blocked(info)) => {
                        pairs.push(KvPair { key, value: Err(KeyError::Locked(Box::new(info))) });
                    }
                    Some(Met::Through(value)) => push_value(&mut pairs, request, key, value),
                    None => {
                        let version = self.core.version_at(engine, &key, ts)?;
                        push_value(&mut pairs, request, key, version.and_then(|version| version.value));
                    }
                }
                continue;
            }
            let Some(entry) = entries.next() else { break };
            let (key, bytes) = entry?;
            let newest = Version::decode(&key, &bytes)?;
            let version = self.core.not_after(engine, &key, newest, ts)?;
            push_value(&mut pairs, request, key, version.and_then(|version| version.value));
        }
        Ok(pairs)
    }

    /// The locks that a scan meets, in its order.
    fn blocking(&self, request: &ScanRequest, context: &ReadContext) -> Vec<Lock> {
        let table = self.core.locks();
        if table.is_empty() {
            return Vec::new();
        }
        let locks = table.in_range(&request.range).filter(|lock| lock.blocks(context));
        // Every blocking lock gives a pair, so more than the limit are never reached.
        let limit = if context.committed_locks.is_empty() { request.limit } else { usize::MAX };
        if request.reverse {
            locks.rev().take(limit).cloned().collect()
        } else {
            locks.take(limit).cloned().collect()
        }
    }

    pub(crate) fn scan_lock(
        &self,
        range: &KeyRange,
        max_ts: Timestamp,
        limit: usize,
    ) -> Result<Vec<LockInfo>> {
        self.core.check_open()?;
        let limit = if limit == 0 { usize::MAX } else { limit };
        let table = self.core.locks();
        let old = |lock: &&Lock| lock.info.start_ts <= max_ts;
        Ok(table.in_range(range).filter(old).take(limit).map(|lock| lock.info.clone()).collect())
    }

    pub(crate) fn mvcc(&self, key: &[u8]) -> KvResult<MvccInfo> {
        let engine = self.core.engine()?;
        let lock =
            self.core.locks().get(key).filter(|lock| lock.pending.is_none()).map(|lock| lock.info.clone());
        let version_write = |version: Version| MvccWrite {
            kind: if version.value.is_some() { WriteKind::Put } else { WriteKind::Delete },
            start_ts: version.start_ts,
            commit_ts: version.commit_ts,
            value: version.value,
        };
        let mut writes = Vec::new();
        writes.extend(self.core.newest(engine.as_ref(), key)?.map(|(_, version)| version_write(version)));
        let start = Bound::Included(history_key(key, Timestamp::MAX));
        let end = Bound::Included(history_key(key, Timestamp::ZERO));
        for entry in engine.range(Space::History, (start, end), false) {
            writes.push(version_write(Version::decode(key, &entry?.1)?));
        }
        for record in self.core.records(engine.as_ref(), key)? {
            let kind = record.write_kind();
            writes.push(MvccWrite {
                kind,
                start_ts: record.start_ts,
                commit_ts: record.commit_ts,
                value: None,
            });
        }
        writes.sort_by_key(|write| std::cmp::Reverse(write.commit_ts));
        // A version that was moved to history between the two reads is there twice.
        writes.dedup();
        Ok(MvccInfo { lock, writes })
    }
}

fn push_value(pairs: &mut Vec<KvPair>, request: &ScanRequest, key: Key, value: Option<Value>) {
    if let Some(value) = value {
        let value = if request.key_only { Value::new() } else { value };
        pairs.push(KvPair { key, value: Ok(value) });
    }
}

/// What a blocking lock does to a reader; `None` if it has just been released.
fn meet(engine: &dyn Engine, lock: &Lock, context: &ReadContext) -> Result<Option<Met>> {
    if !context.committed_locks.contains(&lock.info.start_ts) {
        return Ok(Some(Met::Blocked(lock.info.clone())));
    }
    let value = match &lock.value {
        LockValue::Staged { value, .. } => value.clone(),
        LockValue::Stored => match engine.get(Space::Locks, &lock.info.key)? {
            None => return Ok(None),
            Some(bytes) => {
                let stored = StoredLock::decode(&lock.info.key, &bytes)?;
                if stored.info.start_ts != lock.info.start_ts {
                    return Ok(None);
                }
                stored.value
            }
        },
    };
    Ok(Some(Met::Through((lock.info.kind == LockKind::Put).then_some(value))))
}

/// The bounds of a range of keys.
pub(crate) fn bounds(range: &KeyRange) -> KeyBounds {
    let end = if range.end.is_empty() { Bound::Unbounded } else { Bound::Excluded(range.end.clone()) };
    (Bound::Included(range.start.clone()), end)
}
