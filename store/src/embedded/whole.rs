//! Whole transactions in one call: checked, drawn and written inside the group commit.

use std::sync::Arc;

use types::{Error, Timestamp};

use super::Inner;
use super::committer::{Group, Step};
use super::core::Decision;
use super::decide::Committing;
use super::format::{PieceKind, Record, RecordKind};
use super::locks::Writer;
use super::prewrite::{Verdict, check_key, check_mutations, written_value};
use crate::resolve::{Backoff, settle_for_writer};
use crate::traits::{AssertionLevel, KeyError, KvResult, LockInfo, Mutation, MutationOp};

/// How an attempt ended.
enum Attempt {
    Committed(Timestamp),
    /// Somebody's lock is in the way.
    Locked(LockInfo),
}

/// What the lock table says about the keys of a whole transaction.
enum Reserved {
    /// The keys are the group's now.
    Yes,
    /// No answer before the group is over.
    Busy,
    Conflict(KeyError),
    Locked(LockInfo),
}

/// Marks the keys busy before anything is read about them, so that of a whole transaction and a prewrite
/// one sees the other: the lock has been entered by now, or its prewrite waits for the group.
fn reserve(group: &Group, start_ts: Timestamp, mutations: &[Mutation]) -> Reserved {
    let mut table = group.core.locks_mut();
    for mutation in mutations {
        if let Some(Writer { start_ts: winner, commit_ts }) = table.writer(&mutation.key) {
            if commit_ts <= start_ts || winner == start_ts {
                return Reserved::Busy;
            }
            return Reserved::Conflict(KeyError::WriteConflict {
                key: mutation.key.clone(),
                start_ts,
                conflict_start_ts: winner,
                conflict_commit_ts: commit_ts,
                self_rolled_back: false,
            });
        }
        if let Some(lock) = table.get(&mutation.key) {
            return Reserved::Locked(lock.info.clone());
        }
    }
    for mutation in mutations {
        table.mark_busy(mutation.key.clone(), Writer { start_ts, commit_ts: Timestamp::MAX });
    }
    Reserved::Yes
}

/// Settles the reservation: written keys stay busy until the group is over, the others are free.
fn settle(group: &Group, start_ts: Timestamp, mutations: &[Mutation], written: Option<Timestamp>) {
    let mut table = group.core.locks_mut();
    for mutation in mutations {
        match written {
            Some(commit_ts) if mutation.op != MutationOp::CheckNotExists => {
                table.mark_busy(mutation.key.clone(), Writer { start_ts, commit_ts });
            }
            _ => table.unmark_busy(&mutation.key),
        }
    }
    drop(table);
    group.core.announce();
}

fn whole_step(group: &mut Group, start_ts: Timestamp, mutations: &[Mutation]) -> Step<KvResult<Attempt>> {
    match reserve(group, start_ts, mutations) {
        Reserved::Busy => return Step::Busy,
        Reserved::Conflict(error) => return Step::Done(refused(group, start_ts, mutations, Err(error))),
        Reserved::Locked(info) => {
            return Step::Done(refused(group, start_ts, mutations, Ok(Attempt::Locked(info))));
        }
        Reserved::Yes => {}
    }
    let outcome = commit_whole(group, start_ts, mutations);
    let written = outcome.as_ref().ok().copied().and_then(|outcome| outcome.written);
    settle(group, start_ts, mutations, written);
    Step::Done(match outcome {
        Ok(outcome) => Ok(Attempt::Committed(outcome.commit_ts)),
        Err(error) => refused(group, start_ts, mutations, Err(error)),
    })
}

/// What keeps a transaction from committing, unless it is the same call once more: others may have gone on
/// since its first answer was lost, and any key that it wrote tells that it has committed.
fn refused(
    group: &Group,
    start_ts: Timestamp,
    mutations: &[Mutation],
    refusal: KvResult<Attempt>,
) -> KvResult<Attempt> {
    if matches!(refusal, Err(KeyError::Store(_))) {
        return refusal;
    }
    for mutation in mutations.iter().filter(|mutation| written_value(mutation).is_some()) {
        let decision = group.core.decision(group.engine.as_ref(), &mutation.key, start_ts)?;
        if let Some(Decision::Committed(commit_ts)) = decision {
            return Ok(Attempt::Committed(commit_ts));
        }
    }
    refusal
}

/// A commit, and whether this call has put it into the group.
#[derive(Clone, Copy)]
struct Outcome {
    commit_ts: Timestamp,
    written: Option<Timestamp>,
}

fn commit_whole(group: &mut Group, start_ts: Timestamp, mutations: &[Mutation]) -> KvResult<Outcome> {
    if start_ts < group.core.barrier() {
        return Err(KeyError::Store(Error::invalid(format!(
            "transaction {start_ts} began below the barrier {}, its conflicts are not known any more",
            group.core.barrier()
        ))));
    }
    let engine = Arc::clone(&group.engine);
    let mut changes = Vec::with_capacity(mutations.len());
    let mut guarded = Vec::new();
    for mutation in mutations {
        let known = (start_ts, start_ts);
        let verdict = check_key(&group.core, engine.as_ref(), mutation, known, AssertionLevel::Strict)?;
        let newest = match verdict {
            // The same call once more: its first answer was lost.
            Verdict::Committed(commit_ts) => return Ok(Outcome { commit_ts, written: None }),
            Verdict::Clear(newest) => newest,
        };
        if let Some(value) = written_value(mutation) {
            let replaces = newest.map(|(bytes, version)| (bytes, version.commit_ts));
            changes.push(Committing { key: mutation.key.clone(), value, replaces });
        } else if mutation.op == MutationOp::Lock {
            guarded.push(mutation.key.clone());
        }
    }
    let commit_ts = group.draw(start_ts.next()?)?;
    if changes.is_empty() && guarded.is_empty() {
        return Ok(Outcome { commit_ts, written: None });
    }
    for key in &guarded {
        group.write_record(key, Record { kind: RecordKind::WholeLock, start_ts, commit_ts })?;
    }
    group.write_versions(start_ts, commit_ts, PieceKind::Drawn, changes);
    group.must_sync();
    group.note_commit(commit_ts);
    Ok(Outcome { commit_ts, written: Some(commit_ts) })
}

impl Inner {
    pub(crate) async fn commit_whole(
        self: &Arc<Self>,
        start_ts: Timestamp,
        mutations: Vec<Mutation>,
    ) -> KvResult<Timestamp> {
        check_mutations(&mutations)?;
        self.core.oracle.check_named(start_ts)?;
        let mut mutations = mutations;
        mutations.sort_by(|left, right| left.key.cmp(&right.key));
        let mutations: Arc<[Mutation]> = mutations.into();
        let mut backoff = Backoff::new(self.core.options.lock_wait_ms_max);
        loop {
            let shared = Arc::clone(&mutations);
            let attempt = self.submit(move |group| whole_step(group, start_ts, &shared)).await??;
            match attempt {
                Attempt::Committed(commit_ts) => return Ok(commit_ts),
                Attempt::Locked(lock) if lock.start_ts == start_ts => {
                    return Err(KeyError::Abort(format!("transaction {start_ts} has locks already")));
                }
                Attempt::Locked(lock) => {
                    let store = super::EmbeddedStore { inner: Arc::clone(self) };
                    settle_for_writer(&store, &lock, &mut backoff).await?;
                }
            }
        }
    }
}
