//! The first half of a transaction: locks, each key with its one final mutation.
//!
//! A request with a key twice ends a real server's process, so requests are made of [`Folded`] only. Not
//! atomic over regions: after a refusal some keys may be locked, and whoever began the transaction rolls it
//! back. A request whose answer was lost is sent again, which changes nothing where the lock is there.

use std::ops::ControlFlow;

use store::{Assertion, AssertionLevel, Key, KeyError, Mutation, MutationOp, PrewriteRequest};
use types::{Error, Result, Timestamp};

use crate::backoff::Pause;
use crate::cluster::Cluster;
use crate::key_error::key_error;
use crate::proto::kvrpcpb;

/// Mutations in key order, no two of one key, none of a key that no store takes.
#[derive(Clone, Debug)]
pub(crate) struct Folded(Vec<Mutation>);

impl Folded {
    /// Sorts and checks mutations.
    ///
    /// # Errors
    /// `Invalid` if a key comes twice or cannot be one.
    pub(crate) fn new(mut mutations: Vec<Mutation>) -> Result<Folded> {
        mutations.sort_by(|left, right| left.key.cmp(&right.key));
        for mutation in &mutations {
            store::check_key_length(&mutation.key)?;
        }
        match mutations.windows(2).find(|pair| pair[0].key == pair[1].key) {
            None => Ok(Folded(mutations)),
            Some(pair) => Err(Error::invalid(format!("one request has key {:?} twice", pair[0].key))),
        }
    }

    /// The mutations.
    pub(crate) fn mutations(&self) -> &[Mutation] {
        &self.0
    }

    /// The keys that get locks.
    pub(crate) fn locked_keys(&self) -> Vec<Key> {
        let locks = |mutation: &&Mutation| mutation.op != MutationOp::CheckNotExists;
        self.0.iter().filter(locks).map(|mutation| mutation.key.clone()).collect()
    }

    /// Those of some keys, and the others.
    fn split(self, keys: &[Key]) -> (Folded, Folded) {
        let (those, others) =
            self.0.into_iter().partition(|mutation| keys.binary_search(&mutation.key).is_ok());
        (Folded(those), Folded(others))
    }
}

fn raw(mutation: &Mutation) -> kvrpcpb::Mutation {
    let op = match mutation.op {
        MutationOp::Put => kvrpcpb::Op::Put,
        MutationOp::Delete => kvrpcpb::Op::Del,
        MutationOp::Lock => kvrpcpb::Op::Lock,
        MutationOp::Insert => kvrpcpb::Op::Insert,
        MutationOp::CheckNotExists => kvrpcpb::Op::CheckNotExists,
    };
    let assertion = match mutation.assertion {
        Assertion::None => kvrpcpb::Assertion::None,
        Assertion::Exist => kvrpcpb::Assertion::Exist,
        Assertion::NotExist => kvrpcpb::Assertion::NotExist,
    };
    kvrpcpb::Mutation {
        op: op.into(),
        key: mutation.key.clone(),
        value: mutation.value.clone(),
        assertion: assertion.into(),
    }
}

/// What all requests of a prewrite have in common.
#[derive(Clone, Debug)]
pub(crate) struct Locking {
    pub(crate) primary: Key,
    pub(crate) start_ts: Timestamp,
    pub(crate) ttl_ms: u64,
    pub(crate) txn_size: u64,
    pub(crate) min_commit_ts: Timestamp,
    pub(crate) assertion_level: AssertionLevel,
}

impl Locking {
    fn request(&self, mutations: &[Mutation]) -> kvrpcpb::PrewriteRequest {
        let level = match self.assertion_level {
            AssertionLevel::Off => kvrpcpb::AssertionLevel::Off,
            AssertionLevel::Fast => kvrpcpb::AssertionLevel::Fast,
            AssertionLevel::Strict => kvrpcpb::AssertionLevel::Strict,
        };
        kvrpcpb::PrewriteRequest {
            mutations: mutations.iter().map(raw).collect(),
            primary_lock: self.primary.clone(),
            start_version: self.start_ts.0,
            lock_ttl: self.ttl_ms,
            txn_size: self.txn_size,
            min_commit_ts: self.min_commit_ts.0,
            assertion_level: level.into(),
            ..Default::default()
        }
    }
}

/// What refuses a prewrite.
#[derive(Debug, Default)]
struct Refusals {
    locked: Vec<KeyError>,
    other: Option<KeyError>,
    /// Refused for now, without a reason that counts.
    again: Vec<Mutation>,
}

impl Refusals {
    /// Takes in an answer; breaks where nothing more need be sent.
    fn take(&mut self, mutations: Vec<Mutation>, errors: Vec<kvrpcpb::KeyError>) -> ControlFlow<()> {
        let mut retries = false;
        for error in errors.into_iter().map(key_error) {
            match error {
                KeyError::Locked(_) => self.locked.push(error),
                KeyError::Store(_) => retries = true,
                error => {
                    self.other.get_or_insert(error);
                }
            }
        }
        if retries {
            self.again.extend(mutations);
        }
        if self.other.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// The first error that is no lock, else all locks.
    fn errors(self) -> std::result::Result<(), Vec<KeyError>> {
        match (self.other, self.locked) {
            (Some(error), _) => Err(vec![error]),
            (None, locked) if locked.is_empty() => Ok(()),
            (None, locked) => Err(locked),
        }
    }
}

impl Cluster {
    /// Locks keys; see [`store::Store::prewrite`].
    ///
    /// # Errors
    /// Every lock of others that was met, or the first other reason.
    pub(crate) async fn prewrite(&self, request: PrewriteRequest) -> std::result::Result<(), Vec<KeyError>> {
        let one = |error: Error| vec![KeyError::Store(error)];
        let folded = Folded::new(request.mutations).map_err(one)?;
        store::check_key_length(&request.primary).map_err(one)?;
        let locking = Locking {
            primary: request.primary,
            start_ts: request.start_ts,
            ttl_ms: request.ttl_ms,
            txn_size: request.txn_size,
            min_commit_ts: request.min_commit_ts,
            assertion_level: request.assertion_level,
        };
        self.lock_keys(&locking, folded).await
    }

    /// Locks folded keys: first those that go with the primary, if it is among them, then the rest.
    ///
    /// # Errors
    /// Every lock of others that was met, or the first other reason.
    pub(crate) async fn lock_keys(
        &self,
        locking: &Locking,
        folded: Folded,
    ) -> std::result::Result<(), Vec<KeyError>> {
        let one = |error: Error| vec![KeyError::Store(error)];
        self.check_start(locking).await.map_err(one)?;
        let keys: Vec<Key> = folded.0.iter().map(|mutation| mutation.key.clone()).collect();
        let with_primary = keys.binary_search(&locking.primary).is_ok();
        let (first, rest) = if with_primary {
            let pieces = self.pieces(folded.0.clone(), false, &self.backoff()).await.map_err(one)?;
            let of_primary = pieces
                .iter()
                .find(|piece| piece.items.iter().any(|mutation| mutation.key == locking.primary));
            let keys: Vec<Key> = of_primary
                .map(|piece| piece.items.iter().map(|mutation| mutation.key.clone()).collect())
                .unwrap_or_default();
            folded.split(&keys)
        } else {
            (Folded(Vec::new()), folded)
        };
        self.send_folded(locking, first).await?;
        self.send_folded(locking, rest).await
    }

    /// A start must be known to the oracle and to history, or its conflicts are not.
    async fn check_start(&self, locking: &Locking) -> Result<()> {
        let start_ts = locking.start_ts;
        self.check_history(start_ts).await?;
        if start_ts == self.history.safe_point() {
            return Err(Error::history_gone(format!("transaction {start_ts} began at the safe point")));
        }
        self.passed(start_ts).await?;
        if locking.min_commit_ts > start_ts.next()? {
            self.passed(locking.min_commit_ts).await?;
        }
        Ok(())
    }

    async fn send_folded(&self, locking: &Locking, folded: Folded) -> std::result::Result<(), Vec<KeyError>> {
        let one = |error: Error| vec![KeyError::Store(error)];
        let mut wanted = folded.0;
        let mut backoff = self.backoff();
        while !wanted.is_empty() {
            let mut refusals = Refusals::default();
            let make = |mutations: &[Mutation]| locking.request(mutations);
            let hand_on = |mutations: Vec<Mutation>, answer: kvrpcpb::PrewriteResponse| {
                refusals.take(mutations, answer.errors)
            };
            self.in_batches(wanted, &backoff, make, hand_on).await.map_err(one)?;
            wanted = std::mem::take(&mut refusals.again);
            refusals.errors()?;
            if !wanted.is_empty() && !backoff.wait(Pause::Busy { hint_ms: 0 }).await {
                return Err(one(Error::unavailable("a region asks to be asked later, again and again")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_twice_cannot_be_sent() {
        let put = |key: &str| Mutation::put(key.to_owned(), "v");
        assert!(Folded::new(vec![put("b"), put("a"), put("b")]).is_err());
        let folded = Folded::new(vec![put("b"), put("a"), Mutation::check_not_exists("c")]).expect("no two");
        assert_eq!(folded.locked_keys(), ["a", "b"]);
        let (those, others) = folded.split(&[Key::from("b")]);
        assert_eq!((those.0.len(), others.0.len()), (1, 2));
    }

    #[test]
    fn another_reason_counts_before_locks() {
        let locked = kvrpcpb::KeyError { locked: Some(kvrpcpb::LockInfo::default()), ..Default::default() };
        let conflict = kvrpcpb::KeyError {
            conflict: Some(kvrpcpb::WriteConflict::default()),
            retryable: "text".to_owned(),
            ..Default::default()
        };
        let mut refusals = Refusals::default();
        assert!(refusals.take(Vec::new(), vec![locked.clone(), locked]).is_continue());
        assert!(refusals.take(Vec::new(), vec![conflict]).is_break());
        let errors = refusals.errors().expect_err("it is refused");
        assert!(matches!(errors.as_slice(), [KeyError::WriteConflict { .. }]), "{errors:?}");
    }

    #[test]
    fn only_a_bare_text_asks_for_a_retry() {
        let retryable = kvrpcpb::KeyError { retryable: "text".to_owned(), ..Default::default() };
        let mut refusals = Refusals::default();
        assert!(refusals.take(vec![Mutation::delete("k")], vec![retryable]).is_continue());
        assert_eq!(refusals.again.len(), 1);
        assert!(refusals.errors().is_ok());
    }
}
