//! Real processes, killed with SIGKILL at every step of an epoch, a commit and a fill, under load.
//!
//! Writers count what was acknowledged. After each kill and restart: every acknowledged transaction is
//! there once (an unacknowledged one may be there once or not at all: unknown is not absent), the views
//! verify, and fresh answers equal live ones. Coordinator and server are killed apart.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use integration::{Client, Server, ServerOptions, connect, soak};
use tokio::sync::Mutex;

const VIEWS: [(&str, &str); 4] = [
    ("totals", "SELECT count(*) AS n, sum(amount) AS amount FROM ledger"),
    ("by_account", "SELECT account, count(*) AS n, sum(amount) AS amount FROM ledger GROUP BY account"),
    ("named", "SELECT l.id, a.name, l.amount FROM ledger l JOIN account a ON l.account = a.id"),
    ("idle", "SELECT a.id FROM account a WHERE NOT EXISTS (SELECT 1 FROM ledger l WHERE l.account = a.id)"),
];

/// What the writers know.
#[derive(Default)]
struct Ledger {
    acknowledged: BTreeSet<u64>,
    unknown: BTreeSet<u64>,
    next: u64,
    written: tokio::sync::watch::Sender<u64>,
}

async fn prepare(client: &mut Client) {
    client.must("CREATE TABLE account (id INT NOT NULL PRIMARY KEY, name VARCHAR(20) NOT NULL)").await;
    client.must("CREATE TABLE ledger (id BIGINT NOT NULL PRIMARY KEY, account INT NOT NULL, amount DECIMAL(12,2))").await;
    let rows: Vec<String> = (0..20).map(|id| format!("({id}, 'account {id}')")).collect();
    client.must(&format!("INSERT INTO account VALUES {}", rows.join(", "))).await;
}

async fn create_views(client: &mut Client) {
    for (name, query) in VIEWS {
        client.must(&format!("CREATE MATERIALIZED VIEW IF NOT EXISTS {name} AS {query}")).await;
    }
}

/// Writes transactions of two rows that cancel each other out, until the server is gone or told to stop.
async fn write(address: SocketAddr, ledger: Arc<Mutex<Ledger>>, stop: Arc<AtomicBool>) {
    let Ok(mut client) = connect(address, "test").await else { return };
    while !stop.load(Ordering::Relaxed) {
        let id = {
            let mut ledger = ledger.lock().await;
            let id = ledger.next;
            ledger.next += 1;
            ledger.unknown.insert(id);
            id
        };
        let (one, other) = (id % 20, (id * 7 + 1) % 20);
        let insert =
            format!("INSERT INTO ledger VALUES ({}, {one}, 1.25), ({}, {other}, -1.25)", id * 2, id * 2 + 1);
        if client.run(&insert).await.is_err() {
            return;
        }
        let mut ledger = ledger.lock().await;
        ledger.unknown.remove(&id);
        ledger.acknowledged.insert(id);
        ledger.written.send_modify(|n_written| *n_written += 1);
    }
}

/// Waits until the writers have been acknowledged so many further transactions.
async fn written(ledger: &Mutex<Ledger>, n_transactions: u64) {
    let mut written = ledger.lock().await.written.subscribe();
    let target = *written.borrow() + n_transactions;
    written.wait_for(|n_written| *n_written >= target).await.expect("the ledger lives");
}

/// All acknowledged pairs are there once, every pair is whole, and nothing else is.
async fn check(client: &mut Client, ledger: &Mutex<Ledger>) {
    let rows = client.must_rows("SELECT id FROM ledger").await;
    let ids: Vec<u64> = rows.iter().map(|row| row.parse().unwrap()).collect();
    let present: BTreeSet<u64> = ids.iter().copied().collect();
    assert_eq!(ids.len(), present.len(), "an id is there twice");
    let ledger = ledger.lock().await;
    for id in &ledger.acknowledged {
        assert!(
            present.contains(&(id * 2)) && present.contains(&(id * 2 + 1)),
            "acknowledged pair {id} is lost"
        );
    }
    for id in &present {
        assert!(present.contains(&(id ^ 1)), "the transaction of row {id} is torn");
        let pair = id / 2;
        assert!(
            ledger.acknowledged.contains(&pair) || ledger.unknown.contains(&pair),
            "row {id} was never written"
        );
    }
}

/// Fresh and wait equal live, and every view verifies.
async fn check_views(client: &mut Client) {
    for (view, _) in VIEWS {
        for mode in ["fresh", "wait"] {
            client.must(&format!("SET tidemill_read_mode = '{mode}'")).await;
            client.must("SET tidemill_snapshot = ''").await;
            let got = client.must_rows(&format!("SELECT * FROM {view}")).await;
            let at = client.one("SELECT @@tidemill_last_read_ts").await;
            client.must("SET tidemill_read_mode = 'live'").await;
            client.must(&format!("SET tidemill_snapshot = '{at}'")).await;
            assert_eq!(
                got,
                client.must_rows(&format!("SELECT * FROM {view}")).await,
                "{mode} read of {view}"
            );
        }
        client.must("SET tidemill_snapshot = ''").await;
        client.must("SET tidemill_read_mode = 'fresh'").await;
        let different = client.must_rows(&format!("VERIFY MATERIALIZED VIEW {view}")).await;
        assert!(different.is_empty(), "{view} differs from its query: {different:?}");
        let state = client.one(&format!("SELECT state FROM tidemill.views WHERE view_name = '{view}'")).await;
        assert_eq!(state.to_lowercase(), "ready", "{view}");
    }
}

fn with_fail_point(point: &str, action: &str) -> ServerOptions {
    let environment = BTreeMap::from([("FAILPOINTS".to_owned(), format!("{point}={action}"))]);
    ServerOptions { environment, ..ServerOptions::default() }
}

/// Runs writers against a server that dies by itself at a fail point, or is killed after a while.
async fn run_until_dead(mut server: Server, ledger: &Arc<Mutex<Ledger>>, kill_after: Option<u64>) {
    let address = server.address();
    let stop = Arc::new(AtomicBool::new(false));
    let writers = (0..4).map(|_| write(address, Arc::clone(ledger), Arc::clone(&stop)));
    let all = futures::future::join_all(writers);
    if let Some(n_transactions) = kill_after {
        let killer = async {
            written(ledger, n_transactions).await;
            server.kill();
        };
        futures::join!(all, killer);
    } else {
        all.await;
        let _status = server.wait_exit();
    }
}

async fn restart_and_check(data: &Path, ledger: &Arc<Mutex<Ledger>>) {
    let server = Server::start(data, &ServerOptions::default());
    let mut client = connect(server.address(), "test").await.unwrap();
    check(&mut client, ledger).await;
    create_views(&mut client).await;
    check_views(&mut client).await;
    assert!(server.terminate().success());
}

#[tokio::test]
async fn killed_at_any_moment_under_load_nothing_is_lost_and_views_verify() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    {
        let server = Server::start(&data, &ServerOptions::default());
        let mut client = connect(server.address(), "test").await.unwrap();
        prepare(&mut client).await;
        create_views(&mut client).await;
        server.kill();
    }
    for round in 0..(if soak() { 40 } else { 3 }) {
        let server = Server::start(&data, &ServerOptions::default());
        run_until_dead(server, &ledger, Some(20 + round * 37 % 150)).await;
        restart_and_check(&data, &ledger).await;
    }
    assert!(!ledger.lock().await.acknowledged.is_empty(), "the writers wrote");
}

#[tokio::test]
async fn dying_at_each_step_of_an_epoch_resumes_from_the_frontier() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    {
        let server = Server::start(&data, &ServerOptions::default());
        let mut client = connect(server.address(), "test").await.unwrap();
        prepare(&mut client).await;
        create_views(&mut client).await;
        assert!(server.terminate().success());
    }
    for point in EPOCH_POINTS {
        println!("fail point {point}");
        let server = Server::start(&data, &with_fail_point(point, "3*off->return(abort)"));
        run_until_dead(server, &ledger, None).await;
        restart_and_check(&data, &ledger).await;
    }
}

/// The steps of an epoch at which a process can die.
const EPOCH_POINTS: &[&str] = &[
    "runtime::opened",
    "runtime::sealed",
    "runtime::runs_written",
    "runtime::prepared",
    "runtime::prewritten",
    "runtime::voted",
    "runtime::decided",
    "runtime::committed",
    "coordinator::after_cut",
    "coordinator::after_start",
    "coordinator::after_read_record",
    "coordinator::after_primary_prewrite",
    "coordinator::before_commit_primary",
    "coordinator::after_commit_primary",
    "coordinator::before_reply_decision",
];

/// The steps of a fill.
const FILL_POINTS: &[&str] = &[
    "runtime::fill_loaded",
    "runtime::fill_piece_read",
    "runtime::fill_piece_done",
    "runtime::fill_offered",
    "runtime::fill_reached",
    "runtime::adopted",
];

#[tokio::test]
async fn a_fill_killed_at_each_piece_resumes_and_is_adopted() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let config = folder.path().join("tidemill.toml");
    std::fs::write(&config, "[runtime]\nrows_per_piece_max = 50\n").unwrap();
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    {
        let server = Server::start(&data, &ServerOptions::default());
        let mut client = connect(server.address(), "test").await.unwrap();
        prepare(&mut client).await;
        for chunk in 0..4 {
            let rows: Vec<String> = (0..100)
                .map(|row| 1_000_000 + chunk * 100 + row)
                .map(|id| format!("({id}, {}, 0.50)", id % 20))
                .collect();
            client.must(&format!("INSERT INTO ledger VALUES {}", rows.join(", "))).await;
        }
        for id in 500_000..500_200 {
            ledger.lock().await.acknowledged.insert(id);
        }
        assert!(server.terminate().success());
    }
    for point in FILL_POINTS {
        println!("fail point {point}");
        let mut options = with_fail_point(point, "return(abort)");
        options.arguments = vec!["--config".to_owned(), config.to_str().unwrap().to_owned()];
        let mut server = Server::start(&data, &options);
        let mut client = connect(server.address(), "test").await.unwrap();
        for (name, query) in VIEWS {
            if client.run(&format!("CREATE MATERIALIZED VIEW IF NOT EXISTS {name} AS {query}")).await.is_err()
            {
                break;
            }
        }
        let _status = server.wait_exit();
        restart_and_check(&data, &ledger).await;
        let server = Server::start(&data, &ServerOptions::default());
        let mut client = connect(server.address(), "test").await.unwrap();
        for (name, _) in VIEWS {
            client.must(&format!("DROP MATERIALIZED VIEW {name}")).await;
        }
        assert!(server.terminate().success());
    }
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A server whose coordinator is a process of its own.
struct Pair {
    server: Server,
    coordinator: Server,
}

struct Ports {
    store: String,
    coordinator: String,
}

fn start_coordinator(ports: &Ports, environment: &BTreeMap<String, String>) -> Server {
    let arguments = ["coordinator", "--store", &ports.store, "--listen", &ports.coordinator];
    Server::run(&arguments, environment, "coordinator is listening on ")
}

fn start_server(data: &Path, ports: &Ports) -> Server {
    let arguments = ["--grpc-listen", &ports.store, "--coordinator", &ports.coordinator].map(str::to_owned);
    Server::start(data, &ServerOptions { arguments: arguments.to_vec(), ..ServerOptions::default() })
}

fn start_pair(data: &Path, ports: &Ports) -> Pair {
    std::thread::scope(|scope| {
        let server = scope.spawn(|| start_server(data, ports));
        let coordinator = start_coordinator(ports, &BTreeMap::new());
        Pair { server: server.join().expect("the server starts"), coordinator }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn coordinator_and_server_killed_apart_under_load_resume() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let ports = Ports {
        store: format!("127.0.0.1:{}", free_port()),
        coordinator: format!("127.0.0.1:{}", free_port()),
    };
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let mut pair = start_pair(&data, &ports);
    let mut client = connect(pair.server.address(), "test").await.unwrap();
    prepare(&mut client).await;
    create_views(&mut client).await;
    for point in ["coordinator::after_primary_prewrite", "coordinator::after_commit_primary", ""] {
        println!("the coordinator dies at {point:?}");
        pair.coordinator.kill();
        let environment = if point.is_empty() {
            BTreeMap::new()
        } else {
            BTreeMap::from([("FAILPOINTS".to_owned(), format!("{point}=2*off->return(abort)"))])
        };
        let mut dying = start_coordinator(&ports, &environment);
        let stop = Arc::new(AtomicBool::new(false));
        let writing = write(pair.server.address(), Arc::clone(&ledger), Arc::clone(&stop));
        let dies = async {
            if point.is_empty() {
                written(&ledger, 30).await;
                dying.kill();
            } else {
                tokio::task::block_in_place(|| dying.wait_exit());
            }
            stop.store(true, Ordering::Relaxed);
        };
        futures::join!(writing, dies);
        pair.coordinator = start_coordinator(&ports, &BTreeMap::new());
        check(&mut client, &ledger).await;
        check_views(&mut client).await;
    }
    // The owner of the directory dies; the coordinator stays and finds it again.
    let stop = Arc::new(AtomicBool::new(false));
    let writing = write(pair.server.address(), Arc::clone(&ledger), stop);
    let server = pair.server;
    let dies = async {
        written(&ledger, 30).await;
        server.kill();
    };
    futures::join!(writing, dies);
    let server = start_server(&data, &ports);
    let mut client = connect(server.address(), "test").await.unwrap();
    check(&mut client, &ledger).await;
    check_views(&mut client).await;
    drop(pair.coordinator);
    drop(server);
}
