//! What is left behind, and when it may go: orphan runs, and everything of dropped tables and views.
//!
//! A run may go when no manifest in force at or after the history barrier names it, and it is of an
//! older generation than its job's, or of an epoch at or below its job's frontier, or its job is over.
//! The [`Ledger`] knows which manifests named which runs until when; it is fed with the changes of the
//! manifests' keys, so a pass costs what changed. The order of a pass matters: runs are listed first,
//! then the ledger and the frontiers are read, so a run that is decided in between is seen as named.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use operators::Manifest;
use sql::catalog::DroppedTable;
use store::{Change, Key, KeyRange, Mutation, Snapshot, Store};
use types::records::{self, EpochRecord};
use types::{Error, JobId, Result, RunName, Timestamp};

use crate::records::{decode, refresh_key, rows_of, view_stats_key};
use crate::shared::Shared;
use crate::tidb_views::are_all_shown;

/// Keys that one transaction of the sweep deletes.
const KEYS_PER_DELETE: usize = 512;
/// Changes and keys that are read at a time.
const PAGE: usize = 2048;

/// Until when each run is named by a manifest in force.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Changes up to here are taken in; `None` before the first pass.
    read_to: Option<Timestamp>,
    /// `MAX` while a manifest names the run, else when the last manifest that did was replaced.
    named_until: BTreeMap<RunName, Timestamp>,
}

impl Ledger {
    /// Takes in a manifest in force.
    fn name(&mut self, manifest: &Manifest) {
        for run in &manifest.runs {
            self.named_until.insert(run.name, Timestamp::MAX);
        }
    }

    /// Takes in the change of one manifest's key.
    fn apply(&mut self, change: &Change) -> Result<()> {
        if let Some(old) = &change.old_value {
            for run in decode::<Manifest>("manifest", old)?.runs {
                self.named_until.insert(run.name, change.commit_ts);
            }
        }
        if let Some(new) = &change.value {
            self.name(&decode("manifest", new)?);
        }
        Ok(())
    }

    /// Whether a reader at or after the barrier may need the run.
    fn needs(&self, run: RunName, barrier: Timestamp) -> bool {
        self.named_until.get(&run).is_some_and(|until| *until > barrier)
    }

    /// Forgets runs that are gone.
    fn forget(&mut self, runs: &BTreeSet<RunName>) {
        self.named_until.retain(|run, _| !runs.contains(run));
    }

    /// Reads on to a timestamp; the first time from the barrier on.
    async fn read(&mut self, store: &Arc<dyn Store>, to: Timestamp) -> Result<()> {
        let range = KeyRange::prefix(&[records::PREFIX, b"m/"].concat());
        let from = match self.read_to {
            Some(from) => from,
            None => {
                // Versions below the barrier may be gone; the ones in force at it are not.
                let barrier = store.gc_barrier().await?;
                // A pass that was dropped may have begun to read.
                self.named_until.clear();
                for (_, value) in snapshot(store, barrier).scan_all(&range).await? {
                    self.name(&decode("manifest", &value)?);
                }
                barrier
            }
        };
        let ranges = [range];
        let mut next = None;
        let mut more = from < to;
        while more {
            let page = store.changes(&ranges, from, to, next, PAGE).await?;
            for change in &page.changes {
                self.apply(change)?;
            }
            next = page.next;
            more = next.is_some();
        }
        self.read_to = Some(to);
        Ok(())
    }
}

fn snapshot(store: &Arc<dyn Store>, at: Timestamp) -> Snapshot {
    Snapshot::new(Arc::clone(store), at)
}

/// What a pass removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Swept {
    /// Parts of runs.
    pub(crate) run_parts: usize,
    /// Keys of dropped tables and views.
    pub(crate) keys: usize,
}

/// Removes what nobody needs any more.
///
/// # Errors
/// What the store says; what was removed before stays removed.
pub(crate) async fn sweep(shared: &Shared, ledger: &mut Ledger) -> Result<Swept> {
    let keys = sweep_dropped(shared).await?;
    let run_parts = sweep_runs(shared, ledger).await?;
    Ok(Swept { run_parts, keys })
}

async fn sweep_runs(shared: &Shared, ledger: &mut Ledger) -> Result<usize> {
    let store = &shared.store;
    let listed = list_runs(store).await?;
    shared.pass("runtime::sweep_listed")?;
    let now = store.read_timestamp().await?;
    let mut read = ledger.read(store, now).await;
    if read.as_ref().is_err_and(Error::is_history_gone) {
        // History went on without us: begin again at the barrier.
        *ledger = Ledger::default();
        read = ledger.read(store, now).await;
    }
    if let Err(error) = read {
        *ledger = Ledger::default();
        return Err(error);
    }
    let barrier = store.gc_barrier().await?;
    let frontiers = frontiers(store, now).await?;
    let mut gone = BTreeSet::new();
    let mut keys = Vec::new();
    for (run, key) in listed {
        if !ledger.needs(run, barrier) && is_over(run, &frontiers) {
            gone.insert(run);
            keys.push(key);
        }
    }
    let n_parts = keys.len();
    for batch in keys.chunks(KEYS_PER_DELETE) {
        store.delete_blobs(batch.to_vec()).await?;
    }
    ledger.forget(&gone);
    Ok(n_parts)
}

async fn list_runs(store: &Arc<dyn Store>) -> Result<Vec<(RunName, Key)>> {
    let prefix = records::runs_prefix();
    let mut listed = Vec::new();
    let mut after = None;
    loop {
        let page = store.list_blobs(&prefix, after, PAGE).await?;
        let Some(last) = page.last().cloned() else { return Ok(listed) };
        for key in page {
            listed.push((records::run_of_key(&key)?.0, key));
        }
        after = Some(last);
    }
}

/// The epoch record of every job.
pub(crate) async fn frontiers(store: &Arc<dyn Store>, at: Timestamp) -> Result<BTreeMap<JobId, EpochRecord>> {
    let range = KeyRange::prefix(&records::epoch_record_prefix());
    let mut frontiers = BTreeMap::new();
    for (key, value) in snapshot(store, at).scan_all(&range).await? {
        frontiers.insert(records::job_of_epoch_record_key(&key)?, EpochRecord::decode(&value)?);
    }
    Ok(frontiers)
}

/// Whether nobody can name the run any more who does not name it already.
fn is_over(run: RunName, frontiers: &BTreeMap<JobId, EpochRecord>) -> bool {
    frontiers
        .get(&run.job)
        .is_none_or(|record| run.generation < record.generation || run.epoch <= record.epoch)
}

/// Deletes the rows and manifests of what was dropped, then the note. Ordinary transactions: readers of
/// the past still see the old versions, until garbage collection passes them.
async fn sweep_dropped(shared: &Shared) -> Result<usize> {
    let store = &shared.store;
    let now = store.read_timestamp().await?;
    let mut n_keys = 0;
    for (note_key, value) in
        snapshot(store, now).scan_all(&KeyRange::prefix(&records::dropped_prefix())).await?
    {
        let dropped: DroppedTable = decode("note of a dropped table", &value)?;
        match &dropped.tidb {
            // The note says that it is to go; TiDB removes the rows of what it drops.
            Some(tidb) => {
                let catalog = shared.catalog_at(now).await?;
                if tidb.is_there(dropped.table, &catalog.foreign) || !are_all_shown(&catalog) {
                    continue;
                }
            }
            None => n_keys += delete_range(store, rows_of(dropped.table)?).await?,
        }
        n_keys += delete_range(store, KeyRange::prefix(&records::manifest_prefix(dropped.table))).await?;
        shared.pass("runtime::sweep_before_note")?;
        let last = vec![
            Mutation::delete(records::row_id_allocator_key(dropped.table)),
            Mutation::delete(view_stats_key(dropped.table)),
            Mutation::delete(refresh_key(dropped.table)),
            Mutation::delete(note_key),
        ];
        store.commit_transaction(store.timestamp().await?, last).await?;
        tracing::info!(table = dropped.name, "removed what was left of a dropped table or view");
    }
    Ok(n_keys)
}

async fn delete_range(store: &Arc<dyn Store>, range: KeyRange) -> Result<usize> {
    let mut n_keys = 0;
    loop {
        let start_ts = store.timestamp().await?;
        store.wait_visible(start_ts).await?;
        let page = snapshot(store, start_ts).scan_keys(&range, KEYS_PER_DELETE).await?;
        if page.is_empty() {
            return Ok(n_keys);
        }
        n_keys += page.len();
        let mutations = page.into_iter().map(Mutation::delete).collect();
        store.commit_transaction(start_ts, mutations).await?;
    }
}

/// Releases holds of jobs that have no epoch record: fills that are over, and DDL that never committed.
pub(crate) async fn sweep_holds(shared: &Shared) -> Result<()> {
    // No DDL is between its hold and its commit while we have the turn.
    let _turn = shared.ddl.lock().await;
    let now = shared.store.read_timestamp().await?;
    for (name, _) in shared.store.holds().await? {
        let Some(job) = crate::shared::job_of_hold(&name) else { continue };
        if snapshot(&shared.store, now).get(&records::epoch_record_key(job)).await?.is_none() {
            shared.store.release(&name).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use operators::RunMeta;
    use types::{Epoch, Generation, TableId};

    fn run(generation: u64, epoch: u64, number: u32) -> RunName {
        RunName {
            job: JobId(1),
            generation: Generation(generation),
            epoch: Epoch(epoch),
            view: TableId(7),
            number,
        }
    }

    fn manifest(runs: &[RunName]) -> Manifest {
        let meta = |name: &RunName| {
            let json = serde_json::json!({
                "name": name, "n_rows": 1, "n_bytes": 1, "tier": 0, "first_hash": 0, "last_hash": 0
            });
            serde_json::from_value::<RunMeta>(json).expect("a run's entry")
        };
        Manifest { runs: runs.iter().map(meta).collect() }
    }

    fn change(commit_ts: u64, old: Option<&Manifest>, new: Option<&Manifest>) -> Change {
        let encode = |manifest: &Manifest| serde_json::to_vec(manifest).expect("a manifest").into();
        Change {
            key: Key::new(),
            start_ts: Timestamp(commit_ts - 1),
            commit_ts: Timestamp(commit_ts),
            value: new.map(encode),
            old_value: old.map(encode),
        }
    }

    #[test]
    fn run_is_needed_until_the_barrier_passes_its_last_manifest() {
        let mut ledger = Ledger::default();
        let (first, second) = (run(1, 1, 0), run(1, 2, 0));
        ledger.apply(&change(10, None, Some(&manifest(&[first])))).unwrap();
        ledger.apply(&change(20, Some(&manifest(&[first])), Some(&manifest(&[second])))).unwrap();
        assert!(ledger.needs(first, Timestamp(19)), "a reader at 19 sees the first manifest");
        assert!(!ledger.needs(first, Timestamp(20)), "from 20 on nobody does");
        assert!(ledger.needs(second, Timestamp(1_000_000)), "a run in force is always needed");
        assert!(!ledger.needs(run(1, 9, 0), Timestamp(0)), "a run that no manifest ever named");
    }

    #[test]
    fn run_that_stays_through_a_change_stays_needed() {
        let mut ledger = Ledger::default();
        let (kept, new) = (run(1, 1, 0), run(1, 2, 0));
        ledger.apply(&change(10, None, Some(&manifest(&[kept])))).unwrap();
        ledger.apply(&change(20, Some(&manifest(&[kept])), Some(&manifest(&[kept, new])))).unwrap();
        assert!(ledger.needs(kept, Timestamp(100)));
        ledger.apply(&change(30, Some(&manifest(&[kept, new])), None)).unwrap();
        assert!(ledger.needs(kept, Timestamp(29)) && !ledger.needs(kept, Timestamp(30)));
    }

    #[test]
    fn open_epoch_of_the_newest_generation_is_not_over() {
        let record =
            EpochRecord { epoch: Epoch(5), cut: Timestamp(9), generation: Generation(3), definitions: 0 };
        let frontiers = BTreeMap::from([(JobId(1), record)]);
        assert!(!is_over(run(3, 6, 0), &frontiers), "it may be decided any moment");
        assert!(is_over(run(3, 5, 0), &frontiers));
        assert!(is_over(run(2, 6, 0), &frontiers), "a zombie's");
        assert!(is_over(run(3, 6, 0), &BTreeMap::new()), "the job is over");
    }
}
