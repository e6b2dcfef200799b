//! Keys of regions: the comparable bytes encoding of raw keys, in which an empty end is no end.
//!
//! The placement driver, bounds of regions and bounds of change feeds speak encoded keys; reads and writes
//! raw ones. Encoding keeps the order, so a raw range is an encoded range.

use bytes::Bytes;
use store::{Key, KeyRange};
use types::{Error, Result};

/// The encoded form of a raw key; the empty key stays empty, it begins or ends everything.
pub(crate) fn encode(raw: &[u8]) -> Bytes {
    if raw.is_empty() {
        return Bytes::new();
    }
    let mut out = Vec::new();
    tidb::comparable::put_bytes(&mut out, raw);
    out.into()
}

/// The raw form of a bound.
///
/// # Errors
/// `Corrupt` if it is not in the encoding.
pub(crate) fn decode(encoded: &[u8]) -> Result<Key> {
    if encoded.is_empty() {
        return Ok(Key::new());
    }
    let (mut input, mut out) = (encoded, Vec::new());
    tidb::comparable::take_bytes(&mut input, &mut out)?;
    if !input.is_empty() {
        return Err(Error::corrupt("something follows an encoded key"));
    }
    Ok(out.into())
}

/// Whether an end lies at or beyond another; the empty one is the end of everything.
pub(crate) fn end_reaches(end: &[u8], other: &[u8]) -> bool {
    end.is_empty() || (!other.is_empty() && end >= other)
}

/// The part of one range that lies in another; `None` if it is empty.
pub(crate) fn intersect(left: &KeyRange, right: &KeyRange) -> Option<KeyRange> {
    let start = left.start.clone().max(right.start.clone());
    let end = if end_reaches(&left.end, &right.end) { &right.end } else { &left.end };
    (end.is_empty() || start < *end).then(|| KeyRange { start, end: end.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_come_back() {
        for raw in [b"".as_slice(), b"a", b"12345678", b"123456789", b"\x00\x00", b"t\x80\xff"] {
            assert_eq!(decode(&encode(raw)).expect("it was encoded"), raw);
        }
        assert_eq!(encode(b"B06/m").as_ref(), [0x42, 0x30, 0x36, 0x2f, 0x6d, 0, 0, 0, 0xfc]);
        assert!(decode(b"short").is_err());
    }

    #[test]
    fn the_empty_end_is_the_last() {
        assert!(end_reaches(b"", b"z") && end_reaches(b"", b"") && end_reaches(b"b", b"b"));
        assert!(!end_reaches(b"b", b"") && !end_reaches(b"a", b"b"));
    }

    #[test]
    fn ranges_intersect() {
        let range = |start: &str, end: &str| KeyRange::new(start.to_owned(), end.to_owned());
        assert_eq!(intersect(&range("a", "m"), &range("c", "")), Some(range("c", "m")));
        assert_eq!(intersect(&range("", ""), &range("c", "d")), Some(range("c", "d")));
        assert_eq!(intersect(&range("a", "c"), &range("c", "d")), None);
    }
}
