//! Change feeds of a cluster.
//!
//! A question for the changes of a span is answered by a tail, which follows the range all the time, if there
//! is one and it comes so far soon ([`tails`]); else by a scan: a fence, so that everything in the span is
//! applied, then one subscription per region up to the end of its scan ([`scans`]). The scan's result is
//! where a tail begins. A live feed is a puller of its own ([`live`]). Nothing is persisted: what is asked for
//! again is fetched again.
//!
//! Stores answer questions about collected history without a word, so the safe point is asked for before and
//! after each scan; it only rises. What is at hand was true when it came and stays so.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use store::traits::{ChangePage, FeedStream};
use store::{Change, Key, KeyRange};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use types::{Error, Result, Timestamp};

use crate::cluster::Cluster;
use crate::key;
use buffer::{Buffer, BufferOptions, Position, SharedBuffer};
use matcher::Room;
use range_lock::Part;
use scans::Scans;
use stream::Streams;
use tails::{Tail, Tails};

pub use options::FeedOptions;

mod options;

mod buffer;
mod matcher;
mod range_lock;

mod backing;
mod failure;
mod stream;

mod puller;

mod live;
mod scans;
mod tails;

/// Questions for so few changes are peeks: nobody is about to follow the range. Whoever wants to know whether
/// there are more than 64 asks for one more.
const PEEK_CHANGES: usize = 65;
/// How long waiting for a change lasts at most: it keeps the tails of whoever waits in use.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Fences at a time.
const FENCES_MAX: usize = 32;
/// How often tails and kept scans are looked after.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// What all feeds of a connection share.
pub(crate) struct Shared {
    cluster: Arc<Cluster>,
    options: FeedOptions,
    streams: Arc<Streams>,
    stop: CancellationToken,
    room: Arc<Room>,
    newest: watch::Sender<Timestamp>,
    fences: Semaphore,
}

impl Shared {
    /// A change was seen.
    fn saw(&self, commit_ts: Timestamp) {
        self.newest.send_if_modified(|newest| {
            let is_newer = commit_ts > *newest;
            *newest = commit_ts.max(*newest);
            is_newer
        });
    }

    /// Returns when every transaction that commits at or below a timestamp is applied in a range.
    async fn fence(&self, range: &KeyRange, ts: Timestamp) -> Result<()> {
        let closed = |_| Error::closed("the store is closed");
        let _turn = self.fences.acquire().await.map_err(closed)?;
        self.cluster.fence(range, ts, self.cluster.options.lock_wait).await
    }

    fn buffer(&self, floor: Timestamp) -> SharedBuffer {
        let options = BufferOptions {
            memory_bytes_max: self.options.memory_bytes_max,
            disk_bytes_max: self.options.disk_bytes_max,
            directory: self.options.directory.clone(),
        };
        SharedBuffer::new(Buffer::new(options, floor))
    }
}

/// The change feeds of one connection; dropping them ends them.
pub(crate) struct Feeds {
    shared: Arc<Shared>,
    tails: Arc<Tails>,
    scans: Arc<Scans>,
}

impl Drop for Feeds {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}

impl Feeds {
    /// The feeds of a cluster; their tasks are the cluster's, and end when it does.
    pub(crate) fn new(cluster: Arc<Cluster>) -> Feeds {
        let options = cluster.options.feed.clone();
        let stop = cluster.tasks.stop_token().child_token();
        let shared = Arc::new(Shared {
            streams: Streams::new(Arc::clone(&cluster), stop.clone(), options.scans_per_store_max),
            stop: stop.clone(),
            room: Room::new(options.open_bytes_max),
            newest: watch::Sender::new(Timestamp::ZERO),
            fences: Semaphore::new(FENCES_MAX),
            options,
            cluster,
        });
        let (tails, scans) = (Arc::new(Tails::default()), Arc::new(Scans::default()));
        let (kept, kept_scans, options) = (Arc::clone(&tails), Arc::clone(&scans), shared.options.clone());
        drop(shared.cluster.tasks.spawn("feed upkeep", async move {
            while stop.run_until_cancelled(tokio::time::sleep(UPKEEP_EVERY)).await.is_some() {
                kept.look_after(&options);
                kept_scans.look_after(&options);
            }
        }));
        Feeds { shared, tails, scans }
    }

    /// See [`store::Store::changes`].
    pub(crate) async fn changes(
        &self,
        ranges: &[KeyRange],
        from: Timestamp,
        to: Timestamp,
        next: Option<(Timestamp, Key)>,
        limit: usize,
    ) -> Result<ChangePage> {
        self.check_open()?;
        let ranges = merged(ranges);
        if from >= to || ranges.is_empty() {
            return Ok(ChangePage::default());
        }
        // As it was heard of last: what is at hand asks nobody, and a scan looks again.
        if next.is_none() {
            self.shared.cluster.check_history(from).await?;
        }
        if limit == 1 && next.is_none() {
            return self.peek(ranges, from, to).await;
        }
        let follow = limit > PEEK_CHANGES;
        let sources = ranges.iter().map(|range| self.source(range, from, to, follow));
        let buffers = futures::future::try_join_all(sources).await?;
        let sources: Vec<(KeyRange, SharedBuffer)> = ranges.into_iter().zip(buffers).collect();
        let begin = match next {
            Some(next) => next,
            None => (from.next()?, Bytes::new()),
        };
        page(&sources, &begin, to, limit.max(1))
    }

    /// The first of some changes: whether there is one is all that is looked for where nothing is at hand,
    /// and said by a page that is empty and has a next.
    async fn peek(&self, ranges: Vec<KeyRange>, from: Timestamp, to: Timestamp) -> Result<ChangePage> {
        let begin = (from.next()?, Bytes::new());
        let (mut warm, mut cold) = (Vec::new(), Vec::new());
        for range in ranges {
            match self.at_hand(&range, from, to).await {
                Some(buffer) => warm.push((range, buffer)),
                None => cold.push(range),
            }
        }
        let found = page(&warm, &begin, to, 1)?;
        if cold.is_empty() {
            return Ok(found);
        }
        if found.changes.is_empty() {
            self.check_history(from).await?;
            if !scans::peek(&self.shared, &cold, from, to).await? {
                return Ok(found);
            }
        }
        Ok(ChangePage { changes: Vec::new(), next: Some(begin) })
    }

    /// The changes of a range in a span, from wherever they are.
    async fn source(
        &self,
        range: &KeyRange,
        from: Timestamp,
        to: Timestamp,
        follow: bool,
    ) -> Result<SharedBuffer> {
        if let Some(buffer) = self.at_hand(range, from, to).await {
            return Ok(buffer);
        }
        self.check_history(from).await?;
        let buffer = self.scans.scan(&self.shared, range, from, to).await?;
        if follow && self.tails.begin(&self.shared, range, from, to, &buffer) {
            self.scans.forget(range, from, to);
        }
        Ok(buffer)
    }

    /// The changes of a range in a span, where no scan is needed for them.
    async fn at_hand(&self, range: &KeyRange, from: Timestamp, to: Timestamp) -> Option<SharedBuffer> {
        if let Some(tail) = self.tails.find(range, from)
            && tail.reaches(to, self.shared.options.tail_patience).await
        {
            return Some(tail.buffer());
        }
        self.scans.kept(range, from, to)
    }

    /// See [`store::Store::resolved`].
    pub(crate) async fn resolved(&self, ranges: &[KeyRange]) -> Result<Timestamp> {
        self.check_open()?;
        // A timestamp first: what is not locked afterwards commits above it, or is applied. A tail would
        // say less: it is as far behind as the stores' interval.
        let now = self.shared.cluster.timestamp().await?;
        let oldest = backing::oldest_lock(&self.shared.cluster, &merged(ranges), now).await?;
        Ok(oldest.map_or(now, |oldest| now.min(oldest.prev())))
    }

    /// See [`store::Store::subscribe`].
    pub(crate) async fn subscribe(&self, ranges: Vec<KeyRange>, from: Timestamp) -> Result<FeedStream> {
        self.check_open()?;
        self.check_history(from).await?;
        Ok(live::live(&self.shared, &merged(&ranges), from))
    }

    /// See [`store::Store::wait_change`].
    pub(crate) async fn wait_change(&self, ts: Timestamp, timeout_ms: u64) -> Result<Timestamp> {
        let mut newest = self.shared.newest.subscribe();
        let most = if self.tails.is_empty() { self.shared.options.poll } else { WAIT_MAX };
        let wait = Duration::from_millis(timeout_ms).min(most);
        tokio::select! {
            () = self.shared.stop.cancelled() => {}
            () = tokio::time::sleep(wait) => {}
            // Cancel safe: it only looks. The sender is ours and stays.
            _ = newest.wait_for(|newest| *newest > ts) => {}
        }
        self.check_open()?;
        self.shared.cluster.timestamp().await
    }

    /// See [`store::Store::cut`]: how far the tails of the ranges have come. Where nothing is followed yet,
    /// or a tail lags behind for longer than anybody should wait, it is a new timestamp, and a fence finds
    /// what lies below.
    pub(crate) async fn cut(
        &self,
        ranges: &[KeyRange],
        after: Timestamp,
        timeout_ms: u64,
    ) -> Result<Timestamp> {
        self.check_open()?;
        let tails: Option<Vec<Arc<Tail>>> =
            merged(ranges).iter().map(|range| self.tails.find(range, after)).collect();
        let Some(tails) = tails.filter(|tails| !tails.is_empty()) else {
            return self.wait_change(after, timeout_ms).await;
        };
        let now = if timeout_ms > 0 {
            let now = self.wait_change(after, timeout_ms).await?;
            let seen = *self.shared.newest.borrow();
            if seen > after && !self.all_reach(&tails, seen).await {
                return Ok(now);
            }
            now
        } else {
            self.shared.cluster.timestamp().await?
        };
        let frontier = tails.iter().map(|tail| tail.frontier()).min().unwrap_or(after).max(after);
        let lag_ms = u128::from(now.physical_ms().saturating_sub(frontier.physical_ms()));
        let is_late = lag_ms > 2 * self.shared.options.tail_patience.as_millis();
        Ok(if is_late { now } else { frontier })
    }

    /// Waits a little until all tails have come so far; whether they have.
    async fn all_reach(&self, tails: &[Arc<Tail>], to: Timestamp) -> bool {
        let patience = self.shared.options.tail_patience;
        let reached = futures::future::join_all(tails.iter().map(|tail| tail.reaches(to, patience))).await;
        reached.into_iter().all(|reached| reached)
    }

    fn check_open(&self) -> Result<()> {
        if self.shared.stop.is_cancelled() { Err(Error::closed("the store is closed")) } else { Ok(()) }
    }

    async fn check_history(&self, from: Timestamp) -> Result<()> {
        let safe_point = self.shared.cluster.renew_safe_point().await?;
        if from < safe_point { Err(gone(from, safe_point)) } else { Ok(()) }
    }
}

fn gone(from: Timestamp, safe_point: Timestamp) -> Error {
    Error::history_gone(format!("changes after {from}: the cluster keeps history from {safe_point} on"))
}

/// Raw ranges as encoded parts.
fn encoded(ranges: &[KeyRange]) -> Vec<Part> {
    ranges.iter().map(|range| Part::new(key::encode(&range.start), key::encode(&range.end))).collect()
}

/// The ranges in order, without overlaps.
fn merged(ranges: &[KeyRange]) -> Vec<KeyRange> {
    let nonempty = |range: &&KeyRange| range.end.is_empty() || range.start < range.end;
    let mut sorted: Vec<KeyRange> = ranges.iter().filter(nonempty).cloned().collect();
    sorted.sort_by(|left, right| left.start.cmp(&right.start));
    let mut merged: Vec<KeyRange> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match merged.last_mut() {
            Some(last) if last.end.is_empty() => {}
            Some(last) if range.start < last.end => {
                if key::end_reaches(&range.end, &last.end) {
                    last.end = range.end;
                }
            }
            _ => merged.push(range),
        }
    }
    merged
}

/// A page from several buffers, each for a range of its own.
fn page(
    sources: &[(KeyRange, SharedBuffer)],
    begin: &Position,
    to: Timestamp,
    limit: usize,
) -> Result<ChangePage> {
    let mut changes: Vec<Change> = Vec::new();
    let mut next: Option<Position> = None;
    for (range, buffer) in sources {
        let (page, following) = buffer.lock().read(begin, to, range, limit)?;
        changes.extend(page);
        next = next.into_iter().chain(following).min();
    }
    changes.sort_by(|left, right| (left.commit_ts, &left.key).cmp(&(right.commit_ts, &right.key)));
    // What one source has not shown yet comes before what others have shown behind it.
    if let Some(next) = &next {
        changes
            .truncate(changes.partition_point(|change| (change.commit_ts, &change.key) < (next.0, &next.1)));
    }
    if changes.len() > limit {
        let first_left = &changes[limit];
        next = Some((first_left.commit_ts, first_left.key.clone()));
        changes.truncate(limit);
    }
    Ok(ChangePage { changes, next })
}

#[cfg(test)]
mod tests;
