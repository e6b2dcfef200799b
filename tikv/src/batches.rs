//! Calls on many keys: cut by region and by size, some under way at once, cut anew where regions change.
//!
//! Only for calls that may come twice. A piece that has to be sent again waits for itself; the others go
//! on. Once a caller has heard enough nothing new is sent, but what is under way is waited for, so that
//! nothing of a call is on its way after the call has ended.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use store::{Key, KeyRange, Mutation};
use types::{Error, Result};

use crate::backoff::{Backoff, Pause};
use crate::call::RegionCall;
use crate::cluster::{Cluster, Trouble};
use crate::key;
use crate::region::Region;

/// Bytes of one request; a region's log takes 8 MiB in one entry.
const BATCH_BYTES_MAX: usize = 256 << 10;
/// Items of one request.
const BATCH_ITEMS_MAX: usize = 4096;
/// Requests of one call that are under way at once.
const IN_FLIGHT_MAX: usize = 16;

/// Keys whose regions are asked for at once.
const LEARNED_MAX: usize = 256;

/// Something that is sent to the region of its key.
pub(crate) trait Item: Clone + Send + Sync {
    /// Its raw key.
    fn key(&self) -> &Key;
    /// What it adds to a request.
    fn bytes(&self) -> usize;
}

impl Item for Key {
    fn key(&self) -> &Key {
        self
    }

    fn bytes(&self) -> usize {
        self.len()
    }
}

impl Item for Mutation {
    fn key(&self) -> &Key {
        &self.key
    }

    fn bytes(&self) -> usize {
        self.key.len() + self.value.len()
    }
}

/// Items of one region that are sent together.
pub(crate) struct Piece<T> {
    region: Arc<Region>,
    pub(crate) items: Vec<T>,
    resent: bool,
    backoff: Backoff,
}

/// Cuts sorted items so that no part is larger than the bounds; one item alone may be.
fn cut<T: Item>(items: Vec<T>) -> Vec<Vec<T>> {
    let mut parts: Vec<Vec<T>> = Vec::new();
    let mut room = 0;
    for item in items {
        let bytes = item.bytes();
        match parts.last_mut() {
            Some(part) if part.len() < BATCH_ITEMS_MAX && bytes <= room => {
                room -= bytes;
                part.push(item);
            }
            _ => {
                room = BATCH_BYTES_MAX.saturating_sub(bytes);
                parts.push(vec![item]);
            }
        }
    }
    parts
}

/// How a piece ended.
enum Ended<T, A> {
    Answered(Vec<T>, A),
    /// It is to be sent again like this.
    Anew(Vec<Piece<T>>),
    Failed(Error),
}

impl Cluster {
    /// Groups items by their regions and cuts the groups; in key order.
    pub(crate) async fn pieces<T: Item>(
        &self,
        mut items: Vec<T>,
        resent: bool,
        backoff: &Backoff,
    ) -> Result<Vec<Piece<T>>> {
        items.sort_by(|left, right| left.key().cmp(right.key()));
        let is_unknown = |item: &&T| self.regions.find(&key::encode(item.key())).is_none();
        let point = |item: &T| KeyRange::new(item.key().clone(), store::next_key(item.key()));
        let unknown: Vec<KeyRange> = items.iter().filter(is_unknown).map(point).take(LEARNED_MAX).collect();
        if unknown.len() > 1 {
            self.learn(&unknown).await?;
        }
        let mut groups: Vec<(Arc<Region>, Vec<T>)> = Vec::new();
        for item in items {
            let encoded = key::encode(item.key());
            match groups.last_mut() {
                Some((region, group)) if region.contains(&encoded) => group.push(item),
                _ => groups.push((self.locate(&encoded).await?, vec![item])),
            }
        }
        let mut pieces = Vec::new();
        for (region, group) in groups {
            for items in cut(group) {
                pieces.push(Piece { region: Arc::clone(&region), items, resent, backoff: backoff.clone() });
            }
        }
        Ok(pieces)
    }

    /// Sends requests that are made from items to the items' regions, and hands each answer on with its
    /// items.
    ///
    /// # Errors
    /// `Unavailable` if a region does not answer in time, `Invalid` if one item is too large; other pieces
    /// may have been answered.
    pub(crate) async fn in_batches<T, C, M, H>(
        &self,
        items: Vec<T>,
        backoff: &Backoff,
        make: M,
        mut hand_on: H,
    ) -> Result<()>
    where
        T: Item,
        C: RegionCall,
        M: Fn(&[T]) -> C,
        H: FnMut(Vec<T>, C::Answer) -> ControlFlow<()>,
    {
        let mut queue = VecDeque::from(self.pieces(items, false, backoff).await?);
        let mut under_way = FuturesUnordered::new();
        let mut failure = None;
        let mut goes_on = true;
        loop {
            while goes_on
                && under_way.len() < IN_FLIGHT_MAX
                && let Some(piece) = queue.pop_front()
            {
                let call = make(&piece.items);
                under_way.push(self.send_piece(piece, call));
            }
            match under_way.next().await {
                None => break,
                Some(Ended::Answered(items, answer)) => goes_on &= hand_on(items, answer).is_continue(),
                Some(Ended::Anew(pieces)) => queue.extend(pieces),
                Some(Ended::Failed(error)) => {
                    goes_on = false;
                    failure.get_or_insert(error);
                }
            }
        }
        failure.map_or(Ok(()), Err)
    }

    async fn send_piece<T: Item, C: RegionCall>(&self, piece: Piece<T>, mut call: C) -> Ended<T, C::Answer> {
        let Piece { region, items, resent, mut backoff } = piece;
        call.context().is_retry_request = resent;
        let (pause, error) = match self.attempt(&region, call).await {
            Ok(answer) => return Ended::Answered(items, answer),
            Err(Trouble::Again(pause, error)) => (pause, error),
            Err(Trouble::Lost(error)) => (Pause::Call, error),
            Err(Trouble::TooLarge) => return halves(region, items, resent, backoff),
            Err(Trouble::Fatal(error)) => return Ended::Failed(error),
        };
        tracing::debug!(call = C::NAME, region = region.id, %error, "sending a piece again");
        if !backoff.wait(pause).await {
            return Ended::Failed(error.context("no region answers in time"));
        }
        match self.pieces(items, true, &backoff).await {
            Ok(pieces) => Ended::Anew(pieces),
            Err(error) => Ended::Failed(error),
        }
    }
}

fn halves<T: Item, A>(region: Arc<Region>, mut items: Vec<T>, resent: bool, backoff: Backoff) -> Ended<T, A> {
    if items.len() < 2 {
        return Ended::Failed(Error::invalid("a value is larger than the cluster takes"));
    }
    let back = items.split_off(items.len() / 2);
    let piece = |items| Piece { region: Arc::clone(&region), items, resent, backoff: backoff.clone() };
    Ended::Anew(vec![piece(items), piece(back)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn puts(sizes: &[usize]) -> Vec<Mutation> {
        let put = |(number, size): (usize, &usize)| {
            Mutation::put(format!("{number:08}"), vec![0; size.saturating_sub(8)])
        };
        sizes.iter().enumerate().map(put).collect()
    }

    fn check(sizes: &[usize], expected: &[usize]) {
        let parts: Vec<usize> = cut(puts(sizes)).iter().map(Vec::len).collect();
        assert_eq!(parts, expected);
    }

    #[test]
    fn parts_stay_below_the_bounds() {
        const K: usize = 1 << 10;
        check(&[], &[]);
        check(&[100 * K, 100 * K, 56 * K, K], &[3, 1]);
        check(&[300 * K, 10 * K, 300 * K, 300 * K], &[1, 1, 1, 1]);
        check(&[255 * K, 2 * K, 254 * K, 8], &[1, 2, 1]);
        check(&vec![8; BATCH_ITEMS_MAX + 1], &[BATCH_ITEMS_MAX, 1]);
    }

    #[tokio::test]
    async fn a_piece_that_is_too_large_is_halved() {
        let region = Arc::new(Region {
            id: 1,
            start: bytes::Bytes::new(),
            end: bytes::Bytes::new(),
            epoch: Default::default(),
            peers: Vec::new(),
            leader: Default::default(),
        });
        let backoff = Backoff::new(std::time::Duration::from_secs(1));
        let ended: Ended<Mutation, ()> = halves(Arc::clone(&region), puts(&[8, 8, 8]), true, backoff.clone());
        let Ended::Anew(pieces) = ended else { panic!("it can be halved") };
        assert_eq!(pieces.iter().map(|piece| piece.items.len()).collect::<Vec<_>>(), [1, 2]);
        assert!(pieces.iter().all(|piece| piece.resent));
        let ended: Ended<Mutation, ()> = halves(region, puts(&[8]), false, backoff);
        assert!(matches!(ended, Ended::Failed(_)), "one value alone");
    }
}
