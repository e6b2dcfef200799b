//! Keys of TiDB's meta range: what they name, and the ranges to read or to follow.
//!
//! ```text
//! m bytes(name) u64('s')                 a value:             SchemaVersionKey, Diff:7, NextGlobalID
//! m bytes(hash) u64('h') bytes(field)    a field of a hash:   DBs/DB:1, DB:1/Table:2
//! ```
//!
//! Names and fields stand in the bytes encoding, the kind as eight bytes. The hash of a database also holds
//! counters of automatic ids; those and everything else that is not needed decode as noise that keeps all of
//! the key, so a stream of changes over these ranges never stops at a key of a newer TiDB.

use types::records::prefix_end;
use types::{Error, Result};

use crate::bounds::KeySpan;
use crate::comparable::{put_bytes, put_u64, take_bytes, take_u64};

const PREFIX: u8 = b'm';
/// The kind of a value.
const KIND_VALUE: u64 = b's' as u64;
/// The kind of a field of a hash.
const KIND_FIELD: u64 = b'h' as u64;

const SCHEMA_VERSION: &[u8] = b"SchemaVersionKey";
const NEXT_GLOBAL_ID: &[u8] = b"NextGlobalID";
const DATABASES: &[u8] = b"DBs";

/// A key of the meta range.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MetaKey {
    /// The number of the newest schema version.
    SchemaVersion,
    /// What a schema version changed.
    Diff(i64),
    /// The last id that was given to a database or table.
    NextGlobalId,
    /// The definition of a database.
    Database(i64),
    /// The definition of a table.
    Table {
        /// The database that holds it.
        database: i64,
        /// The table's id.
        table: i64,
    },
    /// Another value: noise.
    Value(Vec<u8>),
    /// Another field of a hash: noise.
    Field {
        /// The hash's name.
        hash: Vec<u8>,
        /// The field.
        field: Vec<u8>,
    },
    /// A key of another kind, such as a list's: noise.
    Kind {
        /// The name.
        name: Vec<u8>,
        /// The kind.
        kind: u64,
        /// What follows, as it is.
        rest: Vec<u8>,
    },
}

impl MetaKey {
    /// The bytes of the key.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            MetaKey::SchemaVersion => value_key(SCHEMA_VERSION),
            MetaKey::Diff(version) => value_key(format!("Diff:{version}").as_bytes()),
            MetaKey::NextGlobalId => value_key(NEXT_GLOBAL_ID),
            MetaKey::Database(id) => field_key(DATABASES, database_name(*id).as_bytes()),
            MetaKey::Table { database, table } => {
                field_key(database_name(*database).as_bytes(), format!("Table:{table}").as_bytes())
            }
            MetaKey::Value(name) => value_key(name),
            MetaKey::Field { hash, field } => field_key(hash, field),
            MetaKey::Kind { name, kind, rest } => {
                let mut key = kind_prefix(name, *kind);
                key.extend_from_slice(rest);
                key
            }
        }
    }

    /// Takes a key of the meta range apart.
    ///
    /// # Errors
    /// `Corrupt` if it is none.
    pub fn decode(key: &[u8]) -> Result<MetaKey> {
        let Some(mut rest) = key.strip_prefix(&[PREFIX]) else {
            return Err(Error::corrupt("key is not of the meta range"));
        };
        let mut name = Vec::new();
        take_bytes(&mut rest, &mut name)?;
        match take_u64(&mut rest)? {
            KIND_VALUE if rest.is_empty() => Ok(value_of(name)),
            KIND_FIELD => {
                let mut field = Vec::new();
                take_bytes(&mut rest, &mut field)?;
                if rest.is_empty() {
                    Ok(field_of(name, field))
                } else {
                    Err(Error::corrupt("bytes after the field of a meta key"))
                }
            }
            KIND_VALUE => Err(Error::corrupt("bytes after the name of a meta key")),
            kind => Ok(MetaKey::Kind { name, kind, rest: rest.to_vec() }),
        }
    }

    /// Whether nobody here needs to know what changed under the key.
    #[must_use]
    pub fn is_noise(&self) -> bool {
        matches!(self, MetaKey::Value(_) | MetaKey::Field { .. } | MetaKey::Kind { .. })
    }
}

/// The range of the whole meta range.
#[must_use]
pub fn meta_range() -> KeySpan {
    span(vec![PREFIX])
}

/// The range of the definitions of databases.
#[must_use]
pub fn databases_range() -> KeySpan {
    span(kind_prefix(DATABASES, KIND_FIELD))
}

/// The range of the definitions of a database's tables; counters of automatic ids are among them.
#[must_use]
pub fn database_range(database: i64) -> KeySpan {
    span(kind_prefix(database_name(database).as_bytes(), KIND_FIELD))
}

/// Reads a number that stands under a meta key: a schema version, a global id.
///
/// # Errors
/// `Corrupt` if the value is no number in decimal.
pub fn meta_number(value: &[u8]) -> Result<i64> {
    let text = std::str::from_utf8(value).ok().filter(|text| !text.starts_with('+'));
    text.and_then(|text| text.parse().ok())
        .ok_or_else(|| Error::corrupt(format!("meta value of {} bytes is no number", value.len())))
}

fn span(start: Vec<u8>) -> KeySpan {
    let end = prefix_end(&start);
    KeySpan { start, end }
}

fn database_name(id: i64) -> String {
    format!("DB:{id}")
}

fn kind_prefix(name: &[u8], kind: u64) -> Vec<u8> {
    let mut key = vec![PREFIX];
    put_bytes(&mut key, name);
    put_u64(&mut key, kind);
    key
}

fn value_key(name: &[u8]) -> Vec<u8> {
    kind_prefix(name, KIND_VALUE)
}

fn field_key(hash: &[u8], field: &[u8]) -> Vec<u8> {
    let mut key = kind_prefix(hash, KIND_FIELD);
    put_bytes(&mut key, field);
    key
}

fn value_of(name: Vec<u8>) -> MetaKey {
    if name == SCHEMA_VERSION {
        return MetaKey::SchemaVersion;
    }
    if name == NEXT_GLOBAL_ID {
        return MetaKey::NextGlobalId;
    }
    match numbered(&name, b"Diff:") {
        Some(version) => MetaKey::Diff(version),
        None => MetaKey::Value(name),
    }
}

fn field_of(hash: Vec<u8>, field: Vec<u8>) -> MetaKey {
    if hash == DATABASES
        && let Some(id) = numbered(&field, b"DB:")
    {
        return MetaKey::Database(id);
    }
    match (numbered(&hash, b"DB:"), numbered(&field, b"Table:")) {
        (Some(database), Some(table)) => MetaKey::Table { database, table },
        _ => MetaKey::Field { hash, field },
    }
}

/// The number after a prefix, if it is written as TiDB writes it: so one number has one key.
fn numbered(name: &[u8], prefix: &[u8]) -> Option<i64> {
    let digits = std::str::from_utf8(name.strip_prefix(prefix)?).ok()?;
    let number: i64 = digits.parse().ok()?;
    (number.to_string() == digits).then_some(number)
}
