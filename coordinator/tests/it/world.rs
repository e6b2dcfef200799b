//! A job whose workers do nothing but write down which epoch they are in, and its auditor.
//!
//! Every epoch rewrites every row with `epoch/cut`. So at any timestamp all rows must be equal and agree
//! with the epoch record, and the record's own history must be a history of single decisions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use coordinator::{Coordinator, Decision, OpenRequest, Prepared, SealedRequest, TakenOver, VoteRequest};
use store::{
    AssertionLevel, CommitRequest, Key, KeyError, LockInfo, Mutation, PrewriteRequest, Snapshot, Store,
    TxnStatus, TxnStatusRequest, WriteKind,
};
use types::records::{EpochRecord, epoch_record_key};
use types::{Epoch, Error, ErrorKind, Generation, JobId, Result, Timestamp};

use crate::flaky::Random;

/// The rows that every epoch rewrites.
const N_ROWS: u32 = 7;

/// Tries of one call before a worker gives up; under injected faults a call succeeds within a few.
const TRIES_MAX: u32 = 400;

/// What a job's workers and auditors know together.
pub struct World {
    pub job: JobId,
    /// Decisions that workers were told, by epoch.
    told: Mutex<BTreeMap<Epoch, (Generation, Timestamp)>>,
}

impl World {
    /// Creates the job's epoch record and rows.
    pub async fn create(store: &dyn Store, job: JobId) -> Arc<World> {
        let world = World { job, told: Mutex::default() };
        let cut = store.read_timestamp().await.unwrap();
        let start_ts = store.timestamp().await.unwrap();
        let record = EpochRecord { epoch: Epoch(0), cut, generation: Generation(0), definitions: 0 };
        let mut mutations = vec![Mutation::put(epoch_record_key(job), record.encode())];
        mutations.extend((0..N_ROWS).map(|row| Mutation::put(world.row_key(row), row_value(Epoch(0), cut))));
        store.commit_transaction(start_ts, mutations).await.unwrap();
        Arc::new(world)
    }

    fn row_key(&self, row: u32) -> Key {
        format!("row/{}/{row}", self.job).into()
    }

    fn told(&self) -> std::sync::MutexGuard<'_, BTreeMap<Epoch, (Generation, Timestamp)>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker was told a decision: everybody must be told the same.
    fn hear(&self, epoch: Epoch, generation: Generation, commit_ts: Timestamp) {
        let before = self.told().insert(epoch, (generation, commit_ts));
        assert!(
            before.is_none_or(|before| before == (generation, commit_ts)),
            "epoch {epoch} was decided as {before:?} and as {:?}",
            (generation, commit_ts)
        );
    }

    /// The newest epoch that a worker was told of.
    pub fn newest(&self) -> Epoch {
        self.told().keys().next_back().copied().unwrap_or_default()
    }

    /// Reads everything at the newest timestamp and checks that it is one epoch.
    pub async fn audit(&self, store: Arc<dyn Store>) -> Result<Epoch> {
        let ts = store.read_timestamp().await?;
        self.audit_at(store, ts).await
    }

    pub async fn audit_at(&self, store: Arc<dyn Store>, ts: Timestamp) -> Result<Epoch> {
        let snapshot = Snapshot::new(store, ts);
        let record = snapshot.get(&epoch_record_key(self.job)).await?;
        let record = EpochRecord::decode(&record.expect("the job has a record"))?;
        for row in 0..N_ROWS {
            let value = snapshot.get(&self.row_key(row)).await?.expect("the row is there");
            let wanted = row_value(record.epoch, record.cut);
            assert_eq!(value, wanted, "at {ts} row {row} is not of epoch {}", record.epoch);
        }
        Ok(record.epoch)
    }

    /// Checks the whole history of the record, and every epoch's rows at its commit and just before the
    /// next one; returns the number of epochs, take-overs and rewrites by DDL.
    pub async fn audit_history(&self, store: Arc<dyn Store>) -> (u64, u64, u64) {
        let info = store.mvcc_get(&epoch_record_key(self.job)).await.unwrap();
        let mut writes: Vec<_> =
            info.writes.into_iter().filter(|write| write.kind == WriteKind::Put).collect();
        writes.reverse();
        let (mut n_epochs, mut n_take_overs, mut n_ddl) = (0, 0, 0);
        let mut previous: Option<(EpochRecord, Timestamp)> = None;
        let mut decided = BTreeMap::new();
        for write in writes {
            let record = EpochRecord::decode(write.value.as_ref().unwrap()).unwrap();
            assert!(record.cut <= write.start_ts, "S_k <= start_k");
            assert!(write.start_ts < write.commit_ts, "start_k < C_k");
            if let Some((before, before_commit_ts)) = &previous {
                assert!(*before_commit_ts < write.start_ts, "C_(k-1) < start_k");
                if record.epoch == before.epoch.next() {
                    n_epochs += 1;
                    assert!(record.cut >= before.cut, "S_(k-1) <= S_k");
                    assert_eq!(record.generation, before.generation, "only the newest generation decides");
                    assert_eq!(record.definitions, before.definitions, "an epoch keeps the definitions");
                    decided.insert(record.epoch, (record.generation, write.commit_ts));
                } else if record.generation == before.generation.next() {
                    n_take_overs += 1;
                    let kept = EpochRecord { generation: record.generation, ..before.clone() };
                    assert_eq!(record, kept, "a take-over changes the generation only");
                } else {
                    n_ddl += 1;
                    let kept = EpochRecord { definitions: before.definitions + 1, ..before.clone() };
                    assert_eq!(record, kept, "DDL changes the definitions only");
                }
                self.audit_at(Arc::clone(&store), write.commit_ts.prev()).await.unwrap();
            }
            self.audit_at(Arc::clone(&store), write.commit_ts).await.unwrap();
            previous = Some((record, write.commit_ts));
        }
        for (epoch, told) in self.told().iter() {
            assert_eq!(decided.get(epoch), Some(told), "epoch {epoch}: what was told is what was decided");
        }
        (n_epochs, n_take_overs, n_ddl)
    }

    /// Rewrites the record as DDL does; whether it committed (`None`: unknown).
    pub async fn ddl(&self, store: &Arc<dyn Store>) -> Option<bool> {
        let Ok(start_ts) = store.timestamp().await else { return Some(false) };
        let snapshot = Snapshot::new(Arc::clone(store), start_ts);
        let Ok(Some(value)) = snapshot.get(&epoch_record_key(self.job)).await else { return Some(false) };
        let record = EpochRecord::decode(&value).unwrap();
        let record = EpochRecord { definitions: record.definitions + 1, ..record };
        let mutation = Mutation::put(epoch_record_key(self.job), record.encode());
        match store.commit_transaction(start_ts, vec![mutation]).await {
            Ok(_) => Some(true),
            Err(KeyError::Store(_)) => None,
            Err(_) => Some(false),
        }
    }
}

fn row_value(epoch: Epoch, cut: Timestamp) -> Key {
    format!("{epoch}/{cut}").into()
}

/// One worker of a run.
pub struct Worker {
    pub world: Arc<World>,
    pub coordinator: Arc<dyn Coordinator>,
    pub store: Arc<dyn Store>,
    pub generation: Generation,
    pub index: u32,
    pub n_workers: u32,
    pub definitions: u64,
    pub random: Random,
    /// How long it waits before each vote.
    pub vote_delay: Duration,
}

/// Repeats a call while the answer is `Unavailable`, as a worker does.
macro_rules! patiently {
    ($call:expr) => {{
        let mut tries = 0;
        loop {
            match $call {
                Err(error) if error.kind() == ErrorKind::Unavailable && tries < TRIES_MAX => {
                    tries += 1;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                result => break result,
            }
        }
    }};
}

impl Worker {
    /// All workers of a run.
    pub fn of_run(
        world: &Arc<World>,
        coordinator: &Arc<dyn Coordinator>,
        store: &Arc<dyn Store>,
        taken: &TakenOver,
        n_workers: u32,
        seed: u64,
    ) -> Vec<Worker> {
        let worker = |index| Worker {
            world: Arc::clone(world),
            coordinator: Arc::clone(coordinator),
            store: Arc::clone(store),
            generation: taken.generation,
            index,
            n_workers,
            definitions: taken.frontier.definitions,
            random: Random(seed ^ u64::from(index)),
            vote_delay: Duration::ZERO,
        };
        (0..n_workers).map(worker).collect()
    }

    /// One epoch, to its decision and its secondaries.
    pub async fn epoch(&mut self) -> Result<Epoch> {
        let (job, generation) = (self.world.job, self.generation);
        let open = OpenRequest { job, generation, cut: None };
        let opened = patiently!(self.coordinator.open(open.clone()).await)?;
        let mut retry_of = None;
        loop {
            let sealed = SealedRequest {
                job,
                generation,
                epoch: opened.epoch,
                worker: self.index,
                definitions: self.definitions,
                retry_of,
                faults: Vec::new(),
            };
            let prepared = patiently!(self.coordinator.sealed(sealed.clone()).await)?;
            let (start_ts, primary, min_commit_ts, ttl_ms) = match prepared {
                Prepared::DefinitionsChanged { definitions, .. } => {
                    assert!(definitions > self.definitions, "definitions only grow");
                    self.definitions = definitions;
                    continue;
                }
                Prepared::Prewrite { start_ts, primary, min_commit_ts, ttl_ms, .. } => {
                    (start_ts, primary, min_commit_ts, ttl_ms)
                }
            };
            assert!(opened.cut <= start_ts);
            let mutations = self.mutations(opened.epoch, opened.cut);
            let keys: Vec<Key> = mutations.iter().map(|mutation| mutation.key.clone()).collect();
            let request = PrewriteRequest {
                txn_size: mutations.len() as u64,
                mutations,
                primary: primary.clone(),
                start_ts,
                ttl_ms,
                min_commit_ts,
                assertion_level: AssertionLevel::Off,
                staged: self.random.chance(700),
            };
            let done = self.prewrite(request).await;
            let epoch = opened.epoch;
            tokio::time::sleep(self.vote_delay).await;
            let vote = VoteRequest { job, generation, epoch, worker: self.index, start_ts, done };
            patiently!(self.coordinator.vote(vote.clone()).await)?;
            let decision =
                patiently!(self.coordinator.decision(job, generation, opened.epoch, start_ts).await)?;
            match decision {
                Decision::Committed { commit_ts } => {
                    assert!(done, "an epoch was decided against a vote");
                    self.world.hear(opened.epoch, generation, commit_ts);
                    self.commit(start_ts, commit_ts, &primary, keys).await?;
                    return Ok(opened.epoch);
                }
                Decision::Retry => {
                    let rolled_back =
                        patiently!(self.store.batch_rollback(start_ts, &keys).await.map_err(Error::from));
                    rolled_back?;
                    retry_of = Some(start_ts);
                }
            }
        }
    }

    fn mutations(&self, epoch: Epoch, cut: Timestamp) -> Vec<Mutation> {
        let rows = (0..N_ROWS).filter(|row| row % self.n_workers == self.index);
        rows.map(|row| Mutation::put(self.world.row_key(row), row_value(epoch, cut))).collect()
    }

    /// Prewrites until it is done or hopeless.
    async fn prewrite(&mut self, request: PrewriteRequest) -> bool {
        if request.mutations.is_empty() {
            return true;
        }
        for _ in 0..TRIES_MAX {
            let Err(errors) = self.store.prewrite(request.clone()).await else { return true };
            match errors.into_iter().next().expect("a reason") {
                KeyError::Locked(lock) => {
                    // An orphan of an older run, or of a start of ours that is not cleaned up yet.
                    if let Err(error) = resolve(self.store.as_ref(), &lock).await {
                        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                    }
                }
                KeyError::WriteConflict { .. } => return false,
                KeyError::Store(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
                other => panic!("prewrite: {other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        false
    }

    async fn commit(
        &self,
        start_ts: Timestamp,
        commit_ts: Timestamp,
        primary: &Key,
        keys: Vec<Key>,
    ) -> Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        let request = CommitRequest { start_ts, keys, primary: primary.clone(), commit_ts: Some(commit_ts) };
        let committed = patiently!(self.store.commit(request.clone()).await.map_err(|error| {
            // A decided transaction whose key has neither lock nor record has lost it.
            assert!(!matches!(error, KeyError::TxnLockNotFound(_)), "secondary lost: {error:?}");
            Error::from(error)
        }));
        committed.map(|_| ())
    }
}

/// Resolves a lock through its primary, as any writer does.
async fn resolve(store: &dyn Store, lock: &LockInfo) -> Result<()> {
    let current_ts = store.timestamp().await?;
    let expired = lock.start_ts.physical_ms() + lock.ttl_ms < current_ts.physical_ms();
    let request = TxnStatusRequest {
        primary: lock.primary.clone(),
        start_ts: lock.start_ts,
        caller_start_ts: Timestamp::ZERO,
        current_ts,
        rollback_if_not_exist: expired,
        verify_is_primary: true,
    };
    let commit_ts = match store.check_txn_status(&request).await {
        Ok(TxnStatus::Committed(commit_ts)) => Some(commit_ts),
        Ok(TxnStatus::RolledBack) => None,
        Ok(TxnStatus::Alive { .. }) | Err(KeyError::TxnNotFound { .. }) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    match store.resolve_lock(lock.start_ts, commit_ts, std::slice::from_ref(&lock.key)).await {
        Ok(()) | Err(KeyError::TxnLockNotFound(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
