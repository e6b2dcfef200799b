//! Prewrites that arrive while the committer is between looking at a key and writing it.
//!
//! The engine is told to stop the committer at its read of a key; meanwhile a prewrite of the key comes in.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use store::engine::{Batch, Durability, Engine, Entries, KeyBounds, MemoryEngine, Space};
use store::{
    AssertionLevel, CommitRequest, EmbeddedStore, Key, KeyError, KvResult, Mutation, Options,
    PrewriteRequest, Store, TxnStatus, TxnStatusRequest,
};
use types::{Result, Timestamp};

const KEY: &[u8] = b"account";

/// Where the committer stands still once.
struct Stop {
    reached: Sender<()>,
    go: Receiver<()>,
}

/// An engine in memory that stops the committer at its next read of [`KEY`].
#[derive(Default)]
struct Stopping {
    inner: MemoryEngine,
    stop: Mutex<Option<Stop>>,
}

impl Stopping {
    /// Arms the stop; the receiver hears when the committer stands, the sender lets it go.
    fn arm(&self) -> (Receiver<()>, Sender<()>) {
        let ((reached, stands), (sender, go)) = (channel(), channel());
        *self.stop.lock().unwrap() = Some(Stop { reached, go });
        (stands, sender)
    }
}

impl Engine for Stopping {
    fn commit(&self, batch: Batch, durability: Durability) -> Result<()> {
        self.inner.commit(batch, durability)
    }

    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        let value = self.inner.get(space, key);
        let committer = std::thread::current().name() == Some("store-committer");
        if space == Space::Main && key == KEY && committer {
            let stop = self.stop.lock().unwrap().take();
            if let Some(stop) = stop {
                stop.reached.send(()).unwrap();
                stop.go.recv().unwrap();
            }
        }
        value
    }

    fn range(&self, space: Space, bounds: KeyBounds, reverse: bool) -> Entries<'_> {
        self.inner.range(space, bounds, reverse)
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    fn space_bytes(&self) -> Result<u64> {
        self.inner.space_bytes()
    }
}

fn prewrite(start_ts: Timestamp, staged: bool) -> PrewriteRequest {
    PrewriteRequest {
        mutations: vec![Mutation::put(KEY, "late")],
        primary: Key::from_static(KEY),
        start_ts,
        ttl_ms: 20_000,
        txn_size: 1,
        min_commit_ts: start_ts.next().unwrap(),
        assertion_level: AssertionLevel::Strict,
        staged,
    }
}

async fn commit(store: &EmbeddedStore, start_ts: Timestamp) -> KvResult<Timestamp> {
    let key = Key::from_static(KEY);
    store.commit(CommitRequest { start_ts, keys: vec![key.clone()], primary: key, commit_ts: None }).await
}

/// Runs `first` until the committer has read the key, lets a prewrite at `start_ts` come in, and returns
/// what became of both.
async fn meet<T: Send + 'static>(
    store: &Arc<EmbeddedStore>,
    engine: &Stopping,
    start_ts: Timestamp,
    staged: bool,
    first: impl Future<Output = T> + Send + 'static,
) -> (T, std::result::Result<(), Vec<KeyError>>) {
    let (stands, go) = engine.arm();
    let first = tokio::spawn(first);
    tokio::task::spawn_blocking(move || stands.recv().unwrap()).await.unwrap();
    let late = Arc::clone(store);
    let mut late = tokio::spawn(async move { late.prewrite(prewrite(start_ts, staged)).await });
    // Long enough for a prewrite that nothing holds; one that waits goes on when the committer does.
    let early = tokio::time::timeout(Duration::from_millis(100), &mut late).await;
    go.send(()).unwrap();
    let first = first.await.unwrap();
    let late = match early {
        Ok(answer) => answer.unwrap(),
        Err(_) => late.await.unwrap(),
    };
    (first, late)
}

fn open() -> (Arc<EmbeddedStore>, Arc<Stopping>) {
    let engine = Arc::new(Stopping::default());
    let over: Arc<dyn Engine> = engine.clone();
    (EmbeddedStore::over(over, Options::default()).unwrap(), engine)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_commit_and_a_prewrite_never_both_win() {
    for staged in [false, true] {
        let (store, engine) = open();
        let start_ts = store.timestamp().await.unwrap();
        let whole_ts = store.timestamp().await.unwrap();
        let whole = Arc::clone(&store);
        let whole =
            async move { whole.commit_transaction(whole_ts, vec![Mutation::put(KEY, "whole")]).await };
        let (whole, late) = meet(&store, &engine, start_ts, staged, whole).await;
        assert!(whole.is_ok(), "{whole:?}");
        assert!(
            matches!(late.as_ref().map_err(Vec::as_slice), Err([KeyError::WriteConflict { .. }])),
            "staged {staged}: {late:?}"
        );
        assert!(matches!(commit(&store, start_ts).await, Err(KeyError::TxnLockNotFound(_))));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_is_final_for_a_prewrite_that_comes_meanwhile() {
    for staged in [false, true] {
        let (store, engine) = open();
        let start_ts = store.timestamp().await.unwrap();
        let undo = Arc::clone(&store);
        let undo = async move { undo.batch_rollback(start_ts, &[Key::from_static(KEY)]).await };
        let (undone, _) = meet(&store, &engine, start_ts, staged, undo).await;
        assert!(undone.is_ok(), "{undone:?}");
        let committed = commit(&store, start_ts).await;
        assert!(matches!(committed, Err(KeyError::TxnLockNotFound(_))), "staged {staged}: {committed:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_rolls_back_is_final_for_a_prewrite_that_comes_meanwhile() {
    for staged in [false, true] {
        let (store, engine) = open();
        let start_ts = store.timestamp().await.unwrap();
        let current_ts = store.timestamp().await.unwrap();
        let asked = Arc::clone(&store);
        let asked = async move {
            let request = TxnStatusRequest {
                primary: Key::from_static(KEY),
                start_ts,
                caller_start_ts: Timestamp::ZERO,
                current_ts,
                rollback_if_not_exist: true,
                verify_is_primary: true,
            };
            asked.check_txn_status(&request).await
        };
        let (status, _) = meet(&store, &engine, start_ts, staged, asked).await;
        assert!(matches!(status, Ok(TxnStatus::RolledBack)), "{status:?}");
        let committed = commit(&store, start_ts).await;
        assert!(matches!(committed, Err(KeyError::TxnLockNotFound(_))), "staged {staged}: {committed:?}");
    }
}
