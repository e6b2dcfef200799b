//! Where regions and stores are, as the placement driver sees them.
//!
//! Lists may have holes and stale leaders just after a change. Only the part of a list that covers what was
//! asked for from its left end without a hole is taken; if that is nothing, the list is asked for again.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use types::{Error, Result};

use super::{Pd, PdError};
use crate::backoff::{Backoff, Pause};
use crate::proto::{metapb, pdpb};

/// Regions of one list.
const LIST_MAX: i32 = 1024;

/// A region and its leader, if it is known.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Located {
    pub(crate) region: metapb::Region,
    pub(crate) leader: Option<metapb::Peer>,
}

/// The regions of a list that cover a range from `start` on without a hole.
pub(crate) fn gapless(start: &[u8], listed: Vec<Located>) -> Vec<Located> {
    let mut reached = Some(Bytes::copy_from_slice(start));
    let mut taken = Vec::with_capacity(listed.len());
    for located in listed {
        let region = &located.region;
        let Some(cursor) = &reached else { break };
        let begins = if taken.is_empty() { region.start_key <= *cursor } else { region.start_key == *cursor };
        if !begins || !(region.end_key.is_empty() || region.end_key > *cursor) {
            break;
        }
        reached = (!region.end_key.is_empty()).then(|| region.end_key.clone());
        taken.push(located);
    }
    taken
}

fn located(listed: Vec<pdpb::Region>) -> Vec<Located> {
    let known = |peer: &metapb::Peer| peer.id != 0;
    let each = listed.into_iter().filter_map(|entry| {
        let region = entry.region?;
        Some(Located { region, leader: entry.leader.filter(known) })
    });
    each.collect()
}

/// What an older server fills in: two lists of equal length.
fn located_of_old(metas: Vec<metapb::Region>, leaders: Vec<metapb::Peer>) -> Vec<Located> {
    let leaders = leaders.into_iter().map(|peer| (peer.id != 0).then_some(peer));
    let leaders = leaders.chain(std::iter::repeat(None));
    metas.into_iter().zip(leaders).map(|(region, leader)| Located { region, leader }).collect()
}

impl Pd {
    /// The region of an encoded key.
    ///
    /// # Errors
    /// `Unavailable` if the placement driver does not know it in time.
    pub(crate) async fn region_at(&self, key: &Bytes) -> Result<Located> {
        let mut backoff = Backoff::new(self.options.pd_budget);
        loop {
            let answer = self.call("GetRegion", |mut client, header| {
                let request = pdpb::GetRegionRequest { header, region_key: key.clone() };
                async move { client.get_region(request).await }
            });
            match answer.await {
                Ok(answer) => {
                    if let Some(region) = answer.region {
                        return Ok(Located { region, leader: answer.leader.filter(|peer| peer.id != 0) });
                    }
                }
                Err(PdError::Refused { text, .. }) => tracing::debug!(text, "no region at a key"),
                Err(error) => return Err(error.into()),
            }
            if !backoff.wait(Pause::Region).await {
                return Err(Error::unavailable("the placement driver knows no region of a key"));
            }
        }
    }

    /// Regions from an encoded key on, without a hole; never none. An empty end is no end.
    ///
    /// # Errors
    /// `Unavailable` if the placement driver does not know the first one in time.
    pub(crate) async fn regions_from(&self, start: &Bytes, end: &Bytes) -> Result<Vec<Located>> {
        let mut backoff = Backoff::new(self.options.pd_budget);
        loop {
            let answer = self.call("ScanRegions", |mut client, header| {
                let (start_key, end_key) = (start.clone(), end.clone());
                let request = pdpb::ScanRegionsRequest { header, start_key, end_key, limit: LIST_MAX };
                async move { client.scan_regions(request).await }
            });
            match answer.await {
                Ok(answer) => {
                    let listed = if answer.regions.is_empty() {
                        located_of_old(answer.region_metas, answer.leaders)
                    } else {
                        located(answer.regions)
                    };
                    let taken = gapless(start, listed);
                    if !taken.is_empty() {
                        return Ok(taken);
                    }
                }
                Err(PdError::Refused { text, .. }) => tracing::debug!(text, "no list of regions"),
                Err(error) => return Err(error.into()),
            }
            if !backoff.wait(Pause::Region).await {
                return Err(Error::unavailable("the placement driver's list of regions has a hole"));
            }
        }
    }

    /// What is known at once about the regions of many ranges: a hint, holes and all, in no order.
    ///
    /// # Errors
    /// `Unavailable` if the placement driver does not answer in time.
    pub(crate) async fn regions_in(&self, ranges: &[(Bytes, Bytes)]) -> Result<Vec<Located>> {
        if !self.no_batch_scan.load(Ordering::Relaxed) {
            let answer = self.call("BatchScanRegions", |mut client, header| {
                let range = |(start, end): &(Bytes, Bytes)| pdpb::KeyRange {
                    start_key: start.clone(),
                    end_key: end.clone(),
                };
                let ranges = ranges.iter().map(range).collect();
                let request =
                    pdpb::BatchScanRegionsRequest { header, ranges, limit: LIST_MAX, ..Default::default() };
                async move { client.batch_scan_regions(request).await }
            });
            match answer.await {
                Ok(answer) => return Ok(located(answer.regions)),
                Err(PdError::Unimplemented(_)) => self.no_batch_scan.store(true, Ordering::Relaxed),
                Err(PdError::Refused { text, .. }) => tracing::debug!(text, "no list of many ranges"),
                Err(error) => return Err(error.into()),
            }
        }
        // One list from the first to the last.
        let start = ranges.iter().map(|(start, _)| start).min();
        let end = ranges.iter().map(|(_, end)| end).max_by_key(|end| (end.is_empty(), *end));
        match start.zip(end) {
            Some((start, end)) => self.regions_from(start, end).await,
            None => Ok(Vec::new()),
        }
    }

    /// A store; `None` if there is none of the identity.
    ///
    /// # Errors
    /// `Unavailable` if the placement driver does not answer in time.
    pub(crate) async fn store(&self, store_id: u64) -> Result<Option<metapb::Store>> {
        let answer = self.call("GetStore", |mut client, header| {
            let request = pdpb::GetStoreRequest { header, store_id };
            async move { client.get_store(request).await }
        });
        match answer.await {
            Ok(answer) => Ok(answer.store),
            Err(PdError::Refused { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The stores that hold rows; not those of columns only.
    ///
    /// # Errors
    /// `Unavailable` if the placement driver does not answer in time.
    pub(crate) async fn stores(&self) -> Result<Vec<metapb::Store>> {
        let answer = self.call("GetAllStores", |mut client, header| {
            let request = pdpb::GetAllStoresRequest { header, exclude_tombstone_stores: true };
            async move { client.get_all_stores(request).await }
        });
        Ok(answer.await?.stores.into_iter().filter(holds_rows).collect())
    }
}

/// Whether a store serves rows: one of TiFlash's does not.
pub(crate) fn holds_rows(store: &metapb::Store) -> bool {
    !store.labels.iter().any(|label| label.key == "engine" && label.value.starts_with("tiflash"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(id: u64, start: &'static str, end: &'static str) -> Located {
        let region = metapb::Region {
            id,
            start_key: Bytes::from_static(start.as_bytes()),
            end_key: Bytes::from_static(end.as_bytes()),
            ..Default::default()
        };
        Located { region, leader: None }
    }

    fn check(start: &str, listed: &[(u64, &'static str, &'static str)], expected: &[u64]) {
        let listed = listed.iter().map(|(id, start, end)| region(*id, start, end)).collect();
        let taken = gapless(start.as_bytes(), listed);
        let taken: Vec<u64> = taken.into_iter().map(|located| located.region.id).collect();
        assert_eq!(taken, expected, "from {start}");
    }

    #[test]
    fn only_what_covers_from_the_left_is_taken() {
        check("c", &[(1, "a", "d"), (2, "d", "f"), (3, "f", "")], &[1, 2, 3]);
        check("c", &[(1, "a", "d"), (3, "f", "")], &[1]);
        check("c", &[(2, "d", "f"), (3, "f", "")], &[]);
        check("c", &[(1, "a", "c"), (2, "c", "f")], &[]);
        check("c", &[(1, "a", "d"), (2, "c", "f")], &[1]);
        check("", &[(1, "", "")], &[1]);
        check("c", &[(1, "", ""), (2, "d", "e")], &[1]);
    }

    #[test]
    fn stores_of_columns_hold_no_rows() {
        let label = |value: &str| metapb::StoreLabel { key: "engine".to_owned(), value: value.to_owned() };
        let store = |labels| metapb::Store { labels, ..Default::default() };
        assert!(holds_rows(&store(Vec::new())));
        assert!(!holds_rows(&store(vec![label("tiflash")])));
    }
}
