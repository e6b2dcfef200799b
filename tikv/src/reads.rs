//! Reads at a timestamp, over regions.
//!
//! Locks of others are reported with their keys, for the caller to resolve. Locks in memory come as an
//! error of the whole answer, which is looked at first; they are gone in a moment, so such a part is read
//! again here.

use std::ops::ControlFlow;

use store::{
    Key, KeyError, KeyRange, KvPair, KvResult, LockInfo, LockKind, MvccInfo, MvccWrite, ReadContext,
    ScanRequest, Value, WriteKind,
};
use types::{Error, Timestamp};

use crate::backoff::{Backoff, Pause};
use crate::cluster::Cluster;
use crate::key_error::{key_error, key_of};
use crate::pd::Passed;
use crate::proto::kvrpcpb;
use crate::walk::{Direction, after_key, after_part, whole};

/// Pairs of one request of a scan.
const PAGE_PAIRS: usize = 1024;

fn head(context: &ReadContext) -> Option<kvrpcpb::Context> {
    let raw = |starts: &[Timestamp]| starts.iter().map(|start_ts| start_ts.0).collect();
    Some(kvrpcpb::Context {
        resolved_locks: raw(&context.resolved_locks),
        committed_locks: raw(&context.committed_locks),
        ..Default::default()
    })
}

/// A scan of a region's part; downwards, ranges are given from their end.
fn scan_call(
    request: &ScanRequest,
    part: &KeyRange,
    limit: usize,
    context: &ReadContext,
    ts: Passed,
) -> kvrpcpb::ScanRequest {
    let (start, end) = if request.reverse { (&part.end, &part.start) } else { (&part.start, &part.end) };
    kvrpcpb::ScanRequest {
        context: head(context),
        start_key: start.clone(),
        end_key: end.clone(),
        limit: limit as u32,
        version: ts.raw(),
        key_only: request.key_only,
        reverse: request.reverse,
    }
}

/// A pair of an answer; one with an error has its key only in there.
fn pair(pair: kvrpcpb::KvPair) -> KvPair {
    match pair.error {
        None => KvPair { key: pair.key, value: Ok(pair.value) },
        Some(error) => {
            let error = key_error(error);
            let key = if pair.key.is_empty() { key_of(&error) } else { pair.key };
            KvPair { key, value: Err(error) }
        }
    }
}

impl Cluster {
    /// The timestamp of a read, if it lies neither in the future nor below history.
    async fn readable(&self, ts: Timestamp) -> KvResult<Passed> {
        self.check_history(ts).await?;
        Ok(self.passed(ts).await?)
    }

    /// Reads a key; see [`store::Store::kv_get`].
    ///
    /// # Errors
    /// [`KeyError::Locked`] for somebody else's lock.
    pub(crate) async fn get(&self, key: &[u8], context: &ReadContext) -> KvResult<Option<Value>> {
        let ts = self.readable(context.ts).await?;
        if key.is_empty() {
            return Ok(None);
        }
        let key = Key::copy_from_slice(key);
        let call = kvrpcpb::GetRequest {
            context: head(context),
            key: key.clone(),
            version: ts.raw(),
            ..Default::default()
        };
        let answer = self.at_key(&key, &call, &mut self.backoff()).await?;
        self.history.check(context.ts)?;
        match answer.error {
            Some(error) => Err(key_error(error)),
            None => Ok((!answer.not_found).then_some(answer.value)),
        }
    }

    /// Reads keys, in their order; see [`store::Store::kv_batch_get`].
    ///
    /// # Errors
    /// [`KeyError::Locked`] if a lock in memory stays; other locks are errors of their pairs.
    pub(crate) async fn batch_get(&self, keys: &[Key], context: &ReadContext) -> KvResult<Vec<KvPair>> {
        let ts = self.readable(context.ts).await?;
        let mut wanted: Vec<Key> = keys.iter().filter(|key| !key.is_empty()).cloned().collect();
        let mut pairs = Vec::with_capacity(wanted.len());
        let mut waits = Backoff::new(self.options.lock_wait);
        while !wanted.is_empty() {
            let (mut again, mut refusal) = (Vec::new(), None);
            let make = |keys: &[Key]| kvrpcpb::BatchGetRequest {
                context: head(context),
                keys: keys.to_vec(),
                version: ts.raw(),
                ..Default::default()
            };
            let hand_on = |keys: Vec<Key>, answer: kvrpcpb::BatchGetResponse| {
                match answer.error.map(key_error) {
                    None => pairs.extend(answer.pairs.into_iter().map(pair)),
                    Some(error) => {
                        again.extend(keys);
                        refusal = Some(error);
                    }
                }
                ControlFlow::Continue(())
            };
            self.in_batches(wanted, &self.backoff(), make, hand_on).await?;
            match refusal {
                None => {}
                Some(KeyError::Locked(_)) if waits.wait(Pause::Lock).await => {}
                Some(error) => return Err(error),
            }
            wanted = again;
        }
        self.history.check(context.ts)?;
        pairs.sort_by(|left, right| left.key.cmp(&right.key));
        Ok(pairs)
    }

    /// Reads a range; see [`store::Store::kv_scan`].
    ///
    /// # Errors
    /// [`KeyError::Locked`] if a lock in memory stays; other locks are errors of their pairs.
    pub(crate) async fn scan(&self, request: &ScanRequest, context: &ReadContext) -> KvResult<Vec<KvPair>> {
        let ts = self.readable(context.ts).await?;
        let direction = if request.reverse { Direction::Down } else { Direction::Up };
        let mut pairs: Vec<KvPair> = Vec::new();
        let mut rest = whole(&request.range);
        let mut waits = Backoff::new(self.options.lock_wait);
        let mut page_pairs = PAGE_PAIRS;
        while let Some(range) = rest.take().filter(|_| pairs.len() < request.limit) {
            let limit = (request.limit - pairs.len()).min(page_pairs);
            let make = |part: &KeyRange| scan_call(request, part, limit, context, ts);
            let answered = self.try_at_edge(&range, direction, &mut self.backoff(), make).await?;
            let Some((part, answer)) = answered else {
                // Large rows: a smaller page fits.
                if limit == 1 {
                    return Err(Error::invalid("a row is larger than this client takes").into());
                }
                page_pairs = limit / 2;
                rest = Some(range);
                continue;
            };
            match answer.error.map(key_error) {
                None => {}
                Some(KeyError::Locked(_)) if waits.wait(Pause::Lock).await => {
                    rest = Some(range);
                    continue;
                }
                Some(error) => return Err(error),
            }
            let full = answer.pairs.len() >= limit;
            pairs.extend(answer.pairs.into_iter().map(pair));
            rest = match pairs.last() {
                Some(last) if full => after_key(&range, &last.key, direction),
                _ => after_part(&range, &part, direction),
            };
        }
        self.history.check(context.ts)?;
        Ok(pairs)
    }

    /// Everything about one key; see [`store::Store::mvcc_get`].
    ///
    /// # Errors
    /// If the store fails.
    pub(crate) async fn story(&self, key: &[u8]) -> KvResult<MvccInfo> {
        if key.is_empty() {
            return Ok(MvccInfo::default());
        }
        let key = Key::copy_from_slice(key);
        let call = kvrpcpb::MvccGetByKeyRequest { key: key.clone(), ..Default::default() };
        let answer = self.at_key(&key, &call, &mut self.backoff()).await?;
        if !answer.error.is_empty() {
            return Err(KeyError::Store(Error::unavailable(answer.error)));
        }
        Ok(answer.info.map(|info| told(&key, info)).unwrap_or_default())
    }
}

/// A key's story in the trait's words.
fn told(key: &Key, info: kvrpcpb::MvccInfo) -> MvccInfo {
    let lock = info.lock.and_then(|lock| {
        let kind = match lock.r#type() {
            kvrpcpb::Op::Put | kvrpcpb::Op::Insert => LockKind::Put,
            kvrpcpb::Op::Del => LockKind::Delete,
            kvrpcpb::Op::Lock => LockKind::Lock,
            _ => return None,
        };
        Some(LockInfo {
            key: key.clone(),
            primary: lock.primary,
            start_ts: Timestamp(lock.start_ts),
            // Not told.
            ttl_ms: 0,
            txn_size: 0,
            kind,
            min_commit_ts: Timestamp::ZERO,
        })
    });
    let mut writes = Vec::with_capacity(info.writes.len());
    for write in info.writes {
        let kind = match write.r#type() {
            kvrpcpb::Op::Put | kvrpcpb::Op::Insert => WriteKind::Put,
            kvrpcpb::Op::Del => WriteKind::Delete,
            kvrpcpb::Op::Rollback => WriteKind::Rollback,
            _ => WriteKind::Lock,
        };
        let long = info.values.iter().find(|value| value.start_ts == write.start_ts);
        // Values of more than 255 bytes stand apart.
        let value = match long {
            Some(long) if write.short_value.is_empty() => long.value.clone(),
            _ => write.short_value,
        };
        let commit_ts = Timestamp(write.commit_ts);
        writes.push(MvccWrite {
            kind,
            start_ts: Timestamp(write.start_ts),
            commit_ts,
            value: (kind == WriteKind::Put).then_some(value),
        });
        if write.has_overlapped_rollback {
            // The rollback of a transaction that began when this one committed is a mark on its record.
            let rollback =
                MvccWrite { kind: WriteKind::Rollback, start_ts: commit_ts, commit_ts, value: None };
            writes.push(rollback);
        }
    }
    MvccInfo { lock, writes }
}
