//! What a statement's meaning depends on beside its text.
//!
//! A session makes one of these for each statement; a view's query gets one from the settings stored at
//! its CREATE, so that the query always means the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use types::Timestamp;

use crate::catalog::ViewSettings;

/// A constant: a parameter of a prepared statement, or the value of a variable.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// NULL.
    Null,
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    UInt(u64),
    /// A double.
    Double(f64),
    /// A decimal, as text.
    Decimal(String),
    /// A string.
    String(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A date `YYYY-MM-DD`.
    Date(String),
    /// A date with time `YYYY-MM-DD HH:MM:SS[.ffffff]`.
    Datetime(String),
}

/// What an expression makes of a division by zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DivisionByZero {
    /// NULL: in queries and views.
    #[default]
    Null,
    /// Error 1365: in a data change under the strict SQL mode.
    Error,
}

impl DivisionByZero {
    /// What it is in a data change (not one that says IGNORE) under a SQL mode.
    #[must_use]
    pub fn in_change(sql_mode: &str) -> DivisionByZero {
        let has = |wanted: &str| sql_mode.split(',').any(|mode| mode.trim().eq_ignore_ascii_case(wanted));
        let is_strict = has("STRICT_TRANS_TABLES") || has("STRICT_ALL_TABLES");
        match (is_strict && has("ERROR_FOR_DIVISION_BY_ZERO")) || has("TRADITIONAL") {
            true => DivisionByZero::Error,
            false => DivisionByZero::Null,
        }
    }
}

/// The settings of one statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The default database, if one is chosen.
    pub database: Option<String>,
    /// `@@time_zone`: `SYSTEM` (UTC), `+08:00` or a name such as `Europe/Berlin`.
    pub time_zone: String,
    /// `@@sql_mode`.
    pub sql_mode: String,
    /// What a division by zero is.
    pub division_by_zero: DivisionByZero,
    /// `@@collation_connection`.
    pub collation: String,
    /// The statement's timestamp T: what NOW() is.
    pub now: Timestamp,
    /// The account, as USER() shows it.
    pub user: String,
    /// The connection's number, as CONNECTION_ID() shows it.
    pub connection_id: u64,
    /// Values of `@@name` (keys in lower case, without scope) and of `@name` (keys begin with `@`).
    pub variables: Arc<BTreeMap<String, Literal>>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            database: Some("test".to_owned()),
            time_zone: "SYSTEM".to_owned(),
            sql_mode: DEFAULT_SQL_MODE.to_owned(),
            division_by_zero: DivisionByZero::Null,
            collation: "utf8mb4_bin".to_owned(),
            now: Timestamp::default(),
            user: "root@localhost".to_owned(),
            connection_id: 0,
            variables: Arc::default(),
        }
    }
}

/// The SQL mode of a new session, as TiDB's.
pub const DEFAULT_SQL_MODE: &str = "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,\
ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_CREATE_USER,NO_ENGINE_SUBSTITUTION";

impl Settings {
    /// The part that a view stores.
    #[must_use]
    pub fn of_view(&self) -> ViewSettings {
        ViewSettings {
            time_zone: self.time_zone.clone(),
            sql_mode: self.sql_mode.clone(),
            collation: self.collation.clone(),
        }
    }

    /// These settings with a view's stored ones in place of the session's.
    #[must_use]
    pub fn with_view(&self, view: &ViewSettings) -> Settings {
        Settings {
            time_zone: view.time_zone.clone(),
            sql_mode: view.sql_mode.clone(),
            division_by_zero: DivisionByZero::Null,
            collation: view.collation.clone(),
            ..self.clone()
        }
    }
}
