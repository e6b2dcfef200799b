//! What a crash leaves of fjall's journals, judged before fjall reads them.
//!
//! A batch in a journal is a start, items, and an end with a checksum over the items:
//!
//! ```text
//! start  1 count:u32 seqno:u64
//! item   2 kind:u8 compression:u8 keyspace:u64 key:u16 value:u32 stored:u32, then the key and the stored value
//! clear  4 keyspace:u64
//! end    3 xxh3:u64 "FJL" 3
//! ```
//!
//! A process that dies leaves at most one unfinished batch at the end, which fjall drops. A machine that
//! dies may keep any pages of what was written since the last sync: a batch may have its end and lack a page
//! inside, and whole ones may follow. fjall refuses to open over the first and drops the rest without a word
//! over others. Here the store's own rule decides: a group of commits is written when the one before it is
//! on disk, so what is broken before the last group alone was never acknowledged, and the journal may be cut
//! there; what is broken further up was once whole, and is refused.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use types::{Error, Result};
use xxhash_rust::xxh3::Xxh3;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const TRAILER: &[u8] = b"FJL\x03";
const UNCOMPRESSED: u8 = 0;

/// How much of a journal is read at a time; journals are long and mostly empty at their end.
const BLOCK_BYTES: usize = 1 << 20;

/// Tells the number of a group of commits by one write of its batch; `None` for every other write.
pub(crate) type GroupOf<'a> = &'a dyn Fn(&[u8], &[u8]) -> Option<u64>;

/// Cuts what a crash of the machine has torn off the newest journal, and keeps the cut bytes beside it.
/// `acknowledged` is the last group that is known to have been acknowledged.
///
/// # Errors
/// `Corrupt`, and nothing is changed, if acknowledged groups are broken or behind what is broken; forced,
/// journals are cut there all the same. `Unavailable` if the files cannot be read or written.
pub(crate) fn mend(engine: &Path, acknowledged: u64, group_of: GroupOf<'_>, force: bool) -> Result<()> {
    let journals = journals(engine).map_err(|error| unusable(engine, &error))?;
    let mut reached = None;
    for (index, (_, path)) in journals.iter().enumerate() {
        let bytes = written(path).map_err(|error| unusable(path, &error))?;
        let walk = walk(&bytes, group_of);
        reached = walk.reached.or(reached);
        let Some(torn) = walk.torn else { continue };
        // Older journals were synced when the next one began.
        let newest = index + 1 == journals.len();
        let acceptable = newest && torn.is_unacknowledged(reached.unwrap_or(acknowledged), acknowledged);
        if !acceptable && !force {
            return Err(refusal(path, &torn));
        }
        if torn.ended || !newest {
            let kept = cut(path, &bytes, torn.at).map_err(|error| unusable(path, &error))?;
            report(path, &torn, &kept, acceptable);
        }
        // Else it is one unfinished batch, which fjall drops.
    }
    Ok(())
}

fn refusal(path: &Path, torn: &Torn) -> Error {
    let groups = torn.groups.last().map_or(String::new(), |group| format!(" (up to group {group})"));
    Error::corrupt(format!(
        "journal {} is broken at byte {}, and commits were acknowledged behind that{groups}: restore the directory \
         from a copy, or force the store open without everything from that byte on",
        path.display(),
        torn.at,
    ))
}

fn report(path: &Path, torn: &Torn, kept: &Path, acceptable: bool) {
    let (at, journal, kept) = (torn.at, path.display(), kept.display());
    if acceptable {
        tracing::warn!(at, %journal, %kept, "a crash has torn a batch that was never acknowledged; it is cut off");
    } else {
        tracing::error!(at, %journal, %kept, groups = ?torn.groups, "a broken journal is cut by force");
    }
}

fn unusable(path: &Path, error: &std::io::Error) -> Error {
    Error::unavailable(format!("journal {} cannot be used: {error}", path.display()))
}

/// The journals of an engine by number, the newest last; names that are no journal's are fjall's to judge.
fn journals(engine: &Path) -> std::io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    if !engine.exists() {
        return Ok(found);
    }
    for entry in std::fs::read_dir(engine)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some(number) = name.strip_suffix(".jnl").and_then(|number| number.parse().ok()) {
            found.push((number, path));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// A file's content without the zeros at its end.
fn written(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let (mut bytes, mut zeros) = (Vec::new(), 0);
    let (mut block, empty) = (vec![0; BLOCK_BYTES], vec![0; BLOCK_BYTES]);
    loop {
        let n_read = file.read(&mut block)?;
        if n_read == 0 {
            break;
        }
        if block[..n_read] == empty[..n_read] {
            zeros += n_read;
            continue;
        }
        bytes.resize(bytes.len() + zeros, 0);
        zeros = 0;
        bytes.extend_from_slice(&block[..n_read]);
    }
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.truncate(end);
    Ok(bytes)
}

/// What a journal has.
#[derive(Debug, Default)]
struct Walk {
    /// The last group of commits before its end, or before it is broken.
    reached: Option<u64>,
    torn: Option<Torn>,
}

/// Where a journal is broken.
#[derive(Debug)]
struct Torn {
    /// The end of the last batch before.
    at: usize,
    /// Whether what follows has the end of a batch, so that it is more than one unfinished batch.
    ended: bool,
    /// The groups of commits of whole batches behind it.
    groups: Vec<u64>,
}

impl Torn {
    /// Whether nothing from here on was acknowledged. A group that comes next but one proves that the next
    /// was on disk; the next itself proves nothing, because its sync would have covered what is broken.
    fn is_unacknowledged(&self, reached: u64, acknowledged: u64) -> bool {
        acknowledged <= reached
            && match self.groups.as_slice() {
                [] => true,
                [next] => Some(*next) == reached.checked_add(1),
                _ => false,
            }
    }
}

/// Walks over a journal's batches.
fn walk(bytes: &[u8], group_of: GroupOf<'_>) -> Walk {
    let (mut at, mut reached) = (0, None);
    while let Some(batch) = bytes.get(at..).and_then(|rest| read_batch(rest, group_of)) {
        at += batch.length;
        reached = batch.group.or(reached);
    }
    let rest = &bytes[at..];
    if rest.is_empty() {
        return Walk { reached, torn: None };
    }
    let ended = rest.windows(TRAILER.len()).any(|window| window == TRAILER);
    let mut groups = Vec::new();
    let mut next = 1;
    while ended && next < rest.len() {
        match read_batch(&rest[next..], group_of) {
            Some(batch) => {
                groups.extend(batch.group);
                next += batch.length;
            }
            None => next += 1,
        }
    }
    Walk { reached, torn: Some(Torn { at, ended, groups }) }
}

/// A whole batch.
struct Batch {
    length: usize,
    group: Option<u64>,
}

/// Reads numbers and bytes off the front of a journal.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    /// A number of so many bytes, the least first.
    fn number(&mut self, count: usize) -> Option<u64> {
        self.take(count)
            .map(|bytes| bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn length(&mut self, count: usize) -> Option<usize> {
        self.number(count).and_then(|number| usize::try_from(number).ok())
    }
}

/// Reads the batch at the front; `None` if there is none, or if it is not whole.
fn read_batch(bytes: &[u8], group_of: GroupOf<'_>) -> Option<Batch> {
    let mut reader = Reader { rest: bytes };
    if reader.number(1)? != u64::from(START) {
        return None;
    }
    let count = reader.number(4)?;
    reader.take(8)?;
    let items = reader.rest;
    let mut group = None;
    for _ in 0..count {
        match u8::try_from(reader.number(1)?).ok()? {
            ITEM => {
                let (_kind, compression) = (reader.number(1)?, reader.number(1)?);
                reader.take(8)?;
                let (key, _value, stored) = (reader.length(2)?, reader.length(4)?, reader.length(4)?);
                let (key, value) = (reader.take(key)?, reader.take(stored)?);
                if compression == u64::from(UNCOMPRESSED) {
                    group = group.or_else(|| group_of(key, value));
                }
            }
            CLEAR => drop(reader.take(8)?),
            _ => return None,
        }
    }
    let items = &items[..items.len() - reader.rest.len()];
    if reader.number(1)? != u64::from(END) {
        return None;
    }
    let checksum = reader.number(8)?;
    let mut hasher = Xxh3::new();
    hasher.update(items);
    let whole = reader.take(TRAILER.len())? == TRAILER && hasher.digest() == checksum;
    whole.then(|| Batch { length: bytes.len() - reader.rest.len(), group })
}

/// Cuts a journal; what is cut off is on disk beside it before.
fn cut(path: &Path, bytes: &[u8], at: usize) -> std::io::Result<PathBuf> {
    let kept = path.with_extension(format!("cut-at-{at}"));
    let mut file = File::create(&kept)?;
    file.write_all(&bytes[at..])?;
    file.sync_all()?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    let journal = OpenOptions::new().write(true).open(path)?;
    journal.set_len(at as u64)?;
    journal.sync_all()?;
    Ok(kept)
}
