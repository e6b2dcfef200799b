//! The directory of a store: who owns it, and how far its journal must reach.
//!
//! `LOCK` is locked while a process has the store open. `CURRENT` tells how many groups of commits were
//! synced; it is written after every one of them and synced now and then. An engine that comes back with
//! fewer has lost acknowledged commits, which it would not say itself when a byte in the middle of its
//! journal is broken.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use types::{Error, Result};

/// Where the engine keeps its files.
const ENGINE: &str = "engine";
/// The file that tells how far the journal must reach.
const CURRENT: &str = "CURRENT";
/// Two records, so that one that is being written never costs the other.
const SLOTS: u64 = 2;
const SLOT_BYTES: u64 = 512;
/// Groups between two syncs of `CURRENT`.
const SYNC_EVERY: u64 = 64;
const MAGIC: &[u8; 8] = b"TMCURR01";

/// An owned directory.
pub(crate) struct Directory {
    path: PathBuf,
    current: File,
    sequence: u64,
    /// Holds the lock until it is dropped; last, so that everything else is closed before.
    _lock: File,
}

impl Directory {
    pub(crate) fn open(path: &Path, force: bool) -> Result<Directory> {
        let failed = |error: std::io::Error| {
            Error::unavailable(format!("directory {} cannot be used: {error}", path.display()))
        };
        std::fs::create_dir_all(path).map_err(failed)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join("LOCK"))
            .map_err(failed)?;
        match fs4::fs_std::FileExt::try_lock_exclusive(&lock) {
            Ok(true) => {}
            Ok(false) => {
                return Err(Error::invalid(format!(
                    "the store in {} is in use by another process",
                    path.display()
                )));
            }
            Err(error) => return Err(failed(error)),
        }
        let fresh = !path.join(ENGINE).exists();
        let current_path = path.join(CURRENT);
        if !current_path.exists() && !fresh && !force {
            return Err(Error::corrupt(format!("{} is missing", current_path.display())));
        }
        let current =
            OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&current_path);
        let mut directory =
            Directory { path: path.to_owned(), current: current.map_err(failed)?, sequence: 0, _lock: lock };
        let length = directory.current.metadata().map_err(failed)?.len();
        if length == 0 && (fresh || force) {
            directory.write(0)?;
            directory.sync()?;
            File::open(path).and_then(|folder| folder.sync_all()).map_err(failed)?;
        }
        directory.sequence = match directory.read()? {
            Some(sequence) => sequence,
            None if force => 0,
            None => return Err(Error::corrupt(format!("{} is broken", current_path.display()))),
        };
        Ok(directory)
    }

    /// Whether a store has been made there.
    pub(crate) fn is_one(path: &Path) -> bool {
        path.join(ENGINE).exists() || path.join(CURRENT).exists()
    }

    pub(crate) fn engine_path(&self) -> PathBuf {
        self.path.join(ENGINE)
    }

    /// The last group that is known to have been acknowledged.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.sequence
    }

    /// Fails if the engine knows of fewer synced groups than were acknowledged.
    pub(crate) fn check(&self, sequence: u64, force: bool) -> Result<()> {
        if sequence >= self.sequence {
            return Ok(());
        }
        let text = format!(
            "acknowledged commits are missing: the engine ends with group {sequence}, group {} was acknowledged",
            self.sequence
        );
        if force {
            tracing::error!("{text}; opened by force");
            return Ok(());
        }
        Err(Error::corrupt(text))
    }

    /// Notes a synced group.
    pub(crate) fn reached(&mut self, sequence: u64) -> Result<()> {
        self.write(sequence)?;
        if sequence.is_multiple_of(SYNC_EVERY) {
            self.sync()?;
        }
        Ok(())
    }

    pub(crate) fn sync(&mut self) -> Result<()> {
        self.current.sync_data().map_err(|error| Error::unavailable(format!("CURRENT: {error}")))
    }

    fn write(&mut self, sequence: u64) -> Result<()> {
        let mut record = MAGIC.to_vec();
        record.extend_from_slice(&sequence.to_be_bytes());
        record.extend_from_slice(&crc32fast::hash(&record).to_be_bytes());
        record.resize(SLOT_BYTES as usize, 0);
        let offset = SeekFrom::Start((sequence % SLOTS) * SLOT_BYTES);
        let write = self.current.seek(offset).and_then(|_| self.current.write_all(&record));
        write.map_err(|error| Error::unavailable(format!("CURRENT: {error}")))
    }

    fn read(&mut self) -> Result<Option<u64>> {
        let mut bytes = Vec::new();
        let read = self.current.rewind().and_then(|()| self.current.read_to_end(&mut bytes));
        read.map_err(|error| Error::unavailable(format!("CURRENT: {error}")))?;
        Ok(bytes.chunks(SLOT_BYTES as usize).filter_map(read_slot).max())
    }
}

fn read_slot(slot: &[u8]) -> Option<u64> {
    let (record, crc) = (slot.get(..16)?, slot.get(16..20)?);
    let whole = record.starts_with(MAGIC) && crc == crc32fast::hash(record).to_be_bytes();
    whole.then(|| u64::from_be_bytes(record[8..16].try_into().expect("the length was checked")))
}
