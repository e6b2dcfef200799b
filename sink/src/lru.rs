//! The runs used last, up to so many bytes.

use std::collections::{BTreeMap, HashMap};

use operators::Run;
use types::RunName;

/// Runs by name; the one not used for the longest time goes first.
#[derive(Debug)]
pub(crate) struct Lru {
    n_bytes_max: usize,
    n_bytes: usize,
    /// Counts uses; the smaller, the longer ago.
    clock: u64,
    runs: HashMap<RunName, (Run, u64)>,
    by_use: BTreeMap<u64, RunName>,
}

impl Lru {
    pub(crate) fn new(n_bytes_max: usize) -> Lru {
        Lru { n_bytes_max, n_bytes: 0, clock: 0, runs: HashMap::new(), by_use: BTreeMap::new() }
    }

    pub(crate) fn n_bytes(&self) -> usize {
        self.n_bytes
    }

    pub(crate) fn get(&mut self, name: RunName) -> Option<Run> {
        let (run, used) = self.runs.get_mut(&name)?;
        self.by_use.remove(used);
        self.clock += 1;
        *used = self.clock;
        self.by_use.insert(self.clock, name);
        Some(run.clone())
    }

    /// Keeps a run, unless it is larger than all that may be kept.
    pub(crate) fn put(&mut self, name: RunName, run: Run) {
        self.remove(name);
        if run.n_bytes() > self.n_bytes_max {
            return;
        }
        while self.n_bytes + run.n_bytes() > self.n_bytes_max {
            let Some((_, oldest)) = self.by_use.first_key_value() else { break };
            let oldest = *oldest;
            self.remove(oldest);
        }
        self.clock += 1;
        self.n_bytes += run.n_bytes();
        self.by_use.insert(self.clock, name);
        self.runs.insert(name, (run, self.clock));
    }

    pub(crate) fn remove(&mut self, name: RunName) {
        if let Some((run, used)) = self.runs.remove(&name) {
            self.by_use.remove(&used);
            self.n_bytes -= run.n_bytes();
        }
    }
}
