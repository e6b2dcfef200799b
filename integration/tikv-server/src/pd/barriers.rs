//! What keeps history: the safe point, and barriers under names that run out.
//!
//! The older call and the newer ones share one table, as in a newer PD. A barrier below the safe point is
//! not accepted: the older call says so by answering a higher timestamp, the newer one fails.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use prost::Message;
use tikv::proto::pdpb;
use tonic::Status;

/// The name that stands for garbage collection itself.
const RESERVED: &str = "gc_worker";
/// A life that does not end.
const FOREVER: u64 = u64::MAX;

#[derive(Clone, Debug)]
struct Barrier {
    ts: u64,
    ends_ms: u64,
}

#[derive(Debug, Default)]
struct Table {
    safe_point: u64,
    barriers: BTreeMap<String, Barrier>,
}

/// The safe point and the barriers.
#[derive(Debug, Default)]
pub(crate) struct Barriers {
    table: Mutex<Table>,
}

/// The table, as it is written down.
#[derive(Clone, PartialEq, Message)]
struct Kept {
    #[prost(uint64, tag = "1")]
    safe_point: u64,
    #[prost(message, repeated, tag = "2")]
    barriers: Vec<KeptBarrier>,
}

#[derive(Clone, PartialEq, Message)]
struct KeptBarrier {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(uint64, tag = "2")]
    ts: u64,
    #[prost(uint64, tag = "3")]
    ends_ms: u64,
}

impl Barriers {
    /// As bytes, for a restart.
    pub(crate) fn encoded(&self) -> Bytes {
        let table = self.table(0);
        let kept = |(name, barrier): (&String, &Barrier)| KeptBarrier {
            name: name.clone(),
            ts: barrier.ts,
            ends_ms: barrier.ends_ms,
        };
        let barriers = table.barriers.iter().map(kept).collect();
        Kept { safe_point: table.safe_point, barriers }.encode_to_vec().into()
    }

    /// Reads what [`Barriers::encoded`] wrote.
    pub(crate) fn decoded(bytes: &[u8]) -> Option<Barriers> {
        let Kept { safe_point, barriers } = Kept::decode(bytes).ok()?;
        let barrier = |kept: KeptBarrier| (kept.name, Barrier { ts: kept.ts, ends_ms: kept.ends_ms });
        let barriers = barriers.into_iter().map(barrier).collect();
        Some(Barriers { table: Mutex::new(Table { safe_point, barriers }) })
    }

    fn table(&self, now_ms: u64) -> MutexGuard<'_, Table> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.barriers.retain(|_, barrier| barrier.ends_ms > now_ms);
        table
    }

    pub(crate) fn safe_point(&self) -> u64 {
        self.table(0).safe_point
    }

    /// Moves the safe point, which never goes back; returns what it is.
    pub(crate) fn raise_safe_point(&self, safe_point: u64) -> u64 {
        let mut table = self.table(0);
        table.safe_point = table.safe_point.max(safe_point);
        table.safe_point
    }

    /// Moves the safe point as far as barriers allow, as garbage collection does; returns what it is.
    pub(crate) fn advance(&self, wanted: u64, now_ms: u64) -> u64 {
        let mut table = self.table(now_ms);
        table.advance(wanted);
        table.safe_point
    }

    /// The older call: sets a barrier, or deletes it if its life is not positive. Returns the life that is
    /// left and the smallest barrier; if that is above the asked one, that was not accepted.
    pub(crate) fn update_service(&self, name: &str, ttl: i64, safe_point: u64, now_ms: u64) -> (i64, u64) {
        let mut table = self.table(now_ms);
        let mut left = 0;
        if name == RESERVED {
            table.advance(safe_point);
            left = i64::MAX;
        } else if ttl <= 0 {
            table.barriers.remove(name);
        } else if safe_point >= table.safe_point {
            table.barriers.insert(name.to_owned(), Barrier { ts: safe_point, ends_ms: ends(ttl, now_ms) });
            left = ttl;
        }
        // With nobody else garbage collection itself holds the least, at the safe point.
        (left, if name == RESERVED || left == 0 { table.safe_point } else { table.smallest() })
    }

    pub(crate) fn set(
        &self,
        name: &str,
        ts: u64,
        ttl_seconds: i64,
        now_ms: u64,
    ) -> Result<pdpb::GcBarrierInfo, Status> {
        let mut table = self.table(now_ms);
        if name.is_empty() || name == RESERVED || ts == 0 || ttl_seconds <= 0 {
            return Err(Status::invalid_argument("the barrier's name, timestamp or life is not possible"));
        }
        if ts < table.safe_point {
            let safe_point = table.safe_point;
            return Err(Status::unknown(format!(
                "barrier ts {ts} is before the transaction safe point {safe_point}"
            )));
        }
        table.barriers.insert(name.to_owned(), Barrier { ts, ends_ms: ends(ttl_seconds, now_ms) });
        Ok(pdpb::GcBarrierInfo { barrier_id: name.to_owned(), barrier_ts: ts, ttl_seconds })
    }

    pub(crate) fn delete(&self, name: &str, now_ms: u64) -> Option<pdpb::GcBarrierInfo> {
        let removed = self.table(now_ms).barriers.remove(name);
        removed.map(|barrier| barrier.info(name, now_ms))
    }

    pub(crate) fn state(&self, now_ms: u64) -> pdpb::GcState {
        let table = self.table(now_ms);
        pdpb::GcState {
            txn_safe_point: table.safe_point,
            gc_safe_point: table.safe_point,
            gc_barriers: table.barriers.iter().map(|(name, barrier)| barrier.info(name, now_ms)).collect(),
            ..pdpb::GcState::default()
        }
    }

    /// The barriers in force, by name.
    pub(crate) fn in_force(&self, now_ms: u64) -> BTreeMap<String, u64> {
        let table = self.table(now_ms);
        table.barriers.iter().map(|(name, barrier)| (name.clone(), barrier.ts)).collect()
    }
}

impl Table {
    fn advance(&mut self, wanted: u64) {
        let allowed = self.barriers.values().map(|barrier| barrier.ts).chain([wanted]).min();
        self.safe_point = self.safe_point.max(allowed.unwrap_or(wanted));
    }

    fn smallest(&self) -> u64 {
        self.barriers.values().map(|barrier| barrier.ts).min().unwrap_or(self.safe_point)
    }
}

impl Barrier {
    fn info(&self, name: &str, now_ms: u64) -> pdpb::GcBarrierInfo {
        let left_ms = self.ends_ms.saturating_sub(now_ms);
        let ttl_seconds = i64::try_from(left_ms / 1000).unwrap_or(i64::MAX);
        pdpb::GcBarrierInfo { barrier_id: name.to_owned(), barrier_ts: self.ts, ttl_seconds }
    }
}

fn ends(ttl_seconds: i64, now_ms: u64) -> u64 {
    let ttl_ms = u64::try_from(ttl_seconds).ok().and_then(|seconds| seconds.checked_mul(1000));
    ttl_ms.and_then(|ttl_ms| now_ms.checked_add(ttl_ms)).unwrap_or(FOREVER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_barrier_below_the_safe_point_is_not_accepted() {
        let barriers = Barriers::default();
        assert_eq!(barriers.update_service("view", 60, 100, 0), (60, 100));
        assert_eq!(barriers.advance(500, 1), 100);
        assert_eq!(barriers.advance(500, 60_001), 500);
        assert_eq!(barriers.update_service("view", 60, 100, 60_002), (0, 500));
        assert!(barriers.set("view", 499, 10, 60_003).is_err());
        assert!(barriers.set("view", 500, 10, 60_003).is_ok());
        assert_eq!(barriers.state(60_004).gc_barriers.len(), 1);
        assert!(barriers.delete("view", 60_005).is_some());
        assert!(barriers.in_force(60_005).is_empty());
    }
}
