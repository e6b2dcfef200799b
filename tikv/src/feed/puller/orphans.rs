//! Looks for locks of dead transactions that hold a part's resolved timestamp down.
//!
//! Locks of living transactions do that too, and are left alone until their time is over.

use std::sync::Arc;
use std::time::Duration;

use types::Result;

use super::{Instant, Puller};
use crate::feed::backing;

/// How long one look may take.
const LOOK_MAX: Duration = Duration::from_secs(10);
/// The parts that are looked at, at a time.
const LOOKS_MAX: usize = 8;
/// How long a draw of a timestamp may keep news waiting.
const DRAW_MAX: Duration = Duration::from_secs(1);

impl Puller {
    /// Starts to finish the locks of dead transactions in parts that have stood still.
    pub(super) async fn look_for_orphans(&mut self) -> Result<()> {
        let after = self.shared.options.orphan_after;
        let is_stuck = |risen_at: Instant, looked_at: Option<Instant>| {
            risen_at.elapsed() > after && looked_at.is_none_or(|at| at.elapsed() > after.mul_f64(2.5))
        };
        let stuck: Vec<u64> = self
            .subscriptions
            .iter()
            .filter(|(_, one)| one.is_initialized && is_stuck(one.risen_at, one.looked_at))
            .map(|(id, _)| *id)
            .take(LOOKS_MAX)
            .collect();
        if stuck.is_empty() {
            self.orphan_ts = None;
            return Ok(());
        }
        // Not near now: what began after the parts stood still is not what holds them.
        let Some(ts) = self.orphan_ts.take() else {
            let drawn = tokio::time::timeout(DRAW_MAX, self.shared.cluster.timestamp()).await;
            self.orphan_ts = drawn.ok().and_then(Result::ok);
            return Ok(());
        };
        for id in stuck {
            let Some(subscription) = self.subscriptions.get_mut(&id) else { continue };
            subscription.looked_at = Some(Instant::now());
            let (shared, range) = (Arc::clone(&self.shared), subscription.range.clone());
            let (stop, region) = (self.shared.stop.clone(), subscription.region.id);
            drop(self.shared.cluster.tasks.spawn("orphans", async move {
                let finishing = backing::finish_orphans(&shared.cluster, &range, ts);
                let finishing = Box::pin(tokio::time::timeout(LOOK_MAX, finishing));
                match stop.run_until_cancelled(finishing).await {
                    Some(Ok(Err(error))) => tracing::warn!(region, %error, "locks that hold a change feed"),
                    Some(Err(_)) => tracing::warn!(region, "locks that hold a change feed are not decided"),
                    Some(Ok(Ok(()))) | None => {}
                }
            }));
        }
        Ok(())
    }
}
