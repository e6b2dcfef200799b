//! Merging a state's runs in steps of bounded size.
//!
//! A pass takes the runs that are there when it begins, from the least key up: each step merges what all of
//! them hold of the next keys into runs of the oldest tier. What was taken in of a run that is not used up is
//! left out of it from then on ([`RunMeta::n_merged`]). So the state holds the same after every step, and
//! whatever ends the pass between two steps loses nothing: another one finds the beginning merged. Runs that
//! are sealed meanwhile are newer than all of these, and stay as they are.
//!
//! A step holds one run of each tier in memory, and what it puts out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock};

use types::{Result, RunName};

use super::{Handle, RUN_BYTES_MAX, RunMeta, RunNamer, SealedRun, State};
use crate::merge::{Merge, Merged};
use crate::run::{Run, RunBuilder};

/// How far a pass is.
#[derive(Clone, Debug)]
pub(super) struct Pass {
    /// What was the oldest tier when it began, and is again.
    tier: u32,
    /// So many runs in front are done.
    n_done: usize,
    /// The runs that it takes in.
    names: BTreeSet<RunName>,
}

impl Pass {
    /// A pass over all sealed runs of a state; none if they are of one tier.
    pub(super) fn begin(state: &State) -> Option<Pass> {
        let tier = state.sealed.first()?.meta.tier;
        let is_one = state.sealed.iter().all(|handle| handle.meta.tier == tier);
        let names = state.sealed.iter().map(|handle| handle.meta.name).collect();
        (!is_one).then_some(Pass { tier, n_done: 0, names })
    }

    /// Merges about so many bytes more; answers the rest of the pass, if there is one.
    pub(super) fn step(
        mut self,
        state: &mut State,
        n_bytes_max: usize,
        namer: &mut RunNamer,
        sealed: &mut Vec<SealedRun>,
    ) -> Result<Option<Pass>> {
        let before: &State = state;
        let mut step = Step {
            state: before,
            namer,
            sealed,
            tier: self.tier,
            sources: self.sources(before),
            taken: BTreeMap::new(),
            builder: RunBuilder::new(before.kind),
            front: Vec::new(),
            n_bytes: 0,
        };
        let mut goes_on = true;
        while goes_on && step.n_bytes < n_bytes_max {
            goes_on = step.merge_next(n_bytes_max)?;
        }
        step.end_run();
        let Step { mut taken, front, .. } = step;
        let n_done = self.n_done + front.len();
        let mut runs = state.sealed[..self.n_done].to_vec();
        runs.extend(front);
        for (at, handle) in state.sealed.iter().enumerate().skip(self.n_done) {
            match taken.remove(&at) {
                None => runs.push(Arc::clone(handle)),
                Some(Taken::Whole) => {}
                Some(Taken::Beginning(rest)) => runs.push(Arc::new(rest)),
            }
        }
        state.sealed = runs;
        self.n_done = n_done;
        Ok(goes_on.then_some(self))
    }

    /// What is left to take in, by tier, the oldest first.
    fn sources(&self, state: &State) -> Vec<Source> {
        let mut sources: Vec<Source> = Vec::new();
        for (at, handle) in state.sealed.iter().enumerate().skip(self.n_done) {
            if !self.names.contains(&handle.meta.name) {
                continue;
            }
            match sources.last_mut().filter(|source| source.tier == handle.meta.tier) {
                Some(source) => source.runs.push_back(at),
                None => {
                    let (tier, runs) = (handle.meta.tier, VecDeque::from([at]));
                    sources.push(Source { tier, runs, head: None });
                }
            }
        }
        sources
    }
}

/// The rest of one tier, least keys first.
struct Source {
    tier: u32,
    /// Positions among the sealed runs; none when it is used up.
    runs: VecDeque<usize>,
    /// What is left of the first of them, once it is read.
    head: Option<Run>,
}

/// What a step has taken of a run.
enum Taken {
    Whole,
    /// The run without it.
    Beginning(Handle),
}

/// A step under way.
struct Step<'a> {
    state: &'a State,
    namer: &'a mut RunNamer,
    sealed: &'a mut Vec<SealedRun>,
    tier: u32,
    sources: Vec<Source>,
    /// By the position of the run.
    taken: BTreeMap<usize, Taken>,
    builder: RunBuilder,
    /// What stands for what was taken, in the order of keys.
    front: Vec<Arc<Handle>>,
    /// Bytes of keys and values that were looked at.
    n_bytes: usize,
}

impl Step<'_> {
    /// Merges the next keys; `false` if nothing newer is left that the oldest tier should take in.
    fn merge_next(&mut self, n_bytes_max: usize) -> Result<bool> {
        self.sources.retain(|source| !source.runs.is_empty());
        for source in self.sources.iter_mut().filter(|source| source.tier != self.tier) {
            source.read(self.state)?;
        }
        let newer = self.sources.iter().filter(|source| source.tier != self.tier);
        let next = newer.filter_map(|source| source.head.as_ref()).map(Run::first_hash).min();
        if let Some(oldest) = self.sources.first_mut().filter(|source| source.tier == self.tier) {
            let handle = &self.state.sealed[oldest.runs[0]];
            let is_whole = oldest.head.is_none() && handle.meta.n_merged == 0;
            match next {
                None if is_whole => return Ok(false),
                Some(next) if is_whole && handle.meta.last_hash < next => {
                    // It is as it should be already.
                    let at = oldest.runs.pop_front();
                    let carried = Arc::clone(handle);
                    self.taken.extend(at.map(|at| (at, Taken::Whole)));
                    self.end_run();
                    self.front.push(carried);
                    return Ok(true);
                }
                _ => oldest.read(self.state)?,
            }
        }
        if self.sources.is_empty() {
            return Ok(false);
        }
        self.merge_heads(n_bytes_max)?;
        Ok(true)
    }

    /// Merges the first runs of all tiers up to where one of them would need its next run.
    fn merge_heads(&mut self, n_bytes_max: usize) -> Result<()> {
        let heads: Vec<Run> = self.sources.iter().filter_map(|source| source.head.clone()).collect();
        let goes_on = self.sources.iter().zip(&heads).filter(|(source, _)| source.runs.len() > 1);
        let bound = goes_on.map(|(_, head)| head.key(head.n_rows() - 1)).min();
        let end = |head: &Run| bound.map_or(head.n_rows(), |bound| n_up_to(head, bound));
        let parts = heads.iter().map(|head| (head, 0..end(head)));
        let mut merge = Merge::new(self.state.kind, parts);
        let mut stopped = None;
        while let Some((key, entry)) = merge.next_entry()? {
            self.n_bytes += key.len() + 1;
            match entry {
                Merged::Weight(weight) => self.builder.push_weight(key, weight),
                Merged::Value(value) => {
                    self.n_bytes += value.len();
                    self.builder.push_value(key, Some(value));
                }
                // Nothing is older.
                Merged::Deleted => {}
            }
            if self.builder.n_bytes() >= RUN_BYTES_MAX {
                self.end_run();
            }
            if self.n_bytes >= n_bytes_max {
                stopped = Some(key);
                break;
            }
        }
        for (source, head) in self.sources.iter_mut().zip(&heads) {
            let n_taken = stopped.map_or_else(|| end(head), |key| n_up_to(head, key));
            source.take(n_taken, self.state, &mut self.taken);
        }
        Ok(())
    }

    /// Ends the run that is being written.
    fn end_run(&mut self) {
        if self.builder.n_rows() == 0 {
            return;
        }
        let run = std::mem::replace(&mut self.builder, RunBuilder::new(self.state.kind)).finish();
        let meta = RunMeta::of(&run, self.namer.next_name(), self.tier);
        self.sealed.push(SealedRun { name: meta.name, bytes: run.bytes().clone() });
        // Not kept in memory: a pass may go over more than fits.
        self.front.push(Arc::new(Handle { meta, run: OnceLock::new() }));
    }
}

impl Source {
    /// Reads its first run.
    fn read(&mut self, state: &State) -> Result<()> {
        if let (None, Some(first)) = (&self.head, self.runs.front()) {
            self.head = Some(state.read(&state.sealed[*first])?);
        }
        Ok(())
    }

    /// Takes entries off its first run.
    fn take(&mut self, n_taken: usize, state: &State, taken: &mut BTreeMap<usize, Taken>) {
        let (Some(head), Some(first)) = (self.head.take(), self.runs.front().copied()) else { return };
        if n_taken == head.n_rows() {
            taken.insert(first, Taken::Whole);
            self.runs.pop_front();
        } else if n_taken == 0 {
            self.head = Some(head);
        } else {
            let rest = head.without_first(n_taken);
            let meta = &state.sealed[first].meta;
            let n_merged = meta.n_rows - rest.n_rows() as u64;
            let meta = RunMeta { n_merged, first_hash: rest.first_hash(), ..meta.clone() };
            taken.insert(first, Taken::Beginning(Handle { meta, run: OnceLock::new() }));
            self.head = Some(rest);
        }
    }
}

/// How many entries of a run have keys up to one.
fn n_up_to(run: &Run, key: &[u8]) -> usize {
    let at = run.lower_bound(key);
    at + usize::from(at < run.n_rows() && run.key(at) == key)
}
