//! The regions of the cluster: bounds, epochs, peers and leaders.
//!
//! A plain value; whoever changes it holds the layer's write guard, so that a request sees one state of it
//! from its check to its end. Bounds are encoded and cover everything without holes. A split gives the left
//! part the new id and leaves the old one to the right part; a merge ends the source.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use prost::Message;
use tikv::proto::{metapb, pdpb};

use crate::keys;

/// Raft terms begin here, so that a request can carry one that is too low.
const FIRST_TERM: u64 = 6;
/// Peers of a region, if there are as many stores.
const PEERS_MAX: usize = 3;

/// A region and who leads it.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionState {
    /// What PD and the stores say about it.
    pub meta: metapb::Region,
    /// The store that leads it; `None` during an election.
    pub leader: Option<u64>,
    /// Counts elections.
    pub term: u64,
}

impl RegionState {
    /// The region's id.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.meta.id
    }

    /// The version of its epoch.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.meta.region_epoch.map_or(0, |epoch| epoch.version)
    }

    /// The peer on a store.
    #[must_use]
    pub fn peer_on(&self, store_id: u64) -> Option<metapb::Peer> {
        self.meta.peers.iter().find(|peer| peer.store_id == store_id).copied()
    }

    /// The leading peer.
    #[must_use]
    pub fn leader_peer(&self) -> Option<metapb::Peer> {
        self.leader.and_then(|store_id| self.peer_on(store_id))
    }

    /// Whether an encoded key lies in it.
    #[must_use]
    pub fn contains(&self, encoded: &[u8]) -> bool {
        encoded >= self.meta.start_key.as_ref()
            && (self.meta.end_key.is_empty() || encoded < self.meta.end_key.as_ref())
    }

    /// Its bounds as raw keys.
    ///
    /// # Panics
    /// Never: regions are only cut at encoded keys.
    #[must_use]
    pub fn raw_range(&self) -> store::KeyRange {
        let raw = |bound: &Bytes| keys::decode_bound(bound).expect("regions are cut at encoded keys");
        store::KeyRange::new(raw(&self.meta.start_key), raw(&self.meta.end_key))
    }

    /// As PD lists it.
    #[must_use]
    pub fn listed(&self) -> pdpb::Region {
        pdpb::Region {
            region: Some(self.meta.clone()),
            leader: self.leader_peer(),
            down_peers: Vec::new(),
            pending_peers: Vec::new(),
        }
    }

    fn raise_version(&mut self, by: u64) {
        let epoch = self.meta.region_epoch.get_or_insert_default();
        epoch.version += by;
    }
}

/// All regions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Regions {
    by_start: BTreeMap<Bytes, RegionState>,
    next_id: u64,
    stores: BTreeSet<u64>,
    /// Regions whose leader has not asked for a timestamp since it was elected.
    unsynced: BTreeSet<u64>,
}

impl Regions {
    /// Cuts everything at encoded keys; leaders go round the stores, from one that the seed decides.
    pub(crate) fn new(first_id: u64, stores: &BTreeSet<u64>, cuts: &BTreeSet<Bytes>, seed: u64) -> Regions {
        let mut regions = Regions { next_id: first_id, stores: stores.clone(), ..Regions::default() };
        let starts: Vec<Bytes> = std::iter::once(Bytes::new()).chain(cuts.iter().cloned()).collect();
        for (index, start) in starts.iter().enumerate() {
            let end = starts.get(index + 1).cloned().unwrap_or_default();
            let id = regions.id();
            let peers = regions.place(index, seed);
            let leader = peers.first().map(|peer| peer.store_id);
            let meta = metapb::Region {
                id,
                start_key: start.clone(),
                end_key: end,
                region_epoch: Some(metapb::RegionEpoch { conf_ver: 1, version: 1 }),
                peers,
            };
            regions.by_start.insert(start.clone(), RegionState { meta, leader, term: FIRST_TERM });
        }
        regions
    }

    fn id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    fn place(&mut self, index: usize, seed: u64) -> Vec<metapb::Peer> {
        let stores: Vec<u64> = self.stores.iter().copied().collect();
        let turn = index + usize::try_from(seed % stores.len() as u64).unwrap_or(0);
        let chosen = (0..stores.len().min(PEERS_MAX)).map(|at| stores[(turn + at) % stores.len()]);
        chosen
            .collect::<Vec<u64>>()
            .into_iter()
            .map(|store_id| metapb::Peer { id: self.id(), store_id, ..metapb::Peer::default() })
            .collect()
    }

    /// The region of an encoded key.
    pub(crate) fn of_key(&self, encoded: &[u8]) -> &RegionState {
        let bound = std::ops::Bound::Included(encoded);
        let found = self.by_start.range::<[u8], _>((std::ops::Bound::Unbounded, bound)).next_back();
        found.map(|(_, region)| region).expect("the regions cover everything")
    }

    /// A region by its id.
    pub(crate) fn by_id(&self, id: u64) -> Option<&RegionState> {
        self.by_start.values().find(|region| region.meta.id == id)
    }

    fn by_id_mut(&mut self, id: u64) -> Option<&mut RegionState> {
        self.by_start.values_mut().find(|region| region.meta.id == id)
    }

    /// All regions in key order.
    pub(crate) fn all(&self) -> Vec<RegionState> {
        self.by_start.values().cloned().collect()
    }

    /// Cuts a region at encoded keys inside it; returns the parts, left to right.
    pub(crate) fn split(&mut self, id: u64, cuts: &BTreeSet<Bytes>) -> Option<Vec<RegionState>> {
        let old = self.by_id(id)?.clone();
        let inside = |cut: &&Bytes| **cut != old.meta.start_key && old.contains(cut);
        let cuts: Vec<Bytes> = cuts.iter().filter(inside).cloned().collect();
        if cuts.is_empty() {
            return None;
        }
        self.by_start.remove(&old.meta.start_key);
        let mut parts = Vec::with_capacity(cuts.len() + 1);
        let mut start = old.meta.start_key.clone();
        for cut in &cuts {
            let mut part = old.clone();
            part.meta.id = self.id();
            for peer in &mut part.meta.peers {
                peer.id = self.id();
            }
            part.meta.start_key = std::mem::replace(&mut start, cut.clone());
            part.meta.end_key = cut.clone();
            parts.push(part);
        }
        let mut last = old;
        last.meta.start_key = start;
        parts.push(last);
        for part in &mut parts {
            part.raise_version(cuts.len() as u64);
            self.by_start.insert(part.meta.start_key.clone(), part.clone());
        }
        Some(parts)
    }

    /// Ends a region and gives its range to a neighbour; returns the neighbour as it is then.
    pub(crate) fn merge(&mut self, source: u64, target: u64) -> Option<RegionState> {
        let (gone, mut grown) = (self.by_id(source)?.clone(), self.by_id(target)?.clone());
        let left = gone.meta.end_key == grown.meta.start_key && !gone.meta.end_key.is_empty();
        let right = grown.meta.end_key == gone.meta.start_key && !grown.meta.end_key.is_empty();
        if !left && !right {
            return None;
        }
        self.by_start.remove(&gone.meta.start_key);
        self.by_start.remove(&grown.meta.start_key);
        if left {
            grown.meta.start_key = gone.meta.start_key.clone();
        } else {
            grown.meta.end_key = gone.meta.end_key.clone();
        }
        // The source's epoch is raised once more before the merge commits.
        let version = grown.version().max(gone.version() + 1) + 1;
        grown.meta.region_epoch.get_or_insert_default().version = version;
        self.by_start.insert(grown.meta.start_key.clone(), grown.clone());
        Some(grown)
    }

    /// Gives a region another leader, or none; says whether anything changed.
    pub(crate) fn lead(&mut self, id: u64, leader: Option<u64>) -> bool {
        let Some(region) = self.by_id_mut(id) else { return false };
        if region.leader == leader || leader.is_some_and(|store_id| region.peer_on(store_id).is_none()) {
            return false;
        }
        region.leader = leader;
        region.term += 1;
        self.unsynced.insert(id);
        true
    }

    /// Whether a region's leader does not know the newest timestamp yet.
    pub(crate) fn is_unsynced(&self, id: u64) -> bool {
        self.unsynced.contains(&id)
    }

    pub(crate) fn note_synced(&mut self, id: u64) {
        self.unsynced.remove(&id);
    }

    /// Moves a peer that does not lead from a store to another; says whether it could.
    pub(crate) fn move_peer(&mut self, id: u64, from: u64, to: u64) -> bool {
        let peer_id = self.id();
        let known = self.stores.contains(&to);
        let Some(region) = self.by_id_mut(id) else { return false };
        if !known || region.leader == Some(from) || region.peer_on(to).is_some() {
            return false;
        }
        let Some(peer) = region.meta.peers.iter_mut().find(|peer| peer.store_id == from) else {
            return false;
        };
        *peer = metapb::Peer { id: peer_id, store_id: to, ..metapb::Peer::default() };
        // One step adds a peer, another removes the old one.
        region.meta.region_epoch.get_or_insert_default().conf_ver += 2;
        true
    }

    /// The regions a store leads.
    pub(crate) fn led_by(&self, store_id: u64) -> Vec<u64> {
        let led = self.by_start.values().filter(|region| region.leader == Some(store_id));
        led.map(RegionState::id).collect()
    }

    /// As bytes, for a restart.
    pub(crate) fn encoded(&self) -> Bytes {
        let listed = self.by_start.values().map(RegionState::listed).collect();
        pdpb::ScanRegionsResponse { regions: listed, ..pdpb::ScanRegionsResponse::default() }
            .encode_to_vec()
            .into()
    }

    /// Reads what [`Regions::encoded`] wrote; nobody's lead outlives the process, so all are elected anew.
    pub(crate) fn decoded(bytes: &[u8], stores: &BTreeSet<u64>) -> Option<Regions> {
        let listed = pdpb::ScanRegionsResponse::decode(bytes).ok()?.regions;
        let mut by_start = BTreeMap::new();
        let mut newest = 0;
        for region in listed {
            let meta = region.region?;
            newest = meta.peers.iter().map(|peer| peer.id).chain([newest, meta.id]).max()?;
            let leader = region.leader.or_else(|| meta.peers.first().copied()).map(|peer| peer.store_id);
            let known = meta.peers.iter().all(|peer| stores.contains(&peer.store_id));
            if !known {
                return None;
            }
            by_start.insert(meta.start_key.clone(), RegionState { meta, leader, term: FIRST_TERM + 1 });
        }
        by_start.contains_key(&Bytes::new()).then(|| Regions {
            by_start,
            next_id: newest + 1,
            stores: stores.clone(),
            unsynced: BTreeSet::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(raw: &[u8]) -> BTreeSet<Bytes> {
        [keys::encode(raw)].into()
    }

    #[test]
    fn a_split_gives_the_left_part_the_new_id_and_a_merge_ends_the_source() {
        let mut regions = Regions::new(2, &[1].into(), &BTreeSet::new(), 0);
        let parts = regions.split(2, &cut(b"B06/h")).expect("the key is inside");
        let ids: Vec<(u64, u64)> = parts.iter().map(|part| (part.id(), part.version())).collect();
        assert_eq!(ids, [(4, 2), (2, 2)]);
        assert_eq!(regions.of_key(&keys::encode(b"B06/a")).id(), 4);
        assert_eq!(regions.of_key(&keys::encode(b"B06/h")).id(), 2);
        let grown = regions.merge(4, 2).expect("they are neighbours");
        assert_eq!((grown.id(), grown.version()), (2, 4));
        assert_eq!(regions.all(), [grown]);
    }

    #[test]
    fn regions_come_back_after_a_restart() {
        let mut regions = Regions::new(2, &[1, 2, 3, 4].into(), &cut(b"m"), 0);
        assert!(regions.lead(2, Some(3)));
        let back = Regions::decoded(&regions.encoded(), &[1, 2, 3, 4].into()).expect("the bytes are whole");
        let metas =
            |regions: &Regions| regions.all().into_iter().map(|region| region.meta).collect::<Vec<_>>();
        assert_eq!(metas(&back), metas(&regions));
        assert_eq!(back.by_id(2).and_then(|region| region.leader), Some(3));
    }
}
