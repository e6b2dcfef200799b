//! Variables: what there is, its default, what it may be set to, and its value in a session.
//!
//! A session begins with a copy of the global values. A value is validated when it is set, so readers of
//! a value need no checks. User variables (`@x`) live beside them.

use std::collections::BTreeMap;
use std::sync::Arc;

use sql::Literal;
use types::{Error, Result};

use crate::mysql::errors;
use tidb::Zone;

/// What a variable may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Cannot be set.
    Fixed,
    Bool,
    Int {
        min: i64,
        max: i64,
    },
    /// One of these, compared without case.
    Choice(&'static [&'static str]),
    Text,
    Zone,
    SqlMode,
    Charset,
    Collation,
}

/// A variable.
struct Definition {
    name: &'static str,
    default: Value,
    kind: Kind,
}

/// A default.
#[derive(Clone, Copy)]
enum Value {
    Int(i64),
    Text(&'static str),
    Null,
}

const fn text(name: &'static str, default: &'static str, kind: Kind) -> Definition {
    Definition { name, default: Value::Text(default), kind }
}

const fn int(name: &'static str, default: i64, min: i64, max: i64) -> Definition {
    Definition { name, default: Value::Int(default), kind: Kind::Int { min, max } }
}

const fn switch(name: &'static str, default: i64) -> Definition {
    Definition { name, default: Value::Int(default), kind: Kind::Bool }
}

const fn fixed_int(name: &'static str, default: i64) -> Definition {
    Definition { name, default: Value::Int(default), kind: Kind::Fixed }
}

const LEVELS: Kind = Kind::Choice(&["REPEATABLE-READ", "READ-COMMITTED", "READ-UNCOMMITTED", "SERIALIZABLE"]);
const MODES: Kind = Kind::Choice(&["fresh", "stale", "wait", "live"]);
const PATHS: Kind = Kind::Choice(&["auto", "hybrid", "live"]);

/// All variables, by name.
static DEFINITIONS: &[Definition] = &[
    int("auto_increment_increment", 1, 1, 65_535),
    int("auto_increment_offset", 1, 1, 65_535),
    switch("autocommit", 1),
    switch("big_tables", 0),
    text("character_set_client", "utf8mb4", Kind::Charset),
    text("character_set_connection", "utf8mb4", Kind::Charset),
    text("character_set_database", "utf8mb4", Kind::Charset),
    text("character_set_filesystem", "binary", Kind::Charset),
    text("character_set_results", "utf8mb4", Kind::Charset),
    text("character_set_server", "utf8mb4", Kind::Charset),
    text("character_set_system", "utf8mb4", Kind::Fixed),
    text("collation_connection", "utf8mb4_bin", Kind::Collation),
    text("collation_database", "utf8mb4_bin", Kind::Collation),
    text("collation_server", "utf8mb4_bin", Kind::Collation),
    text("default_storage_engine", "Tidemill", Kind::Fixed),
    text("default_week_format", "0", Kind::Fixed),
    switch("foreign_key_checks", 1),
    int("group_concat_max_len", 1_048_576, 4, i64::MAX),
    text("have_openssl", "DISABLED", Kind::Fixed),
    text("have_ssl", "DISABLED", Kind::Fixed),
    text("hostname", "localhost", Kind::Fixed),
    text("init_connect", "", Kind::Fixed),
    int("interactive_timeout", 28_800, 1, 31_536_000),
    text("license", "Apache License 2.0", Kind::Fixed),
    int("lock_wait_timeout", 31_536_000, 1, 31_536_000),
    fixed_int("lower_case_file_system", 0),
    fixed_int("lower_case_table_names", 2),
    fixed_int("max_allowed_packet", 67_108_864),
    fixed_int("max_connections", 1000),
    int("max_execution_time", 0, 0, i64::MAX),
    int("net_buffer_length", 16_384, 1024, 1_048_576),
    int("net_read_timeout", 30, 1, 31_536_000),
    int("net_write_timeout", 60, 1, 31_536_000),
    fixed_int("performance_schema", 0),
    fixed_int("port", 4406),
    fixed_int("protocol_version", 10),
    fixed_int("query_cache_size", 0),
    text("query_cache_type", "OFF", Kind::Fixed),
    fixed_int("read_only", 0),
    Definition { name: "socket", default: Value::Null, kind: Kind::Fixed },
    switch("sql_auto_is_null", 0),
    text("sql_mode", sql::DEFAULT_SQL_MODE, Kind::SqlMode),
    switch("sql_notes", 1),
    switch("sql_quote_show_create", 1),
    switch("sql_safe_updates", 0),
    int("sql_select_limit", i64::MAX, 0, i64::MAX),
    switch("sql_warnings", 0),
    text("ssl_ca", "", Kind::Fixed),
    fixed_int("super_read_only", 0),
    text("system_time_zone", "UTC", Kind::Fixed),
    switch("tidemill_background_ddl", 0),
    fixed_int("tidemill_last_read_ts", 0),
    int("tidemill_max_staleness", 0, 0, i64::MAX),
    text("tidemill_read_mode", "fresh", MODES),
    text("tidemill_read_path", "auto", PATHS),
    text("tidemill_snapshot", "", Kind::Text),
    text("tidemill_wait_for", "", Kind::Text),
    int("tidemill_wait_timeout", query::WAIT_TIMEOUT_MS as i64, 1, i64::MAX),
    text("time_zone", "SYSTEM", Kind::Zone),
    text("transaction_isolation", "REPEATABLE-READ", LEVELS),
    switch("transaction_read_only", 0),
    text("tx_isolation", "REPEATABLE-READ", LEVELS),
    switch("tx_read_only", 0),
    switch("unique_checks", 1),
    text("version", crate::VERSION, Kind::Fixed),
    text("version_comment", "Tidemill: incrementally maintained views", Kind::Fixed),
    text("version_compile_machine", std::env::consts::ARCH, Kind::Fixed),
    text("version_compile_os", std::env::consts::OS, Kind::Fixed),
    int("wait_timeout", 28_800, 1, 31_536_000),
];

const SQL_MODES: &[&str] = &[
    "ALLOW_INVALID_DATES",
    "ANSI",
    "ANSI_QUOTES",
    "ERROR_FOR_DIVISION_BY_ZERO",
    "HIGH_NOT_PRECEDENCE",
    "IGNORE_SPACE",
    "NO_AUTO_CREATE_USER",
    "NO_AUTO_VALUE_ON_ZERO",
    "NO_BACKSLASH_ESCAPES",
    "NO_DIR_IN_CREATE",
    "NO_ENGINE_SUBSTITUTION",
    "NO_UNSIGNED_SUBTRACTION",
    "NO_ZERO_DATE",
    "NO_ZERO_IN_DATE",
    "ONLY_FULL_GROUP_BY",
    "PAD_CHAR_TO_FULL_LENGTH",
    "PIPES_AS_CONCAT",
    "REAL_AS_FLOAT",
    "STRICT_ALL_TABLES",
    "STRICT_TRANS_TABLES",
    "TIME_TRUNCATE_FRACTIONAL",
    "TRADITIONAL",
];

/// Character sets that a client may speak: all are subsets of UTF-8, or bytes.
pub(crate) const CHARSETS: &[(&str, &str, &str, u8)] = &[
    ("ascii", "US ASCII", "ascii_bin", 1),
    ("binary", "Binary pseudo charset", "binary", 1),
    ("utf8", "UTF-8 Unicode", "utf8_bin", 3),
    ("utf8mb3", "UTF-8 Unicode", "utf8mb3_bin", 3),
    ("utf8mb4", "UTF-8 Unicode", "utf8mb4_bin", 4),
];

/// Collations: name, character set, id, whether the character set's default. Comparisons here are
/// always utf8mb4_bin's or binary's; the others are names that clients ask a connection to have.
pub(crate) const COLLATIONS: &[(&str, &str, u16, bool)] = &[
    ("ascii_bin", "ascii", 65, true),
    ("binary", "binary", 63, true),
    ("utf8_bin", "utf8", 83, true),
    ("utf8_general_ci", "utf8", 33, false),
    ("utf8mb3_bin", "utf8mb3", 83, true),
    ("utf8mb3_general_ci", "utf8mb3", 33, false),
    ("utf8mb4_bin", "utf8mb4", 46, true),
    ("utf8mb4_general_ci", "utf8mb4", 45, false),
    ("utf8mb4_unicode_ci", "utf8mb4", 224, false),
    ("utf8mb4_0900_ai_ci", "utf8mb4", 255, false),
    ("utf8mb4_0900_bin", "utf8mb4", 309, false),
];

fn find(name: &str) -> Option<&'static Definition> {
    DEFINITIONS.iter().find(|definition| definition.name == name)
}

/// The values of a session, or the global ones.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Variables {
    /// By name in lower case; user variables with their `@`. Shared with statements that are running.
    values: Arc<BTreeMap<String, Literal>>,
}

impl Default for Variables {
    fn default() -> Variables {
        let value = |default| match default {
            Value::Int(number) => Literal::Int(number),
            Value::Text(text) => Literal::String(text.to_owned()),
            Value::Null => Literal::Null,
        };
        let values = DEFINITIONS.iter().map(|def| (def.name.to_owned(), value(def.default)));
        Variables { values: Arc::new(values.collect()) }
    }
}

impl Variables {
    /// All values, for a statement's settings.
    pub(crate) fn shared(&self) -> Arc<BTreeMap<String, Literal>> {
        Arc::clone(&self.values)
    }

    /// A text variable's value.
    pub(crate) fn text(&self, name: &str) -> &str {
        match self.values.get(name) {
            Some(Literal::String(text)) => text,
            _ => "",
        }
    }

    /// A number's or switch's value.
    pub(crate) fn int(&self, name: &str) -> i64 {
        match self.values.get(name) {
            Some(Literal::Int(number)) => *number,
            Some(Literal::UInt(number)) => i64::try_from(*number).unwrap_or(i64::MAX),
            _ => 0,
        }
    }

    /// Sets what the server itself knows, without checks.
    pub(crate) fn put(&mut self, name: &str, value: Literal) {
        Arc::make_mut(&mut self.values).insert(name.to_owned(), value);
    }

    /// Sets a user variable.
    pub(crate) fn set_user(&mut self, name: &str, value: Literal) {
        self.put(&format!("@{name}"), value);
    }

    /// Sets a system variable, after checking the value; `None` is DEFAULT. A number out of range is moved
    /// into it: then the answer is what warning 1292 says.
    ///
    /// # Errors
    /// 1193 for an unknown variable, 1238 for a read-only one, 1231 and 1232 for wrong values; under
    /// `STRICT_ALL_TABLES` 1231 for a number out of range.
    pub(crate) fn set(
        &mut self,
        name: &str,
        value: Option<&Literal>,
        globals: Option<&Variables>,
    ) -> Result<Option<String>> {
        let definition = find(name).ok_or_else(|| {
            Error::mysql(errors::UNKNOWN_VARIABLE, format!("Unknown system variable '{name}'"))
        })?;
        if definition.kind == Kind::Fixed {
            let text = format!("Variable '{name}' is a read only variable");
            return Err(Error::mysql(errors::READ_ONLY_VARIABLE, text));
        }
        let set_to = match value {
            Some(value) => checked(definition, value)?,
            None => {
                let defaults = Variables::default();
                globals.unwrap_or(&defaults).values.get(name).cloned().unwrap_or(Literal::Null)
            }
        };
        let is_number = matches!(definition.kind, Kind::Int { .. });
        let moved = value.filter(|value| is_number && shown(value) != shown(&set_to));
        if let Some(value) = moved.filter(|_| self.text("sql_mode").contains("STRICT_ALL_TABLES")) {
            return Err(wrong_value(name, value));
        }
        let warning =
            moved.and_then(shown).map(|value| format!("Truncated incorrect {name} value: '{value}'"));
        // Two names of one thing.
        let twin = match name {
            "tx_isolation" => Some("transaction_isolation"),
            "transaction_isolation" => Some("tx_isolation"),
            "tx_read_only" => Some("transaction_read_only"),
            "transaction_read_only" => Some("tx_read_only"),
            _ => None,
        };
        if let Some(twin) = twin {
            self.put(twin, set_to.clone());
        }
        self.put(name, set_to);
        Ok(warning)
    }

    /// `SET NAMES charset` and `SET CHARACTER SET`.
    ///
    /// # Errors
    /// 1115 for an unknown character set.
    pub(crate) fn set_names(&mut self, value: Option<&Literal>) -> Result<()> {
        let charset = match value {
            None => "utf8mb4".to_owned(),
            Some(Literal::String(text)) => text.to_lowercase(),
            Some(other) => return Err(unknown_charset(&shown(other).unwrap_or_default())),
        };
        let charset_row =
            CHARSETS.iter().find(|row| row.0 == charset).ok_or_else(|| unknown_charset(&charset))?;
        for name in ["character_set_client", "character_set_connection", "character_set_results"] {
            self.put(name, Literal::String(charset.clone()));
        }
        self.put("collation_connection", Literal::String(charset_row.2.to_owned()));
        Ok(())
    }

    /// Names and values as SHOW VARIABLES prints them.
    pub(crate) fn listed(&self) -> Vec<(String, Option<String>)> {
        let listed = DEFINITIONS.iter().map(|definition| {
            let value = self.values.get(definition.name).and_then(shown);
            let value = match (definition.kind, value.as_deref()) {
                (Kind::Bool, Some("1")) => Some("ON".to_owned()),
                (Kind::Bool, Some(_)) => Some("OFF".to_owned()),
                _ => value,
            };
            (definition.name.to_owned(), value)
        });
        listed.collect()
    }
}

/// A value as text.
pub(crate) fn shown(value: &Literal) -> Option<String> {
    Some(match value {
        Literal::Null => return None,
        Literal::Int(number) => number.to_string(),
        Literal::UInt(number) => number.to_string(),
        Literal::Double(number) => number.to_string(),
        Literal::Decimal(text) | Literal::String(text) | Literal::Date(text) | Literal::Datetime(text) => {
            text.clone()
        }
        Literal::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
    })
}

fn unknown_charset(name: &str) -> Error {
    Error::mysql(1115, format!("Unknown character set: '{name}'"))
}

fn wrong_value(name: &str, value: &Literal) -> Error {
    let value = shown(value).unwrap_or_else(|| "NULL".to_owned());
    let text = format!("Variable '{name}' can't be set to the value of '{value}'");
    Error::mysql(errors::WRONG_VALUE_FOR_VARIABLE, text)
}

fn wrong_type(name: &str) -> Error {
    Error::mysql(errors::WRONG_TYPE_FOR_VARIABLE, format!("Incorrect argument type to variable '{name}'"))
}

fn checked(definition: &Definition, value: &Literal) -> Result<Literal> {
    let name = definition.name;
    let text = || shown(value).ok_or_else(|| wrong_value(name, value));
    Ok(match definition.kind {
        Kind::Fixed => return Err(wrong_value(name, value)),
        Kind::Bool => match text()?.to_ascii_lowercase().as_str() {
            "1" | "on" | "true" => Literal::Int(1),
            "0" | "off" | "false" => Literal::Int(0),
            _ => return Err(wrong_value(name, value)),
        },
        Kind::Int { min, max } => match value {
            // MySQL moves a number into its range.
            Literal::Int(number) => Literal::Int((*number).clamp(min, max)),
            Literal::UInt(number) => Literal::Int(i64::try_from(*number).unwrap_or(i64::MAX).clamp(min, max)),
            _ => return Err(wrong_type(name)),
        },
        Kind::Choice(choices) => {
            let text = text()?;
            let choice = choices.iter().find(|choice| choice.eq_ignore_ascii_case(&text.replace(' ', "-")));
            let choice = choice.ok_or_else(|| wrong_value(name, value))?;
            if *choice == "SERIALIZABLE" {
                let text = "The isolation level 'SERIALIZABLE' is not supported; transactions have snapshot isolation";
                return Err(Error::mysql(8048, text));
            }
            Literal::String((*choice).to_owned())
        }
        Kind::Text => Literal::String(text()?),
        Kind::Zone => {
            let text = text()?;
            text.parse::<Zone>()?;
            Literal::String(text)
        }
        Kind::SqlMode => Literal::String(sql_mode(&text()?).ok_or_else(|| wrong_value(name, value))?),
        Kind::Charset => {
            // NULL as character_set_results means: as they are, which is UTF-8.
            let text = shown(value).unwrap_or_else(|| "utf8mb4".to_owned()).to_lowercase();
            let known = CHARSETS.iter().any(|row| row.0 == text);
            Literal::String(if known { text } else { return Err(unknown_charset(&text)) })
        }
        Kind::Collation => {
            let text = text()?.to_lowercase();
            let known = COLLATIONS.iter().any(|row| row.0 == text);
            let unknown = || Error::mysql(1273, format!("Unknown collation: '{text}'"));
            known.then(|| Literal::String(text.clone())).ok_or_else(unknown)?
        }
    })
}

/// Normalises a list of modes; `None` if one is unknown.
fn sql_mode(text: &str) -> Option<String> {
    let mut modes = Vec::new();
    for mode in text.split(',').map(str::trim).filter(|mode| !mode.is_empty()) {
        modes.push(*SQL_MODES.iter().find(|known| known.eq_ignore_ascii_case(mode))?);
    }
    Some(modes.join(","))
}

#[cfg(test)]
mod tests;
