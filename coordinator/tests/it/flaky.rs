//! A store that loses requests, loses answers, delays, delivers late, and dies with its staged locks.
//!
//! It wraps the embedded store over a memory engine. Everything it does wrong comes from one seeded
//! generator, so that under paused time a run repeats exactly.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use store::engine::MemoryEngine;
use store::{
    ChangePage, Clock, CommitRequest, EmbeddedStore, FeedStream, Key, KeyError, KeyRange, KvPair, KvResult,
    LockInfo, Mutation, MvccInfo, Options, PrewriteRequest, ReadContext, ScanRequest, Store, TxnStatus,
    TxnStatusRequest, Value,
};
use tokio::time::Instant;
use types::{Error, Result, Timestamp};

/// A seeded generator (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True so many times of a thousand.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }
}

/// A clock that follows tokio's time, which tests may pause.
pub struct TokioClock {
    began: Instant,
}

impl TokioClock {
    pub fn new() -> TokioClock {
        TokioClock { began: Instant::now() }
    }
}

impl Clock for TokioClock {
    fn now_ms(&self) -> u64 {
        1_700_000_000_000 + u64::try_from(self.began.elapsed().as_millis()).unwrap()
    }
}

/// How often things go wrong, in calls of a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    pub lose_request: u64,
    pub lose_answer: u64,
    pub delay: u64,
    pub deliver_late: u64,
    pub crash: u64,
}

enum Late {
    Prewrite(PrewriteRequest),
    Commit(CommitRequest),
}

struct State {
    inner: Arc<EmbeddedStore>,
    random: Random,
    rates: Rates,
    away_until: Option<Instant>,
    late: VecDeque<(Instant, Late)>,
    n_crashes: u64,
    n_faults: u64,
    /// Errors to answer calls about keys with, for tests of the wire.
    scripted: VecDeque<KeyError>,
}

/// The store that cannot be relied upon.
pub struct Flaky {
    engine: Arc<MemoryEngine>,
    options: Options,
    state: Mutex<State>,
}

/// What is to go wrong with the call under way.
struct Gate {
    inner: Arc<EmbeddedStore>,
    lose_answer: bool,
}

fn away(what: &str) -> Error {
    Error::unavailable(format!("injected: {what}"))
}

impl Flaky {
    pub fn new(seed: u64, rates: Rates) -> Arc<Flaky> {
        let engine = Arc::new(MemoryEngine::new());
        let options = Options { inline: true, clock: Arc::new(TokioClock::new()), ..Options::default() };
        let inner = EmbeddedStore::over(Arc::clone(&engine) as _, options.clone()).unwrap();
        let state = State {
            inner,
            random: Random(seed),
            rates,
            away_until: None,
            late: VecDeque::new(),
            n_crashes: 0,
            n_faults: 0,
            scripted: VecDeque::new(),
        };
        Arc::new(Flaky { engine, options, state: Mutex::new(state) })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store behind, for auditors.
    pub fn inner(&self) -> Arc<EmbeddedStore> {
        Arc::clone(&self.state().inner)
    }

    pub fn set_rates(&self, rates: Rates) {
        self.state().rates = rates;
    }

    pub fn n_crashes(&self) -> u64 {
        self.state().n_crashes
    }

    pub fn n_faults(&self) -> u64 {
        self.state().n_faults
    }

    pub fn script(&self, error: KeyError) {
        self.state().scripted.push_back(error);
    }

    fn scripted(&self) -> Option<KeyError> {
        self.state().scripted.pop_front()
    }

    /// Dies and comes back over the same engine: what was staged is lost.
    pub async fn crash(&self) {
        let old = self.inner();
        old.close().await.unwrap();
        let new = EmbeddedStore::over(Arc::clone(&self.engine) as _, self.options.clone()).unwrap();
        let mut state = self.state();
        state.inner = new;
        state.n_crashes += 1;
    }

    /// Decides what goes wrong before a call, and does it.
    async fn gate(&self) -> Result<Gate> {
        let (lose_request, lose_answer, delay, crash) = {
            let mut state = self.state();
            if state.away_until.is_some_and(|until| Instant::now() < until) {
                return Err(away("the store is away"));
            }
            let rates = state.rates;
            let lose_request = state.random.chance(rates.lose_request);
            let lose_answer = state.random.chance(rates.lose_answer);
            let delay = state.random.chance(rates.delay).then(|| state.random.below(400));
            let crash = state.random.chance(rates.crash).then(|| state.random.below(3_000));
            state.n_faults += u64::from(lose_request || lose_answer || delay.is_some() || crash.is_some());
            (lose_request, lose_answer, delay, crash)
        };
        if let Some(ms) = delay {
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
        if let Some(ms) = crash {
            self.crash().await;
            self.state().away_until = Some(Instant::now() + Duration::from_millis(ms));
            return Err(away("the store died"));
        }
        if lose_request {
            return Err(away("the request was lost"));
        }
        Ok(Gate { inner: self.inner(), lose_answer })
    }

    fn deliver_later(&self, late: impl FnOnce() -> Late) -> bool {
        let mut state = self.state();
        let per_mille = state.rates.deliver_late;
        if !state.random.chance(per_mille) {
            return false;
        }
        let due = Instant::now() + Duration::from_millis(state.random.below(8_000));
        state.n_faults += 1;
        state.late.push_back((due, late()));
        true
    }

    /// Delivers the requests that are due; run it beside everything else.
    pub async fn deliver_late(&self) {
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let due: Vec<Late> = {
                let mut state = self.state();
                let now = Instant::now();
                let (due, rest): (Vec<_>, Vec<_>) = state.late.drain(..).partition(|(at, _)| *at <= now);
                state.late = rest.into();
                due.into_iter().map(|(_, late)| late).collect()
            };
            let inner = self.inner();
            for late in due {
                // Nobody waits for these answers any more.
                match late {
                    Late::Prewrite(request) => drop(inner.prewrite(request).await),
                    Late::Commit(request) => drop(inner.commit(request).await),
                }
            }
        }
    }
}

impl Gate {
    fn answer<T, E: From<Error>>(self, result: std::result::Result<T, E>) -> std::result::Result<T, E> {
        if self.lose_answer { Err(away("the answer was lost").into()) } else { result }
    }
}

/// Hands a call to the store behind, unless it goes wrong.
macro_rules! through {
    ($self:ident, |$inner:ident| $call:expr) => {{
        let gate = $self.gate().await?;
        let $inner = Arc::clone(&gate.inner);
        let result = $call.await;
        gate.answer(result)
    }};
}

#[async_trait]
impl Store for Flaky {
    async fn timestamp(&self) -> Result<Timestamp> {
        through!(self, |inner| inner.timestamp())
    }

    async fn read_timestamp(&self) -> Result<Timestamp> {
        through!(self, |inner| inner.read_timestamp())
    }

    async fn wait_visible(&self, ts: Timestamp) -> Result<()> {
        through!(self, |inner| inner.wait_visible(ts))
    }

    async fn kv_get(&self, key: &[u8], context: &ReadContext) -> KvResult<Option<Value>> {
        if let Some(error) = self.scripted() {
            return Err(error);
        }
        through!(self, |inner| inner.kv_get(key, context))
    }

    async fn kv_batch_get(&self, keys: &[Key], context: &ReadContext) -> KvResult<Vec<KvPair>> {
        through!(self, |inner| inner.kv_batch_get(keys, context))
    }

    async fn kv_scan(&self, request: &ScanRequest, context: &ReadContext) -> KvResult<Vec<KvPair>> {
        through!(self, |inner| inner.kv_scan(request, context))
    }

    async fn prewrite(&self, request: PrewriteRequest) -> std::result::Result<(), Vec<KeyError>> {
        let store = |error: Error| vec![KeyError::Store(error)];
        if self.deliver_later(|| Late::Prewrite(request.clone())) {
            return Err(store(away("the prewrite is on its way")));
        }
        let gate = self.gate().await.map_err(store)?;
        let result = gate.inner.prewrite(request).await;
        if gate.lose_answer { Err(store(away("the answer was lost"))) } else { result }
    }

    async fn commit(&self, request: CommitRequest) -> KvResult<Timestamp> {
        if self.deliver_later(|| Late::Commit(request.clone())) {
            return Err(away("the commit is on its way").into());
        }
        through!(self, |inner| inner.commit(request))
    }

    async fn batch_rollback(&self, start_ts: Timestamp, keys: &[Key]) -> KvResult<()> {
        through!(self, |inner| inner.batch_rollback(start_ts, keys))
    }

    async fn check_txn_status(&self, request: &TxnStatusRequest) -> KvResult<TxnStatus> {
        through!(self, |inner| inner.check_txn_status(request))
    }

    async fn heartbeat(&self, primary: &[u8], start_ts: Timestamp, ttl_ms: u64) -> KvResult<u64> {
        through!(self, |inner| inner.heartbeat(primary, start_ts, ttl_ms))
    }

    async fn resolve_lock(
        &self,
        start_ts: Timestamp,
        commit_ts: Option<Timestamp>,
        keys: &[Key],
    ) -> KvResult<()> {
        through!(self, |inner| inner.resolve_lock(start_ts, commit_ts, keys))
    }

    async fn scan_lock(&self, range: &KeyRange, max_ts: Timestamp, limit: usize) -> KvResult<Vec<LockInfo>> {
        through!(self, |inner| inner.scan_lock(range, max_ts, limit))
    }

    async fn mvcc_get(&self, key: &[u8]) -> KvResult<MvccInfo> {
        through!(self, |inner| inner.mvcc_get(key))
    }

    async fn commit_transaction(&self, start_ts: Timestamp, mutations: Vec<Mutation>) -> KvResult<Timestamp> {
        through!(self, |inner| inner.commit_transaction(start_ts, mutations))
    }

    async fn changes(
        &self,
        ranges: &[KeyRange],
        from: Timestamp,
        to: Timestamp,
        next: Option<(Timestamp, Key)>,
        limit: usize,
    ) -> Result<ChangePage> {
        through!(self, |inner| inner.changes(ranges, from, to, next, limit))
    }

    async fn resolved(&self, ranges: &[KeyRange]) -> Result<Timestamp> {
        through!(self, |inner| inner.resolved(ranges))
    }

    async fn subscribe(&self, ranges: Vec<KeyRange>, from: Timestamp) -> Result<FeedStream> {
        through!(self, |inner| inner.subscribe(ranges, from))
    }

    async fn wait_change(&self, ts: Timestamp, timeout_ms: u64) -> Result<Timestamp> {
        through!(self, |inner| inner.wait_change(ts, timeout_ms))
    }

    async fn hold(&self, name: &str, ts: Timestamp) -> Result<()> {
        through!(self, |inner| inner.hold(name, ts))
    }

    async fn release(&self, name: &str) -> Result<()> {
        through!(self, |inner| inner.release(name))
    }

    async fn holds(&self) -> Result<Vec<(String, Timestamp)>> {
        through!(self, |inner| inner.holds())
    }

    async fn collect_garbage(&self, barrier: Timestamp) -> Result<Timestamp> {
        through!(self, |inner| inner.collect_garbage(barrier))
    }

    async fn gc_barrier(&self) -> Result<Timestamp> {
        through!(self, |inner| inner.gc_barrier())
    }

    async fn put_blobs(&self, blobs: Vec<(Key, Value)>) -> Result<()> {
        through!(self, |inner| inner.put_blobs(blobs))
    }

    async fn get_blob(&self, key: &[u8]) -> Result<Option<Value>> {
        through!(self, |inner| inner.get_blob(key))
    }

    async fn list_blobs(&self, prefix: &[u8], after: Option<Key>, limit: usize) -> Result<Vec<Key>> {
        through!(self, |inner| inner.list_blobs(prefix, after, limit))
    }

    async fn delete_blobs(&self, keys: Vec<Key>) -> Result<()> {
        through!(self, |inner| inner.delete_blobs(keys))
    }

    async fn close(&self) -> Result<()> {
        through!(self, |inner| inner.close())
    }
}
