//! Writers beside the clients under test: whole transactions, and such as died in the middle.
//!
//! They speak to the stores as clients do, region by region, with timestamps from PD, so that their rows
//! and locks are what a foreign client's are.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use tikv::proto::kvrpcpb;

use crate::check::Refusal;
use crate::cluster::Cluster;
use crate::control::failed;
use crate::keys;
use crate::regions::RegionState;

/// A key and its new value; `None` deletes.
pub type Write = (Vec<u8>, Option<Vec<u8>>);

/// How a transaction commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Prewrite, a commit timestamp from PD, commit.
    TwoPhase,
    /// Prewrite, and committed as soon as all locks are there.
    AsyncCommit,
    /// One request; falls back to two phases if there are several regions.
    OnePhase,
}

/// Where a transaction stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Only the secondaries are locked; there is no trace at the primary.
    BeforePrimary,
    /// Every key is locked.
    Prewritten,
    /// An async commit whose last key never was locked: it has not committed.
    OneLockMissing,
    /// The primary has committed, the others are locked.
    PrimaryCommitted,
    /// The primary is rolled back, the others are locked.
    PrimaryRolledBack,
}

/// A transaction that was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Its start.
    pub start_ts: u64,
    /// Its commit, if it is decided so.
    pub commit_ts: Option<u64>,
}

/// An answer on its way.
type Answer<'s, T> = BoxFuture<'s, Result<T, Refusal>>;

/// How long a writer waits for regions and other transactions.
const ATTEMPTS: u32 = 2_000;
const PAUSE: Duration = Duration::from_millis(5);
const TTL_MS: u64 = 20_000;

/// What a transaction is about to do.
struct Transaction<'a> {
    start_ts: u64,
    protocol: Protocol,
    ttl_ms: u64,
    writes: &'a [Write],
}

impl Transaction<'_> {
    fn primary(&self) -> Bytes {
        self.writes.first().map(|(key, _)| Bytes::from(key.clone())).unwrap_or_default()
    }

    fn keys(&self) -> Vec<Bytes> {
        self.writes.iter().map(|(key, _)| Bytes::from(key.clone())).collect()
    }

    fn prewrite(&self, keys: &[Bytes], context: kvrpcpb::Context) -> kvrpcpb::PrewriteRequest {
        let mutations = self.writes.iter().filter(|(key, _)| keys.iter().any(|wanted| wanted == key));
        let mutations = mutations.map(|(key, value)| kvrpcpb::Mutation {
            op: if value.is_some() { kvrpcpb::Op::Put } else { kvrpcpb::Op::Del }.into(),
            key: key.clone().into(),
            value: value.clone().unwrap_or_default().into(),
            ..kvrpcpb::Mutation::default()
        });
        let is_async = self.protocol != Protocol::TwoPhase;
        let secondaries = if is_async { self.keys().split_off(1) } else { Vec::new() };
        kvrpcpb::PrewriteRequest {
            context: Some(context),
            mutations: mutations.collect(),
            primary_lock: self.primary(),
            start_version: self.start_ts,
            lock_ttl: self.ttl_ms,
            txn_size: self.writes.len() as u64,
            min_commit_ts: self.start_ts + 1,
            use_async_commit: is_async,
            secondaries,
            try_one_pc: self.protocol == Protocol::OnePhase && keys.len() == self.writes.len(),
            ..kvrpcpb::PrewriteRequest::default()
        }
    }
}

/// What a prewrite of all keys came to.
enum Prewritten {
    /// All are locked; the least commit timestamp of an async commit, zero for none.
    Locked(u64),
    /// All are committed.
    Committed(u64),
    /// Something is in the way.
    Refused(Vec<kvrpcpb::KeyError>),
}

impl Cluster {
    /// Writes a transaction in two phases; waits for others in the way. Returns its commit timestamp.
    ///
    /// # Errors
    /// If it does not come through, or the engine fails.
    pub async fn write(&self, writes: &[Write]) -> anyhow::Result<u64> {
        self.write_as(Protocol::TwoPhase, writes).await
    }

    /// Writes a transaction; waits for others in the way. Returns its commit timestamp.
    ///
    /// # Errors
    /// If it does not come through, or the engine fails.
    pub async fn write_as(&self, protocol: Protocol, writes: &[Write]) -> anyhow::Result<u64> {
        anyhow::ensure!(!writes.is_empty(), "a transaction writes something");
        for _ in 0..ATTEMPTS {
            let start_ts = self.timestamp().await?;
            let transaction = Transaction { start_ts, protocol, ttl_ms: TTL_MS, writes };
            let keys = transaction.keys();
            match self.prewrite_all(&transaction, &keys).await? {
                Prewritten::Committed(commit_ts) => return Ok(commit_ts),
                Prewritten::Locked(least) => {
                    let commit_ts = if least == 0 { self.timestamp().await? } else { least };
                    if self.commit_all(&transaction, commit_ts, &keys[..1]).await? {
                        self.commit_all(&transaction, commit_ts, &keys[1..]).await?;
                        return Ok(commit_ts);
                    }
                }
                Prewritten::Refused(errors) => {
                    self.roll_back_all(start_ts, &keys).await?;
                    self.clear_the_way(&errors).await?;
                }
            }
        }
        anyhow::bail!("the transaction did not come through")
    }

    /// Leaves a transaction in the middle, as a writer does that dies.
    ///
    /// # Errors
    /// If something is in the way, or the engine fails.
    pub async fn leave(
        &self,
        protocol: Protocol,
        stop: Stop,
        ttl_ms: u64,
        writes: &[Write],
    ) -> anyhow::Result<Left> {
        anyhow::ensure!(!writes.is_empty(), "a transaction writes something");
        let start_ts = self.timestamp().await?;
        let transaction = Transaction { start_ts, protocol, ttl_ms, writes };
        let mut keys = transaction.keys();
        match stop {
            Stop::BeforePrimary => drop(keys.remove(0)),
            Stop::OneLockMissing => drop(keys.pop()),
            _ => {}
        }
        let least = match self.prewrite_all(&transaction, &keys).await? {
            Prewritten::Locked(least) => least,
            Prewritten::Committed(commit_ts) => return Ok(Left { start_ts, commit_ts: Some(commit_ts) }),
            Prewritten::Refused(errors) => anyhow::bail!("something is in the way: {errors:?}"),
        };
        let whole = protocol == Protocol::AsyncCommit && stop == Stop::Prewritten;
        let mut left = Left { start_ts, commit_ts: (whole && least != 0).then_some(least) };
        if stop == Stop::PrimaryCommitted {
            let commit_ts = if least == 0 { self.timestamp().await? } else { least };
            let committed = self.commit_all(&transaction, commit_ts, &keys[..1]).await?;
            anyhow::ensure!(committed, "the primary could not be committed");
            left.commit_ts = Some(commit_ts);
        }
        if stop == Stop::PrimaryRolledBack {
            self.roll_back_all(start_ts, &keys[..1]).await?;
        }
        Ok(left)
    }

    /// Does something for the keys of each region in turn, again if regions have changed meanwhile.
    async fn by_region<'s, T, F>(&'s self, keys: &[Bytes], mut call: F) -> anyhow::Result<Vec<T>>
    where
        F: FnMut(u64, kvrpcpb::Context, Vec<Bytes>) -> Answer<'s, T>,
    {
        let mut left: Vec<Bytes> = keys.to_vec();
        let mut answers = Vec::new();
        for _ in 0..ATTEMPTS {
            let mut groups: BTreeMap<u64, (RegionState, Vec<Bytes>)> = BTreeMap::new();
            for key in left.drain(..) {
                let region = self.shared.mvcc.shared().await.regions.of_key(&keys::encode(&key)).clone();
                groups.entry(region.id()).or_insert_with(|| (region, Vec::new())).1.push(key);
            }
            for (region, keys) in groups.into_values() {
                let Some(leader) = region.leader_peer() else {
                    left.extend(keys);
                    continue;
                };
                let context = kvrpcpb::Context {
                    region_id: region.id(),
                    region_epoch: region.meta.region_epoch,
                    peer: Some(leader),
                    ..kvrpcpb::Context::default()
                };
                match call(leader.store_id, context, keys.clone()).await {
                    Ok(answer) => answers.push(answer),
                    Err(Refusal::Region(_)) => left.extend(keys),
                    Err(refusal) => return Err(failed(refusal)),
                }
            }
            if left.is_empty() {
                return Ok(answers);
            }
            tokio::time::sleep(PAUSE).await;
        }
        anyhow::bail!("regions were not there for {} keys", left.len())
    }

    async fn prewrite_all(
        &self,
        transaction: &Transaction<'_>,
        keys: &[Bytes],
    ) -> anyhow::Result<Prewritten> {
        let mvcc = &self.shared.mvcc;
        let call = |store_id, context, keys: Vec<Bytes>| -> Answer<'_, _> {
            Box::pin(mvcc.prewrite(store_id, transaction.prewrite(&keys, context)))
        };
        let answers = self.by_region(keys, call).await?;
        let errors: Vec<_> = answers.iter().flat_map(|answer| answer.errors.clone()).collect();
        if !errors.is_empty() {
            return Ok(Prewritten::Refused(errors));
        }
        if let [only] = answers.as_slice()
            && only.one_pc_commit_ts != 0
        {
            return Ok(Prewritten::Committed(only.one_pc_commit_ts));
        }
        let fallen = answers.iter().any(|answer| answer.min_commit_ts == 0);
        let least = answers.iter().map(|answer| answer.min_commit_ts).max().unwrap_or(0);
        Ok(Prewritten::Locked(if fallen { 0 } else { least }))
    }

    async fn commit_all(
        &self,
        transaction: &Transaction<'_>,
        commit_version: u64,
        keys: &[Bytes],
    ) -> anyhow::Result<bool> {
        let mvcc = &self.shared.mvcc;
        let call = |store_id, context, keys| -> Answer<'_, _> {
            let request = kvrpcpb::CommitRequest {
                context: Some(context),
                start_version: transaction.start_ts,
                keys,
                commit_version,
                ..kvrpcpb::CommitRequest::default()
            };
            Box::pin(mvcc.commit(store_id, request))
        };
        let answers = self.by_region(keys, call).await?;
        Ok(answers.iter().all(|answer| answer.error.is_none()))
    }

    async fn roll_back_all(&self, start_version: u64, keys: &[Bytes]) -> anyhow::Result<()> {
        let mvcc = &self.shared.mvcc;
        let call = |store_id, context, keys| -> Answer<'_, _> {
            let context = Some(context);
            let request = kvrpcpb::BatchRollbackRequest { context, start_version, keys };
            Box::pin(mvcc.batch_rollback(store_id, request))
        };
        self.by_region(keys, call).await.map(|_| ())
    }

    /// Ends transactions in the way whose time is over, or waits a little.
    async fn clear_the_way(&self, errors: &[kvrpcpb::KeyError]) -> anyhow::Result<()> {
        tokio::time::sleep(PAUSE).await;
        let mvcc = &self.shared.mvcc;
        for lock in errors.iter().filter_map(|error| error.locked.as_ref()) {
            let current_ts = self.timestamp().await?;
            let ask = |store_id, context, _| -> Answer<'_, _> {
                let request = kvrpcpb::CheckTxnStatusRequest {
                    context: Some(context),
                    primary_key: lock.primary_lock.clone(),
                    lock_ts: lock.lock_version,
                    current_ts,
                    rollback_if_not_exist: true,
                    ..kvrpcpb::CheckTxnStatusRequest::default()
                };
                Box::pin(mvcc.check_txn_status(store_id, request))
            };
            let answers = self.by_region(std::slice::from_ref(&lock.primary_lock), ask).await?;
            let decided = answers.first().filter(|answer| answer.lock_ttl == 0 && answer.error.is_none());
            let Some(commit_version) = decided.map(|answer| answer.commit_version) else { continue };
            let resolve = |store_id, context, keys| -> Answer<'_, _> {
                let request = kvrpcpb::ResolveLockRequest {
                    context: Some(context),
                    start_version: lock.lock_version,
                    commit_version,
                    keys,
                    ..kvrpcpb::ResolveLockRequest::default()
                };
                Box::pin(mvcc.resolve_lock(store_id, request))
            };
            self.by_region(std::slice::from_ref(&lock.key), resolve).await?;
        }
        Ok(())
    }
}
