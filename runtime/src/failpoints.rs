//! Fail points: named steps at which a test makes a run fail, stop or end the process.
//!
//! Each [`FailPoints`] belongs to one runtime, so tests in one process do not disturb each other. The same
//! names are also fail points of the process, as [`store::failpoints`] has them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use types::{Error, Result};

/// The names, in the order of an epoch, then of a fill, of DDL, of sweeping and of maintenance.
pub const POINTS: &[&str] = &[
    "runtime::taken_over",
    "runtime::loaded",
    "runtime::absorbed",
    "runtime::opened",
    "runtime::sealed",
    "runtime::runs_written",
    "runtime::prepared",
    "runtime::definitions_loaded",
    "runtime::prewritten",
    "runtime::voted",
    "runtime::decided",
    "runtime::committed",
    "runtime::rolled_back",
    "runtime::adopted",
    "runtime::fill_loaded",
    "runtime::fill_piece_read",
    "runtime::fill_piece_done",
    "runtime::fill_offered",
    "runtime::fill_reached",
    "runtime::ddl_before_commit",
    "runtime::ddl_after_commit",
    "runtime::collected",
    "runtime::sweep_listed",
    "runtime::sweep_before_note",
    "runtime::maintenance_begun",
    "runtime::maintenance_merged",
    "runtime::maintenance_collected",
];

/// Makes an epoch lose its views' keys, when told to fail: nothing can be right then, which shows that a
/// check which passes without it could have failed. Not among [`POINTS`], at which everything stays right.
pub const LOSES_ROWS: &str = "runtime::loses_rows";

/// Named steps that can be made to fail.
#[derive(Clone, Debug, Default)]
pub struct FailPoints {
    armed: Option<Arc<Mutex<Armed>>>,
}

#[derive(Debug, Default)]
struct Armed {
    /// How many further passes succeed before the one that fails, by point.
    countdown: BTreeMap<String, u64>,
    /// Points that fail whenever they are reached.
    always: BTreeSet<String>,
    /// How often each point was passed or failed.
    hits: BTreeMap<String, u64>,
}

impl FailPoints {
    /// Fail points that can be armed; the default ones cannot and cost nothing.
    #[must_use]
    pub fn armable() -> FailPoints {
        FailPoints { armed: Some(Arc::default()) }
    }

    /// Makes a point fail once, after it has been passed `after` times more.
    pub fn arm(&self, name: &str, after: u64) {
        if let Some(armed) = &self.armed {
            let mut armed = armed.lock().unwrap_or_else(PoisonError::into_inner);
            armed.countdown.insert(name.to_owned(), after);
        }
    }

    /// Makes a point fail whenever it is reached.
    pub fn arm_always(&self, name: &str) {
        if let Some(armed) = &self.armed {
            let mut armed = armed.lock().unwrap_or_else(PoisonError::into_inner);
            armed.always.insert(name.to_owned());
        }
    }

    /// Disarms every point.
    pub fn disarm_all(&self) {
        if let Some(armed) = &self.armed {
            let mut armed = armed.lock().unwrap_or_else(PoisonError::into_inner);
            armed.countdown.clear();
            armed.always.clear();
        }
    }

    /// Whether a point is armed and has not failed yet.
    #[must_use]
    pub fn is_armed(&self, name: &str) -> bool {
        self.armed.as_ref().is_some_and(|armed| {
            armed.lock().unwrap_or_else(PoisonError::into_inner).countdown.contains_key(name)
        })
    }

    /// How often each point was reached.
    #[must_use]
    pub fn hits(&self) -> BTreeMap<String, u64> {
        self.armed.as_ref().map_or_else(BTreeMap::new, |armed| {
            armed.lock().unwrap_or_else(PoisonError::into_inner).hits.clone()
        })
    }

    /// Passes a point.
    ///
    /// # Errors
    /// `Unavailable` if the point was made to fail.
    ///
    /// # Panics
    /// If the point is not listed: tests go through the list.
    pub fn pass(&self, name: &str) -> Result<()> {
        debug_assert!(POINTS.contains(&name), "fail point {name} is not listed");
        store::failpoints::pass(name)?;
        let Some(armed) = &self.armed else { return Ok(()) };
        let mut armed = armed.lock().unwrap_or_else(PoisonError::into_inner);
        *armed.hits.entry(name.to_owned()).or_default() += 1;
        if armed.always.contains(name) {
            return Err(Error::unavailable(format!("fail point {name}")));
        }
        match armed.countdown.get_mut(name) {
            None => Ok(()),
            Some(0) => {
                armed.countdown.remove(name);
                Err(Error::unavailable(format!("fail point {name}")))
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }
}
