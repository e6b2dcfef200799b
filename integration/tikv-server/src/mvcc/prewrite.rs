//! The first half of transactions, and with one-phase commit the whole of them.
//!
//! An async commit's locks get their least commit timestamp here: above everything read through the store.
//! If that is above what the client allows, the locks become ordinary ones and the answer has zero. A
//! repeated request answers what the first one did.

use std::collections::BTreeSet;

use bytes::Bytes;
use store::{
    AssertionLevel, CommitRequest, Key, KeyError, LockInfo, Mutation, MutationOp, PrewriteRequest, Store,
};
use tikv::proto::{cdcpb, errorpb, kvrpcpb};
use tokio::sync::RwLockWriteGuard;
use types::Timestamp;

use super::answer::{Wording, explain_assertion, mutation};
use super::{Extra, Fate, Mvcc, Side, Story};
use crate::check::{self, Refusal};
use crate::feed::rows;

/// What a mutation's key was before the request.
enum Before {
    /// The transaction's lock is there already.
    Own(LockInfo),
    /// The transaction has committed here.
    Committed(Timestamp),
    /// Anything else.
    New,
}

/// A request with what it will do.
struct Plan {
    start_ts: Timestamp,
    /// What committed up to here the transaction has seen: its start, or later under pessimistic locks.
    seen: Timestamp,
    primary: Bytes,
    mutations: Vec<Mutation>,
    stories: Vec<Story>,
    before: Vec<Before>,
    /// The least commit timestamp of async commit or one-phase commit; `None` for ordinary locks.
    computed: Option<Timestamp>,
    one_phase: bool,
}

impl Mvcc {
    pub(crate) async fn prewrite(
        &self,
        store_id: u64,
        request: kvrpcpb::PrewriteRequest,
    ) -> Result<kvrpcpb::PrewriteResponse, Refusal> {
        let keys: Vec<Key> = request.mutations.iter().map(|mutation| mutation.key.clone()).collect();
        let mut side = self.exclusive_over(&keys).await;
        let region = self.region(&side, store_id, request.context.as_ref())?;
        check::check_size(&region, entry_size(&request))?;
        self.check_prewrite(&request)?;
        if let Some(error) = Mvcc::outside(&region, &keys) {
            return Ok(refused(vec![error]));
        }
        let refusals = self.pessimistic_refusals(&side, &request).await?;
        if !refusals.is_empty() {
            return Ok(refused(refusals));
        }
        let wants = request.use_async_commit || request.try_one_pc;
        if wants && side.regions.is_unsynced(region.id()) {
            // A new leader does not know what was read through the old one.
            if self.oracle.is_away() {
                return Err(max_timestamp_not_synced().into());
            }
            self.bump_max_ts(store_id, self.oracle.now().await?);
            side.regions.note_synced(region.id());
        }
        let plan = self.plan(&side, store_id, &request).await?;
        if plan.computed.is_some() && *self.memory_held.borrow() {
            side = self.stay_in_memory(side, store_id, &request, &plan).await?;
        }
        if let Err(errors) = self.lock(&mut side, &request, &plan).await? {
            let wording = Wording {
                side: &side,
                start_ts: plan.start_ts,
                primary: &plan.primary,
                commit_ts: Timestamp::ZERO,
            };
            return Ok(refused(plan.word(&wording, &errors)?));
        }
        if plan.one_phase {
            self.commit_in_one_phase(&mut side, &plan).await?;
        } else {
            self.publish_locks(&side, &plan, txn_source(&request));
        }
        Ok(plan.answer(&request))
    }

    /// Refuses a key twice, which ends a real store, and notes timestamps from nowhere.
    fn check_prewrite(&self, request: &kvrpcpb::PrewriteRequest) -> Result<(), Refusal> {
        let mut keys = BTreeSet::new();
        if let Some(twice) = request.mutations.iter().find(|mutation| !keys.insert(&mutation.key)) {
            let text = format!(
                "KvPrewrite of transaction {} with key {} twice",
                request.start_version,
                twice.key.escape_ascii()
            );
            return Err(self.ledger.refuse(text).into());
        }
        self.note_unissued("KvPrewrite", "start timestamp", Timestamp(request.start_version));
        let least = Timestamp(request.min_commit_ts);
        let seen = request.start_version.max(request.for_update_ts);
        if least > self.oracle.newest() && request.min_commit_ts != seen.saturating_add(1) {
            self.note_unissued("KvPrewrite", "least commit timestamp", least);
        }
        Ok(())
    }

    async fn plan(
        &self,
        side: &Side,
        store_id: u64,
        request: &kvrpcpb::PrewriteRequest,
    ) -> Result<Plan, Refusal> {
        let start_ts = Timestamp(request.start_version);
        let mutations: Vec<Mutation> = request.mutations.iter().map(mutation).collect::<Result<_, _>>()?;
        let (mut stories, mut before) = (Vec::new(), Vec::new());
        for mutation in &mutations {
            let story = self.story(&mutation.key).await?;
            before.push(match (story.own_lock(start_ts), story.fate(start_ts)) {
                (Some(lock), _) => Before::Own(lock.clone()),
                (None, Some(Fate::Committed(commit_ts))) => Before::Committed(commit_ts),
                (None, _) => Before::New,
            });
            stories.push(story);
        }
        let seen = start_ts.max(Timestamp(request.for_update_ts));
        let least = self.max_ts(store_id).max(seen).next()?.max(Timestamp(request.min_commit_ts));
        let wanted = request.use_async_commit || request.try_one_pc;
        let allowed = request.max_commit_ts == 0 || least.0 <= request.max_commit_ts;
        let all_new = before.iter().all(|before| !matches!(before, Before::Own(_)));
        // A lock that has fallen back makes ordinary ones of the others.
        let fallen = before.iter().any(|before| match before {
            Before::Own(lock) => !side.extra(&lock.key, start_ts).use_async_commit,
            _ => false,
        });
        let computed = (wanted && allowed && !fallen).then_some(least);
        Ok(Plan {
            start_ts,
            seen,
            primary: request.primary_lock.clone(),
            one_phase: request.try_one_pc && computed.is_some() && all_new,
            mutations,
            stories,
            before,
            computed: computed.filter(|_| request.use_async_commit || all_new),
        })
    }

    /// Leaves the locks in memory, where readers meet them and other writers wait, until they may go on.
    async fn stay_in_memory<'a>(
        &'a self,
        mut side: RwLockWriteGuard<'a, Side>,
        store_id: u64,
        request: &kvrpcpb::PrewriteRequest,
        plan: &Plan,
    ) -> Result<RwLockWriteGuard<'a, Side>, Refusal> {
        let keys: Vec<Key> = plan.new_locks().map(|mutation| mutation.key.clone()).collect();
        for mutation in plan.new_locks() {
            let is_primary = mutation.key == plan.primary;
            let lock = kvrpcpb::LockInfo {
                primary_lock: plan.primary.clone(),
                lock_version: plan.start_ts.0,
                key: mutation.key.clone(),
                lock_ttl: request.lock_ttl,
                txn_size: request.txn_size,
                lock_type: lock_type(mutation.op).into(),
                use_async_commit: request.use_async_commit,
                min_commit_ts: plan.computed.unwrap_or_default().0,
                secondaries: if is_primary { request.secondaries.clone() } else { Vec::new() },
                ..kvrpcpb::LockInfo::default()
            };
            side.memory_locks.insert(mutation.key.clone(), lock);
        }
        drop(side);
        // The sender lives as long as this does.
        let _ = self.memory_held.subscribe().wait_for(|held| !held).await;
        let mut side = self.exclusive().await;
        for key in &keys {
            side.memory_locks.remove(key);
        }
        self.memory_released.notify_waiters();
        // Whoever leads now does not know of the locks.
        self.region(&side, store_id, request.context.as_ref())?;
        Ok(side)
    }

    /// Enters the locks in the engine, with their extras before them.
    async fn lock(
        &self,
        side: &mut Side,
        request: &kvrpcpb::PrewriteRequest,
        plan: &Plan,
    ) -> Result<Result<(), Vec<KeyError>>, Refusal> {
        let source = txn_source(request);
        let is_async = request.use_async_commit && plan.computed.is_some() && !plan.one_phase;
        let mut extras = Vec::new();
        for mutation in plan.new_locks() {
            let is_primary = mutation.key == plan.primary;
            let secondaries = if is_async && is_primary { request.secondaries.clone() } else { Vec::new() };
            let extra =
                Extra { use_async_commit: is_async, secondaries, txn_source: source, protected: false };
            if extra != side.extra(&mutation.key, plan.start_ts) {
                extras.push((mutation.key.clone(), extra));
            }
        }
        side.put_extras(&self.store, plan.start_ts, extras).await?;
        side.note_keys(&self.store, plan.new_locks().map(|mutation| &mutation.key)).await?;
        let level = match request.assertion_level() {
            kvrpcpb::AssertionLevel::Off => AssertionLevel::Off,
            kvrpcpb::AssertionLevel::Fast => AssertionLevel::Fast,
            kvrpcpb::AssertionLevel::Strict => AssertionLevel::Strict,
        };
        let asked = PrewriteRequest {
            mutations: plan.mutations.clone(),
            primary: plan.primary.clone(),
            start_ts: plan.start_ts,
            ttl_ms: request.lock_ttl,
            txn_size: request.txn_size,
            min_commit_ts: plan.computed.unwrap_or(Timestamp(request.min_commit_ts)),
            assertion_level: level,
            staged: false,
        };
        // Keys without a pessimistic lock of such a transaction are not checked at all.
        let seen = if request.for_update_ts == 0 { plan.start_ts } else { Timestamp::MAX };
        let locked = self.store.prewrite_having_seen(asked, seen).await;
        if locked.is_ok() {
            for mutation in &plan.mutations {
                side.forget_pessimistic(&mutation.key, plan.start_ts);
            }
        } else {
            for mutation in plan.new_locks() {
                let protected = side.extra(&mutation.key, plan.start_ts).protected;
                side.settle(&self.store, &mutation.key, plan.start_ts, protected).await?;
            }
        }
        Ok(locked)
    }

    async fn commit_in_one_phase(&self, side: &mut Side, plan: &Plan) -> Result<(), Refusal> {
        let keys: Vec<Key> = plan.new_locks().map(|mutation| mutation.key.clone()).collect();
        if keys.is_empty() {
            return Ok(());
        }
        let request = CommitRequest {
            start_ts: plan.start_ts,
            keys,
            primary: plan.primary.clone(),
            commit_ts: plan.computed,
        };
        let commit_ts = self.store.commit(request).await;
        let commit_ts = commit_ts.map_err(|error| tonic::Status::internal(format!("{error:?}")))?;
        let mut published = Vec::new();
        for (mutation, old) in plan.new_rows() {
            published.push(cdcpb::Row {
                commit_ts: commit_ts.0,
                r#type: cdcpb::LogType::Committed.into(),
                ..rows::prewritten(plan.start_ts, mutation, old)
            });
        }
        for row in &mut published {
            row.txn_source = side.extra(&row.key, plan.start_ts).txn_source;
        }
        side.publish(&self.ledger, published);
        Ok(())
    }

    fn publish_locks(&self, side: &Side, plan: &Plan, source: u64) {
        let rows = plan.new_rows().map(|(mutation, old)| cdcpb::Row {
            txn_source: source,
            ..rows::prewritten(plan.start_ts, mutation, old)
        });
        side.publish(&self.ledger, rows.collect());
    }
}

impl Plan {
    /// The mutations that get a lock by this request.
    fn new_locks(&self) -> impl Iterator<Item = &Mutation> {
        let new = self.mutations.iter().zip(&self.before).filter(|(_, before)| matches!(before, Before::New));
        new.map(|(mutation, _)| mutation).filter(|mutation| mutation.op != MutationOp::CheckNotExists)
    }

    /// The mutations whose locks the feed shows, with the values before.
    fn new_rows(&self) -> impl Iterator<Item = (&Mutation, Bytes)> {
        let all = self.mutations.iter().zip(&self.before).zip(&self.stories);
        all.filter(|((mutation, before), _)| matches!(before, Before::New) && rows::is_shown(mutation.op))
            .map(|((mutation, _), story)| (mutation, story.value_at(self.seen)))
    }

    fn word(&self, wording: &Wording<'_>, errors: &[KeyError]) -> Result<Vec<kvrpcpb::KeyError>, Refusal> {
        let mut worded = Vec::with_capacity(errors.len());
        for error in errors {
            let mut one = wording.word(error)?;
            if let KeyError::AssertionFailed { key, .. } = error {
                let story =
                    self.mutations.iter().zip(&self.stories).find(|(mutation, _)| mutation.key == *key);
                if let Some((_, story)) = story {
                    explain_assertion(&mut one, story);
                }
            }
            worded.push(one);
        }
        Ok(worded)
    }

    fn answer(&self, request: &kvrpcpb::PrewriteRequest) -> kvrpcpb::PrewriteResponse {
        let committed = self.before.iter().find_map(|before| match before {
            Before::Committed(commit_ts) => Some(*commit_ts),
            _ => None,
        });
        let mut answer = kvrpcpb::PrewriteResponse::default();
        if let Some(commit_ts) = committed {
            if request.use_async_commit {
                answer.min_commit_ts = commit_ts.0;
            }
            if request.try_one_pc {
                answer.one_pc_commit_ts = commit_ts.0;
            }
            return answer;
        }
        let own = self.before.iter().filter_map(|before| match before {
            Before::Own(lock) => Some(lock.min_commit_ts),
            _ => None,
        });
        let Some(computed) = self.computed else { return answer };
        if request.use_async_commit {
            let has_new = self.new_locks().next().is_some();
            let least = own.chain(has_new.then_some(computed)).max();
            answer.min_commit_ts = least.unwrap_or(computed).0;
        }
        if self.one_phase {
            answer.one_pc_commit_ts = computed.0;
        }
        answer
    }
}

fn lock_type(op: MutationOp) -> kvrpcpb::Op {
    match op {
        MutationOp::Put | MutationOp::Insert => kvrpcpb::Op::Put,
        MutationOp::Delete => kvrpcpb::Op::Del,
        MutationOp::Lock | MutationOp::CheckNotExists => kvrpcpb::Op::Lock,
    }
}

fn txn_source(request: &kvrpcpb::PrewriteRequest) -> u64 {
    request.context.as_ref().map_or(0, |context| context.txn_source)
}

/// What the write has in the region's log, about.
fn entry_size(request: &kvrpcpb::PrewriteRequest) -> u64 {
    let pairs = request.mutations.iter().map(|mutation| mutation.key.len() + mutation.value.len());
    pairs.sum::<usize>() as u64
}

fn refused(errors: Vec<kvrpcpb::KeyError>) -> kvrpcpb::PrewriteResponse {
    kvrpcpb::PrewriteResponse { errors, ..kvrpcpb::PrewriteResponse::default() }
}

fn max_timestamp_not_synced() -> errorpb::Error {
    errorpb::Error {
        max_timestamp_not_synced: Some(errorpb::MaxTimestampNotSynced {}),
        ..errorpb::Error::default()
    }
}
