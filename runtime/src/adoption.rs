//! Where a fill that has caught up meets the job that will adopt it.
//!
//! ```text
//! fill                              main job
//! offer ------------------------->  (poked)
//!                                   opens epoch k
//!       <------------ announce S_k
//! an epoch with cut S_k, decided,
//! its secondaries committed
//!       ------------ reached ---->  seals, takes start_k, reads the fill's record at start_k
//!       <------- adopted or not     epoch k decided
//! ```
//!
//! Nothing here decides anything: the transaction of epoch k does, by what it reads at start_k. A side
//! that goes away just closes its channel, and the fill runs on.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use tokio::sync::oneshot;
use types::{JobId, TableId, Timestamp};

/// A fill's offer, as the adopting job holds it.
#[derive(Debug)]
pub(crate) struct Offer {
    /// The fill.
    pub(crate) fill: JobId,
    /// The view it fills.
    pub(crate) view: TableId,
    /// The cut at which it wants to be adopted, or the job's own if that is later; any without.
    at: Option<Timestamp>,
    announce: oneshot::Sender<Timestamp>,
    reached: oneshot::Receiver<()>,
    outcome: oneshot::Sender<bool>,
}

/// An offer as the fill holds it.
#[derive(Debug)]
pub(crate) struct Offered {
    /// The cut to reach; an error if the job went away.
    pub(crate) announced: oneshot::Receiver<Timestamp>,
    /// To say that the cut is reached.
    pub(crate) reached: oneshot::Sender<()>,
    /// Whether the fill was adopted; an error if the job went away.
    pub(crate) outcome: oneshot::Receiver<bool>,
}

/// The offers that jobs have not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Offers {
    waiting: Mutex<BTreeMap<JobId, Vec<Offer>>>,
}

impl Offers {
    /// Offers a fill to a job.
    pub(crate) fn offer(&self, adopter: JobId, fill: JobId, view: TableId, at: Option<Timestamp>) -> Offered {
        let (announce, announced) = oneshot::channel();
        let (reached_sender, reached) = oneshot::channel();
        let (outcome, outcome_receiver) = oneshot::channel();
        let offer = Offer { fill, view, at, announce, reached, outcome };
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.entry(adopter).or_default().push(offer);
        Offered { announced, reached: reached_sender, outcome: outcome_receiver }
    }

    /// Whether a fill waits for a job.
    pub(crate) fn any(&self, adopter: JobId) -> bool {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.get(&adopter).is_some_and(|offers| !offers.is_empty())
    }

    /// The cut at which a fill wants to be adopted by a job.
    pub(crate) fn wanted_cut(&self, adopter: JobId) -> Option<Timestamp> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let offers = waiting.get_mut(&adopter)?;
        // A fill that went away wants nothing any more.
        offers.retain(|offer| !offer.announce.is_closed());
        offers.iter().filter_map(|offer| offer.at).next()
    }

    /// Takes all offers to a job, announcing the cut to each.
    pub(crate) fn take(&self, adopter: JobId, cut: Timestamp) -> Vec<Announced> {
        let offers =
            self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&adopter).unwrap_or_default();
        offers.into_iter().filter_map(|offer| offer.announce(cut)).collect()
    }
}

impl Offer {
    fn announce(self, cut: Timestamp) -> Option<Announced> {
        self.announce.send(cut).ok()?;
        Some(Announced { fill: self.fill, view: self.view, reached: self.reached, outcome: self.outcome })
    }
}

/// A fill that was told the cut.
#[derive(Debug)]
pub(crate) struct Announced {
    /// The fill.
    pub(crate) fill: JobId,
    /// The view it fills.
    pub(crate) view: TableId,
    /// Resolves when the fill's epoch at the cut is decided and its keys are committed.
    pub(crate) reached: oneshot::Receiver<()>,
    outcome: oneshot::Sender<bool>,
}

impl Announced {
    /// Tells the fill what became of it; a fill that went away does not care.
    pub(crate) fn tell(self, adopted: bool) {
        let _ = self.outcome.send(adopted);
    }
}
