//! Calls on ranges: region after region, each with its own part, page after page.
//!
//! Servers answer for a region only and clip what reaches further, some of them without a word; so every
//! range is clipped here, and what comes next is known from here.

use std::sync::Arc;

use bytes::Bytes;
use store::{Key, KeyRange};
use types::{Error, Result};

use crate::backoff::{Backoff, Pause};
use crate::call::RegionCall;
use crate::cluster::{Cluster, Trouble};
use crate::key;
use crate::region::Region;

/// In which direction a range is walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Up,
    Down,
}

/// Longer than any key that a region begins with; the last region is found from here.
const LAST_KEY_BYTES: usize = 64;

/// A raw key a little below another; the empty key stands for the end of everything.
fn below(end: &[u8]) -> Vec<u8> {
    match end.split_last() {
        None => vec![0xff; LAST_KEY_BYTES],
        // What precedes it at once.
        Some((0, front)) => front.to_vec(),
        Some((last, front)) => {
            let mut key = front.to_vec();
            key.push(last - 1);
            key.extend_from_slice(&[0xff; LAST_KEY_BYTES]);
            key
        }
    }
}

fn is_empty(range: &KeyRange) -> bool {
    !range.end.is_empty() && range.start >= range.end
}

impl Cluster {
    /// The region that ends a raw range: of the keys below its end.
    async fn region_below(&self, end: &Key) -> Result<Arc<Region>> {
        let encoded_end = key::encode(end);
        let mut region = self.locate(&key::encode(&below(end))).await?;
        // A region may begin between that key and the end.
        while !key::end_reaches(&region.end, &encoded_end) {
            region = self.locate(&region.end.clone()).await?;
        }
        Ok(region)
    }

    /// Asks the first region of a range (or the last, downwards) for its part. Returns the part that was
    /// asked for and the answer; the range must not be empty.
    ///
    /// # Errors
    /// `Unavailable` if no region answers in time.
    pub(crate) async fn at_edge<C: RegionCall>(
        &self,
        range: &KeyRange,
        direction: Direction,
        backoff: &mut Backoff,
        make: impl Fn(&KeyRange) -> C,
    ) -> Result<(KeyRange, C::Answer)> {
        let answered = self.try_at_edge(range, direction, backoff, make).await?;
        answered.ok_or_else(|| Error::invalid("a message is larger than the cluster or this client takes"))
    }

    /// As [`Cluster::at_edge`]; `None` if the answer, or what is asked, is too large for one message.
    ///
    /// # Errors
    /// As [`Cluster::at_edge`].
    pub(crate) async fn try_at_edge<C: RegionCall>(
        &self,
        range: &KeyRange,
        direction: Direction,
        backoff: &mut Backoff,
        make: impl Fn(&KeyRange) -> C,
    ) -> Result<Option<(KeyRange, C::Answer)>> {
        loop {
            let region = match direction {
                Direction::Up => self.locate(&key::encode(&range.start)).await?,
                Direction::Down => self.region_below(&range.end).await?,
            };
            let part = region.clip(range)?;
            let part = part.ok_or_else(|| Error::corrupt(format!("region {} lies elsewhere", region.id)))?;
            let (pause, error) = match self.attempt(&region, make(&part)).await {
                Ok(answer) => return Ok(Some((part, answer))),
                Err(Trouble::Again(pause, error)) => (pause, error),
                Err(Trouble::Lost(error)) => (Pause::Call, error),
                Err(Trouble::TooLarge) => return Ok(None),
                Err(Trouble::Fatal(error)) => return Err(error),
            };
            tracing::debug!(call = C::NAME, region = region.id, %error, "asking again");
            if !backoff.wait(pause).await {
                return Err(error.context("no region answers in time"));
            }
        }
    }

    /// The parts of a raw range by region, in key order: they cover it without a hole.
    ///
    /// # Errors
    /// `Unavailable` if the regions are not known in time.
    pub(crate) async fn parts_of(&self, range: &KeyRange) -> Result<Vec<KeyRange>> {
        let mut parts = Vec::new();
        for region in self.regions_of(range).await? {
            parts.extend(region.clip(range)?);
        }
        Ok(parts)
    }
}

/// What is left of a range after a part at its edge; `None` if nothing is.
pub(crate) fn after_part(range: &KeyRange, part: &KeyRange, direction: Direction) -> Option<KeyRange> {
    let rest = match direction {
        Direction::Up if part.end.is_empty() => return None,
        Direction::Up => KeyRange { start: part.end.clone(), end: range.end.clone() },
        Direction::Down if part.start.is_empty() => return None,
        Direction::Down => KeyRange { start: range.start.clone(), end: part.start.clone() },
    };
    (!is_empty(&rest)).then_some(rest)
}

/// What is left of a range after a key at its edge; `None` if nothing is.
pub(crate) fn after_key(range: &KeyRange, last: &Key, direction: Direction) -> Option<KeyRange> {
    let rest = match direction {
        Direction::Up => KeyRange { start: Bytes::from(store::next_key(last)), end: range.end.clone() },
        Direction::Down if last.is_empty() => return None,
        Direction::Down => KeyRange { start: range.start.clone(), end: last.clone() },
    };
    (!is_empty(&rest)).then_some(rest)
}

/// The range itself; `None` if it is empty.
pub(crate) fn whole(range: &KeyRange) -> Option<KeyRange> {
    (!is_empty(range)).then(|| range.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: &str, end: &str) -> KeyRange {
        KeyRange::new(start.to_owned(), end.to_owned())
    }

    #[test]
    fn rests_end_with_their_range() {
        let all = range("a", "m");
        assert_eq!(after_part(&all, &range("a", "c"), Direction::Up), Some(range("c", "m")));
        assert_eq!(after_part(&all, &range("c", "m"), Direction::Up), None);
        assert_eq!(after_part(&all, &range("c", "m"), Direction::Down), Some(range("a", "c")));
        assert_eq!(after_part(&all, &range("a", "m"), Direction::Down), None);
        let open = range("", "");
        assert_eq!(after_part(&open, &range("c", ""), Direction::Up), None);
        assert_eq!(after_part(&open, &range("", "c"), Direction::Down), None);
        assert_eq!(after_part(&open, &range("", "c"), Direction::Up), Some(range("c", "")));
    }

    #[test]
    fn pages_go_on_behind_their_last_key() {
        let all = range("a", "m");
        let key = Key::from("c");
        assert_eq!(after_key(&all, &key, Direction::Up), Some(range("c\0", "m")));
        assert_eq!(after_key(&all, &key, Direction::Down), Some(range("a", "c")));
        assert_eq!(after_key(&range("a", "c\0"), &key, Direction::Up), None);
        assert_eq!(after_key(&range("c", "m"), &key, Direction::Down), None);
    }

    #[test]
    fn the_key_below_is_below_and_close() {
        assert_eq!(below(b"a\0"), b"a");
        assert!(below(b"b").as_slice() < b"b".as_slice() && below(b"b").as_slice() > b"a\xff".as_slice());
        assert!(below(b"").as_slice() > b"\xff\xff".as_slice());
    }
}
