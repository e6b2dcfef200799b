//! The comparable encoding of keys, in which regions have their bounds.
//!
//! Groups of eight bytes, each followed by a marker that says how many of them count, so that encoded
//! keys sort as raw ones and none is a prefix of another. Requests and rows carry raw keys; regions, their
//! splits and subscriptions carry encoded ones.

use bytes::Bytes;
use tidb::comparable::{put_bytes, take_bytes};

/// Encodes a raw key.
#[must_use]
pub fn encode(raw: &[u8]) -> Bytes {
    let mut encoded = Vec::new();
    put_bytes(&mut encoded, raw);
    encoded.into()
}

/// Encodes the bound of a range: empty stays empty, which is no bound.
#[must_use]
pub fn encode_bound(raw: &[u8]) -> Bytes {
    if raw.is_empty() { Bytes::new() } else { encode(raw) }
}

/// Decodes a key; `None` if it is not encoded.
#[must_use]
pub fn decode(encoded: &[u8]) -> Option<Bytes> {
    let (mut rest, mut raw) = (encoded, Vec::new());
    take_bytes(&mut rest, &mut raw).ok()?;
    rest.is_empty().then(|| raw.into())
}

/// Decodes a bound: empty stays empty.
#[must_use]
pub fn decode_bound(encoded: &[u8]) -> Option<Bytes> {
    if encoded.is_empty() { Some(Bytes::new()) } else { decode(encoded) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_every_length_come_back_in_order() {
        let keys: Vec<Vec<u8>> = (0..40).map(|length| (0..length).map(|at| at % 5).collect()).collect();
        for key in &keys {
            assert_eq!(decode(&encode(key)).as_deref(), Some(key.as_slice()));
        }
        let mut by_raw = keys.clone();
        by_raw.sort();
        let mut by_encoded = keys;
        by_encoded.sort_by_key(|key| encode(key));
        assert_eq!(by_raw, by_encoded);
    }

    #[test]
    fn a_recorded_bound_is_what_the_encoding_gives() {
        assert_eq!(encode(b"B06/h").as_ref(), b"B06/h\0\0\0\xfc");
        assert_eq!(decode(b"B06/h"), None);
        assert_eq!(decode(b"B06/h\0\0\x01\xfc"), None);
    }
}
