//! Replays recorded exchanges with a real TiKV server and compares every answer.
//!
//! Timestamps are drawn from the store where the recording drew them, so that symbols of the recording
//! stand for numbers of the store. Where the recording waited (for a lock to expire), the replay waits.
//!
//! What differs by design is brought to one form: TiKV notes a rollback whose start equals another
//! transaction's commit as a mark on that record (here: a record of its own), leaves the key out of
//! pairs with errors (here: filled), and writes a lock's value apart from its record.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value as Json;
use types::Timestamp;

use crate::traits::{
    Assertion, AssertionLevel, CommitRequest, Key, KeyError, KeyRange, KvPair, LockInfo, LockKind, Mutation,
    MutationOp, MvccInfo, PrewriteRequest, ReadContext, ScanRequest, Store, TxnStatus, TxnStatusRequest,
    WriteKind,
};

/// The recordings, by scenario.
pub const RECORDINGS: &[(&str, &str)] = &[
    ("A01", include_str!("../../tests/traces/A01-plain-2pc.json")),
    ("A02", include_str!("../../tests/traces/A02-push-min-commit-ts.json")),
    ("A03", include_str!("../../tests/traces/A03-second-prewrite-other-value.json")),
    ("A04", include_str!("../../tests/traces/A04-rollback.json")),
    ("A05", include_str!("../../tests/traces/A05-check-txn-status-missing-primary.json")),
    ("A06", include_str!("../../tests/traces/A06-ttl-expiry.json")),
    ("A07", include_str!("../../tests/traces/A07-heartbeat.json")),
    ("A08", include_str!("../../tests/traces/A08-resolve-lock.json")),
    ("A09", include_str!("../../tests/traces/A09-write-conflict.json")),
    ("A10", include_str!("../../tests/traces/A10-insert-checknotexists.json")),
    ("A11", include_str!("../../tests/traces/A11-assertions.json")),
    ("A12", include_str!("../../tests/traces/A12-delete-empty-lock.json")),
    ("A15", include_str!("../../tests/traces/A15-scan-lock.json")),
    ("A16", include_str!("../../tests/traces/A16-reads.json")),
];

/// Steps that are left out, and why: the trait does not model what they ask.
pub const LEFT_OUT: &[(&str, u64, &str)] = &[
    ("A15", 4, "takes a pessimistic lock; Tidemill's transactions are optimistic"),
    ("A15", 12, "lists a page whose end is the pessimistic lock of step 4"),
    ("A15", 23, "prewrites for an async commit, whose answer is a commit timestamp"),
    ("A15", 24, "commits the transaction of step 23"),
    ("A15", 26, "rolls the pessimistic lock of step 4 back"),
    ("A16", 20, "asks for a commit timestamp with a read (need_commit_ts), which makes a lock block it"),
];

/// Replays every recording against a store.
///
/// # Panics
/// If an answer differs.
pub async fn replay_all(store: Arc<dyn Store>) {
    for (scenario, recording) in RECORDINGS {
        replay(&store, scenario, recording).await;
    }
}

/// Replays one recording.
///
/// # Panics
/// If an answer differs, or the recording cannot be read.
pub async fn replay(store: &Arc<dyn Store>, scenario: &str, recording: &str) {
    let recording: Json = serde_json::from_str(recording).expect("the recording is JSON");
    let mut replay = Replay::new(Arc::clone(store), &recording);
    let mut compared = 0;
    for step in recording["steps"].as_array().expect("a recording has steps") {
        let number = step["step"].as_u64().expect("steps are numbered");
        if LEFT_OUT.iter().any(|(name, left_out, _)| *name == scenario && *left_out == number) {
            continue;
        }
        match step["kind"].as_str() {
            Some("tso") => replay.draw(step["ts"].as_str().expect("a drawn timestamp has a symbol")).await,
            Some("unary") => {
                let (got, expected) = replay.call(step).await;
                let rpc = step["rpc"].as_str().unwrap_or_default();
                assert_eq!(got, expected, "{scenario} step {number}, {rpc}: {}", step["note"]);
                compared += 1;
            }
            other => panic!("{scenario} step {number} is of unknown kind {other:?}"),
        }
    }
    assert!(compared > 5, "{scenario} compared only {compared} answers");
}

/// Draws between two symbols, so that sums on symbols stay between them.
const DRAWS_APART: usize = 120;
/// A pause of the recording from which on the replay pauses too, in milliseconds.
const PAUSE_MS_MIN: u64 = 300;

struct Replay {
    store: Arc<dyn Store>,
    /// The recording's raw timestamps, by symbol.
    raw: BTreeMap<String, u64>,
    /// What was drawn: raw timestamp of the recording and the store's.
    drawn: Vec<(u64, Timestamp)>,
    /// The timestamps that the recording will draw.
    to_draw: Vec<u64>,
    /// Primaries by start; some commits of the recordings leave them out.
    primaries: BTreeMap<Timestamp, Key>,
}

impl Replay {
    fn new(store: Arc<dyn Store>, recording: &Json) -> Replay {
        let timestamps = recording["timestamps"].as_object().expect("a recording has timestamps");
        let number =
            |json: &Json| json["raw"].as_str().and_then(|raw| raw.parse().ok()).expect("raw is a number");
        let raw: BTreeMap<String, u64> =
            timestamps.iter().map(|(symbol, json)| (symbol.clone(), number(json))).collect();
        let steps = recording["steps"].as_array().expect("a recording has steps");
        let symbols =
            steps.iter().filter(|step| step["kind"] == "tso").filter_map(|step| step["ts"].as_str());
        let to_draw = symbols.map(|symbol| raw[symbol]).collect();
        Replay { store, raw, drawn: Vec::new(), to_draw, primaries: BTreeMap::new() }
    }

    async fn draw(&mut self, symbol: &str) {
        let raw = self.raw[symbol];
        // At once: a store behind a connection must not spend the locks' time on them.
        let draws = (0..DRAWS_APART).map(|_| self.store.timestamp());
        for drawn in futures::future::join_all(draws).await {
            drawn.expect("the oracle answers");
        }
        let mut ts = self.store.timestamp().await.expect("the oracle answers");
        if let Some((last_raw, last)) = self.drawn.last() {
            let pause_ms = Timestamp(raw).physical_ms().saturating_sub(Timestamp(*last_raw).physical_ms());
            while pause_ms >= PAUSE_MS_MIN && ts.physical_ms() < last.physical_ms() + pause_ms {
                tokio::time::sleep(Duration::from_millis(10)).await;
                ts = self.store.timestamp().await.expect("the oracle answers");
            }
        }
        self.drawn.push((raw, ts));
    }

    /// The store's timestamp for a symbol: as far from a drawn one as in the recording.
    fn ts(&self, json: &Json) -> Timestamp {
        let Some(symbol) = json.as_str() else {
            assert!(json.is_null() || json.as_u64() == Some(0), "{json} is no timestamp");
            return Timestamp::ZERO;
        };
        if symbol == "MAX" {
            return Timestamp::MAX;
        }
        let raw = self.raw[symbol];
        let nearest =
            self.to_draw.iter().copied().min_by_key(|drawn| drawn.abs_diff(raw)).expect("something is drawn");
        let (_, base) =
            *self.drawn.iter().find(|(drawn, _)| *drawn == nearest).expect("it is drawn before its use");
        Timestamp(base.0 + raw - nearest)
    }

    /// Sends a step's request; returns the store's answer and the recorded one in one form.
    async fn call(&mut self, step: &Json) -> (Vec<String>, Vec<String>) {
        let (request, response) = (&step["request"], &step["response"]);
        let rpc = step["rpc"].as_str().and_then(|rpc| rpc.rsplit('/').next()).expect("a call has a name");
        match rpc {
            "KvPrewrite" => (self.prewrite(request).await, self.expect_errors(&response["errors"])),
            "KvCommit" => {
                let expected = self.expect_error(response, |this| {
                    vec![format!("committed {}", this.ts(&response["commit_version"]))]
                });
                (self.commit(request).await, expected)
            }
            "KvBatchRollback" => {
                let got = self.store.batch_rollback(self.ts(&request["start_version"]), &keys(request)).await;
                (
                    got.map_or_else(|error| vec![show(&error)], |()| Vec::new()),
                    self.expect_error(response, |_| Vec::new()),
                )
            }
            "KvResolveLock" => (self.resolve(request).await, self.expect_error(response, |_| Vec::new())),
            "KvCheckTxnStatus" => {
                (self.status(request).await, self.expect_error(response, |this| this.expect_status(response)))
            }
            "KvTxnHeartBeat" => {
                let start_ts = self.ts(&request["start_version"]);
                let ttl_ms = request["advise_lock_ttl"].as_u64().unwrap_or(0);
                let got = self.store.heartbeat(&bytes(&request["primary_lock"]), start_ts, ttl_ms).await;
                let got = got.map_or_else(|error| show(&error), |ttl_ms| format!("ttl {ttl_ms}"));
                (vec![got], self.expect_error(response, |_| vec![format!("ttl {}", response["lock_ttl"])]))
            }
            "KvGet" => (self.get(step).await, self.expect_get(response)),
            "KvBatchGet" => {
                let got = self.store.kv_batch_get(&keys(request), &self.context(step)).await;
                (pairs(&got.expect("a batch get answers")), self.expect_pairs(&response["pairs"]))
            }
            "KvScan" => (self.scan(step).await, self.expect_pairs(&response["pairs"])),
            "KvScanLock" => (self.scan_lock(request).await, self.expect_locks(&response["locks"])),
            "MvccGetByKey" => {
                let got = self.store.mvcc_get(&bytes(&request["key"])).await.expect("a key has its story");
                (mvcc(&got), self.expect_mvcc(&response["info"]))
            }
            other => panic!("call {other} is not modelled"),
        }
    }

    async fn prewrite(&mut self, request: &Json) -> Vec<String> {
        let start_ts = self.ts(&request["start_version"]);
        let primary = bytes(&request["primary_lock"]);
        self.primaries.entry(start_ts).or_insert_with(|| primary.clone());
        let level = match request["assertion_level"].as_str() {
            None => AssertionLevel::Off,
            Some("Fast") => AssertionLevel::Fast,
            Some("Strict") => AssertionLevel::Strict,
            Some(other) => panic!("assertion level {other}"),
        };
        let request = PrewriteRequest {
            mutations: list(&request["mutations"]).iter().map(mutation).collect(),
            primary,
            start_ts,
            ttl_ms: request["lock_ttl"].as_u64().unwrap_or(0),
            txn_size: request["txn_size"].as_u64().unwrap_or(0),
            min_commit_ts: self.ts(&request["min_commit_ts"]),
            assertion_level: level,
            staged: false,
        };
        match self.store.prewrite(request).await {
            Ok(()) => Vec::new(),
            Err(errors) => errors.iter().map(show).collect(),
        }
    }

    async fn commit(&self, request: &Json) -> Vec<String> {
        let start_ts = self.ts(&request["start_version"]);
        let primary = match &request["primary_key"] {
            Json::Null => self.primaries.get(&start_ts).cloned().unwrap_or_default(),
            key => bytes(key),
        };
        let commit_ts = Some(self.ts(&request["commit_version"]));
        let request = CommitRequest { start_ts, keys: keys(request), primary, commit_ts };
        match self.store.commit(request).await {
            Ok(commit_ts) => vec![format!("committed {commit_ts}")],
            Err(error) => vec![show(&error)],
        }
    }

    async fn resolve(&self, request: &Json) -> Vec<String> {
        let decided = |ts: Timestamp| (ts != Timestamp::ZERO).then_some(ts);
        for info in list(&request["txn_infos"]) {
            let (start_ts, commit_ts) = (self.ts(&info["txn"]), self.ts(&info["status"]));
            self.store
                .resolve_lock(start_ts, decided(commit_ts), &[])
                .await
                .expect("locks of a list are finished");
        }
        if !request["txn_infos"].is_null() {
            return Vec::new();
        }
        let (start_ts, commit_ts) = (self.ts(&request["start_version"]), self.ts(&request["commit_version"]));
        match self.store.resolve_lock(start_ts, decided(commit_ts), &keys(request)).await {
            Ok(()) => Vec::new(),
            Err(error) => vec![show(&error)],
        }
    }

    async fn status(&self, request: &Json) -> Vec<String> {
        let status = TxnStatusRequest {
            primary: bytes(&request["primary_key"]),
            start_ts: self.ts(&request["lock_ts"]),
            caller_start_ts: self.ts(&request["caller_start_ts"]),
            current_ts: self.ts(&request["current_ts"]),
            rollback_if_not_exist: request["rollback_if_not_exist"] == true,
            verify_is_primary: request["verify_is_primary"] == true,
        };
        vec![match self.store.check_txn_status(&status).await {
            Ok(TxnStatus::Committed(commit_ts)) => format!("committed {commit_ts}"),
            Ok(TxnStatus::RolledBack) => "rolled back".to_owned(),
            Ok(TxnStatus::Alive { lock, pushed }) => format!("alive pushed={pushed} {}", show_lock(&lock)),
            Err(error) => show(&error),
        }]
    }

    async fn get(&self, step: &Json) -> Vec<String> {
        vec![match self.store.kv_get(&bytes(&step["request"]["key"]), &self.context(step)).await {
            Ok(None) => "none".to_owned(),
            Ok(Some(value)) => format!("value {}", hex(&value)),
            Err(error) => show(&error),
        }]
    }

    async fn scan(&self, step: &Json) -> Vec<String> {
        let request = &step["request"];
        let reverse = request["reverse"] == true;
        let (start, end) = (bytes(&request["start_key"]), bytes(&request["end_key"]));
        let range = if reverse { KeyRange::new(end, start) } else { KeyRange::new(start, end) };
        let limit = request["limit"].as_u64().expect("a scan has a limit") as usize;
        let scan = ScanRequest { range, limit, key_only: request["key_only"] == true, reverse };
        pairs(&self.store.kv_scan(&scan, &self.context(step)).await.expect("a scan answers"))
    }

    async fn scan_lock(&self, request: &Json) -> Vec<String> {
        let range = KeyRange::new(bytes(&request["start_key"]), bytes(&request["end_key"]));
        let limit = request["limit"].as_u64().unwrap_or(0) as usize;
        let locks = self.store.scan_lock(&range, self.ts(&request["max_version"]), limit).await;
        locks.expect("locks are listed").iter().map(show_lock).collect()
    }

    fn context(&self, step: &Json) -> ReadContext {
        let starts = |json: &Json| list(json).iter().map(|ts| self.ts(ts)).collect();
        let context = &step["request"]["context"];
        ReadContext {
            ts: self.ts(&step["request"]["version"]),
            resolved_locks: starts(&context["resolved_locks"]),
            committed_locks: starts(&context["committed_locks"]),
        }
    }

    fn expect_error(&self, response: &Json, otherwise: impl FnOnce(&Replay) -> Vec<String>) -> Vec<String> {
        match &response["error"] {
            Json::Null => otherwise(self),
            error => vec![self.expected(error)],
        }
    }

    fn expect_errors(&self, errors: &Json) -> Vec<String> {
        list(errors).iter().map(|error| self.expected(error)).collect()
    }

    fn expect_get(&self, response: &Json) -> Vec<String> {
        self.expect_error(response, |_| {
            let found = response["not_found"] != true;
            vec![if found { format!("value {}", hex(&bytes(&response["value"]))) } else { "none".to_owned() }]
        })
    }

    fn expect_pairs(&self, pairs: &Json) -> Vec<String> {
        let pair = |pair: &Json| match &pair["error"] {
            Json::Null => format!("{} = {}", hex(&bytes(&pair["key"])), hex(&bytes(&pair["value"]))),
            error => self.expected(error),
        };
        list(pairs).iter().map(pair).collect()
    }

    fn expect_locks(&self, locks: &Json) -> Vec<String> {
        let optimistic = list(locks).into_iter().filter(|lock| lock["lock_type"] != "PessimisticLock");
        optimistic.map(|lock| self.expected_lock(&lock)).collect()
    }

    fn expect_status(&self, response: &Json) -> Vec<String> {
        let commit_ts = self.ts(&response["commit_version"]);
        vec![if commit_ts != Timestamp::ZERO {
            format!("committed {commit_ts}")
        } else if response["lock_ttl"].as_u64().unwrap_or(0) == 0 {
            "rolled back".to_owned()
        } else {
            let pushed = response["action"] == "MinCommitTSPushed";
            format!("alive pushed={pushed} {}", self.expected_lock(&response["lock_info"]))
        }]
    }

    fn expect_mvcc(&self, info: &Json) -> Vec<String> {
        let mut lines = Vec::new();
        if let Json::Object(lock) = &info["lock"] {
            let lock = Json::Object(lock.clone());
            lines.push(format!(
                "lock {} primary {}",
                self.ts(&lock["start_ts"]),
                hex(&bytes(&lock["primary"]))
            ));
        }
        for write in list(&info["writes"]) {
            let (start_ts, commit_ts) = (self.ts(&write["start_ts"]), self.ts(&write["commit_ts"]));
            let kind = write["type"].as_str().unwrap_or("Put");
            let long =
                list(&info["values"]).into_iter().find(|value| self.ts(&value["start_ts"]) == start_ts);
            let value = match (&write["short_value"], long) {
                _ if kind != "Put" => String::new(),
                (Json::Null, Some(value)) => hex(&bytes(&value["value"])),
                (value, _) => hex(&bytes(value)),
            };
            lines.push(format!("{kind} {start_ts}..{commit_ts} {value}"));
            if write["has_overlapped_rollback"] == true {
                lines.push(format!("Rollback {commit_ts}..{commit_ts} "));
            }
        }
        lines
    }

    /// A recorded error: fields are tested in the order that a client must use.
    fn expected(&self, error: &Json) -> String {
        let has = |field: &str| !error[field].is_null();
        if has("locked") {
            return format!("locked {}", self.expected_lock(&error["locked"]));
        }
        if has("conflict") {
            let conflict = &error["conflict"];
            return format!(
                "conflict {} start {} with {}..{} self={}",
                hex(&bytes(&conflict["key"])),
                self.ts(&conflict["start_ts"]),
                self.ts(&conflict["conflict_ts"]),
                self.ts(&conflict["conflict_commit_ts"]),
                conflict["reason"] == "SelfRolledBack"
            );
        }
        if has("already_exist") {
            return format!("exists {}", hex(&bytes(&error["already_exist"]["key"])));
        }
        if has("commit_ts_expired") {
            let expired = &error["commit_ts_expired"];
            let (attempted, least) =
                (self.ts(&expired["attempted_commit_ts"]), self.ts(&expired["min_commit_ts"]));
            return format!("expired {attempted} least {least}");
        }
        if has("txn_not_found") {
            let missing = &error["txn_not_found"];
            let start_ts = self.ts(&missing["start_ts"]);
            return format!("transaction {start_ts} not found at {}", hex(&bytes(&missing["primary_key"])));
        }
        if has("txn_lock_not_found") {
            return format!("lock not found {}", hex(&bytes(&error["txn_lock_not_found"]["key"])));
        }
        if has("assertion_failed") {
            let failed = &error["assertion_failed"];
            return format!(
                "assertion {} {}",
                failed["assertion"].as_str().unwrap_or("?"),
                hex(&bytes(&failed["key"]))
            );
        }
        if has("primary_mismatch") {
            return format!("mismatch {}", self.expected_lock(&error["primary_mismatch"]["lock_info"]));
        }
        assert!(has("abort"), "{error} is an error of an unknown kind");
        "abort".to_owned()
    }

    fn expected_lock(&self, lock: &Json) -> String {
        let kind = lock["lock_type"].as_str().unwrap_or("Put");
        format!(
            "{} primary {} start {} ttl {} size {} {kind} least {}",
            hex(&bytes(&lock["key"])),
            hex(&bytes(&lock["primary_lock"])),
            self.ts(&lock["lock_version"]),
            lock["lock_ttl"].as_u64().unwrap_or(0),
            lock["txn_size"].as_u64().unwrap_or(0),
            self.ts(&lock["min_commit_ts"]),
        )
    }
}

fn show_lock(lock: &LockInfo) -> String {
    let kind = match lock.kind {
        LockKind::Put => "Put",
        LockKind::Delete => "Del",
        LockKind::Lock => "Lock",
    };
    format!(
        "{} primary {} start {} ttl {} size {} {kind} least {}",
        hex(&lock.key),
        hex(&lock.primary),
        lock.start_ts,
        lock.ttl_ms,
        lock.txn_size,
        lock.min_commit_ts
    )
}

fn show(error: &KeyError) -> String {
    match error {
        KeyError::Locked(lock) => format!("locked {}", show_lock(lock)),
        KeyError::WriteConflict {
            key,
            start_ts,
            conflict_start_ts,
            conflict_commit_ts,
            self_rolled_back,
        } => format!(
            "conflict {} start {start_ts} with {conflict_start_ts}..{conflict_commit_ts} self={self_rolled_back}",
            hex(key)
        ),
        KeyError::AlreadyExists(key) => format!("exists {}", hex(key)),
        KeyError::CommitTsExpired { attempted, min_commit_ts } => {
            format!("expired {attempted} least {min_commit_ts}")
        }
        KeyError::TxnNotFound { start_ts, primary } => {
            format!("transaction {start_ts} not found at {}", hex(primary))
        }
        KeyError::TxnLockNotFound(key) => format!("lock not found {}", hex(key)),
        KeyError::AssertionFailed { key, assertion } => format!("assertion {assertion:?} {}", hex(key)),
        KeyError::PrimaryMismatch(lock) => format!("mismatch {}", show_lock(lock)),
        KeyError::Abort(_) => "abort".to_owned(),
        KeyError::Store(error) => panic!("the store failed: {error}"),
    }
}

fn pairs(pairs: &[KvPair]) -> Vec<String> {
    let pair = |pair: &KvPair| match &pair.value {
        Ok(value) => format!("{} = {}", hex(&pair.key), hex(value)),
        Err(error) => show(error),
    };
    pairs.iter().map(pair).collect()
}

fn mvcc(info: &MvccInfo) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(lock) = &info.lock {
        lines.push(format!("lock {} primary {}", lock.start_ts, hex(&lock.primary)));
    }
    for write in &info.writes {
        let kind = match write.kind {
            WriteKind::Put => "Put",
            WriteKind::Delete => "Del",
            WriteKind::Lock => "Lock",
            WriteKind::Rollback => "Rollback",
        };
        let value = write.value.as_deref().map(hex).unwrap_or_default();
        lines.push(format!("{kind} {}..{} {value}", write.start_ts, write.commit_ts));
    }
    lines
}

fn mutation(json: &Json) -> Mutation {
    let op = match json["op"].as_str() {
        None => MutationOp::Put,
        Some("Del") => MutationOp::Delete,
        Some("Lock") => MutationOp::Lock,
        Some("Insert") => MutationOp::Insert,
        Some("CheckNotExists") => MutationOp::CheckNotExists,
        Some(other) => panic!("mutation {other}"),
    };
    let assertion = match json["assertion"].as_str() {
        None => Assertion::None,
        Some("Exist") => Assertion::Exist,
        Some("NotExist") => Assertion::NotExist,
        Some(other) => panic!("assertion {other}"),
    };
    Mutation { op, key: bytes(&json["key"]), value: bytes(&json["value"]), assertion }
}

fn list(json: &Json) -> Vec<Json> {
    json.as_array().cloned().unwrap_or_default()
}

fn keys(request: &Json) -> Vec<Key> {
    list(&request["keys"]).iter().map(bytes).collect()
}

/// Bytes in hex; `hh*count` is a run.
fn bytes(json: &Json) -> Key {
    let text = json.as_str().unwrap_or_default();
    let byte = |hex: &str| u8::from_str_radix(hex, 16).expect("bytes are hex");
    if let Some((hex, count)) = text.split_once('*') {
        return vec![byte(hex); count.parse().expect("a run has a length")].into();
    }
    (0..text.len()).step_by(2).map(|at| byte(&text[at..at + 2])).collect::<Vec<u8>>().into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes text");
        text
    })
}
