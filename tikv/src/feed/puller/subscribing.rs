//! From a part nobody is subscribed to, to a subscription, and back when it fails.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use types::{Error, ErrorKind, Result};

use super::{Goal, Instant, Matcher, OwnedSemaphorePermit, Puller, Subscription};
use crate::feed::backing;
use crate::feed::failure::Failure;
use crate::feed::range_lock::{Lock, Part};
use crate::proto::cdcpb::{ChangeDataRequest, ExtraOp, KvApi, ScanPriority};
use crate::region::Region;

/// The wait for a map of regions that fits what is held.
const MAP_WAIT: Duration = Duration::from_millis(100);
/// The waits before a failed part is tried again.
const RETRY_MS_FIRST: u64 = 50;
const RETRY_MS_MAX: u64 = 2_000;
/// Regions that a peek looks into at a time.
const PEEKED_MAX: usize = 4;

/// Between half of and the whole of a doubled time.
fn retry_wait(n_failures: u32, least_ms: u64) -> Duration {
    let whole_ms = RETRY_MS_FIRST.saturating_mul(1 << n_failures.min(16)).min(RETRY_MS_MAX);
    Duration::from_millis((whole_ms - rand::random_range(0..=whole_ms / 2)).max(least_ms.min(RETRY_MS_MAX)))
}

/// Whether a further try may mend it.
fn is_passing(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Conflict)
}

impl Puller {
    /// What is to be subscribed.
    fn wanted(&self) -> Vec<Part> {
        let end = self.goal.end();
        self.lock.unlocked().into_iter().filter(|one| one.ts < end).map(|one| one.part).collect()
    }

    /// Begins to look for the regions of what is not subscribed; says when to ask again.
    pub(super) fn locate(&mut self) -> Option<Instant> {
        let may_not = self.is_paused || self.locating.is_some() || !self.has_free_place();
        if may_not {
            return None;
        }
        let parts = self.wanted();
        if parts.is_empty() {
            return None;
        }
        if Instant::now() < self.locate_at {
            return Some(self.locate_at);
        }
        let cluster = Arc::clone(&self.shared.cluster);
        let locating = async move {
            let mut found: Vec<Arc<Region>> = Vec::new();
            for part in parts {
                found.extend(backing::regions(&cluster, &part).await?);
            }
            Ok(found)
        };
        self.locating = Some(locating.boxed());
        None
    }

    fn has_free_place(&self) -> bool {
        !matches!(self.goal, Goal::Peek(_)) || self.subscriptions.len() < PEEKED_MAX
    }

    /// Holds the parts of the regions that were found, and asks for permission to subscribe them.
    pub(super) fn located(&mut self, located: Result<Vec<Arc<Region>>>) -> Result<()> {
        self.locating = None;
        let located = match located {
            Ok(located) => located,
            Err(error) if is_passing(&error) => {
                tracing::debug!(%error, "regions of a change feed are not known");
                self.locate_at = Instant::now() + MAP_WAIT;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if self.is_paused {
            return Ok(());
        }
        let mut seen = BTreeSet::new();
        for region in located {
            if seen.insert(region.id) {
                self.hold(&region)?;
            }
        }
        Ok(())
    }

    fn hold(&mut self, region: &Arc<Region>) -> Result<()> {
        let whole = Part::new(region.start.clone(), region.end.clone());
        // Who follows holds regions whole, so that successors wait for their predecessors to end.
        let within = if self.goal == Goal::Follow { self.ranges.clone() } else { self.wanted() };
        for part in within.iter().map(|range| range.intersection(&whole)).filter(|part| !part.is_empty()) {
            if !self.has_free_place() {
                return Ok(());
            }
            let id = self.shared.streams.next_id();
            match self.lock.lock(&part, id, region.epoch.version) {
                Lock::Held { ts, n_failures } => {
                    let subscription = Subscription {
                        range: backing::raw(&part)?,
                        region: Arc::clone(region),
                        n_failures,
                        matcher: Matcher::new(ts, Arc::clone(&self.shared.room)),
                        stream: None,
                        permit: None,
                        risen_at: Instant::now(),
                        looked_at: None,
                        is_initialized: false,
                        part,
                    };
                    self.subscriptions.insert(id, subscription);
                    self.start(id);
                }
                Lock::Stale => {
                    // A region whose other end is not subscribed finds itself here; that is no news.
                    let is_it = |held: &Subscription| held.region.id == region.id && held.part == part;
                    if !self.subscriptions.values().any(is_it) {
                        self.shared.cluster.regions.invalidate(region);
                        self.locate_at = Instant::now() + MAP_WAIT;
                    }
                }
                Lock::Wait => self.locate_at = Instant::now() + MAP_WAIT,
                Lock::Outside => return Err(Error::corrupt("a change feed lost the cover of its ranges")),
            }
        }
        Ok(())
    }

    /// Asks for permission: a fence where there is an end, then a place among the store's scans.
    fn start(&mut self, id: u64) {
        let subscription = &self.subscriptions[&id];
        let scans = self.shared.streams.scans(subscription.region.leader.store_id);
        let (shared, range) = (Arc::clone(&self.shared), subscription.range.clone());
        let fence = (self.goal != Goal::Follow).then(|| self.goal.end());
        let starting = async move {
            if let Some(to) = fence
                && let Err(error) = shared.fence(&range, to).await
            {
                return (id, Err(error));
            }
            let permit = scans.acquire_owned().await;
            (id, permit.map_err(|_| Error::closed("the change feed is closed")))
        };
        self.starting.push(starting.boxed());
    }

    /// Subscribes, now that it may.
    pub(super) fn started(&mut self, id: u64, permit: Result<OwnedSemaphorePermit>) -> Result<()> {
        self.moved_at = Instant::now();
        let Some(subscription) = self.subscriptions.get_mut(&id) else { return Ok(()) };
        // The fence has its own patience; who waits for an end is told why it did not help.
        subscription.permit = Some(permit?);
        let stream = self.shared.streams.stream(subscription.region.leader.store_id, self.owner);
        let priority =
            if self.goal == Goal::Follow { ScanPriority::PriorityLow } else { ScanPriority::PriorityHigh };
        let request = ChangeDataRequest {
            region_id: subscription.region.id,
            region_epoch: Some(subscription.region.epoch),
            checkpoint_ts: subscription.matcher.start().0,
            start_key: subscription.part.start.clone(),
            end_key: subscription.part.end.clone(),
            request_id: id,
            extra_op: ExtraOp::ReadOldValue.into(),
            kv_api: KvApi::TiDb.into(),
            scan_priority: priority.into(),
            ..ChangeDataRequest::default()
        };
        match stream.register(request, self.inbox_of_all.clone()) {
            Ok(()) => {
                subscription.stream = Some(stream);
                Ok(())
            }
            Err(failure) => self.fail(id, failure),
        }
    }

    /// A subscription has ended: its part keeps what it has, and is tried again after a while.
    pub(super) fn fail(&mut self, id: u64, failure: Failure) -> Result<()> {
        let Some(subscription) = self.subscriptions.remove(&id) else { return Ok(()) };
        subscription.end(id);
        let region = &subscription.region;
        backing::learn(&self.shared.cluster, region, &failure);
        let least_ms = match failure {
            Failure::Fatal(error) => return Err(error),
            Failure::Busy(wait_ms) => wait_ms,
            Failure::Lost(reason) | Failure::Other(reason) => {
                tracing::debug!(region = region.id, reason, "a subscription ended");
                0
            }
            Failure::NotLeader(_) | Failure::Moved(_) => 0,
        };
        let wait = retry_wait(subscription.n_failures, least_ms);
        let start = subscription.part.start.clone();
        self.releasing.push(
            async move {
                tokio::time::sleep(wait).await;
                (start, id)
            }
            .boxed(),
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_end() {
        for n_failures in 0..40 {
            let wait_ms = u64::try_from(retry_wait(n_failures, 0).as_millis()).unwrap();
            let whole_ms = 50u64.saturating_mul(1 << n_failures.min(16)).min(2_000);
            assert!(whole_ms / 2 <= wait_ms && wait_ms <= whole_ms, "{wait_ms} ms after {n_failures}");
        }
        assert!(retry_wait(0, 1_000) >= Duration::from_secs(1), "the store says how long");
        assert!(retry_wait(0, 1_000_000) <= Duration::from_secs(2), "within reason");
    }
}
