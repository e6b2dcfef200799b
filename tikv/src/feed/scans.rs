//! Scans on demand: all changes of a range in a span, without following it.
//!
//! Each region is fenced at the span's end, so that everything in the span is applied, and then subscribed up
//! to the end of its scan. The result is kept for a while under what was asked for, so that a
//! sequence of pages scans once; callers who ask for the same at the same time wait for one scan.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use store::{Key, KeyRange};
use tokio::sync::OnceCell;
use tokio::time::Instant;
use types::{Result, Timestamp};

use super::buffer::SharedBuffer;
use super::options::FeedOptions;
use super::puller::{Goal, Puller};
use super::{Shared, encoded};

/// What was asked for: a range and a span.
type Asked = (Key, Key, Timestamp, Timestamp);

struct Kept {
    result: Arc<OnceCell<SharedBuffer>>,
    used_at: Instant,
}

/// The scans under way and the results that are kept.
#[derive(Default)]
pub(crate) struct Scans {
    kept: Mutex<BTreeMap<Asked, Kept>>,
}

fn asked(range: &KeyRange, from: Timestamp, to: Timestamp) -> Asked {
    (range.start.clone(), range.end.clone(), from, to)
}

impl Scans {
    /// Has a range scanned, or takes the result of somebody who had.
    ///
    /// # Errors
    /// History that is gone; `Unavailable` if a lock stays in the way or regions do not answer.
    pub(crate) async fn scan(
        &self,
        shared: &Arc<Shared>,
        range: &KeyRange,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<SharedBuffer> {
        let result = {
            let mut all = self.all();
            let kept = all
                .entry(asked(range, from, to))
                .or_insert_with(|| Kept { result: Arc::new(OnceCell::new()), used_at: Instant::now() });
            kept.used_at = Instant::now();
            Arc::clone(&kept.result)
        };
        let scanning = || async {
            let buffer = shared.buffer(from);
            let ranges = encoded(std::slice::from_ref(range));
            let (puller, _) = Puller::new(shared, ranges, from, Goal::Reach(to), buffer.clone());
            puller.run(shared.stop.clone()).await.map(|()| buffer)
        };
        result.get_or_try_init(scanning).await.cloned()
    }

    /// The result of a scan that is over.
    pub(crate) fn kept(&self, range: &KeyRange, from: Timestamp, to: Timestamp) -> Option<SharedBuffer> {
        let mut all = self.all();
        let kept = all.get_mut(&asked(range, from, to))?;
        kept.used_at = Instant::now();
        kept.result.get().cloned()
    }

    /// Somebody else keeps the result.
    pub(crate) fn forget(&self, range: &KeyRange, from: Timestamp, to: Timestamp) {
        self.all().remove(&asked(range, from, to));
    }

    /// Drops what nobody asks for any more, and the oldest of too many.
    pub(crate) fn look_after(&self, options: &FeedOptions) {
        let mut all = self.all();
        let is_under_way = |kept: &Kept| Arc::strong_count(&kept.result) > 1;
        all.retain(|_, kept| is_under_way(kept) || kept.used_at.elapsed() < options.scan_idle);
        while all.len() > options.scans_kept_max {
            let idle = all.iter().filter(|(_, kept)| !is_under_way(kept));
            let Some(oldest) = idle.min_by_key(|(_, kept)| kept.used_at).map(|(asked, _)| asked.clone())
            else {
                return;
            };
            all.remove(&oldest);
        }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Asked, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether there is any change in ranges and a span; looks no further than to the first one.
///
/// # Errors
/// As [`Scans::scan`].
pub(crate) async fn peek(
    shared: &Arc<Shared>,
    ranges: &[KeyRange],
    from: Timestamp,
    to: Timestamp,
) -> Result<bool> {
    let buffer = shared.buffer(from);
    let (puller, progress) = Puller::new(shared, encoded(ranges), from, Goal::Peek(to), buffer);
    puller.run(shared.stop.clone()).await?;
    let n_changes = progress.borrow().n_changes;
    Ok(n_changes > 0)
}
