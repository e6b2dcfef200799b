//! What the newest commits wrote and replaced, so that a feed of them looks nothing up.
//!
//! Feeds follow right behind the commits: jobs, refreshes, reads of views that lag. What they ask for first
//! has just been in the committer's hands. A commit never changes, so what is remembered stays right; whether
//! history may still be read is asked as ever. Bounded: large commits are not remembered, the oldest is
//! forgotten first, and what is forgotten is looked up.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use types::{Result, Timestamp};

use super::format::Version;
use crate::traits::{Key, Value};

/// The most keys of a commit that is remembered.
pub(crate) const KEYS_MAX: usize = 4096;
/// About how many bytes are remembered.
const BYTES_MAX: usize = 16 << 20;
/// What a key costs beside its bytes.
const KEY_BYTES: usize = 128;

/// A key that a commit wrote.
#[derive(Debug)]
pub(crate) struct Written {
    pub key: Key,
    /// The version, as it is stored.
    pub version: Bytes,
    /// The one that it replaced.
    pub replaced: Option<Bytes>,
}

/// The newest commits.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    commits: BTreeMap<Timestamp, Arc<Commit>>,
    n_bytes: usize,
}

/// What one commit wrote, in the order of keys.
#[derive(Debug)]
pub(crate) struct Commit {
    written: Vec<Written>,
    n_bytes: usize,
}

impl Recent {
    /// Notes what a commit wrote, in the order of keys. Of a commit that is known already nothing is added.
    pub(crate) fn note(&self, commit_ts: Timestamp, written: Vec<Written>) {
        let n_bytes = |one: &Written| {
            one.key.len() + one.version.len() + one.replaced.as_ref().map_or(0, Bytes::len) + KEY_BYTES
        };
        let n_bytes = written.iter().map(n_bytes).sum();
        let mut known = self.known();
        if known.commits.contains_key(&commit_ts) {
            return;
        }
        known.commits.insert(commit_ts, Arc::new(Commit { written, n_bytes }));
        known.n_bytes += n_bytes;
        while known.n_bytes > BYTES_MAX {
            let Some((_, oldest)) = known.commits.pop_first() else { break };
            known.n_bytes -= oldest.n_bytes;
        }
    }

    /// A commit, if it is remembered.
    pub(crate) fn commit(&self, commit_ts: Timestamp) -> Option<Arc<Commit>> {
        self.known().commits.get(&commit_ts).map(Arc::clone)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Commit {
    /// The values of a key after the commit and before it; `None` if that is not known.
    pub(crate) fn values(&self, key: &Key) -> Result<Option<(Option<Value>, Option<Value>)>> {
        let Ok(at) = self.written.binary_search_by(|one| one.key.cmp(key)) else { return Ok(None) };
        let Written { key, version, replaced } = &self.written[at];
        let value = Version::decode(key, version)?.value;
        let replaced = replaced.as_ref().map(|bytes| Version::decode(key, bytes)).transpose()?;
        Ok(Some((value, replaced.and_then(|version| version.value))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(key: &str, value: &str, replaced: Option<&str>) -> Written {
        let key = Key::from(key.to_owned());
        let version = |value: &str| {
            let value = Some(Value::from(value.to_owned()));
            let (commit_ts, start_ts, previous) = (Timestamp(2), Timestamp(1), Timestamp::ZERO);
            Version { commit_ts, start_ts, previous, value }.encode(&key)
        };
        Written { version: version(value), replaced: replaced.map(version), key }
    }

    #[test]
    fn a_commit_is_remembered_with_what_it_replaced() {
        let recent = Recent::default();
        recent.note(Timestamp(2), vec![written("a", "1", None), written("c", "2", Some("0"))]);
        recent.note(Timestamp(2), vec![written("b", "3", None)]);
        let commit = recent.commit(Timestamp(2)).expect("it is remembered");
        let values = |key: &str| commit.values(&Key::from(key.to_owned())).expect("nothing is broken");
        let value = |text: &str| Some(Value::from(text.to_owned()));
        assert_eq!(values("a"), Some((value("1"), None)));
        assert_eq!(values("c"), Some((value("2"), value("0"))));
        assert_eq!(values("b"), None);
        assert!(recent.commit(Timestamp(3)).is_none());
    }

    #[test]
    fn so_many_bytes_are_remembered_and_the_oldest_goes_first() {
        let recent = Recent::default();
        let value = "v".repeat(1 << 20);
        for commit_ts in 1..=20 {
            recent.note(Timestamp(commit_ts), vec![written("k", &value, None)]);
        }
        assert!(recent.commit(Timestamp(5)).is_none() && recent.commit(Timestamp(6)).is_some());
        assert!(recent.known().n_bytes <= BYTES_MAX);
    }
}
