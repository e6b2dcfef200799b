//! Reads: a key, keys, a range. Each first takes note of its timestamp, then meets locks in memory, then
//! reads the engine.

use bytes::Bytes;
use store::{KeyError, KeyRange, ReadContext, ScanRequest, Store};
use tikv::proto::kvrpcpb;
use types::Timestamp;

use super::answer::Wording;
use super::{Mvcc, Side};
use crate::check::{self, Refusal};
use crate::regions::RegionState;

impl Mvcc {
    /// The context of a read in the engine, which has nothing above its newest timestamp.
    async fn reading(
        &self,
        context: Option<&kvrpcpb::Context>,
        version: u64,
    ) -> Result<ReadContext, Refusal> {
        let starts = |starts: &Vec<u64>| starts.iter().copied().map(Timestamp).collect();
        let asked = Timestamp(version);
        let ts = if asked == Timestamp::MAX { asked } else { asked.min(self.store.read_timestamp().await?) };
        Ok(ReadContext {
            ts,
            resolved_locks: context.map(|context| starts(&context.resolved_locks)).unwrap_or_default(),
            committed_locks: context.map(|context| starts(&context.committed_locks)).unwrap_or_default(),
        })
    }

    /// What every read does first.
    fn begin_read(
        &self,
        side: &Side,
        store_id: u64,
        rpc: &str,
        context: Option<&kvrpcpb::Context>,
        version: u64,
    ) -> Result<RegionState, Refusal> {
        let region = self.region(side, store_id, context)?;
        self.check_read(rpc, Timestamp(version))?;
        if !context.is_some_and(|context| context.stale_read) {
            self.bump_max_ts(store_id, Timestamp(version));
        }
        Ok(region)
    }

    pub(crate) async fn get(
        &self,
        store_id: u64,
        request: kvrpcpb::GetRequest,
    ) -> Result<kvrpcpb::GetResponse, Refusal> {
        let side = self.shared().await;
        let context = request.context.as_ref();
        let region = self.begin_read(&side, store_id, "KvGet", context, request.version)?;
        if let Some(error) =
            check::wrong_api("get", context).or_else(|| check::outside(&region, &request.key))
        {
            return Ok(kvrpcpb::GetResponse { error: Some(error), ..kvrpcpb::GetResponse::default() });
        }
        let mut reading = self.reading(context, request.version).await?;
        if request.need_commit_ts {
            // A lock has no commit timestamp to answer with.
            reading.committed_locks.clear();
        }
        if let Some(error) = memory_lock(&side, &request.key, None, &reading) {
            return Ok(kvrpcpb::GetResponse { error: Some(error), ..kvrpcpb::GetResponse::default() });
        }
        let mut answer = kvrpcpb::GetResponse::default();
        match self.store.kv_get(&request.key, &reading).await {
            Ok(value) => match self.collected(&request.key, reading.ts, value).await? {
                None => answer.not_found = true,
                Some(value) => answer.value = value,
            },
            Err(error) => {
                answer.error = Some(wording(&side).word(&error)?);
                return Ok(answer);
            }
        }
        if request.need_commit_ts && !answer.not_found {
            let story = self.story(&request.key).await?;
            answer.commit_ts = story.version_at(reading.ts).map_or(0, |version| version.commit_ts.0);
        }
        Ok(answer)
    }

    /// What is left of a value once garbage collection has passed: below it only the newest version before
    /// it stays, and that only if it is no delete. Nobody is told.
    async fn collected(
        &self,
        key: &[u8],
        ts: Timestamp,
        value: Option<Bytes>,
    ) -> Result<Option<Bytes>, Refusal> {
        let passed = Timestamp(self.gc_passed.load(std::sync::atomic::Ordering::SeqCst));
        if ts >= passed || value.is_none() {
            return Ok(value);
        }
        let story = self.story(key).await?;
        let kept = story.version_at(passed).is_some_and(|version| version.commit_ts <= ts);
        Ok(value.filter(|_| kept))
    }

    pub(crate) async fn batch_get(
        &self,
        store_id: u64,
        request: kvrpcpb::BatchGetRequest,
    ) -> Result<kvrpcpb::BatchGetResponse, Refusal> {
        let side = self.shared().await;
        let context = request.context.as_ref();
        let region = self.begin_read(&side, store_id, "KvBatchGet", context, request.version)?;
        let mut reading = self.reading(context, request.version).await?;
        if request.need_commit_ts {
            reading.committed_locks.clear();
        }
        let mut answer = kvrpcpb::BatchGetResponse::default();
        if let Some(error) = request.keys.iter().find_map(|key| memory_lock(&side, key, None, &reading)) {
            answer.pairs = vec![error_pair(error.clone())];
            answer.error = Some(error);
            return Ok(answer);
        }
        for key in &request.keys {
            if let Some(error) = check::outside(&region, key) {
                answer.pairs.push(error_pair(error));
                continue;
            }
            let value = match self.store.kv_get(key, &reading).await {
                Ok(value) => self.collected(key, reading.ts, value).await?,
                Err(error @ KeyError::Locked(_)) => {
                    answer.pairs.push(error_pair(wording(&side).word(&error)?));
                    continue;
                }
                Err(error) => {
                    answer.error = Some(wording(&side).word(&error)?);
                    return Ok(answer);
                }
            };
            let Some(value) = value else { continue };
            let mut pair = kvrpcpb::KvPair { key: key.clone(), value, ..kvrpcpb::KvPair::default() };
            if request.need_commit_ts {
                let story = self.story(key).await?;
                pair.commit_ts = story.version_at(reading.ts).map_or(0, |version| version.commit_ts.0);
            }
            answer.pairs.push(pair);
        }
        Ok(answer)
    }

    pub(crate) async fn scan(
        &self,
        store_id: u64,
        request: kvrpcpb::ScanRequest,
    ) -> Result<kvrpcpb::ScanResponse, Refusal> {
        let side = self.shared().await;
        let context = request.context.as_ref();
        let region = self.begin_read(&side, store_id, "KvScan", context, request.version)?;
        let (lower, upper) = match request.reverse {
            false => (&request.start_key, &request.end_key),
            true => (&request.end_key, &request.start_key),
        };
        if let Some(error) = check::range_outside(&region, lower, upper) {
            return Ok(scan_error(error));
        }
        let whole = region.raw_range();
        let start = lower.max(&whole.start).clone();
        let end = if upper.is_empty() { whole.end } else { upper.clone() };
        let range = KeyRange { start, end };
        let reading = self.reading(context, request.version).await?;
        if let Some(error) = memory_lock(&side, &range.start, Some(&range), &reading) {
            return Ok(scan_error(error));
        }
        if !range.end.is_empty() && range.start >= range.end {
            return Ok(kvrpcpb::ScanResponse::default());
        }
        let limit = usize::try_from(request.limit).unwrap_or(usize::MAX);
        let passed = Timestamp(self.gc_passed.load(std::sync::atomic::Ordering::SeqCst));
        let scan = ScanRequest { range, limit, key_only: request.key_only, reverse: request.reverse };
        let pairs = match self.store.kv_scan(&scan, &reading).await {
            Ok(pairs) => pairs,
            Err(error) => return Ok(scan_error(wording(&side).word(&error)?)),
        };
        let mut answer = kvrpcpb::ScanResponse::default();
        for pair in pairs {
            match pair.value {
                Ok(value) => {
                    let kept = reading.ts >= passed
                        || self.collected(&pair.key, reading.ts, Some(Bytes::new())).await?.is_some();
                    if kept {
                        answer.pairs.push(kvrpcpb::KvPair {
                            key: pair.key,
                            value,
                            ..kvrpcpb::KvPair::default()
                        });
                    }
                }
                Err(error) => answer.pairs.push(error_pair(wording(&side).word(&error)?)),
            }
        }
        Ok(answer)
    }
}

fn wording(side: &Side) -> Wording<'_> {
    static NONE: Bytes = Bytes::new();
    Wording { side, start_ts: Timestamp::ZERO, primary: &NONE, commit_ts: Timestamp::ZERO }
}

fn error_pair(error: kvrpcpb::KeyError) -> kvrpcpb::KvPair {
    kvrpcpb::KvPair { error: Some(error), ..kvrpcpb::KvPair::default() }
}

fn scan_error(error: kvrpcpb::KeyError) -> kvrpcpb::ScanResponse {
    kvrpcpb::ScanResponse {
        pairs: vec![error_pair(error.clone())],
        error: Some(error),
        ..kvrpcpb::ScanResponse::default()
    }
}

/// The lock in memory that a read meets at a key, or in a range.
fn memory_lock(
    side: &Side,
    key: &Bytes,
    range: Option<&KeyRange>,
    reading: &ReadContext,
) -> Option<kvrpcpb::KeyError> {
    let blocks = |lock: &&kvrpcpb::LockInfo| {
        lock.lock_type() != kvrpcpb::Op::Lock
            && lock.lock_version <= reading.ts.0
            && lock.min_commit_ts <= reading.ts.0
            && !reading.resolved_locks.contains(&Timestamp(lock.lock_version))
    };
    let mut met =
        side.memory_locks.range(key.clone()..).map(|(_, lock)| lock).take_while(|lock| match range {
            None => lock.key == *key,
            Some(range) => range.contains(&lock.key),
        });
    let lock = met.find(blocks)?.clone();
    Some(kvrpcpb::KeyError { locked: Some(lock), ..kvrpcpb::KeyError::default() })
}
