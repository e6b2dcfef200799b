//! The second half of a transaction: its primary decides, the others follow.
//!
//! A commit of the primary whose answer was lost may have happened. It is asked for with the same timestamp
//! until the answer says what is: done, rolled back, or refused because readers have pushed it (then it did
//! not happen, and will not at that timestamp). That a commit is acknowledged says nothing of its timestamp
//! when it may be the second one: then the primary's record is read.

use std::ops::ControlFlow;

use store::{CommitRequest, Key, KeyError, KvResult, TxnStatus};
use types::{Error, Result, Timestamp};

use crate::backoff::{Backoff, Pause};
use crate::cluster::{Cluster, Trouble};
use crate::key;
use crate::key_error::key_error;
use crate::proto::kvrpcpb::{self, CommitRole};
use crate::status::whether_committed;

/// How far ahead of a refused commit its least timestamp may be; beyond it something is broken.
const AHEAD_MS_MAX: u64 = 60 * 60 * 1000;
/// Keys that are committed in one request with the primary.
const KEYS_WITH_PRIMARY_MAX: usize = 1024;

/// The commit of a primary.
pub(crate) struct Deciding<'a> {
    pub(crate) start_ts: Timestamp,
    pub(crate) primary: &'a Key,
    /// Keys that may go with it in one request, the primary included.
    pub(crate) keys: &'a [Key],
    /// `None` draws one.
    pub(crate) commit_ts: Option<Timestamp>,
    /// Whether the transaction may be committed already.
    pub(crate) in_doubt: bool,
}

/// A decided transaction.
pub(crate) struct Decided {
    pub(crate) commit_ts: Timestamp,
    /// Keys that are not committed yet.
    pub(crate) rest: Vec<Key>,
}

/// Fails if what is wanted of a commit is too far ahead to be true.
fn check_ahead(attempted: Timestamp, least: Timestamp) -> Result<()> {
    if least.physical_ms() > attempted.physical_ms().saturating_add(AHEAD_MS_MAX) {
        let text =
            format!("a commit at {attempted} is asked to be at or above {least}, more than an hour ahead");
        return Err(Error::corrupt(text));
    }
    Ok(())
}

impl Cluster {
    /// Commits keys; see [`store::Store::commit`].
    ///
    /// # Errors
    /// What the store says about the keys. `Unavailable` leaves the outcome unknown.
    pub(crate) async fn commit(&self, request: CommitRequest) -> KvResult<Timestamp> {
        let CommitRequest { start_ts, keys, primary, commit_ts } = request;
        let holds_primary = keys.contains(&primary);
        if commit_ts.is_none() && !holds_primary {
            let text = "only the commit of the primary may leave its timestamp open";
            return Err(KeyError::Abort(text.to_owned()));
        }
        if let Some(commit_ts) = commit_ts {
            if commit_ts <= start_ts {
                let text = format!("commit timestamp {commit_ts} is not above the start {start_ts}");
                return Err(KeyError::Abort(text));
            }
            self.passed(commit_ts).await?;
        }
        if !holds_primary {
            let commit_ts = commit_ts.unwrap_or_default();
            self.commit_others(start_ts, commit_ts, &primary, keys).await?;
            return Ok(commit_ts);
        }
        let deciding = Deciding { start_ts, primary: &primary, keys: &keys, commit_ts, in_doubt: false };
        let decided = self.decide(deciding).await?;
        self.commit_others(start_ts, decided.commit_ts, &primary, decided.rest).await?;
        Ok(decided.commit_ts)
    }

    /// Commits a primary, and with it in one request the keys of its region.
    ///
    /// # Errors
    /// What the store says about the keys. `Unavailable` leaves the outcome unknown.
    pub(crate) async fn decide(&self, deciding: Deciding<'_>) -> KvResult<Decided> {
        let Deciding { start_ts, primary, keys, commit_ts: named, mut in_doubt } = deciding;
        let encoded = key::encode(primary);
        let mut backoff = Backoff::new(self.options.commit_budget);
        let mut attempted = match named {
            Some(named) => named,
            None => self.timestamp().await?,
        };
        let mut resent = false;
        loop {
            let region = self.locate(&encoded).await?;
            // In doubt the primary goes alone: the others must follow its record.
            let with_primary =
                |key: &&Key| *key == primary || (!in_doubt && region.contains(&key::encode(key)));
            let mut together: Vec<Key> = keys.iter().filter(with_primary).cloned().collect();
            if together.len() > KEYS_WITH_PRIMARY_MAX {
                together = vec![primary.clone()];
            }
            let call = kvrpcpb::CommitRequest {
                context: Some(kvrpcpb::Context { is_retry_request: resent, ..Default::default() }),
                start_version: start_ts.0,
                keys: together.clone(),
                commit_version: attempted.0,
                commit_role: CommitRole::Primary.into(),
                primary_key: primary.clone(),
                ..Default::default()
            };
            let (pause, error) = match self.attempt(&region, call).await {
                Ok(answer) => match answer.error.map(key_error) {
                    None => {
                        let commit_ts =
                            if in_doubt { self.record(start_ts, primary).await? } else { attempted };
                        together.sort();
                        let done = |key: &&Key| together.binary_search(key).is_err();
                        return Ok(Decided { commit_ts, rest: keys.iter().filter(done).cloned().collect() });
                    }
                    Some(KeyError::CommitTsExpired { min_commit_ts, .. }) if named.is_none() => {
                        check_ahead(attempted, min_commit_ts)?;
                        attempted = self.timestamp().await?;
                        check_ahead(attempted, min_commit_ts)?;
                        let text = format!("commit of {start_ts} was pushed to {min_commit_ts}");
                        (Pause::None, Error::unavailable(text))
                    }
                    Some(KeyError::Store(error)) => (Pause::Busy { hint_ms: 0 }, error),
                    Some(error) => return Err(error),
                },
                Err(Trouble::Again(pause, error)) => (pause, error),
                Err(Trouble::Lost(error)) => {
                    in_doubt = true;
                    (Pause::Call, error)
                }
                Err(Trouble::TooLarge) => {
                    return Err(Error::invalid("a commit is larger than the cluster takes").into());
                }
                Err(Trouble::Fatal(error)) => return Err(error.into()),
            };
            tracing::debug!(%start_ts, region = region.id, %error, "committing again");
            resent = true;
            if !backoff.wait(pause).await {
                let outcome = if in_doubt { "it may have committed" } else { "it has not committed" };
                return Err(error.context(format!("transaction {start_ts}: {outcome}")).into());
            }
        }
    }

    /// The commit timestamp in the record of a primary whose commit is acknowledged.
    async fn record(&self, start_ts: Timestamp, primary: &Key) -> KvResult<Timestamp> {
        match self.check_status(&whether_committed(start_ts, primary)).await? {
            TxnStatus::Committed(commit_ts) => Ok(commit_ts),
            other => Err(Error::corrupt(format!(
                "the commit of transaction {start_ts} was acknowledged, its primary says {other:?}"
            ))
            .into()),
        }
    }

    /// Commits secondaries of a decided transaction.
    ///
    /// # Errors
    /// What the store says about the keys; the transaction stays committed.
    pub(crate) async fn commit_others(
        &self,
        start_ts: Timestamp,
        commit_ts: Timestamp,
        primary: &Key,
        keys: Vec<Key>,
    ) -> KvResult<()> {
        let make = |keys: &[Key]| kvrpcpb::CommitRequest {
            start_version: start_ts.0,
            keys: keys.to_vec(),
            commit_version: commit_ts.0,
            commit_role: CommitRole::Secondary.into(),
            primary_key: primary.clone(),
            ..Default::default()
        };
        let mut refusal = None;
        let hand_on = |_: Vec<Key>, answer: kvrpcpb::CommitResponse| {
            if let Some(error) = answer.error {
                refusal.get_or_insert(key_error(error));
            }
            ControlFlow::Continue(())
        };
        self.in_batches(keys, &self.backoff(), make, hand_on).await?;
        refusal.map_or(Ok(()), Err)
    }

    /// Rolls keys back; see [`store::Store::batch_rollback`].
    ///
    /// # Errors
    /// What the store says about the keys.
    pub(crate) async fn rollback(&self, start_ts: Timestamp, keys: Vec<Key>) -> KvResult<()> {
        keys.iter().try_for_each(|key| store::check_key_length(key))?;
        let make = |keys: &[Key]| kvrpcpb::BatchRollbackRequest {
            start_version: start_ts.0,
            keys: keys.to_vec(),
            ..Default::default()
        };
        let mut refusal = None;
        let hand_on = |_: Vec<Key>, answer: kvrpcpb::BatchRollbackResponse| {
            if let Some(error) = answer.error {
                refusal.get_or_insert(key_error(error));
            }
            ControlFlow::Continue(())
        };
        self.in_batches(keys, &self.backoff(), make, hand_on).await?;
        refusal.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_not_pushed_by_hours() {
        let attempted = Timestamp::from_parts(1_000, 0);
        assert!(check_ahead(attempted, Timestamp::from_parts(2_000, 0)).is_ok());
        assert!(check_ahead(attempted, Timestamp::from_parts(1_001 + AHEAD_MS_MAX, 0)).is_err());
    }
}
