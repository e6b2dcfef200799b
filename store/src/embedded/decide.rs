//! The second half of transactions: commit, rollback, status, heartbeat. All of it in the committer.

use std::sync::Arc;

use bytes::Bytes;
use types::{Result, Timestamp};

use super::Inner;
use super::committer::{Group, Step};
use super::core::Decision;
use super::format::{
    IndexEntry, IndexPiece, PIECE_KEYS_MAX, PieceKind, Record, RecordKind, StoredLock, Version, add_record,
    check_key_length, history_key, index_key, show,
};
use super::locks::{Lock, LockValue, Writer};
use super::recent::{self, Written};
use super::stretches::parts_of;
use crate::engine::{Engine, Space};
use crate::traits::{
    CommitRequest, Key, KeyError, KvResult, LockInfo, LockKind, TxnStatus, TxnStatusRequest, Value,
};

/// A change of one key that commits.
pub(crate) struct Committing {
    pub key: Key,
    /// `None` deletes.
    pub value: Option<Value>,
    /// The raw newest version and when it committed.
    pub replaces: Option<(Bytes, Timestamp)>,
}

impl Group {
    /// Writes the versions of one commit, in key order: history before main, then the index.
    pub(crate) fn write_versions(
        &mut self,
        start_ts: Timestamp,
        commit_ts: Timestamp,
        kind: PieceKind,
        changes: Vec<Committing>,
    ) {
        let piece_keys = if kind == PieceKind::Drawn { PIECE_KEYS_MAX } else { 1 };
        self.note_stretch(commit_ts, &changes);
        let is_remembered = changes.len() <= recent::KEYS_MAX;
        let mut written = Vec::with_capacity(if is_remembered { changes.len() } else { 0 });
        let mut entries = Vec::with_capacity(changes.len().min(piece_keys));
        for change in changes {
            let previous = change.replaces.as_ref().map_or(Timestamp::ZERO, |(_, previous)| *previous);
            let replaced = change.replaces.map(|(bytes, _)| bytes);
            if let Some(bytes) = &replaced {
                self.batch.put(Space::History, history_key(&change.key, previous), bytes.clone());
            }
            let deleted = change.value.is_none();
            let version = Version { commit_ts, start_ts, previous, value: change.value }.encode(&change.key);
            self.batch.put(Space::Main, change.key.clone(), version.clone());
            if is_remembered {
                // The caller's key may be a part of much more.
                let key = Key::copy_from_slice(&change.key);
                written.push(Written { key, version, replaced });
            }
            entries.push(IndexEntry { key: change.key, deleted, previous });
            if entries.len() == piece_keys {
                self.write_piece(start_ts, commit_ts, kind, std::mem::take(&mut entries));
            }
        }
        if !entries.is_empty() {
            self.write_piece(start_ts, commit_ts, kind, entries);
        }
        if !written.is_empty() {
            self.then(move |core| core.recent.note(commit_ts, written));
        }
    }

    /// Notes where a commit lies, which must be known before it is visible.
    fn note_stretch(&mut self, commit_ts: Timestamp, changes: &[Committing]) {
        if changes.is_empty() {
            return;
        }
        let parts = parts_of(changes.iter().map(|change| &change.key));
        let is_large = changes.len() > PIECE_KEYS_MAX;
        self.then(move |core| core.stretches.note(commit_ts, parts, is_large));
    }

    fn write_piece(
        &mut self,
        start_ts: Timestamp,
        commit_ts: Timestamp,
        kind: PieceKind,
        entries: Vec<IndexEntry>,
    ) {
        let key = index_key(commit_ts, kind, &entries[0].key);
        let bytes = IndexPiece { start_ts, entries }.encode(&key);
        self.batch.put(Space::Index, key, bytes);
    }

    /// Adds a record to those of a key.
    pub(crate) fn write_record(&mut self, key: &Key, record: Record) -> Result<()> {
        let mut records = self.core.records(self.engine.as_ref(), key)?;
        add_record(&mut records, record);
        self.core.note_recorded(key);
        self.batch.put(Space::Records, key.clone(), Record::encode_list(key, &records));
        Ok(())
    }

    /// Removes a lock when the group is over, and from the disk with it.
    fn unlock(&mut self, lock: &Lock) {
        let (key, start_ts) = (lock.info.key.clone(), lock.info.start_ts);
        if matches!(lock.value, LockValue::Stored) {
            self.batch.delete(Space::Locks, key.clone());
        }
        self.released.push((key, start_ts));
    }

    /// Whether the group already changes a transaction or one of these keys.
    fn is_busy(&self, start_ts: Timestamp, keys: &[Key]) -> bool {
        let table = self.core.locks();
        table.is_busy_transaction(start_ts) || keys.iter().any(|key| table.is_busy(key))
    }

    /// The same for a commit: one of the primary takes the staged locks along.
    fn is_busy_commit(&self, request: &CommitRequest) -> bool {
        if self.is_busy(request.start_ts, &request.keys) {
            return true;
        }
        let table = self.core.locks();
        request.keys.contains(&request.primary)
            && table.keys_of(request.start_ts).iter().any(|key| table.is_busy(key))
    }

    /// Marks a transaction as changing, and with it the keys that it has locked.
    fn mark(&self, start_ts: Timestamp) {
        self.core.locks_mut().mark_busy_transaction(start_ts);
    }

    fn own_lock(&self, key: &[u8], start_ts: Timestamp) -> Option<Lock> {
        let table = self.core.locks();
        table.get(key).filter(|lock| lock.info.start_ts == start_ts && lock.pending.is_none()).cloned()
    }
}

/// The value that a lock will write, and what that replaces.
pub(crate) fn locked_change(engine: &dyn Engine, lock: &Lock, group: &Group) -> Result<Committing> {
    let key = lock.info.key.clone();
    let (value, replaces) = match &lock.value {
        LockValue::Staged { value, replaces } => {
            let previous = replaces.as_ref().map(|bytes| Version::decode(&key, bytes)).transpose()?;
            (value.clone(), replaces.clone().zip(previous.map(|version| version.commit_ts)))
        }
        LockValue::Stored => {
            let bytes = engine.get(Space::Locks, &key)?;
            let bytes = bytes
                .ok_or_else(|| types::Error::corrupt(format!("lock of key {} is missing", show(&key))))?;
            let newest = group.core.newest(engine, &key)?;
            (
                StoredLock::decode(&key, &bytes)?.value,
                newest.map(|(bytes, version)| (bytes, version.commit_ts)),
            )
        }
    };
    let value = (lock.info.kind == LockKind::Put).then_some(value);
    Ok(Committing { key, value, replaces })
}

/// Commits locked keys at a timestamp that is named or drawn.
fn commit_step(group: &mut Group, request: &CommitRequest) -> Step<KvResult<Timestamp>> {
    if group.is_busy_commit(request) {
        return Step::Busy;
    }
    Step::Done(commit_locked(group, request))
}

fn commit_locked(group: &mut Group, request: &CommitRequest) -> KvResult<Timestamp> {
    let start_ts = request.start_ts;
    let holds_primary = request.keys.contains(&request.primary);
    if request.commit_ts.is_none() && !holds_primary {
        return Err(KeyError::Abort(
            "only the commit of the primary may leave its timestamp open".to_owned(),
        ));
    }
    if let Some(commit_ts) = request.commit_ts {
        if commit_ts <= start_ts {
            return Err(KeyError::Abort(format!(
                "commit timestamp {commit_ts} is not above the start {start_ts}"
            )));
        }
        group.core.oracle.check_named(commit_ts)?;
    }
    let mut locks: Vec<Lock> = Vec::with_capacity(request.keys.len());
    let mut decided = None;
    for key in &request.keys {
        if let Some(lock) = group.own_lock(key, start_ts) {
            check_pushed(&lock.info, request.commit_ts)?;
            locks.push(lock);
            continue;
        }
        match group.core.decision(group.engine.as_ref(), key, start_ts)? {
            Some(Decision::Committed(commit_ts)) if *key == request.primary => decided = Some(commit_ts),
            Some(Decision::Committed(_)) => {}
            Some(Decision::RolledBack) | None => return Err(KeyError::TxnLockNotFound(key.clone())),
        }
    }
    if locks.is_empty() {
        return Ok(request.commit_ts.or(decided).unwrap_or(Timestamp::ZERO));
    }
    let n_asked = locks.len();
    if holds_primary && decided.is_none() {
        add_staged(group, start_ts, &mut locks);
    }
    let takes_along = locks.len() > n_asked;
    let least = locks.iter().map(|lock| lock.info.min_commit_ts).max().unwrap_or_default();
    let (commit_ts, kind) = match (request.commit_ts, decided) {
        (Some(named), _) => (named, PieceKind::Named),
        (None, Some(decided)) => (decided, PieceKind::Named),
        (None, None) => {
            group.core.oracle.check_named(least)?;
            (group.draw(least.max(start_ts.next()?))?, PieceKind::Drawn)
        }
    };
    let locks = finish_commit(group, start_ts, commit_ts, kind, locks)?;
    if takes_along {
        let keys = locks.into_iter().map(|lock| lock.info.key).collect();
        group.then(move |core| core.taken.note(start_ts, commit_ts, keys));
    }
    Ok(commit_ts)
}

/// Staged locks commit with their primary, in one batch.
fn add_staged(group: &Group, start_ts: Timestamp, locks: &mut Vec<Lock>) {
    let table = group.core.locks();
    let taken: std::collections::BTreeSet<Key> = locks.iter().map(|lock| lock.info.key.clone()).collect();
    for key in table.keys_of(start_ts) {
        let staged = |lock: &&Lock| lock.pending.is_none() && matches!(lock.value, LockValue::Staged { .. });
        let staged = table.get(&key).filter(staged);
        locks.extend(staged.filter(|_| !taken.contains(&key)).cloned());
    }
}

fn check_pushed(lock: &LockInfo, commit_ts: Option<Timestamp>) -> KvResult<()> {
    match commit_ts {
        Some(attempted) if attempted < lock.min_commit_ts => {
            Err(KeyError::CommitTsExpired { attempted, min_commit_ts: lock.min_commit_ts })
        }
        _ => Ok(()),
    }
}

/// Writes what locks committed; answers them in key order.
fn finish_commit(
    group: &mut Group,
    start_ts: Timestamp,
    commit_ts: Timestamp,
    kind: PieceKind,
    mut locks: Vec<Lock>,
) -> KvResult<Vec<Lock>> {
    locks.sort_by(|left, right| left.info.key.cmp(&right.info.key));
    let engine = Arc::clone(&group.engine);
    let mut changes = Vec::with_capacity(locks.len());
    for lock in locks.iter().filter(|lock| lock.info.kind != LockKind::Lock) {
        changes.push(locked_change(engine.as_ref(), lock, group)?);
    }
    for lock in locks.iter().filter(|lock| lock.info.kind == LockKind::Lock) {
        group.write_record(&lock.info.key, Record { kind: RecordKind::Lock, start_ts, commit_ts })?;
    }
    group.write_versions(start_ts, commit_ts, kind, changes);
    for lock in &locks {
        group.unlock(lock);
    }
    group.mark(start_ts);
    group.must_sync();
    group.note_commit(commit_ts);
    Ok(locks)
}

fn rollback_step(group: &mut Group, start_ts: Timestamp, keys: &[Key]) -> Step<KvResult<()>> {
    if group.is_busy(start_ts, keys) {
        return Step::Busy;
    }
    Step::Done(rollback(group, start_ts, keys))
}

fn rollback(group: &mut Group, start_ts: Timestamp, keys: &[Key]) -> KvResult<()> {
    let found = take(group, start_ts, keys);
    let mut undone = Vec::new();
    for (key, lock) in found {
        if lock.is_some() {
            undone.push((key, lock));
            continue;
        }
        match group.core.decision(group.engine.as_ref(), key, start_ts)? {
            Some(Decision::Committed(commit_ts)) => {
                return Err(KeyError::Abort(format!(
                    "key {} of transaction {start_ts} is Committed at {commit_ts}",
                    show(key)
                )));
            }
            Some(Decision::RolledBack) => {}
            // A real store leaves nothing where the start is another transaction's commit.
            None if group.core.has_commit_at(group.engine.as_ref(), key, start_ts)? => {}
            None => undone.push((key, None)),
        }
    }
    write_rollbacks(group, start_ts, undone)
}

/// Takes keys for the group, and says what locks the transaction has there, pending ones included: a
/// prewrite of it that comes later waits for the group and then finds what it has written.
fn take<'a>(group: &mut Group, start_ts: Timestamp, keys: &'a [Key]) -> Vec<(&'a Key, Option<Lock>)> {
    let mut table = group.core.locks_mut();
    table.mark_busy_transaction(start_ts);
    let own = |lock: &&Lock| lock.info.start_ts == start_ts;
    let found = keys.iter().map(|key| (key, table.get(key).filter(own).cloned())).collect();
    for key in keys {
        // Whoever meets it reads again when the group is over: there may be nothing to conflict with.
        table.mark_busy(key.clone(), Writer { start_ts, commit_ts: Timestamp::ZERO });
    }
    drop(table);
    // What is marked is cleared when the group is over, even if nothing is written.
    group.then(|_| ());
    found
}

fn write_rollbacks(
    group: &mut Group,
    start_ts: Timestamp,
    undone: Vec<(&Key, Option<Lock>)>,
) -> KvResult<()> {
    for (key, lock) in &undone {
        group.write_record(key, Record { kind: RecordKind::Rollback, start_ts, commit_ts: start_ts })?;
        if let Some(lock) = lock {
            group.unlock(lock);
        }
        group.must_sync();
    }
    Ok(())
}

fn status_step(group: &mut Group, request: &TxnStatusRequest) -> Step<KvResult<TxnStatus>> {
    if group.is_busy(request.start_ts, std::slice::from_ref(&request.primary)) {
        return Step::Busy;
    }
    Step::Done(status(group, request))
}

fn status(group: &mut Group, request: &TxnStatusRequest) -> KvResult<TxnStatus> {
    let (key, start_ts) = (&request.primary, request.start_ts);
    if let Some(lock) = group.own_lock(key, start_ts) {
        if request.verify_is_primary && lock.info.primary != *key {
            return Err(KeyError::PrimaryMismatch(Box::new(lock.info)));
        }
        let ends_ms = start_ts.physical_ms().saturating_add(lock.info.ttl_ms);
        if request.current_ts == Timestamp::MAX || ends_ms < request.current_ts.physical_ms() {
            let found = take(group, start_ts, std::slice::from_ref(key));
            write_rollbacks(group, start_ts, found)?;
            return Ok(TxnStatus::RolledBack);
        }
        return push(group, request, lock);
    }
    match group.core.decision(group.engine.as_ref(), key, start_ts)? {
        Some(Decision::Committed(commit_ts)) => Ok(TxnStatus::Committed(commit_ts)),
        Some(Decision::RolledBack) => Ok(TxnStatus::RolledBack),
        None if start_ts <= group.core.barrier() => Err(KeyError::Abort(format!(
            "the fate of transaction {start_ts} is not known any more: it is below the barrier"
        ))),
        None if request.rollback_if_not_exist => {
            let found = take(group, start_ts, std::slice::from_ref(key));
            write_rollbacks(group, start_ts, found)?;
            Ok(TxnStatus::RolledBack)
        }
        None => Err(KeyError::TxnNotFound { start_ts, primary: key.clone() }),
    }
}

/// Moves a living transaction's commit above its reader, if its writer allows.
fn push(group: &mut Group, request: &TxnStatusRequest, lock: Lock) -> KvResult<TxnStatus> {
    let pushable = lock.info.min_commit_ts > Timestamp::ZERO;
    if !pushable || request.caller_start_ts == Timestamp::ZERO {
        return Ok(alive(lock.info, false));
    }
    let mut info = lock.info.clone();
    if request.caller_start_ts != Timestamp::MAX && request.caller_start_ts >= info.min_commit_ts {
        info.min_commit_ts = request.caller_start_ts.next().map_err(KeyError::Store)?.max(request.current_ts);
        change_lock(group, &lock, info.clone())?;
    }
    Ok(alive(info, true))
}

/// A living transaction is shown by its primary, whichever of its keys was asked.
fn alive(info: LockInfo, pushed: bool) -> TxnStatus {
    let key = info.primary.clone();
    TxnStatus::Alive { lock: Box::new(LockInfo { key, ..info }), pushed }
}

/// Replaces what a lock says about its transaction, on disk too if it is there.
fn change_lock(group: &mut Group, lock: &Lock, info: LockInfo) -> KvResult<()> {
    if matches!(lock.value, LockValue::Stored) {
        let bytes = group.engine.get(Space::Locks, &info.key)?;
        let bytes = bytes
            .ok_or_else(|| types::Error::corrupt(format!("lock of key {} is missing", show(&info.key))))?;
        let value = StoredLock::decode(&info.key, &bytes)?.value;
        let stored = StoredLock { info: info.clone(), value };
        group.batch.put(Space::Locks, info.key.clone(), stored.encode());
        group.mark(info.start_ts);
        group.must_sync();
    }
    if let Some(lock) = group.core.locks_mut().get_mut(&info.key) {
        lock.info = info;
    }
    Ok(())
}

fn heartbeat_step(group: &mut Group, key: &Key, start_ts: Timestamp, ttl_ms: u64) -> Step<KvResult<u64>> {
    if group.is_busy(start_ts, std::slice::from_ref(key)) {
        return Step::Busy;
    }
    let Some(lock) = group.own_lock(key, start_ts) else {
        return Step::Done(Err(KeyError::TxnNotFound { start_ts, primary: key.clone() }));
    };
    if lock.info.ttl_ms >= ttl_ms {
        return Step::Done(Ok(lock.info.ttl_ms));
    }
    let info = LockInfo { ttl_ms, ..lock.info.clone() };
    Step::Done(change_lock(group, &lock, info).map(|()| ttl_ms))
}

impl Inner {
    pub(crate) async fn commit(&self, request: CommitRequest) -> KvResult<Timestamp> {
        if let Some(commit_ts) = request.commit_ts
            && self.core.taken.has(request.start_ts, commit_ts, &request.keys)
        {
            self.core.check_open()?;
            return Ok(commit_ts);
        }
        self.submit(move |group| commit_step(group, &request)).await?
    }

    pub(crate) async fn rollback(&self, start_ts: Timestamp, keys: &[Key]) -> KvResult<()> {
        keys.iter().try_for_each(|key| check_key_length(key))?;
        let keys = keys.to_vec();
        self.submit(move |group| rollback_step(group, start_ts, &keys)).await?
    }

    pub(crate) async fn status(&self, request: &TxnStatusRequest) -> KvResult<TxnStatus> {
        check_key_length(&request.primary)?;
        let request = request.clone();
        self.submit(move |group| status_step(group, &request)).await?
    }

    pub(crate) async fn heartbeat(&self, primary: &[u8], start_ts: Timestamp, ttl_ms: u64) -> KvResult<u64> {
        let key = Key::copy_from_slice(primary);
        self.submit(move |group| heartbeat_step(group, &key, start_ts, ttl_ms)).await?
    }

    pub(crate) async fn resolve(
        &self,
        start_ts: Timestamp,
        commit_ts: Option<Timestamp>,
        keys: &[Key],
    ) -> KvResult<()> {
        let keys = if keys.is_empty() { self.core.locks().keys_of(start_ts) } else { keys.to_vec() };
        let Some(commit_ts) = commit_ts else { return self.rollback(start_ts, &keys).await };
        let Some(first) = keys.first().cloned() else { return Ok(()) };
        let request = CommitRequest { start_ts, keys, primary: first, commit_ts: Some(commit_ts) };
        self.submit(move |group| resolve_step(group, &request)).await?.map(|_| ())
    }
}

/// As a commit, except that the first key is not taken for the primary.
fn resolve_step(group: &mut Group, request: &CommitRequest) -> Step<KvResult<Timestamp>> {
    let primary = request.keys.iter().find_map(|key| group.own_lock(key, request.start_ts));
    let primary = primary.map_or_else(Key::new, |lock| lock.info.primary);
    let request = CommitRequest { primary, ..request.clone() };
    if group.is_busy_commit(&request) {
        return Step::Busy;
    }
    Step::Done(commit_locked(group, &request))
}
