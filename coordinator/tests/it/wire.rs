//! Both services over a real network on loopback: what travels, what is lost, who is killed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use coordinator::{
    Coordinator, Decision, Fault, HelperId, JobStatus, LocalCoordinator, LocalOptions, MachineOptions,
    OfferRequest, OpenRequest, Opened, Prepared, RemoteCoordinator, RemoteOptions, RemoteStore, RpcServer,
    SealedRequest, Services, Share, ShareRequest, TakeOverRequest, TakenOver, VoteRequest,
};
use store::engine::MemoryEngine;
use store::{
    Assertion, EmbeddedStore, Key, KeyError, LockInfo, LockKind, Options, ReadContext, Store, conformance,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use types::records::EpochRecord;
use types::{Epoch, Error, ErrorKind, Generation, JobId, Result, TableId, Timestamp};

use crate::flaky::{Flaky, Rates};
use crate::world::{Worker, World};

const JOB: JobId = JobId(1);

fn anywhere() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

async fn serve_store(store: Arc<dyn Store>) -> RpcServer {
    let services = Services { store: Some(store), ..Services::default() };
    RpcServer::start(anywhere(), services).await.unwrap()
}

async fn serve_coordinator(coordinator: Arc<dyn Coordinator>) -> RpcServer {
    let services = Services { coordinator: Some(coordinator), ..Services::default() };
    RpcServer::start(anywhere(), services).await.unwrap()
}

fn remote_store(address: SocketAddr) -> Arc<dyn Store> {
    Arc::new(RemoteStore::new(&address.to_string(), RemoteOptions::default()).unwrap())
}

fn remote_coordinator(address: SocketAddr) -> Arc<dyn Coordinator> {
    Arc::new(RemoteCoordinator::new(&address.to_string(), RemoteOptions::default()).unwrap())
}

fn local(store: &Arc<dyn Store>) -> Arc<LocalCoordinator> {
    let machine = MachineOptions { ttl_ms: 3_000, ..MachineOptions::default() };
    Arc::new(LocalCoordinator::new(Arc::clone(store), LocalOptions { machine, ..LocalOptions::default() }))
}

/// A part of the system in a runtime of its own, so that it can be killed as a process is.
struct Process {
    runtime: Option<tokio::runtime::Runtime>,
    address: SocketAddr,
}

impl Process {
    fn start(address: SocketAddr, services: impl FnOnce() -> Services) -> Process {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let guard = runtime.enter();
        let services = services();
        drop(guard);
        // Another thread, because a runtime cannot be entered from inside another one.
        let (runtime, server) = std::thread::scope(|scope| {
            scope
                .spawn(move || {
                    let server = runtime.block_on(RpcServer::start(address, services)).unwrap();
                    (runtime, server)
                })
                .join()
                .unwrap()
        });
        let address = server.address();
        // The server lives as long as its runtime does.
        std::mem::forget(server);
        Process { runtime: Some(runtime), address }
    }

    /// Ends everything at once: nobody is told, no answer is sent.
    fn kill(&mut self) {
        self.runtime.take().expect("killed once").shutdown_background();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Repeats a call until it is answered by somebody, for at most 30 seconds.
async fn until_answered<T>(call: impl AsyncFn() -> Result<T>) -> Result<T> {
    let repeated = async {
        loop {
            match call().await {
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                result => return result,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), repeated).await.expect("an answer in time")
}

/// A coordinator that answers what a test wants.
struct Scripted {
    error: Option<Error>,
}

impl Scripted {
    fn answer<T>(&self, value: T) -> Result<T> {
        self.error.clone().map_or(Ok(value), Err)
    }
}

fn record() -> EpochRecord {
    EpochRecord { epoch: Epoch(4), cut: Timestamp(20), generation: Generation(5), definitions: 6 }
}

#[async_trait]
impl Coordinator for Scripted {
    async fn take_over(&self, request: TakeOverRequest) -> Result<TakenOver> {
        assert_eq!(request, TakeOverRequest { job: JOB, n_workers: 3 });
        self.answer(TakenOver { generation: Generation(5), frontier: record(), commit_ts: Timestamp(26) })
    }

    async fn open(&self, request: OpenRequest) -> Result<Opened> {
        assert_eq!(request, OpenRequest { job: JOB, generation: Generation(5), cut: Some(Timestamp(0)) });
        self.answer(Opened { epoch: Epoch(5), cut: Timestamp(0) })
    }

    async fn sealed(&self, request: SealedRequest) -> Result<Prepared> {
        assert_eq!(request, sealed_with_everything());
        if request.worker == 1 {
            let changed = Prepared::DefinitionsChanged { definitions: 7, at: Timestamp(41) };
            return self.answer(changed);
        }
        self.answer(Prepared::Prewrite {
            start_ts: Timestamp(40),
            primary: Key::from_static(b"\x00\xffprimary"),
            ttl_ms: 9,
            min_commit_ts: Timestamp(0),
            faults: request.faults,
        })
    }

    async fn vote(&self, request: VoteRequest) -> Result<()> {
        assert_eq!((request.worker, request.done), (2, false));
        self.answer(())
    }

    async fn decision(
        &self,
        job: JobId,
        generation: Generation,
        epoch: Epoch,
        start_ts: Timestamp,
    ) -> Result<Decision> {
        assert_eq!((job, generation, epoch), (JOB, Generation(5), Epoch(5)));
        if start_ts == Timestamp(39) {
            return self.answer(Decision::Retry);
        }
        self.answer(Decision::Committed { commit_ts: Timestamp(u64::MAX) })
    }

    async fn abort(&self, job: JobId, generation: Generation, epoch: Epoch) -> Result<()> {
        assert_eq!((job, generation, epoch), (JOB, Generation(5), Epoch(5)));
        self.answer(())
    }

    async fn give_up(&self, job: JobId, generation: Generation, reason: &str) -> Result<()> {
        assert_eq!((job, generation, reason), (JOB, Generation(5), "no disk"));
        self.answer(())
    }

    async fn await_epoch(&self, job: JobId, generation: Generation, epoch: Epoch) -> Result<Opened> {
        assert_eq!((job, generation, epoch), (JOB, Generation(5), Epoch(5)));
        self.answer(Opened { epoch: Epoch(5), cut: Timestamp(30) })
    }

    async fn offer(&self, request: OfferRequest) -> Result<Vec<Share>> {
        assert_eq!(request, offer());
        self.answer(vec![share()])
    }

    async fn helpers(&self) -> Result<Vec<HelperId>> {
        self.answer(vec![HelperId(1), HelperId(u64::MAX)])
    }

    async fn share(&self, request: ShareRequest) -> Result<()> {
        assert_eq!(
            request,
            ShareRequest { job: JOB, taken: share().taken, helpers: vec![HelperId(u64::MAX)] }
        );
        self.answer(())
    }

    async fn status(&self, job: JobId) -> Result<JobStatus> {
        let open = (job == JOB).then_some(Opened { epoch: Epoch(5), cut: Timestamp(30) });
        self.answer(JobStatus {
            record: record(),
            commit_ts: Timestamp(26),
            open,
            waiting_for: "waiting for worker 1 to vote".to_owned(),
        })
    }

    async fn forget(&self, job: JobId) -> Result<()> {
        assert_eq!(job, JOB);
        self.answer(())
    }
}

fn offer() -> OfferRequest {
    let known = vec![(JobId(3), Generation(8)), (JOB, Generation(4))];
    OfferRequest { helper: HelperId(u64::MAX), known, leaves: true }
}

fn share() -> Share {
    let taken = TakenOver { generation: Generation(5), frontier: record(), commit_ts: Timestamp(26) };
    Share { job: JOB, taken, worker: 1, n_workers: 2 }
}

fn sealed_with_everything() -> SealedRequest {
    SealedRequest {
        job: JOB,
        generation: Generation(5),
        epoch: Epoch(5),
        worker: 0,
        definitions: 6,
        retry_of: Some(Timestamp(0)),
        faults: vec![Fault {
            view: TableId(9),
            reason: "negative weight of key 'ä'".to_owned(),
            key: Some("h = 5".to_owned()),
            changed_since: Some(Timestamp(77)),
        }],
    }
}

#[tokio::test]
async fn calls_and_answers_arrive_as_they_were() {
    let server = serve_coordinator(Arc::new(Scripted { error: None })).await;
    let remote = remote_coordinator(server.address());
    let scripted = Scripted { error: None };
    let take = TakeOverRequest { job: JOB, n_workers: 3 };
    assert_eq!(remote.take_over(take.clone()).await.unwrap(), scripted.take_over(take).await.unwrap());
    let open = OpenRequest { job: JOB, generation: Generation(5), cut: Some(Timestamp(0)) };
    assert_eq!(remote.open(open.clone()).await.unwrap(), scripted.open(open).await.unwrap());
    let sealed = sealed_with_everything();
    assert_eq!(remote.sealed(sealed.clone()).await.unwrap(), scripted.sealed(sealed).await.unwrap());
    let vote = VoteRequest {
        job: JOB,
        generation: Generation(5),
        epoch: Epoch(5),
        worker: 2,
        start_ts: Timestamp(40),
        done: false,
    };
    remote.vote(vote).await.unwrap();
    for start_ts in [Timestamp(39), Timestamp(40)] {
        let there = remote.decision(JOB, Generation(5), Epoch(5), start_ts).await.unwrap();
        assert_eq!(there, scripted.decision(JOB, Generation(5), Epoch(5), start_ts).await.unwrap());
    }
    remote.abort(JOB, Generation(5), Epoch(5)).await.unwrap();
    remote.give_up(JOB, Generation(5), "no disk").await.unwrap();
    let awaited = remote.await_epoch(JOB, Generation(5), Epoch(5)).await.unwrap();
    assert_eq!(awaited, scripted.await_epoch(JOB, Generation(5), Epoch(5)).await.unwrap());
    assert_eq!(remote.offer(offer()).await.unwrap(), [share()]);
    assert_eq!(remote.helpers().await.unwrap(), [HelperId(1), HelperId(u64::MAX)]);
    let request = ShareRequest { job: JOB, taken: share().taken, helpers: vec![HelperId(u64::MAX)] };
    remote.share(request).await.unwrap();
    for job in [JOB, JobId(2)] {
        assert_eq!(remote.status(job).await.unwrap(), scripted.status(job).await.unwrap());
    }
    remote.forget(JOB).await.unwrap();
    server.shutdown().await;
}

#[tokio::test]
async fn error_kinds_and_mysql_codes_travel_exactly() {
    let kinds = [
        ErrorKind::Conflict,
        ErrorKind::Fenced,
        ErrorKind::Unavailable,
        ErrorKind::Invalid,
        ErrorKind::Corrupt,
    ];
    for kind in kinds {
        for code in [None, Some(9007)] {
            let error = Error::new(kind, "view \"ünicode\" is gone\nreally");
            let error = code.map_or_else(|| error.clone(), |code| error.clone().with_mysql_code(code));
            let server = serve_coordinator(Arc::new(Scripted { error: Some(error.clone()) })).await;
            let remote = remote_coordinator(server.address());
            for there in [
                remote.status(JOB).await.unwrap_err(),
                remote.sealed(sealed_with_everything()).await.unwrap_err(),
                remote.abort(JOB, Generation(5), Epoch(5)).await.unwrap_err(),
            ] {
                assert_eq!(
                    (there.kind(), there.message(), there.mysql_code()),
                    (error.kind(), error.message(), error.mysql_code())
                );
            }
        }
    }
    // Over there the handle is closed; from here that is an absence.
    let server = serve_coordinator(Arc::new(Scripted { error: Some(Error::closed("stops")) })).await;
    let there = remote_coordinator(server.address()).status(JOB).await.unwrap_err();
    assert_eq!(there.kind(), ErrorKind::Unavailable);
    assert!(there.message().contains("stops"), "{there}");
}

#[tokio::test]
async fn errors_about_keys_travel_exactly() {
    let flaky = Flaky::new(1, Rates::default());
    let server = serve_store(Arc::clone(&flaky) as _).await;
    let remote = remote_store(server.address());
    let key = Key::from_static(b"k\x00\xff");
    let lock = |kind| {
        Box::new(LockInfo {
            key: key.clone(),
            primary: Key::from_static(b"p"),
            start_ts: Timestamp(1),
            ttl_ms: 2,
            txn_size: 3,
            kind,
            min_commit_ts: Timestamp(u64::MAX),
        })
    };
    let errors = vec![
        KeyError::Locked(lock(LockKind::Put)),
        KeyError::Locked(lock(LockKind::Delete)),
        KeyError::Locked(lock(LockKind::Lock)),
        KeyError::WriteConflict {
            key: key.clone(),
            start_ts: Timestamp(1),
            conflict_start_ts: Timestamp(2),
            conflict_commit_ts: Timestamp(3),
            self_rolled_back: true,
        },
        KeyError::AlreadyExists(key.clone()),
        KeyError::CommitTsExpired { attempted: Timestamp(4), min_commit_ts: Timestamp(5) },
        KeyError::TxnNotFound { start_ts: Timestamp(6), primary: key.clone() },
        KeyError::TxnLockNotFound(key.clone()),
        KeyError::AssertionFailed { key: key.clone(), assertion: Assertion::Exist },
        KeyError::AssertionFailed { key: key.clone(), assertion: Assertion::NotExist },
        KeyError::PrimaryMismatch(lock(LockKind::Put)),
        KeyError::Abort("Committed".to_owned()),
        KeyError::Store(Error::mysql(1062, "duplicate")),
        KeyError::Store(Error::corrupt("checksum")),
        KeyError::Store(Error::unavailable("injected")),
    ];
    for error in errors {
        let wanted = format!("{error:?}");
        flaky.script(error);
        let there = remote.kv_get(&key, &ReadContext::at(Timestamp(9))).await.unwrap_err();
        assert_eq!(format!("{there:?}"), wanted);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_over_the_wire_passes_the_conformance_suite() {
    for (topic, run) in conformance::TOPICS {
        // Collecting garbage is its owner's business; the recordings draw many thousand timestamps and
        // keep the pauses of the real server.
        let soak = std::env::var("TIDEMILL_SOAK").is_ok();
        if *topic == "garbage" || (*topic == "traces" && !soak) {
            continue;
        }
        let server = serve_store(EmbeddedStore::memory()).await;
        println!("{topic}");
        run(remote_store(server.address())).await;
        server.shutdown().await;
    }
}

#[tokio::test]
async fn what_makes_no_sense_from_afar_is_refused_and_closing_ends_this_client_only() {
    let server = serve_store(EmbeddedStore::memory()).await;
    let (one, other) = (remote_store(server.address()), remote_store(server.address()));
    assert_eq!(one.collect_garbage(Timestamp(1)).await.unwrap_err().kind(), ErrorKind::Invalid);
    one.close().await.unwrap();
    assert_eq!(one.timestamp().await.unwrap_err().kind(), ErrorKind::Closed);
    other.timestamp().await.unwrap();
}

#[tokio::test]
async fn a_message_that_is_too_large_is_invalid_and_a_large_one_arrives() {
    let server = serve_store(EmbeddedStore::memory()).await;
    let remote = remote_store(server.address());
    // Blobs are cut into several requests.
    let blob = |index: u8| (Key::from(vec![index]), Key::from(vec![index; 1 << 20]));
    remote.put_blobs((0..40).map(blob).collect()).await.unwrap();
    assert_eq!(remote.get_blob(&[39]).await.unwrap(), Some(Key::from(vec![39; 1 << 20])));
    assert_eq!(remote.list_blobs(&[], None, 100).await.unwrap().len(), 40);
    let too_large = vec![(Key::from_static(b"x"), Key::from(vec![0; 300 << 20]))];
    let error = remote.put_blobs(too_large).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    remote.timestamp().await.unwrap();
}

#[tokio::test]
async fn nobody_there_is_unavailable_and_nonsense_is_no_address() {
    let remote = remote_store("127.0.0.1:1".parse().unwrap());
    assert_eq!(remote.timestamp().await.unwrap_err().kind(), ErrorKind::Unavailable);
    let error = RemoteStore::new("not an address", RemoteOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let taken = serve_store(EmbeddedStore::memory()).await;
    let Err(error) = RpcServer::start(taken.address(), Services::default()).await else {
        panic!("two servers at one address")
    };
    assert_eq!(error.kind(), ErrorKind::Invalid);
    // A service that this server does not offer.
    let error = remote_coordinator(taken.address()).status(JOB).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_unavailable_in_time() {
    let listener = tokio::net::TcpListener::bind(anywhere()).await.unwrap();
    let options = RemoteOptions { connect_ms_max: 200, call_ms_max: 200 };
    let remote = RemoteStore::new(&listener.local_addr().unwrap().to_string(), options).unwrap();
    assert_eq!(remote.timestamp().await.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn garbage_on_the_wire_disturbs_nobody() {
    let server = serve_store(EmbeddedStore::memory()).await;
    let remote = remote_store(server.address());
    for bytes in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff", &[0; 9000]]
    {
        let mut stream = tokio::net::TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        // It may answer with an error or hang up.
        let _ = stream.read_to_end(&mut answer).await;
        remote.timestamp().await.unwrap();
    }
}

#[tokio::test]
async fn a_call_that_waits_is_repeated_by_the_client() {
    let store: Arc<dyn Store> = EmbeddedStore::memory();
    World::create(store.as_ref(), JOB).await;
    let coordinator = local(&store);
    let services = Services { coordinator: Some(coordinator), poll_ms_max: 20, ..Services::default() };
    let server = RpcServer::start(anywhere(), services).await.unwrap();
    let remote = remote_coordinator(server.address());
    let taken = remote.take_over(TakeOverRequest { job: JOB, n_workers: 2 }).await.unwrap();
    let generation = taken.generation;
    let opened = remote.open(OpenRequest { job: JOB, generation, cut: None }).await.unwrap();
    let sealed = |worker| SealedRequest {
        generation,
        epoch: opened.epoch,
        worker,
        definitions: 0,
        retry_of: None,
        ..sealed_with_everything()
    };
    let mut first = std::pin::pin!(remote.sealed(sealed(0)));
    // Many polls long nothing happens.
    let early = tokio::time::timeout(Duration::from_millis(300), first.as_mut()).await;
    assert!(early.is_err(), "{early:?}");
    let (one, other) = futures::join!(first, remote.sealed(sealed(1)));
    let (one, other) = (one.unwrap(), other.unwrap());
    assert_eq!(one, other);
    let Prepared::Prewrite { start_ts, .. } = one else { panic!("{one:?}") };
    let vote =
        |worker| VoteRequest { job: JOB, generation, epoch: opened.epoch, worker, start_ts, done: true };
    remote.vote(vote(0)).await.unwrap();
    let mut decision = std::pin::pin!(remote.decision(JOB, generation, opened.epoch, start_ts));
    assert!(tokio::time::timeout(Duration::from_millis(300), decision.as_mut()).await.is_err());
    remote.vote(vote(1)).await.unwrap();
    assert!(matches!(decision.await.unwrap(), Decision::Committed { .. }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coordinator_store_and_workers_in_three_places() {
    let owner: Arc<dyn Store> = EmbeddedStore::memory();
    let world = World::create(owner.as_ref(), JOB).await;
    let store_server = serve_store(Arc::clone(&owner)).await;
    let coordinator = local(&remote_store(store_server.address()));
    let server = serve_coordinator(Arc::clone(&coordinator) as _).await;
    let remote = remote_coordinator(server.address());
    let store = remote_store(store_server.address());
    let taken = remote.take_over(TakeOverRequest { job: JOB, n_workers: 3 }).await.unwrap();
    let mut workers = Worker::of_run(&world, &remote, &store, &taken, 3, 1);
    for _ in 0..10 {
        let epochs = futures::future::join_all(workers.iter_mut().map(Worker::epoch)).await;
        assert!(epochs.iter().all(Result::is_ok), "{epochs:?}");
        world.audit(remote_store(store_server.address())).await.unwrap();
    }
    assert_eq!(world.audit_history(owner).await, (10, 1, 0));
    server.shutdown().await;
    coordinator.shutdown().await;
    store_server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_coordinator_is_replaced_and_the_epoch_rolled_back() {
    let owner: Arc<dyn Store> = EmbeddedStore::memory();
    let world = World::create(owner.as_ref(), JOB).await;
    let store_server = serve_store(Arc::clone(&owner)).await;
    let store_address = store_server.address();
    let services = move || {
        let coordinator = local(&remote_store(store_address));
        Services { coordinator: Some(coordinator), ..Services::default() }
    };
    let mut process = Process::start(anywhere(), services);
    let remote = remote_coordinator(process.address);
    let take = || remote.take_over(TakeOverRequest { job: JOB, n_workers: 1 });
    let taken = take().await.unwrap();
    let generation = taken.generation;
    let opened = remote.open(OpenRequest { job: JOB, generation, cut: None }).await.unwrap();
    let sealed = SealedRequest {
        generation,
        epoch: opened.epoch,
        definitions: 0,
        retry_of: None,
        ..sealed_with_everything()
    };
    let Prepared::Prewrite { start_ts, .. } = remote.sealed(sealed).await.unwrap() else { panic!("no go") };
    process.kill();
    let vote = VoteRequest { job: JOB, generation, epoch: opened.epoch, worker: 0, start_ts, done: true };
    assert_eq!(remote.vote(vote.clone()).await.unwrap_err().kind(), ErrorKind::Unavailable);
    let restarted = Process::start(process.address, services);
    assert_eq!(restarted.address, process.address);
    let error = until_answered(async || remote.vote(vote.clone()).await).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    // The same worker takes over at once: the lock's time to live is not waited for.
    let again = take().await.unwrap();
    assert_eq!((again.generation, again.frontier.epoch), (generation.next(), Epoch(0)));
    let store = remote_store(store_address);
    let mut workers = Worker::of_run(&world, &remote, &store, &again, 1, 1);
    assert_eq!(workers[0].epoch().await.unwrap(), Epoch(1));
    assert_eq!(world.audit_history(owner).await, (1, 2, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_killed_owner_of_the_store_returns_and_the_epoch_goes_on() {
    let engine = Arc::new(MemoryEngine::new());
    let open = {
        let engine = Arc::clone(&engine);
        move || -> Arc<dyn Store> {
            let options = Options { inline: true, ..Options::default() };
            EmbeddedStore::over(Arc::clone(&engine) as _, options).unwrap()
        }
    };
    let services = {
        let open = open.clone();
        move || Services { store: Some(open()), ..Services::default() }
    };
    let mut process = Process::start(anywhere(), services.clone());
    let store = remote_store(process.address);
    let world = World::create(store.as_ref(), JOB).await;
    let coordinator = local(&store);
    let taken = coordinator.take_over(TakeOverRequest { job: JOB, n_workers: 1 }).await.unwrap();
    let shared: Arc<dyn Coordinator> = Arc::clone(&coordinator) as _;
    let mut workers = Worker::of_run(&world, &shared, &store, &taken, 1, 1);
    workers[0].epoch().await.unwrap();
    // An epoch is prewritten, staged; then its store dies.
    let generation = taken.generation;
    let opened = coordinator.open(OpenRequest { job: JOB, generation, cut: None }).await.unwrap();
    let sealed = SealedRequest {
        generation,
        epoch: opened.epoch,
        definitions: 0,
        retry_of: None,
        ..sealed_with_everything()
    };
    let Prepared::Prewrite { start_ts, .. } = coordinator.sealed(sealed).await.unwrap() else {
        panic!("no go")
    };
    process.kill();
    let vote = VoteRequest { job: JOB, generation, epoch: opened.epoch, worker: 0, start_ts, done: true };
    coordinator.vote(vote).await.unwrap();
    let mut decision = std::pin::pin!(coordinator.decision(JOB, generation, opened.epoch, start_ts));
    // While it is away nothing is guessed.
    let early = tokio::time::timeout(Duration::from_millis(200), decision.as_mut()).await;
    assert!(early.is_err(), "{early:?}");
    let restarted = Process::start(process.address, services);
    let decision = tokio::time::timeout(Duration::from_secs(30), decision).await.expect("in time").unwrap();
    assert_eq!(decision, Decision::Retry);
    assert_eq!(restarted.address, process.address);
    world.audit(Arc::clone(&store)).await.unwrap();
    // This worker gives up all the same, and a new run goes on.
    coordinator.abort(JOB, generation, opened.epoch).await.unwrap();
    let again = coordinator.take_over(TakeOverRequest { job: JOB, n_workers: 1 }).await.unwrap();
    let mut workers = Worker::of_run(&world, &shared, &store, &again, 1, 2);
    assert_eq!(workers[0].epoch().await.unwrap(), Epoch(2));
    drop(restarted);
    assert_eq!(world.audit_history(open()).await.0, 2);
}
