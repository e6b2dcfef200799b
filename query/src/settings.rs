//! What a session has set that changes the answer of a query.

use std::collections::BTreeMap;
use std::sync::Arc;

use sql::{DivisionByZero, Literal, Settings};
use types::Timestamp;

/// `tidemill_wait_timeout`, if nobody sets it.
pub const WAIT_TIMEOUT_MS: u64 = 60_000;

/// How fresh a read is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadMode {
    /// Exactly the query at T.
    #[default]
    Fresh,
    /// View rows as of the newest checkpoint at T.
    Stale,
    /// View rows, after waiting until the checkpoint has reached T.
    Wait,
    /// The query over the base tables at T.
    Live,
}

/// Which path a fresh read of a view may take; for tests and for diagnosis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathChoice {
    /// The cheapest exact one.
    #[default]
    Auto,
    /// The read fix over the stored rows, even where another would be cheaper.
    Hybrid,
    /// The view's query over the base tables.
    Live,
}

/// A session's settings, as far as a query's answer depends on them.
#[derive(Clone, Debug)]
pub struct ReadSettings {
    /// `tidemill_read_mode`.
    pub mode: ReadMode,
    /// `tidemill_read_path`.
    pub path: PathChoice,
    /// `tidemill_snapshot`: read in the past; not allowed for writes.
    pub snapshot: Option<Timestamp>,
    /// `tidemill_max_staleness`: a stale read whose checkpoint is further behind T than so many milliseconds
    /// reads as a fresh one does.
    pub max_staleness_ms: Option<u64>,
    /// `tidemill_wait_for`: what every read must show; a stale read whose checkpoint is older reads as a
    /// fresh one does.
    pub wait_for: Option<Timestamp>,
    /// `tidemill_wait_timeout`: the most milliseconds that a read in wait mode waits for its checkpoint.
    pub wait_timeout_ms: u64,
    /// The current database (`USE`), if one is chosen.
    pub database: Option<String>,
    /// `time_zone`: a name (`Europe/Berlin`), an offset (`+02:00`), or `SYSTEM`, which is UTC.
    pub time_zone: String,
    /// `sql_mode`.
    pub sql_mode: String,
    /// What a division by zero is; a data change decides for itself.
    pub division_by_zero: DivisionByZero,
    /// `collation_connection`.
    pub collation: String,
    /// The account, as USER() shows it.
    pub user: String,
    /// The connection's number, as CONNECTION_ID() shows it.
    pub connection_id: u64,
    /// Values of `@@name` (keys in lower case, without scope) and of `@name` (keys begin with `@`).
    pub variables: Arc<BTreeMap<String, Literal>>,
}

impl ReadSettings {
    /// The oldest cut that a stale read at T may show.
    pub(crate) fn oldest_cut(&self, at: Timestamp) -> Timestamp {
        let before = |ms| Timestamp::from_parts(at.physical_ms().saturating_sub(ms), at.logical());
        let least = self.max_staleness_ms.map_or(Timestamp::ZERO, before);
        least.max(self.wait_for.unwrap_or_default())
    }

    /// The settings as `sql` takes them, for a statement at T.
    pub(crate) fn at(&self, now: Timestamp) -> Settings {
        Settings {
            database: self.database.clone(),
            time_zone: self.time_zone.clone(),
            sql_mode: self.sql_mode.clone(),
            division_by_zero: self.division_by_zero,
            collation: self.collation.clone(),
            now,
            user: self.user.clone(),
            connection_id: self.connection_id,
            variables: Arc::clone(&self.variables),
        }
    }
}

impl Default for ReadSettings {
    fn default() -> ReadSettings {
        let Settings {
            database,
            time_zone,
            sql_mode,
            division_by_zero,
            collation,
            user,
            connection_id,
            variables,
            now: _,
        } = Settings::default();
        ReadSettings {
            mode: ReadMode::Fresh,
            path: PathChoice::Auto,
            snapshot: None,
            max_staleness_ms: None,
            wait_for: None,
            wait_timeout_ms: WAIT_TIMEOUT_MS,
            database,
            time_zone,
            sql_mode,
            division_by_zero,
            collation,
            user,
            connection_id,
            variables,
        }
    }
}
