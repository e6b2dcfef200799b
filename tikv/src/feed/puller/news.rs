//! What arrives for subscriptions: rows are matched and buffered, resolved timestamps raise the cover.

use store::Change;
use types::{ErrorKind, Result, Timestamp};

use super::{Goal, Instant, Puller};
use crate::feed::backing;
use crate::feed::failure::Failure;
use crate::feed::matcher::Matched;
use crate::feed::stream::News;
use crate::proto::cdcpb::Row;

impl Puller {
    /// Takes what is new of a subscription; of an ended one nothing counts any more.
    pub(super) async fn take(&mut self, id: u64, news: News) -> Result<()> {
        self.moved_at = Instant::now();
        let Some(subscription) = self.subscriptions.get_mut(&id) else { return Ok(()) };
        match news {
            News::Rows(rows) => self.rows(id, rows).await,
            News::Resolved(ts) => {
                if subscription.matcher.resolve(ts) && self.goal == Goal::Follow {
                    subscription.risen_at = Instant::now();
                    self.lock.advance(&subscription.part.start, id, ts);
                }
                Ok(())
            }
            News::Failed(failure) => self.fail(id, failure),
        }
    }

    async fn rows(&mut self, id: u64, rows: Vec<Row>) -> Result<()> {
        let Some(subscription) = self.subscriptions.get_mut(&id) else { return Ok(()) };
        let mut matched = Vec::new();
        let mut broken = None;
        for row in rows {
            // A store that does not understand the bounds sends the whole region.
            let is_ours = row.key.is_empty() || subscription.range.contains(&row.key);
            if is_ours && let Err(error) = subscription.matcher.row(row, &mut matched) {
                broken = Some(error);
                break;
            }
        }
        let is_initialized = subscription.matcher.is_initialized();
        for one in matched {
            match self.complete(one).await {
                Ok(Some(change)) => self.keep(change)?,
                Ok(None) => {}
                Err(error) => broken = Some(error),
            }
        }
        match broken {
            Some(error) if error.kind() == ErrorKind::Unavailable => {
                tracing::warn!(%error, "a change feed subscribes a region anew");
                self.fail(id, Failure::Other(error.to_string()))
            }
            Some(error) => Err(error),
            None => {
                if is_initialized {
                    self.initialized(id);
                }
                Ok(())
            }
        }
    }

    /// A change with its values; `None` if it lies above the end.
    async fn complete(&mut self, matched: Matched) -> Result<Option<Change>> {
        let end = self.goal.end();
        match matched {
            Matched::Change(change) => Ok(Some(change).filter(|change| change.commit_ts <= end)),
            Matched::Unread { commit_ts, .. } if commit_ts > end => Ok(None),
            Matched::Unread { key, start_ts, commit_ts } => {
                let cluster = &self.shared.cluster;
                let value = backing::get(cluster, &key, commit_ts).await?;
                let old_value = backing::get(cluster, &key, commit_ts.prev()).await?;
                Ok(Some(Change { key, start_ts, commit_ts, value, old_value }))
            }
        }
    }

    fn keep(&mut self, change: Change) -> Result<()> {
        let commit_ts = change.commit_ts;
        self.buffer.lock().push(change)?;
        self.n_changes += 1;
        if self.goal == Goal::Follow {
            self.shared.saw(commit_ts);
        }
        Ok(())
    }

    /// A scan has ended, perhaps long ago.
    fn initialized(&mut self, id: u64) {
        let Some(subscription) = self.subscriptions.get_mut(&id) else { return };
        if subscription.is_initialized {
            return;
        }
        subscription.is_initialized = true;
        subscription.permit = None;
        subscription.risen_at = Instant::now();
        let start = subscription.matcher.start();
        self.verify = Some(self.verify.map_or(start, |least: Timestamp| least.min(start)));
        if self.goal != Goal::Follow
            && let Some(subscription) = self.subscriptions.remove(&id)
        {
            subscription.end(id);
            self.lock.advance(&subscription.part.start, id, self.goal.end());
            self.lock.unlock(&subscription.part.start, id, false);
        }
    }
}
