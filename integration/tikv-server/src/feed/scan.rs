//! The scan at the beginning of a subscription: for each key its lock, then its versions from the newest
//! down to the checkpoint. It costs a look at every key of the range that was ever written.

use std::sync::atomic::Ordering;
use std::time::Duration;

use prost::Message;
use tikv::proto::cdcpb;
use types::Timestamp;

use super::{Subscription, rows};
use crate::check::Refusal;
use crate::mvcc::{Mvcc, Side, Story};
use crate::shared::Shared;

/// An event of a scan ends when its rows have so many bytes.
const EVENT_BYTES: usize = 32 << 10;
/// How often a scan looks whether a slow client has made room.
const ROOM_PAUSE: Duration = Duration::from_millis(2);

impl Mvcc {
    /// The rows of a subscription's scan as of now.
    pub(super) async fn snapshot(
        &self,
        side: &Side,
        subscription: &Subscription,
    ) -> Result<Vec<cdcpb::Row>, Refusal> {
        let mut found = Vec::new();
        let Some(range) = &subscription.range else { return Ok(found) };
        let passed = Timestamp(self.gc_passed.load(Ordering::SeqCst));
        let keys: Vec<store::Key> = side.keys_in(range).cloned().collect();
        for key in keys {
            let story = self.story(&key).await?.after_collection(passed);
            if let Some(lock) = story.0.lock.as_ref().filter(|lock| lock.kind != store::LockKind::Lock) {
                let value = self.locked_value(lock).await?;
                let source = side.extra(&key, lock.start_ts).txn_source;
                found.push(rows::locked(lock, value, story.value_at(lock.start_ts), source));
            }
            for version in story.versions_after(subscription.checkpoint_ts) {
                let source = side.extra(&key, version.start_ts).txn_source;
                let old_value = story.value_at(version.commit_ts.prev());
                found.push(rows::committed(&key, version, old_value, source));
            }
        }
        found.retain(|row| subscription.wants(row));
        Ok(found)
    }
}

impl Story {
    fn versions_after(&self, ts: Timestamp) -> impl Iterator<Item = &store::MvccWrite> {
        let data = move |write: &&store::MvccWrite| {
            matches!(write.kind, store::WriteKind::Put | store::WriteKind::Delete) && write.commit_ts > ts
        };
        self.0.writes.iter().filter(data)
    }
}

impl Shared {
    /// Sends a scan in pieces, as fast as the client reads, and its end with the last piece.
    pub(super) async fn send_scan(&self, subscription: &Subscription, rows: Vec<cdcpb::Row>) {
        let permit = self.scans.acquire().await;
        let mut piece = Vec::new();
        let mut bytes = 0;
        for row in rows {
            bytes += row.encoded_len();
            piece.push(row);
            if bytes >= EVENT_BYTES {
                self.pause_scan(subscription).await;
                subscription.send_rows(std::mem::take(&mut piece));
                bytes = 0;
            }
        }
        self.pause_scan(subscription).await;
        piece.push(rows::initialized());
        subscription.send_rows(piece);
        subscription.note_initialized();
        drop(permit);
    }

    async fn pause_scan(&self, subscription: &Subscription) {
        let pause = self.pace.scan_pause();
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        self.pace.scans_flowing().await;
        while !subscription.connection.has_room() && !subscription.is_ended() {
            tokio::time::sleep(ROOM_PAUSE).await;
        }
    }
}
