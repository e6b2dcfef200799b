//! Faults on purpose: what happens to which requests, planned ahead by a test.
//!
//! A fault is for requests of a call, a store, a region, or all; it counts down and goes. It comes before
//! or instead of the work: a request is lost, its answer is lost though the work is done, both come late,
//! or a region error stands in.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tikv::proto::errorpb;
use tokio::sync::Notify;

/// Which requests a fault is for; `None` matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The name of the call, such as `KvCommit`.
    pub rpc: Option<String>,
    /// The store that gets it.
    pub store_id: Option<u64>,
    /// The region it is for.
    pub region_id: Option<u64>,
}

impl Target {
    /// Requests of one call.
    #[must_use]
    pub fn rpc(name: &str) -> Target {
        Target { rpc: Some(name.to_owned()), ..Target::default() }
    }

    fn matches(&self, rpc: &str, store_id: u64, region_id: u64) -> bool {
        self.rpc.as_deref().is_none_or(|wanted| wanted == rpc)
            && self.store_id.is_none_or(|wanted| wanted == store_id)
            && self.region_id.is_none_or(|wanted| wanted == region_id)
    }
}

/// What happens to a request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// It is lost: the connection fails, nothing is done.
    DropRequest,
    /// Its answer is lost: everything is done, and the connection fails.
    DropAnswer,
    /// It arrives late.
    DelayRequest(Duration),
    /// It is done at once and answered late.
    DelayAnswer(Duration),
    /// It waits, not done, until [`crate::Cluster::release_held`]; others pass it.
    HoldRequest,
    /// It is done, and the answer waits until [`crate::Cluster::release_held`].
    HoldAnswer,
    /// The region refuses it.
    Region(Box<errorpb::Error>),
    /// It fails as a whole.
    Status(tonic::Code, String),
}

#[derive(Debug)]
struct Planned {
    target: Target,
    fault: Fault,
    /// How many requests more; `None` until it is taken back.
    left: Option<u64>,
}

/// The faults to come.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    planned: Mutex<Vec<Planned>>,
    held: Mutex<Arc<Notify>>,
}

impl Faults {
    fn planned(&self) -> MutexGuard<'_, Vec<Planned>> {
        self.planned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plans a fault for so many matching requests, or for all from now on.
    pub(crate) fn plan(&self, target: Target, fault: Fault, count: Option<u64>) {
        if count != Some(0) {
            self.planned().push(Planned { target, fault, left: count });
        }
    }

    /// Takes every fault back.
    pub(crate) fn clear(&self) {
        self.planned().clear();
    }

    /// The faults that have not come yet, as far as they are counted.
    pub(crate) fn left(&self) -> u64 {
        self.planned().iter().filter_map(|planned| planned.left).sum()
    }

    /// The first fault that is for a request.
    pub(crate) fn take(&self, rpc: &str, store_id: u64, region_id: u64) -> Option<Fault> {
        let mut planned = self.planned();
        let matching = |planned: &Planned| planned.target.matches(rpc, store_id, region_id);
        let at = planned.iter().position(matching)?;
        let fault = planned[at].fault.clone();
        if let Some(left) = &mut planned[at].left {
            *left -= 1;
            if *left == 0 {
                planned.remove(at);
            }
        }
        Some(fault)
    }

    /// Waits until what is held is let go.
    pub(crate) async fn hold(&self) {
        let notify = Arc::clone(&self.held.lock().unwrap_or_else(PoisonError::into_inner));
        notify.notified().await;
    }

    /// Lets go of everything that is held.
    pub(crate) fn release(&self) {
        let fresh = Arc::new(Notify::new());
        let old = std::mem::replace(&mut *self.held.lock().unwrap_or_else(PoisonError::into_inner), fresh);
        old.notify_waiters();
    }
}
