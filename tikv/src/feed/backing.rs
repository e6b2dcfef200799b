//! What a change feed needs of a cluster besides its event streams.
//!
//! Everything that names a region also puts right what is known of it, so that the next look finds better.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use store::{Fate, KeyError, KeyRange, LockInfo, LockKind, ReadContext};
use types::{Error, Result, Timestamp};

use super::failure::Failure;
use super::range_lock::Part;
use crate::backoff::Backoff;
use crate::cluster::Cluster;
use crate::fence::REGIONS_AT_ONCE;
use crate::key;
use crate::pd::Passed;
use crate::region::Region;
use crate::status::by_transaction;
use crate::walk::whole;

/// Locks of one page.
const PAGE_LOCKS: u32 = 1_024;

/// An encoded part as raw keys.
///
/// # Errors
/// `Corrupt` if its bounds are not encoded.
pub(crate) fn raw(part: &Part) -> Result<KeyRange> {
    Ok(KeyRange { start: key::decode(&part.start)?, end: key::decode(&part.end)? })
}

/// The regions that cover an encoded part.
///
/// # Errors
/// `Unavailable` if they are not known in time.
pub(crate) async fn regions(cluster: &Cluster, part: &Part) -> Result<Vec<Arc<Region>>> {
    cluster.regions_of(&raw(part)?).await
}

/// Puts right what is known of a region whose subscription ended.
pub(crate) fn learn(cluster: &Cluster, region: &Region, failure: &Failure) {
    match failure {
        Failure::NotLeader(Some(leader)) if cluster.regions.switch_leader(region, *leader) => {}
        Failure::NotLeader(_) => cluster.regions.invalidate(region),
        Failure::Moved(successors) if successors.is_empty() => cluster.regions.invalidate(region),
        Failure::Moved(successors) => {
            cluster.regions.succeed(region, successors.clone());
        }
        // What is known of a lost store is put right where its stream ends.
        Failure::Lost(_) | Failure::Busy(_) | Failure::Other(_) | Failure::Fatal(_) => {}
    }
}

/// Finishes locks of dead transactions in a range with starts at or below a timestamp, and leaves living
/// ones alone.
///
/// # Errors
/// `Unavailable` if a region does not answer in time.
pub(crate) async fn finish_orphans(cluster: &Cluster, range: &KeyRange, ts: Timestamp) -> Result<()> {
    let ts = cluster.passed(ts).await?;
    let mut backoff = Backoff::new(cluster.options.lock_wait);
    let mut rest = whole(range);
    while let Some(range) = rest {
        let (locks, after) = cluster.lock_page(&range, ts, PAGE_LOCKS, &mut backoff).await?;
        let writing = locks.into_iter().filter(|lock| lock.kind != LockKind::Lock).collect();
        for (start_ts, locks) in by_transaction(writing) {
            let keys = || locks.iter().map(|lock: &LockInfo| lock.key.clone()).collect();
            match cluster.fate(&locks[0], Timestamp::ZERO).await? {
                Fate::Committed(commit_ts) => cluster.finish(start_ts, Some(commit_ts), keys()).await?,
                Fate::RolledBack => cluster.finish(start_ts, None, keys()).await?,
                Fate::Pushed | Fate::Alive => {}
            }
        }
        rest = after;
    }
    Ok(())
}

/// The least start of the locks in ranges that write, with starts at or below a timestamp. What is not locked
/// by then commits above the timestamp, or is applied.
///
/// # Errors
/// `Unavailable` if a region does not answer in time.
pub(crate) async fn oldest_lock(
    cluster: &Cluster,
    ranges: &[KeyRange],
    ts: Timestamp,
) -> Result<Option<Timestamp>> {
    let ts = cluster.passed(ts).await?;
    let mut parts = Vec::new();
    for range in ranges {
        parts.extend(cluster.parts_of(range).await?);
    }
    let looked = futures::stream::iter(parts).map(|part| oldest_lock_of_part(cluster, part, ts));
    let least = |oldest: Option<Timestamp>, found: Option<Timestamp>| async move {
        Ok::<_, Error>(oldest.into_iter().chain(found).min())
    };
    looked.buffer_unordered(REGIONS_AT_ONCE).try_fold(None, least).await
}

async fn oldest_lock_of_part(cluster: &Cluster, part: KeyRange, ts: Passed) -> Result<Option<Timestamp>> {
    let mut backoff = Backoff::new(cluster.options.lock_wait);
    let (mut oldest, mut rest) = (None, whole(&part));
    while let Some(range) = rest {
        let (locks, after) = cluster.lock_page(&range, ts, PAGE_LOCKS, &mut backoff).await?;
        let writing = locks.iter().filter(|lock| lock.kind != LockKind::Lock);
        oldest = writing.map(|lock| lock.start_ts).chain(oldest).min();
        rest = after;
    }
    Ok(oldest)
}

/// Reads a key.
///
/// # Errors
/// `Unavailable` if a region does not answer in time, or a lock stays in the way.
pub(crate) async fn get(cluster: &Cluster, key: &Bytes, ts: Timestamp) -> Result<Option<Bytes>> {
    let mut waits = Backoff::new(cluster.options.lock_wait);
    let mut context = ReadContext::at(ts);
    loop {
        match cluster.get(key, &context).await {
            Err(KeyError::Locked(lock)) => {
                let start_ts = lock.start_ts;
                if cluster.settle_below(vec![*lock], ts, &mut waits).await? {
                    context.resolved_locks.push(start_ts);
                }
            }
            other => return other.map_err(Error::from),
        }
    }
}
