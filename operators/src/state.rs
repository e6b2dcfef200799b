//! What an operator remembers: an overlay of in-memory runs over a manifest of sealed ones.
//!
//! Reading never changes a [`State`]; writing appends runs in memory. Sealing merges those, with as many
//! of the newest sealed runs as keeps sizes geometric, into runs with names, and yields the manifest to
//! commit. So any number of states may stand over one manifest: the epoch's, and each query's own.
//! Keys begin with their hash ([`keyed`](crate::keyed)), whose first byte is the vnode. What sealing leaves
//! in several tiers is merged into one when that is asked for, in steps of bounded size (`steps`).

mod steps;

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use types::{Epoch, Error, Generation, JobId, Result, RunName, TableId};

use crate::merge::{Deletions, Merge, Merged, merge_runs};
use crate::run::{Run, RunBuilder, StateKind, add_weights, hash_of};
use steps::Pass;

/// The data of one run; a merge begins another one beyond it.
pub const RUN_BYTES_MAX: usize = 16 << 20;

/// In-memory runs are merged into one when there are more.
const MEMORY_RUNS_MAX: usize = 8;

/// Where sealed runs are read from (a cache over the store's blobs). Called from blocking threads.
pub trait RunSource: Send + Sync {
    /// A whole run. [`Run::from_bytes`] verifies the bytes; a cache keeps the [`Run`], which is cheap to clone.
    ///
    /// # Errors
    /// `Corrupt` if the run is not there, `Unavailable` if the store is away.
    fn read_run(&self, name: RunName) -> Result<Run>;
}

/// What a manifest knows about one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunMeta {
    /// The run.
    pub name: RunName,
    /// Its rows.
    pub n_rows: u64,
    /// How many of them, the first, are in the oldest tier by now, and not here any more.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub n_merged: u64,
    /// Its encoded size.
    pub n_bytes: u64,
    /// Runs of one tier came from one merge: they are of one age and share no key.
    pub tier: u32,
    /// The least hash of a key in it.
    pub first_hash: u32,
    /// The greatest hash of a key in it.
    pub last_hash: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks like this")]
fn is_zero(n_rows: &u64) -> bool {
    *n_rows == 0
}

impl RunMeta {
    fn of(run: &Run, name: RunName, tier: u32) -> RunMeta {
        RunMeta {
            name,
            n_rows: run.n_rows() as u64,
            n_merged: 0,
            n_bytes: run.n_bytes() as u64,
            tier,
            first_hash: run.first_hash(),
            last_hash: run.last_hash(),
        }
    }

    /// Rows that count.
    #[must_use]
    pub fn n_rows_left(&self) -> u64 {
        self.n_rows.saturating_sub(self.n_merged)
    }

    /// About how many bytes the rows have that count.
    #[must_use]
    pub fn n_bytes_left(&self) -> u64 {
        let left = u128::from(self.n_bytes) * u128::from(self.n_rows_left());
        u64::try_from(left.div_ceil(u128::from(self.n_rows.max(1)))).unwrap_or(self.n_bytes)
    }
}

/// The runs of one operator's state at an epoch, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The runs.
    pub runs: Vec<RunMeta>,
}

impl Manifest {
    /// The tiers: a state of one is as small as it can be, each key in it once.
    #[must_use]
    pub fn n_tiers(&self) -> usize {
        self.runs.chunk_by(|left, right| left.tier == right.tier).count()
    }

    /// Bytes of all runs, and of those that are newer than the oldest tier: about as much of the state as
    /// may be dead, because a newer run of its says so.
    #[must_use]
    pub fn n_bytes(&self) -> (u64, u64) {
        let oldest = self.runs.first().map_or(0, |run| run.tier);
        let bytes = |runs: &mut dyn Iterator<Item = &RunMeta>| runs.map(RunMeta::n_bytes_left).sum::<u64>();
        let newer = bytes(&mut self.runs.iter().filter(|run| run.tier != oldest));
        (bytes(&mut self.runs.iter()), newer)
    }
}

/// A run that was sealed at a barrier and must be written before the epoch's vote.
#[derive(Clone, Debug)]
pub struct SealedRun {
    /// Its name.
    pub name: RunName,
    /// Its bytes.
    pub bytes: Bytes,
}

/// Hands out the names of one view's runs in one epoch; all states of the view share it.
#[derive(Clone, Debug)]
pub struct RunNamer {
    next: RunName,
}

impl RunNamer {
    /// Names for the runs of a view that a job's generation seals in an epoch.
    #[must_use]
    pub fn new(job: JobId, generation: Generation, epoch: Epoch, view: TableId) -> RunNamer {
        RunNamer { next: RunName { job, generation, epoch, view, number: 0 } }
    }

    /// A name that was not given before.
    pub fn next_name(&mut self) -> RunName {
        let name = self.next;
        self.next.number += 1;
        name
    }
}

/// A sealed run that is read when it is first needed; clones of a state share it.
#[derive(Debug)]
struct Handle {
    meta: RunMeta,
    run: OnceLock<Run>,
}

/// The state of one operator: an overlay over a manifest.
#[derive(Clone)]
pub struct State {
    kind: StateKind,
    source: Arc<dyn RunSource>,
    /// Oldest first.
    sealed: Vec<Arc<Handle>>,
    /// Oldest first; all newer than `sealed`.
    memory: Vec<Run>,
    /// Sealed runs were let go of, and no manifest says so yet.
    is_cleared: bool,
    /// The merge of all runs into one tier, if it was asked for and is not over.
    compaction: Option<Compaction>,
}

/// A merge in steps.
#[derive(Clone, Debug)]
struct Compaction {
    /// Bytes of one step.
    n_bytes_max: usize,
    /// How far it is, once it has begun.
    pass: Option<Pass>,
    /// Whether a step is to be done when the state is sealed next.
    is_due: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let State { kind, sealed, memory, source: _, is_cleared: _, compaction: _ } = self;
        write!(formatter, "State({kind:?}, {} sealed runs, {} in memory)", sealed.len(), memory.len())
    }
}

impl State {
    /// The state of a manifest; nothing is read yet.
    #[must_use]
    pub fn open(kind: StateKind, manifest: &Manifest, source: Arc<dyn RunSource>) -> State {
        let sealed = manifest
            .runs
            .iter()
            .map(|meta| Arc::new(Handle { meta: meta.clone(), run: OnceLock::new() }))
            .collect();
        State { kind, source, sealed, memory: Vec::new(), is_cleared: false, compaction: None }
    }

    /// What its entries mean.
    #[must_use]
    pub fn kind(&self) -> StateKind {
        self.kind
    }

    /// The manifest of what is sealed.
    #[must_use]
    pub fn manifest(&self) -> Manifest {
        Manifest { runs: self.sealed.iter().map(|handle| handle.meta.clone()).collect() }
    }

    /// Has the runs merged into one tier when the state is sealed next: all of them, if they have no more
    /// bytes, or about so many, and then [`State::is_compacting`] until it was asked for often enough.
    /// Meanwhile others may come. What the state holds stays the same.
    pub fn compact(&mut self, n_bytes_max: usize) {
        let pass = self.compaction.take().and_then(|compaction| compaction.pass);
        self.compaction = Some(Compaction { n_bytes_max: n_bytes_max.max(1), pass, is_due: true });
    }

    /// Whether a merge that was asked for is not over.
    #[must_use]
    pub fn is_compacting(&self) -> bool {
        self.compaction.is_some()
    }

    /// Entries, before runs are merged.
    #[must_use]
    pub fn n_rows(&self) -> u64 {
        let sealed: u64 = self.sealed.iter().map(|handle| handle.meta.n_rows_left()).sum();
        sealed + self.memory.iter().map(|run| run.n_rows() as u64).sum::<u64>()
    }

    /// Encoded bytes, before runs are merged.
    #[must_use]
    pub fn n_bytes(&self) -> u64 {
        let sealed: u64 = self.sealed.iter().map(|handle| handle.meta.n_bytes_left()).sum();
        sealed + self.unsealed_bytes()
    }

    /// Bytes of runs that are not sealed yet.
    #[must_use]
    pub fn unsealed_bytes(&self) -> u64 {
        self.memory.iter().map(|run| run.n_bytes() as u64).sum()
    }

    /// Bytes of runs that are held in memory.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let loaded = self.sealed.iter().filter(|handle| handle.run.get().is_some());
        loaded.map(|handle| handle.meta.n_bytes).sum::<u64>() + self.unsealed_bytes()
    }

    /// Lets go of sealed runs; they are read again when needed.
    pub fn unload(&mut self) {
        for handle in &mut self.sealed {
            if handle.run.get().is_some() {
                *handle = Arc::new(Handle { meta: handle.meta.clone(), run: OnceLock::new() });
            }
        }
    }

    /// Adds a run that is newer than all there is. An empty one changes nothing.
    ///
    /// # Errors
    /// `Corrupt` if weights overflow.
    ///
    /// # Panics
    /// If the run is of the other kind.
    pub fn append(&mut self, run: Run) -> Result<()> {
        assert_eq!(run.kind(), self.kind, "a state holds runs of one kind");
        if run.n_rows() > 0 {
            self.memory.push(run);
        }
        if self.memory.len() > MEMORY_RUNS_MAX {
            let runs: Vec<&Run> = self.memory.iter().collect();
            self.memory = merge_runs(self.kind, &runs, Deletions::Keep, RUN_BYTES_MAX)?;
        }
        Ok(())
    }

    /// Adds runs of one age that share no key.
    ///
    /// # Errors
    /// As [`State::append`].
    pub(crate) fn append_shards(&mut self, runs: Vec<Run>) -> Result<()> {
        let runs: Vec<&Run> = runs.iter().filter(|run| run.n_rows() > 0).collect();
        if let [run] = runs.as_slice() {
            return self.append(Run::clone(run));
        }
        merge_runs(self.kind, &runs, Deletions::Keep, RUN_BYTES_MAX)?
            .into_iter()
            .try_for_each(|run| self.append(run))
    }

    /// Takes everything out.
    pub(crate) fn clear(&mut self) {
        self.is_cleared |= !self.sealed.is_empty();
        self.sealed.clear();
        self.memory.clear();
        self.compaction = None;
    }

    /// Puts one key of a map; for many keys build a run and append it.
    ///
    /// # Errors
    /// As [`State::append`].
    pub fn put(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let mut builder = RunBuilder::new(StateKind::Map);
        builder.push_value(key, value);
        self.append(builder.finish())
    }

    /// All runs that may hold keys with a hash in the range, oldest first, read if they were not.
    ///
    /// # Errors
    /// Those of the source; `Corrupt` if a run is not what the manifest says.
    pub fn runs(&self, hashes: std::ops::RangeInclusive<u32>) -> Result<Vec<&Run>> {
        let mut runs = Vec::with_capacity(self.sealed.len() + self.memory.len());
        for handle in &self.sealed {
            if handle.meta.first_hash <= *hashes.end() && *hashes.start() <= handle.meta.last_hash {
                runs.push(self.load(handle)?);
            }
        }
        let overlaps = |run: &&Run| run.first_hash() <= *hashes.end() && *hashes.start() <= run.last_hash();
        runs.extend(self.memory.iter().filter(overlaps));
        Ok(runs)
    }

    fn load<'a>(&'a self, handle: &'a Handle) -> Result<&'a Run> {
        if let Some(run) = handle.run.get() {
            return Ok(run);
        }
        let run = self.read(handle)?;
        Ok(handle.run.get_or_init(|| run))
    }

    /// A run that is kept by the source alone, if it was not needed before.
    fn read(&self, handle: &Handle) -> Result<Run> {
        if let Some(run) = handle.run.get() {
            return Ok(run.clone());
        }
        let meta = &handle.meta;
        let run = self.source.read_run(meta.name)?;
        let n_merged = usize::try_from(meta.n_merged).unwrap_or(usize::MAX);
        if run.kind() != self.kind
            || run.n_rows() as u64 != meta.n_rows
            || run.n_bytes() as u64 != meta.n_bytes
            || n_merged > run.n_rows()
        {
            return Err(Error::corrupt(format!("run {:?} is not what its manifest says", meta.name)));
        }
        Ok(run.without_first(n_merged))
    }

    /// The value of a key of a map.
    ///
    /// # Errors
    /// As [`State::runs`].
    pub fn get(&self, key: &[u8]) -> Result<Option<&[u8]>> {
        Ok(self.get_sorted(&[key])?[0])
    }

    /// The values of many keys of a map, which come in order.
    ///
    /// # Errors
    /// As [`State::runs`].
    pub fn get_sorted<'a>(&'a self, keys: &[&[u8]]) -> Result<Vec<Option<&'a [u8]>>> {
        let mut values = vec![None; keys.len()];
        for run in self.runs_of(keys)? {
            for index in range_of(run, keys) {
                if let Some(entry) = run.find(keys[index]) {
                    values[index] = run.value(entry);
                }
            }
        }
        Ok(values)
    }

    /// The weights of many rows of a multiset, which come in order; 0 if one is not there.
    ///
    /// # Errors
    /// As [`State::runs`].
    pub fn weights_sorted(&self, rows: &[&[u8]]) -> Result<Vec<i64>> {
        let mut weights = vec![0; rows.len()];
        for run in self.runs_of(rows)? {
            for index in range_of(run, rows) {
                if let Some(entry) = run.find(rows[index]) {
                    weights[index] = add_weights(weights[index], run.weight(entry))?;
                }
            }
        }
        Ok(weights)
    }

    fn runs_of(&self, sorted: &[&[u8]]) -> Result<Vec<&Run>> {
        match (sorted.first(), sorted.last()) {
            (Some(first), Some(last)) => self.runs(hash_of(first)..=hash_of(last)),
            _ => Ok(Vec::new()),
        }
    }

    /// The entries whose keys begin with the prefix (which holds at least the hash), in order.
    ///
    /// # Errors
    /// As [`State::runs`].
    pub fn scan(&self, prefix: &[u8]) -> Result<Scan<'_>> {
        let hash = hash_of(prefix);
        let runs = self.runs(hash..=hash)?;
        let parts = runs.into_iter().map(|run| (run, run.prefix_range(prefix)));
        Ok(Scan { merge: Merge::new(self.kind, parts) })
    }

    /// All entries, in order.
    ///
    /// # Errors
    /// As [`State::runs`].
    pub fn scan_all(&self) -> Result<Scan<'_>> {
        let runs = self.runs(0..=u32::MAX)?;
        Ok(Scan { merge: Merge::new(self.kind, runs.into_iter().map(|run| (run, 0..run.n_rows()))) })
    }

    /// Seals what is in memory: names the new runs and returns the new manifest, or none if nothing
    /// changed. The state goes on over the sealed runs, which stay in memory. A merge that was asked for
    /// goes a step further.
    ///
    /// # Errors
    /// As [`State::runs`].
    pub fn seal(&mut self, namer: &mut RunNamer, sealed: &mut Vec<SealedRun>) -> Result<Option<Manifest>> {
        let mut is_changed = std::mem::take(&mut self.is_cleared);
        let mut asked = self.compaction.take();
        let is_due = asked.as_mut().is_some_and(|asked| std::mem::take(&mut asked.is_due));
        let n_tiers = self.manifest().n_tiers() + usize::from(!self.memory.is_empty());
        let at_once = asked.take_if(|asked| is_due && self.n_bytes() <= asked.n_bytes_max as u64).is_some();
        let n_kept = if at_once { 0 } else { self.n_kept_runs() };
        if !self.memory.is_empty() || (at_once && n_tiers > 1) {
            is_changed |= self.merge_newer_than(n_kept, namer, sealed)?;
        }
        if let Some(Compaction { n_bytes_max, pass, .. }) = asked {
            // Without an older one the newest tier is the only one.
            let mut pass = pass.filter(|_| n_kept > 0);
            if is_due {
                pass = pass.or_else(|| Pass::begin(self));
                is_changed |= pass.is_some();
                pass = pass.map(|pass| pass.step(self, n_bytes_max, namer, sealed)).transpose()?.flatten();
            }
            let compaction = |pass| Compaction { n_bytes_max, pass: Some(pass), is_due: false };
            self.compaction = pass.map(compaction);
        }
        Ok(is_changed.then(|| self.manifest()))
    }

    /// Merges what is in memory and all but the oldest sealed runs into a tier of their own; whether that
    /// changes what is sealed.
    fn merge_newer_than(
        &mut self,
        n_kept: usize,
        namer: &mut RunNamer,
        sealed: &mut Vec<SealedRun>,
    ) -> Result<bool> {
        let deletions = if n_kept == 0 { Deletions::Drop } else { Deletions::Keep };
        let mut runs = Vec::new();
        for handle in &self.sealed[n_kept..] {
            runs.push(self.load(handle)?);
        }
        runs.extend(&self.memory);
        let merged = merge_runs(self.kind, &runs, deletions, RUN_BYTES_MAX)?;
        let is_changed = !merged.is_empty() || n_kept < self.sealed.len();
        self.memory.clear();
        let tier = self.sealed[..n_kept].last().map_or(0, |handle| handle.meta.tier + 1);
        self.sealed.truncate(n_kept);
        for run in merged {
            let meta = RunMeta::of(&run, namer.next_name(), tier);
            sealed.push(SealedRun { name: meta.name, bytes: run.bytes().clone() });
            self.sealed.push(Arc::new(Handle { meta, run: OnceLock::from(run) }));
        }
        Ok(is_changed)
    }

    /// How many sealed runs stay as they are: each tier is more than twice all that is newer.
    fn n_kept_runs(&self) -> usize {
        let mut newer_bytes = self.unsealed_bytes();
        let mut n_kept = self.sealed.len();
        while n_kept > 0 {
            let tier = self.sealed[n_kept - 1].meta.tier;
            let start = self.sealed[..n_kept].partition_point(|handle| handle.meta.tier < tier);
            let tier_bytes: u64 =
                self.sealed[start..n_kept].iter().map(|handle| handle.meta.n_bytes_left()).sum();
            if tier_bytes > 2 * newer_bytes {
                break;
            }
            newer_bytes += tier_bytes;
            n_kept = start;
        }
        n_kept
    }
}

/// The positions of those sorted keys that a run may hold.
fn range_of(run: &Run, sorted: &[&[u8]]) -> std::ops::Range<usize> {
    let start = sorted.partition_point(|key| hash_of(key) < run.first_hash());
    start..start + sorted[start..].partition_point(|key| hash_of(key) <= run.last_hash())
}

/// An ordered pass over a state: what is there, each key once.
#[derive(Debug)]
pub struct Scan<'a> {
    merge: Merge<'a>,
}

impl<'a> Scan<'a> {
    /// The next row of a multiset with its weight.
    ///
    /// # Errors
    /// `Corrupt` if weights overflow.
    pub fn next_weight(&mut self) -> Result<Option<(&'a [u8], i64)>> {
        while let Some((key, merged)) = self.merge.next_entry()? {
            if let Merged::Weight(weight) = merged {
                return Ok(Some((key, weight)));
            }
        }
        Ok(None)
    }

    /// The next key of a map with its value.
    ///
    /// # Errors
    /// Never for a map.
    pub fn next_value(&mut self) -> Result<Option<(&'a [u8], &'a [u8])>> {
        while let Some((key, merged)) = self.merge.next_entry()? {
            if let Merged::Value(value) = merged {
                return Ok(Some((key, value)));
            }
        }
        Ok(None)
    }
}
