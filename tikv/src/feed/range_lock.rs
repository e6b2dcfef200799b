//! Which parts of a feed's ranges are subscribed, by which region, and how far each has come.
//!
//! The pieces cover the ranges without a gap at any time, whatever regions do: a piece that nobody is
//! subscribed to keeps the timestamp it had, so the frontier, their minimum, never goes over it. A new
//! subscription begins at the least of what it covers. Regions that claim what another holds are told
//! apart by their versions: an older one is stale, a newer one waits until the holder has let go.
//!
//! Bounds are compared as bytes; an empty end has none. Whether they are raw or encoded is the caller's.

use std::collections::BTreeMap;

use bytes::Bytes;
use types::Timestamp;

#[cfg(test)]
mod tests;

/// A part of the key space; an empty end means no upper bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The first key, inclusive.
    pub(crate) start: Bytes,
    /// The end, exclusive.
    pub(crate) end: Bytes,
}

impl Part {
    /// A part.
    pub(crate) fn new(start: impl Into<Bytes>, end: impl Into<Bytes>) -> Part {
        Part { start: start.into(), end: end.into() }
    }

    /// Whether there can be a key in it.
    pub(crate) fn is_empty(&self) -> bool {
        !self.end.is_empty() && self.start >= self.end
    }

    /// What two parts share.
    pub(crate) fn intersection(&self, other: &Part) -> Part {
        let start = self.start.clone().max(other.start.clone());
        Part { start, end: nearer(&self.end, &other.end).clone() }
    }
}

/// Whether an end is at or before another.
fn ends_by(end: &Bytes, limit: &Bytes) -> bool {
    limit.is_empty() || (!end.is_empty() && end <= limit)
}

fn nearer<'a>(left: &'a Bytes, right: &'a Bytes) -> &'a Bytes {
    if ends_by(left, right) { left } else { right }
}

/// Who holds a piece: the number its holder chose.
pub(crate) type HolderId = u64;

#[derive(Clone, Debug)]
struct Holder {
    id: HolderId,
    version: u64,
}

#[derive(Clone, Debug)]
struct Piece {
    end: Bytes,
    ts: Timestamp,
    /// Failures in a row, for the back-off; survives changes of regions.
    n_failures: u32,
    holder: Option<Holder>,
}

/// A part nobody is subscribed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unlocked {
    /// The part.
    pub(crate) part: Part,
    /// How far it has come.
    pub(crate) ts: Timestamp,
    /// Failures in a row.
    pub(crate) n_failures: u32,
}

/// The answer to a region that wants to hold its part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    /// It holds the parts now, and begins at the timestamp.
    Held {
        /// Where the subscription begins.
        ts: Timestamp,
        /// Failures in a row.
        n_failures: u32,
    },
    /// A region of this version or a newer one holds some of it: the caller's map is old.
    Stale,
    /// An older region holds some of it and will be told to let go.
    Wait,
    /// It lies outside, or is not whole within one range.
    Outside,
}

/// The pieces of a feed's ranges.
#[derive(Debug)]
pub(crate) struct RangeLock {
    pieces: BTreeMap<Bytes, Piece>,
}

impl RangeLock {
    /// Covers ranges, in order and apart, all of which have come to a timestamp.
    pub(crate) fn new(ranges: &[Part], ts: Timestamp) -> RangeLock {
        let piece = |part: &Part| {
            (part.start.clone(), Piece { end: part.end.clone(), ts, n_failures: 0, holder: None })
        };
        RangeLock { pieces: ranges.iter().filter(|part| !part.is_empty()).map(piece).collect() }
    }

    /// How far all of it has come; `None` if there are no ranges.
    pub(crate) fn frontier(&self) -> Option<Timestamp> {
        self.pieces.values().map(|piece| piece.ts).min()
    }

    /// What nobody is subscribed to, in order.
    pub(crate) fn unlocked(&self) -> Vec<Unlocked> {
        let free = self.pieces.iter().filter(|(_, piece)| piece.holder.is_none());
        free.map(|(start, piece)| Unlocked {
            part: Part { start: start.clone(), end: piece.end.clone() },
            ts: piece.ts,
            n_failures: piece.n_failures,
        })
        .collect()
    }

    /// Holds a part, which must lie within one of the ranges, for a region of a version.
    pub(crate) fn lock(&mut self, part: &Part, id: HolderId, version: u64) -> Lock {
        let Some(covered) = self.covered(part) else { return Lock::Outside };
        let mut ts = Timestamp::MAX;
        let mut n_failures = 0;
        let mut waits = false;
        for start in &covered {
            let piece = &self.pieces[start];
            match &piece.holder {
                Some(holder) if holder.version >= version => return Lock::Stale,
                Some(_) => waits = true,
                None => {
                    ts = ts.min(piece.ts);
                    n_failures = n_failures.max(piece.n_failures);
                }
            }
        }
        if waits {
            return Lock::Wait;
        }
        self.replace(
            &covered,
            part,
            Piece { end: part.end.clone(), ts, n_failures, holder: Some(Holder { id, version }) },
        );
        Lock::Held { ts, n_failures }
    }

    /// Raises how far a holder's piece has come; whether it rose.
    pub(crate) fn advance(&mut self, start: &Bytes, id: HolderId, ts: Timestamp) -> bool {
        let Some(piece) = self.held(start, id) else { return false };
        let rises = ts > piece.ts;
        if rises {
            piece.ts = ts;
            piece.n_failures = 0;
        }
        rises
    }

    /// Lets a piece go with the timestamp it has; a failed one has one failure more in its row.
    pub(crate) fn unlock(&mut self, start: &Bytes, id: HolderId, failed: bool) {
        if let Some(piece) = self.held(start, id) {
            piece.holder = None;
            piece.n_failures = if failed { piece.n_failures.saturating_add(1) } else { 0 };
        }
    }

    /// How far a holder's piece has come.
    #[cfg(test)]
    pub(crate) fn ts_of(&self, start: &Bytes) -> Option<Timestamp> {
        self.pieces.get(start).map(|piece| piece.ts)
    }

    fn held(&mut self, start: &Bytes, id: HolderId) -> Option<&mut Piece> {
        let piece = self.pieces.get_mut(start)?;
        piece.holder.as_ref().is_some_and(|holder| holder.id == id).then_some(piece)
    }

    /// The starts of the pieces that a part touches; `None` unless they cover it without a gap.
    fn covered(&self, part: &Part) -> Option<Vec<Bytes>> {
        if part.is_empty() {
            return None;
        }
        let first = self.pieces.range(..=part.start.clone()).next_back()?.0.clone();
        let mut covered = Vec::new();
        let mut reached: Option<Bytes> = None;
        for (start, piece) in self.pieces.range(first..) {
            let joins = match &reached {
                None => piece.end.is_empty() || piece.end > part.start,
                Some(reached) => reached == start,
            };
            if !joins {
                return None;
            }
            covered.push(start.clone());
            if ends_by(&part.end, &piece.end) {
                return Some(covered);
            }
            reached = Some(piece.end.clone());
        }
        None
    }

    /// Puts one piece in the place of those it covers, and leaves what sticks out of them.
    fn replace(&mut self, covered: &[Bytes], part: &Part, new: Piece) {
        for start in covered {
            let old = self.pieces.remove(start).expect("the piece was found above");
            if *start < part.start {
                self.pieces.insert(start.clone(), Piece { end: part.start.clone(), ..old.clone() });
            }
            if !ends_by(&old.end, &part.end) {
                self.pieces.insert(part.end.clone(), old);
            }
        }
        self.pieces.insert(part.start.clone(), new);
    }
}
