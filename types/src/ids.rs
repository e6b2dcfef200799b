//! Newtypes for every number that could be swapped for another.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The next one.
            ///
            /// # Panics
            /// At the maximum, which no run reaches.
            #[must_use]
            pub fn next(self) -> $name {
                $name(self.0.checked_add(1).expect("a counter of 64 bits does not run out"))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "{}", self.0)
            }
        }
    };
}

number!(
    /// A job's unit of progress.
    Epoch
);
number!(
    /// The fencing number of a job's run: a newer one deposes all older ones.
    Generation
);
number!(
    /// A job: one dataflow with its views. The shared continuous job is 1; fills are jobs of their own.
    JobId
);
number!(
    /// The id of a table or a view, as in TiDB's record keys.
    TableId
);

/// The number of vnodes that keys hash into.
pub const VNODES: usize = 256;

/// One of the 256 hash buckets of a key; work and state divide by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VNode(pub u8);

/// The state of one operator of one view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StateId {
    /// The view whose dataflow the operator belongs to.
    pub view: TableId,
    /// The number of the state within the view's plan, fixed at CREATE.
    pub state: u32,
}

/// The name of a run: never used for two contents.
///
/// Every restart from the frontier is a new generation, so job, generation and epoch make a name unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RunName {
    /// The job that wrote the run.
    pub job: JobId,
    /// The job's generation then.
    pub generation: Generation,
    /// The epoch whose transaction names the run.
    pub epoch: Epoch,
    /// The view whose state it is.
    pub view: TableId,
    /// Counts the runs of one view in one epoch.
    pub number: u32,
}
