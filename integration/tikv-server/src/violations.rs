//! What clients did that they must not, how often each call came, and how many came one after the other.
//!
//! A real store ends its process on some requests and takes others without a word that are wrong all the
//! same. Here both are noted; a test asks at its end and fails.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most violations that are kept word for word.
const VIOLATIONS_MAX: usize = 1000;

/// How often a call came and how many bytes it had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Requests.
    pub requests: u64,
    /// Bytes of the requests.
    pub request_bytes: u64,
    /// Bytes of the answers.
    pub answer_bytes: u64,
}

#[derive(Debug, Default)]
struct Notes {
    violations: Vec<String>,
    counts: BTreeMap<&'static str, Count>,
}

/// Violations and counts.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    notes: Mutex<Notes>,
    /// The longest chain of calls so far of which each began after the one before had ended.
    rounds: AtomicU64,
}

/// A call under way.
pub(crate) struct Round<'a> {
    ledger: &'a Ledger,
    number: u64,
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        self.ledger.rounds.fetch_max(self.number, Ordering::SeqCst);
    }
}

impl Ledger {
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a violation.
    pub(crate) fn violation(&self, what: String) {
        tracing::warn!(%what, "a client did what it must not");
        let mut notes = self.notes();
        if notes.violations.len() < VIOLATIONS_MAX {
            notes.violations.push(what);
        }
    }

    /// Notes what would end a real store, and gives the answer.
    pub(crate) fn refuse(&self, what: String) -> tonic::Status {
        let status = tonic::Status::internal(format!("a real store would have ended here: {what}"));
        self.violation(what);
        status
    }

    pub(crate) fn count(&self, rpc: &'static str, request_bytes: usize, answer_bytes: usize) {
        let mut notes = self.notes();
        let count = notes.counts.entry(rpc).or_default();
        count.requests += 1;
        count.request_bytes += request_bytes as u64;
        count.answer_bytes += answer_bytes as u64;
    }

    /// Counts more bytes of an answer that is a stream.
    pub(crate) fn count_streamed(&self, rpc: &'static str, answer_bytes: usize) {
        self.notes().counts.entry(rpc).or_default().answer_bytes += answer_bytes as u64;
    }

    /// A call begins; it ends when what this returns is dropped.
    pub(crate) fn round(&self) -> Round<'_> {
        Round { ledger: self, number: self.rounds.load(Ordering::SeqCst) + 1 }
    }

    /// The round trips of whoever waits for every call, if nobody else calls meanwhile: counted on.
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::SeqCst)
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.notes().violations.clone()
    }

    pub(crate) fn forget_violations(&self) -> Vec<String> {
        std::mem::take(&mut self.notes().violations)
    }

    pub(crate) fn counts(&self) -> BTreeMap<&'static str, Count> {
        self.notes().counts.clone()
    }
}
