//! How far garbage collection has come, and what keeps it from going on.
//!
//! A newer placement driver knows barriers by name and lists them; an older one knows safe points of
//! services, which it lists to nobody. Both end by themselves unless they are renewed. A barrier that
//! cannot be set means that history is, or is about to be, gone: the servers themselves would answer
//! without a word.

use std::sync::atomic::Ordering;
use std::time::Duration;

use types::{Error, Result, Timestamp};

use super::{Pd, PdError};
use crate::proto::pdpb;

/// The keyspace of a cluster that has none.
const NULL_KEYSPACE: u32 = 0xFFFF_FFFF;
/// The service under which whoever drives garbage collection speaks.
const COLLECTOR: &str = "gc_worker";

/// A barrier that the placement driver lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Barrier {
    pub(crate) id: String,
    pub(crate) ts: Timestamp,
    /// How long it stays unless it is renewed.
    pub(crate) left: Duration,
}

/// What the placement driver knows of garbage collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GcState {
    /// Nobody may read below.
    pub(crate) safe_point: Timestamp,
    /// The barriers; `None` where it lists none to us.
    pub(crate) barriers: Option<Vec<Barrier>>,
}

fn scope() -> Option<pdpb::KeyspaceScope> {
    Some(pdpb::KeyspaceScope { keyspace_id: NULL_KEYSPACE })
}

fn seconds(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX).max(1)
}

impl Pd {
    /// How far garbage collection has come.
    ///
    /// # Errors
    /// `Unavailable` if the placement driver does not answer in time.
    pub(crate) async fn gc_state(&self) -> Result<GcState> {
        if !self.no_barriers.load(Ordering::Relaxed) {
            let answer = self.call("GetGCState", |mut client, header| {
                let request =
                    pdpb::GetGcStateRequest { header, keyspace_scope: scope(), ..Default::default() };
                async move { client.get_gc_state(request).await }
            });
            match answer.await {
                Ok(answer) => {
                    let state = answer.gc_state.unwrap_or_default();
                    let listed = |barrier: pdpb::GcBarrierInfo| Barrier {
                        id: barrier.barrier_id,
                        ts: Timestamp(barrier.barrier_ts),
                        left: Duration::from_secs(u64::try_from(barrier.ttl_seconds).unwrap_or(0)),
                    };
                    let barriers = state.gc_barriers.into_iter().map(listed).collect();
                    return Ok(GcState {
                        safe_point: Timestamp(state.txn_safe_point.max(state.gc_safe_point)),
                        barriers: Some(barriers),
                    });
                }
                Err(PdError::Unimplemented(_)) => self.no_barriers.store(true, Ordering::Relaxed),
                Err(error) => return Err(error.into()),
            }
        }
        let answer = self.call("GetGCSafePoint", |mut client, header| {
            let request = pdpb::GetGcSafePointRequest { header };
            async move { client.get_gc_safe_point(request).await }
        });
        Ok(GcState { safe_point: Timestamp(answer.await?.safe_point), barriers: None })
    }

    /// Sets or moves a barrier; the answer says whether the placement driver lists barriers.
    ///
    /// # Errors
    /// [`Error::history_gone`] if garbage collection has come further.
    pub(crate) async fn set_barrier(&self, id: &str, ts: Timestamp, ttl: Duration) -> Result<bool> {
        if !self.no_barriers.load(Ordering::Relaxed) {
            let answer = self.call("SetGCBarrier", |mut client, header| {
                let request = pdpb::SetGcBarrierRequest {
                    header,
                    keyspace_scope: scope(),
                    barrier_id: id.to_owned(),
                    barrier_ts: ts.0,
                    ttl_seconds: seconds(ttl),
                };
                async move { client.set_gc_barrier(request).await }
            });
            match answer.await {
                Ok(_) => return Ok(true),
                Err(PdError::Unimplemented(_)) => self.no_barriers.store(true, Ordering::Relaxed),
                Err(error) => {
                    // Whatever words it has for it: a barrier below the safe point is why.
                    let safe_point = self.gc_state().await?.safe_point;
                    return Err(if ts < safe_point { gone(ts, safe_point) } else { error.into() });
                }
            }
        }
        let least = self.update_service(id, ts, seconds(ttl)).await?;
        // The least of all services' safe points, ours included: above ours it was not taken.
        if least > ts { Err(gone(ts, least)) } else { Ok(false) }
    }

    /// Drops a barrier; one that is not there is fine.
    ///
    /// # Errors
    /// `Unavailable` if the placement driver does not answer in time.
    pub(crate) async fn drop_barrier(&self, id: &str) -> Result<()> {
        if !self.no_barriers.load(Ordering::Relaxed) {
            let answer = self.call("DeleteGCBarrier", |mut client, header| {
                let request = pdpb::DeleteGcBarrierRequest {
                    header,
                    keyspace_scope: scope(),
                    barrier_id: id.to_owned(),
                };
                async move { client.delete_gc_barrier(request).await }
            });
            match answer.await {
                Ok(_) => return Ok(()),
                Err(PdError::Unimplemented(_)) => self.no_barriers.store(true, Ordering::Relaxed),
                Err(error) => return Err(error.into()),
            }
        }
        self.update_service(id, Timestamp::ZERO, 0).await.map(|_| ())
    }

    /// Moves the safe point of whoever drives garbage collection: first what nobody may read below, which
    /// barriers lower. The answer is how far that came.
    ///
    /// # Errors
    /// `Unavailable` if the placement driver does not answer in time.
    pub(crate) async fn advance_readers(&self, to: Timestamp) -> Result<Timestamp> {
        Ok(self.update_service(COLLECTOR, to, i64::MAX).await?.min(to))
    }

    /// Moves the point below which stores drop versions; the answer is where it is.
    ///
    /// # Errors
    /// `Unavailable` if the placement driver does not answer in time.
    pub(crate) async fn advance_collection(&self, to: Timestamp) -> Result<Timestamp> {
        let answer = self.call("UpdateGCSafePoint", |mut client, header| {
            let request = pdpb::UpdateGcSafePointRequest { header, safe_point: to.0 };
            async move { client.update_gc_safe_point(request).await }
        });
        Ok(Timestamp(answer.await?.new_safe_point))
    }

    async fn update_service(&self, id: &str, ts: Timestamp, ttl: i64) -> Result<Timestamp> {
        let answer = self.call("UpdateServiceGCSafePoint", |mut client, header| {
            let request = pdpb::UpdateServiceGcSafePointRequest {
                header,
                service_id: id.as_bytes().to_vec().into(),
                ttl,
                safe_point: ts.0,
            };
            async move { client.update_service_gc_safe_point(request).await }
        });
        Ok(Timestamp(answer.await?.min_safe_point))
    }
}

fn gone(ts: Timestamp, safe_point: Timestamp) -> Error {
    Error::history_gone(format!("{ts} lies below the cluster's safe point {safe_point}"))
}
