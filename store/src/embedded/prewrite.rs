//! The first half of transactions: locks are entered, then checked, then kept or taken back.

use std::sync::Arc;

use types::{Error, Result, Timestamp};

use super::Inner;
use super::committer::{Group, Step};
use super::core::{Core, Decision};
use super::format::{Record, RecordKind, StoredLock, Version, check_key_length, show};
use super::locks::{Lock, LockTable, LockValue, RequestId};
use crate::engine::{Engine, Space};
use crate::traits::{
    Assertion, AssertionLevel, Key, KeyError, KvResult, LockInfo, LockKind, Mutation, MutationOp,
    PrewriteRequest, Value,
};

/// Locks that are entered but not yet answered for; takes them back when dropped.
struct Pending {
    core: Arc<Core>,
    start_ts: Timestamp,
    /// What tells these locks from those that another request of the transaction has entered since.
    request: RequestId,
    keys: Vec<Key>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.keys.is_empty() {
            return;
        }
        {
            let mut table = self.core.locks_mut();
            for key in &self.keys {
                if table.is_pending(key, self.request) {
                    table.remove(key, self.start_ts);
                }
            }
        }
        self.core.announce();
    }
}

impl Pending {
    /// Keeps a lock no longer: the transaction has no need of it.
    fn forget(&mut self, key: &Key) {
        self.keys.retain(|kept| kept != key);
        let mut table = self.core.locks_mut();
        if table.is_pending(key, self.request) {
            table.remove(key, self.start_ts);
        }
    }

    /// Fails if somebody rolled one of the locks back meanwhile.
    fn check_kept(&self, table: &LockTable) -> KvResult<()> {
        match self.keys.iter().find(|key| !table.is_pending(key, self.request)) {
            None => Ok(()),
            Some(key) => Err(KeyError::WriteConflict {
                key: key.clone(),
                start_ts: self.start_ts,
                conflict_start_ts: self.start_ts,
                conflict_commit_ts: self.start_ts,
                self_rolled_back: true,
            }),
        }
    }
}

/// What a key's lock says to a prewrite.
enum Entry {
    /// Nothing is there; entered as pending, unless the mutation leaves no lock.
    Free,
    /// The transaction's own.
    Own,
    /// Somebody else's.
    Foreign(LockInfo),
}

enum Entered {
    /// What each mutation met; `staged` says whether the locks stay in memory.
    Done { entries: Vec<Entry>, pending: Pending, staged: bool },
    /// A key is being written, or checked by another request of the transaction.
    Busy,
}

fn lock_kind(op: MutationOp) -> Option<LockKind> {
    match op {
        MutationOp::Put | MutationOp::Insert => Some(LockKind::Put),
        MutationOp::Delete => Some(LockKind::Delete),
        MutationOp::Lock => Some(LockKind::Lock),
        MutationOp::CheckNotExists => None,
    }
}

fn info(request: &PrewriteRequest, mutation: &Mutation, kind: LockKind) -> LockInfo {
    LockInfo {
        key: mutation.key.clone(),
        primary: request.primary.clone(),
        start_ts: request.start_ts,
        ttl_ms: request.ttl_ms,
        txn_size: request.txn_size,
        kind,
        min_commit_ts: request.min_commit_ts,
    }
}

/// Enters locks for all free keys, unless somebody else's is in the way of one.
fn enter(core: &Arc<Core>, request: &PrewriteRequest) -> Result<Entered> {
    let start_ts = request.start_ts;
    let mut table = core.locks_mut();
    if start_ts <= table.barrier {
        return Err(Error::invalid(format!(
            "transaction {start_ts} began below the barrier {}, its conflicts are not known any more",
            table.barrier
        )));
    }
    if table.is_busy_transaction(start_ts) {
        return Ok(Entered::Busy);
    }
    let mut entries = Vec::with_capacity(request.mutations.len());
    for mutation in &request.mutations {
        if table.is_busy(&mutation.key) {
            return Ok(Entered::Busy);
        }
        entries.push(match table.get(&mutation.key) {
            Some(lock) if lock.info.start_ts != start_ts => Entry::Foreign(lock.info.clone()),
            Some(lock) if lock.pending.is_some() => return Ok(Entered::Busy),
            Some(_) => Entry::Own,
            None => Entry::Free,
        });
    }
    let with_primary = request.mutations.iter().any(|mutation| mutation.key == request.primary);
    let primary_staged = table.get(&request.primary).map(|lock| {
        lock.info.start_ts == start_ts
            && lock.pending.is_none()
            && matches!(lock.value, LockValue::Staged { .. })
    });
    // Staged locks must not outlive, nor be outlived by, what decides them.
    let staged = request.staged && primary_staged.unwrap_or(with_primary);
    let request_id = table.next_request();
    let mut pending = Pending { core: Arc::clone(core), start_ts, request: request_id, keys: Vec::new() };
    if !entries.iter().any(|entry| matches!(entry, Entry::Foreign(_))) {
        for (mutation, entry) in request.mutations.iter().zip(&entries) {
            let (Entry::Free, Some(kind)) = (entry, lock_kind(mutation.op)) else { continue };
            let value = LockValue::Staged { value: mutation.value.clone(), replaces: None };
            table.insert(Lock { info: info(request, mutation, kind), value, pending: Some(request_id) });
            pending.keys.push(mutation.key.clone());
        }
    }
    Ok(Entered::Done { entries, pending, staged })
}

/// What the records of a key say to a writer that began at a timestamp.
pub(crate) enum Verdict {
    /// It may write; the raw newest version, if there is one.
    Clear(Option<(bytes::Bytes, Version)>),
    /// The transaction has committed here already.
    Committed(Timestamp),
}

/// Checks one key for records newer than what the transaction has seen, its own rollback, existence and
/// assertion.
pub(crate) fn check_key(
    core: &Core,
    engine: &dyn Engine,
    mutation: &Mutation,
    (start_ts, seen): (Timestamp, Timestamp),
    level: AssertionLevel,
) -> KvResult<Verdict> {
    let key = &mutation.key;
    let newest = core.newest(engine, key)?;
    let records = core.records(engine, key)?;
    let version = newest.as_ref().map(|(_, version)| (version.start_ts, version.commit_ts));
    let record =
        records.iter().map(|record| (record.start_ts, record.commit_ts)).max_by_key(|(_, commit)| *commit);
    // Of a record and a version with one timestamp the version is reported.
    let latest = record.into_iter().chain(version).max_by_key(|(_, commit_ts)| *commit_ts);
    let rolled_back = is_rolled_back(&records, start_ts);
    if let Some((conflict_start_ts, conflict_commit_ts)) =
        latest.filter(|(_, commit_ts)| *commit_ts >= start_ts)
    {
        if let Some(Decision::Committed(commit_ts)) = core.decision(engine, key, start_ts)? {
            return Ok(Verdict::Committed(commit_ts));
        }
        if conflict_commit_ts > seen || rolled_back {
            return Err(KeyError::WriteConflict {
                key: key.clone(),
                start_ts,
                conflict_start_ts,
                conflict_commit_ts,
                self_rolled_back: rolled_back && conflict_commit_ts == start_ts,
            });
        }
    }
    let exists = newest.as_ref().is_some_and(|(_, version)| version.value.is_some());
    if exists && matches!(mutation.op, MutationOp::Insert | MutationOp::CheckNotExists) {
        return Err(KeyError::AlreadyExists(key.clone()));
    }
    let holds = match mutation.assertion {
        Assertion::None => true,
        Assertion::Exist => exists,
        Assertion::NotExist => !exists,
    };
    if !holds && level != AssertionLevel::Off {
        return Err(KeyError::AssertionFailed { key: key.clone(), assertion: mutation.assertion });
    }
    Ok(Verdict::Clear(newest))
}

fn is_rolled_back(records: &[Record], start_ts: Timestamp) -> bool {
    records.iter().any(|record| record.kind == RecordKind::Rollback && record.start_ts == start_ts)
}

/// Refuses requests that no client may send.
fn check_request(core: &Core, request: &PrewriteRequest) -> Result<()> {
    check_mutations(&request.mutations)?;
    check_key_length(&request.primary)?;
    core.oracle.check_named(request.start_ts)?;
    core.oracle.check_named(request.min_commit_ts)
}

/// Refuses a key that cannot be stored, or that appears twice.
pub(crate) fn check_mutations(mutations: &[Mutation]) -> Result<()> {
    let mut keys: Vec<&Key> = mutations.iter().map(|mutation| &mutation.key).collect();
    keys.iter().try_for_each(|key| check_key_length(key))?;
    keys.sort_unstable();
    match keys.windows(2).find(|pair| pair[0] == pair[1]) {
        None => Ok(()),
        Some(pair) => Err(Error::invalid(format!("key {} appears twice in one request", show(pair[0])))),
    }
}

impl Inner {
    /// The first half of a transaction that has seen what committed up to a timestamp: its start, as a rule.
    pub(crate) async fn prewrite(
        &self,
        request: PrewriteRequest,
        seen: Timestamp,
    ) -> std::result::Result<(), Vec<KeyError>> {
        let store = |error: Error| vec![KeyError::Store(error)];
        let engine = self.core.engine().map_err(store)?;
        check_request(&self.core, &request).map_err(store)?;
        let (entries, pending, staged) = loop {
            let mut progress = self.core.watch();
            match enter(&self.core, &request).map_err(store)? {
                Entered::Done { entries, pending, staged } => break (entries, pending, staged),
                Entered::Busy => {
                    self.core.check_open().map_err(store)?;
                    progress.changed().await.map_err(|_| store(Error::closed("the store is closed")))?;
                }
            }
        };
        let (pending, replaces) =
            check_all(&self.core, engine.as_ref(), (&request, seen), &entries, pending)?;
        if staged {
            return keep(&self.core, pending, replaces).map_err(|error| vec![error]);
        }
        let mutations = request.mutations;
        let request = PrewriteRequest { mutations: Vec::new(), ..request };
        let by_key = mutations.into_iter().map(|mutation| (mutation.key.clone(), mutation)).collect();
        self.store_locks(pending, request, by_key).await.map_err(|error| vec![error])
    }

    /// Writes locks to disk and keeps them.
    async fn store_locks(
        &self,
        pending: Pending,
        request: PrewriteRequest,
        mutations: std::collections::HashMap<Key, Mutation>,
    ) -> KvResult<()> {
        if pending.keys.is_empty() {
            return Ok(());
        }
        let mut pending = Some(pending);
        self.submit(move |group| {
            if group.core.locks().is_busy_transaction(request.start_ts) {
                return Step::Busy;
            }
            let Some(pending) = pending.take() else { return Step::Done(Ok(())) };
            Step::Done(store_pending(group, pending, &request, &mutations))
        })
        .await?
    }
}

fn store_pending(
    group: &mut Group,
    mut pending: Pending,
    request: &PrewriteRequest,
    mutations: &std::collections::HashMap<Key, Mutation>,
) -> KvResult<()> {
    pending.check_kept(&group.core.locks())?;
    for key in &pending.keys {
        let Some(mutation) = mutations.get(key) else { continue };
        let Some(kind) = lock_kind(mutation.op) else { continue };
        let stored = StoredLock { info: info(request, mutation, kind), value: mutation.value.clone() };
        group.batch.put(Space::Locks, key.clone(), stored.encode());
    }
    group.core.locks_mut().mark_busy_transaction(request.start_ts);
    group.must_sync();
    group.then(move |core| {
        let mut table = core.locks_mut();
        for key in std::mem::take(&mut pending.keys) {
            if let Some(lock) = table.get_mut(&key).filter(|lock| lock.pending == Some(pending.request)) {
                lock.pending = None;
                lock.value = LockValue::Stored;
            }
        }
    });
    Ok(())
}

/// Checks every key in order: the first conflict wins, else all locks of others are reported.
fn check_all(
    core: &Core,
    engine: &dyn Engine,
    (request, seen): (&PrewriteRequest, Timestamp),
    entries: &[Entry],
    mut pending: Pending,
) -> std::result::Result<(Pending, Vec<Option<bytes::Bytes>>), Vec<KeyError>> {
    let mut locked = Vec::new();
    let mut replaces = Vec::with_capacity(pending.keys.len());
    for (mutation, entry) in request.mutations.iter().zip(entries) {
        match entry {
            Entry::Own => {}
            Entry::Foreign(info) => locked.push(KeyError::Locked(Box::new(info.clone()))),
            Entry::Free => {
                let known = (request.start_ts, seen);
                let verdict = check_key(core, engine, mutation, known, request.assertion_level);
                match verdict.map_err(|error| vec![error])? {
                    Verdict::Clear(newest) if lock_kind(mutation.op).is_some() => {
                        replaces.push(newest.map(|(bytes, _)| bytes));
                    }
                    Verdict::Clear(_) => {}
                    Verdict::Committed(_) => pending.forget(&mutation.key),
                }
            }
        }
    }
    if locked.is_empty() { Ok((pending, replaces)) } else { Err(locked) }
}

/// Keeps checked locks in memory.
fn keep(core: &Core, mut pending: Pending, replaces: Vec<Option<bytes::Bytes>>) -> KvResult<()> {
    let mut table = core.locks_mut();
    if let Err(error) = pending.check_kept(&table) {
        // The locks that are still there are taken back, which needs the table.
        drop(table);
        return Err(error);
    }
    for (key, bytes) in std::mem::take(&mut pending.keys).into_iter().zip(replaces) {
        if let Some(lock) = table.get_mut(&key) {
            lock.pending = None;
            if let LockValue::Staged { replaces, .. } = &mut lock.value {
                *replaces = bytes;
            }
        }
    }
    drop(table);
    core.announce();
    Ok(())
}

/// Whether the value of a mutation is written.
pub(crate) fn written_value(mutation: &Mutation) -> Option<Option<Value>> {
    match mutation.op {
        MutationOp::Put | MutationOp::Insert => Some(Some(mutation.value.clone())),
        MutationOp::Delete => Some(None),
        MutationOp::Lock | MutationOp::CheckNotExists => None,
    }
}
