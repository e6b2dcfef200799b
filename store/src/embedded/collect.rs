//! Holds, and garbage collection: the barrier rises first, then what nobody can read any more goes.
//!
//! The index tells what each commit replaced, so collecting costs what changed, not what exists.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use types::{Error, Result, Timestamp};

use super::Inner;
use super::committer::{Group, Step};
use super::core::{Core, META_BARRIER, META_HOLD};
use super::format::{IndexEntry, IndexPiece, Record, history_key, seal_number, split_index_key};
use crate::engine::{Space, can_be_key};
use crate::resolve::{Fate, ask, finish, next_key};
use crate::traits::{Key, KeyRange, LockInfo};

/// How many pieces of the index one step of the sweep takes.
const PIECES_PER_STEP: usize = 64;
/// How many keys with records one step of the sweep takes.
const RECORDS_PER_STEP: usize = 1024;

fn hold_key(name: &str) -> Bytes {
    [META_HOLD, name.as_bytes()].concat().into()
}

impl Inner {
    pub(crate) async fn hold(&self, name: &str, ts: Timestamp) -> Result<()> {
        if !can_be_key(&hold_key(name)) {
            return Err(Error::invalid(format!("the name of a hold has {} bytes, too many", name.len())));
        }
        let name = name.to_owned();
        self.submit(move |group| {
            let barrier = group.core.locks().barrier;
            if ts < barrier {
                return Step::Done(Err(Error::history_gone(format!(
                    "hold {name:?} at {ts} is below the barrier {barrier}"
                ))));
            }
            let key = hold_key(&name);
            group.batch.put(Space::Meta, key.clone(), seal_number(&key, ts.0));
            group.must_sync();
            group.core.holds().insert(name.clone(), ts);
            Step::Done(Ok(()))
        })
        .await?
    }

    pub(crate) async fn release(&self, name: &str) -> Result<()> {
        let name = name.to_owned();
        self.submit(move |group| {
            if group.core.holds().remove(&name).is_some() {
                group.batch.delete(Space::Meta, hold_key(&name));
                group.must_sync();
            }
            Step::Done(())
        })
        .await
    }

    pub(crate) fn holds(&self) -> Result<Vec<(String, Timestamp)>> {
        self.core.check_open()?;
        Ok(self.core.holds().iter().map(|(name, ts)| (name.clone(), *ts)).collect())
    }

    pub(crate) async fn collect(self: &Arc<Self>, barrier: Timestamp) -> Result<Timestamp> {
        let barrier = barrier.min(self.read_timestamp().await?);
        let barrier = barrier.min(oldest_needed(&self.core, barrier));
        self.resolve_old_locks(barrier).await?;
        let barrier = self.submit(move |group| Step::Done(raise_barrier(group, barrier))).await?;
        self.sweep_versions(barrier).await?;
        self.sweep_records(barrier).await?;
        Ok(barrier)
    }

    /// Rewrites one keyspace after the other; dropped, it ends with the one under way.
    pub(crate) async fn compact(&self) -> Result<bool> {
        let mut reclaimed = false;
        for space in Space::ALL {
            let turn = Arc::clone(&self.core.reclaiming).lock_owned().await;
            let engine = self.core.engine()?;
            let reclaim = tokio::task::spawn_blocking(move || {
                let reclaimed = engine.reclaim(space);
                drop(engine);
                drop(turn);
                reclaimed
            });
            let ended = reclaim.await.map_err(|error| Error::corrupt(format!("compaction: {error}")))?;
            reclaimed |= ended?;
        }
        Ok(reclaimed)
    }

    /// Finishes the locks of transactions that are decided or whose time is over.
    async fn resolve_old_locks(self: &Arc<Self>, barrier: Timestamp) -> Result<()> {
        let store = super::EmbeddedStore { inner: Arc::clone(self) };
        let locks: Vec<LockInfo> = self.scan_lock(&KeyRange::all(), barrier, 0)?;
        for lock in locks {
            match ask(&store, &lock, Timestamp::ZERO).await? {
                Fate::Committed(commit_ts) => finish(&store, &[&lock], Some(commit_ts)).await?,
                Fate::RolledBack => finish(&store, &[&lock], None).await?,
                // A living transaction keeps its history: the barrier stays below it.
                Fate::Pushed | Fate::Alive => {}
            }
        }
        Ok(())
    }

    async fn sweep_versions(&self, barrier: Timestamp) -> Result<()> {
        // What was swept before has left tombstones in the engine; do not walk over them again.
        let mut next = Some(Bytes::copy_from_slice(&self.core.swept().0.to_be_bytes()));
        while let Some(start) = next {
            next = self.submit(move |group| sweep_step(group, barrier, &start)).await??;
            tokio::task::yield_now().await;
        }
        self.core.note_swept(barrier);
        Ok(())
    }

    async fn sweep_records(&self, barrier: Timestamp) -> Result<()> {
        let mut after = Some(Key::new());
        while let Some(start) = after {
            after = self.submit(move |group| records_step(group, barrier, &start)).await??;
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}

/// The oldest timestamp that a hold or a reading needs, if any. The age of readings is counted from the newest
/// timestamp there is.
fn oldest_needed(core: &Core, wanted: Timestamp) -> Timestamp {
    let now = core.oracle.visible().max(wanted);
    let oldest_ms = now.physical_ms().saturating_sub(core.options.reading_ms_max);
    let read = core.readers.oldest(Timestamp::from_parts(oldest_ms, 0));
    let held = core.holds().values().min().copied();
    read.into_iter().chain(held).min().unwrap_or(Timestamp::MAX)
}

/// Raises the barrier as far as holds, readings and locks allow, and returns where it is.
fn raise_barrier(group: &mut Group, wanted: Timestamp) -> Timestamp {
    let held = oldest_needed(&group.core, wanted);
    let mut table = group.core.locks_mut();
    let oldest = table.oldest_of_all().map_or(Timestamp::MAX, Timestamp::prev);
    let barrier = wanted.min(held).min(oldest);
    if barrier <= table.barrier {
        return table.barrier;
    }
    table.barrier = barrier;
    drop(table);
    group.batch.put(Space::Meta, META_BARRIER, seal_number(META_BARRIER, barrier.0));
    group.must_sync();
    group.then(move |core| core.raise_barrier(barrier));
    barrier
}

/// Drops what some commits replaced; returns where to go on.
fn sweep_step(group: &mut Group, barrier: Timestamp, start: &Bytes) -> Step<Result<Option<Bytes>>> {
    let pieces = match old_pieces(group, barrier, start) {
        Ok(pieces) => pieces,
        Err(error) => return Step::Done(Err(error)),
    };
    let table = group.core.locks();
    let busy = |entry: &IndexEntry| table.is_busy(&entry.key);
    if pieces.iter().any(|(_, _, piece)| piece.entries.iter().any(busy)) {
        return Step::Busy;
    }
    drop(table);
    Step::Done(sweep(group, pieces))
}

type Piece = (Bytes, Timestamp, IndexPiece);

fn old_pieces(group: &Group, barrier: Timestamp, start: &Bytes) -> Result<Vec<Piece>> {
    let end = Bound::Excluded(Bytes::copy_from_slice(&barrier.0.saturating_add(1).to_be_bytes()));
    let entries = group.engine.range(Space::Index, (Bound::Included(start.clone()), end), false);
    let piece = |entry: Result<(Bytes, Bytes)>| {
        let (index_key, bytes) = entry?;
        let (commit_ts, _) = split_index_key(&index_key)?;
        let piece = IndexPiece::decode(&index_key, &bytes)?;
        Ok((index_key, commit_ts, piece))
    };
    entries.take(PIECES_PER_STEP).map(piece).collect()
}

fn sweep(group: &mut Group, pieces: Vec<Piece>) -> Result<Option<Bytes>> {
    let engine = Arc::clone(&group.engine);
    let last = (pieces.len() == PIECES_PER_STEP).then(|| pieces.last()).flatten();
    let next = last.map(|(index_key, ..)| Bytes::from(next_key(index_key)));
    for (index_key, commit_ts, piece) in pieces {
        for entry in piece.entries {
            if entry.previous != Timestamp::ZERO {
                group.batch.delete(Space::History, history_key(&entry.key, entry.previous));
            }
            if entry.deleted {
                let newest = group.core.newest(engine.as_ref(), &entry.key)?;
                if newest.is_some_and(|(_, version)| version.commit_ts == commit_ts) {
                    group.batch.delete(Space::Main, entry.key);
                }
            }
        }
        group.batch.delete(Space::Index, index_key);
    }
    Ok(next)
}

/// Drops the records at or below the barrier of some keys; returns where to go on.
fn records_step(group: &mut Group, barrier: Timestamp, start: &Key) -> Step<Result<Option<Key>>> {
    let engine = Arc::clone(&group.engine);
    let bounds = (Bound::Included(start.clone()), Bound::Unbounded);
    let mut next = None;
    let mut emptied = Vec::new();
    for (count, entry) in engine.range(Space::Records, bounds, false).enumerate() {
        let (key, bytes) = match entry {
            Ok(entry) => entry,
            Err(error) => return Step::Done(Err(error)),
        };
        if count == RECORDS_PER_STEP {
            next = Some(key);
            break;
        }
        if group.core.locks().is_busy(&key) {
            // Written by the group under way; what is read here is older. The next collection takes it.
            continue;
        }
        let mut records = match Record::decode_list(&key, &bytes) {
            Ok(records) => records,
            Err(error) => return Step::Done(Err(error)),
        };
        let before = records.len();
        records.retain(|record| record.commit_ts > barrier);
        if records.is_empty() {
            group.batch.delete(Space::Records, key.clone());
            emptied.push(key);
        } else if records.len() < before {
            let bytes = Record::encode_list(&key, &records);
            group.batch.put(Space::Records, key, bytes);
        }
    }
    if !emptied.is_empty() {
        let forget = std::mem::take(&mut emptied);
        let mut table = group.core.locks_mut();
        for key in &forget {
            // A record that the same group adds later must not be forgotten.
            table.mark_busy(
                key.clone(),
                super::locks::Writer { start_ts: barrier, commit_ts: Timestamp::ZERO },
            );
        }
        drop(table);
        group.then(move |core| core.forget_recorded(&forget));
    }
    Step::Done(Ok(next))
}
