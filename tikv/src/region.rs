//! Regions and the cache of them: which region serves a key, and who leads it.
//!
//! The cache is ordered by encoded end keys, the empty one last. Of two regions that overlap the one with
//! the newer version stays, so a stale list changes nothing. It may have holes; whoever finds one asks the
//! placement driver. A region in hand is a value: what is learned later makes a new one.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use store::KeyRange;
use types::Result;

use crate::key;
use crate::pd::Located;
use crate::proto::{kvrpcpb, metapb};

/// A region as it was when it was learned of; bounds are encoded.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Region {
    pub(crate) id: u64,
    /// Encoded, inclusive.
    pub(crate) start: Bytes,
    /// Encoded, exclusive; empty for none.
    pub(crate) end: Bytes,
    pub(crate) epoch: metapb::RegionEpoch,
    pub(crate) peers: Vec<metapb::Peer>,
    /// Whom requests go to; a guess if nobody said.
    pub(crate) leader: metapb::Peer,
}

impl Region {
    /// A region of which at least one peer can serve; without a known leader the first is tried.
    pub(crate) fn new(located: Located) -> Option<Region> {
        let Located { region, leader } = located;
        let voter = |peer: &&metapb::Peer| peer.role() != metapb::PeerRole::Learner && !peer.is_witness;
        let leader = leader.or_else(|| region.peers.iter().find(voter).copied())?;
        Some(Region {
            id: region.id,
            start: region.start_key,
            end: region.end_key,
            epoch: region.region_epoch.unwrap_or_default(),
            peers: region.peers,
            leader,
        })
    }

    /// Whether an encoded key lies in the region.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        key >= self.start.as_ref() && (self.end.is_empty() || key < self.end.as_ref())
    }

    /// The region as a range of raw keys.
    ///
    /// # Errors
    /// `Corrupt` if its bounds are not encoded.
    pub(crate) fn range(&self) -> Result<KeyRange> {
        Ok(KeyRange { start: key::decode(&self.start)?, end: key::decode(&self.end)? })
    }

    /// The part of a raw range that lies in the region; `None` if it is empty.
    ///
    /// # Errors
    /// `Corrupt` if the region's bounds are not encoded.
    pub(crate) fn clip(&self, range: &KeyRange) -> Result<Option<KeyRange>> {
        Ok(key::intersect(&self.range()?, range))
    }

    /// What a request to the region says about it.
    pub(crate) fn fill(&self, context: &mut kvrpcpb::Context) {
        context.region_id = self.id;
        context.region_epoch = Some(self.epoch);
        context.peer = Some(self.leader);
    }
}

/// An encoded end key in the order of ends: the empty one is the last.
type End = (bool, Bytes);

fn end_of(end: &Bytes) -> End {
    (end.is_empty(), end.clone())
}

#[derive(Debug, Default)]
struct Known {
    by_end: BTreeMap<End, Arc<Region>>,
    ends: BTreeMap<u64, End>,
}

impl Known {
    fn remove(&mut self, id: u64) {
        if let Some(end) = self.ends.remove(&id) {
            self.by_end.remove(&end);
        }
    }

    fn overlapping(&self, start: &Bytes, end: &Bytes) -> Vec<Arc<Region>> {
        let from = Bound::Excluded((false, start.clone()));
        let regions = self.by_end.range((from, Bound::Unbounded)).map(|(_, region)| region);
        regions.take_while(|region| end.is_empty() || region.start < *end).map(Arc::clone).collect()
    }

    /// `false` if something newer overlaps it.
    fn insert(&mut self, region: Region) -> bool {
        let mut replaced = self.overlapping(&region.start, &region.end);
        if let Some(known) = self.ends.get(&region.id).and_then(|end| self.by_end.get(end)) {
            replaced.push(Arc::clone(known));
        }
        if replaced.iter().any(|known| known.epoch.version > region.epoch.version) {
            return false;
        }
        for known in replaced {
            self.remove(known.id);
        }
        let end = end_of(&region.end);
        self.ends.insert(region.id, end.clone());
        self.by_end.insert(end, Arc::new(region));
        true
    }
}

/// What is known of the regions; shared by all who send to them.
#[derive(Debug, Default)]
pub(crate) struct RegionCache {
    known: Mutex<Known>,
}

impl RegionCache {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The region of an encoded key, if it is known.
    pub(crate) fn find(&self, key: &Bytes) -> Option<Arc<Region>> {
        let known = self.known();
        let mut after = known.by_end.range((Bound::Excluded((false, key.clone())), Bound::Unbounded));
        after.next().map(|(_, region)| region).filter(|region| region.contains(key)).map(Arc::clone)
    }

    /// Takes in a region; `false` if something newer is known where it lies.
    pub(crate) fn insert(&self, region: Region) -> bool {
        self.known().insert(region)
    }

    /// Takes in what a store says there is instead of a region, keeping to its store where it has a peer
    /// there. `false` if the store itself is behind what is known.
    pub(crate) fn succeed(&self, old: &Region, successors: Vec<metapb::Region>) -> bool {
        let version = |region: &metapb::Region| region.region_epoch.map_or(0, |epoch| epoch.version);
        let same = successors.iter().find(|region| region.id == old.id);
        if same.is_some_and(|region| version(region) < old.epoch.version) {
            return false;
        }
        let mut known = self.known();
        known.remove(old.id);
        for region in successors {
            let leader = region.peers.iter().find(|peer| peer.store_id == old.leader.store_id).copied();
            if let Some(region) = Region::new(Located { region, leader }) {
                known.insert(region);
            }
        }
        true
    }

    /// Sends what comes next to another peer; `false` if the region has no such peer or is not known as it
    /// was.
    pub(crate) fn switch_leader(&self, region: &Region, leader: metapb::Peer) -> bool {
        let mut known = self.known();
        let Some(end) = known.ends.get(&region.id).cloned() else { return false };
        let Some(now) = known.by_end.get_mut(&end) else { return false };
        if now.epoch != region.epoch || !now.peers.iter().any(|peer| peer.id == leader.id) {
            return false;
        }
        *now = Arc::new(Region { leader, ..now.as_ref().clone() });
        true
    }

    /// Forgets a region, unless something newer of it is known by now.
    pub(crate) fn invalidate(&self, region: &Region) {
        let mut known = self.known();
        let now = known.ends.get(&region.id).and_then(|end| known.by_end.get(end));
        if now.is_some_and(|now| now.epoch.version <= region.epoch.version) {
            known.remove(region.id);
        }
    }

    /// Forgets every region that a store leads: it does not answer.
    pub(crate) fn invalidate_store(&self, store_id: u64) {
        let mut known = self.known();
        let led: Vec<u64> = known
            .by_end
            .values()
            .filter(|region| region.leader.store_id == store_id)
            .map(|region| region.id)
            .collect();
        for id in led {
            known.remove(id);
        }
    }
}

#[cfg(test)]
mod tests;
