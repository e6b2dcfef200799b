//! Keys of this crate's own in the cluster, under Tidemill's private prefix.
//!
//! ```text
//! ~tm/b/<key>    an unversioned value, as an ordinary key: raw keys do not mix with transactional ones
//! ~tm/h/<name>   a hold, where the placement driver lists none to us: its timestamp, big-endian
//! ```
//!
//! The records of `types::records` under the same prefix begin with other letters.

use store::{Key, KeyRange};
use types::records::PREFIX;
use types::{Error, Result, Timestamp};

const BLOBS: &[u8] = b"b/";
const HOLDS: &[u8] = b"h/";

fn under(kind: &[u8], rest: &[u8]) -> Key {
    [PREFIX, kind, rest].concat().into()
}

/// The key of an unversioned value.
pub(crate) fn blob(key: &[u8]) -> Key {
    under(BLOBS, key)
}

/// All unversioned values with a prefix, after a key of theirs.
pub(crate) fn blobs(prefix: &[u8], after: Option<&Key>) -> KeyRange {
    let mut range = KeyRange::prefix(&under(BLOBS, prefix));
    if let Some(after) = after {
        range.start = range.start.max(store::next_key(&blob(after)).into());
    }
    range
}

/// The unversioned value's key of a stored one.
///
/// # Errors
/// `Corrupt` if it is none of these keys.
pub(crate) fn blob_of(key: &[u8]) -> Result<Key> {
    strip(BLOBS, key).map(Key::copy_from_slice)
}

/// The record of a hold.
pub(crate) fn hold(name: &str) -> Key {
    under(HOLDS, name.as_bytes())
}

/// All records of holds.
pub(crate) fn holds() -> KeyRange {
    KeyRange::prefix(&under(HOLDS, b""))
}

/// A hold of its record.
///
/// # Errors
/// `Corrupt` if it is no such record.
pub(crate) fn hold_of(key: &[u8], value: &[u8]) -> Result<(String, Timestamp)> {
    let bad = || Error::corrupt("not the record of a hold");
    let name = std::str::from_utf8(strip(HOLDS, key)?).map_err(|_| bad())?;
    let ts = <[u8; 8]>::try_from(value).map_err(|_| bad())?;
    Ok((name.to_owned(), Timestamp(u64::from_be_bytes(ts))))
}

fn strip<'a>(kind: &[u8], key: &'a [u8]) -> Result<&'a [u8]> {
    let rest = key.strip_prefix(PREFIX).and_then(|rest| rest.strip_prefix(kind));
    rest.ok_or_else(|| Error::corrupt("a key lies outside its prefix"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_record_of_tidemill_lies_there() {
        let others = [
            types::records::store_identity_key(),
            types::records::id_allocator_key(),
            types::records::epoch_record_prefix(),
            types::records::dropped_prefix(),
        ];
        for key in others {
            assert!(!blobs(b"", None).contains(&key) && !holds().contains(&key));
        }
        assert!(!holds().contains(&blob(b"k")));
    }

    #[test]
    fn names_come_back() {
        assert_eq!(blob_of(&blob(b"run/1")).expect("it is one"), "run/1");
        let (name, ts) = hold_of(&hold("fill"), &7u64.to_be_bytes()).expect("it is one");
        assert_eq!((name.as_str(), ts), ("fill", Timestamp(7)));
        assert!(blob_of(&hold("fill")).is_err());
    }

    #[test]
    fn a_list_goes_on_behind_its_last_key() {
        let range = blobs(b"run/", Some(&Key::from("run/1")));
        assert!(!range.contains(&blob(b"run/1")) && range.contains(&blob(b"run/1\0")));
        assert!(!range.contains(&blob(b"run0")));
        let before = blobs(b"run/", Some(&Key::from("a")));
        assert_eq!(before.start, blob(b"run/"), "never before the prefix");
    }
}
