//! Tidemill's own records in the store: their keys and the epoch record.
//!
//! All of them live under one private prefix that no TiDB key shares, so one range scan finds what
//! belongs to Tidemill. Numbers in keys are big-endian, so order of keys is order of numbers.
//!
//! ```text
//! ~tm/c/v                     the catalog's version: changes with every DDL
//! ~tm/c/d/<name>              a database
//! ~tm/c/t/<id>                a table or view (JSON)
//! ~tm/c/i                     the id allocator
//! ~tm/b/, ~tm/h/              unversioned values and holds, where the store is a cluster
//! ~tm/e/<timestamp>           a statement that another process does (JSON), where several share the store
//! ~tm/l                       which process runs the jobs (JSON), where several share the store
//! ~tm/j/<job>                 epoch record: the primary of every epoch of the job
//! ~tm/p/<job>                 position of a fill (JSON)
//! ~tm/m/<view><state>         manifest of one operator's state
//! ~tm/r/<job><gen><epoch><view><number><part>   a run, in values of at most 1 MiB
//! ~tm/a/<table>               row-id allocator of a table without a clustered key
//! ~tm/i/<number>              a table that is being made in TiDB and belongs to no view yet (JSON)
//! ~tm/d/<table>               the note that a table or view was dropped, until its keys are removed
//! ```

use serde::{Deserialize, Serialize};

use crate::{Epoch, Error, Generation, JobId, Result, RunName, StateId, TableId, Timestamp};

/// The prefix of every own record.
pub const PREFIX: &[u8] = b"~tm/";

/// The largest value a run is cut into, in bytes.
pub const RUN_PART_BYTES_MAX: usize = 1 << 20;

/// The shared continuous job of all views that name no other.
pub const MAIN_JOB: JobId = JobId(1);

fn key(kind: &[u8], numbers: &[u64]) -> Vec<u8> {
    let mut key = Vec::with_capacity(PREFIX.len() + kind.len() + numbers.len() * 8);
    key.extend_from_slice(PREFIX);
    key.extend_from_slice(kind);
    for number in numbers {
        key.extend_from_slice(&number.to_be_bytes());
    }
    key
}

/// The store's identity: a random number that is drawn once, so that tokens of another store are known.
#[must_use]
pub fn store_identity_key() -> Vec<u8> {
    key(b"c/s", &[])
}

/// The catalog's version: read it to know whether a cached catalog is still right at a timestamp.
#[must_use]
pub fn catalog_version_key() -> Vec<u8> {
    key(b"c/v", &[])
}

/// The key of a database; names are kept in lower case.
#[must_use]
pub fn database_key(name: &str) -> Vec<u8> {
    let mut key = database_prefix();
    key.extend_from_slice(name.as_bytes());
    key
}

/// The prefix of all databases.
#[must_use]
pub fn database_prefix() -> Vec<u8> {
    key(b"c/d/", &[])
}

/// The key of a table's or view's definition.
#[must_use]
pub fn table_key(id: TableId) -> Vec<u8> {
    key(b"c/t/", &[id.0])
}

/// The prefix of all tables' and views' definitions.
#[must_use]
pub fn table_prefix() -> Vec<u8> {
    key(b"c/t/", &[])
}

/// A statement that the process with the lease does for another, by the timestamp at which it was asked.
#[must_use]
pub fn errand_key(asked: Timestamp) -> Vec<u8> {
    key(b"e/", &[asked.0])
}

/// The prefix of all such statements.
#[must_use]
pub fn errand_prefix() -> Vec<u8> {
    key(b"e/", &[])
}

/// The lease of the process that runs the jobs of a shared store.
#[must_use]
pub fn lease_key() -> Vec<u8> {
    key(b"l", &[])
}

/// The allocator of ids for tables, views and jobs.
#[must_use]
pub fn id_allocator_key() -> Vec<u8> {
    key(b"c/i", &[])
}

/// The allocator of row ids of a table without a clustered primary key.
#[must_use]
pub fn row_id_allocator_key(table: TableId) -> Vec<u8> {
    key(b"a/", &[table.0])
}

/// The note that a table or view was dropped, until its keys are removed. Written by the transaction of the
/// DROP, so whoever commits rows checks that it does not exist and has not changed since its start.
#[must_use]
pub fn dropped_key(table: TableId) -> Vec<u8> {
    key(b"d/", &[table.0])
}

/// The prefix of all such notes.
#[must_use]
pub fn dropped_prefix() -> Vec<u8> {
    key(b"d/", &[])
}

/// The table of a note's key.
///
/// # Errors
/// `Corrupt` if the key is no note's.
pub fn table_of_dropped_key(bytes: &[u8]) -> Result<TableId> {
    number_after(&dropped_prefix(), bytes)
        .map(TableId)
        .ok_or_else(|| Error::corrupt("not the key of a note that a table was dropped"))
}

/// The intent to make a table in TiDB, by the number in its name; gone in the transaction that gives the
/// table to a view.
#[must_use]
pub fn tidb_intent_key(number: u64) -> Vec<u8> {
    key(b"i/", &[number])
}

/// The prefix of all such intents.
#[must_use]
pub fn tidb_intent_prefix() -> Vec<u8> {
    key(b"i/", &[])
}

/// The number of an intent's key.
///
/// # Errors
/// `Corrupt` if the key is no intent's.
pub fn number_of_tidb_intent_key(bytes: &[u8]) -> Result<u64> {
    number_after(&tidb_intent_prefix(), bytes).ok_or_else(|| Error::corrupt("not the key of an intent"))
}

fn number_after(prefix: &[u8], bytes: &[u8]) -> Option<u64> {
    let number = bytes.strip_prefix(prefix).and_then(|rest| <[u8; 8]>::try_from(rest).ok());
    number.map(u64::from_be_bytes)
}

/// The epoch record of a job: the primary key of each of its epochs.
#[must_use]
pub fn epoch_record_key(job: JobId) -> Vec<u8> {
    key(b"j/", &[job.0])
}

/// The prefix of all epoch records.
#[must_use]
pub fn epoch_record_prefix() -> Vec<u8> {
    key(b"j/", &[])
}

/// The job of an epoch record's key.
///
/// # Errors
/// `Corrupt` if the key is no epoch record's.
pub fn job_of_epoch_record_key(bytes: &[u8]) -> Result<JobId> {
    let number =
        bytes.strip_prefix(epoch_record_prefix().as_slice()).and_then(|rest| <[u8; 8]>::try_from(rest).ok());
    number
        .map(|bytes| JobId(u64::from_be_bytes(bytes)))
        .ok_or_else(|| Error::corrupt("not the key of an epoch record"))
}

/// The position of a fill job.
#[must_use]
pub fn fill_position_key(job: JobId) -> Vec<u8> {
    key(b"p/", &[job.0])
}

/// The manifest of one operator's state.
#[must_use]
pub fn manifest_key(state: StateId) -> Vec<u8> {
    let mut bytes = manifest_prefix(state.view);
    bytes.extend_from_slice(&state.state.to_be_bytes());
    bytes
}

/// The prefix of all manifests of a view.
#[must_use]
pub fn manifest_prefix(view: TableId) -> Vec<u8> {
    key(b"m/", &[view.0])
}

/// The key of one part of a run.
#[must_use]
pub fn run_part_key(run: RunName, part: u32) -> Vec<u8> {
    let mut bytes = run_prefix(run);
    bytes.extend_from_slice(&part.to_be_bytes());
    bytes
}

/// The prefix of all parts of a run.
#[must_use]
pub fn run_prefix(run: RunName) -> Vec<u8> {
    let mut bytes = key(b"r/", &[run.job.0, run.generation.0, run.epoch.0, run.view.0]);
    bytes.extend_from_slice(&run.number.to_be_bytes());
    bytes
}

/// The prefix of all runs.
#[must_use]
pub fn runs_prefix() -> Vec<u8> {
    key(b"r/", &[])
}

/// The run and the part of a run's key.
///
/// # Errors
/// `Corrupt` if the key is no run's.
///
/// # Panics
/// Never: the length is checked first.
pub fn run_of_key(bytes: &[u8]) -> Result<(RunName, u32)> {
    let rest = bytes.strip_prefix(runs_prefix().as_slice()).filter(|rest| rest.len() == 40);
    let rest = rest.ok_or_else(|| Error::corrupt("not the key of a run"))?;
    let long = |at: usize| u64::from_be_bytes(rest[at..at + 8].try_into().expect("the length was checked"));
    let short = |at: usize| u32::from_be_bytes(rest[at..at + 4].try_into().expect("the length was checked"));
    let name = RunName {
        job: JobId(long(0)),
        generation: Generation(long(8)),
        epoch: Epoch(long(16)),
        view: TableId(long(24)),
        number: short(32),
    };
    Ok((name, short(36)))
}

/// The end of the range of all keys that begin with a prefix; empty if there is none.
#[must_use]
pub fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            break;
        }
    }
    end
}

/// The epoch record: the primary of an epoch's transaction, complete when it is prewritten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// The epoch that this record decides.
    pub epoch: Epoch,
    /// The store's source timestamp that ends the epoch.
    pub cut: Timestamp,
    /// The run of the job that wrote it.
    pub generation: Generation,
    /// Counts the DDL on the job's views.
    pub definitions: u64,
}

impl EpochRecord {
    /// The record's bytes in the store (JSON, so that an operator can read it).
    ///
    /// # Panics
    /// Never: the record always serialises.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("an epoch record serialises")
    }

    /// The record in a store's value.
    ///
    /// # Errors
    /// `Corrupt` if the bytes are no epoch record.
    pub fn decode(bytes: &[u8]) -> Result<EpochRecord> {
        serde_json::from_slice(bytes).map_err(|error| Error::corrupt(format!("epoch record: {error}")))
    }
}
