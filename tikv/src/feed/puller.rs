//! Pulls the changes of ranges from the regions that hold them, whatever happens to regions and streams.
//!
//! A puller owns the cover of its ranges ([`RangeLock`]), locates and subscribes what is not subscribed,
//! matches what arrives and fills a [`Buffer`]. Each part begins where itself had come to, never where
//! others had. A following puller goes on until it is stopped; one with an end fences each region, has it
//! scanned once, and is done when all are.
//!
//! It never waits for whoever reads the buffer: above the buffer's limit it gives its subscriptions up and
//! takes them up again, from where they were, when there is room.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use store::KeyRange;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use types::{Error, Result, Timestamp};

use super::Shared;
use super::buffer::SharedBuffer;
use super::matcher::Matcher;
use super::range_lock::{Part, RangeLock};
use super::stream::{Delivery, StoreStream};
use crate::region::Region;

mod news;
mod orphans;
mod subscribing;

/// Deliveries of one stream that wait for their puller.
const INBOX: usize = 16;
/// Deliveries that are taken before progress is told.
const BATCH: usize = 64;
/// How often a puller looks around without being told to.
const TICK: Duration = Duration::from_millis(500);
/// Until when a puller goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Until it is stopped.
    Follow,
    /// Until every change up to the timestamp is there.
    Reach(Timestamp),
    /// Until any change up to the timestamp is there, or it is clear that there is none.
    Peek(Timestamp),
}

impl Goal {
    /// The last timestamp that counts.
    fn end(self) -> Timestamp {
        match self {
            Goal::Follow => Timestamp::MAX,
            Goal::Reach(to) | Goal::Peek(to) => to,
        }
    }
}

/// How far a puller has come.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    /// Everything at or below it is in the buffer.
    pub(crate) frontier: Timestamp,
    /// How many changes have come.
    pub(crate) n_changes: u64,
    /// Why it ended.
    pub(crate) failed: Option<Error>,
}

/// One region's subscription, from before it is begun.
struct Subscription {
    part: Part,
    /// The part as raw keys.
    range: KeyRange,
    region: Arc<Region>,
    n_failures: u32,
    matcher: Matcher,
    stream: Option<Arc<StoreStream>>,
    /// Held until the scan has ended.
    permit: Option<OwnedSemaphorePermit>,
    risen_at: Instant,
    looked_at: Option<Instant>,
    is_initialized: bool,
}

/// Permission to begin, or why not.
type Started = (u64, Result<OwnedSemaphorePermit>);

/// What a puller waited for.
enum Step {
    Located(Result<Vec<Arc<Region>>>),
    Started(Started),
    Released((Bytes, u64)),
    News,
    Tick,
    Stop,
}

/// Pulls the changes of ranges.
pub(crate) struct Puller {
    shared: Arc<Shared>,
    /// Its number among the owners of streams.
    owner: u64,
    goal: Goal,
    ranges: Vec<Part>,
    lock: RangeLock,
    buffer: SharedBuffer,
    progress: watch::Sender<Progress>,
    n_changes: u64,
    subscriptions: BTreeMap<u64, Subscription>,
    inbox_of_all: mpsc::Sender<Delivery>,
    inbox: mpsc::Receiver<Delivery>,
    locating: Option<BoxFuture<'static, Result<Vec<Arc<Region>>>>>,
    locate_at: Instant,
    starting: FuturesUnordered<BoxFuture<'static, Started>>,
    /// Failed parts, which keep their place until they may be tried again.
    releasing: FuturesUnordered<BoxFuture<'static, (Bytes, u64)>>,
    /// The least start of the scans that ended since history was last looked at.
    verify: Option<Timestamp>,
    is_paused: bool,
    moved_at: Instant,
    /// A timestamp drawn one look at orphans ago.
    orphan_ts: Option<Timestamp>,
}

impl Puller {
    /// A puller of encoded ranges, in order and apart, from a timestamp on.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        ranges: Vec<Part>,
        from: Timestamp,
        goal: Goal,
        buffer: SharedBuffer,
    ) -> (Puller, watch::Receiver<Progress>) {
        let (progress, watched) = watch::channel(Progress { frontier: from, n_changes: 0, failed: None });
        let (inbox_of_all, inbox) = mpsc::channel(INBOX);
        let puller = Puller {
            shared: Arc::clone(shared),
            owner: shared.streams.next_id(),
            goal,
            lock: RangeLock::new(&ranges, from),
            ranges,
            buffer,
            progress,
            n_changes: 0,
            subscriptions: BTreeMap::new(),
            inbox_of_all,
            inbox,
            locating: None,
            locate_at: Instant::now(),
            starting: FuturesUnordered::new(),
            releasing: FuturesUnordered::new(),
            verify: None,
            is_paused: false,
            moved_at: Instant::now(),
            orphan_ts: None,
        };
        (puller, watched)
    }

    /// Pulls until the goal is reached or the token says stop.
    ///
    /// # Errors
    /// `Closed` when it was stopped, `Corrupt` and history that is gone, and what no further try mends.
    pub(crate) async fn run(mut self, stop: CancellationToken) -> Result<()> {
        let ended = self.pull(&stop).await;
        if let Err(error) = &ended {
            self.progress.send_modify(|progress| progress.failed = Some(error.clone()));
        }
        ended
    }

    async fn pull(&mut self, stop: &CancellationToken) -> Result<()> {
        let mut batch = Vec::with_capacity(BATCH);
        let mut next_tick = Instant::now() + TICK;
        loop {
            self.publish().await?;
            if self.is_done() {
                return Ok(());
            }
            let wake_at = self.locate().map_or(next_tick, |locate_at| locate_at.min(next_tick));
            let locating = async {
                match &mut self.locating {
                    Some(locating) => locating.await,
                    None => std::future::pending().await,
                }
            };
            let step = tokio::select! {
                () = stop.cancelled() => Step::Stop,
                located = locating => Step::Located(located),
                Some(started) = self.starting.next() => Step::Started(started),
                Some(released) = self.releasing.next() => Step::Released(released),
                // Cancel safe: nothing is taken unless all of it is handed over.
                _ = self.inbox.recv_many(&mut batch, BATCH) => Step::News,
                () = tokio::time::sleep_until(wake_at) => Step::Tick,
            };
            match step {
                Step::Stop => return Err(Error::closed("the change feed is closed")),
                Step::Located(located) => self.located(located)?,
                Step::Started((id, permit)) => self.started(id, permit)?,
                Step::Released((start, id)) => self.lock.unlock(&start, id, true),
                Step::News => {
                    for Delivery { id, news } in batch.drain(..) {
                        self.take(id, news).await?;
                    }
                    self.pause_if_full()?;
                }
                Step::Tick if Instant::now() >= next_tick => {
                    next_tick = Instant::now() + TICK;
                    self.tick().await?;
                }
                Step::Tick => {}
            }
        }
    }

    /// Whether there is what a peek looks for.
    fn is_found(&self) -> bool {
        matches!(self.goal, Goal::Peek(_)) && self.n_changes > 0
    }

    fn is_done(&self) -> bool {
        let is_found = self.is_found();
        let is_reached = self.lock.frontier().is_none_or(|frontier| frontier >= self.goal.end());
        self.goal != Goal::Follow && self.verify.is_none() && (is_found || is_reached)
    }

    /// Tells how far it has come; not before it is sure that what was scanned was still there. As long as
    /// regions are scanned there is nothing to tell, so one look at history is enough for all of them.
    async fn publish(&mut self) -> Result<()> {
        let told = self.progress.borrow().frontier;
        if self.lock.frontier().is_none_or(|frontier| frontier <= told) && !self.is_found() {
            return Ok(());
        }
        if let Some(start) = self.verify {
            match self.shared.cluster.renew_safe_point().await {
                Ok(safe_point) if start < safe_point => return Err(super::gone(start, safe_point)),
                Ok(_) => self.verify = None,
                Err(error) if error.kind() == types::ErrorKind::Unavailable => {
                    tracing::warn!(%error, "the safe point of the change feed's history is not known");
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        let (frontier, n_changes) = (self.lock.frontier(), self.n_changes);
        self.progress.send_if_modified(|progress| {
            let frontier = frontier.unwrap_or(progress.frontier);
            assert!(
                frontier >= progress.frontier,
                "the frontier fell from {} to {frontier}",
                progress.frontier
            );
            let is_new = frontier > progress.frontier || n_changes > progress.n_changes;
            (progress.frontier, progress.n_changes) = (frontier, n_changes);
            is_new
        });
        Ok(())
    }

    /// Gives every subscription up when the buffer is full.
    fn pause_if_full(&mut self) -> Result<()> {
        if self.is_paused || !self.buffer.lock().is_full() {
            return Ok(());
        }
        if self.goal != Goal::Follow {
            return Err(Error::unavailable(
                "the changes of this time take more than the room for them on disk",
            ));
        }
        if !self.can_be_read()? {
            return Ok(());
        }
        tracing::warn!("a change feed pauses: nobody takes what it holds");
        self.is_paused = true;
        for (id, subscription) in std::mem::take(&mut self.subscriptions) {
            subscription.end(id);
            self.lock.unlock(&subscription.part.start, id, false);
        }
        Ok(())
    }

    /// Whether it waits for its turn with others.
    fn is_queued(&self) -> bool {
        self.subscriptions.values().any(|subscription| subscription.stream.is_none())
    }

    /// Whether something is there for a reader to take; what is not resolved makes no room by waiting.
    fn can_be_read(&self) -> Result<bool> {
        let least = self.buffer.lock().least()?;
        Ok(least.is_some() && least <= self.lock.frontier())
    }

    async fn tick(&mut self) -> Result<()> {
        if self.is_paused && (self.buffer.lock().has_room() || !self.can_be_read()?) {
            self.is_paused = false;
        }
        if self.goal == Goal::Follow {
            self.look_for_orphans().await
        } else if self.moved_at.elapsed() > self.shared.options.stall_max && !self.is_queued() {
            Err(Error::unavailable("the change feed does not come on"))
        } else {
            Ok(())
        }
    }
}

impl Subscription {
    /// Tells the store, if it knows.
    fn end(&self, id: u64) {
        if let Some(stream) = &self.stream {
            stream.deregister(id);
        }
    }
}

impl Drop for Puller {
    fn drop(&mut self) {
        for (id, subscription) in &self.subscriptions {
            subscription.end(*id);
        }
        self.shared.streams.leave(self.owner);
    }
}
