//! Ranges of raw keys.

use crate::traits::Key;

/// A half-open range of keys; an empty `end` means no upper bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key, inclusive.
    pub start: Key,
    /// The end, exclusive; empty for none.
    pub end: Key,
}

impl KeyRange {
    /// A range of raw keys.
    pub fn new(start: impl Into<Key>, end: impl Into<Key>) -> KeyRange {
        KeyRange { start: start.into(), end: end.into() }
    }

    /// All keys with a prefix.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> KeyRange {
        KeyRange::new(prefix.to_vec(), types::records::prefix_end(prefix))
    }

    /// Every key.
    #[must_use]
    pub fn all() -> KeyRange {
        KeyRange::new(Vec::new(), Vec::new())
    }

    /// Whether a key lies in the range.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= self.start.as_ref() && (self.end.is_empty() || key < self.end.as_ref())
    }
}
