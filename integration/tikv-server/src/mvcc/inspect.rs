//! What lists rather than reads: the locks of a range, and everything about a key.

use std::sync::atomic::Ordering;

use store::{KeyRange, Store, WriteKind};
use tikv::proto::kvrpcpb;
use types::Timestamp;

use super::answer::short;
use super::{Mvcc, Side};
use crate::check::{self, Refusal};

/// What a protected rollback has for a value.
const PROTECTED: &[u8] = b"p";

impl Mvcc {
    /// Lists locks; clips the range to the region without a word, and is a read at its timestamp.
    pub(crate) async fn scan_lock(
        &self,
        store_id: u64,
        request: kvrpcpb::ScanLockRequest,
    ) -> Result<kvrpcpb::ScanLockResponse, Refusal> {
        let side = self.shared().await;
        let region = self.region(&side, store_id, request.context.as_ref())?;
        let max_ts = Timestamp(request.max_version);
        self.check_known("KvScanLock", "max_version", max_ts)?;
        self.bump_max_ts(store_id, max_ts);
        let whole = region.raw_range();
        let start = request.start_key.clone().max(whole.start);
        let end = match (request.end_key.is_empty(), whole.end.is_empty()) {
            (true, _) => whole.end,
            (false, true) => request.end_key.clone(),
            (false, false) => request.end_key.clone().min(whole.end),
        };
        let mut answer = kvrpcpb::ScanLockResponse::default();
        if !end.is_empty() && start >= end {
            return Ok(answer);
        }
        let range = KeyRange { start, end };
        let in_memory = side.memory_locks.values();
        let mut met = in_memory.filter(|lock| range.contains(&lock.key) && lock.lock_version <= max_ts.0);
        if let Some(lock) = met.next() {
            let locked = Some(lock.clone());
            answer.error = Some(kvrpcpb::KeyError { locked, ..kvrpcpb::KeyError::default() });
            return Ok(answer);
        }
        let limit = usize::try_from(request.limit).unwrap_or(usize::MAX);
        let locks = self.store.scan_lock(&range, max_ts, limit).await;
        let locks = locks.map_err(|error| tonic::Status::internal(format!("{error:?}")))?;
        answer.locks = locks.iter().map(|lock| side.show_lock(lock)).collect();
        answer.locks.extend(side.pessimistic_in(&range, max_ts).cloned());
        answer.locks.sort_by(|left, right| left.key.cmp(&right.key));
        if limit > 0 {
            answer.locks.truncate(limit);
        }
        Ok(answer)
    }

    pub(crate) async fn mvcc_get(
        &self,
        store_id: u64,
        request: kvrpcpb::MvccGetByKeyRequest,
    ) -> Result<kvrpcpb::MvccGetByKeyResponse, Refusal> {
        let side = self.shared().await;
        let region = self.region(&side, store_id, request.context.as_ref())?;
        let mut answer = kvrpcpb::MvccGetByKeyResponse::default();
        if let Some(error) = check::outside(&region, &request.key) {
            answer.error = error.abort;
            return Ok(answer);
        }
        answer.info = Some(self.info(&side, &request.key).await?);
        Ok(answer)
    }

    async fn info(&self, side: &Side, key: &[u8]) -> Result<kvrpcpb::MvccInfo, Refusal> {
        let passed = Timestamp(self.gc_passed.load(Ordering::SeqCst));
        let story = self.story(key).await?.after_collection(passed);
        let mut info = kvrpcpb::MvccInfo::default();
        if let Some(lock) = &story.0.lock {
            let value = self.locked_value(lock).await?;
            let kind = side.show_lock(lock).lock_type();
            let kept = short(&value).unwrap_or_default();
            if kept.len() != value.len() {
                info.values.push(kvrpcpb::MvccValue { start_ts: lock.start_ts.0, value });
            }
            info.lock = Some(kvrpcpb::MvccLock {
                r#type: kind.into(),
                start_ts: lock.start_ts.0,
                primary: lock.primary.clone(),
                short_value: kept,
            });
        }
        if let Some(lock) = side.pessimistic.get(key) {
            info.lock = Some(kvrpcpb::MvccLock {
                r#type: lock.lock_type,
                start_ts: lock.lock_version,
                primary: lock.primary_lock.clone(),
                ..kvrpcpb::MvccLock::default()
            });
        }
        for write in &story.0.writes {
            let overlaps = |commit_ts: Timestamp| {
                let others = story.0.writes.iter().filter(|other| other.commit_ts == commit_ts);
                others
                    .filter(|other| {
                        (other.kind == WriteKind::Rollback) != (write.kind == WriteKind::Rollback)
                    })
                    .count()
                    > 0
            };
            let overlapped = overlaps(write.commit_ts);
            let mut shown = kvrpcpb::MvccWrite {
                start_ts: write.start_ts.0,
                commit_ts: write.commit_ts.0,
                ..kvrpcpb::MvccWrite::default()
            };
            match write.kind {
                // A real store marks the other record instead.
                WriteKind::Rollback if overlapped => continue,
                WriteKind::Rollback => {
                    shown.set_type(kvrpcpb::Op::Rollback);
                    if side.extra(key, write.start_ts).protected {
                        shown.short_value = PROTECTED.into();
                    }
                }
                WriteKind::Delete => shown.set_type(kvrpcpb::Op::Del),
                WriteKind::Lock => shown.set_type(kvrpcpb::Op::Lock),
                WriteKind::Put => {
                    let value = write.value.clone().unwrap_or_default();
                    match short(&value) {
                        Some(value) => shown.short_value = value,
                        None => info.values.push(kvrpcpb::MvccValue { start_ts: write.start_ts.0, value }),
                    }
                }
            }
            shown.has_overlapped_rollback = overlapped;
            info.writes.push(shown);
        }
        Ok(info)
    }
}

impl Mvcc {
    /// Cuts a region at raw keys.
    pub(crate) async fn split_region(
        &self,
        store_id: u64,
        request: kvrpcpb::SplitRegionRequest,
    ) -> Result<kvrpcpb::SplitRegionResponse, Refusal> {
        let mut side = self.exclusive().await;
        let region = self.region(&side, store_id, request.context.as_ref())?;
        let single = (!request.split_key.is_empty()).then_some(&request.split_key);
        let cuts = request.split_keys.iter().chain(single).map(|key| crate::keys::encode(key)).collect();
        let parts = self.split(&mut side, region.id(), &cuts).await?;
        let regions: Vec<_> = parts.into_iter().map(|part| part.meta).collect();
        Ok(kvrpcpb::SplitRegionResponse {
            left: regions.first().filter(|_| regions.len() == 2).cloned(),
            right: regions.last().filter(|_| regions.len() == 2).cloned(),
            regions,
            ..kvrpcpb::SplitRegionResponse::default()
        })
    }
}
