//! Live feeds: a puller of one's own, read up to its frontier, again and again.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use store::KeyRange;
use store::traits::{FeedEvent, FeedStream};
use tokio::sync::watch;
use tokio_util::sync::DropGuard;
use types::{Error, Result, Timestamp};

use super::buffer::{Position, SharedBuffer};
use super::puller::{Goal, Progress, Puller};
use super::{Shared, encoded};

/// How many changes are taken at a time.
const PAGE: usize = 1_024;

/// A feed of the changes of ranges after a timestamp; its puller ends with it.
pub(crate) fn live(shared: &Arc<Shared>, ranges: &[KeyRange], from: Timestamp) -> FeedStream {
    let buffer = shared.buffer(from);
    let (puller, progress) = Puller::new(shared, encoded(ranges), from, Goal::Follow, buffer.clone());
    let stop = shared.stop.child_token();
    let token = stop.clone();
    drop(shared.cluster.tasks.spawn("live feed", async move {
        // Whoever reads the feed is told how it ended.
        if let Err(error) = puller.run(token).await {
            tracing::debug!(%error, "a live feed ended");
        }
    }));
    let span = None;
    let feed = Feed { buffer, progress, sent: from, span, ready: VecDeque::new(), _stop: stop.drop_guard() };
    let events = futures::stream::unfold(Some(feed), |feed| async move {
        let mut feed = feed?;
        match feed.next().await {
            Ok(event) => Some((Ok(event), Some(feed))),
            Err(error) => Some((Err(error), None)),
        }
    });
    events.boxed()
}

struct Feed {
    buffer: SharedBuffer,
    progress: watch::Receiver<Progress>,
    /// The resolved timestamp sent last.
    sent: Timestamp,
    /// The end of what is being sent, and where its next page begins.
    span: Option<(Timestamp, Position)>,
    ready: VecDeque<FeedEvent>,
    _stop: DropGuard,
}

impl Feed {
    async fn next(&mut self) -> Result<FeedEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            if let Some((to, position)) = self.span.take() {
                self.fill(to, &position)?;
                continue;
            }
            let Progress { frontier, failed, .. } = self.progress.borrow_and_update().clone();
            if frontier > self.sent {
                self.span = Some((frontier, (self.sent.next()?, Bytes::new())));
            } else if let Some(error) = failed {
                return Err(error);
            } else {
                self.progress.changed().await.map_err(|_| Error::closed("the store is closed"))?;
            }
        }
    }

    fn fill(&mut self, to: Timestamp, position: &Position) -> Result<()> {
        let mut buffer = self.buffer.lock();
        let (changes, next) = buffer.read(position, to, &KeyRange::all(), PAGE)?;
        self.ready.extend(changes.into_iter().map(FeedEvent::Change));
        if let Some(next) = next {
            self.span = Some((to, next));
        } else {
            buffer.trim(to);
            self.sent = to;
            self.ready.push_back(FeedEvent::Resolved(to));
        }
        Ok(())
    }
}
