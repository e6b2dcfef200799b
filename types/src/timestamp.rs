//! The oracle's timestamps.
//!
//! A timestamp is 64 bits: physical milliseconds since the Unix epoch, shifted left by 18, and a
//! logical counter below. Order of the numbers is order in time; nobody but an oracle makes new ones.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// A timestamp of the oracle (TSO): physical milliseconds << 18 | logical.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The bits of the logical part.
    pub const LOGICAL_BITS: u32 = 18;
    /// Before everything: no commit has it.
    pub const ZERO: Timestamp = Timestamp(0);
    /// After everything: reads the newest, and decides a transaction for good.
    pub const MAX: Timestamp = Timestamp(u64::MAX);

    /// Puts a timestamp together; `logical` must fit in 18 bits.
    ///
    /// # Panics
    /// If a part does not fit.
    #[must_use]
    pub fn from_parts(physical_ms: u64, logical: u64) -> Timestamp {
        assert!(logical < 1 << Self::LOGICAL_BITS, "logical part {logical} does not fit in 18 bits");
        assert!(
            physical_ms < 1 << (64 - Self::LOGICAL_BITS),
            "physical part {physical_ms} does not fit in 46 bits"
        );
        Timestamp(physical_ms << Self::LOGICAL_BITS | logical)
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub fn physical_ms(self) -> u64 {
        self.0 >> Self::LOGICAL_BITS
    }

    /// The logical part.
    #[must_use]
    pub fn logical(self) -> u64 {
        self.0 & ((1 << Self::LOGICAL_BITS) - 1)
    }

    /// The next timestamp.
    ///
    /// # Errors
    /// `Invalid` at the maximum.
    pub fn next(self) -> Result<Timestamp> {
        self.0.checked_add(1).map(Timestamp).ok_or_else(|| Error::invalid("timestamp overflow"))
    }

    /// The timestamp before this one; zero stays zero.
    #[must_use]
    pub fn prev(self) -> Timestamp {
        Timestamp(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)
    }
}
